use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use freshwire::choice::{Gate, Reason};
use freshwire::framing::{Framer, event_stream};
use freshwire::now;
use freshwire::sink::{Monitor, Seal};
use freshwire::stats::{SinkSnapshot, UnreadBy};
use freshwire::websocket::{MessageKind, Messages};
use tokio::sync::Notify;

use super::envelope::is_bytes;

/// The pause before a browser reconnects to a stream of events.
const RETRY_MS: u32 = 1000;

/// How a watcher is served.
pub struct WatchRequest {
    /// Where the values go. The caller keeps a clone for reading.
    pub socket: TcpStream,
    /// Bytes in front of the values, such as the head of an answer; not yet encrypted.
    pub preface: Vec<u8>,
    /// Encrypts the connection, if it is encrypted.
    pub seal: Option<Box<dyn Seal>>,
    /// Writes the values.
    pub framer: Box<dyn Framer>,
    /// Values that are bytes are sent, too.
    pub takes_bytes: bool,
    /// `None`: the newest value of each key. Otherwise every value that arrives within this time, in order.
    pub within: Option<Duration>,
    /// Values that may be on the way before [`Watcher::acknowledge`](super::Watcher::acknowledge): a program that is slow to handle them then gets the
    /// newest next, instead of a queue in its own buffers. `None`: TCP alone bounds them.
    pub window: Option<u32>,
    /// The only keys it gets; `None` for all.
    pub keys: Option<BTreeSet<String>>,
    /// By which protocol: `websocket`, `events`.
    pub protocol: &'static str,
    /// The watcher's address.
    pub peer: SocketAddr,
}

impl WatchRequest {
    /// Writes each value as a message: text, or binary if it is bytes.
    pub fn messages() -> Box<dyn Framer> {
        let kind = |number| if is_bytes(number) { MessageKind::Binary } else { MessageKind::Text };
        Box::new(Messages::by_number(kind))
    }

    /// Writes each value as an event.
    pub fn events() -> Box<dyn Framer> {
        Box::new(event_stream::EventStream::new().retry(RETRY_MS))
    }
}

/// A watcher, and what its sink reports.
pub(super) struct Identity {
    pub(super) id: u64,
    protocol: &'static str,
    peer: SocketAddr,
    since: Instant,
    pub(super) monitor: Monitor,
    /// With [`WatchRequest::window`]: what it has acknowledged, and the window.
    window: Option<(Gate, u32)>,
    /// Newest values have found no room.
    is_missing: AtomicBool,
    missing: Notify,
}

/// Counters of a watcher.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WatcherSnapshot {
    /// Number of the watcher, unique in the topic's life.
    pub id: u64,
    /// By which protocol.
    pub protocol: &'static str,
    /// Its address.
    pub peer: SocketAddr,
    /// How long it has been served.
    pub age: Duration,
    /// [`WatchRequest::within`].
    pub within: Option<Duration>,
    /// Values dropped because a newer one of their key came, or because they were too old.
    pub dropped: u64,
    /// Keys whose newest value found no room yet.
    pub waiting_keys: usize,
    /// Why values are held back at present, where newer ones replace them; `None` while they leave at once.
    pub held_by: Option<HoldReason>,
    /// For how long it has been held back for what it has not read; `None` if it is not.
    pub held_unread: Option<Duration>,
    /// Counters of the engine.
    pub sink: SinkSnapshot,
}

/// The reason why a watcher's values wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HoldReason {
    /// It has not acknowledged what its [window](WatchRequest::window) allows.
    Acknowledgements,
    /// Its program has not read what its kernel has received.
    Unread(UnreadBy),
    /// The path was the limit within the last ten seconds.
    Path,
}

impl HoldReason {
    /// `acknowledgements`, `unread`, `advertised-window` or `path`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Acknowledgements => "acknowledgements",
            Self::Unread(UnreadBy::Queue) => "unread",
            Self::Unread(_) => "advertised-window",
            Self::Path => "path",
        }
    }
}

impl Identity {
    pub(super) fn new(
        id: u64,
        protocol: &'static str,
        peer: SocketAddr,
        monitor: Monitor,
        window: Option<(Gate, u32)>,
    ) -> Self {
        let (is_missing, missing) = (AtomicBool::new(false), Notify::new());
        Self { id, protocol, peer, since: Instant::now(), monitor, window, is_missing, missing }
    }

    fn held_by(&self, sink: &SinkSnapshot) -> Option<HoldReason> {
        let is_full = |(gate, window): &(Gate, u32)| gate.outstanding() >= u64::from((*window).max(1));
        if self.window.as_ref().is_some_and(is_full) {
            Some(HoldReason::Acknowledgements)
        } else if sink.held_unread_since.is_some() {
            sink.unread_by.map(HoldReason::Unread)
        } else {
            sink.path.is_some_and(|path| !path.at_least).then_some(HoldReason::Path)
        }
    }

    /// Notes whether newest values have found no room. The topic is locked.
    pub(super) fn misses(&self, is_missing: bool) {
        // Release: a wait sees it with the notification.
        if !self.is_missing.swap(is_missing, Ordering::Release) && is_missing {
            self.missing.notify_one();
        }
    }

    /// Newest values have found no room; so it may be where newer ones have since taken their place.
    pub(super) fn is_missing(&self) -> bool {
        self.is_missing.load(Ordering::Acquire)
    }

    /// Waits until newest values find no room; at once if some have not.
    pub(super) async fn missing(&self) {
        while !self.is_missing() {
            self.missing.notified().await;
        }
    }

    pub(super) fn snapshot(
        &self,
        within: Option<Duration>,
        replaced: u64,
        waiting_keys: usize,
    ) -> WatcherSnapshot {
        let sink = self.monitor.stats();
        // The policy hears of some of those that the topic dropped.
        let others = sink.drops.iter().filter(|(reason, _)| *reason != Reason::Application);
        let dropped = replaced + others.map(|(_, count)| count).sum::<u64>();
        WatcherSnapshot {
            id: self.id,
            protocol: self.protocol,
            peer: self.peer,
            age: self.since.elapsed(),
            within,
            dropped,
            waiting_keys,
            held_by: self.held_by(&sink),
            held_unread: sink.held_unread_since.map(|since| now().saturating_since(since)),
            sink,
        }
    }
}

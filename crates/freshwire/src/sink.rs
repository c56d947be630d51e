use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use freshwire_choice::Choice;
use freshwire_media::framing::Framing;

use crate::engine::{Command, Handle, Reserve};
use crate::stats::{SinkSnapshot, SinkStats};

/// The queue on the path that a sink makes unless told otherwise.
pub const DEFAULT_QUEUE_TARGET: Duration = Duration::from_millis(50);

/// How long a dropped sink may take to deliver what was begun unless told otherwise.
pub const DEFAULT_LINGER: Duration = Duration::from_secs(30);

/// How one destination is served.
#[non_exhaustive]
pub struct SinkConfig {
    /// Decides at each commit point.
    pub policy: Box<dyn Choice>,
    /// Keeps the receiver's stream valid whatever is dropped. Default: [`Framing::Raw`], records back to back.
    pub framing: Framing,
    /// How much may be committed and not on the wire. Default: [`Reserve::Auto`].
    pub reserve: Reserve,
    /// How long a queue on the path the sink may make. Bytes are held back in the ring, where they can still be dropped,
    /// while more than the path and this queue hold is on the way; a short queue also lets the kernel notice a lost
    /// segment sooner. Default: [`DEFAULT_QUEUE_TARGET`]; `None` leaves it to the congestion control.
    pub queue_target: Option<Duration>,
    /// The kernel name of the congestion control; `None` keeps the socket's.
    pub congestion: Option<String>,
    /// Shortest retransmission timeout where the kernel lets a socket choose (Linux 6.15 and later); `None` keeps the
    /// kernel's 200 ms.
    pub min_rto: Option<Duration>,
    /// How long a sink that is dropped may take to deliver what was begun. Default: [`DEFAULT_LINGER`].
    pub linger: Duration,
}

impl SinkConfig {
    /// The defaults with this policy.
    pub fn new(policy: impl Choice + 'static) -> Self {
        Self {
            policy: Box::new(policy),
            framing: Framing::Raw,
            reserve: Reserve::Auto,
            queue_target: Some(DEFAULT_QUEUE_TARGET),
            congestion: None,
            min_rto: None,
            linger: DEFAULT_LINGER,
        }
    }

    /// Sets the framing.
    #[must_use]
    pub fn framing(mut self, framing: Framing) -> Self {
        self.framing = framing;
        self
    }

    /// Sets the reserve.
    #[must_use]
    pub fn reserve(mut self, reserve: Reserve) -> Self {
        self.reserve = reserve;
        self
    }

    /// Sets the queue that the sink may make on the path.
    #[must_use]
    pub fn queue_target(mut self, queue: Option<Duration>) -> Self {
        self.queue_target = queue;
        self
    }

    /// Sets the congestion control by its kernel name.
    #[must_use]
    pub fn congestion(mut self, name: impl Into<String>) -> Self {
        self.congestion = Some(name.into());
        self
    }

    /// Sets how long a dropped sink may take to deliver what was begun.
    #[must_use]
    pub fn linger(mut self, linger: Duration) -> Self {
        self.linger = linger;
        self
    }

    /// Sets the shortest retransmission timeout.
    #[must_use]
    pub fn min_rto(mut self, timeout: Duration) -> Self {
        self.min_rto = Some(timeout);
        self
    }
}

/// What happens to the rest when a sink is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CloseMode {
    /// Send what is queued and what the policy still wants, then end the stream.
    Drain,
    /// Finish the record that was begun, drop the others, then end the stream.
    FinishRecord,
    /// Discard everything and reset the connection.
    Abort,
}

/// How a sink ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ended {
    /// It was closed by its owner; after [`CloseMode::Drain`] and [`CloseMode::FinishRecord`] the peer has acknowledged
    /// every byte.
    Closed,
    /// The connection broke, or ran out of time while it was closed; the text is the operating system's or says so.
    Broken(String),
}

/// One destination that an engine serves. Dropping it closes the destination with [`CloseMode::FinishRecord`], and aborts
/// it if that takes longer than [`SinkConfig::linger`].
pub struct Sink {
    pub(crate) id: u64,
    pub(crate) ring: usize,
    pub(crate) shared: Arc<SinkShared>,
    pub(crate) engine: Handle,
    pub(crate) linger: Duration,
    pub(crate) closed: bool,
}

impl Sink {
    /// The ring of the sender's region that feeds this sink.
    pub fn ring(&self) -> usize {
        self.ring
    }

    /// What it has done so far.
    pub fn stats(&self) -> SinkSnapshot {
        self.shared.stats.snapshot()
    }

    /// How it ended, `None` while it is served.
    pub fn ended(&self) -> Option<Ended> {
        self.shared.ended()
    }

    /// Begins to close and waits at most `timeout` for the end; past it the connection is aborted. Returns how it ended.
    pub fn close(mut self, mode: CloseMode, timeout: Duration) -> Ended {
        self.closed = true;
        self.engine.send(Command::Close(self.id, mode));
        if let Some(ended) = self.shared.wait(timeout) {
            return ended;
        }
        self.engine.send(Command::Close(self.id, CloseMode::Abort));
        self.shared.wait(timeout).unwrap_or(Ended::Broken("the engine has stopped".to_owned()))
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        if !self.closed {
            self.engine.send(Command::Leave(self.id, self.linger));
        }
    }
}

/// What the engine and the owner of a sink both see.
#[derive(Debug, Default)]
pub(crate) struct SinkShared {
    pub(crate) stats: SinkStats,
    ended: Mutex<Option<Ended>>,
    changed: Condvar,
}

impl SinkShared {
    pub(crate) fn end(&self, ended: Ended) {
        *self.ended.lock().unwrap_or_else(PoisonError::into_inner) = Some(ended);
        self.changed.notify_all();
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended().is_some()
    }

    fn ended(&self) -> Option<Ended> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn wait(&self, timeout: Duration) -> Option<Ended> {
        let guard = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let (guard, _) = self
            .changed
            .wait_timeout_while(guard, timeout, |ended| ended.is_none())
            .unwrap_or_else(PoisonError::into_inner);
        guard.clone()
    }
}

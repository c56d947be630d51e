use std::convert::Infallible;
use std::future::pending;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use freshwire::choice::Gate;
use freshwire::watch::SinkWatch;
use freshwire::{Ended, Sink};

use super::member::{Identity, WatchRequest, WatcherSnapshot};
use super::{Topic, ValueError};

/// The pause after a look that found no room. Some values still wait in the ring then, so that the path does not run dry.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// A watcher's place in a topic; dropping it disconnects after the value in progress.
pub struct Watcher {
    topic: Arc<Topic>,
    identity: Arc<Identity>,
    /// `None` after [`finish_with`](Self::finish_with).
    sink: Option<Sink>,
    /// From the first value on that found no room; until then the engine does not report room.
    room: OnceLock<SinkWatch>,
    gate: Option<Gate>,
}

impl Topic {
    /// Serves a watcher: the newest value of each key first, in the order in which they were set.
    ///
    /// # Errors
    ///
    /// [`ValueError::TooManyWatchers`], and [`ValueError::Io`] if the socket cannot be used.
    pub fn watch(self: &Arc<Self>, request: WatchRequest) -> Result<Watcher, ValueError> {
        let (identity, sink, gate) = self.join(request)?;
        Ok(Watcher { topic: Arc::clone(self), identity, sink: Some(sink), room: OnceLock::new(), gate })
    }
}

impl Watcher {
    /// The client has handled this number of values in all. Without a [`window`](WatchRequest::window) it has no effect.
    pub fn acknowledge(&self, total: u64) {
        if let Some(gate) = &self.gate {
            gate.acknowledge(total);
        }
    }

    /// Sends whole frames or events of its protocol between two values.
    pub fn interject(&self, bytes: Vec<u8>) {
        if let Some(sink) = &self.sink {
            sink.interject(bytes);
        }
    }

    /// Ends it: the value in progress, then these bytes.
    pub fn finish_with(mut self, last: Vec<u8>) {
        if let Some(sink) = self.sink.take() {
            sink.finish_with(last);
        }
    }

    /// How it ended, `None` while it is served.
    pub fn ended(&self) -> Option<Ended> {
        self.identity.monitor.ended()
    }

    /// Offers the client again what found no room, as soon as its ring has some. Cancel safe. Room in the arena that other
    /// watchers make is noticed by [`snapshot`](Self::snapshot) only.
    pub async fn offer_missed(&self) -> Infallible {
        loop {
            self.identity.missing().await;
            let Some(room) = self.room() else { return pending().await };
            room.changed().await;
            // A publisher may have offered it meanwhile. The engine reports each turn, also those that take nothing from the ring, and the
            // topic's lock is shared.
            if self.identity.is_missing() && !self.topic.retry(self.identity.id) {
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        }
    }

    /// `None` where the engine reports no room: the carrier is the kernel's ring, or the sink was given away.
    fn room(&self) -> Option<&SinkWatch> {
        if let Some(room) = self.room.get() {
            return Some(room);
        }
        let room = SinkWatch::new(self.sink.as_ref()?).ok()?;
        Some(self.room.get_or_init(|| room))
    }

    /// Its counters. Offers it again what found no room: call it about twice a second.
    pub fn snapshot(&self) -> Option<WatcherSnapshot> {
        self.topic.retry(self.identity.id);
        self.topic.watcher_snapshot(self.identity.id)
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.topic.leave(self.identity.id);
    }
}

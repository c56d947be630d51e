use std::sync::Arc;
use std::time::Duration;

use super::ended::{CloseMode, Ended, SinkError};
use super::id::SinkId;
use super::shared::SinkShared;
use crate::stats::SinkSnapshot;
use freshwire_record::Rate;

/// One destination, served by an engine or an A1 node. Dropping it closes the destination with
/// [`CloseMode::FinishRecord`], and aborts after [`SinkConfig::linger`](crate::SinkConfig::linger).
pub struct Sink {
    id: SinkId,
    pub(crate) shared: Arc<SinkShared>,
    server: Box<dyn Server>,
    linger: Duration,
    closed: bool,
}

/// Wakes whatever serves a sink, after a push that asks for it.
pub(crate) trait Notifier: Send + Sync {
    fn notify(&self);
}

/// The requests of a sink's owner to the engine or node that serves it. No call waits.
pub(crate) trait Server: Send + Sync {
    /// Begin to close, or abort what is closing already.
    fn close(&self, mode: CloseMode);
    /// Close as if dropped: finish the record, send `last`, and abort if that takes longer than the time given.
    fn leave(&self, last: Vec<u8>, linger: Duration);
    /// Send bytes between two records.
    fn interject(&self, bytes: Vec<u8>);
}

impl Sink {
    /// A sink that `server` serves from `ring`.
    pub(crate) fn new(
        ring: usize,
        shared: Arc<SinkShared>,
        server: Box<dyn Server>,
        linger: Duration,
    ) -> Self {
        Self { id: SinkId::next(ring), shared, server, linger, closed: false }
    }

    /// Handle of this sink, for [`Sender::push`](crate::Sender::push) and the other calls.
    pub fn id(&self) -> SinkId {
        self.id
    }

    /// Returns a handle to observe the sink, which may outlive it.
    pub fn monitor(&self) -> Monitor {
        Monitor(Arc::clone(&self.shared))
    }

    /// Current statistics.
    pub fn stats(&self) -> SinkSnapshot {
        self.shared.snapshot()
    }

    /// Bytes that the peer has acknowledged.
    pub(crate) fn acked(&self) -> u64 {
        self.shared.stats.acked()
    }

    /// The delivery rate of its path, if it is known.
    pub(crate) fn rate(&self) -> Option<Rate> {
        self.shared.stats.rate()
    }

    /// Reason for which [`Carrier::Auto`](crate::sink::Carrier::Auto) chose plain TCP. `None` if the kernel ring is in use, or plain TCP
    /// was requested.
    pub fn fallback(&self) -> Option<&str> {
        self.shared.fallback.as_deref()
    }

    /// Reason for the end; `None` while the sink is served.
    pub fn ended(&self) -> Option<Ended> {
        self.shared.ended()
    }

    /// Sends bytes between two records, or between two packets of one where the framing permits: for example
    /// the answer to a request on the same connection.
    ///
    /// The sink ends if the peer leaves more than 64 KiB of them unread, or if its carrier is
    /// [`KernelRing`](crate::sink::CarrierInUse::KernelRing) or [`A1`](crate::sink::CarrierInUse::A1), which cannot interject.
    pub fn interject(&self, bytes: Vec<u8>) {
        self.server.interject(bytes);
    }

    /// Closes the sink as if dropped, and sends `last` behind the record in progress: for example what ends the
    /// session of the protocol. No other record is sent. At most 64 KiB; A1 and the kernel's ring cannot send it.
    pub fn finish_with(mut self, last: Vec<u8>) {
        self.closed = true;
        self.server.leave(last, self.linger);
    }

    /// Starts to close the sink without waiting: [`ended`](Self::ended) reports the end. [`close`](Self::close) with
    /// [`CloseMode::Abort`] cuts it short. Dropping the sink does not.
    pub fn start_close(&mut self, mode: CloseMode) {
        self.closed = true;
        self.server.close(mode);
    }

    /// Closes the sink and waits at most `timeout`, after which the connection is aborted. Returns the reason
    /// for the end.
    pub fn close(mut self, mode: CloseMode, timeout: Duration) -> Ended {
        self.closed = true;
        self.server.close(mode);
        if let Some(ended) = self.shared.wait(timeout) {
            return ended;
        }
        self.server.close(CloseMode::Abort);
        self.shared.wait(timeout).unwrap_or(Ended::Broken(SinkError::Stopped))
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        if !self.closed {
            self.server.leave(Vec::new(), self.linger);
        }
    }
}

/// Observes a [`Sink`], also after its end.
#[derive(Clone, Debug)]
pub struct Monitor(Arc<SinkShared>);

impl Monitor {
    /// Current statistics.
    pub fn stats(&self) -> SinkSnapshot {
        self.0.snapshot()
    }

    /// Reason for the end; `None` while the sink is served.
    pub fn ended(&self) -> Option<Ended> {
        self.0.ended()
    }

    /// Waits at most `timeout` for the end, and returns the reason for it; `None` while the sink is served.
    pub fn wait(&self, timeout: Duration) -> Option<Ended> {
        self.0.wait(timeout)
    }
}

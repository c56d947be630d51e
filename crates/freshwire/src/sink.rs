use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use freshwire_io::poll::Event;
use freshwire_ring::MAX_KEPT_FATES;

use crate::carrier::CarrierInUse;
use crate::ended::{CloseMode, Ended, SinkError};
use crate::kernel_view::KernelView;
use crate::signal::Signal;
use crate::sink_id::SinkId;
use crate::stats::{SinkSnapshot, SinkStats};
use freshwire_record::{Rate, Timestamp};

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
pub(crate) trait Call: Send + Sync {
    fn call(&self);
}

/// Who serves a sink, and what its owner can ask of it. Nothing here waits.
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

    /// Reason for which [`Carrier::Auto`](crate::Carrier::Auto) chose plain TCP. `None` if the kernel ring is in use, or plain TCP
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
    /// [`CarrierInUse::KernelRing`] or [`CarrierInUse::A1`], which cannot interject.
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

/// What the engine and the owner of a sink both see.
#[derive(Debug, Default)]
pub(crate) struct SinkShared {
    pub(crate) stats: SinkStats,
    carrier: CarrierInUse,
    /// Why it is not the carrier that was wanted.
    fallback: Option<String>,
    /// Where the numbers are if the engine has none. Boxed: hardly a sink has it.
    pub(crate) kernel: Option<Box<KernelView>>,
    /// Acknowledgements of records whose slots were used again before.
    late_acks: LateAcks,
    ended: Mutex<Option<(Ended, Timestamp)>>,
    changed: Condvar,
    /// Tells a program that waits for changes.
    signal: Signal,
    /// Readable from the end on; made when a program asks, and let go at the end.
    end_event: Mutex<Option<Event>>,
}

/// What the engine could not write into a ring any more, for whoever polls fates.
#[derive(Debug, Default)]
pub(crate) struct LateAcks {
    list: Mutex<Vec<(u64, Option<Timestamp>)>>,
    /// Spares the lock where there is nothing.
    is_empty_hint: AtomicBool,
}

impl LateAcks {
    /// Notes that the record at `index` was acknowledged; `at` if that is known. Of a program that polls nothing the newest are not kept.
    pub(crate) fn add(&self, index: u64, at: Option<Timestamp>) {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        if list.len() < MAX_KEPT_FATES {
            list.push((index, at));
        }
        self.is_empty_hint.store(false, Ordering::Release);
    }

    /// Takes all out.
    pub(crate) fn take(&self) -> Vec<(u64, Option<Timestamp>)> {
        if self.is_empty_hint.swap(true, Ordering::AcqRel) {
            return Vec::new();
        }
        std::mem::take(&mut *self.list.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl SinkShared {
    pub(crate) fn new(carrier: CarrierInUse, fallback: Option<String>, kernel: Option<KernelView>) -> Self {
        Self { carrier, fallback, kernel: kernel.map(Box::new), ..Self::default() }
    }

    fn snapshot(&self) -> SinkSnapshot {
        let snapshot = match &self.kernel {
            Some(kernel) => kernel.snapshot(),
            None => self.stats.snapshot(),
        };
        let overwritten = self.stats.overwritten();
        SinkSnapshot { carrier: self.carrier, overwritten, ..snapshot }
    }

    pub(crate) fn late_acks(&self) -> &LateAcks {
        &self.late_acks
    }

    pub(crate) fn end(&self, ended: Ended) {
        *self.ended.lock().unwrap_or_else(PoisonError::into_inner) = Some((ended, freshwire_io::now()));
        self.changed.notify_all();
        if let Some(event) = self.lock_end_event().take() {
            event.signal();
        }
        self.note_change();
    }

    /// A file that is readable from the end on.
    pub(crate) fn end_event(&self) -> io::Result<Event> {
        let mut kept = self.lock_end_event();
        let event = match &*kept {
            Some(event) => event.clone(),
            None => kept.insert(Event::new()?).clone(),
        };
        // An end before the file was there has signalled nothing.
        if self.has_ended() {
            event.signal();
            *kept = None;
        }
        Ok(event)
    }

    fn lock_end_event(&self) -> MutexGuard<'_, Option<Event>> {
        self.end_event.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something became of records, or the sink has ended: wakes a program that waits for it.
    #[inline]
    pub(crate) fn note_change(&self) {
        self.signal.set();
    }

    pub(crate) fn signal(&self) -> &Signal {
        &self.signal
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.lock_end().is_some()
    }

    pub(crate) fn ended(&self) -> Option<Ended> {
        self.lock_end().as_ref().map(|(ended, _)| ended.clone())
    }

    pub(crate) fn ended_at(&self) -> Option<Timestamp> {
        self.lock_end().as_ref().map(|&(_, at)| at)
    }

    fn lock_end(&self) -> MutexGuard<'_, Option<(Ended, Timestamp)>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self, timeout: Duration) -> Option<Ended> {
        let guard = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let (guard, _) = self
            .changed
            .wait_timeout_while(guard, timeout, |ended| ended.is_none())
            .unwrap_or_else(PoisonError::into_inner);
        guard.as_ref().map(|(ended, _)| ended.clone())
    }
}

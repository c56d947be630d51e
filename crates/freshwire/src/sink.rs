use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use freshwire_choice::Choice;
use freshwire_media::framing::{Framer, Framing};

use freshwire_ring::MAX_KEPT_FATES;

use crate::carrier::{Carrier, CarrierInUse};
use crate::engine::Reserve;
use crate::kernel_view::KernelView;
use crate::seal::Seal;
use crate::sink_id::SinkId;
use crate::stats::{SinkSnapshot, SinkStats};
use freshwire_units::{Rate, Timestamp};

/// Default bound on the bottleneck queue that a sink may build.
pub const DEFAULT_QUEUE_TARGET: Duration = Duration::from_millis(50);

/// Default bound on unread bytes for state policies: just above the noise of window updates in the first
/// seconds of small segments.
pub const DEFAULT_MAX_UNREAD: u32 = 10 << 10;

/// Default time for a dropped sink to deliver the record in progress.
pub const DEFAULT_LINGER: Duration = Duration::from_secs(30);

/// Configuration of one destination.
#[non_exhaustive]
pub struct SinkConfig {
    /// Selects the record to send, at each commit point.
    pub policy: Box<dyn Choice>,
    /// Carrier of the records. Default: [`Carrier::Tcp`].
    pub carrier: Carrier,
    /// Framing of the records; keeps the stream valid when records are dropped. Default: [`Framing::Raw`],
    /// records back to back.
    pub framer: Box<dyn Framer>,
    /// Encrypts the stream. Default: none.
    pub seal: Option<Box<dyn Seal>>,
    /// Bytes sent before the stream and its framing. Default: none.
    pub preface: Vec<u8>,
    /// Bound on the bytes that are committed and not on the wire. Default: [`Reserve::Auto`].
    pub reserve: Reserve,
    /// Bound on the bottleneck queue that this sink may build, as a time. Beyond it records stay in the ring,
    /// where they can still be dropped; a short queue also reveals lost segments sooner. Default:
    /// [`DEFAULT_QUEUE_TARGET`]. `None` leaves the queue to the congestion control, and
    /// [`CarrierInUse::KernelRing`] always does.
    pub queue_target: Option<Duration>,
    /// Bound on the bytes that the receiving program has not read. Beyond it records stay in the ring, where
    /// newer values replace them. TCP acknowledges data before the program reads it; only the advertised
    /// window reveals the difference.
    ///
    /// The estimate is the connection's largest window minus the present one, as of the last acknowledgement.
    /// Between Linux machines the error is what the receiver buffers before its window shrinks (some 10 kB),
    /// plus the rounding of windows (128 bytes to 16 kB). While the bound holds records back, one at a time
    /// is sent, 2 ms to 1 s apart, since only an acknowledgement shows that the program reads again.
    ///
    /// Behind a proxy the estimate describes the proxy. Alternatives: a small `SO_RCVBUF` at the receiver, a
    /// [gate](freshwire_choice::gate()) that the program's acknowledgements open (exact), or A1. Requires
    /// Linux 5.4 and plain TCP, and has no effect elsewhere.
    ///
    /// Default: [`DEFAULT_MAX_UNREAD`] if the policy [is for state](Choice::is_for_state), else `None`.
    pub max_unread: Option<u32>,
    /// Largest number of keys. A sink whose ring has [too few slots](freshwire_ring::Config::slots_for) for
    /// the newest value of each key is refused. Default: `None`, not checked.
    pub keys: Option<u32>,
    /// The kernel name of the congestion control; `None` keeps the socket's.
    pub congestion: Option<String>,
    /// Shortest retransmission timeout (Linux 6.15 and later). `None` keeps the kernel's 200 ms.
    pub min_rto: Option<Duration>,
    /// Longest retransmission timeout (Linux 6.15 and later), at least one second: the longest pause before
    /// the path is tried again in an outage. `None` keeps the kernel's two minutes.
    pub max_rto: Option<Duration>,
    /// Time for a dropped sink to deliver the record in progress. Default: [`DEFAULT_LINGER`].
    pub linger: Duration,
    /// Time after which a peer that accepts no data, although there is some, is disconnected. Default:
    /// `None`; TCP gives up after some fifteen minutes.
    pub stall_timeout: Option<Duration>,
    /// Whether fates wait for the acknowledgement, over TCP. If `false`, a fate is complete when the last
    /// byte is handed over, which is less work with many receivers. Default: `true`. The kernel ring always
    /// reports acknowledgements.
    pub ack_fates: bool,
    /// Interval at which the kernel polls an empty ring, for [`CarrierInUse::KernelRing`] only, at most a
    /// second. A steady stream then makes one system call, and a record that finds the ring empty waits for
    /// the next poll. Default: `None`; the kernel sleeps, and the next record wakes it with a system call.
    pub kernel_watch: Option<Duration>,
}

impl SinkConfig {
    /// Creates the default configuration with this policy.
    pub fn new(policy: impl Choice + 'static) -> Self {
        Self {
            max_unread: policy.is_for_state().then_some(DEFAULT_MAX_UNREAD),
            keys: None,
            policy: Box::new(policy),
            carrier: Carrier::default(),
            framer: Framing::Raw.into(),
            seal: None,
            preface: Vec::new(),
            reserve: Reserve::Auto,
            queue_target: Some(DEFAULT_QUEUE_TARGET),
            congestion: None,
            min_rto: None,
            max_rto: None,
            linger: DEFAULT_LINGER,
            stall_timeout: None,
            ack_fates: true,
            kernel_watch: None,
        }
    }

    /// Sets the [`carrier`](Self::carrier).
    #[must_use]
    pub fn carrier(mut self, carrier: Carrier) -> Self {
        self.carrier = carrier;
        self
    }

    /// Sets the framing.
    #[must_use]
    pub fn framing(mut self, framing: impl Into<Box<dyn Framer>>) -> Self {
        self.framer = framing.into();
        self
    }

    /// Sets the encryption.
    #[must_use]
    pub fn seal(mut self, seal: Option<Box<dyn Seal>>) -> Self {
        self.seal = seal;
        self
    }

    /// Sets the bytes before the stream.
    #[must_use]
    pub fn preface(mut self, bytes: Vec<u8>) -> Self {
        self.preface = bytes;
        self
    }

    /// Sets the interval at which the kernel polls an empty ring.
    #[must_use]
    pub fn kernel_watch(mut self, every: Option<Duration>) -> Self {
        self.kernel_watch = every;
        self
    }

    /// Sets the time after which a stalled peer is disconnected.
    #[must_use]
    pub fn stall_timeout(mut self, timeout: Option<Duration>) -> Self {
        self.stall_timeout = timeout;
        self
    }

    /// Sets whether fates wait for the acknowledgement.
    #[must_use]
    pub fn ack_fates(mut self, wanted: bool) -> Self {
        self.ack_fates = wanted;
        self
    }

    /// Sets the reserve.
    #[must_use]
    pub fn reserve(mut self, reserve: Reserve) -> Self {
        self.reserve = reserve;
        self
    }

    /// Sets the bound on the bottleneck queue.
    #[must_use]
    pub fn queue_target(mut self, queue: Option<Duration>) -> Self {
        self.queue_target = queue;
        self
    }

    /// Sets the bound on unread bytes.
    #[must_use]
    pub fn max_unread(mut self, bytes: Option<u32>) -> Self {
        self.max_unread = bytes;
        self
    }

    /// Sets the number of keys that the ring must have slots for.
    #[must_use]
    pub fn keys(mut self, keys: u32) -> Self {
        self.keys = Some(keys);
        self
    }

    /// Sets the congestion control by its kernel name.
    #[must_use]
    pub fn congestion(mut self, name: impl Into<String>) -> Self {
        self.congestion = Some(name.into());
        self
    }

    /// Sets the time for a dropped sink to deliver the record in progress.
    #[must_use]
    pub fn linger(mut self, linger: Duration) -> Self {
        self.linger = linger;
        self
    }

    /// Sets the longest retransmission timeout.
    #[must_use]
    pub fn max_rto(mut self, timeout: Duration) -> Self {
        self.max_rto = Some(timeout);
        self
    }

    /// Sets the shortest retransmission timeout.
    #[must_use]
    pub fn min_rto(mut self, timeout: Duration) -> Self {
        self.min_rto = Some(timeout);
        self
    }
}

/// Treatment of queued records when a sink is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CloseMode {
    /// Send the queued records that the policy still wants, then end the stream.
    Drain,
    /// Finish the record in progress, drop the others, then end the stream.
    FinishRecord,
    /// Discard everything and reset the connection, also where a clone of its socket is open.
    Abort,
}

/// Reason for the end of a sink.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ended {
    /// It was closed by its owner; after [`CloseMode::Drain`] and [`CloseMode::FinishRecord`] the peer has acknowledged
    /// every byte.
    Closed,
    /// The connection broke, or ran out of time while it was closed; the text is the operating system's or says so.
    Broken(String),
}

/// One destination, served by an engine or an A1 node. Dropping it closes the destination with
/// [`CloseMode::FinishRecord`], and aborts after [`SinkConfig::linger`].
pub struct Sink {
    id: SinkId,
    pub(crate) shared: Arc<SinkShared>,
    server: Box<dyn Server>,
    linger: Duration,
    closed: bool,
}

/// Who serves a sink, and what its owner can ask of it. Nothing here waits.
pub(crate) trait Server: Send + Sync {
    /// Begin to close, or abort what is closing already.
    fn close(&self, mode: CloseMode);
    /// Close as if dropped: finish the record, and abort if that takes longer than the time given.
    fn leave(&self, linger: Duration);
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

    /// Reason for which [`Carrier::Auto`] chose plain TCP. `None` if the kernel ring is in use, or plain TCP
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

    /// Closes the sink and waits at most `timeout`, after which the connection is aborted. Returns the reason
    /// for the end.
    pub fn close(mut self, mode: CloseMode, timeout: Duration) -> Ended {
        self.closed = true;
        self.server.close(mode);
        if let Some(ended) = self.shared.wait(timeout) {
            return ended;
        }
        self.server.close(CloseMode::Abort);
        self.shared.wait(timeout).unwrap_or(Ended::Broken("the engine has stopped".to_owned()))
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        if !self.closed {
            self.server.leave(self.linger);
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
        SinkSnapshot { carrier: self.carrier, ..snapshot }
    }

    pub(crate) fn late_acks(&self) -> &LateAcks {
        &self.late_acks
    }

    pub(crate) fn end(&self, ended: Ended) {
        *self.ended.lock().unwrap_or_else(PoisonError::into_inner) = Some((ended, freshwire_io::now()));
        self.changed.notify_all();
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

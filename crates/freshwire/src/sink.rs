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
use crate::stats::{SinkSnapshot, SinkStats};
use freshwire_units::{Rate, Timestamp};

/// The queue on the path that a sink makes unless told otherwise.
pub const DEFAULT_QUEUE_TARGET: Duration = Duration::from_millis(50);

/// What may lie unread in front of a program that wants the newest values, in bytes, unless told otherwise: just above what windows lose by
/// themselves in the first seconds of small segments.
pub const DEFAULT_MAX_UNREAD: u32 = 10 << 10;

/// How long a dropped sink may take to deliver what was begun unless told otherwise.
pub const DEFAULT_LINGER: Duration = Duration::from_secs(30);

/// How one destination is served.
#[non_exhaustive]
pub struct SinkConfig {
    /// Decides at each commit point.
    pub policy: Box<dyn Choice>,
    /// What takes the records to the wire. Default: [`Carrier::Tcp`].
    pub carrier: Carrier,
    /// Keeps the receiver's stream valid whatever is dropped. Default: [`Framing::Raw`], records back to back.
    pub framer: Box<dyn Framer>,
    /// Encrypts the stream. Default: none.
    pub seal: Option<Box<dyn Seal>>,
    /// Bytes in front of the stream, before those that the framing opens it with. Default: none.
    pub preface: Vec<u8>,
    /// How much may be committed and not on the wire. Default: [`Reserve::Auto`].
    pub reserve: Reserve,
    /// How long a queue on the path the sink may make. Bytes are held back in the ring, where they can still be dropped,
    /// while more than the path and this queue hold is on the way; a short queue also lets the kernel notice a lost
    /// segment sooner. Default: [`DEFAULT_QUEUE_TARGET`]; `None` leaves it to the congestion control, as does
    /// [`CarrierInUse::KernelRing`] always.
    pub queue_target: Option<Duration>,
    /// How many bytes may lie unread in front of the receiving program before records are held back in the ring, where newer values
    /// still take their place. TCP acknowledges what nobody has read, and only the window that the peer advertises tells of it.
    ///
    /// The estimate is the largest window of the connection less the present one, as of the last acknowledgement. Between Linux
    /// machines it is off by what the receiver's buffer takes before its window shrinks, some 10 kB, and by the rounding of windows,
    /// 128 bytes to 16 kB. While it holds back, one record at a time goes out (2 ms to 1 s apart), since only an acknowledgement tells
    /// that the program reads again. Proxies hide the program: their windows tell of the proxy. A receiver with a small `SO_RCVBUF`
    /// bounds by itself; a [gate](freshwire_choice::gate()) is exact where the program acknowledges; A1 needs neither. Needs Linux 5.4
    /// and plain TCP, and is without effect elsewhere.
    ///
    /// Default: [`DEFAULT_MAX_UNREAD`] where the policy [is for state](Choice::is_for_state), else `None`.
    pub max_unread: Option<u32>,
    /// How many keys the records have, at most: the sink is refused if its ring has
    /// [too few slots](freshwire_ring::Config::slots_for) to take the newest value of each at any time. Default: `None`, not checked.
    pub keys: Option<u32>,
    /// The kernel name of the congestion control; `None` keeps the socket's.
    pub congestion: Option<String>,
    /// Shortest retransmission timeout where the kernel lets a socket choose (Linux 6.15 and later); `None` keeps the
    /// kernel's 200 ms.
    pub min_rto: Option<Duration>,
    /// Longest retransmission timeout where the kernel lets a socket choose (Linux 6.15 and later, at least one second):
    /// how soon after an outage the path is tried again. `None` keeps the kernel's two minutes.
    pub max_rto: Option<Duration>,
    /// How long a sink that is dropped may take to deliver what was begun. Default: [`DEFAULT_LINGER`].
    pub linger: Duration,
    /// After what time a peer that takes nothing, although there is something to take, is given up. Default: never; TCP
    /// itself gives up after some fifteen minutes.
    pub stall_timeout: Option<Duration>,
    /// Whether the fate of a record says when it was acknowledged, over TCP. Without that a record's fate is complete when
    /// its last byte is handed over, and it is looked at no more: less work for each of many receivers. Default: true. The
    /// kernel's ring says it always.
    pub ack_fates: bool,
    /// After what time the kernel looks at its ring again when it has found it empty, for [`CarrierInUse::KernelRing`] alone: a
    /// steady stream then makes one system call, and each record that finds the ring empty waits for the next look. At most a
    /// second. Default: `None`, the kernel sleeps and the next record wakes it with a system call.
    pub kernel_watch: Option<Duration>,
}

impl SinkConfig {
    /// The defaults with this policy.
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

    /// Sets what takes the records to the wire.
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

    /// Sets what encrypts the stream.
    #[must_use]
    pub fn seal(mut self, seal: Option<Box<dyn Seal>>) -> Self {
        self.seal = seal;
        self
    }

    /// Sets the bytes in front of the stream.
    #[must_use]
    pub fn preface(mut self, bytes: Vec<u8>) -> Self {
        self.preface = bytes;
        self
    }

    /// Sets after what time the kernel looks at an empty ring of its own again.
    #[must_use]
    pub fn kernel_watch(mut self, every: Option<Duration>) -> Self {
        self.kernel_watch = every;
        self
    }

    /// Sets after what time a peer that takes nothing is given up.
    #[must_use]
    pub fn stall_timeout(mut self, timeout: Option<Duration>) -> Self {
        self.stall_timeout = timeout;
        self
    }

    /// Sets whether fates say when a record was acknowledged.
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

    /// Sets the queue that the sink may make on the path.
    #[must_use]
    pub fn queue_target(mut self, queue: Option<Duration>) -> Self {
        self.queue_target = queue;
        self
    }

    /// Sets how many bytes may lie unread in front of the receiving program.
    #[must_use]
    pub fn max_unread(mut self, bytes: Option<u32>) -> Self {
        self.max_unread = bytes;
        self
    }

    /// Sets how many keys the records have at most, which is checked against the ring's slots.
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

    /// Sets how long a dropped sink may take to deliver what was begun.
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

/// What happens to the rest when a sink is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CloseMode {
    /// Send what is queued and what the policy still wants, then end the stream.
    Drain,
    /// Finish the record that was begun, drop the others, then end the stream.
    FinishRecord,
    /// Discard everything and reset the connection, also where a clone of its socket is open.
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

/// One destination that an engine, or an A1 node, serves. Dropping it closes the destination with [`CloseMode::FinishRecord`], and aborts
/// it if that takes longer than [`SinkConfig::linger`].
pub struct Sink {
    pub(crate) ring: usize,
    pub(crate) shared: Arc<SinkShared>,
    pub(crate) server: Box<dyn Server>,
    pub(crate) linger: Duration,
    pub(crate) closed: bool,
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
    /// The ring of the sender's region that feeds this sink.
    pub fn ring(&self) -> usize {
        self.ring
    }

    /// A handle that tells how it is, for whoever does not own it.
    pub fn monitor(&self) -> Monitor {
        Monitor(Arc::clone(&self.shared))
    }

    /// What it has done so far.
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

    /// Why [`Carrier::Auto`] has plain TCP, in words; `None` if it has the kernel's ring, or plain TCP was asked for.
    pub fn fallback(&self) -> Option<&str> {
        self.shared.fallback.as_deref()
    }

    /// How it ended, `None` while it is served.
    pub fn ended(&self) -> Option<Ended> {
        self.shared.ended()
    }

    /// Sends bytes between two records, or between two packets of one where the framing allows that: the answer to a
    /// request on the same connection, for instance. A peer that lets 64 KiB of them pile up is given up. With
    /// [`CarrierInUse::KernelRing`] nobody is there to do so, and with [`CarrierInUse::A1`] there is no place between
    /// records: the sink ends.
    pub fn interject(&self, bytes: Vec<u8>) {
        self.server.interject(bytes);
    }

    /// Begins to close and waits at most `timeout` for the end; past it the connection is aborted. Returns how it ended.
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

/// Tells how a [`Sink`] is, also after its end.
#[derive(Clone, Debug)]
pub struct Monitor(Arc<SinkShared>);

impl Monitor {
    /// What it has done so far.
    pub fn stats(&self) -> SinkSnapshot {
        self.0.snapshot()
    }

    /// How it ended, `None` while it is served.
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

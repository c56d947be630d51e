//! Statistics of a sink.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use freshwire_choice::Reason;
use freshwire_record::{Rate, Timestamp};
use freshwire_ring::prefetch;

use crate::carrier::CarrierInUse;

/// Drop reasons by their code, with a place for the codes without a name.
const REASONS: usize = 16;
const OTHERS: usize = REASONS - 1;

/// Number of layers with separate counters; higher layers count with the highest.
pub const LAYERS: usize = 8;

/// Statistics of a sink, readable at any time from any thread. Each value is exact; together they are no
/// consistent snapshot. Only the engine's thread writes, but for the sender's count of overwritten values.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct SinkStats {
    // The counters of each record lie in two cache lines.
    committed: AtomicU64,
    finished: AtomicU64,
    bytes: AtomicU64,
    acked: AtomicU64,
    writes: AtomicU64,
    age_sum_us: AtomicU64,
    age_max_us: AtomicU64,
    reserve: AtomicU64,
    committed_by_layer: [AtomicU64; LAYERS],
    drops: [AtomicU64; REASONS],
    dropped_by_layer: [AtomicU64; LAYERS],
    horizons: AtomicU64,
    horizon: AtomicU64,
    horizon_max: AtomicU64,
    horizon_sum: AtomicU64,
    rate: AtomicU64,
    path_rate: AtomicU64,
    is_limited: AtomicBool,
    rtt_us: AtomicU64,
    min_rtt_us: AtomicU64,
    invalid: AtomicU64,
    replaced: AtomicU64,
    repaired: AtomicU64,
    late_repairs: AtomicU64,
    /// One more than the bytes; zero while they are not known.
    unread: AtomicU64,
    unread_max: AtomicU64,
    held_unread_us: AtomicU64,
    by_reference: AtomicU64,
    /// [`UnreadBy`], one more than its place; zero without a bound.
    unread_by: AtomicU8,
    times_held: AtomicU64,
    /// Nanoseconds; zero while nothing is held back.
    held_since: AtomicU64,
    /// The sender's, in a cache line of its own.
    overwritten: Overwritten,
}

#[derive(Debug, Default)]
#[repr(C, align(64))]
struct Overwritten(AtomicU64);

/// Adds to a value that nobody else writes: without the cost of an atomic addition.
fn add(value: &AtomicU64, more: u64) {
    value.store(value.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}

fn raise(value: &AtomicU64, to: u64) {
    if to > value.load(Ordering::Relaxed) {
        value.store(to, Ordering::Relaxed);
    }
}

/// One reading of [`SinkStats`].
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct SinkSnapshot {
    /// Carrier in use. With [`CarrierInUse::KernelRing`] the numbers are the kernel's; layers, ages and the mean horizon are
    /// unknown and zero.
    pub carrier: CarrierInUse,
    /// Records of which at least one byte was committed.
    pub committed: u64,
    /// Records whose last byte was handed to the carrier.
    pub finished: u64,
    /// Bytes handed to the carrier, framing included.
    pub bytes: u64,
    /// Bytes acknowledged by the peer, framing included.
    pub acked: u64,
    /// Records dropped, by reason; without reasons that never occurred. Codes without a name are counted together, as
    /// [`Reason::Other`] of 255.
    pub drops: Vec<(Reason, u64)>,
    /// Queued values that [`Sender::replace`](crate::Sender::replace) overwrote in place. The new value has the fate; these have none.
    pub overwritten: u64,
    /// Dropped records that the framing replaced, for example by a repetition of the previous picture.
    pub replaced: u64,
    /// Packets sent again because the receiver reported them as missing, over datagrams.
    pub repaired: u64,
    /// Requests for such packets that were refused because their record could be of no use any more.
    pub late_repairs: u64,
    /// Committed records, by layer.
    pub committed_by_layer: [u64; LAYERS],
    /// Records dropped by the policy, by layer.
    pub dropped_by_layer: [u64; LAYERS],
    /// Bytes committed and not on the wire after the last write.
    pub horizon: u64,
    /// The largest horizon after any write.
    pub horizon_max: u64,
    /// Mean horizon after the writes on paths that have shown a limit; other writes are not sampled.
    pub horizon_mean: f64,
    /// The reserve in force: the horizon's bound is one chunk above it.
    pub reserve: u64,
    /// Mean age of a record at its commit point, from its generation time.
    pub age_at_commit_mean: Duration,
    /// Largest age of a record at its commit point.
    pub age_at_commit_max: Duration,
    /// Estimated delivery rate while data was in flight; `None` before the first estimate.
    pub rate: Option<Rate>,
    /// Rate of the path for an adaptive encoder; subtract framing and other tracks. `None` in the first seconds, and over A1
    /// until the path has shown a queue.
    pub path: Option<PathRate>,
    /// Smoothed round trip.
    pub rtt: Duration,
    /// Smallest round trip. Acknowledged data reached the receiver about half of it earlier.
    pub min_rtt: Duration,
    /// Part of `bytes` that was not copied: packets refer to the arena's pages. See
    /// [`Transfer`](crate::engine::Transfer).
    pub bytes_by_reference: u64,
    /// Write system calls; with the kernel's ring, calls that woke its sender.
    pub writes: u64,
    /// Invalid values found in the shared memory; each was skipped.
    pub invalid: u64,
    /// Bytes that the receiving program has not read, as of the last look. `None` without
    /// [`SinkConfig::max_unread`](crate::SinkConfig::max_unread), and while a window says nothing about them.
    pub unread: Option<u64>,
    /// Largest value of `unread`.
    pub unread_max: u64,
    /// Source of `unread`. `None` without a bound.
    pub unread_by: Option<UnreadBy>,
    /// Total time for which records were held back by that bound.
    pub held_unread: Duration,
    /// Number of times at which the bound started to hold records back.
    pub times_held_unread: u64,
    /// Since when the bound holds records back; `None` while it does not.
    pub held_unread_since: Option<Timestamp>,
}

/// Source of the bytes that a receiving program has not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnreadBy {
    /// The receive queue of the peer's socket, which is in the same network namespace: exact. A queue that stays above the bound for
    /// some 60 ms is limited; a reader that only waited for a processor is not.
    Queue,
    /// The window that the peer advertises, which tells little. The sink holds back once the window is nearly closed. After the
    /// reader has read its buffer slowly, the bound holds, within the rounding of windows.
    Window,
}

impl UnreadBy {
    /// `queue` or `window`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Window => "window",
        }
    }
}

/// Rate of a path, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PathRate {
    /// `true` if the path has shown no limit in the last ten seconds. `rate` is then the rate offered to it, as a mean over at
    /// least two seconds, and the capacity may be higher. Otherwise there was a queue or loss, and `rate` is the delivery rate.
    pub at_least: bool,
    /// Rate of payload and framing, without the headers of TCP and IP.
    pub rate: Rate,
}

impl SinkStats {
    /// Asks the processor to have at hand what each record changes.
    pub(crate) fn prefetch(&self) {
        prefetch(&self.committed);
        prefetch(&self.committed_by_layer);
    }

    pub(crate) fn on_committed(&self, layer: u8, age: Duration) {
        let micros = u64::try_from(age.as_micros()).unwrap_or(u64::MAX);
        add(&self.committed, 1);
        add(&self.committed_by_layer[place_of(layer)], 1);
        add(&self.age_sum_us, micros);
        raise(&self.age_max_us, micros);
    }

    pub(crate) fn on_finished(&self) {
        add(&self.finished, 1);
    }

    pub(crate) fn on_dropped(&self, layer: u8, reason: Reason) {
        let place = match reason {
            Reason::Other(_) => OTHERS,
            named => usize::from(named.code()).min(OTHERS),
        };
        add(&self.drops[place], 1);
        add(&self.dropped_by_layer[place_of(layer)], 1);
    }

    /// Called by the sender alone.
    pub(crate) fn on_overwritten(&self) {
        add(&self.overwritten.0, 1);
    }

    pub(crate) fn overwritten(&self) -> u64 {
        self.overwritten.0.load(Ordering::Relaxed)
    }

    pub(crate) fn on_replaced(&self, records: u64) {
        add(&self.replaced, records);
    }

    /// Packets sent again so far, and requests refused as late.
    pub(crate) fn on_repairs(&self, repaired: u64, late: u64) {
        self.repaired.store(repaired, Ordering::Relaxed);
        self.late_repairs.store(late, Ordering::Relaxed);
    }

    pub(crate) fn on_write(&self, bytes: u64) {
        self.on_writes(1, bytes);
    }

    pub(crate) fn on_writes(&self, calls: u64, bytes: u64) {
        add(&self.writes, calls);
        add(&self.bytes, bytes);
    }

    /// Notes bytes that were handed over by reference.
    pub(crate) fn on_lent(&self, bytes: u64) {
        add(&self.by_reference, bytes);
    }

    /// Notes the unsent bytes after a write.
    pub(crate) fn on_horizon(&self, horizon: u64) {
        self.horizon.store(horizon, Ordering::Relaxed);
        raise(&self.horizon_max, horizon);
        add(&self.horizon_sum, horizon);
        add(&self.horizons, 1);
    }

    pub(crate) fn on_acked(&self, acked: u64) {
        self.acked.store(acked, Ordering::Relaxed);
    }

    pub(crate) fn on_look(
        &self,
        reserve: u32,
        rate: Option<Rate>,
        path: Option<PathRate>,
        (rtt, min_rtt): (Duration, Duration),
        invalid: u64,
    ) {
        self.reserve.store(u64::from(reserve), Ordering::Relaxed);
        self.rate.store(rate.map_or(0, Rate::bits_per_sec), Ordering::Relaxed);
        self.path_rate.store(path.map_or(0, |path| path.rate.bits_per_sec()), Ordering::Relaxed);
        self.is_limited.store(path.is_some_and(|path| !path.at_least), Ordering::Relaxed);
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.rtt_us.store(micros(rtt), Ordering::Relaxed);
        self.min_rtt_us.store(micros(min_rtt), Ordering::Relaxed);
        self.invalid.store(invalid, Ordering::Relaxed);
    }

    /// Notes the unread bytes of the receiving program, the time for which they have held records back since the last look, and `now` if they
    /// still do.
    pub(crate) fn on_unread(
        &self,
        by: UnreadBy,
        bytes: Option<u64>,
        held: Option<Duration>,
        is_held: Option<Timestamp>,
    ) {
        self.unread_by.store(by as u8 + 1, Ordering::Relaxed);
        self.unread.store(bytes.map_or(0, |bytes| bytes.saturating_add(1)), Ordering::Relaxed);
        raise(&self.unread_max, bytes.unwrap_or(0));
        let held = held.unwrap_or_default().as_micros();
        add(&self.held_unread_us, u64::try_from(held).unwrap_or(u64::MAX));
        let was_held = self.held_since.load(Ordering::Relaxed) > 0;
        match is_held {
            Some(now) if !was_held => {
                add(&self.times_held, 1);
                self.held_since.store(now.as_nanos().max(1), Ordering::Relaxed);
            }
            None if was_held => self.held_since.store(0, Ordering::Relaxed),
            _ => {}
        }
    }

    pub(crate) fn acked(&self) -> u64 {
        self.acked.load(Ordering::Relaxed)
    }

    pub(crate) fn rate(&self) -> Option<Rate> {
        let rate = self.rate.load(Ordering::Relaxed);
        (rate > 0).then(|| Rate::from_bits_per_sec(rate))
    }

    fn path_rate(&self) -> Option<PathRate> {
        let rate = self.path_rate.load(Ordering::Relaxed);
        let at_least = !self.is_limited.load(Ordering::Relaxed);
        (rate > 0).then(|| PathRate { at_least, rate: Rate::from_bits_per_sec(rate) })
    }

    /// Reads everything.
    pub fn snapshot(&self) -> SinkSnapshot {
        let load = |value: &AtomicU64| value.load(Ordering::Relaxed);
        let committed = load(&self.committed);
        let writes = load(&self.writes);
        let mut drops = Vec::new();
        for (code, count) in (0..).zip(&self.drops) {
            let count = load(count);
            let reason =
                if usize::from(code) == OTHERS { Reason::Other(u8::MAX) } else { Reason::from_code(code) };
            if count > 0 {
                drops.push((reason, count));
            }
        }
        SinkSnapshot {
            bytes_by_reference: self.by_reference.load(Ordering::Relaxed),
            carrier: CarrierInUse::default(),
            committed,
            finished: load(&self.finished),
            bytes: load(&self.bytes),
            acked: load(&self.acked),
            drops,
            overwritten: self.overwritten(),
            replaced: load(&self.replaced),
            repaired: load(&self.repaired),
            late_repairs: load(&self.late_repairs),
            committed_by_layer: std::array::from_fn(|layer| load(&self.committed_by_layer[layer])),
            dropped_by_layer: std::array::from_fn(|layer| load(&self.dropped_by_layer[layer])),
            horizon: load(&self.horizon),
            horizon_max: load(&self.horizon_max),
            horizon_mean: load(&self.horizon_sum) as f64 / load(&self.horizons).max(1) as f64,
            reserve: load(&self.reserve),
            age_at_commit_mean: Duration::from_micros(load(&self.age_sum_us) / committed.max(1)),
            age_at_commit_max: Duration::from_micros(load(&self.age_max_us)),
            rate: self.rate(),
            path: self.path_rate(),
            rtt: Duration::from_micros(load(&self.rtt_us)),
            min_rtt: Duration::from_micros(load(&self.min_rtt_us)),
            writes,
            invalid: load(&self.invalid),
            unread: load(&self.unread).checked_sub(1),
            unread_max: load(&self.unread_max),
            unread_by: match self.unread_by.load(Ordering::Relaxed) {
                0 => None,
                1 => Some(UnreadBy::Queue),
                _ => Some(UnreadBy::Window),
            },
            held_unread: Duration::from_micros(load(&self.held_unread_us)),
            times_held_unread: load(&self.times_held),
            held_unread_since: Some(load(&self.held_since))
                .filter(|&since| since > 0)
                .map(Timestamp::from_nanos),
        }
    }
}

fn place_of(layer: u8) -> usize {
    usize::from(layer).min(LAYERS - 1)
}

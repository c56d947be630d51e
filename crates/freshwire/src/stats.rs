use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use freshwire_choice::Reason;
use freshwire_units::Rate;

/// How many drop reasons there are, with a place for codes that this version does not know.
const REASONS: usize = 16;

/// How many layers are counted apart; higher ones count with the highest.
pub const LAYERS: usize = 8;

/// What a sink has done so far, readable at any time from any thread. Each value is exact; together they are not one
/// instant's.
#[derive(Debug, Default)]
pub struct SinkStats {
    begun: AtomicU64,
    finished: AtomicU64,
    bytes: AtomicU64,
    acked: AtomicU64,
    drops: [AtomicU64; REASONS],
    begun_by_layer: [AtomicU64; LAYERS],
    dropped_by_layer: [AtomicU64; LAYERS],
    horizons: AtomicU64,
    horizon: AtomicU64,
    horizon_max: AtomicU64,
    horizon_sum: AtomicU64,
    reserve: AtomicU64,
    age_sum_us: AtomicU64,
    age_max_us: AtomicU64,
    rate: AtomicU64,
    rtt_us: AtomicU64,
    writes: AtomicU64,
    invalid: AtomicU64,
}

/// One reading of [`SinkStats`].
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct SinkSnapshot {
    /// Records that were begun on the wire.
    pub begun: u64,
    /// Records whose last byte was handed to the carrier.
    pub finished: u64,
    /// Bytes handed to the carrier, framing included.
    pub bytes: u64,
    /// Of these, acknowledged by the peer.
    pub acked: u64,
    /// Records dropped, by reason; reasons that never occurred are left out.
    pub drops: Vec<(Reason, u64)>,
    /// Records begun on the wire, by layer.
    pub begun_by_layer: [u64; LAYERS],
    /// Records dropped by the policy, by layer.
    pub dropped_by_layer: [u64; LAYERS],
    /// Bytes committed and not on the wire after the last write.
    pub horizon: u64,
    /// The largest horizon after any write.
    pub horizon_max: u64,
    /// The mean horizon over the writes after which it was looked at: all but those to a path without any limit.
    pub horizon_mean: f64,
    /// The reserve in force: the horizon's bound is one chunk above it.
    pub reserve: u64,
    /// Mean age of a record when it was begun, from its generation time.
    pub age_at_commit_mean: Duration,
    /// Largest age of a record when it was begun.
    pub age_at_commit_max: Duration,
    /// Estimated delivery rate; `None` before the first estimate.
    pub rate: Option<Rate>,
    /// Smoothed round trip.
    pub rtt: Duration,
    /// Write system calls.
    pub writes: u64,
    /// Bad values that were found in the shared memory; each was skipped.
    pub invalid: u64,
}

impl SinkStats {
    pub(crate) fn on_begun(&self, layer: u8, age: Duration) {
        let micros = u64::try_from(age.as_micros()).unwrap_or(u64::MAX);
        self.begun.fetch_add(1, Ordering::Relaxed);
        self.begun_by_layer[place_of(layer)].fetch_add(1, Ordering::Relaxed);
        self.age_sum_us.fetch_add(micros, Ordering::Relaxed);
        self.age_max_us.fetch_max(micros, Ordering::Relaxed);
    }

    pub(crate) fn on_finished(&self) {
        self.finished.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn on_dropped(&self, layer: u8, reason: u8) {
        let place = usize::from(reason).min(REASONS - 1);
        self.drops[place].fetch_add(1, Ordering::Relaxed);
        self.dropped_by_layer[place_of(layer)].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn on_write(&self, bytes: u64) {
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// What was unsent after a write.
    pub(crate) fn on_horizon(&self, horizon: u64) {
        self.horizon.store(horizon, Ordering::Relaxed);
        self.horizon_max.fetch_max(horizon, Ordering::Relaxed);
        self.horizon_sum.fetch_add(horizon, Ordering::Relaxed);
        self.horizons.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn on_acked(&self, acked: u64) {
        self.acked.store(acked, Ordering::Relaxed);
    }

    pub(crate) fn on_look(&self, reserve: u32, rate: Option<Rate>, rtt: Duration, invalid: u64) {
        self.reserve.store(u64::from(reserve), Ordering::Relaxed);
        self.rate.store(rate.map_or(0, Rate::bits_per_sec), Ordering::Relaxed);
        self.rtt_us.store(u64::try_from(rtt.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
        self.invalid.store(invalid, Ordering::Relaxed);
    }

    /// Reads everything.
    pub fn snapshot(&self) -> SinkSnapshot {
        let load = |value: &AtomicU64| value.load(Ordering::Relaxed);
        let begun = load(&self.begun);
        let writes = load(&self.writes);
        let rate = load(&self.rate);
        let mut drops = Vec::new();
        for (code, count) in self.drops.iter().enumerate() {
            let count = load(count);
            let reason = u8::try_from(code)
                .ok()
                .and_then(|code| Reason::try_from(code).ok())
                .unwrap_or(Reason::Invalid);
            if count > 0 {
                drops.push((reason, count));
            }
        }
        SinkSnapshot {
            begun,
            finished: load(&self.finished),
            bytes: load(&self.bytes),
            acked: load(&self.acked),
            drops,
            begun_by_layer: std::array::from_fn(|layer| load(&self.begun_by_layer[layer])),
            dropped_by_layer: std::array::from_fn(|layer| load(&self.dropped_by_layer[layer])),
            horizon: load(&self.horizon),
            horizon_max: load(&self.horizon_max),
            horizon_mean: load(&self.horizon_sum) as f64 / load(&self.horizons).max(1) as f64,
            reserve: load(&self.reserve),
            age_at_commit_mean: Duration::from_micros(load(&self.age_sum_us) / begun.max(1)),
            age_at_commit_max: Duration::from_micros(load(&self.age_max_us)),
            rate: (rate > 0).then(|| Rate::from_bits_per_sec(rate)),
            rtt: Duration::from_micros(load(&self.rtt_us)),
            writes,
            invalid: load(&self.invalid),
        }
    }
}

fn place_of(layer: u8) -> usize {
    usize::from(layer).min(LAYERS - 1)
}

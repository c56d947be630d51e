//! How much work an engine has, as far as new sinks and senders need to know.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use freshwire_record::Timestamp;

/// Nanoseconds of a second of which an engine's sinks may take before further ones go to another engine: half. While an engine writes a
/// record to its sinks, the last one waits for this share of the time between two records.
const SHARE: u64 = 500_000_000;

/// How long work is counted before the cost of a sink is taken from it. Chosen, not measured: some 25 pictures.
const WINDOW: Duration = Duration::from_secs(1);

/// Engines with fewer sinks do not count: it takes two system calls.
const FEWEST: usize = 16;

/// The counters guide where new sinks go and guard nothing, so that their order does not matter.
#[derive(Debug, Default)]
pub(crate) struct Load {
    /// Senders whose home the engine is.
    homes: AtomicUsize,
    sinks: AtomicUsize,
    is_gone: AtomicBool,
    /// Processor time that a sink takes, in nanoseconds per second; zero while it is not known.
    sink_cost: AtomicU64,
}

impl Load {
    pub(crate) fn sinks(&self) -> usize {
        self.sinks.load(Ordering::Relaxed)
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Relaxed)
    }

    /// Sinks that the engine can serve alone, as far as that is known.
    pub(crate) fn capacity(&self) -> Option<usize> {
        let cost = self.sink_cost.load(Ordering::Relaxed);
        usize::try_from(SHARE.checked_div(cost)?).ok()
    }

    /// The engine takes no further sinks.
    pub(crate) fn go(&self) {
        self.is_gone.store(true, Ordering::Relaxed);
    }

    /// The key by which engines compare as home of a new sender; less is better.
    pub(crate) fn as_home(&self) -> (bool, usize, usize) {
        (self.is_gone(), self.homes.load(Ordering::Relaxed), self.sinks())
    }

    pub(crate) fn add_home(&self) {
        self.homes.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn remove_home(&self) {
        self.homes.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The work of an engine, by the processor's time.
#[derive(Debug, Default)]
pub(crate) struct Work {
    /// The window's first instant, and the work since.
    since: Timestamp,
    busy: Duration,
}

impl Work {
    /// Whether work for this number of sinks is to be counted.
    pub(crate) fn counts(sinks: usize) -> bool {
        sinks >= FEWEST
    }

    /// Takes note of work for `sinks` sinks that ended now.
    pub(crate) fn add(&mut self, now: Timestamp, work: Duration, sinks: usize, load: &Load) {
        self.busy += work;
        let window = now.saturating_since(self.since);
        if window < WINDOW {
            return;
        }
        // A pause longer than the window says nothing about the work.
        if window < 2 * WINDOW && sinks > 0 {
            let cost = self.busy.as_nanos() as f64 / window.as_secs_f64() / sinks as f64;
            load.sink_cost.store((cost as u64).max(1), Ordering::Relaxed);
        }
        (self.since, self.busy) = (now, Duration::ZERO);
    }
}

/// A sink's place in the counters, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    engine: Arc<Load>,
    /// Sinks of its sender on that engine.
    own: Arc<AtomicUsize>,
}

impl Place {
    pub(crate) fn new(engine: Arc<Load>, own: Arc<AtomicUsize>) -> Self {
        engine.sinks.fetch_add(1, Ordering::Relaxed);
        own.fetch_add(1, Ordering::Relaxed);
        Self { engine, own }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.engine.sinks.fetch_sub(1, Ordering::Relaxed);
        self.own.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What an engine learns of records to `sinks` sinks, `rate` a second, that take `cost` each.
    fn learned(sinks: usize, rate: u32, cost: Duration) -> Option<usize> {
        let (load, mut work) = (Load::default(), Work::default());
        let mut now = Timestamp::from_nanos(5_000_000_000);
        for _ in 0..4 * rate {
            work.add(now, cost * sinks as u32, sinks, &load);
            now += Duration::from_secs(1) / rate;
        }
        load.capacity()
    }

    /// From 25 small pictures a second to 500 values, for 16 to 1600 sinks.
    #[test]
    fn a_processor_is_filled_by_half() {
        for sinks in [16, 160, 1600] {
            for (rate, cost) in [(25, 200), (25, 20_000), (250, 2_000), (500, 200)] {
                let capacity = learned(sinks, rate, Duration::from_nanos(cost)).unwrap() as f64;
                let expected = 0.5 / (f64::from(rate) * cost as f64 * 1e-9);
                assert!((0.9..1.1).contains(&(capacity / expected)), "{sinks} {rate} {cost}: {capacity}");
            }
        }
    }

    #[test]
    fn a_rare_record_says_nothing() {
        let (load, mut work) = (Load::default(), Work::default());
        for second in 1..20 {
            let now = Timestamp::from_nanos(second * 3_000_000_000);
            work.add(now, Duration::from_millis(100), 100, &load);
        }
        assert_eq!(load.capacity(), None);
        assert!(!Work::counts(15) && Work::counts(16));
    }
}

//! Whether the bottleneck's queue empties now and then, as BBR makes it.

use std::time::Duration;

use freshwire_units::Timestamp;

use crate::recovery::filter::{Best, Windowed};

/// Senders that do not yield to loss have to look at the path without a queue: BBR sends next to nothing for 200 ms when it has not
/// seen the least round trip for ten seconds, and all of them at a bottleneck do it at once. Flows that are only too many keep
/// the queue full for good.
#[derive(Debug)]
pub(super) struct Gaps {
    /// Round trips in nanoseconds, by seconds.
    least: Windowed,
    most: Windowed,
    last: Option<Timestamp>,
}

impl Default for Gaps {
    fn default() -> Self {
        Self {
            least: Windowed::new(Best::Min, LEAST_SECONDS),
            most: Windowed::new(Best::Max, MOST_SECONDS),
            last: None,
        }
    }
}

impl Gaps {
    /// One more round, in which round trips took from `low` to `high`. Where there seem to be others it can be a gap, if queues are longer
    /// at times than what the bottleneck carries in `few`.
    pub(super) fn on_round(&mut self, now: Timestamp, [low, high]: [Duration; 2], few: Option<Duration>) {
        let second = now.as_nanos() / 1_000_000_000;
        let nanos = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
        self.least.update(second, nanos(low));
        self.most.update(second, nanos(high));
        let (Some(least), Some(most)) = (self.least.get(), self.most.get()) else { return };
        let depth = most.saturating_sub(least);
        if few.is_some_and(|few| depth > nanos(few)) && nanos(low) - least < depth / GAP_PART {
            self.last = Some(now);
        }
    }

    pub(super) fn is_recent(&self, now: Timestamp) -> bool {
        self.last.is_some_and(|last| now.saturating_since(last) < PERIOD)
    }
}

/// The path is remembered for so long, and its queue.
const LEAST_SECONDS: u64 = 60;
const MOST_SECONDS: u64 = 10;
/// A gap leaves no more than one of so many parts of the queue.
const GAP_PART: i64 = 6;
/// Whoever does not yield has looked at the path in such a time: BBR's ten seconds and a little more.
pub(super) const PERIOD: Duration = Duration::from_secs(11);

#[cfg(test)]
mod tests {
    use super::*;

    /// A round each 50 ms, of `low` to `high` in milliseconds, where a bottleneck carries some packets in 4 ms. Whether there was a
    /// gap of late after them.
    fn after_rounds(gaps: &mut Gaps, from_ms: u64, count: u64, [low, high]: [u64; 2]) -> bool {
        let at = |round: u64| Timestamp::from_nanos((from_ms + 50 * round) * 1_000_000);
        for round in 0..count {
            gaps.on_round(at(round), [low, high].map(Duration::from_millis), Some(Duration::from_millis(4)));
        }
        gaps.is_recent(at(count))
    }

    #[test]
    fn a_queue_that_is_gone_for_a_moment_is_a_gap_for_one_period() {
        let mut gaps = Gaps::default();
        assert!(!after_rounds(&mut gaps, 0, 200, [58, 60]), "always full");
        assert!(after_rounds(&mut gaps, 10_000, 1, [40, 55]));
        assert!(after_rounds(&mut gaps, 10_050, 218, [58, 60]));
        assert!(!after_rounds(&mut gaps, 20_950, 4, [58, 60]), "after a period");
    }

    #[test]
    fn a_shorter_queue_is_none() {
        let mut gaps = Gaps::default();
        // The path has been seen, a second before the queue grew.
        gaps.on_round(Timestamp::ZERO, [Duration::from_millis(40); 2], None);
        after_rounds(&mut gaps, 1000, 100, [58, 60]);
        assert!(!after_rounds(&mut gaps, 6000, 20, [44, 60]));
        assert!(after_rounds(&mut gaps, 7000, 1, [43, 60]));
    }

    #[test]
    fn a_few_packets_or_what_nobody_else_makes_are_none() {
        let mut gaps = Gaps::default();
        after_rounds(&mut gaps, 0, 100, [44, 44]);
        assert!(!after_rounds(&mut gaps, 5000, 20, [40, 44]), "of so few packets");
        let mut alone = Gaps::default();
        for second in 0..20 {
            let low = if second % 2 == 0 { 40 } else { 60 };
            let trips = [Duration::from_millis(low), Duration::from_millis(60)];
            alone.on_round(Timestamp::from_nanos(second * 1_000_000_000), trips, None);
        }
        assert!(!alone.is_recent(Timestamp::from_nanos(20_000_000_000)));
    }
}

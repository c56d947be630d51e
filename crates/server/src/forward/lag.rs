//! How far a target is behind its source.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use freshwire::stats::SinkSnapshot;

/// Looks that are kept: those of a minute, which is longer than a target may take nothing.
const MOST_LOOKS: usize = 600;

/// Follows how old the newest acknowledged bytes are. Has to look several times a second.
#[derive(Default)]
pub(super) struct Lag {
    /// Looks whose bytes are not acknowledged yet: the number of bytes, and when the newest of their units came from the source.
    waiting: VecDeque<(u64, Instant)>,
    /// When the newest acknowledged units came from the source.
    there: Option<Instant>,
    /// Committed units, and the sum of their ages.
    committed: (u64, Duration),
    bytes: u64,
}

impl Lag {
    /// Takes a look at the sink. `fed` is when the newest unit came from the source. The result is by how much the target's newest
    /// unit is older than that; `None` before the first one is there.
    pub(super) fn look(&mut self, sink: &SinkSnapshot, fed: Instant, now: Instant) -> Option<Duration> {
        if sink.bytes > self.bytes {
            let sum = sink.age_at_commit_mean * u32::try_from(sink.committed).unwrap_or(u32::MAX);
            let count = sink.committed.saturating_sub(self.committed.0);
            let age = sum.saturating_sub(self.committed.1) / u32::try_from(count.max(1)).unwrap_or(u32::MAX);
            // Without a new unit, the one in progress goes on.
            let newest = if count > 0 { now.checked_sub(age) } else { None };
            let before = self.waiting.back().map(|(_, came)| *came).or(self.there);
            if let Some(came) = newest.or(before) {
                if self.waiting.len() >= MOST_LOOKS {
                    self.waiting.pop_front();
                }
                self.waiting.push_back((sink.bytes, came));
            }
            (self.committed, self.bytes) = ((sink.committed, sum), sink.bytes);
        }
        while let Some(&(bytes, came)) = self.waiting.front()
            && bytes <= sink.acked
        {
            self.waiting.pop_front();
            self.there = Some(came);
        }
        self.there.map(|there| fed.saturating_duration_since(there))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sink(committed: u64, age_ms: u64, bytes: u64, acked: u64) -> SinkSnapshot {
        let mut sink = SinkSnapshot::default();
        (sink.committed, sink.bytes, sink.acked) = (committed, bytes, acked);
        sink.age_at_commit_mean = Duration::from_millis(age_ms);
        sink
    }

    #[test]
    fn the_newest_acknowledged_unit_counts() {
        let begin = Instant::now() + Duration::from_secs(100);
        let at = |ms| begin + Duration::from_millis(ms);
        let mut lag = Lag::default();
        let behind = |lag: &mut Lag, sink: SinkSnapshot, ms| {
            lag.look(&sink, at(ms), at(ms)).map(|behind| behind.as_millis())
        };
        assert_eq!(behind(&mut lag, sink(0, 0, 0, 0), 0), None);
        assert_eq!(behind(&mut lag, sink(1, 20, 1000, 0), 100), None, "nothing is there");
        assert_eq!(behind(&mut lag, sink(1, 20, 1000, 1000), 200), Some(120));
        // Three more units, 120 ms old: the mean of all four is 95 ms.
        assert_eq!(
            behind(&mut lag, sink(4, 95, 4000, 2500), 300),
            Some(220),
            "the first is still the newest"
        );
        assert_eq!(behind(&mut lag, sink(4, 95, 5000, 4000), 400), Some(220), "300 ms less 120 ms");
        assert_eq!(behind(&mut lag, sink(4, 95, 5000, 4000), 900), Some(720), "nothing moves");
        // The source rests: what is there is all that there is.
        assert_eq!(lag.look(&sink(4, 95, 5000, 5000), at(180), at(2000)), Some(Duration::ZERO));
    }
}

//! Whether the bottleneck's queue is another flow's.

use std::time::Duration;

use freshwire_record::Timestamp;

/// A round trip this part above what the sink itself explains is another flow's; less is noise of rate and round trip. Chosen, not
/// measured.
const NOISE: u32 = 8;

/// For how long, and for how many round trips, the queue does not follow the sink before it is another flow's. A slower path takes
/// as long until the delivery rate is known anew, but its round trip falls meanwhile. Chosen: Copa, which has the same question,
/// waits for five round trips (NSDI 2018, section 2.2).
const EVIDENCE: (Duration, u32) = (Duration::from_secs(1), 8);

/// For how long the bound is lifted. Then the sink holds back again: if the other flow has ended, the queue follows. Chosen: the
/// second of evidence costs a twentieth of the share.
const LIFTED: Duration = Duration::from_secs(20);

/// A sink that holds back shortens its own queue within a round trip. A round trip that stays the same and is longer than the sink's bound
/// permits is another flow's queue, of which holding back only yields a share.
#[derive(Debug, Default)]
pub(super) struct Foreign {
    /// Since when the round trip has been about this long, and longer than explained.
    steady: Option<(Timestamp, Duration)>,
    until: Timestamp,
}

impl Foreign {
    /// Takes in a look at a smoothed round trip, and the longest one that the sink itself explains.
    pub(super) fn update(&mut self, now: Timestamp, rtt: Duration, explained: Duration) {
        if self.is_there(now) || rtt <= explained.saturating_add(explained / NOISE) {
            self.steady = None;
            return;
        }
        let (since, level) = *self.steady.get_or_insert((now, rtt));
        if rtt.abs_diff(level) > level / NOISE {
            self.steady = Some((now, rtt));
        } else if now.saturating_since(since) >= EVIDENCE.0.max(rtt * EVIDENCE.1) {
            self.until = now + LIFTED;
        }
    }

    /// Whether the queue is another flow's.
    pub(super) fn is_there(&self, now: Timestamp) -> bool {
        now < self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXPLAINED: Duration = Duration::from_millis(110);

    fn at(milliseconds: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_millis(milliseconds)
    }

    /// Whether another flow is noticed within five seconds of these round trips, a look each 10 ms.
    fn notices(rtt: impl Fn(u64) -> u64) -> bool {
        let mut foreign = Foreign::default();
        (0..500).map(|look| look * 10).any(|ms| {
            foreign.update(at(ms), Duration::from_millis(rtt(ms)), EXPLAINED);
            foreign.is_there(at(ms))
        })
    }

    #[test]
    fn a_queue_that_does_not_follow_is_anothers() {
        assert!(notices(|_| 150), "steady");
        assert!(notices(|ms| 150 + ms / 400), "the other flow's window grows");
        assert!(notices(|ms| 200 + ms % 80 / 10), "it varies");
    }

    #[test]
    fn a_queue_that_follows_is_our_own() {
        assert!(!notices(|_| 120), "the bound, and noise");
        // A path that became six times slower: its queue drains, then follows the rate as that is learned anew, within a second.
        let learned = |ms: u64| 110 + (400.0 * (-((ms - 600) as f64) / 1e3).exp()) as u64;
        assert!(!notices(|ms| if ms < 600 { 110 + ms } else { learned(ms) }));
        assert!(!notices(|ms| if ms % 900 < 600 { 180 } else { 100 }), "bursts that end");
    }

    #[test]
    fn the_bound_returns_after_a_while() {
        let mut foreign = Foreign::default();
        let mut lifted = Vec::new();
        for ms in (0..60_000).step_by(10) {
            foreign.update(at(ms), Duration::from_millis(200), EXPLAINED);
            if foreign.is_there(at(ms)) != (lifted.len() % 2 == 1) {
                lifted.push(ms);
            }
        }
        assert_eq!(lifted, [1600, 21_600, 23_200, 43_200, 44_800]);
    }
}

//! When a producer is served by the node's thread instead of its own.

use std::time::Duration;

use freshwire_record::Timestamp;

use super::times::BURST_GAP;

/// This many messages in quick succession are a burst.
const BURST_LENGTH: u32 = 8;

/// Detects a producer that pushes one message right after the other. If the producer's thread served them,
/// each message would leave in its own datagram, and the producer would never get ahead. While the node's
/// thread wakes up, enough messages queue to fill datagrams.
#[derive(Debug, Default)]
pub(super) struct BurstDetector {
    served_at: Timestamp,
    /// How long serving took.
    took: Duration,
    in_a_row: u32,
}

impl BurstDetector {
    /// A producer calls. True: it is in a burst, and better left to push.
    pub(super) fn is_burst(&mut self, now: Timestamp) -> bool {
        // Where sending takes long, so does what the producer does around it.
        if now.saturating_since(self.served_at) < BURST_GAP.max(self.took / 4) {
            self.in_a_row = self.in_a_row.saturating_add(1);
        } else {
            self.in_a_row = 0;
        }
        let is_burst = self.in_a_row >= BURST_LENGTH;
        if is_burst {
            self.served_at = now;
        }
        is_burst
    }

    /// The producer was served on its own thread from `called` to `now`.
    pub(super) fn served(&mut self, called: Timestamp, now: Timestamp) {
        self.served_at = now;
        self.took = now.saturating_since(called);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Timestamp {
        Timestamp::from_nanos(1_000_000_000 + us * 1000)
    }

    #[test]
    fn quick_succession_is_a_burst_and_question_and_answer_are_not() {
        let mut detector = BurstDetector::default();
        for message in 0..100 {
            assert!(!detector.is_burst(at(message * 10)));
            detector.served(at(message * 10), at(message * 10 + 3));
        }
        for message in 0..8 {
            assert!(!detector.is_burst(at(2000 + message * 5)), "{message}");
            detector.served(at(2000 + message * 5 + 2), at(2000 + message * 5 + 4));
        }
        assert!(detector.is_burst(at(2040)) && detector.is_burst(at(2041)));
        assert!(!detector.is_burst(at(2100)));
    }

    #[test]
    fn pauses_in_a_burst_may_be_longer_where_sending_takes_long() {
        for (pause, is_burst) in [(15, true), (25, false)] {
            let (mut detector, mut served) = (BurstDetector::default(), at(0));
            let count = (0..20).take_while(|_| {
                let called = served + Duration::from_micros(pause);
                served = called + Duration::from_micros(80);
                let is_burst = detector.is_burst(called);
                detector.served(called, served);
                !is_burst
            });
            assert_eq!(count.count() < 20, is_burst, "{pause}");
        }
    }
}

//! When a producer is served by the node's thread instead of its own.

use std::time::Duration;

use freshwire_units::Timestamp;

/// Whether a producer pushes one message right after the other. Served on its own thread, each would leave in a datagram of its
/// own, and the producer would never get ahead; while the node's thread wakes up, enough of them come to fill datagrams.
#[derive(Debug, Default)]
pub(super) struct Stream {
    served_at: Timestamp,
    /// How long that took.
    took: Duration,
    in_a_row: u32,
}

impl Stream {
    /// A producer calls. True: it had better go on.
    pub(super) fn goes_on(&mut self, now: Timestamp) -> bool {
        if now.saturating_since(self.served_at) < RIGHT_AFTER.max(self.took / 4) {
            self.in_a_row = self.in_a_row.saturating_add(1);
        } else {
            self.in_a_row = 0;
        }
        let goes_on = self.in_a_row >= A_STREAM;
        if goes_on {
            self.served_at = now;
        }
        goes_on
    }

    /// It was served on its own thread since `called`.
    pub(super) fn served(&mut self, called: Timestamp, now: Timestamp) {
        self.served_at = now;
        self.took = now.saturating_since(called);
    }
}

/// Whoever pushes so soon after the last message was sent, or the node's thread was woken for it, did nothing else meanwhile; where sending
/// takes long, so does what is around it.
const RIGHT_AFTER: Duration = Duration::from_micros(4);

/// As many messages in a row are a stream.
const A_STREAM: u32 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Timestamp {
        Timestamp::from_nanos(1_000_000_000 + us * 1000)
    }

    #[test]
    fn one_message_after_the_other_is_a_stream_and_question_and_answer_are_not() {
        let mut stream = Stream::default();
        for message in 0..100 {
            assert!(!stream.goes_on(at(message * 10)));
            stream.served(at(message * 10), at(message * 10 + 3));
        }
        for message in 0..8 {
            assert_eq!(stream.goes_on(at(2000 + message * 5)), message == 8, "{message}");
            stream.served(at(2000 + message * 5 + 2), at(2000 + message * 5 + 4));
        }
        assert!(stream.goes_on(at(2040)) && stream.goes_on(at(2041)));
        assert!(!stream.goes_on(at(2100)));
    }

    #[test]
    fn where_sending_takes_long_a_stream_may_pause_for_longer() {
        for (pause, is_stream) in [(15, true), (25, false)] {
            let (mut stream, mut served) = (Stream::default(), at(0));
            let count = (0..20).take_while(|_| {
                let called = served + Duration::from_micros(pause);
                served = called + Duration::from_micros(80);
                let goes_on = stream.goes_on(called);
                stream.served(called, served);
                !goes_on
            });
            assert_eq!(count.count() < 20, is_stream, "{pause}");
        }
    }
}

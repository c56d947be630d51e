use std::time::Duration;

use crate::stats::SinkSnapshot;
use crate::{Timestamp, now};

/// Finds out whether the other end of a silent WebSocket is there: it is asked after a silence, and is gone if it does not answer. Reads no
/// clock.
///
/// Bytes of the client are an answer. So are acknowledged records: a program that reads them slowly reaches the ping behind them late.
#[derive(Clone, Debug)]
pub struct Keepalive {
    every: Duration,
    timeout: Duration,
    heard: Timestamp,
    asked: Option<Timestamp>,
    /// Records handed over and bytes acknowledged, as of the last look.
    seen: (u64, u64),
}

/// The next step for a silent connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepaliveStep {
    /// None is due.
    Wait,
    /// Send a [`ping`](super::ping).
    Ping,
    /// End the connection: a ping was not answered in time.
    End,
}

impl Keepalive {
    /// The silence after which the other end is asked, by default: the HTML standard (9.2.7) advises a line every 15 seconds or so against
    /// proxies that end silent connections. Common ones do after 60 s (nginx) or 55 s (Heroku).
    pub const DEFAULT_EVERY: Duration = Duration::from_secs(15);

    /// The time for an answer, by default: a phone that sleeps for 20 s is still there.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

    /// Starts with a client that was heard `now`. It is asked after a silence of `every`, and has `timeout` to answer.
    pub fn new(every: Duration, timeout: Duration, now: Timestamp) -> Self {
        Self { every, timeout, heard: now, asked: None, seen: (0, 0) }
    }

    /// The client has sent something.
    pub fn heard(&mut self, now: Timestamp) {
        (self.heard, self.asked) = (now, None);
    }

    /// Takes in what the sink has counted.
    pub fn acknowledged(&mut self, sink: &SinkSnapshot, now: Timestamp) {
        let (records, bytes) = self.seen;
        // Without new records these are the bytes of pings: the other end's system has them, and its program need not.
        if sink.finished != records && sink.acked != bytes {
            self.seen = (sink.finished, sink.acked);
            self.heard(now);
        }
    }

    /// The step that is due. A ping counts as sent.
    pub fn step(&mut self, now: Timestamp) -> KeepaliveStep {
        match self.asked {
            Some(asked) if now.saturating_since(asked) >= self.timeout => KeepaliveStep::End,
            None if now.saturating_since(self.heard) >= self.every => {
                self.asked = Some(now);
                KeepaliveStep::Ping
            }
            _ => KeepaliveStep::Wait,
        }
    }

    /// Time of the next step, as far as it is known.
    pub fn next(&self) -> Timestamp {
        self.asked.map_or(self.heard + self.every, |asked| asked + self.timeout)
    }
}

impl Default for Keepalive {
    /// With the defaults, from now on.
    fn default() -> Self {
        Self::new(Self::DEFAULT_EVERY, Self::DEFAULT_TIMEOUT, now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn a_silent_client_is_asked_and_has_time_to_answer() {
        for (every, timeout) in [(1, 1), (15, 30), (100, 2), (3600, 3600)] {
            let mut it = Keepalive::new(every * SECOND, timeout * SECOND, at(0));
            let (every, timeout) = (u64::from(every), u64::from(timeout));
            assert_eq!((it.next(), it.step(at(every - 1))), (at(every), KeepaliveStep::Wait));
            assert_eq!(it.step(at(every)), KeepaliveStep::Ping);
            assert_eq!(
                (it.next(), it.step(at(every + timeout - 1))),
                (at(every + timeout), KeepaliveStep::Wait)
            );
            let mut answers = it.clone();
            assert_eq!(it.step(at(every + timeout)), KeepaliveStep::End);
            answers.heard(at(every + timeout - 1));
            assert_eq!(
                answers.step(at(every + timeout)),
                if every == 1 { KeepaliveStep::Ping } else { KeepaliveStep::Wait }
            );
        }
    }

    #[test]
    fn acknowledged_records_are_an_answer_and_pings_are_not() {
        let mut it = Keepalive::new(SECOND, 2 * SECOND, at(0));
        let sink = |finished, acked| SinkSnapshot { finished, acked, ..SinkSnapshot::default() };
        it.acknowledged(&sink(5, 500), at(1));
        assert_eq!(it.step(at(2)), KeepaliveStep::Ping);
        // Records that wait in the kernel, and then its acknowledgement of the ping alone.
        it.acknowledged(&sink(9, 500), at(3));
        assert_eq!(it.step(at(3)), KeepaliveStep::Wait);
        let mut hung = it.clone();
        hung.acknowledged(&sink(5, 502), at(3));
        assert_eq!(hung.step(at(4)), KeepaliveStep::End);
        it.acknowledged(&sink(9, 700), at(3));
        assert_eq!(it.step(at(4)), KeepaliveStep::Ping, "it was silent for another second");
        assert_eq!(it.step(at(5)), KeepaliveStep::Wait);
    }
}

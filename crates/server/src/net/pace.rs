use std::time::Duration;

use freshwire::{Rate, Timestamp};

/// The longest burst: the granularity that RFC 5348 (4.6) expects of timers.
pub(crate) const GRAIN: Duration = Duration::from_millis(10);
/// Bytes of a datagram of the usual size.
pub(crate) const ONE_PACKET: f64 = 1428.0;

/// The pace of datagrams: a token bucket. Its owner gives the rate that is in force.
pub(crate) struct Pace {
    /// Bytes that may leave at once; below zero, those that have left before their time.
    tokens: f64,
    at: Timestamp,
}

impl Pace {
    /// One that has nothing yet.
    pub(crate) fn new(at: Timestamp) -> Self {
        Self { tokens: 0.0, at }
    }

    /// How many bytes may gather: what the rate has in a moment, and a packet at least.
    pub(crate) fn depth(rate: Rate) -> f64 {
        (rate.bytes_per_sec() as f64 * GRAIN.as_secs_f64()).max(ONE_PACKET)
    }

    /// Bytes that may leave now.
    pub(crate) fn tokens_at(&self, now: Timestamp, rate: Rate) -> f64 {
        let earned = rate.bytes_per_sec() as f64 * now.saturating_since(self.at).as_secs_f64();
        (self.tokens + earned).min(Self::depth(rate))
    }

    /// When `bytes` more bytes may leave.
    pub(crate) fn ready_at(&self, now: Timestamp, bytes: u64, rate: Rate) -> Timestamp {
        let missing = bytes as f64 - self.tokens_at(now, rate);
        let rate = rate.bytes_per_sec().max(1) as f64;
        if missing <= 0.0 { now } else { now + Duration::from_secs_f64(missing / rate) }
    }

    /// Bytes have left.
    pub(crate) fn spend(&mut self, now: Timestamp, bytes: u64, rate: Rate) {
        self.tokens = self.tokens_at(now, rate) - bytes as f64;
        self.at = now.max(self.at);
    }
}

//! What the path delivers, sampled with each acknowledgement (draft-cheng-iccrg-delivery-rate-estimation).

use std::time::Duration;

use freshwire_record::{Rate, Timestamp};

use super::filter::{Best, Windowed};
use super::first::FirstRate;
use super::stamp::{Newest, Stamp};

/// One measurement: what was delivered from the sending of a packet to its acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sample {
    /// UDP payload.
    pub(super) rate: Rate,
    /// Bytes delivered, and taken for lost, in that time.
    pub(super) delivered: u64,
    pub(super) lost: u64,
    /// There was not enough to send, so that the path may carry more than this.
    pub(super) app_limited: bool,
    /// A new round trip has started since the last sample.
    pub(super) round_start: bool,
}

/// Counts what is delivered and keeps the best rate of the last rounds.
#[derive(Debug)]
pub(super) struct RateSampler {
    delivered: u64,
    lost: u64,
    delivered_at: Timestamp,
    /// When the packet left that was acknowledged last.
    first_sent_at: Timestamp,
    /// Samples are app-limited until this much is delivered.
    app_limited_until: Option<u64>,
    round: u64,
    round_ends: u64,
    best: Windowed,
    /// Delivered bytes when the path was last idle.
    idle_delivered: u64,
    /// A packet was measured that followed acknowledgements.
    is_settled: bool,
    first: FirstRate,
}

impl RateSampler {
    pub(super) fn new(now: Timestamp) -> Self {
        Self {
            delivered: 0,
            lost: 0,
            delivered_at: now,
            first_sent_at: now,
            app_limited_until: None,
            round: 0,
            round_ends: 0,
            best: Windowed::new(Best::Max, ROUNDS),
            idle_delivered: 0,
            is_settled: false,
            first: FirstRate::default(),
        }
    }

    /// Whether a packet was measured that followed acknowledgements. What the first round of a connection delivers is spread
    /// over the round trip before it, so that the path seems a fraction as fast.
    pub(super) fn is_settled(&self) -> bool {
        self.is_settled
    }

    /// The best of the last rounds in which the path was kept busy; until it is settled, how fast packets came one after the other.
    pub(super) fn rate(&self) -> Option<Rate> {
        if self.is_settled { self.measured() } else { self.first.rate() }
    }

    /// The best of the last rounds, also before it is settled.
    pub(super) fn measured(&self) -> Option<Rate> {
        self.best.get().map(|bits| Rate::from_bits_per_sec(bits.unsigned_abs()))
    }

    pub(super) fn on_sent(&mut self, now: Timestamp, idle: bool) -> Stamp {
        if idle {
            self.idle_delivered = self.delivered;
            self.first_sent_at = now;
            self.delivered_at = now;
        }
        Stamp {
            delivered: self.delivered,
            lost: self.lost,
            delivered_at: self.delivered_at,
            first_sent_at: self.first_sent_at,
            sent_at: now,
            app_limited: self.app_limited_until.is_some(),
            clocked: self.app_limited_until.is_none() && self.delivered > self.idle_delivered,
            streak: self.first.on_sent(),
        }
    }

    /// The application has nothing more to send while `in_flight` bytes are on their way.
    pub(super) fn on_app_limited(&mut self, in_flight: u64) {
        self.app_limited_until = Some(self.delivered + self.lost + in_flight);
        self.first.on_pause();
    }

    pub(super) fn on_lost(&mut self, bytes: u64) {
        self.lost += bytes;
    }

    /// A packet that counted as lost has arrived.
    pub(super) fn on_late_delivery(&mut self, now: Timestamp, bytes: u64) {
        self.lost = self.lost.saturating_sub(bytes);
        self.delivered += bytes;
        self.delivered_at = now;
    }

    /// `bytes` were acknowledged. There is a sample unless the time is too short to tell.
    pub(super) fn on_acked(
        &mut self,
        now: Timestamp,
        newest: &Newest,
        bytes: u64,
        receiver_us: Option<u32>,
        min_rtt: Duration,
        same_path: bool,
    ) -> Option<Sample> {
        self.delivered += bytes;
        self.delivered_at = now;
        if !same_path {
            return None;
        }
        let stamp = &newest.stamp;
        self.first.on_acked(stamp.streak, bytes, receiver_us);
        if self.app_limited_until.is_some_and(|until| self.delivered + self.lost > until) {
            self.app_limited_until = None;
        }
        let round_start = stamp.delivered >= self.round_ends;
        if round_start {
            // Rounds without enough to send say nothing of the path, so what is known of it does not grow old by them.
            self.round += u64::from(!stamp.app_limited);
            self.round_ends = self.delivered;
        }
        self.first_sent_at = self.first_sent_at.max(stamp.sent_at);
        // Acknowledgements that come in a bunch must not look like a fast path, nor packets that left in one.
        let interval =
            now.saturating_since(stamp.delivered_at).max(stamp.sent_at.saturating_since(stamp.first_sent_at));
        if interval.is_zero() || interval < min_rtt {
            return None;
        }
        self.is_settled |= stamp.clocked;
        let delivered = self.delivered - stamp.delivered;
        let nanos = interval.as_nanos();
        let bits = u64::try_from(u128::from(delivered) * 8 * 1_000_000_000 / nanos).unwrap_or(u64::MAX);
        if !stamp.app_limited || self.best.get().is_none_or(|best| bits > best.unsigned_abs()) {
            self.best.update(self.round, i64::try_from(bits).unwrap_or(i64::MAX));
        }
        Some(Sample {
            rate: Rate::from_bits_per_sec(bits),
            delivered,
            lost: self.lost.saturating_sub(stamp.lost),
            app_limited: stamp.app_limited,
            round_start,
        })
    }

    /// Nothing measured before counts; packets in flight bring no samples.
    pub(super) fn on_path_change(&mut self, now: Timestamp) {
        self.best.reset();
        self.is_settled = false;
        self.idle_delivered = self.delivered;
        self.first = FirstRate::default();
        self.app_limited_until = None;
        self.delivered_at = now;
        self.first_sent_at = now;
    }
}

/// Rounds for which the best rate counts: long enough to bridge a short dip in the source, short enough to
/// follow the path down. Chosen, not measured.
const ROUNDS: u64 = 4;

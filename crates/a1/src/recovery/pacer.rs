//! Spreads packets over time.

use std::time::Duration;

use freshwire_record::{Rate, Timestamp};

use super::congestion::{Congestion, QUANTUM};
use super::types::Allowance;

/// A bucket that fills at the pacing rate and holds a burst, plus what a timer that is a little late would lose.
#[derive(Debug)]
pub(super) struct Pacer {
    /// May be negative: a packet may leave that is larger than what is left.
    credit: i64,
    filled_at: Timestamp,
    started: bool,
}

impl Pacer {
    pub(super) fn new(now: Timestamp) -> Self {
        Self { credit: 0, filled_at: now, started: false }
    }

    /// Bytes that may leave back to back.
    pub(super) fn burst(&self, mtu: u64, congestion: &dyn Congestion) -> u64 {
        congestion.pacing_rate().map_or(mtu, |rate| burst_at(rate, mtu, congestion))
    }

    /// Bytes that leave in the time that one burst may take up.
    pub(super) fn quantum(&self, congestion: &dyn Congestion) -> u64 {
        congestion.pacing_rate().map_or(u64::MAX, |rate| rate.bytes_in(QUANTUM))
    }

    pub(super) fn on_sent(&mut self, now: Timestamp, bytes: u64, mtu: u64, congestion: &dyn Congestion) {
        if let Some(rate) = congestion.pacing_rate() {
            self.fill(now, rate, burst_at(rate, mtu, congestion));
            self.credit = self.credit.saturating_sub(signed(bytes));
        }
    }

    pub(super) fn allowance(&mut self, now: Timestamp, mtu: u64, congestion: &dyn Congestion) -> Allowance {
        let Some(rate) = congestion.pacing_rate() else {
            return Allowance::Bytes(u64::MAX);
        };
        let burst = burst_at(rate, mtu, congestion);
        self.fill(now, rate, burst);
        if self.credit >= signed(mtu) {
            return Allowance::Bytes(self.credit.unsigned_abs());
        }
        let missing = (signed(burst) - self.credit).unsigned_abs();
        Allowance::At(now + rate.time_for(missing).max(Duration::from_nanos(1)))
    }

    fn fill(&mut self, now: Timestamp, rate: Rate, burst: u64) {
        let elapsed = now.saturating_since(self.filled_at);
        let cap = signed(burst.saturating_add(rate.bytes_in(elapsed.min(SLACK))));
        if !self.started {
            self.started = true;
            self.credit = cap;
        }
        let filled = self.credit.saturating_add(signed(rate.bytes_in(elapsed)));
        // Time that buys no whole byte is kept for the next time.
        if filled > self.credit {
            self.filled_at = now;
            self.credit = filled.min(cap.max(self.credit));
        }
    }
}

/// Bytes that may leave back to back at this pacing rate.
fn burst_at(rate: Rate, mtu: u64, congestion: &dyn Congestion) -> u64 {
    let most = MAX_BURST.max(rate.bytes_in(SHORT)).max(mtu);
    rate.bytes_in(QUANTUM).min(congestion.max_burst()).clamp(mtu, most)
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// How late a timer may be without cost.
const SLACK: Duration = Duration::from_millis(1);
/// What segmentation offload takes at once.
const MAX_BURST: u64 = 65_000;
/// Where a burst takes less time than a timer is late anyway, as many packets leave at once as fit into this.
/// Chosen, not measured.
const SHORT: Duration = Duration::from_micros(250);

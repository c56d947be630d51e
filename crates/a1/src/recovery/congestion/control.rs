//! What every congestion control has, and what several of them share.

use std::fmt::Debug;
use std::time::Duration;

use freshwire_record::{Rate, Timestamp};

use super::super::rate::Sample;
use super::super::rtt::Rtt;

/// Time that one burst of the pacer may take up.
pub(in crate::recovery) const QUANTUM: Duration = Duration::from_millis(1);

/// A congestion control. It hears of everything that happens to packets on the present path and says how much may be
/// in flight and how fast it may leave.
pub(in crate::recovery) trait Congestion: Debug + Send {
    fn on_ack(&mut self, ack: &Ack<'_>);
    fn on_loss(&mut self, loss: &Loss);
    /// A packet declared lost at `lost_at` has arrived.
    fn on_spurious(&mut self, now: Timestamp, lost_at: Timestamp);
    /// Nothing is heard of the peer.
    fn on_outage(&mut self, now: Timestamp);
    fn set_mtu(&mut self, mtu: u64);
    /// Bytes that may be in flight.
    fn cwnd(&self) -> u64;
    /// `None` sends without pacing.
    fn pacing_rate(&self) -> Option<Rate>;
    /// Bytes that may leave back to back, however fast.
    fn max_burst(&self) -> u64 {
        u64::MAX
    }
}

/// An acknowledgement that brought something new.
#[derive(Debug)]
pub(in crate::recovery) struct Ack<'a> {
    pub(in crate::recovery) now: Timestamp,
    /// Newly acknowledged.
    pub(in crate::recovery) bytes: u64,
    pub(in crate::recovery) in_flight_before: u64,
    /// For models of other controls.
    #[cfg(test)]
    pub(in crate::recovery) in_flight: u64,
    /// When the newest acknowledged packet left.
    pub(in crate::recovery) newest_sent_at: Timestamp,
    /// Packets newly reported with a congestion mark.
    pub(in crate::recovery) marked: u64,
    #[cfg_attr(not(test), expect(dead_code, reason = "only models of other controls read it"))]
    pub(in crate::recovery) sample: Option<Sample>,
    /// The best delivery rate of the last rounds.
    pub(in crate::recovery) rate: Option<Rate>,
    /// How long that one waited on its way there, if it tells.
    pub(in crate::recovery) queue: Option<Duration>,
    pub(in crate::recovery) rtt: &'a Rtt,
}

/// Packets that are taken for lost.
#[derive(Debug)]
pub(in crate::recovery) struct Loss {
    pub(in crate::recovery) now: Timestamp,
    pub(in crate::recovery) packets: u64,
    /// Runs of packets in a row among them.
    pub(in crate::recovery) runs: u64,
    /// When the newest of them left.
    pub(in crate::recovery) newest_sent_at: Timestamp,
}

/// RFC 9002's initial window.
//= spec/a1.md A1-CC-3
pub(super) fn initial_window(mtu: u64) -> u64 {
    (10 * mtu).min(14_720.max(2 * mtu))
}

/// The rate that sends `numerator / denominator` windows a round trip.
pub(super) fn paced(cwnd: u64, srtt: Duration, numerator: u64, denominator: u64) -> Rate {
    let nanos = srtt.as_nanos().max(1) * u128::from(denominator);
    let window = u128::from(cwnd) * 8 * 1_000_000_000 * u128::from(numerator);
    let bits = match (u64::try_from(window), u64::try_from(nanos)) {
        (Ok(window), Ok(nanos)) => window / nanos,
        _ => u64::try_from(window / nanos).unwrap_or(u64::MAX),
    };
    Rate::from_bits_per_sec(bits.max(1))
}

/// The last reaction to congestion: at most one a round trip, and what it would take to undo it.
#[derive(Debug, Default)]
pub(super) struct Reaction {
    at: Option<Timestamp>,
    /// Packets declared lost since then and not yet found to have arrived.
    pub(super) lost: u64,
}

impl Reaction {
    /// Whether something that left at `sent_at` left after the last reaction.
    pub(super) fn allows(&self, sent_at: Timestamp) -> bool {
        self.at.is_none_or(|at| sent_at > at)
    }

    pub(super) fn begin(&mut self, now: Timestamp) {
        self.at = Some(now);
        self.lost = 0;
    }

    /// True if nothing that was declared lost since the reaction was really lost.
    pub(super) fn all_spurious(&mut self, lost_at: Timestamp) -> bool {
        if self.at.is_none_or(|at| lost_at < at) || self.lost == 0 {
            return false;
        }
        self.lost -= 1;
        self.lost == 0
    }
}

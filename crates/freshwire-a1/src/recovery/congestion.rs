//! How much may be in flight, and how fast it leaves.

mod copa;
mod cubic;
mod new_reno;

use std::fmt::Debug;
use std::time::Duration;

use freshwire_units::{Rate, Timestamp};

use self::copa::Copa;
use self::cubic::Cubic;
use self::new_reno::NewReno;
use super::rate::Sample;
use super::rtt::Rtt;
use super::types::Controller;

/// A congestion control. It hears of everything that happens to packets on the present path and says how much may be
/// in flight and how fast it may leave.
pub(super) trait Congestion: Debug + Send {
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
pub(super) struct Ack<'a> {
    pub(super) now: Timestamp,
    /// Newly acknowledged.
    pub(super) bytes: u64,
    pub(super) in_flight_before: u64,
    /// For models of other controls.
    #[cfg(test)]
    pub(super) in_flight: u64,
    /// When the newest acknowledged packet left.
    pub(super) newest_sent_at: Timestamp,
    /// Packets newly reported with a congestion mark.
    pub(super) marked: u64,
    #[cfg_attr(not(test), expect(dead_code, reason = "only models of other controls read it"))]
    pub(super) sample: Option<Sample>,
    /// The best delivery rate of the last rounds.
    pub(super) rate: Option<Rate>,
    /// How long that one waited on its way there, if it tells.
    pub(super) queue: Option<Duration>,
    pub(super) rtt: &'a Rtt,
}

/// Packets that are taken for lost.
#[derive(Debug)]
pub(super) struct Loss {
    pub(super) now: Timestamp,
    pub(super) packets: u64,
    /// Runs of packets in a row among them.
    pub(super) runs: u64,
    /// When the newest of them left.
    pub(super) newest_sent_at: Timestamp,
}

/// A controller for a path of which nothing is known.
pub(super) fn build(controller: Controller, mtu: u64, initial_rtt: Duration) -> Box<dyn Congestion> {
    match controller {
        Controller::Copa => Box::new(Copa::new(mtu, initial_rtt)),
        Controller::Cubic => Box::new(Cubic::new(mtu, initial_rtt)),
        Controller::NewReno => Box::new(NewReno::new(mtu, initial_rtt)),
    }
}

/// RFC 9002's initial window.
//= spec/a1.md A1-CC-3
fn initial_window(mtu: u64) -> u64 {
    (10 * mtu).min(14_720.max(2 * mtu))
}

/// The rate that sends `numerator / denominator` windows a round trip.
fn paced(cwnd: u64, srtt: Duration, numerator: u64, denominator: u64) -> Rate {
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
struct Reaction {
    at: Option<Timestamp>,
    /// Packets declared lost since then and not yet found to have arrived.
    lost: u64,
}

impl Reaction {
    /// Whether something that left at `sent_at` left after the last reaction.
    fn allows(&self, sent_at: Timestamp) -> bool {
        self.at.is_none_or(|at| sent_at > at)
    }

    fn begin(&mut self, now: Timestamp) {
        self.at = Some(now);
        self.lost = 0;
    }

    /// True if nothing that was declared lost since the reaction was really lost.
    fn all_spurious(&mut self, lost_at: Timestamp) -> bool {
        if self.at.is_none_or(|at| lost_at < at) || self.lost == 0 {
            return false;
        }
        self.lost -= 1;
        self.lost == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn larger_packets_fit_into_the_window() {
        for controller in [Controller::Copa, Controller::Cubic, Controller::NewReno] {
            let mut congestion = build(controller, 1200, Duration::from_millis(100));
            // As large as loopback carries them.
            congestion.set_mtu(65_507);
            assert!(congestion.cwnd() >= 2 * 65_507, "{controller:?}: {}", congestion.cwnd());
        }
    }
}

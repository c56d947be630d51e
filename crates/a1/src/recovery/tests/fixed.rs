//! No congestion control, for tests of something else.

use freshwire_record::{Rate, Timestamp};

use super::super::congestion::{Ack, Congestion, Loss};

/// Bytes that may be in flight.
#[derive(Debug)]
pub(in crate::recovery) struct Fixed(pub(in crate::recovery) u64);

impl Congestion for Fixed {
    fn on_ack(&mut self, _ack: &Ack<'_>) {}

    fn on_loss(&mut self, _loss: &Loss) {}

    fn on_spurious(&mut self, _now: Timestamp, _lost_at: Timestamp) {}

    fn on_outage(&mut self, _now: Timestamp) {}

    fn set_mtu(&mut self, _mtu: u64) {}

    fn cwnd(&self) -> u64 {
        self.0
    }

    fn pacing_rate(&self) -> Option<Rate> {
        None
    }
}

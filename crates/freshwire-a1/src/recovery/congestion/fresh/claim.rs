//! How much of a bottleneck that others fill is taken at first.

use std::time::Duration;

use freshwire_units::Rate;

use super::path::Round;

/// A window that grows by a half a round beside others until it has a fair part of the bottleneck. CUBIC's own growth would take half
/// a minute on a long path.
#[derive(Debug)]
pub(super) struct Claim {
    window: f64,
    /// What the bottleneck carries for all.
    capacity: Rate,
    max_loss: f64,
}

impl Claim {
    /// Begins with `window` bytes on a path that loses `usual_loss` without it.
    pub(super) fn new(window: f64, capacity: Rate, usual_loss: f64) -> Self {
        Self { window, capacity, max_loss: 2.0 * usual_loss.min(MOST_USUAL) + MAX_LOSS }
    }

    pub(super) fn window(&self) -> f64 {
        self.window
    }

    /// One more round. True when it has enough, or too much is lost by it.
    pub(super) fn on_round(&mut self, round: &Round, srtt: Duration) -> bool {
        if round.loss_share() > self.max_loss {
            self.window *= AFTER_LOSS;
            return true;
        }
        let enough = FAIR * self.capacity.bytes_in(srtt) as f64;
        let is_enough = self.window >= enough;
        self.window = (self.window * STEP).min(enough);
        is_enough
    }
}

const STEP: f64 = 1.5;
/// Of the bottleneck: enough beside two others, and not far too much beside many.
const FAIR: f64 = 0.25;
/// What may be lost in a round beyond twice what is lost anyway.
const MAX_LOSS: f64 = 0.2;
const MOST_USUAL: f64 = 0.1;
/// As CUBIC answers a loss.
const AFTER_LOSS: f64 = 0.7;

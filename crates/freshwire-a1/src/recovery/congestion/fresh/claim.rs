//! How much of a bottleneck that others fill is taken at first.

use freshwire_units::Rate;

use super::path::Round;

/// A window that grows by a half a round beside others until it has a fair part of the bottleneck.
///
/// With a share `x` of what is in flight, a window that is larger by a small part brings `1 - x` of that part in rate: all
/// of it where ours is next to nothing, none of it alone. CUBIC's own growth would take half a minute on a long path.
#[derive(Debug)]
pub(super) struct Claim {
    window: f64,
    /// Windows and the rates that came from them, the newest last.
    seen: [Option<(f64, Rate)>; 3],
    /// The window of the round before, which the rate of a round comes from.
    last: Option<f64>,
    /// Nothing is known yet.
    is_new: bool,
    max_loss: f64,
}

/// What a round says of a claim.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Claimed {
    /// It goes on.
    Growing,
    /// It is enough, or too much is lost by it. This is the window, and what the bottleneck carries if that is known.
    Enough(f64, Option<Rate>),
    /// Nobody gives way, since there is nobody.
    Alone,
}

impl Claim {
    /// Begins with `window` bytes on a path that loses `usual_loss` without it.
    pub(super) fn new(window: f64, usual_loss: f64) -> Self {
        Self { window, seen: [None; 3], last: None, is_new: true, max_loss: 2.0 * usual_loss + MAX_LOSS }
    }

    pub(super) fn window(&self) -> f64 {
        self.window
    }

    /// One more round.
    pub(super) fn on_round(&mut self, round: &Round) -> Claimed {
        let last = self.last.replace(self.window);
        if let Some(seen) = last.zip(round.rate) {
            self.seen.rotate_left(1);
            self.seen[2] = Some(seen);
        }
        if round.loss_share() > self.max_loss {
            return Claimed::Enough(self.window * AFTER_LOSS, None);
        }
        if let [Some((window, rate)), Some((middle, _)), Some((grown, more))] = self.seen {
            let gain = more.bits_per_sec() as f64 / rate.bits_per_sec().max(1) as f64;
            let share = 1.0 - gain.ln() / (grown / window).ln();
            if share > ALONE {
                return Claimed::Alone;
            }
            if share > FAIR {
                let capacity = more.bits_per_sec() as f64 / share;
                // What was seen first may have been more than enough.
                let enough = if std::mem::take(&mut self.is_new) { window } else { middle };
                return Claimed::Enough(enough, Some(Rate::from_bits_per_sec(capacity as u64)));
            }
            self.is_new = false;
        }
        self.window *= STEP;
        Claimed::Growing
    }
}

const STEP: f64 = 1.5;
/// Of the bottleneck: enough beside two others, and not far too much beside many.
const FAIR: f64 = 0.25;
const ALONE: f64 = 0.8;
/// What may be lost in a round beyond twice what is lost anyway.
const MAX_LOSS: f64 = 0.05;
/// As CUBIC answers a loss.
const AFTER_LOSS: f64 = 0.7;

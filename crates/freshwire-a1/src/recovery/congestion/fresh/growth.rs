//! Growth while there is no queue.

use freshwire_units::Rate;

/// The window grows by 2 %, 4 %, 8 % and so on, up to a half a round, as long as what is delivered follows. Where it
/// does not, something drops what is too much without a queue: the window goes back to where it was, and stays there
/// for some rounds.
#[derive(Debug)]
pub(super) struct Growth {
    step: f64,
    /// The window of the round before, which the rate of a round comes from.
    last: Option<f64>,
    /// The window with which it began, and the rate that came from it.
    from: Option<(f64, Rate)>,
    /// Rounds to wait.
    hold: u32,
}

impl Default for Growth {
    fn default() -> Self {
        Self { step: STEP_MIN, last: None, from: None, hold: 0 }
    }
}

impl Growth {
    /// There is a queue, or there was too much loss.
    pub(super) fn end(&mut self) {
        self.step = STEP_MIN;
        self.last = None;
        self.from = None;
    }

    /// It goes on from a window that is likely too small.
    pub(super) fn begin_faster(&mut self) {
        self.step = 4.0 * STEP_MIN;
    }

    /// It goes on from a window that was enough before.
    pub(super) fn begin_fast(&mut self) {
        self.step = STEP_MAX;
    }

    /// The next window after a round without a queue in which `window` was used up and `rate` was delivered.
    pub(super) fn next(&mut self, window: f64, rate: Option<Rate>, packet: f64) -> f64 {
        if self.hold > 0 {
            self.hold -= 1;
            return window;
        }
        let last = self.last.replace(window);
        if let (Some(last), Some(rate)) = (last, rate) {
            let (began, slow) = *self.from.get_or_insert((last, rate));
            let grown = last / began - 1.0;
            let followed = rate.bits_per_sec() as f64 >= slow.bits_per_sec() as f64 * (1.0 + FOLLOWS * grown);
            if grown > NOTICEABLE && window > FEW_PACKETS * packet && !followed {
                self.end();
                self.hold = HOLD_ROUNDS;
                return began;
            }
        }
        let next = window + (window * self.step).max(packet / 2.0);
        self.step = (2.0 * self.step).min(STEP_MAX);
        next
    }

    /// Whether more was tried of late, and was in vain.
    pub(super) fn is_vain(&self) -> bool {
        self.hold > 0
    }

    /// Whether the window grows by more than the least.
    pub(super) fn is_on(&self) -> bool {
        self.step > STEP_MIN
    }
}

const STEP_MIN: f64 = 0.02;
const STEP_MAX: f64 = 0.5;
/// The rate has to grow by this share of what the window has grown by, once that is noticeable.
const FOLLOWS: f64 = 0.3;
const NOTICEABLE: f64 = 0.12;
/// Below this, chance decides what is delivered in a round.
pub(super) const FEW_PACKETS: f64 = 10.0;
const HOLD_ROUNDS: u32 = 8;

//! Beside others where the queue is far shorter than a round trip.

use std::time::Duration;

use freshwire_units::Timestamp;

/// Such a queue is empty while everybody is at nine tenths of what they could have, and full the moment after, so that its length says
/// little of who is there. Who loses by it makes room instead: a part of the window goes, and grows again as CUBIC's does. Where nobody else
/// is, it comes back to nearly all that the bottleneck carries before anything is lost.
#[derive(Debug, Default)]
pub(super) struct Yielding {
    /// Answers to a full queue, a round trip apart, since it yielded last.
    overflows: u32,
    is_on: bool,
    /// Since it is.
    rounds: u32,
    /// Nobody else was there: not again before.
    until: Timestamp,
}

impl Yielding {
    pub(super) fn is_on(&self) -> bool {
        self.is_on
    }

    /// What is delivered follows from the smaller window by now.
    pub(super) fn has_made_room(&self) -> bool {
        self.is_on && self.rounds >= ROUNDS_TO_TELL
    }

    pub(super) fn on_round(&mut self) {
        self.rounds = self.rounds.saturating_add(1);
    }

    /// The short queue was full. True when it is time to yield.
    pub(super) fn on_overflow(&mut self, now: Timestamp) -> bool {
        self.overflows += 1;
        if self.overflows < OVERFLOWS || now < self.until {
            return false;
        }
        *self = Self { is_on: true, ..Self::default() };
        true
    }

    pub(super) fn end(&mut self) {
        self.is_on = false;
    }

    /// Nearly all of the bottleneck is ours.
    pub(super) fn on_alone(&mut self, now: Timestamp) {
        if self.is_on {
            self.until = now + PAUSE;
        }
        self.is_on = false;
    }
}

/// The start's own make one or two.
const OVERFLOWS: u32 = 8;
/// One that began before, one for what was sent in it, and one for the rate that is known of the last.
const ROUNDS_TO_TELL: u32 = 3;
const PAUSE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> Timestamp {
        Timestamp::from_nanos(second * 1_000_000_000)
    }

    #[test]
    fn it_yields_after_some_overflows_and_not_soon_again_where_nobody_was() {
        let mut yielding = Yielding::default();
        let yields = |yielding: &mut Yielding, second| {
            (0..OVERFLOWS).map(|_| yielding.on_overflow(at(second))).collect::<Vec<_>>()
        };
        let first = yields(&mut yielding, 1);
        assert_eq!(first.iter().position(|&yields| yields), Some(OVERFLOWS as usize - 1));
        assert!(yielding.is_on());
        yielding.on_alone(at(10));
        assert!(!yielding.is_on());
        assert!(!yields(&mut yielding, 69).contains(&true));
        assert!(yielding.on_overflow(at(70)), "the pause is over, and there were enough");
    }

    #[test]
    fn what_the_last_window_still_brings_says_nothing_of_who_is_there() {
        let mut yielding = Yielding::default();
        assert!((0..OVERFLOWS).any(|_| yielding.on_overflow(at(1))));
        for _ in 0..ROUNDS_TO_TELL {
            assert!(!yielding.has_made_room());
            yielding.on_round();
        }
        assert!(yielding.has_made_room());
        yielding.end();
        assert!(!yielding.has_made_room());
    }

    #[test]
    fn what_ends_otherwise_may_begin_again_at_once() {
        let mut yielding = Yielding::default();
        for _ in 0..OVERFLOWS {
            yielding.on_overflow(at(1));
        }
        yielding.end();
        assert!((0..OVERFLOWS).any(|_| yielding.on_overflow(at(1))));
    }
}

//! Whether what is lost is lost to a full queue.

/// Losses by chance come with a long queue as often as packets meet one; those of a full queue nearly always do. The packet after a lost
/// one tells the queue that both have met. What is counted counts for less with each round.
#[derive(Debug, Default)]
pub(super) struct Overflow {
    /// Bytes acknowledged, and those of them that met a long queue.
    acked: f64,
    acked_long: f64,
    losses: f64,
    losses_long: f64,
    /// Of this round.
    now: u32,
    now_long: u32,
}

impl Overflow {
    pub(super) fn on_ack(&mut self, bytes: u64, is_long: bool) {
        self.acked += bytes as f64;
        if is_long {
            self.acked_long += bytes as f64;
        }
    }

    pub(super) fn on_loss(&mut self, is_long: bool) {
        self.now += 1;
        self.now_long += u32::from(is_long);
    }

    pub(super) fn on_round(&mut self) {
        for count in [&mut self.acked, &mut self.acked_long, &mut self.losses, &mut self.losses_long] {
            *count *= KEPT;
        }
        if self.now > 0 {
            let weight = f64::from(self.now.min(MOST_OF_A_ROUND));
            self.losses += weight;
            self.losses_long += weight * f64::from(self.now_long) / f64::from(self.now);
        }
        self.now = 0;
        self.now_long = 0;
    }

    /// The part of the losses that a full queue made, 0 to 1; `None` where that cannot be told.
    pub(super) fn part(&self) -> Option<f64> {
        if self.losses < FEWEST || self.acked <= 0.0 {
            return None;
        }
        let usual = self.acked_long / self.acked;
        if usual > MOST_USUAL {
            return None;
        }
        let part = (self.losses_long / self.losses - usual) / (1.0 - usual);
        let deviation = (usual.max(LEAST_VARIED) / (1.0 - usual) / self.losses).sqrt();
        Some(if part > 2.0 * deviation { part } else { 0.0 })
    }
}

/// Of what was counted, after one more round.
const KEPT: f64 = 31.0 / 32.0;
/// The losses of one round are not independent of each other.
const MOST_OF_A_ROUND: u32 = 4;
const FEWEST: f64 = 8.0;
const MOST_USUAL: f64 = 0.9;
const LEAST_VARIED: f64 = 0.1;

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounds of a hundred packets, of which `acked_long` meet a long queue, and of two losses, of which so many in four rounds do.
    fn after_rounds(rounds: usize, acked_long: u64, losses_long: usize) -> Option<f64> {
        let mut overflow = Overflow::default();
        for round in 0..rounds {
            overflow.on_ack(acked_long, true);
            overflow.on_ack(100 - acked_long, false);
            for loss in 0..2 {
                overflow.on_loss((2 * round + loss) % 8 < losses_long);
            }
            overflow.on_round();
        }
        overflow.part()
    }

    #[test]
    fn losses_that_always_come_with_a_long_queue_are_those_of_a_full_one() {
        assert_eq!(after_rounds(32, 20, 8), Some(1.0));
        assert!(after_rounds(32, 60, 7).unwrap() > 0.5);
    }

    #[test]
    fn losses_that_come_with_any_queue_are_chance() {
        assert_eq!(after_rounds(32, 50, 4), Some(0.0));
        assert_eq!(after_rounds(32, 0, 0), Some(0.0));
        assert_eq!(after_rounds(32, 100, 8), None, "where it is always long nothing can be told");
    }

    #[test]
    fn of_both_kinds_the_part_is_known() {
        let part = after_rounds(64, 25, 5).unwrap();
        assert!((0.4..0.6).contains(&part), "{part}");
    }

    #[test]
    fn one_round_of_many_losses_says_nothing() {
        let mut overflow = Overflow::default();
        overflow.on_ack(1000, false);
        for _ in 0..500 {
            overflow.on_loss(true);
        }
        overflow.on_round();
        assert_eq!(overflow.part(), None);
    }
}

use crate::crypto::Random;

/// Which numbers no packet gets. A receiver that acknowledges what has not come, to be sent more, cannot know them, and is
/// found out by the first of them (RFC 9000, section 21.4).
pub(super) struct Skips {
    random: Random,
    next: u64,
    /// Half of the longest distance to the next one.
    period: u64,
}

impl Skips {
    pub(super) fn new(seed: [u8; 32]) -> Self {
        let mut skips = Self { random: Random::from_seed(seed), next: 0, period: FIRST };
        skips.draw(0);
        skips
    }

    /// The number of a packet that leaves; `next` is the one behind the last. Only one that is acknowledged comes behind a
    /// number that is passed over: its gap is reported, and reports must not answer each other.
    pub(super) fn number(&mut self, next: u64, eliciting: bool) -> u64 {
        if !eliciting || next < self.next {
            return next;
        }
        self.draw(next + 2);
        next + 1
    }

    fn draw(&mut self, from: u64) {
        self.next = from + u64::from(self.random.next_u32()) % (2 * self.period);
        self.period = (2 * self.period).min(LARGEST);
    }
}

/// Half of the first distance. A connection may be over after few packets, and grows most at its beginning.
/// Chosen, not measured.
const FIRST: u64 = 32;
/// Half of the largest distance. Each skip costs a report, and makes one packet in this number be
/// acknowledged at once. Chosen, not measured.
const LARGEST: u64 = 1024;

use crate::truncated::full_number;

/// Packet numbers behind the newest whose arrival is remembered (A1-PKT-3).
const WINDOW: u64 = 2048;

const WORDS: usize = (WINDOW / 64) as usize;

/// Which packet numbers have come already, so that a packet counts once however often the network delivers it.
///
/// ```text
///             older: refused │◄────────── 2048 numbers ──────────►│ newer: accepted
/// number  …──────────────────┼────────────────────────────────────┼──────────────────► …
///                            └ each has a bit: come or not         └ newest that came
/// ```
pub(crate) struct ReplayWindow {
    /// The number after the newest that has come.
    next: u64,
    /// Bit `number % WINDOW` is set if that number of the window has come.
    come: [u64; WORDS],
}

/// What a packet number is to a [`ReplayWindow`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Freshness {
    New,
    /// The number has come before.
    Repeated,
    /// The number is so far behind that nobody knows.
    TooOld,
}

impl ReplayWindow {
    pub(crate) fn new() -> Self {
        Self { next: 0, come: [0; WORDS] }
    }

    /// As new, for one who comes in at packet `next`.
    pub(crate) fn starting_at(next: u64) -> Self {
        Self { next, ..Self::new() }
    }

    /// The full number of which these are the low 24 bits: the one that is nearest to what is expected next.
    //= spec/a1.md A1-PKT-2
    pub(crate) fn expand(&self, low: u32) -> u64 {
        full_number(self.next, low)
    }

    /// Whether a packet of this number would count. To be asked before the packet is opened.
    //= spec/a1.md A1-PKT-3
    pub(crate) fn check(&self, number: u64) -> Freshness {
        if number >= self.next {
            Freshness::New
        } else if self.next - number > WINDOW {
            Freshness::TooOld
        } else if self.bit(number) {
            Freshness::Repeated
        } else {
            Freshness::New
        }
    }

    /// Whether the number is higher than all that have come.
    pub(crate) fn is_newest(&self, number: u64) -> bool {
        number >= self.next
    }

    /// Records a packet that was opened, which [`Self::check`] found to be new.
    pub(crate) fn record(&mut self, number: u64) {
        if number >= self.next {
            let skipped = number - self.next;
            if skipped >= WINDOW {
                self.come = [0; WORDS];
            } else {
                for between in self.next..number {
                    self.set(between, false);
                }
            }
            self.next = number.saturating_add(1);
        }
        self.set(number, true);
    }

    fn bit(&self, number: u64) -> bool {
        let (word, mask) = place(number);
        self.come.get(word).is_some_and(|word| word & mask != 0)
    }

    fn set(&mut self, number: u64, has_come: bool) {
        let (word, mask) = place(number);
        if let Some(word) = self.come.get_mut(word) {
            *word = if has_come { *word | mask } else { *word & !mask };
        }
    }
}

/// The word of a number's bit and the bit in it.
fn place(number: u64) -> (usize, u64) {
    let place = number % WINDOW;
    ((place / 64) as usize, 1 << (place % 64))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_number_counts_once() {
        let mut window = ReplayWindow::new();
        for number in [0, 5, 3, 4, 1, 2, 6] {
            assert_eq!(window.check(number), Freshness::New);
            window.record(number);
            assert_eq!(window.check(number), Freshness::Repeated);
        }
        window.record(WINDOW + 3);
        assert_eq!(window.check(3), Freshness::TooOld);
        assert_eq!(window.check(4), Freshness::Repeated);
        assert_eq!(window.check(7), Freshness::New);
        window.record(1 << 40);
        assert_eq!(window.check((1 << 40) - 1), Freshness::New);
        assert_eq!(window.check(7), Freshness::TooOld);
    }

    #[test]
    fn full_numbers_come_from_their_low_bits() {
        const LOW: u32 = 0xff_ffff;
        let mut window = ReplayWindow::new();
        assert_eq!(window.expand(LOW), u64::from(LOW), "there is no number below zero");
        for expected in [0, 1, 0x7f_ffff, 0xff_ffff, 0x100_0000, 0x180_0001, 0x5_ffff_fff0] {
            window.record(expected);
            for offset in [-1000_i64, -1, 0, 1, 1000, 1 << 22] {
                let Some(number) = expected.checked_add_signed(offset) else { continue };
                assert_eq!(window.expand(number as u32 & LOW), number, "{expected} {offset}");
            }
        }
        window.record(u64::MAX);
        assert_eq!(window.expand(LOW), u64::MAX);
        assert_eq!(window.expand(0), u64::MAX - u64::from(LOW), "there is no number above the last");
    }

    /// The window against a set of all numbers that have come.
    #[test]
    fn windows_agree_with_sets() {
        bolero::check!().with_type::<Vec<(bool, u16)>>().for_each(|steps| {
            let (mut window, mut set) = (ReplayWindow::new(), BTreeSet::new());
            let mut newest = 0_u64;
            for (forwards, distance) in steps {
                let distance = u64::from(*distance) % 5000;
                let number = if *forwards { newest + distance } else { newest.saturating_sub(distance) };
                let expected = if set.last().is_some_and(|last| last + 1 > number + WINDOW) {
                    Freshness::TooOld
                } else if set.contains(&number) {
                    Freshness::Repeated
                } else {
                    Freshness::New
                };
                assert_eq!(window.check(number), expected);
                if expected == Freshness::New {
                    window.record(number);
                    set.insert(number);
                    newest = newest.max(number);
                }
            }
        });
    }
}

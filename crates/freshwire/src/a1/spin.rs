//! When a thread that waits for a datagram looks again and again instead of sleeping.

use std::time::Duration;

/// For how long it looks: about as long as it takes to be woken up, so that the worst case costs twice the best.
pub(super) const SPIN: Duration = Duration::from_micros(20);

/// Whether looking again and again has been worth it lately. What comes seldom costs next to nothing: each time in vain, twice
/// as many waits pass until the next try.
#[derive(Debug)]
pub(super) struct Spin {
    is_possible: bool,
    in_vain: u32,
    skip: u32,
}

impl Spin {
    /// Where there is one processor, who looks keeps the other end from sending.
    pub(super) fn new() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self { is_possible: processors > 1, in_vain: 0, skip: 0 }
    }

    /// Whether to look before this wait.
    pub(super) fn begins(&mut self) -> bool {
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        self.is_possible
    }

    /// Nothing came for as long as it looked.
    pub(super) fn was_in_vain(&mut self) {
        self.in_vain = (self.in_vain + 1).min(MOST_IN_VAIN);
        self.skip = 1 << self.in_vain;
    }

    /// Something came after so long.
    pub(super) fn came_after(&mut self, time: Duration) {
        // Being woken takes a part of it.
        if time < 2 * SPIN {
            self.in_vain = self.in_vain.saturating_sub(1);
            self.skip = 0;
        }
    }
}

/// At least one wait of so many powers of two is tried.
const MOST_IN_VAIN: u32 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_seldom_is_looked_for_seldom() {
        let mut spin = Spin { is_possible: true, in_vain: 0, skip: 0 };
        let tries = (0..1000).filter(|_| {
            let tries = spin.begins();
            if tries {
                spin.was_in_vain();
            }
            spin.came_after(Duration::from_millis(1));
            tries
        });
        assert!(tries.count() < 12);
        spin.came_after(Duration::from_micros(15));
        assert!(spin.begins(), "it comes often again");
    }

    #[test]
    fn one_processor_is_left_to_who_sends() {
        let mut spin = Spin { is_possible: false, in_vain: 0, skip: 0 };
        spin.came_after(Duration::ZERO);
        assert!(!spin.begins());
    }
}

//! When a thread that waits for a datagram looks again and again instead of sleeping.

use std::time::Duration;

/// For how long it looks: as long as another process on the machine, or the next one on the network, takes to answer.
pub(super) const SPIN: Duration = Duration::from_micros(50);

/// Whether looking again and again has been worth it lately. Where it is not it costs next to nothing: each time in vain,
/// twice as many waits pass until the next try. It is not where little comes, nor where both ends share a processor.
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

    /// It looked, and something came or not.
    pub(super) fn ended(&mut self, came: bool) {
        if came {
            self.in_vain = 0;
        } else {
            self.in_vain = (self.in_vain + 1).min(MOST_IN_VAIN);
            self.skip = 1 << self.in_vain;
        }
    }
}

/// At least one wait of so many powers of two is tried.
const MOST_IN_VAIN: u32 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_tried_seldom_as_long_as_it_is_in_vain() {
        let mut spin = Spin { is_possible: true, in_vain: 0, skip: 0 };
        let tries = (0..2000).filter(|_| {
            let tries = spin.begins();
            if tries {
                spin.ended(false);
            }
            tries
        });
        assert!((8..20).contains(&tries.count()));
        while !spin.begins() {}
        spin.ended(true);
        assert!(spin.begins(), "it was worth it");
    }

    #[test]
    fn one_processor_is_left_to_who_sends() {
        assert!(!Spin { is_possible: false, in_vain: 0, skip: 0 }.begins());
    }
}

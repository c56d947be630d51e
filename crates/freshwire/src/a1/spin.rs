//! When a thread that waits for a datagram looks again and again instead of sleeping.

use std::time::Duration;

/// For how long it looks: as long as another process on the machine, or the next one on the network, takes to answer.
pub(super) const SPIN: Duration = Duration::from_micros(50);

/// How it looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// It keeps its processor.
    Busily,
    /// It lets others run in between: the other end shares the processor with it, and could not send otherwise.
    Yielding,
}

/// Whether looking again and again has been worth it lately. Where it is not it costs next to nothing: each time in vain,
/// twice as many waits pass until the next try.
#[derive(Debug)]
pub(super) struct Spin {
    is_possible: bool,
    in_vain: u32,
    skip: u32,
    /// The last wait began with looking, and that was in vain.
    has_failed: bool,
    /// The other end seems to share the processor.
    shares: bool,
}

impl Spin {
    /// Where there is one processor, who looks keeps the other end from sending.
    pub(super) fn new() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self { is_possible: processors > 1, in_vain: 0, skip: 0, has_failed: false, shares: false }
    }

    /// Whether to look before this wait, and how.
    pub(super) fn begins(&mut self) -> Option<Look> {
        self.has_failed = false;
        if self.skip > 0 {
            self.skip -= 1;
            return None;
        }
        let how = if self.shares { Look::Yielding } else { Look::Busily };
        self.is_possible.then_some(how)
    }

    /// It looked for so long, and something came or not. Where it let others run and that took much longer than it should
    /// have, it was not the other end that had work for the processor.
    pub(super) fn ended(&mut self, came: bool, took: Duration) {
        let is_busy = self.shares && took > SPIN * 2;
        if came && !is_busy {
            self.in_vain = 0;
            return;
        }
        self.has_failed = !self.shares;
        self.shares = false;
        self.in_vain = if is_busy { MOST_IN_VAIN } else { (self.in_vain + 1).min(MOST_IN_VAIN) };
        self.skip = 1 << self.in_vain;
    }

    /// It slept for so long until a datagram came. One that comes as soon as it sleeps was kept back by its looking.
    pub(super) fn slept(&mut self, took: Duration) {
        if self.has_failed && took < SOON {
            self.shares = true;
            self.skip = 0;
        }
    }
}

/// At least one wait of so many powers of two is tried.
const MOST_IN_VAIN: u32 = 8;

/// What another thread takes at most to send a datagram once it has the processor.
const SOON: Duration = Duration::from_micros(20);

#[cfg(test)]
mod tests {
    use super::*;

    fn spin() -> Spin {
        Spin { is_possible: true, ..Spin::new() }
    }

    #[test]
    fn it_is_tried_seldom_as_long_as_it_is_in_vain() {
        let mut spin = spin();
        let tries = (0..2000).filter(|_| {
            let tries = spin.begins().is_some();
            if tries {
                spin.ended(false, SPIN);
                spin.slept(SPIN);
            }
            tries
        });
        assert!((8..20).contains(&tries.count()));
        while spin.begins().is_none() {}
        spin.ended(true, SPIN / 10);
        assert_eq!(spin.begins(), Some(Look::Busily), "it was worth it");
    }

    #[test]
    fn who_shares_the_processor_with_the_other_end_lets_it_run() {
        let mut spin = spin();
        assert_eq!(spin.begins(), Some(Look::Busily));
        spin.ended(false, SPIN);
        spin.slept(SOON / 2);
        for _ in 0..3 {
            assert_eq!(spin.begins(), Some(Look::Yielding));
            spin.ended(true, SPIN / 10);
        }
        assert_eq!(spin.begins(), Some(Look::Yielding));
        spin.ended(false, SPIN);
        spin.slept(SOON / 2);
        assert_eq!(spin.begins(), None, "it is not that");
    }

    #[test]
    fn a_processor_that_others_have_work_for_is_given_up() {
        let mut spin = spin();
        spin.begins();
        spin.ended(false, SPIN);
        spin.slept(SOON / 2);
        spin.begins();
        spin.ended(true, SPIN * 20);
        spin.slept(SOON / 2);
        for wait in 0..1 << MOST_IN_VAIN {
            assert_eq!(spin.begins(), None, "wait {wait}");
        }
        assert_eq!(spin.begins(), Some(Look::Busily));
    }

    #[test]
    fn one_processor_is_left_to_who_sends() {
        assert_eq!(Spin { is_possible: false, ..Spin::new() }.begins(), None);
    }
}

//! Explicit congestion notification: whether packets are marked, and whether the counts that come back are sane.

/// ECN on the present path. It begins marked; when the path turns out to lose or to mangle marked packets, marking ends.
#[derive(Debug)]
pub(super) struct Ecn {
    enabled: bool,
    /// Packets of the connection that left marked, on whichever path: the peer counts them all.
    sent: u64,
    /// Marked packets of the present path.
    acked: u64,
    lost: u64,
    /// The largest packet number whose acknowledgement brought `marked`.
    largest: u64,
    /// Packets of the connection that met congestion, and those of them that did on other paths.
    marked: u64,
    marked_elsewhere: u64,
}

impl Ecn {
    pub(super) fn new(enabled: bool) -> Self {
        Self { enabled, sent: 0, acked: 0, lost: 0, largest: 0, marked: 0, marked_elsewhere: 0 }
    }

    pub(super) fn enabled(&self) -> bool {
        self.enabled
    }

    /// A packet leaves, marked if [`Ecn::enabled`].
    pub(super) fn on_sent(&mut self) {
        self.sent += u64::from(self.enabled);
    }

    /// What leaves from now on takes another path, which is tested anew.
    pub(super) fn on_path_change(&mut self, enabled: bool) {
        let marked_elsewhere = self.marked;
        *self = Self { enabled, acked: 0, lost: 0, marked_elsewhere, ..*self };
    }

    /// Marked packets were lost. A path that has delivered none of the first ones is taken for one that drops them.
    pub(super) fn on_lost(&mut self, packets: u64) {
        self.lost += packets;
        if self.acked == 0 && self.lost >= TEST_PACKETS {
            self.enabled = false;
        }
    }

    /// `acked` marked packets of this path are newly acknowledged, and of all of the connection's `ce_count` met congestion.
    /// Returns how many are new. A count that falls, or exceeds what was sent, ends marking; so does a path that marks
    /// everything from the beginning.
    //= spec/a1.md A1-CC-3
    pub(super) fn on_ack(&mut self, largest: u64, ce_count: u64, acked: u64) -> u64 {
        self.acked += acked;
        // Acknowledgements may overtake each other; an older one tells nothing new.
        if largest < self.largest {
            return 0;
        }
        self.largest = largest;
        if ce_count < self.marked || ce_count > self.sent {
            self.enabled = false;
            return 0;
        }
        let new = ce_count - self.marked;
        self.marked = ce_count;
        if self.acked == 0 {
            self.marked_elsewhere = ce_count;
        }
        let is_test = (TEST_PACKETS..=2 * TEST_PACKETS).contains(&self.acked);
        if is_test && self.marked - self.marked_elsewhere >= self.acked {
            self.enabled = false;
        }
        if self.enabled { new } else { 0 }
    }
}

/// After this number of packets the path has shown whether it carries marks (RFC 9000, appendix A.4).
const TEST_PACKETS: u64 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(packets: u64) -> Ecn {
        let mut ecn = Ecn::new(true);
        for _ in 0..packets {
            ecn.on_sent();
        }
        ecn
    }

    #[test]
    fn new_marks_are_counted_once() {
        let mut ecn = sent(100);
        assert_eq!(ecn.on_ack(19, 3, 20), 3);
        assert_eq!(ecn.on_ack(9, 1, 0), 0, "an old acknowledgement");
        assert_eq!(ecn.on_ack(29, 4, 10), 1);
        assert!(ecn.enabled());
    }

    #[test]
    fn insane_counts_end_marking() {
        for counts in [[5, 4], [5, 101]] {
            let mut ecn = sent(100);
            for (largest, count) in (30..).zip(counts) {
                ecn.on_ack(largest, count, 20);
            }
            assert!(!ecn.enabled(), "{counts:?}");
        }
    }

    //= spec/a1.md A1-PATH-3
    #[test]
    fn marks_of_another_path_are_neither_new_nor_too_many() {
        let mut ecn = sent(30);
        assert_eq!(ecn.on_ack(28, 12, 29), 12);
        ecn.on_path_change(true);
        for _ in 0..TEST_PACKETS {
            ecn.on_sent();
        }
        ecn.on_ack(29, 13, 0);
        assert_eq!(ecn.on_ack(38, 13, TEST_PACKETS - 1), 0);
        assert_eq!(ecn.on_ack(39, 14, 1), 1);
        assert!(ecn.enabled());
    }

    #[test]
    fn a_path_that_drops_or_marks_everything_is_left_alone() {
        let mut drops = sent(10);
        drops.on_lost(9);
        assert!(drops.enabled());
        drops.on_lost(1);
        assert!(!drops.enabled());

        let mut marks = sent(10);
        assert_eq!(marks.on_ack(8, 9, 9), 9);
        assert_eq!(marks.on_ack(9, 10, 1), 0);
        assert!(!marks.enabled());
    }
}

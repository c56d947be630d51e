//! What came, as the sender gets to know it: acknowledgements, and a report of what is missing.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::time::Duration;

use freshwire_record::Timestamp;

use crate::ranges::RangeSet;
use crate::wire::{Ack, MAX_RANGES, Ranges};

/// The receiving side's book of packets.
#[derive(Debug)]
pub(crate) struct Acks {
    received: RangeSet,
    largest: Option<(u64, Timestamp)>,
    /// The number that is expected next.
    next: u64,
    /// How often a gap is reported.
    reports: u8,
    /// Packets that ask for an acknowledgement and have none yet.
    waiting: u32,
    due: Option<Timestamp>,
    delay: Duration,
    ce: u64,
    /// Gaps that may still be filled by packets that were overtaken, with the time when they were seen.
    suspects: VecDeque<(RangeSet, Timestamp)>,
    /// Gaps that were reported, for how many more reports, and when they were seen.
    reported: VecDeque<(RangeInclusive<u64>, u8, Timestamp)>,
    /// How long a gap may last before it is taken for a loss. Zero as long as nothing was overtaken.
    patience: Duration,
    overtaken_at: Timestamp,
}

impl Acks {
    /// Nothing came yet; acknowledgements are put off by at most `delay`.
    pub(crate) fn new(delay: Duration) -> Self {
        Self {
            received: RangeSet::default(),
            largest: None,
            next: 0,
            reports: REPORTS,
            waiting: 0,
            due: None,
            delay,
            ce: 0,
            suspects: VecDeque::new(),
            reported: VecDeque::new(),
            patience: Duration::ZERO,
            overtaken_at: Timestamp::ZERO,
        }
    }

    /// For packets of a group, of which the first is `next`: a gap is reported once, because the report goes over a
    /// connection that repeats it.
    pub(crate) fn of_group(next: u64) -> Self {
        Self { next, reports: 1, ..Self::new(Duration::MAX) }
    }

    /// A packet came that was never seen before.
    //= spec/a1.md A1-ACK-1
    pub(crate) fn on_packet(&mut self, now: Timestamp, number: u64, packet: Arrival) {
        self.ce += u64::from(packet.ce);
        self.received.insert(number..number + 1);
        while self.received.len() > MAX_RANGES
            && let Some(oldest) = self.received.first()
        {
            self.received.remove(&oldest);
        }
        let next = self.next;
        let mut at_once = packet.ack_now || packet.ce;
        let mut shows_gap = false;
        if number >= next {
            if number > next {
                shows_gap = self.gap(now, next..=number - 1);
                at_once |= shows_gap;
            }
            self.largest = Some((number, now));
            self.next = number + 1;
        } else {
            self.overtaken(now, number);
        }
        if packet.eliciting {
            self.waiting += 1;
            let due = if at_once || self.waiting >= EVERY { now } else { now + self.delay };
            self.due = Some(self.due.map_or(due, |earlier| earlier.min(due)));
        } else if shows_gap {
            self.due = Some(now);
        }
    }

    /// The sender reports by another way that `next` is the number of its next packet. Missing packets before
    /// it are a gap, unless they are about to come.
    //= spec/a1.md A1-GRP-8
    pub(crate) fn on_reached(&mut self, now: Timestamp, next: u64) {
        let Some(last) = next.checked_sub(1).filter(|&last| last >= self.next) else { return };
        let mut missing = RangeSet::default();
        missing.insert(self.next..next);
        self.suspects.push_back((missing, now + OVERTAKES));
        if self.suspects.len() > MAX_GAPS {
            self.suspects.pop_front();
        }
        self.largest = Some((last, now));
        self.next = next;
    }

    /// When the next report is due, without anything else to send.
    pub(crate) fn timeout(&self) -> Option<Timestamp> {
        let suspect = self.suspects.front().map(|(_, seen)| *seen + self.patience);
        [self.due, suspect].into_iter().flatten().min()
    }

    /// Whether an ACK is due by `now`.
    pub(crate) fn is_due(&self, now: Timestamp) -> bool {
        self.timeout().is_some_and(|at| at <= now)
    }

    /// Whether something came that was not acknowledged yet.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting > 0
    }

    /// The acknowledgement of all that came, with the gaps to report; `microseconds` tells the receiver's time of an
    /// instant.
    pub(crate) fn report(
        &mut self,
        now: Timestamp,
        microseconds: impl Fn(Timestamp) -> u64,
    ) -> Option<(Ack, Option<Ranges>)> {
        let (_, at) = self.largest?;
        while let Some((gap, seen)) = self.suspects.front().cloned()
            && seen + self.patience <= now
        {
            self.suspects.pop_front();
            for missing in gap.iter() {
                self.report_gap(missing.start..=missing.end - 1, seen);
            }
        }
        self.waiting = 0;
        self.due = None;
        let mut missing = RangeSet::default();
        let due = self.reported.iter_mut().rev().filter(|(_, times, _)| *times > 0).take(MAX_RANGES);
        for (gap, times, _) in due {
            *times -= 1;
            missing.insert(*gap.start()..gap.end() + 1);
        }
        let ack = Ack {
            ranges: Ranges::newest(&self.received),
            delay_us: now.saturating_since(at).as_micros() as u64,
            at_us: microseconds(at) as u32,
            ce: self.ce,
        };
        Some((ack, (!missing.is_empty()).then(|| Ranges::newest(&missing))))
    }

    /// The sender knows of everything up to `number`: it needs no report any more.
    //= spec/a1.md A1-ACK-3
    pub(crate) fn forget_below(&mut self, number: u64) {
        self.received.remove(&(0..number));
    }

    /// Notes a gap; whether it is to be reported at once.
    //= spec/a1.md A1-ACK-2
    fn gap(&mut self, now: Timestamp, gap: RangeInclusive<u64>) -> bool {
        if now.saturating_since(self.overtaken_at) > FORGET {
            self.patience = Duration::ZERO;
        }
        if self.patience.is_zero() {
            self.report_gap(gap, now);
        } else {
            let mut suspects = RangeSet::default();
            suspects.insert(*gap.start()..gap.end() + 1);
            self.suspects.push_back((suspects, now));
            if self.suspects.len() > MAX_GAPS {
                self.suspects.pop_front();
            }
        }
        self.patience.is_zero()
    }

    fn report_gap(&mut self, gap: RangeInclusive<u64>, seen: Timestamp) {
        self.reported.push_back((gap, self.reports, seen));
        if self.reported.len() > MAX_GAPS {
            self.reported.pop_front();
        }
    }

    /// A packet came after one that was sent later. If it was reported as missing, gaps get more time from now on.
    fn overtaken(&mut self, now: Timestamp, number: u64) {
        for (gap, _) in self.suspects.iter_mut().filter(|(gap, _)| gap.contains(number)) {
            gap.remove(&(number..number + 1));
            self.overtaken_at = now;
        }
        let reported = self.reported.iter().find(|(gap, _, _)| gap.contains(&number));
        if let Some(&(_, _, seen)) = reported {
            let lateness = now.saturating_since(seen);
            self.patience = self.patience.max(lateness + lateness / 4).clamp(MIN_PATIENCE, MAX_PATIENCE);
            self.overtaken_at = now;
        }
    }
}

/// What matters of a packet that came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    /// It asks for an acknowledgement.
    pub(crate) eliciting: bool,
    /// It asks for one at once.
    pub(crate) ack_now: bool,
    /// The network marked it.
    pub(crate) ce: bool,
}

/// At least one in this number of packets is acknowledged. Chosen, not measured.
const EVERY: u32 = 16;
/// Reports of a gap, in case that one is lost (A1-ACK-2).
const REPORTS: u8 = 2;
/// Time by which one way may be faster than the other: after it a missing packet is a gap (A1-GRP-8).
const OVERTAKES: Duration = Duration::from_millis(50);
/// The most gaps that are remembered: twice the ranges of an ACK (A1-ACK-3).
const MAX_GAPS: usize = 64;
/// The least time that a gap gets after reordering. Chosen, not measured.
const MIN_PATIENCE: Duration = Duration::from_micros(250);
/// The most time that a gap gets after reordering (A1-ACK-2).
const MAX_PATIENCE: Duration = Duration::from_millis(200);
/// A path without reordering for this long counts as one that keeps the order (A1-ACK-2).
const FORGET: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use bolero::check;

    use super::*;
    use crate::wire::{Frame, Frames};

    const DATA: Arrival = Arrival { eliciting: true, ack_now: false, ce: false };

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * 1_000_000)
    }

    fn report(acks: &mut Acks, now: Timestamp) -> (Ack, Option<Ranges>) {
        acks.report(now, |at| at.as_nanos() / 1000).expect("something came")
    }

    //= spec/a1.md A1-ACK-1
    #[test]
    fn acknowledgements_wait_unless_asked_for() {
        let mut acks = Acks::new(Duration::from_millis(25));
        acks.on_packet(at(0), 0, DATA);
        assert_eq!(acks.timeout(), Some(at(25)));
        acks.on_packet(at(1), 1, Arrival { ack_now: true, ..DATA });
        assert!(acks.is_due(at(1)));
        let (ack, nack) = report(&mut acks, at(3));
        assert_eq!((ack.ranges, ack.delay_us, ack.at_us, nack), (Ranges(vec![0..=1]), 2000, 1000, None));
        assert_eq!(acks.timeout(), None);
    }

    #[test]
    fn a_gap_is_reported_at_once_and_twice() {
        let mut acks = Acks::new(Duration::from_millis(25));
        acks.on_packet(at(0), 0, DATA);
        acks.on_packet(at(1), 4, DATA);
        assert!(acks.is_due(at(1)));
        for _ in 0..2 {
            assert_eq!(report(&mut acks, at(1)).1, Some(Ranges(vec![1..=3])));
        }
        assert_eq!(report(&mut acks, at(1)).1, None);
    }

    //= spec/a1.md A1-ACK-2
    #[test]
    fn where_packets_overtake_each_other_a_gap_gets_time() {
        let mut acks = Acks::new(Duration::from_millis(25));
        acks.on_packet(at(0), 1, DATA);
        assert_eq!(report(&mut acks, at(0)).1, Some(Ranges(vec![0..=0])));
        acks.on_packet(at(4), 0, DATA);
        report(&mut acks, at(4));
        acks.on_packet(at(10), 3, DATA);
        assert_eq!(report(&mut acks, at(10)).1, None);
        assert_eq!(acks.timeout(), Some(at(15)));
        acks.on_packet(at(12), 2, DATA);
        assert_eq!(report(&mut acks, at(16)).1, None, "it came in time");
        acks.on_packet(at(20), 6, DATA);
        acks.on_packet(at(21), 5, DATA);
        assert_eq!(report(&mut acks, at(25)).1, Some(Ranges(vec![4..=4])));
        assert_eq!(
            report(&mut acks, at(26)).1,
            Some(Ranges(vec![4..=4])),
            "in case that the report was lost"
        );
        acks.on_packet(at(20_000), 9, DATA);
        assert_eq!(report(&mut acks, at(20_000)).1, Some(Ranges(vec![7..=8])), "the order holds again");
    }

    #[test]
    fn packets_that_never_came_are_reported_up_to_the_senders_next() {
        let mut acks = Acks::of_group(10);
        acks.on_reached(at(0), 10);
        assert_eq!(acks.timeout(), None);
        acks.on_reached(at(0), 14);
        acks.on_packet(at(5), 11, Arrival { eliciting: false, ..DATA });
        assert_eq!(acks.timeout(), Some(at(50)), "the rest may be about to come");
        assert_eq!(report(&mut acks, at(50)).1, Some(Ranges(vec![12..=13, 10..=10])));
        acks.on_reached(at(51), 12);
        assert_eq!(acks.timeout(), None, "that is no news");
    }

    #[test]
    fn gaps_are_reported_in_the_order_of_their_numbers() {
        let mut acks = Acks::of_group(10);
        let group = Arrival { eliciting: false, ..DATA };
        acks.on_packet(at(0), 11, group);
        acks.on_reached(at(0), 13);
        acks.on_packet(at(1), 14, group);
        assert_eq!(report(&mut acks, at(1)).1, Some(Ranges(vec![13..=13, 10..=10])));
        acks.on_packet(at(2), 16, group);
        assert_eq!(report(&mut acks, at(50)).1, Some(Ranges(vec![15..=15, 12..=12])));
        // The end of a burst was lost, and the beginning of the next.
        acks.on_reached(at(60), 18);
        acks.on_packet(at(110), 19, group);
        assert_eq!(report(&mut acks, at(110)).1, Some(Ranges(vec![17..=18])));
    }

    #[test]
    fn each_gap_of_a_group_is_reported_once_however_many_there_are() {
        check!().with_type::<Vec<(bool, u8)>>().for_each(|steps| {
            let mut acks = Acks::of_group(0);
            let (mut now, mut next) = (at(0), 0);
            let (mut came, mut reported) = (BTreeSet::new(), BTreeSet::new());
            for &(is_report, ahead) in steps {
                now += Duration::from_millis(5);
                next += u64::from(ahead % 4);
                if is_report {
                    acks.on_reached(now, next);
                } else {
                    acks.on_packet(now, next, Arrival { eliciting: false, ..DATA });
                    came.insert(next);
                    next += 1;
                }
                collect(&mut acks, now, &mut reported);
            }
            acks.on_reached(now, next);
            collect(&mut acks, now + Duration::from_secs(1), &mut reported);
            let missing: BTreeSet<_> = (0..next).filter(|number| !came.contains(number)).collect();
            assert_eq!(reported, missing);
        });
    }

    /// Collects reports until nothing is left, as they come out on the other side.
    fn collect(acks: &mut Acks, now: Timestamp, reported: &mut BTreeSet<u64>) {
        while acks.is_due(now)
            && let (_, Some(missing)) = report(acks, now)
        {
            let mut packet = Vec::new();
            Frame::Nack(missing).put(&mut packet);
            let Some(Ok(Frame::Nack(missing))) = Frames::new(&packet).next() else { panic!("{packet:?}") };
            for number in missing.0.into_iter().flatten() {
                assert!(reported.insert(number), "{number} a second time");
            }
        }
    }

    #[test]
    fn acknowledged_ranges_are_forgotten() {
        let mut acks = Acks::new(Duration::ZERO);
        for number in [0, 2, 4] {
            acks.on_packet(at(0), number, DATA);
        }
        acks.forget_below(3);
        assert_eq!(report(&mut acks, at(0)).0.ranges, Ranges(vec![4..=4]));
    }
}

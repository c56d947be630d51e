//! Packets between their sending and the knowledge of their fate.

use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeInclusive;
use std::time::Duration;

use freshwire_record::Timestamp;

use super::stamp::{Newest, Stamp};
use super::types::{AckError, Outcomes};

/// A packet on its way.
#[derive(Debug)]
pub(super) struct Packet<C> {
    pub(super) sent_at: Timestamp,
    pub(super) bytes: u32,
    pub(super) stamp: Stamp,
    pub(super) mtu_probe: bool,
    pub(super) ecn: bool,
    pub(super) content: C,
}

/// Everything in flight, and a bounded memory of what was declared lost.
///
/// `slots` begins with the oldest packet in flight and ends with the newest number, so that its length is the
/// span of numbers that are not settled. Packets declared lost move to `lost`, which does not hold the span
/// open.
#[derive(Debug)]
pub(super) struct Flight<C> {
    slots: VecDeque<Slot<C>>,
    /// Number of the first slot.
    base: u64,
    bytes: u64,
    largest_acked: Option<u64>,
    lost: BTreeMap<u64, Remembered>,
    /// Numbers that were passed over: those of slots, and the last ones before.
    skipped: VecDeque<u64>,
    /// Packets before this number left on another path: they tell nothing about this one.
    path_start: u64,
}

#[derive(Debug)]
enum Slot<C> {
    InFlight(Packet<C>),
    Settled,
    /// The number was passed over.
    NeverSent,
}

#[derive(Clone, Copy, Debug)]
struct Remembered {
    sent_at: Timestamp,
    lost_at: Timestamp,
    bytes: u32,
}

/// Why packets are taken for lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// The peer or the order of arrival says so.
    Missing,
    /// Nothing is heard of the peer.
    Outage,
}

/// What an acknowledgement brought.
#[derive(Debug, Default)]
pub(super) struct Acked {
    /// Newest packet over all paths, as `bytes` and `spurious`.
    pub(super) newest: Option<Newest>,
    pub(super) bytes: u64,
    /// Packets of the present path.
    pub(super) packets: usize,
    pub(super) ecn_packets: u64,
    /// Sizes of the largest packet, and the number of the MTU probe, among them.
    pub(super) largest_size: u32,
    pub(super) mtu_probe: Option<(u64, u32)>,
    pub(super) spurious: Vec<Spurious>,
}

/// A packet that was declared lost and has arrived.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spurious {
    pub(super) number: u64,
    pub(super) bytes: u32,
    pub(super) sent_at: Timestamp,
    pub(super) lost_at: Timestamp,
}

/// Losses declared on the present path. An MTU probe counts only as such.
#[derive(Debug, Default)]
pub(super) struct Lost {
    pub(super) newest: u64,
    /// Send time of the newest lost packet that is no MTU probe.
    pub(super) newest_sent_at: Option<Timestamp>,
    pub(super) packets: usize,
    pub(super) bytes: u64,
    pub(super) ecn_packets: u64,
    pub(super) mtu_probe: Option<u64>,
    /// Size and time of sending of each.
    pub(super) sizes: Vec<(u32, Timestamp)>,
    /// Runs of numbers that follow one another.
    pub(super) runs: usize,
    /// Bytes that left on other paths.
    pub(super) bytes_elsewhere: u64,
}

impl<C> Flight<C> {
    pub(super) fn new() -> Self {
        Self {
            slots: VecDeque::new(),
            base: 0,
            bytes: 0,
            largest_acked: None,
            lost: BTreeMap::new(),
            skipped: VecDeque::new(),
            path_start: 0,
        }
    }

    /// Bytes in flight.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Numbers from the oldest in flight to the newest.
    pub(super) fn span(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn next_number(&self) -> u64 {
        self.base + self.slots.len() as u64
    }

    /// What leaves from now on takes another path.
    pub(super) fn begin_path(&mut self) {
        self.path_start = self.next_number();
    }

    /// Whether a packet left on the present path.
    pub(super) fn is_of_path(&self, number: u64) -> bool {
        number >= self.path_start
    }

    pub(super) fn insert(&mut self, number: u64, packet: Packet<C>) {
        self.skip_to(number);
        self.bytes += u64::from(packet.bytes);
        self.slots.push_back(Slot::InFlight(packet));
    }

    /// A packet of this number leaves and is not tracked.
    pub(super) fn pass(&mut self, number: u64) {
        self.skip_to(number);
        self.slots.push_back(Slot::Settled);
        self.trim();
    }

    fn skip_to(&mut self, number: u64) {
        debug_assert!(number >= self.next_number(), "packet {number} is sent twice");
        while self.next_number() < number {
            self.skipped.push_back(self.next_number());
            self.slots.push_back(Slot::NeverSent);
        }
        self.trim();
        while self.skipped.len() > MAX_SKIPPED
            && self.skipped.front().is_some_and(|&oldest| oldest < self.base)
        {
            self.skipped.pop_front();
        }
    }

    /// Settles the packets of `ranges`; nothing is changed if one of them was never sent.
    pub(super) fn ack(
        &mut self,
        ranges: &[RangeInclusive<u64>],
        out: &mut Outcomes<C>,
    ) -> Result<Acked, AckError> {
        for range in ranges {
            self.check(range)?;
        }
        let mut acked = Acked::default();
        for range in ranges {
            self.largest_acked = self.largest_acked.max(Some(*range.end()));
            let late = self.lost.range(range.clone()).map(|(&number, _)| number).collect::<Vec<_>>();
            for number in late {
                if let Some(Remembered { sent_at, lost_at, bytes }) = self.lost.remove(&number) {
                    acked.spurious.push(Spurious { number, bytes, sent_at, lost_at });
                }
            }
            for number in (self.base.max(*range.start())..=*range.end()).rev() {
                self.ack_one(number, &mut acked, out);
            }
        }
        self.trim();
        Ok(acked)
    }

    //= spec/a1.md A1-ACK-4
    fn check(&self, range: &RangeInclusive<u64>) -> Result<(), AckError> {
        if *range.end() >= self.next_number() {
            return Err(AckError::NeverSent(*range.end()));
        }
        let place = self.skipped.partition_point(|number| number < range.start());
        let never = self.skipped.get(place).filter(|number| range.contains(number));
        never.map_or(Ok(()), |&number| Err(AckError::NeverSent(number)))
    }

    fn ack_one(&mut self, number: u64, acked: &mut Acked, out: &mut Outcomes<C>) {
        let Some(packet) = self.take(number) else { return };
        acked.bytes += u64::from(packet.bytes);
        if self.is_of_path(number) {
            acked.packets += 1;
            acked.ecn_packets += u64::from(packet.ecn);
            if packet.mtu_probe {
                acked.mtu_probe = Some((number, packet.bytes));
            } else {
                acked.largest_size = acked.largest_size.max(packet.bytes);
            }
        }
        if acked.newest.is_none_or(|newest| newest.number < number) {
            acked.newest =
                Some(Newest { number, sent_at: packet.sent_at, bytes: packet.bytes, stamp: packet.stamp });
        }
        out.acked.push((number, packet.content));
    }

    /// Everything in flight of `range` is lost.
    pub(super) fn lose_range(
        &mut self,
        now: Timestamp,
        range: &RangeInclusive<u64>,
        out: &mut Outcomes<C>,
        lost: &mut Lost,
    ) {
        let Some(last) = self.next_number().checked_sub(1) else { return };
        for number in self.base.max(*range.start())..=last.min(*range.end()) {
            self.lose_one(now, number, out, lost);
        }
        self.trim();
    }

    /// Everything that left at `time` or earlier is lost.
    pub(super) fn lose_sent_before(
        &mut self,
        now: Timestamp,
        time: Timestamp,
        out: &mut Outcomes<C>,
        lost: &mut Lost,
    ) {
        self.lose_while(now, out, lost, |_, packet| packet.sent_at <= time);
    }

    /// Everything is lost that left `delay` ago and was overtaken by something acknowledged.
    pub(super) fn lose_late(
        &mut self,
        now: Timestamp,
        delay: Duration,
        out: &mut Outcomes<C>,
        lost: &mut Lost,
    ) {
        let Some(overtaken) = self.largest_acked else { return };
        self.lose_while(now, out, lost, |number, packet| number < overtaken && packet.sent_at + delay <= now);
    }

    /// When the oldest packet is lost by time, if it was overtaken.
    pub(super) fn late_at(&self, delay: Duration) -> Option<Timestamp> {
        match self.slots.front() {
            Some(Slot::InFlight(packet)) if self.largest_acked > Some(self.base) => {
                Some(packet.sent_at + delay)
            }
            _ => None,
        }
    }

    /// The oldest packet that was declared lost and may still be acknowledged.
    pub(super) fn oldest_lost(&self) -> Option<u64> {
        self.lost.first_key_value().map(|(&number, _)| number)
    }

    /// Forgets what was declared lost before `time`, and the oldest beyond a bound.
    pub(super) fn forget_lost(&mut self, time: Timestamp) {
        while let Some(entry) = self.lost.first_entry() {
            if entry.get().lost_at >= time && self.lost.len() <= MAX_REMEMBERED {
                return;
            }
            self.lost.pop_first();
        }
    }

    fn lose_while(
        &mut self,
        now: Timestamp,
        out: &mut Outcomes<C>,
        lost: &mut Lost,
        doomed: impl Fn(u64, &Packet<C>) -> bool,
    ) {
        let mut numbers = Vec::new();
        for (number, slot) in (self.base..).zip(&self.slots) {
            if let Slot::InFlight(packet) = slot {
                if !doomed(number, packet) {
                    break;
                }
                numbers.push(number);
            }
        }
        for number in numbers {
            self.lose_one(now, number, out, lost);
        }
        self.trim();
    }

    fn lose_one(&mut self, now: Timestamp, number: u64, out: &mut Outcomes<C>, lost: &mut Lost) {
        let Some(packet) = self.take(number) else { return };
        if self.is_of_path(number) {
            self.count_lost(number, &packet, lost);
        } else if !packet.mtu_probe {
            lost.bytes_elsewhere += u64::from(packet.bytes);
        }
        self.lost.insert(number, Remembered { sent_at: packet.sent_at, lost_at: now, bytes: packet.bytes });
        out.lost.push((number, packet.content));
    }

    fn count_lost(&self, number: u64, packet: &Packet<C>, lost: &mut Lost) {
        let is_skipped = |between| self.skipped.binary_search(&between).is_ok();
        let follows = number > lost.newest && (lost.newest + 1..number).all(is_skipped);
        lost.runs += usize::from(lost.runs == 0 || !follows);
        lost.newest = lost.newest.max(number);
        if packet.mtu_probe {
            lost.mtu_probe = Some(number);
        } else {
            lost.packets += 1;
            lost.bytes += u64::from(packet.bytes);
            lost.newest_sent_at = lost.newest_sent_at.max(Some(packet.sent_at));
            lost.sizes.push((packet.bytes, packet.sent_at));
        }
        lost.ecn_packets += u64::from(packet.ecn);
    }

    fn take(&mut self, number: u64) -> Option<Packet<C>> {
        let index = usize::try_from(number.checked_sub(self.base)?).ok()?;
        let slot = self.slots.get_mut(index)?;
        if !matches!(slot, Slot::InFlight(_)) {
            return None;
        }
        let Slot::InFlight(packet) = std::mem::replace(slot, Slot::Settled) else { return None };
        self.bytes -= u64::from(packet.bytes);
        Some(packet)
    }

    fn trim(&mut self) {
        while matches!(self.slots.front(), Some(Slot::Settled | Slot::NeverSent)) {
            self.slots.pop_front();
            self.base += 1;
        }
    }
}

/// Lost packets of which a late acknowledgement is still recognised. Chosen, not measured.
const MAX_REMEMBERED: usize = 4096;
/// Skipped numbers that are remembered although all before them is settled. An acknowledgement of one is a
/// lie. Chosen, not measured.
const MAX_SKIPPED: usize = 64;

//! One stream to many over IP multicast. Packets leave once for all members. A member's losses are repaired over its
//! own connection, if that is still worth it (Mapp 1997, "Support for multicast").
//!
//! ```text
//!  Source ──choice──► Group ──packets with a group key──► multicast address ──► every member
//!                       ▲                                                          │ misses some
//!                       └── repair ◄── GROUP_NACK on the member's own connection ◄─┘ ──► GROUP_BLOCK or GROUP_GONE
//! ```
//!
//! A group has no congestion control, since nobody acknowledges: it sends at the rate that it is given, and is for networks on
//! which that rate is provided for. Repairs are under the congestion control of each member's connection. A slow member holds
//! nobody back.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use freshwire_choice::{Choice, Decision, LinkView, Outcome, Reason, Record};
use freshwire_record::Timestamp;

use crate::config::GroupTransportConfig;
use crate::connection::{Clock, Connection, describe};
use crate::crypto::{Keys, Random};
use crate::outbox::Part;
use crate::source::{Source, read_all};
use crate::wire::{BlockHead, DATA_HEADER, Frame, Invitation, put_group_header};

/// The sending end of a multicast group.
pub struct Group {
    config: GroupTransportConfig,
    id: u32,
    key: [u8; 32],
    keys: Keys,
    clock: Clock,
    choice: Box<dyn Choice>,
    number: u64,
    next_id: u64,
    open: Option<(KeptMessage, u64)>,
    /// Messages that were sent and can be repaired, by their numbers.
    kept: VecDeque<KeptMessage>,
    /// What the last packets held, up to the one before `number`.
    log: VecDeque<Option<Part>>,
    /// When the rate lets the next packet go.
    next_at: Timestamp,
    ask_again_at: Option<Timestamp>,
    /// Empty packets that follow the last data, so that a lost tail shows as a gap, and when the next is due.
    tail: (u8, Timestamp),
    /// Time of the next report of its progress on the members' connections.
    tell_at: Timestamp,
    records: Vec<Record>,
    gone: Vec<(u64, Reason)>,
    plain: Vec<u8>,
    stats: GroupStats,
}

/// What a group has sent so far. Bytes are UDP payload. Repairs are in the numbers of the members' connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupStats {
    /// Packets sent to the group's address.
    pub packets_sent: u64,
    /// Bytes of them.
    pub bytes_sent: u64,
    /// The group's key has served for as long as is safe: nothing more is sent.
    pub key_exhausted: bool,
}

#[derive(Clone, Copy)]
struct KeptMessage {
    id: u64,
    token: u64,
    record: Record,
    until: Timestamp,
}

impl Group {
    /// Creates a group without members. `config` has passed [`GroupTransportConfig::check`]. Number and key come from `seed`; an
    /// invitation carries them to a member over its connection.
    pub fn new(
        now: Timestamp,
        config: GroupTransportConfig,
        choice: Box<dyn Choice>,
        seed: [u8; 32],
    ) -> Self {
        let mut random = Random::from_seed(seed);
        let (id, key) = (random.next_u32(), random.bytes());
        Self {
            config,
            id,
            key,
            keys: Keys::of_group(key),
            clock: Clock::new(now),
            choice,
            number: 0,
            next_id: 0,
            open: None,
            kept: VecDeque::new(),
            log: VecDeque::new(),
            next_at: now,
            ask_again_at: None,
            tail: (0, Timestamp::MAX),
            tell_at: Timestamp::MAX,
            records: Vec::new(),
            gone: Vec::new(),
            plain: Vec::new(),
            stats: GroupStats::default(),
        }
    }

    /// Sends what this policy chooses from now on.
    pub fn set_policy(&mut self, choice: Box<dyn Choice>) {
        self.choice = choice;
    }

    /// What it has sent so far.
    pub fn stats(&self) -> GroupStats {
        self.stats
    }

    /// Whether no record is in progress and the policy waits for no time. Sent records may still be kept for repairs.
    pub fn is_idle(&self) -> bool {
        self.open.is_none() && self.ask_again_at.is_none()
    }

    /// Forgets records in progress and those kept for repairs: its source is done with all of them.
    pub fn abandon(&mut self) {
        self.open = None;
        self.kept.clear();
        self.ask_again_at = None;
    }

    /// The number that packets of the group carry.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Where packets go.
    pub fn address(&self) -> SocketAddr {
        self.config.address
    }

    /// Makes the peer of a connection a member.
    pub fn invite(&self, now: Timestamp, connection: &mut Connection) {
        let offset_us = self.clock.micros(now).wrapping_sub(connection.micros(now));
        connection.invite(Invitation {
            group: self.id,
            address: self.config.address,
            key: self.key,
            next: self.number,
            offset_us,
        });
    }

    /// When [`Group::poll_transmit`] may have something again.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        let open = self.open.is_some().then_some(self.next_at);
        let tail = (self.tail.0 > 0).then_some(self.tail.1);
        let kept = self.kept.front().map(|kept| kept.until);
        let tell = (self.tell_at != Timestamp::MAX).then_some(self.tell_at);
        [open, tail, kept, tell, self.ask_again_at].into_iter().flatten().min()
    }

    /// Appends the next datagram, which goes to [`Group::address`]; false if there is none now.
    //= spec/a1.md A1-GRP-6
    pub fn poll_transmit(&mut self, now: Timestamp, source: &mut dyn Source, out: &mut Vec<u8>) -> bool {
        self.forget(now, source);
        if now < self.next_at {
            self.ask_again_at = Some(self.next_at);
            return false;
        }
        self.plain.clear();
        let room = usize::from(self.config.datagram).saturating_sub(DATA_HEADER + self.keys.overhead());
        let mut part = None;
        if self.open.is_none() {
            self.open = self.pick(now, source).map(|kept| (kept, 0));
        }
        if let Some((kept, sent_to)) = self.open {
            let end = self.put_block(kept, sent_to, room, source);
            part = Some(Part { id: kept.id, range: sent_to..end });
            self.open = (end < extent(&kept.record)).then_some((kept, end));
            if self.open.is_none() {
                let until = kept.record.deadline.min(now + self.config.repair_for);
                self.kept.push_back(KeptMessage { until, ..kept });
            }
            self.tail = (TAIL_PACKETS, now + TAIL);
        } else if self.tail.0 > 0 && self.tail.1 <= now {
            Frame::Ping.put(&mut self.plain);
            self.tail = (self.tail.0 - 1, now + TAIL);
        } else {
            return false;
        }
        self.seal(now, part, out)
    }

    /// Whether [`Group::tell`] is due for every member. It is so once for what was sent until now.
    //= spec/a1.md A1-GRP-8
    pub fn takes_notice(&mut self, now: Timestamp) -> bool {
        let is_due = self.tell_at <= now;
        if is_due {
            self.tell_at = Timestamp::MAX;
        }
        is_due
    }

    /// Tells a member on its connection how far the group is: it may have got nothing of the last packets, or of any, where
    /// the network does not bring them.
    pub fn tell(&self, member: &mut Connection) {
        member.tell_group_at(self.id, self.number);
    }

    /// A member misses packets. Parts that are still worth it go over its connection; the others are reported
    /// as not to come.
    //= spec/a1.md A1-GRP-3, A1-GRP-9
    pub fn repair(
        &mut self,
        now: Timestamp,
        missing: &[RangeInclusive<u64>],
        source: &dyn Source,
        member: &mut Connection,
    ) {
        let first = self.number - self.log.len() as u64;
        member.answered(self.id).remove(&(0..first));
        // Reports name the newest first, and the oldest are of use for the shortest time.
        for range in missing.iter().rev() {
            let mut number = first.max(*range.start());
            // However much is asked for, and how often: each packet is looked at once.
            loop {
                number = member.answered(self.id).next_missing(number);
                if number >= self.number || number > *range.end() {
                    break;
                }
                if !member.has_room_for_group_gone() {
                    return;
                }
                if let Some(Some(part)) = self.log.get((number - first) as usize) {
                    self.answer(now, part, source, member);
                }
                member.answered(self.id).insert(number..number + 1);
            }
        }
    }

    fn answer(&self, now: Timestamp, part: &Part, source: &dyn Source, member: &mut Connection) {
        let Some(kept) = self.kept(part.id).filter(|kept| kept.until > now) else {
            return member.tell_group_gone(self.id, part.id, Reason::Expired);
        };
        if !member.has_room_for_repair() {
            return member.tell_group_gone(self.id, part.id, Reason::Abandoned);
        }
        let len = part.range.end.min(u64::from(kept.record.len)) - part.range.start;
        let mut bytes = Vec::new();
        read_all(source, kept.token, part.range.start as u32, len as usize, &mut bytes);
        member.send_group_block(now, self.id, self.head(kept, part), bytes, kept.until);
    }

    /// A message that can be repaired.
    fn kept(&self, id: u64) -> Option<&KeptMessage> {
        let open = self.open.as_ref().map(|(kept, _)| kept).filter(|open| open.id == id);
        // Messages are sent one after the other, so they are kept in the order of their numbers.
        open.or_else(|| self.kept.get(self.kept.binary_search_by_key(&id, |kept| kept.id).ok()?))
    }

    fn head(&self, kept: &KeptMessage, part: &Part) -> BlockHead {
        BlockHead {
            id: kept.id,
            offset: part.range.start as u32,
            start: (part.range.start == 0).then(|| describe(&self.clock, &kept.record)),
            end: part.range.end == extent(&kept.record),
        }
    }

    fn put_block(&mut self, kept: KeptMessage, from: u64, room: usize, source: &dyn Source) -> u64 {
        let most = room.saturating_sub(HEAD_ROOM).max(LEAST_BLOCK) as u64;
        let end = extent(&kept.record).min(from + most);
        let head = self.head(&kept, &Part { id: kept.id, range: from..end });
        head.put(None, &mut self.plain);
        let len = end.min(u64::from(kept.record.len)).saturating_sub(from);
        read_all(source, kept.token, from as u32, len as usize, &mut self.plain);
        end
    }

    fn seal(&mut self, now: Timestamp, part: Option<Part>, out: &mut Vec<u8>) -> bool {
        let begin = out.len();
        put_group_header(self.id, self.number as u32, out);
        out.extend_from_slice(&self.plain);
        if self.keys.seal(self.number, out, begin + DATA_HEADER).is_err() {
            // Its owner makes a new group.
            self.stats.key_exhausted = true;
            out.truncate(begin);
            return false;
        }
        self.log.push_back(part);
        if self.log.len() > LOG {
            self.log.pop_front();
        }
        self.number += 1;
        self.tell_at = self.tell_at.min(now + TELL);
        self.stats.packets_sent += 1;
        self.stats.bytes_sent += (out.len() - begin) as u64;
        let earliest = Timestamp::from_nanos(now.as_nanos().saturating_sub(CATCH_UP.as_nanos() as u64));
        self.next_at = self.next_at.max(earliest) + self.config.rate.time_for((out.len() - begin) as u64);
        true
    }

    fn pick(&mut self, now: Timestamp, source: &mut dyn Source) -> Option<KeptMessage> {
        self.ask_again_at = None;
        let link = LinkView { rate: Some(self.config.rate), ..LinkView::default() };
        for _ in 0..PICKS {
            source.list(self.choice.lookahead(), &mut self.records, &mut self.gone);
            for (seq, reason) in self.gone.drain(..) {
                self.choice.outcome(&Record::numbered(seq), Outcome::Dropped(reason));
            }
            if self.records.is_empty() {
                return None;
            }
            match self.choice.pick(now, &self.records, &link) {
                Decision::Wait(until) => {
                    self.ask_again_at = until.map(|at| at.max(now + TAIL));
                    return None;
                }
                Decision::Drop(place, reason) => {
                    let record = *self.records.get(place)?;
                    if source.discard(now, record.index, reason) {
                        self.choice.outcome(&record, Outcome::Dropped(reason));
                    }
                }
                Decision::Send(place) => {
                    let index = self.records.get(place)?.index;
                    let Some(taken) = source.take(now, index, 0, u32::MAX) else { continue };
                    self.choice.outcome(&taken.record, Outcome::Sent);
                    let id = self.next_id;
                    self.next_id += 1;
                    return Some(KeptMessage {
                        id,
                        token: taken.token,
                        record: taken.record,
                        until: Timestamp::MAX,
                    });
                }
            }
        }
        None
    }

    fn forget(&mut self, now: Timestamp, source: &mut dyn Source) {
        while let Some(kept) = self.kept.front().filter(|kept| kept.until <= now || self.kept.len() > KEPT) {
            // Nobody acknowledges: sent is all that is known.
            source.settle(now, kept.token, Outcome::Acked);
            self.kept.pop_front();
        }
    }
}

fn extent(record: &Record) -> u64 {
    u64::from(record.len).max(1)
}

/// Room for the head of a message's first block.
const HEAD_ROOM: usize = 72;
/// A member takes no message that is cut into less (A1-FRM-6).
const LEAST_BLOCK: usize = 64;
/// Data, as time at the rate, that a late wake-up sends at once. Chosen, not measured.
const CATCH_UP: Duration = Duration::from_millis(5);
/// Empty packets after the last data (A1-GRP-6).
const TAIL_PACKETS: u8 = 3;
/// Their distance (A1-GRP-6).
const TAIL: Duration = Duration::from_millis(10);
/// Interval of progress reports to members, while the group sends (A1-GRP-8).
const TELL: Duration = Duration::from_millis(200);
/// Packets whose contents are remembered for repairs. Chosen, not measured.
const LOG: usize = 8192;
/// Messages that can be repaired, at most. Chosen, not measured.
const KEPT: usize = 4096;
/// Questions to a policy in a row, against one that drops for ever. Chosen, not measured.
const PICKS: usize = 4096;

#[cfg(test)]
mod tests;

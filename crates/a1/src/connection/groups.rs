//! A connection's part in multicast: what a member gets from groups and asks for, and what their sender answers.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use freshwire_choice::Reason;
use freshwire_record::Timestamp;

use crate::acks::Acks;
use crate::crypto::{Keys, ReplayWindow};
use crate::inbox::{COST, Inbox, Message, Missing};
use crate::pool::Pool;
use crate::ranges::RangeSet;
use crate::wire::{Block, BlockHead, Frame, Invitation, Qos, Ranges};

/// Groups of which this end is a member, and what it has to say of any.
#[derive(Default)]
pub(super) struct Groups {
    pub(super) members: BTreeMap<u32, Membership>,
    /// Groups that the peer has invited this end to beyond what it joins.
    pub(super) declined: BTreeSet<u32>,
    pub(super) pending: VecDeque<ControlFrame>,
    /// Messages that will not come, to be reported to the peer: group, number.
    pub(super) gone: BTreeMap<(u32, u64), Reason>,
    /// The time of the second report of missing packets, and the report.
    pub(super) again: VecDeque<(Timestamp, ControlFrame)>,
    pub(super) repairs: VecDeque<Repair>,
    /// Packets of each group for which the peer got an answer when it missed them.
    pub(super) answered: BTreeMap<u32, RangeSet>,
}

/// A control frame that is retransmitted until it is acknowledged.
#[derive(Clone, Debug)]
pub(super) enum ControlFrame {
    Invitation(Invitation),
    Nack(u32, Ranges),
    Gone(u32, u64, Reason),
    At(u32, u64),
}

/// A block that a member asked for.
#[derive(Clone, Debug)]
pub(super) struct Repair {
    pub(super) group: u32,
    pub(super) head: BlockHead,
    pub(super) bytes: Vec<u8>,
    pub(super) until: Timestamp,
}

pub(super) struct Membership {
    pub(super) key: [u8; 32],
    pub(super) keys: Keys,
    pub(super) replay: ReplayWindow,
    pub(super) acks: Acks,
    pub(super) inbox: Inbox,
    pub(super) offset_us: u64,
}

impl Membership {
    pub(super) fn new(invitation: &Invitation, qos: &Qos, pool: Pool) -> Self {
        Self {
            key: invitation.key,
            keys: Keys::of_group(invitation.key),
            replay: ReplayWindow::starting_at(invitation.next),
            acks: Acks::of_group(invitation.next),
            inbox: Inbox::of_group(invitation.group, qos, pool),
            offset_us: invitation.offset_us,
        }
    }
}

impl Groups {
    /// When gaps are to be reported that had to wait.
    pub(super) fn timeout(&self) -> Option<Timestamp> {
        let gaps = self.members.values().filter_map(|member| member.acks.timeout());
        gaps.chain(self.again.front().map(|(at, _)| *at)).min()
    }

    pub(super) fn has_pending(&self) -> bool {
        !(self.pending.is_empty() && self.gone.is_empty())
    }

    pub(super) fn next_frame(&mut self) -> Option<ControlFrame> {
        let gone =
            || self.gone.pop_first().map(|((group, id), reason)| ControlFrame::Gone(group, id, reason));
        self.pending.pop_front().or_else(gone)
    }

    pub(super) fn requeue(&mut self, control: ControlFrame) {
        match control {
            ControlFrame::Gone(group, id, reason) => _ = self.gone.insert((group, id), reason),
            control => self.pending.push_front(control),
        }
    }

    /// The next message of a group. `peer_us` is the time on the connection's clock at the sender.
    pub(super) fn pop(&mut self, now: Timestamp, round_trip: Duration, peer_us: u64) -> Option<Message> {
        self.members
            .values_mut()
            .find_map(|member| member.inbox.pop(now, round_trip, peer_us.wrapping_add(member.offset_us)))
    }

    pub(super) fn pop_missing(&mut self) -> Option<Missing> {
        self.members.values_mut().find_map(|member| member.inbox.pop_missing())
    }

    /// Lets messages of the group that keeps most give way until all together keep no more than they may.
    pub(super) fn make_room(&mut self, qos: &Qos) {
        let most = most_kept(qos);
        while self.members.values().map(|member| member.inbox.kept_bytes()).sum::<u64>() > most
            && let Some(member) = self.members.values_mut().max_by_key(|member| member.inbox.kept_bytes())
            && member.inbox.give_way()
        {}
    }

    /// Bytes that are kept for the peer.
    #[cfg(test)]
    pub(super) fn held_bytes(&self) -> usize {
        self.members.values().map(|member| member.inbox.held_bytes()).sum()
    }

    /// Ranges of numbers of messages that are remembered for the peer.
    #[cfg(test)]
    pub(super) fn remembered(&self) -> usize {
        self.members.values().map(|member| member.inbox.remembered()).sum()
    }

    /// A repair was lost.
    pub(super) fn repair_again(&mut self, repair: Repair) {
        self.repairs.push_front(repair);
    }

    /// Tells the peer of the next repairs that are of no use any more, and forgets them.
    //= spec/a1.md A1-GRP-3
    pub(super) fn forget_repairs(&mut self, now: Timestamp) {
        while let Some(&Repair { group, head, .. }) =
            self.repairs.front().filter(|repair| repair.until <= now)
        {
            self.repairs.pop_front();
            self.tell_gone(group, head.id, Reason::Expired);
        }
    }

    /// Puts the next repair into a packet, if it fits.
    pub(super) fn put_repair(&mut self, room: usize, plain: &mut Vec<u8>) -> Option<Repair> {
        let most = room.saturating_sub(REPAIR_ROOM);
        let repair = self.repairs.front_mut()?;
        let piece = if repair.bytes.len() <= most {
            self.repairs.pop_front()?
        } else if most >= LEAST_CUT {
            // The member's path carries less than the group's.
            repair.cut(most)
        } else {
            return None;
        };
        let block = Block { head: piece.head, bytes: &piece.bytes };
        Frame::GroupBlock { group: piece.group, block }.put(plain);
        Some(piece)
    }

    pub(super) fn tell_gone(&mut self, group: u32, id: u64, reason: Reason) {
        // A member without this report keeps its part of the message until newer ones take its place.
        if self.gone.len() < MAX_GONE {
            self.gone.insert((group, id), reason);
        }
    }

    pub(super) fn has_repairs(&self) -> bool {
        !self.repairs.is_empty()
    }

    /// Gaps that are due to be reported.
    //= spec/a1.md A1-GRP-3
    pub(super) fn report(&mut self, now: Timestamp) {
        while self.again.front().is_some_and(|(at, _)| *at <= now) {
            let room = MAX_PENDING.saturating_sub(self.pending.len());
            self.pending.extend(self.again.pop_front().map(|(_, control)| control).into_iter().take(room));
        }
        for (&group, member) in &mut self.members {
            if !member.acks.is_due(now) {
                continue;
            }
            while let Some((_, Some(missing))) = member.acks.report(now, |_| 0) {
                if self.pending.len() >= MAX_PENDING {
                    continue;
                }
                let control = ControlFrame::Nack(group, missing);
                // Its loss would be noticed after several round trips, and then a repair may be of no use any more.
                self.again.push_back((now + NACK_AGAIN, control.clone()));
                self.pending.push_back(control);
            }
        }
    }
}

impl Repair {
    /// Takes the first bytes off.
    fn cut(&mut self, bytes: usize) -> Self {
        let rest = self.bytes.split_off(bytes);
        let head = BlockHead { end: false, ..self.head };
        self.head.offset += bytes as u32;
        self.head.start = None;
        Self { head, bytes: std::mem::replace(&mut self.bytes, rest), ..*self }
    }
}

impl ControlFrame {
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Invitation(invitation) => Frame::Group(*invitation).put(out),
            Self::Nack(group, ranges) => Frame::GroupNack { group: *group, ranges: ranges.clone() }.put(out),
            Self::Gone(group, id, reason) => {
                Frame::GroupGone { group: *group, id: *id, reason: *reason }.put(out)
            }
            Self::At(group, next) => Frame::GroupAt { group: *group, next: *next }.put(out),
        }
    }
}

/// What all groups of a connection keep together at most: as much as the connection itself, and what each message takes
/// besides.
pub(super) fn most_kept(qos: &Qos) -> u64 {
    qos.receive_window() + u64::from(qos.outstanding) * COST
}

/// Groups of one connection, at most (A1-GRP-1).
pub(super) const MAX_GROUPS: usize = 16;
/// After this time a report of missing packets is repeated (A1-GRP-9).
const NACK_AGAIN: Duration = Duration::from_millis(5);
/// Reports that wait for the peer, at most. Chosen, not measured.
const MAX_PENDING: usize = 1024;
/// Announcements of messages that will not come, at most. Chosen, not measured.
pub(super) const MAX_GONE: usize = 1024;
/// A repair is cut into parts of at least this size; in a packet with less room it would not be worth its
/// head. Chosen, not measured.
const LEAST_CUT: usize = 400;
/// Room for the frame around a repair: type, group, and the head of a message's first block.
const REPAIR_ROOM: usize = 80;

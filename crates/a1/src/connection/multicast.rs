//! What a connection does for multicast groups: invites its peer to those of this end, and is a member of the peer's.

use freshwire_choice::Reason;
use freshwire_record::Timestamp;

use super::groups::{ControlFrame, Groups, MAX_GONE, MAX_GROUPS, Membership, Repair};
use super::{Connection, Event, State};
use crate::acks::Arrival;
use crate::crypto::Freshness;
use crate::inbox::{Missing, Rejected};
use crate::outbox::leaves_time;
use crate::ranges::RangeSet;
use crate::violation::Violation;
use crate::wire::{Block, BlockHead, Frame, Frames, Invitation};

/// The sender of groups.
impl Connection {
    /// This end's time, which invitations relate a group's to.
    pub(crate) fn micros(&self, now: Timestamp) -> u64 {
        self.clock.micros(now)
    }

    //= spec/a1.md A1-GRP-7
    pub(crate) fn invite(&mut self, invitation: Invitation) {
        // What goes to the group does not pass here, and silence would end the connection.
        self.config.keep_alive.get_or_insert(self.idle_timeout / 3);
        self.groups.pending.push_back(ControlFrame::Invitation(invitation));
    }

    /// Whether there is room to report another message of a group that will not come.
    pub(crate) fn has_room_for_group_gone(&self) -> bool {
        self.groups.gone.len() < MAX_GONE
    }

    /// Whether there is room for another repair.
    pub(crate) fn has_room_for_repair(&self) -> bool {
        self.groups.repairs.len() < MAX_REPAIRS
    }

    /// Packets of a group for which the peer got an answer when it missed them.
    pub(crate) fn answered(&mut self, group: u32) -> &mut RangeSet {
        let answered = &mut self.groups.answered;
        if answered.len() >= MAX_GROUPS && !answered.contains_key(&group) {
            answered.pop_first();
        }
        answered.entry(group).or_default()
    }

    /// Sends a block until it arrives or is of no use.
    pub(crate) fn send_group_block(
        &mut self,
        now: Timestamp,
        group: u32,
        head: BlockHead,
        bytes: Vec<u8>,
        until: Timestamp,
    ) {
        let repair = Repair { group, head, bytes, until };
        if !leaves_time(now, self.recovery.rtt().srtt(), until) {
            self.groups.repairs.push_back(repair.clone());
        }
        self.stats.repairs_sent += 1;
        self.groups.repairs.push_back(repair);
    }

    pub(crate) fn tell_group_at(&mut self, group: u32, next: u64) {
        self.groups.pending.retain(|control| !matches!(control, ControlFrame::At(of, _) if *of == group));
        self.groups.pending.push_back(ControlFrame::At(group, next));
    }

    #[cfg(test)]
    pub(crate) fn group_announcements(&self) -> usize {
        self.groups.pending.len() + self.groups.gone.len()
    }

    pub(crate) fn tell_group_gone(&mut self, group: u32, id: u64, reason: Reason) {
        self.groups.tell_gone(group, id, reason);
    }
}

/// A member.
impl Connection {
    /// A packet of a group came, of which the peer has made this end a member. False: it is not, or the packet did not open
    /// or came before.
    //= spec/a1.md A1-GRP-2
    pub(crate) fn handle_group_packet(
        &mut self,
        now: Timestamp,
        group: u32,
        number: u32,
        sealed: &mut [u8],
    ) -> bool {
        let Some(member) = self.groups.members.get_mut(&group).filter(|_| matches!(self.state, State::Open))
        else {
            return false;
        };
        let number = member.replay.expand(number);
        let opened = match member.replay.check(number) {
            Freshness::New => member.keys.open(now, number, false, sealed).ok(),
            Freshness::Repeated | Freshness::TooOld => None,
        };
        let Some(opened) = opened else {
            self.stats.packets_refused += 1;
            return false;
        };
        member.replay.record(number);
        self.stats.group_packets_received += 1;
        member.acks.on_packet(now, number, Arrival { eliciting: false, ack_now: false, ce: false });
        for frame in Frames::new(opened) {
            match frame {
                Ok(Frame::Block(block)) => self.on_group_block(group, &block),
                Ok(Frame::Ping | Frame::Padding) => {}
                // Another member may have forged this with the group's key: it must not end the connection.
                _ => break,
            }
        }
        true
    }

    //= spec/a1.md A1-GRP-1
    pub(super) fn on_group_frame(&mut self, now: Timestamp, frame: Frame<'_>) -> Result<(), Violation> {
        match frame {
            Frame::Group(invitation) => {
                self.on_invitation(&invitation)?;
            }
            Frame::GroupNack { group, ranges } => {
                self.events.push_back(Event::GroupMissing { group, missing: ranges.0 });
            }
            Frame::GroupBlock { group, block } => {
                self.stats.repairs_received += 1;
                self.on_group_block(group, &block);
            }
            Frame::GroupGone { group, id, reason } => self.on_group_gone(group, id, reason),
            Frame::GroupAt { group, next } => {
                if let Some(member) = self.groups.members.get_mut(&group) {
                    member.acks.on_reached(now, next);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn on_invitation(&mut self, invitation: &Invitation) -> Result<(), Violation> {
        let Groups { members, declined, .. } = &mut self.groups;
        let Invitation { group, address, .. } = *invitation;
        if members.get(&group).is_some_and(|member| member.key == invitation.key) {
            // Its packet was only thought to be lost.
            return Ok(());
        }
        let is_member = members.contains_key(&group);
        let is_known = is_member || declined.contains(&group);
        if !is_known && members.len() + declined.len() >= MAX_GROUPS {
            return Err(Violation::TooManyGroups);
        }
        if is_member || members.len() < self.config.groups {
            declined.remove(&group);
            members.insert(group, Membership::new(invitation, self.quality.current(), self.inbox.pool()));
        } else {
            declined.insert(group);
        }
        if !is_known {
            self.events.push_back(Event::Invited { group, address });
        }
        Ok(())
    }

    fn on_group_block(&mut self, group: u32, block: &Block<'_>) {
        let Some(member) = self.groups.members.get_mut(&group) else { return };
        let qos = self.quality.current();
        // What contradicts itself is left out: another member could have forged it.
        let taken = member.inbox.on_block(block, qos);
        self.groups.make_room(qos);
        match taken {
            Ok(true) => {
                self.stats.messages_received += 1;
                self.events.push_back(Event::Readable);
            }
            Err(Rejected::TooLarge | Rejected::Scattered) => {
                self.on_group_gone(group, block.head.id, Reason::Invalid)
            }
            _ => {}
        }
    }

    /// A message of a group will not come, or is nothing for this end.
    fn on_group_gone(&mut self, group: u32, id: u64, reason: Reason) {
        let Some(member) = self.groups.members.get_mut(&group) else { return };
        if member.inbox.forget(id) {
            member.inbox.tell_missing(Missing::OfGroup { group, id, reason });
            self.events.push_back(Event::Readable);
        }
    }
}

/// Repairs that wait for one member, at most (A1-GRP-3); a member that misses more is too slow for the group.
const MAX_REPAIRS: usize = 256;

//! What the peer says of multicast groups, and what comes to their addresses.

use std::time::Duration;

use bolero::TypeGenerator;
use freshwire_choice::Reason;

use super::super::super::groups::most_kept;
use super::super::pair::payload;
use super::{Closed, Event, Liar, Number, message};
use crate::crypto::Keys;
use crate::inbox::Missing;
use crate::wire::{Block, BlockHead, Frame, Invitation, Ranges};

/// A lie about one of some groups.
#[derive(Clone, Debug, TypeGenerator)]
pub(super) struct GroupLie {
    group: u8,
    about: About,
}

#[derive(Clone, Debug, TypeGenerator)]
enum About {
    Invite { next: Number },
    Nack { largest: Number, length: u8 },
    Block { id: Number, offset: Number, start: Option<u16>, end: bool, len: u8 },
    Message { id: Number, hundreds: u8 },
    Packet { number: Number, id: Number, len: u8 },
    Gone { id: Number, more: u8 },
    At { next: Number },
}

const KEY: [u8; 32] = [5; 32];

fn invite(liar: &mut Liar, group: u32, next: u64) {
    let address = "239.1.2.3:5004".parse().expect("an address");
    liar.tell(&Frame::Group(Invitation { group, address, key: KEY, next, offset_us: 0 }));
}

fn head(id: u64, offset: u32, start: Option<u32>, end: bool) -> BlockHead {
    BlockHead { id, offset, start: start.map(message), end }
}

pub(super) fn tell(liar: &mut Liar, lie: &GroupLie) {
    let group = u32::from(lie.group % 18);
    match &lie.about {
        About::Invite { next } => invite(liar, group, next.get()),
        About::Nack { largest, length } => {
            let largest = largest.get();
            let ranges = Ranges(vec![largest.saturating_sub(u64::from(*length))..=largest]);
            liar.tell(&Frame::GroupNack { group, ranges });
        }
        About::Block { id, offset, start, end, len } => {
            let bytes = vec![1; usize::from(*len)];
            let offset = u32::try_from(offset.get()).unwrap_or(u32::MAX) >> 6;
            let offset = if start.is_some() { 0 } else { offset };
            let head = head(id.get(), offset, start.map(u32::from), *end);
            liar.tell(&Frame::GroupBlock { group, block: Block { head, bytes: &bytes } });
        }
        About::Message { id, hundreds } => {
            let bytes = payload(0, usize::from(*hundreds) * 100);
            let head = head(id.get(), 0, Some(bytes.len() as u32), true);
            liar.tell(&Frame::GroupBlock { group, block: Block { head, bytes: &bytes } });
        }
        About::Packet { number, id, len } => {
            let (number, bytes) = (number.get(), vec![1; usize::from(*len)]);
            let head = head(id.get(), 0, Some(u32::from(*len) + 1), false);
            let mut sealed = Vec::new();
            Frame::Block(Block { head, bytes: &bytes }).put(&mut sealed);
            if Keys::of_group(KEY).seal(number, &mut sealed, 0).is_ok() {
                let now = liar.pair.now;
                liar.victim().connection.handle_group_packet(now, group, number as u32, &mut sealed);
            }
        }
        About::Gone { id, more } => {
            for other in 0..=u64::from(*more) {
                let id = (id.get() + 2 * other) & (u64::MAX >> 2);
                liar.tell(&Frame::GroupGone { group, id, reason: Reason::Expired });
            }
        }
        About::At { next } => liar.tell(&Frame::GroupAt { group, next: next.get() }),
    }
}

/// What the victim keeps of all groups together is bounded.
pub(super) fn check_bounds(liar: &mut Liar) {
    let connection = &liar.victim().connection;
    let (groups, most) = (&connection.groups, most_kept(connection.qos()));
    let held = groups.held_bytes();
    assert!(held as u64 <= most, "{held} bytes of groups are held for the peer, {most} at most");
    let numbers = groups.remembered();
    assert!(numbers <= 12 * 257, "{numbers} ranges of numbers are remembered for the peer");
}

#[test]
fn a_peer_with_many_groups_gets_no_more_memory_than_one_window() {
    let mut liar = Liar::new();
    liar.is_heard = false;
    let bytes = payload(0, 9_000);
    for group in 0..12 {
        invite(&mut liar, group, 0);
        for id in 0..8 {
            // Every second message misses a part.
            let head = head(id, 0, Some(9_000 + (id % 2) as u32 * 100), id % 2 == 0);
            liar.tell(&Frame::GroupBlock { group, block: Block { head, bytes: &bytes } });
            check_bounds(&mut liar);
        }
    }
    assert!(liar.victim().connection.groups.held_bytes() > 3 * 9_000);
    assert_eq!(liar.closed(), None);
}

//= spec/a1.md A1-GRP-4, A1-FRM-6
#[test]
fn pieces_of_messages_of_a_group_are_counted_and_bounded() {
    let mut liar = Liar::new();
    liar.is_heard = false;
    let piece = |liar: &mut Liar, id, offset| {
        let block = Block { head: head(id, offset, None, false), bytes: b"a" };
        liar.tell(&Frame::GroupBlock { group: 0, block });
    };
    invite(&mut liar, 0, 0);
    for place in 0..200 {
        for id in 0..4 {
            piece(&mut liar, id, 9_998 - 2 * place);
            check_bounds(&mut liar);
        }
    }
    // The oldest have made room by now.
    for place in 200..300 {
        piece(&mut liar, 3, 9_998 - 2 * place);
    }
    let connection = &mut liar.victim().connection;
    let missing = std::iter::from_fn(|| connection.poll_missing());
    let invalid = Missing::OfGroup { group: 0, id: 3, reason: Reason::Invalid };
    assert_eq!(missing.filter(|missing| *missing == invalid).count(), 1);
    assert_eq!(liar.closed(), None, "who has the group's key may have forged it");
}

#[test]
fn missing_messages_of_a_group_are_remembered_up_to_a_bound() {
    let mut liar = Liar::new();
    invite(&mut liar, 0, 0);
    for id in 0..1000 {
        liar.tell(&Frame::GroupGone { group: 0, id: 3 * id, reason: Reason::Expired });
        liar.listen(Duration::from_millis(1));
        assert!(liar.victim().connection.groups.remembered() <= 257);
    }
    // Whole messages with gaps between them are remembered as well.
    for id in 1000..2000 {
        let block = Block { head: head(3 * id, 0, Some(1), true), bytes: b"a" };
        liar.tell(&Frame::GroupBlock { group: 0, block });
        liar.listen(Duration::from_millis(1));
    }
    check_bounds(&mut liar);
    assert_eq!(liar.victim().connection.stats().messages_received, 1000);
}

//= spec/a1.md A1-GRP-1
#[test]
fn an_invitation_that_comes_again_changes_nothing() {
    let mut liar = Liar::new();
    liar.is_heard = false;
    let whole =
        |id| Frame::GroupBlock { group: 0, block: Block { head: head(id, 0, Some(1), true), bytes: b"a" } };
    invite(&mut liar, 0, 0);
    liar.tell(&whole(0));
    invite(&mut liar, 0, 0);
    liar.tell(&whole(0));
    liar.tell(&whole(1));
    let now = liar.pair.now;
    let connection = &mut liar.victim().connection;
    let received = std::iter::from_fn(|| connection.recv(now)).map(|message| message.id);
    assert_eq!(received.collect::<Vec<_>>(), [0, 1]);
    assert_eq!(connection.stats().messages_received, 2);
}

#[test]
fn a_declined_invitation_is_reported_and_costs_nothing() {
    let mut liar = Liar::new();
    liar.is_heard = false;
    for group in 0..16 {
        invite(&mut liar, group, 0);
        invite(&mut liar, group, 0);
        let block = Block { head: head(0, 0, Some(1), true), bytes: b"a" };
        liar.tell(&Frame::GroupBlock { group, block });
    }
    let connection = &mut liar.victim().connection;
    assert_eq!(connection.stats().messages_received, 12, "as many groups as it joins");
    let events: Vec<_> = std::iter::from_fn(|| connection.poll_event()).collect();
    let invited = |event: &&Event| matches!(event, Event::Invited { .. });
    assert_eq!(events.iter().filter(invited).count(), 16);
    invite(&mut liar, 16, 0);
    let Some(Closed::Violation(what)) = liar.closed() else { panic!("it is open") };
    assert!(what.to_string().contains("more groups"), "{what}");
}

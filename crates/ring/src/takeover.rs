//! Building the producer's private account from what the rings hold. Used each time the role is claimed: for a new
//! region it finds nothing.

use freshwire_record::Reason;

use crate::blocks::Blocks;
use crate::error::ClaimError;
use crate::fates::Fates;
use crate::layout::NO_HOLD;
use crate::own::{Own, Ring, slots_passed};
use crate::region::{Inner, Region};
use crate::sync::Ordering;
use crate::view::View;
use crate::word::{State, Word};

/// The account of a new producer. //= spec/ring.md R-CLAIM-3
pub(crate) fn rebuild(region: &Region) -> Result<(Vec<Ring>, Blocks), ClaimError> {
    let inner = region.inner();
    let config = &inner.layout.config;
    let mut users = vec![0; config.blocks as usize];
    let mut rings = Vec::with_capacity(config.rings as usize);
    for ring in 0..config.rings as usize {
        rings.push(rebuild_ring(inner, ring, &mut users)?);
    }
    Ok((rings, Blocks::new(users)))
}

fn rebuild_ring(inner: &Inner, ring: usize, users: &mut [u32]) -> Result<Ring, ClaimError> {
    let view = View::new(inner, ring).ok_or(ClaimError::NoSuchRing(ring))?;
    let user_i = view.user_i().ok_or(ClaimError::Corrupt(ring))?;
    // A hold of the former producer ends with it.
    view.head.umod_i.0.store(NO_HOLD, Ordering::Release);
    view.head.changes.0.fetch_add(1, Ordering::Release);
    view.recover();
    let slots = view.slots();
    let oldest = user_i.saturating_sub(slots);
    let reported_to = view.head.user.tail_i.load(Ordering::Relaxed).clamp(oldest, user_i);
    // A producer that died while it passed over a record has published a tail behind that one.
    let tail = (oldest..reported_to).find(|&index| lives(&view, index)).unwrap_or(reported_to);
    let slots = vec![Own::EMPTY; slots as usize];
    let mut own = Ring {
        user_i,
        tail,
        slots,
        behind: Vec::with_capacity(slots_passed(view.slots())),
        fates: Fates::default(),
        hold: NO_HOLD,
    };
    let passed = view.passed_i();
    for at in oldest..user_i.min(passed) {
        let index = view.holder(at, passed);
        if index != at {
            adopt_behind(&view, &mut own, index, users);
        }
    }
    let mut index = tail;
    while index < user_i {
        let is_reported = index < reported_to && !lives(&view, index);
        if is_reported || own.own(index).is_behind() || view.holder(index, passed) != index {
            index += 1;
            continue;
        }
        index += adopt(&view, &mut own, index, users);
    }
    Ok(own)
}

/// Takes over a record that the former producer had passed over, unless it has ended: its fate is gone then.
//= spec/ring.md R-PASS-4
fn adopt_behind(view: &View<'_>, own: &mut Ring, index: u64, users: &mut [u32]) {
    if !lives(view, index) {
        return;
    }
    let span = adopt(view, own, index, users) as u32;
    own.leave_behind(index, span);
}

/// Whether a record begins at `index` that has not ended.
fn lives(view: &View<'_>, index: u64) -> bool {
    let state = view.word(index).ok().and_then(Word::state);
    matches!(state, Some(State::Ready | State::Held | State::Taken))
}

/// Takes over one record; returns its slots. A finished one keeps its slots for its fate, without blocks.
fn adopt(view: &View<'_>, own: &mut Ring, index: u64, users: &mut [u32]) -> u64 {
    let first = own.at(index);
    // A record whose words are not sound keeps one slot: `poll_fate` reports it as invalid.
    own.slots[first].span = 1;
    let Ok(word) = view.word(index) else { return 1 };
    let lives = match word.state() {
        Some(State::Ready | State::Held | State::Taken) => true,
        Some(State::Sent | State::Acked | State::Dead) => false,
        Some(State::Cont) => {
            own.slots[first].span = 0;
            return 1;
        }
        Some(State::Free) | None => return 1,
    };
    let record = view.describe(index);
    let extents = view.is_sound(&record, own.user_i).then(|| view.extents(&record)).flatten();
    let Some(extents) = extents else {
        if lives {
            let dead = word.dead(Reason::Invalid);
            // A failure means that the sender has moved it on meanwhile, which ends it as well.
            let _moved_on = view.swap(index, word, dead);
        }
        return 1;
    };
    own.slots[first].span = record.slots;
    for part in 0..record.slots {
        if let Some(block) = extents.block(part as usize).filter(|_| lives) {
            users[block as usize] += 1;
            let at = own.at(index + u64::from(part));
            own.slots[at].block = block;
        }
    }
    u64::from(record.slots)
}

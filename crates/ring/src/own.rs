//! The producer's private copy of its rings: which slots and blocks are in use, and by what.

use crate::blocks::Blocks;
use crate::fates::Fates;

/// Set in [`Own::span`] of the slots of a record that was passed over; the rest is the slot's number within it.
const BEHIND: u32 = 1 << 31;

/// Where a record of `span` slots goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    pub(crate) span: u32,
    /// Its index; slots from the ring's end up to there are passed over.
    pub(crate) index: u64,
}

/// The producer's private copy of what it put on one ring.
#[derive(Debug)]
pub(crate) struct Ring {
    pub(crate) user_i: u64,
    /// Oldest index whose slot has not been reclaimed.
    pub(crate) tail: u64,
    pub(crate) slots: Vec<Own>,
    /// Records from before the tail that have not ended, in the order of their first slots.
    pub(crate) behind: Vec<Straggler>,
    pub(crate) fates: Fates,
    /// What `umod_i` is.
    pub(crate) hold: u64,
}

/// The producer's private copy of one slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Own {
    /// `NO_BLOCK` when the slot has none, or has given it back.
    pub(crate) block: u32,
    /// Slots of the record in its first slot, else 0; other values where the record was passed over.
    pub(crate) span: u32,
}

pub(crate) const NO_BLOCK: u32 = u32::MAX;

impl Own {
    pub(crate) const EMPTY: Self = Self { block: NO_BLOCK, span: 0 };
}

impl Own {
    /// The record of this slot was passed over: the slot's present index has none.
    #[inline]
    pub(crate) fn is_behind(self) -> bool {
        self.span & BEHIND != 0
    }

    /// Slots of the record in its first slot, unless it was passed over; else 0.
    #[inline]
    pub(crate) fn record_span(self) -> u32 {
        if self.is_behind() { 0 } else { self.span }
    }
}

impl Ring {
    /// Marks the record at `index` as one that keeps its slots while the ring goes on.
    pub(crate) fn leave_behind(&mut self, index: u64, span: u32) {
        for part in 0..span {
            let at = self.at(index + u64::from(part));
            self.slots[at].span = BEHIND | part;
        }
        if let Err(place) = self.place_behind(self.at(index)) {
            self.behind.insert(place, Straggler { index, span });
        }
    }

    /// Where the record with this first slot is, or belongs, among those that were passed over.
    fn place_behind(&self, first: usize) -> Result<usize, usize> {
        self.behind.binary_search_by_key(&first, |behind| self.at(behind.index))
    }

    /// The record that was passed over and has this slot.
    pub(crate) fn behind_at(&self, at: usize) -> Option<Straggler> {
        let own = self.slots[at];
        let part = if own.is_behind() { (own.span & !BEHIND) as usize } else { return None };
        let first = (at + self.slots.len() - part % self.slots.len()) % self.slots.len();
        self.place_behind(first).ok().map(|place| self.behind[place])
    }

    /// Gives the slots and blocks of a record back that was passed over.
    pub(crate) fn forget_behind(&mut self, behind: Straggler, blocks: &mut Blocks) {
        if let Ok(place) = self.place_behind(self.at(behind.index)) {
            self.behind.remove(place);
        }
        for part in 0..u64::from(behind.span) {
            let at = self.at(behind.index + part);
            if self.slots[at].block != NO_BLOCK {
                blocks.release(self.slots[at].block);
            }
            self.slots[at] = Own::EMPTY;
        }
    }
}

impl Ring {
    pub(crate) fn at(&self, index: u64) -> usize {
        (index & (self.slots.len() as u64 - 1)) as usize
    }

    pub(crate) fn own(&self, index: u64) -> Own {
        self.slots[self.at(index)]
    }

    /// The slot's block, unless the slot is that of a record which was passed over.
    pub(crate) fn give_back_unless_behind(&mut self, index: u64, blocks: &mut Blocks) {
        if !self.own(index).is_behind() {
            self.give_back(index, blocks);
        }
    }

    #[inline]
    pub(crate) fn give_back(&mut self, index: u64, blocks: &mut Blocks) {
        let at = self.at(index);
        if self.slots[at].block != NO_BLOCK {
            blocks.release(self.slots[at].block);
            self.slots[at].block = NO_BLOCK;
        }
    }
}

/// Records that are likely to be passed over at once: as many as an engine begins. More take memory when they are.
pub(crate) fn slots_passed(slots: u64) -> usize {
    (slots / 8) as usize + 1
}

/// A record that keeps its slots while the ring goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Straggler {
    pub(crate) index: u64,
    pub(crate) span: u32,
}

//! The state word of a slot.
//!
//! ```text
//!  63            32 31          10 9      4 3     0
//! ┌────────────────┬──────────────┬────────┬───────┐
//! │ lap            │ pid / reason │ edits  │ state │
//! └────────────────┴──────────────┴────────┴───────┘
//! ```
//!
//! The lap makes a word of an earlier use of the slot differ from the present one. The edit count makes a changed
//! record differ from its earlier reading. So one compare-and-swap of the whole word decides every race.

use freshwire_record::Reason;

/// Largest process id that fits: Linux's own limit (`PID_MAX_LIMIT`) is 2^22.
pub(crate) const PID_MASK: u32 = (1 << 22) - 1;

const STATE_BITS: u32 = 4;
const EDIT_BITS: u32 = 6;
const ARG_SHIFT: u32 = STATE_BITS + EDIT_BITS;
const EDIT_MASK: u64 = (1 << EDIT_BITS) - 1;

/// What a slot is at this moment (`spec/ring.md`, "States").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum State {
    Free = 0,
    Ready = 1,
    Held = 2,
    Taken = 3,
    Sent = 4,
    Acked = 5,
    Dead = 6,
    /// A further slot of the record whose first slot comes before it.
    Cont = 7,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word(pub(crate) u64);

impl Word {
    pub(crate) const fn new(lap: u32, state: State, arg: u32) -> Self {
        Self(((lap as u64) << 32) | (((arg & PID_MASK) as u64) << ARG_SHIFT) | state as u64)
    }

    pub(crate) const fn lap(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The state, if the other side wrote one that exists.
    pub(crate) const fn state(self) -> Option<State> {
        match self.0 & 0xf {
            0 => Some(State::Free),
            1 => Some(State::Ready),
            2 => Some(State::Held),
            3 => Some(State::Taken),
            4 => Some(State::Sent),
            5 => Some(State::Acked),
            6 => Some(State::Dead),
            7 => Some(State::Cont),
            _ => None,
        }
    }

    /// The holder's process id of a held slot, the reason of a dead one.
    pub(crate) const fn arg(self) -> u32 {
        ((self.0 >> ARG_SHIFT) as u32) & PID_MASK
    }

    /// The reason of a dead slot.
    pub(crate) const fn reason(self) -> Reason {
        Reason::from_code(self.arg() as u8)
    }

    /// The same lap and edit count, dropped.
    pub(crate) const fn dead(self, reason: Reason) -> Self {
        self.to(State::Dead, reason.code() as u32)
    }

    /// The same lap and edit count in another state.
    pub(crate) const fn to(self, state: State, arg: u32) -> Self {
        let keep = (self.0 >> 32 << 32) | (self.0 & (EDIT_MASK << STATE_BITS));
        Self(keep | (((arg & PID_MASK) as u64) << ARG_SHIFT) | state as u64)
    }

    /// Ready again, with the edit counted.
    pub(crate) const fn edited(self) -> Self {
        let edits = ((self.0 >> STATE_BITS) + 1) & EDIT_MASK;
        Self((self.0 >> 32 << 32) | (edits << STATE_BITS) | State::Ready as u64)
    }
}

/// The argument of a sent slot's word when no acknowledgement will be written there.
pub(crate) const SENT_LAST: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_do_not_overlap() {
        let word = Word::new(u32::MAX, State::Held, PID_MASK);
        assert_eq!((word.lap(), word.state(), word.arg()), (u32::MAX, Some(State::Held), PID_MASK));
        let mut ready = Word::new(7, State::Ready, 0);
        for _ in 0..64 {
            let next = ready.to(State::Held, PID_MASK).edited();
            assert_ne!(next, ready);
            assert_eq!((next.lap(), next.state()), (7, Some(State::Ready)));
            assert_eq!(next.arg(), 0);
            ready = next;
        }
        assert_eq!(ready, Word::new(7, State::Ready, 0));
        assert_eq!(ready.to(State::Dead, 255).reason(), Reason::Other(255));
        assert_eq!(Word(15).state(), None);
    }
}

//! How the producer's own records ended.

use freshwire_record::{Outcome, Reason};

use crate::view::View;
use crate::word::State;

pub(crate) enum Finished {
    /// `taken`: the sender has it in hand.
    No {
        taken: bool,
    },
    Acked,
    /// `last`: no acknowledgement will come.
    Sent {
        last: bool,
    },
    Dropped(Reason),
    Bad,
}

/// Whether the record at `index`, one of the producer's own, is over.
#[inline]
pub(crate) fn finished(view: &View<'_>, index: u64) -> Finished {
    let Ok(word) = view.word(index) else { return Finished::Bad };
    match word.state() {
        Some(State::Ready | State::Held) => Finished::No { taken: false },
        Some(State::Taken) => Finished::No { taken: true },
        Some(State::Sent) => Finished::Sent { last: word.arg() != 0 },
        Some(State::Acked) => Finished::Acked,
        Some(State::Dead) => Finished::Dropped(word.reason()),
        Some(State::Free | State::Cont) | None => Finished::Bad,
    }
}

impl Finished {
    /// The outcome that a fate reports; `None` if the record is not over.
    pub(crate) fn outcome(&self) -> Option<Outcome> {
        match *self {
            Self::No { .. } => None,
            Self::Acked => Some(Outcome::Acked),
            Self::Sent { .. } => Some(Outcome::Sent),
            Self::Dropped(reason) => Some(Outcome::Dropped(reason)),
            Self::Bad => Some(Outcome::Dropped(Reason::Invalid)),
        }
    }
}

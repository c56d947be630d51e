//! How the producer's own records ended.

use crate::view::View;
use crate::word::State;

pub(crate) enum Finished {
    No,
    Acked,
    /// `last`: no acknowledgement will come.
    Sent {
        last: bool,
    },
    Dropped(u8),
    Bad,
}

/// Whether the record at `index`, one of the producer's own, is over.
#[inline]
pub(crate) fn finished(view: &View<'_>, index: u64) -> Finished {
    let Ok(word) = view.word(index) else { return Finished::Bad };
    match word.state() {
        Some(State::Ready | State::Held | State::Taken) => Finished::No,
        Some(State::Sent) => Finished::Sent { last: word.arg() != 0 },
        Some(State::Acked) => Finished::Acked,
        Some(State::Dead) => Finished::Dropped(word.reason()),
        Some(State::Free | State::Cont) | None => Finished::Bad,
    }
}

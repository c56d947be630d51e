//! Fates that outlive the slots of their records: kept by the producer until they are asked for.

use std::collections::VecDeque;

use freshwire_record::Timestamp;
use freshwire_record::{Fate, Outcome};

use crate::finished::finished;
use crate::sync::Ordering;
use crate::view::View;
use crate::word::{SENT_LAST, State};

/// Fates of one ring that are kept for a producer that [asks for them](crate::Producer::keep_fates) or polls. Beyond
/// this number nothing is kept until the producer polls again: each record then costs no more than its count. A
/// program that polls once a second loses none below this many records a second.
pub const MAX_KEPT_FATES: usize = 16_384;

/// Fates of records whose slots are in use again.
#[derive(Debug)]
pub(crate) struct Fates {
    /// Complete, in the order in which they became so.
    done: VecDeque<Fate>,
    /// Sent, and nobody has said yet whether they were acknowledged.
    awaiting: VecDeque<Fate>,
    /// Nobody asks for them.
    is_ignored: bool,
    lost: u64,
}

impl Default for Fates {
    fn default() -> Self {
        Self { done: VecDeque::new(), awaiting: VecDeque::new(), is_ignored: true, lost: 0 }
    }
}

impl Fates {
    /// Keeps fates from now on: pushes allocate nothing for them.
    pub(crate) fn want(&mut self) {
        if std::mem::take(&mut self.is_ignored) {
            self.done.reserve_exact(MAX_KEPT_FATES);
            self.awaiting.reserve_exact(MAX_KEPT_FATES);
        }
    }

    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }

    /// A fate that is not kept.
    pub(crate) fn lose(&mut self) {
        self.lost += 1;
    }

    /// Keeps a fate that is complete.
    pub(crate) fn keep(&mut self, fate: Fate) {
        if self.done.len() >= MAX_KEPT_FATES {
            self.forget();
            self.is_ignored = true;
        }
        if self.is_ignored { self.lose() } else { self.done.push_back(fate) }
    }

    /// Keeps the fate of a record that was sent until [`acked`](Self::acked) or [`end`](Self::end).
    pub(crate) fn keep_sent(&mut self, fate: Fate) {
        if self.awaiting.len() >= MAX_KEPT_FATES
            && let Some(oldest) = self.awaiting.pop_front()
        {
            self.keep(oldest);
        }
        if self.is_ignored { self.lose() } else { self.awaiting.push_back(fate) }
    }

    /// The record at `index` was acknowledged. Nothing happens if it is not kept.
    pub(crate) fn acked(&mut self, index: u64, at: Option<Timestamp>) {
        let Some(place) = self.awaiting.iter().position(|fate| fate.index == index) else { return };
        if let Some(fate) = self.awaiting.remove(place) {
            self.keep(Fate { outcome: Outcome::Acked, acked_at: at, ..fate });
        }
    }

    /// Whether acknowledgements may be reported that no slot has: of fates that are kept, or that nobody asked for.
    pub(crate) fn awaits_acks(&self) -> bool {
        self.is_ignored || !self.awaiting.is_empty()
    }

    /// Keeps the fate of a finished record whose slots are used again.
    #[inline]
    pub(crate) fn keep_of(&mut self, view: &View<'_>, index: u64) {
        if self.is_ignored { self.lose() } else { self.read_and_keep(view, index) }
    }

    #[inline(never)]
    fn read_and_keep(&mut self, view: &View<'_>, index: u64) {
        let awaits = !view.is_final() && conclude(view, index);
        match fate_of(view, index) {
            Some(fate) if awaits => self.keep_sent(fate),
            Some(fate) => self.keep(fate),
            None => {}
        }
    }

    /// Nothing more will be said of what was sent.
    pub(crate) fn end(&mut self) {
        for fate in std::mem::take(&mut self.awaiting) {
            self.keep(fate);
        }
    }

    /// The next one that is complete.
    pub(crate) fn poll(&mut self) -> Option<Fate> {
        self.want();
        self.done.pop_front()
    }

    /// Counts all that are kept as lost.
    pub(crate) fn forget(&mut self) {
        self.lost += (self.done.len() + self.awaiting.len()) as u64;
        self.done.clear();
        self.awaiting.clear();
    }
}

/// The fate of a finished record.
pub(crate) fn fate_of(view: &View<'_>, index: u64) -> Option<Fate> {
    let outcome = finished(view, index).outcome()?;
    Some(read_fate(view, index, outcome))
}

/// Ends the wait for the acknowledgement of a record whose slots are about to be used again. Afterwards the
/// sender does not write it there. Returns `true` if the sender may still report it otherwise. //=
/// spec/ring.md R-STATE-3
fn conclude(view: &View<'_>, index: u64) -> bool {
    let Ok(word) = view.word(index) else { return false };
    let awaits = word.state() == Some(State::Sent) && word.arg() != SENT_LAST;
    awaits && view.swap(index, word, word.to(State::Sent, SENT_LAST)).is_ok()
}

pub(crate) fn read_fate(view: &View<'_>, index: u64, outcome: Outcome) -> Fate {
    let slot = view.slot(index);
    let seq = slot.user_seq.load(Ordering::Relaxed);
    let mut fate = Fate::uncommitted(index, seq, outcome);
    // The Acquire load of the state came before: the sender's line is what it wrote for this record, if for any.
    if slot.fate_of.load(Ordering::Relaxed) == index + 1 {
        let time = |nanos: u64| (nanos != 0).then(|| Timestamp::from_nanos(nanos));
        fate.committed_at = time(slot.committed_at.load(Ordering::Relaxed));
        fate.finished_at = time(slot.finished_at.load(Ordering::Relaxed));
        fate.acked_at = time(slot.acked_at.load(Ordering::Relaxed));
        fate.horizon = slot.horizon.load(Ordering::Relaxed);
        fate.unread = slot.unread.load(Ordering::Relaxed).checked_sub(1);
    }
    fate
}

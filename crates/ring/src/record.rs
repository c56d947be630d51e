use freshwire_record::Timestamp;
use freshwire_record::{Outcome, Record};

/// A private, checked copy of a slot's descriptor: the record, and what only the ring needs of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Descriptor {
    pub(crate) record: Record,
    /// Slots that it takes.
    pub(crate) slots: u32,
    /// The same payload is in other rings too, so it cannot be modified in place.
    pub(crate) shared: bool,
}

/// How far a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Nobody has taken it; it may be held for editing.
    Waiting,
    /// The sender has it in hand.
    Taken,
    /// It has ended, but for an acknowledgement that may follow [`Outcome::Sent`].
    Ended(Outcome),
}

/// Progress of a record, and the times that its sender has written so far. A [`Fate`](freshwire_record::Fate) is final, and is
/// reported once; this can be read at any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordStatus {
    /// How far it is.
    pub stage: Stage,
    /// When its first byte was handed over; `None` if that has not been.
    pub committed_at: Option<Timestamp>,
    /// When its last byte was handed over, or when the sender dropped it.
    pub finished_at: Option<Timestamp>,
    /// When its last byte was acknowledged.
    pub acked_at: Option<Timestamp>,
    /// Bytes committed and not yet on the wire at the record's commit point.
    pub horizon: u32,
}

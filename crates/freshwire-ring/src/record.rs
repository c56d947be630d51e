use std::fmt;

use freshwire_units::Timestamp;

use crate::reason;

/// Description of a record, given by the application with the push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    /// The application's own number; it names the record in drops, edits and fates. Default:
    /// [`NEXT_SEQ`](Self::NEXT_SEQ), the producer counts from 0 and returns the number.
    pub seq: u64,
    /// When the data came into being.
    pub generated: Timestamp,
    /// When it loses its value; `Timestamp::MAX` for never.
    pub deadline: Timestamp,
    /// Rank in a layered stream, 0 = base.
    pub layer: u8,
    /// Records that are decodable together.
    pub group: u32,
    /// Records of which a newer one replaces an older one; 0 = none.
    pub key: u64,
    /// How far back in `seq` the records lie that this one depends on; 0 = none.
    pub refs: [u32; 2],
}

impl Meta {
    /// Number of a record that has yet to get one: one more than that of the record before it.
    pub const NEXT_SEQ: u64 = u64::MAX;
}

impl Default for Meta {
    fn default() -> Self {
        Self {
            seq: Self::NEXT_SEQ,
            generated: Timestamp::ZERO,
            deadline: Timestamp::MAX,
            layer: 0,
            group: 0,
            key: 0,
            refs: [0; 2],
        }
    }
}

/// A private, checked copy of a record's descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queued {
    /// Where it is in the ring; grows by the slots of each record and never comes again.
    pub index: u64,
    /// The application's number for it.
    pub seq: u64,
    /// Payload bytes.
    pub len: u32,
    /// Slots that it takes.
    pub slots: u32,
    /// Rank in a layered stream, 0 = base.
    pub layer: u8,
    /// Records that are decodable together.
    pub group: u32,
    /// Records of which a newer one replaces an older one; 0 = none.
    pub key: u64,
    /// How far back in `seq` the records lie that this one depends on; 0 = none.
    pub refs: [u32; 2],
    /// When the data came into being.
    pub generated: Timestamp,
    /// When it loses its value; `Timestamp::MAX` for never.
    pub deadline: Timestamp,
    /// The same payload is in other rings too, so it cannot be modified in place.
    pub shared: bool,
}

/// Fate of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fate {
    /// Index of the record in the ring.
    pub index: u64,
    /// The application's number for it.
    pub seq: u64,
    /// Outcome of the record.
    pub outcome: Outcome,
    /// Commit time: when its first byte was handed to the carrier. `None` if it never was.
    pub committed_at: Option<Timestamp>,
    /// Time at which its last byte was handed to the carrier, or the sender dropped it. `None` if another party dropped it.
    pub finished_at: Option<Timestamp>,
    /// Time at which its last byte was acknowledged. `None` if it was not, or if the time is unknown to a millisecond or a twentieth
    /// of the record's delay.
    pub acked_at: Option<Timestamp>,
    /// Bytes committed and not yet on the wire at the record's commit point.
    pub horizon: u32,
    /// Estimate of the bytes that the receiving program had not read at the commit point. `None` if the sender cannot tell, or has no
    /// bound for them.
    pub unread: Option<u32>,
}

/// Progress of a record, and the times that its sender has written so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
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

/// How far a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Nobody has taken it; it may be held for editing.
    Waiting,
    /// The sender has it in hand.
    Taken,
    /// All of it was handed over.
    Sent,
    /// The receiver's host has all of it.
    Acked,
    /// It was dropped; see [`reason`](crate::reason).
    Dropped(u8),
}

/// How a record ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The receiver's host has all of it.
    Acked,
    /// All of it was handed over, and the sender says nothing of an acknowledgement, or the ring was closed before one came.
    Sent,
    /// It was dropped; see [`reason`](crate::reason).
    Dropped {
        /// Why.
        reason: u8,
    },
    /// It was never on the ring: there was no room, or the ring was closed. Its [`index`](Fate::index) is [`NO_INDEX`].
    Refused,
}

/// The index of a record that was never on a ring.
pub const NO_INDEX: u64 = u64::MAX;

impl Fate {
    /// The fate of a record that the ring did not take.
    pub fn refused(seq: u64) -> Self {
        Self {
            index: NO_INDEX,
            seq,
            outcome: Outcome::Refused,
            committed_at: None,
            finished_at: None,
            acked_at: None,
            horizon: 0,
            unread: None,
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Acked => f.write_str("acknowledged"),
            Self::Sent => f.write_str("sent, not known to be acknowledged"),
            Self::Dropped { reason } => write!(f, "dropped: {}", reason::name(*reason)),
            Self::Refused => f.write_str("refused: the ring had no room or was closed"),
        }
    }
}

/// Such as "record 4711: acknowledged after 12.345ms": the time since its first byte was handed over.
impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "record {}: {}", self.seq, self.outcome)?;
        match (self.outcome, self.committed_at, self.acked_at) {
            (Outcome::Acked, Some(begun), Some(acked)) => {
                write!(f, " after {:?}", acked.saturating_since(begun))
            }
            (Outcome::Acked, ..) => f.write_str(" at a time that is not known"),
            (Outcome::Dropped { .. }, Some(_), _) => f.write_str(", after it was begun"),
            _ => Ok(()),
        }
    }
}

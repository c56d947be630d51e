use std::fmt;

use crate::Timestamp;

use crate::reason::Reason;

/// How a record ended, or left its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The receiver's host has all of it.
    Acked,
    /// All of it was handed over, and the sender says nothing of an acknowledgement, or the ring was closed before one came.
    /// Policies receive it already at the commit point, for a record of which nothing is handed over yet.
    Sent,
    /// It was dropped, or abandoned in progress.
    Dropped(Reason),
    /// It was never on the ring: there was no room, or the ring was closed. Its [`index`](Fate::index) is [`NO_INDEX`].
    Refused,
}

impl Outcome {
    /// Why the record was dropped. `None` if it was not.
    #[inline]
    pub const fn reason(self) -> Option<Reason> {
        match self {
            Self::Dropped(reason) => Some(reason),
            Self::Acked | Self::Sent | Self::Refused => None,
        }
    }
}

/// The index of a record that was never on a ring.
pub const NO_INDEX: u64 = u64::MAX;

/// Fate of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fate {
    /// Index of the record in its queue.
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
    /// Time at which its last byte first entered the queueing discipline of the network interface. `None` unless the sink notes departures, or if
    /// the kernel had no room for the note.
    pub scheduled_at: Option<Timestamp>,
    /// Time at which the interface's driver first had its last byte for the device. `None` unless the sink notes departures and the
    /// driver reports them. `None` too if a queue in front of the device dropped it, or if the kernel had no room for the note.
    pub departed_at: Option<Timestamp>,
    /// Bytes committed and not yet on the wire at the record's commit point.
    pub horizon: u32,
    /// Estimate of the bytes that the receiving program had not read at the commit point. `None` if the sender cannot tell, or has no
    /// bound for them.
    pub unread: Option<u32>,
}

impl Fate {
    /// The fate of a record that was never committed: without times.
    pub const fn uncommitted(index: u64, seq: u64, outcome: Outcome) -> Self {
        Self {
            index,
            seq,
            outcome,
            committed_at: None,
            finished_at: None,
            acked_at: None,
            scheduled_at: None,
            departed_at: None,
            horizon: 0,
            unread: None,
        }
    }

    /// The fate of a record that the ring did not take.
    pub const fn refused(seq: u64) -> Self {
        Self::uncommitted(NO_INDEX, seq, Outcome::Refused)
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Acked => f.write_str("acknowledged"),
            Self::Sent => f.write_str("sent, not known to be acknowledged"),
            Self::Dropped(reason) => write!(f, "dropped: {reason}"),
            Self::Refused => f.write_str("refused: the ring had no room or was closed"),
        }
    }
}

/// Such as "record 4711: acknowledged after 12.345ms": the time since its first byte was handed over.
impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "record {}: {}", self.seq, self.outcome)?;
        match (self.outcome, self.committed_at, self.acked_at) {
            (Outcome::Acked, Some(committed), Some(acked)) => {
                write!(f, " after {:?}", acked.saturating_since(committed))
            }
            (Outcome::Acked, ..) => f.write_str(" at a time that is not known"),
            (Outcome::Dropped(_), Some(_), _) => f.write_str(", after it was committed"),
            _ => Ok(()),
        }
    }
}

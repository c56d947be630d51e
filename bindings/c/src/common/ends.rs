//! Ends of records and of sinks, in the order of their numbers.

use freshwire::sink::SinkError;

/// How a record ended.
#[cfg_attr(feature = "python", pyo3::pyclass(frozen, eq, eq_int, hash, module = "freshwire"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Outcome {
    /// The receiver's host has all of it.
    Acked,
    /// All of it was handed over; no acknowledgement is known.
    Sent,
    /// It was dropped; `Fate.reason` says why.
    Dropped,
    /// It was never on the ring.
    Refused,
}

impl From<freshwire::Outcome> for Outcome {
    fn from(outcome: freshwire::Outcome) -> Self {
        match outcome {
            freshwire::Outcome::Acked => Self::Acked,
            freshwire::Outcome::Dropped(_) => Self::Dropped,
            freshwire::Outcome::Refused => Self::Refused,
            // Handed over, and nothing more is known.
            _ => Self::Sent,
        }
    }
}

/// Why a sink has ended before it was closed.
#[cfg_attr(feature = "python", pyo3::pyclass(frozen, eq, eq_int, hash, from_py_object, module = "freshwire"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Cause {
    /// The operating system reported an error of the connection.
    Io,
    /// The A1 connection ended.
    A1,
    /// The peer closed the connection.
    PeerClosed,
    /// The time given to `close` passed, or the sink was aborted while it drained.
    OutOfTime,
    /// The sink was dropped, and the peer did not take the record in progress within the linger time.
    Lingered,
    /// The peer took nothing for the stall timeout.
    Stalled,
    /// Too much of `interject` waited for the peer.
    NotReading,
    /// The carrier cannot send bytes between records.
    CannotInterject,
    /// The engine or the A1 node was stopped.
    Stopped,
    /// Another one; `Ended.Broken.reason` names it.
    Other,
}

impl From<&SinkError> for Cause {
    fn from(error: &SinkError) -> Self {
        match error {
            SinkError::Io { .. } => Self::Io,
            SinkError::A1(_) => Self::A1,
            SinkError::PeerClosed => Self::PeerClosed,
            SinkError::OutOfTime => Self::OutOfTime,
            SinkError::Lingered => Self::Lingered,
            SinkError::Stalled => Self::Stalled,
            SinkError::NotReading => Self::NotReading,
            SinkError::CannotInterject => Self::CannotInterject,
            SinkError::Stopped => Self::Stopped,
            _ => Self::Other,
        }
    }
}

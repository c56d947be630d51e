use std::fmt;
use std::io;

/// Treatment of queued records when a sink is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CloseMode {
    /// Send the queued records that the policy still wants, then end the stream.
    Drain,
    /// Finish the record in progress, drop the others, then end the stream.
    FinishRecord,
    /// Discard everything and reset the connection, also where a clone of its socket is open.
    Abort,
}

/// How a sink ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ended {
    /// Its owner closed it. After [`CloseMode::Drain`] and [`CloseMode::FinishRecord`] the peer has acknowledged every byte.
    Closed,
    /// It ended before that.
    Broken(SinkError),
}

/// "closed", or the error.
impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("closed"),
            Self::Broken(error) => error.fmt(f),
        }
    }
}

/// Error that ended a sink.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SinkError {
    /// The operating system reported an error of the connection.
    #[error("{message}")]
    Io {
        /// Kind of the error.
        kind: io::ErrorKind,
        /// Text of the operating system.
        message: String,
    },
    /// The A1 connection ended.
    #[error(transparent)]
    A1(#[from] freshwire_a1::Closed),
    /// The peer closed the connection.
    #[error("the peer closed the connection")]
    PeerClosed,
    /// The time given to [`Sink::close`](crate::Sink::close) passed, or the sink was aborted while it drained.
    #[error("aborted before everything was delivered")]
    OutOfTime,
    /// The sink was dropped, and the peer did not take the record in progress within
    /// [`SinkConfig::linger`](crate::SinkConfig::linger).
    #[error("the peer did not take the rest within the linger time")]
    Lingered,
    /// The peer took nothing for [`SinkConfig::stall_timeout`](crate::SinkConfig::stall_timeout).
    #[error("the peer took nothing for the stall timeout")]
    Stalled,
    /// More than 64 KiB of [`Sink::interject`](crate::Sink::interject) waited for the peer.
    #[error("the peer does not read what is sent between records")]
    NotReading,
    /// The sink's carrier cannot send bytes between records.
    #[error("the carrier cannot send bytes between records")]
    CannotInterject,
    /// Another party spoiled the ring: the rest of a record in progress is not in it.
    #[error("the rest of a record in progress is not in the ring")]
    Torn,
    /// The ring accepts no record, although the path is free: another party spoiled it.
    #[error("the ring accepts no record, although the path is free")]
    RingStuck,
    /// The key of an A1 group can protect no more packets.
    #[error("the key of the group is used up")]
    KeysExhausted,
    /// The engine or the A1 node was stopped.
    #[error("the engine or node that served the sink was stopped")]
    Stopped,
}

impl From<io::Error> for SinkError {
    fn from(error: io::Error) -> Self {
        Self::Io { kind: error.kind(), message: error.to_string() }
    }
}

impl From<io::Error> for Ended {
    fn from(error: io::Error) -> Self {
        Self::Broken(error.into())
    }
}

//! Errors of a sender's calls.

use std::io;

use freshwire_a1::Closed;
use freshwire_io::network::NetworkQosError;
use freshwire_ring::{ClaimError, CreateError, EditError, TooLate};

use crate::carrier::CarrierError;
use crate::sink::id::{SinkId, StaleSink};

/// Error of queueing a record. Nothing was queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PushError {
    /// The ring has no free slot.
    #[error("the ring is full: wait, drop or replace a record")]
    Full,
    /// The arena has no free block.
    #[error("the arena has no free block: wait, drop or replace a record")]
    OutOfBlocks,
    /// The record is larger than a ring, or than the whole arena.
    #[error("the record is larger than the ring can ever hold: use more slots or larger blocks")]
    TooLarge,
    /// The sink has ended.
    #[error("the sink has ended: its connection is over")]
    Closed,
    /// Another sink has the ring by now, or the handle is another sender's.
    #[error(transparent)]
    StaleSink(#[from] StaleSink),
    /// The reservation is another sender's, was not made for this sink, or was committed before.
    #[error("the reservation was made elsewhere or committed before: reserve space for this sink")]
    ForeignReservation,
}

impl PushError {
    /// The error of a push to the ring of `sink`.
    pub(crate) fn of(error: freshwire_ring::PushError, sink: SinkId) -> Self {
        use freshwire_ring::PushError as Ring;
        match error {
            Ring::Full => Self::Full,
            Ring::OutOfBlocks => Self::OutOfBlocks,
            Ring::Closed => Self::Closed,
            Ring::NoSuchRing => Self::StaleSink(StaleSink(sink)),
            Ring::ForeignPayload => Self::ForeignReservation,
            _ => Self::TooLarge,
        }
    }
}

/// Error of modifying a queued record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ModifyError {
    /// The record has been committed, dropped, or is held by another party; or there never was one.
    #[error(transparent)]
    TooLate(#[from] TooLate),
    /// A change does not fit the record. The record stays queued, with the changes made before this one.
    #[error(transparent)]
    Invalid(#[from] EditError),
    /// Another sink has the ring by now, or the handle is another sender's.
    #[error(transparent)]
    StaleSink(#[from] StaleSink),
}

impl From<freshwire_ring::ModifyError> for ModifyError {
    fn from(error: freshwire_ring::ModifyError) -> Self {
        match error {
            freshwire_ring::ModifyError::Invalid(error) => Self::Invalid(error),
            _ => Self::TooLate(TooLate),
        }
    }
}

/// Error of creating a sender or adding a sink.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SenderError {
    /// The shared memory could not be made.
    #[error(transparent)]
    Create(#[from] CreateError),
    /// The region or a ring is in use by another sender or engine.
    #[error(transparent)]
    Claim(#[from] ClaimError),
    /// The socket refuses a setting of the sink.
    #[error("the socket refuses a setting of the sink: {0}")]
    Stream(#[from] io::Error),
    /// The kernel does not give the socket the wanted quality of service.
    #[error(transparent)]
    Network(#[from] NetworkQosError),
    /// The sink cannot have the kernel's ring.
    #[error(transparent)]
    Carrier(#[from] CarrierError),
    /// The sender was made by [`Sender::without_engine`](crate::Sender::without_engine).
    #[error("TCP sinks need an engine, and this sender has none")]
    NoEngine,
    /// The A1 connection has ended.
    #[error("the A1 connection has ended: {0}")]
    ConnectionEnded(#[from] Closed),
    /// The handshake of the A1 connection is not complete, or its node was stopped.
    #[error("the A1 connection is not established, or its node was stopped")]
    NotConnected,
    /// The ring cannot take the newest value of each key at any time.
    #[error(
        "{slots} slots are too few for {keys} keys: raise RingConfig::slots to {needed}, or use RingConfig::for_clients"
    )]
    TooFewSlots {
        /// The configured number of keys.
        keys: u32,
        /// Slots of each ring.
        slots: u32,
        /// Slots that this number of keys needs.
        needed: u32,
    },
    /// The sink's path or source notes no departures.
    #[error("{0} notes no departures: leave `departures` out")]
    NoDepartures(&'static str),
    /// The A1 connection or group has a sink already.
    #[error("the A1 connection or group has a sink already")]
    HasSink,
}

//! The bytes of A1 (`spec/a1.md`): packets, frames, parameters. Everything that comes from the network is read here, with
//! a bound on each count and length.

mod block;
mod cursor;
mod frame;
mod packet;
mod parameters;
mod run;

pub(crate) use block::{Block, BlockHead, Message, Next};
use cursor::MAX_VARINT;
pub(crate) use cursor::{Cursor, ahead, full_number, put_varint, varint_len, zigzag};
pub(crate) use frame::{Ack, Echo, Frame, Frames, Invitation, MAX_RANGES, PARITY_HEAD, Parity, Ranges};
pub(crate) use packet::{
    DATA_HEADER, DataHeader, MIN_INITIATION, Packet, RESET_LENGTH, VERSION, is_urgent, put_group_header,
};
pub(crate) use parameters::Parameters;
pub use parameters::{Qos, QosError};
pub(crate) use run::{OpenRun, Run};

/// Bytes from the peer that are not a packet, frame or parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// It ends in the middle.
    #[error("the packet ends in the middle of a field")]
    Truncated,
    /// A type that this version does not know.
    #[error("{0:#04x} is not a type of packet or frame")]
    UnknownType(u8),
    /// A value beyond its bound.
    #[error("{0} is out of bounds")]
    OutOfBounds(&'static str),
}

#[cfg(test)]
mod tests;

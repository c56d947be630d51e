//! The bytes of A1 (`spec/a1.md`): packets, frames, parameters. Everything that comes from the network is read here, with
//! a bound on each count and length.

mod block;
mod cursor;
mod error;
mod frame;
mod head;
mod packet;
mod parameters;
mod run;

pub(crate) use block::{Block, BlockHead, Message, Next};
pub(crate) use cursor::Cursor;
pub use error::Malformed;
pub(crate) use frame::{Ack, Echo, Frame, Frames, Invitation, MAX_RANGES, PARITY_HEAD, Parity, Ranges};
pub(crate) use packet::{
    DATA_HEADER, DataHeader, ID_OFFSET, INITIATION_KIND, KIND_MASK, MIN_INITIATION, Packet, RESET_LENGTH,
    VERSION, is_urgent, put_group_header,
};
pub(crate) use parameters::Parameters;
pub use parameters::{Qos, QosError};
pub(crate) use run::OpenRun;
#[cfg(test)]
pub(crate) use run::Run;

#[cfg(test)]
mod tests;

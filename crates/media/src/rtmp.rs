//! RTMP (Adobe's specification 1.0 of December 2012): messages in chunks, and the values of their commands (AMF0).
//!
//! ```text
//!  bytes ─► MessageReader ─► Message ─┬─ command, data ─► amf0::Values
//!           (chunks, bounds)          └─ audio, video ──► demux::Flv, which makes units of them
//!  Message::write ─► bytes: a whole header first, so that nothing before has to be known
//! ```
//!
//! The handshake has no content here: [`HANDSHAKE_BYTES`] each way, which every program takes with zeroes for the
//! version.

pub mod amf0;
mod chunk;

pub use self::chunk::{
    Bounds, ChunkError, LEAST_CHUNK_COST, Message, MessageReader, write_continuation, write_header,
};

/// The version byte that both sides begin with.
pub const VERSION: u8 = 3;
/// Bytes of each part of the handshake behind the version: C1, C2, S1, S2.
pub const HANDSHAKE_BYTES: usize = 1536;
/// Payload bytes of a chunk until a side says otherwise.
pub const DEFAULT_CHUNK_BYTES: usize = 128;

/// What a message holds ([`Message::kind`]).
pub mod kind {
    /// How large the sender's chunks are from here on: four bytes.
    pub const SET_CHUNK_SIZE: u8 = 1;
    /// Give up an incomplete message: the chunk stream in four bytes.
    pub const ABORT: u8 = 2;
    /// The count of received bytes, modulo 2^32.
    pub const ACKNOWLEDGEMENT: u8 = 3;
    /// An event: its type in two bytes, and its data.
    pub const USER_CONTROL: u8 = 4;
    /// After how many bytes the receiver has to acknowledge.
    pub const WINDOW_ACKNOWLEDGEMENT_SIZE: u8 = 5;
    /// The window that the receiver should ask for.
    pub const SET_PEER_BANDWIDTH: u8 = 6;
    /// Sound, as the body of an FLV tag.
    pub const AUDIO: u8 = 8;
    /// Pictures, as the body of an FLV tag.
    pub const VIDEO: u8 = 9;
    /// Data in AMF3: a byte, then AMF0 in practice.
    pub const DATA_AMF3: u8 = 15;
    /// A command in AMF3: a byte, then AMF0 in practice.
    pub const COMMAND_AMF3: u8 = 17;
    /// Data, such as `onMetaData`.
    pub const DATA: u8 = 18;
    /// A command: its name, the number of the transaction, and its arguments.
    pub const COMMAND: u8 = 20;
    /// Several messages in one.
    pub const AGGREGATE: u8 = 22;
}

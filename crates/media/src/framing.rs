//! How records lie in a byte stream, so that a reader finds whole records whatever was dropped.
//!
//! Records of any content, for readers of ours ([`Framing`]):
//!
//! - [`Framing::Raw`]: nothing is added. A record in progress has to be finished.
//! - [`Framing::LengthPrefixed`]: each record has its length before it. A record in progress has to be finished.
//! - [`Framing::Chunked`]: records are cut into chunks, and a record in progress can be abandoned at a chunk boundary
//!   (`spec/framing.md`).
//!
//! Records of any content, for browsers: [`websocket::Messages`] and [`event_stream::EventStream`].
//!
//! Units of a live stream, for players ([`Framer`]): [`ts`] (MPEG-TS), [`fmp4`] (MP4 over HTTP or [`websocket`]),
//! [`interleaved`] (RTP over an RTSP connection) and [`rtmp`] (a publisher's messages). [`frames`] are for the same process.

mod basic;
pub mod chunked;
#[cfg(test)]
mod clip;
pub mod event_stream;
pub mod fmp4;
mod framer;
pub mod frames;
pub mod interleaved;
pub mod length_prefixed;
mod prefix;
pub mod rtmp;
pub mod ts;
mod viewer;
pub mod websocket;

pub use framer::{Framer, Piece};
pub use prefix::Prefix;

/// The framing of a byte stream, seen from its writer. It keeps no state: the caller knows how far a record is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Framing {
    /// Payload bytes only.
    #[default]
    Raw,
    /// A 32-bit big-endian length before each record.
    LengthPrefixed,
    /// Chunks; see [`chunked`].
    Chunked,
}

/// The next piece of a record: first the bytes of `prefix`, then `body` bytes of payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Framing bytes that go before the payload bytes.
    pub prefix: Prefix,
    /// Payload bytes in this chunk.
    pub body: u32,
}

impl Framing {
    /// Bytes that open the stream.
    pub fn preamble(self) -> &'static [u8] {
        match self {
            Self::Raw | Self::LengthPrefixed => &[],
            Self::Chunked => &chunked::PREAMBLE,
        }
    }

    /// Returns `true` if a record in progress can be given up at a chunk boundary.
    //= spec/framing.md 1, 3
    pub fn can_abandon(self) -> bool {
        self == Self::Chunked
    }

    /// Cuts the next chunk of a record.
    ///
    /// `seq` is the record's number, `position` its payload bytes that are already written, `remaining` those that are
    /// not, and `max` how many bytes the chunk may have with its prefix. `None` if `max` leaves no room for a payload
    /// byte, or if the record is already finished. A record without payload has one chunk without body.
    //= spec/framing.md 2
    pub fn chunk(self, seq: u64, position: u32, remaining: u32, max: usize) -> Option<Chunk> {
        if remaining == 0 && position > 0 {
            return None;
        }
        let room = max.checked_sub(self.prefix_bytes(position))?;
        let body = remaining.min(u32::try_from(room).unwrap_or(u32::MAX));
        let body = if self == Self::Chunked { body.min(chunked::MAX_CHUNK_BODY) } else { body };
        if body == 0 && remaining > 0 {
            return None;
        }
        let mut prefix = Prefix::default();
        match self {
            Self::Raw => {}
            Self::LengthPrefixed if position == 0 => prefix.push(remaining.to_be_bytes()),
            Self::LengthPrefixed => {}
            Self::Chunked => chunked::write_header(&mut prefix, seq, position == 0, body == remaining, body),
        }
        Some(Chunk { prefix, body })
    }

    /// The bytes that abandon a record in progress; `None` if this framing cannot.
    pub fn abandon(self) -> Option<Prefix> {
        self.can_abandon().then(chunked::abandon_marker)
    }

    /// Framing bytes before the payload bytes at `position` of a record.
    pub fn prefix_bytes(self, position: u32) -> usize {
        match (self, position) {
            (Self::Raw, _) => 0,
            (Self::LengthPrefixed, 0) => 4,
            (Self::LengthPrefixed, _) => 0,
            (Self::Chunked, 0) => 8,
            (Self::Chunked, _) => 4,
        }
    }
}

#[cfg(test)]
mod tests;

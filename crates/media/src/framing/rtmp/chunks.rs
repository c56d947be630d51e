//! The chunk stream of RTMP 1.0 (5.3), as a writer makes it.

use crate::rtmp::{kind, write_continuation, write_header};
use crate::unit::Kind;

/// Bytes of a message in a chunk: as OBS sends them. At 1 Mbit/s sound waits at most 33 ms for the chunk of a picture.
pub const CHUNK_BYTES: u32 = 4096;

/// The longest message: its length has 24 bits.
const MAX_MESSAGE_BYTES: u32 = 0xff_ffff;

/// Types of messages (RTMP 1.0, 5.4 and 7.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    Audio,
    Video,
    /// Data in AMF0.
    Data,
}

impl Type {
    pub(super) fn of(kind: Kind) -> Self {
        match kind {
            Kind::Video => Self::Video,
            Kind::Audio => Self::Audio,
        }
    }

    fn number(self) -> u8 {
        match self {
            Self::Audio => kind::AUDIO,
            Self::Video => kind::VIDEO,
            Self::Data => kind::DATA,
        }
    }

    /// Each type has a chunk stream of its own, as messages of one cannot be mixed. 2 is the protocol's, 3 that of commands.
    fn chunk_stream(self) -> u8 {
        match self {
            Self::Audio => 4,
            Self::Data => 5,
            Self::Video => 6,
        }
    }
}

/// Begins the messages of one message stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Messages {
    message_stream: u32,
}

impl Messages {
    pub(super) fn new(message_stream: u32) -> Self {
        Self { message_stream }
    }

    /// Writes the header of a message of this length. `None` if a message cannot be that long.
    pub(super) fn begin(self, kind: Type, at: u32, bytes: u32, out: &mut Vec<u8>) -> Option<Message> {
        if bytes == 0 || bytes > MAX_MESSAGE_BYTES {
            return None;
        }
        let chunk_stream = kind.chunk_stream();
        write_header(chunk_stream, at, bytes, kind.number(), self.message_stream, out);
        let in_chunk = bytes.min(CHUNK_BYTES);
        Some(Message { chunk_stream, at, left: bytes - in_chunk, in_chunk })
    }

    /// Writes a whole message. `None` if it is empty or too long.
    pub(super) fn write(self, kind: Type, at: u32, body: &[u8], out: &mut Vec<u8>) -> Option<()> {
        self.begin(kind, at, u32::try_from(body.len()).ok()?, out)?.put(body, out);
        Some(())
    }
}

/// A message in progress.
#[derive(Debug)]
pub(super) struct Message {
    chunk_stream: u8,
    at: u32,
    /// Bytes that no chunk has.
    left: u32,
    /// Bytes that the chunk in progress still gets.
    in_chunk: u32,
}

impl Message {
    /// Whether a chunk has ended, so that one of another message can follow.
    pub(super) fn is_between(&self) -> bool {
        self.in_chunk == 0
    }

    /// Writes framing bytes, with the headers of the chunks that they begin.
    pub(super) fn put(&mut self, mut bytes: &[u8], out: &mut Vec<u8>) {
        while !bytes.is_empty() {
            let count = self.take(u32::try_from(bytes.len()).unwrap_or(u32::MAX), out) as usize;
            if count == 0 {
                // The caller has announced fewer bytes: a fault here, which the reader's tests would show.
                debug_assert!(false, "more bytes than the message has");
                return;
            }
            let (now, later) = bytes.split_at(count);
            out.extend_from_slice(now);
            bytes = later;
        }
    }

    /// How many of `wanted` payload bytes may follow, after the header of a chunk if one begins.
    pub(super) fn take(&mut self, wanted: u32, out: &mut Vec<u8>) -> u32 {
        if self.in_chunk == 0 && self.left > 0 && wanted > 0 {
            write_continuation(self.chunk_stream, self.at, out);
            self.in_chunk = self.left.min(CHUNK_BYTES);
            self.left -= self.in_chunk;
        }
        let taken = wanted.min(self.in_chunk);
        self.in_chunk -= taken;
        taken
    }
}

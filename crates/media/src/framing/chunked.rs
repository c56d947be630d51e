//! Records in chunks, with abandonment (`spec/framing.md`).
//!
//! ```text
//!  stream   ┌──────────┬───────┬───────┬─ ─ ─
//!           │ preamble │ chunk │ chunk │
//!           └──────────┴───────┴───────┴─ ─ ─
//!  preamble "FWCK" version=1 0 0 0
//!
//!           0       1                   4              (8)
//!  chunk    ┌───────┬───────────────────┬────────────────┬─ ─ ─ ─ ─ ─ ─ ─
//!           │ flags │  body bytes, 24   │ id, FIRST only │ body
//!           └───────┴───────────────────┴────────────────┴─ ─ ─ ─ ─ ─ ─ ─
//!  flags    1 FIRST   2 LAST   4 ABANDON
//! ```
//!
//! Chunks of two records are never mixed. An ABANDON chunk gives up the open record: the reader forgets its bytes.

use super::prefix::Prefix;
use crate::buffer::Buffer;

/// The eight bytes that open a chunked stream: magic, version, three zero bytes.
pub const PREAMBLE: [u8; 8] = *b"FWCK\x01\x00\x00\x00";
/// Payload bytes that fit into one chunk.
pub const MAX_CHUNK_BODY: u32 = (1 << 24) - 1;
/// Default of the largest record that a [`Reader`] accepts, in bytes. Chosen, not measured.
pub const DEFAULT_MAX_RECORD_BYTES: usize = 16 << 20;

const FIRST: u8 = 1;
const LAST: u8 = 2;
const ABANDON: u8 = 4;

//= spec/framing.md 6, 7, 13
pub(super) fn write_header(prefix: &mut Prefix, seq: u64, first: bool, last: bool, body: u32) {
    let flags = if first { FIRST } else { 0 } | if last { LAST } else { 0 };
    let [_, high, middle, low] = body.to_be_bytes();
    prefix.push([flags, high, middle, low]);
    if first {
        prefix.push((seq as u32).to_be_bytes());
    }
}

//= spec/framing.md 9
pub(super) fn abandon_marker() -> Prefix {
    let mut prefix = Prefix::default();
    prefix.push([ABANDON, 0, 0, 0]);
    prefix
}

/// What a chunked stream says.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A whole record.
    Record {
        /// The low 32 bits of its number.
        id: u32,
        /// Its bytes.
        payload: Vec<u8>,
    },
    /// A record that was abandoned at a chunk boundary.
    Abandoned {
        /// The low 32 bits of its number.
        id: u32,
        /// Bytes of it that had arrived.
        received: usize,
    },
}

/// The stream breaks the chunked framing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChunkError {
    /// It does not begin with `FWCK`.
    #[error("a chunked stream begins with \"FWCK\", not with {0:02x?}; was it written with another framing?")]
    Magic([u8; 4]),
    /// A version that is not known here.
    #[error("chunked framing version {0}; this reader knows version 1")]
    Version(u8),
    /// Bytes or flag bits that have to be zero are not.
    #[error("at stream byte {at}: reserved bits are set")]
    Reserved {
        /// Stream offset of the preamble or chunk.
        at: u64,
    },
    /// FIRST while a record is open.
    #[error("at stream byte {at}: a record begins inside record {open}")]
    Nested {
        /// Stream offset of the chunk.
        at: u64,
        /// Id of the open record.
        open: u32,
    },
    /// A chunk or ABANDON that belongs to no record.
    #[error("at stream byte {at}: a chunk of a record that was not started")]
    NotStarted {
        /// Stream offset of the chunk.
        at: u64,
    },
    /// A chunk without body that neither is a whole empty record nor gives one up, or an ABANDON with other flags or a
    /// body.
    #[error("at stream byte {at}: flags {flags} do not go with {body} body bytes")]
    Shape {
        /// Stream offset of the chunk.
        at: u64,
        /// Its flags.
        flags: u8,
        /// Its body bytes.
        body: u32,
    },
    /// A record grows beyond the reader's limit.
    #[error("at stream byte {at}: record {id} grows to {bytes} bytes, more than the limit of {limit}")]
    TooLarge {
        /// Stream offset of the chunk.
        at: u64,
        /// Id of the record.
        id: u32,
        /// Its bytes with this chunk.
        bytes: usize,
        /// The reader's limit.
        limit: usize,
    },
    /// The stream ended inside the preamble, a chunk or a record.
    #[error("the stream ended at byte {at}, inside {inside}")]
    Torn {
        /// Length of the stream.
        at: u64,
        /// The open record or chunk.
        inside: &'static str,
    },
}

/// Reads records from a chunked stream cut at any place. Never yields a torn record. Memory: what was pushed and not
/// yet taken, at most one record of the limit besides.
#[derive(Clone, Debug)]
pub struct Reader {
    buffer: Buffer,
    limit: usize,
    opened: bool,
    record: Option<Open>,
    chunk: Option<Body>,
}

#[derive(Clone, Debug)]
struct Open {
    id: u32,
    payload: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Body {
    remaining: usize,
    last: bool,
}

impl Default for Reader {
    fn default() -> Self {
        Self::new(DEFAULT_MAX_RECORD_BYTES)
    }
}

impl Reader {
    /// A reader that accepts records of up to `max_record_bytes` of payload.
    pub fn new(max_record_bytes: usize) -> Self {
        Self { buffer: Buffer::default(), limit: max_record_bytes, opened: false, record: None, chunk: None }
    }

    /// Adds the next bytes of the stream; ignored after an error. Take events until `None` before pushing again.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.push(bytes);
    }

    /// Tells that the stream has ended. An error if that is not at the end of a record.
    ///
    /// # Errors
    ///
    /// If the stream ends inside a record, or a chunk was invalid.
    pub fn finish(self) -> Result<(), ChunkError> {
        let at = self.buffer.offset() + self.buffer.peek().len() as u64;
        let inside = match (&self.record, self.opened) {
            _ if self.buffer.has_failed() || at == 0 => return Ok(()),
            (_, false) => "the preamble",
            (Some(_), _) => "a record",
            (None, true) if self.buffer.peek().is_empty() => return Ok(()),
            (None, true) => "a chunk header",
        };
        Err(ChunkError::Torn { at, inside })
    }

    fn read(&mut self) -> Result<Option<Event>, ChunkError> {
        if !self.opened {
            let Some(preamble) = self.buffer.take_array() else { return Ok(None) };
            check_preamble(preamble)?;
            self.opened = true;
        }
        loop {
            if let Some(chunk) = self.chunk {
                match self.read_body(chunk) {
                    Some(event) => return Ok(Some(event)),
                    None if self.chunk.is_some() => return Ok(None),
                    None => {}
                }
            }
            let Some(&[flags, high, middle, low]) = self.buffer.peek().first_chunk() else { return Ok(None) };
            let body = u32::from_be_bytes([0, high, middle, low]);
            if flags & FIRST != 0 && self.buffer.peek().len() < 8 {
                return Ok(None);
            }
            if let Some(event) = self.begin_chunk(flags, body)? {
                return Ok(Some(event));
            }
        }
    }

    /// Takes a chunk header that is there in full. An ABANDON is an event at once.
    //= spec/framing.md 8..10, 12
    fn begin_chunk(&mut self, flags: u8, body: u32) -> Result<Option<Event>, ChunkError> {
        let at = self.buffer.offset();
        if flags & !(FIRST | LAST | ABANDON) != 0 {
            return Err(ChunkError::Reserved { at });
        }
        let abandon = flags & ABANDON != 0;
        let empty_record = flags == FIRST | LAST;
        if abandon && (flags != ABANDON || body != 0) || body == 0 && !abandon && !empty_record {
            return Err(ChunkError::Shape { at, flags, body });
        }
        if flags & FIRST != 0 {
            if let Some(open) = &self.record {
                return Err(ChunkError::Nested { at, open: open.id });
            }
            let [.., a, b, c, d] = self.buffer.take_array::<8>().unwrap_or_default();
            self.record = Some(Open { id: u32::from_be_bytes([a, b, c, d]), payload: Vec::new() });
        } else {
            self.buffer.take(4);
        }
        let Some(open) = &self.record else { return Err(ChunkError::NotStarted { at }) };
        if abandon {
            let event = Event::Abandoned { id: open.id, received: open.payload.len() };
            self.record = None;
            return Ok(Some(event));
        }
        let bytes = open.payload.len() + body as usize;
        if bytes > self.limit {
            return Err(ChunkError::TooLarge { at, id: open.id, bytes, limit: self.limit });
        }
        self.chunk = Some(Body { remaining: body as usize, last: flags & LAST != 0 });
        Ok(None)
    }

    /// Moves body bytes that are there into the open record.
    //= spec/framing.md 11
    fn read_body(&mut self, mut chunk: Body) -> Option<Event> {
        let record = self.record.as_mut()?;
        let len = chunk.remaining.min(self.buffer.peek().len());
        record.payload.extend_from_slice(self.buffer.take(len)?);
        chunk.remaining -= len;
        self.chunk = (chunk.remaining > 0).then_some(chunk);
        if self.chunk.is_none() && chunk.last {
            return self.record.take().map(|open| Event::Record { id: open.id, payload: open.payload });
        }
        None
    }
}

/// Yields `None` when more bytes are needed, and for good after an error.
impl Iterator for Reader {
    type Item = Result<Event, ChunkError>;

    //= spec/framing.md 14
    fn next(&mut self) -> Option<Self::Item> {
        let item = self.read();
        if item.is_err() {
            self.record = None;
        }
        self.buffer.settle(item)
    }
}

//= spec/framing.md 5
fn check_preamble(preamble: [u8; 8]) -> Result<(), ChunkError> {
    let [m0, m1, m2, m3, version, reserved @ ..] = preamble;
    if [m0, m1, m2, m3] != PREAMBLE[..4] {
        return Err(ChunkError::Magic([m0, m1, m2, m3]));
    }
    if version != PREAMBLE[4] {
        return Err(ChunkError::Version(version));
    }
    if reserved != [0; 3] {
        return Err(ChunkError::Reserved { at: 0 });
    }
    Ok(())
}

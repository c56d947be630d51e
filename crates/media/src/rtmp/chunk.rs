use std::collections::BTreeMap;

use super::{DEFAULT_CHUNK_BYTES, kind};
use crate::buffer::Buffer;

/// One message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// Milliseconds on the sender's clock, modulo 2^32.
    pub timestamp: u32,
    /// One of [`kind`].
    pub kind: u8,
    /// The message stream: 0 for the connection, else as `createStream` has answered.
    pub stream: u32,
    /// Its bytes.
    pub body: Vec<u8>,
}

impl Message {
    /// Adds it in chunks of `chunk_bytes` of payload to `out`. The first one has the whole header, so that a receiver needs
    /// nothing of what came before. `chunk_stream` is 2 to 63; messages of one chunk stream come one after the other.
    pub fn write(&self, chunk_stream: u8, chunk_bytes: usize, out: &mut Vec<u8>) {
        let Ok(len) = u32::try_from(self.body.len()) else { return };
        write_header(chunk_stream, self.timestamp, len, self.kind, self.stream, out);
        for (index, chunk) in self.body.chunks(chunk_bytes.max(1)).enumerate() {
            if index > 0 {
                write_continuation(chunk_stream, self.timestamp, out);
            }
            out.extend_from_slice(chunk);
        }
    }
}

impl Message {
    /// The messages in an aggregate, which are FLV tags. Their times are those of the tags, beginning with the
    /// aggregate's. A damaged rest is left out.
    pub fn parts(&self) -> impl Iterator<Item = Message> {
        let (mut rest, mut first) = (&self.body[..], None);
        std::iter::from_fn(move || {
            let [kind, a, b, c, d, e, f, g, _, _, _, after @ ..] = rest else { return None };
            let (body, after) = after.split_at_checked(from_u24([*a, *b, *c]) as usize)?;
            let time = u32::from_be_bytes([*g, *d, *e, *f]);
            let first = *first.get_or_insert(time);
            let timestamp = self.timestamp.wrapping_add(time.wrapping_sub(first));
            // The length of the tag comes once more.
            rest = after.get(4..).unwrap_or_default();
            Some(Message { timestamp, kind: *kind, stream: self.stream, body: body.to_vec() })
        })
    }
}

/// Adds the header that begins a message of `len` bytes (below 2^24) to `out`.
pub fn write_header(chunk_stream: u8, timestamp: u32, len: u32, kind: u8, stream: u32, out: &mut Vec<u8>) {
    out.push(chunk_stream & 0x3f);
    out.extend(u24(timestamp.min(EXTENDED)));
    out.extend(u24(len.min(EXTENDED)));
    out.push(kind);
    out.extend(stream.to_le_bytes());
    if timestamp >= EXTENDED {
        out.extend(timestamp.to_be_bytes());
    }
}

/// Adds the header of a further chunk of a message with this timestamp to `out`.
pub fn write_continuation(chunk_stream: u8, timestamp: u32, out: &mut Vec<u8>) {
    out.push(0xc0 | chunk_stream & 0x3f);
    if timestamp >= EXTENDED {
        out.extend(timestamp.to_be_bytes());
    }
}

fn u24(value: u32) -> [u8; 3] {
    let [_, bytes @ ..] = value.to_be_bytes();
    bytes
}

/// Limits of what a peer may make a [`MessageReader`] hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Most bytes of a message, and of all incomplete messages together.
    pub message: usize,
    /// Most chunk streams. Programs use fewer than ten.
    pub chunk_streams: usize,
}

/// Bytes that are no RTMP, or pass a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChunkError {
    /// A header that refers to one before, without one before.
    #[error("chunk stream {0} begins without a whole header; the bytes are no RTMP")]
    NoHeader(u32),
    /// A new message before the last one of its chunk stream is complete.
    #[error("a message of chunk stream {0} begins within another one; the bytes are no RTMP")]
    Torn(u32),
    /// A message above the limit.
    #[error(
        "a message of {len} bytes, more than the limit of {limit}; lower the bit rate or the size of pictures"
    )]
    TooLarge {
        /// What it says, or the incomplete ones together.
        len: usize,
        /// The limit.
        limit: usize,
    },
    /// More chunk streams than the limit.
    #[error("more than {0} chunk streams; the bytes are no RTMP")]
    TooMany(usize),
    /// A chunk size of nothing.
    #[error("a chunk size of 0")]
    ChunkSize,
}

/// Bytes that a chunk counts for at least in [`MessageReader::cost`]: empty ones cost time as well.
pub const LEAST_CHUNK_COST: usize = 64;

/// Puts the chunks of a peer together to messages.
///
/// Push bytes, take messages until `None`, push again. Memory: what was pushed and not yet taken, and the received bytes
/// of incomplete messages within [`Bounds`]; nothing is reserved because a header announces it. The sizes of chunks
/// and aborted messages are seen to here; the messages that say so come out like all others.
#[derive(Clone, Debug)]
pub struct MessageReader {
    buffer: Buffer,
    bounds: Bounds,
    chunk_bytes: usize,
    streams: BTreeMap<u32, ChunkStream>,
    /// Received bytes of incomplete messages.
    incomplete: usize,
    /// The chunk whose payload comes.
    open: Option<OpenChunk>,
    cost: u64,
}

#[derive(Clone, Copy, Debug)]
struct OpenChunk {
    id: u32,
    /// Payload bytes that are missing.
    missing: usize,
}

/// What later headers of a chunk stream refer to.
#[derive(Clone, Debug, Default)]
struct ChunkStream {
    /// Without its body.
    message: Message,
    len: usize,
    /// The timestamp field as it came: an absolute time, or a difference.
    field: u32,
    is_extended: bool,
    body: Vec<u8>,
    /// A message is incomplete, perhaps without a byte yet.
    is_open: bool,
}

/// How far reading has come.
enum Step {
    Message(Message),
    Again,
    More,
}

impl MessageReader {
    /// A reader behind the handshake.
    pub fn new(bounds: Bounds) -> Self {
        Self {
            buffer: Buffer::default(),
            bounds,
            chunk_bytes: DEFAULT_CHUNK_BYTES,
            streams: BTreeMap::new(),
            incomplete: 0,
            open: None,
            cost: 0,
        }
    }

    /// Adds the next bytes; ignored after an error.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.push(bytes);
    }

    /// From here on messages may have this many bytes.
    pub fn limit_messages(&mut self, bytes: usize) {
        self.bounds.message = bytes;
    }

    /// Bytes that were read so far, which a peer wants acknowledged.
    pub fn taken(&self) -> u64 {
        self.buffer.offset()
    }

    /// What reading has cost so far: the bytes of chunks of every kind with their headers, and no less than [`LEAST_CHUNK_COST`] for each.
    pub fn cost(&self) -> u64 {
        self.cost
    }

    /// Whether a message is in progress.
    pub fn is_partial(&self) -> bool {
        self.incomplete > 0 || self.open.is_some() || !self.buffer.peek().is_empty()
    }

    fn read(&mut self) -> Result<Option<Message>, ChunkError> {
        loop {
            let step = match self.open {
                Some(chunk) => self.payload(chunk),
                None => self.header()?,
            };
            match step {
                Step::Again => {}
                Step::More => return Ok(None),
                Step::Message(message) => {
                    self.obey(&message)?;
                    return Ok(Some(message));
                }
            }
        }
    }

    /// Reads the header of a chunk.
    fn header(&mut self) -> Result<Step, ChunkError> {
        let Some((format, id, basic)) = basic_header(self.buffer.peek()) else { return Ok(Step::More) };
        let most = self.bounds.chunk_streams;
        if !self.streams.contains_key(&id) {
            // librtmp begins its control messages without the number of a message stream, which is 0.
            if format > 1 {
                return Err(ChunkError::NoHeader(id));
            }
            if self.streams.len() >= most {
                return Err(ChunkError::TooMany(most));
            }
        }
        let bytes = self.buffer.peek();
        let end = basic + [11, 7, 3, 0][usize::from(format)];
        let Some(fields) = bytes.get(basic..end) else { return Ok(Step::More) };
        let before = self.streams.get(&id);
        if format < 3 && before.is_some_and(|before| before.is_open) {
            return Err(ChunkError::Torn(id));
        }
        let short = fields.first_chunk().map(|field| from_u24(*field));
        let is_extended = match short {
            Some(field) => field == EXTENDED,
            None => before.is_some_and(|before| before.is_extended),
        };
        let mut field = short.or(before.map(|before| before.field)).unwrap_or(0);
        let mut size = end;
        if is_extended {
            let Some(long) = bytes.get(end..).and_then(|rest| rest.first_chunk()) else {
                return Ok(Step::More);
            };
            let long = u32::from_be_bytes(*long);
            // Some programs leave it out of chunks that continue. Payload that looks the same is no likely accident.
            if format < 3 || long == field {
                (field, size) = (long, end + 4);
            }
        }
        let len = fields.get(3..6).and_then(|len| len.first_chunk()).map(|len| from_u24(*len) as usize);
        let kind = fields.get(6).copied();
        let stream =
            fields.get(7..).and_then(|stream| stream.first_chunk()).map(|id| u32::from_le_bytes(*id));
        let limit = self.bounds.message;
        if let Some(len) = len.filter(|&len| len > limit) {
            return Err(ChunkError::TooLarge { len, limit });
        }
        self.buffer.take(size);
        self.cost += size as u64;
        let chunk_stream = self.streams.entry(id).or_default();
        let message = &mut chunk_stream.message;
        if format == 0 {
            message.timestamp = field;
        } else if !chunk_stream.is_open {
            message.timestamp = message.timestamp.wrapping_add(field);
        }
        message.kind = kind.unwrap_or(message.kind);
        message.stream = stream.unwrap_or(message.stream);
        chunk_stream.len = len.unwrap_or(chunk_stream.len);
        (chunk_stream.field, chunk_stream.is_extended, chunk_stream.is_open) = (field, is_extended, true);
        let missing = (chunk_stream.len - chunk_stream.body.len()).min(self.chunk_bytes);
        self.open = Some(OpenChunk { id, missing });
        self.cost += LEAST_CHUNK_COST.saturating_sub(size + missing) as u64;
        let len = self.incomplete + missing;
        if len > limit { Err(ChunkError::TooLarge { len, limit }) } else { Ok(Step::Again) }
    }

    /// Reads what is there of the payload of a chunk.
    fn payload(&mut self, OpenChunk { id, missing }: OpenChunk) -> Step {
        let there = missing.min(self.buffer.peek().len());
        let Some(chunk_stream) = self.streams.get_mut(&id) else { return Step::More };
        chunk_stream.body.extend_from_slice(self.buffer.take(there).unwrap_or_default());
        self.incomplete += there;
        self.cost += there as u64;
        if there < missing {
            self.open = Some(OpenChunk { id, missing: missing - there });
            return Step::More;
        }
        self.open = None;
        if chunk_stream.body.len() < chunk_stream.len {
            return Step::Again;
        }
        self.incomplete -= chunk_stream.body.len();
        chunk_stream.is_open = false;
        let body = std::mem::take(&mut chunk_stream.body);
        Step::Message(Message { body, ..chunk_stream.message })
    }

    /// Does what a message says about chunks.
    fn obey(&mut self, message: &Message) -> Result<(), ChunkError> {
        let value = message.body.first_chunk().map(|value| u32::from_be_bytes(*value));
        match (message.kind, value) {
            (kind::SET_CHUNK_SIZE, Some(size)) => {
                // The first bit is always 0.
                let size = usize::try_from(size & (u32::MAX >> 1)).unwrap_or(usize::MAX);
                self.chunk_bytes = if size > 0 { size } else { return Err(ChunkError::ChunkSize) };
            }
            (kind::ABORT, Some(id)) => {
                if let Some(chunk_stream) = self.streams.get_mut(&id) {
                    self.incomplete -= chunk_stream.body.len();
                    (chunk_stream.body, chunk_stream.is_open) = (Vec::new(), false);
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// Yields `None` when more bytes are needed, and for good after an error.
impl Iterator for MessageReader {
    type Item = Result<Message, ChunkError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.buffer.has_failed() {
            return None;
        }
        let read = self.read();
        self.buffer.settle(read)
    }
}

/// The format of a chunk's header, its chunk stream, and how many bytes say so.
fn basic_header(bytes: &[u8]) -> Option<(u8, u32, usize)> {
    let &first = bytes.first()?;
    let format = first >> 6;
    Some(match first & 0x3f {
        0 => (format, 64 + u32::from(*bytes.get(1)?), 2),
        1 => (format, 64 + u32::from(*bytes.get(1)?) + 256 * u32::from(*bytes.get(2)?), 3),
        id => (format, id.into(), 1),
    })
}

fn from_u24([high, middle, low]: [u8; 3]) -> u32 {
    u32::from_be_bytes([0, high, middle, low])
}

/// A time from here on is behind the header, in four bytes.
const EXTENDED: u32 = 0xff_ffff;

#[cfg(test)]
mod tests;

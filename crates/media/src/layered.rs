//! The layered test source and its record header `FWLR` (`spec/framing.md`).
//!
//! ```text
//!  0        4    5    6        8           12          16                  24                  32
//!  ┌────────┬────┬────┬────────┬───────────┬───────────┬───────────────────┬───────────────────┬─ ─ ─
//!  │ "FWLR" │ver │lay │hdr size│  window   │rec. size  │     sequence      │  submitted (ns)   │ payload
//!  └────────┴────┴────┴────────┴───────────┴───────────┴───────────────────┴───────────────────┴─ ─ ─
//! ```
//!
//! All numbers are big-endian. The payload follows from the sequence number, so that any reader can check every byte.

use std::time::Duration;

use freshwire_record::Timestamp;

use crate::buffer::Buffer;

/// The first four bytes of every record.
pub const MAGIC: [u8; 4] = *b"FWLR";
/// Version of the header described here.
pub const VERSION: u8 = 1;
/// Bytes of the header.
pub const HEADER_BYTES: usize = 32;
/// Default of the largest record that a [`Reader`] accepts, in bytes. Chosen, not measured.
pub const DEFAULT_MAX_RECORD_BYTES: u32 = 1 << 20;

/// The header of one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Layer, 0 is the base.
    pub layer: u8,
    /// Number of the window.
    pub window: u32,
    /// Bytes of the record including this header.
    pub record_bytes: u32,
    /// Number of the record in the stream.
    pub seq: u64,
    /// When the record was due at the sender, whether or not it was submitted then.
    pub submitted: Timestamp,
}

/// The bytes are not a record header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// Fewer bytes than a header has.
    #[error("a record header has 32 bytes, only {0} are here")]
    Short(usize),
    /// It does not begin with `FWLR`.
    #[error("a record begins with \"FWLR\", not with {0:02x?}; the stream is torn or is something else")]
    Magic([u8; 4]),
    /// A version that is not known here.
    #[error("record header version {0}; this reader knows version 1")]
    Version(u8),
    /// Another header size than version 1 has.
    #[error("record header size {0}; version 1 has 32")]
    HeaderSize(u16),
    /// The record is said to be smaller than its header.
    #[error("record size {0} is less than its own header of 32 bytes")]
    RecordSize(u32),
}

impl Header {
    /// The header as it goes on the wire.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = VERSION;
        bytes[5] = self.layer;
        bytes[6..8].copy_from_slice(&(HEADER_BYTES as u16).to_be_bytes());
        bytes[8..12].copy_from_slice(&self.window.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.record_bytes.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.seq.to_be_bytes());
        bytes[24..].copy_from_slice(&self.submitted.as_nanos().to_be_bytes());
        bytes
    }

    /// Reads the header at the beginning of `bytes`.
    ///
    /// # Errors
    ///
    /// If there are too few bytes, or a field is invalid.
    //= spec/framing.md 16
    pub fn decode(bytes: &[u8]) -> Result<Self, HeaderError> {
        let bytes: &[u8; HEADER_BYTES] = bytes.first_chunk().ok_or(HeaderError::Short(bytes.len()))?;
        let [m0, m1, m2, m3, version, layer, h0, h1, w0, w1, w2, w3, r0, r1, r2, r3, numbers @ ..] = *bytes;
        if [m0, m1, m2, m3] != MAGIC {
            return Err(HeaderError::Magic([m0, m1, m2, m3]));
        }
        if version != VERSION {
            return Err(HeaderError::Version(version));
        }
        let header_bytes = u16::from_be_bytes([h0, h1]);
        if usize::from(header_bytes) != HEADER_BYTES {
            return Err(HeaderError::HeaderSize(header_bytes));
        }
        let record_bytes = u32::from_be_bytes([r0, r1, r2, r3]);
        if (record_bytes as usize) < HEADER_BYTES {
            return Err(HeaderError::RecordSize(record_bytes));
        }
        let [s0, s1, s2, s3, s4, s5, s6, s7, t0, t1, t2, t3, t4, t5, t6, t7] = numbers;
        Ok(Self {
            layer,
            window: u32::from_be_bytes([w0, w1, w2, w3]),
            record_bytes,
            seq: u64::from_be_bytes([s0, s1, s2, s3, s4, s5, s6, s7]),
            submitted: Timestamp::from_nanos(u64::from_be_bytes([t0, t1, t2, t3, t4, t5, t6, t7])),
        })
    }
}

/// A source of N layers: in every window one record of each layer, base first, evenly spaced. The default is that of
/// the published experiment: 8 layers of 128 Kibit each, one second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    layers: u8,
    record_bytes: u32,
    window: Duration,
}

impl Default for Source {
    fn default() -> Self {
        Self { layers: 8, record_bytes: 16 * 1024, window: Duration::from_secs(1) }
    }
}

/// The source cannot be built like this.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// No layer.
    #[error("a layered source needs at least one layer")]
    NoLayer,
    /// No room for the header.
    #[error("a record of {0} bytes has no room for its header of 32 bytes")]
    SmallRecord(u32),
    /// Layers would be due at the same instant.
    #[error("a window of {0:?} is shorter than one nanosecond a layer")]
    ShortWindow(Duration),
}

impl Source {
    /// `layers` records of `record_bytes` bytes, header included, in every `window`.
    ///
    /// # Errors
    ///
    /// If there is no layer, the record has no room for its header, or the window is too short for the layers.
    pub fn new(layers: u8, record_bytes: u32, window: Duration) -> Result<Self, SourceError> {
        if layers == 0 {
            return Err(SourceError::NoLayer);
        }
        if (record_bytes as usize) < HEADER_BYTES {
            return Err(SourceError::SmallRecord(record_bytes));
        }
        if window.as_nanos() < u128::from(layers) {
            return Err(SourceError::ShortWindow(window));
        }
        Ok(Self { layers, record_bytes, window })
    }

    /// Layers in a window.
    pub fn layers(&self) -> u8 {
        self.layers
    }

    /// Bytes of a record with its header.
    pub fn record_bytes(&self) -> u32 {
        self.record_bytes
    }

    /// Length of a window.
    pub fn window(&self) -> Duration {
        self.window
    }

    /// Time between two records.
    pub fn spacing(&self) -> Duration {
        self.window / u32::from(self.layers)
    }

    /// The `seq`th record of the stream, counted from 0. The number of the window wraps after 2^32 windows.
    //= spec/framing.md 15
    pub fn record(&self, seq: u64) -> SourceRecord {
        let layers = u64::from(self.layers);
        let (window, layer) = (seq / layers, (seq % layers) as u8);
        let nanos = u128::from(seq) * self.window.as_nanos() / u128::from(layers);
        SourceRecord {
            seq,
            window: window as u32,
            layer,
            record_bytes: self.record_bytes,
            due: Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)),
            refs: [u32::from(layer > 0), 0],
        }
    }
}

/// One record of a [`Source`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceRecord {
    /// Number in the stream, from 0.
    pub seq: u64,
    /// Number of the window.
    pub window: u32,
    /// Layer, 0 is the base.
    pub layer: u8,
    /// Bytes with the header.
    pub record_bytes: u32,
    /// When it is due, counted from the start of the stream.
    pub due: Duration,
    /// Distances back to the records it depends on: the layer below, 0 is none.
    pub refs: [u32; 2],
}

impl SourceRecord {
    /// The header in a stream that started at `start`.
    //= spec/framing.md 17
    pub fn header(&self, start: Timestamp) -> Header {
        Header {
            layer: self.layer,
            window: self.window,
            record_bytes: self.record_bytes,
            seq: self.seq,
            submitted: start + self.due,
        }
    }

    /// Appends the whole record, header and payload, to `out`.
    pub fn write(&self, start: Timestamp, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.header(start).encode());
        let begin = out.len();
        out.resize(begin + self.record_bytes as usize - HEADER_BYTES, 0);
        fill_payload(self.seq, &mut out[begin..]);
    }
}

/// Writes the payload of record `seq`.
pub fn fill_payload(seq: u64, payload: &mut [u8]) {
    for (index, word) in payload.chunks_mut(8).enumerate() {
        let bytes = payload_word(seq, index as u64);
        word.copy_from_slice(&bytes[..word.len()]);
    }
}

/// Where `payload` first differs from the payload of record `seq`; `None` if every byte is right.
//= spec/framing.md 19
pub fn first_wrong_byte(seq: u64, payload: &[u8]) -> Option<usize> {
    payload.chunks(8).enumerate().find_map(|(index, word)| {
        let expected = payload_word(seq, index as u64);
        let wrong = word.iter().zip(expected).position(|(&found, expected)| found != expected)?;
        Some(index * 8 + wrong)
    })
}

/// Splitmix64 over the record's number and the word's place: no two records share a run of bytes.
//= spec/framing.md 18
fn payload_word(seq: u64, index: u64) -> [u8; 8] {
    let mut word =
        seq.wrapping_mul(0xa076_1d64_78bd_642f).wrapping_add(index).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (word ^ (word >> 31)).to_be_bytes()
}

/// A record that arrived whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// Its header.
    pub header: Header,
    /// Its payload, which was checked against the sequence number.
    pub payload: Vec<u8>,
}

/// The stream is not a sequence of whole, right records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// No header where one has to be.
    #[error("at stream byte {at}: {source}")]
    Header {
        /// Stream offset of the expected header.
        at: u64,
        /// The fault.
        source: HeaderError,
    },
    /// More bytes than the reader accepts.
    #[error("at stream byte {at}: a record of {record_bytes} bytes, more than the limit of {limit}")]
    TooLarge {
        /// Stream offset of the header.
        at: u64,
        /// Size in the header.
        record_bytes: u32,
        /// The reader's limit.
        limit: u32,
    },
    /// A payload byte that does not belong to this record.
    #[error("at stream byte {at}: wrong payload byte in record {seq}; the record is torn or damaged")]
    Payload {
        /// Stream offset of the byte.
        at: u64,
        /// The record's number.
        seq: u64,
    },
    /// The stream ended inside a record.
    #[error("the stream ended {bytes} bytes into the record that began at stream byte {at}")]
    Torn {
        /// Stream offset of the record.
        at: u64,
        /// Bytes of it that are there.
        bytes: u64,
    },
}

/// Reads records from a byte stream cut at any place. Memory: what was pushed and not yet taken, at most one record of
/// the limit besides.
#[derive(Clone, Debug)]
pub struct Reader {
    buffer: Buffer,
    header: Option<Header>,
    limit: u32,
}

impl Default for Reader {
    fn default() -> Self {
        Self::new(DEFAULT_MAX_RECORD_BYTES)
    }
}

impl Reader {
    /// A reader that accepts records up to `max_record_bytes`, header included.
    pub fn new(max_record_bytes: u32) -> Self {
        Self { buffer: Buffer::default(), header: None, limit: max_record_bytes }
    }

    /// Adds the next bytes of the stream; ignored after an error. Take records until `None` before pushing again.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.push(bytes);
    }

    /// Tells that the stream has ended. An error if that is inside a record.
    ///
    /// # Errors
    ///
    /// If the stream ends inside a record, or a record was invalid.
    pub fn finish(self) -> Result<(), ReadError> {
        let header = if self.header.is_some() { HEADER_BYTES as u64 } else { 0 };
        let bytes = self.buffer.peek().len() as u64 + header;
        if self.buffer.has_failed() || bytes == 0 {
            return Ok(());
        }
        Err(ReadError::Torn { at: self.buffer.offset() - header, bytes })
    }

    fn read(&mut self) -> Result<Option<Received>, ReadError> {
        let header = match self.header {
            Some(header) => header,
            None => {
                let at = self.buffer.offset();
                let Some(bytes) = self.buffer.take(HEADER_BYTES) else { return Ok(None) };
                let header = Header::decode(bytes).map_err(|source| ReadError::Header { at, source })?;
                let record_bytes = header.record_bytes;
                if record_bytes > self.limit {
                    return Err(ReadError::TooLarge { at, record_bytes, limit: self.limit });
                }
                *self.header.insert(header)
            }
        };
        let at = self.buffer.offset();
        let Some(payload) = self.buffer.take(header.record_bytes as usize - HEADER_BYTES) else {
            return Ok(None);
        };
        self.header = None;
        match first_wrong_byte(header.seq, payload) {
            Some(wrong) => Err(ReadError::Payload { at: at + wrong as u64, seq: header.seq }),
            None => Ok(Some(Received { header, payload: payload.to_vec() })),
        }
    }
}

/// Yields `None` when more bytes are needed, and for good after an error.
impl Iterator for Reader {
    type Item = Result<Received, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        let item = self.read();
        self.buffer.settle(item)
    }
}

#[cfg(test)]
mod tests;

//! Records with their length before them, 32 bits big-endian: the format of records on standard input.

use crate::buffer::Buffer;

/// Default of the largest record that a [`Reader`] accepts, in bytes. Chosen, not measured.
pub const DEFAULT_MAX_RECORD_BYTES: u32 = 16 << 20;

/// The stream is not a sequence of whole records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LengthError {
    /// A length above the reader's limit.
    #[error(
        "at stream byte {at}: a record of {bytes} bytes, more than the limit of {limit}; is the input length-prefixed?"
    )]
    TooLarge {
        /// Stream offset of the length.
        at: u64,
        /// The length.
        bytes: u32,
        /// The reader's limit.
        limit: u32,
    },
    /// The stream ended inside a length or a record.
    #[error("the stream ended at byte {at}, inside the record that began at byte {begin}")]
    Torn {
        /// Length of the stream.
        at: u64,
        /// Where the record's length began.
        begin: u64,
    },
}

/// Reads length-prefixed records from a byte stream cut at any place. Memory: what was pushed and not yet taken, at
/// most one record of the limit besides.
#[derive(Clone, Debug)]
pub struct Reader {
    buffer: Buffer,
    length: Option<u32>,
    limit: u32,
}

impl Default for Reader {
    fn default() -> Self {
        Self::new(DEFAULT_MAX_RECORD_BYTES)
    }
}

impl Reader {
    /// A reader that accepts records of up to `max_record_bytes`, the length not counted.
    pub fn new(max_record_bytes: u32) -> Self {
        Self { buffer: Buffer::default(), length: None, limit: max_record_bytes }
    }

    /// Adds the next bytes of the stream; ignored after an error. Take records until `None` before pushing again.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.push(bytes);
    }

    /// Tells that the stream has ended. An error if that is inside a record.
    ///
    /// # Errors
    ///
    /// If the stream ends inside a record.
    pub fn finish(self) -> Result<(), LengthError> {
        let buffered = self.buffer.peek().len() as u64;
        if self.buffer.has_failed() || buffered == 0 && self.length.is_none() {
            return Ok(());
        }
        let begin = self.buffer.offset() - if self.length.is_some() { 4 } else { 0 };
        Err(LengthError::Torn { at: self.buffer.offset() + buffered, begin })
    }

    //= spec/framing.md 4
    fn read(&mut self) -> Result<Option<Vec<u8>>, LengthError> {
        let length = match self.length {
            Some(length) => length,
            None => {
                let at = self.buffer.offset();
                let Some(bytes) = self.buffer.take_array() else { return Ok(None) };
                let bytes = u32::from_be_bytes(bytes);
                if bytes > self.limit {
                    return Err(LengthError::TooLarge { at, bytes, limit: self.limit });
                }
                *self.length.insert(bytes)
            }
        };
        let Some(record) = self.buffer.take(length as usize) else { return Ok(None) };
        self.length = None;
        Ok(Some(record.to_vec()))
    }
}

/// Yields `None` when more bytes are needed, and for good after an error.
impl Iterator for Reader {
    type Item = Result<Vec<u8>, LengthError>;

    fn next(&mut self) -> Option<Self::Item> {
        let item = self.read();
        self.buffer.settle(item)
    }
}

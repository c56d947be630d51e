//! Reading records from a stream.

use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};

use freshwire_io::{PageBuffer, now};
use freshwire_media::framing::chunked::{self, ChunkError, Event};
use freshwire_record::Timestamp;

/// Bytes asked for in one read.
const READ_BYTES: usize = 64 << 10;

/// A record, or its abandonment, as read by a [`ChunkedReceiver`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Message {
    /// A whole record.
    Record {
        /// The low 32 bits of its number.
        id: u32,
        /// Its bytes.
        payload: Vec<u8>,
        /// When its last byte was read.
        arrived: Timestamp,
    },
    /// A record that the sender began and gave up, so nothing waits for it.
    Abandoned {
        /// The low 32 bits of its number.
        id: u32,
    },
}

/// Error of reading a stream of records.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReceiveError {
    /// The stream is not what the framing says.
    #[error(transparent)]
    Framing(#[from] ChunkError),
    /// Reading failed.
    #[error("cannot read the stream: {0}")]
    Io(#[from] std::io::Error),
}

/// The part of a receiver that does not read.
#[derive(Debug)]
pub(crate) struct Decoder {
    reader: chunked::Reader,
    buffer: PageBuffer,
    arrived: Timestamp,
}

impl Decoder {
    pub(crate) fn new(max_record_bytes: usize) -> Self {
        let reader = chunked::Reader::new(max_record_bytes);
        Self { reader, buffer: PageBuffer::new(READ_BYTES), arrived: Timestamp::ZERO }
    }

    /// The next message in what was read.
    pub(crate) fn next(&mut self) -> Result<Option<Message>, ReceiveError> {
        for event in self.reader.by_ref() {
            match event? {
                Event::Record { id, payload } => {
                    return Ok(Some(Message::Record { id, payload, arrived: self.arrived }));
                }
                Event::Abandoned { id, .. } => return Ok(Some(Message::Abandoned { id })),
                _ => {}
            }
        }
        Ok(None)
    }

    /// Where bytes are to be read to.
    pub(crate) fn buffer(&mut self) -> &mut [u8] {
        &mut self.buffer
    }

    /// Takes in `read` bytes of the buffer. Returns `false` at the end of the stream, after zero bytes.
    pub(crate) fn on_read(&mut self, read: usize) -> Result<bool, ReceiveError> {
        self.arrived = now();
        if read == 0 {
            std::mem::take(&mut self.reader).finish()?;
            return Ok(false);
        }
        self.reader.push(&self.buffer[..read]);
        Ok(true)
    }
}

/// Reads the records of a stream with chunked framing. A raw stream needs no receiver: its bytes are the
/// records'.
///
/// With a non-blocking stream, wait for [`AsFd`] to become readable after
/// [`WouldBlock`](std::io::ErrorKind::WouldBlock), and not before: records may be buffered. The feature `tokio` has a receiver
/// for async programs.
#[derive(Debug)]
pub struct ChunkedReceiver<R> {
    stream: R,
    decoder: Decoder,
}

impl<R: Read> ChunkedReceiver<R> {
    /// Reads from `stream`, accepting records of up to [`chunked::DEFAULT_MAX_RECORD_BYTES`].
    pub fn new(stream: R) -> Self {
        Self::with_limit(stream, chunked::DEFAULT_MAX_RECORD_BYTES)
    }

    /// Reads from `stream`, accepting records of up to `max_record_bytes`.
    pub fn with_limit(stream: R, max_record_bytes: usize) -> Self {
        Self { stream, decoder: Decoder::new(max_record_bytes) }
    }

    /// Waits for the next record. Returns `None` when the stream has ended between two records.
    ///
    /// # Errors
    ///
    /// [`ReceiveError::Framing`] if the stream violates the framing or exceeds the limit, [`ReceiveError::Io`] if reading
    /// fails. A non-blocking stream fails with [`WouldBlock`](std::io::ErrorKind::WouldBlock) while there is no record;
    /// nothing is lost by that.
    pub fn next_message(&mut self) -> Result<Option<Message>, ReceiveError> {
        loop {
            if let Some(message) = self.decoder.next()? {
                return Ok(Some(message));
            }
            let read = match self.stream.read(self.decoder.buffer()) {
                Ok(read) => read,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            };
            if !self.decoder.on_read(read)? {
                return Ok(None);
            }
        }
    }
}

/// The stream's file.
impl<R: AsFd> AsFd for ChunkedReceiver<R> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use freshwire_media::framing::Framing;

    fn stream(records: &[&[u8]]) -> Vec<u8> {
        let mut bytes = Framing::Chunked.preamble().to_vec();
        for (seq, record) in records.iter().enumerate() {
            let chunk =
                Framing::Chunked.chunk(seq as u64, 0, record.len() as u32, 1 << 20).expect("room for all");
            bytes.extend_from_slice(chunk.prefix.as_bytes());
            bytes.extend_from_slice(record);
        }
        bytes
    }

    #[test]
    fn records_arrive_whole_until_the_end_of_the_stream() {
        let bytes = stream(&[b"one", b"two"]);
        let mut receiver = ChunkedReceiver::new(bytes.as_slice());
        for expected in [b"one", b"two"] {
            match receiver.next_message() {
                Ok(Some(Message::Record { payload, .. })) => assert_eq!(payload, expected),
                other => panic!("{other:?}"),
            }
        }
        assert!(matches!(receiver.next_message(), Ok(None)));
    }

    #[test]
    fn a_torn_stream_is_an_error() {
        let bytes = stream(&[b"one", b"two"]);
        let mut receiver = ChunkedReceiver::new(&bytes[..bytes.len() - 1]);
        assert!(matches!(receiver.next_message(), Ok(Some(_))));
        assert!(matches!(receiver.next_message(), Err(ReceiveError::Framing(ChunkError::Torn { .. }))));
    }
}

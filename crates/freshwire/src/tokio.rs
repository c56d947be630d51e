//! Receiving in async programs. Requires the feature `tokio`.
//!
//! Sending needs no runtime: a [`Sender`](crate::Sender) never blocks, and [`SinkWatch`](crate::watch::SinkWatch) waits in any.

use ::tokio::io::{AsyncRead, AsyncReadExt as _};
use freshwire_media::framing::chunked::DEFAULT_MAX_RECORD_BYTES;

use crate::receive::{Decoder, Message, ReceiveError};

/// Reads the records of a stream with chunked framing, as [`freshwire::receive::ChunkedReceiver`](crate::receive::ChunkedReceiver) does.
#[derive(Debug)]
pub struct ChunkedReceiver<R> {
    stream: R,
    decoder: Decoder,
}

impl<R: AsyncRead + Unpin> ChunkedReceiver<R> {
    /// Reads from `stream`, accepting records of up to [`DEFAULT_MAX_RECORD_BYTES`].
    pub fn new(stream: R) -> Self {
        Self::with_limit(stream, DEFAULT_MAX_RECORD_BYTES)
    }

    /// Reads from `stream`, accepting records of up to `max_record_bytes`.
    pub fn with_limit(stream: R, max_record_bytes: usize) -> Self {
        Self { stream, decoder: Decoder::new(max_record_bytes) }
    }

    /// Waits for the next record. Returns `None` when the stream has ended between two records. Cancel safe: no byte is
    /// lost if the future is dropped.
    ///
    /// # Errors
    ///
    /// [`ReceiveError::Framing`] if the stream violates the framing or exceeds the limit, [`ReceiveError::Io`] if reading
    /// fails.
    pub async fn recv(&mut self) -> Result<Option<Message>, ReceiveError> {
        loop {
            if let Some(message) = self.decoder.next()? {
                return Ok(Some(message));
            }
            let read = self.stream.read(self.decoder.buffer()).await?;
            if !self.decoder.on_read(read)? {
                return Ok(None);
            }
        }
    }
}

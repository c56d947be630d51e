//! A connection that messages are read from.

use std::io;
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt as _};

use super::message::{Bounds, Message, MessageError, MessageReader};
use crate::config::Limits;

/// Why no message comes any more.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkError {
    #[error("the client has closed the connection")]
    Closed,
    #[error("cannot read: {0}")]
    Io(#[from] io::Error),
    #[error(transparent)]
    Message(#[from] MessageError),
}

/// Reads messages. Bytes that were read and not yet taken stay when the source is exchanged.
pub(crate) struct Link<R> {
    pub(crate) source: R,
    reader: MessageReader,
    chunk: Box<[u8]>,
    /// When the first byte of an incomplete message came.
    partial_since: Option<Instant>,
}

impl<R: AsyncRead + Unpin> Link<R> {
    pub(crate) fn new(source: R, limits: &Limits) -> Self {
        Self::with_bounds(source, Bounds { head: limits.max_header_bytes, body: limits.max_body_bytes })
    }

    pub(crate) fn with_bounds(source: R, bounds: Bounds) -> Self {
        let chunk = vec![0; CHUNK_BYTES].into_boxed_slice();
        Self { source, reader: MessageReader::new(bounds), chunk, partial_since: None }
    }

    /// The next message. Nothing is lost if it is given up waiting for.
    pub(crate) async fn next(&mut self) -> Result<Message, LinkError> {
        loop {
            if let Some(message) = self.reader.next()? {
                self.partial_since = None;
                return Ok(message);
            }
            if self.reader.is_partial() {
                self.partial_since.get_or_insert_with(Instant::now);
            } else {
                self.partial_since = None;
            }
            match self.source.read(&mut self.chunk).await? {
                0 => return Err(LinkError::Closed),
                count => self.reader.push(self.chunk.get(..count).unwrap_or_default()),
            }
        }
    }

    /// Goes on after an error of a message: see [`MessageReader::resynchronize`].
    pub(crate) fn resynchronize(&mut self) {
        self.reader.resynchronize();
    }

    /// For how long a message has been incomplete.
    pub(crate) fn partial_for(&self) -> Option<Duration> {
        self.partial_since.map(|since| since.elapsed())
    }

    /// Goes on with another source of the same bytes.
    pub(crate) fn exchange<S>(self, source: impl FnOnce(R) -> io::Result<S>) -> io::Result<Link<S>> {
        let Self { source: old, reader, chunk, partial_since } = self;
        Ok(Link { source: source(old)?, reader, chunk, partial_since })
    }

    /// Reads little at a time from now on: for a client that only sends reports and requests, of which there may be
    /// thousands.
    pub(crate) fn read_little(&mut self) {
        self.chunk = vec![0; LITTLE_BYTES].into_boxed_slice();
    }
}

const CHUNK_BYTES: usize = 16 << 10;
const LITTLE_BYTES: usize = 256;

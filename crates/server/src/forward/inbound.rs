//! The messages of the server that a stream is published to. It may be hostile: everything has a bound.

use bytes::{BufMut as _, BytesMut};
use rtmp_rs::protocol::{ChunkDecoder, RtmpMessage};

/// Most bytes of a message. Servers answer publishers with commands of some hundred bytes.
pub(super) const MAX_MESSAGE_BYTES: usize = 64 << 10;

/// Chunks of more bytes are refused, as no message has them.
const MAX_CHUNK_BYTES: u32 = 16 << 20;

/// Takes messages out of what was read.
#[derive(Default)]
pub(super) struct Inbound {
    decoder: ChunkDecoder,
    buffer: BytesMut,
}

/// What was read is no stream of messages.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum InboundError {
    #[error("a message of {0} bytes, where {MAX_MESSAGE_BYTES} are the limit")]
    TooLong(u32),
    #[error("a chunk stream beyond 63")]
    ChunkStream,
    #[error("a chunk size of {0} bytes")]
    ChunkSize(u32),
    #[error("{0}")]
    Malformed(String),
}

impl Inbound {
    /// Takes over bytes that were read.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.buffer.put_slice(bytes);
    }

    /// The next message; `None`: more bytes have to be read. The size of chunks is the decoder's affair.
    pub(super) fn next(&mut self) -> Result<Option<RtmpMessage>, InboundError> {
        let malformed = |error: rtmp_rs::Error| InboundError::Malformed(error.to_string());
        loop {
            self.check()?;
            let before = self.buffer.len();
            let Some(chunk) = self.decoder.decode(&mut self.buffer).map_err(malformed)? else {
                // A chunk may be taken without a message being whole.
                if self.buffer.len() == before {
                    return Ok(None);
                }
                continue;
            };
            match RtmpMessage::from_chunk(&chunk).map_err(malformed)? {
                RtmpMessage::SetChunkSize(size) => {
                    if !(1..=MAX_CHUNK_BYTES).contains(&size) {
                        return Err(InboundError::ChunkSize(size));
                    }
                    self.decoder.set_chunk_size(size);
                }
                RtmpMessage::Abort { csid } => self.decoder.abort(csid),
                message => return Ok(Some(message)),
            }
        }
    }

    /// Whether the chunk in front may be decoded: the decoder makes room for a whole message as soon as it knows its length.
    fn check(&self) -> Result<(), InboundError> {
        let Some(&first) = self.buffer.first() else { return Ok(()) };
        if first & 63 < 2 {
            return Err(InboundError::ChunkStream);
        }
        if first >> 6 < 2
            && let Some(&[high, middle, low]) = self.buffer.get(4..7)
        {
            let len = u32::from_be_bytes([0, high, middle, low]);
            if len as usize > MAX_MESSAGE_BYTES {
                return Err(InboundError::TooLong(len));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Result<Vec<RtmpMessage>, InboundError> {
        let mut inbound = Inbound::default();
        let mut messages = Vec::new();
        for part in bytes.chunks(7) {
            inbound.push(part);
            while let Some(message) = inbound.next()? {
                messages.push(message);
            }
        }
        assert!(inbound.buffer.len() <= MAX_MESSAGE_BYTES + 18);
        Ok(messages)
    }

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        let len = (body.len() as u32).to_be_bytes();
        [&[2, 0, 0, 0, len[1], len[2], len[3], kind, 0, 0, 0, 0], body].concat()
    }

    #[test]
    fn messages_of_any_chunk_size_are_read() {
        let ping = message(4, &[0, 6, 1, 2, 3, 4]);
        let larger = message(1, &1000_u32.to_be_bytes());
        let long = message(99, &[7; 900]);
        let messages = read(&[ping, larger, long].concat()).expect("messages");
        assert_eq!(messages.len(), 2);
        assert!(matches!(&messages[1], RtmpMessage::Unknown { type_id: 99, data } if data.len() == 900));
    }

    #[test]
    fn an_absurd_server_is_refused() {
        assert_eq!(read(&message(1, &[0; 4])).err(), Some(InboundError::ChunkSize(0)));
        assert_eq!(read(&[2, 0, 0, 0, 255, 255, 255, 9]).err(), Some(InboundError::TooLong(0xff_ffff)));
        assert_eq!(read(&[1, 0, 0, 0]).err(), Some(InboundError::ChunkStream));
        assert!(matches!(read(&message(1, &[0])), Err(InboundError::Malformed(_))));
    }

    #[test]
    fn any_bytes_are_messages_or_an_error() {
        bolero::check!().with_type::<Vec<u8>>().for_each(|bytes| {
            let _ = read(bytes);
        });
    }
}

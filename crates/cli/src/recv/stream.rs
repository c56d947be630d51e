//! From the bytes of a stream to records, whatever the framing.

use freshwire::Framing;
use freshwire_media::framing::{chunked, length_prefixed};
use freshwire_media::layered;

/// Something that came.
pub(super) enum Item {
    /// A whole record of the layered source, checked, with its header.
    Layered(layered::Header, Vec<u8>),
    /// Payload of any kind: a whole record, or with raw framing a stretch of the stream.
    Bytes(Vec<u8>),
    /// The sender gave a record up.
    Abandoned,
}

impl Item {
    /// A record that came by itself.
    pub(super) fn of(bytes: Vec<u8>, is_layered: bool) -> Result<Self, StreamError> {
        if is_layered { one_layered(&bytes) } else { Ok(Self::Bytes(bytes)) }
    }

    /// The payload to pass on.
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Layered(_, bytes) | Self::Bytes(bytes) => bytes,
            Self::Abandoned => &[],
        }
    }
}

/// The stream is not what it should be.
#[derive(Debug, thiserror::Error)]
pub(super) enum StreamError {
    #[error(transparent)]
    Chunk(#[from] chunked::ChunkError),
    #[error(transparent)]
    Length(#[from] length_prefixed::LengthError),
    #[error(transparent)]
    Layered(#[from] layered::ReadError),
    #[error("a record of the framing is not one record of the layered source")]
    NotOneRecord,
}

/// Finds records in a stream. Push bytes, take items until `None`, push again.
pub(super) struct Records {
    framing: Deframer,
    checks_layers: bool,
}

enum Deframer {
    /// Bytes that have not been taken.
    Raw(Vec<u8>),
    RawLayers(layered::Reader),
    Chunked(chunked::Reader),
    LengthPrefixed(length_prefixed::Reader),
}

impl Records {
    pub(super) fn new(framing: Framing, checks_layers: bool) -> Self {
        let framing = match framing {
            Framing::Chunked => Deframer::Chunked(chunked::Reader::default()),
            Framing::LengthPrefixed => Deframer::LengthPrefixed(length_prefixed::Reader::default()),
            _ if checks_layers => Deframer::RawLayers(layered::Reader::default()),
            _ => Deframer::Raw(Vec::new()),
        };
        Self { framing, checks_layers }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        match &mut self.framing {
            Deframer::Raw(waiting) => waiting.extend_from_slice(bytes),
            Deframer::RawLayers(reader) => reader.push(bytes),
            Deframer::Chunked(reader) => reader.push(bytes),
            Deframer::LengthPrefixed(reader) => reader.push(bytes),
        }
    }

    /// The next item, if it is there in full.
    pub(super) fn next(&mut self) -> Option<Result<Item, StreamError>> {
        let record = match &mut self.framing {
            Deframer::Raw(waiting) => {
                let bytes = std::mem::take(waiting);
                return (!bytes.is_empty()).then_some(Ok(Item::Bytes(bytes)));
            }
            Deframer::RawLayers(reader) => {
                return reader.next().map(|record| record.map(whole).map_err(Into::into));
            }
            Deframer::Chunked(reader) => match reader.next()? {
                Ok(chunked::Event::Record { payload, .. }) => payload,
                Ok(_) => return Some(Ok(Item::Abandoned)),
                Err(error) => return Some(Err(error.into())),
            },
            Deframer::LengthPrefixed(reader) => match reader.next()? {
                Ok(payload) => payload,
                Err(error) => return Some(Err(error.into())),
            },
        };
        Some(Item::of(record, self.checks_layers))
    }

    /// The stream has ended. An error if that is not between two records.
    pub(super) fn finish(&mut self) -> Result<(), StreamError> {
        match &mut self.framing {
            Deframer::Raw(_) => {}
            Deframer::RawLayers(reader) => std::mem::take(reader).finish()?,
            Deframer::Chunked(reader) => std::mem::take(reader).finish()?,
            Deframer::LengthPrefixed(reader) => std::mem::take(reader).finish()?,
        }
        Ok(())
    }
}

fn whole(record: layered::Received) -> Item {
    let mut bytes = record.header.encode().to_vec();
    bytes.extend_from_slice(&record.payload);
    Item::Layered(record.header, bytes)
}

fn one_layered(bytes: &[u8]) -> Result<Item, StreamError> {
    let mut reader = layered::Reader::default();
    reader.push(bytes);
    let record = reader.next().ok_or(StreamError::NotOneRecord)??;
    reader.finish().map_err(|_| StreamError::NotOneRecord)?;
    Ok(whole(record))
}

#[cfg(test)]
mod tests {
    use super::*;
    use freshwire_record::Timestamp;

    fn record(seq: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        layered::Source::default().record(seq).write(Timestamp::ZERO, &mut bytes);
        bytes
    }

    fn framed(framing: Framing, record: &[u8]) -> Vec<u8> {
        let mut bytes = framing.preamble().to_vec();
        let chunk = framing.chunk(0, 0, record.len() as u32, usize::MAX).unwrap();
        bytes.extend_from_slice(chunk.prefix.as_bytes());
        bytes.extend_from_slice(record);
        bytes
    }

    #[test]
    fn a_layered_record_comes_whole_from_every_framing() {
        for framing in [Framing::Raw, Framing::Chunked, Framing::LengthPrefixed] {
            let stream = framed(framing, &record(9));
            let mut records = Records::new(framing, true);
            for byte in &stream[..stream.len() - 1] {
                records.push(&[*byte]);
                assert!(records.next().is_none());
            }
            records.push(&stream[stream.len() - 1..]);
            match records.next() {
                Some(Ok(Item::Layered(header, bytes))) => {
                    assert_eq!((header.seq, header.layer, bytes), (9, 1, record(9)));
                }
                _ => panic!("{framing:?}"),
            }
            assert!(records.finish().is_ok());
        }
    }

    #[test]
    fn a_torn_or_mixed_stream_is_an_error() {
        for framing in [Framing::Raw, Framing::Chunked, Framing::LengthPrefixed] {
            let stream = framed(framing, &record(0));
            let mut records = Records::new(framing, true);
            records.push(&stream[..stream.len() - 1]);
            assert!(records.next().is_none());
            assert!(records.finish().is_err(), "{framing:?}");
        }
        for content in [b"short".to_vec(), [record(0), record(1)].concat()] {
            let mut records = Records::new(Framing::LengthPrefixed, true);
            records.push(&framed(Framing::LengthPrefixed, &content));
            assert!(matches!(records.next(), Some(Err(StreamError::NotOneRecord))));
        }
    }
}

//! IVF, the file format of bare AV1 and VP9 streams: a header of 32 bytes, then frames with length and time.
//!
//! ```text
//!  "DKIF" version(2) header length(2) codec(4) width(2) height(2) rate(4) scale(4) frames(4) unused(4)
//!  length(4) time(8) frame ...       little endian; one tick of the time is scale/rate seconds
//! ```

use crate::buffer::Buffer;
use crate::unit::MediaTime;

/// The first bytes of every IVF file.
pub const MAGIC: &[u8; 4] = b"DKIF";

/// What a file says about all of its frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Four letters that name the codec, such as `VP90`.
    pub codec: [u8; 4],
    /// Width of the picture in samples.
    pub width: u16,
    /// Height of the picture in samples.
    pub height: u16,
    /// Ticks in `scale` seconds.
    pub rate: u32,
    /// Seconds in `rate` ticks.
    pub scale: u32,
}

/// A frame with its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// When it is shown.
    pub pts: MediaTime,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// The bytes are not an IVF file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IvfError {
    /// Another file format, or a header with impossible values.
    #[error("not an IVF file; write one with ffmpeg's -f ivf")]
    Header,
    /// A frame above the limit.
    #[error("at byte {at}: a frame of {len} bytes, more than the limit of {limit}; the file is damaged")]
    TooLarge {
        /// Stream offset of the frame's header.
        at: u64,
        /// What the header says.
        len: u32,
        /// The limit.
        limit: usize,
    },
    /// The file ended within a frame or the header.
    #[error("the file ends within a frame; it was cut")]
    Cut,
}

/// Reads an IVF file that arrives in pieces. Memory: what was pushed and not yet taken, at most one frame of the limit
/// besides.
#[derive(Clone, Debug)]
pub struct Reader {
    buffer: Buffer,
    header: Option<Header>,
    limit: usize,
    ended: bool,
}

impl Reader {
    /// A reader that accepts frames of up to `max_frame_bytes`.
    pub fn new(max_frame_bytes: usize) -> Self {
        Self { buffer: Buffer::default(), header: None, limit: max_frame_bytes, ended: false }
    }

    /// Adds the next bytes of the file; ignored after an error. Take frames until `None` before pushing again.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.push(bytes);
    }

    /// Tells that the file has ended.
    pub fn finish(&mut self) {
        self.ended = true;
    }

    /// The file's header, as soon as a frame was asked for and the header is there.
    pub fn header(&self) -> Option<Header> {
        self.header
    }

    fn read(&mut self) -> Result<Option<Frame>, IvfError> {
        let Some(header) = self.header else {
            let Some(header) = self.read_header()? else { return Ok(None) };
            self.header = Some(header);
            return self.read();
        };
        let Some(&[l0, l1, l2, l3, time @ ..]) = self.buffer.peek().first_chunk::<FRAME_HEADER_BYTES>()
        else {
            return Ok(None);
        };
        let len = u32::from_le_bytes([l0, l1, l2, l3]);
        let size = len as usize;
        if size > self.limit {
            return Err(IvfError::TooLarge { at: self.buffer.offset(), len, limit: self.limit });
        }
        let Some(bytes) = self.buffer.take(FRAME_HEADER_BYTES + size) else { return Ok(None) };
        let bytes = bytes.get(FRAME_HEADER_BYTES..).unwrap_or_default().to_vec();
        let ticks = i64::from_le_bytes(time).saturating_mul(i64::from(header.scale));
        Ok(Some(Frame { pts: MediaTime::from_ticks(ticks, header.rate), bytes }))
    }

    fn read_header(&mut self) -> Result<Option<Header>, IvfError> {
        let bytes = self.buffer.peek();
        let Some(head) = bytes.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let u16_at = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
        let u32_at = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let len = usize::from(u16_at(6));
        let header = Header {
            codec: [head[8], head[9], head[10], head[11]],
            width: u16_at(12),
            height: u16_at(14),
            rate: u32_at(16),
            scale: u32_at(20),
        };
        let possible = head.starts_with(MAGIC)
            && (HEADER_BYTES..=LONGEST_HEADER_BYTES).contains(&len)
            && header.rate > 0
            && header.scale > 0;
        if !possible {
            return Err(IvfError::Header);
        }
        Ok(self.buffer.take(len).map(|_| header))
    }
}

/// Yields `None` when more bytes are needed, and for good after an error.
impl Iterator for Reader {
    type Item = Result<Frame, IvfError>;

    fn next(&mut self) -> Option<Self::Item> {
        let item = match self.read() {
            Ok(None) if self.ended && !self.buffer.peek().is_empty() => Err(IvfError::Cut),
            item => item,
        };
        self.buffer.settle(item)
    }
}

const HEADER_BYTES: usize = 32;
/// Longest header that is accepted; every writer in use has 32 bytes. Chosen, not measured.
const LONGEST_HEADER_BYTES: usize = 1024;
const FRAME_HEADER_BYTES: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;

    fn file(frames: &[(u64, &[u8])]) -> Vec<u8> {
        let mut bytes = b"DKIF\0\0\x20\0VP90\x40\0\x30\0".to_vec();
        for value in [30_000_u32, 1001, 2, 0] {
            bytes.extend(value.to_le_bytes());
        }
        for (time, frame) in frames {
            bytes.extend((frame.len() as u32).to_le_bytes());
            bytes.extend(time.to_le_bytes());
            bytes.extend_from_slice(frame);
        }
        bytes
    }

    fn read(reader: &mut Reader, bytes: &[u8]) -> Vec<Result<Frame, IvfError>> {
        reader.push(bytes);
        reader.by_ref().collect()
    }

    #[test]
    fn frames_come_with_their_times() {
        let mut reader = Reader::new(100);
        let got = read(&mut reader, &file(&[(0, b"key"), (3, b"delta")]));
        let header = reader.header().expect("read");
        assert_eq!((&header.codec, header.width, header.height), (b"VP90", 64, 48));
        let frame = |ns, bytes: &[u8]| Ok(Frame { pts: MediaTime::from_nanos(ns), bytes: bytes.to_vec() });
        assert_eq!(got, [frame(0, b"key"), frame(100_100_000, b"delta")]);
        reader.finish();
        assert_eq!(reader.next(), None);
    }

    #[test]
    fn damage_is_an_error_and_then_the_end() {
        assert_eq!(read(&mut Reader::new(9), &[b'x'; 40]), [Err(IvfError::Header)]);
        let large = file(&[(0, &[0; 10])]);
        assert_eq!(
            read(&mut Reader::new(9), &large),
            [Err(IvfError::TooLarge { at: 32, len: 10, limit: 9 })]
        );
        let mut reader = Reader::new(10);
        assert_eq!(read(&mut reader, &large[..large.len() - 1]), []);
        reader.finish();
        assert_eq!((reader.next(), reader.next()), (Some(Err(IvfError::Cut)), None));
    }

    #[test]
    fn frames_are_the_same_however_the_file_is_cut() {
        bolero::check!()
            .with_iterations(crate::testing::ITERATIONS)
            .with_type::<(Vec<(u64, Vec<u8>)>, u8)>()
            .for_each(|(frames, cut)| {
                let frames: Vec<_> = frames.iter().map(|(time, bytes)| (*time, bytes.as_slice())).collect();
                let mut reader = Reader::new(1 << 20);
                let mut got = Vec::new();
                for piece in file(&frames).chunks(usize::from(*cut) + 1) {
                    got.extend(read(&mut reader, piece));
                }
                let got: Vec<_> = got.into_iter().map(|frame| frame.expect("valid").bytes).collect();
                assert_eq!(got, frames.iter().map(|(_, bytes)| bytes.to_vec()).collect::<Vec<_>>());
            });
    }

    #[test]
    fn arbitrary_bytes_do_no_harm() {
        bolero::check!().with_iterations(crate::testing::ITERATIONS).for_each(|bytes| {
            let mut reader = Reader::new(1000);
            let with_header: Vec<u8> = file(&[]).into_iter().chain(bytes.iter().copied()).collect();
            read(&mut reader, if bytes.len() % 2 == 0 { bytes } else { &with_header });
            reader.finish();
            assert!(reader.count() <= 1);
        });
    }
}

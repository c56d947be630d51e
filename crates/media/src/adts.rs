//! AAC in a byte stream (ADTS, ISO 13818-7, 6.2): a header of seven bytes before each frame, or nine with a checksum.

use crate::aac::{Config, SAMPLE_RATES};
use crate::buffer::Buffer;
use crate::unit::{AudioCodec, AudioTrack};

/// Samples of a frame for each channel.
pub const SAMPLES: u32 = 1024;

/// The header of a frame of `len` bytes of a track. `None`: a header cannot express the track, or the frame is too long.
pub fn header(track: &AudioTrack, len: u32) -> Option<[u8; 7]> {
    let AudioCodec::Aac { config } = &track.codec else { return None };
    Config::parse(config).filter(Config::fits_adts)?.adts(len)
}

/// What a header says about its frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Audio object type (ISO 14496-3): 1 main, 2 low complexity, 3 scalable rate, 4 long-term prediction.
    pub object_type: u8,
    /// Place of the sample rate in the table of [`rate`](Self::rate).
    rate_index: u8,
    /// Channels: 1 to 6 as they are, 7 for eight.
    channel_config: u8,
    /// Bytes before the frame: 7 or 9.
    pub header_len: usize,
    /// Bytes of header and frame.
    pub frame_len: usize,
}

impl Header {
    /// Reads the header at the begin of `bytes`. `None` if there is no usable one. That is another sync word, a
    /// reserved sample rate, channels that are described in the frame, several frames behind one header, or a length
    /// that is too small.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let &[sync, kind, format, mixed, length, tail, blocks] = bytes.first_chunk::<HEADER_BYTES>()?;
        let header_len = if kind & 1 == 1 { HEADER_BYTES } else { HEADER_BYTES + 2 };
        let header = Self {
            object_type: (format >> 6) + 1,
            rate_index: format >> 2 & 15,
            channel_config: (format & 1) << 2 | mixed >> 6,
            header_len,
            frame_len: usize::from(mixed & 3) << 11 | usize::from(length) << 3 | usize::from(tail >> 5),
        };
        let usable = sync == 0xff
            && kind & 0xf6 == 0xf0
            && header.rate().is_some()
            && header.channel_config > 0
            && blocks & 3 == 0
            && header.frame_len > header_len;
        usable.then_some(header)
    }

    fn rate(&self) -> Option<u32> {
        SAMPLE_RATES.get(usize::from(self.rate_index)).copied()
    }

    /// The track that the frame belongs to.
    pub fn track(&self) -> AudioTrack {
        let bits = u16::from(self.object_type) << 11
            | u16::from(self.rate_index) << 7
            | u16::from(self.channel_config) << 3;
        AudioTrack {
            codec: AudioCodec::Aac { config: bits.to_be_bytes().to_vec() },
            rate: self.rate().unwrap_or_default(),
            channels: if self.channel_config == 7 { 8 } else { self.channel_config },
        }
    }
}

/// One frame, its header left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// What stood in front of it.
    pub header: Header,
    /// Stream offset of its header.
    pub at: u64,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// Splits an ADTS stream, cut at any place, into frames. Other bytes are skipped and counted. Memory: what was pushed
/// and not yet taken, at most one frame of 8 kB besides.
#[derive(Clone, Debug, Default)]
pub struct Frames {
    buffer: Buffer,
    skipped: u64,
}

impl Frames {
    /// A splitter at the begin of a stream.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the next bytes of the stream. Take frames until `None` before pushing again.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.push(bytes);
    }

    /// Stream offset of the byte that is pushed next.
    pub fn offset(&self) -> u64 {
        self.buffer.offset() + self.buffer.peek().len() as u64
    }

    /// Bytes that belong to no frame.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Forgets an incomplete frame whose rest was lost.
    pub fn clear(&mut self) {
        let len = self.buffer.peek().len();
        self.skip(len);
    }

    fn skip(&mut self, len: usize) {
        self.skipped += len as u64;
        self.buffer.take(len);
    }
}

/// Yields `None` when more bytes are needed.
impl Iterator for Frames {
    type Item = Frame;

    fn next(&mut self) -> Option<Frame> {
        loop {
            let bytes = self.buffer.peek();
            if bytes.len() < HEADER_BYTES {
                return None;
            }
            let Some(header) = Header::parse(bytes) else {
                let garbage = bytes.iter().skip(1).position(|&byte| byte == 0xff);
                self.skip(garbage.map_or(bytes.len(), |at| at + 1));
                continue;
            };
            let at = self.buffer.offset();
            let bytes = self.buffer.take(header.frame_len)?.get(header.header_len..)?.to_vec();
            return Some(Frame { header, at, bytes });
        }
    }
}

const HEADER_BYTES: usize = 7;

#[cfg(test)]
mod tests {
    use super::*;

    /// A header of AAC-LC with 44.1 kHz and two channels before `payload`.
    fn framed(payload: &[u8]) -> Vec<u8> {
        let len = payload.len() + HEADER_BYTES;
        let mut bytes =
            vec![0xff, 0xf1, 0x50, 0x80 | (len >> 11) as u8, (len >> 3) as u8, (len << 5) as u8 | 0x1f, 0xfc];
        bytes.extend_from_slice(payload);
        bytes
    }

    #[test]
    fn a_header_gives_the_decoder_configuration() {
        let header = Header::parse(&framed(b"abc")).expect("valid");
        assert_eq!((header.object_type, header.header_len, header.frame_len), (2, 7, 10));
        let codec = AudioCodec::Aac { config: vec![0x12, 0x10] };
        assert_eq!(header.track(), AudioTrack { codec, rate: 44_100, channels: 2 });
    }

    #[test]
    fn a_written_header_is_read() {
        let track = Header::parse(&framed(b"abc")).expect("valid").track();
        let mut bytes = header(&track, 3).expect("a track that fits").to_vec();
        bytes.extend_from_slice(b"abc");
        let read = Header::parse(&bytes).expect("valid");
        assert_eq!((read.track(), read.frame_len), (track.clone(), 10));
        assert_eq!(header(&track, 8192), None, "the length has 13 bits");
        assert_eq!(header(&AudioTrack { codec: AudioCodec::Opus, ..track }, 3), None);
    }

    #[test]
    fn a_checksum_is_left_out() {
        let mut bytes = framed(&[7, 7, b'a']);
        bytes[1] = 0xf0;
        let mut frames = Frames::new();
        frames.push(&bytes);
        assert_eq!(frames.next().expect("complete").bytes, b"a");
    }

    #[test]
    fn bytes_between_frames_are_skipped() {
        let mut frames = Frames::new();
        frames.push(&[1, 2, 0xff, 0xff]);
        frames.push(&framed(b"one"));
        frames.push(&[0xff, 0xf1, 0]);
        let first = frames.next().expect("complete");
        assert_eq!((first.at, first.bytes.as_slice()), (4, b"one".as_slice()));
        assert_eq!(frames.next(), None);
        frames.clear();
        assert_eq!((frames.skipped(), frames.offset()), (7, 17));
    }

    #[test]
    fn frames_are_the_same_however_the_stream_is_cut() {
        bolero::check!()
            .with_iterations(crate::testing::ITERATIONS)
            .with_type::<(Vec<Vec<u8>>, u8)>()
            .for_each(|(payloads, cut)| {
                let payloads: Vec<_> = payloads.iter().filter(|payload| !payload.is_empty()).collect();
                let stream: Vec<u8> = payloads.iter().flat_map(|payload| framed(payload)).collect();
                let mut frames = Frames::new();
                let mut got = Vec::new();
                for piece in stream.chunks(usize::from(*cut) + 1) {
                    frames.push(piece);
                    got.extend(frames.by_ref().map(|frame| frame.bytes));
                }
                assert_eq!(got.iter().collect::<Vec<_>>(), payloads);
                assert_eq!(frames.skipped(), 0);
            });
    }

    #[test]
    fn arbitrary_bytes_do_no_harm() {
        bolero::check!().with_iterations(crate::testing::ITERATIONS).for_each(|bytes| {
            let mut frames = Frames::new();
            frames.push(bytes);
            let taken: u64 = frames.by_ref().map(|frame| frame.header.frame_len as u64).sum();
            assert!(taken + frames.skipped() <= bytes.len() as u64);
        });
    }
}

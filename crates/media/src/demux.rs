//! From the bytes of a source to the units of a stream, whatever container they come in.
//!
//! ```text
//!            ┌─ MPEG-TS ─► packets ─► PES ──┐ pictures and frames of sound      ┌─► Event::Tracks
//!  bytes ────┼─ IVF ─────► frames ──────────┼───────────────► Assembler ────────┤
//!            ├─ MP4 ─────► samples ─────────┤    ▲                              │
//!            └─ Annex B ─► byte stream ─────┘    ▲                              └─► Event::Unit
//!               RTP, depacketised; tags of FLV in RTMP ┘
//! ```
//!
//! The reader of transport streams is our own: it gives a unit as soon as its last byte is there, bounds the memory
//! that damaged streams take, and never panics. The crates that exist are made for whole files, or leave all of that
//! to their callback.

mod assembler;
mod event;
mod flv;
mod mp4;
mod opus;
mod ts;

use freshwire_record::Timestamp;
use memchr::memmem;

use crate::ivf::{self, IvfError};
use crate::mpeg_ts::SYNC;
use crate::timeline::Given;
use crate::video::Format;

pub use self::assembler::{Assembler, Faults};
pub use self::event::{Config, Event};
pub use self::flv::Flv;
pub use self::mp4::Mp4Error;

use self::ts::{Item, Ts};

/// The source cannot be read, or not any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DemuxError {
    /// No container that is known.
    #[error(
        "neither MPEG-TS nor H.264, H.265 (Annex B) nor IVF nor MP4; convert it with ffmpeg -c copy -f mpegts"
    )]
    Unknown,
    /// Damage in an IVF file.
    #[error(transparent)]
    Ivf(#[from] IvfError),
    /// An MP4 that is damaged or not fragmented.
    #[error(transparent)]
    Mp4(#[from] Mp4Error),
    /// An IVF file with another codec.
    #[error("an IVF file with the codec {:?}; AV1 (AV01) and VP9 (VP90) can be read", String::from_utf8_lossy(.codec))]
    Codec {
        /// The four letters in the file's header.
        codec: [u8; 4],
    },
    /// The source has ended and nothing in it could be used.
    #[error("the source ended without a picture or sound that can be decoded")]
    Nothing,
}

/// Reads a stream of bytes that arrives in pieces, and finds out by itself what container it is in.
///
/// Push bytes, take events until `None`, push again. Memory: what was pushed and not yet taken, per track one unit of the
/// limit, and up to 2.5 s of units before the tracks are announced.
#[derive(Clone, Debug)]
pub struct Demux {
    config: Config,
    container: Container,
    assembler: Assembler,
    error: Option<DemuxError>,
    failed: bool,
}

#[derive(Clone, Debug)]
enum Container {
    /// The first bytes, which do not tell yet.
    Open(Vec<u8>),
    Ts(Box<Ts>),
    Ivf(ivf::Reader),
    Mp4(mp4::Reader),
    Stream,
}

impl Demux {
    /// A reader at the begin of a source, or anywhere in a transport stream.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            container: Container::Open(Vec::new()),
            assembler: Assembler::new(config, None, None),
            error: None,
            failed: false,
        }
    }

    /// Tells when the bytes arrive that are pushed next; see [`Assembler::arrive`].
    pub fn arrive(&mut self, now: Timestamp) {
        self.assembler.arrive(now);
    }

    /// Adds the next bytes; ignored after an error.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.failed {
            return;
        }
        let result = if let Container::Open(first) = &mut self.container {
            first.extend_from_slice(bytes);
            self.open(false)
        } else {
            self.read(bytes)
        };
        self.keep(result);
    }

    /// Tells that the source has ended: what is there is complete. Take the last events.
    pub fn finish(&mut self) {
        if self.failed {
            return;
        }
        let result = self.open(true).and_then(|()| self.end());
        self.assembler.finish();
        let nothing = if self.assembler.has_parts() { Ok(()) } else { Err(DemuxError::Nothing) };
        self.keep(result.and(nothing));
    }

    /// Faults so far.
    pub fn faults(&self) -> Faults {
        let mut faults = self.assembler.faults();
        if let Container::Ts(ts) = &self.container {
            faults.damaged += ts.damaged();
        }
        faults
    }

    /// Why nothing has been given although bytes come, in words for a person.
    pub fn complaint(&self) -> String {
        let container = match &self.container {
            Container::Open(_) => Some("it is not known yet what it is".to_owned()),
            Container::Ts(ts) => ts.complaint(),
            Container::Ivf(_) | Container::Mp4(_) | Container::Stream => None,
        };
        container.unwrap_or_else(|| {
            let Faults { damaged, undecodable, .. } = self.faults();
            format!("no keyframe with parameter sets has come; {undecodable} pictures were left out, {damaged} damaged")
        })
    }

    /// Descriptions of tracks in the source that are not used, each once.
    pub fn skipped(&self) -> &[String] {
        match &self.container {
            Container::Ts(ts) => ts.skipped(),
            Container::Mp4(reader) => reader.skipped(),
            Container::Open(_) | Container::Ivf(_) | Container::Stream => &[],
        }
    }

    fn keep(&mut self, result: Result<(), DemuxError>) {
        if let Err(error) = result {
            self.failed = true;
            self.error = Some(error);
        }
    }

    /// Finds out the container, if that is still open and the first bytes tell it.
    fn open(&mut self, ended: bool) -> Result<(), DemuxError> {
        let Container::Open(first) = &mut self.container else { return Ok(()) };
        let (container, format) = match recognize(first) {
            Guess::Ts => (Container::Ts(Box::new(Ts::new(self.config.max_unit_bytes))), None),
            Guess::Ivf => (Container::Ivf(ivf::Reader::new(self.config.max_unit_bytes)), None),
            Guess::Mp4 => (Container::Mp4(mp4::Reader::new(self.config.max_unit_bytes)), None),
            Guess::Stream(format) => (Container::Stream, Some(format)),
            Guess::More if !ended && first.len() < MOST_FIRST_BYTES => return Ok(()),
            Guess::More => return Err(DemuxError::Unknown),
        };
        let first = std::mem::take(first);
        self.container = container;
        self.assembler.expect_video(format);
        self.read(&first)
    }

    fn read(&mut self, bytes: &[u8]) -> Result<(), DemuxError> {
        match &mut self.container {
            Container::Open(first) => first.extend_from_slice(bytes),
            Container::Ts(ts) => {
                ts.push(bytes);
                self.take_items();
            }
            Container::Ivf(reader) => {
                reader.push(bytes);
                self.take_frames()?;
            }
            Container::Mp4(reader) => {
                reader.push(bytes);
                self.take_samples()?;
            }
            Container::Stream => self.assembler.video_stream(bytes),
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), DemuxError> {
        match &mut self.container {
            Container::Ts(ts) => {
                ts.finish();
                self.take_items();
            }
            Container::Ivf(reader) => {
                reader.finish();
                self.take_frames()?;
            }
            Container::Open(_) | Container::Mp4(_) | Container::Stream => {}
        }
        Ok(())
    }

    fn take_items(&mut self) {
        let Container::Ts(ts) = &mut self.container else { return };
        while let Some(item) = ts.next() {
            match item {
                Item::Streams { video, audio } => {
                    self.assembler.expect_video(video);
                    self.assembler.expect_audio(audio);
                }
                Item::Video { given, bytes } => self.assembler.video_part(&bytes, given),
                Item::Gap => self.assembler.video_gap(),
                Item::Sound(frame) => {
                    self.assembler.audio_track(&frame.track);
                    self.assembler.audio(frame.bytes, frame.pts);
                }
            }
        }
    }

    fn take_samples(&mut self) -> Result<(), DemuxError> {
        let Container::Mp4(reader) = &mut self.container else { return Ok(()) };
        while let Some(sample) = reader.next() {
            let sample = sample?;
            for kind in reader.tracks() {
                match kind {
                    mp4::Kind::Video(format) => self.assembler.expect_video(Some(*format)),
                    mp4::Kind::Audio(track) => self.assembler.audio_track(track),
                }
            }
            match reader.kind(sample.track) {
                Some(mp4::Kind::Video(_)) => {
                    // Neither codec reorders.
                    self.assembler.video(&sample.bytes, Given::Both { pts: sample.pts, dts: sample.pts });
                }
                Some(mp4::Kind::Audio(_)) => self.assembler.audio(sample.bytes, sample.pts),
                None => {}
            }
        }
        Ok(())
    }

    fn take_frames(&mut self) -> Result<(), DemuxError> {
        let Container::Ivf(reader) = &mut self.container else { return Ok(()) };
        while let Some(frame) = reader.next() {
            let frame = frame?;
            let format = match reader.header().map(|header| header.codec) {
                Some(codec) if codec == *b"AV01" => Format::Av1,
                Some(codec) if codec == *b"VP90" => Format::Vp9,
                codec => return Err(DemuxError::Codec { codec: codec.unwrap_or_default() }),
            };
            self.assembler.expect_video(Some(format));
            // Neither codec reorders: pictures that are shown later are hidden within earlier frames.
            self.assembler.video(&frame.bytes, Given::Both { pts: frame.pts, dts: frame.pts });
        }
        Ok(())
    }
}

/// Yields `None` when more bytes are needed, and for good after an error.
impl Iterator for Demux {
    type Item = Result<Event, DemuxError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.assembler.next() {
            Some(event) => Some(Ok(event)),
            None => self.error.take().map(Err),
        }
    }
}

/// What the first bytes of a source look like.
enum Guess {
    Ts,
    Ivf,
    Mp4,
    Stream(Format),
    /// More bytes are needed.
    More,
}

/// Whether a byte stream that begins so is H.264 or H.265 (Annex B). `None`: the first bytes do not tell, or it is something
/// else.
pub fn recognize_byte_stream(first: &[u8]) -> Option<Format> {
    match recognize(first) {
        Guess::Stream(format) => Some(format),
        Guess::Ts | Guess::Ivf | Guess::Mp4 | Guess::More => None,
    }
}

fn recognize(first: &[u8]) -> Guess {
    if first.starts_with(ivf::MAGIC) {
        return Guess::Ivf;
    }
    if ivf::MAGIC.starts_with(first) {
        return Guess::More;
    }
    if first.get(4..8) == Some(mp4::MAGIC) {
        return Guess::Mp4;
    }
    let zeros = first.iter().take_while(|&&byte| byte == 0).count();
    match first.get(zeros) {
        None => return Guess::More,
        Some(1) if zeros >= 2 => return stream_format(first).map_or(Guess::More, Guess::Stream),
        Some(_) => {}
    }
    let is_ts = |stride: usize| {
        let begins = |at: usize| (0..TS_PACKETS).all(|packet| first.get(at + packet * stride) == Some(&SYNC));
        (0..stride).any(begins)
    };
    if ts::STRIDES.into_iter().any(is_ts) {
        Guess::Ts
    } else if let Some(format) =
        stream_behind(first).filter(|_| first.len() >= (TS_PACKETS + 1) * LONGEST_STRIDE)
    {
        Guess::Stream(format)
    } else {
        Guess::More
    }
}

/// A byte stream behind something else: behind a line that its program has printed, or from the middle on. It is known by
/// parameter sets in a row, which other containers hold without start codes.
fn stream_behind(bytes: &[u8]) -> Option<Format> {
    let mut before = None;
    for at in memmem::find_iter(bytes, &[0, 0, 1]) {
        let kind = match bytes.get(at + 3..at + 5)? {
            [header, _] if header & 0x9f == 7 => Some((Format::H264, 0)),
            [header, _] if header & 0x9f == 8 => Some((Format::H264, 1)),
            [0x40, 1] => Some((Format::H265, 0)),
            [0x42, 1] => Some((Format::H265, 1)),
            _ => None,
        };
        match (before, kind) {
            (Some((one, 0)), Some((other, 1))) if one == other => return Some(one),
            _ => before = kind,
        }
    }
    None
}

/// Tells H.264 from H.265 by the first NAL unit whose header only one of them can have there.
fn stream_format(bytes: &[u8]) -> Option<Format> {
    let mut codes = bytes.windows(5).filter(|window| window.starts_with(&[0, 0, 1]));
    codes.find_map(|window| {
        let (header, second) = (window[3], window[4]);
        // Parameter sets, delimiter and prefix SEI of the base layer. In H.264 these are types that are not in use, or do
        // not come first, with a reference rank.
        let h265 = matches!(header, 0x40 | 0x42 | 0x44 | 0x46 | 0x4e) && (1..=7).contains(&second);
        let h264 = header & 0x80 == 0 && matches!(header & 31, 1 | 5 | 6 | 7 | 8 | 9);
        if h265 {
            Some(Format::H265)
        } else if h264 {
            Some(Format::H264)
        } else {
            None
        }
    })
}

/// The longest distance of two packets.
const LONGEST_STRIDE: usize = ts::STRIDES[ts::STRIDES.len() - 1];
/// Packets in a row whose start identifies a transport stream. Chosen, not measured.
const TS_PACKETS: usize = 3;
/// The container must be known after this number of bytes. Chosen, not measured.
const MOST_FIRST_BYTES: usize = 256 << 10;

#[cfg(test)]
mod tests;

//! A prepared stream: what a server is fed with and when, and the pictures that it has then.
//!
//! ```text
//!  MPEG-TS or IVF ─┬─► chunks, each with its time ──────────────► a server's standard input, in real time
//!                  └─► the server's own demultiplexer ─► units ─► what was captured, offered, sent, and is compared
//! ```
//!
//! The stream represents a live encoder. A picture is handed over at its decode time. It was captured at its presentation
//! time, less the longest time from decode to presentation in the stream: what the encoder needs for its reordering.

use std::io::Write;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use freshwire_media::demux::{Config, Demux, Event};
use freshwire_media::ivf;
use freshwire_media::unit::{Kind, VideoCodec};
use freshwire_record::Timestamp;

use super::schema::{Picture, Window};
use crate::coded::{Pes, pes_packets, slices};
use crate::scenario::wait_until;

/// Ticks a second of the clocks of MPEG-TS and of RTP video.
pub(super) const TICKS: u32 = 90_000;

/// How long a stream runs before the window may begin: servers need some of it before they describe the stream.
const BEFORE_WINDOW_NS: u64 = 4_000_000_000;

/// A keyframe interval and the above may add this to a run's duration.
pub(super) const EXTRA: Duration = Duration::from_secs(16);

/// A prepared stream.
#[derive(Debug)]
pub(super) struct Source {
    bytes: Vec<u8>,
    /// Bytes that are handed over at once, with their times; in nanoseconds of the source's clock.
    chunks: Vec<(u64, Range<usize>)>,
    /// Its pictures, in decoding order.
    pub(super) pictures: Vec<CodedPicture>,
    /// Its sound, with the times at which it falls due.
    pub(super) sound: Vec<(u64, Vec<u8>)>,
    pub(super) codec: Codec,
}

/// A picture of the stream.
#[derive(Clone, Debug)]
pub(super) struct CodedPicture {
    pub(super) captured_ns: u64,
    pub(super) offered_ns: u64,
    /// Presentation time on the stream's own clock.
    pub(super) ticks: i64,
    pub(super) key: bool,
    /// Positions in decoding order.
    pub(super) refs: Vec<usize>,
    pub(super) bytes: Vec<u8>,
}

/// How the pictures are coded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Codec {
    H264,
    H265,
    Av1,
    Vp9,
}

impl Codec {
    /// The four letters by which an IVF file names it.
    pub(super) fn letters(self) -> [u8; 4] {
        match self {
            Self::H264 => *b"H264",
            Self::H265 => *b"HEVC",
            Self::Av1 => *b"AV01",
            Self::Vp9 => *b"VP90",
        }
    }

    /// The bytes of a coded picture that make the picture: what servers may add or take away around them is left out.
    pub(super) fn essence(self, bytes: &[u8]) -> Vec<u8> {
        let is_slice = |header: u8| match self {
            Self::H264 => matches!(header & 31, 1..=5),
            Self::H265 => header >> 1 & 63 < 32,
            Self::Av1 | Self::Vp9 => true,
        };
        match self {
            Self::H264 | Self::H265 => slices(bytes, is_slice),
            Self::Av1 | Self::Vp9 => bytes.to_vec(),
        }
    }
}

/// A picture as its container carries it.
struct ContainerPicture {
    pts: i64,
    dts: i64,
    /// Its end is known only with the next one's begin.
    is_open: bool,
}

impl Source {
    pub(super) fn read(path: &Path) -> anyhow::Result<Self> {
        let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        Self::parse(bytes).with_context(|| format!("the stream {}", path.display()))
    }

    fn parse(bytes: Vec<u8>) -> anyhow::Result<Self> {
        let (timed, mut carried) =
            if bytes.starts_with(ivf::MAGIC) { ivf(&bytes)? } else { transport(&bytes)? };
        let Units { pictures: units, sound, codec } = Units::of(&bytes)?;
        let left_out = carried.len().checked_sub(units.len()).context("pictures are missing")?;
        carried.drain(..left_out);
        let first = carried.first().context("it has no picture")?;
        let origin = units.first().context("it has no picture")?.ticks - first.pts;
        let same_clock =
            |(carried, unit): (&ContainerPicture, &Unit)| carried.pts.abs_diff(unit.ticks - origin) <= 1;
        ensure!(carried.iter().zip(&units).all(same_clock), "pictures are missing or damaged");
        let reorder = carried.iter().map(|picture| picture.pts - picture.dts).max().unwrap_or(0);
        // The source's clock begins so long before the first picture is handed over.
        let offered = |dts: i64| nanoseconds(dts - first.dts + reorder);
        let next_dts = carried.iter().skip(1).map(|next| next.dts).chain(carried.last().map(|last| last.dts));
        let pictures = carried
            .iter()
            .zip(units)
            .zip(next_dts)
            .map(|((picture, unit), next_dts)| CodedPicture {
                captured_ns: nanoseconds(picture.pts - first.dts),
                offered_ns: offered(if picture.is_open { next_dts } else { picture.dts }),
                ticks: unit.ticks,
                key: unit.key,
                refs: unit.refs,
                bytes: unit.bytes,
            })
            .collect();
        let mut chunks: Vec<(u64, Range<usize>)> = Vec::new();
        for (dts, range) in timed {
            let due = offered(dts).max(chunks.last().map_or(0, |(due, _)| *due));
            chunks.push((due, range));
        }
        let sound = sound.into_iter().map(|(ticks, bytes)| (offered(ticks - origin), bytes));
        Ok(Self { chunks, pictures, sound: sound.collect(), codec, bytes })
    }

    /// Mean rate of pictures and sound.
    pub(super) fn rate_bps(&self) -> u64 {
        let bytes = self.pictures.iter().map(|picture| picture.bytes.len()).sum::<usize>()
            + self.sound.iter().map(|(_, bytes)| bytes.len()).sum::<usize>();
        (bytes as f64 * 8e9 / self.end_ns().max(1) as f64) as u64
    }

    /// When the last picture is handed over.
    pub(super) fn end_ns(&self) -> u64 {
        self.pictures.last().map_or(0, |picture| picture.offered_ns)
    }

    /// The position of the keyframe with which the window begins, and the window: `skip` before `duration` counts.
    pub(super) fn window(&self, skip: Duration, duration: Duration) -> anyhow::Result<(usize, Window)> {
        let is_first = |picture: &CodedPicture| picture.key && picture.offered_ns >= BEFORE_WINDOW_NS;
        let first = self
            .pictures
            .iter()
            .position(is_first)
            .context("it has no keyframe after its first 4 s, and so nobody could begin to view it")?;
        let begin_ns = self.pictures[first].captured_ns;
        let from_ns = begin_ns + skip.as_nanos() as u64;
        let until_ns = from_ns + duration.as_nanos() as u64;
        ensure!(until_ns <= self.end_ns(), "it is too short for the run; remove it, and it is made anew");
        Ok((first, Window { begin_ns, from_ns, until_ns }))
    }

    /// The window's pictures, none of which has arrived.
    pub(super) fn offered(&self, first: usize, window: Window) -> Vec<Picture> {
        let pictures =
            self.pictures.iter().skip(first).take_while(|picture| picture.offered_ns <= window.until_ns);
        let position = |&place: &usize| place.checked_sub(first).and_then(|place| u32::try_from(place).ok());
        pictures
            .map(|picture| Picture {
                captured_ns: picture.captured_ns,
                offered_ns: picture.offered_ns,
                bytes: picture.bytes.len() as u32,
                refs: picture.refs.iter().map(position).collect(),
                arrived_ns: None,
            })
            .collect()
    }

    /// Hands the stream over, each chunk at its time, where the source's clock begins at `begin`; returns by how much the
    /// latest was late. Ends quietly when nobody reads any more.
    pub(super) fn feed(&self, mut to: impl Write, begin: Timestamp) -> Duration {
        let mut worst = Duration::ZERO;
        for (due, range) in &self.chunks {
            let due = begin + Duration::from_nanos(*due);
            wait_until(due);
            worst = worst.max(freshwire_io::now().saturating_since(due));
            let chunk = self.bytes.get(range.clone()).unwrap_or_default();
            if to.write_all(chunk).and_then(|()| to.flush()).is_err() {
                break;
            }
        }
        worst
    }
}

fn nanoseconds(ticks: i64) -> u64 {
    u64::try_from(i128::from(ticks) * 1_000_000_000 / i128::from(TICKS)).unwrap_or(0)
}

/// A picture as the server sees it.
struct Unit {
    ticks: i64,
    key: bool,
    refs: Vec<usize>,
    bytes: Vec<u8>,
}

struct Units {
    pictures: Vec<Unit>,
    sound: Vec<(i64, Vec<u8>)>,
    codec: Codec,
}

impl Units {
    fn of(bytes: &[u8]) -> anyhow::Result<Self> {
        let mut demux = Demux::new(Config::default());
        let (mut pictures, mut sound, mut codec) = (Vec::<Unit>::new(), Vec::new(), None);
        demux.push(bytes);
        demux.finish();
        for event in demux.by_ref() {
            let unit = match event? {
                Event::Tracks(tracks) => {
                    codec = tracks.video.as_ref().map(|track| match track.codec {
                        VideoCodec::H265 { .. } => Codec::H265,
                        VideoCodec::Av1 { .. } => Codec::Av1,
                        VideoCodec::Vp9 { .. } => Codec::Vp9,
                        _ => Codec::H264,
                    });
                    continue;
                }
                Event::Unit(unit) => unit,
            };
            let ticks = unit.head.pts.ticks(TICKS);
            if unit.head.kind == Kind::Audio {
                sound.push((ticks, unit.bytes));
                continue;
            }
            let here = pictures.len();
            let refs = unit.refs.iter().filter(|&&back| back != 0);
            let refs = refs.filter_map(|&back| here.checked_sub(back as usize)).collect();
            pictures.push(Unit { ticks, key: unit.head.key, refs, bytes: unit.bytes });
        }
        let faults = demux.faults();
        ensure!(faults.damaged == 0 && faults.jumps == 0, "it is damaged: {faults:?}");
        Ok(Self { pictures, sound, codec: codec.context("it has no pictures")? })
    }
}

/// Bytes that are handed over at once with their decode times, and the pictures.
type Parsed = (Vec<(i64, Range<usize>)>, Vec<ContainerPicture>);

fn ivf(bytes: &[u8]) -> anyhow::Result<Parsed> {
    let mut reader = ivf::Reader::new(bytes.len());
    reader.push(bytes);
    reader.finish();
    let (mut timed, mut pictures, mut at) = (Vec::new(), Vec::new(), 0);
    for frame in reader {
        let ivf::Frame { pts, bytes } = frame?;
        let (begin, pts) = (at, pts.ticks(TICKS));
        at = at.max(IVF_HEADER_BYTES) + IVF_FRAME_HEADER_BYTES + bytes.len();
        timed.push((pts, begin..at));
        pictures.push(ContainerPicture { pts, dts: pts, is_open: false });
    }
    Ok((timed, pictures))
}

const IVF_HEADER_BYTES: usize = 32;
const IVF_FRAME_HEADER_BYTES: usize = 12;

fn transport(bytes: &[u8]) -> anyhow::Result<Parsed> {
    let packets = pes_packets(bytes)?;
    let pictures = packets.iter().filter(|pes| pes.is_video);
    let pictures =
        pictures.map(|&Pes { pts, dts, is_open, .. }| ContainerPicture { pts, dts, is_open }).collect();
    Ok((packets.into_iter().map(|pes| (pes.dts, pes.packets)).collect(), pictures))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ivf_file_is_handed_over_frame_by_frame() {
        let mut file = Vec::from(*b"DKIF\0\0\x20\0VP90\x10\0\x10\0");
        file.extend([25, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        for (time, frame) in [(0u64, &b"abc"[..]), (2, b"de")] {
            file.extend((frame.len() as u32).to_le_bytes());
            file.extend(time.to_le_bytes());
            file.extend(frame);
        }
        let (timed, pictures) = ivf(&file).unwrap();
        assert_eq!(timed, [(0, 0..47), (7200, 47..61)], "the header goes with the first");
        assert_eq!(pictures.iter().map(|picture| picture.pts).collect::<Vec<_>>(), [0, 7200]);
        assert!(ivf(&file[..60]).is_err(), "cut");
        assert!(ivf(&file[..20]).is_err(), "no header");
    }

    #[test]
    fn a_pictures_essence_is_its_slices() {
        let picture =
            [&[0, 0, 0, 1, 9, 0x10, 0, 0, 1, 0x65, 7, 8, 0, 0, 0, 1, 6, 5, 0, 0, 1, 0x41, 3, 0][..]].concat();
        assert_eq!(Codec::H264.essence(&picture), [0x65, 7, 8, 0x41, 3]);
        assert_eq!(Codec::Vp9.essence(&picture), picture);
        // In H.265 type 32 is a parameter set, 1 and 19 are slices.
        let picture = [0, 0, 0, 1, 0x40, 1, 9, 0, 0, 1, 0x26, 1, 2, 0, 0, 1, 0x02, 1, 4];
        assert_eq!(Codec::H265.essence(&picture), [0x26, 1, 2, 0x02, 1, 4]);
    }
}

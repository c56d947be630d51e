//! Fragmented MP4 (ISO/IEC 14496-12) that arrives in pieces: AV1 and VP9 with their sound, which MPEG-TS does not carry.
//!
//! ```text
//!  ftyp  moov: tracks   ┌ moof: sizes, times ┐ mdat: samples ┐  moof  mdat  ...
//!                       └──────── one fragment ──────────────┘  anything else is passed over
//! ```

use std::collections::VecDeque;
use std::sync::Arc;

use mp4_atom::{Atom, Codec, DecodeMaybe as _, Header, Mdat, Moof, Moov, Mp4a, Trak};

use crate::buffer::Buffer;
use crate::unit::{AudioCodec, AudioTrack, MediaTime};
use crate::video::Format;

/// The type of the box that a file begins with, behind its length.
pub(super) const MAGIC: &[u8; 4] = b"ftyp";

/// The bytes are not a fragmented MP4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Mp4Error {
    /// An MP4 whose samples are described at one place.
    #[error(
        "an MP4 that is not fragmented; write one with ffmpeg's -movflags delay_moov+default_base_moof -frag_duration 1"
    )]
    NotFragmented,
    /// Other codecs only.
    #[error(
        "an MP4 without AV1, VP9, AAC and Opus; H.264 and H.265 are read from MPEG-TS, ffmpeg's -f mpegts"
    )]
    NoTrack,
    /// A box or a sample above the limit.
    #[error(
        "at byte {at}: {len} bytes in one piece, more than the limit of {limit}; make fragments shorter, by ffmpeg's -frag_duration 1"
    )]
    TooLarge {
        /// Stream offset.
        at: u64,
        /// What it says.
        len: u64,
        /// The limit.
        limit: usize,
    },
    /// A box that cannot be read, or that contradicts another one.
    #[error("at byte {at}: {what}; the file is damaged")]
    Damaged {
        /// Stream offset.
        at: u64,
        /// The fault.
        what: &'static str,
    },
}

/// What a track is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Video(Format),
    Audio(Arc<AudioTrack>),
}

/// One sample of a track.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sample {
    /// Index into [`Reader::tracks`].
    pub(super) track: usize,
    pub(super) pts: MediaTime,
    pub(super) bytes: Vec<u8>,
}

/// Reads a fragmented MP4. Memory: what was pushed and not yet taken, at most one fragment of the limit besides.
#[derive(Clone, Debug)]
pub(super) struct Reader {
    buffer: Buffer,
    limit: usize,
    tracks: Vec<Track>,
    skipped: Vec<String>,
    /// Bytes to be passed over.
    pass: u64,
    /// The samples of the last moof.
    fragment: Vec<Place>,
    samples: VecDeque<Sample>,
}

#[derive(Clone, Debug)]
struct Track {
    id: u32,
    timescale: u32,
    kind: Kind,
    /// When what has the time 0 is shown.
    begin: i64,
    default_duration: u32,
    default_size: u32,
}

/// Where a sample is in the stream.
#[derive(Clone, Debug)]
struct Place {
    track: usize,
    offset: u64,
    size: u32,
    pts: MediaTime,
}

impl Reader {
    /// A reader of fragments of up to `limit` bytes.
    pub(super) fn new(limit: usize) -> Self {
        Self {
            buffer: Buffer::default(),
            limit,
            tracks: Vec::new(),
            skipped: Vec::new(),
            pass: 0,
            fragment: Vec::new(),
            samples: VecDeque::new(),
        }
    }

    /// Adds the next bytes; ignored after an error. Take samples until `None` before pushing again.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.buffer.push(bytes);
    }

    /// The tracks that are read, as soon as a sample was asked for and they are there.
    pub(super) fn tracks(&self) -> impl Iterator<Item = &Kind> {
        self.tracks.iter().map(|track| &track.kind)
    }

    /// What a track is.
    pub(super) fn kind(&self, track: usize) -> Option<&Kind> {
        self.tracks.get(track).map(|track| &track.kind)
    }

    /// Descriptions of tracks that are not read.
    pub(super) fn skipped(&self) -> &[String] {
        &self.skipped
    }

    fn read(&mut self) -> Result<Option<Sample>, Mp4Error> {
        loop {
            if let Some(sample) = self.samples.pop_front() {
                return Ok(Some(sample));
            }
            if self.pass > 0 {
                let there = self.pass.min(self.buffer.peek().len() as u64);
                self.buffer.take(there as usize);
                self.pass -= there;
                if self.pass > 0 {
                    return Ok(None);
                }
            }
            if !self.read_box()? {
                return Ok(None);
            }
        }
    }

    /// Reads the next box; `false` if it is not there yet.
    fn read_box(&mut self) -> Result<bool, Mp4Error> {
        let at = self.buffer.offset();
        let damaged = |what| Mp4Error::Damaged { at, what };
        let mut rest = self.buffer.peek();
        let before = rest.len();
        let header = Header::decode_maybe(&mut rest).map_err(|_| damaged("a box without a length"))?;
        let Some(header) = header else { return Ok(false) };
        let head = before - rest.len();
        let size = header.size.ok_or(damaged("a box that goes on to the end of the file"))?;
        let whole = size.checked_add(head).ok_or(damaged("a box without an end"))?;
        if ![Moov::KIND, Moof::KIND, Mdat::KIND].contains(&header.kind) {
            self.pass = whole as u64;
            return Ok(true);
        }
        if header.kind == Mdat::KIND && self.fragment.is_empty() {
            if self.tracks.is_empty() {
                return Err(Mp4Error::NotFragmented);
            }
            self.pass = whole as u64;
            return Ok(true);
        }
        if whole > self.limit {
            return Err(Mp4Error::TooLarge { at, len: whole as u64, limit: self.limit });
        }
        let Some(body) = self.buffer.peek().get(head..whole) else { return Ok(false) };
        match header.kind {
            Moov::KIND => {
                let moov = body_of::<Moov>(body).ok_or(damaged("a moov that cannot be read"))?;
                (self.tracks, self.skipped) = tracks(&moov).ok_or(Mp4Error::NotFragmented)?;
                if self.tracks.is_empty() {
                    return Err(Mp4Error::NoTrack);
                }
            }
            Moof::KIND => {
                let moof = body_of::<Moof>(body).ok_or(damaged("a moof that cannot be read"))?;
                self.fragment = places(&moof, &self.tracks, self.limit, at)?;
            }
            _ => {
                for place in self.fragment.drain(..) {
                    let begin = place.offset.checked_sub(at + head as u64);
                    let begin = begin.and_then(|begin| usize::try_from(begin).ok());
                    let range = begin.and_then(|begin| Some(begin..begin.checked_add(place.size as usize)?));
                    let bytes = range.and_then(|range| body.get(range));
                    let bytes = bytes.ok_or(damaged(OUTSIDE))?.to_vec();
                    self.samples.push_back(Sample { track: place.track, pts: place.pts, bytes });
                }
            }
        }
        self.buffer.take(whole);
        Ok(true)
    }
}

/// Yields `None` when more bytes are needed, and for good after an error.
impl Iterator for Reader {
    type Item = Result<Sample, Mp4Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let read = self.read();
        self.buffer.settle(read)
    }
}

fn body_of<T: Atom>(mut body: &[u8]) -> Option<T> {
    T::decode_body(&mut body).ok()
}

/// The tracks that are read, the first of each kind, and descriptions of the others; `None` without fragments or with
/// an edit that makes no sense.
fn tracks(moov: &Moov) -> Option<(Vec<Track>, Vec<String>)> {
    let extends = moov.mvex.as_ref()?;
    let (mut tracks, mut skipped) = (Vec::<Track>::new(), Vec::new());
    for track in &moov.trak {
        let id = track.tkhd.track_id;
        let entry = track.mdia.minf.stbl.stsd.codecs.first();
        let timescale = track.mdia.mdhd.timescale;
        let Some(kind) = entry.and_then(|codec| kind_of(codec, timescale)).filter(|_| timescale > 0) else {
            skipped.push(format!("track {id} ({}), neither AV1, VP9, AAC nor Opus", track.mdia.hdlr.handler));
            continue;
        };
        let is_same = |other: &Track| std::mem::discriminant(&other.kind) == std::mem::discriminant(&kind);
        if tracks.iter().any(is_same) {
            skipped.push(format!("track {id}, the second of its kind"));
            continue;
        }
        let defaults = extends.trex.iter().find(|trex| trex.track_id == id)?;
        tracks.push(Track {
            id,
            timescale,
            kind,
            begin: begin(track, moov.mvhd.timescale)?,
            default_duration: defaults.default_sample_duration,
            default_size: defaults.default_sample_size,
        });
    }
    Some((tracks, skipped))
}

/// What the edit list says of a track's begin, in ticks: a pause before it, and what of it is not to be shown.
fn begin(track: &Trak, movie_scale: u32) -> Option<i64> {
    let edits = track.edts.as_ref().and_then(|edts| edts.elst.as_ref());
    let (mut pause, mut unseen) = (0_u64, 0);
    for edit in edits.iter().flat_map(|edits| &edits.entries) {
        match edit.media_time {
            None => pause = pause.checked_add(edit.segment_duration)?,
            Some(media_time) => {
                unseen = media_time;
                break;
            }
        }
    }
    let pause = u128::from(pause) * u128::from(track.mdia.mdhd.timescale) / u128::from(movie_scale.max(1));
    i64::try_from(pause).ok()?.checked_sub_unsigned(unseen)
}

fn kind_of(codec: &Codec, timescale: u32) -> Option<Kind> {
    let sound = |codec, rate, channels: u16| {
        let channels = u8::try_from(channels).ok()?;
        Some(Kind::Audio(Arc::new(AudioTrack { codec, rate, channels })))
    };
    match codec {
        Codec::Av01(_) => Some(Kind::Video(Format::Av1)),
        Codec::Vp09(_) => Some(Kind::Video(Format::Vp9)),
        Codec::Opus(opus) => sound(AudioCodec::Opus, OPUS_RATE, opus.audio.channel_count),
        Codec::Mp4a(Mp4a { audio, esds, .. }) => {
            let decoder = &esds.es_desc.dec_config;
            let config = decoder.dec_specific.as_ref().filter(|_| is_aac(decoder.object_type_indication));
            let config = config?.raw.clone();
            // A rate of more than 16 bits has no place.
            let rate = Some(audio.sample_rate.integer().into()).filter(|&rate| rate > 0).unwrap_or(timescale);
            sound(AudioCodec::Aac { config }, rate, audio.channel_count)
        }
        _ => None,
    }
}

/// ISO/IEC 14496-1, table 5: AAC of MPEG-4, and the profiles of MPEG-2's.
fn is_aac(object_type: u8) -> bool {
    matches!(object_type, 0x40 | 0x66..=0x68)
}

/// RFC 7845, section 5.1: Opus always counts in this rate.
const OPUS_RATE: u32 = 48_000;

/// The samples of a fragment whose moof is at `at`.
fn places(moof: &Moof, tracks: &[Track], limit: usize, at: u64) -> Result<Vec<Place>, Mp4Error> {
    let damaged = |what| Mp4Error::Damaged { at, what };
    let (mut places, mut total) = (Vec::new(), 0_u64);
    for traf in &moof.traf {
        let of_traf = |(_, track): &(usize, &Track)| track.id == traf.tfhd.track_id;
        let Some((index, track)) = tracks.iter().enumerate().find(of_traf) else { continue };
        let base = traf.tfhd.base_data_offset.unwrap_or(at);
        let mut ticks = traf.tfdt.as_ref().map_or(0, |tfdt| tfdt.base_media_decode_time);
        let mut offset = base;
        for run in &traf.trun {
            if let Some(begin) = run.data_offset {
                offset = base.checked_add_signed(begin.into()).ok_or(damaged(OUTSIDE))?;
            }
            for entry in run.samples.iter() {
                let size = entry.size.or(traf.tfhd.default_sample_size).unwrap_or(track.default_size);
                let shown = i64::try_from(ticks)
                    .ok()
                    .and_then(|ticks| ticks.checked_add(entry.cts.unwrap_or(0))?.checked_add(track.begin));
                let shown = shown.ok_or(damaged("a time that is out of range"))?;
                let pts = MediaTime::from_ticks(shown, track.timescale);
                places.push(Place { track: index, offset, size, pts });
                let length = entry.duration.or(traf.tfhd.default_sample_duration);
                ticks = ticks.saturating_add(length.unwrap_or(track.default_duration).into());
                offset = offset.saturating_add(size.into());
                total = total.saturating_add(size.into());
                // Samples may share their bytes, and a count may stand for samples without a byte.
                if total > limit as u64 || places.len() > MAX_SAMPLES {
                    return Err(Mp4Error::TooLarge { at, len: total, limit });
                }
            }
        }
    }
    // A long fragment has one track behind the other.
    places.sort_by_key(|place| place.pts);
    Ok(places)
}

const OUTSIDE: &str = "a sample outside of its mdat";
/// Most samples of a fragment. Chosen, not measured.
const MAX_SAMPLES: usize = 1 << 16;

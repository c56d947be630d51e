//! Fragmented MP4 (ISO 14496-12): each unit is a fragment of its own, for Media Source Extensions in a browser through
//! WebSocket messages, or as a plain byte stream.
//!
//! ```text
//!  units sent        I        P              P        b        B, b between the P were dropped
//!  true decode time  0        1              5        7
//!  plain stream      |0 ─── 1 |1 ───────── 2 |2 ─── 6 |6 ─ 8   each begins where the one before it ends
//!  WebSocket         |0 ────────────── │1 ────────────── │5 ────────────── │7 ──────────────
//!  presentation      exact: a signed composition offset leads from the decode time to it
//! ```
//!
//! **Durations.** When decode time jumps by more than twice the last duration, a browser drops everything up to the
//! next key frame. It then begins a new buffered range, before which playback stalls. What will be dropped is not
//! known when a unit is sent. In both ways all frames belong to one coded frame group with one buffered range, and
//! presentation times, and so the pace of the pictures, stay exact.
//!
//! - Over WebSocket each picture lasts 1.5 s, past those behind it, and a browser shows it until the next one. So the clock
//!   of playback runs on, with the picture standing still, where pictures are missing or late. With its true duration
//!   the browser would stop the clock at the end of the last picture, and playback would fall behind with each gap.
//! - In a plain stream a unit that follows dropped ones begins where the last sent one ended and lasts until its own true
//!   end: it catches up. The sum of durations is the true time, as readers of files want it. So it is with sound, too.
//!
//! Chromium puts no silence where sound is missing: what follows is heard early, and the clock, which is the sound's, stops
//! that much before the end of the buffered range. A policy should keep the sound.
//!
//! **Tracks.** Over WebSocket each track has segments of its own, for one `SourceBuffer` each: with one for both, sound
//! would be parsed only behind the pictures that are late. A plain stream has both tracks in one segment.
//!
//! **Parameter sets** stay in the key units as well (`avc3`, `hev1`), so a stream with several of them plays too.
//!
//! **Reordering.** Over WebSocket a group of H.264 without reordered pictures has an initialization that says so: see
//! `straight`. Its key unit is without its sequence parameter set, which the initialization has in another form.
//!
//! **Messages** over WebSocket: binary ones begin with a byte for their kind: 1 video initialization, 2 video sample,
//! 3 audio initialization, 4 audio sample, 6 part of a video sample. A sample's bytes follow a header of 17 bytes,
//! from which the page makes the 112 that come before them in a fragment. On a slow path those would be a sixth of
//! everything. The header has 1 for a key unit or else 0; decode time, 64 bits; duration, 32; presentation time less
//! decode time, 32, signed. Its fields are big-endian and in ticks of the initialization, whose track is number 1 for
//! video and 2 for audio. Where there is no room for all of a picture at once, it is cut into parts that the page
//! joins. The first one has the 17 bytes, and a message of type 2 has the end. Sound may come between them.
//!
//! Text messages are JSON: `{"type":"origin","media_ns":N}`, first and once, gives the stream's media time at 0 of
//! the fragments' timeline. `{"type":"track","kind":"video","mime":"..."}` comes before each initialization, and has
//! the type with which to create the `SourceBuffer`, or to which to change it. The first unit lies about a second
//! behind 0, so that the other track's first unit may be earlier: begin playback where the buffered range begins.

mod av1;
mod fragment;
mod hevc;
mod init;
mod straight;
mod timeline;

use std::ops::Range;
use std::sync::Arc;

use self::fragment::Fragment;
use self::init::Description;
pub(super) use self::init::video_configuration;
use self::straight::Straight;
use self::timeline::{Durations, Timeline};
use super::viewer::{self, OpenUnits, Units};
use super::websocket::{self, Opcode};
use super::{Framer, Piece};
use crate::unit::{Catalog, Kind, MediaTime, Tracks, UnitHead, VideoCodec};

/// How fragments are carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Carriage {
    /// As WebSocket messages, tracks apart.
    WebSocket,
    /// As one MP4 stream with both tracks, for example the body of an HTTP response.
    Plain,
}

/// Fragmented MP4 for one viewer. A unit that cannot be carried is skipped: it makes one piece without bytes. These are
/// units that the catalog does not have, that need a key unit before them which was not sent, or whose track cannot be
/// described in MP4.
#[derive(Debug)]
pub struct Fmp4 {
    units: Units,
    carriage: Carriage,
    origin: Option<MediaTime>,
    video: Track,
    audio: Track,
    straight: Straight,
    fragments: u32,
    /// Bytes before the first payload byte of the unit in progress.
    header: Vec<u8>,
    open_units: OpenUnits<Open>,
}

#[derive(Debug)]
struct Track {
    timeline: Timeline,
    /// What its last initialization says.
    described: Option<Arc<Tracks>>,
}

/// A unit in progress.
#[derive(Debug)]
struct Open {
    head: Arc<UnitHead>,
    /// The NAL unit that is not written.
    omitted: Option<usize>,
    /// The NAL unit that is being written, and how far, once its length is written.
    nal: usize,
    position: Option<u32>,
    /// Over WebSocket, how it is cut into messages.
    message: Option<Message>,
}

/// How far the messages of a sample are.
#[derive(Debug)]
struct Message {
    /// What the first one begins with, until it is written.
    about: Option<Fragment>,
    /// Bytes of the sample that no message has.
    left: u32,
    /// Bytes of the sample that are still to go into the message in progress.
    in_part: u32,
}

impl Fmp4 {
    /// A framer for a viewer of the stream with this catalog.
    pub fn new(catalog: Arc<Catalog>, carriage: Carriage) -> Self {
        let track = |rate, durations| Track { timeline: Timeline::new(rate, durations), described: None };
        let pictures = match carriage {
            Carriage::WebSocket => Durations::Bridge,
            Carriage::Plain => Durations::CatchUp,
        };
        Self {
            units: Units::new(catalog),
            carriage,
            origin: None,
            video: track(init::VIDEO_RATE, pictures),
            audio: track(init::OPUS_RATE, Durations::CatchUp),
            straight: Straight::default(),
            fragments: 0,
            header: Vec::new(),
            open_units: OpenUnits::default(),
        }
    }

    /// Writes the header of a unit; `None` if it has to be skipped.
    fn open(&mut self, seq: u64, len: u32) -> Option<Open> {
        let head = self.units.find(seq, len)?;
        let follows = self.carriage == Carriage::WebSocket && head.kind == Kind::Video;
        if follows && !self.straight.takes(seq, &head) {
            // Nothing that is sent needs it.
            self.units.accept(&head);
            return None;
        }
        let omitted = self.straight.omitted(&head);
        let size = sample_bytes(&head, omitted)?;
        let can_begin = head.key || head.kind == Kind::Audio;
        let tracks = Arc::clone(self.straight.tracks(&head));
        if can_begin && !self.is_described(head.kind, &tracks) {
            self.describe(&head, &tracks)?;
        }
        let origin = self.origin?;
        let (track, track_id) = match head.kind {
            Kind::Video => (&mut self.video, init::VIDEO_ID),
            Kind::Audio => (&mut self.audio, init::AUDIO_ID),
        };
        let place = track.timeline.place(&head, origin);
        self.units.accept(&head);
        self.fragments = self.fragments.wrapping_add(1);
        let fragment = Fragment { number: self.fragments, track_id, place, key: can_begin, size };
        let message = match self.carriage {
            Carriage::WebSocket => Some(Message { about: Some(fragment), left: size, in_part: 0 }),
            Carriage::Plain => {
                fragment.write_header(&mut self.header);
                None
            }
        };
        let nal = usize::from(omitted == Some(0));
        Some(Open { head, omitted, nal, position: None, message })
    }

    /// True if the last initialization of this kind's track says what it has to.
    fn is_described(&self, kind: Kind, new: &Arc<Tracks>) -> bool {
        let track = match kind {
            Kind::Video => &self.video,
            Kind::Audio => &self.audio,
        };
        let Some(old) = &track.described else { return false };
        Arc::ptr_eq(old, new)
            || match (self.carriage, kind) {
                (Carriage::Plain, Kind::Video) => old == new,
                (Carriage::WebSocket, Kind::Video) => old.video == new.video,
                // Sound may be that of another rendition: it says nothing of the pictures.
                (_, Kind::Audio) => old.audio == new.audio,
            }
    }

    /// Adds an initialization to the header, of the unit's track, or in a plain stream of both. `None` if it cannot be
    /// written.
    fn describe(&mut self, head: &UnitHead, tracks: &Arc<Tracks>) -> Option<()> {
        let origin = self.origin.unwrap_or_else(|| viewer::origin(head));
        let mut header = Vec::new();
        match self.carriage {
            Carriage::WebSocket => {
                if self.origin.is_none() {
                    let text = format!(r#"{{"type":"origin","media_ns":{}}}"#, origin.as_nanos());
                    add_text(&text, &mut header);
                }
                let is_straight = !Arc::ptr_eq(tracks, &head.tracks);
                add_track_messages(tracks, head.kind, is_straight, &mut header)?;
            }
            Carriage::Plain => header = init::segment(descriptions(tracks)?)?,
        }
        self.header = header;
        self.origin = Some(origin);
        let both = self.carriage == Carriage::Plain;
        if both || head.kind == Kind::Video {
            self.video.described = Some(Arc::clone(tracks));
        }
        if both || head.kind == Kind::Audio {
            self.audio.described = Some(Arc::clone(tracks));
            self.audio.timeline.set_rate(tracks.audio.as_ref().map_or(init::OPUS_RATE, init::audio_rate));
        }
        Some(())
    }
}

impl Framer for Fmp4 {
    fn begin(&mut self, seq: u64, len: u32) {
        self.header.clear();
        let open = self.open(seq, len);
        self.open_units.begin(open);
    }

    fn next(&mut self, max: usize, prefix: &mut Vec<u8>) -> Option<Piece> {
        self.open_units.next(|open| {
            let start = prefix.len();
            prefix.append(&mut self.header);
            open.piece(start, max, prefix)
        })
    }

    fn can_be_overtaken(&self) -> bool {
        let messages = self.open_units.alone().and_then(|open| open.message.as_ref());
        messages.is_some_and(Message::is_between)
    }

    fn can_overtake(&self, seq: u64) -> bool {
        self.can_be_overtaken() && self.units.of(Kind::Audio, seq).is_some()
    }
}

impl Message {
    /// One has ended, and there is more.
    fn is_between(&self) -> bool {
        self.about.is_none() && self.in_part == 0
    }

    /// Begins the next one if the last has ended. `stretch` bytes of the sample belong together and are next, `max` fit.
    fn begin(&mut self, kind: Kind, stretch: u32, max: usize, out: &mut Vec<u8>) {
        if self.in_part > 0 {
            return;
        }
        let most = u32::try_from(max).unwrap_or(u32::MAX).max(MIN_PART_BYTES);
        let is_end = kind == Kind::Audio || self.left <= most;
        self.in_part = if is_end { self.left } else { stretch.min(most) };
        self.left -= self.in_part;
        let about = self.about.take();
        let len = u64::from(self.in_part) + about.map_or(0, |_| u64::from(Fragment::SHORT_BYTES));
        begin_binary(if self.left == 0 { sample_type(kind) } else { VIDEO_PART }, len, out);
        if let Some(fragment) = about {
            fragment.write_short(out);
        }
    }
}

impl Open {
    /// The next piece, whose prefix begins at `start` of `prefix`.
    fn piece(&mut self, start: usize, max: usize, prefix: &mut Vec<u8>) -> Option<Piece> {
        let nal = range(&self.head, self.nal)?;
        let begin = self.position.unwrap_or(nal.start);
        let nals = nals(&self.head).len();
        let length_bytes = if self.position.is_none() && nals > 0 { LENGTH_BYTES } else { 0 };
        if let Some(message) = &mut self.message {
            message.begin(self.head.kind, length_bytes + nal.end - begin, max, prefix);
        }
        if length_bytes > 0 {
            prefix.extend_from_slice(&(nal.end - nal.start).to_be_bytes());
        }
        let written = prefix.len() - start;
        let room = u32::try_from(max.saturating_sub(written)).unwrap_or(u32::MAX);
        if room == 0 && written == 0 {
            return None;
        }
        let in_message = self.message.as_ref().map_or(u32::MAX, |message| message.in_part - length_bytes);
        let end = begin + room.min(nal.end - begin).min(in_message);
        if let Some(message) = &mut self.message {
            message.in_part -= length_bytes + end - begin;
        }
        self.position = Some(end);
        if end == nal.end {
            self.nal += if self.omitted == Some(self.nal + 1) { 2 } else { 1 };
            self.position = None;
        }
        let last = self.position.is_none() && self.nal >= nals;
        let boundary = last || self.message.as_ref().is_some_and(Message::is_between);
        Some(Piece { payload: begin..end, last, boundary })
    }
}

/// The MIME type of a plain stream with these tracks; `None` if one of them cannot be described in MP4.
pub fn mime(tracks: &Tracks) -> Option<String> {
    let names: Vec<String> = descriptions(tracks)?.into_iter().map(|track| track.name).collect();
    let kind = if tracks.video.is_some() { "video" } else { "audio" };
    Some(format!(r#"{kind}/mp4; codecs="{}""#, names.join(",")))
}

fn descriptions(tracks: &Tracks) -> Option<Vec<Description>> {
    let video = tracks.video.as_ref().map(|track| Description::video(track, false));
    let audio = tracks.audio.as_ref().map(Description::audio);
    video.into_iter().chain(audio).collect()
}

/// Adds the text message and the initialization of one track.
fn add_track_messages(tracks: &Tracks, kind: Kind, is_straight: bool, out: &mut Vec<u8>) -> Option<()> {
    let (description, name) = match kind {
        Kind::Video => (Description::video(tracks.video.as_ref()?, is_straight)?, "video"),
        Kind::Audio => (Description::audio(tracks.audio.as_ref()?)?, "audio"),
    };
    let codec = &description.name;
    let text = format!(r#"{{"type":"track","kind":"{name}","mime":"{name}/mp4; codecs=\"{codec}\""}}"#);
    add_text(&text, out);
    let segment = init::segment(vec![description])?;
    begin_binary(sample_type(kind) - 1, segment.len() as u64, out);
    out.extend_from_slice(&segment);
    Some(())
}

fn add_text(text: &str, out: &mut Vec<u8>) {
    websocket::header(Opcode::Text, text.len() as u64, out);
    out.extend_from_slice(text.as_bytes());
}

/// Begins a binary message of `len` bytes after the one that says its type.
fn begin_binary(message_type: u8, len: u64, out: &mut Vec<u8>) {
    websocket::header(Opcode::Binary, len + 1, out);
    out.push(message_type);
}

/// A picture is not cut into smaller parts than this, however little room there is: a tenth of a second at 160 kbit/s.
const MIN_PART_BYTES: u32 = 2048;

/// Bytes of the length before each NAL unit.
const LENGTH_BYTES: u32 = 4;

/// The type of a message with a part of a picture that is not its end.
const VIDEO_PART: u8 = 6;

fn sample_type(kind: Kind) -> u8 {
    match kind {
        Kind::Video => 2,
        Kind::Audio => 4,
    }
}

/// Parts of a sample with their length in front: NAL units, and not OBUs, which contain their length.
fn nals(head: &UnitHead) -> &[Range<u32>] {
    match head.tracks.video.as_ref().map(|video| &video.codec) {
        Some(VideoCodec::Av1 { .. }) => &[],
        _ => &head.nals,
    }
}

/// The `index`th stretch of payload that belongs to the sample: a NAL unit, or all of it in codecs without.
fn range(head: &UnitHead, index: usize) -> Option<Range<u32>> {
    let nals = nals(head);
    if nals.is_empty() { (index == 0).then_some(0..head.len) } else { nals.get(index).cloned() }
}

/// Bytes of the sample with four bytes of length before each NAL unit, without the one `omitted`. `None` if the unit lacks its track or its bytes, or
/// if a fragment cannot hold them.
fn sample_bytes(head: &UnitHead, omitted: Option<usize>) -> Option<u32> {
    let has_track = match head.kind {
        Kind::Video => head.tracks.video.is_some(),
        Kind::Audio => head.tracks.audio.is_some(),
    };
    let nals = nals(head);
    let is_whole = nals.iter().all(|nal| nal.start < nal.end && nal.end <= head.len);
    if !has_track || head.len == 0 || !is_whole {
        return None;
    }
    let bytes = if nals.is_empty() {
        u64::from(head.len)
    } else {
        let written = (0..).zip(nals).filter(|&(at, _)| Some(at) != omitted);
        written.map(|(_, nal)| 4 + u64::from(nal.end - nal.start)).sum()
    };
    u32::try_from(bytes).ok().filter(|bytes| (1..=Fragment::MAX_SAMPLE_BYTES).contains(bytes))
}

#[cfg(test)]
mod tests;

//! From whole frames with the times of their source to the units of a stream.

use std::collections::VecDeque;
use std::sync::Arc;

use freshwire_record::Timestamp;

use super::event::{Config, Event};
use super::opus;
use crate::aac;
use crate::depacketize::{Begin, nal};
use crate::timeline::{Coding, Given, Timeline};
use crate::unit::{AudioCodec, AudioTrack, Kind, MediaTime, Tracks, Unit, UnitHead, VideoTrack};
use crate::video::{Coded, Format, Parser, VideoError};

/// Faults of a source so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Faults {
    /// Jumps in time that were closed up.
    pub jumps: u64,
    /// Frames that were damaged, above a limit or without a length, and packets that were incomplete.
    pub damaged: u64,
    /// Pictures that were left out as they cannot be decoded: before the first key picture, and after a loss.
    pub undecodable: u64,
}

/// Makes the units of a stream from whole frames with their times, as RTP carries them. What a container holds goes the
/// same way.
///
/// Push frames, take events until `None`, push again. The tracks are announced once all of them have shown their
/// parameters, or after one second of media without one of them, 2.5 s without a key picture. The units before are
/// kept until then. The tracks are announced again when they change.
#[derive(Clone, Debug)]
pub struct Assembler {
    config: Config,
    video: Option<Video>,
    audio: Option<Arc<AudioTrack>>,
    /// Sound will come whose track is not known yet.
    awaits_audio: bool,
    timeline: Timeline,
    waiting: Waiting,
    tracks: Option<Arc<Tracks>>,
    groups: Groups,
    events: VecDeque<Event>,
    damaged: u64,
    /// Pictures left out by parsers before the present one.
    undecodable: u64,
}

#[derive(Clone, Debug)]
struct Video {
    format: Format,
    parser: Parser,
    track: Option<Arc<VideoTrack>>,
    parts: Parts,
}

/// Numbers groups across parsers, each of which begins with 0.
#[derive(Clone, Copy, Debug, Default)]
struct Groups {
    first: u32,
    newest: Option<u32>,
}

impl Groups {
    fn place(&mut self, group: u32) -> u32 {
        let group = self.first.wrapping_add(group);
        self.newest = Some(group);
        group
    }

    fn begin_parser(&mut self) {
        self.first = self.newest.map_or(0, |newest| newest.wrapping_add(1));
    }
}

/// Parts of a byte stream, and what their source says of the first picture that begins in each.
#[derive(Clone, Debug, Default)]
struct Parts {
    /// Bytes of all parts so far.
    pushed: u64,
    /// Parts in which pictures may still be found to begin, by the place of their first byte.
    open: VecDeque<OpenPart>,
    /// Number of parts in a row that began with a picture; `None` if one did not.
    aligned: Option<u8>,
    /// There was a part.
    has_parts: bool,
}

#[derive(Clone, Debug)]
struct OpenPart {
    at: u64,
    /// `None`: a picture was found that begins here.
    given: Option<Given>,
}

impl Parts {
    fn begin(&mut self, bytes: &[u8], format: Format, given: Given) {
        if !std::mem::replace(&mut self.has_parts, true) {
            self.aligned = Some(0);
        }
        let zeros = bytes.iter().take_while(|&&byte| byte == 0).count();
        let is_code = zeros >= 2 && bytes.get(zeros) == Some(&1);
        let nal = bytes.get(zeros + 1..).filter(|_| is_code).unwrap_or_default();
        let begin = match format {
            Format::H265 => nal::h265_begin(nal),
            _ => nal::h264_begin(nal),
        };
        self.aligned = match begin {
            Some(Begin::Picture) => self.aligned.map(|count| (count + 1).min(ALIGNED_PARTS)),
            None if is_code => self.aligned,
            Some(Begin::Slice) | None => None,
        };
        self.open.push_back(OpenPart { at: self.pushed, given: Some(given) });
        self.pushed += bytes.len() as u64;
        if self.open.len() > MOST_OPEN_PARTS {
            self.open.pop_front();
        }
    }

    /// Whether parts are whole pictures. The first ones wait until the next one starts, and so do the parts
    /// of a source that cuts anywhere. A picture that was taken for whole too early would be torn.
    fn are_pictures(&self) -> bool {
        self.aligned.is_some_and(|count| count >= ALIGNED_PARTS)
    }

    /// The times given for a picture that begins at `at`.
    fn given(&mut self, at: u64) -> Given {
        // A zero byte that ends the part before belongs to the start code.
        while self.open.get(1).is_some_and(|next| next.at <= at + 1) {
            self.open.pop_front();
        }
        let Some(part) = self.open.front_mut().filter(|part| part.at <= at + 1) else {
            return Given::Nothing;
        };
        part.given.take().unwrap_or(Given::Nothing)
    }
}

/// Units whose tracks have not been announced.
#[derive(Clone, Debug, Default)]
struct Waiting {
    parts: VecDeque<Part>,
    bytes: usize,
    earliest: Option<MediaTime>,
    latest: Option<MediaTime>,
}

#[derive(Clone, Debug)]
struct Part {
    track: Track,
    unit: Unit,
}

#[derive(Clone, Debug)]
enum Track {
    Video(Arc<VideoTrack>),
    Audio(Arc<AudioTrack>),
}

impl Assembler {
    /// An assembler for a source with pictures of this format, or none, and sound of this track, or none.
    pub fn new(config: Config, video: Option<Format>, audio: Option<AudioTrack>) -> Self {
        let mut assembler = Self {
            config,
            video: None,
            audio: audio.map(Arc::new),
            awaits_audio: false,
            timeline: Timeline::default(),
            waiting: Waiting::default(),
            tracks: None,
            groups: Groups::default(),
            events: VecDeque::new(),
            damaged: 0,
            undecodable: 0,
        };
        assembler.expect_video(video);
        assembler
    }

    /// Tells when the frames arrive that are pushed next. Without it every gap of more than ten seconds is a jump in
    /// time; with it a gap that is one second longer than the pause between arrivals.
    pub fn arrive(&mut self, now: Timestamp) {
        self.timeline.arrive(now);
    }

    /// Adds a whole picture. H.264 and H.265: an access unit as a byte stream; AV1: a temporal unit of OBUs; VP9: a frame
    /// or superframe. Ignored if no pictures were expected.
    pub fn video(&mut self, bytes: &[u8], given: Given) {
        if let Some(video) = &mut self.video {
            video.parser.push(bytes);
            video.parser.complete();
        }
        self.take_pictures(given);
    }

    /// Adds part of a byte stream of H.264 or H.265 without times, cut at any place.
    pub(super) fn video_stream(&mut self, bytes: &[u8]) {
        if let Some(video) = &mut self.video {
            video.parser.push(bytes);
        }
        self.take_pictures(Given::Nothing);
    }

    /// Adds part of a byte stream of H.264 or H.265, cut at any place, with what its source says of the first picture that
    /// begins in it. It is whole at its end if parts have been so far.
    pub(super) fn video_part(&mut self, bytes: &[u8], given: Given) {
        let Some(video) = &mut self.video else { return };
        video.parts.begin(bytes, video.format, given);
        video.parser.push(bytes);
        self.take_pictures_of_parts();
        let Some(video) = &mut self.video else { return };
        if video.parts.are_pictures() {
            video.parser.complete();
            self.take_pictures_of_parts();
        }
    }

    /// Tells that bytes are missing after the part that was added last.
    pub(super) fn video_gap(&mut self) {
        if let Some(video) = &mut self.video {
            video.parser.forget();
        }
    }

    fn take_pictures_of_parts(&mut self) {
        while let Some(video) = &mut self.video {
            let coded = match video.parser.next() {
                Some(Ok(coded)) => coded,
                Some(Err(VideoError::TooLarge { .. })) => {
                    self.damaged += 1;
                    continue;
                }
                None => return,
            };
            let given = video.parts.given(video.parser.taken_at().unwrap_or(0));
            let format = video.format;
            video.track = Some(Arc::clone(&coded.track));
            self.add_picture(coded, format, given);
        }
    }

    /// Adds a frame of sound: AAC without ADTS header, or an Opus packet. Ignored if no sound was expected.
    pub fn audio(&mut self, bytes: Vec<u8>, pts: MediaTime) {
        let Some(track) = self.audio.clone() else { return };
        let Some((duration_ns, len)) = frame_ns(&track, &bytes).zip(u32::try_from(bytes.len()).ok()) else {
            self.damaged += 1;
            return;
        };
        let times = self.timeline.audio(pts, duration_ns);
        let head = UnitHead {
            kind: Kind::Audio,
            pts: times.pts,
            dts: times.dts,
            duration_ns: times.duration_ns,
            key: true,
            len,
            nals: Vec::new(),
            nal_headers: Vec::new(),
            repeat: None,
            tracks: self.tracks.clone().unwrap_or_default(),
        };
        let unit = Unit { head, layer: 0, group: self.groups.newest.unwrap_or(0), refs: [0; 2], bytes };
        self.add(Part { track: Track::Audio(track), unit });
    }

    /// Reports that pictures are missing before the next ones pushed. Pictures that cannot be decoded without
    /// them are left out.
    pub fn lost(&mut self) {
        if let Some(video) = &mut self.video {
            video.parser.lost();
        }
    }

    /// Tells that the source has ended: the last units and the tracks are complete.
    pub fn finish(&mut self) {
        if let Some(video) = &mut self.video {
            video.parser.finish();
        }
        if self.video.as_ref().is_some_and(|video| video.parts.pushed > 0) {
            self.take_pictures_of_parts();
        } else {
            self.take_pictures(Given::Nothing);
        }
        if self.tracks.is_none() && !self.waiting.parts.is_empty() {
            self.announce();
        }
    }

    /// Faults so far.
    pub fn faults(&self) -> Faults {
        let undecodable = self.video.as_ref().map_or(0, |video| video.parser.dropped());
        Faults {
            jumps: self.timeline.jumps(),
            damaged: self.damaged,
            undecodable: self.undecodable + undecodable,
        }
    }

    /// Pictures of this format come from here on, or none.
    pub(super) fn expect_video(&mut self, format: Option<Format>) {
        if self.video.as_ref().map(|video| video.format) == format {
            return;
        }
        if let Some(video) = self.video.take() {
            self.undecodable += video.parser.dropped();
        }
        self.groups.begin_parser();
        let parser = |format| Parser::with_limit(format, self.config.max_unit_bytes);
        self.video = format.map(|format| Video {
            format,
            parser: parser(format),
            track: None,
            parts: Parts::default(),
        });
    }

    /// Sound comes from here on, or none; its track is described before the first frame.
    pub(super) fn expect_audio(&mut self, comes: bool) {
        self.awaits_audio = comes && self.audio.is_none();
        if !comes {
            self.audio = None;
        }
    }

    /// The track of the frames of sound that come next.
    pub(super) fn audio_track(&mut self, track: &Arc<AudioTrack>) {
        self.awaits_audio = false;
        if self.audio.as_ref().is_none_or(|known| !Arc::ptr_eq(known, track)) {
            self.audio = Some(Arc::clone(track));
        }
    }

    /// True if units were announced.
    pub(super) fn has_parts(&self) -> bool {
        self.tracks.is_some()
    }

    fn take_pictures(&mut self, mut given: Given) {
        loop {
            let Some(video) = &mut self.video else { return };
            let coded = match video.parser.next() {
                Some(Ok(coded)) => coded,
                Some(Err(VideoError::TooLarge { .. })) => {
                    self.damaged += 1;
                    continue;
                }
                None => return,
            };
            let format = video.format;
            video.track = Some(Arc::clone(&coded.track));
            let interval = self.add_picture(coded, format, given);
            given = given.later(interval);
        }
    }

    /// Adds a picture and gives the distance to the next.
    fn add_picture(&mut self, coded: Coded, format: Format, given: Given) -> u32 {
        let nal = |range: &std::ops::Range<u32>| {
            let at =
                |offset: u32| coded.bytes.get((range.start + offset) as usize).copied().unwrap_or_default();
            [at(0), if range.end - range.start > 1 { at(1) } else { 0 }]
        };
        let nal_headers: Vec<[u8; 2]> = coded.nals.iter().map(nal).collect();
        let frame_ns = self.config.frame_ns.or(coded.frame_ns);
        let coding = Coding {
            reorder: coded.reorder,
            frame_ns,
            display: coded.display,
            display_step: if format == Format::H264 { 2 } else { 1 },
            restart: nal_headers.iter().any(|header| restarts(format, *header)),
        };
        let times = self.timeline.video(given, &coding);
        let head = UnitHead {
            kind: Kind::Video,
            pts: times.pts,
            dts: times.dts,
            duration_ns: times.duration_ns,
            key: coded.key,
            len: u32::try_from(coded.bytes.len()).unwrap_or(u32::MAX),
            nals: coded.nals,
            nal_headers,
            repeat: coded.repeat,
            tracks: self.tracks.clone().unwrap_or_default(),
        };
        let group = self.groups.place(coded.group);
        let unit = Unit { head, layer: coded.layer, group, refs: coded.refs, bytes: coded.bytes };
        self.add(Part { track: Track::Video(coded.track), unit });
        times.duration_ns
    }

    fn add(&mut self, part: Part) {
        if self.tracks.is_some() {
            self.deliver(part);
            return;
        }
        let waiting = &mut self.waiting;
        let dts = part.unit.head.dts;
        waiting.earliest = Some(waiting.earliest.map_or(dts, |earliest| earliest.min(dts)));
        waiting.latest = waiting.latest.max(Some(dts));
        waiting.bytes += part.unit.bytes.len();
        waiting.parts.push_back(part);
        let span = waiting.latest.zip(waiting.earliest);
        let lacks_video = self.video.as_ref().is_some_and(|video| video.track.is_none());
        let longest = if lacks_video { LONGEST_WAIT_FOR_KEY_NS } else { LONGEST_WAIT_NS };
        let is_late = span.is_some_and(|(latest, earliest)| {
            latest.as_nanos().saturating_sub(earliest.as_nanos()) > longest
        });
        let is_full = waiting.bytes > MOST_WAITING_BYTES || waiting.parts.len() > MOST_WAITING;
        let is_complete = !self.awaits_audio && self.video.as_ref().is_none_or(|video| video.track.is_some());
        if is_complete || is_late || is_full {
            self.announce();
        }
    }

    /// Announces the tracks as they are known and gives out the units that waited.
    fn announce(&mut self) {
        let waiting = std::mem::take(&mut self.waiting);
        let first_video = waiting.parts.iter().find_map(|part| match &part.track {
            Track::Video(track) => Some((**track).clone()),
            Track::Audio(_) => None,
        });
        let first_audio = waiting.parts.iter().find_map(|part| match &part.track {
            Track::Audio(track) => Some((**track).clone()),
            Track::Video(_) => None,
        });
        let audio = first_audio.or_else(|| self.audio.as_deref().cloned());
        self.change(Tracks { video: first_video, audio });
        for part in waiting.parts {
            self.deliver(part);
        }
    }

    fn change(&mut self, tracks: Tracks) {
        let tracks = Arc::new(tracks);
        self.tracks = Some(Arc::clone(&tracks));
        self.events.push_back(Event::Tracks(tracks));
    }

    fn deliver(&mut self, part: Part) {
        let known = self.tracks.clone().unwrap_or_default();
        let mut tracks = Tracks { video: known.video.clone(), audio: known.audio.clone() };
        // A track that the source has given up goes with the first unit after.
        tracks.video = tracks.video.filter(|_| self.video.is_some());
        tracks.audio = tracks.audio.filter(|_| self.audio.is_some());
        match &part.track {
            Track::Video(track) => tracks.video = Some((**track).clone()),
            Track::Audio(track) => tracks.audio = Some((**track).clone()),
        }
        if *known != tracks {
            self.change(tracks);
        }
        let mut unit = part.unit;
        unit.head.tracks = self.tracks.clone().unwrap_or_default();
        self.events.push_back(Event::Unit(unit));
    }
}

/// Yields `None` when more frames are needed.
impl Iterator for Assembler {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        self.events.pop_front()
    }
}

/// How long a frame of sound lasts.
fn frame_ns(track: &AudioTrack, bytes: &[u8]) -> Option<u32> {
    match &track.codec {
        AudioCodec::Aac { config } => aac::Config::parse(config).filter(|_| !bytes.is_empty())?.frame_ns(),
        AudioCodec::Opus => opus::duration_ns(bytes),
    }
}

/// Everything from the picture of this NAL unit on is shown after everything before.
fn restarts(format: Format, header: [u8; 2]) -> bool {
    match format {
        Format::H264 => header[0] & 31 == 5,
        Format::H265 => (16..=20).contains(&(header[0] >> 1 & 63)),
        Format::Av1 | Format::Vp9 => false,
    }
}

/// Parts that begin as pictures do until they are taken for pictures. The parameter sets of one may be parts of their own.
const ALIGNED_PARTS: u8 = 8;
/// Parts whose pictures have not been found yet; older ones are forgotten. Chosen, not measured.
const MOST_OPEN_PARTS: usize = 4096;
/// Media that may come before the tracks are announced without a missing one. Chosen, not measured.
const LONGEST_WAIT_NS: i64 = 1_000_000_000;
/// The same for pictures, the first of which has to be a key picture: a usual interval of 2 s and a margin.
/// Chosen, not measured.
const LONGEST_WAIT_FOR_KEY_NS: i64 = 2_500_000_000;
/// Bound of the units that wait meanwhile. Chosen, not measured.
const MOST_WAITING: usize = 4096;
/// Bound of their bytes. Chosen, not measured.
const MOST_WAITING_BYTES: usize = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_may_lead_a_clean_random_access_and_nothing_else() {
        let h265 = |kind: u8| restarts(Format::H265, [kind << 1, 1]);
        assert_eq!([1, 16, 20, 21].map(h265), [false, true, true, false]);
        assert!(restarts(Format::H264, [0x65, 0]) && !restarts(Format::H264, [0x41, 0]));
    }
}

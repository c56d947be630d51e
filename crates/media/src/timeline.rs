//! The times of a live stream: what a source says, turned into what units promise.
//!
//! ```text
//!  pts, dts of a container ──────────────────────┐
//!  pts alone (RTP) ──► order::Decoding ──────────┼──► Timeline::place ──► dts never decreases, pts >= dts,
//!  neither (Annex B) ──► order::Display ─────────┘     one for both tracks      jumps closed up
//! ```
//!
//! A source that jumps in time, because a file or an encoder was restarted, continues without a seam: its times are
//! shifted by one offset for both tracks. As the tracks of a source are interleaved, one of them arrives at a jump
//! first. Each therefore keeps the offset that it is in until the newer one fits it better.

mod coding;
mod order;

use freshwire_record::Timestamp;

use crate::unit::{Kind, MediaTime};

pub use self::coding::{Coding, DEFAULT_FRAME_NS};

use self::coding::SECOND;
use self::order::{Decoding, Display};

/// Counts of a clock with few bits, continued beyond its wraps.
#[derive(Clone, Debug)]
pub struct Unwrap {
    bits: u32,
    last: Option<i64>,
}

impl Unwrap {
    /// For counts of `bits` bits, 1 to 62: 33 for MPEG-TS, 32 for RTP.
    pub fn new(bits: u32) -> Self {
        Self { bits: bits.clamp(1, 62), last: None }
    }

    /// The continued count that is nearest to the one before. The first is `count` itself. Bits above the width are
    /// ignored.
    pub fn extend(&mut self, count: u64) -> i64 {
        let unused = 64 - self.bits;
        let count = (count << unused >> unused) as i64;
        let extended = match self.last {
            None => count,
            Some(last) => last.saturating_add(count.wrapping_sub(last) << unused >> unused),
        };
        self.last = Some(extended);
        extended
    }
}

/// The times of one unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// When it is shown or heard.
    pub pts: MediaTime,
    /// When it is decoded: never before that of the unit before, never after `pts`.
    pub dts: MediaTime,
    /// Expected distance to the next unit of its track in nanoseconds, at least 1.
    pub duration_ns: u32,
}

/// What a source says about a picture's times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given {
    /// When it is shown and when it is decoded.
    Both {
        /// Shown.
        pts: MediaTime,
        /// Decoded.
        dts: MediaTime,
    },
    /// When it is shown.
    Shown(MediaTime),
    /// Nothing: time follows from the pictures' number and order.
    Nothing,
}

impl Given {
    /// The same for a picture that comes `interval_ns` later.
    pub(crate) fn later(self, interval_ns: u32) -> Self {
        let add =
            |time: MediaTime| MediaTime::from_nanos(time.as_nanos().saturating_add(i64::from(interval_ns)));
        match self {
            Self::Both { pts, dts } => Self::Both { pts: add(pts), dts: add(dts) },
            Self::Shown(pts) => Self::Shown(add(pts)),
            Self::Nothing => Self::Nothing,
        }
    }
}

/// The clock of one stream, for its two tracks.
#[derive(Clone, Debug)]
pub struct Timeline {
    /// Added to the source's times, for tracks that have arrived at the newest jump.
    offset: i64,
    video: Track,
    audio: Track,
    decoding: Decoding,
    display: Display,
    paced: Paced,
    arrival: Option<Timestamp>,
    /// Arrival of the newest unit.
    newest_arrival: Option<Timestamp>,
    jumps: u64,
}

#[derive(Clone, Copy, Debug)]
struct Track {
    /// The offset that the track is in.
    offset: i64,
    last: Option<i64>,
    /// Mean distance of its units.
    interval: i64,
    /// How many distances the mean is of, up to [`MEAN_OF`].
    seen: i64,
}

impl Track {
    const fn new(interval: i64) -> Self {
        Self { offset: 0, last: None, interval, seen: 0 }
    }

    fn next(&self) -> Option<i64> {
        self.last.map(|last| last.saturating_add(self.interval))
    }

    fn advance(&mut self, time: i64) {
        if let Some(distance) =
            self.last.map(|last| time - last).filter(|distance| (1..=SECOND).contains(distance))
        {
            self.interval = (self.interval * self.seen + distance) / (self.seen + 1);
            self.seen = (self.seen + 1).min(MEAN_OF);
        }
        self.last = Some(time);
    }
}

impl Default for Timeline {
    fn default() -> Self {
        Self {
            offset: 0,
            video: Track::new(i64::from(DEFAULT_FRAME_NS)),
            audio: Track::new(DEFAULT_AUDIO_NS),
            decoding: Decoding::default(),
            display: Display::default(),
            paced: Paced::default(),
            arrival: None,
            newest_arrival: None,
            jumps: 0,
        }
    }
}

/// Brings pictures without times between those that have some. Where they lie follows from their number and from the
/// distance of pictures, which is measured between times that the source says, and never by times that were reckoned.
#[derive(Clone, Debug, Default)]
struct Paced {
    /// The newest decoding time that the source said.
    newest: Option<i64>,
    /// What the times that it said then, shown and decoded, were ahead of those by the count of pictures.
    ahead: (i64, i64),
    /// Pictures since.
    pictures: i64,
    /// Measured distance of pictures.
    frame_ns: Option<u32>,
}

impl Paced {
    /// The source says when a picture is shown and decoded; the count of pictures says `counted`.
    fn given(&mut self, said: (i64, i64), counted: (i64, i64)) {
        let dts = said.1;
        if let Some(before) = self.newest {
            let distance = dts.saturating_sub(before);
            // Where all pictures have times, nothing has to be measured.
            if self.pictures > 0 && (1..=LONGEST_PACED).contains(&distance) {
                let frame = distance / (self.pictures + 1);
                self.frame_ns = u32::try_from(frame).ok().filter(|&frame| frame > 0).or(self.frame_ns);
            }
        }
        (self.newest, self.pictures) = (Some(dts), 0);
        self.ahead = (said.0.saturating_sub(counted.0), dts.saturating_sub(counted.1));
    }

    /// The correction of the times, shown and decoded, of a picture whose place only the count of pictures
    /// gives.
    fn skipped(&mut self) -> (i64, i64) {
        self.pictures += 1;
        self.ahead
    }
}

impl Timeline {
    /// Tells when the units arrive that are given next. Without it every gap of more than ten seconds is a jump; with it
    /// a gap that is one second longer than the pause between arrivals.
    pub fn arrive(&mut self, now: Timestamp) {
        self.arrival = Some(now);
    }

    /// How often the source has jumped in time.
    pub fn jumps(&self) -> u64 {
        self.jumps
    }

    /// The times of the next picture in decoding order.
    pub fn video(&mut self, given: Given, coding: &Coding) -> Times {
        if self.video.seen == 0 {
            self.video.interval = i64::from(coding.frame_ns.unwrap_or(DEFAULT_FRAME_NS)).max(1);
        }
        let coding = &Coding { frame_ns: self.paced.frame_ns.or(coding.frame_ns), ..*coding };
        let (pts, dts) = match given {
            Given::Both { pts, dts } => {
                let (pts, dts) = (bounded(pts), bounded(dts));
                let counted = self.display.times(coding);
                self.paced.given((pts, dts), counted);
                (pts, dts)
            }
            Given::Shown(pts) => {
                let pts = bounded(pts);
                (pts, self.decoding.time(pts, coding.reorder, self.video.interval))
            }
            Given::Nothing => {
                let (pts, dts) = self.display.times(coding);
                let (shown, decoded) = self.paced.skipped();
                (pts.saturating_add(shown), dts.saturating_add(decoded))
            }
        };
        let ahead = pts.saturating_sub(dts).clamp(0, LARGEST_AHEAD);
        let raw_shown = dts.saturating_add(ahead);
        let placed = self.place(Kind::Video, dts);
        // A decoding time that had to be moved leaves the picture where it is shown, as far as the order allows.
        let shown =
            raw_shown.saturating_add(self.video.offset).clamp(placed, placed.saturating_add(LARGEST_AHEAD));
        self.video.advance(placed);
        times(shown, placed, self.video.interval)
    }

    /// The times of the next audio frame, which lasts `duration_ns`.
    pub fn audio(&mut self, pts: MediaTime, duration_ns: u32) -> Times {
        self.audio.interval = i64::from(duration_ns.max(1));
        let time = self.place(Kind::Audio, bounded(pts));
        self.audio.last = Some(time);
        times(time, time, self.audio.interval)
    }

    /// Where `raw` lies on the stream's clock, with jumps closed up.
    fn place(&mut self, kind: Kind, raw: i64) -> i64 {
        let (here, other) = self.tracks(kind);
        let own = raw.saturating_add(here.offset);
        let shared = raw.saturating_add(self.offset);
        let latest = self.latest();
        self.newest_arrival = self.arrival;
        let (Some(last), Some(next)) = (here.last, here.next()) else {
            let offset = match other.last {
                Some(other) if (shared - other).abs() > LARGEST_SKEW => other - raw,
                _ => self.offset,
            };
            self.track(kind).offset = offset;
            return raw.saturating_add(offset);
        };
        let goes_on = |time: i64| time >= last - SLACK && time <= latest;
        if goes_on(own) && (own - next).abs() <= (shared - next).abs() {
            return own.max(last);
        }
        if here.offset != self.offset && shared >= last - LARGEST_OVERLAP && shared <= latest {
            self.track(kind).offset = self.offset;
            if shared >= last - SLACK {
                return shared.max(last);
            }
            // The other track arrived at the jump before all of this one's units from before it were here.
            self.shift(next - shared);
            return next;
        }
        self.jumps += 1;
        let follows = other.next().filter(|other| (other - next).abs() <= LARGEST_SKEW);
        let time = follows.map_or(next, |other| other.max(next));
        self.offset = time - raw;
        self.track(kind).offset = self.offset;
        time
    }

    /// The latest time at which a unit may lie that arrives now.
    fn latest(&self) -> i64 {
        let newest = self.video.next().max(self.audio.next()).unwrap_or(0);
        let gap = match (self.arrival, self.newest_arrival) {
            (Some(now), Some(then)) => {
                let pause = i64::try_from(now.saturating_since(then).as_nanos()).unwrap_or(i64::MAX);
                SECOND.saturating_add(pause)
            }
            _ => LARGEST_GAP,
        };
        newest.saturating_add(gap)
    }

    /// Moves everything that is in the newest offset.
    fn shift(&mut self, by: i64) {
        let before = self.offset;
        self.offset += by;
        for track in [&mut self.video, &mut self.audio] {
            if track.offset == before {
                track.offset = self.offset;
            }
        }
    }

    fn tracks(&self, kind: Kind) -> (Track, Track) {
        match kind {
            Kind::Video => (self.video, self.audio),
            Kind::Audio => (self.audio, self.video),
        }
    }

    fn track(&mut self, kind: Kind) -> &mut Track {
        match kind {
            Kind::Video => &mut self.video,
            Kind::Audio => &mut self.audio,
        }
    }
}

fn times(pts: i64, dts: i64, interval: i64) -> Times {
    Times {
        pts: MediaTime::from_nanos(pts),
        dts: MediaTime::from_nanos(dts),
        duration_ns: u32::try_from(interval).unwrap_or(u32::MAX).max(1),
    }
}

/// The time as a number that offsets and gaps can be added to without overflow.
fn bounded(time: MediaTime) -> i64 {
    time.as_nanos().clamp(-(i64::MAX / 8), i64::MAX / 8)
}

/// Distance of audio frames before the first distance is known: the usual frame of Opus (RFC 6716, section
/// 2.1.4).
const DEFAULT_AUDIO_NS: i64 = 20_000_000;
/// Forward gap that is no jump where arrivals are unknown: streams with few pictures a second exist. Chosen,
/// not measured.
const LARGEST_GAP: i64 = 10 * SECOND;
/// A unit this much before its predecessor is inexact rather than a jump. Chosen, not measured.
const SLACK: i64 = SECOND / 10;
/// How far a container may interleave its tracks. Chosen, not measured.
const LARGEST_OVERLAP: i64 = 2 * SECOND;
/// Tracks farther apart than this do not have the same clock. Chosen, not measured.
const LARGEST_SKEW: i64 = 10 * SECOND;
/// The longest time from a picture's decoding to its presentation. Chosen, not measured.
const LARGEST_AHEAD: i64 = 10 * SECOND;
/// Longest distance of two times of a source that shows the distance of the pictures between. Chosen, not
/// measured.
const LONGEST_PACED: i64 = 60 * SECOND;
/// Distances that the estimate of the frame interval remembers. Chosen, not measured.
const MEAN_OF: i64 = 8;

#[cfg(test)]
mod tests;

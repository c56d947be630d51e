//! A stream's renditions: codings of the same pictures, each from a source of its own, brought together to one stream.

use std::mem::discriminant;
use std::sync::Arc;
use std::time::{Duration, Instant};

use freshwire::choice::{MAX_RENDITIONS, RENDITION_BITS};
use freshwire::fanout::Stored;
use freshwire_media::unit::{AudioTrack, Kind, LANE_BITS, MediaTime, Tracks, Unit, VideoCodec};
use tokio::sync::mpsc;

use super::error::HubError;
use super::unit_info::UnitInfo;
use crate::config::{MAIN, check_rendition_name};

/// A rendition without a picture for this long has no source as far as viewers are concerned.
const STALLED: Duration = Duration::from_secs(2);

/// If the rendition whose sound the stream has gives none for this long, another one's is taken.
const SILENT: Duration = Duration::from_secs(1);

/// A rendition without a keyframe by then has none.
const KEYLESS: Duration = Duration::from_secs(15);

/// Times are joined by when the first keyframe comes, if they are further apart than this, and again when they have come apart by
/// the second.
const JOINED_NS: u64 = 60_000_000;
const APART_NS: u64 = 500_000_000;

/// Sound of another rendition that is so much older was heard already.
const HEARD_NS: i64 = 2_000_000_000;

/// Least time between two requests for a keyframe.
const KEY_REQUESTS: Duration = Duration::from_millis(500);

/// A group is kept for newcomers up to this age and this number of units.
const MAX_JOIN_AGE: Duration = Duration::from_secs(5);
const GROUP_UNITS: usize = 512;

// Framings tell renditions apart as policies do.
const _: () = assert!(LANE_BITS == RENDITION_BITS);

type StoredUnits = Vec<(UnitInfo, Stored)>;

/// All of a stream.
pub(super) struct Renditions {
    all: Vec<Rendition>,
    /// Whose sound the stream has, and what it is.
    sound_of: Option<usize>,
    audio: Option<AudioTrack>,
    last_sound: Option<(MediaTime, Instant)>,
    /// The sound since the oldest group that is kept.
    sound: StoredUnits,
}

/// One of them.
pub(super) struct Rendition {
    pub(super) name: String,
    /// Where it comes from, `None` while nobody publishes it.
    pub(super) origin: Option<String>,
    /// It keeps its place while nobody publishes it.
    is_configured: bool,
    /// Its source can deliver it on demand.
    is_offered: bool,
    /// Why it is left out although somebody publishes it.
    pub(super) refused: Option<String>,
    /// It has had a keyframe and goes on.
    pub(super) is_present: bool,
    /// Its source rests until somebody wants it.
    is_idle: bool,
    key_requests: Option<mpsc::Sender<()>>,
    key_asked: Option<Instant>,
    next_picture: u64,
    /// The newest group from its keyframe on, for newcomers.
    group: StoredUnits,
    /// The source's tracks, and the same with the stream's sound.
    source: Option<Arc<Tracks>>,
    tracks: Option<Arc<Tracks>>,
    /// When its first picture came, its first keyframe and its newest picture.
    first: Option<Instant>,
    has_key: bool,
    newest: Option<Instant>,
    /// The difference from the source's times to the stream's.
    offset_ns: i64,
    /// Its times are those of the stream.
    shares_clock: bool,
    /// The time of its newest keyframe, and when that came.
    clock: Option<(i64, Instant)>,
}

impl Rendition {
    fn new(index: usize, name: &str) -> Self {
        Self {
            name: name.to_owned(),
            origin: None,
            is_configured: false,
            is_offered: false,
            refused: None,
            is_present: false,
            is_idle: false,
            key_requests: None,
            key_asked: None,
            next_picture: ((index as u64) << RENDITION_BITS) + 1,
            group: Vec::new(),
            source: None,
            tracks: None,
            first: None,
            has_key: false,
            newest: None,
            offset_ns: 0,
            shares_clock: false,
            clock: None,
        }
    }

    /// Size of its picture in samples, as far as that is known.
    pub(super) fn size(&self) -> Option<(u32, u32)> {
        let video = self.source.as_ref()?.video.as_ref()?;
        Some((video.width, video.height))
    }
}

impl Default for Renditions {
    fn default() -> Self {
        Self {
            all: vec![Rendition::new(0, MAIN)],
            sound_of: None,
            audio: None,
            last_sound: None,
            sound: Vec::new(),
        }
    }
}

impl Renditions {
    pub(super) fn all(&self) -> &[Rendition] {
        &self.all
    }

    fn is_several(&self) -> bool {
        self.all.len() > 1
    }

    /// The index of the rendition of this name, if there has been one.
    pub(super) fn find(&self, name: &str) -> Option<usize> {
        self.all.iter().position(|rendition| rendition.name == name)
    }

    /// The first that has pictures now, whose clock and tracks stand for the stream.
    pub(super) fn reference(&self) -> usize {
        self.all.iter().position(|rendition| rendition.is_present).unwrap_or(0)
    }

    /// The first rendition with a source; `None` if nobody publishes.
    pub(super) fn origin(&self) -> Option<&str> {
        self.all.iter().find_map(|rendition| rendition.origin.as_deref())
    }

    /// Gives the rendition of this name to a source.
    pub(super) fn publish(
        &mut self,
        name: &str,
        origin: &str,
        key_requests: Option<mpsc::Sender<()>>,
    ) -> Result<usize, HubError> {
        let index = match self.find(name) {
            Some(index) => index,
            None => self.add(name)?,
        };
        let rendition = &mut self.all[index];
        if rendition.origin.is_some() {
            return Err(HubError::Busy(name.to_owned()));
        }
        rendition.origin = Some(origin.to_owned());
        rendition.key_requests = key_requests;
        rendition.refused = None;
        (rendition.first, rendition.has_key, rendition.shares_clock) = (None, false, false);
        rendition.is_idle = false;
        Ok(index)
    }

    /// The times of this rendition are those of the stream already.
    pub(super) fn share_clock(&mut self, index: usize) {
        self.all[index].shares_clock = true;
    }

    /// The source of this rendition rests until somebody wants it, or begins again.
    pub(super) fn set_idle(&mut self, index: usize, is_idle: bool, now: Instant) {
        let Some(rendition) = self.all.get_mut(index) else { return };
        rendition.is_idle = is_idle;
        if !is_idle {
            rendition.newest = Some(now);
        }
    }

    /// The difference from this source's times to the stream's.
    pub(super) fn offset_ns(&self, index: usize) -> i64 {
        self.all.get(index).map_or(0, |rendition| rendition.offset_ns)
    }

    /// Keeps a place for a rendition, whether or not it is published.
    pub(super) fn expect(&mut self, name: &str) -> Result<(), HubError> {
        let index = self.find(name).map_or_else(|| self.add(name), Ok)?;
        self.all[index].is_configured = true;
        Ok(())
    }

    /// Keeps places for no other renditions any more.
    pub(super) fn expect_only<'a>(
        &mut self,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Result<(), HubError> {
        self.all.iter_mut().for_each(|rendition| rendition.is_configured = false);
        names.into_iter().try_for_each(|name| self.expect(name))
    }

    /// Keeps places for what a source can deliver on demand, and for nothing that it could before.
    #[cfg(feature = "moq")]
    pub(super) fn offer(&mut self, names: &[String]) -> Result<(), HubError> {
        // Names that stay keep their places, whatever their order.
        self.all.iter_mut().for_each(|rendition| rendition.is_offered = names.contains(&rendition.name));
        names.iter().filter(|name| self.find(name).is_none()).collect::<Vec<_>>().into_iter().try_for_each(
            |name| {
                let index = self.add(name)?;
                self.all[index].is_offered = true;
                Ok(())
            },
        )
    }

    fn add(&mut self, name: &str) -> Result<usize, HubError> {
        check_rendition_name(name)?;
        // One that is gone makes room, unless its place is kept; the numbers of its place go on.
        let unused = |rendition: &Rendition| {
            let is_kept = rendition.is_configured || rendition.is_offered;
            rendition.origin.is_none() && rendition.name != MAIN && !is_kept
        };
        if self.all.len() < MAX_RENDITIONS {
            self.all.push(Rendition::new(self.all.len(), name));
            return Ok(self.all.len() - 1);
        }
        let names = || self.all.iter().map(|rendition| rendition.name.clone()).collect();
        let place = self.all.iter().position(unused);
        let index = place.ok_or_else(|| HubError::TooManyRenditions(names()))?;
        name.clone_into(&mut self.all[index].name);
        Ok(index)
    }

    /// The source of this rendition is gone.
    pub(super) fn leave(&mut self, index: usize) -> Option<Arc<Tracks>> {
        let rendition = &mut self.all[index];
        (rendition.origin, rendition.key_requests) = (None, None);
        rendition.group.clear();
        if !self.is_several() {
            return None;
        }
        self.all[index].source = None;
        if self.sound_of == Some(index) {
            self.sound_of = self.all.iter().position(|other| other.has_sound());
            if let Some(other) = self.sound_of {
                self.audio = self.all[other].source.as_ref().and_then(|source| source.audio.clone());
            }
        }
        self.join_tracks()
    }

    /// The source of this rendition says what it has. The result is what the stream has.
    pub(super) fn declare(&mut self, stream: &str, index: usize, tracks: Arc<Tracks>) -> Option<Arc<Tracks>> {
        let refused = self.conflict(index, &tracks);
        if let Some(why) = &refused {
            tracing::warn!(stream, rendition = self.all[index].name, "{why}; it is left out");
        }
        self.all[index].refused = refused;
        self.all[index].source = self.all[index].refused.is_none().then(|| Arc::clone(&tracks));
        if index == 0 {
            self.refuse_others(stream, &tracks);
        }
        let is_free = self.sound_of.is_none_or(|at| at == index || !self.all[at].has_sound());
        if self.all[index].has_sound() && is_free {
            (self.sound_of, self.audio) = (Some(index), tracks.audio.clone());
        } else if tracks.audio.is_some() && tracks.audio != self.audio {
            let name = &self.all[index].name;
            tracing::warn!(
                stream,
                rendition = name,
                "its sound is not coded as the stream's and is not used"
            );
        }
        self.join_tracks()
    }

    /// Why the stream cannot have these tracks as a rendition.
    fn conflict(&self, index: usize, tracks: &Tracks) -> Option<String> {
        let others = self.all.iter().enumerate().filter(|&(at, _)| at != index);
        // The stream's own name has precedence.
        let first = others.filter_map(|(_, other)| other.codec()).next().filter(|_| index > 0)?;
        match tracks.video.as_ref().map(|video| &video.codec) {
            None => Some("it has no pictures".to_owned()),
            Some(codec) if discriminant(codec) != discriminant(first) => {
                Some(format!("it is {} where the stream is {}", codec_name(codec), codec_name(first)))
            }
            Some(_) => None,
        }
    }

    /// Leaves out what does not go with the tracks that are published under the stream's own name.
    fn refuse_others(&mut self, stream: &str, tracks: &Tracks) {
        let Some(video) = &tracks.video else { return };
        for other in &mut self.all[1..] {
            let Some(codec) =
                other.codec().filter(|codec| discriminant(*codec) != discriminant(&video.codec))
            else {
                continue;
            };
            let why = format!("it is {} where the stream is {}", codec_name(codec), codec_name(&video.codec));
            tracing::warn!(stream, rendition = other.name, "{why}; it is left out");
            (other.refused, other.source) = (Some(why), None);
        }
    }

    /// Gives each rendition the stream's sound; the result is what the stream has.
    fn join_tracks(&mut self) -> Option<Arc<Tracks>> {
        let several = self.all.iter().filter(|rendition| rendition.source.is_some()).count() > 1;
        let first = self.all.iter().find_map(|rendition| rendition.source.as_ref()?.video.clone());
        for rendition in &mut self.all {
            let Some(source) = &rendition.source else { continue };
            let joined = Tracks { video: source.video.clone().or(first.clone()), audio: self.audio.clone() };
            if !several || **source == joined {
                rendition.tracks = Some(Arc::clone(source));
            } else if rendition.tracks.as_deref() != Some(&joined) {
                rendition.tracks = Some(Arc::new(joined));
            }
        }
        let current = |rendition: &Rendition| rendition.source.as_ref().and(rendition.tracks.clone());
        let with_pictures = |tracks: &Arc<Tracks>| tracks.video.is_some();
        self.all.iter().filter_map(current).find(with_pictures).or_else(|| self.all.iter().find_map(current))
    }

    /// Makes a unit of the stream of one of the source's; false if the stream does not take it.
    pub(super) fn take(&mut self, index: usize, unit: &mut Unit, now: Instant) -> bool {
        let key = unit.head.key && unit.head.kind == Kind::Video;
        let rendition = &mut self.all[index];
        if rendition.refused.is_some() {
            return false;
        }
        let is_first = key && !rendition.has_key;
        if unit.head.kind == Kind::Video {
            rendition.first.get_or_insert(now);
            rendition.newest = Some(now);
            rendition.has_key |= key;
        }
        if !self.is_several() {
            if key {
                self.all[index].clock = Some((unit.head.dts.as_nanos(), now));
            }
            return true;
        }
        // Where its times belong is known with its first keyframe.
        let has_pictures = self.all[index].source.as_ref().is_some_and(|source| source.video.is_some());
        if has_pictures && !self.all[index].has_key {
            return false;
        }
        if let Some(tracks) = &self.all[index].tracks {
            unit.head.tracks = Arc::clone(tracks);
        }
        if key {
            self.join_clock(index, unit.head.dts.as_nanos(), is_first, now);
        }
        let offset = self.all[index].offset_ns;
        let moved = |time: MediaTime| MediaTime::from_nanos(time.as_nanos().saturating_add(offset));
        (unit.head.pts, unit.head.dts) = (moved(unit.head.pts), moved(unit.head.dts));
        unit.head.kind == Kind::Video || self.takes_sound(index, unit, now)
    }

    /// Sound comes from one rendition as long as that has it.
    fn takes_sound(&mut self, index: usize, unit: &Unit, now: Instant) -> bool {
        let is_silent = self.last_sound.is_some_and(|(_, at)| now.duration_since(at) > SILENT);
        let is_same = self.all[index].source.as_ref().is_some_and(|source| source.audio == self.audio);
        if self.sound_of != Some(index) && is_silent && is_same {
            self.sound_of = Some(index);
        }
        // No sound is heard twice.
        let overlap =
            self.last_sound.map_or(0, |(last, _)| last.as_nanos().saturating_sub(unit.head.pts.as_nanos()));
        let is_new = !(0..HEARD_NS).contains(&overlap) || self.last_sound.is_none();
        if self.sound_of == Some(index) && is_new {
            self.last_sound = Some((unit.head.pts, now));
            return true;
        }
        false
    }

    /// Brings the source's times to those of the other renditions, or of those before. Its keyframe has the time `own`.
    fn join_clock(&mut self, index: usize, own: i64, is_first: bool, now: Instant) {
        let others = self.all.iter().enumerate().filter(|&(at, other)| at != index && other.is_present);
        let of_others = others.filter_map(|(_, other)| other.clock).next();
        let before = || {
            let clocks = self.all.iter().filter_map(|rendition| rendition.clock);
            clocks.max_by_key(|(_, at)| *at).filter(|_| is_first)
        };
        let expected = of_others.or_else(before).map(|(media, at)| {
            media.saturating_add(i64::try_from(now.duration_since(at).as_nanos()).unwrap_or(i64::MAX))
        });
        let rendition = &mut self.all[index];
        let most = if is_first { JOINED_NS } else { APART_NS };
        if rendition.shares_clock {
            rendition.offset_ns = 0;
        } else if let Some(expected) = expected
            && own.saturating_add(rendition.offset_ns).abs_diff(expected) > most
        {
            rendition.offset_ns = expected.saturating_sub(own);
        }
        rendition.clock = Some((own.saturating_add(rendition.offset_ns), now));
    }

    /// Which renditions have come or gone since the last look.
    pub(super) fn changes(&mut self, stream: &str, now: Instant) -> Vec<(usize, bool)> {
        let is_several = self.is_several();
        let mut changes = Vec::new();
        for (index, rendition) in self.all.iter_mut().enumerate() {
            let is_stalled = rendition.newest.is_none_or(|at| now.duration_since(at) > STALLED);
            let is_served = rendition.origin.is_some() && rendition.refused.is_none() && rendition.has_key;
            let is_present = is_served && (rendition.is_idle || !(is_stalled && is_several));
            if is_present != rendition.is_present {
                rendition.is_present = is_present;
                changes.push((index, is_present));
                if is_several {
                    tracing::info!(stream, rendition = rendition.name, is_present, "a rendition has changed");
                }
            }
            let waits = rendition.first.filter(|_| !rendition.has_key && rendition.refused.is_none());
            if is_several && waits.is_some_and(|at| now.duration_since(at) > KEYLESS) {
                let why = format!("it had no keyframe in {} s", KEYLESS.as_secs());
                tracing::warn!(stream, rendition = rendition.name, "{why}; it is left out");
                rendition.refused = Some(why);
            }
        }
        changes
    }

    /// The number of the next picture, of which `count` are taken.
    pub(super) fn number(&mut self, index: usize, count: u64) -> u64 {
        let next = &mut self.all[index].next_picture;
        *next += count;
        *next - count
    }

    /// A group begins: the one before is not kept any more.
    pub(super) fn begin_group(&mut self, index: usize) {
        self.all[index].group.clear();
        let oldest = self.all.iter().filter_map(|rendition| rendition.group.first());
        let oldest = oldest.map(|(first, _)| first.published).min();
        self.sound.retain(|(offer, _)| oldest.is_some_and(|oldest| offer.published >= oldest));
    }

    /// Keeps the unit for newcomers, as long as its group is young enough.
    pub(super) fn remember(&mut self, index: usize, offer: UnitInfo, stored: Stored) {
        for group in self.all.iter_mut().map(|rendition| &mut rendition.group) {
            let age = |(first, _): &(UnitInfo, Stored)| offer.published.saturating_since(first.published);
            let is_old = group.first().map(age).is_some_and(|age| age > MAX_JOIN_AGE);
            if is_old || group.len() >= GROUP_UNITS {
                group.clear();
            }
        }
        let is_kept = self.all.iter().any(|rendition| !rendition.group.is_empty());
        let group = &mut self.all[index].group;
        if offer.kind == Kind::Audio && !offer.begins {
            if is_kept && self.sound.len() < GROUP_UNITS {
                self.sound.push((offer, stored));
            }
        } else if offer.begins || !group.is_empty() {
            group.push((offer, stored));
        }
    }

    /// The kept units of a rendition's newest group, with the sound since then, oldest first.
    pub(super) fn group(&self, index: usize) -> Vec<&(UnitInfo, Stored)> {
        let Some(group) = self.all.get(index).map(|rendition| &rendition.group) else { return Vec::new() };
        let Some((first, _)) = group.first() else { return Vec::new() };
        let sound = self.sound.iter().filter(|(offer, _)| offer.published >= first.published);
        let mut all: Vec<_> = group.iter().chain(sound).collect();
        all.sort_by_key(|(offer, _)| offer.published);
        all
    }

    /// Forgets the groups that are kept for newcomers.
    pub(super) fn forget_groups(&mut self) {
        self.all.iter_mut().for_each(|rendition| rendition.group.clear());
        self.sound.clear();
    }

    /// Asks the source of this rendition for a keyframe, if it can be asked.
    pub(super) fn ask_for_key(&mut self, index: usize) {
        let Some(rendition) = self.all.get_mut(index) else { return };
        let Some(requests) = &rendition.key_requests else { return };
        if rendition.key_asked.is_none_or(|at| at.elapsed() >= KEY_REQUESTS) {
            rendition.key_asked = Some(Instant::now());
            // A full channel holds a request already.
            let _ = requests.try_send(());
        }
    }
}

impl Rendition {
    /// What it has, with the stream's sound.
    #[cfg(feature = "moq")]
    pub(super) fn tracks(&self) -> Option<Arc<Tracks>> {
        self.source.as_ref().and(self.tracks.clone())
    }

    fn codec(&self) -> Option<&VideoCodec> {
        Some(&self.source.as_ref()?.video.as_ref()?.codec)
    }

    fn has_sound(&self) -> bool {
        self.origin.is_some() && self.source.as_ref().is_some_and(|source| source.audio.is_some())
    }
}

fn codec_name(codec: &VideoCodec) -> &'static str {
    match codec {
        VideoCodec::H264 { .. } => "H.264",
        VideoCodec::H265 { .. } => "H.265",
        VideoCodec::Av1 { .. } => "AV1",
        VideoCodec::Vp9 { .. } => "VP9",
        _ => "of another codec",
    }
}

#[cfg(test)]
mod tests;

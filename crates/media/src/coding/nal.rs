//! Units of live streams of NAL units: what H.264 and H.265 have in common.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use super::coded::Coded;
use super::sets::trimmed;
use super::split::{Assemble, Headers};
use crate::unit::{Repeat, Repeatable, VideoTrack};

/// What differs between the codecs.
pub(crate) trait Codec: Default {
    /// Reads its headers.
    type Headers: Headers;

    fn headers(&mut self) -> &mut Self::Headers;

    /// What becomes of a NAL unit with this header.
    fn role(header: [u8; 2]) -> NalRole;

    /// Decoding can begin at this picture.
    fn is_key(&self, picture: &Picture<Self>) -> bool;

    /// The next picture that is followed is a key, and nothing after it can refer to anything before.
    fn lost(&mut self);

    /// The next picture in decoding order.
    fn follow(&mut self, picture: &Picture<Self>) -> Followed;

    /// The parameter sets that the picture's unit begins with.
    fn collect_sets(&mut self, picture: &Picture<Self>, key: bool) -> Vec<Vec<u8>>;

    /// The track that begins or goes on at this key picture.
    fn track(&self, picture: &Picture<Self>) -> Option<VideoTrack>;

    /// What the stream says about its pictures.
    fn properties(&self, picture: &Picture<Self>) -> Properties;

    /// The place of this picture, which was followed just now, for a repetition of the one before; `None` if that is not done.
    fn repeat(&mut self, picture: &Picture<Self>) -> Option<Arc<dyn Repeatable>>;
}

type Picture<C> = <<C as Codec>::Headers as Headers>::Picture;

/// What becomes of a NAL unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NalRole {
    /// It stays in its unit.
    Keep,
    /// It is left out.
    Leave,
    /// It is left out, and the unit begins with the parameter sets that are needed.
    ParameterSet,
}

/// Where a picture belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Followed {
    Placed(Place),
    /// No decoder that began where this one began shows it.
    Undecodable,
    /// A picture that it depends on is missing.
    Damaged,
}

/// A picture's place among the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) key: bool,
    pub(crate) layer: u8,
    pub(crate) group: u32,
    pub(crate) refs: [u32; 2],
    pub(crate) display: i64,
}

/// What the sequence's parameters say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Properties {
    pub(crate) reorder: Option<u8>,
    pub(crate) frame_ns: Option<u32>,
}

/// Makes units of access units, from each key on for as long as nothing is missing.
#[derive(Clone, Debug)]
pub(crate) struct Live<C> {
    codec: C,
    track: Option<Arc<VideoTrack>>,
    reorder: Reorder,
    pub(crate) gate: Gate,
}

impl<C: Codec> Default for Live<C> {
    fn default() -> Self {
        Self { codec: C::default(), track: None, reorder: Reorder::default(), gate: Gate::default() }
    }
}

impl<C: Codec> Live<C> {
    fn place(&mut self, picture: &Picture<C>) -> Option<Place> {
        if self.gate.is_shut {
            if !self.codec.is_key(picture) {
                self.gate.dropped += 1;
                return None;
            }
            self.codec.lost();
        }
        let followed = self.codec.follow(picture);
        self.gate.is_shut = followed == Followed::Damaged;
        match followed {
            Followed::Placed(place) => Some(place),
            Followed::Undecodable | Followed::Damaged => {
                self.gate.dropped += 1;
                None
            }
        }
    }
}

impl<C: Codec> Assemble for Live<C> {
    type Headers = C::Headers;
    type Unit = Coded;

    fn headers(&mut self) -> &mut C::Headers {
        self.codec.headers()
    }

    fn unit(&mut self, source: &[u8], ranges: Vec<Range<usize>>, picture: Picture<C>) -> Option<Coded> {
        let place = self.place(&picture)?;
        if place.key {
            let track = self.codec.track(&picture)?;
            if self.track.as_deref() != Some(&track) {
                self.track = Some(Arc::new(track));
                self.reorder = Reorder::default();
            }
        }
        let track = Arc::clone(self.track.as_ref()?);
        let mut bytes = Vec::with_capacity(source.len() + 256);
        let mut nals = Vec::with_capacity(ranges.len() + 3);
        let sets = self.codec.collect_sets(&picture, place.key);
        let own = ranges.into_iter().filter_map(|range| source.get(range)).filter(|nal| {
            let header = [0, 1].map(|at| nal.get(at).copied().unwrap_or_default());
            C::role(header) == NalRole::Keep
        });
        for nal in sets.iter().map(Vec::as_slice).chain(own.map(trimmed)) {
            bytes.extend_from_slice(&[0, 0, 0, 1]);
            let begin = bytes.len();
            bytes.extend_from_slice(nal);
            nals.push(u32::try_from(begin).ok()?..u32::try_from(bytes.len()).ok()?);
        }
        let properties = self.codec.properties(&picture);
        let seen = self.reorder.next(place.display);
        let repeat = self.codec.repeat(&picture).map(|found| Repeat::new(found, place.layer));
        Some(Coded {
            bytes,
            nals,
            key: place.key,
            layer: place.layer,
            group: place.group,
            refs: place.refs,
            display: place.display,
            track,
            reorder: properties.reorder.unwrap_or(seen),
            frame_ns: properties.frame_ns,
            repeat,
        })
    }

    fn lost(&mut self) {
        self.gate.lose();
    }
}

/// Lets units pass from a key on until something is missing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gate {
    pub(crate) is_shut: bool,
    pub(crate) dropped: u64,
}

impl Default for Gate {
    fn default() -> Self {
        Self { is_shut: true, dropped: 0 }
    }
}

impl Gate {
    /// Something that cannot be read was left out.
    pub(crate) fn lose(&mut self) {
        self.is_shut = true;
        self.dropped += 1;
    }
}

/// Learns how many pictures come before one that is shown before them.
#[derive(Clone, Debug, Default)]
struct Reorder {
    shown: VecDeque<i64>,
    most: u8,
}

impl Reorder {
    fn next(&mut self, display: i64) -> u8 {
        let later = self.shown.iter().filter(|&&before| before > display).count();
        self.most = self.most.max(later as u8);
        if self.shown.len() == MOST_REORDERED {
            self.shown.pop_front();
        }
        self.shown.push_back(display);
        self.most
    }
}

/// No level allows more: `max_num_reorder_frames` of H.264 and H.265.
const MOST_REORDERED: usize = 16;

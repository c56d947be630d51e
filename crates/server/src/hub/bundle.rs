//! Sound that is published shortly one after another shares a record. There are two frames of it to each picture, and a record
//! takes a slot of each viewer's ring, and work for each viewer, however small it is.

use std::sync::Arc;
use std::time::Duration;

use freshwire::fanout::prefetch;
use freshwire::now;
use freshwire_media::framing::{Framer, Piece};
use freshwire_media::unit::{Catalog, FIRST_SOUND, LANE_BITS, Unit};
use freshwire_record::Timestamp;

/// The most sound of a record: three frames of AAC at 48 kHz, and so the longest that one waits for a picture or for others.
const MOST_SOUND: Duration = Duration::from_millis(65);

/// The most frames of a record, however short a source says that they are.
const MOST_FRAMES: usize = 8;

/// Sound that waits for more.
#[derive(Default)]
pub(super) struct PendingBundle {
    units: Vec<Unit>,
    since: Timestamp,
}

impl PendingBundle {
    /// Adds a frame; false if there is no room for another one of its length.
    pub(super) fn add(&mut self, unit: Unit) -> bool {
        let frame = u64::from(unit.head.duration_ns);
        if self.units.is_empty() {
            self.since = now();
        }
        self.units.push(unit);
        let waiting: u64 = self.units.iter().map(|unit| u64::from(unit.head.duration_ns)).sum();
        self.units.len() < MOST_FRAMES && waiting + frame <= MOST_SOUND.as_nanos() as u64
    }

    /// What waits, and since when.
    pub(super) fn take(&mut self) -> Option<(Vec<Unit>, Timestamp)> {
        (!self.units.is_empty()).then(|| (std::mem::take(&mut self.units), self.since))
    }
}

/// A framing of units for records with several of them: the catalog has each under a number of its own, the first one's is the
/// record's.
pub(super) struct Unbundler {
    framer: Box<dyn Framer>,
    catalog: Arc<Catalog>,
    /// Where in its record the begun unit is; `None` for one that has a record to itself.
    place: Option<Place>,
}

struct Place {
    /// Number of the unit behind it.
    next: u64,
    begin: u32,
    end: u32,
    /// Bytes of the record.
    len: u32,
}

impl Unbundler {
    pub(super) fn new(framer: Box<dyn Framer>, catalog: Arc<Catalog>) -> Self {
        Self { framer, catalog, place: None }
    }

    /// Begins the unit at `begin` of a record of `len` bytes. False: it has none there.
    fn begin_at(&mut self, seq: u64, begin: u32, len: u32) -> bool {
        let unit = self.catalog.find(seq).map_or(0, |head| head.len);
        let end = begin.saturating_add(unit);
        let is_there = begin < end && end <= len;
        if is_there {
            self.framer.begin(seq, unit);
            self.place = Some(Place { next: seq + 1, begin, end, len });
        }
        is_there
    }
}

impl Framer for Unbundler {
    fn preamble(&mut self, out: &mut Vec<u8>) {
        self.framer.preamble(out);
    }

    fn begin(&mut self, seq: u64, len: u32) {
        self.place = None;
        if seq < FIRST_SOUND {
            self.catalog.begin_picture(seq);
        }
        if seq < FIRST_SOUND || !self.begin_at(seq, 0, len) {
            self.framer.begin(seq, len);
        }
    }

    fn next(&mut self, max: usize, prefix: &mut Vec<u8>) -> Option<Piece> {
        let mut piece = self.framer.next(max, prefix)?;
        let Some(Place { next, begin, end, len }) = self.place else { return Some(piece) };
        piece.payload = piece.payload.start + begin..piece.payload.end + begin;
        if piece.last {
            self.place = None;
            piece.last = !self.begin_at(next, end, len);
        }
        Some(piece)
    }

    fn prefetch(&self) {
        prefetch(&*self.framer);
    }

    fn missed(&mut self, seq: u64) {
        // A picture of a rendition that the viewer does not get leaves no gap.
        if seq >= FIRST_SOUND || self.catalog.lane().is_none_or(|lane| lane == seq >> LANE_BITS) {
            self.framer.missed(seq);
        }
    }

    fn replace(&mut self, out: &mut Vec<u8>) -> usize {
        self.framer.replace(out)
    }

    fn can_be_overtaken(&self) -> bool {
        self.framer.can_be_overtaken()
    }

    fn can_overtake(&self, seq: u64) -> bool {
        self.framer.can_overtake(seq)
    }

    fn can_abandon(&self) -> bool {
        self.framer.can_abandon()
    }

    fn abandon(&mut self, prefix: &mut Vec<u8>) {
        self.place = None;
        self.framer.abandon(prefix);
    }
}

#[cfg(test)]
mod tests {
    use freshwire_media::unit::{Kind, MediaTime, UnitHead};

    use super::*;

    /// How many frames of this length go into a record.
    fn frames(duration_ns: u32) -> usize {
        let mut waiting = PendingBundle::default();
        let unit = || {
            let head = UnitHead {
                kind: Kind::Audio,
                pts: MediaTime::default(),
                dts: MediaTime::default(),
                duration_ns,
                key: true,
                len: 1,
                nals: Vec::new(),
                nal_headers: Vec::new(),
                repeat: None,
                tracks: Arc::default(),
            };
            Unit { head, layer: 0, group: 0, refs: [0; 2], bytes: vec![0] }
        };
        while waiting.add(unit()) {}
        waiting.take().map_or(0, |(units, _)| units.len())
    }

    #[test]
    fn a_record_has_sound_of_a_bounded_time_and_number() {
        assert_eq!([21_333_333, 23_219_955, 20_000_000, 60_000_000].map(frames), [3, 2, 3, 1]);
        assert_eq!([1, u32::MAX].map(frames), [MOST_FRAMES, 1]);
    }
}

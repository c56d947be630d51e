use std::sync::Arc;

use freshwire::fanout::prefetch;
use freshwire_media::framing::{Framer, Piece};
use freshwire_media::unit::{Catalog, FIRST_SOUND, LANE_BITS};

/// A framing of units for records with several of them: the catalog has each under a number of its own, the first one's is the
/// record's.
pub(super) struct Unbundler {
    framer: Box<dyn Framer>,
    catalog: Arc<Catalog>,
    /// Where in its record the unit in progress is; `None` for one that has a record to itself.
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

//! The common part of the framings of containers: the units that a viewer can use, and the unit in progress.

use std::sync::Arc;

use super::Piece;
use crate::unit::{Catalog, Kind, MediaTime, UnitHead};
use crate::video::repeater::{Repeater, Repetition};

/// Finds the units that a viewer can use: key units, and others while nothing that they need was skipped. Knows which pictures take the
/// places of those that are not sent.
#[derive(Debug)]
pub(super) struct Units {
    catalog: Arc<Catalog>,
    decodable: bool,
    repeater: Repeater,
}

impl Units {
    pub(super) fn new(catalog: Arc<Catalog>) -> Self {
        Self { catalog, decodable: false, repeater: Repeater::default() }
    }

    /// The unit with this number and length; `None` if it has to be skipped. It counts as skipped until it is
    /// [`accepted`](Self::accept).
    pub(super) fn find(&mut self, seq: u64, len: u32) -> Option<Arc<UnitHead>> {
        let Some(head) = self.catalog.find(seq).filter(|head| head.len == len) else {
            self.decodable = false;
            return None;
        };
        if head.kind == Kind::Video {
            let decodable = std::mem::replace(&mut self.decodable, false);
            if (!head.key && !decodable) || !self.repeater.allows(&head) {
                return None;
            }
        }
        Some(head)
    }

    /// The unit with this number, if it is of this track.
    pub(super) fn of(&self, kind: Kind, seq: u64) -> Option<Arc<UnitHead>> {
        self.catalog.find(seq).filter(|head| head.kind == kind)
    }

    /// The unit that was found last will be sent.
    pub(super) fn accept(&mut self, head: &UnitHead) {
        if head.kind == Kind::Video {
            self.decodable = true;
            self.repeater.sent(head);
        }
    }

    /// The unit with this number is not sent.
    pub(super) fn missed(&mut self, seq: u64) {
        if let Some(head) = self.of(Kind::Video, seq) {
            self.repeater.missed(head);
        }
    }

    /// What goes now in the places of pictures that were not sent.
    pub(super) fn repetitions(&mut self) -> Vec<Repetition> {
        self.repeater.repetitions()
    }
}

/// The media time that is zero in a stream that begins with this unit. Units before it in time may come after it.
pub(super) fn origin(first: &UnitHead) -> MediaTime {
    const LEAD_NS: i64 = 1_000_000_000;
    MediaTime::from_nanos(first.dts.as_nanos().saturating_sub(LEAD_NS))
}

/// The unit in progress, and the one that it overtook.
#[derive(Debug)]
pub(super) struct OpenUnits<T> {
    state: State<T>,
    overtaken: Option<T>,
}

#[derive(Debug)]
enum State<T> {
    Idle,
    /// It makes one piece without bytes.
    Skip,
    Open(T),
}

impl<T> Default for OpenUnits<T> {
    fn default() -> Self {
        Self { state: State::Idle, overtaken: None }
    }
}

impl<T> OpenUnits<T> {
    /// Starts a unit, or skips it if it could not be opened. A unit that is open already waits for its end.
    pub(super) fn begin(&mut self, open: Option<T>) {
        let state = open.map_or(State::Skip, State::Open);
        if let State::Open(overtaken) = std::mem::replace(&mut self.state, state) {
            self.overtaken = Some(overtaken);
        }
    }

    /// The open unit, if it has overtaken none: a second one may start, and no third.
    pub(super) fn alone(&self) -> Option<&T> {
        match &self.state {
            State::Open(open) if self.overtaken.is_none() => Some(open),
            _ => None,
        }
    }

    /// The next piece, which `piece` makes of an open unit.
    pub(super) fn next(&mut self, piece: impl FnOnce(&mut T) -> Option<Piece>) -> Option<Piece> {
        let piece = match &mut self.state {
            State::Idle => return None,
            State::Skip => Piece { payload: 0..0, last: true, boundary: true },
            State::Open(open) => piece(open)?,
        };
        if piece.last {
            self.state = self.overtaken.take().map_or(State::Idle, State::Open);
        }
        Some(piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sound_does_not_make_pictures_decodable() {
        let catalog = Arc::new(Catalog::new(8));
        let kinds = [(Kind::Video, true), (Kind::Video, false), (Kind::Audio, true), (Kind::Video, false)];
        for ((kind, key), seq) in kinds.into_iter().zip(0..) {
            let head = UnitHead {
                kind,
                pts: MediaTime::default(),
                dts: MediaTime::default(),
                duration_ns: 1,
                key,
                len: 9,
                nals: Vec::new(),
                nal_headers: Vec::new(),
                repeat: None,
                tracks: Arc::default(),
            };
            catalog.add(seq, Arc::new(head));
        }
        let mut units = Units::new(catalog);
        let mut is_sent = |seq| units.find(seq, 9).map(|head| units.accept(&head)).is_some();
        assert_eq!([1, 2, 3].map(&mut is_sent), [false, true, false]);
        assert_eq!([0, 1, 2, 3].map(&mut is_sent), [true; 4]);
        assert!(units.find(0, 8).is_none(), "another length is another unit");
    }
}

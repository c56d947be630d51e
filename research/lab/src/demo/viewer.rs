//! An ordinary player's view of a byte stream: which access units arrived whole, which of them can be decoded, and
//! when each frame is displayed.
//!
//! ```text
//!  bytes ─► whole units, equal to what was sent ─► references there? ─► display order ─► on screen
//!           anything else is torn                  else undecodable     (reorder depth)
//! ```
//!
//! The player is a live one: it decodes a unit when its last byte is there. Like ffmpeg, it holds back as many frames
//! as the stream may be reordered by, and shows a frame as soon as its turn has come.

use std::collections::BTreeSet;
use std::sync::Arc;

use freshwire_record::Timestamp;
use serde::{Deserialize, Serialize};

use super::video::Stream;

/// A unit that arrived whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Arrival {
    /// Its number in decoding order.
    pub(super) unit: usize,
    /// When its last byte was read, in nanoseconds since the start of the stream.
    pub(super) at_ns: u64,
}

/// A frame that came on the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Shown {
    /// Its number in display order.
    pub(super) frame: usize,
    /// When, in nanoseconds since the start of the stream.
    pub(super) at_ns: u64,
}

/// Watches one stream. It knows what was sent and believes nothing else.
#[derive(Clone, Debug)]
pub(super) struct Viewer {
    stream: Arc<Stream>,
    start: Timestamp,
    buffer: Vec<u8>,
    /// The unit that the buffer may begin with; all before it are decided.
    candidate: usize,
    in_step: bool,
    decoded: Vec<bool>,
    held: BTreeSet<usize>,
    pub(super) arrivals: Vec<Arrival>,
    pub(super) shown: Vec<Shown>,
    /// Places where the bytes were not those of any unit that could follow.
    pub(super) torn: u64,
    /// Whole units that came without what they depend on.
    pub(super) undecodable: u64,
    pub(super) bytes: u64,
}

impl Viewer {
    /// Watches `stream`, whose first frame is captured at `start`.
    pub(super) fn new(stream: Arc<Stream>, start: Timestamp) -> Self {
        Self {
            decoded: vec![false; stream.units.len()],
            stream,
            start,
            buffer: Vec::new(),
            candidate: 0,
            in_step: true,
            held: BTreeSet::new(),
            arrivals: Vec::new(),
            shown: Vec::new(),
            torn: 0,
            undecodable: 0,
            bytes: 0,
        }
    }

    /// Takes the next bytes, which were read at `now`.
    pub(super) fn push(&mut self, now: Timestamp, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        self.buffer.extend_from_slice(bytes);
        while !self.buffer.is_empty() {
            match self.next_unit() {
                UnitMatch::Whole(unit) => {
                    self.buffer.drain(..self.stream.units[unit].bytes.len());
                    self.candidate = unit + 1;
                    self.in_step = true;
                    self.arrived(unit, now);
                }
                UnitMatch::More => return,
                UnitMatch::Torn => {
                    self.torn += u64::from(self.in_step);
                    self.in_step = false;
                    self.buffer.drain(..1);
                    self.buffer.drain(..begin_of_unit(&self.buffer));
                    self.candidate = self.arrivals.last().map_or(0, |last| last.unit + 1);
                }
            }
        }
    }

    /// Tells that the stream has ended; `orderly` if the sender closed it at its own will. The rest is then
    /// torn; otherwise the end cut it. Returns how many bytes were left over.
    pub(super) fn finish(&mut self, orderly: bool) -> usize {
        if orderly && self.in_step && !self.buffer.is_empty() {
            self.torn += 1;
        }
        self.buffer.len()
    }

    /// The unit that the buffer begins with: the first that may follow and that all bytes at hand agree with.
    fn next_unit(&mut self) -> UnitMatch {
        while let Some(unit) = self.stream.units.get(self.candidate) {
            if self.buffer.starts_with(&unit.bytes) {
                return UnitMatch::Whole(self.candidate);
            }
            if unit.bytes.starts_with(&self.buffer) {
                return UnitMatch::More;
            }
            self.candidate += 1;
        }
        UnitMatch::Torn
    }

    fn arrived(&mut self, at: usize, now: Timestamp) {
        let at_ns = now.saturating_since(self.start).as_nanos() as u64;
        self.arrivals.push(Arrival { unit: at, at_ns });
        let unit = &self.stream.units[at];
        let there = |&distance: &u32| {
            distance == 0
                || at.checked_sub(distance as usize).is_some_and(|reference| self.decoded[reference])
        };
        if !unit.refs.iter().all(there) {
            self.undecodable += 1;
            return;
        }
        self.decoded[at] = true;
        self.held.insert(unit.frame);
        while self.held.len() > self.stream.reorder {
            let Some(frame) = self.held.pop_first() else { return };
            // A frame that comes after a later one was shown is not shown any more.
            if self.shown.last().is_none_or(|last| last.frame < frame) {
                self.shown.push(Shown { frame, at_ns });
            }
        }
    }
}

enum UnitMatch {
    /// This unit is whole at the front of the buffer.
    Whole(usize),
    /// The buffer is the beginning of a unit.
    More,
    /// The buffer is neither.
    Torn,
}

/// Where a unit may begin in bytes that lost their step: at a delimiter, or at the part of one with which they end.
fn begin_of_unit(bytes: &[u8]) -> usize {
    let may_begin = |&at: &usize| {
        let rest = &bytes[at..];
        rest.starts_with(&DELIMITER) || DELIMITER.starts_with(rest)
    };
    (0..bytes.len()).find(may_begin).unwrap_or(bytes.len())
}

/// Start code and header of an access unit delimiter, which the encoder puts before every unit.
const DELIMITER: [u8; 5] = [0, 0, 0, 1, 9];

#[cfg(test)]
mod tests;

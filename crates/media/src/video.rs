//! Live video of any format: units with layers and dependencies, whatever codec they are of.
//!
//! ```text
//!  byte stream (H.264, H.265) ─► splitter ─► access units ─┐
//!                                                          ├─► gate ─► dependencies ─► Coded
//!  whole units (AV1, VP9) ─────────────────────────────────┘   from a key on, while nothing is missing
//! ```

pub(crate) mod repeater;

use crate::annex_b::{AnnexBError, DEFAULT_MAX_UNIT_BYTES};
use crate::coding::nal::Live;
use crate::coding::split::Splitter;
use crate::coding::whole::WholeUnits;
pub use crate::coding::{Coded, VideoError};
pub use crate::unit::Repeat;
use crate::{av1, h264, h265, vp9};

/// What a stream is coded as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// H.264, as a byte stream (Annex B).
    H264,
    /// H.265, as a byte stream (Annex B).
    H265,
    /// AV1, as temporal units of OBUs ("low-overhead"). An OBU without size field is the last of its unit.
    Av1,
    /// VP9, as frames or superframes.
    Vp9,
}

/// Makes units of a live stream: push bytes, take units until `None`, push again.
///
/// It begins with the first key unit. Where something is damaged or missing it leaves units out up to the next key unit
/// and counts them ([`dropped`](Self::dropped)). Each unit that it yields can be decoded by who has what its `refs` name.
/// Memory: what was pushed and not yet taken, at most one unit of the limit besides, and the parameter sets.
#[derive(Clone, Debug)]
pub struct Parser {
    inner: Inner,
}

#[derive(Clone, Debug)]
enum Inner {
    H264(Splitter<Live<h264::Live>>),
    H265(Splitter<Live<h265::Live>>),
    Av1(WholeUnits<av1::Live>),
    Vp9(WholeUnits<vp9::Live>),
}

impl Parser {
    /// A parser of `format` that accepts units of up to [`DEFAULT_MAX_UNIT_BYTES`].
    pub fn new(format: Format) -> Self {
        Self::with_limit(format, DEFAULT_MAX_UNIT_BYTES)
    }

    /// A parser of `format` that accepts units of up to `max_unit_bytes`.
    pub fn with_limit(format: Format, max_unit_bytes: usize) -> Self {
        let inner = match format {
            Format::H264 => Inner::H264(Splitter::new(Live::default(), max_unit_bytes)),
            Format::H265 => Inner::H265(Splitter::new(Live::default(), max_unit_bytes)),
            Format::Av1 => Inner::Av1(WholeUnits::new(max_unit_bytes)),
            Format::Vp9 => Inner::Vp9(WholeUnits::new(max_unit_bytes)),
        };
        Self { inner }
    }

    /// Adds bytes. H.264 and H.265: the next ones of the byte stream, cut at any place; a unit is complete once the
    /// next one starts. AV1 and VP9: part of one unit, which is there after [`complete`](Self::complete).
    pub fn push(&mut self, bytes: &[u8]) {
        match &mut self.inner {
            Inner::H264(splitter) => splitter.push(bytes),
            Inner::H265(splitter) => splitter.push(bytes),
            Inner::Av1(units) => units.push(bytes),
            Inner::Vp9(units) => units.push(bytes),
        }
    }

    /// Tells that what was pushed ends with a whole unit. The unit is there at once; headers without a picture stay for
    /// the next one.
    pub fn complete(&mut self) {
        match &mut self.inner {
            Inner::H264(splitter) => splitter.complete(),
            Inner::H265(splitter) => splitter.complete(),
            Inner::Av1(units) => units.complete(),
            Inner::Vp9(units) => units.complete(),
        }
    }

    /// Tells that the stream has ended: the last unit is complete. Take it with `next`.
    pub fn finish(&mut self) {
        self.complete();
    }

    /// Tells that bytes were lost before those that are pushed next. Incomplete units are left out, and so are all
    /// others up to the next key unit.
    pub fn lost(&mut self) {
        match &mut self.inner {
            Inner::H264(splitter) => splitter.lose(),
            Inner::H265(splitter) => splitter.lose(),
            Inner::Av1(units) => units.lose(),
            Inner::Vp9(units) => units.lose(),
        }
    }

    /// Tells that bytes are missing before those that are pushed next: what is not complete is left out. What follows is kept
    /// as far as it shows that it can be decoded.
    pub(crate) fn forget(&mut self) {
        match &mut self.inner {
            Inner::H264(splitter) => splitter.forget(),
            Inner::H265(splitter) => splitter.forget(),
            Inner::Av1(units) => units.lose(),
            Inner::Vp9(units) => units.lose(),
        }
    }

    /// How many bytes had been pushed where the unit begins that was taken last; of H.264 and H.265.
    pub(crate) fn taken_at(&self) -> Option<u64> {
        match &self.inner {
            Inner::H264(splitter) => Some(splitter.taken_at()),
            Inner::H265(splitter) => Some(splitter.taken_at()),
            Inner::Av1(_) | Inner::Vp9(_) => None,
        }
    }

    /// How many units and damaged pieces were left out so far.
    pub fn dropped(&self) -> u64 {
        match &self.inner {
            Inner::H264(splitter) => splitter.assembler.gate.dropped,
            Inner::H265(splitter) => splitter.assembler.gate.dropped,
            Inner::Av1(units) => units.gate.dropped,
            Inner::Vp9(units) => units.gate.dropped,
        }
    }

    fn next_of_stream(&mut self) -> Option<Result<Coded, AnnexBError>> {
        match &mut self.inner {
            Inner::H264(splitter) => splitter.next(),
            Inner::H265(splitter) => splitter.next(),
            Inner::Av1(_) | Inner::Vp9(_) => None,
        }
    }
}

/// Yields `None` when more bytes are needed. An error does not end it.
impl Iterator for Parser {
    type Item = Result<Coded, VideoError>;

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.inner {
            Inner::Av1(units) => return units.next(),
            Inner::Vp9(units) => return units.next(),
            Inner::H264(_) | Inner::H265(_) => {}
        }
        loop {
            match self.next_of_stream()? {
                Ok(unit) => return Some(Ok(unit)),
                Err(AnnexBError::TooLarge { limit, .. }) => return Some(Err(VideoError::TooLarge { limit })),
                Err(_) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests;

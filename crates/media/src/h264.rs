//! H.264 byte streams (ITU-T H.264, Annex B): access units, layers and dependencies.
//!
//! ```text
//!  decoding order   I    P    B    b    b    P    B    b    b
//!  display order    0    4    2    1    3    8    6    5    7
//!  layer            0    1    2    3    3    1    2    3    3      highest is dropped first
//! ```
//!
//! Without layer 3, or without 2 and 3, every picture that is left decodes to the same samples. That holds for streams
//! without B pictures and for strictly hierarchical ones (x264: `bframes=3:b-pyramid=strict`). Reference B pictures
//! that the encoder ranks like P pictures are kept with those in layer 1.

pub(crate) mod headers;
mod ladder;
mod live;
mod repeat;
pub(crate) mod syntax;

use std::ops::Range;

use self::headers::{CodedPicture, H264};
use self::ladder::Ladder;
use self::syntax::Identity;
use crate::coding::split::{Assemble, Splitter};

pub use crate::annex_b::{AnnexBError, DEFAULT_MAX_UNIT_BYTES};

pub(crate) use self::live::Live;
pub(crate) use self::syntax::{Colours, colours, without_reordering};

pub use self::syntax::SliceType;

/// One coded picture with everything that belongs to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessUnit {
    /// The bytes as they were in the stream, start codes included.
    pub bytes: Vec<u8>,
    /// The NAL units in `bytes`.
    pub nals: Vec<Nal>,
    /// The least restricted of its slices' types.
    pub slice_type: SliceType,
    /// True if decoding can begin here and nothing after depends on anything before.
    pub idr: bool,
    /// Highest `nal_ref_idc` of its slices; 0 if no other picture depends on it.
    pub ref_idc: u8,
    /// `frame_num` of its slices.
    pub frame_num: u32,
    /// Picture order count within the coded video sequence.
    pub poc: i32,
    /// Sorts the pictures of the whole stream in display order. Values are not consecutive.
    pub display: i64,
    /// 0 where decoding can begin, 1 for other I and for P, 2 for a reference B, 3 for pictures that nothing depends on.
    pub layer: u8,
    /// Number of its group of pictures, from 0. A group begins with each picture where decoding can begin: an IDR
    /// picture, or an I picture with a recovery point at once.
    pub group: u32,
    /// Distances back, in access units, to those it depends on; 0 is none.
    pub refs: [u32; 2],
    /// Nominal duration of a frame in nanoseconds, if the stream says it: its pace.
    pub frame_ns: Option<u32>,
}

/// One NAL unit of an access unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nal {
    /// `nal_unit_type`.
    pub kind: u8,
    /// `nal_ref_idc`.
    pub ref_idc: u8,
    /// Its bytes, without start code and with header, in the access unit.
    pub range: Range<usize>,
}

/// Splits an H.264 byte stream, cut at any place, into access units. A unit is there as soon as the next one's first
/// bytes are. Memory: what was pushed and not yet taken, at most one unit of the limit besides.
#[derive(Clone, Debug)]
pub struct AccessUnits {
    splitter: Option<Splitter<Verbatim>>,
    goes_on: bool,
}

impl Default for AccessUnits {
    fn default() -> Self {
        Self::new(DEFAULT_MAX_UNIT_BYTES)
    }
}

impl AccessUnits {
    /// A splitter that accepts access units of up to `max_unit_bytes`.
    pub fn new(max_unit_bytes: usize) -> Self {
        Self { splitter: Some(Splitter::new(Verbatim::default(), max_unit_bytes)), goes_on: false }
    }

    /// The same, going on after errors: what cannot be read is left out, up to where it can again.
    pub fn tolerant(self) -> Self {
        Self { goes_on: true, ..self }
    }

    /// Adds the next bytes of the stream; ignored after an error, unless it is [tolerant](Self::tolerant). Take units until
    /// `None` before pushing again.
    pub fn push(&mut self, bytes: &[u8]) {
        if let Some(splitter) = &mut self.splitter {
            splitter.push(bytes);
        }
    }

    /// Tells that the stream has ended: the last unit is complete. Take it with `next`.
    pub fn finish(&mut self) {
        if let Some(splitter) = &mut self.splitter {
            splitter.complete();
        }
    }
}

/// Yields `None` when more bytes are needed, and for good after an error, unless it is [tolerant](AccessUnits::tolerant).
impl Iterator for AccessUnits {
    type Item = Result<AccessUnit, AnnexBError>;

    fn next(&mut self) -> Option<Self::Item> {
        let item = self.splitter.as_mut()?.next();
        if !self.goes_on && matches!(item, Some(Err(_))) {
            self.splitter = None;
        }
        item
    }
}

/// Makes access units that keep the bytes of the stream.
#[derive(Clone, Debug, Default)]
struct Verbatim {
    headers: H264,
    ladder: Ladder,
}

impl Assemble for Verbatim {
    type Headers = H264;
    type Unit = AccessUnit;

    fn headers(&mut self) -> &mut H264 {
        &mut self.headers
    }

    fn unit(&mut self, bytes: &[u8], nals: Vec<Range<usize>>, picture: CodedPicture) -> Option<AccessUnit> {
        let place = self.ladder.place(&picture)?;
        let Identity { idr, frame_num, .. } = picture.slice.identity;
        let nal = |range: Range<usize>| {
            let header = bytes.get(range.start).copied().unwrap_or_default();
            Nal { kind: header & 31, ref_idc: header >> 5 & 3, range }
        };
        Some(AccessUnit {
            bytes: bytes.to_vec(),
            nals: nals.into_iter().map(nal).collect(),
            slice_type: picture.slice.slice_type,
            idr,
            ref_idc: picture.ref_idc,
            frame_num,
            poc: place.poc,
            display: place.display,
            layer: place.layer,
            group: place.group,
            refs: place.refs,
            frame_ns: picture.sequence.usability.frame_ns,
        })
    }

    fn lost(&mut self) {}
}

#[cfg(test)]
mod tests;

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

pub(crate) mod bits;
mod ladder;
mod syntax;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use self::ladder::Ladder;
use self::syntax::{Identity, Picture, Sequence, Slice};

pub use self::syntax::SliceType;

/// Largest access unit that [`AccessUnits`] accepts unless told otherwise.
pub const DEFAULT_MAX_UNIT_BYTES: usize = 16 << 20;

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
    /// 0 for I, 1 for P, 2 for a reference B, 3 for pictures that nothing depends on.
    pub layer: u8,
    /// Number of its group of pictures, from 0. A group begins with each I picture.
    pub group: u32,
    /// Distances back, in access units, to those it depends on; 0 is none.
    pub refs: [u32; 2],
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

/// The bytes are not an H.264 byte stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AnnexBError {
    /// Something else before the first start code.
    #[error("the stream does not begin with a start code; is it an Annex B byte stream (ffmpeg: -f h264)?")]
    NoStartCode,
    /// A slice whose parameter sets have not come.
    #[error(
        "at stream byte {at}: a slice before its parameter sets; begin at a key picture with its headers"
    )]
    NoParameters {
        /// Stream offset of the slice.
        at: u64,
    },
    /// A parameter set that cannot be read.
    #[error("at stream byte {at}: an invalid parameter set")]
    Parameters {
        /// Stream offset of the parameter set.
        at: u64,
    },
    /// A slice header that cannot be read.
    #[error("at stream byte {at}: an invalid slice header")]
    SliceHeader {
        /// Stream offset of the slice.
        at: u64,
    },
    /// Slices in data partitions.
    #[error("at stream byte {at}: data partitioning is not supported")]
    Partitioned {
        /// Stream offset of the slice.
        at: u64,
    },
    /// An access unit above the limit.
    #[error("at stream byte {at}: an access unit of more than {limit} bytes")]
    TooLarge {
        /// Stream offset of the access unit.
        at: u64,
        /// The limit.
        limit: usize,
    },
}

/// Splits an H.264 byte stream, cut at any place, into access units. A unit is there as soon as the next one's first
/// bytes are. Memory: what was pushed and not yet taken, at most one unit of the limit besides.
#[derive(Clone, Debug)]
pub struct AccessUnits {
    bytes: Vec<u8>,
    /// Stream offset of `bytes[0]`.
    offset: u64,
    /// Where the search for the next start code goes on.
    scan: usize,
    /// Begin of the unit that is being collected.
    begin: usize,
    nals: Vec<Nal>,
    open: Option<OpenNal>,
    picture: Option<Open>,
    sequences: BTreeMap<u32, Sequence>,
    pictures: BTreeMap<u32, Picture>,
    ladder: Ladder,
    ready: VecDeque<AccessUnit>,
    limit: usize,
    error: Option<AnnexBError>,
    failed: bool,
}

/// A NAL unit whose end has not been found.
#[derive(Clone, Copy, Debug)]
struct OpenNal {
    /// Begin of its start code.
    code: usize,
    /// Its header byte.
    begin: usize,
    examined: bool,
}

/// The coded picture of the unit that is being collected.
#[derive(Clone, Copy, Debug)]
struct Open {
    slice: Slice,
    ref_idc: u8,
    sequence: Sequence,
}

impl Default for AccessUnits {
    fn default() -> Self {
        Self::new(DEFAULT_MAX_UNIT_BYTES)
    }
}

impl AccessUnits {
    /// A splitter that accepts access units of up to `max_unit_bytes`.
    pub fn new(max_unit_bytes: usize) -> Self {
        Self {
            bytes: Vec::new(),
            offset: 0,
            scan: 0,
            begin: 0,
            nals: Vec::new(),
            open: None,
            picture: None,
            sequences: BTreeMap::new(),
            pictures: BTreeMap::new(),
            ladder: Ladder::default(),
            ready: VecDeque::new(),
            limit: max_unit_bytes,
            error: None,
            failed: false,
        }
    }

    /// Adds the next bytes of the stream; ignored after an error. Take units until `None` before pushing again.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.failed {
            return;
        }
        self.bytes.extend_from_slice(bytes);
        if let Err(error) = self.split() {
            self.fail(error);
        }
    }

    /// Tells that the stream has ended: the last unit is complete. Take it with `next`.
    pub fn finish(&mut self) {
        if self.failed {
            return;
        }
        let result = match self.open {
            Some(_) => self.end_nal(self.bytes.len()),
            None if self.bytes.iter().any(|&byte| byte != 0) => Err(AnnexBError::NoStartCode),
            None => Ok(()),
        };
        if let Err(error) = result.and_then(|()| self.end_unit(self.bytes.len())) {
            self.fail(error);
        }
    }

    fn fail(&mut self, error: AnnexBError) {
        self.failed = true;
        self.error = Some(error);
        self.bytes = Vec::new();
        self.nals = Vec::new();
    }

    fn split(&mut self) -> Result<(), AnnexBError> {
        while let Some(code) = find_start_code(&self.bytes, self.scan) {
            // The zero byte before a start code belongs to it.
            let cut =
                if code > self.scan.max(self.begin) && self.bytes[code - 1] == 0 { code - 1 } else { code };
            if self.open.is_some() {
                self.end_nal(cut)?;
            } else if self.bytes[..cut].iter().any(|&byte| byte != 0) {
                return Err(AnnexBError::NoStartCode);
            }
            self.open = Some(OpenNal { code: cut, begin: code + 3, examined: false });
            self.scan = code + 3;
        }
        // A start code may be cut by the end of what is here, with its zero byte before it.
        self.scan = self.scan.max(self.bytes.len().saturating_sub(3));
        // Three bytes more, so that no start code lies within the bytes that are examined.
        if let Some(open) = self.open
            && self.bytes.len() >= open.begin + EXAMINED_BYTES + 3
        {
            self.examine(self.bytes.len())?;
        }
        if self.open.is_none() && self.bytes.iter().take(self.scan).any(|&byte| byte != 0) {
            return Err(AnnexBError::NoStartCode);
        }
        self.check_size(self.open.filter(|open| !open.examined).map_or(self.bytes.len(), |open| open.code))?;
        self.release();
        Ok(())
    }

    /// Looks at the first bytes of the open NAL unit: does it begin a new access unit?
    fn examine(&mut self, end: usize) -> Result<(), AnnexBError> {
        let Some(open) = self.open.as_mut().filter(|open| !open.examined) else { return Ok(()) };
        open.examined = true;
        let open = *open;
        let Some(&header) = self.bytes[..end].get(open.begin) else { return Ok(()) };
        let at = self.offset + open.begin as u64;
        match header & 31 {
            1 | 5 => {
                let nal = &self.bytes[open.begin..end.min(open.begin + EXAMINED_BYTES)];
                let (slice, sequence) = self.read_slice(nal, at)?;
                let ref_idc = header >> 5 & 3;
                let same = self.picture.as_ref().is_some_and(|p| p.slice.identity == slice.identity);
                match self.picture.as_mut().filter(|_| same) {
                    Some(picture) => {
                        picture.slice.slice_type = picture.slice.slice_type.max(slice.slice_type);
                        picture.ref_idc = picture.ref_idc.max(ref_idc);
                    }
                    None => {
                        self.end_unit(open.code)?;
                        self.picture = Some(Open { slice, ref_idc, sequence });
                    }
                }
            }
            2..=4 => return Err(AnnexBError::Partitioned { at }),
            6..=9 | 14..=18 => self.end_unit(open.code)?,
            _ => {}
        }
        Ok(())
    }

    fn read_slice(&self, nal: &[u8], at: u64) -> Result<(Slice, Sequence), AnnexBError> {
        let set = Slice::picture_set(nal).ok_or(AnnexBError::SliceHeader { at })?;
        let picture = self.pictures.get(&set).ok_or(AnnexBError::NoParameters { at })?;
        let sequence = self.sequences.get(&picture.sequence).ok_or(AnnexBError::NoParameters { at })?;
        let slice = Slice::parse(nal, sequence, picture).ok_or(AnnexBError::SliceHeader { at })?;
        Ok((slice, *sequence))
    }

    /// The open NAL unit ends at `end`.
    fn end_nal(&mut self, end: usize) -> Result<(), AnnexBError> {
        self.examine(end)?;
        let Some(open) = self.open.take() else { return Ok(()) };
        let begin = open.begin.min(end);
        let at = self.offset + begin as u64;
        let nal = &self.bytes[begin..end];
        let Some(&header) = nal.first() else { return Ok(()) };
        match header & 31 {
            7 => {
                let set = Sequence::parse(nal).ok_or(AnnexBError::Parameters { at })?;
                self.sequences.insert(set.id, set);
            }
            8 => {
                let set = Picture::parse(nal).ok_or(AnnexBError::Parameters { at })?;
                self.pictures.insert(set.id, set);
            }
            _ => {}
        }
        let range = begin - self.begin..end - self.begin;
        self.nals.push(Nal { kind: header & 31, ref_idc: header >> 5 & 3, range });
        Ok(())
    }

    fn check_size(&self, end: usize) -> Result<(), AnnexBError> {
        let fits = end.saturating_sub(self.begin) <= self.limit;
        if fits {
            Ok(())
        } else {
            Err(AnnexBError::TooLarge { at: self.offset + self.begin as u64, limit: self.limit })
        }
    }

    /// The unit that is being collected ends at `end`, if it has a picture; otherwise what is there begins the next one.
    fn end_unit(&mut self, end: usize) -> Result<(), AnnexBError> {
        self.check_size(end)?;
        let Some(Open { slice, ref_idc, sequence }) = self.picture.take() else { return Ok(()) };
        let place = self.ladder.place(&slice, ref_idc, &sequence);
        let Identity { idr, frame_num, .. } = slice.identity;
        self.ready.push_back(AccessUnit {
            bytes: self.bytes[self.begin..end].to_vec(),
            nals: std::mem::take(&mut self.nals),
            slice_type: slice.slice_type,
            idr,
            ref_idc,
            frame_num,
            poc: place.poc,
            display: place.display,
            layer: place.layer,
            group: place.group,
            refs: place.refs,
        });
        self.begin = end;
        Ok(())
    }

    /// Frees the bytes of units that are complete.
    fn release(&mut self) {
        let begin = self.begin;
        if begin > 0 {
            self.bytes.drain(..begin);
            self.offset += begin as u64;
            self.begin = 0;
            self.scan -= begin;
            if let Some(open) = &mut self.open {
                open.code -= begin;
                open.begin -= begin;
            }
        }
    }
}

/// Yields `None` when more bytes are needed, and for good after an error.
impl Iterator for AccessUnits {
    type Item = Result<AccessUnit, AnnexBError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.ready.pop_front() {
            Some(unit) => Some(Ok(unit)),
            None => self.error.take().map(Err),
        }
    }
}

fn find_start_code(bytes: &[u8], from: usize) -> Option<usize> {
    let tail = bytes.get(from..)?;
    tail.windows(3).position(|window| window == [0, 0, 1]).map(|at| from + at)
}

/// The part of a slice header that is read ends well within these bytes, emulation prevention included.
const EXAMINED_BYTES: usize = 48;

#[cfg(test)]
mod tests;

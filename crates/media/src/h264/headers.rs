//! What NAL units are in an H.264 stream.

use super::syntax::{Picture, Sequence, Slice, SliceType, is_exact_recovery_point};
use crate::annex_b::AnnexBError;
use crate::coding::sets::Sets;
use crate::coding::split::{Headers, Role};

/// Reads headers with the parameter sets that came before.
#[derive(Clone, Debug, Default)]
pub(crate) struct H264 {
    pub(super) sequences: Sets<Sequence>,
    pub(super) pictures: Sets<Picture>,
    /// A recovery point came for the next picture.
    recovery: bool,
}

/// A coded picture.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CodedPicture {
    pub(super) slice: Slice,
    pub(super) ref_idc: u8,
    pub(super) sequence: Sequence,
    pub(super) picture: Picture,
    recovery: bool,
}

impl CodedPicture {
    /// Decoding can begin here.
    pub(super) fn is_key(&self) -> bool {
        self.slice.identity.idr || (self.recovery && self.slice.slice_type == SliceType::I)
    }
}

impl H264 {
    fn read_slice(&self, nal: &[u8], at: u64) -> Result<(Slice, Sequence, Picture), AnnexBError> {
        let set = Slice::picture_set(nal).ok_or(AnnexBError::SliceHeader { at })?;
        let picture = self.pictures.get(set).ok_or(AnnexBError::NoParameters { at })?;
        let sequence = self.sequences.get(picture.sequence).ok_or(AnnexBError::NoParameters { at })?;
        let slice = Slice::parse(nal, sequence, picture).ok_or(AnnexBError::SliceHeader { at })?;
        Ok((slice, *sequence, *picture))
    }
}

impl Headers for H264 {
    type Picture = CodedPicture;
    const FIRST_BYTES: usize = 48;
    const MOST_BYTES: usize = 48;

    fn examine(
        &mut self,
        head: &[u8],
        open: Option<&mut CodedPicture>,
        at: u64,
    ) -> Result<Role<CodedPicture>, AnnexBError> {
        let header = head.first().copied().unwrap_or_default();
        match header & 31 {
            1 | 5 => {
                let (slice, sequence, picture) = self.read_slice(head, at)?;
                let ref_idc = header >> 5 & 3;
                match open.filter(|open| open.slice.identity == slice.identity) {
                    Some(open) => {
                        open.slice.slice_type = open.slice.slice_type.max(slice.slice_type);
                        open.ref_idc = open.ref_idc.max(ref_idc);
                        Ok(Role::Part)
                    }
                    None => {
                        let recovery = std::mem::take(&mut self.recovery);
                        Ok(Role::Picture(CodedPicture { slice, ref_idc, sequence, picture, recovery }))
                    }
                }
            }
            2..=4 => Err(AnnexBError::Partitioned { at }),
            6..=9 | 14..=18 => Ok(Role::Begin),
            _ => Ok(Role::Part),
        }
    }

    fn read(&mut self, nal: &[u8], at: u64) -> Result<(), AnnexBError> {
        let invalid = AnnexBError::Parameters { at };
        match nal.first().copied().unwrap_or_default() & 31 {
            6 => self.recovery |= is_exact_recovery_point(nal),
            7 => {
                let set = Sequence::parse(nal).ok_or(invalid)?;
                self.sequences.insert(set.id, set, nal).ok_or(invalid)?;
            }
            8 => {
                let set = Picture::parse(nal).ok_or(invalid)?;
                self.pictures.insert(set.id, set, nal).ok_or(invalid)?;
            }
            _ => {}
        }
        Ok(())
    }
}

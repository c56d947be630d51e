//! H.265 (ITU-T H.265) as one of the live formats: dependencies from the reference picture sets.
//!
//! ```text
//!  decoding order   CRA  RASL RASL  P    B    b
//!  display order    8    6    7     12   10   9
//!  layer            0    3    3     1    1    3       RASL pictures also depend on the group before
//! ```

mod pictures;
mod reference_sets;
mod repeat;
pub(crate) mod syntax;

pub(crate) use self::pictures::Live;

use self::syntax::{PictureSet, Sequence, Slice};
use crate::annex_b::AnnexBError;
use crate::coding::sets::Sets;
use crate::coding::split::{Headers, Role};

/// Reads headers with the parameter sets that came before.
#[derive(Clone, Debug, Default)]
pub(crate) struct H265 {
    video: Sets<()>,
    sequences: Sets<Sequence>,
    pictures: Sets<PictureSet>,
    /// The sequence was ended before the next picture.
    ended: bool,
}

/// A coded picture.
#[derive(Clone, Debug)]
pub(crate) struct Picture {
    slice: Slice,
    sequence: Sequence,
    sequence_id: u32,
    after_end: bool,
}

impl H265 {
    fn read_slice(&self, nal: &[u8], at: u64) -> Result<(Slice, Sequence, u32), AnnexBError> {
        let set = Slice::picture_set(nal).ok_or(AnnexBError::SliceHeader { at })?;
        let picture = self.pictures.get(set).ok_or(AnnexBError::NoParameters { at })?;
        let sequence = self.sequences.get(picture.sequence).ok_or(AnnexBError::NoParameters { at })?;
        let slice = Slice::parse(nal, sequence, picture).ok_or(AnnexBError::SliceHeader { at })?;
        Ok((slice, sequence.clone(), picture.sequence))
    }
}

impl Headers for H265 {
    type Picture = Picture;
    const FIRST_BYTES: usize = 48;
    const MOST_BYTES: usize = 1024;

    fn examine(
        &mut self,
        head: &[u8],
        open: Option<&mut Picture>,
        at: u64,
    ) -> Result<Role<Picture>, AnnexBError> {
        let Some((kind, 0)) = syntax::nal_kind(head) else { return Ok(Role::Part) };
        match kind {
            0..=9 | 16..=21 if Slice::is_first(head) => {
                let (slice, sequence, sequence_id) = self.read_slice(head, at)?;
                let after_end = std::mem::take(&mut self.ended);
                Ok(Role::Picture(Picture { slice, sequence, sequence_id, after_end }))
            }
            0..=9 | 16..=21 if open.is_none() => Err(AnnexBError::SliceHeader { at }),
            32..=35 | 39 | 41..=44 | 48..=55 => Ok(Role::Begin),
            _ => Ok(Role::Part),
        }
    }

    fn read(&mut self, nal: &[u8], at: u64) -> Result<(), AnnexBError> {
        let invalid = AnnexBError::Parameters { at };
        match syntax::nal_kind(nal) {
            Some((syntax::VPS, 0)) => {
                let id = syntax::video_set(nal).ok_or(invalid)?;
                self.video.insert(id, (), nal).ok_or(invalid)?;
            }
            Some((syntax::SPS, 0)) => {
                let set = Sequence::parse(nal).ok_or(invalid)?;
                self.sequences.insert(set.id, set, nal).ok_or(invalid)?;
            }
            Some((syntax::PPS, 0)) => {
                let set = PictureSet::parse(nal).ok_or(invalid)?;
                self.pictures.insert(set.id, set, nal).ok_or(invalid)?;
            }
            Some((syntax::END_OF_SEQUENCE | syntax::END_OF_STREAM, 0)) => self.ended = true,
            _ => {}
        }
        Ok(())
    }
}

//! What a record's number says of it, for live pictures with sound.

use crate::Record;

/// The most renditions of a stream.
pub const MAX_RENDITIONS: usize = 8;

/// The pictures of rendition `r` have numbers from `r << RENDITION_BITS` on, without gaps.
pub const RENDITION_BITS: u32 = 48;

/// The rendition that a picture belongs to by its number. `None` for numbers above those of all renditions: what goes before
/// pictures, such as sound.
pub fn rendition_of(seq: u64) -> Option<usize> {
    usize::try_from(seq >> RENDITION_BITS).ok().filter(|&rendition| rendition < MAX_RENDITIONS)
}

/// Whether the record is no picture.
pub(crate) fn is_sound(record: &Record) -> bool {
    rendition_of(record.seq).is_none()
}

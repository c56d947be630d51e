//! How pictures of renditions are numbered.

use crate::SOUND;

/// The most renditions of a stream.
pub const MAX_RENDITIONS: usize = 8;

/// The pictures of rendition `r` have numbers from `r << RENDITION_BITS` on, without gaps.
pub const RENDITION_BITS: u32 = 48;

/// The rendition that a picture belongs to by its number; `None` for sound.
pub fn rendition_of(seq: u64) -> Option<usize> {
    (seq < SOUND).then_some((seq >> RENDITION_BITS) as usize)
}

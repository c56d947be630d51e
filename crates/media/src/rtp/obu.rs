//! OBUs of AV1 (5.3 of its specification) as they go over RTP: without their size field.

use std::ops::Range;

/// An OBU that has a size field in the unit.
pub(super) struct Obu {
    header: [u8; 2],
    header_bytes: u32,
    /// Bytes of the unit that are behind header and size.
    pub(super) payload: Range<u32>,
}

impl Obu {
    /// The OBU in this range of the unit, which begins with these bytes. `None` if it has no size field, or another one than that
    /// of least length.
    pub(super) fn new(range: &Range<u32>, [byte, extension]: [u8; 2]) -> Option<Self> {
        let header_bytes = if byte & EXTENSION != 0 { 2 } else { 1 };
        let rest = range.end.checked_sub(range.start.checked_add(header_bytes)?)?;
        let size_bytes =
            (1..=MAX_SIZE_BYTES).find(|&bytes| size_bytes(rest.saturating_sub(bytes)) == bytes)?;
        let is_sized = byte & HAS_SIZE != 0 && rest >= size_bytes;
        let payload = range.start + header_bytes + size_bytes..range.end;
        is_sized.then_some(Self { header: [byte & !HAS_SIZE, extension], header_bytes, payload })
    }

    /// Its header, which says that no size follows.
    pub(super) fn header(&self) -> &[u8] {
        &self.header[..self.header_bytes as usize]
    }
}

/// Bytes of a size field (4.10.5).
fn size_bytes(size: u32) -> u32 {
    (u32::BITS - size.leading_zeros()).div_ceil(7).max(1)
}

const EXTENSION: u8 = 4;
const HAS_SIZE: u8 = 2;
/// A size has 32 bits.
const MAX_SIZE_BYTES: u32 = 5;

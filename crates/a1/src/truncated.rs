//! Numbers of which the wire carries the low 24 bits only.

/// How far ahead of `expected` the nearest number with these low 24 bits is; negative where it is behind.
pub(crate) fn ahead(expected: u64, low: u32) -> i64 {
    let distance = (low.wrapping_sub(expected as u32) << 8) as i32 >> 8;
    i64::from(distance)
}

/// The number nearest to `expected` of which these are the low 24 bits.
pub(crate) fn full_number(expected: u64, low: u32) -> u64 {
    let (ahead, span) = (ahead(expected, low), 1i64 << 24);
    let other = if ahead < 0 { ahead + span } else { ahead - span };
    expected.checked_add_signed(ahead).unwrap_or_else(|| expected.wrapping_add_signed(other))
}

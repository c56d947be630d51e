//! What the configuration box and the codec name take from an AV1 sequence header (AV1 specification, 5.5).

use mp4_atom::Av1c;

use crate::video::bits::Bits;

/// The configuration box. `None` if the sequence header OBU cannot be read.
pub(super) fn config(obu: &[u8]) -> Option<Av1c> {
    let mut bits = Bits::plain(obu);
    bits.bits(5)?;
    let extended = bits.bit()?;
    let sized = bits.bit()?;
    bits.bit()?;
    if extended {
        bits.bits(8)?;
    }
    while sized && bits.bits(8)? & 0x80 != 0 {}
    let mut box_ = Av1c { seq_profile: bits.bits(3)? as u8, config_obus: obu.to_vec(), ..Av1c::default() };
    bits.bit()?;
    let reduced = bits.bit()?;
    if reduced {
        box_.seq_level_idx_0 = bits.bits(5)? as u8;
    } else {
        (box_.seq_level_idx_0, box_.seq_tier_0) = operating_points(&mut bits)?;
    }
    skip_frame_size_and_tools(&mut bits, reduced)?;
    color(&mut bits, &mut box_)?;
    Some(box_)
}

/// Level and tier of the first operating point.
fn operating_points(bits: &mut Bits) -> Option<(u8, bool)> {
    let mut delay_bits = None;
    if bits.bit()? {
        bits.bits(32)?;
        bits.bits(32)?;
        if bits.bit()? {
            bits.ue()?;
        }
        if bits.bit()? {
            delay_bits = Some(bits.bits(5)? + 1);
            bits.bits(32)?;
            bits.bits(10)?;
        }
    }
    let display_delay = bits.bit()?;
    let mut first = None;
    for _ in 0..=bits.bits(5)? {
        bits.bits(12)?;
        let level = bits.bits(5)? as u8;
        let tier = level > 7 && bits.bit()?;
        if let Some(delay_bits) = delay_bits
            && bits.bit()?
        {
            bits.bits(delay_bits)?;
            bits.bits(delay_bits)?;
            bits.bit()?;
        }
        if display_delay && bits.bit()? {
            bits.bits(4)?;
        }
        first = first.or(Some((level, tier)));
    }
    first
}

fn skip_frame_size_and_tools(bits: &mut Bits, reduced: bool) -> Option<()> {
    let width_bits = bits.bits(4)? + 1;
    let height_bits = bits.bits(4)? + 1;
    bits.bits(width_bits)?;
    bits.bits(height_bits)?;
    if !reduced && bits.bit()? {
        bits.bits(7)?;
    }
    bits.bits(3)?;
    if !reduced {
        bits.bits(4)?;
        let order_hint = bits.bit()?;
        if order_hint {
            bits.bits(2)?;
        }
        let screen_content = bits.bit()? || bits.bit()?;
        if screen_content && !bits.bit()? {
            bits.bit()?;
        }
        if order_hint {
            bits.bits(3)?;
        }
    }
    bits.bits(3)?;
    Some(())
}

fn color(bits: &mut Bits, box_: &mut Av1c) -> Option<()> {
    let profile = box_.seq_profile;
    box_.high_bitdepth = bits.bit()?;
    box_.twelve_bit = profile == 2 && box_.high_bitdepth && bits.bit()?;
    box_.monochrome = profile != 1 && bits.bit()?;
    let described = if bits.bit()? { Some(bits.bits(24)?) } else { None };
    if box_.monochrome || described != Some(SRGB) {
        bits.bit()?;
    }
    (box_.chroma_subsampling_x, box_.chroma_subsampling_y) = match profile {
        _ if box_.monochrome => (true, true),
        _ if described == Some(SRGB) => (false, false),
        0 => (true, true),
        1 => (false, false),
        _ if box_.twelve_bit => {
            let x = bits.bit()?;
            (x, x && bits.bit()?)
        }
        _ => (true, false),
    };
    if box_.chroma_subsampling_x && box_.chroma_subsampling_y && !box_.monochrome {
        box_.chroma_sample_position = bits.bits(2)? as u8;
    }
    Some(())
}

/// The codec's name (AV1 in ISOBMFF, section 5), as `av01.0.04M.08`.
pub(super) fn name(config: &Av1c) -> String {
    let tier = if config.seq_tier_0 { 'H' } else { 'M' };
    let depth = match (config.twelve_bit, config.high_bitdepth) {
        (true, _) => 12,
        (false, true) => 10,
        (false, false) => 8,
    };
    format!("av01.{}.{:02}{tier}.{depth:02}", config.seq_profile, config.seq_level_idx_0)
}

/// Colour primaries 1, transfer 13, matrix 0.
const SRGB: u32 = 0x01_0d_00;

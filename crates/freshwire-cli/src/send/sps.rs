//! The pace of an H.264 stream, from its sequence parameter set (ITU-T H.264, 7.3.2.1 and annex E).

/// `nal_unit_type` of a sequence parameter set.
pub(super) const NAL_KIND: u8 = 7;

/// Profiles whose parameter sets describe the chroma format.
const HIGH_PROFILES: [u32; 13] = [100, 110, 122, 244, 44, 83, 86, 118, 128, 138, 139, 134, 135];

/// `aspect_ratio_idc` that is followed by the ratio itself.
const EXTENDED_ASPECT: u32 = 255;

/// Frames per second, if the parameter set in `nal` says so.
pub(super) fn frame_rate(nal: &[u8]) -> Option<f64> {
    let mut bits = Bits::new(nal.get(1..)?);
    skip_to_usability(&mut bits)?;
    if bits.bit()? {
        let aspect = bits.bits(8)?;
        if aspect == EXTENDED_ASPECT {
            bits.bits(32)?;
        }
    }
    if bits.bit()? {
        bits.bit()?;
    }
    if bits.bit()? {
        bits.bits(4)?;
        if bits.bit()? {
            bits.bits(24)?;
        }
    }
    if bits.bit()? {
        bits.ue()?;
        bits.ue()?;
    }
    if !bits.bit()? {
        return None;
    }
    let (units_in_tick, time_scale) = (bits.bits(32)?, bits.bits(32)?);
    // A tick is a field's time.
    let rate = f64::from(time_scale) / (2.0 * f64::from(units_in_tick));
    (0.01..=1000.0).contains(&rate).then_some(rate)
}

/// Reads up to the usability information; `None` if there is none.
fn skip_to_usability(bits: &mut Bits) -> Option<()> {
    let profile = bits.bits(8)?;
    bits.bits(16)?;
    bits.ue()?;
    if HIGH_PROFILES.contains(&profile) {
        let chroma = bits.ue()?;
        if chroma == 3 {
            bits.bit()?;
        }
        bits.ue()?;
        bits.ue()?;
        bits.bit()?;
        if bits.bit()? {
            skip_scaling_lists(bits, if chroma == 3 { 12 } else { 8 })?;
        }
    }
    bits.ue()?;
    match bits.ue()? {
        0 => {
            bits.ue()?;
        }
        1 => {
            bits.bit()?;
            bits.ue()?;
            bits.ue()?;
            for _ in 0..bits.ue().filter(|&count| count <= 255)? {
                bits.ue()?;
            }
        }
        _ => {}
    }
    bits.ue()?;
    bits.bit()?;
    bits.ue()?;
    bits.ue()?;
    if !bits.bit()? {
        bits.bit()?;
    }
    bits.bit()?;
    if bits.bit()? {
        for _ in 0..4 {
            bits.ue()?;
        }
    }
    bits.bit()?.then_some(())
}

fn skip_scaling_lists(bits: &mut Bits, lists: usize) -> Option<()> {
    for list in 0..lists {
        if !bits.bit()? {
            continue;
        }
        let (mut last, mut next) = (8i64, 8i64);
        for _ in 0..if list < 6 { 16 } else { 64 } {
            if next != 0 {
                let code = i64::from(bits.ue()?);
                let delta = if code % 2 == 1 { (code + 1) / 2 } else { -code / 2 };
                next = (last + delta).rem_euclid(256);
            }
            last = if next == 0 { last } else { next };
        }
    }
    Some(())
}

/// Bits of a payload whose emulation prevention bytes are taken out.
struct Bits {
    bytes: Vec<u8>,
    at: usize,
}

impl Bits {
    fn new(escaped: &[u8]) -> Self {
        let mut bytes: Vec<u8> = Vec::with_capacity(escaped.len());
        let mut zeros = 0;
        for &byte in escaped {
            if zeros >= 2 && byte == 3 {
                zeros = 0;
                continue;
            }
            zeros = if byte == 0 { zeros + 1 } else { 0 };
            bytes.push(byte);
        }
        Self { bytes, at: 0 }
    }

    fn bit(&mut self) -> Option<bool> {
        let byte = *self.bytes.get(self.at / 8)?;
        let bit = byte >> (7 - self.at % 8) & 1;
        self.at += 1;
        Some(bit == 1)
    }

    /// At most 32 bits as a number.
    fn bits(&mut self, count: u32) -> Option<u32> {
        let mut value = 0;
        for _ in 0..count {
            value = value << 1 | u32::from(self.bit()?);
        }
        Some(value)
    }

    /// An unsigned Exp-Golomb code.
    fn ue(&mut self) -> Option<u32> {
        let mut zeros = 0;
        while !self.bit()? {
            zeros += 1;
            if zeros > 31 {
                return None;
            }
        }
        Some((1u32 << zeros) - 1 + self.bits(zeros)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// x264, High profile, 320x180 at 25 frames/s.
    const AT_25: &str = "6764000dacd901419f9f011000000300100000030320f1429960";

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<u32> = hex.chars().filter_map(|c| c.to_digit(16)).collect();
        digits.chunks_exact(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()
    }

    #[test]
    fn the_pace_is_found() {
        assert_eq!(frame_rate(&bytes(AT_25)), Some(25.0));
    }

    #[test]
    fn a_set_that_ends_early_or_is_nonsense_says_nothing() {
        let whole = bytes(AT_25);
        for len in 0..whole.len() - 6 {
            assert_eq!(frame_rate(&whole[..len]), None, "{len}");
        }
        assert_eq!(frame_rate(&[0x67; 64]), None);
        assert_eq!(frame_rate(&[0; 64]), None);
    }
}

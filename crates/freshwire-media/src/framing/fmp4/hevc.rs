//! What the configuration box and the codec name take from an H.265 sequence parameter set (ITU-T H.265, 7.3.2.2).

use mp4_atom::{HvcCArray, Hvcc};

use crate::video::bits::Bits;

/// The configuration box. `None` if the sequence parameter set cannot be read.
pub(super) fn config(vps: &[u8], sps: &[u8], pps: &[u8]) -> Option<Hvcc> {
    let mut bits = Bits::nal(sps, 2);
    bits.bits(4)?;
    let sub_layers = bits.bits(3)?;
    let nested = bits.bit()?;
    let mut box_ = Hvcc {
        general_profile_space: bits.bits(2)? as u8,
        general_tier_flag: bits.bit()?,
        general_profile_idc: bits.bits(5)? as u8,
        general_profile_compatibility_flags: bits.bits(32)?.to_be_bytes(),
        num_temporal_layers: sub_layers as u8 + 1,
        temporal_id_nested: nested,
        length_size_minus_one: 3,
        ..Hvcc::new()
    };
    for flags in &mut box_.general_constraint_indicator_flags {
        *flags = bits.bits(8)? as u8;
    }
    box_.general_level_idc = bits.bits(8)? as u8;
    skip_sub_layers(&mut bits, sub_layers)?;
    bits.ue()?;
    let chroma = bits.ue().filter(|&chroma| chroma <= 3)?;
    if chroma == 3 {
        bits.bit()?;
    }
    bits.ue()?;
    bits.ue()?;
    if bits.bit()? {
        for _ in 0..4 {
            bits.ue()?;
        }
    }
    box_.chroma_format_idc = chroma as u8;
    box_.bit_depth_luma_minus8 = bits.ue().filter(|&depth| depth <= 7)? as u8;
    box_.bit_depth_chroma_minus8 = bits.ue().filter(|&depth| depth <= 7)? as u8;
    // Not complete: each key unit carries them as well.
    let array = |nal_unit_type, nal: &[u8]| HvcCArray {
        completeness: false,
        nal_unit_type,
        nalus: vec![nal.to_vec()],
    };
    box_.arrays = vec![array(32, vps), array(33, sps), array(34, pps)];
    Some(box_)
}

fn skip_sub_layers(bits: &mut Bits, sub_layers: u32) -> Option<()> {
    let mut present = [(false, false); 8];
    for layer in present.iter_mut().take(sub_layers as usize) {
        *layer = (bits.bit()?, bits.bit()?);
    }
    if sub_layers > 0 {
        bits.bits(2 * (8 - sub_layers))?;
    }
    for &(profile, level) in present.iter().take(sub_layers as usize) {
        if profile {
            bits.bits(32)?;
            bits.bits(32)?;
            bits.bits(24)?;
        }
        if level {
            bits.bits(8)?;
        }
    }
    Some(())
}

/// The codec's name (ISO 14496-15, annex E.3), as `hev1.1.6.L93.B0`.
pub(super) fn name(config: &Hvcc) -> String {
    let space = ["", "A", "B", "C"][usize::from(config.general_profile_space & 3)];
    let compatible = u32::from_be_bytes(config.general_profile_compatibility_flags).reverse_bits();
    let tier = if config.general_tier_flag { 'H' } else { 'L' };
    let (profile, level) = (config.general_profile_idc, config.general_level_idc);
    let mut name = format!("hev1.{space}{profile}.{compatible:X}.{tier}{level}");
    let constraints = config.general_constraint_indicator_flags;
    let kept = constraints.iter().rposition(|&flags| flags != 0).map_or(0, |last| last + 1);
    for flags in &constraints[..kept] {
        name.push_str(&format!(".{flags:X}"));
    }
    name
}

//! The configuration box and the name of H.265 (ISO 14496-15, 8.3.3 and annex E.3).

use mp4_atom::{HvcCArray, Hvcc};

use crate::h265::syntax::Sequence;

/// The configuration box. `None` if the sequence parameter set cannot be read.
pub(super) fn config(vps: &[u8], sps: &[u8], pps: &[u8]) -> Option<Hvcc> {
    let Sequence { profile, format, .. } = Sequence::parse(sps)?;
    let [first, c0, c1, c2, c3, flags @ .., level] = profile.general;
    // Not complete: each key unit carries them as well.
    let array = |nal_unit_type, nal: &[u8]| HvcCArray {
        completeness: false,
        nal_unit_type,
        nalus: vec![nal.to_vec()],
    };
    Some(Hvcc {
        general_profile_space: first >> 6,
        general_tier_flag: first & 0x20 != 0,
        general_profile_idc: first & 0x1f,
        general_profile_compatibility_flags: [c0, c1, c2, c3],
        general_constraint_indicator_flags: flags,
        general_level_idc: level,
        chroma_format_idc: format.chroma,
        bit_depth_luma_minus8: format.depths_minus8[0],
        bit_depth_chroma_minus8: format.depths_minus8[1],
        num_temporal_layers: profile.sub_layers_minus1 + 1,
        temporal_id_nested: profile.nested,
        length_size_minus_one: 3,
        arrays: vec![array(32, vps), array(33, sps), array(34, pps)],
        ..Hvcc::new()
    })
}

/// The codec's name, as `hev1.1.6.L93.B0`.
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

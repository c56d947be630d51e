//! The configuration box and the name of AV1 (AV1 in ISOBMFF, sections 2.3 and 5).

use mp4_atom::Av1c;

use crate::av1::sequence::Sequence;

/// The configuration box and the codec's name, as `av01.0.04M.08`. `None` if the sequence header OBU cannot be read.
pub(super) fn config(obu: &[u8]) -> Option<(Av1c, String)> {
    let Sequence { profile, level, tier, format, .. } = Sequence::of_obu(obu)?;
    let config = Av1c {
        seq_profile: profile,
        seq_level_idx_0: level,
        seq_tier_0: tier,
        high_bitdepth: format.high_bit_depth,
        twelve_bit: format.twelve_bit,
        monochrome: format.monochrome,
        chroma_subsampling_x: format.subsampling[0],
        chroma_subsampling_y: format.subsampling[1],
        chroma_sample_position: format.chroma_position,
        initial_presentation_delay: None,
        config_obus: obu.to_vec(),
    };
    let tier = if tier { 'H' } else { 'M' };
    Some((config, format!("av01.{profile}.{level:02}{tier}.{:02}", format.bit_depth())))
}

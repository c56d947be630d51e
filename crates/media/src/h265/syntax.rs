//! The fields of parameter sets and slice segment headers (ITU-T H.265, 7.3.2 and 7.3.6) up to the reference pictures.
//! `None` means that the bytes are not a valid parameter set or header.

use super::reference_sets::ReferenceSet;
use crate::coding::bits::Bits;
use crate::h264::syntax::{duration_ns, signal_description};

pub(super) const VPS: u8 = 32;
pub(super) const SPS: u8 = 33;
pub(super) const PPS: u8 = 34;
pub(super) const ACCESS_UNIT_DELIMITER: u8 = 35;
pub(super) const END_OF_SEQUENCE: u8 = 36;
pub(super) const END_OF_STREAM: u8 = 37;
pub(super) const FILLER: u8 = 38;

/// `nal_unit_type` and `nuh_layer_id`.
pub(super) fn nal_kind(nal: &[u8]) -> Option<(u8, u8)> {
    let (&first, &second) = (nal.first()?, nal.get(1)?);
    Some((first >> 1 & 63, (first & 1) << 5 | second >> 3))
}

/// The number of a video parameter set.
pub(super) fn video_set(nal: &[u8]) -> Option<u32> {
    Bits::nal(nal, HEADER).bits(4)
}

/// What a sequence parameter set says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sequence {
    pub(super) id: u32,
    pub(super) video: u32,
    pub(crate) profile: Profile,
    pub(crate) format: SampleFormat,
    /// Width and height of the coded picture in samples.
    pub(super) coded: [u32; 2],
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) order_bits: u32,
    /// `sps_max_num_reorder_pics` of the highest sub-layer.
    pub(super) reorder: u8,
    /// `sps_max_dec_pic_buffering_minus1` of the highest sub-layer: the pictures that one may refer to.
    pub(super) references: u32,
    pub(super) frame_ns: Option<u32>,
    pub(super) tools: Tools,
    pub(super) short_term: Vec<ReferenceSet>,
    /// Low bits and use of the long-term pictures that slices choose from, if there are any in slices.
    pub(super) long_term: Option<Vec<(u32, bool)>>,
}

/// Coding tools that slices have to do with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tools {
    /// Logarithm of the side of the smallest coding block.
    pub(super) smallest_block_log2: u32,
    /// Logarithm of the side of a coding tree.
    pub(super) tree_log2: u32,
    /// `sample_adaptive_offset_enabled_flag`.
    pub(super) offsets: bool,
    /// `sps_temporal_mvp_enabled_flag`.
    pub(super) temporal_prediction: bool,
}

/// Profile, tier and level, and the sub-layers they stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Profile {
    /// `sps_max_sub_layers_minus1`.
    pub(crate) sub_layers_minus1: u8,
    /// `sps_temporal_id_nesting_flag`.
    pub(crate) nested: bool,
    /// The twelve bytes from `general_profile_space` to `general_level_idc`.
    pub(crate) general: [u8; 12],
}

/// How samples are coded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SampleFormat {
    /// `chroma_format_idc`.
    pub(crate) chroma: u8,
    pub(super) separate_planes: bool,
    /// `bit_depth_luma_minus8` and `bit_depth_chroma_minus8`.
    pub(crate) depths_minus8: [u8; 2],
}

impl Profile {
    fn parse(bits: &mut Bits) -> Option<Self> {
        let sub_layers_minus1 = bits.bits(3).filter(|&count| count <= 6)? as u8;
        let nested = bits.bit()?;
        let mut general = [0; 12];
        for byte in &mut general {
            *byte = bits.byte()?;
        }
        let mut present = Vec::new();
        for _ in 0..sub_layers_minus1 {
            present.push((bits.bit()?, bits.bit()?));
        }
        if sub_layers_minus1 > 0 {
            bits.skip(2 * (8 - usize::from(sub_layers_minus1)))?;
        }
        for (profile, level) in present {
            bits.skip(if profile { 88 } else { 0 } + if level { 8 } else { 0 })?;
        }
        Some(Self { sub_layers_minus1, nested, general })
    }
}

impl Sequence {
    pub(crate) fn parse(nal: &[u8]) -> Option<Self> {
        let mut bits = Bits::nal(nal, HEADER);
        let video = bits.bits(4)?;
        let profile = Profile::parse(&mut bits)?;
        let id = bits.ue().filter(|&id| id < 16)?;
        let chroma = bits.ue().filter(|&chroma| chroma <= 3)? as u8;
        let separate_planes = chroma == 3 && bits.bit()?;
        let coded = [bits.ue()?, bits.ue()?];
        let [mut width, mut height] = coded;
        if bits.bit()? {
            let [left, right, top, bottom] = [bits.ue()?, bits.ue()?, bits.ue()?, bits.ue()?];
            let unit = [if matches!(chroma, 1 | 2) { 2 } else { 1 }, if chroma == 1 { 2 } else { 1 }];
            width = width.saturating_sub(left.saturating_add(right).saturating_mul(unit[0]));
            height = height.saturating_sub(top.saturating_add(bottom).saturating_mul(unit[1]));
        }
        let mut depths_minus8 = [0; 2];
        for depth in &mut depths_minus8 {
            *depth = bits.ue().filter(|&depth| depth <= 8)? as u8;
        }
        let order_bits = 4 + bits.ue().filter(|&log| log <= 12)?;
        let (references, reorder) = read_buffering(&mut bits, profile.sub_layers_minus1)?;
        let mut tools = Tools::parse(&mut bits)?;
        let mut short_term = Vec::new();
        for _ in 0..bits.ue().filter(|&count| count <= 64)? {
            short_term.push(ReferenceSet::parse(&mut bits, &short_term, false)?);
        }
        let mut long_term = None;
        if bits.bit()? {
            let count = bits.ue().filter(|&count| count <= MOST_LONG_TERM)?;
            let one = |_| Some((bits.bits(order_bits)?, bits.bit()?));
            long_term = Some((0..count).map(one).collect::<Option<Vec<_>>>()?);
        }
        tools.temporal_prediction = bits.bit()?;
        bits.skip(1)?;
        Some(Self {
            id,
            video,
            profile,
            format: SampleFormat { chroma, separate_planes, depths_minus8 },
            coded,
            width,
            height,
            order_bits,
            reorder,
            references,
            frame_ns: read_frame_duration(&mut bits),
            tools,
            short_term,
            long_term,
        })
    }
}

/// How many pictures the highest sub-layer keeps beside its own, and how many it reorders.
fn read_buffering(bits: &mut Bits, sub_layers_minus1: u8) -> Option<(u32, u8)> {
    let all = bits.bit()?;
    let (mut references, mut reorder) = (0, 0);
    for _ in if all { 0 } else { sub_layers_minus1 }..=sub_layers_minus1 {
        references = bits.ue()?;
        reorder = bits.ue().filter(|&pictures| pictures <= 16)? as u8;
        bits.ue()?;
    }
    Some((references, reorder))
}

impl Tools {
    /// From the sizes of coding blocks to the parameters of samples without compression.
    fn parse(bits: &mut Bits) -> Option<Self> {
        let smallest_block_log2 = 3 + bits.ue().filter(|&log| log <= 3)?;
        let tree_log2 = smallest_block_log2 + bits.ue().filter(|&log| log <= 3)?;
        for _ in 0..4 {
            bits.ue()?;
        }
        if bits.bit()? && bits.bit()? {
            skip_scaling_lists(bits)?;
        }
        bits.bit()?;
        let offsets = bits.bit()?;
        if bits.bit()? {
            bits.skip(8)?;
            bits.ue()?;
            bits.ue()?;
            bits.bit()?;
        }
        Some(Self { smallest_block_log2, tree_log2, offsets, temporal_prediction: false })
    }
}

fn skip_scaling_lists(bits: &mut Bits) -> Option<()> {
    for size in 0..4 {
        for _ in 0..if size == 3 { 2 } else { 6 } {
            if !bits.bit()? {
                bits.ue()?;
                continue;
            }
            if size > 1 {
                bits.se()?;
            }
            for _ in 0..if size == 0 { 16 } else { 64 } {
                bits.se()?;
            }
        }
    }
    Some(())
}

/// The duration of a frame from the video usability information (E.2.1).
fn read_frame_duration(bits: &mut Bits) -> Option<u32> {
    if !bits.bit()? {
        return None;
    }
    signal_description(bits)?;
    if bits.bit()? {
        bits.ue()?;
        bits.ue()?;
    }
    bits.skip(3)?;
    if bits.bit()? {
        for _ in 0..4 {
            bits.ue()?;
        }
    }
    if !bits.bit()? {
        return None;
    }
    let [units, scale] = [bits.bits(32)?, bits.bits(32)?];
    duration_ns(u64::from(units), scale)
}

/// What a picture parameter set says about slice headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PictureSet {
    pub(super) id: u32,
    pub(super) sequence: u32,
    output_flag: bool,
    extra_bits: u32,
}

impl PictureSet {
    pub(super) fn parse(nal: &[u8]) -> Option<Self> {
        let mut bits = Bits::nal(nal, HEADER);
        let id = bits.ue().filter(|&id| id < PICTURE_SETS)?;
        let sequence = bits.ue().filter(|&id| id < 16)?;
        bits.bit()?;
        Some(Self { id, sequence, output_flag: bits.bit()?, extra_bits: bits.bits(3)? })
    }
}

/// The header of the first slice segment of a picture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Slice {
    /// `nal_unit_type`.
    pub(super) kind: u8,
    pub(super) temporal_id: u8,
    /// The low bits of its picture order count; 0 for an IDR picture.
    pub(super) order: u32,
    pub(super) short_term: ReferenceSet,
    pub(super) long_term: Vec<LongTerm>,
}

/// A long-term reference picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LongTerm {
    /// The low bits of its picture order count.
    pub(super) order: u32,
    /// By how many times the range of the low bits it is before the picture, if that is said.
    pub(super) cycles: Option<u32>,
    pub(super) used: bool,
}

impl Slice {
    /// Whether it is the first slice segment of a picture.
    pub(super) fn is_first(nal: &[u8]) -> bool {
        nal.get(HEADER).is_some_and(|byte| byte & 0x80 != 0)
    }

    /// The number of the picture parameter set, which the rest cannot be read without.
    pub(super) fn picture_set(nal: &[u8]) -> Option<u32> {
        let (kind, _) = nal_kind(nal)?;
        let mut bits = Bits::nal(nal, HEADER);
        bits.skip(if is_intra_access(kind) { 2 } else { 1 })?;
        bits.ue()
    }

    pub(super) fn parse(nal: &[u8], sequence: &Sequence, picture: &PictureSet) -> Option<Self> {
        let (kind, _) = nal_kind(nal)?;
        let temporal_id = (nal.get(1)? & 7).checked_sub(1)?;
        let mut slice =
            Self { kind, temporal_id, order: 0, short_term: ReferenceSet::default(), long_term: Vec::new() };
        if is_instantaneous(kind) {
            return Some(slice);
        }
        let mut bits = Bits::nal(nal, HEADER);
        bits.skip(if is_intra_access(kind) { 2 } else { 1 })?;
        bits.ue()?;
        bits.bits(picture.extra_bits)?;
        bits.ue().filter(|&slice_type| slice_type <= 2)?;
        let flags = usize::from(picture.output_flag) + if sequence.format.separate_planes { 2 } else { 0 };
        bits.skip(flags)?;
        slice.order = bits.bits(sequence.order_bits)?;
        slice.short_term = if bits.bit()? {
            let index = bits.bits(bits_for(sequence.short_term.len()))?;
            sequence.short_term.get(index as usize)?.clone()
        } else {
            ReferenceSet::parse(&mut bits, &sequence.short_term, true)?
        };
        if let Some(choice) = &sequence.long_term {
            slice.long_term = read_long_term(&mut bits, choice, sequence.order_bits)?;
        }
        Some(slice)
    }
}

fn read_long_term(bits: &mut Bits, choice: &[(u32, bool)], order_bits: u32) -> Option<Vec<LongTerm>> {
    let chosen = if choice.is_empty() { 0 } else { bits.ue().filter(|&count| count <= MOST_LONG_TERM)? };
    let listed = bits.ue().filter(|&count| count <= MOST_LONG_TERM)?;
    let mut pictures = Vec::new();
    let mut before = 0_u32;
    for at in 0..chosen + listed {
        let (order, used) = if at < chosen {
            *choice.get(bits.bits(bits_for(choice.len()))? as usize)?
        } else {
            (bits.bits(order_bits)?, bits.bit()?)
        };
        if at == chosen {
            before = 0;
        }
        let cycles = if bits.bit()? { Some(bits.ue()?.checked_add(before)?) } else { None };
        before = cycles.unwrap_or(before);
        pictures.push(LongTerm { order, cycles, used });
    }
    Some(pictures)
}

/// Bits of a number below `count`.
fn bits_for(count: usize) -> u32 {
    count.max(1).next_power_of_two().trailing_zeros()
}

/// IDR, BLA or CRA, or reserved for their like.
pub(super) fn is_intra_access(kind: u8) -> bool {
    (16..=23).contains(&kind)
}

/// IDR.
pub(super) fn is_instantaneous(kind: u8) -> bool {
    matches!(kind, 19 | 20)
}

/// Largest number of picture parameter sets (ITU-T H.265, 7.4.3.3.1).
pub(super) const PICTURE_SETS: u32 = 64;

/// Bytes of a NAL unit header.
const HEADER: usize = 2;

/// Most long-term reference pictures of a parameter set (ITU-T H.265, 7.4.3.2.1).
const MOST_LONG_TERM: u32 = 32;

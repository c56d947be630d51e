//! The fields of parameter sets and slice headers (ITU-T H.264, 7.3.2.1, 7.3.2.2 and 7.3.3) up to the picture order
//! count. `None` means that the bytes are not a valid parameter set or header.

use crate::coding::bits::{BitWriter, Bits};

/// What a sequence parameter set says about slice headers and about the pictures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sequence {
    pub(super) id: u32,
    pub(super) separate_planes: bool,
    pub(super) frame_num_bits: u32,
    pub(super) order: Order,
    /// `max_num_ref_frames`.
    pub(super) references: u32,
    /// `frame_num` may skip values though nothing is lost.
    pub(super) gaps_allowed: bool,
    pub(super) frames_only: bool,
    /// `chroma_format_idc`, if the profile has it.
    pub(crate) chroma: Option<u8>,
    /// `bit_depth_luma_minus8` and `bit_depth_chroma_minus8`.
    pub(crate) depths_minus8: [u8; 2],
    pub(super) width: u32,
    pub(super) height: u32,
    /// Macroblocks of a frame.
    pub(super) macroblocks: u32,
    pub(super) usability: Usability,
}

/// What the video usability information (E.1.1) adds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Usability {
    /// `max_num_reorder_frames`.
    pub(super) reorder: Option<u8>,
    /// The bit at which that begins.
    reorder_at: usize,
    pub(super) colours: Colours,
    /// Duration of a frame.
    pub(super) frame_ns: Option<u32>,
}

/// What samples mean, by the numbers of ITU-T H.273.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Colours {
    pub(crate) full_range: bool,
    pub(crate) primaries: u8,
    pub(crate) transfer: u8,
    pub(crate) matrix: u8,
}

impl Colours {
    /// The number of what is not known.
    pub(crate) const UNKNOWN: u8 = 2;
}

impl Default for Colours {
    fn default() -> Self {
        let unknown = Self::UNKNOWN;
        Self { full_range: false, primaries: unknown, transfer: unknown, matrix: unknown }
    }
}

/// How the picture order count is coded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Type 0: its low bits are in the slice header.
    Low { bits: u32 },
    /// Type 1: from cycles that are not followed here.
    Cycles { in_header: bool },
    /// Type 2: decoding order is display order.
    Decoding,
}

impl Sequence {
    pub(crate) fn parse(nal: &[u8]) -> Option<Self> {
        let mut bits = Bits::nal(nal, 1);
        let profile = bits.bits(8)?;
        bits.bits(16)?;
        let id = bits.ue().filter(|&id| id < 32)?;
        let mut separate_planes = false;
        let mut depths_minus8 = [0; 2];
        let mut chroma = None;
        if HIGH_PROFILES.contains(&profile) {
            let format = bits.ue().filter(|&format| format <= 3)? as u8;
            chroma = Some(format);
            if format == 3 {
                separate_planes = bits.bit()?;
            }
            for depth in &mut depths_minus8 {
                *depth = bits.ue().filter(|&depth| depth <= 6)? as u8;
            }
            bits.bit()?;
            if bits.bit()? {
                skip_scaling_lists(&mut bits, if format == 3 { 12 } else { 8 })?;
            }
        }
        let frame_num_bits = 4 + bits.ue().filter(|&log| log <= 12)?;
        let order = match bits.ue()? {
            0 => Order::Low { bits: 4 + bits.ue().filter(|&log| log <= 12)? },
            1 => {
                let always_zero = bits.bit()?;
                bits.se()?;
                bits.se()?;
                for _ in 0..bits.ue().filter(|&count| count <= 255)? {
                    bits.se()?;
                }
                Order::Cycles { in_header: !always_zero }
            }
            2 => Order::Decoding,
            _ => return None,
        };
        let references = bits.ue()?;
        let gaps_allowed = bits.bit()?;
        let [columns, rows] = [bits.ue()?, bits.ue()?];
        let frames_only = bits.bit()?;
        let fields = if frames_only { 1 } else { 2 };
        let size = [columns, rows.saturating_mul(fields).saturating_add(fields - 1)];
        let size = size.map(|blocks| blocks.saturating_add(1));
        let macroblocks = size[0].saturating_mul(size[1]);
        let [mut width, mut height] = size.map(|blocks| blocks.saturating_mul(16));
        if let Some(crop) = cropping(&mut bits, frames_only) {
            let chroma = if separate_planes { 0 } else { chroma.unwrap_or(1) };
            let unit =
                [if matches!(chroma, 1 | 2) { 2 } else { 1 }, if chroma == 1 { 2 } else { 1 } * fields];
            width = width.saturating_sub(crop[0].saturating_mul(unit[0]));
            height = height.saturating_sub(crop[1].saturating_mul(unit[1]));
        }
        let usability = Usability::parse(&mut bits).unwrap_or_default();
        Some(Self {
            id,
            separate_planes,
            frame_num_bits,
            order,
            references,
            gaps_allowed,
            frames_only,
            chroma,
            depths_minus8,
            width,
            height,
            macroblocks,
            usability,
        })
    }
}

/// The cropped margins, in both directions, in cropping units.
fn cropping(bits: &mut Bits, frames_only: bool) -> Option<[u32; 2]> {
    if !frames_only {
        bits.bit()?;
    }
    bits.bit()?;
    if !bits.bit()? {
        return None;
    }
    let [left, right, top, bottom] = [bits.ue()?, bits.ue()?, bits.ue()?, bits.ue()?];
    Some([left.saturating_add(right), top.saturating_add(bottom)])
}

impl Usability {
    fn parse(bits: &mut Bits) -> Option<Self> {
        let mut found = Self::default();
        if !bits.bit()? {
            return Some(found);
        }
        found.colours = signal_description(bits)?;
        if bits.bit()? {
            bits.ue()?;
            bits.ue()?;
        }
        if bits.bit()? {
            let [units, scale] = [bits.bits(32)?, bits.bits(32)?];
            bits.bit()?;
            // Ticks are those of fields.
            found.frame_ns = duration_ns(u64::from(units) * 2, scale);
        }
        if Self::skip_to_reorder(bits).is_some() {
            found.reorder_at = bits.position();
            found.reorder = bits.ue().filter(|&frames| frames <= 16).map(|frames| frames as u8);
        }
        Some(found)
    }

    /// `None` if nothing is said about reordering.
    fn skip_to_reorder(bits: &mut Bits) -> Option<()> {
        let schedules = [skip_schedule(bits)?, skip_schedule(bits)?];
        if schedules.contains(&true) {
            bits.bit()?;
        }
        bits.bit()?;
        if !bits.bit()? {
            return None;
        }
        bits.bit()?;
        for _ in 0..4 {
            bits.ue()?;
        }
        Some(())
    }
}

/// What a sequence parameter set says of colours.
pub(crate) fn colours(nal: &[u8]) -> Colours {
    Sequence::parse(nal).map(|sequence| sequence.usability.colours).unwrap_or_default()
}

/// The sequence parameter set as it is for the stream without the pictures that are decoded before others and shown after
/// them. `None` if it has none, or does not say how many.
pub(crate) fn without_reordering(nal: &[u8]) -> Option<Vec<u8>> {
    let Usability { reorder, reorder_at, .. } = Sequence::parse(nal)?.usability;
    reorder.filter(|&frames| frames > 0)?;
    let mut bits = Bits::nal(nal, 1);
    let mut writer = BitWriter::default();
    for _ in 0..reorder_at {
        writer.bit(bits.bit()?);
    }
    bits.ue()?;
    writer.ue(0);
    // The last field: how many pictures the decoder keeps.
    writer.ue(bits.ue()?);
    Some(writer.into_nal(*nal.first()?))
}

/// Reads the shape of samples, overscan and colours, which H.264 and H.265 code alike.
pub(crate) fn signal_description(bits: &mut Bits) -> Option<Colours> {
    const EXTENDED_SHAPE: u8 = 255;
    let mut colours = Colours::default();
    if bits.bit()? && bits.byte()? == EXTENDED_SHAPE {
        bits.skip(32)?;
    }
    if bits.bit()? {
        bits.bit()?;
    }
    if bits.bit()? {
        bits.skip(3)?;
        colours.full_range = bits.bit()?;
        if bits.bit()? {
            colours.primaries = bits.byte()?;
            colours.transfer = bits.byte()?;
            colours.matrix = bits.byte()?;
        }
    }
    Some(colours)
}

/// Nanoseconds that `units` of 1/`scale` s last, if that is a duration that frames have.
pub(crate) fn duration_ns(units: u64, scale: u32) -> Option<u32> {
    let nanos = (units.checked_mul(1_000_000_000)?).checked_div(u64::from(scale))?;
    u32::try_from(nanos).ok().filter(|&nanos| nanos > 0)
}

/// Skips the parameters of a decoding schedule (E.1.2) and tells whether they are there.
fn skip_schedule(bits: &mut Bits) -> Option<bool> {
    if !bits.bit()? {
        return Some(false);
    }
    let count = bits.ue().filter(|&count| count < 32)? + 1;
    bits.skip(8)?;
    for _ in 0..count {
        bits.ue()?;
        bits.ue()?;
        bits.bit()?;
    }
    bits.skip(20)?;
    Some(true)
}

fn skip_scaling_lists(bits: &mut Bits, lists: usize) -> Option<()> {
    for list in 0..lists {
        if !bits.bit()? {
            continue;
        }
        let (mut last, mut next) = (8, 8);
        for _ in 0..if list < 6 { 16 } else { 64 } {
            if next != 0 {
                next = (last + bits.se()?.rem_euclid(256)) % 256;
            }
            last = if next == 0 { last } else { next };
        }
    }
    Some(())
}

/// What a picture parameter set says about slice headers behind the picture order count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SliceRules {
    pub(super) is_arithmetic: bool,
    /// The default is one reference picture.
    pub(super) one_reference: bool,
    pub(super) weighted: bool,
    pub(super) initial_qp_minus26: i32,
    pub(super) has_deblocking: bool,
    pub(super) has_redundancy: bool,
}

/// What a picture parameter set says about slice headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Picture {
    pub(super) id: u32,
    pub(super) sequence: u32,
    pub(super) order_in_frame: bool,
    /// `None` if the pictures are cut into slice groups, or if the set ends before.
    pub(super) slice: Option<SliceRules>,
}

impl Picture {
    pub(super) fn parse(nal: &[u8]) -> Option<Self> {
        let mut bits = Bits::nal(nal, 1);
        let id = bits.ue().filter(|&id| id < 256)?;
        let sequence = bits.ue().filter(|&id| id < 32)?;
        let is_arithmetic = bits.bit()?;
        let order_in_frame = bits.bit()?;
        Some(Self { id, sequence, order_in_frame, slice: Self::slice_rules(&mut bits, is_arithmetic) })
    }

    fn slice_rules(bits: &mut Bits, is_arithmetic: bool) -> Option<SliceRules> {
        bits.ue().filter(|&further_groups| further_groups == 0)?;
        let one_reference = bits.ue()? == 0;
        bits.ue()?;
        let weighted = bits.bit()?;
        bits.bits(2)?;
        let initial_qp_minus26 = bits.se().filter(|qp| (-26 - 36..=25).contains(qp))?;
        bits.se()?;
        bits.se()?;
        let has_deblocking = bits.bit()?;
        bits.bit()?;
        let has_redundancy = bits.bit()?;
        Some(SliceRules {
            is_arithmetic,
            one_reference,
            weighted,
            initial_qp_minus26,
            has_deblocking,
            has_redundancy,
        })
    }
}

/// How the samples of a slice, or of the whole picture, are predicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SliceType {
    /// From the picture itself.
    I,
    /// From one other picture a block.
    P,
    /// From two other pictures a block.
    B,
}

/// Whether a supplemental enhancement NAL unit says that decoding can begin at its picture and be right at once (D.1.8).
pub(super) fn is_exact_recovery_point(nal: &[u8]) -> bool {
    const RECOVERY_POINT: usize = 6;
    let mut bits = Bits::nal(nal, 1);
    let number = |bits: &mut Bits| {
        let mut number = 0;
        loop {
            let byte = bits.byte()?;
            number += usize::from(byte);
            if byte != 255 {
                return Some(number);
            }
        }
    };
    while let (Some(kind), Some(len)) = (number(&mut bits), number(&mut bits)) {
        if kind == RECOVERY_POINT {
            return bits.ue() == Some(0);
        }
        if bits.skip(len.saturating_mul(8)).is_none() {
            return false;
        }
    }
    false
}

/// The beginning of a slice header: what tells pictures apart, and their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slice {
    pub(super) slice_type: SliceType,
    pub(super) identity: Identity,
    /// It holds the first macroblock of its picture.
    pub(super) is_first: bool,
}

/// Two slices with different identities belong to different pictures (7.4.1.2.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) picture_set: u32,
    pub(super) is_reference: bool,
    pub(super) idr: bool,
    pub(super) frame_num: u32,
    /// `Some(true)` for a bottom field, `None` for a frame.
    pub(super) field: Option<bool>,
    idr_id: u32,
    pub(super) order: [i32; 2],
}

impl Slice {
    /// The number of the picture parameter set, which the rest cannot be read without.
    pub(super) fn picture_set(nal: &[u8]) -> Option<u32> {
        let mut bits = Bits::nal(nal, 1);
        bits.ue()?;
        bits.ue()?;
        bits.ue()
    }

    pub(super) fn parse(nal: &[u8], sequence: &Sequence, picture: &Picture) -> Option<Self> {
        let header = *nal.first()?;
        let idr = header & 31 == 5;
        let mut bits = Bits::nal(nal, 1);
        let is_first = bits.ue()? == 0;
        let slice_type = match bits.ue().filter(|&code| code < 10)? % 5 {
            0 | 3 => SliceType::P,
            1 => SliceType::B,
            _ => SliceType::I,
        };
        let picture_set = bits.ue()?;
        if sequence.separate_planes {
            bits.bits(2)?;
        }
        let frame_num = bits.bits(sequence.frame_num_bits)?;
        let field = if !sequence.frames_only && bits.bit()? { Some(bits.bit()?) } else { None };
        let idr_id = if idr { bits.ue()? } else { 0 };
        let in_frame = picture.order_in_frame && field.is_none();
        let order = match sequence.order {
            Order::Low { bits: low } => {
                let low = i32::try_from(bits.bits(low)?).ok()?;
                [low, if in_frame { bits.se()? } else { 0 }]
            }
            Order::Cycles { in_header: true } => [bits.se()?, if in_frame { bits.se()? } else { 0 }],
            Order::Cycles { in_header: false } | Order::Decoding => [0, 0],
        };
        let is_reference = header & 0x60 != 0;
        let identity = Identity { picture_set, is_reference, idr, frame_num, field, idr_id, order };
        Some(Self { slice_type, identity, is_first })
    }
}

/// Profiles whose parameter sets describe the chroma format.
const HIGH_PROFILES: [u32; 13] = [100, 110, 122, 244, 44, 83, 86, 118, 128, 138, 139, 134, 135];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::X264_SEQUENCE;

    #[test]
    fn nothing_but_the_reordering_changes() {
        let is_changed = |nal: &[u8]| {
            let Some(straight) = without_reordering(nal) else { return false };
            let (mut before, after) = (Sequence::parse(nal).unwrap(), Sequence::parse(&straight).unwrap());
            before.usability.reorder = Some(0);
            assert_eq!(before, after);
            assert_eq!(without_reordering(&straight), None);
            true
        };
        assert!(is_changed(&X264_SEQUENCE));
        bolero::check!().with_iterations(crate::testing::ITERATIONS).with_type::<Vec<(u8, u8)>>().for_each(
            |changes| {
                let mut nal = X264_SEQUENCE;
                for &(at, value) in changes.iter().take(3) {
                    nal[usize::from(at) % nal.len()] = value;
                }
                is_changed(&nal);
            },
        );
    }

    #[test]
    fn only_an_exact_recovery_point_counts() {
        assert!(is_exact_recovery_point(&[6, 6, 1, 0b1000_0000]));
        assert!(!is_exact_recovery_point(&[6, 6, 1, 0b0100_0000]), "right after one more picture");
        assert!(is_exact_recovery_point(&[6, 5, 2, 9, 9, 6, 1, 0b1000_0000]), "after another message");
        assert!(!is_exact_recovery_point(&[6, 5, 200, 9]));
    }
}

//! The fields of parameter sets and slice headers (ITU-T H.264, 7.3.2.1, 7.3.2.2 and 7.3.3) up to the picture order
//! count. `None` means that the bytes are not a valid parameter set or header.

use super::bits::Bits;

/// What a sequence parameter set says about slice headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sequence {
    pub(super) id: u32,
    separate_planes: bool,
    pub(super) frame_num_bits: u32,
    pub(super) order: Order,
    frames_only: bool,
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
    pub(super) fn parse(nal: &[u8]) -> Option<Self> {
        let mut bits = Bits::new(nal);
        let profile = bits.bits(8)?;
        bits.bits(16)?;
        let id = bits.ue().filter(|&id| id < 32)?;
        let mut separate_planes = false;
        if HIGH_PROFILES.contains(&profile) {
            let chroma = bits.ue().filter(|&chroma| chroma <= 3)?;
            if chroma == 3 {
                separate_planes = bits.bit()?;
            }
            bits.ue()?;
            bits.ue()?;
            bits.bit()?;
            if bits.bit()? {
                skip_scaling_lists(&mut bits, if chroma == 3 { 12 } else { 8 })?;
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
        bits.ue()?;
        bits.bit()?;
        bits.ue()?;
        bits.ue()?;
        Some(Self { id, separate_planes, frame_num_bits, order, frames_only: bits.bit()? })
    }
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

/// What a picture parameter set says about slice headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Picture {
    pub(super) id: u32,
    pub(super) sequence: u32,
    order_in_frame: bool,
}

impl Picture {
    pub(super) fn parse(nal: &[u8]) -> Option<Self> {
        let mut bits = Bits::new(nal);
        let id = bits.ue().filter(|&id| id < 256)?;
        let sequence = bits.ue().filter(|&id| id < 32)?;
        bits.bit()?;
        Some(Self { id, sequence, order_in_frame: bits.bit()? })
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

/// The beginning of a slice header: what tells pictures apart, and their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slice {
    pub(super) slice_type: SliceType,
    pub(super) identity: Identity,
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
        let mut bits = Bits::new(nal);
        bits.ue()?;
        bits.ue()?;
        bits.ue()
    }

    pub(super) fn parse(nal: &[u8], sequence: &Sequence, picture: &Picture) -> Option<Self> {
        let header = *nal.first()?;
        let idr = header & 31 == 5;
        let mut bits = Bits::new(nal);
        bits.ue()?;
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
        Some(Self { slice_type, identity })
    }
}

/// Profiles whose parameter sets describe the chroma format.
const HIGH_PROFILES: [u32; 13] = [100, 110, 122, 244, 44, 83, 86, 118, 128, 138, 139, 134, 135];

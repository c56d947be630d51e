//! The frame header (5.9.2) up to the frames it refers to. `None` means that the bytes are not one.

use super::sequence::{Fields, Sequence};
use crate::coding::bits::Bits;

/// A frame header, as far as frames depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameHeader {
    /// Shows what was decoded before.
    Existing { slot: u32 },
    /// Codes a frame.
    Coded { frame_type: FrameType, shown: bool, refresh: u32, references: References },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameType {
    Key,
    Inter,
    IntraOnly,
    Switch,
}

/// The slots that a frame refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum References {
    None,
    These([u32; 7]),
    /// The decoder finds them from the order hints of all.
    Any,
}

impl References {
    pub(super) fn slots(self) -> impl Iterator<Item = u32> {
        let slots = if let Self::These(slots) = self { Some(slots) } else { None };
        slots.into_iter().flatten()
    }

    pub(super) fn is_any(self) -> bool {
        self == Self::Any
    }
}

impl FrameHeader {
    /// Reads the header at the beginning of `payload`, in the layer with the given temporal and spatial number.
    pub(super) fn parse(payload: &[u8], sequence: &Sequence, layer: (u8, u8)) -> Option<Self> {
        let fields = &sequence.fields;
        let mut bits = Bits::plain(payload.get(..payload.len().min(HEADER_BYTES))?);
        if fields.still {
            let (frame_type, references) = (FrameType::Key, References::None);
            return Some(Self::Coded { frame_type, shown: true, refresh: ALL, references });
        }
        if bits.bit()? {
            return Some(Self::Existing { slot: bits.bits(3)? });
        }
        let frame_type = match bits.bits(2)? {
            0 => FrameType::Key,
            1 => FrameType::Inter,
            2 => FrameType::IntraOnly,
            _ => FrameType::Switch,
        };
        let shown = bits.bit()?;
        if shown {
            bits.skip(fields.presentation_bits.unwrap_or(0) as usize)?;
        } else {
            bits.bit()?;
        }
        let resets = frame_type == FrameType::Switch || (frame_type == FrameType::Key && shown);
        let resilient = resets || bits.bit()?;
        let intra = matches!(frame_type, FrameType::Key | FrameType::IntraOnly);
        skip_to_refresh(&mut bits, fields, frame_type, intra || resilient, layer)?;
        let refresh = if resets { ALL } else { bits.bits(8)? };
        if (!intra || refresh != ALL) && resilient {
            bits.skip(8 * fields.order_hint_bits as usize)?;
        }
        let references = if intra { References::None } else { read_references(&mut bits, fields)? };
        Some(Self::Coded { frame_type, shown, refresh, references })
    }
}

/// From `disable_cdf_update` to the buffer removal times.
fn skip_to_refresh(
    bits: &mut Bits,
    fields: &Fields,
    frame_type: FrameType,
    no_primary: bool,
    (temporal_id, spatial_id): (u8, u8),
) -> Option<()> {
    bits.bit()?;
    let screen_content = if fields.screen_content == 2 { bits.bits(1)? } else { fields.screen_content };
    if screen_content == 1 && fields.integer_vectors == 2 {
        bits.bit()?;
    }
    bits.skip(fields.frame_id_bits.unwrap_or(0) as usize)?;
    if frame_type != FrameType::Switch {
        bits.bit()?;
    }
    bits.skip(fields.order_hint_bits as usize)?;
    if !no_primary {
        bits.skip(3)?;
    }
    if let Some(removal_bits) = fields.removal_bits
        && bits.bit()?
    {
        let layers = 1 << temporal_id | 1 << (spatial_id + 8);
        for &point in &fields.timed_points {
            if point == 0 || point & layers == layers {
                bits.skip(removal_bits as usize)?;
            }
        }
    }
    Some(())
}

fn read_references(bits: &mut Bits, fields: &Fields) -> Option<References> {
    if fields.order_hint_bits > 0 && bits.bit()? {
        return Some(References::Any);
    }
    let mut slots = [0; 7];
    for slot in &mut slots {
        *slot = bits.bits(3)?;
        bits.skip(fields.frame_id_bits.map_or(0, |_| fields.delta_frame_id_bits as usize))?;
    }
    Some(References::These(slots))
}

/// `refresh_frame_flags` of a frame that goes into all slots.
const ALL: u32 = 0xff;

/// The part of a header that is read ends well within these bytes (AV1 specification, 5.9.2).
const HEADER_BYTES: usize = 256;

//! AV1 (the bitstream specification's version 1.0.0 with errata 1) as one of the live formats.
//!
//! All that a frame takes over from others comes through the frame buffers it names, so a frame that refreshes none has
//! nothing that depends on it.

mod frame;
mod obu;
pub(crate) mod sequence;

use self::frame::{FrameHeader, FrameType};
use self::obu::{Obu, Obus};
use self::sequence::Sequence;
use crate::coding::whole::{Frame, Slots, WholeCodec};
use crate::unit::{VideoCodec, VideoTrack};

/// Follows the frames of a live AV1 stream.
#[derive(Clone, Debug, Default)]
pub(crate) struct Live {
    /// The newest sequence header, parsed and as an OBU with size field.
    sequence: Option<(Sequence, Vec<u8>)>,
    slots: Slots,
    /// Slots with a key frame that was not shown.
    hidden_keys: [bool; 8],
}

impl WholeCodec for Live {
    fn read(&mut self, bytes: &[u8], number: u64) -> Option<Frame> {
        let mut unit = Frame::new(Vec::with_capacity(bytes.len() + 32));
        let mut first = true;
        let mut has_sequence = false;
        for obu in Obus(bytes) {
            let obu = obu?;
            match obu.kind {
                TEMPORAL_DELIMITER | TILE_LIST | PADDING => continue,
                SEQUENCE_HEADER => {
                    self.keep_sequence(&obu)?;
                    has_sequence = true;
                }
                FRAME_HEADER | FRAME => {
                    unit.temporal_id = unit.temporal_id.max(obu.temporal_id);
                    self.follow(&obu, number, first, &mut unit)?;
                    first = false;
                }
                _ => {}
            }
            let begin = unit.bytes.len() as u32;
            obu.write(&mut unit.bytes);
            unit.obus.push(begin..unit.bytes.len() as u32);
        }
        let (sequence, header) = self.sequence.as_ref().filter(|_| !first)?;
        unit.on.retain(|&on| on != number && !unit.key);
        unit.frame_ns = sequence.frame_ns;
        if unit.key {
            let codec = VideoCodec::Av1 { sequence_header: header.clone() };
            unit.track = Some(VideoTrack { codec, width: sequence.width, height: sequence.height });
            if !has_sequence {
                let len = header.len() as u32;
                unit.bytes.splice(..0, header.iter().copied());
                unit.obus.iter_mut().for_each(|obu| *obu = obu.start + len..obu.end + len);
                unit.obus.insert(0, 0..len);
            }
        }
        Some(unit)
    }

    fn holds(&self, number: u64) -> bool {
        self.slots.hold(number)
    }

    fn is_key(&mut self, bytes: &[u8]) -> bool {
        let mut probe = self.clone();
        probe.read(bytes, 0).is_some_and(|unit| unit.key)
    }
}

impl Live {
    fn keep_sequence(&mut self, obu: &Obu<'_>) -> Option<()> {
        let sequence = Sequence::parse(obu.payload)?;
        let mut header = Vec::with_capacity(obu.payload.len() + 4);
        obu.write(&mut header);
        self.sequence = Some((sequence, header));
        Some(())
    }

    /// Adds to `unit` what the frame whose header is in `obu` depends on, and what follows for later ones.
    fn follow(&mut self, obu: &Obu<'_>, number: u64, first: bool, unit: &mut Frame) -> Option<()> {
        let (sequence, _) = self.sequence.as_ref()?;
        match FrameHeader::parse(obu.payload, sequence, (obu.temporal_id, obu.spatial_id))? {
            FrameHeader::Existing { slot } => {
                let source = self.slots.get(slot)?;
                unit.on.push(source);
                if self.hidden_keys.get(slot as usize).copied()? {
                    self.slots.refresh(0xff, source);
                    self.hidden_keys = [false; 8];
                }
            }
            FrameHeader::Coded { frame_type, shown, refresh, references } => {
                unit.key |= first && shown && frame_type == FrameType::Key;
                unit.droppable &= refresh == 0;
                for slot in references.slots() {
                    unit.on.push(self.slots.get(slot)?);
                }
                if references.is_any() {
                    unit.on.extend(self.slots.all());
                }
                self.slots.refresh(refresh, number);
                let hidden_key = frame_type == FrameType::Key && !shown;
                for (slot, hidden) in self.hidden_keys.iter_mut().enumerate() {
                    if refresh >> slot & 1 == 1 {
                        *hidden = hidden_key;
                    }
                }
            }
        }
        Some(())
    }
}

const SEQUENCE_HEADER: u8 = 1;
const TEMPORAL_DELIMITER: u8 = 2;
const FRAME_HEADER: u8 = 3;
const FRAME: u8 = 6;
const TILE_LIST: u8 = 8;
const PADDING: u8 = 15;

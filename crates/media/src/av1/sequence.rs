//! The sequence header (5.5). `None` means that the bytes are not one.

use crate::coding::bits::Bits;
use crate::h264::syntax::duration_ns;

/// What a sequence header says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sequence {
    pub(crate) profile: u8,
    /// `seq_level_idx` and `seq_tier` of the first operating point, which has all layers.
    pub(crate) level: u8,
    pub(crate) tier: bool,
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) frame_ns: Option<u32>,
    pub(super) fields: Fields,
    pub(crate) format: SampleFormat,
}

/// Which fields frame headers have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Fields {
    pub(super) still: bool,
    /// Bits of a presentation time, if frames that are shown have one.
    pub(super) presentation_bits: Option<u32>,
    /// Bits of a removal time, if frames may have some.
    pub(super) removal_bits: Option<u32>,
    /// Layers of each operating point that removal times are for.
    pub(super) timed_points: Vec<u32>,
    /// Bits of a frame's number, if it has one.
    pub(super) frame_id_bits: Option<u32>,
    /// How much longer a difference of frame numbers is coded.
    pub(super) delta_frame_id_bits: u32,
    /// `seq_force_screen_content_tools` and `seq_force_integer_mv`; 2 if the frame says it.
    pub(super) screen_content: u32,
    pub(super) integer_vectors: u32,
    /// 0 if frames have no order hint.
    pub(super) order_hint_bits: u32,
}

/// How samples are coded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SampleFormat {
    pub(crate) high_bit_depth: bool,
    pub(crate) twelve_bit: bool,
    pub(crate) monochrome: bool,
    /// Chroma is half as wide, half as high.
    pub(crate) subsampling: [bool; 2],
    pub(crate) chroma_position: u8,
}

impl SampleFormat {
    /// Bits of a sample.
    pub(crate) fn bit_depth(self) -> u8 {
        match (self.high_bit_depth, self.twelve_bit) {
            (true, true) => 12,
            (true, false) => 10,
            _ => 8,
        }
    }

    fn parse(bits: &mut Bits, profile: u8) -> Option<Self> {
        const SRGB: (u32, u32, u32) = (1, 13, 0);
        let high_bit_depth = bits.bit()?;
        let twelve_bit = profile == 2 && high_bit_depth && bits.bit()?;
        let monochrome = profile != 1 && bits.bit()?;
        let described = bits.bit()?;
        let colours = if described { (bits.bits(8)?, bits.bits(8)?, bits.bits(8)?) } else { (2, 2, 2) };
        let mut format =
            Self { high_bit_depth, twelve_bit, monochrome, subsampling: [true; 2], chroma_position: 0 };
        if monochrome {
            bits.bit()?;
            return Some(format);
        }
        if colours == SRGB {
            format.subsampling = [false; 2];
        } else {
            bits.bit()?;
            format.subsampling = match profile {
                0 => [true; 2],
                1 => [false; 2],
                _ if twelve_bit => {
                    let across = bits.bit()?;
                    [across, across && bits.bit()?]
                }
                _ => [true, false],
            };
            if format.subsampling == [true; 2] {
                format.chroma_position = bits.bits(2)? as u8;
            }
        }
        bits.bit()?;
        Some(format)
    }
}

impl Sequence {
    /// That of an OBU, with header and perhaps a size field.
    pub(crate) fn of_obu(obu: &[u8]) -> Option<Self> {
        let (obu, _) = super::obu::split_obu(obu)?;
        Self::parse(obu.payload)
    }

    pub(crate) fn parse(payload: &[u8]) -> Option<Self> {
        let mut bits = Bits::plain(payload);
        let profile = bits.bits(3).filter(|&profile| profile <= 2)? as u8;
        bits.bit()?;
        let mut sequence = Self {
            profile,
            level: 0,
            tier: false,
            width: 0,
            height: 0,
            frame_ns: None,
            fields: Fields { still: bits.bit()?, ..Fields::default() },
            format: SampleFormat::default(),
        };
        if sequence.fields.still {
            sequence.level = bits.bits(5)? as u8;
        } else {
            sequence.read_operating_points(&mut bits)?;
        }
        let size_bits = [bits.bits(4)? + 1, bits.bits(4)? + 1];
        sequence.width = bits.bits(size_bits[0])? + 1;
        sequence.height = bits.bits(size_bits[1])? + 1;
        let fields = &mut sequence.fields;
        if !fields.still && bits.bit()? {
            fields.delta_frame_id_bits = bits.bits(4)? + 2;
            fields.frame_id_bits = Some(fields.delta_frame_id_bits + bits.bits(3)? + 1);
        }
        bits.skip(3)?;
        if fields.still {
            (fields.screen_content, fields.integer_vectors) = (2, 2);
        } else {
            fields.read_tools(&mut bits)?;
        }
        bits.skip(3)?;
        sequence.format = SampleFormat::parse(&mut bits, profile)?;
        Some(sequence)
    }

    fn read_operating_points(&mut self, bits: &mut Bits) -> Option<()> {
        let mut delay_bits = None;
        if bits.bit()? {
            let [units, scale] = [bits.bits(32)?, bits.bits(32)?];
            let equal = bits.bit()?;
            if equal {
                let ticks = bits.ue()?.checked_add(1)?;
                self.frame_ns = duration_ns(u64::from(units) * u64::from(ticks), scale);
            }
            if bits.bit()? {
                delay_bits = Some(bits.bits(5)? + 1);
                bits.skip(32)?;
                self.fields.removal_bits = Some(bits.bits(5)? + 1);
                let presentation_bits = bits.bits(5)? + 1;
                self.fields.presentation_bits = (!equal).then_some(presentation_bits);
            }
        }
        let has_delays = bits.bit()?;
        for point in 0..=bits.bits(5)? {
            let layers = bits.bits(12)?;
            let level = bits.bits(5)? as u8;
            let tier = level > 7 && bits.bit()?;
            if point == 0 {
                (self.level, self.tier) = (level, tier);
            }
            if let Some(delay_bits) = delay_bits
                && bits.bit()?
            {
                bits.skip(2 * delay_bits as usize + 1)?;
                self.fields.timed_points.push(layers);
            }
            if has_delays && bits.bit()? {
                bits.skip(4)?;
            }
        }
        Some(())
    }
}

impl Fields {
    fn read_tools(&mut self, bits: &mut Bits) -> Option<()> {
        bits.skip(4)?;
        let order_hints = bits.bit()?;
        if order_hints {
            bits.skip(2)?;
        }
        self.screen_content = if bits.bit()? { 2 } else { bits.bits(1)? };
        self.integer_vectors = match self.screen_content {
            0 => 2,
            _ if bits.bit()? => 2,
            _ => bits.bits(1)?,
        };
        if order_hints {
            self.order_hint_bits = bits.bits(3)? + 1;
        }
        Some(())
    }
}

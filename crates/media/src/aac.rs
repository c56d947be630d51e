//! The AudioSpecificConfig (ISO 14496-3, 1.6.2.1).

use crate::coding::bits::Bits;
use crate::unit::{AudioCodec, AudioTrack};

/// What an AudioSpecificConfig says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Config {
    /// The audio object type that is signalled: 2 is AAC-LC, 5 HE-AAC, 29 HE-AAC v2.
    pub(crate) signalled: u32,
    /// The object type below spectral band replication.
    core: u32,
    /// Index of the core's sample rate in [`SAMPLE_RATES`]; 15 if it is not there.
    rate_index: u32,
    /// Samples of the core per second.
    pub(crate) rate: u32,
    channels: u32,
    /// Samples of the core in a frame.
    pub(crate) samples: u32,
}

impl AudioTrack {
    /// Whether a decoder for this track decodes the other one. For AAC the configurations have to say the same of object type, rate,
    /// channels and frames; what encoders append differs. Each packet of Opus says its channels itself.
    pub fn decodes(&self, other: &Self) -> bool {
        match (&self.codec, &other.codec) {
            (AudioCodec::Opus, AudioCodec::Opus) => true,
            (AudioCodec::Aac { config }, AudioCodec::Aac { config: other }) => {
                config == other || Config::parse(config).is_some_and(|it| Some(it) == Config::parse(other))
            }
            _ => false,
        }
    }
}

impl Config {
    /// `None` if the bytes end too early, or the sample rate is reserved.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let mut bits = Bits::plain(bytes);
        let signalled = object_type(&mut bits)?;
        let (rate_index, rate) = sample_rate(&mut bits)?;
        let channels = bits.bits(4)?;
        let core = if matches!(signalled, 5 | 29) {
            sample_rate(&mut bits)?;
            object_type(&mut bits)?
        } else {
            signalled
        };
        let samples = if bits.bit().unwrap_or(false) { 960 } else { 1024 };
        Some(Self { signalled, core, rate_index, rate, channels, samples })
    }

    /// How long a frame lasts, in nanoseconds. A decoder that doubles the sample rate doubles the samples as well.
    pub(crate) fn frame_ns(&self) -> Option<u32> {
        u32::try_from((u64::from(self.samples) * 1_000_000_000).checked_div(self.rate.into())?).ok()
    }

    /// How many channels its layout has; `None` if each frame describes them, or the layout is reserved.
    pub(crate) fn channels(&self) -> Option<u8> {
        match self.channels {
            channels @ 1..=6 => u8::try_from(channels).ok(),
            11 => Some(7),
            7 | 12 | 14 => Some(8),
            _ => None,
        }
    }

    /// The seven bytes in front of a raw frame of `len` bytes (ISO 13818-7, 6.2). `None` if the frame is too long.
    pub(crate) fn adts(&self, len: u32) -> Option<[u8; 7]> {
        let len = len.checked_add(7).filter(|&len| len < 1 << 13)?;
        let bits = u64::from(0xfff1_u16) << 40
            | u64::from(self.core - 1) << 38
            | u64::from(self.rate_index) << 34
            | u64::from(self.channels) << 30
            | u64::from(len) << 13
            | BUFFER_FULLNESS_UNKNOWN << 2;
        let [_, bytes @ ..] = bits.to_be_bytes();
        Some(bytes)
    }

    /// True if ADTS headers can say it: one of the first four object types, a listed sample rate, a listed channel layout.
    pub(crate) fn fits_adts(&self) -> bool {
        (1..=4).contains(&self.core) && self.rate_index < 15 && (1..=7).contains(&self.channels)
    }
}

fn object_type(bits: &mut Bits) -> Option<u32> {
    match bits.bits(5)? {
        31 => Some(32 + bits.bits(6)?),
        kind => Some(kind),
    }
}

/// The index of a sample rate, and the rate.
fn sample_rate(bits: &mut Bits) -> Option<(u32, u32)> {
    let index = bits.bits(4)?;
    let rate = if index == 15 { bits.bits(24)? } else { *SAMPLE_RATES.get(index as usize)? };
    Some((index, rate))
}

/// Sample rates by their index (ISO 14496-3, table 1.18).
pub(crate) const SAMPLE_RATES: [u32; 13] =
    [96_000, 88_200, 64_000, 48_000, 44_100, 32_000, 24_000, 22_050, 16_000, 12_000, 11_025, 8_000, 7_350];

const BUFFER_FULLNESS_UNKNOWN: u64 = 0x7ff;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn low_complexity_stereo() {
        let config = Config::parse(&[0x11, 0x90]).expect("AAC-LC, 48 kHz, stereo");
        assert_eq!((config.signalled, config.fits_adts()), (2, true));
        // Syncword, MPEG-4, no CRC; LC, 48 kHz, stereo; 9 + 7 bytes; fullness unknown; one frame.
        assert_eq!(config.adts(9), Some([0xff, 0xf1, 0x4c, 0x80, 0x02, 0x1f, 0xfc]));
        assert_eq!(config.adts(8185), None);
    }

    #[test]
    fn high_efficiency_names_its_core() {
        // HE-AAC, core at 24 kHz, stereo, output at 48 kHz, core LC.
        let config = Config::parse(&[0x2b, 0x11, 0x88, 0x00]).expect("HE-AAC");
        assert_eq!((config.signalled, config.core, config.rate_index, config.channels), (5, 2, 6, 2));
    }

    #[test]
    fn a_frame_lasts_as_long_as_its_samples() {
        let frame_ns = |bytes: &[u8]| Config::parse(bytes)?.frame_ns();
        assert_eq!(frame_ns(&[0x11, 0x90]), Some(21_333_333));
        assert_eq!(frame_ns(&[0x11, 0x94]), Some(20_000_000), "960 samples");
        assert_eq!(frame_ns(&[0x2b, 0x92, 0x08]), Some(46_439_909));
        assert_eq!(frame_ns(&[0x17, 0x80, 0x5d, 0xc0, 0x10]), Some(21_333_333), "a rate that is not listed");
        assert_eq!(frame_ns(&[0x17, 0x80, 0, 0, 0x10]), None, "no samples at all");
        assert_eq!((frame_ns(&[0x17, 0x80]), frame_ns(&[0xff, 0xff]), frame_ns(&[])), (None, None, None));
    }

    #[test]
    fn any_bytes() {
        bolero::check!().with_iterations(crate::testing::ITERATIONS).for_each(|bytes: &[u8]| {
            if let Some(config) = Config::parse(bytes).filter(Config::fits_adts) {
                let header = config.adts(100).expect("short");
                assert_eq!(header[0], 0xff);
            }
        });
    }
}

//! The AudioSpecificConfig (ISO 14496-3, 1.6.2.1).

use crate::video::bits::Bits;

/// What ADTS headers and codec names take from an AudioSpecificConfig.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Config {
    /// The audio object type that is signalled: 2 is AAC-LC, 5 HE-AAC, 29 HE-AAC v2.
    pub(super) signalled: u32,
    /// The object type below spectral band replication.
    core: u32,
    /// Index of the core's sampling frequency; 15 if it has none.
    frequency: u32,
    channels: u32,
}

impl Config {
    /// `None` if the bytes end too early.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let mut bits = Bits::plain(bytes);
        let signalled = object_type(&mut bits)?;
        let frequency = frequency(&mut bits)?;
        let channels = bits.bits(4)?;
        let core = if matches!(signalled, 5 | 29) {
            self::frequency(&mut bits)?;
            object_type(&mut bits)?
        } else {
            signalled
        };
        Some(Self { signalled, core, frequency, channels })
    }

    /// The seven bytes in front of a raw frame of `len` bytes (ISO 13818-7, 6.2). `None` if the frame is too long.
    pub(super) fn adts(&self, len: u32) -> Option<[u8; 7]> {
        let len = len.checked_add(7).filter(|&len| len < 1 << 13)?;
        let bits = u64::from(0xfff1_u16) << 40
            | u64::from(self.core - 1) << 38
            | u64::from(self.frequency) << 34
            | u64::from(self.channels) << 30
            | u64::from(len) << 13
            | BUFFER_FULLNESS_UNKNOWN << 2;
        let [_, bytes @ ..] = bits.to_be_bytes();
        Some(bytes)
    }

    /// True if ADTS headers can say it: one of the first four object types, a listed frequency, a listed channel layout.
    pub(super) fn fits_adts(&self) -> bool {
        (1..=4).contains(&self.core) && self.frequency < 13 && (1..=7).contains(&self.channels)
    }
}

fn object_type(bits: &mut Bits) -> Option<u32> {
    match bits.bits(5)? {
        31 => Some(32 + bits.bits(6)?),
        kind => Some(kind),
    }
}

fn frequency(bits: &mut Bits) -> Option<u32> {
    let index = bits.bits(4)?;
    if index == 15 {
        bits.bits(24)?;
    }
    Some(index)
}

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
        assert_eq!((config.signalled, config.core, config.frequency, config.channels), (5, 2, 6, 2));
    }

    #[test]
    fn any_bytes() {
        bolero::check!().for_each(|bytes: &[u8]| {
            if let Some(config) = Config::parse(bytes).filter(Config::fits_adts) {
                let header = config.adts(100).expect("short");
                assert_eq!(header[0], 0xff);
            }
        });
    }
}

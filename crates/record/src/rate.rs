use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::parse::{ParseUnitError, split_unit};

/// A data rate in bits per second.
///
/// Its text form is a number and a unit: `bit`, `kbit`, `Mbit`, `Gbit` (powers of 1000), `Kibit`, `Mibit`, `Gibit`
/// (powers of 1024), each with or without `/s`. A bare number is bits per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Rate(u64);

impl Rate {
    /// `bits` bits per second.
    pub const fn from_bits_per_sec(bits: u64) -> Self {
        Self(bits)
    }

    /// `bytes` bytes per second; saturates.
    pub const fn from_bytes_per_sec(bytes: u64) -> Self {
        Self(bytes.saturating_mul(8))
    }

    /// Bits per second.
    pub const fn bits_per_sec(self) -> u64 {
        self.0
    }

    /// Bytes per second, rounded down.
    pub const fn bytes_per_sec(self) -> u64 {
        self.0 / 8
    }

    /// How long `bytes` bytes take at this rate, rounded up to a nanosecond; `Duration::MAX` at rate zero.
    pub fn time_for(self, bytes: u64) -> Duration {
        if self.0 == 0 {
            return Duration::MAX;
        }
        // Dividing the wider numbers takes several times as long, and they are rare.
        let nanos = match bytes.checked_mul(8 * 1_000_000_000) {
            Some(nanos) => nanos.div_ceil(self.0),
            None => {
                let nanos = (u128::from(bytes) * 8 * 1_000_000_000).div_ceil(u128::from(self.0));
                u64::try_from(nanos).unwrap_or(u64::MAX)
            }
        };
        Duration::from_nanos(nanos)
    }

    /// How many whole bytes pass in `time` at this rate; saturates.
    pub fn bytes_in(self, time: Duration) -> u64 {
        let bits = u128::from(self.0).saturating_mul(time.as_nanos());
        match u64::try_from(bits) {
            Ok(bits) => bits / (8 * 1_000_000_000),
            Err(_) => u64::try_from(bits / (8 * 1_000_000_000)).unwrap_or(u64::MAX),
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u64, &str); 6] = [
            (1_000_000_000, "Gbit"),
            (1 << 30, "Gibit"),
            (1_000_000, "Mbit"),
            (1 << 20, "Mibit"),
            (1000, "kbit"),
            (1 << 10, "Kibit"),
        ];
        for (scale, unit) in UNITS {
            if self.0 >= scale && self.0.is_multiple_of(scale) {
                return write!(f, "{}{unit}", self.0 / scale);
            }
        }
        write!(f, "{}bit", self.0)
    }
}

impl FromStr for Rate {
    type Err = ParseUnitError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const EXPECTED: &str = "a rate such as 512kbit, 1024Kibit or 6Mbit";
        const BITS_OR_BYTES: &str =
            "clear: some programs read bytes there and some bits; write bits, such as 100Mbit";
        const INCOMPLETE: &str = "complete; write bits, such as 512kbit or 100Mbit";
        let (number, unit) = split_unit(text, EXPECTED)?;
        let unit = unit.to_ascii_lowercase();
        let unit = unit.strip_suffix("/s").unwrap_or(&unit);
        let (prefix, base) =
            unit.split_at(unit.len() - unit.trim_start_matches(['k', 'm', 'g', 't', 'i']).len());
        let scale = match prefix {
            "" => 1.0,
            "k" => 1e3,
            "m" => 1e6,
            "g" => 1e9,
            "t" => 1e12,
            "ki" => 1024.0,
            "mi" => 1024.0 * 1024.0,
            "gi" => 1024.0 * 1024.0 * 1024.0,
            "ti" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
            _ => return Err(ParseUnitError::new(text, EXPECTED)),
        };
        match base {
            "bit" => {}
            "" if prefix.is_empty() => {}
            "" => return Err(ParseUnitError::new(text, INCOMPLETE)),
            // `tc` reads Mbps as megabytes a second, and Mb as megabits; most people the other way round.
            "b" | "bps" => return Err(ParseUnitError::new(text, BITS_OR_BYTES)),
            _ => return Err(ParseUnitError::new(text, EXPECTED)),
        }
        let bits = number * scale;
        if !(1.0..=1e15).contains(&bits) {
            return Err(ParseUnitError::new(text, "a rate from 1bit to 1000000Gbit"));
        }
        Ok(Self(bits.round() as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_mean_what_they_say() {
        for (text, bits) in [
            ("512kbit", 512_000),
            ("512Kibit", 524_288),
            ("1.5Mbit/s", 1_500_000),
            ("1Mibit", 1_048_576),
            ("7", 7),
            ("2 Gbit", 2_000_000_000),
        ] {
            assert_eq!(text.parse::<Rate>(), Ok(Rate::from_bits_per_sec(bits)), "{text}");
        }
        for text in ["", "kbit", "5kb", "-1kbit", "nan", "inf", "0kbit", "1e30Gbit", "5kbit!"] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
    }

    /// Every spelling that `tc` has for bits, in any case; what it reads as bytes is refused, because others do not.
    #[test]
    fn spellings_are_those_of_tc() {
        let prefixes = ["", "k", "m", "g", "t", "ki", "mi", "gi", "ti"];
        for (at, prefix) in prefixes.into_iter().enumerate() {
            let scale: u64 = if at < 5 { 1000_u64.pow(at as u32) } else { 1024_u64.pow(at as u32 - 4) };
            for unit in [format!("{prefix}bit"), format!("{prefix}bit/s")] {
                let mut title = unit.clone();
                title[..1].make_ascii_uppercase();
                for unit in [unit.to_uppercase(), title, unit] {
                    let parsed = format!("12{unit}").parse::<Rate>();
                    assert_eq!(parsed, Ok(Rate::from_bits_per_sec(12 * scale)), "{unit}");
                }
            }
            for unit in ["bps", "b", "B", "Bps", "b/s"] {
                let error = format!("12{prefix}{unit}").parse::<Rate>().unwrap_err().to_string();
                assert!(error.contains("is not clear: some programs read bytes"), "{error}");
            }
            if at > 0 {
                let error = format!("12{prefix}").parse::<Rate>().unwrap_err().to_string();
                assert!(
                    error.ends_with("is not complete; write bits, such as 512kbit or 100Mbit"),
                    "{error}"
                );
            }
        }
        for unit in ["mm", "im", "kkbit", "bitk", "mbits", "mbyte", "%", "bit s", "i", "ibit"] {
            assert!(format!("12{unit}").parse::<Rate>().is_err(), "{unit}");
        }
    }

    #[test]
    fn prints_what_it_parses() {
        for text in ["512kbit", "512Kibit", "6Mbit", "1Gibit", "7bit"] {
            assert_eq!(text.parse::<Rate>().map(|rate| rate.to_string()), Ok(text.to_owned()));
        }
    }

    #[test]
    fn time_and_bytes_are_inverse() {
        let rate = Rate::from_bits_per_sec(1_000_000);
        assert_eq!(rate.time_for(125), Duration::from_millis(1));
        assert_eq!(rate.bytes_in(Duration::from_millis(1)), 125);
        assert_eq!(Rate::default().time_for(1), Duration::MAX);
    }
}

use std::fmt;
use std::str::FromStr;

use freshwire_record::Rate;

/// The size and rate of pictures that ffmpeg makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rung {
    /// Largest width of a picture in samples; the stream's proportions stay.
    pub width: u32,
    /// Largest height of a picture in samples.
    pub height: u32,
    /// Bits a second.
    pub rate: Rate,
}

impl Rung {
    /// The rendition's name: `360p`.
    pub fn name(&self) -> String {
        format!("{}p", self.height)
    }
}

impl fmt::Display for Rung {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}@{}bit", self.width, self.height, self.rate.bits_per_sec())
    }
}

/// A text that is no rung of a ladder.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no rung of a ladder; write WIDTHxHEIGHT@RATE such as 640x360@400k, at least 64x64@20k")]
pub struct RungError(String);

impl FromStr for Rung {
    type Err = RungError;

    fn from_str(text: &str) -> Result<Self, RungError> {
        let read = || {
            let (size, rate) = text.split_once('@')?;
            let (width, height) = size.split_once('x')?;
            let rate = if rate.ends_with(['k', 'K', 'm', 'M', 'g', 'G']) {
                format!("{rate}bit")
            } else {
                rate.to_owned()
            };
            let (width, height, rate) = (width.parse().ok()?, height.parse().ok()?, rate.parse().ok()?);
            Some(Self { width, height, rate })
        };
        let sizes = 64..=8192;
        let is_possible = |rung: &Self| {
            let bits = rung.rate.bits_per_sec();
            sizes.contains(&rung.width)
                && sizes.contains(&rung.height)
                && (20_000..=1_000_000_000).contains(&bits)
        };
        read().filter(is_possible).ok_or_else(|| RungError(text.chars().take(64).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rungs_are_read() {
        let rung: Rung = "640x360@400k".parse().unwrap();
        assert_eq!((rung.width, rung.height, rung.rate.bits_per_sec()), (640, 360, 400_000));
        assert_eq!((rung.name(), rung.to_string()), ("360p".to_owned(), "640x360@400000bit".to_owned()));
        assert_eq!("1280x720@1.5Mbit".parse::<Rung>().unwrap().rate.bits_per_sec(), 1_500_000);
        for wrong in ["", "640x360", "640@1M", "x@1M", "640x360@", "640x360@1", "640x9999999@1M", "1x1@1M"] {
            assert!(wrong.parse::<Rung>().is_err(), "{wrong}");
        }
    }
}

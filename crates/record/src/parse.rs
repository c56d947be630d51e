use std::time::Duration;

/// The text is not a number with a unit that is known here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not {expected}")]
pub struct ParseUnitError {
    text: String,
    expected: &'static str,
}

impl ParseUnitError {
    pub(crate) fn new(text: &str, expected: &'static str) -> Self {
        Self { text: text.to_owned(), expected }
    }
}

/// Splits `512kbit` into 512.0 and `kbit`. Blanks around either part are ignored.
pub(crate) fn split_unit<'a>(
    text: &'a str,
    expected: &'static str,
) -> Result<(f64, &'a str), ParseUnitError> {
    let trimmed = text.trim();
    let end = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(end);
    match number.parse::<f64>() {
        Ok(number) if number.is_finite() => Ok((number, unit.trim())),
        _ => Err(ParseUnitError::new(text, expected)),
    }
}

/// Reads a duration: a number with `ns`, `us`, `ms`, `s`, `min` or `h`. `0` needs no unit.
///
/// # Errors
///
/// If `text` is not a duration, or is out of range.
pub fn parse_duration(text: &str) -> Result<Duration, ParseUnitError> {
    const EXPECTED: &str = "a duration such as 50ms, 1s or 2min";
    let (number, unit) = split_unit(text, EXPECTED)?;
    let scale = match unit {
        "ns" => 1e-9,
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "min" => 60.0,
        "h" => 3600.0,
        "" if number == 0.0 => 0.0,
        _ => return Err(ParseUnitError::new(text, EXPECTED)),
    };
    let nanos = (number * scale * 1e9).round();
    if nanos > 3.15e18 {
        return Err(ParseUnitError::new(text, "a duration of at most a hundred years"));
    }
    Ok(Duration::from_nanos(nanos as u64))
}

/// Reads a size in bytes: a number with `B`, `kB`, `MB`, `GB`, `KiB`, `MiB`, `GiB`; a bare number is bytes.
///
/// # Errors
///
/// If `text` is not a size, or is out of range.
pub fn parse_size(text: &str) -> Result<u64, ParseUnitError> {
    const EXPECTED: &str = "a size such as 15000, 16KiB or 4MB";
    let (number, unit) = split_unit(text, EXPECTED)?;
    let scale = match unit {
        "" | "B" => 1.0,
        "kB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        "KiB" => 1024.0,
        "MiB" => 1024.0 * 1024.0,
        "GiB" => 1024.0 * 1024.0 * 1024.0,
        _ => return Err(ParseUnitError::new(text, EXPECTED)),
    };
    let bytes = number * scale;
    if bytes > 1e15 {
        return Err(ParseUnitError::new(text, "a size of at most 1000000 GB"));
    }
    Ok(bytes.round() as u64)
}

/// Reads a share of the whole, 0 to 1: `5%` or `0.05`.
///
/// # Errors
///
/// If `text` is not a share, or is out of range.
pub fn parse_share(text: &str) -> Result<f64, ParseUnitError> {
    const EXPECTED: &str = "a share such as 5% or 0.05";
    let (number, unit) = split_unit(text, EXPECTED)?;
    let share = match unit {
        "%" => number / 100.0,
        "" => number,
        _ => return Err(ParseUnitError::new(text, EXPECTED)),
    };
    if (0.0..=1.0).contains(&share) {
        Ok(share)
    } else {
        Err(ParseUnitError::new(text, "a share from 0 to 100 %"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        assert_eq!(parse_duration("50ms"), Ok(Duration::from_millis(50)));
        assert_eq!(parse_duration("0"), Ok(Duration::ZERO));
        assert_eq!(parse_duration("1.5 s"), Ok(Duration::from_millis(1500)));
        for text in ["50", "ms", "", "1d", "1e99s", "9999999999999999999h", "-1s"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes() {
        assert_eq!(parse_size("15000"), Ok(15000));
        assert_eq!(parse_size("16KiB"), Ok(16384));
        assert_eq!(parse_size("16kB"), Ok(16000));
        for text in ["16K", "-1", "B", "1000000000000GB"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn shares() {
        assert_eq!(parse_share("5%"), Ok(0.05));
        assert_eq!(parse_share("0.25"), Ok(0.25));
        for text in ["101%", "5", "%", "x", "1.1"] {
            assert!(parse_share(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_error_says_what_to_write() {
        assert_eq!(
            parse_duration("50").map_err(|error| error.to_string()),
            Err("\"50\" is not a duration such as 50ms, 1s or 2min".to_owned())
        );
    }
}

use std::fmt;
use std::str::FromStr;

/// A differentiated services code point (RFC 2474), from 0 to 63.
///
/// It is parsed from a number or a name, and displayed as its name where it has one.
///
/// ```
/// use freshwire_io::network::Dscp;
///
/// assert_eq!("AF41".parse::<Dscp>()?.value(), 34);
/// assert_eq!("46".parse::<Dscp>()?.to_string(), "EF");
/// # Ok::<(), freshwire_io::network::UnknownDscp>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Dscp(u8);

/// The text is neither the name nor the number of a DSCP.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no DSCP: use EF, VA, LE, DF, CS0 to CS7, AF11 to AF43, or a number from 0 to 63")]
pub struct UnknownDscp(String);

/// Names with their code points: DF and CS (RFC 2474), AF (RFC 2597), EF (RFC 3246), VA (RFC 5865), LE (RFC 8622). The first name of a
/// number is displayed.
const NAMES: [(&str, u8); 25] = [
    ("DF", 0),
    ("CS0", 0),
    ("BE", 0),
    ("LE", 1),
    ("CS1", 8),
    ("AF11", 10),
    ("AF12", 12),
    ("AF13", 14),
    ("CS2", 16),
    ("AF21", 18),
    ("AF22", 20),
    ("AF23", 22),
    ("CS3", 24),
    ("AF31", 26),
    ("AF32", 28),
    ("AF33", 30),
    ("CS4", 32),
    ("AF41", 34),
    ("AF42", 36),
    ("AF43", 38),
    ("CS5", 40),
    ("VA", 44),
    ("EF", 46),
    ("CS6", 48),
    ("CS7", 56),
];

impl Dscp {
    /// The largest code point: six bits.
    pub const MAX: u8 = 63;

    /// The code point of this number. `None` above [`Dscp::MAX`].
    pub const fn new(value: u8) -> Option<Self> {
        if value <= Self::MAX { Some(Self(value)) } else { None }
    }

    /// The class selector of a precedence from 0 to 7 (RFC 2474, section 4.2.2); larger ones count as 7.
    pub const fn class_selector(precedence: u8) -> Self {
        Self(if precedence < 7 { precedence << 3 } else { 7 << 3 })
    }

    /// The code point as a number.
    pub const fn value(self) -> u8 {
        self.0
    }

    /// Its place in the traffic class of IPv6 and the former type of service of IPv4, with ECN bits of zero.
    pub const fn traffic_class(self) -> u8 {
        self.0 << 2
    }
}

impl FromStr for Dscp {
    type Err = UnknownDscp;

    fn from_str(text: &str) -> Result<Self, UnknownDscp> {
        let named = NAMES.iter().find(|(name, _)| name.eq_ignore_ascii_case(text)).map(|&(_, value)| value);
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = if is_number { text.parse().ok() } else { None };
        named.or(number).and_then(Self::new).ok_or_else(|| UnknownDscp(text.to_owned()))
    }
}

impl fmt::Display for Dscp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match NAMES.iter().find(|(_, value)| *value == self.0) {
            Some((name, _)) => f.write_str(name),
            None => write!(f, "{}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_those_of_the_standards() {
        for (text, value) in [
            ("EF", 0b101_110),
            ("ef", 46),
            ("AF11", 0b001_010),
            ("AF41", 0b100_010),
            ("AF43", 38),
            ("CS1", 0b001_000),
            ("CS7", 56),
            ("LE", 1),
            ("DF", 0),
            ("0", 0),
            ("63", 63),
        ] {
            assert_eq!(text.parse::<Dscp>().map(Dscp::value), Ok(value), "{text}");
        }
        for number in 0..=Dscp::MAX {
            let dscp = Dscp::new(number).unwrap();
            assert_eq!(dscp.to_string().parse(), Ok(dscp), "{number}");
            assert_eq!(dscp.traffic_class() & 3, 0);
        }
        for precedence in 0..=7 {
            let name = format!("CS{precedence}");
            assert_eq!(name.parse(), Ok(Dscp::class_selector(precedence)));
        }
    }

    #[test]
    fn others_are_refused_with_the_names_that_there_are() {
        for text in ["64", "255", "256", "-1", "+1", "", "AF44", "EF ", "0x2e", "gold"] {
            let error = text.parse::<Dscp>().unwrap_err().to_string();
            assert!(error.contains("AF11 to AF43") && error.contains("0 to 63"), "{error}");
        }
        assert_eq!(Dscp::new(64), None);
    }
}

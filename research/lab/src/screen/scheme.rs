//! The senders of the pictures.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use freshwire_record::parse_duration;
use serde::{Deserialize, Serialize};

/// How a stream is sent. Its text form is `freshwire`, `tcp`, `gstreamer`, or a time such as `650ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(super) enum Scheme {
    /// `freshwire serve` without a setting.
    Freshwire,
    /// `freshwire serve` with a latency that was fixed in advance.
    Deadline(Duration),
    /// A program that writes each picture to its socket and waits until the kernel has taken it.
    Tcp,
    /// GStreamer's RTSP server.
    Gstreamer,
}

/// The word for all of [`DEADLINES`].
pub(super) const ALL_DEADLINES: &str = "deadlines";

/// The latencies of [`ALL_DEADLINES`], in milliseconds.
pub(super) const DEADLINES: [u64; 5] = [300, 650, 1200, 2000, 4000];

impl Scheme {
    /// The schemes that a word of the command line names.
    pub(super) fn named(word: &str) -> anyhow::Result<Vec<Self>> {
        if word == ALL_DEADLINES {
            return Ok(DEADLINES.map(|ms| Self::Deadline(Duration::from_millis(ms))).to_vec());
        }
        Ok(vec![word.parse()?])
    }

    /// Its name for people.
    pub(super) fn label(self) -> String {
        match self {
            Self::Freshwire => "Freshwire".to_owned(),
            Self::Deadline(_) => format!("Freshwire, {self}"),
            Self::Tcp => "plain TCP".to_owned(),
            Self::Gstreamer => "GStreamer".to_owned(),
        }
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Freshwire => f.write_str("freshwire"),
            Self::Deadline(latency) => write!(f, "{}ms", latency.as_millis()),
            Self::Tcp => f.write_str("tcp"),
            Self::Gstreamer => f.write_str("gstreamer"),
        }
    }
}

impl FromStr for Scheme {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        Ok(match text {
            "freshwire" => Self::Freshwire,
            "tcp" => Self::Tcp,
            "gstreamer" => Self::Gstreamer,
            _ => match parse_duration(text) {
                // Fractions of a millisecond would not survive the text form.
                Ok(latency) if latency.subsec_nanos() % 1_000_000 == 0 => Self::Deadline(latency),
                _ => anyhow::bail!(
                    "{text:?} is no scheme: write freshwire, tcp, gstreamer, a fixed latency such as 650ms, or \
                     {ALL_DEADLINES} for {DEADLINES:?} ms"
                ),
            },
        })
    }
}

impl TryFrom<String> for Scheme {
    type Error = anyhow::Error;

    fn try_from(text: String) -> anyhow::Result<Self> {
        text.parse()
    }
}

impl From<Scheme> for String {
    fn from(scheme: Scheme) -> Self {
        scheme.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scheme_is_its_text() {
        for text in ["freshwire", "tcp", "gstreamer", "650ms", "4000ms"] {
            assert_eq!(text.parse::<Scheme>().unwrap().to_string(), text);
        }
        assert_eq!("1.2s".parse::<Scheme>().unwrap().to_string(), "1200ms");
        assert_eq!(Scheme::named(ALL_DEADLINES).unwrap().len(), 5);
        for wrong in ["udp", "0.1ms", "650"] {
            let error = wrong.parse::<Scheme>().unwrap_err().to_string();
            assert!(error.contains("no scheme"), "{error}");
        }
    }
}

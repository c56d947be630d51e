//! The options of `path`, and what follows from them: the ways, and the cells in which each is measured.

use std::fmt;
use std::str::FromStr;

use clap::{Args, ValueEnum};
use freshwire_acks::Rule;
use freshwire_record::{Rate, parse_size};

use crate::sendpath::{Mechanism, Pages};

/// Size of the picture: the capacity of a pipe, and the largest call of Marigi 2012.
const PICTURE_BYTES: u64 = 64 << 10;

/// A way to bring a picture to many receivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// One thread of this program, over TCP.
    Mechanism(Mechanism),
    /// One thread of this program, a system call for each datagram.
    Udp,
    /// The same with UDP segmentation offload: a call for each picture.
    UdpOffload,
    /// `freshwire serve`, a process that is fed with the pictures as MPEG-TS; viewers take RTP over TCP.
    Server,
    /// The same; viewers take RTP over UDP.
    ServerUdp,
}

impl Way {
    const OTHERS: [(Self, &str); 4] = [
        (Self::Udp, "udp"),
        (Self::UdpOffload, "udp-offload"),
        (Self::Server, "server"),
        (Self::ServerUdp, "server-udp"),
    ];

    /// Whether it sends at the rate of its pictures, not as fast as its receivers take them.
    pub(super) fn is_paced(self) -> bool {
        !matches!(self, Self::Mechanism(_))
    }
}

impl fmt::Display for Way {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mechanism(mechanism) => mechanism.fmt(formatter),
            other => {
                let name = Self::OTHERS.iter().find(|(way, _)| way == other).map_or("", |(_, name)| *name);
                formatter.write_str(name)
            }
        }
    }
}

impl FromStr for Way {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let other = Self::OTHERS.iter().find(|(_, other)| *other == name).map(|(way, _)| *way);
        let others = Self::OTHERS.map(|(_, name)| name).join(", ");
        other.map_or_else(
            || name.parse().map(Self::Mechanism).map_err(|error: String| format!("{error}, {others}")),
            Ok,
        )
    }
}

/// The rate of the link; `None`: no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LinkRate(pub(super) Option<u64>);

impl FromStr for LinkRate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "unlimited" {
            return Ok(Self(None));
        }
        let rate: Rate = text.parse().map_err(|error| format!("{error}, or `unlimited`"))?;
        Ok(Self(Some(rate.bits_per_sec())))
    }
}

impl fmt::Display for LinkRate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => formatter.write_str("unlimited"),
            Some(rate) if rate % 1_000_000_000 == 0 => write!(formatter, "{} Gbit/s", rate / 1_000_000_000),
            Some(rate) => write!(formatter, "{} Mbit/s", rate as f64 / 1e6),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Switch {
    On,
    Off,
}

/// A rule of the ACK filter at the near interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum FilterRule {
    None,
    Safe,
    Checkpoint,
}

impl FilterRule {
    pub(super) fn rule(self) -> Option<Rule> {
        match self {
            Self::None => None,
            Self::Safe => Some(Rule::Safe),
            Self::Checkpoint => Some(Rule::Checkpoint),
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::None => "no filter",
            Self::Safe => "safe",
            Self::Checkpoint => "checkpoint",
        }
    }
}

/// How the receivers acknowledge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Acknowledging {
    /// As with receive offload: few acknowledgements.
    Offload,
    /// Each second packet.
    Delayed,
}

/// The options of `path`.
#[derive(Args, Clone, Debug)]
pub(in crate::bench) struct PathArgs {
    /// Connections of `path`.
    #[arg(long, value_name = "COUNT,...", value_delimiter = ',', default_value = "1,4,16,32,1000")]
    pub(super) path_connections: Vec<usize>,
    /// Mechanisms of `path`, and `udp`, `udp-offload`, `server` (`freshwire serve`, RTP over TCP), `server-udp` [default: all mechanisms].
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub(super) path_mechanisms: Vec<Way>,
    /// Bytes of a repetition of `path` at 100 Mbit/s, over all connections: a second of it. At other rates as many more; many connections
    /// need more to fill the link.
    #[arg(long, value_name = "SIZE", default_value = "12MB", value_parser = parse_size)]
    pub(super) path_bytes: u64,
    /// Rates of the link of `path`, such as 100Mbit, and `unlimited`.
    #[arg(long, value_name = "RATE,...", value_delimiter = ',', default_value = "unlimited,100Mbit")]
    pub(super) path_rates: Vec<LinkRate>,
    /// Segmentation offload of the sender of `path`.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "on,off")]
    path_offload: Vec<Switch>,
    /// Sizes of the picture of `path` [default: 64KiB].
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',', value_parser = parse_size)]
    path_sizes: Vec<u64>,
    /// The picture's file of `path`, and the order of its pages in memory [default: memory].
    #[arg(long, value_enum, value_delimiter = ',')]
    path_pages: Vec<Pages>,
    /// Pages that a pipe of `splice` holds in `path` [default: those of the picture, at least 16].
    #[arg(long, value_name = "COUNT,...", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=4096))]
    path_pipe_pages: Vec<u16>,
    /// Rules of the ACK filter of `path`; the receiver's window is measured, too [default: none].
    #[arg(long, value_enum, value_delimiter = ',')]
    path_filters: Vec<FilterRule>,
    /// How the receivers of `path` acknowledge.
    #[arg(long, value_enum, default_value = "offload")]
    pub(super) path_receiver: Acknowledging,
}

/// The state of the testbed for some cells.
#[derive(Clone, Copy)]
pub(super) struct Setting {
    pub(super) rate: LinkRate,
    pub(super) offload: bool,
    size: Option<u64>,
    pages: Option<Pages>,
    pipe_pages: Option<u16>,
    pub(super) filter: Option<FilterRule>,
}

impl Setting {
    pub(super) fn picture_bytes(self) -> usize {
        self.size.unwrap_or(PICTURE_BYTES) as usize
    }

    pub(super) fn pages(self) -> Pages {
        self.pages.unwrap_or_default()
    }

    pub(super) fn pipe_pages(self) -> Option<usize> {
        self.pipe_pages.map(usize::from)
    }

    /// For people and for names of series; what was not asked for is not named.
    pub(super) fn name(self) -> String {
        let mut name = format!("{}, {}", self.rate, if self.offload { "offload" } else { "no offload" });
        let size = self.size.map(|size| format!("{size} B"));
        let pages = self.pages.map(|pages| pages.name().to_owned());
        let pipe = self.pipe_pages.map(|pages| format!("a pipe of {pages} pages"));
        let filter = self.filter.map(|filter| filter.name().to_owned());
        for part in [size, pages, pipe, filter].into_iter().flatten() {
            name += &format!(", {part}");
        }
        name
    }
}

/// Each of them, or that it was not asked for.
fn each<T: Copy>(values: &[T]) -> Vec<Option<T>> {
    if values.is_empty() { vec![None] } else { values.iter().copied().map(Some).collect() }
}

impl PathArgs {
    /// The ways that were asked for.
    pub(super) fn ways(&self) -> Vec<Way> {
        if self.path_mechanisms.is_empty() {
            return Mechanism::ALL.map(Way::Mechanism).to_vec();
        }
        self.path_mechanisms.clone()
    }

    /// Every combination, in the order of the report.
    pub(super) fn settings(&self) -> Vec<Setting> {
        let mut settings = Vec::new();
        for &rate in &self.path_rates {
            for &offload in &self.path_offload {
                for size in each(&self.path_sizes) {
                    for pages in each(&self.path_pages) {
                        for pipe_pages in each(&self.path_pipe_pages) {
                            settings.extend(each(&self.path_filters).into_iter().map(|filter| Setting {
                                rate,
                                offload: offload == Switch::On,
                                size,
                                pages,
                                pipe_pages,
                                filter,
                            }));
                        }
                    }
                }
            }
        }
        settings
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        path: PathArgs,
    }

    #[test]
    fn the_names_of_the_first_cells_stay() {
        let names = |words: &str| -> Vec<String> {
            let line = Line::parse_from(["x"].into_iter().chain(words.split_whitespace()));
            line.path.settings().into_iter().map(Setting::name).collect()
        };
        let first =
            ["unlimited, offload", "unlimited, no offload", "100 Mbit/s, offload", "100 Mbit/s, no offload"];
        assert_eq!(names(""), first, "published results have these names");
        assert_eq!(
            names(
                "--path-rates 1Gbit --path-offload on --path-sizes 4KiB,1MiB --path-pages in-order --path-pipe-pages 8"
            ),
            [
                "1 Gbit/s, offload, 4096 B, in order, a pipe of 8 pages",
                "1 Gbit/s, offload, 1048576 B, in order, a pipe of 8 pages"
            ]
        );
        assert_eq!(
            names("--path-rates unlimited --path-offload off --path-filters none,checkpoint"),
            ["unlimited, no offload, no filter", "unlimited, no offload, checkpoint"]
        );
    }

    #[test]
    fn ways_are_read_back() {
        for name in ["sendfile", "udp", "udp-offload", "server", "server-udp"] {
            assert_eq!(name.parse::<Way>().unwrap().to_string(), name);
        }
        let error = "serve".parse::<Way>().unwrap_err();
        assert!(error.contains("splice") && error.contains("server-udp"), "{error}");
        assert!("fast".parse::<LinkRate>().unwrap_err().contains("unlimited"));
    }
}

//! The command lines of the experiments, and the plans that they ask for.

use std::time::Duration;

use anyhow::bail;
use clap::{Args, ValueEnum};
use freshwire_record::{Rate, parse_duration, parse_share, parse_size};

use super::plain;
use crate::scenario::{Output, Repetitions};
use crate::schema::{Experiment, LinkConfig, Plan, RateStep, Source};
use crate::scheme;

#[derive(Args)]
pub(super) struct LinkArgs {
    /// One-way delay.
    #[arg(long, default_value = "0ms", value_parser = parse_duration)]
    pub(super) delay: Duration,
    /// Share of packets lost, in both directions.
    #[arg(long, value_parser = parse_share)]
    pub(super) loss: Option<f64>,
    /// Mean length of a loss burst in packets (Gilbert-Elliott); losses are independent if not given.
    #[arg(long)]
    burst: Option<f64>,
    /// Bytes that the bottleneck's queue holds.
    #[arg(long, default_value = "15000", value_parser = parse_size)]
    queue: u64,
    #[command(flatten)]
    pub(super) repetitions: Repetitions,
    /// Congestion controls by kernel name, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "cubic")]
    pub(super) congestion: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Matrix {
    /// The four published configurations, ten repetitions, plain TCP and the thesis's rule, its misuse too.
    Thesis,
    /// No limit, 1024, 512, 256 Kibit/s; 1 and 5 % loss; 0, 50, 100 ms.
    Full,
}

#[derive(Args)]
pub(crate) struct LayersArgs {
    #[command(flatten)]
    pub(super) output: Output,
    #[command(flatten)]
    link: LinkArgs,
    /// Rate of the link, for instance 512Kibit (1024 bit) or 512kbit (1000 bit); `none` is no limit.
    #[arg(long, default_value = "512Kibit", value_parser = parse_rate)]
    rate: RateArg,
    /// Schemes to compare, separated by commas: tcp, tcp-small-buffer, min-buf, min-buf-A-B, thesis, thesis-improper,
    /// priority-progress, freshwire, freshwire-chunked, a1, a1-cubic, a1-newreno, udp, udp-limited, srt, sctp, quic. UDP has no congestion
    /// control; udp-limited sends at the link's rate. A1, SRT and SCTP have a congestion control of their own.
    #[arg(long, value_delimiter = ',')]
    scheme: Vec<String>,
    /// A prepared set of cells instead of one link.
    #[arg(long)]
    matrix: Option<Matrix>,
    /// For how long a window keeps its value.
    #[arg(long, default_value = "1s", value_parser = parse_duration)]
    deadline: Duration,
    /// For how long the source offers records.
    #[arg(long, default_value = "60s", value_parser = parse_duration)]
    duration: Duration,
    /// Layers of a window.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u8).range(1..=64))]
    layers: u8,
    /// Size of a layer of one window, header included; 128 Kibit are 16384 bytes.
    #[arg(long, default_value = "16384", value_parser = parse_size)]
    layer_size: u64,
    /// Sizes of a record, separated by commas: a layer of a window is cut into records of this size. Default: a layer is one record.
    #[arg(long, value_delimiter = ',', value_parser = parse_size)]
    packet_size: Vec<u64>,
    /// Length of a window.
    #[arg(long, default_value = "1s", value_parser = parse_duration)]
    window: Duration,
}

#[derive(Args)]
pub(crate) struct FramesArgs {
    #[command(flatten)]
    pub(super) output: Output,
    #[command(flatten)]
    link: LinkArgs,
    /// Rate of the link; by default both of 2 Mbit/s throughout and a dip from 6 to 1 Mbit/s and back.
    #[arg(long, value_parser = parse_rate)]
    rate: Option<RateArg>,
    /// A dip: before,during,after.
    #[arg(long, value_delimiter = ',', value_parser = parse_rate)]
    dip: Vec<RateArg>,
    /// Schemes to compare, separated by commas: tcp, reserve, encoder, freshwire, a1, min-buf, srt, sctp, quic.
    #[arg(long, value_delimiter = ',')]
    scheme: Vec<String>,
    /// Mean rate of the frames.
    #[arg(long, default_value = "4Mbit")]
    source_rate: Rate,
    /// Frames per second.
    #[arg(long, default_value_t = 30.0)]
    fps: f64,
    /// Frames from one key frame to the next.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    gop: u32,
    /// For how long a frame keeps its value.
    #[arg(long, default_value = "300ms", value_parser = parse_duration)]
    deadline: Duration,
    /// For how long the source offers frames.
    #[arg(long, default_value = "20s", value_parser = parse_duration)]
    duration: Duration,
}

/// A rate, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RateArg(pub(super) Option<Rate>);

pub(super) fn parse_rate(text: &str) -> anyhow::Result<RateArg> {
    Ok(RateArg(if text == "none" { None } else { Some(text.parse()?) }))
}

const KIBIT: u64 = 1024;

impl LayersArgs {
    pub(super) fn plans(&self) -> anyhow::Result<Vec<Plan>> {
        let schemes: Vec<&str> = match (self.scheme.as_slice(), self.matrix) {
            ([], Some(Matrix::Thesis)) => vec![scheme::TCP, scheme::THESIS, scheme::THESIS_IMPROPER],
            ([], _) => {
                vec![
                    scheme::TCP,
                    scheme::TCP_SMALL_BUFFER,
                    scheme::MIN_BUF,
                    scheme::THESIS,
                    scheme::FRESHWIRE_CHUNKED,
                ]
            }
            (named, _) => named.iter().map(String::as_str).collect(),
        };
        check_schemes(&schemes)?;
        let sources = self.sources()?;
        let least = if self.matrix == Some(Matrix::Thesis) { 10 } else { 1 };
        let mut plans = Vec::new();
        for (rate_bps, loss, delay) in self.cells() {
            for seed in self.link.repetitions.seeds(least) {
                for congestion in &self.link.congestion {
                    for source in &sources {
                        for name in &schemes {
                            let link = self.link.config(rate_bps, loss, delay, seed);
                            plans.push(self.plan(link, congestion, name, source.clone()));
                        }
                    }
                }
            }
        }
        Ok(plans)
    }

    /// The stream in records of each size.
    fn sources(&self) -> anyhow::Result<Vec<Source>> {
        let default = [self.layer_size];
        let sizes = if self.packet_size.is_empty() { &default[..] } else { &self.packet_size };
        let source = |&size: &u64| {
            if size == 0 || !self.layer_size.is_multiple_of(size) {
                bail!(
                    "records of {size} bytes do not fill a layer of {} bytes; take a divisor for --packet-size",
                    self.layer_size
                );
            }
            Ok(Source::Layers {
                layers: self.layers,
                record_bytes: size_of_record(size)?,
                window_ms: u32::try_from(self.window.as_millis())?.max(1),
                per_layer: u32::try_from(self.layer_size / size)?,
            })
        };
        sizes.iter().map(source).collect()
    }

    fn cells(&self) -> Vec<(Option<u64>, f64, Duration)> {
        let loss = self.link.loss.unwrap_or(0.05);
        let limited = [1024, 512, 256].map(|kibit| Some(kibit * KIBIT));
        match self.matrix {
            None => vec![(self.rate.0.map(Rate::bits_per_sec), loss, self.link.delay)],
            Some(Matrix::Thesis) => {
                let mut cells = vec![(None, 0.0, Duration::ZERO)];
                cells.extend(limited.map(|rate| (rate, 0.05, Duration::ZERO)));
                cells
            }
            Some(Matrix::Full) => {
                let mut cells = Vec::new();
                for rate in [None].into_iter().chain(limited) {
                    for loss in [0.01, 0.05] {
                        for delay_ms in [0, 50, 100] {
                            cells.push((rate, loss, Duration::from_millis(delay_ms)));
                        }
                    }
                }
                cells
            }
        }
    }

    fn plan(&self, link: LinkConfig, congestion: &str, name: &str, source: Source) -> Plan {
        Plan {
            experiment: Experiment::Layers,
            scheme: name.to_owned(),
            congestion: congestion.to_owned(),
            framing: framing_of(name),
            link,
            source,
            deadline_ms: self.deadline.as_secs_f64() * 1e3,
            duration_s: self.duration.as_secs_f64(),
        }
    }
}

impl FramesArgs {
    pub(super) fn plans(&self) -> anyhow::Result<Vec<Plan>> {
        let default = [scheme::TCP, scheme::RESERVE, scheme::ENCODER, scheme::FRESHWIRE];
        let schemes: Vec<&str> = if self.scheme.is_empty() {
            default.to_vec()
        } else {
            self.scheme.iter().map(String::as_str).collect()
        };
        check_schemes(&schemes)?;
        let loss = self.link.loss.unwrap_or(0.0);
        let mut plans = Vec::new();
        for seed in self.link.repetitions.seeds(1) {
            for (rate_bps, steps) in self.links()? {
                for congestion in &self.link.congestion {
                    for name in &schemes {
                        let mut link = self.link.config(rate_bps, loss, self.link.delay, seed);
                        link.steps = steps.clone();
                        plans.push(self.plan(link, congestion, name));
                    }
                }
            }
        }
        Ok(plans)
    }

    fn links(&self) -> anyhow::Result<Vec<(Option<u64>, Vec<RateStep>)>> {
        let bits = |rate: &RateArg| rate.0.map(Rate::bits_per_sec);
        let dip = |before, during, after| {
            let third = |n: u32| (self.duration * n / 3).as_nanos() as u64;
            let steps = vec![
                RateStep { at_ns: third(1), rate_bps: during },
                RateStep { at_ns: third(2), rate_bps: after },
            ];
            (before, steps)
        };
        match (&self.rate, self.dip.as_slice()) {
            (None, []) => {
                let mbit = |n: u64| Some(n * 1_000_000);
                Ok(vec![(mbit(2), Vec::new()), dip(mbit(6), mbit(1), mbit(6))])
            }
            (Some(rate), []) => Ok(vec![(bits(rate), Vec::new())]),
            (None, [before, during, after]) => Ok(vec![dip(bits(before), bits(during), bits(after))]),
            (Some(_), _) => bail!("--rate is a steady link and --dip one that changes; give one of them"),
            (None, _) => {
                bail!("--dip takes three rates: before, during and after, for instance 6Mbit,1Mbit,6Mbit")
            }
        }
    }

    fn plan(&self, link: LinkConfig, congestion: &str, name: &str) -> Plan {
        Plan {
            experiment: Experiment::Frames,
            scheme: name.to_owned(),
            congestion: congestion.to_owned(),
            framing: framing_of(name),
            link,
            source: Source::Frames {
                fps: self.fps,
                mean_rate_bps: self.source_rate.bits_per_sec(),
                gop: self.gop,
            },
            deadline_ms: self.deadline.as_secs_f64() * 1e3,
            duration_s: self.duration.as_secs_f64(),
        }
    }
}

impl LinkArgs {
    pub(super) fn config(&self, rate_bps: Option<u64>, loss: f64, delay: Duration, seed: u64) -> LinkConfig {
        LinkConfig {
            burst_packets: self.burst,
            ..LinkConfig::steady(rate_bps, loss, delay, Some(self.queue), seed)
        }
    }
}

pub(super) fn framing_of(name: &str) -> String {
    if name == scheme::FRESHWIRE_CHUNKED { "chunked" } else { "raw" }.to_owned()
}

/// A record has a header of 32 bytes, and its reader accepts at most a mebibyte.
fn size_of_record(bytes: u64) -> anyhow::Result<u32> {
    match u32::try_from(bytes) {
        Ok(bytes @ 32..=1_048_576) => Ok(bytes),
        _ => bail!("a record has 32 bytes to 1MiB, not {bytes}; see --layer-size and --packet-size"),
    }
}

pub(super) fn check_schemes(names: &[&str]) -> anyhow::Result<()> {
    const OTHERS: [&str; 9] = [
        scheme::THESIS,
        scheme::THESIS_IMPROPER,
        scheme::PRIORITY_PROGRESS,
        scheme::RESERVE,
        scheme::FRESHWIRE,
        scheme::FRESHWIRE_CHUNKED,
        scheme::FRESHWIRE_FRAMES,
        scheme::UDP,
        scheme::UDP_LIMITED,
    ];
    for name in names {
        if !plain::is_plain(name)
            && !OTHERS.contains(name)
            && !scheme::is_a1(name)
            && !scheme::PEERS.contains(name)
        {
            bail!("there is no scheme {name:?}; `freshwire-lab layers --help` lists them");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        args: LayersArgs,
    }

    fn plans(arguments: &[&str]) -> anyhow::Result<Vec<Plan>> {
        let words = std::iter::once("x").chain(arguments.iter().copied());
        Cli::try_parse_from(words)?.args.plans()
    }

    #[test]
    fn each_packet_size_is_the_same_rate() {
        let plans =
            plans(&["--packet-size", "512,4096,16384", "--scheme", "tcp,udp,priority-progress"]).unwrap();
        assert_eq!(plans.len(), 9);
        for plan in &plans {
            assert_eq!(plan.source.bytes_per_second(), 131_072.0);
        }
        let Source::Layers { record_bytes, per_layer, .. } = plans[0].source else { panic!("layers") };
        assert_eq!((record_bytes, per_layer), (512, 32));
    }

    #[test]
    fn impossible_records_are_refused() {
        for (arguments, reason) in [
            (["--packet-size", "1448"], "take a divisor"),
            (["--packet-size", "0"], "take a divisor"),
            (["--packet-size", "16"], "32 bytes to 1MiB, not 16"),
            (["--layer-size", "16"], "32 bytes to 1MiB, not 16"),
        ] {
            let error = plans(&arguments).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}

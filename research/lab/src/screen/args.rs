//! The command line of `freshwire-lab screen`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::Args;
use freshwire_record::{Rate, parse_duration, parse_share, parse_size};

use super::catalogue;
use super::schema::{Plan, StreamId};
use super::scheme::Scheme;
use crate::scenario::{Output, Repetitions};
use crate::schema::LinkConfig;

/// A viewer's screen across a link that is too slow: age, motion, freezes. Compares `freshwire serve`, the same with fixed
/// latencies, plain TCP, GStreamer's RTSP server, and an oracle that knows the link.
///
/// Lists are separated by commas; each stream meets all links, and each link all schemes one after the other.
#[derive(Args)]
#[command(after_help = "\
Examples:
  freshwire-lab screen --stream camera --link 60%
  freshwire-lab screen --stream all --delay 0ms,50ms --loss 0,1% --repeat 3
  freshwire-lab screen --stream holiday.mp4 --link 800kbit,600kbit --scheme freshwire,650ms,2s

Exit code: 0 done, 1 a run failed or a viewer saw a torn picture, 2 it could not be done.")]
pub(crate) struct ScreenArgs {
    #[command(flatten)]
    pub(super) output: Output,
    /// Streams: film, bikes (real film), camera, slides, x264, x265, svtav1, vp9 (the encoders' defaults), key1, key2, key4,
    /// key10 (seconds between keyframes), refresh (gradual refresh), open (open groups), zerolatency. H.264 and H.265 streams
    /// take a suffix +sound. Also a file, or all.
    #[arg(long, value_delimiter = ',', default_value = "film,camera")]
    stream: Vec<String>,
    /// Rates of the link, as shares of the stream's mean rate or in bits per second.
    #[arg(long, value_delimiter = ',', default_value = "30%,45%,60%,80%,100%,120%", value_parser = parse_link)]
    link: Vec<LinkRate>,
    /// One-way delays.
    #[arg(long, value_delimiter = ',', default_value = "0ms", value_parser = parse_duration)]
    delay: Vec<Duration>,
    /// Shares of packets lost by chance, in both directions.
    #[arg(long, value_delimiter = ',', default_value = "0", value_parser = parse_share)]
    loss: Vec<f64>,
    /// Bytes that the bottleneck's queue holds.
    #[arg(long, default_value = "15000", value_parser = parse_size)]
    queue: u64,
    /// Schemes: freshwire, tcp, gstreamer, a fixed latency such as 650ms, or deadlines for 300ms, 650ms, 1.2s, 2s and 4s.
    #[arg(long, value_delimiter = ',', default_value = "freshwire,deadlines,tcp,gstreamer")]
    scheme: Vec<String>,
    /// For how long the screen counts.
    #[arg(long, default_value = "24s", value_parser = parse_duration)]
    pub(super) duration: Duration,
    /// The time before that, from the capture of the first keyframe on: a beginning that does not count.
    #[arg(long, default_value = "0s", value_parser = parse_duration)]
    pub(super) skip: Duration,
    #[command(flatten)]
    repetitions: Repetitions,
}

/// The rate of a link.
#[derive(Clone, Copy, Debug, PartialEq)]
enum LinkRate {
    /// A share of the stream's rate.
    Share(f64),
    Fixed(Rate),
}

impl LinkRate {
    /// In whole kilobits, as people would set it.
    fn bits_per_second(self, stream_bps: u64) -> u64 {
        match self {
            Self::Fixed(rate) => rate.bits_per_sec(),
            Self::Share(share) => ((stream_bps as f64 * share / 1e3).round() as u64).max(1) * 1000,
        }
    }
}

fn parse_link(text: &str) -> anyhow::Result<LinkRate> {
    let Some(percent) = text.strip_suffix('%') else {
        let rate: Option<Rate> = text.parse().ok();
        // A bare number is meant as a share more likely than as bits.
        let rate = rate.filter(|rate| *rate >= LOWEST_RATE);
        let rate = rate.with_context(|| {
            format!("{text:?} is neither a share as 60% nor a rate of at least {LOWEST_RATE}")
        });
        return Ok(LinkRate::Fixed(rate?));
    };
    let percent: f64 = percent.trim().parse().ok().with_context(|| format!("{text:?} is no share as 60%"))?;
    ensure!((1.0..=1000.0).contains(&percent), "{text} is not from 1% to 1000%");
    Ok(LinkRate::Share(percent / 100.0))
}

const LOWEST_RATE: Rate = Rate::from_bits_per_sec(1000);

impl ScreenArgs {
    /// The streams' names, each once.
    pub(super) fn streams(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for name in &self.stream {
            let more = if name == catalogue::ALL { catalogue::all() } else { vec![name.clone()] };
            names.extend(more);
        }
        let mut seen = std::collections::BTreeSet::new();
        names.retain(|name| seen.insert(name.clone()));
        names
    }

    /// The schemes, in their order.
    pub(super) fn schemes(&self) -> anyhow::Result<Vec<Scheme>> {
        let named = self.scheme.iter().map(|word| Scheme::named(word));
        let mut schemes: Vec<Scheme> = named.collect::<anyhow::Result<Vec<_>>>()?.concat();
        let mut seen = std::collections::BTreeSet::new();
        schemes.retain(|scheme| seen.insert(*scheme));
        Ok(schemes)
    }

    /// All runs, those of the schemes next to each other.
    pub(super) fn plans(
        &self,
        streams: &[(StreamId, PathBuf)],
        can: impl Fn(&StreamId, Scheme) -> bool,
    ) -> anyhow::Result<Vec<Plan>> {
        ensure!(self.duration >= Duration::from_secs(1), "--duration is at least 1 s");
        let schemes = self.schemes()?;
        let mut plans = Vec::new();
        for seed in self.repetitions.seeds(1) {
            for (stream, _) in streams {
                for link in self.links(stream.rate_bps, seed) {
                    let schemes = schemes.iter().filter(|scheme| can(stream, **scheme));
                    plans.extend(schemes.map(|&scheme| Plan {
                        stream: stream.clone(),
                        scheme,
                        link: link.clone(),
                        duration_s: self.duration.as_secs_f64(),
                        skip_s: self.skip.as_secs_f64(),
                    }));
                }
            }
        }
        Ok(plans)
    }

    fn links(&self, stream_bps: u64, seed: u64) -> impl Iterator<Item = LinkConfig> {
        let paths = self.delay.iter().flat_map(|delay| self.loss.iter().map(move |loss| (*delay, *loss)));
        paths.flat_map(move |(delay, loss)| {
            let rates = self.link.iter().map(move |rate| Some(rate.bits_per_second(stream_bps)));
            rates.map(move |rate_bps| LinkConfig::steady(rate_bps, loss, delay, Some(self.queue), seed))
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        args: ScreenArgs,
    }

    fn args(arguments: &[&str]) -> ScreenArgs {
        Cli::try_parse_from(std::iter::once("x").chain(arguments.iter().copied())).unwrap().args
    }

    #[test]
    fn schemes_take_turns_on_every_link() {
        let stream = (StreamId { name: "a".to_owned(), bytes: 1, rate_bps: 1_000_400 }, PathBuf::new());
        let args = args(&["--link", "60%,800kbit", "--delay", "0ms,50ms", "--loss", "1%", "--repeat", "2"]);
        let plans = args.plans(&[stream], |_, scheme| scheme != Scheme::Gstreamer).unwrap();
        assert_eq!(plans.len(), 2 * 2 * 2 * 7);
        for turn in plans.chunks(7) {
            assert!(turn.iter().all(|plan| plan.link == turn[0].link));
            assert_eq!(turn[6].scheme, Scheme::Tcp);
        }
        let rates = [0, 7, 14].map(|at| (plans[at].link.rate_bps, plans[at].link.delay_ms));
        assert_eq!(rates, [(Some(600_000), 0.0), (Some(800_000), 0.0), (Some(600_000), 50.0)]);
    }

    #[test]
    fn names_stand_for_many_and_count_once() {
        let args = args(&["--stream", "camera,all", "--scheme", "tcp,650ms,deadlines,0.65s"]);
        let streams = args.streams();
        assert_eq!((streams.len(), streams[0].as_str()), (catalogue::all().len(), "camera"));
        assert_eq!(args.schemes().unwrap().len(), 1 + 5);
    }

    #[test]
    fn an_invalid_link_is_refused_with_the_expected_form() {
        for wrong in ["60", "0%", "2000%", "x%", "fast"] {
            let result = Cli::try_parse_from(["x", "--link", wrong]);
            assert!(result.is_err_and(|error| error.to_string().contains('%')), "{wrong}");
        }
    }
}

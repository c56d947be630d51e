//! The command line of `freshwire-lab state`.

use std::time::Duration;

use anyhow::{bail, ensure};
use clap::{Args, ValueEnum};
use freshwire_record::{Rate, parse_duration, parse_share, parse_size};

use super::schema::{Plan, Reader};
use super::scheme;
use super::value;
use crate::scenario::{Output, Repetitions};
use crate::schema::LinkConfig;

/// State of many objects, of which only the newest value counts. Measures its age at a program that reads fast, slowly,
/// in bursts, or stalls.
///
/// Lists are separated by commas; each meets all others.
#[derive(Args)]
pub(crate) struct StateArgs {
    #[command(flatten)]
    pub(super) output: Output,
    /// How values are sent: tcp, tcp-small-buffer, mailbox, mailbox-lowat, freshwire-deadline, freshwire,
    /// freshwire-gate, a1 [default: all].
    #[arg(long, value_delimiter = ',')]
    scheme: Vec<String>,
    /// Objects.
    #[arg(long, value_delimiter = ',', default_value = "50", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    objects: Vec<u32>,
    /// New values of each object a second.
    #[arg(long, value_delimiter = ',', default_value = "60", value_parser = parse_updates)]
    updates: Vec<f64>,
    /// Bytes of a value on the stream, from 16 on.
    #[arg(long, default_value = "64", value_parser = parse_size)]
    size: u64,
    /// Rates of the link; `none` is an emulated link without a limit, `loopback` no emulation.
    #[arg(long, value_delimiter = ',', default_value = "200kbit,loopback", value_parser = parse_path)]
    rate: Vec<PathArg>,
    /// One-way delays of the link.
    #[arg(long, value_delimiter = ',', default_value = "20ms", value_parser = parse_duration)]
    delay: Vec<Duration>,
    /// Share of packets lost on the link, in both directions.
    #[arg(long, value_delimiter = ',', default_value = "0", value_parser = parse_share)]
    loss: Vec<f64>,
    /// Bytes that the bottleneck's queue holds.
    #[arg(long, default_value = "15000", value_parser = parse_size)]
    queue: u64,
    /// Congestion controls by kernel name; A1 has its own.
    #[arg(long, value_delimiter = ',', default_value = "cubic")]
    congestion: Vec<String>,
    /// How the program reads.
    #[arg(long, value_delimiter = ',', value_enum, default_value = "fast,slow")]
    reader: Vec<ReaderName>,
    /// Share of the source's bytes that a slow reader reads.
    #[arg(long, default_value = "10%", value_parser = parse_share)]
    read_share: f64,
    /// How long a stalled reader reads nothing, from a third of the time that counts on.
    #[arg(long, default_value = "2s", value_parser = parse_duration)]
    stall: Duration,
    /// From one turn to the next of a reader in bursts.
    #[arg(long, default_value = "500ms", value_parser = parse_duration)]
    burst: Duration,
    /// After what time a value is worth nothing, for freshwire-deadline.
    #[arg(long, default_value = "500ms", value_parser = parse_duration)]
    lifetime: Duration,
    /// How many values may be on their way with freshwire-gate: what is read in a round trip, or a few.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    gate: u32,
    /// How long the source makes values.
    #[arg(long, default_value = "10s", value_parser = parse_duration)]
    duration: Duration,
    /// The beginning that does not count.
    #[arg(long, default_value = "2s", value_parser = parse_duration)]
    warm_up: Duration,
    #[command(flatten)]
    repetitions: Repetitions,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ReaderName {
    /// As it comes.
    Fast,
    /// A share of what the source makes.
    Slow,
    /// Not at all for a while.
    Stalled,
    /// All that is there, then nothing for a while.
    Bursts,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PathArg {
    Loopback,
    /// An emulated link, without a limit or with one.
    Link(Option<Rate>),
}

fn parse_path(text: &str) -> anyhow::Result<PathArg> {
    Ok(match text {
        "loopback" => PathArg::Loopback,
        "none" => PathArg::Link(None),
        rate => PathArg::Link(Some(rate.parse()?)),
    })
}

fn parse_updates(text: &str) -> Result<f64, String> {
    let updates = text.parse::<f64>().ok().filter(|updates| (0.1..=1000.0).contains(updates));
    updates.ok_or_else(|| format!("{text:?} is not a number from 0.1 to 1000"))
}

impl StateArgs {
    /// All plans, those of one repetition before the next, so that what is compared is measured at one time.
    pub(super) fn plans(&self) -> anyhow::Result<Vec<Plan>> {
        ensure!(self.warm_up < self.duration, "--warm-up has to end before --duration does");
        let known = scheme::names();
        if let Some(name) = self.scheme.iter().find(|name| !known.contains(&name.as_str())) {
            bail!("there is no scheme {name:?}; there are {}", known.join(", "));
        }
        let schemes: Vec<&str> =
            if self.scheme.is_empty() { known } else { self.scheme.iter().map(String::as_str).collect() };
        let value_bytes = u32::try_from(self.size).ok().filter(|bytes| value::SIZES.contains(bytes));
        let Some(value_bytes) = value_bytes else {
            bail!("--size is from {} to {} bytes", value::SIZES.start(), value::SIZES.end())
        };
        let mut plans = Vec::new();
        for seed in self.repetitions.seeds(1) {
            for (link, congestion) in self.paths(seed) {
                for &objects in &self.objects {
                    for &updates_per_s in &self.updates {
                        for reader in &self.reader {
                            let reader = self.reader(*reader)?;
                            plans.extend(schemes.iter().map(|scheme| Plan {
                                scheme: (*scheme).to_owned(),
                                congestion: congestion.clone(),
                                objects,
                                updates_per_s,
                                value_bytes,
                                gate: self.gate,
                                lifetime_ms: self.lifetime.as_secs_f64() * 1e3,
                                link: link.clone(),
                                reader,
                                duration_s: self.duration.as_secs_f64(),
                                warm_up_s: self.warm_up.as_secs_f64(),
                                seed,
                            }));
                        }
                    }
                }
            }
        }
        Ok(plans)
    }

    /// The paths with each congestion control. Loopback has neither delays nor losses to choose from.
    fn paths(&self, seed: u64) -> Vec<(Option<LinkConfig>, String)> {
        let mut links = Vec::new();
        for rate in &self.rate {
            let PathArg::Link(rate) = rate else {
                links.push(None);
                continue;
            };
            let rate_bps = rate.map(Rate::bits_per_sec);
            for &delay in &self.delay {
                let link = |&loss| LinkConfig::steady(rate_bps, loss, delay, Some(self.queue), seed);
                links.extend(self.loss.iter().map(link).map(Some));
            }
        }
        let with_each = |link: Option<LinkConfig>| {
            self.congestion.iter().map(move |congestion| (link.clone(), congestion.clone()))
        };
        links.into_iter().flat_map(with_each).collect()
    }

    fn reader(&self, name: ReaderName) -> anyhow::Result<Reader> {
        Ok(match name {
            ReaderName::Fast => Reader::Fast,
            ReaderName::Slow => {
                ensure!(
                    self.read_share > 0.0 && self.read_share < 1.0,
                    "--read-share is more than 0 and less than 100 %"
                );
                Reader::Slow { share: self.read_share }
            }
            ReaderName::Stalled => {
                let counted = (self.duration - self.warm_up).as_secs_f64();
                let (from_s, for_s) = (self.warm_up.as_secs_f64() + counted / 3.0, self.stall.as_secs_f64());
                ensure!(
                    from_s + for_s < self.duration.as_secs_f64(),
                    "--stall has to be shorter than two thirds of the time that counts"
                );
                Reader::Stalled { from_s, for_s }
            }
            ReaderName::Bursts => {
                ensure!(!self.burst.is_zero(), "--burst has to be longer than nothing");
                Reader::Bursts { every_ms: self.burst.as_secs_f64() * 1e3 }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: StateArgs,
    }

    fn plans(arguments: &str) -> anyhow::Result<Vec<Plan>> {
        let arguments = format!("state {arguments}");
        Cli::try_parse_from(arguments.split_whitespace())?.args.plans()
    }

    #[test]
    fn each_list_meets_all_others_and_repetitions_come_last() {
        let plans =
            plans("--scheme tcp,freshwire --rate loopback,1Mbit --loss 0,1% --reader fast,bursts --repeat 2")
                .unwrap();
        // Loopback, and the link with and without loss; for both readers and both schemes, twice.
        assert_eq!(plans.len(), 3 * 2 * 2 * 2);
        assert!(plans[..12].iter().all(|plan| plan.seed == 1));
        assert_eq!(plans[0].scheme, "tcp");
        assert_eq!(plans[1].scheme, "freshwire");
        assert!(plans[0].link.is_none() && plans[4].link.is_some());
    }

    #[test]
    fn impossible_arguments_are_refused_with_a_reason() {
        for (arguments, reason) in [
            ("--scheme tpc", "there is no scheme \"tpc\"; there are tcp,"),
            ("--size 8", "--size is from 16 to"),
            ("--reader slow --read-share 0", "--read-share is more than 0"),
            ("--reader stalled --stall 9s", "--stall has to be shorter"),
            ("--duration 1s", "--warm-up has to end before"),
            ("--updates 0", "is not a number from 0.1 to 1000"),
            ("--objects 0", "0 is not in 1..=10000"),
        ] {
            let error = plans(arguments).err().map(|error| format!("{error:#}"));
            assert!(error.as_ref().is_some_and(|error| error.contains(reason)), "{arguments}: {error:?}");
        }
    }
}

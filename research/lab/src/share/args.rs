//! The command line of `freshwire-lab share`.

use std::time::Duration;

use anyhow::{bail, ensure};
use clap::Args;
use freshwire_record::{Rate, parse_duration, parse_share, parse_size};

use super::kind::{self, Kind};
use super::schema::Plan;
use crate::scenario::{Output, Repetitions};
use crate::schema::LinkConfig;

/// Most flows of one name. Each has threads of its own.
const MOST_ALIKE: usize = 64;

/// Flows of A1 and of Freshwire over TCP beside plain TCP across one bottleneck: the share of each.
///
/// A flow of Freshwire sends a layered stream of one and a half times the bottleneck's rate, so that it always has something to choose from.
/// The kernel ring needs its module, and has the same experiment in guests: `host/kernel/experiment/share.sh`.
///
/// Lists are separated by commas; each link meets all flows.
#[derive(Args)]
pub(crate) struct ShareArgs {
    #[command(flatten)]
    pub(super) output: Output,
    /// Flows that share the link, joined by `+`; `4*cubic` are four. A1: a1, a1-cubic, a1-newreno. Freshwire over TCP:
    /// freshwire-CONTROL, and freshwire-unbounded-CONTROL without the bound on the bottleneck's queue. Plain TCP: CONTROL. CONTROL is a
    /// congestion control of this kernel.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "a1+cubic+bbr,a1+cubic+cubic,a1+bbr+bbr,a1+a1+cubic,a1+a1+a1,cubic+cubic+bbr"
    )]
    flows: Vec<String>,
    /// Runs each scene also with plain TCP in the place of A1 and Freshwire, right after it, and shows the ratio.
    #[arg(long)]
    in_place: bool,
    /// Rates of the bottleneck.
    #[arg(long, value_delimiter = ',', default_value = "10Mbit")]
    rate: Vec<Rate>,
    /// One-way delays.
    #[arg(long, value_delimiter = ',', default_value = "20ms", value_parser = parse_duration)]
    delay: Vec<Duration>,
    /// Size of the queue: bytes, or a multiple of the bandwidth-delay product, as 1bdp or 0.5bdp.
    #[arg(long, value_delimiter = ',', default_value = "1bdp,15000", value_parser = parse_queue)]
    queue: Vec<Queue>,
    /// Share of packets lost by chance, in both directions.
    #[arg(long, default_value = "0", value_parser = parse_share)]
    loss: f64,
    /// How long a run takes.
    #[arg(long, default_value = "60s", value_parser = parse_duration)]
    duration: Duration,
    /// The beginning that does not count as steady.
    #[arg(long, default_value = "10s", value_parser = parse_duration)]
    warm_up: Duration,
    #[command(flatten)]
    repetitions: Repetitions,
}

/// The size of a queue.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Queue {
    Bytes(u64),
    /// Times the product of bandwidth and delay.
    Products(f64),
}

fn parse_queue(text: &str) -> anyhow::Result<Queue> {
    let Some(factor) = text.strip_suffix("bdp") else { return Ok(Queue::Bytes(parse_size(text)?)) };
    match factor.parse::<f64>() {
        Ok(factor) if factor > 0.0 && factor <= 100.0 => Ok(Queue::Products(factor)),
        _ => bail!("{text:?} is not a multiple as 1bdp or 0.5bdp"),
    }
}

impl Queue {
    fn bytes(self, rate: Rate, delay: Duration) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Products(factor) => (rate.bytes_in(2 * delay) as f64 * factor) as u64,
        }
    }
}

impl ShareArgs {
    pub(super) fn plans(&self) -> anyhow::Result<Vec<Plan>> {
        ensure!(self.warm_up < self.duration, "--warm-up has to end before --duration does");
        let mut flows = Vec::new();
        for text in &self.flows {
            let scene = parse_flows(text)?;
            let replaced = kind::in_place(&scene).filter(|_| self.in_place);
            for scene in std::iter::once(scene).chain(replaced) {
                if !flows.contains(&scene) {
                    flows.push(scene);
                }
            }
        }
        let mut plans = Vec::new();
        for &rate in &self.rate {
            for &delay in &self.delay {
                for queue in &self.queue {
                    // All flows of a seed first: what a ratio compares is measured side by side.
                    for seed in self.repetitions.seeds(1) {
                        for flows in &flows {
                            plans.push(Plan {
                                flows: flows.clone(),
                                link: self.link(rate, delay, *queue, seed),
                                duration_s: whole_seconds(self.duration, "--duration")?,
                                warm_up_s: whole_seconds(self.warm_up, "--warm-up")?,
                            });
                        }
                    }
                }
            }
        }
        Ok(plans)
    }

    fn link(&self, rate: Rate, delay: Duration, queue: Queue, seed: u64) -> LinkConfig {
        let queue_bytes = Some(queue.bytes(rate, delay));
        LinkConfig::steady(Some(rate.bits_per_sec()), self.loss, delay, queue_bytes, seed)
    }
}

fn whole_seconds(time: Duration, name: &str) -> anyhow::Result<u32> {
    ensure!(time.subsec_nanos() == 0, "{name} is in whole seconds");
    Ok(u32::try_from(time.as_secs())?)
}

/// Reads a scene: flows joined by `+`, `4*cubic` being four.
fn parse_flows(text: &str) -> anyhow::Result<Vec<String>> {
    let known = freshwire_io::tcp::available_congestion_controls()?;
    let mut flows = Vec::new();
    for part in text.split('+') {
        let (count, name) = match part.split_once('*') {
            Some((count, name)) => (count.parse().unwrap_or(0), name),
            None => (1, part),
        };
        ensure!((1..=MOST_ALIKE).contains(&count), "{part:?} is not 1 to {MOST_ALIKE} flows, as 4*cubic");
        let is_there = match Kind::of(name) {
            Kind::A1 => true,
            Kind::Freshwire { congestion, .. } => known.iter().any(|known| known == congestion),
            Kind::Tcp => known.iter().any(|known| known == name),
        };
        ensure!(
            is_there,
            "there is no flow {name:?}; this kernel has {}, the same behind freshwire- and freshwire-unbounded-, and there are a1, \
             a1-cubic, a1-newreno",
            known.join(", ")
        );
        flows.extend(std::iter::repeat_n(name.to_owned(), count));
    }
    Ok(flows)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        args: ShareArgs,
    }

    fn plans(arguments: &[&str]) -> anyhow::Result<Vec<Plan>> {
        let words = std::iter::once("x").chain(arguments.iter().copied());
        Cli::try_parse_from(words)?.args.plans()
    }

    #[test]
    fn every_link_meets_all_flows() {
        let plans = plans(&[
            "--flows",
            "a1+a1,a1+reno",
            "--rate",
            "2Mbit,10Mbit",
            "--delay",
            "20ms,50ms",
            "--queue",
            "1bdp,0.5bdp,15000",
            "--repeat",
            "2",
        ])
        .unwrap();
        assert_eq!(plans.len(), 2 * 2 * 3 * 2 * 2);
        let queues: Vec<_> = plans.iter().map(|plan| plan.link.queue_bytes.unwrap()).collect();
        assert_eq!(
            queues[..12],
            [10_000, 10_000, 10_000, 10_000, 5_000, 5_000, 5_000, 5_000, 15_000, 15_000, 15_000, 15_000]
        );
        assert_eq!(queues[12], 25_000);
        assert_eq!(plans[1].flows, ["a1", "reno"], "the scenes of a seed are side by side");
        assert_eq!((plans[1].link.seed, plans[2].link.seed), (1, 2));
    }

    #[test]
    fn a_scene_is_followed_by_plain_tcp_in_its_place() {
        let plans =
            plans(&["--flows", "2*freshwire-reno+reno,3*reno,a1+reno", "--queue", "1bdp", "--in-place"]);
        let scenes: Vec<String> = plans.unwrap().iter().map(|plan| plan.flows.join("+")).collect();
        assert_eq!(
            scenes,
            ["freshwire-reno+freshwire-reno+reno", "reno+reno+reno", "a1+reno", "reno+reno"],
            "none is measured twice"
        );
    }

    #[test]
    fn impossible_arguments_are_refused() {
        for (arguments, reason) in [
            (["--flows", "a1+nonsense"], "no flow \"nonsense\""),
            (["--flows", "freshwire-nonsense"], "no flow \"freshwire-nonsense\""),
            (["--flows", "0*reno"], "\"0*reno\" is not 1 to 64 flows"),
            (["--flows", "many*reno"], "is not 1 to 64 flows"),
            (["--queue", "0bdp"], "not a multiple"),
            (["--duration", "1500ms"], "--warm-up has to end"),
            (["--duration", "10500ms"], "whole seconds"),
        ] {
            let error = plans(&arguments).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}

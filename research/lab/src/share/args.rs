//! The command line of `freshwire-lab share`.

use std::time::Duration;

use anyhow::{bail, ensure};
use clap::Args;
use freshwire_record::{Rate, parse_duration, parse_share, parse_size};

use super::schema::Plan;
use crate::scenario::{Output, Repetitions};
use crate::schema::LinkConfig;
use crate::scheme;

/// A1 beside TCP flows of this kernel across one bottleneck: who gets how much.
///
/// Lists are separated by commas; each link meets all flows.
#[derive(Args)]
pub(crate) struct ShareArgs {
    #[command(flatten)]
    pub(super) output: Output,
    /// Flows that share the link, joined by `+`: a1, a1-cubic, a1-newreno, or a congestion control of this kernel.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "a1+cubic+bbr,a1+cubic+cubic,a1+bbr+bbr,a1+a1+cubic,a1+a1+a1,cubic+cubic+bbr"
    )]
    flows: Vec<String>,
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
        let flows = self.flows.iter().map(|text| parse_flows(text)).collect::<anyhow::Result<Vec<_>>>()?;
        let mut plans = Vec::new();
        for &rate in &self.rate {
            for &delay in &self.delay {
                for queue in &self.queue {
                    for flows in &flows {
                        for seed in self.repetitions.seeds(1) {
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

fn parse_flows(text: &str) -> anyhow::Result<Vec<String>> {
    let known = freshwire_io::tcp::available_congestion_controls()?;
    let flows: Vec<String> = text.split('+').map(str::to_owned).collect();
    for name in &flows {
        ensure!(
            scheme::is_a1(name) || known.contains(name),
            "there is no flow {name:?}; this kernel has {} and there are a1, a1-cubic, a1-newreno",
            known.join(", ")
        );
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
        assert_eq!(plans[2].flows, ["a1", "reno"]);
    }

    #[test]
    fn impossible_arguments_are_refused() {
        for (arguments, reason) in [
            (["--flows", "a1+nonsense"], "no flow \"nonsense\""),
            (["--queue", "0bdp"], "not a multiple"),
            (["--duration", "1500ms"], "--warm-up has to end"),
            (["--duration", "10500ms"], "whole seconds"),
        ] {
            let error = plans(&arguments).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}

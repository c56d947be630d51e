//! A line of the result file `share.jsonl`, and what follows from it.

use anyhow::ensure;
use serde::{Deserialize, Serialize};

use crate::cells::{self, measurement};
use crate::metrics::capacity_bps;
use crate::schema::{Environment, LinkConfig, Trust};
use crate::store::ResultLine;

/// Everything that was chosen before a run; runs with equal plans repeat each other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// The flows: `a1`, `a1-cubic`, `a1-newreno`; Freshwire over TCP as `freshwire-CONTROL`, or `freshwire-unbounded-CONTROL`; or plain
    /// TCP by the kernel's name of its congestion control.
    pub(super) flows: Vec<String>,
    /// The bottleneck that they share. Its seed also decides in which order they begin.
    pub(super) link: LinkConfig,
    /// From the first flow's begin to the end of all, in seconds.
    pub(super) duration_s: u32,
    /// The seconds from the first flow's begin that do not count as steady.
    pub(super) warm_up_s: u32,
}

/// A plan and its outcome.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(super) plan: Plan,
    pub(super) environment: Environment,
    /// Whether the machine kept up with the run.
    pub(super) trust: Trust,
    /// For each flow, the bytes that its receiver read in each second.
    pub(super) bytes: Vec<Vec<u64>>,
    /// For each flow, the share of its packets that was lost, or of its bytes that TCP sent again; empty in files of older versions.
    #[serde(default)]
    pub(super) lost: Vec<f64>,
    /// How long probes waited in the queue, in nanoseconds, each with the time of its sending from the begin.
    pub(super) waits: Vec<(u64, u64)>,
    /// The numbers that follow; filled in when the run is appended to a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) metrics: Option<Metrics>,
}

/// The numbers that follow from a run. A share is a multiple of the fair share: the link's capacity for stream payload (1448 bytes of
/// 1500, less losses) over the number of flows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Metrics {
    /// Each flow's share after the warm-up.
    pub(super) shares: Vec<f64>,
    /// Each flow's share of the whole time.
    pub(super) shares_in_all: Vec<f64>,
    /// Jain's index of the shares after the warm-up: 1 is even, 1/flows is one flow alone.
    pub(super) jain: f64,
    /// Used share of the capacity after the warm-up.
    pub(super) used: f64,
    /// Median and 95th percentile of the wait in the queue after the warm-up, in nanoseconds; none where no probe came.
    pub(super) wait_ns: Option<[u64; 2]>,
}

impl cells::Plan for Plan {
    fn cell(&self) -> Self {
        Self { link: self.link.without_seed(), ..self.clone() }
    }
}

measurement!(Run, Plan);

impl ResultLine for Run {
    const KIND: &str = "share";

    fn measure(&mut self) -> anyhow::Result<()> {
        self.metrics = Some(Metrics::of(self)?);
        Ok(())
    }
}

impl Metrics {
    /// Fails when the run contradicts itself.
    pub(super) fn of(run: &Run) -> anyhow::Result<Self> {
        let Plan { flows, link, duration_s, warm_up_s } = &run.plan;
        let (duration, warm_up) = (*duration_s as usize, *warm_up_s as usize);
        ensure!(warm_up < duration, "the warm-up of {warm_up} s is all of {duration} s");
        ensure!(run.bytes.len() == flows.len(), "{} of {} flows", run.bytes.len(), flows.len());
        ensure!(run.lost.is_empty() || run.lost.len() == flows.len(), "losses of {} flows", run.lost.len());
        ensure!(run.bytes.iter().all(|seconds| seconds.len() == duration), "not each second is there");
        let capacity = capacity_bps(link.rate_bps, link.loss);
        let fair = capacity / flows.len() as f64;
        let share = |seconds: &[u64]| seconds.iter().sum::<u64>() as f64 * 8.0 / seconds.len() as f64 / fair;
        let shares: Vec<f64> = run.bytes.iter().map(|seconds| share(&seconds[warm_up..])).collect();
        let (sum, squares) = shares.iter().fold((0.0, 0.0), |(sum, squares), x| (sum + x, squares + x * x));
        let steady_ns = u64::from(*warm_up_s) * 1_000_000_000;
        let mut waits: Vec<u64> =
            run.waits.iter().filter(|(at, _)| *at >= steady_ns).map(|(_, wait)| *wait).collect();
        waits.sort_unstable();
        let wait = |percent: usize| waits.get(waits.len().saturating_sub(1) * percent / 100).copied();
        Ok(Self {
            shares_in_all: run.bytes.iter().map(|seconds| share(seconds)).collect(),
            jain: if squares > 0.0 { sum * sum / (flows.len() as f64 * squares) } else { 0.0 },
            used: sum / flows.len() as f64,
            wait_ns: wait(50).zip(wait(95)).map(|(p50, p95)| [p50, p95]),
            shares,
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::testing;

    /// Ten seconds of a link of 12 Mbit/s, each flow with the same bytes in each second.
    pub(in crate::share) fn run(flows: &[(&str, u64)]) -> Run {
        Run {
            plan: Plan {
                flows: flows.iter().map(|(name, _)| (*name).to_owned()).collect(),
                link: testing::link(Some(12_000_000), 0.0, 20.0),
                duration_s: 10,
                warm_up_s: 4,
            },
            environment: Environment::default(),
            trust: Trust::of(&[]),
            bytes: flows.iter().map(|(_, bytes)| vec![*bytes; 10]).collect(),
            lost: flows.iter().map(|_| 0.02).collect(),
            waits: (0..10).map(|at| (at * 1_000_000_000, at * 1_000_000)).collect(),
            metrics: None,
        }
    }

    #[test]
    fn shares_are_multiples_of_an_even_division() {
        // 1448 bytes of payload in each of 1000 packets a second.
        let mut run = run(&[("a1", 362_000), ("cubic", 1_086_000)]);
        run.bytes[0][0] = 0;
        let metrics = Metrics::of(&run).unwrap();
        assert_eq!(metrics.shares, [0.5, 1.5]);
        assert_eq!(metrics.shares_in_all, [0.45, 1.5]);
        assert_eq!((metrics.jain, metrics.used), (0.8, 1.0));
        assert_eq!(metrics.wait_ns, Some([6_000_000, 8_000_000]), "of the waits from the fifth second on");
    }

    #[test]
    fn a_run_without_a_second_of_a_flow_is_none() {
        let mut run = run(&[("a1", 1), ("cubic", 1)]);
        run.lost.pop();
        assert!(Metrics::of(&run).is_err());
        run.lost.pop();
        assert!(Metrics::of(&run).is_ok(), "an older file says nothing of losses");
        run.bytes[1].pop();
        assert!(Metrics::of(&run).is_err());
        run.bytes.pop();
        assert!(Metrics::of(&run).is_err());
    }
}

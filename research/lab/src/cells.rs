//! Runs that differ by their seed alone, gathered and measured.

use anyhow::Context as _;
use freshwire_record::Rate;

use super::metrics::{FramesMetrics, LayersMetrics, Metrics, Spread};
use super::schema::{Experiment, LinkConfig, Plan, Run};
use super::scheme;

/// The repetitions of one plan.
///
/// Runs whose timing cannot be believed are set aside, unless there are no others.
#[derive(Debug)]
pub(crate) struct Cell<'a> {
    /// The plan that all runs share, with the seed taken out.
    pub(crate) plan: Plan,
    /// The runs that count, with what follows from each.
    pub(crate) runs: Vec<(&'a Run, Metrics)>,
    /// Runs that were set aside because the machine was too busy.
    pub(crate) set_aside: usize,
}

impl<'a> Cell<'a> {
    /// The spread over repetitions of a number that `pick` takes from a layered run; none where no run has it.
    pub(crate) fn layers(&self, pick: impl Fn(&LayersMetrics) -> Option<f64>) -> Option<Spread> {
        Spread::of(self.runs.iter().filter_map(|(_, metrics)| match metrics {
            Metrics::Layers(metrics) => pick(metrics),
            Metrics::Frames(_) => None,
        }))
    }

    /// The spread over repetitions of a number that `pick` takes from a run of frames; none where no run has it.
    pub(crate) fn frames(&self, pick: impl Fn(&FramesMetrics) -> Option<f64>) -> Option<Spread> {
        Spread::of(self.runs.iter().filter_map(|(_, metrics)| match metrics {
            Metrics::Frames(metrics) => pick(metrics),
            Metrics::Layers(_) => None,
        }))
    }

    /// The link and the congestion control, as a person reads them.
    pub(crate) fn path_label(&self) -> String {
        format!("{}, {}", link_label(&self.plan.link), self.plan.congestion)
    }

    fn of(plan: Plan, repetitions: &[&'a Run]) -> anyhow::Result<Self> {
        let any_trusted = repetitions.iter().any(|run| run.trust.trustworthy);
        let counted = repetitions.iter().filter(|run| run.trust.trustworthy || !any_trusted);
        let runs = counted
            .map(|run| {
                let metrics = run.metrics.clone().map_or_else(|| Metrics::of(run), Ok);
                metrics
                    .map(|metrics| (*run, metrics))
                    .with_context(|| format!("run with seed {}", run.plan.link.seed))
            })
            .collect::<anyhow::Result<Vec<_>>>()?;
        Ok(Self { plan, set_aside: repetitions.len() - runs.len(), runs })
    }
}

/// Gathers the runs of one experiment into cells: from the fastest link to the slowest, then by loss, delay and
/// congestion control, then in the order of the schemes.
pub(crate) fn gather(runs: &[Run], experiment: Experiment) -> anyhow::Result<Vec<Cell<'_>>> {
    let mut groups: Vec<(Plan, Vec<&Run>)> = Vec::new();
    for run in runs.iter().filter(|run| run.plan.experiment == experiment) {
        let plan = run.plan.cell();
        match groups.iter_mut().find(|(known, _)| *known == plan) {
            Some((_, repetitions)) => repetitions.push(run),
            None => groups.push((plan, vec![run])),
        }
    }
    groups.sort_by(|(a, _), (b, _)| order(a, b));
    groups.into_iter().map(|(plan, repetitions)| Cell::of(plan, &repetitions)).collect()
}

/// Splits cells, which are in order, into stretches that share everything but the scheme and its framing.
pub(crate) fn by_path<'c, 'r>(cells: &'c [Cell<'r>]) -> impl Iterator<Item = &'c [Cell<'r>]> {
    cells.chunk_by(|a, b| same_path(&a.plan, &b.plan))
}

/// A link as a person reads it: `512Kibit/s, 5 % loss, 50 ms`.
pub(crate) fn link_label(link: &LinkConfig) -> String {
    let rate = |rate: Option<u64>| {
        rate.map_or("no limit".to_owned(), |bits| format!("{}/s", Rate::from_bits_per_sec(bits)))
    };
    let mut label = rate(link.rate_bps);
    for step in &link.steps {
        label += &format!(" → {}", rate(step.rate_bps));
    }
    label += &match (link.loss, link.burst_packets) {
        (0.0, _) => ", no loss".to_owned(),
        (loss, None) => format!(", {} % loss", round(loss * 100.0)),
        (loss, Some(burst)) => format!(", {} % loss in bursts of {}", round(loss * 100.0), round(burst)),
    };
    label + &format!(", {} ms", round(link.delay_ms))
}

fn same_path(a: &Plan, b: &Plan) -> bool {
    let path = |plan: &Plan| Plan { scheme: String::new(), framing: String::new(), ..plan.clone() };
    path(a) == path(b)
}

fn order(a: &Plan, b: &Plan) -> std::cmp::Ordering {
    let rate = |plan: &Plan| plan.link.rate_bps.unwrap_or(u64::MAX);
    rate(b)
        .cmp(&rate(a))
        .then(a.link.steps.len().cmp(&b.link.steps.len()))
        .then(a.link.loss.total_cmp(&b.link.loss))
        .then(a.link.delay_ms.total_cmp(&b.link.delay_ms))
        .then(a.congestion.cmp(&b.congestion))
        .then(a.deadline_ms.total_cmp(&b.deadline_ms))
        .then(a.duration_s.total_cmp(&b.duration_s))
        .then(scheme::rank(&a.scheme).cmp(&scheme::rank(&b.scheme)))
        .then(a.framing.cmp(&b.framing))
}

fn round(number: f64) -> f64 {
    (number * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Trust;
    use crate::testing::{self, layers_run, layers_run_on};

    #[test]
    fn repetitions_gather_in_the_order_of_links_and_schemes() {
        let slow = || testing::link(Some(262_144), 0.05, 0.0);
        let runs = [
            layers_run_on("freshwire", slow(), 1, 2),
            layers_run("freshwire", 1),
            layers_run("tcp", 1),
            layers_run("freshwire", 2),
            testing::frames_run("tcp", 1),
        ];
        let cells = gather(&runs, Experiment::Layers).unwrap();
        let names: Vec<_> = cells.iter().map(|c| (c.plan.scheme.as_str(), c.runs.len())).collect();
        assert_eq!(names, [("tcp", 1), ("freshwire", 2), ("freshwire", 1)]);
        assert_eq!(by_path(&cells).map(<[_]>::len).collect::<Vec<_>>(), [2, 1]);
        let spread = cells[1].layers(|m| m.share_of_ideal).unwrap();
        assert_eq!((spread.n, spread.median), (2, 1.0));
        assert_eq!(cells[1].frames(|m| m.share_of_oracle), None);
    }

    #[test]
    fn runs_of_a_busy_machine_are_set_aside_while_there_are_others() {
        let mut runs = [layers_run("tcp", 1), layers_run("tcp", 2)];
        runs[0].trust = Trust::of(&["the link's clock ran 40 ms behind".to_owned()]);
        let cells = gather(&runs, Experiment::Layers).unwrap();
        assert_eq!((cells[0].runs.len(), cells[0].set_aside), (1, 1));
        runs[1].trust = Trust::of(&["likewise".to_owned()]);
        let cells = gather(&runs, Experiment::Layers).unwrap();
        assert_eq!((cells[0].runs.len(), cells[0].set_aside), (2, 0));
    }

    #[test]
    fn links_are_written_with_their_units() {
        assert_eq!(link_label(&testing::link(Some(524_288), 0.05, 50.0)), "512Kibit/s, 5 % loss, 50 ms");
        assert_eq!(link_label(&testing::link(None, 0.0, 0.0)), "no limit, no loss, 0 ms");
        let dip = testing::frames_run("tcp", 1).plan.link;
        assert_eq!(link_label(&dip), "6Mbit/s → 1Mbit/s → 6Mbit/s, no loss, 0 ms");
    }
}

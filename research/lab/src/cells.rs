//! Runs that differ by their seed alone, gathered.

use freshwire_record::Rate;

use super::metrics::Spread;
use super::results::{FramesMetrics, LayersMetrics, Metrics, VideoMetrics};
use super::schema::{self, Experiment, LinkConfig, Run, Source, Trust};
use super::scheme;
use super::store::ResultLine;

/// Everything that was chosen before a run; runs with equal plans repeat each other.
pub(crate) trait Plan: Clone + PartialEq {
    /// The same plan with another seed: runs with equal cells differ by chance alone.
    fn cell(&self) -> Self;
}

/// A run that an experiment has made: its plan, and whether its timing can be believed.
pub(crate) trait Measurement: ResultLine {
    /// The plan's type.
    type Plan: Plan;

    fn plan(&self) -> &Self::Plan;

    fn trust(&self) -> &Trust;
}

/// Implements [`Measurement`] for a run that has the fields `plan` and `trust`.
macro_rules! measurement {
    ($run:ty, $plan:ty) => {
        impl $crate::cells::Measurement for $run {
            type Plan = $plan;

            fn plan(&self) -> &Self::Plan {
                &self.plan
            }

            fn trust(&self) -> &$crate::schema::Trust {
                &self.trust
            }
        }
    };
}
pub(crate) use measurement;

/// The repetitions of one plan.
///
/// Runs whose timing cannot be believed are set aside, unless there are no others.
#[derive(Debug)]
pub(crate) struct Cell<'a, R: Measurement> {
    /// The plan that all runs share, with the seed taken out.
    pub(crate) plan: R::Plan,
    /// The runs that count.
    pub(crate) runs: Vec<&'a R>,
    /// Runs that were set aside because the machine was too busy.
    pub(crate) set_aside: usize,
}

impl<'a, R: Measurement> Cell<'a, R> {
    fn of(repetitions: Vec<&'a R>) -> Self {
        let (plan, all) = (repetitions[0].plan().cell(), repetitions.len());
        let runs = counted(repetitions);
        Self { plan, set_aside: all - runs.len(), runs }
    }

    /// The spread over repetitions of a number; none where no run has it.
    pub(crate) fn spread(&self, pick: impl Fn(&R) -> Option<f64>) -> Option<Spread> {
        Spread::of(self.runs.iter().filter_map(|run| pick(run)))
    }
}

/// The runs whose timing can be believed, or all if there are none.
pub(crate) fn counted<R: Measurement>(mut runs: Vec<&R>) -> Vec<&R> {
    if runs.iter().any(|run| run.trust().trustworthy) {
        runs.retain(|run| run.trust().trustworthy);
    }
    runs
}

/// Runs with the same cell, in order of appearance.
pub(crate) fn cells<'a, R: Measurement>(runs: impl IntoIterator<Item = &'a R>) -> Vec<Cell<'a, R>> {
    groups(runs, |a, b| a.cell() == b.cell()).into_iter().map(Cell::of).collect()
}

/// Runs with the same plan in the sense of `same`, in order of appearance.
pub(crate) fn groups<'a, R: Measurement>(
    runs: impl IntoIterator<Item = &'a R>,
    same: impl Fn(&R::Plan, &R::Plan) -> bool,
) -> Vec<Vec<&'a R>> {
    let mut groups: Vec<Vec<&R>> = Vec::new();
    for run in runs {
        match groups.iter_mut().find(|group| same(group[0].plan(), run.plan())) {
            Some(group) => group.push(run),
            None => groups.push(vec![run]),
        }
    }
    groups
}

impl Plan for schema::Plan {
    fn cell(&self) -> Self {
        Self { link: self.link.without_seed(), ..self.clone() }
    }
}

measurement!(Run, schema::Plan);

impl ResultLine for Run {
    const KIND: &str = "run";

    fn measure(&mut self) -> anyhow::Result<()> {
        self.metrics = Some(Metrics::of(self)?);
        Ok(())
    }
}

impl Cell<'_, Run> {
    /// The spread over repetitions of a number that `pick` takes from a layered run; none where no run has it.
    pub(crate) fn layers(&self, pick: impl Fn(&LayersMetrics) -> Option<f64>) -> Option<Spread> {
        self.spread(|run| match &run.metrics {
            Some(Metrics::Layers(metrics)) => pick(metrics),
            _ => None,
        })
    }

    /// The spread over repetitions of a number that `pick` takes from a run of frames; none where no run has it.
    pub(crate) fn frames(&self, pick: impl Fn(&FramesMetrics) -> Option<f64>) -> Option<Spread> {
        self.spread(|run| match &run.metrics {
            Some(Metrics::Frames(metrics)) => pick(metrics),
            _ => None,
        })
    }

    /// The spread over repetitions of a number that `pick` takes from a run of scalable video; none where no run has it.
    pub(crate) fn video(&self, pick: impl Fn(&VideoMetrics) -> Option<f64>) -> Option<Spread> {
        self.spread(|run| match &run.metrics {
            Some(Metrics::Video(metrics)) => pick(metrics),
            _ => None,
        })
    }

    /// The link and the congestion control, as a person reads them.
    pub(crate) fn path_label(&self) -> String {
        format!("{}, {}", self.link_label(), self.plan.congestion)
    }

    /// The link, and the size of a record where a layer of a window is several.
    pub(crate) fn link_label(&self) -> String {
        let link = link_label(&self.plan.link);
        match self.plan.source {
            Source::Layers { record_bytes, per_layer: 2.., .. } => {
                format!("{link}, records of {record_bytes} B")
            }
            _ => link,
        }
    }
}

/// Gathers the runs of one experiment into cells: from the fastest link to the slowest, then by loss, delay and
/// congestion control, then in the order of the schemes.
pub(crate) fn gather(runs: &[Run], experiment: Experiment) -> Vec<Cell<'_, Run>> {
    let mut cells = cells(runs.iter().filter(|run| run.plan.experiment == experiment));
    cells.sort_by(|a, b| order(&a.plan, &b.plan));
    cells
}

/// Splits cells, which are in order, into stretches that share everything but the scheme and its framing.
pub(crate) fn by_path<'c, 'r>(cells: &'c [Cell<'r, Run>]) -> impl Iterator<Item = &'c [Cell<'r, Run>]> {
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

fn same_path(a: &schema::Plan, b: &schema::Plan) -> bool {
    let path =
        |plan: &schema::Plan| schema::Plan { scheme: String::new(), framing: String::new(), ..plan.clone() };
    path(a) == path(b)
}

fn order(a: &schema::Plan, b: &schema::Plan) -> std::cmp::Ordering {
    let rate = |plan: &schema::Plan| plan.link.rate_bps.unwrap_or(u64::MAX);
    rate(b)
        .cmp(&rate(a))
        .then(a.link.steps.len().cmp(&b.link.steps.len()))
        .then(a.link.loss.total_cmp(&b.link.loss))
        .then(a.link.delay_ms.total_cmp(&b.link.delay_ms))
        .then(a.congestion.cmp(&b.congestion))
        .then(a.deadline_ms.total_cmp(&b.deadline_ms))
        .then(a.duration_s.total_cmp(&b.duration_s))
        .then(clip(a).cmp(&clip(b)))
        .then(record_bytes(a).cmp(&record_bytes(b)))
        .then(scheme::rank(&a.scheme).cmp(&scheme::rank(&b.scheme)))
        .then(a.framing.cmp(&b.framing))
}

fn record_bytes(plan: &schema::Plan) -> u32 {
    match plan.source {
        Source::Layers { record_bytes, .. } => record_bytes,
        Source::Frames { .. } | Source::Video { .. } => 0,
    }
}

fn clip(plan: &schema::Plan) -> Option<impl Ord> {
    match &plan.source {
        Source::Video { clip, order, layers, .. } => Some((clip, *order, layers)),
        _ => None,
    }
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
        let cells = gather(&runs, Experiment::Layers);
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
        let cells = gather(&runs, Experiment::Layers);
        assert_eq!((cells[0].runs.len(), cells[0].set_aside), (1, 1));
        runs[1].trust = Trust::of(&["likewise".to_owned()]);
        let cells = gather(&runs, Experiment::Layers);
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

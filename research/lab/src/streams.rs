//! The experiments `layers` and `frames`: from a command line to plans, from plans to a result file, a table and a report.

mod a1;
mod args;
mod fresh;
mod offer;
mod pace;
mod peers;
mod pieces;
mod plain;
mod receive;
mod udp;
mod worker;

use std::path::Path;
use std::process::ExitCode;

use crate::experiment::{self, Report};
use crate::scenario::Output;
use crate::schema::{Experiment, Plan, Run};
use crate::store::{self, ResultLine as _};
use crate::{cells, report, table};

pub(crate) use args::{FramesArgs, LayersArgs};
pub(crate) use worker::Stream;

/// Runs `freshwire-lab layers`.
pub(crate) fn layers(args: &LayersArgs) -> anyhow::Result<ExitCode> {
    experiment(Experiment::Layers, &args.plans()?, &args.output)
}

/// Runs `freshwire-lab frames`.
pub(crate) fn frames(args: &FramesArgs) -> anyhow::Result<ExitCode> {
    experiment(Experiment::Frames, &args.plans()?, &args.output)
}

/// Runs `freshwire-lab report`.
pub(crate) fn report(results: &Path) -> anyhow::Result<ExitCode> {
    let mut runs: Vec<Run> = store::read(results)?;
    runs.iter_mut().filter(|run| run.metrics.is_none()).try_for_each(Run::measure)?;
    let out = results.parent().unwrap_or(Path::new("."));
    for experiment in [Experiment::Layers, Experiment::Frames] {
        if runs.iter().any(|run| run.plan.experiment == experiment) {
            report_of(experiment, &runs)?.show(out)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn experiment(experiment: Experiment, plans: &[Plan], output: &Output) -> anyhow::Result<ExitCode> {
    let tasks = |missing: Vec<Plan>| {
        let schemes: Vec<&str> = missing.iter().map(|plan| plan.scheme.as_str()).collect();
        let programs = peers::build(&schemes, &output.out)?;
        Ok(missing.into_iter().map(|plan| Stream { plan, programs: programs.clone() }).collect())
    };
    experiment::run(output, plans, tasks, |runs| report_of(experiment, runs))
}

fn report_of(experiment: Experiment, runs: &[Run]) -> anyhow::Result<Report> {
    let runs: Vec<Run> = runs.iter().filter(|run| run.plan.experiment == experiment).cloned().collect();
    let cells = cells::gather(&runs, experiment);
    let (tables, page) = match experiment {
        Experiment::Layers => {
            let tables = [
                Some(table::layers_summary(&cells)),
                table::receive_rates(&cells),
                table::in_time(&cells),
                table::start_up(&cells),
                table::transit(&cells),
            ];
            (tables.into_iter().flatten().collect(), report::layers_html(&runs)?)
        }
        Experiment::Frames => (vec![table::frames_summary(&cells)], report::frames_html(&runs)?),
    };
    Ok(Report { tables, page: Some(("report.html", page)) })
}

//! The experiments `layers`, `frames` and `video`: from a command line to plans, from plans to a result file, a table and a report.

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
mod video;
mod worker;

use std::path::Path;
use std::process::ExitCode;

use crate::experiment::{self, Report};
use crate::scenario::Output;
use crate::schema::{Experiment, Plan, Run};
use crate::store::{self, ResultLine as _};
use crate::{cells, report, table};

pub(crate) use args::{FramesArgs, LayersArgs};
pub(crate) use video::VideoArgs;
pub(crate) use worker::Stream;

/// Runs `freshwire-lab layers`.
pub(crate) fn layers(args: &LayersArgs) -> anyhow::Result<ExitCode> {
    experiment(Experiment::Layers, &args.plans()?, &args.output)
}

/// Runs `freshwire-lab frames`.
pub(crate) fn frames(args: &FramesArgs) -> anyhow::Result<ExitCode> {
    experiment(Experiment::Frames, &args.plans()?, &args.output)
}

/// Runs `freshwire-lab video`. Exit code 1: a run failed, or a decoded picture was not what its layers give.
pub(crate) fn video(args: &VideoArgs) -> anyhow::Result<ExitCode> {
    let prepared = args.prepare()?;
    let tasks = |missing: Vec<Plan>| {
        let schemes: Vec<&str> = missing.iter().map(|plan| plan.scheme.as_str()).collect();
        let programs = peers::build(&schemes, &prepared.output.out)?;
        let stream = |plan: Plan| {
            let clip = prepared.clip(&plan);
            Stream { plan, programs: programs.clone(), clip, stills: prepared.stills.clone() }
        };
        Ok(missing.into_iter().map(stream).collect())
    };
    let mut is_damaged = false;
    let code = experiment::run(&prepared.output, &prepared.plans, tasks, |runs| {
        is_damaged = runs.iter().filter_map(|run| run.decoded).any(|decoded| decoded.differing > 0);
        report_of(Experiment::Video, runs)
    })?;
    Ok(if is_damaged { ExitCode::from(1) } else { code })
}

/// Runs `freshwire-lab report`.
pub(crate) fn report(results: &Path) -> anyhow::Result<ExitCode> {
    let mut runs: Vec<Run> = store::read(results)?;
    runs.iter_mut().filter(|run| run.metrics.is_none()).try_for_each(Run::measure)?;
    let out = results.parent().unwrap_or(Path::new("."));
    for experiment in [Experiment::Layers, Experiment::Frames, Experiment::Video] {
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
        let stream =
            |plan| Stream { plan, programs: programs.clone(), clip: None, stills: output.out.clone() };
        Ok(missing.into_iter().map(stream).collect())
    };
    experiment::run(output, plans, tasks, |runs| report_of(experiment, runs))
}

fn report_of(experiment: Experiment, runs: &[Run]) -> anyhow::Result<Report> {
    let runs: Vec<Run> = runs.iter().filter(|run| run.plan.experiment == experiment).cloned().collect();
    let cells = cells::gather(&runs, experiment);
    let page = |page: String| Some(("report.html", page));
    Ok(match experiment {
        Experiment::Layers => {
            let tables = [
                Some(table::layers_summary(&cells)),
                table::receive_rates(&cells),
                table::in_time(&cells),
                table::start_up(&cells),
                table::transit(&cells),
            ];
            Report { tables: tables.into_iter().flatten().collect(), page: page(report::layers_html(&runs)?) }
        }
        Experiment::Frames => {
            Report { tables: vec![table::frames_summary(&cells)], page: page(report::frames_html(&runs)?) }
        }
        Experiment::Video => Report { tables: vec![table::video_summary(&cells)], page: None },
    })
}

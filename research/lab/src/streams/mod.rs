//! The experiments `layers` and `frames`: from a command line to plans, from plans to a result file, a table and a report.

mod a1;
mod args;
mod fresh;
mod offer;
mod pace;
mod peers;
mod plain;
mod receive;
mod worker;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;

use crate::output::{print, say};
use crate::scenario::{Output, pool};
use crate::schema::{Experiment, Plan, Run};
use crate::store::Writer;
use crate::{cells, report, store, table};

pub(crate) use args::{FramesArgs, LayersArgs};
pub(crate) use worker::Stream;

/// Runs `freshwire-lab layers`.
pub(crate) fn layers(args: &LayersArgs) -> anyhow::Result<ExitCode> {
    experiment(Experiment::Layers, args.plans()?, &args.output)
}

/// Runs `freshwire-lab frames`.
pub(crate) fn frames(args: &FramesArgs) -> anyhow::Result<ExitCode> {
    experiment(Experiment::Frames, args.plans()?, &args.output)
}

/// Runs `freshwire-lab report`.
pub(crate) fn report(results: &Path) -> anyhow::Result<ExitCode> {
    let runs: Vec<Run> = store::read(results)?;
    let out = results.parent().unwrap_or(Path::new("."));
    for experiment in [Experiment::Layers, Experiment::Frames] {
        let of_this: Vec<Run> =
            runs.iter().filter(|run| run.plan.experiment == experiment).cloned().collect();
        if !of_this.is_empty() {
            show(experiment, &of_this, out)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs what is missing of `plans`, then shows all of it.
fn experiment(experiment: Experiment, plans: Vec<Plan>, output: &Output) -> anyhow::Result<ExitCode> {
    std::fs::create_dir_all(&output.out)
        .with_context(|| format!("cannot make the output folder {}", output.out.display()))?;
    let (mut writer, mut runs) = Writer::<Run>::resume(&output.out.join("results.jsonl"))?;
    let missing: Vec<Plan> =
        plans.iter().filter(|plan| !runs.iter().any(|run| run.plan == **plan)).cloned().collect();
    if missing.len() < plans.len() {
        say(&format!(
            "{} of {} runs are in {} already",
            plans.len() - missing.len(),
            plans.len(),
            output.out.display()
        ));
    }
    let schemes: Vec<&str> = missing.iter().map(|plan| plan.scheme.as_str()).collect();
    let programs = peers::build(&schemes, &output.out)?;
    let streams = missing.into_iter().map(|plan| Stream { plan, programs: programs.clone() }).collect();
    let failures = pool::run(streams, output.jobs, |mut run| {
        writer.append(&mut run)?;
        runs.push(run);
        Ok(())
    })?;
    runs.retain(|run| plans.contains(&run.plan));
    anyhow::ensure!(!runs.is_empty(), "no run succeeded: {}", failures.join("; "));
    show(experiment, &runs, &output.out)?;
    for failure in &failures {
        say(&format!("a run failed: {failure}"));
    }
    Ok(if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn show(experiment: Experiment, runs: &[Run], out: &Path) -> anyhow::Result<()> {
    let cells = cells::gather(runs, experiment)?;
    let command = runs.first().map(|run| run.environment.command.clone()).unwrap_or_default();
    let html = match experiment {
        Experiment::Layers => {
            print(&table::layers_summary(&cells).to_terminal())?;
            if let Some(rates) = table::receive_rates(&cells) {
                print(&rates.to_terminal())?;
            }
            report::layers_html(runs, &command)?
        }
        Experiment::Frames => {
            print(&table::frames_summary(&cells).to_terminal())?;
            report::frames_html(runs, &command)?
        }
    };
    let path = out.join("report.html");
    std::fs::write(&path, html).with_context(|| format!("cannot write {}", path.display()))?;
    print(&format!("report: {}", path.display()))?;
    Ok(())
}

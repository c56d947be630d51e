//! Runs side by side, each in its own process, with progress shown.

use std::collections::VecDeque;
use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::mpsc;

use anyhow::Context as _;
use indicatif::{ProgressBar, ProgressStyle};

use super::worker::Order;
use crate::lab::schema::{Environment, Plan, Run};

/// How many runs a processor carries at a source rate of about a megabit: measured, the emulator's lateness stays below
/// a tenth of a millisecond.
const RUNS_PER_CORE: usize = 6;

/// A run whose timing the machine spoiled is repeated this often before it is kept as it is, and marked.
const ATTEMPTS: usize = 3;

/// Runs `plans`, with the other transports' programs from a folder; `each` gets every run as soon as it is there. Returns what went wrong with those that failed.
pub(super) fn run(
    plans: Vec<Plan>,
    jobs: Option<usize>,
    programs: Option<&Path>,
    mut each: impl FnMut(Run) -> anyhow::Result<()>,
) -> anyhow::Result<Vec<String>> {
    if plans.is_empty() {
        return Ok(Vec::new());
    }
    let environment = Environment::here();
    let jobs = jobs.unwrap_or(environment.cores as usize * RUNS_PER_CORE).clamp(1, plans.len());
    let progress = progress(&plans, jobs);
    let queue = Mutex::new(VecDeque::from(plans));
    let (sender, results) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            let (sender, queue, environment) = (sender.clone(), &queue, &environment);
            scope.spawn(move || {
                let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                while let Some(plan) = next() {
                    // Fails only when the collector has stopped on an error of its own.
                    if sender.send((plan.clone(), attempt(&plan, environment, programs))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let mut failures = Vec::new();
        for (plan, result) in results {
            match result {
                Ok(run) => {
                    if let Some(reason) = &run.trust.reason {
                        progress.println(format!("{} seed {}: {reason}", plan.scheme, plan.link.seed));
                    }
                    if let Err(error) = each(run) {
                        queue.lock().unwrap_or_else(PoisonError::into_inner).clear();
                        return Err(error);
                    }
                }
                Err(error) => failures.push(format!("{}, seed {}: {error:#}", plan.scheme, plan.link.seed)),
            }
            progress.inc(1);
        }
        progress.finish_and_clear();
        Ok(failures)
    })
}

fn progress(plans: &[Plan], jobs: usize) -> ProgressBar {
    let seconds: f64 =
        plans.iter().map(|plan| plan.duration_s + plan.deadline_ms / 1e3).sum::<f64>() / jobs as f64;
    eprintln!("{} runs, {jobs} side by side, about {:.0} min", plans.len(), (seconds / 60.0).ceil());
    let progress = ProgressBar::new(plans.len() as u64);
    if let Ok(style) =
        ProgressStyle::with_template("{bar:40} {pos}/{len} runs, {elapsed} elapsed, {eta} to go")
    {
        progress.set_style(style);
    }
    if std::io::stderr().is_terminal() {
        progress.enable_steady_tick(std::time::Duration::from_secs(1));
    }
    progress
}

fn attempt(plan: &Plan, environment: &Environment, programs: Option<&Path>) -> anyhow::Result<Run> {
    let mut last = once(plan, environment, programs)?;
    for _ in 1..ATTEMPTS {
        if last.trust.trustworthy {
            break;
        }
        last = once(plan, environment, programs)?;
    }
    Ok(last)
}

fn once(plan: &Plan, environment: &Environment, programs: Option<&Path>) -> anyhow::Result<Run> {
    let mut child = Command::new(std::env::current_exe().context("cannot find this program's own file")?)
        .args(["lab", "worker"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot start a run")?;
    let order = Order {
        plan: plan.clone(),
        environment: environment.clone(),
        programs: programs.map(Path::to_owned),
    };
    let input = serde_json::to_vec(&order).context("cannot write the plan")?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(&input).context("cannot hand over the plan")?;
    }
    let output = child.wait_with_output().context("cannot wait for a run")?;
    if !output.status.success() {
        anyhow::bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
    }
    serde_json::from_slice(&output.stdout).context("a run answered with something that is not a run")
}

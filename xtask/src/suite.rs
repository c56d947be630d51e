//! The test command: every step in order, one at a time, until one fails.
#![allow(clippy::disallowed_methods, reason = "steps are timed by the real clock")]

mod needs;
mod process;
mod steps;
mod tally;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::bail;

use steps::{Action, Step};
use tally::Tally;

/// How a step ended.
enum Outcome {
    Passed(Tally),
    Skipped(String),
    Failed(String, Tally),
}

struct Report {
    name: &'static str,
    outcome: Outcome,
    took: Duration,
    /// Why some of the step's tests did nothing.
    without: Vec<String>,
}

/// Runs the named steps, or all of them, and returns whether none failed. With `CI=true` a step whose requirement is
/// missing fails; otherwise it is skipped, with the reason in the summary.
pub(crate) fn run(root: &Path, names: &[String]) -> anyhow::Result<bool> {
    let steps = steps::all();
    if names.iter().any(|name| name == "--list") {
        for step in &steps {
            println!("{:10} {}", step.name, step.action.describe());
        }
        return Ok(true);
    }
    if let Some(unknown) = names.iter().find(|name| !steps.iter().any(|step| step.name == **name)) {
        bail!("no step is called {unknown}; `cargo xtask test --list` shows them");
    }
    let chosen: Vec<&Step> =
        steps.iter().filter(|step| names.is_empty() || names.iter().any(|name| name == step.name)).collect();
    let strict = std::env::var("CI").is_ok_and(|value| value == "true" || value == "1");
    let begun = Instant::now();
    let mut reports = Vec::new();
    for (index, step) in chosen.iter().enumerate() {
        println!("\n=== {}/{} {}: {}", index + 1, chosen.len(), step.name, step.action.describe());
        let started = Instant::now();
        let without: Vec<String> = step.wants.iter().filter_map(|want| want.missing(root)).collect();
        let outcome = run_step(root, step, strict, &without)?;
        let failed = matches!(outcome, Outcome::Failed(..));
        reports.push(Report { name: step.name, outcome, took: started.elapsed(), without });
        if failed {
            break;
        }
    }
    let not_run = &chosen[reports.len()..];
    Ok(summarise(&reports, not_run, begun.elapsed()))
}

fn run_step(root: &Path, step: &Step, strict: bool, without: &[String]) -> anyhow::Result<Outcome> {
    let missing = step.needs.iter().find_map(|need| need.missing(root));
    if strict && let Some(reason) = missing.as_ref().or(without.first()) {
        let problem = format!("{reason} (CI=true: nothing may be skipped)");
        return Ok(Outcome::Failed(problem, Tally::one_failed()));
    }
    if let Some(reason) = missing {
        return Ok(Outcome::Skipped(reason));
    }
    match &step.action {
        Action::Check => Ok(if crate::check::run(root)? {
            Outcome::Passed(Tally::one_passed())
        } else {
            Outcome::Failed("a rule of the workspace is broken, see above".to_owned(), Tally::one_failed())
        }),
        Action::Command(command) => {
            let ended = process::run(root, command, step.limit)?;
            Ok(match ended.problem {
                None => Outcome::Passed(ended.tally.or_passed()),
                Some(problem) => Outcome::Failed(problem, ended.tally.or_failed()),
            })
        }
    }
}

/// Prints the table and the closing lines; `true` if no step failed.
fn summarise(reports: &[Report], not_run: &[&Step], took: Duration) -> bool {
    let mut total = Tally::default();
    let mut skipped = 0;
    println!("\n=== summary");
    for Report { name, outcome, took, without } in reports {
        let seconds = took.as_secs_f64();
        match outcome {
            Outcome::Passed(tally) => {
                total += *tally;
                println!("  ok       {name:10} {seconds:7.1} s  {} passed", tally.passed);
            }
            Outcome::Skipped(reason) => {
                skipped += 1;
                println!("  skipped  {name:10} {seconds:7.1} s  {reason}");
            }
            Outcome::Failed(problem, tally) => {
                total += *tally;
                println!("  FAILED   {name:10} {seconds:7.1} s  {problem}");
            }
        }
        for reason in without {
            println!("{:31}without some tests: {reason}", "");
        }
    }
    for step in not_run {
        println!("  not run  {}", step.name);
    }
    let verdict = if total.failed == 0 { "ok" } else { "FAILED" };
    println!(
        "\ntest result: {verdict}. {} passed; {} failed; {} ignored; {skipped} steps skipped; finished in {:.1}s",
        total.passed,
        total.failed,
        total.ignored,
        took.as_secs_f64()
    );
    println!("{} passed, {} failed", total.passed, total.failed);
    total.failed == 0
}

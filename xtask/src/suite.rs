//! The test command: every step in order, one at a time. Test programs that fail are run once more by themselves, and the summary names them.
#![allow(clippy::disallowed_methods, reason = "steps are timed by the real clock")]

mod needs;
mod process;
mod steps;
mod tally;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::bail;

use process::Ended;
use steps::{Action, CommandLine, Step};
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
    /// Remarks on the step's tests: why some did nothing, which needed a second run.
    notes: Vec<String>,
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
        let mut notes: Vec<String> =
            without.iter().map(|reason| format!("without some tests: {reason}")).collect();
        let outcome = run_step(root, step, strict, &without, &mut notes)?;
        reports.push(Report { name: step.name, outcome, took: started.elapsed(), notes });
    }
    Ok(summarise(&reports, begun.elapsed()))
}

fn run_step(
    root: &Path,
    step: &Step,
    strict: bool,
    without: &[String],
    notes: &mut Vec<String>,
) -> anyhow::Result<Outcome> {
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
            let mut ended = process::run(root, command, step.limit)?;
            if !ended.failed_targets.is_empty() {
                ended = run_again(root, command, step.limit, ended, notes)?;
            }
            Ok(match ended.problem {
                None => Outcome::Passed(ended.tally.or_passed()),
                Some(problem) => Outcome::Failed(problem, ended.tally.or_failed()),
            })
        }
    }
}

/// Runs each failed test program by itself. The tests use real links and clocks, and a machine that does something else meanwhile can
/// disturb them. A program that fails again has failed; one that passes is named in the summary.
fn run_again(
    root: &Path,
    command: &CommandLine<'_>,
    limit: Duration,
    first: Ended,
    notes: &mut Vec<String>,
) -> anyhow::Result<Ended> {
    let mut still_failed = Vec::new();
    let mut tally = first.tally;
    for target in first.failed_targets {
        let arguments: Vec<&str> = std::iter::once("test").chain(target.split(' ')).collect();
        println!("\n=== again, by itself: cargo {}", arguments.join(" "));
        let line = CommandLine { arguments: &arguments, ..*command };
        let second = process::run(root, &line, limit)?;
        if second.problem.is_some() {
            still_failed.push(target);
        } else {
            notes.push(format!("needed a second run: {target}"));
        }
    }
    let problem = (!still_failed.is_empty()).then(|| format!("failed twice: {}", still_failed.join(", ")));
    if problem.is_none() {
        tally = Tally { passed: tally.passed + tally.failed, failed: 0, ..tally };
    }
    Ok(Ended { tally, problem, failed_targets: still_failed })
}

/// Prints the table and the closing lines; `true` if no step failed.
fn summarise(reports: &[Report], took: Duration) -> bool {
    let mut total = Tally::default();
    let mut skipped = 0;
    println!("\n=== summary");
    for Report { name, outcome, took, notes } in reports {
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
        for note in notes {
            println!("{:31}{note}", "");
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn second_run(program: &str) -> (Ended, Vec<String>) {
        let first = Ended {
            tally: Tally { passed: 4, failed: 2, ignored: 0 },
            problem: Some("cargo ended with 101".to_owned()),
            failed_targets: vec!["-p some --test one".to_owned()],
        };
        let command = CommandLine { program, arguments: &[], environment: &[] };
        let mut notes = Vec::new();
        let ended = run_again(Path::new("/"), &command, Duration::from_secs(10), first, &mut notes);
        (ended.expect("the program runs"), notes)
    }

    #[test]
    fn a_second_failure_is_a_failure() {
        let (ended, notes) = second_run("false");
        assert_eq!(ended.problem.as_deref(), Some("failed twice: -p some --test one"));
        assert_eq!(ended.tally, Tally { passed: 4, failed: 2, ignored: 0 });
        assert!(notes.is_empty());
    }

    #[test]
    fn a_pass_at_the_second_run_is_noted() {
        let (ended, notes) = second_run("true");
        assert_eq!((ended.problem, ended.tally), (None, Tally { passed: 6, failed: 0, ignored: 0 }));
        assert_eq!(notes, ["needed a second run: -p some --test one"]);
    }
}

//! The test command: its steps, and the summary.
#![allow(clippy::disallowed_methods, reason = "the whole is timed by the real clock")]

mod command;
mod lanes;
mod needs;
mod process;
mod programs;
mod steps;
mod tally;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::bail;

use lanes::{Outcome, Report, Runner};
use steps::{Gate, Lane};
use tally::Tally;

/// Runs the named steps, or all of a gate, or of both, and returns whether none failed.
pub(crate) fn run(root: &Path, names: &[String]) -> anyhow::Result<bool> {
    let (gate, names) = match names.split_first() {
        Some((first, names)) if first == "--product" => (Some(Gate::Product), names),
        Some((first, names)) if first == "--rest" => (Some(Gate::Rest), names),
        _ => (None, names),
    };
    let mut steps = steps::all(root, gate);
    if names.iter().any(|name| name == "--list") {
        for step in &steps {
            println!("{:10} {}", step.name, step.line.describe());
        }
        return Ok(true);
    }
    if let Some(unknown) = names.iter().find(|name| !steps.iter().any(|step| step.name == **name)) {
        bail!("no step is called {unknown}; `cargo xtask test --list` shows them");
    }
    steps.retain(|step| names.is_empty() || names.contains(&step.name));
    let strict = std::env::var("CI").is_ok_and(|value| value == "true" || value == "1");
    let started = Instant::now();
    let reports = Runner { root, strict, gate }.run(steps)?;
    Ok(summarise(&reports, started.elapsed(), strict))
}

/// How many test programs the summary names for their time.
const SLOWEST: usize = 10;

/// With `CI=true`, the largest share of measurements for which the machine may be too busy: a quarter. More of them would mean that
/// the run says next to nothing of times and rates; fewer than one in four is what the neighbours of a shared machine do.
const TOO_BUSY_SHARE: u64 = 4;

/// Whether too many measurements were of no use.
fn is_too_busy(total: Tally) -> bool {
    total.too_busy * TOO_BUSY_SHARE > total.too_busy + total.measured
}

/// Prints the table and the closing lines; `true` if no step failed, nor measured too little where that counts.
fn summarise(reports: &[Report], took: Duration, strict: bool) -> bool {
    let (programs, steps): (Vec<_>, Vec<_>) = reports.iter().partition(|report| report.step.is_program());
    println!("\n=== summary");
    for report in steps {
        print_line(report);
    }
    let (quiet, notable): (Vec<&Report>, Vec<_>) =
        programs.iter().partition(|report| report.outcome == Outcome::Passed && report.notes.is_empty());
    for report in notable {
        print_line(report);
    }
    let passed: u64 = quiet.iter().map(|report| report.tally.or_passed().passed).sum();
    if !programs.is_empty() {
        println!("  ok       {} other test programs: {passed} passed; the slowest:", quiet.len());
    }
    let mut slowest: Vec<_> = programs;
    slowest.sort_by_key(|report| std::cmp::Reverse(report.took));
    for report in slowest.iter().take(SLOWEST) {
        println!("             {:38} {:7.1} s", report.step.name, report.took.as_secs_f64());
    }
    let skipped = reports.iter().filter(|report| matches!(report.outcome, Outcome::Skipped(_))).count();
    let total = reports.iter().map(counted).fold(Tally::default(), |mut total, one| {
        total += one;
        total
    });
    let (busy, all) = (total.too_busy, total.too_busy + total.measured);
    if all > 0 {
        println!("\nmachine too busy: {busy} of {all} measurements");
    }
    for report in reports {
        report.too_busy.iter().for_each(|one| println!("  {}: {one}", report.step.name));
    }
    let fails_to_measure = strict && is_too_busy(total);
    if fails_to_measure {
        println!(
            "  CI=true: more than one in {TOO_BUSY_SHARE}; repeat this on a machine with less beside it"
        );
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
    total.failed == 0 && !fails_to_measure
}

/// A step that counted nothing is itself a test.
fn counted(report: &Report) -> Tally {
    match report.outcome {
        Outcome::Passed => report.tally.or_passed(),
        Outcome::Skipped(_) => Tally::default(),
        Outcome::Failed(_) => report.tally.or_failed(),
    }
}

fn print_line(report: &Report) {
    let Report { step, outcome, took, notes, .. } = report;
    let lane = if step.lane == Lane::Beside { " beside the others" } else { "" };
    let (word, what) = match outcome {
        Outcome::Passed => ("ok", format!("{} passed{lane}", counted(report).passed)),
        Outcome::Skipped(reason) => ("skipped", reason.clone()),
        Outcome::Failed(problem) => ("FAILED", problem.clone()),
    };
    println!("  {word:8} {:10} {:7.1} s  {what}", step.name, took.as_secs_f64());
    for note in notes {
        println!("{:31}{note}", "");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use command::CommandLine;
    use steps::Step;

    fn report(outcome: Outcome, tally: Tally) -> Report {
        let step = Step::new("some", Lane::Waiting, CommandLine::new("true", &[]), Path::new("/"));
        Report { step, outcome, tally, took: Duration::ZERO, too_busy: Vec::new(), notes: Vec::new() }
    }

    #[test]
    fn a_failure_without_counts_fails_the_whole() {
        let passed = || report(Outcome::Passed, Tally { passed: 3, ..Tally::default() });
        assert!(summarise(
            &[passed(), report(Outcome::Skipped("no".to_owned()), Tally::default())],
            Duration::ZERO,
            true
        ));
        let failed = report(Outcome::Failed("ended with 101".to_owned()), Tally::default());
        assert!(!summarise(&[passed(), failed], Duration::ZERO, false));
    }

    #[test]
    fn too_few_measurements_fail_where_nothing_may_be_skipped() {
        let of = |measured, too_busy| {
            [report(Outcome::Passed, Tally { passed: 9, measured, too_busy, ..Tally::default() })]
        };
        for (measured, too_busy, is_enough) in
            [(0, 0, true), (3, 1, true), (4, 1, true), (5, 2, false), (0, 1, false)]
        {
            assert_eq!(
                summarise(&of(measured, too_busy), Duration::ZERO, true),
                is_enough,
                "{measured} {too_busy}"
            );
            assert!(summarise(&of(measured, too_busy), Duration::ZERO, false));
        }
    }
}

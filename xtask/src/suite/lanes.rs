//! Runs steps in their lanes.
#![allow(clippy::disallowed_methods, reason = "steps are timed by the real clock")]

use std::path::Path;
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::anyhow;

use super::process::{self, Output};
use super::programs;
use super::steps::{Gate, Lane, Step};
use super::tally::Tally;

/// How a step ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Passed,
    Skipped(String),
    Failed(String),
}

/// What became of a step.
pub(super) struct Report {
    pub(super) step: Step,
    pub(super) outcome: Outcome,
    pub(super) tally: Tally,
    pub(super) took: Duration,
    /// Measurements for which the machine was too busy.
    pub(super) too_busy: Vec<String>,
    /// Remarks on the step's tests: why some did nothing, and that it needed a second run.
    pub(super) notes: Vec<String>,
}

pub(super) struct Runner<'a> {
    pub(super) root: &'a Path,
    /// Test programs of the other gate are not run.
    pub(super) gate: Option<Gate>,
    /// With `CI=true` a step whose requirement is missing fails; otherwise it is skipped.
    pub(super) strict: bool,
}

impl Runner<'_> {
    /// Runs all steps, and the test programs once they are built. Failed ones are run once more, each by
    /// itself.
    pub(super) fn run(&self, steps: Vec<Step>) -> anyhow::Result<Vec<Report>> {
        let (first, steps): (Vec<_>, Vec<_>) = steps.into_iter().partition(|step| step.lane == Lane::First);
        let mut reports = self.one_by_one(first)?;
        let (beside, steps): (Vec<_>, Vec<_>) = steps.into_iter().partition(|step| step.lane == Lane::Beside);
        if steps.is_empty() {
            // With nothing to give way to, they are shown as they run.
            reports.extend(self.one_by_one(beside)?);
        } else {
            reports.extend(self.in_lanes(beside, steps)?);
        }
        for report in &mut reports {
            self.run_again(report)?;
        }
        Ok(reports)
    }

    fn in_lanes(&self, beside: Vec<Step>, steps: Vec<Step>) -> anyhow::Result<Vec<Report>> {
        let (to_idle, of_idle) = mpsc::channel::<Step>();
        let of_idle = Mutex::new(of_idle);
        let next = || of_idle.lock().unwrap_or_else(PoisonError::into_inner).recv().ok();
        let idly = || std::iter::from_fn(next).map(|step| self.out_of_sight(step)).collect();
        let (build, mut steps): (Vec<_>, Vec<_>) =
            steps.into_iter().partition(|step| step.lane == Lane::Build);
        thread::scope(|scope| {
            let mut idle = vec![scope.spawn(idly)];
            for step in beside {
                to_idle.send(step)?;
            }
            let mut reports = Vec::new();
            for step in build {
                let (report, messages) = self.step(step, Output::Shown)?;
                let passed = report.outcome == Outcome::Passed;
                let mut programs = programs::steps(if passed { &messages } else { &[] }, &report.step)?;
                if passed {
                    steps.iter_mut().for_each(|step| step.use_build(self.root, &programs));
                }
                programs.retain(|program| self.gate.is_none_or(|gate| program.gate == gate));
                let (beside, others): (Vec<_>, Vec<_>) =
                    programs.into_iter().partition(|step| step.lane == Lane::Beside);
                reports.push(report);
                steps.extend(others);
                for step in beside {
                    to_idle.send(step)?;
                }
            }
            drop(to_idle);
            // Before, a second one would only wait with cargo for the build. Many of them use one processor.
            idle.push(scope.spawn(idly));
            let (mut alone, waiting): (Vec<_>, Vec<_>) =
                steps.into_iter().partition(|step| step.lane == Lane::Alone);
            // What the others use, cargo's lock and the wheel, may still be taken by what runs beside.
            alone.sort_by_key(|step| !step.is_program());
            reports.extend(self.two_at_a_time(waiting)?);
            reports.extend(self.one_by_one(alone)?);
            for lane in idle {
                let beside: anyhow::Result<Vec<_>> =
                    lane.join().map_err(|_| anyhow!("a lane beside the others panicked"))?;
                reports.extend(beside?);
            }
            Ok(reports)
        })
    }

    fn one_by_one(&self, steps: Vec<Step>) -> anyhow::Result<Vec<Report>> {
        steps.into_iter().map(|step| Ok(self.step(step, Output::Shown)?.0)).collect()
    }

    fn two_at_a_time(&self, steps: Vec<Step>) -> anyhow::Result<Vec<Report>> {
        let queue = Mutex::new(steps.into_iter());
        let work = || {
            let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
            std::iter::from_fn(next).map(|step| self.out_of_sight(step)).collect::<anyhow::Result<Vec<_>>>()
        };
        thread::scope(|scope| {
            let other = scope.spawn(work);
            let mut reports = work()?;
            reports.extend(other.join().map_err(|_| anyhow!("a lane of waiting steps panicked"))??);
            Ok(reports)
        })
    }

    /// Runs a step and shows what it printed when it is over.
    fn out_of_sight(&self, step: Step) -> anyhow::Result<Report> {
        let printed = Mutex::default();
        let output =
            if step.lane == Lane::Beside { Output::KeptOfIdle(&printed) } else { Output::Kept(&printed) };
        let report = self.step(step, output);
        let printed = printed.into_inner().unwrap_or_else(PoisonError::into_inner);
        Output::Shown.write(&printed);
        Ok(report?.0)
    }

    /// Runs a step; with it comes cargo's report of its build for programs.
    fn step(&self, step: Step, output: Output<'_>) -> anyhow::Result<(Report, Vec<String>)> {
        output.say(&format!("\n=== {}: {}", step.name, step.line.describe()));
        let started = Instant::now();
        let without: Vec<String> = step.wants.iter().filter_map(|want| want.missing(self.root)).collect();
        let notes = without.iter().map(|reason| format!("without some tests: {reason}")).collect();
        let missing = step.needs.iter().find_map(|need| need.missing(self.root));
        let (mut tally, mut messages, mut too_busy) = (Tally::default(), Vec::new(), Vec::new());
        let outcome = if self.strict
            && let Some(reason) = missing.as_ref().or(without.first())
        {
            Outcome::Failed(format!("{reason} (CI=true: nothing may be skipped)"))
        } else if let Some(reason) = missing {
            Outcome::Skipped(reason)
        } else {
            let ended = process::run(&step.folder, &step.line, step.limit, output)?;
            (tally, messages, too_busy) = (ended.tally, ended.messages, ended.too_busy);
            ended.problem.map_or(Outcome::Passed, Outcome::Failed)
        };
        let took = started.elapsed();
        if let Outcome::Failed(problem) = &outcome {
            output.say(&format!("FAILED: {}: {problem}", step.name));
        }
        Ok((Report { step, outcome, tally, took, too_busy, notes }, messages))
    }

    /// Runs a test program or a step that failed, or could not measure, by itself. The tests use real links and clocks, and a machine that does
    /// something else meanwhile can disturb them. If it fails again it has failed; if it passes, the summary names it. What a compiler or a
    /// checker says is said once.
    fn run_again(&self, report: &mut Report) -> anyhow::Result<()> {
        let has_clocks = report.step.is_program() || matches!(report.step.lane, Lane::Waiting | Lane::Alone);
        let is_good = match &report.outcome {
            Outcome::Passed => report.too_busy.is_empty(),
            Outcome::Skipped(_) => true,
            Outcome::Failed(_) => false,
        };
        if !has_clocks || is_good {
            return Ok(());
        }
        let first = report.outcome.clone();
        println!("\n=== once more, with nothing beside it");
        let (second, _) = self.step(report.step.clone(), Output::Shown)?;
        if second.outcome == Outcome::Passed {
            *report = second;
            report.notes.push(match first {
                Outcome::Failed(problem) => format!("needed a second run: {problem}"),
                _ => "measured once more, as the machine was too busy".to_owned(),
            });
        } else if let Outcome::Failed(problem) = second.outcome {
            report.outcome = Outcome::Failed(format!("failed twice: {problem}"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::command::CommandLine;
    use crate::suite::needs::Need;

    fn runner() -> Runner<'static> {
        Runner { root: Path::new("/"), strict: false, gate: None }
    }

    fn step(name: &str, lane: Lane, script: &str) -> Step {
        Step::new(name, lane, CommandLine::new("sh", &["-c", script]), Path::new("/"))
    }

    #[test]
    fn every_lane_is_run_and_reported() {
        let lanes = [Lane::First, Lane::Beside, Lane::Waiting, Lane::Alone, Lane::Waiting, Lane::Waiting];
        let steps = lanes.map(|lane| step("some", lane, "true")).to_vec();
        let reports = runner().run(steps).expect("sh runs");
        assert_eq!(reports.len(), lanes.len());
        assert!(reports.iter().all(|report| report.outcome == Outcome::Passed));
    }

    #[test]
    fn steps_run_two_at_a_time() {
        for lane in [Lane::Waiting, Lane::Beside] {
            // Each waits for the other one.
            let pipe = std::env::temp_dir().join(format!("xtask-pipe-{}", std::process::id()));
            let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo runs");
            assert!(made.success());
            let ends = ["echo >", "cat <"].map(|end| step("end", lane, &format!("{end}{}", pipe.display())));
            let steps = [ends.to_vec(), vec![step("other", Lane::Alone, "true")]].concat();
            let reports = runner().run(steps);
            std::fs::remove_file(&pipe).expect("the pipe is there");
            let passed = |report: &Report| report.outcome == Outcome::Passed;
            assert!(reports.expect("sh runs").iter().all(passed), "{lane:?}");
        }
    }

    #[test]
    fn a_build_names_the_programs_that_are_run() {
        let message = r#"{"reason":"compiler-artifact","package_id":"path+file:///usr#0.1.0","manifest_path":"/usr/Cargo.toml","target":{"kind":["test"],"name":"one"},"profile":{"test":true},"executable":"/bin/false"}"#;
        let build = step("tests", Lane::Build, &format!("echo '{message}'"));
        let reports = runner().run(vec![build]).expect("sh runs");
        let ran: Vec<_> = reports.iter().map(|report| (report.step.name.as_str(), &report.outcome)).collect();
        let failed = Outcome::Failed("failed twice: /bin/false ended with exit status: 1".to_owned());
        assert_eq!(ran, [("tests", &Outcome::Passed), ("-p usr --test one", &failed)]);
    }

    #[test]
    fn programs_and_steps_with_clocks_get_a_second_run() {
        let runs = [
            ("-p some --test unlucky", Lane::Beside, true),
            ("kernel", Lane::Alone, true),
            ("end-to-end", Lane::Waiting, true),
            ("clippy", Lane::Beside, false),
            ("check", Lane::First, false),
        ];
        for (name, lane, again) in runs {
            let mark = std::env::temp_dir().join(format!("xtask-lanes-{}", std::process::id()));
            let passes_later = format!("test -e {0} || {{ touch {0}; false; }}", mark.display());
            let reports = runner().run(vec![step(name, lane, &passes_later)]);
            std::fs::remove_file(&mark).expect("the mark is there");
            let reports = reports.expect("sh runs");
            assert_eq!(reports[0].outcome == Outcome::Passed, again, "{name}");
            assert_eq!(reports[0].notes.len(), usize::from(again), "{name}");
        }
    }

    #[test]
    fn a_test_without_a_measurement_is_run_once_more() {
        let script = "echo freshwire machine too busy: some: 2 s >&2";
        let reports = runner().run(vec![step("-p some --test timed", Lane::Waiting, script)]);
        let reports = reports.expect("sh runs");
        assert_eq!(reports[0].too_busy, ["some: 2 s"]);
        assert_eq!((&reports[0].outcome, reports[0].notes.len()), (&Outcome::Passed, 1));
    }

    #[test]
    fn a_missing_need_fails_where_nothing_may_be_skipped() {
        let needs_the_lab = || Step { needs: &[Need::Lab], ..step("some", Lane::First, "true") };
        let nowhere = Path::new("/nowhere");
        for (strict, failed) in [(false, false), (true, true)] {
            let reports =
                Runner { root: nowhere, strict, gate: None }.run(vec![needs_the_lab()]).expect("sh runs");
            assert_eq!(matches!(reports[0].outcome, Outcome::Failed(_)), failed);
            assert_ne!(reports[0].outcome, Outcome::Passed);
        }
    }
}

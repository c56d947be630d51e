//! State of many objects: how old each one's newest value is at the program that reads it.
//!
//! ```text
//!  source: each tick a new value of every object
//!    │  plain TCP, a mailbox of one for each object, or a ring by key or by deadline
//!    ▼
//!  path: loopback, or one queue, rate, delay, loss
//!    ▼
//!  program: reads as it comes, a share of it, in bursts, not at all for a while ──► key, tick, time of each value
//! ```

mod args;
mod fresh;
mod metrics;
mod plain;
mod read;
mod report;
mod run;
mod schema;
mod scheme;
mod show;
mod source;
mod value;

use std::process::ExitCode;

use anyhow::Context as _;

use crate::output;
use crate::scenario::pool;
use crate::schema::{Environment, Trust};
use crate::store::Writer;

pub(crate) use args::StateArgs;
pub(crate) use schema::Plan;
use schema::Run;

/// Three thousand values a second across a link leave most of a processor.
const RUNS_PER_CORE: usize = 1;

/// Runs `freshwire-lab state`: what is missing of its plans, then shows all of it.
pub(crate) fn run(args: &StateArgs) -> anyhow::Result<ExitCode> {
    let plans = args.plans()?;
    let out = &args.output.out;
    std::fs::create_dir_all(out)
        .with_context(|| format!("cannot make the output folder {}", out.display()))?;
    let results = out.join("state.jsonl");
    let (mut writer, mut runs) = Writer::<Run>::resume(&results)?;
    let missing: Vec<Plan> =
        plans.iter().filter(|plan| !runs.iter().any(|run| run.plan == **plan)).cloned().collect();
    if missing.len() < plans.len() {
        output::say(&format!(
            "{} of {} runs are in {} already",
            plans.len() - missing.len(),
            plans.len(),
            results.display()
        ));
    }
    let failures = pool::run(missing, args.output.jobs, |mut run| {
        writer.append(&mut run)?;
        runs.push(run);
        Ok(())
    })?;
    let place = |run: &Run| plans.iter().position(|plan| run.plan == *plan);
    runs.retain(|run| place(run).is_some());
    // They end in another order than they were planned in.
    runs.sort_by_key(place);
    anyhow::ensure!(!runs.is_empty(), "no run succeeded: {}", failures.join("; "));
    output::print(&show::table(&runs).to_terminal())?;
    let report = out.join("report.html");
    std::fs::write(&report, report::html(&runs)?)
        .with_context(|| format!("cannot write {}", report.display()))?;
    output::say(&format!("results: {}, report: {}", results.display(), report.display()));
    for failure in &failures {
        output::say(&format!("a run failed: {failure}"));
    }
    Ok(if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

impl pool::Task for Plan {
    type Run = Run;

    const PER_CORE: usize = RUNS_PER_CORE;

    const KIND: &str = "state";

    fn measure(self, environment: Environment) -> anyhow::Result<Run> {
        run::measure(self, environment)
    }

    fn name(&self) -> String {
        format!("{}, {}, seed {}", scheme::label(&self.scheme), show::path_label(self), self.seed)
    }

    fn seconds(&self) -> f64 {
        self.duration_s
    }

    fn trust(run: &Run) -> &Trust {
        &run.trust
    }
}

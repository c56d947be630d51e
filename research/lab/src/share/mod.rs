//! Flows that always have data, A1 and TCP of this kernel, across one bottleneck: who gets how much, and how long the queue
//! gets.
//!
//! ```text
//!  near namespace                                   far namespace
//!  A1 node ────────┐                            ┌─► A1 node ────► bytes a second
//!  TCP, cubic ─────┼─► one queue, rate, delay ──┼─► TCP reader ─► bytes a second
//!  TCP, bbr ───────┤                            ├─► TCP reader ─► bytes a second
//!  ten probes a second ─────────────────────────┴─► their wait in the queue
//! ```
//!
//! The flows begin half a second after each other; the seed says in which order.

mod args;
mod flow;
mod probe;
mod run;
mod schema;
mod show;

use std::process::ExitCode;

use anyhow::Context as _;

use crate::output;
use crate::scenario::pool;
use crate::schema::{Environment, Trust};
use crate::store::Writer;

pub(crate) use args::ShareArgs;
pub(crate) use schema::Plan;
use schema::Run;

/// Three flows at 50 Mbit/s and their link leave half of a processor.
const RUNS_PER_CORE: usize = 2;

/// Runs `freshwire-lab share`: what is missing of its plans, then shows all of it.
pub(crate) fn run(args: &ShareArgs) -> anyhow::Result<ExitCode> {
    let plans = args.plans()?;
    let out = &args.output.out;
    std::fs::create_dir_all(out)
        .with_context(|| format!("cannot make the output folder {}", out.display()))?;
    let results = out.join("share.jsonl");
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
    output::say(&format!("results: {}", results.display()));
    for failure in &failures {
        output::say(&format!("a run failed: {failure}"));
    }
    Ok(if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

impl pool::Task for Plan {
    type Run = Run;

    const PER_CORE: usize = RUNS_PER_CORE;

    const KIND: &str = "share";

    fn measure(self, environment: Environment) -> anyhow::Result<Run> {
        run::measure(self, environment)
    }

    fn name(&self) -> String {
        format!("{}, {}, seed {}", self.flows.join(" + "), show::link_label(&self.link), self.link.seed)
    }

    fn seconds(&self) -> f64 {
        self.duration_s.into()
    }

    fn trust(run: &Run) -> &Trust {
        &run.trust
    }
}

//! Flows that always have data, of A1, of Freshwire over TCP and of plain TCP, across one bottleneck: the share of each, and how long the
//! queue gets.
//!
//! ```text
//!  near namespace                                   far namespace
//!  A1 node ────────┐                            ┌─► A1 node ────► bytes a second
//!  Freshwire, TCP ─┤                            ├─► TCP reader ─► bytes a second
//!  TCP, cubic ─────┼─► one queue, rate, delay ──┼─► TCP reader ─► bytes a second
//!  TCP, bbr ───────┤                            ├─► TCP reader ─► bytes a second
//!  ten probes a second ─────────────────────────┴─► their wait in the queue
//! ```
//!
//! The flows begin half a second after each other; the seed says in which order.

mod args;
mod flow;
mod kind;
mod layered;
mod place;
mod probe;
mod repeated;
mod run;
mod schema;
mod show;

use std::process::ExitCode;

use crate::experiment::{self, Report};
use crate::scenario::pool;
use crate::schema::Environment;

pub(crate) use args::ShareArgs;
pub(crate) use schema::Plan;
use schema::Run;

/// Runs `freshwire-lab share`.
pub(crate) fn run(args: &ShareArgs) -> anyhow::Result<ExitCode> {
    experiment::run::<Plan>(&args.output, &args.plans()?, Ok, |runs| {
        let tables = [Some(show::table(runs)), place::table(runs)];
        Ok(Report { tables: tables.into_iter().flatten().collect(), page: None })
    })
}

impl pool::Task for Plan {
    type Run = Run;

    // Three flows at 50 Mbit/s and their link leave half of a processor.
    const PER_CORE: usize = 2;

    const KIND: &str = "share";

    const RESULTS: &str = "share.jsonl";

    fn measure(self, environment: Environment) -> anyhow::Result<Run> {
        run::measure(self, environment)
    }

    fn name(&self) -> String {
        format!(
            "{}, {}, seed {}",
            show::flows_label(&self.flows),
            show::link_label(&self.link),
            self.link.seed
        )
    }

    fn seconds(&self) -> f64 {
        self.duration_s.into()
    }
}

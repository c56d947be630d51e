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

use crate::experiment::{self, Report};
use crate::scenario::pool;
use crate::schema::Environment;

pub(crate) use args::StateArgs;
pub(crate) use schema::Plan;
use schema::Run;

/// Runs `freshwire-lab state`.
pub(crate) fn run(args: &StateArgs) -> anyhow::Result<ExitCode> {
    experiment::run::<Plan>(&args.output, &args.plans()?, Ok, |runs| {
        Ok(Report { tables: vec![show::table(runs)], page: Some(("report.html", report::html(runs)?)) })
    })
}

impl pool::Task for Plan {
    type Run = Run;

    // Three thousand values a second across a link leave most of a processor.
    const PER_CORE: usize = 1;

    const KIND: &str = "state";

    const RESULTS: &str = "state.jsonl";

    fn measure(self, environment: Environment) -> anyhow::Result<Run> {
        run::measure(self, environment)
    }

    fn name(&self) -> String {
        format!("{}, {}, seed {}", scheme::label(&self.scheme), show::path_label(self), self.seed)
    }

    fn seconds(&self) -> f64 {
        self.duration_s
    }
}

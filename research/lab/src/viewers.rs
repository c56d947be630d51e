//! Players that nobody changed, across an emulated link, before `freshwire serve` and before another live server.
//!
//! ```text
//!  near namespace                         far namespace
//!  clip, in real time ──► server ──► link ──► player ──► number of each picture, at its arrival
//! ```
//!
//! Every server gets the same bytes at the same pace through its standard input. The age of a picture is its arrival,
//! decoded, minus its capture by the encoder that the clip represents.

mod args;
mod capture;
pub(crate) mod clip;
mod measure;
pub(crate) mod player;
pub(crate) mod probe;
mod run;
mod segments;
pub(crate) mod server;
pub(crate) mod session;
mod show;

use std::process::ExitCode;
use std::time::Duration;

use crate::cells::link_label;
use crate::experiment::{self, Report};
use crate::output;
use crate::scenario::{Output, pool};
use crate::schema::Environment;

pub(crate) use args::ViewersArgs;
use clip::Clip;
use run::Run;
pub(crate) use run::Task;

/// Runs `freshwire-lab viewers`.
pub(crate) fn run(args: &ViewersArgs) -> anyhow::Result<ExitCode> {
    experiment::make_folder(&args.out)?;
    let length = Duration::from_secs(args.duration.as_secs()) + run::CLIP_RESERVE;
    let rate = args.stream_rate.bits_per_sec();
    let clip = args.out.join(format!("stream-{}s-{rate}.ts", length.as_secs()));
    if !clip.exists() {
        output::say("encoding the stream, once");
    }
    Clip::prepare(&clip, length, rate)?;
    let task = |plan| Task { plan, clip: clip.clone(), folder: args.out.clone(), capture: args.capture };
    // A player beside another one would take its processor.
    let output = Output { out: args.out.clone(), jobs: Some(1) };
    experiment::run(
        &output,
        &args.plans()?,
        |missing| Ok(missing.into_iter().map(task).collect()),
        |runs| {
            Ok(Report { tables: vec![show::table(runs)], page: Some(("viewers.html", show::html(runs)?)) })
        },
    )
}

impl pool::Task for Task {
    type Run = Run;

    const PER_CORE: usize = 1;

    const KIND: &str = "viewers";

    const RESULTS: &str = "viewers.jsonl";

    fn measure(self, environment: Environment) -> anyhow::Result<Run> {
        run::measure(&self, environment)
    }

    fn name(&self) -> String {
        let run::Plan { server, player, link, .. } = &self.plan;
        format!("{} to {}, {}, seed {}", server.label(), player.label(), link_label(link), link.seed)
    }

    fn seconds(&self) -> f64 {
        self.plan.duration_s
    }

    fn in_short(run: &Run) -> Option<String> {
        Some(show::in_short(run))
    }
}

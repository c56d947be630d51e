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
mod player;
pub(crate) mod probe;
mod run;
mod segments;
pub(crate) mod server;
pub(crate) mod session;
mod show;

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use freshwire_netns::Namespaces;

use crate::output;
use crate::schema::Environment;

pub(crate) use args::ViewersArgs;
use clip::Clip;
use run::{Folder, Plan, Run};

/// Runs `freshwire-lab viewers`. Call it while the process has one thread.
pub(crate) fn run(args: &ViewersArgs) -> anyhow::Result<ExitCode> {
    // Without privilege the process has to become capable before its first thread.
    drop(Namespaces::create()?);
    std::fs::create_dir_all(&args.out)
        .with_context(|| format!("cannot make the output folder {}", args.out.display()))?;
    let plans = args.plans()?;
    output::say(&format!(
        "{} runs of {:.0} s, one after the other",
        plans.len(),
        args.duration.as_secs_f64()
    ));
    let clip = clip(args)?;
    let environment = Environment::here();
    let folder = Folder { path: &args.out, capture: args.capture };
    let results = args.out.join("viewers.jsonl");
    let (mut runs, mut failures) = (Vec::new(), 0);
    for (place, plan) in plans.into_iter().enumerate() {
        let what = describe(&plan);
        match run::run(plan, environment.clone(), &clip, &folder) {
            Ok(run) => {
                append(&results, &run)?;
                output::say(&format!("{:>3}  {what}: {}", place + 1, show::in_short(&run)));
                runs.push(run);
            }
            Err(error) => {
                failures += 1;
                output::say(&format!("{:>3}  {what}: {error:#}", place + 1));
            }
        }
    }
    anyhow::ensure!(!runs.is_empty(), "no run succeeded");
    output::print(&show::table(&runs).to_terminal())?;
    let report = args.out.join("viewers.html");
    std::fs::write(&report, show::html(&runs)?)
        .with_context(|| format!("cannot write {}", report.display()))?;
    output::say(&format!("results: {}, report: {}", results.display(), report.display()));
    Ok(if failures == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn clip(args: &ViewersArgs) -> anyhow::Result<Arc<Clip>> {
    let length = Duration::from_secs(args.duration.as_secs()) + run::CLIP_RESERVE;
    let rate = args.stream_rate.bits_per_sec();
    let path = args.out.join(format!("stream-{}s-{rate}.ts", length.as_secs()));
    if !path.exists() {
        output::say("encoding the stream, once");
    }
    Ok(Arc::new(Clip::prepare(&path, length, rate)?))
}

fn describe(plan: &Plan) -> String {
    format!(
        "{} to {}, {}, seed {}",
        plan.server.label(),
        plan.player.label(),
        crate::cells::link_label(&plan.link),
        plan.link.seed
    )
}

/// Each run is on its way to the disk before the next one begins.
fn append(path: &Path, run: &Run) -> anyhow::Result<()> {
    let line = output::json_line("viewer", run)?;
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .with_context(|| format!("cannot open {}", path.display()))?;
    writeln!(file, "{line}").with_context(|| format!("cannot append to {}", path.display()))
}

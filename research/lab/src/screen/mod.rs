//! A viewer's screen when the link carries less than the stream: how old it is, whether it moves, how it looks.
//!
//! ```text
//!  near namespace                                            far namespace
//!  prepared stream, in real time ─► server or plain TCP ─► link ─► viewer: when each picture was whole
//!        │                                                            │
//!        ├──────► which picture it is, what it refers to ◄────────────┤
//!        └──────► ffmpeg: the same bits? SSIM at each instant ◄───────┘
//! ```
//!
//! Every sender gets the same pictures at the same pace. The viewer is a client of RTSP over TCP that reads without a
//! pause and has no buffer of its own. The window begins with a keyframe's capture and an empty screen.

mod args;
mod catalogue;
mod decode;
mod identify;
mod metrics;
mod plain;
mod receive;
mod run;
mod schema;
mod scheme;
mod score;
mod show;
mod source;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;

use crate::output;
use crate::scenario::pool;
use crate::schema::{Environment, Trust};
use crate::store::Writer;

pub(crate) use args::ScreenArgs;
pub(crate) use run::Task;
use schema::{Plan, Run, StreamId};
use scheme::Scheme;
use source::{Codec, Source};

/// A run has a server, a link and a viewer; what it received is judged at the lowest priority afterwards.
const RUNS_PER_CORE: usize = 1;

/// Runs `freshwire-lab screen`: what is missing of its plans, then shows all of them.
pub(crate) fn run(args: &ScreenArgs) -> anyhow::Result<ExitCode> {
    let out = &args.output.out;
    let folder = out.join("streams");
    std::fs::create_dir_all(&folder)
        .with_context(|| format!("cannot make the output folder {}", folder.display()))?;
    args.schemes()?;
    let streams = prepare(args, &folder)?;
    let plans = args.plans(&streams.ids, |stream, scheme| streams.can(stream, scheme))?;
    let results = out.join("screen.jsonl");
    let (mut writer, mut runs) = Writer::<Run>::resume(&results)?;
    let is_there = |plan: &Plan| runs.iter().any(|run| run.plan == *plan);
    let missing = plans.iter().filter(|(plan, _)| !is_there(plan));
    let tasks: Vec<Task> = missing
        .map(|(plan, file)| Task { plan: plan.clone(), file: file.clone(), folder: out.clone() })
        .collect();
    if tasks.len() < plans.len() {
        let known = plans.len() - tasks.len();
        output::say(&format!("{known} of {} runs are in {} already", plans.len(), results.display()));
    }
    let failures = pool::run(tasks, args.output.jobs, |mut run| {
        writer.append(&mut run)?;
        output::say(&show::in_short(&run));
        runs.push(run);
        Ok(())
    })?;
    let place = |run: &Run| plans.iter().position(|(plan, _)| run.plan == *plan);
    runs.retain(|run| place(run).is_some());
    // They end in another order than they were planned in.
    runs.sort_by_key(place);
    anyhow::ensure!(!runs.is_empty(), "no run succeeded: {}", failures.join("; "));
    output::print(&show::table(&runs).to_terminal())?;
    let report = out.join("screen.html");
    std::fs::write(&report, show::html(&runs, out)?)
        .with_context(|| format!("cannot write {}", report.display()))?;
    output::say(&format!("results: {}, report: {}", results.display(), report.display()));
    for failure in &failures {
        output::say(&format!("a run failed: {failure}"));
    }
    let is_torn = runs.iter().any(|run| run.decoded.torn > 0);
    Ok(if failures.is_empty() && !is_torn { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// The streams of a command line.
struct Streams {
    ids: Vec<(StreamId, PathBuf)>,
    /// Those that GStreamer's server is not fed with here.
    foreign: Vec<StreamId>,
}

impl Streams {
    fn can(&self, stream: &StreamId, scheme: Scheme) -> bool {
        scheme != Scheme::Gstreamer || !self.foreign.contains(stream)
    }
}

fn prepare(args: &ScreenArgs, folder: &Path) -> anyhow::Result<Streams> {
    let seconds = (args.skip + args.duration + source::EXTRA).as_secs() as u32 + 1;
    let mut streams = Streams { ids: Vec::new(), foreign: Vec::new() };
    for name in args.streams() {
        let file = catalogue::prepare(&name, seconds, folder, output::say)?;
        let source = Source::read(&file)?;
        let bytes =
            std::fs::metadata(&file).with_context(|| format!("cannot read {}", file.display()))?.len();
        let id = StreamId { name: name.clone(), bytes, rate_bps: source.rate_bps() };
        output::say(&show::stream(&id, &source));
        if source.codec != Codec::H264 || !source.sound.is_empty() {
            if args.schemes()?.contains(&Scheme::Gstreamer) {
                output::say(&format!(
                    "{name}: without GStreamer's server, which is fed with H.264 alone here"
                ));
            }
            streams.foreign.push(id.clone());
        }
        streams.ids.push((id, file));
    }
    Ok(streams)
}

impl pool::Task for Task {
    type Run = Run;

    const PER_CORE: usize = RUNS_PER_CORE;

    const KIND: &str = "screen";

    fn measure(self, environment: Environment) -> anyhow::Result<Run> {
        run::measure(self, environment)
    }

    fn name(&self) -> String {
        show::describe(&self.plan)
    }

    fn seconds(&self) -> f64 {
        self.plan.skip_s + self.plan.duration_s + (source::EXTRA / 2).as_secs_f64()
    }

    fn trust(run: &Run) -> &Trust {
        &run.trust
    }
}

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

use crate::experiment::{self, Report};
use crate::output;
use crate::scenario::pool;
use crate::schema::Environment;

pub(crate) use args::ScreenArgs;
pub(crate) use catalogue::pictures;
pub(crate) use run::Task;
use schema::{Plan, Run, StreamId};
use scheme::Scheme;
use source::{Codec, Source};

/// Runs `freshwire-lab screen`. Exit code 1: a run failed, or a picture was torn.
pub(crate) fn run(args: &ScreenArgs) -> anyhow::Result<ExitCode> {
    let out = &args.output.out;
    let folder = out.join("streams");
    experiment::make_folder(&folder)?;
    args.schemes()?;
    let streams = prepare(args, &folder)?;
    let plans = args.plans(&streams.ids, |stream, scheme| streams.can(stream, scheme))?;
    let task = |plan: Plan| {
        let (_, file) = streams.ids.iter().find(|(id, _)| *id == plan.stream).context("an unknown stream")?;
        Ok(Task { plan, file: file.clone(), folder: out.clone() })
    };
    let mut is_torn = false;
    let code = experiment::run(
        &args.output,
        &plans,
        |missing| missing.into_iter().map(task).collect(),
        |runs| {
            is_torn = runs.iter().any(|run| run.decoded.torn > 0);
            Ok(Report {
                tables: vec![show::table(runs)],
                page: Some(("screen.html", show::html(runs, out)?)),
            })
        },
    )?;
    Ok(if is_torn { ExitCode::from(1) } else { code })
}

/// The streams of a command line.
struct Streams {
    ids: Vec<(StreamId, PathBuf)>,
    /// Streams without a run of GStreamer's server.
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

    // A run has a server, a link and a viewer; what it received is judged at the lowest priority afterwards.
    const PER_CORE: usize = 1;

    const KIND: &str = "screen";

    const RESULTS: &str = "screen.jsonl";

    fn measure(self, environment: Environment) -> anyhow::Result<Run> {
        run::measure(self, environment)
    }

    fn name(&self) -> String {
        show::describe(&self.plan)
    }

    fn seconds(&self) -> f64 {
        self.plan.skip_s + self.plan.duration_s + (source::EXTRA / 2).as_secs_f64()
    }

    fn in_short(run: &Run) -> Option<String> {
        Some(show::in_short(run))
    }
}

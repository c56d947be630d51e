//! Viewers of the live server on loopback: what they cost beside GStreamer's server and beside a bare loop of writes. All three
//! have the nice value that the live server takes, so that the load on the same processors interrupts none of them.
//!
//! ```text
//!  this process                    server under test            load
//!  clip, in real time ──stdin──►   1 stream ──RTSP/TCP──►       N viewers, one thread reads them
//!  its processor time ◄──/proc──┘  (or bare writes)             bytes of each ──► this process
//! ```

mod bare;
pub(super) mod isolation;
mod load;
mod process;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use freshwire_units::{Rate, parse_duration};

use super::machine::allow_files;
use super::series::{Goal, Report, Unit};
use crate::output::{self, say};
use crate::viewers::clip::Clip;
use crate::viewers::server::Server;
use process::{Serving, Subject};

const BENCH: &str = "viewers";

/// What a clip has to be longer than what is measured, besides the times to begin: the server's start and some reserve.
const RESERVE: Duration = Duration::from_secs(4);
/// How many viewers a server connects in a second, at least.
const CONNECTS_PER_SECOND: u32 = 40;
/// Goals for processor time over that of bare writes and over that of GStreamer's server.
const OF_BARE: f64 = 1.3;
const OF_GSTREAMER: f64 = 0.5;
/// Goal for processor time of viewers over UDP over that of viewers over TCP.
const OF_TCP: f64 = 1.0;
/// A viewer may take so much of the server's memory.
const VIEWER_BYTES: f64 = 16384.0;
/// From so many viewers on, what they take is told from the stream's first use of its arena meanwhile.
const MANY: usize = 256;
/// Less than this share of the stream means that the server could not keep up, and its cost tells little.
const LEAST_SHARE: f64 = 0.95;
/// Files besides three for each viewer.
const OTHER_FILES: u64 = 100;

/// The options of `viewers` and `isolation`.
#[derive(Debug, Args)]
pub(super) struct ViewersArgs {
    /// Numbers of viewers, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "1,32,256,1000", value_parser = clap::value_parser!(u32).range(1..=5000))]
    viewers: Vec<u32>,
    /// Rate of the stream that `viewers` and `isolation` serve: 720p25.
    #[arg(long, default_value = "1Mbit")]
    rate: Rate,
    /// How long each repetition of `viewers` and `isolation` counts.
    #[arg(long, value_name = "TIME", default_value = "8s", value_parser = parse_duration)]
    duration: Duration,
    /// How long viewers have to begin before that; from one key picture to the next it is 2 s.
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = parse_duration)]
    settle: Duration,
    /// Viewers of `isolation` that read as fast as they can.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
    fast: u32,
    /// Viewers of `isolation` that read nothing while the server's memory is looked at.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1000))]
    stalled: u32,
    /// Folder where `viewers` and `isolation` keep the encoded streams and the servers' log.
    #[arg(long, value_name = "FOLDER", default_value = "freshwire-bench")]
    clips: PathBuf,
}

impl ViewersArgs {
    /// The stream, long enough for so many viewers and encoded if it is not in the folder, and where the servers' log
    /// goes.
    fn prepare(&self, viewers: u32) -> anyhow::Result<(Arc<Clip>, PathBuf)> {
        std::fs::create_dir_all(&self.clips)
            .with_context(|| format!("cannot make the folder {}", self.clips.display()))?;
        let connecting = Duration::from_secs((viewers / CONNECTS_PER_SECOND).into());
        let length = self.duration + self.settle * 3 + connecting + RESERVE;
        let rate = self.rate.bits_per_sec();
        let path = self.clips.join(format!("stream-{}s-{rate}.ts", length.as_secs()));
        if !path.exists() {
            say("encoding the stream, once");
        }
        Ok((Arc::new(Clip::prepare(&path, length, rate)?), self.clips.join("server.log")))
    }
}

/// An end of the measurement that is a process of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Worker {
    /// The viewers.
    Load,
    /// The baseline.
    Bare,
}

impl Worker {
    fn name(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Bare => "bare",
        }
    }
}

/// Runs a worker.
pub(super) fn work(worker: Worker) -> anyhow::Result<ExitCode> {
    freshwire_io::end_with_parent()?;
    match worker {
        Worker::Load => load::run()?,
        Worker::Bare => bare::run()?,
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn measure(repeat: u32, args: &ViewersArgs, report: &mut Report) -> anyhow::Result<()> {
    let most = args.viewers.iter().copied().max().unwrap_or(0);
    allow_files(3 * u64::from(most) + OTHER_FILES, "--viewers")?;
    let (clip, log) = args.prepare(most)?;
    for &viewers in &args.viewers {
        let cell = Cell { viewers: viewers as usize, args };
        say(&format!("{} ...", cell.label()));
        cell.measure(repeat, &clip, &log, report)?;
    }
    Ok(())
}

/// So many viewers of a stream of this rate.
struct Cell<'a> {
    viewers: usize,
    args: &'a ViewersArgs,
}

/// What a subject did in a repetition.
struct Outcome {
    seconds_per_gigabyte: f64,
    /// Bytes that came, of those that were handed over to the server times viewers.
    share: f64,
    /// Viewers without a byte.
    starved: usize,
    /// Private and shared memory of the server for each viewer after the first.
    growth: Option<[f64; 2]>,
}

impl Cell<'_> {
    fn label(&self) -> String {
        format!("{} at {}", self.viewers, output::rate(self.args.rate))
    }

    fn measure(&self, repeat: u32, clip: &Arc<Clip>, log: &Path, report: &mut Report) -> anyhow::Result<()> {
        let fresh = Subject::Server(Server::Freshwire);
        let mut others = vec![Subject::Bare, Subject::Server(Server::Gstreamer), Subject::Udp];
        let mut fresh_at = [0; 4];
        let mut costs = Vec::new();
        for _ in 0..repeat {
            fresh_at = self.add(fresh, &self.run(fresh, clip, log)?, report);
            others.retain(|&subject| match self.run(subject, clip, log) {
                Ok(outcome) => {
                    let [cost, ..] = self.add(subject, &outcome, report);
                    costs.push((subject, cost));
                    true
                }
                Err(error) => {
                    let note = format!("{}: {} is left out: {error:#}", self.label(), subject.label());
                    say(&note);
                    report.notes.push(note);
                    false
                }
            });
        }
        let [cost, share, starved, growth] = fresh_at;
        if let Some((_, udp)) = costs.iter().find(|(found, _)| *found == Subject::Udp) {
            let name = format!("{}: processor time, UDP : TCP", self.label());
            report.compare(&name, *udp, cost, Some(Goal::AtMost(OF_TCP)));
        }
        for (subject, goal) in [(Subject::Bare, OF_BARE), (Subject::Server(Server::Gstreamer), OF_GSTREAMER)]
        {
            let Some((_, other)) = costs.iter().find(|(found, _)| *found == subject) else { continue };
            let name = format!("{}: processor time, Freshwire : {}", self.label(), subject.label());
            report.compare(&name, cost, *other, Some(Goal::AtMost(goal)));
        }
        report.demand(share, Goal::AtLeast(LEAST_SHARE));
        report.demand(starved, Goal::AtMost(0.0));
        if self.viewers >= MANY {
            report.demand(growth, Goal::AtMost(VIEWER_BYTES));
        }
        Ok(())
    }

    fn add(&self, subject: Subject, outcome: &Outcome, report: &mut Report) -> [usize; 4] {
        let mut add = |what: &str, unit, value| {
            report.add(BENCH, &format!("{}, {}: {what}", self.label(), subject.label()), unit, value)
        };
        let cost = add("processor time", Unit::SecondsPerGigabyte, outcome.seconds_per_gigabyte);
        if subject == Subject::Bare {
            return [cost; 4];
        }
        let share = add("share of the stream that came", Unit::Count, outcome.share);
        let starved = add("viewers without a byte", Unit::Count, outcome.starved as f64);
        let growth = outcome.growth.map(|[private, shared]| {
            add("private memory for each further viewer", Unit::Bytes, private);
            add("memory for each further viewer, with shared memory", Unit::Bytes, private + shared)
        });
        [cost, share, starved, growth.unwrap_or(cost)]
    }

    fn run(&self, subject: Subject, clip: &Arc<Clip>, log: &Path) -> anyhow::Result<Outcome> {
        let serving = Serving::start(subject, clip, log)?;
        let mut load = serving.load()?;
        load.connect(1, true)?;
        // By then what a server keeps for those who join is no longer growing: that memory is the stream's, not the viewers'.
        std::thread::sleep(self.args.settle * 2);
        let memory = serving.memory()?;
        let further = self.viewers - 1;
        if further > 0 {
            load.connect(further, true)?;
            std::thread::sleep(self.args.settle);
        }
        let (from, before, bytes_before) = (freshwire_io::now(), serving.times()?, load.count()?);
        std::thread::sleep(self.args.duration);
        let (to, after, bytes_after) = (freshwire_io::now(), serving.times()?, load.count()?);
        let grown = serving.memory()?;
        let length = Duration::from_secs(1) * u32::try_from(clip.sizes().len())? / crate::viewers::clip::FPS;
        anyhow::ensure!(
            subject == Subject::Bare || to.saturating_since(serving.fed) < length,
            "its viewers were connected only after {:.0} s, the stream has ended meanwhile",
            from.saturating_since(serving.fed).as_secs_f64()
        );
        let read: Vec<u64> =
            bytes_after.iter().zip(&bytes_before).map(|(after, before)| after - before).collect();
        let bytes: u64 = read.iter().sum();
        anyhow::ensure!(bytes > 0, "no byte came to its viewers");
        let handed_over = serving.handed_over(from, to) * self.viewers;
        Ok(Outcome {
            seconds_per_gigabyte: after.since(&before).as_secs_f64() / (bytes as f64 / 1e9),
            share: bytes as f64 / handed_over.max(1) as f64,
            starved: read.iter().filter(|bytes| **bytes == 0).count(),
            growth: (further > 0).then(|| {
                let pairs = [(grown.private, memory.private), (grown.shared, memory.shared)];
                pairs.map(|(after, before)| after.saturating_sub(before) as f64 / further as f64)
            }),
        })
    }
}

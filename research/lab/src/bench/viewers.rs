//! Viewers of the live server on loopback: what they cost beside GStreamer's server and beside a bare loop of writes. All three
//! have the nice value that the live server takes, so that the load on the same processors interrupts none of them.
//!
//! ```text
//!  this process                    server under test            load
//!  clip, in real time ──stdin──►   1 stream ──RTSP/TCP──►       N viewers, one thread reads them
//!  its processor time ◄──/proc──┘  (or bare writes)             bytes of each ──► this process
//! ```

mod args;
mod bare;
pub(super) mod isolation;
mod load;
pub(super) mod process;
mod whep;
mod worker;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use super::machine::allow_files;
use super::series::{Goal, Report, Unit};
use crate::output::{self, say};
use crate::viewers::clip::Clip;
use crate::viewers::server::Server;
use process::{Serving, Subject};

pub(super) use args::ViewersArgs;
pub(super) use worker::Worker;

use args::{OTHER_FILES, VIEWER_BYTES};

const BENCH: &str = "viewers";

/// Goals for processor time over that of bare writes and over that of GStreamer's server.
const OF_BARE: f64 = 1.0;
const OF_GSTREAMER: f64 = 0.3;
/// Goals for processor time of viewers over UDP over that of viewers over TCP, up to [`LOW`] and above.
const OF_TCP: f64 = 1.2;
const OF_TCP_AT_HIGH_RATE: f64 = 1.5;
/// The highest low rate, in bits per second.
const LOW: u64 = 1_000_000;
/// Goal for processor time with several engines over that with the first number of them.
const OF_FIRST: f64 = 1.05;
/// From this number of viewers on, their memory is more than the stream's first use of its arena meanwhile.
const MANY: usize = 256;
/// Less than this share of the stream means that the server could not keep up, and its cost tells little.
const LEAST_SHARE: f64 = 0.95;

/// Runs a worker.
pub(super) fn work(worker: Worker) -> anyhow::Result<ExitCode> {
    freshwire_io::end_with_parent()?;
    match worker {
        Worker::Load => load::run()?,
        Worker::Bare => bare::run()?,
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn measure(
    repeat: u32,
    args: &ViewersArgs,
    engines: &[u8],
    report: &mut Report,
) -> anyhow::Result<()> {
    let most = args.viewers.iter().copied().max().unwrap_or(0);
    allow_files(3 * u64::from(most) + OTHER_FILES, "--viewers")?;
    let (clip, log) = args.prepare(most)?;
    for &viewers in &args.viewers {
        let cell = Cell { viewers: viewers as usize, args, engines };
        say(&format!("{} ...", cell.label()));
        cell.measure(repeat, &clip, &log, report)?;
    }
    Ok(())
}

/// A number of viewers of a stream.
struct Cell<'a> {
    viewers: usize,
    args: &'a ViewersArgs,
    engines: &'a [u8],
}

/// The outcome of a repetition for one subject.
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
        let mut others: Vec<_> = self.engines.iter().map(|&engines| Subject::Engines(engines)).collect();
        others.extend(self.args.against.iter().map(|against| against.subject()));
        let mut fresh_at = [0; 4];
        let mut costs = Vec::new();
        for repetition in 1..=repeat {
            // A run that is stopped keeps what it has said.
            let said = |subject: Subject, outcome: &Outcome, of: &str| {
                let cost = outcome.seconds_per_gigabyte;
                say(&format!(
                    "{}, {repetition}/{repeat}, {}: {cost:.3} s/GB{of}",
                    self.label(),
                    subject.label()
                ));
            };
            let own = self.run(fresh, clip, log)?;
            said(fresh, &own, "");
            fresh_at = self.add(fresh, &own, report);
            others.retain(|&subject| match self.run(subject, clip, log) {
                Ok(outcome) => {
                    let ratio = own.seconds_per_gigabyte / outcome.seconds_per_gigabyte;
                    said(subject, &outcome, &format!("; Freshwire takes {ratio:.2} of it"));
                    let [cost, ..] = self.add(subject, &outcome, report);
                    if repetition == 1 {
                        costs.push((subject, cost));
                    }
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
        let mut by_engines = self.engines.iter().filter_map(|&engines| {
            let (_, cost) = costs.iter().find(|(found, _)| *found == Subject::Engines(engines))?;
            Some((engines, *cost))
        });
        if let Some((first, under)) = by_engines.next() {
            for (engines, over) in by_engines {
                let name = format!("{}: processor time, {engines} engines : {first}", self.label());
                report.compare(&name, over, under, Some(Goal::AtMost(OF_FIRST)));
            }
        }
        let [cost, share, starved, growth] = fresh_at;
        let of_tcp = if self.args.rate.bits_per_sec() <= LOW { OF_TCP } else { OF_TCP_AT_HIGH_RATE };
        for (subject, udp) in costs.iter().filter(|(subject, _)| matches!(subject, Subject::Udp(_))) {
            let name = format!("{}: processor time, {} : TCP", self.label(), subject.label());
            report.compare(&name, *udp, cost, Some(Goal::AtMost(of_tcp)));
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
        // By then the server's memory for new viewers no longer grows: it is the stream's, not the viewers'.
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

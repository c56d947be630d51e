//! A live server with a camera and nothing else to do: no viewer, then one. Wake-ups, processor time and memory of its process, beside
//! GStreamer's server, which gets the stream by standard input too, and MediaMTX, to which it is published by RTSP.

use std::sync::Arc;
use std::time::Duration;

use super::series::{Goal, Grid, Report, Unit};
use super::viewers::ViewersArgs;
use super::viewers::process::{Serving, Subject};
use crate::output::{self, say};
use crate::viewers::clip::Clip;
use crate::viewers::server::Server;

const BENCH: &str = "idle-server";

/// Issue 52: fewer wake-ups and less processor time than both peers.
const OF_PEER: Goal = Goal::AtMost(1.0);

/// A server, and Freshwire's with the stream by the same way, which is compared with it.
const PAIRS: [(Subject, Subject); 2] = [
    (Subject::Server(Server::Freshwire), Subject::Server(Server::Gstreamer)),
    (Subject::Published, Subject::Mediamtx),
];

const VIEWERS: [usize; 2] = [0, 1];

/// How long a viewer waits for a stream that is published.
const PATIENCE: Duration = Duration::from_secs(20);

/// Start, the first pictures and the viewer's begin, in multiples of the time to settle; and the end.
const SETTLES: u32 = 4;
const RESERVE: Duration = Duration::from_secs(4);

/// Names and units of the series of a subject.
const QUANTITIES: [(&str, Unit); 4] = [
    ("wake-ups a second", Unit::Count),
    ("processor time a second", Unit::Nanoseconds),
    ("displacements a second", Unit::Count),
    ("memory", Unit::Bytes),
];

/// The quantities with a goal.
const JUDGED: [usize; 2] = [0, 1];

pub(super) fn measure(
    repeat: u32,
    time: Duration,
    args: &ViewersArgs,
    report: &mut Report,
) -> anyhow::Result<()> {
    let (clip, log) = args.clip(time + args.settle * SETTLES + PATIENCE + RESERVE)?;
    let rate = output::rate(args.rate);
    for viewers in VIEWERS {
        let mut subjects: Vec<Subject> = PAIRS.iter().flat_map(|&(own, peer)| [own, peer]).collect();
        let mut rows: Vec<(Subject, [usize; 4])> = Vec::new();
        for repetition in 1..=repeat {
            subjects.retain(|&subject| {
                say(&format!(
                    "idle-server: {viewers} viewers, {repetition}/{repeat}, {} ...",
                    subject.label()
                ));
                match watch(subject, viewers, time, args.settle, &clip, &log) {
                    Ok(samples) => {
                        let places = std::array::from_fn(|quantity| {
                            let (what, unit) = QUANTITIES[quantity];
                            let name = format!("{what}, {}; {viewers} viewers at {rate}", subject.label());
                            report.add(BENCH, &name, unit, samples[quantity])
                        });
                        if repetition == 1 {
                            rows.push((subject, places));
                        }
                        true
                    }
                    Err(error) => {
                        let note = format!("idle-server: {} is left out: {error:#}", subject.label());
                        say(&note);
                        report.notes.push(note);
                        rows.retain(|(other, _)| *other != subject);
                        false
                    }
                }
            });
        }
        compare(&rows, &format!("{viewers} viewers at {rate}"), report);
    }
    report.notes.push(
        "idle-server: wake-ups are voluntary context switches of all threads of the process; displacements those that the scheduler forced.\n\
         Memory is the proportional set size. A publisher is ffmpeg, whose own cost is not counted."
            .to_owned(),
    );
    Ok(())
}

/// The samples of [`QUANTITIES`].
fn watch(
    subject: Subject,
    viewers: usize,
    time: Duration,
    settle: Duration,
    clip: &Arc<Clip>,
    log: &std::path::Path,
) -> anyhow::Result<[f64; 4]> {
    let serving = Serving::start(subject, clip, log)?;
    std::thread::sleep(settle);
    let mut load = serving.load()?;
    if viewers > 0 {
        let give_up = freshwire_io::now() + PATIENCE;
        // A published stream is not there at once.
        while let Err(error) = load.connect(viewers, true) {
            anyhow::ensure!(freshwire_io::now() < give_up, error);
            std::thread::sleep(settle);
        }
    }
    std::thread::sleep(settle);
    let (from, before, read_before) = (freshwire_io::now(), serving.activity()?, load.count()?);
    std::thread::sleep(time);
    let (to, after, read_after) = (freshwire_io::now(), serving.activity()?, load.count()?);
    let is_read = read_after.iter().zip(&read_before).all(|(after, before)| after > before);
    anyhow::ensure!(is_read, "its viewer got nothing");
    let seconds = to.saturating_since(from).as_secs_f64();
    let a_second = |after: u64, before: u64| after.saturating_sub(before) as f64 / seconds;
    Ok([
        a_second(after.wakes, before.wakes),
        after.processor.saturating_sub(before.processor).as_nanos() as f64 / seconds,
        a_second(after.displaced, before.displaced),
        after.memory as f64,
    ])
}

fn compare(rows: &[(Subject, [usize; 4])], cell: &str, report: &mut Report) {
    let of = |wanted: Subject| rows.iter().find(|(subject, _)| *subject == wanted).map(|(_, places)| places);
    for (own, peer) in PAIRS {
        let (Some(ours), Some(theirs)) = (of(own), of(peer)) else { continue };
        for (quantity, (what, _)) in QUANTITIES.iter().enumerate() {
            let name = format!("{what}, {}: {}; {cell}", own.label(), peer.label());
            let goal = JUDGED.contains(&quantity).then_some(OF_PEER);
            report.compare(&name, ours[quantity], theirs[quantity], goal);
        }
    }
    report.grids.push(Grid {
        bench: BENCH,
        caption: cell.to_owned(),
        columns: QUANTITIES.map(|(what, _)| what.to_owned()).to_vec(),
        rows: rows
            .iter()
            .map(|(subject, places)| (subject.label().into_owned(), places.map(Some).to_vec()))
            .collect(),
    });
}

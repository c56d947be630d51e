//! A live encoder behind a weak uplink: what of its pictures is at an RTMP server whole and on time.
//!
//! ```text
//!  near namespace                                                        far namespace
//!  clip, in real time ─┬─► ffmpeg ───────────────────────────┐
//!                      ├─► the encoder's queue and its rule ─┼─► uplink ─► nginx, RTMP module ─► player: notes and keeps it
//!                      └─► ffmpeg ─RTMP─► freshwire serve ───┘                                    └─► ffmpeg decodes it afterwards
//! ```
//!
//! A picture is whole if it arrived, and looks as it was encoded when everything that arrived is decoded. It is on time if it arrived soon
//! enough after its capture. Pictures are known by their slices and by their looks, so timestamps may differ.

mod args;
mod clip;
mod flv;
mod judge;
mod nginx;
mod player;
mod rtmp;
mod rule;
mod sender;
#[cfg(test)]
mod tests;

use std::fs::{File, OpenOptions};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use freshwire_netns::{Emulator, EmulatorOptions, Namespaces};

use super::series::{Goal, Grid, Report, Unit};
use crate::output::say;
use crate::scenario::wait_until;
use args::Case;
use clip::{Clip, KEY_INTERVAL};
use judge::{Outcome, Sight, Window};
use nginx::Nginx;
use player::{Arrival, Player};
use sender::Subject;

pub(super) use args::UplinkArgs;

const BENCH: &str = "uplink";

/// The stream's name at the server.
const KEY: &str = "bench";

/// After the time that the last picture has: the server's own.
const TAIL: Duration = Duration::from_millis(500);
/// An encoder that is later than this has not offered what it says.
const MAX_LATENESS: Duration = Duration::from_millis(40);

/// Issue 53: more whole pictures on time than the others, and more yet than the rule's where packets are lost.
const MORE: Goal = Goal::AtLeast(1.0);
const MORE_WITH_LOSS: Goal = Goal::AtLeast(1.2);

/// A quantity: the name of its series, its unit, and its value; `None` where there is none.
type Quantity = (&'static str, Unit, fn(&Measured) -> Option<f64>);

const ON_TIME: usize = 0;
const AGE_AFTER: usize = 8;
const RECOVERY: usize = 9;
const QUANTITIES: [Quantity; 16] = [
    ("whole and on time", Unit::Percent, |run| Some(100.0 * run.outcome.all.on_time)),
    ("in the dip", Unit::Percent, |run| Some(100.0 * run.outcome.phases?[0].on_time)),
    ("after the dip", Unit::Percent, |run| Some(100.0 * run.outcome.phases?[1].on_time)),
    ("age, p50", Unit::Nanoseconds, |run| Some(nanoseconds(run.outcome.all.age_p50))),
    ("age, p95", Unit::Nanoseconds, |run| Some(nanoseconds(run.outcome.all.age_p95))),
    ("age in the dip, p50", Unit::Nanoseconds, |run| Some(nanoseconds(run.outcome.phases?[0].age_p50))),
    ("age in the dip, p95", Unit::Nanoseconds, |run| Some(nanoseconds(run.outcome.phases?[0].age_p95))),
    ("age after the dip, p50", Unit::Nanoseconds, |run| Some(nanoseconds(run.outcome.phases?[1].age_p50))),
    ("age after the dip, p95", Unit::Nanoseconds, |run| Some(nanoseconds(run.outcome.phases?[1].age_p95))),
    ("recovery", Unit::Nanoseconds, |run| {
        run.outcome.recovery.map(|time| nanoseconds(time.unwrap_or(run.after)))
    }),
    ("frozen", Unit::Nanoseconds, |run| Some(nanoseconds(run.outcome.frozen))),
    ("whole", Unit::Percent, |run| Some(100.0 * run.outcome.whole)),
    ("damaged", Unit::Percent, |run| Some(100.0 * run.outcome.damaged)),
    ("repeats", Unit::Count, |run| Some(run.outcome.others as f64)),
    ("sound on time", Unit::Percent, |run| Some(100.0 * run.outcome.sound)),
    ("dropped by the rule", Unit::Count, |run| run.dropped.map(|count| count as f64)),
];

fn nanoseconds(time: Duration) -> f64 {
    time.as_nanos() as f64
}

/// The places of a subject's series, by quantity.
type Places = [Option<usize>; QUANTITIES.len()];

/// `settle` is the time that a subject has to start, and `folder` is for the streams.
pub(super) fn measure(
    args: &UplinkArgs,
    settle: Duration,
    folder: &Path,
    repeat: u32,
    report: &mut Report,
) -> anyhow::Result<()> {
    let cases = args.cases()?;
    // A subject may begin with the next key picture.
    let lead = settle + 2 * KEY_INTERVAL;
    let stage = Stage {
        nginx: Nginx::find()?,
        namespaces: Namespaces::create().context("cannot make the uplink")?,
        folder,
        lead,
        on_time: args.uplink_on_time,
    };
    let mut streams: Vec<(u64, Clip)> = Vec::new();
    let longest = cases.iter().map(Case::length).max().unwrap_or_default();
    let length = Duration::from_secs((longest + lead + args.uplink_on_time + TAIL).as_secs() + 1);
    for case in &cases {
        let rate = case.bitrate.bits_per_sec();
        if streams.iter().all(|(known, _)| *known != rate) {
            streams.push((rate, Clip::prepare(folder, length, rate)?));
        }
    }
    for (number, case) in cases.iter().enumerate() {
        let stream = streams.iter().find(|(rate, _)| *rate == case.bitrate.bits_per_sec());
        let (_, clip) = stream.context("a stream is missing")?;
        let mut places: Vec<Places> = Vec::new();
        for repetition in 0..repeat {
            for &subject in &args.uplink_subjects {
                say(&format!("uplink: {case}, {} ...", subject.name()));
                // The subjects of a repetition meet the same losses.
                let run = stage.run(subject, case, clip, u64::from(repetition) + 1);
                let run = run.with_context(|| format!("{}, {case}", subject.name()))?;
                report.notes.extend(
                    run.faults.iter().map(|fault| format!("uplink: {case}, {}: {fault}", subject.name())),
                );
                let place = QUANTITIES.map(|(what, unit, value)| {
                    let name = format!("{what}, {}; {case}", subject.name());
                    value(&run).map(|sample| report.add(BENCH, &name, unit, sample))
                });
                if repetition == 0 {
                    places.push(place);
                }
            }
        }
        judge(case, &args.uplink_subjects, &places, report);
        if number == 0 {
            report.notes.push(format!(
                "uplink: pictures count as on time up to {:.1} s. Ages are those of the newest whole picture at the server, over time. A \
                 recovery is the time from the end of the dip until the age is on time for a second, or to the end of the run",
                args.uplink_on_time.as_secs_f64()
            ));
        }
    }
    Ok(())
}

/// Compares the subjects of a case, and puts them side by side.
fn judge(case: &Case, subjects: &[Subject], places: &[Places], report: &mut Report) {
    let of = |subject: Subject, quantity: usize| {
        let place = subjects.iter().position(|&other| other == subject)?;
        places.get(place)?.get(quantity).copied().flatten()
    };
    for (other, goal) in
        [(Subject::Direct, MORE), (Subject::Rule, if case.has_loss() { MORE_WITH_LOSS } else { MORE })]
    {
        if let (Some(ours), Some(theirs)) = (of(Subject::Freshwire, ON_TIME), of(other, ON_TIME)) {
            let name = format!("whole and on time, {}: {}; {case}", Subject::Freshwire.name(), other.name());
            report.compare(&name, ours, theirs, Some(goal));
        }
    }
    if let Some(recovery) = of(Subject::Freshwire, RECOVERY) {
        report.demand(recovery, Goal::AtMost(nanoseconds(KEY_INTERVAL)));
    }
    if let Some(age) = of(Subject::Freshwire, AGE_AFTER) {
        report.demand(age, Goal::AtMost(1e9));
    }
    let row = |(quantity, (what, ..)): (usize, &Quantity)| {
        let row: Vec<_> = places.iter().map(|places| places.get(quantity).copied().flatten()).collect();
        row.iter().any(Option::is_some).then(|| ((*what).to_owned(), row))
    };
    report.grids.push(Grid {
        bench: BENCH,
        caption: case.to_string(),
        columns: subjects.iter().map(|subject| subject.name().to_owned()).collect(),
        rows: QUANTITIES.iter().enumerate().filter_map(row).collect(),
    });
}

/// Where runs are made.
struct Stage<'a> {
    nginx: Nginx,
    namespaces: Namespaces,
    /// For the streams and the log.
    folder: &'a Path,
    /// From the link's start until pictures count: the subject has started, and TCP's slow start is over.
    lead: Duration,
    on_time: Duration,
}

/// A run.
struct Measured {
    outcome: Outcome,
    /// Pictures that the rule dropped.
    dropped: Option<u64>,
    /// From the end of the dip to the end of the run.
    after: Duration,
    /// Why the machine did not offer or carry what the case says.
    faults: Vec<String>,
}

impl Stage<'_> {
    fn run(&self, subject: Subject, case: &Case, clip: &Clip, seed: u64) -> anyhow::Result<Measured> {
        let log = self.log()?;
        self.use_congestion(&case.congestion)?;
        let server = self.nginx.start(&self.namespaces, log.try_clone().context("cannot share the log")?)?;
        let player = Player::start(&self.namespaces, KEY)?;
        let [up, down] = case.directions(self.lead, seed)?;
        let from = freshwire_io::now() + self.lead;
        let emulator = Emulator::start(&self.namespaces, up, down, EmulatorOptions::default())?;
        let (mut programs, mut input) =
            sender::start(subject, &self.namespaces, KEY, &case.congestion, &log)?;
        let begin = freshwire_io::now();
        anyhow::ensure!(begin + self.lead / 2 <= from, "it took longer than {:?} to start", self.lead / 2);
        let stop = &AtomicBool::new(false);
        let (alive, fed) = std::thread::scope(|scope| {
            let feeder = scope.spawn(move || {
                let lateness = clip.feed(begin, |tag| !stop.load(Ordering::Relaxed) && input.take(tag));
                (lateness, input)
            });
            wait_until(from + case.length() + self.on_time + TAIL);
            stop.store(true, Ordering::Relaxed);
            let alive = programs.iter_mut().all(|child| matches!(child.try_wait(), Ok(None)));
            // It may wait for them.
            drop(programs);
            (alive, feeder.join())
        });
        let (lateness, input) = fed.map_err(|_| anyhow::anyhow!("the encoder panicked"))?;
        let dropped = input.stop()?;
        let arrivals = player.stop()?;
        drop(server);
        let mut faults = emulator.stop().faults;
        // The others are late when the uplink has them wait.
        if subject == Subject::Rule && lateness > MAX_LATENESS {
            faults.push(format!("the encoder was {:.0} ms late", lateness.as_secs_f64() * 1e3));
        }
        anyhow::ensure!(alive, "a program had ended; see {LOG}");
        let window = Window { begin, from, length: case.length(), dip: case.dip(), on_time: self.on_time };
        let first = arrivals.iter().find(|arrival| arrival.tag.composition_ms().is_some());
        if first.is_none_or(|first| first.at > from) {
            faults.push("the stream was not at the server when pictures began to count".to_owned());
        }
        let looks = self.looks(&arrivals)?;
        let outcome = Sight::of(clip, &arrivals, &looks).judge(clip, &window);
        let after = case.dip().map_or(Duration::ZERO, |[_, end]| case.length() - end);
        Ok(Measured { outcome, dropped, after, faults })
    }

    /// How the pictures look that can be decoded of what arrived.
    fn looks(&self, arrivals: &[Arrival]) -> anyhow::Result<Vec<String>> {
        let tags: Vec<_> =
            arrivals.iter().map(|arrival| &arrival.tag).filter(|tag| tag.kind == flv::VIDEO).collect();
        if tags.iter().all(|tag| tag.composition_ms().is_none()) {
            return Ok(Vec::new());
        }
        let path = self.folder.join("uplink-arrived.flv");
        clip::write(&path, &tags)?;
        clip::looks(&path)
    }

    /// Has new connections across the uplink use a congestion control. A route says so: not every one may be a namespace's default.
    fn use_congestion(&self, name: &str) -> anyhow::Result<()> {
        let route = format!(
            "route replace 10.77.0.0/24 dev link0 proto kernel src {} congctl {name}",
            Namespaces::NEAR_V4
        );
        let mut command = Command::new("ip");
        command.args(route.split(' '));
        let status = self
            .namespaces
            .spawn_near(&mut command)
            .context("cannot run `ip`: apt-get install iproute2")?
            .wait()
            .context("cannot wait for `ip`")?;
        anyhow::ensure!(
            status.success(),
            "this kernel does not let us choose congestion control {name:?}; see `freshwire doctor`"
        );
        Ok(())
    }

    /// What the programs say, in one file.
    fn log(&self) -> anyhow::Result<File> {
        let path = self.folder.join(LOG);
        std::fs::create_dir_all(self.folder)
            .with_context(|| format!("cannot make the folder {}", self.folder.display()))?;
        let log = OpenOptions::new().create(true).append(true).open(&path);
        log.with_context(|| format!("cannot open {}", path.display()))
    }
}

const LOG: &str = "uplink.log";

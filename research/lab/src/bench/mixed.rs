//! The mixed load of a camera: pictures to viewers over TCP and UDP, and sound whose encoder takes the processor that is left.
//! Counterparts of tables 4.4, 4.5, 4.6 and 5.1 of Marigi 2012.
#![allow(clippy::disallowed_methods, reason = "a camera films by the real clock")]

pub(super) mod camera;
mod profile;
pub(super) mod receivers;
mod share;
mod sound;
mod stage;

use std::time::Duration;

use crate::sendpath::Picture;
use anyhow::ensure;
use clap::Args;
use freshwire_record::parse_duration;

use super::series::{Goal, Grid, Report, Unit};
use crate::output::say;
use crate::table::Table;
use camera::HandOver;
use stage::{DATAGRAM, RunOutcome, SOUNDS, Setting, Stage};

const BENCH: &str = "mixed";

/// Pictures a second of the camera of Marigi 2012, and their size: 25 of them were 1,047.65 KB/s (section
/// 4.4.1, table 5.1).
const PICTURES: f64 = 25.0;
const PICTURE_BYTES: usize = 41_906;

/// Milliseconds of sound in a block.
const SOUND_MS: f64 = 20.0;

/// The starting point of Marigi 2012: this part of the camera's full rate, at this load.
const FIRST_RATE: f64 = 951.34 / 1047.65;
const FIRST_LOAD: f64 = 0.6615;

/// How much longer the run for samples is than one for figures.
const PROFILE_TIMES: u32 = 5;

/// Runs that look for the share, and the least one: a millisecond in each turn.
const CALIBRATIONS: u32 = 4;
const LEAST_SHARE: f64 = 0.05;

/// Issue 43.
const FASTER: Goal = Goal::AtLeast(1.10);
const LIGHTER: Goal = Goal::AtMost(0.6);
const AS_MANY: Goal = Goal::AtLeast(1.0);

/// The options of `mixed`.
#[derive(Args, Clone, Debug)]
pub(super) struct MixedArgs {
    /// How long each repetition of `mixed` films.
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = parse_duration)]
    mixed_time: Duration,
    /// Speed of the camera of `mixed`, as a multiple of the published one's.
    #[arg(long, value_name = "FACTOR", default_value_t = 10.0)]
    mixed_speed: f64,
    /// The share of one processor that `mixed` has, in percent [default: the one that reproduces the published load].
    #[arg(long, value_name = "PERCENT")]
    mixed_share: Option<f64>,
}

/// A row of the tables.
#[derive(Clone, Copy)]
struct Variant {
    name: &'static str,
    hand_over: HandOver,
    filter: bool,
    batches: bool,
}

const VARIANTS: [Variant; 9] = [
    Variant { name: "none", hand_over: HandOver::Pages, filter: false, batches: false },
    Variant { name: "full frames", hand_over: HandOver::FullPages, filter: false, batches: false },
    Variant { name: "many pages", hand_over: HandOver::Whole, filter: false, batches: false },
    Variant { name: "ACK filter", hand_over: HandOver::Pages, filter: true, batches: false },
    Variant { name: "all", hand_over: HandOver::Whole, filter: true, batches: false },
    Variant { name: "all, UDP offload", hand_over: HandOver::Whole, filter: true, batches: true },
    Variant { name: "write", hand_over: HandOver::Copy, filter: false, batches: false },
    Variant { name: SERVER, hand_over: HandOver::Server, filter: false, batches: false },
    Variant { name: "server, ACK filter", hand_over: HandOver::Server, filter: true, batches: false },
];
/// `freshwire serve` in the camera's place.
const SERVER: &str = "server";
const NONE: usize = 0;
const ALL: usize = 4;
const ALL_AND_UDP: usize = 5;

/// Viewers over TCP and over UDP.
const MIXES: [(usize, usize); 2] = [(10, 0), (5, 5)];

/// Tables 4.4, 4.6 and 5.1 of Marigi 2012: mix, change, KB/s of a TCP viewer and of a UDP viewer, pictures a
/// second, load in percent.
const PUBLISHED: [(&str, &str, &str, &str, &str, &str); 8] = [
    ("10 TCP", "none", "951.34", "–", "–", "66.15"),
    ("10 TCP", "many pages", "1038.17", "–", "–", "52.56"),
    ("10 TCP", "ACK filter", "1025.58", "–", "–", "58.21"),
    ("10 TCP", "all", "1047.65", "–", "–", "23.56"),
    ("5 TCP, 5 UDP", "none", "912.76", "867.68", "21.4", "58.36"),
    ("5 TCP, 5 UDP", "many pages", "984.77", "915.06", "23.4", "54.69"),
    ("5 TCP, 5 UDP", "ACK filter", "951.98", "889.85", "22.3", "57.22"),
    ("5 TCP, 5 UDP", "all", "1044.70", "953.15", "24.8", "41.36"),
];

/// A run with the seconds that it took the published camera.
struct Figures<'a> {
    setting: Setting,
    ran: &'a RunOutcome,
    seconds: f64,
}

impl Figures<'_> {
    /// Kilobytes a second for each viewer; none without viewers.
    fn rate(&self, bytes: u64, viewers: usize) -> Option<f64> {
        (viewers > 0).then(|| bytes as f64 / 1e3 / self.seconds / viewers as f64)
    }

    fn for_each_picture(&self, count: u64) -> Option<f64> {
        let done = &self.ran.done;
        Some(count as f64 / (done.tcp_pictures + done.udp_pictures).max(1) as f64)
    }

    /// Known of the bench's own camera only.
    fn of_camera(&self, figure: Option<f64>) -> Option<f64> {
        figure.filter(|_| self.setting.hand_over != HandOver::Server)
    }

    fn cpu(&self) -> f64 {
        (self.ran.camera + self.ran.arrivals).as_secs_f64()
    }
}

/// A column: its head, the name and the unit of its series, and its figure in a run.
type Column = (&'static str, &'static str, Unit, fn(&Figures<'_>) -> Option<f64>);

const COLUMNS: [Column; 13] = [
    ("TCP KB/s", "TCP viewer in KB/s", Unit::Count, |run| run.rate(run.ran.done.tcp_bytes, run.setting.tcp)),
    ("UDP KB/s", "UDP viewer in KB/s", Unit::Count, |run| {
        run.rate(run.ran.arrived.udp_bytes, run.setting.udp)
    }),
    ("pictures/s", "pictures a second", Unit::Count, |Figures { setting, ran, seconds }| {
        let pictures = ran.done.tcp_pictures + ran.arrived.udp_pictures;
        Some(pictures as f64 / seconds / (setting.tcp + setting.udp) as f64)
    }),
    ("load", "load", Unit::Percent, |run| Some(100.0 * run.ran.load())),
    ("CPU per GB", "CPU per GB", Unit::SecondsPerGigabyte, |run| {
        let bytes = (run.ran.done.tcp_bytes + run.ran.arrived.udp_bytes) as f64;
        Some(run.cpu() / (bytes / 1e9).max(1e-9))
    }),
    ("of it arrivals", "arrivals' part of the load", Unit::Percent, |run| {
        Some(100.0 * run.ran.arrivals.as_secs_f64() / run.cpu().max(1e-9))
    }),
    ("ACKs a picture", "ACKs in the stack for a picture", Unit::Count, |Figures { ran, .. }| {
        Some(ran.tcp.segments_in as f64 / ran.done.tcp_pictures.max(1) as f64)
    }),
    ("full segments", "payload of a segment, of a full one", Unit::Percent, |run| {
        Some(100.0 * run.ran.fullness())
    }),
    ("calls a picture", "system calls for a picture", Unit::Count, |run| {
        run.of_camera(run.for_each_picture(run.ran.done.system_calls))
    }),
    ("sound/s", "blocks of sound a second", Unit::Count, |run| {
        Some(run.ran.sound_sent as f64 / run.seconds / SOUNDS as f64)
    }),
    ("held back", "held back by the quota, of the time", Unit::Percent, |Figures { ran, .. }| {
        Some(100.0 * ran.held_back.as_secs_f64() / ran.time.as_secs_f64())
    }),
    ("TSO segments", "segments before offload for a picture, and datagrams", Unit::Count, |run| {
        run.for_each_picture(run.ran.tcp.handed_over)
    }),
    ("autocorked", "writes corked by the kernel for a picture", Unit::Count, |run| {
        run.for_each_picture(run.ran.tcp.autocorked)
    }),
];

/// The places of a row's series, by column.
type Places = Vec<Option<usize>>;

/// A camera that is as fast as asked.
struct Filming {
    picture: Picture,
    speed: f64,
    time: Duration,
}

impl Filming {
    fn plan(&self, hand_over: HandOver) -> camera::Plan<'_> {
        let rate = PICTURES * self.speed;
        camera::Plan { picture: &self.picture, hand_over, datagram: DATAGRAM, rate, time: self.time }
    }

    fn sound_interval(&self) -> Duration {
        Duration::from_secs_f64(SOUND_MS / 1e3 / self.speed)
    }

    fn run(&self, stage: &Stage, setting: Setting, profile: bool) -> anyhow::Result<RunOutcome> {
        if setting.hand_over == HandOver::Server {
            return stage.serve(setting, &self.plan(setting.hand_over), self.sound_interval(), profile);
        }
        let ran = stage.run(setting, &self.plan(setting.hand_over), self.sound_interval(), profile)?;
        ensure!(
            ran.arrived.tcp_bytes == ran.done.tcp_bytes,
            "{} bytes were sent over TCP, and {} arrived",
            ran.done.tcp_bytes,
            ran.arrived.tcp_bytes
        );
        Ok(ran)
    }
}

pub(super) fn measure(args: &MixedArgs, repeat: u32, report: &mut Report) -> anyhow::Result<()> {
    let speed = args.mixed_speed;
    ensure!((1.0..=100.0).contains(&speed), "--mixed-speed {speed} is not from 1 to 100");
    let stage = Stage::new()?;
    let bytes: Vec<u8> = (0..PICTURE_BYTES).map(|place| (place % 251) as u8).collect();
    let filming = Filming { picture: Picture::new(&bytes)?, speed, time: args.mixed_time };
    let share = match args.mixed_share {
        Some(percent) => percent / 100.0,
        None => first_share(&stage, &filming)?,
    };
    say(&format!("mixed: {:.1} % of processor 0", 100.0 * share));
    let server = crate::product::program();
    if let Err(error) = &server {
        report.notes.push(format!("mixed: the live server is left out: {error:#}"));
    }
    stage.limit(Some(share))?;
    for (tcp, udp) in MIXES {
        let mix = mix_name(tcp, udp);
        let has_server = server.is_ok();
        let is_possible =
            |row: &Variant| (udp > 0 || !row.batches) && (has_server || row.hand_over != HandOver::Server);
        let variants: Vec<Variant> = VARIANTS.into_iter().filter(is_possible).collect();
        say(&format!("mixed: {mix} ..."));
        let mut places = Vec::new();
        for repetition in 0..repeat {
            for variant in &variants {
                let Variant { hand_over, filter, batches, .. } = *variant;
                let setting = Setting { tcp, udp, hand_over, filter, batches };
                let ran = filming.run(&stage, setting, false)?;
                let place = note(&filming, setting, &format!("{}; {mix}", variant.name), &ran, report);
                if repetition == 0 {
                    places.push(place);
                }
            }
        }
        compare(&variants, &places, &mix, report);
        grid(&variants, &places, &mix, report);
    }
    let longer = Filming { time: PROFILE_TIMES * filming.time, ..filming };
    profiles(&stage, &longer, report)?;
    notes(share, speed, report);
    Ok(())
}

fn mix_name(tcp: usize, udp: usize) -> String {
    if udp == 0 { format!("{tcp} TCP") } else { format!("{tcp} TCP, {udp} UDP") }
}

/// The share of a processor with which the camera without changes begins at the published part of its full rate, at the published load.
fn first_share(stage: &Stage, filming: &Filming) -> anyhow::Result<f64> {
    let (tcp, udp) = MIXES[0];
    let setting = Setting { tcp, udp, hand_over: HandOver::Pages, filter: false, batches: false };
    let wanted = filming.time.as_secs_f64() * PICTURES * filming.speed * (tcp * PICTURE_BYTES) as f64;
    stage.limit(None)?;
    let ran = filming.run(stage, setting, false)?;
    let cost = (ran.camera + ran.arrivals).as_secs_f64() / ran.done.tcp_bytes.max(1) as f64;
    let mut share = FIRST_RATE * wanted * cost / filming.time.as_secs_f64() / FIRST_LOAD;
    // Sending costs something else when the processor is scarce.
    for _ in 0..CALIBRATIONS {
        ensure!(
            share <= 0.95,
            "the full rate takes {:.0} % of a processor: take a lower --mixed-speed",
            100.0 * share
        );
        share = share.max(LEAST_SHARE);
        stage.limit(Some(share))?;
        let ran = filming.run(stage, setting, false)?;
        let rate = ran.done.tcp_bytes as f64 / wanted;
        // At the full rate the load says how much less would do.
        share *= if rate > 0.97 { FIRST_RATE * ran.load() / FIRST_LOAD } else { FIRST_RATE / rate.max(0.1) };
    }
    Ok(share.clamp(LEAST_SHARE, 0.95))
}

/// Adds the figures of a run, in seconds of the published camera.
fn note(filming: &Filming, setting: Setting, row: &str, ran: &RunOutcome, report: &mut Report) -> Places {
    let filmed = Figures { setting, ran, seconds: ran.time.as_secs_f64() * filming.speed };
    let place = |(_, series, unit, value): &Column| {
        value(&filmed).map(|sample| report.add(BENCH, &format!("{series}, {row}"), *unit, sample))
    };
    COLUMNS.iter().map(place).collect()
}

fn compare(variants: &[Variant], places: &[Places], mix: &str, report: &mut Report) {
    let quantities = [
        ("TCP KB/s", "throughput of TCP", Some(FASTER)),
        ("UDP KB/s", "throughput of UDP", None),
        ("load", "load", Some(LIGHTER)),
        ("pictures/s", "pictures a second", Some(AS_MANY)),
        ("CPU per GB", "CPU per GB", None),
    ];
    for (row, variant) in variants.iter().enumerate().skip(1) {
        let has_goal = row == ALL || row == ALL_AND_UDP && variant.batches;
        for (head, what, goal) in quantities {
            let column = COLUMNS.iter().position(|(name, ..)| *name == head);
            let of = |row: usize| places[row][column?];
            let Some((over, under)) = of(row).zip(of(NONE)) else { continue };
            let name = format!("{what}, {}: none; {mix}", variant.name);
            report.compare(&name, over, under, goal.filter(|_| has_goal));
        }
    }
}

fn grid(variants: &[Variant], places: &[Places], mix: &str, report: &mut Report) {
    let rows = variants.iter().zip(places).map(|(row, places)| (row.name.to_owned(), places.clone()));
    report.grids.push(Grid {
        bench: BENCH,
        caption: format!("{mix}, {SOUNDS} of sound; by change, in seconds of the published camera"),
        columns: COLUMNS.iter().map(|(head, ..)| (*head).to_owned()).collect(),
        rows: rows.collect(),
    });
}

/// Table 4.5: what queueing and locking take of the send path, by samples.
fn profiles(stage: &Stage, filming: &Filming, report: &mut Report) -> anyhow::Result<()> {
    let (tcp, udp) = MIXES[0];
    let mut rows = Vec::new();
    let server = VARIANTS.iter().position(|row| row.name == SERVER && crate::product::program().is_ok());
    for row in [Some(NONE), Some(ALL), server].into_iter().flatten() {
        let Variant { name, hand_over, filter, batches } = VARIANTS[row];
        let setting = Setting { tcp, udp, hand_over, filter, batches };
        let ran = match filming.run(stage, setting, true) {
            Ok(ran) => ran,
            Err(error) => {
                report.notes.push(format!("mixed: table 4.5 skipped: {error:#}"));
                return Ok(());
            }
        };
        let Some(shares) = ran.shares else {
            report.notes.push("mixed: table 4.5 skipped: no perf; apt-get install linux-perf".to_owned());
            return Ok(());
        };
        // The samples cover the load alone. The published percentages are of the camera's whole processor
        // share, of which the load is a part.
        let of_share = |percent: f64| format!("{percent:.1} ({:.2})", percent * ran.load());
        for (what, percent) in
            [("locks", shares.locks), ("queue and device", shares.queue), ("ACKs", shares.acks)]
        {
            let series = format!("{what} of the processor, {name}; {}", mix_name(tcp, udp));
            report.add(BENCH, &series, Unit::Percent, percent * ran.load());
        }
        rows.push(vec![
            name.to_owned(),
            shares.samples.to_string(),
            of_share(shares.locks),
            of_share(shares.queue),
            of_share(shares.acks),
            format!("{:.1}", 100.0 * ran.camera.as_secs_f64() / (ran.camera + ran.arrivals).as_secs_f64()),
        ]);
    }
    rows.push(["published", "–", "– (1.27)", "– (0.05)", "– (13)", "– (4.27)"].map(str::to_owned).to_vec());
    let table = Table::new(
        "table 4.5: shares of the samples of the send path, and in brackets of the camera's processor",
        1,
        "change | samples | locks % | queue and device % | TCP's ACKs % | camera's thread %",
        rows,
    );
    report.notes.push(format!("mixed: {}", table.to_terminal()));
    Ok(())
}

fn notes(share: f64, speed: f64, report: &mut Report) {
    let row = |(mix, change, tcp, udp, pictures, load): &(&str, &str, &str, &str, &str, &str)| {
        [mix, change, tcp, udp, pictures, load].map(|cell| (*cell).to_owned()).to_vec()
    };
    let head = "viewers | change | TCP KB/s | UDP KB/s | pictures/s | load %";
    let table = Table::new("published (tables 4.4, 4.6 and 5.1)", 2, head, PUBLISHED.iter().map(row));
    report.notes.push(format!("mixed: {}", table.to_terminal()));
    report.notes.push(format!(
        "mixed: the near host had {:.1} % of processor 0, and filmed {speed} times as fast as the published \
         camera. Load is the part of\n\
         that share which the camera's thread and the handling of arrivals took; the encoders of sound had the rest.",
        100.0 * share
    ));
}

#[cfg(test)]
mod tests {
    use freshwire_netns::testbed::TestbedError;

    use super::*;

    #[test]
    fn every_byte_and_picture_is_accounted_for() {
        let stage = match Stage::new() {
            Ok(stage) => stage,
            Err(error) => {
                let is_missing = error.downcast_ref().is_some_and(TestbedError::is_missing)
                    || error.is::<share::NoController>();
                assert!(is_missing && std::env::var_os("CI").is_none(), "{error:#}");
                println!("skipped: {error:#}");
                return;
            }
        };
        stage.limit(Some(0.5)).unwrap();
        let picture = Picture::new(&vec![7; PICTURE_BYTES]).unwrap();
        let filming = Filming { picture, speed: 4.0, time: Duration::from_millis(300) };
        // `tests/lab.rs` has the server, which is not beside this program.
        for Variant { name, hand_over, filter, batches } in &VARIANTS[..VARIANTS.len() - 2] {
            let (hand_over, filter, batches) = (*hand_over, *filter, *batches);
            let setting = Setting { tcp: 2, udp: 1, hand_over, filter, batches };
            // The run itself compares the bytes of TCP.
            let ran = filming.run(&stage, setting, false).unwrap();
            let RunOutcome { done, arrived, .. } = ran;
            assert!(done.tcp_pictures > 0 && done.udp_pictures > 0, "{name}: {done:?}");
            // At most a picture of each viewer is unfinished at the end.
            let bytes = PICTURE_BYTES as u64;
            let rest = done.tcp_bytes - done.tcp_pictures * bytes;
            assert!(rest < 2 * bytes, "{name}: {done:?}");
            let made = (0.3 * 4.0 * PICTURES) as u64;
            assert!(done.tcp_pictures <= 2 * made && done.udp_pictures <= made, "{name}: {done:?}");
            assert!(
                arrived.udp_bytes <= done.udp_bytes && arrived.udp_pictures <= done.udp_pictures,
                "{name}: {ran:?}"
            );
            assert!(ran.sound_sent > 0 && arrived.sound_blocks <= ran.sound_sent, "{name}: {ran:?}");
            // Both are counted: what the camera's thread takes, and what arrivals take.
            assert!(!ran.camera.is_zero() && !ran.arrivals.is_zero(), "{name}: {ran:?}");
            assert!((0.0..=1.0).contains(&ran.load()), "{name}: {ran:?}");
            // Two encoders want all of the processor, of which the group has half.
            assert!(!ran.held_back.is_zero(), "{name}: {ran:?}");
            assert!(ran.fullness() > 0.0 && ran.fullness() < 1.01, "{name}: {ran:?}");
        }
    }
}

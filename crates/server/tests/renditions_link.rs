//! Three renditions over links that carry one or the other: the picture moves, is fresh, and moves again after a link has become slow.
//!
//! It has no test harness: namespaces are created while there is a single thread. Arguments: rates of links to measure instead, such as
//! `300kbit 520kbit`.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test")]

mod http_rig;
mod testing;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use freshwire_link::{Config, Schedule, Step};
use freshwire_media::demux::{self, Demux, Event};
use freshwire_media::unit::{Kind, Unit};
use freshwire_netns::testing::namespaces;
use freshwire_netns::trust::{Trial, measure};
use freshwire_netns::{Emulator, EmulatorOptions, Namespaces};
use freshwire_server::access::Access;
use freshwire_server::config::Limits;
use freshwire_server::ingest::{self, Outlet, Source};
use http_rig::Server;
use testing::{is_there, wait_for};

/// Name, size, bits a second, and pictures from one keyframe to the next.
const RENDITIONS: [(&str, (u32, u32), u32, u32); 3] = [
    ("main", (1280, 720), 1_000_000, 50),
    ("middle", (640, 360), 400_000, 45),
    ("small", (320, 180), 150_000, 55),
];

fn main() -> ExitCode {
    if !is_there("ffmpeg") {
        return ExitCode::SUCCESS;
    }
    let namespaces = match namespaces() {
        Ok(namespaces) => namespaces,
        Err(code) => return code,
    };
    let folder = tempfile::tempdir().unwrap();
    let clips = RENDITIONS.map(|(name, size, rate, group)| clip(folder.path(), name, size, rate, group));
    let rates: Vec<String> = std::env::args().skip(1).filter(|it| it.ends_with("bit")).collect();
    for rate in &rates {
        let seen = watch(&namespaces, &clips, steps(&[(0, rate)]), 30);
        println!("{rate}: {}", seen.shown(2.0, 30.0));
    }
    if rates.is_empty() {
        // A tenth of the shortest gap and of the age that are asked for.
        let (gap, age) = (Duration::from_millis(30), Duration::from_millis(60));
        measure("renditions: a link for the middle one", age, || {
            a_link_for_the_middle_one(&namespaces, &clips)
        });
        measure("renditions: a link that becomes slow", gap, || {
            a_link_that_becomes_slow(&namespaces, &clips)
        });
    }
    ExitCode::SUCCESS
}

fn a_link_for_the_middle_one(namespaces: &Namespaces, clips: &[PathBuf; 3]) -> Trial {
    let seen = watch(namespaces, clips, steps(&[(0, "700kbit")]), 15);
    println!("700 kbit/s: {}", seen.shown(2.0, 15.0));
    let holds = seen.pictures(2.0, 15.0) >= 20.0 && seen.age(2.0, 15.0).0 <= 0.6;
    Trial::new(holds, || seen.shown(2.0, 15.0))
}

fn a_link_that_becomes_slow(namespaces: &Namespaces, clips: &[PathBuf; 3]) -> Trial {
    let seen = watch(namespaces, clips, steps(&[(0, "1500kbit"), (12, "300kbit")]), 26);
    println!("1500 kbit/s: {}", seen.shown(2.0, 12.0));
    println!("when it becomes slow: {}", seen.shown(11.0, 16.0));
    println!("then 300: {}", seen.shown(16.0, 26.0));
    let moves =
        |from: f64| seen.pictures(from, from + 1.0) >= 20.0 && seen.longest_gap(from, from + 1.0) < 0.3;
    let after = (0..100).map(|at| f64::from(at) * 0.1).find(|after| moves(12.0 + after));
    println!("moves again after {after:?} s");
    let holds = after.is_some_and(|after| after <= 4.0) && seen.pictures(16.0, 26.0) >= 20.0;
    Trial::new(holds, || format!("moves again after {after:?} s, {}", seen.shown(16.0, 26.0)))
}

fn steps(steps: &[(u64, &str)]) -> Schedule {
    let step = |&(at, rate): &(u64, &str)| Step {
        // The viewer comes a moment after the link is there.
        at: if at == 0 { Duration::ZERO } else { Duration::from_secs(at) },
        rate: Some(rate.parse().unwrap()),
    };
    Schedule::from_steps(steps.iter().map(step).collect(), None).unwrap()
}

fn clip(folder: &Path, name: &str, (width, height): (u32, u32), rate: u32, group: u32) -> PathBuf {
    let path = folder.join(format!("{name}.ts"));
    let output = Command::new("ffmpeg")
        .args(["-v", "error", "-f", "lavfi", "-i"])
        .arg(format!("testsrc2=size={width}x{height}:rate=25:duration=40"))
        .args([
            "-c:v",
            "libx264",
            "-preset",
            "ultrafast",
            "-g",
            &group.to_string(),
            "-b:v",
            &rate.to_string(),
        ])
        .args(["-maxrate", &rate.to_string(), "-bufsize", &rate.to_string(), "-x264-params", "nal-hrd=cbr"])
        .arg(&path)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    path
}

/// What came to a viewer: seconds since it began, time of the picture in seconds of the stream, bytes.
struct Observation(Vec<(f64, f64, usize)>);

impl Observation {
    /// Pictures a second.
    fn pictures(&self, from: f64, until: f64) -> f64 {
        self.0.iter().filter(|(at, ..)| (from..until).contains(at)).count() as f64 / (until - from)
    }

    /// Age on the screen, in seconds, mean and 95th percentile: beyond that of the freshest picture of all, which took a round trip.
    fn age(&self, from: f64, until: f64) -> (f64, f64) {
        let least = self.0.iter().map(|(at, media, _)| at - media).fold(f64::INFINITY, f64::min);
        let mut ages = Vec::new();
        let mut now = from;
        while now < until {
            let newest = self.0.iter().filter(|(at, ..)| *at <= now).map(|(_, media, _)| *media);
            ages.push(now - newest.fold(f64::NEG_INFINITY, f64::max) - least);
            now += 0.01;
        }
        ages.sort_by(f64::total_cmp);
        (ages.iter().sum::<f64>() / ages.len() as f64, ages[ages.len() * 95 / 100])
    }

    fn longest_gap(&self, from: f64, until: f64) -> f64 {
        let times: Vec<f64> = self.0.iter().map(|it| it.0).filter(|at| (from..until).contains(at)).collect();
        times.windows(2).map(|pair| pair[1] - pair[0]).fold(0.0, f64::max)
    }

    fn shown(&self, from: f64, until: f64) -> String {
        let ((mean, p95), gap) = (self.age(from, until), self.longest_gap(from, until));
        let bytes: usize = self.0.iter().filter(|(at, ..)| (from..until).contains(at)).map(|it| it.2).sum();
        let kbit = bytes as f64 * 8.0 / 1000.0 / (until - from);
        let pictures = self.pictures(from, until);
        format!(
            "{pictures:.1} pictures/s, {kbit:.0} kbit/s, age {mean:.2} s, p95 {p95:.2} s, longest gap {gap:.2} s"
        )
    }
}

/// Views over this link for so long.
fn watch(namespaces: &Namespaces, clips: &[PathBuf; 3], schedule: Schedule, seconds: u64) -> Observation {
    let listener =
        namespaces.in_far(|| std::net::TcpListener::bind((Namespaces::FAR_V4, 0))).unwrap().unwrap();
    let server = Server::new(listener, Access::open(), Limits::default());
    let stream = server.context.hub.stream("live").unwrap();
    for (clip, (name, ..)) in clips.iter().zip(RENDITIONS) {
        let outlet = match name {
            "main" => Outlet::from(stream.clone()),
            name => Outlet::rendition(stream.clone(), name),
        };
        server.runtime.spawn(ingest::run(Source::File(clip.clone()), outlet));
    }
    wait_for("renditions", Duration::from_secs(30), || {
        stream.snapshot().renditions.iter().filter(|it| it.is_present && it.cost.is_some()).count() == 3
    });
    let down = Config::builder()
        .schedule(schedule)
        .delay(Duration::from_millis(10))
        .queue_bytes(15_000)
        .build()
        .unwrap();
    let up = Config::builder().delay(Duration::from_millis(10)).build().unwrap();
    let _emulator = Emulator::start(namespaces, up, down, EmulatorOptions::default()).unwrap();
    let started = Instant::now();
    let mut socket = namespaces.in_near(|| TcpStream::connect(server.address)).unwrap().unwrap();
    socket.write_all(b"GET /live.ts HTTP/1.1\r\nHost: live\r\n\r\n").unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if socket.read_exact(&mut byte).is_ok() {
            head.push(byte[0]);
        }
        assert!(started.elapsed() < Duration::from_secs(10), "no answer");
    }
    let (mut seen, mut demux, mut buffer) =
        (Vec::new(), Demux::new(demux::Config::default()), vec![0; 64 << 10]);
    while started.elapsed() < Duration::from_secs(seconds) {
        let len = socket.read(&mut buffer).unwrap_or(0);
        demux.push(&buffer[..len]);
        for event in demux.by_ref() {
            let Event::Unit(Unit { head, .. }) = event.unwrap() else { continue };
            if head.kind == Kind::Video {
                let media = head.dts.as_nanos() as f64 / 1e9;
                seen.push((started.elapsed().as_secs_f64(), media, head.len as usize));
            }
        }
    }
    for viewer in stream.snapshot().viewers {
        println!("  {:?} ({}), {} changes", viewer.rendition, viewer.why, viewer.changes);
    }
    Observation(seen)
}

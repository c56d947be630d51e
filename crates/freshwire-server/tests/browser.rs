//! The page in a real browser: it plays at the live edge, on loopback and over a link that is too slow for the stream.
//!
//! It has no test harness: namespaces are created while there is a single thread.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test")]

mod browser_driver;
mod http_rig;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant, UNIX_EPOCH};

use browser_driver::Browser;
use freshwire_io::netns::{Emulator, EmulatorOptions, Namespaces};
use freshwire_link::Config;
use freshwire_server::access::Access;
use freshwire_server::config::Limits;
use http_rig::{BITS, FPS, Feed, SQUARE, Server, is_there, wait_for};
use serde_json::Value;

fn main() -> ExitCode {
    if !is_there("ffmpeg") || !is_there("chromium") {
        return ExitCode::SUCCESS;
    }
    let filter = std::env::args().nth(1).filter(|argument| !argument.starts_with('-')).unwrap_or_default();
    let namespaces = match Namespaces::create() {
        Ok(namespaces) => namespaces,
        Err(error) if error.is_not_permitted() && std::env::var_os("CI").is_none() => {
            println!("skipped: {error}");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            println!("failed: {error}");
            return ExitCode::FAILURE;
        }
    };
    let tests: [(&str, fn(&Namespaces)); 2] = [
        ("a_fast_path_plays_at_once", a_fast_path_plays_at_once),
        ("a_slow_path_stays_live", a_slow_path_stays_live),
    ];
    for (name, test) in tests {
        if name.contains(&filter) {
            test(&namespaces);
            println!("ok: {name}");
        }
    }
    ExitCode::SUCCESS
}

fn a_fast_path_plays_at_once(namespaces: &Namespaces) {
    let run = Run::over(namespaces, Config::default(), Duration::from_secs(6), "browser-fast");
    assert!(run.worst_clock < 1.0, "{run:?}");
    assert!(run.longest_stall < 0.5, "{run:?}");
    assert!(run.frames > 100, "{run:?}");
}

fn a_slow_path_stays_live(namespaces: &Namespaces) {
    let slow =
        Config::builder().rate("300kbit".parse().unwrap()).delay(Duration::from_millis(20)).build().unwrap();
    let run = Run::over(namespaces, slow, Duration::from_secs(30), "browser-slow");
    assert!(run.worst_clock < 1.5, "{run:?}");
    assert!(run.longest_stall < 0.5, "{run:?}");
    assert!(run.frames > 100, "{run:?}");
}

/// What was seen while the page played.
#[derive(Debug)]
struct Run {
    /// Largest difference between real time and the clock in the picture, in seconds.
    worst_clock: f64,
    /// Likewise, the median.
    median_clock: f64,
    /// In seconds.
    longest_stall: f64,
    frames: u64,
    metrics: Value,
}

impl Run {
    fn over(namespaces: &Namespaces, down: Config, length: Duration, name: &str) -> Self {
        let emulator =
            Emulator::start(namespaces, Config::default(), down, EmulatorOptions::default()).unwrap();
        let listener =
            namespaces.in_far(|| std::net::TcpListener::bind((Namespaces::FAR_V4, 0))).unwrap().unwrap();
        let server = Server::new(listener, Access::open(), Limits::default());
        let stream = server.context.hub.stream("clock").unwrap();
        let feed = Feed::start(&stream, false).unwrap();
        let mut browser = Browser::start(namespaces);
        browser.go(&format!("http://{}/clock", server.address));
        wait_for("the first picture", Duration::from_secs(15), || {
            browser.evaluate("window.freshwire?.frames ?? 0").as_u64() > Some(0)
        });
        // The first seconds find out how regular the path is.
        std::thread::sleep(Duration::from_secs(2));
        let mut clocks = Vec::new();
        let begin = Instant::now();
        while begin.elapsed() < length {
            std::thread::sleep(Duration::from_millis(200));
            let clock = browser.evaluate(&read_clock());
            let drawn = *feed.begun.get().unwrap()
                + Duration::from_secs(1) * clock["number"].as_u64().unwrap() as u32 / FPS;
            let read = UNIX_EPOCH + Duration::from_secs_f64(clock["at"].as_f64().unwrap() / 1e3);
            clocks.push(read.duration_since(drawn).map_or(0.0, |behind| behind.as_secs_f64()));
        }
        let metrics = browser.evaluate(
            "({stalls: freshwire.stalls.filter(s => s.at > 2), frames: freshwire.frames, delay: freshwire.delay, \
             jumps: freshwire.jumps, drops: freshwire.stats.drops, path: freshwire.stats.path, sent: freshwire.stats.sent, offered: freshwire.stats.offered, lead: freshwire.lead, error: freshwire.error, connections: freshwire.connections})",
        );
        let picture = artefact(name);
        std::fs::write(&picture, browser.screenshot()).unwrap();
        println!(
            "{name}: {:?}",
            clocks.iter().map(|behind| (behind * 100.0).round() / 100.0).collect::<Vec<_>>()
        );
        println!("{name}: screenshot in {}; {metrics}", picture.display());
        drop(emulator);
        Self::of(clocks, metrics)
    }

    fn of(mut errors: Vec<f64>, metrics: Value) -> Self {
        errors.sort_by(f64::total_cmp);
        let stalls = metrics["stalls"].as_array().unwrap();
        let longest_stall = stalls.iter().filter_map(|stall| stall["seconds"].as_f64()).fold(0.0, f64::max);
        Self {
            worst_clock: *errors.last().unwrap(),
            median_clock: errors[errors.len() / 2],
            longest_stall,
            frames: metrics["frames"].as_u64().unwrap(),
            metrics,
        }
    }
}

/// Reads the number that is drawn in the picture, and the time.
fn read_clock() -> String {
    format!(
        "(() => {{
            const width = {BITS} * {SQUARE};
            const canvas = new OffscreenCanvas(width, {SQUARE});
            const pen = canvas.getContext('2d');
            pen.drawImage(document.querySelector('video'), 0, 0, width, {SQUARE}, 0, 0, width, {SQUARE});
            const at = Date.now();
            let number = 0;
            for (let bit = 0; bit < {BITS}; bit += 1) {{
                const [, green] = pen.getImageData((bit + 0.5) * {SQUARE}, {SQUARE} / 2, 1, 1).data;
                if (green > 128) number += 2 ** bit;
            }}
            return {{ number, at }};
        }})()"
    )
}

fn artefact(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    folder.join(format!("{name}.png"))
}

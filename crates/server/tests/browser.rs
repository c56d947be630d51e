//! The page in real browsers: it plays at the live edge, on loopback and over a link that is too slow for the stream.
//!
//! It has no test harness: namespaces are created while there is a single thread.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test")]

mod browser_driver;
mod browser_sites;
mod http_rig;
mod testing;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use browser_driver::{Browser, Chromium, Firefox};
use browser_sites::*;
use freshwire_link::{Config, Schedule, Step};
use freshwire_netns::testing::namespaces;
use freshwire_netns::trust::{Trial, measure};
use freshwire_netns::{Emulator, EmulatorOptions, Namespaces};
use freshwire_server::access::Access;
use freshwire_server::config::Limits;
use freshwire_server::ingest::{self, CLOCK_CELLS, Outlet, PatternConfig, Source};
use http_rig::Server;
use serde_json::Value;
use testing::{is_there, wait_for};

fn main() -> ExitCode {
    if !is_there("ffmpeg") {
        return ExitCode::SUCCESS;
    }
    let filter = std::env::args().nth(1).filter(|argument| !argument.starts_with('-')).unwrap_or_default();
    let namespaces = match namespaces() {
        Ok(namespaces) => namespaces,
        Err(code) => return code,
    };
    let tests: [(_, _, fn(&Namespaces)); 12] = [
        ("chromium", "a_fast_path_plays_at_once_in_chromium", a_fast_path_plays_at_once_in_chromium),
        ("chromium", "a_slow_path_stays_live_in_chromium", a_slow_path_stays_live_in_chromium),
        ("chromium", "the_picture_goes_on_in_another_size", the_picture_goes_on_in_another_size),
        ("chromium", "a_slow_reader_skips_values", a_slow_reader_skips_values),
        (
            "chromium",
            "a_trusted_page_reads_and_frames_in_chromium",
            a_trusted_page_reads_and_frames_in_chromium,
        ),
        ("chromium", "pages_work_below_a_path_in_chromium", pages_work_below_a_path_in_chromium),
        ("chromium", "the_page_of_values_fits_a_phone", the_page_of_values_fits_a_phone),
        (
            "chromium",
            "a_managed_source_gets_nothing_while_it_takes_nothing",
            a_managed_source_gets_nothing_while_it_takes_nothing,
        ),
        (
            "firefox-esr",
            "a_trusted_page_reads_and_frames_in_firefox",
            a_trusted_page_reads_and_frames_in_firefox,
        ),
        ("firefox-esr", "pages_work_below_a_path_in_firefox", pages_work_below_a_path_in_firefox),
        ("firefox-esr", "a_fast_path_plays_at_once_in_firefox", a_fast_path_plays_at_once_in_firefox),
        ("firefox-esr", "a_slow_path_stays_live_in_firefox", a_slow_path_stays_live_in_firefox),
    ];
    for (program, name, test) in tests {
        if name.contains(&filter) && is_there(program) {
            test(&namespaces);
            println!("ok: {name}");
        }
    }
    ExitCode::SUCCESS
}

fn a_fast_path_plays_at_once_in_chromium(namespaces: &Namespaces) {
    let browser = Chromium::start(namespaces);
    let mut page = Page::over(namespaces, browser, Config::default(), small_picture());
    page.plays_at_once("chromium-fast");
    let fits = "document.documentElement.scrollHeight <= innerHeight";
    assert_eq!(page.browser.evaluate(fits), true, "a window of 1280 x 800 shows all panels");
    page.browser.prefer("dark");
    page.picture("chromium-dark");
    page.browser.resize(375, 812);
    let fits = "innerWidth === 375 && [...document.querySelectorAll('button, figure')]
        .every(one => one.getBoundingClientRect().right < stage.getBoundingClientRect().right + 1)";
    assert_eq!(page.browser.evaluate(fits), true, "a phone shows the whole width");
    page.picture("chromium-phone");
}

fn a_fast_path_plays_at_once_in_firefox(namespaces: &Namespaces) {
    let browser = Firefox::start(namespaces);
    let mut page = Page::over(namespaces, browser, Config::default(), small_picture());
    page.plays_at_once("firefox-fast");
}

fn a_slow_path_stays_live_in_chromium(namespaces: &Namespaces) {
    let (path, picture) = slow_path();
    let mut page = Page::over(namespaces, Chromium::start(namespaces), path, picture);
    page.stays_live("chromium-slow");
}

fn a_slow_path_stays_live_in_firefox(namespaces: &Namespaces) {
    let (path, picture) = slow_path();
    let mut page = Page::over(namespaces, Firefox::start(namespaces), path, picture);
    page.stays_live("firefox-slow");
}

/// 300 kbit/s for 1 Mbit/s in I, P, B and b pictures. Sound takes a fifth of this path.
fn slow_path() -> (Config, PatternConfig) {
    let slow =
        Config::builder().rate("300kbit".parse().unwrap()).delay(Duration::from_millis(20)).build().unwrap();
    (slow, small_picture())
}

/// 1 Mbit/s that costs this machine little.
fn small_picture() -> PatternConfig {
    PatternConfig { width: 640, height: 360, ..PatternConfig::default() }
}

/// A path that carries the larger rendition, and becomes too slow for it.
fn the_picture_goes_on_in_another_size(namespaces: &Namespaces) {
    let steps = [(0, "1500kbit"), (SLOWER_AFTER, "300kbit")]
        .map(|(at, rate)| Step { at: Duration::from_secs(at), rate: Some(rate.parse().unwrap()) });
    let schedule = Schedule::from_steps(steps.to_vec(), None).unwrap();
    let slower = Config::builder().schedule(schedule).delay(Duration::from_millis(20)).build().unwrap();
    let large = PatternConfig { width: 640, height: 360, kbit: 600, ..PatternConfig::default() };
    let small = PatternConfig { width: 320, height: 180, kbit: 120, sound: false, ..large.clone() };
    let started = Instant::now();
    let mut page = Page::of_renditions(namespaces, Chromium::start(namespaces), slower, large, Some(small));
    let width = |page: &mut Page<Chromium>| {
        page.browser.evaluate("document.querySelector('video').videoWidth").as_u64()
    };
    wait_for("the larger picture", Duration::from_secs(SLOWER_AFTER), || width(&mut page) == Some(640));
    let passed = started.elapsed().as_secs();
    // Pause: the rate is lowered at a fixed second.
    std::thread::sleep(Duration::from_secs(SLOWER_AFTER.saturating_sub(passed)));
    wait_for("the smaller picture", Duration::from_secs(15), || width(&mut page) == Some(320));
    // Pause: the change settles.
    std::thread::sleep(Duration::from_secs(2));
    measure("browser: the smaller picture", LATE, || {
        let run = page.watch(Duration::from_secs(10), "browser-renditions");
        assert_eq!(run.metrics["error"], Value::Null, "{run:?}");
        assert_eq!(run.metrics["stats"]["rendition"], "small", "{run:?}");
        run.stays_live(200)
    });
    let said = page.browser.evaluate("document.getElementById('path').textContent");
    assert!(said.as_str().is_some_and(|said| said.contains("renditionsmall")), "{said}");
}

/// A page whose program is slow gets the newest values, and no queue of old ones in the browser.
fn a_slow_reader_skips_values(namespaces: &Namespaces) {
    const PATIENCE: Duration = Duration::from_secs(60);
    let options = EmulatorOptions::default();
    let _emulator = Emulator::start(namespaces, Config::default(), Config::default(), options).unwrap();
    let listener =
        namespaces.in_far(|| std::net::TcpListener::bind((Namespaces::FAR_V4, 0))).unwrap().unwrap();
    let server = Server::new(listener, Access::open(), Limits::default());
    server.context.topics.keep(["state".to_owned()]);
    let mut browser = Chromium::start(namespaces);
    browser.go(&format!("http://{}/state/watch", server.address));
    let connected = "window.freshwire?.readers.filter((reader) => reader?.connected).length ?? 0";
    wait_for("two readers", PATIENCE, || browser.evaluate(connected) == 2);
    browser.evaluate("document.getElementById('publish').click()");
    let readers = "freshwire.readers.map(({ received, skipped }) => ({ received, skipped }))";
    let count = |readers: &Value, reader: usize, field: &str| readers[reader][field].as_u64().unwrap();
    wait_for("values of the slow reader", PATIENCE, || {
        count(&browser.evaluate(readers), 1, "received") >= 30
    });
    let counts = browser.evaluate(readers);
    // It takes 200 ms for a value, and there are 50 a second.
    assert!(count(&counts, 1, "skipped") > 2 * count(&counts, 1, "received"), "{counts}");
    assert!(count(&counts, 0, "received") > 2 * count(&counts, 1, "received"), "{counts}");
    assert_eq!(browser.evaluate("freshwire.error"), Value::Null);
    let table = browser.evaluate("document.getElementById('values').textContent");
    assert!(table.as_str().is_some_and(|table| table.starts_with("test{\"number\":")), "{table}");
    keep_picture(&mut browser, "chromium-values");
}

/// Seconds after which that path becomes slower: by then the page has the larger rendition.
const SLOWER_AFTER: u64 = 30;

/// A browser that plays the test picture.
struct Page<B> {
    browser: B,
    _emulator: Emulator,
    _server: Server,
}

impl<B: Browser> Page<B> {
    /// Opens the page behind a path and waits for the first picture.
    fn over(namespaces: &Namespaces, browser: B, down: Config, picture: PatternConfig) -> Self {
        Self::of_renditions(namespaces, browser, down, picture, None)
    }

    /// The same for a stream with another rendition, if that is given.
    fn of_renditions(
        namespaces: &Namespaces,
        mut browser: B,
        down: Config,
        picture: PatternConfig,
        other: Option<PatternConfig>,
    ) -> Self {
        let emulator =
            Emulator::start(namespaces, Config::default(), down, EmulatorOptions::default()).unwrap();
        let listener =
            namespaces.in_far(|| std::net::TcpListener::bind((Namespaces::FAR_V4, 0))).unwrap().unwrap();
        let server = Server::new(listener, Access::open(), Limits::default());
        server.feed("clock", picture);
        if let Some(other) = other {
            let outlet = Outlet::rendition(server.context.hub.stream("clock").unwrap(), "small");
            server.runtime.spawn(ingest::run(Source::Test(other), outlet));
            // A viewer that comes before the renditions are measured begins with either.
            // Pause: a viewer that comes early begins with either rendition.
            std::thread::sleep(Duration::from_secs(5));
        }
        browser.go(&format!("http://{}/clock", server.address));
        wait_for("the first picture", Duration::from_secs(15), || {
            browser.evaluate("window.freshwire?.frames ?? 0").as_u64() > Some(0)
        });
        // The first seconds find out how regular the path is.
        // Pause: the first seconds measure the path.
        std::thread::sleep(Duration::from_secs(2));
        Self { browser, _emulator: emulator, _server: server }
    }

    /// Plays without a pause, and what is shown is fresh.
    fn plays_at_once(&mut self, name: &str) {
        measure(&format!("browser: {name}"), LATE, || {
            let run = self.watch(Duration::from_secs(6), name);
            // 25 a second, and none is left out.
            let trial = run.stays_live(135);
            if run.median_delay <= 0.3 { trial } else { Trial::new(false, || format!("{run:?}")) }
        });
    }

    /// Plays on, with what fits the path.
    fn stays_live(&mut self, name: &str) {
        measure(&format!("browser: {name}"), LATE, || {
            let run = self.watch(Duration::from_secs(30), name);
            // A key picture every two seconds, and some of the twelve P pictures that go with each.
            run.stays_live(75)
        });
    }

    /// Reads the clock in the picture for so long.
    fn watch(&mut self, length: Duration, name: &str) -> Run {
        let first = self.browser.evaluate("({at: performance.now() / 1e3, frames: freshwire.frames})");
        let begin = Instant::now();
        let mut samples = Vec::new();
        while begin.elapsed() < length {
            // Pause: the interval of the samples.
            std::thread::sleep(Duration::from_millis(100));
            let value = self.browser.evaluate(&read_clock());
            let of = |field: &str| value[field].as_f64().expect("a picture with a valid clock");
            samples.push(Sample {
                clock: of("clock"),
                shown: of("shown"),
                playhead: of("playhead"),
                now: of("now"),
                delay: of("delay"),
            });
        }
        let metrics = self.browser.evaluate(
            "({stalls: freshwire.stalls, frames: freshwire.frames, jumps: freshwire.jumps, lead: freshwire.lead, \
             error: freshwire.error, connections: freshwire.connections, stats: freshwire.stats})",
        );
        self.picture(name);
        let run = Run::of(&samples, &first, metrics);
        println!("{name}: {run:?}");
        run
    }

    fn picture(&mut self, name: &str) {
        keep_picture(&mut self.browser, name);
    }
}

/// Keeps a screenshot.
fn keep_picture(browser: &mut impl Browser, name: &str) {
    // Pause: the drawings are renewed four times a second.
    std::thread::sleep(Duration::from_millis(400));
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.png"));
    std::fs::write(&path, browser.screenshot()).unwrap();
    println!("{name}: screenshot in {}", path.display());
}

/// How late a thread may be: a tenth of the longest stall.
const LATE: Duration = Duration::from_millis(50);

/// The state of the page at one moment, in seconds.
#[derive(Clone, Copy, Debug)]
struct Sample {
    /// The clock in the picture, since 1970.
    clock: f64,
    /// Where that picture is on the player's timeline.
    shown: f64,
    /// `video.currentTime`.
    playhead: f64,
    /// Since 1970.
    now: f64,
    /// How old the page says that the picture was when it was painted.
    delay: f64,
}

impl Sample {
    /// What the clock says at 0 of the player's timeline: the median of these seconds. Later it may be otherwise: an encoder
    /// that is too slow gets fewer pictures, but counts them as if they were 25 a second.
    fn origin(&self, samples: &[Self]) -> f64 {
        let near = samples.iter().filter(|one| (one.now - self.now).abs() < 3.0);
        let mut origins: Vec<f64> = near.map(|one| one.clock - one.shown).collect();
        origins.sort_by(f64::total_cmp);
        origins[origins.len() / 2]
    }
}

/// Measurements while the page played, in seconds.
#[derive(Debug)]
#[allow(dead_code, reason = "a failed assertion prints all of it")]
struct Run {
    /// `video.currentTime` against the clock in the picture: the largest and the median difference.
    worst_clock: f64,
    median_clock: f64,
    /// How far `video.currentTime` is behind the real time.
    worst_age: f64,
    median_age: f64,
    /// The age of the picture that is shown, from when it was drawn.
    worst_picture: f64,
    median_picture: f64,
    /// How old the page says that a picture is when it is painted.
    median_delay: f64,
    longest_stall: f64,
    frames: u64,
    metrics: Value,
}

impl Run {
    fn of(samples: &[Sample], first: &Value, metrics: Value) -> Self {
        let sorted = |of: &dyn Fn(&Sample) -> f64| {
            let mut values: Vec<f64> = samples.iter().map(of).collect();
            values.sort_by(f64::total_cmp);
            (values[values.len() - 1], values[values.len() / 2])
        };
        let origin = |one: &Sample| one.origin(samples);
        let (worst_clock, median_clock) = sorted(&|one| one.playhead + origin(one) - one.clock);
        let (worst_age, median_age) = sorted(&|one| one.now - origin(one) - one.playhead);
        let (worst_picture, median_picture) = sorted(&|one| one.now - one.clock);
        let (_, median_delay) = sorted(&|one| one.delay);
        let stalls = metrics["stalls"].as_array().unwrap().iter();
        let longest_stall = stalls
            .filter(|stall| stall["at"].as_f64() > first["at"].as_f64())
            .filter_map(|stall| stall["seconds"].as_f64())
            .fold(0.0, f64::max);
        let frames = metrics["frames"].as_u64().unwrap() - first["frames"].as_u64().unwrap();
        Self {
            worst_clock,
            median_clock,
            worst_age,
            median_age,
            worst_picture,
            median_picture,
            median_delay,
            longest_stall,
            frames,
            metrics,
        }
    }

    /// Whether it was live throughout, and showed more pictures than that.
    fn stays_live(&self, least_frames: u64) -> Trial {
        assert_eq!(self.metrics["connections"], 1, "{self:?}");
        let is_live = self.worst_clock <= 1.5 && self.worst_age <= 1.5 && self.longest_stall <= 0.5;
        Trial::new(is_live && self.frames > least_frames, || format!("{self:?}"))
    }
}

/// Reads the clock that is drawn in the picture, the time of playback, and the real time. See `ingest::read_clock`.
fn read_clock() -> String {
    format!(
        "(() => {{
            const video = document.querySelector('video');
            const width = video.videoWidth;
            const pen = new OffscreenCanvas(width, 1).getContext('2d', {{ willReadFrequently: true }});
            pen.drawImage(video, 0, Math.round(video.videoHeight * 31 / 32), width, 1, 0, 0, width, 1);
            const playhead = video.currentTime;
            const now = Date.now() / 1e3;
            const line = pen.getImageData(0, 0, width, 1).data;
            const cells = Array.from({{ length: {CLOCK_CELLS} }}, (_, at) =>
                Number(line[4 * Math.floor((at + 0.5) * width / {CLOCK_CELLS}) + 1] > 128));
            const [white, black, ...bits] = cells;
            const parity = bits.pop();
            const ones = bits.reduce((sum, bit) => sum + bit, 0);
            const isValid = white && !black && ones % 2 === parity;
            const clock = isValid ? bits.reduce((sum, bit) => 2 * sum + bit, 0) / 1e3 : null;
            return {{ clock, shown: freshwire.mediaTime, delay: freshwire.delay, playhead, now }};
        }})()"
    )
}

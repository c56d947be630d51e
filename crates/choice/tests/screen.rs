//! Real streams over links that are too slow, in virtual time: what is on the screen, beside fixed deadlines and an oracle.
//!
//! `streams/` has the pictures of streams that encoders made of film, drawings and slides. Each line is a
//! picture: its bytes, layer, two references and the place in display order, relative to its own.
//! `screen.txt` is the result, which is reviewed with each change:
//!
//! ```text
//! SCREEN=all cargo test --release -p freshwire-choice --test screen     # all streams and links; UPDATE=1 writes the table
//! ```

#[allow(dead_code)] // `frames.rs` uses the rest.
mod bench;

use std::fmt::Write;
use std::time::Duration;

use bench::{Link, Run};
use freshwire_choice::screen::{Score, Screen, Shown, oracle, score};
use freshwire_choice::{Choice, Record, frames};
use freshwire_record::Timestamp;

const INTERVAL: u64 = 40_000_000;
const BEGIN: u64 = 1_000_000_000;
/// The screen counts from here on: the first group is sent before anything is known of the stream.
const FROM: u64 = BEGIN + 4_000_000_000;
const ONE_WAY: Duration = Duration::from_millis(10);
const DEADLINES_MS: [u64; 5] = [300, 650, 1200, 2000, 4000];
/// As the live server has it.
const KEY_GRACE_MS: u64 = 600;
const ORACLE_WAYS: usize = 100;

macro_rules! stream {
    ($name:literal) => {
        ($name, include_str!(concat!("streams/", $name, ".txt")))
    };
}

/// Name and pictures. All have 25 pictures a second; film is from "Big Buck Bunny".
const STREAMS: [(&str, &str); 10] = [
    // x264 with its defaults, 1280x720, 1 Mbit/s, keyframes every 2 s.
    stream!("film"),
    // x264 with `tune=zerolatency`, 640x272, 600 kbit/s: no B pictures.
    stream!("camera"),
    // A zoom that jumps to another picture every 6 s; 2 Mbit/s at most, keyframes every 4 s.
    stream!("slides"),
    // SVT-AV1, 640x360, 600 kbit/s.
    stream!("svt-av1"),
    // x264 with its defaults, a street, 640x272, 1 Mbit/s, keyframes where scenes change.
    stream!("x264-defaults"),
    // x264 with its defaults, film, 640x360, 600 kbit/s, keyframes at least that often.
    stream!("keys-1s"),
    stream!("keys-4s"),
    stream!("keys-10s"),
    // libvpx, realtime.
    stream!("vp9"),
    stream!("x265"),
];

const SHORT: ([&str; 4], [u64; 3]) = (["film", "camera", "slides", "svt-av1"], [45, 80, 120]);
const LINKS: [u64; 6] = [30, 45, 60, 80, 100, 120];

struct Stream {
    name: &'static str,
    pictures: Vec<Record>,
    offers: Vec<u64>,
    bits_per_sec: u64,
}

impl Stream {
    fn new(name: &'static str, text: &str) -> Self {
        let numbers =
            |line: &str| -> Vec<i64> { line.split(' ').map(|n| n.parse().expect("a number")).collect() };
        let rows: Vec<Vec<i64>> = text.lines().map(numbers).collect();
        let reorder = rows.iter().map(|row| row[4]).max().unwrap_or(0);
        let offers: Vec<u64> = (0..rows.len() as u64).map(|at| BEGIN + at * INTERVAL).collect();
        let pictures = rows.iter().zip(&offers).enumerate().map(|(at, (row, &offer))| Record {
            index: at as u64,
            len: row[0] as u32,
            layer: row[1] as u8,
            refs: [row[2] as u32, row[3] as u32],
            generated: Timestamp::from_nanos(offer - (reorder - row[4]) as u64 * INTERVAL),
            ..Record::numbered(at as u64)
        });
        let pictures: Vec<Record> = pictures.collect();
        let bytes: u64 = pictures.iter().map(|picture| u64::from(picture.len)).sum();
        let bits_per_sec = bytes * 8 * 1_000_000_000 / (rows.len() as u64 * INTERVAL);
        Self { name, pictures, offers, bits_per_sec }
    }

    /// The pictures with deadlines as a viewer with this latency gets them.
    fn with_latency(&self, ms: u64) -> Vec<Record> {
        let bound = |picture: &Record| ms + if picture.is_key() { KEY_GRACE_MS } else { 0 };
        let deadline = |(picture, &offer): (&Record, &u64)| Record {
            deadline: Timestamp::from_nanos(offer) + Duration::from_millis(bound(picture)),
            ..*picture
        };
        self.pictures.iter().zip(&self.offers).map(deadline).collect()
    }

    fn play(&self, link: &Link, pictures: &[Record], choice: &mut dyn Choice) -> Score {
        let (arrivals, _) = Run::new(link).play_offered(pictures, &self.offers, choice);
        let mut is_there = vec![false; pictures.len()];
        let mut shown = Vec::new();
        for (at, arrival) in arrivals.into_iter().enumerate() {
            let Some(arrival) = arrival else { continue };
            let is_whole = |seq: Option<u64>| seq.is_some_and(|seq| is_there[seq as usize]);
            assert!(pictures[at].references().all(is_whole), "{}: {at} cannot be decoded", self.name);
            is_there[at] = true;
            shown.push(Shown { captured: pictures[at].generated, arrived: Timestamp::from_nanos(arrival) });
        }
        self.score(&shown)
    }

    fn ideal(&self, link: &Link) -> Score {
        let offers: Vec<Timestamp> = self.offers.iter().map(|&at| Timestamp::from_nanos(at)).collect();
        let end_of = |at: Timestamp, len| Timestamp::from_nanos(link.end(at.as_nanos(), len));
        self.score(&oracle(&self.pictures, &offers, &end_of, ONE_WAY, ORACLE_WAYS))
    }

    fn score(&self, shown: &[Shown]) -> Score {
        let end = self.offers.last().map_or(0, |last| last + INTERVAL);
        score(shown, Timestamp::from_nanos(FROM), Timestamp::from_nanos(end))
    }
}

/// The best of the fixed latencies in hindsight, with either policy that heeds deadlines.
fn best_fixed(stream: &Stream, link: &Link) -> (u64, Score) {
    let played = DEADLINES_MS.into_iter().flat_map(|ms| {
        let pictures = stream.with_latency(ms);
        let bounded = stream.play(link, &pictures, &mut Screen::default());
        let on_time = stream.play(link, &pictures, &mut frames());
        [(ms, bounded), (ms, on_time)]
    });
    played.min_by(|(_, one), (_, other)| one.cost.total_cmp(&other.cost)).expect("some latency")
}

fn cell(stream: &Stream, percent: u64) -> String {
    let link = Link::constant(stream.bits_per_sec * percent / 100, 2 * ONE_WAY.as_millis() as u64);
    let ideal = stream.ideal(&link);
    let ours = stream.play(&link, &stream.pictures, &mut Screen::default());
    let (latency, fixed) = best_fixed(stream, &link);
    // The goal is 1.3 times the oracle's age, which knows the size of what is to come: the table tells where it is missed.
    assert!(ours.mean_age <= 1.5 * ideal.mean_age, "{} {percent} %: {ours:?} {ideal:?}", stream.name);
    assert!(ours.cost <= 1.15 * fixed.cost + 0.01, "{} {percent} %: {ours:?} {fixed:?}", stream.name);
    let Score { cost, mean_age, p95_age, frozen, longest_gap, pictures_per_second, .. } = ours;
    format!(
        "{:14}{percent:4} %{cost:8.2}{mean_age:7.2}{p95_age:7.2}{frozen:8.2}{longest_gap:7.1}{pictures_per_second:7.1} |{:7.2}{:7.2}{:8.2} |{latency:6}{:8.2}{:7.2}{:8.2}",
        stream.name, ideal.cost, ideal.mean_age, ideal.frozen, fixed.cost, fixed.mean_age, fixed.frozen
    )
}

#[test]
fn the_screen_is_as_fresh_as_an_oracle_would_make_it() {
    let is_all = std::env::var("SCREEN").is_ok_and(|wanted| wanted == "all");
    let known = include_str!("screen.txt");
    let mut table = String::from(
        "stream         link    ours: cost    age    p95  frozen longest  pict/s | oracle: cost   age  frozen | best fixed latency: cost  age  frozen\n",
    );
    for (name, text) in STREAMS {
        let stream = Stream::new(name, text);
        for percent in LINKS {
            let is_short = SHORT.0.contains(&name) && SHORT.1.contains(&percent);
            if is_all || is_short {
                let line = cell(&stream, percent);
                println!("{line}");
                assert!(
                    std::env::var("UPDATE").is_ok() || known.lines().any(|other| other == line),
                    "not in screen.txt: review the change, then write the table with UPDATE=1: {line}"
                );
                writeln!(table, "{line}").expect("memory");
            }
        }
    }
    if is_all && std::env::var("UPDATE").is_ok() {
        std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/screen.txt"), table).expect("a file");
    }
}

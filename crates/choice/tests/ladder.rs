//! Random ladders of three renditions over links, in virtual time: which rendition a viewer has, and what its screen shows.
//!
//! The engine's own estimate of the path runs over a model of TCP. A cell is judged 20 s after the first
//! picture and after three keyframe intervals. It is right if the viewer then has the largest rendition that
//! needs at most 75 % of the link's capacity, or a larger one. Where none does, the smallest is right. The
//! capacity is measured with a transfer without end, because losses limit it too. A ladder with keyframes
//! every 10 s so has 30 s: it waits for a keyframe, and for another one with each step.
//!
//! `ladder.txt` is the result, which is reviewed with each change:
//!
//! ```text
//! LADDER=1000 cargo test -p freshwire-choice --test ladder -- --nocapture      # that number of cells, a line for each
//! UPDATE=1 cargo test -p freshwire-choice --test ladder                        # write the table
//! ```

// The estimate is private to the engine, which reads clocks and sockets; it does neither.
#[allow(dead_code, unused_imports)]
#[path = "../../freshwire/src/tcp/estimate.rs"]
mod estimate;
#[path = "../../freshwire/src/tcp/foreign.rs"]
mod foreign;
#[path = "../../freshwire/src/tcp/recent.rs"]
mod recent;
#[path = "ladder/tcp.rs"]
mod tcp;
#[path = "ladder/world.rs"]
mod world;

/// What the estimate publishes.
#[allow(dead_code)]
mod stats {
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct PathRate {
        pub(crate) at_least: bool,
        pub(crate) rate: freshwire_record::Rate,
    }
}

use std::fmt::Write as _;
use std::ops::Range;
use std::time::Duration;

use world::{Cell, CrossTraffic, Observation};

/// Cells of the table.
const CELLS: u64 = 120;
const WATCHED: Duration = Duration::from_secs(40);
const KEY_INTERVALS_MS: [u64; 6] = [480, 1000, 2000, 2000, 4000, 10_000];
const LOSSES: [f64; 6] = [0.0, 0.0, 0.0, 0.002, 0.01, 0.02];

struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        let mut random = Self((seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        (0..8).for_each(|_| _ = random.next());
        random
    }

    /// From 0 to 1.
    fn next(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Each factor is as likely.
    fn between(&mut self, low: f64, high: f64) -> f64 {
        low * (high / low).powf(self.next())
    }

    fn one_of<T: Copy>(&mut self, values: [T; 6]) -> T {
        values[(self.next() * 6.0) as usize]
    }
}

/// The cell of this number: ratios 1.3 to 10, 60 kbit/s to 50 Mbit/s over 100 kbit/s to 100 Mbit/s, 1 to 200 ms, up to 2 % lost.
fn cell(seed: u64, beside: CrossTraffic) -> Cell {
    let mut random = Random::new(seed);
    let lowest = random.between(60e3, 5e6);
    let middle = (lowest * random.between(1.3, 10.0)).min(50e6);
    let highest = (middle * random.between(1.3, 10.0)).min(50e6);
    Cell {
        rates: [highest, middle, lowest],
        link: random.between(1.2 * lowest, 2.5 * highest).clamp(100e3, 100e6),
        delay: Duration::from_secs_f64(random.between(0.001, 0.2)),
        key: random.between(3.0, 20.0),
        key_interval: Duration::from_millis(random.one_of(KEY_INTERVALS_MS)),
        loss: random.one_of(LOSSES),
        has_sound: random.next() < 0.5,
        is_early: random.next() < 0.5,
        is_shifted: random.next() < 0.5,
        beside,
        seed,
    }
}

/// What became of some cells.
#[derive(Default)]
struct Sums {
    cells: usize,
    right: usize,
    /// Seconds in a rendition that needs more than 95 % of the link.
    above: usize,
    freezes: usize,
    frozen: f64,
    /// Changes of the last 40 s: together, and the most in a cell.
    changes: usize,
    most_changes: usize,
    ages: Vec<(Duration, Duration)>,
    pictures: f64,
}

impl Sums {
    fn add(&mut self, cell: &Cell, is_verbose: bool) {
        let carries = cell.carries();
        let best = cell.best(carries, 0.75);
        let most = cell.best(carries, 0.95).min(best);
        let due = Duration::from_secs(20).max(cell.key_interval * 3);
        let (settled, end) = (Duration::from_secs(3), due + WATCHED);
        let seen = cell.run(end);
        let is_right = seen.rendition(due).is_some_and(|it| it <= best);
        let above =
            |second: &u64| seen.rendition(due + Duration::from_secs(*second)).is_some_and(|it| it < most);
        let above = (0..WATCHED.as_secs()).filter(above).count();
        let changes = seen.changes.iter().filter(|change| change.0 > due).count();
        let (freezes, frozen) = seen.freezes(settled);
        let age = seen.age(settled, end);
        let pictures = seen.pictures(settled, end);
        self.cells += 1;
        self.right += usize::from(is_right);
        self.above += above;
        self.freezes += freezes;
        self.frozen += frozen;
        self.changes += changes;
        self.most_changes = self.most_changes.max(changes);
        self.ages.push(age);
        self.pictures += pictures;
        if is_verbose {
            tell(cell, carries, is_right, &seen);
            println!(
                "     best {best}, {above} s above, {freezes} freezes of {frozen:.1} s, age {age:.0?}, {pictures:.1}/s"
            );
        }
    }

    fn line(mut self, name: &str) -> String {
        let mut place = |age: fn(&(Duration, Duration)) -> Duration, percent: usize| {
            self.ages.sort_unstable_by_key(age);
            age(&self.ages[(self.ages.len() - 1) * percent / 100]).as_secs_f64()
        };
        let (median, p95, worst) = (place(|age| age.0, 50), place(|age| age.1, 50), place(|age| age.1, 90));
        let Self { cells, right, above, freezes, frozen, changes, most_changes, pictures, .. } = self;
        let pictures = pictures / cells as f64;
        format!(
            "{name:9}{right:5} of {cells:3}{above:7}{freezes:9}{frozen:9.1}{changes:9}{most_changes:6}{median:8.2}{p95:8.2}{worst:8.2}{pictures:8.1}"
        )
    }
}

fn tell(cell: &Cell, carries: f64, is_right: bool, seen: &Observation) {
    let [high, middle, low] = cell.rates.map(|rate| (rate / 1e3) as u64);
    let changes: Vec<_> = seen.changes.iter().map(|(at, it)| (at.as_millis(), *it)).collect();
    println!(
        "{:4} {} {high}, {middle}, {low} kbit/s over {:.0} that carries {:.0}, {:.0?}, {} lost, keys of {:.1} each {:?}, sound {}, early {}, shifted {}: {changes:?}",
        cell.seed,
        if is_right { "right" } else { "WRONG" },
        cell.link / 1e3,
        carries / 1e3,
        cell.delay,
        cell.loss,
        cell.key,
        cell.key_interval,
        cell.has_sound,
        cell.is_early,
        cell.is_shifted,
    );
}

fn sweep(cells: Range<u64>, beside: CrossTraffic) -> Sums {
    let is_verbose = std::env::var_os("LADDER").is_some();
    let mut sums = Sums::default();
    cells.for_each(|seed| sums.add(&cell(seed, beside), is_verbose));
    sums
}

#[test]
fn a_viewer_gets_the_rendition_that_its_link_carries() {
    let count = std::env::var("LADDER").ok().and_then(|count| count.parse().ok()).unwrap_or(CELLS);
    let mut table = String::from(
        "beside         right  above  freezes   frozen  changes  most     age     p95  p95 90%  pict/s\n",
    );
    for (name, beside, share) in [
        ("nothing", CrossTraffic::Nothing, 1),
        ("download", CrossTraffic::Download, 3),
        ("viewer", CrossTraffic::Viewer, 3),
    ] {
        let sums = sweep(0..count / share, beside);
        let (right, cells, most) = (sums.right, sums.cells, sums.most_changes);
        let line = sums.line(name);
        println!("{line}");
        writeln!(table, "{line}").expect("memory");
        if beside == CrossTraffic::Nothing {
            assert!(right * 10 >= cells * 9, "{right} of {cells} are right");
        }
        assert!(most <= 8, "{most} changes in 40 s");
    }
    if count != CELLS {
        return;
    }
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ladder.txt"), &table).expect("a file");
        return;
    }
    assert_eq!(table, include_str!("ladder.txt"), "review the change, then write the table with UPDATE=1");
}

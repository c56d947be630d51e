//! Scenes of the congestion control over whole grids of links: a few of each class by default, all of them with `SCENES=all`.
//!
//! There are two grids. Constants and rules may be chosen by the results of [`TUNING`] (`make scenes`). [`HELD_OUT`]
//! has other links, queues and starting times that nothing is chosen by; only its figures are quoted (`make
//! held-out`).
//!
//! | class | bound |
//! |---|---|
//! | 2, 4, 8, 16 flows of our kind | loss at most twice CUBIC's on the same links; shares within a factor of two |
//! | beside CUBIC or NewReno | 0.4 to 2.5 of an even share in nine of ten scenes, the others never below a quarter of theirs |
//! | beside BBR | at least 0.15 of an even share |
//! | random loss up to 5 % | at least 0.9 of what the link carries |
//! | a policer, a queue of ten packets | at most 3 % lost |

use std::sync::Mutex;
use std::thread;

use freshwire_link::Loss;

use super::shared::Kind::{self, Bbr, Cubic, NewReno, Own};
use super::shared::flow;
use super::world::{Flow, Report, Scene, run};

mod held_out;
mod tuning;

/// A link's name, its rate in bits per second, and the way in milliseconds.
type Link = (&'static str, f64, u64);

/// Where the classes are measured.
struct Grid {
    links: &'static [Link],
    /// Links that crowds share.
    crowded: &'static [Link],
    /// Queues as parts of the content of a round trip; 0 means ten packets.
    queues: [f64; 4],
    /// Seconds between the beginnings of flows.
    apart: [f64; 2],
    /// Shares of packets lost by chance.
    random: [f64; 4],
    seeds: [u64; 2],
    /// Queues of policers, in bytes.
    policers: [u64; 2],
    known: Known,
}

/// The part of the scenes of each class that is known to miss its bound; see `docs/lab-notebook/2026-11-27-congestion-control.md`.
/// More is an error.
struct Known {
    lossy_crowds: f64,
    uneven_crowds: f64,
    outside: f64,
    starved: f64,
    below_bbr: f64,
    random: f64,
    policed: f64,
}

/// Whether `misses` of `scenes` are no more than is known, one scene more or less.
fn is_known(misses: usize, scenes: usize, part: f64) -> bool {
    misses as f64 <= (part * scenes as f64).ceil()
}

const SECONDS: f64 = 60.0;
/// What happens before is the start, which no bound is for.
const SETTLED: f64 = 15.0;
const TEN_PACKETS: u64 = 15_000;

/// Flows that start `apart` seconds apart.
fn flows(kinds: &[Kind], apart: f64) -> Vec<Flow> {
    kinds.iter().zip(0..).map(|(&kind, at)| flow(kind, f64::from(at) * apart)).collect()
}

/// What a round trip's queue holds.
fn product((_, bits, delay): Link) -> u64 {
    (bits / 8.0 * 0.002 * delay as f64) as u64
}

fn lost(reports: &[Report]) -> f64 {
    let sum = |of: fn(&Report) -> u64| reports.iter().map(of).sum::<u64>() as f64;
    sum(|report| report.lost) / sum(|report| report.sent)
}

/// Runs all scenes or one in `one_of`, two at a time.
fn each<T: Send, R: Send>(scenes: Vec<T>, one_of: usize, run: impl Fn(T) -> R + Sync) -> Vec<R> {
    let one_of = if std::env::var("SCENES").is_ok_and(|which| which == "all") { 1 } else { one_of };
    let scenes = Mutex::new(scenes.into_iter().step_by(one_of));
    let results = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let next = scenes.lock().unwrap().next();
                    let Some(scene) = next else { return };
                    let result = run(scene);
                    results.lock().unwrap().push(result);
                }
            });
        }
    });
    results.into_inner().unwrap()
}

/// Bytes of a queue that holds this number of round trips; 0 means ten packets.
fn queue(link: Link, round_trips: f64) -> u64 {
    if round_trips == 0.0 { TEN_PACKETS } else { ((product(link) as f64 * round_trips) as u64).max(4500) }
}

/// Multiples of an even share, once settled.
fn shares(reports: &[Report], bits: f64) -> Vec<f64> {
    let fair = bits / reports.len() as f64;
    reports.iter().map(|report| report.rate(SETTLED, SECONDS) / fair).collect()
}

fn spread(shares: &[f64]) -> f64 {
    let most = shares.iter().fold(0.0, |most: f64, &share| most.max(share));
    most / shares.iter().fold(f64::INFINITY, |least: f64, &share| least.min(share))
}

fn mean(values: impl Iterator<Item = f64> + Clone) -> f64 {
    values.clone().sum::<f64>() / values.count().max(1) as f64
}

struct Crowd {
    count: usize,
    lost: f64,
    spread: f64,
    cubic_lost: f64,
    cubic_spread: f64,
}

fn our_own_kind(grid: &Grid) {
    let mut scenes = Vec::new();
    for count in [2, 4, 8, 16] {
        for &link in grid.crowded {
            for &round_trips in &grid.queues[1..] {
                scenes.extend(grid.apart.map(|apart| (count, link, round_trips, apart)));
            }
        }
    }
    let crowds = each(scenes, 17, |(count, link, round_trips, apart)| {
        let (rate, bits, delay) = link;
        let scene = Scene::new(rate, delay).queue(queue(link, round_trips));
        let [own, cubic] = [Own, Cubic].map(|kind| {
            let reports = run(&scene, flows(&vec![kind; count], apart), SECONDS);
            (lost(&reports), spread(&shares(&reports, bits)))
        });
        println!(
            "{count:2} flows, {rate}, {delay} ms, {round_trips} round trips of queue, {apart} s apart: lost {:.4}, spread {:.2}; CUBIC {:.4}, {:.2}",
            own.0, own.1, cubic.0, cubic.1
        );
        Crowd { count, lost: own.0, spread: own.1, cubic_lost: cubic.0, cubic_spread: cubic.1 }
    });
    for count in [2, 4, 8, 16] {
        let of = || crowds.iter().filter(move |crowd| crowd.count == count);
        let scenes = of().count();
        let more = of().filter(|crowd| crowd.lost > 2.0 * crowd.cubic_lost + 0.001).count();
        let [own, cubic] = [mean(of().map(|crowd| crowd.lost)), mean(of().map(|crowd| crowd.cubic_lost))];
        let uneven = of().filter(|crowd| crowd.spread > 2.0).count();
        let cubic_uneven = of().filter(|crowd| crowd.cubic_spread > 2.0).count();
        println!(
            "{count} flows: mean loss {own:.4}, CUBIC {cubic:.4}; more than twice CUBIC's in {more} of {scenes}; shares not within two in {uneven}, CUBIC in {cubic_uneven}"
        );
        assert!(is_known(more, scenes, grid.known.lossy_crowds));
        assert!(is_known(uneven, scenes, grid.known.uneven_crowds));
    }
}

/// Our share, and the least of the others'.
fn beside(link: Link, round_trips: f64, apart: f64, kinds: &[Kind]) -> (f64, f64) {
    let (rate, bits, delay) = link;
    let reports = run(&Scene::new(rate, delay).queue(queue(link, round_trips)), flows(kinds, apart), SECONDS);
    let all = shares(&reports, bits);
    let pick = |ours: bool| all.iter().zip(kinds).filter(move |&(_, &kind)| (kind == Own) == ours);
    let own = pick(true).fold(f64::INFINITY, |least: f64, (&share, _)| least.min(share));
    let other = pick(false).fold(f64::INFINITY, |least: f64, (&share, _)| least.min(share));
    println!(
        "{rate}, {delay} ms, {round_trips} round trips of queue, {apart} s apart, {kinds:?}: {all:.2?}, lost {:.4}",
        lost(&reports)
    );
    (own, other)
}

fn beside_cubic_and_new_reno(grid: &Grid) {
    let others: [&[Kind]; 6] = [
        &[Own, Cubic],
        &[Cubic, Own],
        &[Own, NewReno],
        &[NewReno, Own],
        &[Own, Cubic, Cubic],
        &[Cubic, NewReno, Own],
    ];
    let mut scenes = Vec::new();
    for &link in grid.links {
        for round_trips in grid.queues {
            scenes.extend(others.map(|kinds| (link, round_trips, kinds)));
        }
    }
    let all = each(scenes, 17, |(link, round_trips, kinds)| beside(link, round_trips, grid.apart[0], kinds));
    let outside = all.iter().filter(|(own, _)| !(0.4..=2.5).contains(own)).count();
    let starved = all.iter().filter(|(_, other)| *other < 0.25).count();
    println!("{outside} of {} outside 0.4 to 2.5; another below a quarter in {starved}", all.len());
    assert!(is_known(outside, all.len(), grid.known.outside));
    assert!(is_known(starved, all.len(), grid.known.starved));
}

fn beside_bbr(grid: &Grid) {
    let others: [&[Kind]; 3] = [&[Own, Bbr], &[Bbr, Own], &[Own, Cubic, Bbr]];
    let mut scenes = Vec::new();
    for &link in grid.links {
        for round_trips in grid.queues {
            scenes.extend(others.map(|kinds| (link, round_trips, kinds)));
        }
    }
    let all = each(scenes, 13, |(link, round_trips, kinds)| beside(link, round_trips, grid.apart[0], kinds));
    let outside = all.iter().filter(|(own, _)| *own < 0.15).count();
    println!("{outside} of {} below 0.15", all.len());
    assert!(is_known(outside, all.len(), grid.known.below_bbr));
}

fn random_loss(grid: &Grid) {
    let mut scenes = Vec::new();
    for &link in grid.links {
        for share in grid.random {
            for round_trips in [grid.queues[0], grid.queues[2]] {
                scenes.extend(grid.seeds.map(|seed| (link, share, round_trips, seed)));
            }
        }
    }
    let used = each(scenes, 17, |(link, share, round_trips, seed)| {
        let (rate, bits, delay) = link;
        let scene =
            Scene::new(rate, delay).queue(queue(link, round_trips)).loss(Loss::Random { share }).seed(seed);
        let report = &run(&scene, flows(&[Own], 0.0), SECONDS)[0];
        let used = report.rate(5.0, SECONDS) / bits / (1.0 - share);
        println!(
            "{rate}, {delay} ms, {share} lost, {round_trips} round trips of queue, seed {seed}: {used:.3}"
        );
        used
    });
    let below = used.iter().filter(|&&used| used < 0.9).count();
    let least = used.iter().fold(1.0, |least: f64, &used| least.min(used));
    println!(
        "mean {:.3}, least {least:.3}; below 0.9 in {below} of {}",
        mean(used.iter().copied()),
        used.len()
    );
    assert!(is_known(below, used.len(), grid.known.random));
}

fn a_policer_or_a_queue_of_ten_packets(grid: &Grid) {
    let mut scenes = Vec::new();
    for &link in grid.links {
        let [one, two] = grid.policers;
        scenes.extend([one, two, TEN_PACKETS].map(|bytes| (link, bytes)));
    }
    let all = each(scenes, 5, |(link, bytes)| {
        let (rate, bits, delay) = link;
        let reports = run(&Scene::new(rate, delay).queue(bytes), flows(&[Own], 0.0), SECONDS);
        let (lost, used) = (lost(&reports), reports[0].rate(5.0, SECONDS) / bits);
        println!("{rate}, {delay} ms, {bytes} bytes: lost {lost:.4}, use {used:.3}");
        (lost, used)
    });
    let above = all.iter().filter(|(lost, _)| *lost > 0.03).count();
    println!(
        "above 3 % in {above} of {}; mean loss {:.4}, mean use {:.3}",
        all.len(),
        mean(all.iter().map(|one| one.0)),
        mean(all.iter().map(|one| one.1))
    );
    assert!(is_known(above, all.len(), grid.known.policed));
}

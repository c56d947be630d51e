//! Scenes over whole grids of links: a few of each by default, all of them with `SCENES=all` (`make scenes`). A change of the congestion
//! control that mends one scene is to be seen beside all others.

use std::sync::Mutex;
use std::thread;

use freshwire_link::Loss;

use super::shared::Kind::{self, Bbr, Cubic, Own};
use super::shared::flow;
use super::world::{Flow, Report, Scene, run};

/// A link's name, its rate in bits per second, and the way in milliseconds.
pub(super) type Link = (&'static str, f64, u64);

const LINKS: [Link; 12] = [
    ("5Mbit", 5e6, 10),
    ("5Mbit", 5e6, 20),
    ("5Mbit", 5e6, 50),
    ("10Mbit", 1e7, 10),
    ("10Mbit", 1e7, 20),
    ("10Mbit", 1e7, 50),
    ("20Mbit", 2e7, 10),
    ("20Mbit", 2e7, 20),
    ("20Mbit", 2e7, 50),
    ("50Mbit", 5e7, 10),
    ("50Mbit", 5e7, 20),
    ("50Mbit", 5e7, 50),
];
const SECONDS: f64 = 60.0;
const TEN_PACKETS: u64 = 15_000;

/// Flows that begin so many seconds apart.
pub(super) fn flows(kinds: &[Kind], apart: f64) -> Vec<Flow> {
    kinds.iter().zip(0..).map(|(&kind, at)| flow(kind, f64::from(at) * apart)).collect()
}

/// What a round trip's queue holds.
pub(super) fn product((_, bits, delay): Link) -> u64 {
    (bits / 8.0 * 0.002 * delay as f64) as u64
}

pub(super) fn lost(reports: &[Report]) -> f64 {
    let sum = |of: fn(&Report) -> u64| reports.iter().map(of).sum::<u64>() as f64;
    sum(|report| report.lost) / sum(|report| report.sent)
}

/// Runs all scenes or one of so many, two at a time.
pub(super) fn each<T: Send, R: Send>(scenes: Vec<T>, one_of: usize, run: impl Fn(T) -> R + Sync) -> Vec<R> {
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

#[test]
fn three_flows_are_seldom_outside_their_share() {
    let mut scenes = Vec::new();
    for link in LINKS {
        for queue in [TEN_PACKETS, product(link) / 2, product(link), 2 * product(link)] {
            for apart in [0.2, 0.5, 1.0] {
                let others = [[Cubic, Cubic], [Cubic, Bbr], [Bbr, Bbr], [Own, Own]];
                scenes.extend(others.map(|[one, two]| (link, queue, apart, [Own, one, two])));
            }
        }
    }
    let outside = each(scenes, 53, |(link, queue, apart, kinds)| {
        let (rate, bits, delay) = link;
        let reports = run(&Scene::new(rate, delay).queue(queue), flows(&kinds, apart), SECONDS);
        let shares: Vec<f64> = reports.iter().map(|report| report.rate(0.0, SECONDS) / bits * 3.0).collect();
        let ours = shares.iter().zip(kinds).filter(|&(_, kind)| kind == Own);
        let is_outside = ours.clone().any(|(share, _)| !(0.5..=2.0).contains(share));
        if is_outside {
            println!("outside: {rate}, {delay} ms, {queue} bytes, {apart} s apart, {kinds:?}: {shares:.2?}");
        }
        is_outside
    });
    let count = outside.iter().filter(|&&outside| outside).count();
    println!("{count} of {} scenes with one of ours outside 0.5 to 2", outside.len());
    assert!(count <= outside.len().div_ceil(40));
}

#[test]
fn crowds_lose_no_more_than_they_did() {
    let mut scenes = Vec::new();
    for count in [4, 8, 16] {
        for link in [("5Mbit", 5e6, 10), ("10Mbit", 1e7, 20), ("20Mbit", 2e7, 30), ("50Mbit", 5e7, 20)] {
            for round_trips in [0.35, 1.0, 1.9] {
                scenes.extend([0.17, 0.5, 1.1].map(|apart| (count, link, round_trips, apart)));
            }
        }
    }
    let losses = each(scenes, 31, |(count, link, round_trips, apart)| {
        let (rate, _, delay) = link;
        let queue = ((product(link) as f64 * round_trips) as u64).max(3000);
        let reports = run(&Scene::new(rate, delay).queue(queue), flows(&vec![Own; count], apart), SECONDS);
        let lost = lost(&reports);
        println!(
            "{count} flows, {rate}, {round_trips} round trips of queue, {apart} s apart: {lost:.3} lost"
        );
        lost
    });
    let mean = losses.iter().sum::<f64>() / losses.len() as f64;
    println!("{mean:.4} lost in the mean of {} scenes", losses.len());
    assert!(mean < 0.16);
}

#[test]
fn random_loss_starves_nobody_whatever_the_queue_holds() {
    let mut scenes = Vec::new();
    for rate in [("5Mbit", 5e6), ("20Mbit", 2e7), ("50Mbit", 5e7), ("100Mbit", 1e8)] {
        for delay in [5, 20, 50] {
            let link = (rate.0, rate.1, delay);
            for share in [0.005, 0.02, 0.05, 0.15] {
                for queue in [TEN_PACKETS, product(link)] {
                    scenes.extend([0, 1, 2].map(|seed| (link, share, queue, seed)));
                }
            }
        }
    }
    let used = each(scenes, 37, |(link, share, queue, seed)| {
        let (rate, bits, delay) = link;
        let scene = Scene::new(rate, delay).queue(queue).loss(Loss::Random { share }).seed(seed);
        let report = &run(&scene, flows(&[Own], 0.0), 40.0)[0];
        let used = report.rate(5.0, 40.0) / bits / (1.0 - share);
        println!(
            "{rate}, {delay} ms, {share} lost, {queue} bytes, seed {seed}: {used:.3} of what it carries"
        );
        used
    });
    let mean = used.iter().sum::<f64>() / used.len() as f64;
    let least = used.iter().fold(1.0, |least: f64, &used| least.min(used));
    println!("{mean:.3} of what it carries in the mean of {} scenes, {least:.3} at least", used.len());
    assert!(mean > 0.94 && least > 0.4);
}

//! Flows that share a drop-tail bottleneck.

use freshwire_link::Loss;

use super::super::*;
use super::bbr::Bbr;
use super::world::{Flow, Scene, Source, run};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    /// The default.
    Own,
    Cubic,
    NewReno,
    Bbr,
}

pub(super) fn flow(kind: Kind, begins_s: f64) -> Flow {
    let new = |controller| Flow::new(controller, begins_s, Source::Bulk);
    match kind {
        Kind::Own => new(Controller::Copa),
        Kind::Cubic => new(Controller::Cubic),
        Kind::NewReno => new(Controller::NewReno),
        Kind::Bbr => new(Controller::Cubic).with(Box::new(Bbr::new(1200))),
    }
}

/// What each flow gets in a minute, as a multiple of its fair share.
fn shares(scene: &Scene, bits: f64, kinds: &[Kind]) -> Vec<f64> {
    let flows = kinds.iter().zip(0..).map(|(&kind, at)| flow(kind, f64::from(at) * 0.5)).collect();
    let fair = bits / kinds.len() as f64;
    run(scene, flows, 60.0).iter().map(|report| report.rate(0.0, 60.0) / fair).collect()
}

#[test]
fn three_flows_get_a_share() {
    use Kind::{Bbr, Cubic, NewReno, Own};
    println!("rate     delay  queue    A1 beside            multiples of the fair share");
    for (rate, bits, delay) in [("5Mbit", 5e6, 5), ("5Mbit", 5e6, 20), ("10Mbit", 1e7, 20)] {
        let product = (bits / 8.0 * 0.002 * delay as f64) as u64;
        for queue in [15_000, 4 * product] {
            for others in [[Cubic, Cubic], [NewReno, Cubic], [Bbr, Bbr], [Cubic, Bbr], [Own, Own]] {
                let scene = Scene::new(rate, delay).queue(queue);
                let shares = shares(&scene, bits, &[Own, others[0], others[1]]);
                println!("{rate:8} {delay:2} ms  {queue:6}  {others:?}  {shares:.2?}");
                let range = if others.contains(&Bbr) { 0.15..=3.0 } else { 0.4..=2.5 };
                assert!(range.contains(&shares[0]), "{shares:?}");
            }
        }
    }
}

#[test]
fn flows_of_our_kind_share_a_fast_path_and_keep_its_queue_short() {
    for (delay, queue) in [(20, 250_000), (50, 625_000)] {
        for apart in [0.1, 0.3, 1.0] {
            let scene = Scene::new("50Mbit", delay).queue(queue);
            let flows = (0..3).map(|at| flow(Kind::Own, f64::from(at) * apart)).collect();
            let reports = run(&scene, flows, 60.0);
            let shares: Vec<f64> = reports.iter().map(|report| report.rate(15.0, 60.0) / 5e7 * 3.0).collect();
            let wait = reports[0].wait(15.0, 60.0, 0.5);
            println!("{delay} ms, {apart} s apart: {shares:.2?}, wait {wait:.1?}");
            assert!(shares.iter().all(|share| (0.5..2.0).contains(share)), "{shares:?}");
            assert!(wait < Duration::from_millis(12), "{wait:?}");
        }
    }
}

#[test]
fn one_that_comes_late_gets_its_share() {
    for kinds in [[Kind::Own, Kind::Cubic], [Kind::Cubic, Kind::Own], [Kind::Own, Kind::Own]] {
        let scene = Scene::new("10Mbit", 20).queue(50_000);
        let flows = vec![flow(kinds[0], 0.0), flow(kinds[1], 10.0)];
        let reports = run(&scene, flows, 60.0);
        let share = reports[1].rate(20.0, 60.0) / 5e6;
        println!("{:?} joins {:?} after 10 s: {share:.2} of its share", kinds[1], kinds[0]);
        assert!((0.4..1.75).contains(&share), "{share}");
    }
}

#[test]
fn when_the_others_are_gone_the_queue_is_short_again() {
    let scene = Scene::new("10Mbit", 20).queue(100_000);
    let mut cubic = flow(Kind::Cubic, 2.0);
    cubic.end_at(20.0);
    let reports = run(&scene, vec![flow(Kind::Own, 0.0), cubic], 40.0);
    let beside = reports[0].wait(10.0, 20.0, 0.5);
    let alone = reports[0].wait(30.0, 40.0, 0.5);
    let used = reports[0].rate(30.0, 40.0) / 1e7;
    println!("wait beside CUBIC {beside:.1?}, after it {alone:.1?}, use {used:.3}");
    assert!(beside > 3 * alone);
    assert!(alone < Duration::from_millis(20));
    assert!(used > 0.95);
}

/// Such a queue shows next to nothing of the others: who comes first keeps most. Nobody is kept out.
#[test]
fn nobody_is_kept_out_of_a_queue_of_ten_packets() {
    for (rate, bits, delay) in [("20Mbit", 2e7, 50), ("50Mbit", 5e7, 20)] {
        for other in [Kind::Own, Kind::Cubic] {
            // Machines that stand still now and then make packets late as a queue would.
            let [every, length] = [2900, 6].map(Duration::from_millis);
            let scene = Scene::new(rate, delay).queue(15_000).pauses(every, length);
            let shares = shares(&scene, bits, &[Kind::Own, other, other]);
            println!("{rate}, {delay} ms, beside {other:?}: {shares:.2?}");
            assert!(shares[1] + shares[2] > 0.3, "{shares:?}");
        }
    }
}

/// Random loss differs from the losses of such a queue.
#[test]
fn random_loss_in_a_short_queue_is_not_taken_for_other_flows() {
    for (rate, bits, delay) in [("20Mbit", 2e7, 50), ("50Mbit", 5e7, 50)] {
        for share in [0.005, 0.02] {
            let scene = Scene::new(rate, delay).queue(15_000).loss(Loss::Random { share });
            let used = run(&scene, vec![flow(Kind::Own, 0.0)], 40.0)[0].rate(5.0, 40.0) / bits;
            println!("{rate}, {delay} ms, {share} lost: {used:.3} of the rate");
            assert!(used > 0.75, "{used}");
        }
    }
}

/// The share of their packets that `flows` of our kind lose in a minute, over links of these rates, delays
/// and queues, when they start `apart` seconds apart.
fn lost_by_crowds(flows: u32, links: &[(&str, u64, u64)], apart: &[f64]) -> f64 {
    let (mut lost, mut sent) = (0, 0);
    for &(rate, delay, queue) in links {
        for apart in apart {
            let scene = Scene::new(rate, delay).queue(queue);
            let crowd = (0..flows).map(|at| flow(Kind::Own, f64::from(at) * apart)).collect();
            for report in run(&scene, crowd, 60.0) {
                lost += report.lost;
                sent += report.sent;
            }
        }
    }
    lost as f64 / sent as f64
}

/// They keep the queue full until all of them take it for the path; what is lost is the only sign then. How much is chaotic: only a mean
/// says something.
#[test]
fn many_of_our_kind_do_not_make_each_other_lose_most() {
    for (flows, rate, delay, queue, most) in [
        (8, "10Mbit", 20, 16_000, 0.2),
        (8, "10Mbit", 20, 50_000, 0.2),
        (8, "5Mbit", 10, 12_500, 0.3),
        (16, "10Mbit", 20, 16_000, 0.31),
        (16, "10Mbit", 20, 50_000, 0.3),
    ] {
        let share = lost_by_crowds(flows, &[(rate, delay, queue)], &[0.17, 0.3, 0.5]);
        println!("{flows} flows, {rate}, a queue of {queue} B: {share:.3} lost");
        assert!(share < most, "{share}");
    }
}

#[test]
fn a_few_of_our_kind_on_a_fast_path_lose_next_to_nothing() {
    let links =
        [("20Mbit", 30, 52_500), ("20Mbit", 30, 150_000), ("50Mbit", 20, 87_500), ("50Mbit", 20, 475_000)];
    let share = lost_by_crowds(4, &links, &[0.17, 0.5, 1.1]);
    println!("4 flows, 12 scenes: {share:.4} lost");
    assert!(share < 0.012, "{share}");
}

//! One flow on a link of its own.

use freshwire_link::Loss;

use super::super::*;
use super::world::{Flow, Report, Scene, Source, run};

const RANDOM: Loss = Loss::Random { share: 0.05 };
const BURSTS: Loss = Loss::Burst { share: 0.05, mean_packets: 4.0 };

fn bulk(scene: &Scene, controller: Controller, seconds: f64) -> Report {
    run(scene, vec![Flow::new(controller, 0.0, Source::Bulk)], seconds).remove(0)
}

/// What arrives after the first fifth, of what the link carries less its loss.
fn use_of(scene: &Scene, bits: f64, report: &Report, seconds: f64) -> f64 {
    report.rate(seconds / 5.0, seconds) / (bits * (1.0 - scene.loss.average()))
}

#[test]
fn random_loss_does_not_starve_it_and_the_queue_stays_short() {
    println!("rate        delay  loss     use    wait p50   p95       first fifth");
    for (rate, bits, seconds) in [
        ("256Kibit", 262_144.0, 40.0),
        ("512Kibit", 524_288.0, 40.0),
        ("1Mibit", 1_048_576.0, 40.0),
        ("6Mbit", 6e6, 20.0),
        ("100Mbit", 1e8, 10.0),
    ] {
        for delay in [0, 50, 100] {
            for (loss, name, least) in
                [(Loss::None, "none", 0.9), (RANDOM, "5 %", 0.9), (BURSTS, "5 % in bursts", 0.8)]
            {
                let scene = Scene::new(rate, delay).loss(loss);
                let report = bulk(&scene, Controller::Copa, seconds);
                let used = use_of(&scene, bits, &report, seconds);
                let waits = [0.5, 0.95].map(|share| report.wait(seconds / 5.0, seconds, share));
                println!(
                    "{rate:10} {delay:4} ms  {name:14} {used:5.3}  {:8.1?}  {:8.1?}  {:5.3}",
                    waits[0],
                    waits[1],
                    report.rate(0.0, seconds / 5.0) / bits
                );
                let wide = bits > 5e7 && delay > 10;
                assert!(used > if wide { 0.58 } else { least }, "{used}");
                let packet = Duration::from_secs_f64(1500.0 * 8.0 / bits);
                assert!(waits[0] <= (packet * 9 / 2).max(Duration::from_millis(16)));
            }
        }
    }
}

/// Far more loss than chance explains looks like congestion, and is answered as CUBIC does: the known price of yielding to crowds and
/// policers. It goes on, slowly.
#[test]
fn very_much_random_loss_leaves_a_little() {
    for share in [0.2, 0.35] {
        for delay in [10, 50] {
            let scene = Scene::new("6Mbit", delay).loss(Loss::Random { share });
            let report = bulk(&scene, Controller::Copa, 40.0);
            let used = use_of(&scene, 6e6, &report, 40.0);
            println!("{share} lost, {delay} ms: {used:.3}");
            assert!(used > 0.01, "{used}");
        }
    }
}

#[test]
fn a_fast_link_with_a_short_queue_and_a_path_without_limit() {
    let scene = Scene::new("1Gbit", 0);
    let report = bulk(&scene, Controller::Copa, 1.0);
    assert!(use_of(&scene, 1e9, &report, 1.0) > 0.9);
    let frames = Source::Bursts { bytes: 2_000_000, period: Duration::from_millis(100) };
    let unlimited =
        run(&Scene::new("none", 1), vec![Flow::new(Controller::Copa, 0.0, frames)], 3.0).remove(0);
    println!("2 MB over a path without limit, 1 ms: {:.1?}", unlimited.bursts);
    assert!(unlimited.bursts.last().is_some_and(|took| *took < Duration::from_millis(60)));
}

#[test]
fn the_references_lose_what_random_loss_takes() {
    let scene = Scene::new("6Mbit", 50).loss(RANDOM);
    for (controller, most) in [(Controller::Cubic, 0.5), (Controller::NewReno, 0.4)] {
        let used = use_of(&scene, 6e6, &bulk(&scene, controller, 20.0), 20.0);
        println!("{controller:?} at 6 Mbit/s, 50 ms, 5 %: {used:.3}");
        assert!(used < most, "then Copa has nothing to show");
        let clean = Scene::new("6Mbit", 50);
        let used = use_of(&clean, 6e6, &bulk(&clean, controller, 20.0), 20.0);
        println!("{controller:?} at 6 Mbit/s, 50 ms: {used:.3}");
        assert!(used > 0.8);
    }
}

/// Where a bottleneck drops at once what is too fast for it, there is no queue to see; loss is the only sign.
#[test]
fn a_policer_is_not_flooded() {
    for queue in [1500, 3000, 6000] {
        let scene = Scene::new("10Mbit", 20).queue(queue);
        let report = bulk(&scene, Controller::Copa, 20.0);
        let used = use_of(&scene, 1e7, &report, 20.0);
        let lost = report.lost as f64 / report.sent as f64;
        println!("a queue of {queue} B: use {used:.3}, lost {lost:.3}");
        assert!(lost <= 0.03, "{lost}");
        assert!(used > 0.5, "{used}");
    }
}

#[test]
fn a_policer_is_used_whatever_the_round_trip_is() {
    for delay_ms in [10, 15, 20, 21, 25, 40] {
        let scene = Scene::new("10Mbit", delay_ms).queue(1500);
        let report = bulk(&scene, Controller::Copa, 20.0);
        let used = use_of(&scene, 1e7, &report, 20.0);
        let lost = report.lost as f64 / report.sent as f64;
        println!("{delay_ms} ms: use {used:.3}, lost {lost:.3}");
        assert!(used > 0.5 && lost <= 0.03, "{delay_ms} ms: {used}, {lost}");
    }
}

#[test]
fn a_step_of_the_rate_is_followed() {
    let scene = Scene::new("6Mbit", 30).trace("0 6Mbit\n5 1Mbit\n10 6Mbit");
    let report = bulk(&scene, Controller::Copa, 15.0);
    for (from, to, bits) in [(2.0, 5.0, 6e6), (5.5, 10.0, 1e6), (11.0, 15.0, 6e6)] {
        let used = report.rate(from, to) / bits;
        let wait = report.wait(from, to, 0.5);
        println!("6, 1, 6 Mbit/s: {from} s to {to} s: use {used:.3}, wait {wait:.1?}");
        assert!(used > 0.9, "{used}");
    }
    // Packets in flight at six times the rate were lost three times over, which is taken for congestion for
    // ten seconds. The queue holds 120 ms.
    assert!(report.wait(6.5, 10.0, 0.5) < Duration::from_millis(120));
    // A second later most of the new rate is in use.
    assert!(report.rate(11.0, 12.0) > 0.5 * 6e6);
}

#[test]
fn an_outage_costs_little_more_than_itself() {
    let scene = Scene::new("6Mbit", 30).trace("0 6Mbit\n5 0\n10 6Mbit");
    let report = bulk(&scene, Controller::Copa, 15.0);
    let back = report.rate(11.0, 15.0) / 6e6;
    println!("after an outage of 5 s: use {back:.3}, {} packets lost", report.lost);
    assert!(back > 0.95, "{back}");
    assert!(report.rate(10.5, 11.0) > 0.7 * 6e6);
    // Into the silence goes what was in flight, and then a few packets each half second.
    assert!(report.lost < 300, "{}", report.lost);
}

#[test]
fn bursts_leave_at_the_rate_of_the_ones_before() {
    println!("128 KiB each second: first, second, and longest of the others");
    for (rate, bits, delay) in
        [("6Mbit", 6e6, 0), ("6Mbit", 6e6, 50), ("100Mbit", 1e8, 10), ("100Mbit", 1e8, 50)]
    {
        for loss in [Loss::None, RANDOM] {
            let source = Source::Bursts { bytes: 131_072, period: Duration::from_secs(1) };
            let scene = Scene::new(rate, delay).loss(loss);
            let report = run(&scene, vec![Flow::new(Controller::Copa, 0.0, source)], 10.5).remove(0);
            let later = report.bursts[5..].iter().max().copied().unwrap_or_default();
            println!(
                "{rate} {delay} ms {loss:?}: {:.0?} {:.0?} {later:.0?}",
                report.bursts[0], report.bursts[1]
            );
            let carry = Duration::from_secs_f64(131_072.0 * 1.02 * 8.0 / bits);
            // A loss at the end costs a round trip, and the repair may be lost too.
            let one_way = Duration::from_millis(delay);
            let repair = if loss == Loss::None { Duration::ZERO } else { 4 * one_way + carry / 4 };
            assert!(later < carry * 3 / 2 + one_way + repair + Duration::from_millis(25), "{later:?}");
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let arrivals =
        |seed| bulk(&Scene::new("6Mbit", 20).loss(RANDOM).seed(seed), Controller::Copa, 5.0).arrivals;
    assert_eq!(arrivals(7), arrivals(7));
    assert_ne!(arrivals(7), arrivals(8));
}

//! A1 fills fast paths, whatever their queue holds, and leaves the queue short.

use std::time::Duration;

use freshwire_sim::{SpeedConfig, SpeedOutcome};

fn run(rate: &str, round_trip_ms: u64, buffer: f64, loss: f64, flows: usize) -> SpeedOutcome {
    let config = SpeedConfig {
        rate: rate.parse().expect("a rate"),
        round_trip: Duration::from_millis(round_trip_ms),
        buffer,
        loss,
        flows,
        round_trips: 60,
        seed: 1,
    };
    let outcome = config.run();
    println!("{rate}, {round_trip_ms} ms, buffer {buffer}, loss {loss}, {flows} flows: {outcome:?}");
    outcome
}

/// Rates by factors of ten, and queues from a quarter of what the path carries in a round trip to four times that.
#[test]
fn fast_paths_are_filled_and_their_queues_stay_short() {
    for (rate, ms, buffer, loss, flows) in [
        ("100Mbit", 10, 0.25, 0.001, 1),
        ("100Mbit", 100, 1.0, 0.0, 1),
        ("1Gbit", 1, 0.25, 0.0, 1),
        ("1Gbit", 1, 4.0, 0.001, 4),
        ("1Gbit", 10, 1.0, 0.0, 1),
        ("10Gbit", 1, 0.25, 0.0001, 1),
        ("10Gbit", 1, 4.0, 0.0, 1),
    ] {
        let outcome = run(rate, ms, buffer, loss, flows);
        assert!(outcome.used > 0.93, "{}", outcome.used);
        let filled = outcome.filled_after.expect("it is filled") / ms as u32;
        assert!(filled < Duration::from_millis(26), "filled after {filled:?} / 1 ms round trips");
        let queue = outcome.queue[0];
        assert!(queue <= Duration::from_millis(ms).mul_f64(0.25).max(Duration::from_millis(1)), "{queue:?}");
        assert!(outcome.dropped[1] < 0.01, "{:?}", outcome.dropped);
    }
}

/// A burst of the pacer is no longer than a small part of the round trip, or four flows overflow a short queue by their bursts alone.
#[test]
fn bursts_of_four_flows_fit_into_a_short_queue() {
    let outcome = run("1Gbit", 1, 0.25, 0.0, 4);
    assert!(outcome.used > 0.95 && outcome.dropped[1] < 0.08, "{outcome:?}");
    assert!(outcome.shares[0] > 0.5, "{outcome:?}");
}

#[test]
fn the_same_seed_gives_the_same_outcome() {
    let of = |seed| SpeedConfig {
        rate: "100Mbit".parse().unwrap(),
        round_trip: Duration::from_millis(5),
        buffer: 1.0,
        loss: 0.01,
        flows: 2,
        round_trips: 20,
        seed,
    };
    assert_eq!(of(7).run(), of(7).run());
    assert_ne!(of(7).run(), of(8).run());
}

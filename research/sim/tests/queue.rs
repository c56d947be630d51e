//! The receive queue of Choi, Kim and Yoo: what holds in every experiment, what is pinned with its seed, and what the article's
//! figures say.
#![forbid(unsafe_code)]

use freshwire_sim::queue::{
    Config, ConfigError, Mean, Outcome, PushConfig, Reading, Regression, Spread, TABLE_2, mean_of, simulate,
    table_2,
};

const REPETITIONS: u32 = 1000;
const SEED: u64 = 1;

#[test]
fn every_packet_is_accounted_for_in_any_experiment() {
    let reading = [Reading::Batch, Reading::Serial, Reading::Overlapping];
    bolero::check!().with_type::<(u64, (u8, u8, u8), (u8, u8), (u8, u8, bool), Option<(u8, u8)>)>().for_each(
        |(seed, sizes, times, rest, push)| {
            let config = Config {
                nic_packets: usize::from(sizes.0) + 1,
                socket_packets: usize::from(sizes.1 % 70) + 1,
                processes: usize::from(sizes.2 % 5) + 1,
                arrival_ticks: 0.1 + f64::from(times.0) / 40.0,
                transaction_ticks: 0.1 + f64::from(times.1) / 20.0,
                length_ticks: 100.0,
                reading: reading[usize::from(rest.0) % 3],
                spread: if rest.2 { Spread::Even } else { Spread::First },
                receive_ticks: 0.5,
                receive_packets: usize::from(rest.1 % 80) + 1,
                push: push.map(|(ticks, packets)| PushConfig {
                    mean_ticks: 0.01 + f64::from(ticks) / 100.0,
                    packets: usize::from(packets) + 1,
                }),
            };
            let outcome = simulate(&config, *seed).expect("every value is in its range");
            let Outcome { arrived, nic_refused, refused, taken, left, .. } = outcome;
            assert_eq!(arrived, nic_refused + refused + taken + left, "{config:?}");
            assert!(outcome.lengths.iter().all(|(_, length)| *length <= config.socket_packets));
            assert!(outcome.lengths.is_sorted_by(|a, b| a.0 <= b.0), "time goes forward");
            assert!((0.0..=config.length_ticks + 1e-6).contains(&outcome.idle_ticks));
            assert!(outcome.pushes <= outcome.takes && outcome.overflows <= outcome.refused);
            assert!(config.push.is_some() || outcome.pushes == 0);
            assert_eq!(outcome, simulate(&config, *seed).expect("as before"), "the seed decides everything");
        },
    );
}

#[test]
fn impossible_experiments_are_refused() {
    let refused = |change: fn(&mut Config)| {
        let mut config = Config::default();
        change(&mut config);
        simulate(&config, 1).expect_err("an impossible value")
    };
    assert_eq!(refused(|c| c.processes = 0), ConfigError::Zero { name: "processes" });
    assert_eq!(refused(|c| c.arrival_ticks = 0.0), ConfigError::Time { name: "arrival_ticks", value: 0.0 });
    assert!(matches!(refused(|c| c.transaction_ticks = f64::NAN), ConfigError::Time { .. }));
    assert!(matches!(refused(|c| c.length_ticks = 1e9), ConfigError::TooLong { .. }));
    let push = PushConfig { packets: 0, ..PushConfig::default() };
    assert!(simulate(&Config::default().with_push(push), 1).is_err());
}

/// The article's table 2 and the shares of its regression.
#[test]
fn best_reading_is_close_to_the_published_table() {
    let cells = table_2(&Config::default(), SEED, REPETITIONS).expect("the defaults are valid");
    for cell in cells {
        assert!((cell.mean.value - cell.published).abs() < 1.25, "{cell:?}");
        assert!(cell.mean.error < 0.5, "{cell:?}");
    }
    let shares = Regression::of(cells.map(|cell| cell.mean.value)).shares();
    for (ours, published) in shares.into_iter().zip([0.8075, 0.1875, 0.0052]) {
        assert!((ours - published).abs() < 0.03, "{shares:?}");
    }
}

/// Root of the mean squared distance from table 2, in packets.
fn distance(config: &Config) -> f64 {
    let cells = table_2(config, SEED, REPETITIONS).expect("a valid experiment");
    let squares: f64 = cells.iter().map(|cell| (cell.mean.value - cell.published).powi(2)).sum();
    (squares / cells.len() as f64).sqrt()
}

#[test]
fn other_readings_fit_worse() {
    let best = distance(&Config::default());
    for reading in [Reading::Serial, Reading::Overlapping] {
        assert!(distance(&Config { reading, ..Config::default() }) > 5.0 * best, "{reading:?}");
    }
}

/// Figures 9 and 10: with push nothing overflows; without it the more the longer the transaction, least at an interval of 4.
#[test]
fn push_ends_every_overflow() {
    for interval in [1.0, 2.0, 3.0, 4.0] {
        let mut refused = Vec::new();
        for delay in [2.0, 4.0, 6.0, 8.0] {
            let plain = Config::default().with_factors(interval, delay);
            let of = |config| mean_of(config, SEED, 200, |outcome| [outcome.refused as f64]).expect("valid");
            let [Mean { value, .. }] = of(&plain);
            refused.push(value);
            assert_eq!(of(&plain.with_push(PushConfig::default()))[0].value, 0.0, "{interval} {delay}");
        }
        assert!(refused.is_sorted(), "interval {interval}: {refused:?}");
        match interval {
            1.0 => {
                assert!(refused[1] > 0.9 * refused[3], "a full system does not get much fuller: {refused:?}")
            }
            4.0 => assert!(refused[3] < 1.5, "the published figure has none: {refused:?}"),
            _ => assert!(refused[3] > 10.0, "{refused:?}"),
        }
    }
}

/// Figure 12: a longer transaction costs the plain system nearly all its takes (published: 88.2 %), one with push little (16.7 %).
#[test]
fn push_keeps_the_takes_when_transactions_get_longer() {
    let drop = |push: Option<PushConfig>| {
        let [short, long] = [5.0, 10.0].map(|delay| {
            let config = Config { push, ..Config::default().with_factors(2.0, delay) };
            mean_of(&config, SEED, REPETITIONS, |outcome| [outcome.takes as f64]).expect("valid")[0].value
        });
        1.0 - long / short
    };
    let with_push = drop(Some(PushConfig { packets: 10, ..PushConfig::default() }));
    assert!((with_push - 0.167).abs() < 0.02, "{with_push}");
    let plain = drop(None);
    assert!((0.88..0.98).contains(&plain), "{plain}");
}

/// The idle time is what decides, and the system's work does not depend on who receives.
#[test]
fn number_of_processes_changes_no_idle_time() {
    let idle = |processes, spread| {
        let config = Config { processes, spread, ..Config::default() };
        simulate(&config, SEED).expect("valid").idle_ticks
    };
    for spread in [Spread::First, Spread::Even] {
        for processes in [2, 3, 5, 10] {
            assert!((idle(processes, spread) - idle(1, spread)).abs() < 1e-6, "{processes} {spread:?}");
        }
    }
    let lengths =
        |processes| simulate(&Config { processes, ..Config::default() }, SEED).expect("valid").lengths;
    assert_eq!(lengths(1), lengths(10));
}

/// The same file is what the SimPy model of `lab/` is held to.
#[test]
fn pinned_results_are_those_that_the_second_model_is_held_to() {
    let pinned = include_str!("../../python/tests/data/queue.txt");
    let mut lines = pinned.lines().filter(|line| !line.starts_with('#'));
    for (interval, delay, _) in TABLE_2 {
        for push in [0, 10, 64] {
            let mut config = Config::default().with_factors(interval, delay);
            if push > 0 {
                config.push = Some(PushConfig { packets: push, ..PushConfig::default() });
            }
            let means = mean_of(&config, SEED, REPETITIONS, |outcome| {
                let Outcome { refused, takes, pushes, taken, .. } = *outcome;
                let counts = [refused, takes, pushes, taken].map(|count| count as f64);
                [
                    outcome.mean_length,
                    outcome.time_mean_length,
                    outcome.idle_ticks,
                    counts[0],
                    counts[1],
                    counts[2],
                    counts[3],
                ]
            })
            .expect("valid");
            let numbers = means.iter().flat_map(|mean| [mean.value, mean.error]);
            let ours: Vec<f64> = [interval, delay, push as f64].into_iter().chain(numbers).collect();
            let line = lines.next().unwrap_or_default();
            let theirs: Vec<f64> = line.split_whitespace().map(|word| word.parse().unwrap()).collect();
            // Logarithms differ in the last bit between C libraries.
            let is_same =
                ours.len() == theirs.len() && ours.iter().zip(&theirs).all(|(a, b)| (a - b).abs() < 1e-3);
            let text: Vec<String> = ours.iter().map(|number| format!("{number:.4}")).collect();
            assert!(is_same, "pinned: {line}\n   ours: {}", text.join(" "));
        }
    }
    assert_eq!(lines.next(), None, "a line too many");
}

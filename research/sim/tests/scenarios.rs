//! Every scenario reaches what it expects, and the same thing each time.

use std::env;
use std::fs;
use std::path::Path;

use freshwire_sim::{Outcome, SCENARIOS, Scenario, run};

fn play(text: &str, seed: u64) -> Outcome {
    let scenario = Scenario::parse(text, seed).unwrap_or_else(|error| panic!("{error}"));
    run(&scenario, seed)
}

/// `SIM_SEEDS=200` plays each with 200 seeds, of which the share that the scenario names has to reach what it expects;
/// `SIM_ONLY=outage` only those whose names hold that.
#[test]
fn each_reaches_what_it_expects() {
    let seeds = env::var("SIM_SEEDS").map_or(SEEDS, |seeds| seeds.parse().expect("SIM_SEEDS is a number"));
    let only = env::var("SIM_ONLY").unwrap_or_default();
    let mut wrong = Vec::new();
    for (name, text) in SCENARIOS.iter().filter(|(name, _)| name.contains(&only)) {
        let (mut reached, mut misses, mut certain) = (0, Vec::new(), Vec::new());
        for seed in 1..=seeds {
            let outcome = play(text, seed);
            for flow in &outcome.flows {
                println!("{name:>18} {seed:>3} {flow}");
            }
            let named = |miss: &String| format!("{name}, seed {seed}: {miss}");
            reached += u64::from(outcome.misses.is_empty());
            misses.extend(outcome.misses.iter().map(named));
            // No share excuses the seeds that are always played, nor a record that is wrong.
            let inexcusable = if seed <= SEEDS { &outcome.misses } else { &outcome.faults };
            certain.extend(inexcusable.iter().map(named));
        }
        let share = Scenario::parse(text, 1).unwrap().seeds;
        println!(
            "{name:>18} reaches what it expects with {reached} of {seeds} seeds, {share} of them wanted"
        );
        let is_enough = reached >= (share * seeds as f64).floor() as u64;
        wrong.extend(if is_enough { certain } else { misses });
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn datagrams_depend_on_the_seed_alone() {
    for name in ["duplicate_storm", "nat_rebinding", "peer_restart", "step_down", "two_videos"] {
        let text = Scenario::text_of(name).unwrap();
        let outcome = play(text, 2);
        assert_eq!(outcome, play(text, 2), "{name}");
        assert_ne!(outcome.fingerprint, play(text, 3).fingerprint, "{name}");
    }
}

#[test]
fn every_file_is_played() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let mut files: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    files.sort();
    let names: Vec<&str> = SCENARIOS.iter().map(|(name, _)| *name).collect();
    assert_eq!(files, names);
}

/// Seeds of each scenario that are always played, and have to reach what it expects.
const SEEDS: u64 = 2;

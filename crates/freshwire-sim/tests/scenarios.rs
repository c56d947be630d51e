//! Every scenario reaches what it expects, and the same thing each time.

use std::fs;
use std::path::Path;

use freshwire_sim::{Outcome, SCENARIOS, Scenario, run};

fn play(text: &str, seed: u64) -> Outcome {
    let scenario = Scenario::parse(text, seed).unwrap_or_else(|error| panic!("{error}"));
    run(&scenario, seed)
}

#[test]
fn each_reaches_what_it_expects() {
    let mut misses = Vec::new();
    for (name, text) in SCENARIOS {
        let outcome = play(text, 1);
        for flow in &outcome.flows {
            println!("{name:>18} {flow}");
        }
        misses.extend(outcome.misses.iter().map(|miss| format!("{name}: {miss}")));
    }
    assert!(misses.is_empty(), "{misses:#?}");
}

#[test]
fn the_same_seed_gives_the_same_datagrams_and_another_one_gives_others() {
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

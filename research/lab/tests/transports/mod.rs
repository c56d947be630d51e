//! Other people's transports in the lab: on a clean link each delivers everything on time. Flows that share a link: each is
//! measured, and A1 neither starves nor takes nearly all.
use std::process::Command;

use crate::support;

/// Runs a scheme for three seconds; `None` on a machine that has no user namespaces.
fn run(experiment: &str, scheme: &str, options: &[&str]) -> Option<serde_json::Value> {
    let arguments = [experiment, "--rate", "none", "--loss", "0", "--scheme", scheme, "--duration", "3s"];
    runs_on(&arguments, options).map(|runs| runs.into_iter().next().expect("one run"))
}

/// The lab's runs; `None` on a machine that has no user namespaces.
fn runs_on(arguments: &[&str], options: &[&str]) -> Option<Vec<serde_json::Value>> {
    if !support::succeeds("a user namespace", Command::new("unshare").args(["--user", "--net", "true"])) {
        return None;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().to_str().expect("a path");
    support::run(&[arguments, options, &["--out", out]].concat()).ok();
    let results = std::fs::read_to_string(folder.path().join("results.jsonl")).expect("results");
    let run = |line: &str| serde_json::from_str::<serde_json::Value>(line).expect("a run")["data"].clone();
    Some(results.lines().map(run).collect())
}

#[test]
fn quic_delivers_layers_and_frames() {
    for (congestion, delay) in [("cubic", "0ms"), ("bbr", "20ms")] {
        let Some(run) = run("layers", "quic", &["--congestion", congestion, "--delay", delay]) else {
            return;
        };
        assert_eq!(run["metrics"]["on_time_records"], 24, "{congestion}: {run}");
        assert_eq!(run["totals"]["received_all_bytes"], 24 * 16384);
    }
    let Some(frames) = run("frames", "quic", &[]) else { return };
    assert_eq!(frames["metrics"]["on_time_frames"], 90, "{frames}");
}

#[test]
fn srt_delivers_layers_and_frames() {
    if !has_library("libsrt", "srt/srt.h") {
        return;
    }
    let Some(layers) = run("layers", "srt", &[]) else { return };
    assert_eq!(layers["metrics"]["on_time_records"], 24, "{layers}");
    assert_eq!(layers["totals"]["received_all_bytes"], 24 * 16384);
    let Some(frames) = run("frames", "srt", &["--delay", "20ms"]) else { return };
    assert_eq!(frames["metrics"]["on_time_frames"], 90, "{frames}");
}

#[test]
fn sctp_delivers_layers_and_frames() {
    if !has_library("usrsctp", "usrsctp.h") {
        return;
    }
    let Some(layers) = run("layers", "sctp", &["--delay", "20ms"]) else { return };
    assert_eq!(layers["metrics"]["on_time_records"], 24, "{layers}");
    assert_eq!(layers["totals"]["received_all_bytes"], 24 * 16384);
    let Some(frames) = run("frames", "sctp", &[]) else { return };
    assert_eq!(frames["metrics"]["on_time_frames"], 90, "{frames}");
}

/// Eight runs of the layered source over A1 side by side, ten seconds each. A result is the payload on time
/// in bytes and the median delay of the base layer in milliseconds.
fn a1_on_the_link(rate: &str, loss: &str) -> Option<Vec<(f64, f64)>> {
    let link = ["layers", "--scheme", "a1", "--rate", rate, "--loss", loss, "--delay", "50ms"];
    let runs = runs_on(&link, &["--duration", "10s", "--repeat", "8", "--jobs", "8"])?;
    assert_eq!(runs.len(), 8);
    Some(runs.iter().map(payload_and_delay).collect())
}

/// Payload on time in bytes, and the median delay of the base in milliseconds.
fn payload_and_delay(run: &serde_json::Value) -> (f64, f64) {
    let records = run["records"].as_array().expect("records");
    let number = |record: &serde_json::Value, key: &str| record[key].as_f64();
    let is_on_time = |record: &&serde_json::Value| {
        number(record, "arrived_ns").is_some_and(|at| Some(at) <= number(record, "deadline_ns"))
    };
    let on_time = records.iter().filter(is_on_time).filter_map(|record| number(record, "bytes")).sum();
    let base = records.iter().filter(|record| record["layer"] == 0);
    let delay = |record| Some((number(record, "arrived_ns")? - number(record, "generated_ns")?) / 1e6);
    let mut delays: Vec<f64> = base.filter_map(delay).collect();
    delays.sort_by(f64::total_cmp);
    (on_time, delays[delays.len().div_ceil(2) - 1])
}

/// The same in simulation.
fn a1_in_simulation(rate: &str, loss: f64, seed: u32) -> (f64, f64) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("cell.toml");
    let scenario = format!(
        "tells = \"A cell.\"\nlength = \"11s\"\n\n[path.link]\n\
         both = {{ rate = \"{rate}\", delay = \"50ms\", queue = \"15kB\", loss = {loss} }}\n\n\
         [flow.layers]\npath = \"link\"\npolicy = \"layered\"\n\
         offer = {{ kind = \"layers\", layers = 8, bytes = \"16KiB\", window = \"1s\", lifetime = \"1s\" }}\n"
    );
    std::fs::write(&file, scenario).expect("a file");
    let (file, seed) = (file.to_str().expect("a path"), seed.to_string());
    let run = support::run(&["sim", file, "--seed", &seed, "--json"]).ok().json();
    let flow = &run["flows"][0];
    let bits = flow["goodput_bps"].as_f64().expect("a rate") * 10.0;
    (bits / 8.0, flow["base_delays_ms"]["p50"].as_f64().expect("a time"))
}

/// Ten windows are few: which packets are lost makes a tenth of the payload, and half of the delay. So the mean of eight runs
/// on the link has to be the mean of ten simulated ones, within 5 % of the payload and 15 % of the delay.
#[test]
fn the_simulation_agrees_with_the_emulated_link() {
    for (rate, loss, share) in [("512Kibit", "5%", 0.05), ("1024Kibit", "0%", 0.0)] {
        let Some(measured) = a1_on_the_link(rate, loss) else { return };
        let simulated: Vec<(f64, f64)> = (1..=10).map(|seed| a1_in_simulation(rate, share, seed)).collect();
        let mean = |runs: &[(f64, f64)], value: fn(&(f64, f64)) -> f64| {
            runs.iter().map(value).sum::<f64>() / runs.len() as f64
        };
        let differ = |value| mean(&measured, value) / mean(&simulated, value) - 1.0;
        let (payload, delay) = (differ(|run| run.0), differ(|run| run.1));
        let text = format!(
            "{rate}: payload {payload:+.3}, delay {delay:+.3}; measured {measured:?}, simulated {simulated:?}"
        );
        assert!(payload.abs() < 0.05 && delay.abs() < 0.15, "{text}");
        println!("{text}");
    }
}

/// Whether a C program can be built with a library's header.
fn has_library(library: &str, header: &str) -> bool {
    let mut compiler = Command::new("cc");
    support::succeeds(library, compiler.args(["-E", "-include", header, "-xc", "/dev/null"]))
}

/// Ten seconds are few for a congestion control; `make matrix-share` looks at a minute.
#[test]
fn a1_and_cubic_share_a_link() {
    if !support::succeeds("a user namespace", Command::new("unshare").args(["--user", "--net", "true"])) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().to_str().expect("a path");
    let link = ["share", "--rate", "10Mbit", "--delay", "10ms", "--queue", "1bdp"];
    let time = ["--flows", "a1+cubic", "--duration", "10s", "--warm-up", "4s", "--out", out];
    let ended = support::run(&[&link[..], &time[..]].concat()).ok();
    assert!(ended.text().contains("a1 + cubic"), "{}", ended.text());
    let results = std::fs::read_to_string(folder.path().join("share.jsonl")).expect("results");
    let run: serde_json::Value = serde_json::from_str(results.trim()).expect("one run");
    let metrics = &run["data"]["metrics"];
    let shares: Vec<f64> = ["0", "1"]
        .map(|flow| metrics.pointer(&format!("/shares/{flow}")).and_then(|x| x.as_f64()))
        .into_iter()
        .flatten()
        .collect();
    assert_eq!(shares.len(), 2, "{metrics}");
    assert!(shares.iter().all(|share| (0.15..1.85).contains(share)), "{metrics}");
    let lost: Vec<f64> =
        run["data"]["lost"].as_array().into_iter().flatten().filter_map(|x| x.as_f64()).collect();
    assert!(lost.len() == 2 && lost.iter().all(|lost| (0.0..0.3).contains(lost)), "{lost:?}");
    assert!(lost.iter().any(|lost| *lost > 0.0), "CUBIC fills the queue: {lost:?}");
    assert!(metrics["used"].as_f64().is_some_and(|used| (0.7..1.02).contains(&used)), "{metrics}");
    // Nothing waits longer than the queue, which holds 20 ms, allows.
    let wait = metrics["wait_ns"][0].as_f64().expect("a wait");
    assert!((0.5e6..35e6).contains(&wait), "{metrics}");
}

/// The flow in question and plain TCP in its place, beside one flow of CUBIC.
fn shares_beside_cubic(flow: &str, queue: &str) -> Option<[f64; 2]> {
    if !support::succeeds("a user namespace", Command::new("unshare").args(["--user", "--net", "true"])) {
        return None;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().to_str().expect("a path");
    let flows = format!("{flow}+cubic");
    let link = ["share", "--in-place", "--flows", &flows, "--rate", "5Mbit", "--queue", queue];
    let ended =
        support::run(&[&link[..], &["--duration", "20s", "--warm-up", "8s", "--out", out]].concat()).ok();
    assert!(ended.text().contains("Beside plain TCP in the same place"), "{}", ended.text());
    let results = std::fs::read_to_string(folder.path().join("share.jsonl")).expect("results");
    let runs: Vec<serde_json::Value> =
        results.lines().map(|line| serde_json::from_str(line).expect("a run")).collect();
    let share = |first: &str| {
        let run = runs.iter().find(|run| run["data"]["plan"]["flows"][0] == first).expect("a run");
        run["data"]["metrics"]["shares"][0].as_f64().expect("a share")
    };
    Some([share(flow), share("cubic")])
}

/// The queue is longer than the bound of a sink, and shorter than four times that. Twelve seconds are few: the share of plain TCP in the same
/// place is 0.4 to 1.6 there.
#[test]
fn freshwire_keeps_a_share_behind_the_queue_of_cubic() {
    for queue in ["1bdp", "4bdp"] {
        let Some([ours, plain]) = shares_beside_cubic("freshwire-cubic", queue) else { return };
        assert!(ours > 0.3 && ours < 1.8, "{queue}: {ours}, plain TCP {plain}");
    }
}

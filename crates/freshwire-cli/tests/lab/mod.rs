//! Other people's transports in the lab: on a clean link each delivers everything on time. Flows that share a link: each is
//! measured, and A1 neither starves nor takes nearly all.
use std::process::Command;

use crate::support;

/// Runs a scheme for three seconds; `None` on a machine that has no user namespaces.
fn run(experiment: &str, scheme: &str, options: &[&str]) -> Option<serde_json::Value> {
    if !support::succeeds("a user namespace", Command::new("unshare").args(["--user", "--net", "true"])) {
        return None;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().to_str().expect("a path");
    let mut arguments = vec!["lab", experiment, "--rate", "none", "--loss", "0", "--scheme", scheme];
    arguments.extend(["--duration", "3s", "--out", out]);
    arguments.extend(options);
    support::run(&arguments).ok();
    let results = std::fs::read_to_string(folder.path().join("results.jsonl")).expect("results");
    let run: serde_json::Value = serde_json::from_str(results.trim()).expect("one run");
    Some(run["data"].clone())
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
    let link = ["lab", "share", "--rate", "10Mbit", "--delay", "10ms", "--queue", "1bdp"];
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
    assert!(metrics["used"].as_f64().is_some_and(|used| (0.7..1.02).contains(&used)), "{metrics}");
    // Nothing waits longer than the queue, which holds 20 ms, allows.
    let wait = metrics["wait_ns"][0].as_f64().expect("a wait");
    assert!((0.5e6..35e6).contains(&wait), "{metrics}");
}

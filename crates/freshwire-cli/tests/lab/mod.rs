//! Other people's transports in the lab: on a clean link each delivers everything on time.
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

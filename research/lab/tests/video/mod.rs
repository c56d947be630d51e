//! Real scalable video from the encoder to the screen.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::support;

/// Whether this machine has what the experiment needs. In CI that is required.
fn has_what_it_needs() -> bool {
    let header = ["-E", "-include", "vpx/vpx_encoder.h", "-xc", "/dev/null"];
    support::succeeds("a user namespace", Command::new("unshare").args(["--user", "--net", "true"]))
        && support::has("ffmpeg", "-version")
        && support::succeeds("libvpx-dev and a C compiler", Command::new("cc").args(header))
}

/// The runs of a few seconds of generated pictures, with the folder's path.
fn runs(folder: &Path, options: &[&str]) -> Vec<Value> {
    let out = folder.to_str().expect("a path");
    let common = [
        "video",
        "--video",
        "camera",
        "--duration",
        "4s",
        "--deadline",
        "500ms",
        "--loss",
        "0",
        "--out",
        out,
    ];
    support::run(&[&common, options].concat()).ok();
    let results = std::fs::read_to_string(folder.join("results.jsonl")).expect("results");
    let run = |line: &str| serde_json::from_str::<Value>(line).expect("a run")["data"].clone();
    results.lines().map(run).collect()
}

fn number(run: &Value, path: &str) -> f64 {
    run.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("no {path} in {}", run["metrics"]))
}

#[test]
fn layers_that_fit_the_link_are_shown_and_decode_alike() {
    if !has_what_it_needs() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let slow = runs(folder.path(), &["--rate", "512Kibit", "--order", "live", "--scheme", "tcp,freshwire"]);
    let find = |scheme: &str| slow.iter().find(|run| run["plan"]["scheme"] == scheme).expect("a run");
    let (tcp, freshwire) = (find("tcp"), find("freshwire"));
    for run in [tcp, freshwire] {
        assert_eq!(
            run["decoded"]["differing"], 0,
            "the decoder gives what the layers of the whole stream give"
        );
        let shown: u64 = run["metrics"]["pictures_by_layers"]
            .as_array()
            .expect("counts")
            .iter()
            .skip(1)
            .filter_map(Value::as_u64)
            .sum();
        assert_eq!(run["decoded"]["pictures"], shown);
        assert_eq!(run["metrics"]["offered_pictures"], 100);
    }
    assert!(
        number(freshwire, "/metrics/pictures_per_s") > 2.0 * number(tcp, "/metrics/pictures_per_s"),
        "{tcp} {freshwire}"
    );
    assert!(number(freshwire, "/decoded/ssim_mean") > number(tcp, "/decoded/ssim_mean"));
    // More than the base and less than all of it: layers were left out.
    assert!((1.0..3.0).contains(&number(freshwire, "/metrics/spatial_layers")), "{}", freshwire["metrics"]);
    let stills = std::fs::read_dir(folder.path().join("stills")).expect("pictures");
    assert!(
        stills
            .filter_map(Result::ok)
            .filter(|file| file.path().extension().is_some_and(|e| e == "jpg"))
            .count()
            >= 8
    );
}

#[test]
fn a_fast_link_shows_every_layer_of_every_picture() {
    if !has_what_it_needs() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let runs = runs(folder.path(), &["--rate", "none", "--order", "live", "--scheme", "freshwire"]);
    assert_eq!(
        runs[0]["metrics"]["pictures_by_layers"],
        serde_json::json!([0, 0, 0, 100]),
        "{}",
        runs[0]["trust"]
    );
    assert_eq!(runs[0]["decoded"]["differing"], 0);
    assert!(number(&runs[0], "/decoded/ssim_mean") > 0.8);
}

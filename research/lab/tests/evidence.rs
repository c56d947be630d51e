//! `freshwire-lab evidence`: a catalogue of its own, and the published results in virtual time.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test waits for real processes")]

#[allow(dead_code, reason = "the command's tests use the rest")]
#[path = "../../../crates/cli/tests/support/mod.rs"]
mod support;

use std::path::Path;
use std::process::Stdio;

use serde_json::Value;
use support::{Ended, Running, freshwire, repository, run};

const PROGRAM: &str = env!("CARGO_BIN_EXE_freshwire-lab");

const CONTENTS: &str =
    "[[publication]]\nname = 'P'\nmeasured = ['table 1']\ndrawings = { 'figure 1' = 'drawing: a house' }\n";
const ITEM: &str = "publication = 'P'\nitem = 'table 1'\nsection = '2'\nshows = 'a rate'\nwhy = 'another year'\n\
    [[run]]\nname = 'r'\ncommands = ['''printf '{\"rate\":%s}\\n' 9 8 7''']\nno_short = 'there is none'\nminutes = 1\n\
    [[row]]\nname = 'rate'\ny = 'rate'\nunit = 'bit/s'\npublished = 10\nratio = [0.7, 1]\n\
    [[claim]]\nsays = 'it is more than nothing'\nrow = 'rate'\nbetween = [1, 9]\n";

/// Writes a catalogue with one item, and runs the command on it.
fn evidence(folder: &Path, item: &str, arguments: &[&str]) -> Running {
    let catalogue = folder.join("catalogue");
    std::fs::create_dir_all(&catalogue).unwrap();
    std::fs::write(catalogue.join("contents.toml"), CONTENTS).unwrap();
    std::fs::write(catalogue.join("p-table-1.toml"), item).unwrap();
    let mut command = freshwire(&["evidence", "--catalogue", "catalogue", "--out", "out"]);
    // Programs: own
    Running::start(command.args(arguments).current_dir(folder).env_remove("CI").stdin(Stdio::null()))
}

fn rows(folder: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(folder.join("out/rows.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_run_is_made_once_and_shown_beside_the_publication() {
    let folder = tempfile::tempdir().unwrap();
    let ended = evidence(folder.path(), ITEM, &[]).wait().ok();
    for part in [
        "P, table 1 (p-table-1)",
        "rate",
        "10.0",
        "8.00 [7.00 .. 9.00]",
        "0.80",
        "met",
        "holds: it is more",
        "another year",
    ] {
        assert!(ended.text().contains(part), "{part}: {}", ended.text());
    }
    assert!(ended.stderr.contains("run 1 of 1, r; about 60 s left"), "{}", ended.stderr);
    assert_eq!(rows(folder.path())[0]["data"]["ratios"], serde_json::json!([0.8]));
    let page = std::fs::read_to_string(folder.path().join("out/report.html")).unwrap();
    assert!(page.contains("drawing: a house") && page.contains("at commit"), "{page}");
    let origin: Value =
        serde_json::from_slice(&std::fs::read(folder.path().join("out/r/origin.json")).unwrap()).unwrap();
    assert!(
        origin["load"][0].is_number() && origin["dirty"].is_boolean() && origin["cpu"].is_string(),
        "{origin}"
    );

    // The second time nothing is run: the result is kept.
    let ended = evidence(folder.path(), ITEM, &[]).wait().ok();
    assert!(!ended.stderr.contains("run 1"), "{}", ended.stderr);
    // A missed expectation ends with 1, and so does a claim that does not hold.
    for change in [("[0.7, 1]", "[0.9, 1]"), ("[1, 9]", "[1, 7]")] {
        let ended = evidence(folder.path(), &ITEM.replace(change.0, change.1), &[]).wait();
        ended.failed(1, "not as the catalogue expects: p-table-1");
    }
}

#[test]
fn a_failed_a_skipped_and_an_absent_run_say_why() {
    let folder = tempfile::tempdir().unwrap();
    let ended = evidence(folder.path(), &ITEM.replace("printf", "/nowhere/printf"), &[]).wait();
    assert!(ended.failed(1, "r failed").text().contains("r failed: "));
    let ended = evidence(folder.path(), ITEM, &["--short"]).wait().ok();
    assert!(ended.text().contains("not in the short form: there is none"), "{}", ended.text());

    let short = ITEM.replace(
        "no_short = 'there is none'",
        "short = ['''printf '{\"rate\":%s}\\n' 9''']\nneeds = ['perf']\nshort_seconds = 1",
    );
    let without_perf = |ci: &str| -> Ended {
        drop(evidence(folder.path(), &short, &["--only", "p-table-1", "--show"]).wait());
        let mut command = freshwire(&["evidence", "--catalogue", "catalogue", "--out", "out", "--short"]);
        // Programs: own
        Running::start(
            command.current_dir(folder.path()).env("CI", ci).env("PATH", "/nowhere").stdin(Stdio::null()),
        )
        .wait()
    };
    let ended = without_perf("false").ok();
    assert!(
        ended.text().contains("r was skipped: perf is missing: apt-get install linux-perf"),
        "{}",
        ended.text()
    );
    without_perf("true").failed(1, "not as the catalogue expects: p-table-1");
}

#[test]
fn a_gap_or_an_unknown_item_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    evidence(folder.path(), &ITEM.replace("table 1", "table 2"), &[]).wait().failed(2, "table 1 has no file");
    evidence(folder.path(), ITEM, &["--only", "p-table-7"]).wait().failed(2, "has no file p-table-7.toml");
    run(&["evidence", "--catalogue", "/nowhere"]).failed(2, "name the catalogue with --catalogue");
}

/// Compares two results: numbers may differ in their last digits, as C libraries do.
fn assert_same(place: &str, one: &Value, other: &Value) {
    match (one, other) {
        (Value::Number(a), Value::Number(b)) => {
            let (a, b) = (a.as_f64().unwrap(), b.as_f64().unwrap());
            assert!((a - b).abs() <= 1e-9 * a.abs().max(1.0), "{place}: {a} and {b}");
        }
        (Value::Array(a), Value::Array(b)) => {
            assert_eq!(a.len(), b.len(), "{place}");
            a.iter().zip(b).enumerate().for_each(|(at, (a, b))| assert_same(&format!("{place}.{at}"), a, b));
        }
        (Value::Object(a), Value::Object(b)) => {
            assert_eq!(a.keys().collect::<Vec<_>>(), b.keys().collect::<Vec<_>>(), "{place}");
            a.iter().for_each(|(key, value)| assert_same(&format!("{place}.{key}"), value, &b[key]));
        }
        _ => assert_eq!(one, other, "{place}"),
    }
}

#[test]
fn results_in_virtual_time_are_the_published_ones() {
    let (catalogue, published) =
        (repository().join("research/evidence"), repository().join("research/published/evidence/short"));
    let mut items = Vec::new();
    for entry in std::fs::read_dir(&catalogue).unwrap() {
        let path = entry.unwrap().path();
        if std::fs::read_to_string(&path).unwrap().contains("virtual_time = true") {
            items.push(path.file_stem().unwrap().to_str().unwrap().to_owned());
        }
    }
    assert!(!items.is_empty());
    let out = tempfile::tempdir().unwrap();
    let (out, only) = (out.path().to_str().unwrap(), items.join(","));
    run(&["evidence", "--short", "--catalogue", catalogue.to_str().unwrap(), "--out", out, "--only", &only])
        .ok();
    let mut compared = 0;
    for entry in std::fs::read_dir(out).unwrap() {
        let folder = entry.unwrap().path();
        if !folder.is_dir() {
            continue;
        }
        let read = |path: &Path| -> Vec<Value> {
            let text =
                std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
        };
        let name = folder.file_name().unwrap().to_str().unwrap().to_owned();
        let (ours, theirs) =
            (read(&folder.join("results.jsonl")), read(&published.join(format!("{name}.jsonl"))));
        assert_same(&name, &Value::Array(ours), &Value::Array(theirs));
        compared += 1;
    }
    assert!(compared > 0);
}

//! The examples that are two programs, run as such.

use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use freshwire::now;

const PATIENCE: Duration = Duration::from_secs(120);

/// The program of an example: beside this test's. `None` if it was not built.
fn program(name: &str) -> Option<PathBuf> {
    let test = std::env::current_exe().unwrap();
    let path = test.parent().and_then(|deps| deps.parent()).unwrap().join("examples").join(name);
    if path.exists() {
        return Some(path);
    }
    let missing = format!(
        "{} is missing: `cargo test -p freshwire` builds it, `--test examples` alone does not",
        path.display()
    );
    assert!(!std::env::var("CI").is_ok_and(|ci| ci == "true"), "{missing}");
    println!("skipped: {missing}");
    None
}

/// Runs an example to its end and returns what it wrote, its other processes included.
fn run(name: &str, arguments: &[&str]) -> Option<String> {
    let mut child = Command::new(program(name)?)
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut out, mut err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let out = std::thread::spawn(move || {
        let mut text = String::new();
        out.read_to_string(&mut text).map(|_| text).unwrap()
    });
    let err = std::thread::spawn(move || {
        let mut text = String::new();
        err.read_to_string(&mut text).map(|_| text).unwrap()
    });
    let give_up = now() + PATIENCE;
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None if now() > give_up => {
                child.kill().unwrap();
                panic!("{name} runs for more than {PATIENCE:?}");
            }
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    let (out, err) = (out.join().unwrap(), err.join().unwrap());
    assert!(status.success(), "{name}: {status}\n{out}{err}");
    Some(out)
}

#[test]
fn a_game_server_and_its_clients() {
    let Some(text) = run("game_state", &["both", "60"]) else { return };
    for client in ["fast:", "fast-too:", "slow:"] {
        assert!(text.lines().any(|line| line.starts_with(client)), "{client} {text}");
    }
}

#[test]
fn a_sender_of_samples_and_its_receiver() {
    let Some(text) = run("deadline_stream", &[]) else { return };
    assert!(text.contains("300 samples, "), "{text}");
    assert!(text.contains("dropped, expired: ") || text.contains("dropped, predicted_late: "), "{text}");
    assert!(text.lines().any(|line| line.starts_with("received ")), "{text}");
}

#[test]
fn a_second_process_that_edits_the_queue() {
    let Some(text) = run("second_process", &[]) else { return };
    assert!(text.contains("the second process sees 4 records"), "{text}");
    assert!(text.ends_with("fourth\nfirst\nTHIRD\n"), "{text}");
}

//! The examples that are two programs, run as such.

use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use freshwire::now;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const PATIENCE: Duration = Duration::from_secs(120);

/// The program of an example: beside this test's. `None` if it was not built.
fn program(name: &str) -> Result<Option<PathBuf>> {
    let test = std::env::current_exe()?;
    let target = test.parent().and_then(|deps| deps.parent()).ok_or("a test lies in a folder")?;
    let path = target.join("examples").join(name);
    if path.exists() {
        return Ok(Some(path));
    }
    let missing = format!(
        "{} is missing: `cargo build -p freshwire --examples` makes it; `cargo test -p freshwire` does so itself",
        path.display()
    );
    assert!(!std::env::var("CI").is_ok_and(|ci| ci == "true"), "{missing}");
    println!("skipped: {missing}");
    Ok(None)
}

fn read(mut from: impl Read + Send + 'static) -> JoinHandle<std::io::Result<String>> {
    std::thread::spawn(move || {
        let mut text = String::new();
        from.read_to_string(&mut text).map(|_| text)
    })
}

/// Runs an example to its end and returns what it wrote, its other processes included.
fn run(name: &str, arguments: &[&str]) -> Result<Option<String>> {
    let Some(program) = program(name)? else { return Ok(None) };
    // Programs: own
    let mut command = Command::new(program);
    let mut child = command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let out = read(child.stdout.take().ok_or("a pipe")?);
    let err = read(child.stderr.take().ok_or("a pipe")?);
    let give_up = now() + PATIENCE;
    let status = loop {
        match child.try_wait()? {
            Some(status) => break status,
            None if now() > give_up => {
                child.kill()?;
                child.wait()?;
                return Err(format!("{name} runs for more than {PATIENCE:?}").into());
            }
            // Pause: until the next look.
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    let (out, err) =
        (out.join().map_err(|_| "a reader panicked")??, err.join().map_err(|_| "a reader panicked")??);
    assert!(status.success(), "{name}: {status}\n{out}{err}");
    Ok(Some(out))
}

#[test]
fn a_game_server_and_its_clients() -> Result<()> {
    let Some(text) = run("game_state", &["both", "60"])? else { return Ok(()) };
    for client in ["fast:", "fast-too:", "slow:"] {
        assert!(text.lines().any(|line| line.starts_with(client)), "{client} {text}");
    }
    Ok(())
}

#[test]
fn a_sender_of_samples_and_its_receiver() -> Result<()> {
    let Some(text) = run("deadline_stream", &[])? else { return Ok(()) };
    assert!(text.contains("300 samples, "), "{text}");
    assert!(text.contains("dropped, expired: ") || text.contains("dropped, predicted-late: "), "{text}");
    assert!(text.lines().any(|line| line.starts_with("received ")), "{text}");
    Ok(())
}

#[test]
fn a_second_process_that_edits_the_queue() -> Result<()> {
    let Some(text) = run("second_process", &[])? else { return Ok(()) };
    assert!(text.contains("the second process sees 4 records"), "{text}");
    assert!(text.ends_with("fourth\nfirst\nTHIRD\n"), "{text}");
    Ok(())
}

#[test]
fn a_sender_that_is_killed_and_started_again() -> Result<()> {
    let Some(text) = run("restarted_sender", &[])? else { return Ok(()) };
    assert!(text.ends_with("from the next sender, the receiver got:\nthird\nfourth\nfifth\n"), "{text}");
    Ok(())
}

//! The same program with the library and without: every result, every `errno` and every byte are compared.
//!
//! The program is this file's own binary, started twice. With the library it waits before each scene until datagrams were
//! pushed, so that the answers come from the program's memory.
#![allow(clippy::disallowed_methods, reason = "conditions have deadlines by the clock")]

mod calls;
mod scenes;

use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// Longer than any scene takes on a loaded machine.
const LONG: Duration = Duration::from_secs(60);
const ROLE: &str = "FRESHWIRE_CONVERSATION";

fn library() -> Option<PathBuf> {
    let test = std::env::current_exe().ok()?;
    let deps = test.parent()?;
    let name = "libfreshwire_preload.so";
    [deps.join(name), deps.parent()?.join(name)].into_iter().find(|path| path.exists())
}

/// Runs a scene as a program of its own and returns what it said.
fn run(scene: &str, library: Option<&PathBuf>) -> Result<(Vec<String>, String), String> {
    let mut command = Command::new(std::env::current_exe().map_err(|error| error.to_string())?);
    command.env(ROLE, scene);
    if let Some(library) = library {
        command.env("LD_PRELOAD", library).env("FRESHWIRE_PUSH_REPORT", "1").env("FRESHWIRE_PUSHES", "1");
    }
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.map_err(|error| error.to_string())?;
    let pid = child.id();
    let (done, ended) = mpsc::channel();
    std::thread::spawn(move || done.send(child.wait_with_output()));
    let Ok(output) = ended.recv_timeout(LONG) else {
        let _ = Command::new("kill").args(["-9", &pid.to_string()]).status();
        let said = ended.recv().ok().and_then(Result::ok).map(|output| output.stdout).unwrap_or_default();
        let said = String::from_utf8_lossy(&said).into_owned();
        let last = said.lines().last().unwrap_or_default();
        return Err(format!("{scene} did not end within {LONG:?}; at last it said: {last}"));
    };
    let output = output.map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        return Err(format!("{scene} ended with {}: {said}", output.status));
    }
    Ok((String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect(), said))
}

fn compare(scene: &str, library: &PathBuf) -> Result<(), String> {
    let (plain, _) = run(scene, None)?;
    let (pushed, report) = run(scene, Some(library))?;
    if plain.is_empty() {
        return Err(format!("{scene} said nothing"));
    }
    for (number, (left, right)) in plain.iter().zip(&pushed).enumerate() {
        if left != right {
            return Err(format!("{scene}, line {number}\n  without: {left}\n  with:    {right}"));
        }
    }
    if plain.len() != pushed.len() {
        return Err(format!("{scene}: {} lines without, {} with the library", plain.len(), pushed.len()));
    }
    let moved = |line: &str| line.contains(" datagrams moved in ") && !line.contains(" 0 datagrams moved");
    if scenes::PUSHES.contains(&scene) && !report.lines().any(moved) {
        return Err(format!("{scene}: nothing was pushed: {report}"));
    }
    println!("{scene}: {} results are the same", plain.len());
    Ok(())
}

fn main() -> ExitCode {
    if let Ok(scene) = std::env::var(ROLE) {
        scenes::play(&scene);
        return ExitCode::SUCCESS;
    }
    let Some(library) = library() else {
        eprintln!("the library was not built: cargo build -p freshwire-preload");
        return ExitCode::FAILURE;
    };
    let mut failed = 0;
    for scene in scenes::ALL {
        if let Err(error) = compare(scene, &library) {
            eprintln!("{error}");
            failed += 1;
        }
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

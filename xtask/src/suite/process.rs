//! Runs one command, shows its output as it comes, counts its tests and ends it when it hangs.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;

use super::steps::CommandLine;
use super::tally::Tally;

/// How a command ended.
pub(super) struct Ended {
    pub(super) tally: Tally,
    /// What went wrong, if anything did.
    pub(super) problem: Option<String>,
    /// The test programs that failed, as cargo's arguments: `-p freshwire --test account`.
    pub(super) failed_targets: Vec<String>,
}

const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Runs the command in the workspace's root. When `limit` is over it is killed with everything that it started.
pub(super) fn run(root: &Path, line: &CommandLine<'_>, limit: Duration) -> anyhow::Result<Ended> {
    let mut command = Command::new(line.program);
    command.args(line.arguments).envs(line.environment.iter().copied());
    command.current_dir(root).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("cannot run {}", line.program))?;
    let stdout = child.stdout.take().context("no standard output")?;
    let stderr = child.stderr.take().context("no standard error")?;
    let readers = [
        thread::spawn(move || forward(stdout, std::io::stdout())),
        thread::spawn(move || forward(stderr, std::io::stderr())),
    ];
    let status = wait(&mut child, limit)?;
    let (mut tally, mut failed_targets) = (Tally::default(), Vec::new());
    for reader in readers {
        let (counted, failed) = reader.join().unwrap_or_default();
        tally += counted;
        failed_targets.extend(failed);
    }
    // unittest says how many ran and then how many of those failed.
    if line.program.ends_with("python3") {
        tally.passed = tally.passed.saturating_sub(tally.failed);
    }
    let problem = match status {
        None => Some(format!("did not end within {} s and was killed", limit.as_secs())),
        Some(status) if status.success() => None,
        Some(status) => Some(format!("{} ended with {status}", line.program)),
    };
    Ok(Ended { tally, problem, failed_targets })
}

fn forward(from: impl Read, mut to: impl Write) -> (Tally, Vec<String>) {
    let (mut tally, mut failed_targets) = (Tally::default(), Vec::new());
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    while from.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
        // The step's result is its exit status; a terminal that went away does not change it.
        let _ = to.write_all(&line);
        let text = String::from_utf8_lossy(&line);
        if let Some(counted) = Tally::read_line(&text) {
            tally += counted;
        }
        failed_targets.extend(failed_target(&text).map(str::to_owned));
        line.clear();
    }
    (tally, failed_targets)
}

/// A line of cargo's closing list of failed test programs.
fn failed_target(line: &str) -> Option<&str> {
    let target = line.strip_prefix("    `")?.trim_end().strip_suffix('`')?;
    target.starts_with("-p ").then_some(target)
}

fn wait(child: &mut Child, limit: Duration) -> anyhow::Result<Option<ExitStatus>> {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if begun.elapsed() > limit {
            kill_with_descendants(child)?;
            return Ok(None);
        }
        thread::sleep(LOOK_EVERY);
    }
}

/// A process group of its own would be easier to end, but would not get the terminal's interrupt.
fn kill_with_descendants(child: &mut Child) -> anyhow::Result<()> {
    let family = descendants(child.id(), &parents()?);
    let status = Command::new("kill").arg("-KILL").args(family.iter().map(u32::to_string)).status();
    status.context("cannot run kill")?;
    child.wait()?;
    Ok(())
}

/// Each process with its parent.
fn parents() -> anyhow::Result<Vec<(u32, u32)>> {
    let mut parents = Vec::new();
    for entry in std::fs::read_dir("/proc").context("cannot list the processes")? {
        let Some(process) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // A process may end between the listing and the reading.
        let Ok(stat) = std::fs::read_to_string(format!("/proc/{process}/stat")) else { continue };
        // pid (any name, also with brackets) state parent ...
        let parent = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse().ok());
        parents.extend(parent.map(|parent| (process, parent)));
    }
    Ok(parents)
}

/// The process itself and all that descend from it.
fn descendants(root: u32, parents: &[(u32, u32)]) -> BTreeSet<u32> {
    let mut family = BTreeSet::from([root]);
    loop {
        let before = family.len();
        for (process, parent) in parents {
            if family.contains(parent) {
                family.insert(*process);
            }
        }
        if family.len() == before {
            return family;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &'static str, limit: Duration) -> Ended {
        let arguments: &'static [&'static str] = vec!["-c", script].leak();
        let line = CommandLine { program: "sh", arguments, environment: &[("WORD", "value")] };
        run(Path::new("/"), &line, limit).expect("sh runs")
    }

    #[test]
    fn the_exit_status_decides() {
        assert!(shell("test $WORD = value", Duration::from_secs(10)).problem.is_none());
        assert!(
            shell("exit 3", Duration::from_secs(10)).problem.is_some_and(|problem| problem.contains('3'))
        );
    }

    #[test]
    fn output_is_passed_on_and_counted() {
        let printed =
            b"test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured\nRan 3 tests in 1s\nno newline";
        let mut shown = Vec::new();
        let counted = Tally { passed: 5, failed: 0, ignored: 1 };
        assert_eq!(forward(&printed[..], &mut shown), (counted, Vec::new()));
        assert_eq!(shown, printed);
    }

    #[test]
    fn failed_test_programs_are_named() {
        let printed = b"error: 2 targets failed:\n    `-p freshwire --test account`\n    `-p freshwire-a1 --doc`\n    `x`\n";
        let (_, failed) = forward(&printed[..], std::io::sink());
        assert_eq!(failed, ["-p freshwire --test account", "-p freshwire-a1 --doc"]);
    }

    #[test]
    fn what_hangs_is_killed_with_its_children() {
        let begun = Instant::now();
        let ended = shell("sleep 60 & wait", Duration::from_millis(100));
        assert!(ended.problem.is_some_and(|problem| problem.contains("killed")));
        // The pipe closes only when the grandchild is gone too.
        assert!(begun.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn a_family_is_found_in_any_order() {
        assert_eq!(descendants(2, &[(5, 4), (4, 2), (3, 1), (2, 1)]), BTreeSet::from([2, 4, 5]));
    }
}

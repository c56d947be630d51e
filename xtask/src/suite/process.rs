//! Runs one command, shows its output as it comes, counts its tests and ends it when it hangs.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;

use super::command::CommandLine;
use super::tally::{self, Tally};

/// How a command ended.
pub(super) struct Ended {
    pub(super) tally: Tally,
    /// What went wrong, if anything did.
    pub(super) problem: Option<String>,
    /// Measurements for which the machine was too busy, with the reasons.
    pub(super) too_busy: Vec<String>,
    /// Cargo's messages for programs, a line each.
    pub(super) messages: Vec<String>,
}

/// Where the output of a command goes.
#[derive(Clone, Copy)]
pub(super) enum Output<'a> {
    /// To this program's own output, as it comes.
    Shown,
    /// To this buffer.
    Kept(&'a Mutex<Vec<u8>>),
    /// To this buffer. The command and what it starts get the processors only while nothing else wants them.
    KeptOfIdle(&'a Mutex<Vec<u8>>),
}

impl Output<'_> {
    /// Whole lines, with their ends.
    pub(super) fn write(self, lines: &[u8]) {
        // The step's result is its exit status; a terminal that went away does not change it.
        let _ = match self {
            Self::Kept(buffer) | Self::KeptOfIdle(buffer) => match buffer.lock() {
                Ok(mut buffer) => buffer.write_all(lines),
                Err(_) => Ok(()),
            },
            // A test's output is captured if it is printed.
            Self::Shown if cfg!(test) => {
                print!("{}", String::from_utf8_lossy(lines));
                Ok(())
            }
            Self::Shown => std::io::stdout().write_all(lines),
        };
    }

    /// A line of this program's own.
    pub(super) fn say(self, line: &str) {
        self.write(format!("{line}\n").as_bytes());
    }

    fn command(self, program: &str) -> Command {
        match self {
            Self::Shown | Self::Kept(_) => Command::new(program),
            Self::KeptOfIdle(_) => {
                let mut command = Command::new("chrt");
                command.args(["--idle", "0", program]);
                command
            }
        }
    }
}

const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Runs the command in the folder. When `limit` is over it is killed with everything that it started.
pub(super) fn run(
    folder: &Path,
    line: &CommandLine,
    limit: Duration,
    output: Output<'_>,
) -> anyhow::Result<Ended> {
    let mut command = output.command(&line.program);
    command.args(&line.arguments).envs(line.environment.iter().map(|(name, value)| (name, value)));
    command.current_dir(folder).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("cannot run {}", line.program))?;
    let stdout = child.stdout.take().context("no standard output")?;
    let stderr = child.stderr.take().context("no standard error")?;
    let (status, mut facts) = thread::scope(|scope| {
        let stdout = scope.spawn(|| forward(stdout, output));
        let stderr = scope.spawn(|| forward(stderr, output));
        let status = wait(&mut child, limit);
        let mut facts = stdout.join().unwrap_or_default();
        let errors = stderr.join().unwrap_or_default();
        facts.tally += errors.tally;
        facts.too_busy.extend(errors.too_busy);
        facts.failures.extend(errors.failures);
        facts.failures.append(&mut facts.panics);
        facts.failures.extend(errors.panics);
        (status, facts)
    });
    // unittest says how many ran and then how many of those failed.
    if line.program.ends_with("python3") {
        facts.tally.passed = facts.tally.passed.saturating_sub(facts.tally.failed);
    }
    let mut problem = match status? {
        None => Some(format!("did not end within {} s and was killed", limit.as_secs())),
        Some(status) if status.success() => None,
        Some(status) => Some(format!("{} ended with {status}", line.program)),
    };
    if let Some(problem) = &mut problem
        && !facts.failures.is_empty()
    {
        *problem += &format!(": {}", facts.failures.join("; "));
    }
    Ok(Ended { tally: facts.tally, problem, too_busy: facts.too_busy, messages: facts.messages })
}

/// How many failures and panics of each output a problem names: the summary has a line for it.
const NAMED: usize = 3;

/// A failure named in a program's output: KTAP's "not ok 1 name", libtest's "test name ... FAILED", pytest's "FAILED file::name",
/// unittest's "FAIL: name", and "FAIL name" of `xtask check`.
fn failure(text: &str) -> Option<&str> {
    let text = text.trim_end();
    let is_failure = text.contains("not ok ")
        || text.starts_with("FAIL")
        || text.starts_with("test ") && text.ends_with(" FAILED");
    is_failure.then_some(text)
}

/// Facts read from a program's output.
#[derive(Default)]
struct Facts {
    tally: Tally,
    failures: Vec<String>,
    /// Where Rust's tests panicked, each with the first line of the reason.
    panics: Vec<String>,
    messages: Vec<String>,
    too_busy: Vec<String>,
}

fn forward(from: impl Read, to: Output<'_>) -> Facts {
    let mut facts = Facts::default();
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    let mut in_panic = false;
    while from.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
        let text = String::from_utf8_lossy(&line);
        if let Some(counted) = Tally::read_line(&text) {
            facts.tally += counted;
        }
        facts.too_busy.extend(tally::too_busy(&text).map(str::to_owned));
        if facts.failures.len() < NAMED {
            facts.failures.extend(failure(&text).map(str::to_owned));
        }
        // The reason is on the line after the place: "thread 'name' (7) panicked at tests/one.rs:2:5:".
        let place = text.split_once(" panicked at ").map(|(_, place)| place.trim_end().to_owned());
        if in_panic && let Some(panic) = facts.panics.last_mut() {
            *panic += &format!(" {}", text.trim_end());
        }
        in_panic = place.is_some() && facts.panics.len() < NAMED;
        facts.panics.extend(place.filter(|_| in_panic));
        if text.starts_with("{\"reason\":") {
            facts.messages.push(text.into_owned());
        } else {
            to.write(&line);
        }
        line.clear();
    }
    facts
}

fn wait(child: &mut Child, limit: Duration) -> anyhow::Result<Option<ExitStatus>> {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if started.elapsed() > limit {
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

    fn shell(script: &str, limit: Duration, output: Output<'_>) -> Ended {
        let line = CommandLine::new("sh", &["-c", script]).with("WORD", "value");
        run(Path::new("/"), &line, limit, output).expect("sh runs")
    }

    #[test]
    fn the_exit_status_decides() {
        let limit = Duration::from_secs(10);
        assert!(shell("test $WORD = value", limit, Output::Shown).problem.is_none());
        assert!(shell("exit 3", limit, Output::Shown).problem.is_some_and(|problem| problem.contains('3')));
    }

    #[test]
    fn a_problem_names_the_tests_and_their_reasons() {
        let printed = "test one ... FAILED\n\nthread 'one' (7) panicked at tests/a.rs:2:5:\nassertion failed: 2 > 3\nnote: more";
        let ended =
            shell(&format!("printf '%s\\n' \"{printed}\"; exit 101"), Duration::from_secs(10), Output::Shown);
        let expected =
            "sh ended with exit status: 101: test one ... FAILED; tests/a.rs:2:5: assertion failed: 2 > 3";
        assert_eq!(ended.problem.as_deref(), Some(expected));
    }

    #[test]
    fn output_is_passed_on_and_counted() {
        let printed =
            "test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured\nRan 3 tests in 1s\nno newline";
        let buffer = Mutex::default();
        let text = format!("{{\"reason\":\"build-finished\"}}\n{printed}");
        let counted = Tally { passed: 5, failed: 0, ignored: 1, ..Tally::default() };
        let facts = forward(text.as_bytes(), Output::KeptOfIdle(&buffer));
        assert_eq!((facts.tally, facts.messages.len()), (counted, 1));
        assert_eq!(*buffer.lock().expect("a buffer"), printed.as_bytes());
    }

    #[test]
    fn a_problem_names_the_failures() {
        let named = ["6.1  not ok 1 one stall", "test a::b ... FAILED", "FAIL style"];
        let script = format!("printf '%s\\n' 'ok 2' '{}' 'test a::c ... ok'; exit 1", named.join("' '"));
        let problem = shell(&script, Duration::from_secs(10), Output::Shown).problem.expect("it failed");
        assert!(problem.ends_with(&format!(": {}", named.join("; "))), "{problem}");
    }

    #[test]
    fn kept_output_is_of_the_idle_priority() {
        let buffer = Mutex::default();
        let ended = shell("chrt --pid $$ >&2", Duration::from_secs(10), Output::KeptOfIdle(&buffer));
        assert_eq!(ended.problem, None);
        let said = buffer.into_inner().expect("a buffer");
        assert!(String::from_utf8_lossy(&said).contains("SCHED_IDLE"));
    }

    #[test]
    fn a_hanging_program_is_killed_with_its_children() {
        let started = Instant::now();
        let ended = shell("sleep 60 & wait", Duration::from_millis(100), Output::Shown);
        assert!(ended.problem.is_some_and(|problem| problem.contains("killed")));
        // The pipe closes only when the grandchild is gone too.
        assert!(started.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn a_family_is_found_in_any_order() {
        assert_eq!(descendants(2, &[(5, 4), (4, 2), (3, 1), (2, 1)]), BTreeSet::from([2, 4, 5]));
    }
}

//! Real processes of a command, bounded in time. Tests of `freshwire` and of `freshwire-lab` share this; each names its `PROGRAM`.
#![allow(clippy::disallowed_methods, reason = "a test waits for real processes")]

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

/// Far longer than any test needs on a busy machine.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(180);

/// A running program whose output is collected. It is killed when dropped.
pub(crate) struct Running {
    child: Child,
    stdout: Option<Receiver<Vec<u8>>>,
    stderr: Receiver<Vec<u8>>,
    stderr_lines: Receiver<String>,
}

/// How a program ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl Ended {
    /// Standard output as text.
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.stdout).expect("text on standard output")
    }

    /// The data of the one JSON line on standard output.
    pub(crate) fn json(&self) -> serde_json::Value {
        let line: serde_json::Value = serde_json::from_slice(&self.stdout).expect("one JSON line");
        line["data"].clone()
    }

    /// The program succeeded.
    #[track_caller]
    pub(crate) fn ok(self) -> Self {
        assert_eq!(self.code, Some(0), "{self:?}");
        self
    }

    /// The program failed like this, and said so without a panic.
    #[track_caller]
    pub(crate) fn failed(self, code: i32, message: &str) -> Self {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert!(self.stderr.contains(message), "{message:?} is not in {:?}", self.stderr);
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
        self
    }
}

/// The command under test.
pub(crate) fn freshwire(arguments: &[&str]) -> Command {
    // Programs: own
    let mut command = Command::new(crate::PROGRAM);
    command.args(arguments);
    command
}

/// Runs the command to its end with nothing on standard input.
pub(crate) fn run(arguments: &[&str]) -> Ended {
    Running::start(freshwire(arguments).stdin(Stdio::null())).wait()
}

impl Running {
    /// Starts a program; its output and, if it was not set, its input are pipes.
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
        let stdout = Some(collect(child.stdout.take().expect("a pipe")));
        let (line_sender, stderr_lines) = mpsc::channel();
        let (all_sender, stderr) = mpsc::channel();
        let mut lines = BufReader::new(child.stderr.take().expect("a pipe"));
        std::thread::spawn(move || {
            let mut all = Vec::new();
            let mut line = String::new();
            while lines.read_line(&mut line).is_ok_and(|read| read > 0) {
                all.extend_from_slice(line.as_bytes());
                let _ = line_sender.send(std::mem::take(&mut line));
            }
            let _ = all_sender.send(all);
        });
        Self { child, stdout, stderr, stderr_lines }
    }

    /// Waits for its next line on standard error.
    pub(crate) fn line(&self) -> String {
        self.stderr_lines.recv_timeout(TIMEOUT).expect("it says something")
    }

    /// Waits until it says on which port it listens: the number at the end of its first line.
    pub(crate) fn port(&self) -> u16 {
        let line = self.line();
        let port = line.trim().rsplit([':', ' ']).next().and_then(|port| port.parse().ok());
        port.unwrap_or_else(|| panic!("no port in {line:?}"))
    }

    /// Ctrl-C.
    pub(crate) fn interrupt(&self) {
        let status = Command::new("kill").args(["-INT", &self.child.id().to_string()]).status();
        assert!(status.is_ok_and(|status| status.success()));
    }

    /// Its standard input, once.
    pub(crate) fn stdin(&mut self) -> ChildStdin {
        self.child.stdin.take().expect("a pipe")
    }

    /// Waits for its end.
    #[track_caller]
    pub(crate) fn wait(mut self) -> Ended {
        let give_up = Instant::now() + TIMEOUT;
        let status = loop {
            match self.child.try_wait().expect("it can be waited for") {
                Some(status) => break status,
                None => {
                    assert!(
                        Instant::now() < give_up,
                        "it does not end: {:?}",
                        self.stderr_lines.try_iter().last()
                    )
                }
            }
            // Pause: until the next look.
            std::thread::sleep(Duration::from_millis(5));
        };
        let stdout = self.stdout.take().map(|stdout| stdout.recv_timeout(TIMEOUT).expect("its output ends"));
        let stderr = self.stderr.recv_timeout(TIMEOUT).expect("its standard error ends");
        Ended {
            code: status.code(),
            stdout: stdout.unwrap_or_default(),
            stderr: String::from_utf8_lossy(&stderr).into_owned(),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn collect(mut from: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut all = Vec::new();
        let _ = from.read_to_end(&mut all);
        let _ = sender.send(all);
    });
    receiver
}

/// Writes records with their length before them.
pub(crate) fn write_records(mut to: impl Write, records: &[Vec<u8>]) -> std::io::Result<()> {
    for record in records {
        to.write_all(&(record.len() as u32).to_be_bytes())?;
        to.write_all(record)?;
    }
    Ok(())
}

/// Records of many sizes whose bytes follow from their number.
pub(crate) fn some_records(count: usize) -> Vec<Vec<u8>> {
    let size = |number: usize| [1, 64, 1400, 20_000, 100_000][number % 5] + number;
    (0..count).map(|number| (0..size(number)).map(|at| (number * 31 + at * 7) as u8).collect()).collect()
}

/// Whether a program that a test needs is there. In CI it has to be.
pub(crate) fn has(program: &str, argument: &str) -> bool {
    succeeds(program, Command::new(program).arg(argument))
}

/// Whether a command succeeds that shows that a test's requirement is there. In CI it has to.
pub(crate) fn succeeds(requirement: &str, command: &mut Command) -> bool {
    let there = command.output().is_ok_and(|output| output.status.success());
    if !there {
        assert!(std::env::var_os("CI").is_none(), "{requirement} is needed in CI");
        println!("skipped: {requirement} is not on this machine");
    }
    there
}

/// The folder of the repository.
pub(crate) fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("two folders up")
}

//! Calling ffmpeg: what is missing is said in words, what it complains of is counted.

use std::ffi::OsStr;
use std::io::{self, Read as _};
use std::net::SocketAddr;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::thread::JoinHandle;

use anyhow::{Context as _, bail};

use crate::child::ChildGuard;

/// Checks that ffmpeg runs and has the encoder that is used here.
pub(crate) fn check() -> anyhow::Result<()> {
    let encoders = Command::new(PROGRAM).args(["-hide_banner", "-encoders"]).stdin(Stdio::null()).output();
    let output = encoders.map_err(explain)?;
    if !String::from_utf8_lossy(&output.stdout).contains("libx264") {
        bail!("this ffmpeg has no libx264 encoder: install a build that has one ({INSTALL})");
    }
    Ok(())
}

/// An ffmpeg that yields its processor to everything else, so that it never spoils a run's timing. Only errors are
/// printed, to standard error.
pub(crate) fn command() -> Command {
    let mut command = Command::new("nice");
    command.args(["-n", "19", PROGRAM, "-hide_banner", "-nostdin", "-loglevel", "error"]);
    command
}

/// Hands on the live stream of that format on its standard input, as it is coded; the output's arguments are missing.
pub(crate) fn live(format: &str) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(["-hide_banner", "-loglevel", "error", "-fflags", "nobuffer"]);
    command.args(["-f", format, "-i", "pipe:0", "-c", "copy"]).stdin(Stdio::piped()).stdout(Stdio::null());
    command
}

/// Publishes the MPEG-TS on its standard input as the stream `live` by RTSP over TCP.
pub(crate) fn publisher(server: SocketAddr) -> Command {
    let mut command = live("mpegts");
    command.args(["-f", "rtsp", "-rtsp_transport", "tcp", &format!("rtsp://{server}/live")]);
    command
}

/// Runs to the end; fails with what it printed.
pub(crate) fn run(command: &mut Command, what: &str) -> anyhow::Result<Vec<u8>> {
    let output = command.stdin(Stdio::null()).output().map_err(explain)?;
    if !output.status.success() {
        bail!("ffmpeg cannot {what}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(output.stdout)
}

/// An ffmpeg at work, with its complaints collected meanwhile.
pub(crate) struct Running {
    child: ChildGuard,
    complaints: Option<JoinHandle<String>>,
}

/// How an ffmpeg ended.
pub(crate) struct Ended {
    /// It ended by itself and reported success.
    pub(crate) success: bool,
    /// The lines that it printed.
    pub(crate) complaints: Vec<String>,
}

impl Running {
    /// Starts with pipes on the sides asked for.
    pub(crate) fn start(command: &mut Command, input: bool, output: bool) -> anyhow::Result<Self> {
        let pipe = |wanted| if wanted { Stdio::piped() } else { Stdio::null() };
        let mut child = command
            .stdin(pipe(input))
            .stdout(pipe(output))
            .stderr(Stdio::piped())
            .spawn()
            .map_err(explain)?;
        let complaints = child.stderr.take().map(|mut stderr| {
            std::thread::spawn(move || {
                let mut text = Vec::new();
                // Unreadable complaints are left out; the exit status says enough.
                let _ = stderr.read_to_end(&mut text);
                String::from_utf8_lossy(&text).into_owned()
            })
        });
        Ok(Self { child: ChildGuard(child), complaints })
    }

    /// Where to write its input; once.
    pub(crate) fn input(&mut self) -> anyhow::Result<ChildStdin> {
        self.child.stdin.take().context("ffmpeg has no input")
    }

    /// Where its output comes; once.
    pub(crate) fn output(&mut self) -> anyhow::Result<ChildStdout> {
        self.child.stdout.take().context("ffmpeg has no output")
    }

    /// Waits for the end.
    pub(crate) fn wait(mut self) -> anyhow::Result<Ended> {
        let status = self.child.wait().context("cannot wait for ffmpeg")?;
        let text = self.complaints.take().and_then(|thread| thread.join().ok()).unwrap_or_default();
        let complaints = text.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect();
        Ok(Ended { success: status.success(), complaints })
    }
}

/// A path as ffmpeg takes it: a file whatever its name looks like.
pub(crate) fn file(path: &std::path::Path) -> impl AsRef<OsStr> {
    let mut name = std::ffi::OsString::from("file:");
    name.push(path);
    name
}

fn explain(error: io::Error) -> anyhow::Error {
    match error.kind() {
        io::ErrorKind::NotFound => {
            anyhow::anyhow!(
                "ffmpeg is missing: it encodes the video and decodes what viewers see ({INSTALL})"
            )
        }
        _ => anyhow::Error::new(error).context("cannot start ffmpeg"),
    }
}

const PROGRAM: &str = "ffmpeg";
const INSTALL: &str = "Debian, Ubuntu: apt-get install ffmpeg; Fedora: dnf install ffmpeg";

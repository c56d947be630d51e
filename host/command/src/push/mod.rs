//! `freshwire-host push`: runs a program with the preloaded library.

mod library;
mod program;

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context as _, bail};
use clap::ValueEnum;

use crate::output::say;
use program::Obstacle;

/// Run a UDP receiver and keep its datagrams while it is busy.
///
/// When a socket's buffer is about to overflow, its datagrams move into the program's memory, from where the program's
/// receives take them. Nothing else changes: poll, select, epoll, timeouts and errors are the kernel's.
#[derive(clap::Args)]
#[command(after_help = "Exit code: the program's. 2: it could not be started.\n\n\
    Example: freshwire-host push --report -- ffmpeg -i rtp://0.0.0.0:5004 out.mkv")]
pub(crate) struct PushArgs {
    /// Memory for each socket, in MiB. Pages are taken as they are needed and given back afterwards.
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    memory: u32,
    /// What goes when that is full.
    #[arg(long, value_enum, default_value_t = Drop::Newest)]
    drop: Drop,
    /// Say at the end what was moved and what was dropped.
    #[arg(long)]
    report: bool,
    /// Use this library instead of the one that the command carries.
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
    /// The program and its arguments.
    #[arg(trailing_var_arg = true, required = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Drop {
    /// The last arrival; it stays in the kernel's buffer as long as there is room.
    Newest,
    /// The longest waiting datagram.
    Oldest,
}

/// Becomes the program.
pub(crate) fn run(args: &PushArgs) -> anyhow::Result<ExitCode> {
    let (name, arguments) = args.command.split_first().context("there is no program to run")?;
    let path = program::find(name)
        .with_context(|| format!("{}: no such program; give its path, or look at $PATH", name.display()))?;
    let obstacle = program::obstacle(&path);
    // Programs: own
    let mut command = Command::new(&path);
    command.arg0(name).args(arguments);
    match &obstacle {
        Some(obstacle) if obstacle.is_final() => {
            say(&format!("freshwire-host push: {}: {obstacle}; it runs untouched", path.display()));
        }
        obstacle => {
            if let Some(obstacle) = obstacle {
                say(&format!("freshwire-host push: {}: {obstacle}", path.display()));
            }
            preload(args, &mut command)?;
        }
    }
    let error = command.exec();
    bail!("cannot run {}: {error}", path.display())
}

fn preload(args: &PushArgs, command: &mut Command) -> anyhow::Result<()> {
    let library = match &args.library {
        Some(library) => {
            library.canonicalize().with_context(|| format!("no library {}", library.display()))?
        }
        None => library::unpack()?,
    };
    let mut list = library.into_os_string();
    anyhow::ensure!(
        !list.to_string_lossy().contains([' ', ':']),
        "{}: LD_PRELOAD takes no path with a space or a colon; set XDG_CACHE_HOME to another folder",
        list.display()
    );
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        list.push(":");
        list.push(others);
    }
    command.env("LD_PRELOAD", list);
    command.env("FRESHWIRE_PUSH_MEMORY", (u64::from(args.memory) << 20).to_string());
    command.env("FRESHWIRE_PUSH_DROP", if args.drop == Drop::Oldest { "oldest" } else { "newest" });
    if args.report {
        command.env("FRESHWIRE_PUSH_REPORT", "1");
    }
    Ok(())
}

/// Whether the library that the command carries can be preloaded here: where it lies, or why not.
pub(crate) fn readiness() -> Result<PathBuf, String> {
    let library = library::unpack().map_err(|error| format!("{error:#}"))?;
    let shell = PathBuf::from("/bin/sh");
    if let Some(obstacle) = program::obstacle(&shell).filter(Obstacle::is_final) {
        return Err(format!("{}: {obstacle}", shell.display()));
    }
    // Programs: own
    let output = Command::new(&shell)
        .args(["-c", "exit 0"])
        .env("LD_PRELOAD", &library)
        .output()
        .map_err(|error| error.to_string())?;
    // The dynamic linker says on standard error what it could not load, and goes on.
    if output.status.success() && output.stderr.is_empty() {
        Ok(library)
    } else {
        Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
    }
}

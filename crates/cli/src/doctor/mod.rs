//! `freshwire doctor`: what this machine has, what it lacks, and what to do.
//!
//! [`machine`] looks, [`checks`] judges what was seen, [`show`] prints it. Nothing is changed on the machine. The
//! namespaces are really made, in a process of their own, because entering a user namespace cannot be undone.

mod checks;
mod link;
mod machine;
mod show;

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use anyhow::Context;

use checks::{Check, Status};

/// What to show, and how.
#[derive(clap::Args)]
pub(crate) struct DoctorArgs {
    /// Print JSON Lines: one check to a line, then a summary.
    #[arg(long)]
    json: bool,
    /// Try the emulated link in this process and print what was seen as JSON; the doctor calls itself so.
    #[arg(long, hide = true)]
    probe_link: bool,
}

/// Runs every check. Exit code 0: all that is needed is there; 1: something is missing.
pub(crate) fn run(args: &DoctorArgs) -> anyhow::Result<ExitCode> {
    if args.probe_link {
        let seen = link::probe();
        print(&serde_json::to_string(&seen).context("cannot write what was seen")?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let checks = checks::all(&machine::look());
    let text = if args.json { show::json(&checks)? } else { show::table(&checks, coloured()) };
    print(&text)?;
    Ok(if all_needed(&checks) { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn all_needed(checks: &[Check]) -> bool {
    checks.iter().all(|check| check.status != Status::Missing)
}

fn coloured() -> bool {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    io::stdout().is_terminal() && !refused
}

/// A reader that has seen enough and closed the pipe is no error.
fn print(text: &str) -> anyhow::Result<()> {
    match writeln!(io::stdout().lock(), "{}", text.trim_end()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to standard output")
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;

//! The `freshwire-host` command: better queues for a host's own stack.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stderr, reason = "it panics when nobody reads: output::say"))]

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser};
use freshwire_cli::{generate, interrupt, output};

mod ack_filter;
mod doctor;
mod push;

/// Better queues for a host's own stack, below any program.
#[derive(Parser)]
#[command(name = "freshwire-host", version, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Drop acknowledgements that a sending host need not see, by eBPF.
    AckFilter(ack_filter::AckFilterArgs),
    /// Check this machine and print what `push` can use.
    Doctor(doctor::DoctorArgs),
    /// Write the man pages and shell completions.
    Generate(generate::GenerateArgs),
    /// Run a UDP receiver and keep its datagrams while it is busy.
    Push(push::PushArgs),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::AckFilter(args) => ack_filter::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Generate(args) => generate::run(&args, Cli::command()),
        Command::Push(args) => push::run(&args),
    };
    result.unwrap_or_else(|error| {
        output::say(&format!("freshwire-host: {error:#}"));
        ExitCode::from(2)
    })
}

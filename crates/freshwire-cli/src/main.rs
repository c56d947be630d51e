//! The `freshwire` command.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;

mod doctor;

/// Time-critical data that is never stale when it goes on the wire.
#[derive(Parser)]
#[command(name = "freshwire", version, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// What this machine has, what it lacks, and what to do.
    Doctor(doctor::DoctorArgs),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Doctor(args) => doctor::run(&args),
    };
    result.unwrap_or_else(|error| {
        eprintln!("freshwire: {error:#}");
        ExitCode::from(2)
    })
}

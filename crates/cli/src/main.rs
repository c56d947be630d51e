//! The `freshwire` command.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stderr, reason = "it panics when nobody reads: output::say"))]

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser};
use freshwire_cli::{generate, histogram, interrupt, output};

mod a1;
mod doctor;
mod endpoint;
mod key;
mod link;
mod recv;
#[cfg(feature = "moq")]
mod relay;
mod send;
mod serve;
#[expect(clippy::disallowed_methods, reason = "a link expires by the wall clock")]
mod sign;
mod title;
#[expect(clippy::disallowed_methods, reason = "a display reads the clock; nothing here has to be replayed")]
mod top;

/// Time-critical data, as fresh as the path allows.
#[derive(Parser)]
#[command(name = "freshwire", version, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Check this machine and print what is missing.
    Doctor(doctor::DoctorArgs),
    /// Write the man pages and shell completions.
    Generate(generate::GenerateArgs),
    /// Make the key of an A1 end and print its public key.
    Key(key::KeyArgs),
    /// Run a program behind an emulated link, without root.
    Link(link::LinkArgs),
    /// Receive a stream, check it, report its age.
    Recv(recv::RecvArgs),
    /// Run a relay of Media over QUIC: streams for many servers.
    #[cfg(feature = "moq")]
    Relay(relay::RelayArgs),
    /// Send a live source; drop stale records.
    Send(send::SendArgs),
    /// Serve live streams to any player, fresh even on slow paths.
    Serve(serve::ServeArgs),
    /// Make a link that lets anybody in until it expires.
    Sign(sign::SignArgs),
    /// Show a server's viewers and the freshness of their streams.
    Top(top::TopArgs),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    // The list of processes shows them then, as the manual says.
    let _ = title::hide_secrets();
    let result = match cli.command {
        Command::Doctor(args) => doctor::run(&args),
        Command::Generate(args) => generate::run(&args, Cli::command()),
        Command::Key(args) => key::run(&args),
        Command::Link(args) => link::run(args),
        Command::Recv(args) => recv::run(&args),
        #[cfg(feature = "moq")]
        Command::Relay(args) => relay::run(&args),
        Command::Send(args) => send::run(&args),
        Command::Serve(args) => serve::run(args),
        Command::Sign(args) => sign::run(&args),
        Command::Top(args) => top::run(&args),
    };
    result.unwrap_or_else(|error| {
        output::say(&format!("freshwire: {error:#}"));
        ExitCode::from(2)
    })
}

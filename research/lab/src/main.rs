//! The laboratory: experiments across emulated links, benchmarks, simulations and the demonstration.
//!
//! A runner produces [`schema::Run`]s and appends them to a result file. Everything shown to a person (tables, the
//! HTML report) and everything checked elsewhere comes from that file alone.
#![cfg_attr(not(test), deny(clippy::print_stderr, reason = "it panics when nobody reads: output::say"))]

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use freshwire_cli::{histogram, output};

mod bench;
mod cells;
mod child;
mod coded;
mod demo;
mod evidence;
mod experiment;
mod ffmpeg;
mod metrics;
mod product;
mod quic;
mod report;
mod results;
mod scenario;
mod schema;
mod scheme;
mod screen;
mod sendpath;
mod share;
mod sim;
mod ssim;
mod state;
mod store;
mod streams;
mod table;
#[cfg(test)]
mod testing;
mod video;
mod viewers;

/// Experiments across an emulated link: no root, no server, results in a folder.
#[derive(Parser)]
#[command(name = "freshwire-lab", version, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure what Freshwire costs, each number beside its baseline.
    Bench(Box<bench::BenchArgs>),
    /// Live video over a bad link: plain TCP beside Freshwire.
    Demo(demo::DemoArgs),
    /// The tables and figures of the five publications, measured again and shown beside them.
    Evidence(evidence::EvidenceArgs),
    /// Video-like frames across a link below their rate and across a dip.
    Frames(streams::FramesArgs),
    /// Layered video (Birkedal 2006): a source of N layers across a link that is too slow.
    Layers(streams::LayersArgs),
    /// Table and report again, from a result file of `layers` or `frames`.
    Report {
        /// The file `results.jsonl` of an earlier run.
        results: PathBuf,
    },
    /// A viewer's screen across a link below the stream's rate: age, motion, quality.
    Screen(screen::ScreenArgs),
    /// A1 and Freshwire over TCP beside plain TCP across one bottleneck: the share of each.
    Share(share::ShareArgs),
    /// Play scenarios of the A1 transport in virtual time.
    Sim(sim::SimArgs),
    /// State of many objects: the age of each one's newest value at a fast, a slow or a stalled program.
    State(state::StateArgs),
    /// Real video in spatial and temporal layers (libvpx) across a link that is too slow, decoded.
    Video(streams::VideoArgs),
    /// Real players across slow and broken links, served by `freshwire serve` and by another live server.
    Viewers(viewers::ViewersArgs),
    /// One run, for the laboratory itself: a plan on standard input.
    #[command(hide = true)]
    Worker {
        #[arg(value_enum)]
        kind: Kind,
    },
}

/// The kinds of [`scenario::pool::Task`].
#[derive(Clone, Copy, ValueEnum)]
enum Kind {
    Stream,
    Screen,
    Share,
    State,
    Viewers,
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Bench(args) => bench::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Evidence(args) => evidence::run(&args),
        Command::Frames(args) => streams::frames(&args),
        Command::Layers(args) => streams::layers(&args),
        Command::Report { results } => streams::report(&results),
        Command::Screen(args) => screen::run(&args),
        Command::Share(args) => share::run(&args),
        Command::Sim(args) => sim::run(&args),
        Command::State(args) => state::run(&args),
        Command::Video(args) => streams::video(&args),
        Command::Viewers(args) => viewers::run(&args),
        Command::Worker { kind: Kind::Stream } => scenario::pool::work::<streams::Stream>(),
        Command::Worker { kind: Kind::Screen } => scenario::pool::work::<screen::Task>(),
        Command::Worker { kind: Kind::Share } => scenario::pool::work::<share::Plan>(),
        Command::Worker { kind: Kind::State } => scenario::pool::work::<state::Plan>(),
        Command::Worker { kind: Kind::Viewers } => scenario::pool::work::<viewers::Task>(),
    };
    result.unwrap_or_else(|error| {
        output::say(&format!("freshwire-lab: {error:#}"));
        ExitCode::from(2)
    })
}

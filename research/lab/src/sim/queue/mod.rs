//! `freshwire-lab sim queue`: the receive queue of Choi, Kim and Yoo, beside what they published.

mod figures;
mod show;
mod study;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use freshwire_sim::queue::{Config, PushConfig, Reading};

use crate::output::{self, json_line};
use study::Study;

/// A network card's queue, socket buffers and processes that run only while the system is idle, with and without packet push.
/// The report shows table 2, the regression and figures 3 and 9 to 12 of Choi, Kim and Yoo, "Self-prevention of socket buffer
/// overflow" (2007), beside the published numbers. Times are in ticks.
#[derive(clap::Args)]
pub(crate) struct QueueArgs {
    /// Experiments of each setting, from 1 to 100000; the article has 1000.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    repeat: u32,
    /// Seed of the first experiment; the others have those that follow. The curves over time are of this one.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Content of a transaction of the system; the article does not say.
    #[arg(long, value_enum, default_value_t = ReadingArg::Batch)]
    reading: ReadingArg,
    /// Packets that the NIC queue holds.
    #[arg(long, default_value_t = 300)]
    nic: usize,
    /// Packets that each socket buffer holds.
    #[arg(long, default_value_t = 64)]
    socket: usize,
    /// Processes, each with a socket buffer.
    #[arg(long, default_value_t = 3)]
    processes: usize,
    /// Duration of an experiment, in ticks.
    #[arg(long, default_value_t = 300.0)]
    ticks: f64,
    /// Mean time of a recv(), in ticks; the article does not say.
    #[arg(long, default_value_t = 1.0)]
    recv_ticks: f64,
    /// Packets that a recv() takes at most, the size of the program's buffer; the article does not say for which figure.
    #[arg(long, default_value_t = 10)]
    recv_packets: usize,
    /// Mean time of a push, in ticks; the article does not say.
    #[arg(long, default_value_t = 0.1)]
    push_ticks: f64,
    /// Print one JSON line instead of tables.
    #[arg(long)]
    json: bool,
    /// Also write a report with the figures to this HTML file.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum ReadingArg {
    /// One transaction takes all packets that wait.
    Batch,
    /// One transaction for each packet, one after the other.
    Serial,
    /// One transaction for each packet, all at the same time.
    Overlapping,
}

/// Runs `freshwire-lab sim queue`.
pub(crate) fn run(args: &QueueArgs) -> anyhow::Result<ExitCode> {
    let config = Config {
        nic_packets: args.nic,
        socket_packets: args.socket,
        processes: args.processes,
        length_ticks: args.ticks,
        reading: match args.reading {
            ReadingArg::Batch => Reading::Batch,
            ReadingArg::Serial => Reading::Serial,
            ReadingArg::Overlapping => Reading::Overlapping,
        },
        receive_ticks: args.recv_ticks,
        receive_packets: args.recv_packets,
        ..Config::default()
    };
    let push = PushConfig { mean_ticks: args.push_ticks, ..PushConfig::default() };
    let study = Study::run(&config, push, args.seed, args.repeat)?;
    if let Some(path) = &args.out {
        std::fs::write(path, figures::page(&study)?)
            .with_context(|| format!("cannot write the report to {}", path.display()))?;
    }
    let text = if args.json { json_line("sim_queue", &study)? } else { show::report(&study) };
    output::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

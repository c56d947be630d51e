//! `freshwire-lab sim queue`: the receive queue of Choi, Kim and Yoo, beside what they published.

mod figures;
mod show;
mod study;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use freshwire_sim::queue::{Config, PushConfig};

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
    /// Packets that the NIC queue holds.
    #[arg(long, default_value_t = 300)]
    nic: usize,
    /// Print one JSON line instead of tables.
    #[arg(long)]
    json: bool,
    /// Also write a report with the figures to this HTML file.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Runs `freshwire-lab sim queue`.
pub(crate) fn run(args: &QueueArgs) -> anyhow::Result<ExitCode> {
    let config = Config { nic_packets: args.nic, ..Config::default() };
    let study = Study::run(&config, PushConfig::default(), args.seed, args.repeat)?;
    if let Some(path) = &args.out {
        std::fs::write(path, figures::page(&study)?)
            .with_context(|| format!("cannot write the report to {}", path.display()))?;
    }
    let text = if args.json { json_line("sim_queue", &study)? } else { show::report(&study) };
    output::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

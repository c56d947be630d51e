//! `freshwire-lab sim speed`: A1's congestion control on fast paths.

use std::process::ExitCode;
use std::time::Duration;

use freshwire_record::{Rate, parse_duration};
use freshwire_sim::{SpeedConfig, SpeedOutcome};

use crate::output::{self, say};
use crate::table::{Table, percent};

/// Flows over A1 that send as much as goes across one path in virtual time, for each combination of the values. The second half of
/// each run is measured. 10 Gbit/s at 100 ms takes minutes.
#[derive(clap::Args)]
pub(crate) struct SpeedArgs {
    /// Rates of the path.
    #[arg(long, value_delimiter = ',', default_value = "100Mbit,1Gbit,10Gbit")]
    rate: Vec<Rate>,
    /// Round trips without a queue.
    #[arg(long, value_delimiter = ',', default_value = "1ms,10ms,50ms,100ms", value_parser = parse_duration)]
    round_trip: Vec<Duration>,
    /// Queues, in parts of what the path carries in a round trip.
    #[arg(long, value_delimiter = ',', default_value = "0.25,1,4")]
    buffer: Vec<f64>,
    /// Shares of packets lost by chance, both ways.
    #[arg(long, value_delimiter = ',', default_value = "0,0.0001,0.001", value_parser = share)]
    loss: Vec<f64>,
    /// Numbers of flows, from 1 to 64, that begin at the same time.
    #[arg(long, value_delimiter = ',', default_value = "1,4", value_parser = clap::value_parser!(u8).range(1..=64))]
    flows: Vec<u8>,
    /// Length of a run in round trips.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(2..=100_000))]
    round_trips: u32,
    /// Seed of the losses and of all else that is random.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if (0.0..1.0).contains(&share) => Ok(share),
        _ => Err(format!("{text:?} is no share: 0.001 is one of a thousand")),
    }
}

impl SpeedArgs {
    fn configs(&self) -> Vec<SpeedConfig> {
        let mut configs = Vec::new();
        for &rate in &self.rate {
            for &round_trip in &self.round_trip {
                for &buffer in &self.buffer {
                    for &loss in &self.loss {
                        configs.extend(self.flows.iter().map(|&flows| SpeedConfig {
                            rate,
                            round_trip,
                            buffer,
                            loss,
                            flows: flows.into(),
                            round_trips: self.round_trips,
                            seed: self.seed,
                        }));
                    }
                }
            }
        }
        configs
    }
}

/// Runs `freshwire-lab sim speed`.
pub(crate) fn run(args: &SpeedArgs) -> anyhow::Result<ExitCode> {
    let configs = args.configs();
    let mut rows = Vec::new();
    for (at, config) in configs.iter().enumerate() {
        say(&format!("run {} of {} ...", at + 1, configs.len()));
        rows.push(row(config, &config.run()));
    }
    let caption = format!("Second half of {} round trips, seed {}", args.round_trips, args.seed);
    let head =
        "path | buffer | loss | flows | used | filled after | queue p50 | p95 | dropped | in all | shares";
    output::print(&Table::new(caption, 1, head, rows).to_terminal())?;
    Ok(ExitCode::SUCCESS)
}

fn row(config: &SpeedConfig, outcome: &SpeedOutcome) -> Vec<String> {
    let filled = outcome.filled_after.map_or("never".to_owned(), |after| {
        format!("{:.1} round trips", after.as_secs_f64() / config.round_trip.as_secs_f64())
    });
    let [p50, p95] = outcome.queue.map(|wait| format!("{:.2} ms", wait.as_secs_f64() * 1e3));
    let [all, later] = outcome.dropped.map(percent);
    let [least, most] = outcome.shares;
    vec![
        format!("{}, {}", config.rate, output::millis(config.round_trip)),
        config.buffer.to_string(),
        config.loss.to_string(),
        config.flows.to_string(),
        format!("{:.3}", outcome.used),
        filled,
        p50,
        p95,
        later,
        all,
        format!("{least:.2} to {most:.2}"),
    ]
}

//! The command line of `freshwire-lab viewers`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use freshwire_record::{Rate, parse_duration, parse_share, parse_size};

use super::player::Player;
use super::run::Plan;
use super::server::Server;
use crate::scenario::Repetitions;
use crate::schema::{LinkConfig, RateStep};

/// `freshwire serve` and another live server, each with real players across slow and broken links.
#[derive(Args)]
pub(crate) struct ViewersArgs {
    /// Servers, separated by commas; each link and player meets one after the other.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "freshwire,gstreamer")]
    server: Vec<Server>,
    /// Players, separated by commas.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "ffmpeg,gstreamer,probe")]
    player: Vec<Player>,
    /// Prepared links, separated by commas.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "slow,loss,dip,outage")]
    link: Vec<Link>,
    /// A steady link of this rate instead of the prepared ones.
    #[arg(long)]
    rate: Option<Rate>,
    /// Share of packets lost in both directions, with --rate.
    #[arg(long, default_value = "0", value_parser = parse_share, requires = "rate")]
    loss: f64,
    /// One-way delay, with --rate.
    #[arg(long, default_value = "0ms", value_parser = parse_duration, requires = "rate")]
    delay: Duration,
    /// Bytes that the bottleneck's queue holds.
    #[arg(long, default_value = "15000", value_parser = parse_size)]
    queue: u64,
    /// Mean rate of the stream: 720p25, I, P, B and b pictures, a key picture every 2 s.
    #[arg(long, default_value = "1Mbit")]
    pub(super) stream_rate: Rate,
    /// For how long a player looks.
    #[arg(long, default_value = "60s", value_parser = parse_duration)]
    pub(super) duration: Duration,
    #[command(flatten)]
    repetitions: Repetitions,
    /// Settings for `freshwire serve`, as its --config takes them.
    #[arg(long, value_name = "FILE")]
    serve_config: Option<PathBuf>,
    /// Capture each run's packets and count how full the segments are.
    #[arg(long)]
    pub(super) capture: bool,
    /// Folder for viewers.jsonl, viewers.html, the stream and the servers' log; an interrupted experiment is taken up from there.
    #[arg(long, default_value = "freshwire-viewers")]
    pub(super) out: PathBuf,
}

/// A prepared link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Link {
    /// 300 kbit/s.
    Slow,
    /// 300 kbit/s, 5 % loss, 50 ms each way.
    Loss,
    /// 1 Mbit/s, then 200 kbit/s for the middle third, then 1 Mbit/s.
    Dip,
    /// 1 Mbit/s, nothing for 5 s, then 1 Mbit/s.
    Outage,
}

impl ViewersArgs {
    /// All runs, those of the servers next to each other.
    pub(super) fn plans(&self) -> anyhow::Result<Vec<Plan>> {
        anyhow::ensure!(self.duration >= Duration::from_secs(1), "--duration is at least 1 s");
        let mut plans = Vec::new();
        for seed in self.repetitions.seeds(1) {
            for link in self.links(seed) {
                for &player in &self.player {
                    plans.extend(self.server.iter().map(|&server| Plan {
                        server,
                        player,
                        serve_config: self.serve_config.clone(),
                        link: link.clone(),
                        duration_s: self.duration.as_secs_f64(),
                        rate_bps: self.stream_rate.bits_per_sec(),
                    }));
                }
            }
        }
        Ok(plans)
    }

    fn links(&self, seed: u64) -> Vec<LinkConfig> {
        let config = |rate: Rate, loss, delay: Duration, steps| LinkConfig {
            steps,
            ..LinkConfig::steady(Some(rate.bits_per_sec()), loss, delay, Some(self.queue), seed)
        };
        if let Some(rate) = self.rate {
            return vec![config(rate, self.loss, self.delay, Vec::new())];
        }
        let changes = |first: Duration, second: Duration, between: u64| {
            let step = |at: Duration, rate| RateStep { at_ns: at.as_nanos() as u64, rate_bps: Some(rate) };
            vec![step(first, between), step(second, WIDE.bits_per_sec())]
        };
        let third = self.duration / 3;
        let links = self.link.iter().map(|link| match link {
            Link::Slow => config(SLOW, 0.0, Duration::ZERO, Vec::new()),
            Link::Loss => config(SLOW, 0.05, Duration::from_millis(50), Vec::new()),
            Link::Dip => config(WIDE, 0.0, Duration::ZERO, changes(third, third * 2, 200_000)),
            Link::Outage => config(WIDE, 0.0, Duration::ZERO, changes(third, third + OUTAGE, 0)),
        });
        links.collect()
    }
}

const SLOW: Rate = Rate::from_bits_per_sec(300_000);
const WIDE: Rate = Rate::from_bits_per_sec(1_000_000);
const OUTAGE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        args: ViewersArgs,
    }

    fn plans(arguments: &[&str]) -> Vec<Plan> {
        let words = std::iter::once("x").chain(arguments.iter().copied());
        Cli::try_parse_from(words).unwrap().args.plans().unwrap()
    }

    #[test]
    fn servers_take_turns_on_every_link() {
        let plans = plans(&["--repeat", "2"]);
        assert_eq!(plans.len(), 2 * 4 * 3 * 2);
        for pair in plans.chunks(2) {
            assert_eq!(pair[0].link, pair[1].link);
            assert_eq!((pair[0].server, pair[1].server), (Server::Freshwire, Server::Gstreamer));
        }
        let outage = &plans[3 * 6].link;
        let second = 1_000_000_000;
        assert_eq!(outage.steps[0], RateStep { at_ns: 20 * second, rate_bps: Some(0) });
        assert_eq!(outage.steps[1].at_ns, 25 * second);
    }

    #[test]
    fn a_rate_makes_a_link_of_its_own() {
        let plans =
            plans(&["--rate", "500kbit", "--loss", "1%", "--player", "probe", "--server", "gstreamer"]);
        assert_eq!(plans.len(), 1);
        assert_eq!((plans[0].link.rate_bps, plans[0].link.loss), (Some(500_000), 0.01));
    }
}

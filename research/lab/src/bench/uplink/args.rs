//! The options of `uplink`.

use std::fmt;
use std::time::Duration;

use clap::{Args, ValueEnum};
use freshwire_link::{Config, ConfigError, Loss, Schedule, Step};
use freshwire_record::{Rate, parse_duration, parse_share, parse_size};

use super::sender::Subject;

/// What happens to the uplink.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Trouble {
    /// Its rate falls for a while.
    Dip,
    /// It loses packets.
    Loss,
}

/// The options of `uplink`.
#[derive(Args, Clone, Debug)]
pub(in crate::bench) struct UplinkArgs {
    /// What sends in `uplink`.
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        value_name = "NAME,...",
        default_value = "direct,rule,freshwire"
    )]
    pub(super) uplink_subjects: Vec<Subject>,
    /// What happens to the uplink.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "NAME,...", default_value = "dip,loss")]
    uplink_trouble: Vec<Trouble>,
    /// Rates of the uplink, before and after a dip.
    #[arg(long, value_delimiter = ',', value_name = "RATE,...", default_value = "6Mbit")]
    uplink_rates: Vec<Rate>,
    /// Rates in the dip.
    #[arg(long, value_delimiter = ',', value_name = "RATE,...", default_value = "1Mbit")]
    uplink_dips: Vec<Rate>,
    /// How long the uplink has its rate, the dip, and the rate again; without a dip, all of it.
    #[arg(long, value_delimiter = ',', value_name = "TIME,TIME,TIME", default_value = "10s,15s,10s", num_args = 1.., value_parser = parse_duration)]
    uplink_times: Vec<Duration>,
    /// Shares of packets that the uplink loses, in both directions.
    #[arg(long, value_delimiter = ',', value_name = "SHARE,...", default_value = "2%", value_parser = parse_share)]
    uplink_losses: Vec<f64>,
    /// Round trips of the uplink, without its queue.
    #[arg(long, value_delimiter = ',', value_name = "TIME,...", default_value = "40ms", value_parser = parse_duration)]
    uplink_round_trips: Vec<Duration>,
    /// Congestion control of the sending host, by kernel name.
    #[arg(long, value_delimiter = ',', value_name = "NAME,...", default_value = "cubic")]
    uplink_congestion: Vec<String>,
    /// Bytes that the uplink's queue holds: by default what a round trip of 40 ms carries at 6 Mbit/s.
    #[arg(long, value_name = "SIZE", default_value = "30kB", value_parser = parse_size)]
    uplink_queue: u64,
    /// Rates of the encoder's pictures; 160 kbit/s of sound come on top.
    #[arg(long, value_delimiter = ',', value_name = "RATE,...", default_value = "4Mbit")]
    uplink_bitrates: Vec<Rate>,
    /// A picture counts if it is whole at the server at most this long after its capture.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    pub(super) uplink_on_time: Duration,
}

/// An uplink and a stream.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Case {
    rate: Rate,
    dip: Option<Rate>,
    times: [Duration; 3],
    loss: f64,
    round_trip: Duration,
    queue: u64,
    pub(super) congestion: String,
    pub(super) bitrate: Rate,
}

impl UplinkArgs {
    /// Every combination, in the order of the report.
    ///
    /// # Errors
    ///
    /// If there are not three times.
    pub(super) fn cases(&self) -> anyhow::Result<Vec<Case>> {
        let times = <[Duration; 3]>::try_from(self.uplink_times.clone()).map_err(|times| {
            anyhow::anyhow!(
                "--uplink-times has {} times; give those before, in and after the dip",
                times.len()
            )
        })?;
        let mut cases = Vec::new();
        for trouble in &self.uplink_trouble {
            let troubles: Vec<(Option<Rate>, f64)> = match trouble {
                Trouble::Dip => self.uplink_dips.iter().map(|dip| (Some(*dip), 0.0)).collect(),
                Trouble::Loss => self.uplink_losses.iter().map(|loss| (None, *loss)).collect(),
            };
            for (dip, loss) in troubles {
                for &rate in &self.uplink_rates {
                    for &round_trip in &self.uplink_round_trips {
                        for congestion in &self.uplink_congestion {
                            cases.extend(self.uplink_bitrates.iter().map(|&bitrate| Case {
                                rate,
                                dip,
                                times,
                                loss,
                                round_trip,
                                queue: self.uplink_queue,
                                congestion: congestion.clone(),
                                bitrate,
                            }));
                        }
                    }
                }
            }
        }
        Ok(cases)
    }
}

impl Case {
    /// How long pictures count.
    pub(super) fn length(&self) -> Duration {
        self.times.iter().sum()
    }

    /// From the first picture that counts to the begin and the end of the dip.
    pub(super) fn dip(&self) -> Option<[Duration; 2]> {
        let [before, dip, _] = self.times;
        self.dip.map(|_| [before, before + dip])
    }

    /// Whether its packets are lost.
    pub(super) fn has_loss(&self) -> bool {
        self.loss > 0.0
    }

    /// The uplink, and the way back, which has no dip. Pictures count `lead` after the link's start.
    pub(super) fn directions(&self, lead: Duration, seed: u64) -> anyhow::Result<[Config; 2]> {
        let mut steps = vec![Step { at: Duration::ZERO, rate: Some(self.rate) }];
        if let (Some(rate), Some([begin, end])) = (self.dip, self.dip()) {
            steps.push(Step { at: lead + begin, rate: Some(rate) });
            steps.push(Step { at: lead + end, rate: Some(self.rate) });
        }
        let direction = |schedule: Schedule| -> Result<Config, ConfigError> {
            let loss = if self.has_loss() { Loss::Random { share: self.loss } } else { Loss::None };
            let builder = Config::builder().delay(self.round_trip / 2).queue_bytes(self.queue);
            builder.schedule(schedule).loss(loss).seed(seed).build()
        };
        Ok([direction(Schedule::from_steps(steps, None)?)?, direction(Schedule::constant(self.rate))?])
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rate, loss, round_trip, congestion, bitrate, .. } = self;
        match self.dip {
            Some(dip) => write!(f, "{rate}, {dip}, {rate}")?,
            None => write!(f, "{rate}, {} % lost", (loss * 1e6).round() / 1e4)?,
        }
        write!(f, ", {:.0} ms, {congestion}; {bitrate}", round_trip.as_secs_f64() * 1e3)
    }
}

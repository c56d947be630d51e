use std::time::Duration;

use freshwire_record::Rate;

use crate::loss::Loss;
use crate::schedule::Schedule;

/// One direction of a link, checked. The default is unlimited, without delay or loss, with a queue of
/// [`Config::DEFAULT_QUEUE_BYTES`] and seed 0.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    schedule: Schedule,
    delay: Duration,
    queue_bytes: u64,
    in_flight_bytes: u64,
    loss: Loss,
    late_share: f64,
    late_by: Duration,
    seed: u64,
}

/// A link that cannot be.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A share that is none, or a burst length that does not go with it.
    #[error(
        "{0:?} cannot be: shares go from 0 to 1, a mean burst is at least 1 packet, and share / (1 - share) is at most the mean burst"
    )]
    Loss(Loss),
    /// An impossible share of delayed packets.
    #[error("a share of {0} delayed packets is impossible; give one from 0 to 1")]
    LateShare(f64),
    /// The rate is zero for ever.
    #[error("a link of rate zero carries nothing: leave the rate out for an unlimited link")]
    NoRate,
    /// An outage on top of a schedule that repeats.
    #[error("an outage cannot be added to a trace that repeats: write it into the trace as a step of rate 0")]
    OutageInRepeat,
    /// Longer than an hour.
    #[error("a delay of {0:?} is more than an hour")]
    Delay(Duration),
}

impl Config {
    /// Ten full-size packets.
    pub const DEFAULT_QUEUE_BYTES: u64 = 15_000;
    /// The bound of what is on the wire, see [`Builder::in_flight_bytes`].
    pub const DEFAULT_IN_FLIGHT_BYTES: u64 = 64 << 20;

    /// Starts from the default.
    pub fn builder() -> Builder {
        Builder { config: Self::default(), outages: Vec::new() }
    }

    /// The rate over time.
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    pub(crate) fn set_schedule(&mut self, schedule: Schedule) {
        self.schedule = schedule;
    }

    /// One-way delay, added after serialisation.
    pub fn delay(&self) -> Duration {
        self.delay
    }

    /// How many bytes may wait for the transmitter.
    pub fn queue_bytes(&self) -> u64 {
        self.queue_bytes
    }

    /// How many bytes may be on the wire.
    pub fn in_flight_bytes(&self) -> u64 {
        self.in_flight_bytes
    }

    /// What the wire loses.
    pub fn loss(&self) -> Loss {
        self.loss
    }

    /// The share of packets that arrive late, from 0 to 1, and how much later than otherwise.
    pub fn reordering(&self) -> (f64, Duration) {
        (self.late_share, self.late_by)
    }

    /// The seed of loss and reordering.
    pub fn seed(&self) -> u64 {
        self.seed
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            schedule: Schedule::unlimited(),
            delay: Duration::ZERO,
            queue_bytes: Self::DEFAULT_QUEUE_BYTES,
            in_flight_bytes: Self::DEFAULT_IN_FLIGHT_BYTES,
            loss: Loss::None,
            late_share: 0.0,
            late_by: Duration::ZERO,
            seed: 0,
        }
    }
}

/// Builds a [`Config`]; each setter replaces what was set before, except [`Builder::outage`], which adds.
#[derive(Clone, Debug)]
#[must_use]
pub struct Builder {
    config: Config,
    outages: Vec<(Duration, Duration)>,
}

impl Builder {
    /// A constant rate.
    pub fn rate(self, rate: Rate) -> Self {
        self.schedule(Schedule::constant(rate))
    }

    /// A rate over time.
    pub fn schedule(mut self, schedule: Schedule) -> Self {
        self.config.schedule = schedule;
        self
    }

    /// Nothing passes from `start` (since the link's start) for `length`.
    pub fn outage(mut self, start: Duration, length: Duration) -> Self {
        self.outages.push((start, length));
        self
    }

    /// One-way delay.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.config.delay = delay;
        self
    }

    /// Bytes that may wait behind the packet in the transmitter; zero makes every packet that finds it busy drop.
    pub fn queue_bytes(mut self, bytes: u64) -> Self {
        self.config.queue_bytes = bytes;
        self
    }

    /// Bytes that may be in the transmitter and on the wire. It bounds the memory of an unlimited link with a delay;
    /// what exceeds it is dropped and counted apart.
    pub fn in_flight_bytes(mut self, bytes: u64) -> Self {
        self.config.in_flight_bytes = bytes;
        self
    }

    /// What the wire loses.
    pub fn loss(mut self, loss: Loss) -> Self {
        self.config.loss = loss;
        self
    }

    /// Each packet arrives `late_by` later than otherwise with probability `share`, from 0 to 1. Packets behind it overtake it.
    pub fn reorder(mut self, share: f64, late_by: Duration) -> Self {
        (self.config.late_share, self.config.late_by) = (share, late_by);
        self
    }

    /// The seed of loss and reordering. The two directions of a path differ with the same seed.
    pub fn seed(mut self, seed: u64) -> Self {
        self.config.seed = seed;
        self
    }

    /// Checks everything.
    ///
    /// # Errors
    ///
    /// If a value is out of range.
    pub fn build(self) -> Result<Config, ConfigError> {
        let Self { mut config, outages } = self;
        if !config.loss.is_valid() {
            return Err(ConfigError::Loss(config.loss));
        }
        if config.schedule.steps().iter().all(|step| step.rate == Some(Rate::default())) {
            return Err(ConfigError::NoRate);
        }
        if !(0.0..=1.0).contains(&config.late_share) {
            return Err(ConfigError::LateShare(config.late_share));
        }
        for delay in [config.delay, config.late_by] {
            if delay > Duration::from_secs(3600) {
                return Err(ConfigError::Delay(delay));
            }
        }
        for (start, length) in outages {
            config.schedule =
                config.schedule.with_outage(start, length).ok_or(ConfigError::OutageInRepeat)?;
        }
        Ok(config)
    }
}

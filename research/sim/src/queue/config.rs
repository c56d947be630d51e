/// How the system serves the packets of the NIC queue. The article gives the service time, and not what it is of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reading {
    /// One transaction takes all packets that wait, as a receive interrupt does. The default: it fits the published table best.
    #[default]
    Batch,
    /// One transaction for each packet, one after the other.
    Serial,
    /// One transaction for each packet, all of them at the same time: a delay line.
    Overlapping,
}

/// Which socket the next packet is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spread {
    /// The first one; the other processes have nothing to receive. The default: with packets for three sockets and an interval of
    /// two ticks, 300 ticks bring 50 packets to each buffer, and the published buffers of 64 could not overflow.
    #[default]
    First,
    /// Each of them with the same probability.
    Even,
}

/// Packet push: the buffer is emptied into the process's memory before it overflows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PushConfig {
    /// Mean time of one push, in ticks, exponentially distributed. The article gives none.
    pub mean_ticks: f64,
    /// Packets that one push moves at most: the size of the process's buffer.
    pub packets: usize,
}

impl Default for PushConfig {
    /// A push of 0.1 ticks that empties the whole buffer.
    fn default() -> Self {
        Self { mean_ticks: 0.1, packets: usize::MAX }
    }
}

/// One experiment. [`Config::default`] is the article's Table 1 with the best reading of what it leaves open.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Packets that the NIC queue holds (`NQLen`).
    pub nic_packets: usize,
    /// Packets that each socket buffer holds (`SQLen`).
    pub socket_packets: usize,
    /// Processes, each with a socket buffer of its own (`procNum`).
    pub processes: usize,
    /// Mean time between two arrivals, in ticks (`arrivalInterval`).
    pub arrival_ticks: f64,
    /// Duration of a transaction, in ticks (`serviceTime`).
    pub transaction_ticks: f64,
    /// When the experiment ends, in ticks.
    pub length_ticks: f64,
    /// What a transaction is of.
    pub reading: Reading,
    /// Which sockets the packets are for.
    pub spread: Spread,
    /// Mean time of one `recv()`, in ticks, exponentially distributed. The article gives none.
    pub receive_ticks: f64,
    /// Packets that one `recv()` takes at most: the size of the process's buffer. The article varies it in figure 12 and does not
    /// say what the other figures have.
    pub receive_packets: usize,
    /// Packet push; `None` is the plain UNIX system.
    pub push: Option<PushConfig>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            nic_packets: 300,
            socket_packets: 64,
            processes: 3,
            arrival_ticks: 2.0,
            transaction_ticks: 5.0,
            length_ticks: 300.0,
            reading: Reading::Batch,
            spread: Spread::First,
            receive_ticks: 1.0,
            receive_packets: 10,
            push: None,
        }
    }
}

impl Config {
    /// The same with another arrival interval and another transaction delay, the two factors of the article's table 2.
    pub fn with_factors(&self, arrival_ticks: f64, transaction_ticks: f64) -> Self {
        Self { arrival_ticks, transaction_ticks, ..self.clone() }
    }

    /// The same with packet push.
    pub fn with_push(&self, push: PushConfig) -> Self {
        Self { push: Some(push), ..self.clone() }
    }

    /// Checks every value.
    ///
    /// # Errors
    ///
    /// If a count is zero, or a time is not a positive, finite number of ticks; or if the experiment has more than ten million
    /// arrivals on average.
    pub fn check(&self) -> Result<(), ConfigError> {
        let counts = [
            ("nic_packets", self.nic_packets),
            ("socket_packets", self.socket_packets),
            ("processes", self.processes),
            ("receive_packets", self.receive_packets),
            ("push.packets", self.push.map_or(1, |push| push.packets)),
        ];
        if let Some((name, _)) = counts.into_iter().find(|(_, count)| *count == 0) {
            return Err(ConfigError::Zero { name });
        }
        let times = [
            ("arrival_ticks", self.arrival_ticks),
            ("transaction_ticks", self.transaction_ticks),
            ("length_ticks", self.length_ticks),
            ("receive_ticks", self.receive_ticks),
            ("push.mean_ticks", self.push.map_or(1.0, |push| push.mean_ticks)),
        ];
        if let Some((name, value)) = times.into_iter().find(|(_, time)| !(time.is_finite() && *time > 0.0)) {
            return Err(ConfigError::Time { name, value });
        }
        if self.length_ticks / self.arrival_ticks > MOST_ARRIVALS {
            return Err(ConfigError::TooLong {
                length_ticks: self.length_ticks,
                arrival_ticks: self.arrival_ticks,
            });
        }
        Ok(())
    }
}

/// Why an experiment cannot be run.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A count is zero.
    #[error("{name} is 0; at least 1 is needed")]
    Zero {
        /// The field.
        name: &'static str,
    },
    /// A time is zero, negative or not a number.
    #[error("{name} is {value}; a positive, finite number of ticks is needed")]
    Time {
        /// The field.
        name: &'static str,
        /// What it is.
        value: f64,
    },
    /// The experiment would hardly end.
    #[error(
        "{length_ticks} ticks with an arrival each {arrival_ticks} are more than 10000000 arrivals; shorten it"
    )]
    TooLong {
        /// Duration of the experiment, in ticks.
        length_ticks: f64,
        /// Mean time between two arrivals, in ticks.
        arrival_ticks: f64,
    },
}

const MOST_ARRIVALS: f64 = 1e7;

//! The options of a socket, a thread or a ring, beside those of [`freshwire_a1`].

use std::io;
use std::ops::RangeInclusive;
use std::time::Duration;

use freshwire_a1::{ConnectionConfig, EndpointConfig, Qos, Shard, StaticKey};
use freshwire_choice::Choice;
use freshwire_io::network::{Dscp, MAX_FREE_PRIORITY, NetworkQos};
use freshwire_record::Rate;

use super::driver::DEFAULT_BUSY_POLL;
use super::joined::JoinConfig;

/// Default number of incoming connections that may wait for the application.
pub const DEFAULT_BACKLOG: usize = 128;

/// The highest class selector of applications: CS6 and CS7 are the network's own (RFC 4594, section 1.5.4).
const HIGHEST_CLASS: u8 = 5;

/// Default of [`NodeConfig::attempt_delay`]: the smallest connection attempt delay that RFC 8305 recommends (section 8). Its usual
/// 250 ms would leave a connection over TCP, of which the handshakes take three round trips more, beyond 300 ms on most paths.
pub const DEFAULT_ATTEMPT_DELAY: Duration = Duration::from_millis(100);

/// Permitted values of [`NodeConfig::attempt_delay`], 10 ms to 2 s: the limits of RFC 8305 (section 8).
pub const ATTEMPT_DELAYS: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_secs(2);

/// The most threads of a node. Chosen, not measured: the processors of a large machine.
pub const MAX_THREADS: usize = 256;

/// Handshakes that one of several threads still permits at a time: the kernel spreads them unevenly. Chosen, not measured.
const MIN_HALF_OPEN: usize = 16;

/// The same for handshakes of one address: several programs of a host may connect together. Chosen, not measured.
const MIN_HALF_OPEN_PER_ADDRESS: usize = 4;

/// Default size of the kernel's receive buffer, in bytes.
const RECEIVE_BUFFER: usize = 2 << 20;

/// Configuration of a [`Node`](super::Node).
///
/// ```
/// use freshwire::a1::{ConnectionConfig, NodeConfig, Protection};
///
/// let mut config = NodeConfig::new()?.connection(ConnectionConfig::default().protection(Protection::Aead));
/// config.endpoint.accept = false;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NodeConfig {
    /// Key, pre-shared secret, permitted peers and resource limits.
    pub endpoint: EndpointConfig,
    /// Configuration of the node's connections, with the upper limit of their quality of service. The number of
    /// group memberships follows from `join`.
    pub connection: ConnectionConfig,
    /// Whether the application decides about each incoming connection, through
    /// [`Node::incoming`](super::Node::incoming). Default: `false`, permitted peers are accepted automatically.
    pub ask: bool,
    /// Number of incoming connections that may wait for [`Node::accept`](super::Node::accept) or
    /// [`Node::incoming`](super::Node::incoming), as with listen(2). Further ones are refused
    /// ([`Refusal::BUSY`](super::Refusal::BUSY)). A waiting connection that ends without having sent anything
    /// frees its place. Default: [`DEFAULT_BACKLOG`], 128.
    pub backlog: usize,
    /// Size of the kernel's receive buffer in bytes, for the node and for each joined group, within the system's
    /// limit. Default: 2 MiB.
    pub receive_buffer: usize,
    /// Time for which a waiting thread, in [`Connection::recv`](super::Connection::recv) or elsewhere, polls the
    /// socket before it sleeps. Polling saves the wake-up and costs processor time. `None` or zero disables it. It
    /// becomes rare where it finds nothing, and is always off on a single processor. Default:
    /// [`DEFAULT_BUSY_POLL`], 50 µs.
    pub busy_poll: Option<Duration>,
    /// Service asked of the network for all datagrams of the node and of its groups. A pacing rate is the node's for all
    /// connections. A connection towards an interface without `fq` is refused if a pacing rate or departure times are set. Default:
    /// nothing.
    pub network: NetworkQos,
    /// Whether each connection's agreed quality of service is translated into that of the network, where `network` leaves it
    /// open. A [`priority`](Qos::priority) p becomes class selector p, at most CS5, and `SO_PRIORITY` p, at most 6. With
    /// [departure times](NetworkQos::departure_times), datagrams of a connection leave at its agreed
    /// [average rate](Qos::send_average), and the sum of these rates is the node's pacing rate. Default: `false`.
    pub translate: bool,
    /// Rules for joining multicast groups on invitation. Default: `None`, never: otherwise a peer would
    /// decide which multicast streams this machine subscribes to.
    pub join: Option<JoinConfig>,
    /// Whether connections go over TCP where UDP does not pass: from the start, or from when it stops passing. Keys, messages, policies
    /// and fates stay the same; [`Connection::is_over_tcp`](super::Connection::is_over_tcp) tells. A node that accepts connections
    /// listens at the same port of TCP too; the one that connects tries UDP first, and goes back to UDP when that passes again. Both ends
    /// have to permit it. The end that connects pings the other after each second of silence. Default: `false`.
    pub tcp_fallback: bool,
    /// Time without an answer over UDP after which a new connection tries TCP as well, within [`ATTEMPT_DELAYS`]. The first answer
    /// decides. Default: [`DEFAULT_ATTEMPT_DELAY`], 100 ms.
    pub attempt_delay: Duration,
    /// Threads that serve the node, from 1 to [`MAX_THREADS`], each with a socket at the node's address (`SO_REUSEPORT`) and
    /// connections of its own. The kernel gives it the datagrams of these connections, from whatever address they come. It is worth it
    /// where many connections need more than one processor; a single connection stays on one thread. `backlog` and
    /// [`Limits`](super::Limits) are divided among the threads; each permits at least 16 half-open connections, and 4 of one address, if these
    /// limits do. A pacing rate of `network` holds for each. With several threads
    /// there is no [`Node::group`](super::Node::group), and none accepts connections over TCP (`tcp_fallback`). Default: 1.
    pub threads: usize,
}

impl From<EndpointConfig> for NodeConfig {
    fn from(endpoint: EndpointConfig) -> Self {
        Self {
            endpoint,
            connection: ConnectionConfig::default(),
            ask: false,
            backlog: DEFAULT_BACKLOG,
            receive_buffer: RECEIVE_BUFFER,
            busy_poll: Some(DEFAULT_BUSY_POLL),
            network: NetworkQos::default(),
            translate: false,
            join: None,
            tcp_fallback: false,
            attempt_delay: DEFAULT_ATTEMPT_DELAY,
            threads: 1,
        }
    }
}

impl NodeConfig {
    /// Creates the defaults, with a new random key.
    ///
    /// # Errors
    ///
    /// If the operating system provides no randomness.
    pub fn new() -> io::Result<Self> {
        Ok(Self::with_key(generate_key()?))
    }

    /// Creates the defaults with this key.
    pub fn with_key(key: StaticKey) -> Self {
        EndpointConfig::new(key).into()
    }

    /// Sets the configuration of the connections.
    #[must_use]
    pub fn connection(mut self, connection: ConnectionConfig) -> Self {
        self.connection = connection;
        self
    }

    /// Sets whether the application decides about each incoming connection.
    #[must_use]
    pub fn ask(mut self, ask: bool) -> Self {
        self.ask = ask;
        self
    }

    /// Sets the number of incoming connections that may wait.
    #[must_use]
    pub fn backlog(mut self, most: usize) -> Self {
        self.backlog = most;
        self
    }

    /// Sets how long a waiting thread polls the socket before it sleeps; `None` disables polling.
    #[must_use]
    pub fn busy_poll(mut self, limit: Option<Duration>) -> Self {
        self.busy_poll = limit;
        self
    }

    /// Sets the service asked of the network for all datagrams.
    #[must_use]
    pub fn network(mut self, qos: NetworkQos) -> Self {
        self.network = qos;
        self
    }

    /// Sets whether each connection's quality of service is translated into that of the network.
    #[must_use]
    pub fn translate(mut self, wanted: bool) -> Self {
        self.translate = wanted;
        self
    }

    /// Permits joining multicast groups on invitation.
    #[must_use]
    pub fn join(mut self, config: JoinConfig) -> Self {
        self.join = Some(config);
        self
    }

    /// The service asked of the network for a connection of this quality, if the agreed rates of all are `agreed` in sum.
    pub(super) fn network_of(&self, qos: &Qos, agreed: Option<Rate>) -> NetworkQos {
        if !self.translate {
            return self.network;
        }
        let translated = NetworkQos::default()
            .dscp(Some(Dscp::class_selector(qos.priority.min(HIGHEST_CLASS))))
            .priority(Some(u32::from(qos.priority).min(MAX_FREE_PRIORITY)))
            .max_rate(agreed.filter(|_| self.network.departure_times));
        self.network.or(translated)
    }

    /// Permits connections over TCP where UDP does not pass.
    #[must_use]
    pub fn tcp_fallback(mut self, permitted: bool) -> Self {
        self.tcp_fallback = permitted;
        self
    }

    /// Sets the time without an answer over UDP after which a new connection tries TCP as well.
    #[must_use]
    pub fn attempt_delay(mut self, delay: Duration) -> Self {
        self.attempt_delay = delay;
        self
    }

    /// Sets the number of threads.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// The configuration of the thread with this number: its part of what all may use.
    pub(super) fn of_thread(&self, number: u32) -> Self {
        let mut config = self.clone();
        let count = self.threads as u32;
        if count < 2 {
            return config;
        }
        config.endpoint.shard = Shard::new(number, count);
        config.backlog = self.backlog.div_ceil(self.threads);
        let limits = &mut config.endpoint.limits;
        for (limit, least) in [
            (&mut limits.connections, 0),
            (&mut limits.half_open, MIN_HALF_OPEN),
            (&mut limits.half_open_per_address, MIN_HALF_OPEN_PER_ADDRESS),
        ] {
            *limit = limit.div_ceil(self.threads).max(least.min(*limit));
        }
        for limit in
            [&mut limits.retries_per_second, &mut limits.responses_per_second, &mut limits.resets_per_second]
        {
            *limit = limit.div_ceil(count);
        }
        config
    }

    /// The configuration of a connection on a path whose interface permits datagrams of at most `largest` bytes.
    pub(super) fn connection_over(&self, largest: Option<u16>) -> ConnectionConfig {
        let mut connection = self.connection.clone();
        connection.max_datagram = connection.max_datagram.or(largest);
        connection.groups = self.join.map_or(0, |join| join.most);
        connection
    }

    /// The same for an incoming connection with this maximum.
    pub(super) fn accepting(&self, maximum: &Qos, largest: Option<u16>) -> ConnectionConfig {
        let connection = self.connection_over(largest);
        let maximum = maximum.within(&connection.maximum);
        connection.maximum(maximum)
    }
}

/// Generates a key from the operating system's randomness.
///
/// # Errors
///
/// If the operating system provides no randomness.
pub fn generate_key() -> io::Result<StaticKey> {
    Ok(StaticKey::generate(freshwire_io::random()?))
}

/// Configuration of a connection that is fed from a ring.
#[non_exhaustive]
pub struct SinkConfig {
    /// Selects records at each transmission and retransmission.
    pub policy: Box<dyn Choice>,
    /// Time for a dropped sink to deliver the records in progress. Default:
    /// [`DEFAULT_LINGER`](crate::sink::DEFAULT_LINGER).
    pub linger: Duration,
    /// Whether fates say when the packet with the record's last byte [entered the queueing discipline](crate::Fate::scheduled_at) and
    /// [left for the device](crate::Fate::departed_at), by the kernel's timestamps. The times are those of its first transmission, also if
    /// it is lost and sent again. Linux 6.13 or newer. Records that leave over TCP ([`NodeConfig::tcp_fallback`]) have neither time, and multicast
    /// groups and [`BufferSink`](super::BufferSink) refuse the option. Such a packet is a system call of its own, and costs three more.
    /// Default: `false`.
    pub departures: bool,
}

impl SinkConfig {
    /// Creates the default configuration with this policy.
    pub fn new(policy: impl Choice + 'static) -> Self {
        Self { policy: Box::new(policy), linger: crate::sink::DEFAULT_LINGER, departures: false }
    }

    /// Sets the time for a dropped sink to deliver the records in progress.
    #[must_use]
    pub fn linger(mut self, linger: Duration) -> Self {
        self.linger = linger;
        self
    }

    /// Sets whether fates say when records departed.
    #[must_use]
    pub fn departures(mut self, wanted: bool) -> Self {
        self.departures = wanted;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thread_keeps_places_for_handshakes() {
        for threads in 1..=64 {
            for most in [1, 3, 4, 5, 15, 16, 17, 64, 100] {
                let mut config = NodeConfig::with_key(StaticKey::generate([7; 32])).threads(threads);
                config.endpoint.limits.half_open = most;
                config.endpoint.limits.half_open_per_address = most;
                for number in 0..threads as u32 {
                    let limits = config.of_thread(number).endpoint.limits;
                    let named = format!("{most} among {threads} threads");
                    for (limit, least) in [(limits.half_open, 16), (limits.half_open_per_address, 4)] {
                        assert_eq!(limit, most.div_ceil(threads).max(least.min(most)), "{named}");
                        assert!(limit <= most && limit * threads >= most, "{named}");
                    }
                }
            }
        }
    }
}

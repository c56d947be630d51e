use std::io;
use std::time::Duration;

use freshwire_a1::{
    AcceptConfig, ConnectionConfig, EndpointConfig, KeyLog, Limits, Protection, Psk, PublicKey, Qos,
    StaticKey,
};
use freshwire_choice::Choice;

use super::driver::DEFAULT_BUSY_POLL;
use super::joined::JoinConfig;

/// Default time limit for connecting.
pub const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Default number of incoming connections that may wait for the application.
pub const DEFAULT_BACKLOG: usize = 128;

/// Bytes that the kernel keeps for a node unless told otherwise, as far as its limit permits.
const RECEIVE_BUFFER: usize = 2 << 20;

/// Configuration of a [`Node`](super::Node).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NodeConfig {
    /// The node's static key. Default: a new one.
    pub key: StaticKey,
    /// Additional secret shared by both ends. Default: none.
    pub psk: Option<Psk>,
    /// Whether other nodes may connect. If `false`, their attempts are ignored. Default: `true`.
    pub accept: bool,
    /// Whether the application decides about each incoming connection, through
    /// [`Node::incoming`](super::Node::incoming). Default: `false`, allowed peers are accepted automatically.
    pub ask: bool,
    /// Number of incoming connections that may wait for [`Node::accept`](super::Node::accept) or
    /// [`Node::incoming`](super::Node::incoming), as with listen(2). Further ones are refused
    /// ([`Refusal::BUSY`](super::Refusal::BUSY)). A waiting connection that ends without having sent anything
    /// frees its place. Default: [`DEFAULT_BACKLOG`].
    pub backlog: usize,
    /// Keys of the peers that may connect. Default: `None`, all peers.
    pub allowed: Option<Vec<PublicKey>>,
    /// Upper limit of the quality of service of every connection.
    pub maximum: Qos,
    /// Weakest protection that the node accepts, at both ends. Default: encrypted.
    pub protection: Protection,
    /// Configuration of the connections. The number of group memberships follows from `join`.
    pub connection: ConnectionConfig,
    /// Bounds on the resources that peers can consume; see [`Limits`] for the defaults.
    pub limits: Limits,
    /// Size of the kernel's receive buffer, for the node and for each joined group, within the system's
    /// limit. Default: 2 MiB.
    pub receive_buffer: usize,
    /// How long a thread that waits for a message, in [`Connection::recv`](super::Connection::recv) or elsewhere,
    /// polls the socket before it sleeps, which saves the time of going to sleep and waking up at the price of
    /// processor time. `None` or zero turns it off. Where polling finds nothing it becomes rare by itself, and on a
    /// single processor it is always off. Default: [`DEFAULT_BUSY_POLL`], 50 µs.
    pub busy_poll: Option<Duration>,
    /// Rules for joining multicast groups on invitation. Default: `None`, never: otherwise a peer would
    /// decide which multicast streams this machine subscribes to.
    pub join: Option<JoinConfig>,
    /// Destination for the secrets of the connections, for debugging. Its readers can decrypt everything.
    /// Default: none.
    pub key_log: Option<KeyLog>,
}

impl NodeConfig {
    /// Creates the defaults, with a new random key.
    ///
    /// # Errors
    ///
    /// If the operating system provides no randomness.
    pub fn new() -> io::Result<Self> {
        Ok(Self::with_key(StaticKey::generate(freshwire_io::random()?)))
    }

    /// Creates the defaults with this key.
    pub fn with_key(key: StaticKey) -> Self {
        Self {
            key,
            psk: None,
            accept: true,
            ask: false,
            backlog: DEFAULT_BACKLOG,
            allowed: None,
            maximum: Qos::default(),
            protection: Protection::default(),
            connection: ConnectionConfig::default(),
            limits: Limits::default(),
            receive_buffer: RECEIVE_BUFFER,
            busy_poll: Some(DEFAULT_BUSY_POLL),
            join: None,
            key_log: None,
        }
    }

    /// Permits joining multicast groups on invitation.
    #[must_use]
    pub fn join(mut self, config: JoinConfig) -> Self {
        self.join = Some(config);
        self
    }

    /// Sets how long a waiting thread polls the socket before it sleeps; `None` turns polling off.
    #[must_use]
    pub fn busy_poll(mut self, limit: Option<Duration>) -> Self {
        self.busy_poll = limit;
        self
    }

    /// Sets the destination for secrets; see [`KeyLog`].
    #[must_use]
    pub fn key_log(mut self, log: KeyLog) -> Self {
        self.key_log = Some(log);
        self
    }

    /// Sets the configuration of the connections.
    #[must_use]
    pub fn connection(mut self, connection: ConnectionConfig) -> Self {
        self.connection = connection;
        self
    }

    /// Sets the bounds on resources.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets the additional shared secret.
    #[must_use]
    pub fn psk(mut self, psk: Option<Psk>) -> Self {
        self.psk = psk;
        self
    }

    /// Sets whether other nodes may connect.
    #[must_use]
    pub fn accept(mut self, accept: bool) -> Self {
        self.accept = accept;
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

    /// Sets the keys of the peers that may connect.
    #[must_use]
    pub fn allowed(mut self, keys: Vec<PublicKey>) -> Self {
        self.allowed = Some(keys);
        self
    }

    /// Sets the upper limit of the quality of service.
    #[must_use]
    pub fn maximum(mut self, qos: Qos) -> Self {
        self.maximum = qos;
        self
    }

    /// Sets the weakest accepted protection.
    #[must_use]
    pub fn protection(mut self, protection: Protection) -> Self {
        self.protection = protection;
        self
    }

    pub(super) fn endpoint(&self, seed: [u8; 32]) -> EndpointConfig {
        let mut config = EndpointConfig::new(self.key.clone(), seed).accept(self.accept).limits(self.limits);
        config.psk = self.psk.clone();
        config.key_log = self.key_log.clone();
        config.allowed = self.allowed.as_ref().map(|keys| keys.iter().copied().collect());
        config
    }

    /// For a connection of at most this quality on whose way datagrams of at most `largest` bytes leave.
    pub(super) fn accepting(&self, maximum: &Qos, largest: Option<u16>) -> AcceptConfig {
        AcceptConfig::default()
            .protection(self.protection)
            .maximum(maximum.within(&self.maximum))
            .connection(self.connection_up_to(largest))
    }

    /// The same for one that this node makes.
    pub(super) fn connecting(
        &self,
        config: &ConnectConfig,
        largest: Option<u16>,
    ) -> freshwire_a1::ConnectConfig {
        freshwire_a1::ConnectConfig::default()
            .protection(self.protection)
            .qos(config.qos.unwrap_or(self.maximum), self.maximum)
            .connection(self.connection_up_to(largest))
            .handshake_time(config.timeout)
    }

    fn connection_up_to(&self, largest: Option<u16>) -> ConnectionConfig {
        let mut connection = self.connection.clone();
        connection.max_datagram = connection.max_datagram.or(largest);
        connection.groups = self.join.map_or(0, |join| join.most);
        connection
    }
}

/// Configuration of an outgoing connection.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConnectConfig {
    /// Requested quality of service; the peer may narrow it. Must not exceed the node's maximum. Default:
    /// `None`, the maximum.
    pub qos: Option<Qos>,
    /// Time limit for all addresses of a name together, in equal parts. The name lookup is not included.
    pub timeout: Duration,
}

impl Default for ConnectConfig {
    fn default() -> Self {
        Self { qos: None, timeout: DEFAULT_CONNECT_TIMEOUT }
    }
}

impl ConnectConfig {
    /// Sets the requested quality of service.
    #[must_use]
    pub fn qos(mut self, qos: Qos) -> Self {
        self.qos = Some(qos);
        self
    }

    /// Sets the time limit.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }
}

/// Configuration of a connection that is fed from a ring.
#[non_exhaustive]
pub struct SinkConfig {
    /// Selects records at each transmission and retransmission.
    pub policy: Box<dyn Choice>,
    /// Time for a dropped sink to deliver the records in progress. Default:
    /// [`DEFAULT_LINGER`](crate::DEFAULT_LINGER).
    pub linger: Duration,
}

impl SinkConfig {
    /// Creates the default configuration with this policy.
    pub fn new(policy: impl Choice + 'static) -> Self {
        Self { policy: Box::new(policy), linger: crate::DEFAULT_LINGER }
    }

    /// Sets the time for a dropped sink to deliver the records in progress.
    #[must_use]
    pub fn linger(mut self, linger: Duration) -> Self {
        self.linger = linger;
        self
    }
}

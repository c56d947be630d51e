use std::io;
use std::time::Duration;

use freshwire_a1::{
    AcceptConfig, ConnectionConfig, EndpointConfig, KeyLog, Limits, Protection, Psk, PublicKey, Qos,
    StaticKey,
};
use freshwire_choice::Choice;

use super::joined::JoinConfig;

/// How long connecting may take unless told otherwise.
pub const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Newcomers that may wait for the application unless told otherwise.
pub const DEFAULT_BACKLOG: usize = 128;

/// Bytes that the kernel keeps for a node unless told otherwise, as far as its limit permits.
const RECEIVE_BUFFER: usize = 2 << 20;

/// How a [`Node`](super::Node) is made.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NodeConfig {
    /// The node's own key. Default: a new one.
    pub key: StaticKey,
    /// A secret that both ends have besides. Default: none.
    pub psk: Option<Psk>,
    /// Whether others may connect. Default: yes. A node that only makes connections ignores whoever tries.
    pub accept: bool,
    /// Whether each newcomer waits for the application's decision, which takes it from
    /// [`Node::incoming`](super::Node::incoming). Default: no, whoever is allowed is accepted.
    pub ask: bool,
    /// How many newcomers may wait for [`Node::accept`](super::Node::accept) or [`Node::incoming`](super::Node::incoming), as
    /// with listen(2). Whoever comes beyond that is refused ([`Refusal::BUSY`](super::Refusal::BUSY)); one that has waited and
    /// ends without having sent anything leaves. Default: [`DEFAULT_BACKLOG`].
    pub backlog: usize,
    /// Whose connections are accepted. Default: everybody's.
    pub allowed: Option<Vec<PublicKey>>,
    /// The best quality of service that any connection gets.
    pub maximum: Qos,
    /// The least protection that is good enough, at both ends. Default: encrypted.
    pub protection: Protection,
    /// How its connections behave. Of how many groups they can be members follows from `join`.
    pub connection: ConnectionConfig,
    /// Bounds of what others can make it do; see [`Limits`] for the defaults.
    pub limits: Limits,
    /// Bytes that the kernel keeps for the node, and for each group that it joins, as far as its limit permits. Default:
    /// 2 MiB.
    pub receive_buffer: usize,
    /// How it joins the multicast groups that its peers invite it to. Default: not at all, since whoever may connect would
    /// decide which of the network's streams this machine subscribes to.
    pub join: Option<JoinConfig>,
    /// Where the secrets of its connections are written to, which gives them away. Default: nowhere.
    pub key_log: Option<KeyLog>,
}

impl NodeConfig {
    /// The defaults, with a new key from the operating system's randomness.
    pub fn new() -> io::Result<Self> {
        Ok(Self::with_key(StaticKey::generate(freshwire_io::random()?)))
    }

    /// The defaults with this key.
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
            join: None,
            key_log: None,
        }
    }

    /// Lets it join multicast groups that its peers invite it to.
    #[must_use]
    pub fn join(mut self, config: JoinConfig) -> Self {
        self.join = Some(config);
        self
    }

    /// Sets where the secrets of its connections are written to; see [`KeyLog`].
    #[must_use]
    pub fn key_log(mut self, log: KeyLog) -> Self {
        self.key_log = Some(log);
        self
    }

    /// Sets how its connections behave.
    #[must_use]
    pub fn connection(mut self, connection: ConnectionConfig) -> Self {
        self.connection = connection;
        self
    }

    /// Sets the bounds of what others can make it do.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets a secret that both ends have besides.
    #[must_use]
    pub fn psk(mut self, psk: Option<Psk>) -> Self {
        self.psk = psk;
        self
    }

    /// Sets whether others may connect.
    #[must_use]
    pub fn accept(mut self, accept: bool) -> Self {
        self.accept = accept;
        self
    }

    /// Sets whether each newcomer waits for the application's decision.
    #[must_use]
    pub fn ask(mut self, ask: bool) -> Self {
        self.ask = ask;
        self
    }

    /// Sets how many newcomers may wait for the application.
    #[must_use]
    pub fn backlog(mut self, most: usize) -> Self {
        self.backlog = most;
        self
    }

    /// Sets whose connections are accepted.
    #[must_use]
    pub fn allowed(mut self, keys: Vec<PublicKey>) -> Self {
        self.allowed = Some(keys);
        self
    }

    /// Sets the best quality of service that any connection gets.
    #[must_use]
    pub fn maximum(mut self, qos: Qos) -> Self {
        self.maximum = qos;
        self
    }

    /// Sets how packets are protected.
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

/// How a connection is made.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConnectConfig {
    /// The quality of service wanted; the other node may narrow it. It is an error if it is beyond the node's maximum. `None`: the
    /// maximum.
    pub qos: Option<Qos>,
    /// How long it may take, all addresses of a name together, which get equal parts of it. Looking up the name is not included.
    pub timeout: Duration,
}

impl Default for ConnectConfig {
    fn default() -> Self {
        Self { qos: None, timeout: DEFAULT_CONNECT_TIMEOUT }
    }
}

impl ConnectConfig {
    /// Sets the quality of service wanted.
    #[must_use]
    pub fn qos(mut self, qos: Qos) -> Self {
        self.qos = Some(qos);
        self
    }

    /// Sets how long it may take.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }
}

/// How a connection is fed from a ring.
#[non_exhaustive]
pub struct SinkConfig {
    /// Decides at each transmission and retransmission.
    pub policy: Box<dyn Choice>,
    /// How long a sink that is dropped may take to deliver what was begun. Default:
    /// [`DEFAULT_LINGER`](crate::DEFAULT_LINGER).
    pub linger: Duration,
}

impl SinkConfig {
    /// The defaults with this policy.
    pub fn new(policy: impl Choice + 'static) -> Self {
        Self { policy: Box::new(policy), linger: crate::DEFAULT_LINGER }
    }

    /// Sets how long a sink that is dropped may take.
    #[must_use]
    pub fn linger(mut self, linger: Duration) -> Self {
        self.linger = linger;
        self
    }
}

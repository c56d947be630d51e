//! Every option of A1 with its default, its limits and its check. The `freshwire` crate adds what needs a socket or a thread.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use freshwire_record::Rate;

use crate::crypto::{Protection, Psk, PublicKey, StaticKey};
use crate::key_log::KeyLog;
use crate::recovery::Controller;
use crate::shard::Shard;
use crate::wire::{Qos, QosError};

/// Default of [`ConnectConfig::timeout`] and [`Limits::handshake_time`].
pub const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Largest UDP payload of Ethernet over IPv4, in bytes.
const ETHERNET: u16 = 1472;

/// Smallest datagram limit of a group, in bytes: QUIC's minimum, which every path carries.
const MIN_GROUP_DATAGRAM: u16 = 1200;

/// Configuration of an [`Endpoint`](crate::Endpoint).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EndpointConfig {
    /// Static key by which peers identify the endpoint.
    pub key: StaticKey,
    /// Additional secret shared by both ends; a peer without it cannot connect. Default: none.
    pub psk: Option<Psk>,
    /// Whether peers may connect. If `false`, their attempts are ignored. Default: `true`.
    pub accept: bool,
    /// Keys of the peers that may connect; others are refused before the application hears of them. Default:
    /// `None`, all peers.
    pub allowed: Option<BTreeSet<PublicKey>>,
    /// Bounds on the resources that peers can consume; see [`Limits`] for the defaults.
    pub limits: Limits,
    /// Destination for the secrets of the connections, for debugging. Its readers can decrypt everything.
    /// Default: none.
    pub key_log: Option<KeyLog>,
    /// Place among several endpoints at one address, which have the same key. Default: `None`, it is the only one.
    pub shard: Option<Shard>,
}

impl EndpointConfig {
    /// Creates the defaults with this key.
    pub fn new(key: StaticKey) -> Self {
        Self {
            key,
            psk: None,
            accept: true,
            allowed: None,
            limits: Limits::default(),
            key_log: None,
            shard: None,
        }
    }

    /// Sets the additional shared secret.
    #[must_use]
    pub fn psk(mut self, psk: Psk) -> Self {
        self.psk = Some(psk);
        self
    }

    /// Sets whether peers may connect.
    #[must_use]
    pub fn accept(mut self, accept: bool) -> Self {
        self.accept = accept;
        self
    }

    /// Sets the keys of the peers that may connect.
    #[must_use]
    pub fn allowed(mut self, keys: impl IntoIterator<Item = PublicKey>) -> Self {
        self.allowed = Some(keys.into_iter().collect());
        self
    }

    /// Sets the bounds on resources.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets the destination for secrets.
    #[must_use]
    pub fn key_log(mut self, log: KeyLog) -> Self {
        self.key_log = Some(log);
        self
    }
}

/// Bounds on the resources of an endpoint that peers can consume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Number of connections. Further initiators are refused. Default: 100,000.
    pub connections: usize,
    /// Number of initiators that have not confirmed the response yet. A further one replaces the oldest. The same
    /// number of refusals is kept for repetition. Default: 1,024.
    pub half_open: usize,
    /// Share of `half_open` for one address (IPv6: one /64 network). Default: 128.
    pub half_open_per_address: usize,
    /// Cookies per second, each a hash and a datagram of 38 bytes. Default: 10,000.
    pub retries_per_second: u32,
    /// Handshake responses per second, each four exponentiations on a curve. Default: 2,000.
    pub responses_per_second: u32,
    /// Stateless resets per second, each a hash and a datagram of 21 bytes. Default: 1,000.
    pub resets_per_second: u32,
    /// Time for which an initiator may be half-open, undecided by the application or silent. Default:
    /// [`DEFAULT_CONNECT_TIMEOUT`].
    pub handshake_time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 100_000,
            half_open: 1024,
            half_open_per_address: 128,
            retries_per_second: 10_000,
            responses_per_second: 2000,
            resets_per_second: 1000,
            handshake_time: DEFAULT_CONNECT_TIMEOUT,
        }
    }
}

/// Configuration of an outgoing connection's handshake.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConnectConfig {
    /// Requested quality of service; the peer may narrow it. Must not exceed [`ConnectionConfig::maximum`].
    /// Default: `None`, the maximum.
    pub qos: Option<Qos>,
    /// Time limit. If a name has several addresses, they share it in equal parts; the lookup is not included.
    /// Default: [`DEFAULT_CONNECT_TIMEOUT`], 10 s.
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

/// Configuration of a connection, fixed for its lifetime.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConnectionConfig {
    /// Upper limit of the quality of service. What the peer asks for is narrowed to it.
    pub maximum: Qos,
    /// Weakest protection that this end accepts. Default: encrypted.
    pub protection: Protection,
    /// Silence that ends the connection; the shorter limit of both ends applies. Default: 30 s.
    pub idle_timeout: Duration,
    /// Silence after which a packet is sent, so that neither the peer nor a NAT forgets the connection. Default:
    /// `None`, never.
    pub keep_alive: Option<Duration>,
    /// Longest delay of an acknowledgement that the sender does not want at once. Default: 25 ms.
    pub ack_delay: Duration,
    /// Largest UDP payload to try, in bytes, if path and peer permit it. Default: `None`, the network interface's limit
    /// where the driver of the endpoint knows it, otherwise 1472, that of Ethernet over IPv4.
    pub max_datagram: Option<u16>,
    /// Congestion control. Default: [`Congestion::Copa`].
    pub congestion: Congestion,
    /// Whether packets carry the ECN mark, which lets routers signal congestion without loss. Default: `true`.
    pub ecn: bool,
    /// Whether messages are delivered in sending order, so that a lost one delays its successors. Default: `false`.
    pub in_order: bool,
    /// Whether messages get parity, from which lost blocks can be restored. This applies if the deadline leaves no time
    /// for a second repair, the path loses packets, and nothing else is waiting. Repairs are then sent twice. Default:
    /// `true`.
    pub fec: bool,
    /// Number of layers, from layer 0, whose messages get parity before any other message is sent. Default: 0.
    pub fec_layers: u8,
    /// Number of multicast groups into which the peer can invite this end, at most 16. Further invitations are reported
    /// ([`Event::Invited`](crate::Event::Invited)), but their packets are ignored. Default: 0.
    pub groups: usize,
}

impl Default for ConnectionConfig {
    fn default() -> Self {
        Self {
            maximum: Qos::default(),
            protection: Protection::default(),
            idle_timeout: Duration::from_secs(30),
            keep_alive: None,
            ack_delay: Duration::from_millis(25),
            max_datagram: None,
            congestion: Congestion::default(),
            ecn: true,
            in_order: false,
            fec: true,
            fec_layers: 0,
            groups: 0,
        }
    }
}

impl ConnectionConfig {
    /// Sets the upper limit of the quality of service.
    #[must_use]
    pub fn maximum(mut self, maximum: Qos) -> Self {
        self.maximum = maximum;
        self
    }

    /// Sets the weakest accepted protection.
    #[must_use]
    pub fn protection(mut self, protection: Protection) -> Self {
        self.protection = protection;
        self
    }

    /// Checks the maximum.
    ///
    /// # Errors
    ///
    /// If a value of [`maximum`](Self::maximum) is out of range; see [`Qos`].
    pub fn check(&self) -> Result<(), QosError> {
        self.maximum.check_range()
    }

    /// The quality of service to ask for.
    pub(crate) fn requested(&self, config: &ConnectConfig) -> Result<Qos, QosError> {
        self.check()?;
        let Some(qos) = config.qos else { return Ok(self.maximum) };
        qos.check(&self.maximum)?;
        Ok(qos)
    }

    pub(crate) fn largest_datagram(&self) -> u16 {
        self.max_datagram.unwrap_or(ETHERNET)
    }
}

/// Congestion control algorithm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Congestion {
    /// Copa (NSDI 2018), delay-based: short queues, and random loss does not starve it. It becomes CUBIC beside flows
    /// that fill the queue.
    #[default]
    Copa,
    /// CUBIC (RFC 9438), as a reference.
    Cubic,
    /// NewReno (RFC 9002), as a reference.
    NewReno,
}

/// Error of parsing the name of a congestion control.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("A1 has copa, cubic and newreno for congestion control, not {0:?}")]
pub struct UnknownCongestion(String);

impl FromStr for Congestion {
    type Err = UnknownCongestion;

    fn from_str(name: &str) -> Result<Self, UnknownCongestion> {
        match name {
            "copa" => Ok(Self::Copa),
            "cubic" => Ok(Self::Cubic),
            "newreno" => Ok(Self::NewReno),
            _ => Err(UnknownCongestion(name.to_owned())),
        }
    }
}

impl From<Congestion> for Controller {
    fn from(congestion: Congestion) -> Self {
        match congestion {
            Congestion::Copa => Self::Copa,
            Congestion::Cubic => Self::Cubic,
            Congestion::NewReno => Self::NewReno,
        }
    }
}

/// Configuration of a multicast [`Group`](crate::Group).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct GroupTransportConfig {
    /// The multicast address.
    pub address: SocketAddr,
    /// Sending rate of UDP payload. There are no acknowledgements and no congestion control: the network must
    /// provide this rate.
    pub rate: Rate,
    /// Largest UDP payload, at least 1200 bytes, which every member's path must carry. Default: 1200.
    pub datagram: u16,
    /// Time for which a sent record is kept for repairs, unless its deadline comes first. Its slot and its
    /// blocks stay in use for that long. Default: 1 s.
    pub repair_for: Duration,
}

impl GroupTransportConfig {
    /// Creates the defaults with this address and rate.
    pub fn new(address: SocketAddr, rate: Rate) -> Self {
        Self { address, rate, datagram: MIN_GROUP_DATAGRAM, repair_for: Duration::from_secs(1) }
    }

    /// Sets the largest UDP payload.
    #[must_use]
    pub fn datagram(mut self, bytes: u16) -> Self {
        self.datagram = bytes;
        self
    }

    /// Sets the time for which records are kept for repairs.
    #[must_use]
    pub fn repair_for(mut self, time: Duration) -> Self {
        self.repair_for = time;
        self
    }

    /// Checks address, rate and datagram size.
    ///
    /// # Errors
    ///
    /// If the address is not multicast or has no port, the rate is zero, or `datagram` is below 1200 bytes.
    pub fn check(&self) -> Result<(), GroupConfigError> {
        if !self.address.ip().is_multicast() || self.address.port() == 0 {
            return Err(GroupConfigError::Address(self.address));
        }
        if self.rate.bits_per_sec() == 0 {
            return Err(GroupConfigError::Rate);
        }
        if self.datagram < MIN_GROUP_DATAGRAM {
            return Err(GroupConfigError::Datagram(self.datagram));
        }
        Ok(())
    }
}

/// Error of a [`GroupTransportConfig`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GroupConfigError {
    /// The address is not multicast, or has no port.
    #[error("{0} is not a multicast address with a port")]
    Address(SocketAddr),
    /// The rate is zero.
    #[error("the rate of a group is zero, but must be above")]
    Rate,
    /// The datagram size is smaller than what every path carries.
    #[error("datagrams of {0} bytes are too small for a group: at least {MIN_GROUP_DATAGRAM} are needed")]
    Datagram(u16),
}

use std::collections::BTreeSet;
use std::time::Duration;

use crate::connection::ConnectionConfig;
use crate::crypto::{Protection, Psk, PublicKey, StaticKey};
use crate::wire::Qos;

use super::KeyLog;

/// How an [`Endpoint`](super::Endpoint) works.
#[derive(Clone)]
#[non_exhaustive]
pub struct EndpointConfig {
    /// The key that peers know this endpoint by.
    pub key: StaticKey,
    /// The secret that both ends have to have, if any. Without it at one end nothing connects.
    pub psk: Option<Psk>,
    /// 32 bytes that nobody can guess and that are never used again: all randomness comes from them. The same seed and
    /// the same calls give the same bytes.
    pub seed: [u8; 32],
    /// Whose keys may connect to this endpoint; `None`: everybody's. Others are refused before the application hears of
    /// them.
    pub allowed: Option<BTreeSet<PublicKey>>,
    /// Whether others may connect to this endpoint at all. Otherwise their packets are ignored.
    pub accept: bool,
    /// Bounds of what others can make this endpoint do.
    pub limits: Limits,
    /// Where secrets are written to, which gives the connections away; see [`KeyLog`]. Default: nowhere.
    pub key_log: Option<KeyLog>,
}

impl EndpointConfig {
    /// An endpoint that only connects to others, without a pre-shared key.
    pub fn new(key: StaticKey, seed: [u8; 32]) -> Self {
        Self { key, psk: None, seed, allowed: None, accept: false, limits: Limits::default(), key_log: None }
    }

    /// Sets whether others may connect.
    #[must_use]
    pub fn accept(mut self, accept: bool) -> Self {
        self.accept = accept;
        self
    }

    /// Sets the secret that both ends have to have.
    #[must_use]
    pub fn psk(mut self, psk: Psk) -> Self {
        self.psk = Some(psk);
        self
    }

    /// Lets only the owners of these keys connect.
    #[must_use]
    pub fn allowed(mut self, keys: impl IntoIterator<Item = PublicKey>) -> Self {
        self.allowed = Some(keys.into_iter().collect());
        self
    }

    /// Writes the secrets of all connections there.
    #[must_use]
    pub fn key_log(mut self, log: KeyLog) -> Self {
        self.key_log = Some(log);
        self
    }

    /// Sets the bounds.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }
}

/// Bounds of what others can make an endpoint do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections of all kinds. An initiator above it is refused.
    pub connections: usize,
    /// Initiators that have not shown yet that they have got the answer. For one above it the one that came first is
    /// forgotten. As many refusals are kept, to be said again.
    pub half_open: usize,
    /// Of these, from one address (IPv6: one /64).
    pub half_open_per_address: usize,
    /// Cookies that are handed out in a second, each for a hash and a datagram of 38 bytes.
    pub retries_per_second: u32,
    /// Handshakes that are answered in a second, each for four exponentiations on a curve.
    pub responses_per_second: u32,
    /// Packets for connections that are not there that are answered in a second, each for a hash and a datagram of 21 bytes.
    pub resets_per_second: u32,
    /// How long an initiator may be half-open, undecided by the application or silent.
    pub handshake_time: Duration,
}

impl Default for Limits {
    /// 100,000 connections, 1,024 half-open for 10 s at most, 128 of them from one address; 10,000 cookies, 2,000 answers and 1,000 resets in a second.
    fn default() -> Self {
        Self {
            connections: 100_000,
            half_open: 1024,
            half_open_per_address: 128,
            retries_per_second: 10_000,
            responses_per_second: 2000,
            resets_per_second: 1000,
            handshake_time: Duration::from_secs(10),
        }
    }
}

/// How a connection is begun.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConnectConfig {
    /// The least protection that is good enough; see [`Protection`].
    pub protection: Protection,
    /// How long the handshake may take.
    pub handshake_time: Duration,
    /// The quality of service that is asked for now. What is beyond `maximum` is not asked for.
    pub qos: Qos,
    /// The most that will ever be asked for on this connection.
    pub maximum: Qos,
    /// How the connection behaves.
    pub connection: ConnectionConfig,
}

impl Default for ConnectConfig {
    /// An encrypted connection of default quality, whose handshake may take 10 s.
    fn default() -> Self {
        Self {
            protection: Protection::Aead,
            handshake_time: Duration::from_secs(10),
            qos: Qos::default(),
            maximum: Qos::default(),
            connection: ConnectionConfig::default(),
        }
    }
}

impl ConnectConfig {
    /// Sets the quality of service: what is asked for now, and the most that will ever be.
    #[must_use]
    pub fn qos(mut self, qos: Qos, maximum: Qos) -> Self {
        self.qos = qos;
        self.maximum = maximum;
        self
    }

    /// Sets how the connection behaves.
    #[must_use]
    pub fn connection(mut self, connection: ConnectionConfig) -> Self {
        self.connection = connection;
        self
    }

    /// Sets the least protection that is good enough.
    #[must_use]
    pub fn protection(mut self, protection: Protection) -> Self {
        self.protection = protection;
        self
    }

    /// Sets how long the handshake may take.
    #[must_use]
    pub fn handshake_time(mut self, time: Duration) -> Self {
        self.handshake_time = time;
        self
    }
}

/// How a connection is accepted.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AcceptConfig {
    /// The least protection that is good enough; see [`Protection`].
    pub protection: Protection,
    /// Bounds what the initiator asks for, as this end sees it.
    pub maximum: Qos,
    /// How the connection behaves.
    pub connection: ConnectionConfig,
}

impl Default for AcceptConfig {
    /// An encrypted connection of at most the default quality.
    fn default() -> Self {
        Self {
            protection: Protection::Aead,
            maximum: Qos::default(),
            connection: ConnectionConfig::default(),
        }
    }
}

impl AcceptConfig {
    /// Sets the least protection that is good enough.
    #[must_use]
    pub fn protection(mut self, protection: Protection) -> Self {
        self.protection = protection;
        self
    }

    /// Sets the bounds of what the initiator asks for.
    #[must_use]
    pub fn maximum(mut self, maximum: Qos) -> Self {
        self.maximum = maximum;
        self
    }

    /// Sets how the connection behaves.
    #[must_use]
    pub fn connection(mut self, connection: ConnectionConfig) -> Self {
        self.connection = connection;
        self
    }
}

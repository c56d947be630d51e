//! The one other end of a stream: connecting to it and waiting for it, over TCP and A1. For programs that send to one
//! receiver, or receive from one sender.

use std::error::Error;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _};
use std::num::NonZeroU16;
use std::time::{Duration, Instant};

use freshwire::a1::{
    BindError, ConnectConfig, ConnectError, Connection, Node, NodeConfig, NodeStopped, PublicKey, Refusal,
};

/// Pause between two attempts to reach a peer that does not listen yet.
const RETRY: Duration = Duration::from_millis(50);

/// Pause between two looks for the first packet of a new connection, which does not wake a wait for new connections.
const LOOK: Duration = Duration::from_millis(1);

/// How long connecting may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Time for a peer that does not answer at all.
    pub answer: Duration,
    /// Time for a peer to begin to listen, or for its host or network to become reachable. Zero is one attempt.
    pub listen: Duration,
}

impl Patience {
    /// `time` for both.
    pub const fn of(time: Duration) -> Self {
        Self { answer: time, listen: time }
    }
}

/// The peer cannot be reached, or be waited for. The cause is part of the message, so that a chain of causes does not
/// repeat it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PeerError {
    /// The text has no port.
    #[error("{0:?} is not HOST:PORT: the port is missing")]
    NoPort(String),
    /// The text has a user, which is no part of such an address. It is not shown: it may be a password.
    #[error("an address is HOST:PORT here; leave out the user and the password in front of @")]
    User,
    /// No program can listen at this port.
    #[error("{0:?} is not HOST:PORT: a port is a number from 1 to 65535")]
    WrongPort(String),
    /// The resolver has no address for the host.
    #[error("the host {host:?} is not known: {cause}")]
    Unknown {
        /// The host's name.
        host: String,
        /// The resolver's words.
        cause: io::Error,
    },
    /// The host refuses connections to this port.
    #[error("nobody listens on {0}")]
    NobodyListens(String),
    /// No TCP connection, for another reason.
    #[error("cannot connect to {peer}: {cause}")]
    Connect {
        /// `HOST:PORT`.
        peer: String,
        /// The system's words.
        cause: io::Error,
    },
    /// No A1 connection.
    #[error("cannot connect to {peer} over A1: {cause}")]
    ConnectA1 {
        /// `HOST:PORT`.
        peer: String,
        /// The transport's words.
        cause: Box<ConnectError>,
        /// The key of this end, which the peer may not allow.
        own_key: PublicKey,
    },
    /// This end has no socket for A1.
    #[error("cannot open a socket for A1: {}", with_cause(.0))]
    Node(BindError),
    /// Nothing can be waited for at this address.
    #[error("cannot listen on {address}: {}", with_cause(.cause.as_ref()))]
    Listen {
        /// As it was given.
        address: String,
        /// The system's words.
        cause: Box<dyn Error + Send + Sync>,
    },
}

/// An error with its own causes.
fn with_cause(error: &(dyn Error + 'static)) -> String {
    let causes = std::iter::successors(error.source(), |cause| (*cause).source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// The addresses of `HOST:PORT`. The port is not 0.
///
/// # Errors
///
/// If the text is not `HOST:PORT`, or the host is not known.
pub fn resolve(peer: &str) -> Result<Vec<SocketAddr>, PeerError> {
    if peer.contains('@') {
        return Err(PeerError::User);
    }
    let (host, port) = peer.rsplit_once(':').ok_or_else(|| PeerError::NoPort(peer.to_owned()))?;
    if port.parse::<NonZeroU16>().is_err() {
        return Err(PeerError::WrongPort(peer.to_owned()));
    }
    let found = peer.to_socket_addrs();
    Ok(found.map_err(|cause| PeerError::Unknown { host: host.to_owned(), cause })?.collect())
}

/// A TCP connection to `HOST:PORT`.
///
/// # Errors
///
/// If the address cannot be resolved, or no connection is established within the patience.
pub fn connect(peer: &str, patience: Patience) -> Result<TcpStream, PeerError> {
    let addresses = resolve(peer)?;
    let start = Instant::now();
    let (give_up, limit) = (start + patience.listen, start + patience.listen.max(patience.answer));
    loop {
        match attempt(&addresses, limit) {
            Ok(stream) => return Ok(stream),
            Err(error) if may_come(&error) && Instant::now() < give_up => std::thread::sleep(RETRY),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                return Err(PeerError::NobodyListens(peer.to_owned()));
            }
            Err(cause) => return Err(PeerError::Connect { peer: peer.to_owned(), cause }),
        }
    }
}

/// Tries each address once, with an equal share of the time up to `limit`: the first one may not answer at all.
fn attempt(addresses: &[SocketAddr], limit: Instant) -> io::Result<TcpStream> {
    let mut failed = None;
    for (address, left) in addresses.iter().zip((1..=addresses.len()).rev()) {
        let time = limit.saturating_duration_since(Instant::now());
        let share = time / u32::try_from(left).unwrap_or(u32::MAX);
        match TcpStream::connect_timeout(address, share.max(RETRY)) {
            Ok(stream) => return Ok(stream),
            // A peer that may begin to listen on one address is waited for, whatever the others say. A refusal says most.
            Err(error)
                if failed.as_ref().is_some_and(may_come)
                    && error.kind() != io::ErrorKind::ConnectionRefused => {}
            Err(error) => failed = Some(error),
        }
    }
    Err(failed.unwrap_or_else(|| io::ErrorKind::AddrNotAvailable.into()))
}

/// Whether the error may go away when the other side has started.
fn may_come(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable};
    matches!(error.kind(), ConnectionRefused | HostUnreachable | NetworkUnreachable)
}

/// A listener at `ADDR:PORT`, or at `:PORT` or `PORT` for all addresses.
///
/// # Errors
///
/// If the system refuses the address.
pub fn listen(address: &str) -> Result<TcpListener, PeerError> {
    bind(address, TcpListener::bind)
}

/// An A1 node that waits at `ADDR:PORT`, or at `:PORT` or `PORT` for all addresses.
///
/// # Errors
///
/// If the system refuses the address.
pub fn listen_a1(address: &str, config: &NodeConfig) -> Result<Node, PeerError> {
    bind(address, |address| Node::bind(address, config.clone()))
}

/// Binds to the first address that the system gives.
fn bind<T, E: Into<Box<dyn Error + Send + Sync>>>(
    address: &str,
    bind: impl Fn(SocketAddr) -> Result<T, E>,
) -> Result<T, PeerError> {
    if address.contains('@') {
        return Err(PeerError::User);
    }
    let failed = |cause| PeerError::Listen { address: address.to_owned(), cause };
    let addresses = match address.strip_prefix(':').unwrap_or(address).parse::<u16>() {
        // A machine without IPv6 has only the second.
        Ok(port) => vec![(Ipv6Addr::UNSPECIFIED, port).into(), (Ipv4Addr::UNSPECIFIED, port).into()],
        Err(_) => address.to_socket_addrs().map_err(|error| failed(error.into()))?.collect(),
    };
    let mut refused = "it has no address".into();
    for address in addresses {
        match bind(address) {
            Ok(bound) => return Ok(bound),
            Err(error) => refused = error.into(),
        }
    }
    Err(failed(refused))
}

/// An A1 connection to the owner of `key` at `HOST:PORT`, and its node, which accepts nobody. `timeout` is the time for
/// the handshake, during which the peer may begin to listen.
///
/// # Errors
///
/// If the address cannot be resolved, or there is no connection in time.
pub fn connect_a1(
    peer: &str,
    key: &PublicKey,
    mut config: NodeConfig,
    timeout: Duration,
) -> Result<(Node, Connection), PeerError> {
    let addresses = resolve(peer)?;
    config.endpoint.accept = false;
    let own_key = config.endpoint.key.public_key();
    let any: SocketAddr = match addresses.first() {
        Some(SocketAddr::V6(_)) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        _ => (Ipv4Addr::UNSPECIFIED, 0).into(),
    };
    let node = Node::bind(any, config).map_err(PeerError::Node)?;
    match node.connect(addresses.as_slice(), key, &ConnectConfig::default().timeout(timeout)) {
        Ok(connection) => Ok((node, connection)),
        Err(cause) => Err(PeerError::ConnectA1 { peer: peer.to_owned(), cause: Box::new(cause), own_key }),
    }
}

/// New connections of a node that [asks](NodeConfig::ask), up to the first packet that opens: a peer that lacks the
/// secret of both ends never sends one. All are watched, so that none keeps the others waiting; the node bounds how many.
#[derive(Default)]
pub struct Newcomers(Vec<Connection>);

impl Newcomers {
    /// The first established connection, after at most `patience`.
    ///
    /// # Errors
    ///
    /// If the node has stopped.
    pub fn accept(&mut self, node: &Node, patience: Duration) -> Result<Option<Connection>, NodeStopped> {
        let give_up = Instant::now() + patience;
        loop {
            let left = give_up.saturating_duration_since(Instant::now());
            self.0.extend(node.accept(if self.0.is_empty() { left } else { left.min(LOOK) })?);
            self.0.retain(|connection| connection.closed().is_none());
            let has_sent =
                |connection: &Connection| connection.stats().is_some_and(|stats| stats.packets_received > 0);
            if let Some(place) = self.0.iter().position(has_sent) {
                return Ok(Some(self.0.swap_remove(place)));
            }
            if Instant::now() >= give_up {
                return Ok(None);
            }
        }
    }

    /// Refuses all others with [`Refusal::BUSY`], since there is a peer. Returns their addresses.
    ///
    /// # Errors
    ///
    /// If the node has stopped.
    pub fn refuse(&mut self, node: &Node, reason: &str) -> Result<Vec<SocketAddr>, NodeStopped> {
        let mut refused = Vec::new();
        for connection in self.0.drain(..) {
            refused.push(connection.peer_addr());
            connection.close(Refusal::BUSY, reason);
        }
        while let Some(other) = node.incoming(Duration::ZERO)? {
            refused.push(other.peer_addr());
            other.refuse(Refusal::BUSY, reason);
        }
        Ok(refused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_peer_is_waited_for() -> Result<(), Box<dyn Error>> {
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let peer = address.to_string();
        let once = Patience { answer: Duration::from_secs(10), listen: Duration::ZERO };
        let error = connect(&peer, once).err().map(|error| error.to_string());
        assert_eq!(error, Some(format!("nobody listens on {peer}")));
        let late = std::thread::spawn(move || {
            // Pause: the listener comes late.
            std::thread::sleep(RETRY * 2);
            TcpListener::bind(address)?.accept()
        });
        connect(&peer, Patience::of(Duration::from_secs(60)))?;
        assert!(late.join().is_ok_and(|accepted| accepted.is_ok()));
        Ok(())
    }

    #[test]
    fn a_peer_may_listen_on_one_of_its_addresses_only() -> Result<(), Box<dyn Error>> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let closed = TcpListener::bind("127.0.0.2:0")?.local_addr()?;
        let limit = Instant::now() + Duration::from_secs(60);
        let stream = attempt(&[closed, listener.local_addr()?], limit)?;
        assert_eq!(stream.peer_addr()?, listener.local_addr()?);
        // For TCP no route leads to a broadcast address, and an address of a link without the link is an error.
        for other in ["255.255.255.255:9", "[fe80::1]:9"] {
            let other = other.parse()?;
            let failed = |addresses: &[SocketAddr]| attempt(addresses, limit).err().map(|error| error.kind());
            let alone = failed(&[other]);
            assert!(alone.is_some() && alone != Some(io::ErrorKind::ConnectionRefused), "{alone:?}");
            for both in [[closed, other], [other, closed]] {
                assert_eq!(failed(&both), Some(io::ErrorKind::ConnectionRefused), "{both:?}");
            }
        }
        Ok(())
    }

    #[test]
    fn wrong_addresses_have_a_reason() {
        let once = Patience::of(Duration::ZERO);
        for (peer, expected) in [
            ("a", "\"a\" is not HOST:PORT: the port is missing"),
            ("a:99999", "a number from 1 to 65535"),
            ("a:0", "a number from 1 to 65535"),
            ("anna:secret@a:5", "leave out the user and the password in front of @"),
            ("rtsp://anna:secret@a:5/x", "leave out the user and the password in front of @"),
            ("a.invalid:5", "the host \"a.invalid\" is not known: "),
        ] {
            let error = connect(peer, once).map_err(|error| error.to_string());
            assert!(error.as_ref().is_err_and(|error| error.contains(expected)), "{error:?}");
        }
        let error = listen("anna:secret@0.0.0.0:5").map_err(|error| error.to_string());
        assert!(error.as_ref().is_err_and(|error| error.starts_with("an address is HOST:PORT")), "{error:?}");
        let error = listen("nowhere").map_err(|error| error.to_string());
        assert!(
            error.as_ref().is_err_and(|error| error.starts_with("cannot listen on nowhere: ")),
            "{error:?}"
        );
    }

    #[test]
    fn a_taken_port_is_an_error() -> Result<(), Box<dyn Error>> {
        let taken = listen("127.0.0.1:0")?.local_addr()?;
        let held = listen(&taken.to_string())?;
        assert!(listen(&taken.to_string()).is_err());
        drop(held);
        for any in [":0", "0"] {
            assert!(listen(any)?.local_addr()?.ip().is_unspecified());
        }
        let node = listen_a1("127.0.0.1:0", &NodeConfig::new()?)?;
        let error = listen_a1(&node.local_addr()?.to_string(), &NodeConfig::new()?);
        let error = error.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains("cannot open the node's socket: "), "{error}");
        Ok(())
    }

    #[test]
    fn a_node_has_one_peer() -> Result<(), Box<dyn Error>> {
        let node = listen_a1("127.0.0.1:0", &NodeConfig::new()?.ask(true))?;
        let (peer, key) = (node.local_addr()?.to_string(), node.public_key());
        let limit = Duration::from_secs(60);
        let dial = || connect_a1(&peer, &key, NodeConfig::new()?, limit).map_err(Box::<dyn Error>::from);
        let mut newcomers = Newcomers::default();
        assert!(newcomers.accept(&node, Duration::ZERO)?.is_none());
        std::thread::scope(|scope| {
            let first = scope.spawn(|| dial().map_err(|error| error.to_string()));
            let connection = newcomers.accept(&node, limit)?.ok_or("nobody has come")?;
            let (_node, first) = first.join().map_err(|_| "it has panicked")??;
            assert!(first.closed().is_none() && connection.closed().is_none());
            let second = scope.spawn(|| dial().map_err(|error| error.to_string()));
            while !second.is_finished() {
                newcomers.refuse(&node, "it has a peer already")?;
                // Pause: a poll of the condition.
                std::thread::sleep(LOOK);
            }
            let error = second.join().map_err(|_| "it has panicked")?.err().unwrap_or_default();
            assert!(error.contains("it has a peer already"), "{error}");
            assert!(connection.closed().is_none());
            Ok(())
        })
    }
}

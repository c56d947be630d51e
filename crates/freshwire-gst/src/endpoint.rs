//! Where the other end is, and the connections to it.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use freshwire::a1::{
    ConnectConfig, Connection, ConnectionConfig, Node, NodeConfig, Psk, PublicKey, Qos, StaticKey,
};

/// How often a peer that does not listen yet is tried again.
const RETRY: Duration = Duration::from_millis(50);

/// The largest record over A1, as with the command.
const LARGEST_RECORD: u32 = 16 << 20;

/// How many signs of life fit into the idle timeout of A1: of those but one may be lost.
const SIGNS_OF_LIFE: u32 = 3;

/// A location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    /// `tcp://HOST:PORT`.
    Tcp(String),
    /// `a1://HOST:PORT`.
    A1(String),
    /// `http://HOST:PORT/NAME.fw`: a stream of a server.
    Http(String),
}

impl Location {
    /// Reads it.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let wrong =
            |why: &str| Err(format!("location {text:?}: {why}; write tcp://HOST:PORT or a1://HOST:PORT"));
        if text.starts_with("http://") || text.starts_with("https://") {
            return Ok(Self::Http(text.to_owned()));
        }
        let (scheme, rest) = match text.split_once("://") {
            Some((scheme, rest)) => (scheme, rest.trim_end_matches('/').to_owned()),
            None => return wrong("it has no scheme"),
        };
        let has_port = rest.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        match scheme {
            _ if !has_port => wrong("it has no port"),
            "tcp" => Ok(Self::Tcp(rest)),
            "a1" => Ok(Self::A1(rest)),
            _ => wrong("its scheme is not known here"),
        }
    }
}

/// What A1 needs besides an address.
#[derive(Clone, Debug, Default)]
pub(crate) struct Keys {
    /// The key of the peer; the only one that a listener lets in.
    pub(crate) peer: Option<String>,
    /// The file with this end's private key; without one a new key is made.
    pub(crate) file: Option<String>,
    /// The file with a secret that both ends have.
    pub(crate) psk_file: Option<String>,
}

impl Keys {
    fn peer(&self) -> Result<Option<PublicKey>, String> {
        let parse = |text: &String| text.parse().map_err(|error| format!("peer-key {text:?}: {error}"));
        self.peer.as_ref().map(parse).transpose()
    }

    fn config(&self) -> Result<NodeConfig, String> {
        let mut config = match &self.file {
            Some(path) => {
                NodeConfig::with_key(secret::<StaticKey>("key-file", path, "`freshwire key` makes one")?)
            }
            None => NodeConfig::new().map_err(|error| format!("cannot make a key: {error}"))?,
        };
        if let Some(path) = &self.psk_file {
            let psk = secret::<Psk>("psk-file", path, "it holds 64 hexadecimal digits")?;
            config.endpoint = config.endpoint.psk(psk);
        }
        // A decoder takes records in their order.
        let mut transport = ConnectionConfig::default();
        transport.in_order = true;
        transport.keep_alive = Some(transport.idle_timeout / SIGNS_OF_LIFE);
        let maximum =
            Qos { max_send_message: LARGEST_RECORD, max_receive_message: LARGEST_RECORD, ..Qos::default() };
        Ok(config.connection(transport.maximum(maximum)))
    }

    /// A connection to the node at `address`.
    pub(crate) fn connect(&self, address: &str, patience: Duration) -> Result<(Node, Connection), String> {
        let Some(key) = self.peer()? else {
            return Err("peer-key is missing: whoever listens says its key".to_owned());
        };
        let found = resolve(address)?;
        let any: SocketAddr = match found.first() {
            Some(SocketAddr::V6(_)) => (Ipv6Addr::UNSPECIFIED, 0).into(),
            _ => (Ipv4Addr::UNSPECIFIED, 0).into(),
        };
        let mut config = self.config()?;
        config.endpoint = config.endpoint.accept(false);
        let own = config.endpoint.key.public_key();
        let node = Node::bind(any, config).map_err(|error| error.to_string())?;
        let config = ConnectConfig::default().timeout(patience);
        let connection = node.connect(found.as_slice(), &key, &config).map_err(|error| {
            format!("cannot connect to {address} over A1: {error}; the key of this end is {own}")
        })?;
        Ok((node, connection))
    }

    /// A node that waits at `address`.
    pub(crate) fn listen(&self, address: &str) -> Result<Node, String> {
        let mut config = self.config()?;
        if let Some(key) = self.peer()? {
            config.endpoint = config.endpoint.allowed(vec![key]);
        }
        let bind = |address| Node::bind(address, config.clone());
        let (first, second) = listen_addresses(address)?;
        bind(first)
            .or_else(|error| second.map_or(Err(error), bind))
            .map_err(|error| format!("cannot listen on {address}: {error}"))
    }
}

fn secret<T: std::str::FromStr<Err: std::fmt::Display>>(
    property: &str,
    path: &str,
    advice: &str,
) -> Result<T, String> {
    let text =
        std::fs::read_to_string(path).map_err(|error| format!("{property} {path}: {error}; {advice}"))?;
    text.trim().parse().map_err(|error| format!("{property} {path}: {error}; {advice}"))
}

fn resolve(peer: &str) -> Result<Vec<SocketAddr>, String> {
    let found = peer.to_socket_addrs().map_err(|error| format!("{peer}: the host is not known: {error}"))?;
    Ok(found.collect())
}

/// Where to listen, and where else if that is not possible: a machine without IPv6 has only the second.
fn listen_addresses(address: &str) -> Result<(SocketAddr, Option<SocketAddr>), String> {
    match address.strip_prefix(':').map(str::parse::<u16>) {
        Some(Ok(port)) => {
            Ok(((Ipv6Addr::UNSPECIFIED, port).into(), Some((Ipv4Addr::UNSPECIFIED, port).into())))
        }
        _ => {
            let first = resolve(address)?.first().copied();
            Ok((first.ok_or_else(|| format!("{address} has no address"))?, None))
        }
    }
}

/// A TCP connection to `peer`, which may begin to listen within `patience`.
pub(crate) fn connect_tcp(peer: &str, patience: Duration) -> Result<TcpStream, String> {
    let addresses = resolve(peer)?;
    let give_up = Instant::now() + patience;
    let mut error = io::Error::from(io::ErrorKind::AddrNotAvailable);
    loop {
        for address in &addresses {
            let left = give_up.saturating_duration_since(Instant::now()).max(RETRY);
            match TcpStream::connect_timeout(address, left) {
                Ok(stream) => return Ok(stream),
                Err(failure) => error = failure,
            }
        }
        let may_come = error.kind() == io::ErrorKind::ConnectionRefused;
        if !may_come || Instant::now() >= give_up {
            return Err(format!("cannot connect to {peer} within {patience:?}: {error}"));
        }
        std::thread::sleep(RETRY);
    }
}

/// A listener that does not block.
pub(crate) fn listen_tcp(address: &str) -> Result<TcpListener, String> {
    let (first, second) = listen_addresses(address)?;
    TcpListener::bind(first)
        .or_else(|error| second.map_or(Err(error), TcpListener::bind))
        .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
        .map_err(|error| format!("cannot listen on {address}: {error}"))
}

/// Who has connected, if anybody has.
pub(crate) fn accept_tcp(listener: &TcpListener) -> Result<Option<TcpStream>, String> {
    match listener.accept() {
        Ok((stream, _)) => match stream.set_nonblocking(false) {
            Ok(()) => Ok(Some(stream)),
            Err(error) => Err(format!("cannot use a connection: {error}")),
        },
        // One that has gone before it was accepted is nobody.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(format!("cannot accept a connection: {error}")),
    }
}

/// Those that connect to a node, until one of them has sent a packet that opens: whoever has not the secret never does.
#[derive(Default)]
pub(crate) struct Newcomers(Vec<Connection>);

impl Newcomers {
    /// The first that stands. Waits at most `patience`.
    pub(crate) fn accept(&mut self, node: &Node, patience: Duration) -> Result<Option<Connection>, String> {
        let accepted = node.accept(patience).map_err(|error| error.to_string())?;
        self.0.extend(accepted);
        self.0.retain(|connection| connection.closed().is_none());
        let stands =
            |connection: &Connection| connection.stats().is_some_and(|stats| stats.packets_received > 0);
        Ok(self.0.iter().position(stands).map(|place| self.0.swap_remove(place)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations() {
        let parsed = |text| Location::parse(text);
        assert_eq!(parsed("tcp://viewer:5000"), Ok(Location::Tcp("viewer:5000".to_owned())));
        assert_eq!(parsed("a1://[::1]:5000/"), Ok(Location::A1("[::1]:5000".to_owned())));
        assert_eq!(parsed("tcp://:5000"), Ok(Location::Tcp(":5000".to_owned())));
        for (wrong, why) in [
            ("viewer:5000", "no scheme"),
            ("tcp://viewer", "no port"),
            ("tcp://viewer:x", "no port"),
            ("udp://viewer:5000", "scheme is not known"),
        ] {
            let error = parsed(wrong).err().unwrap_or_default();
            assert!(error.contains(why) && error.contains("write tcp://"), "{wrong}: {error}");
        }
    }
}

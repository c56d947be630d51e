//! Where the other end is, and the connections to it.

use std::io;
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use freshwire::a1::{Connection, ConnectionConfig, Node, NodeConfig, Psk, PublicKey, Qos, StaticKey};
use freshwire_server::peer::{self, Patience, PeerError};

use crate::fit::Place;
use crate::uri::{has_hidden_user, shown};

/// The largest record over A1, as with the command.
const LARGEST_RECORD: u32 = 16 << 20;

/// Signs of life within the idle timeout of A1. All but one may be lost. Chosen, not measured.
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
        let wrong = |why: &str| {
            let shown = shown(text);
            Err(format!("location {shown:?}: {why}; write tcp://HOST:PORT or a1://HOST:PORT"))
        };
        if has_hidden_user(text) {
            return wrong(
                "an @ behind a question mark is written %40, and a question mark in a password %3F",
            );
        }
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

    /// The kind of the other end.
    pub(crate) fn place(&self) -> Place {
        match self {
            Self::Tcp(_) => Place::Tcp,
            Self::A1(_) => Place::A1,
            Self::Http(_) => Place::Http,
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
            return Err(
                "peer-key is missing: the element that listens shows its key as public-key".to_owned()
            );
        };
        peer::connect_a1(address, &key, self.config()?, patience).map_err(|error| match error {
            PeerError::ConnectA1 { own_key, .. } => format!("{error}; the key of this end is {own_key}"),
            error => error.to_string(),
        })
    }

    /// A node that waits at `address`.
    pub(crate) fn listen(&self, address: &str) -> Result<Node, String> {
        let mut config = self.config()?.ask(true);
        if let Some(key) = self.peer()? {
            config.endpoint = config.endpoint.allowed(vec![key]);
        }
        peer::listen_a1(address, &config).map_err(|error| error.to_string())
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

/// A TCP connection to `peer`, which may begin to listen within `patience`.
pub(crate) fn connect_tcp(peer: &str, patience: Duration) -> Result<TcpStream, String> {
    peer::connect(peer, Patience::of(patience)).map_err(|error| match error {
        PeerError::NobodyListens(_) => format!("{error}, after {patience:?}; timeout sets how long to wait"),
        error => error.to_string(),
    })
}

/// A listener that does not block.
pub(crate) fn listen_tcp(address: &str) -> Result<TcpListener, String> {
    let listener = peer::listen(address).map_err(|error| error.to_string())?;
    let set = listener.set_nonblocking(true);
    set.map(|()| listener).map_err(|error| format!("cannot listen on {address}: {error}"))
}

/// The next connection, or `None` if nobody has connected.
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
            ("http://viewer/live.fw?a=b@c", "written %40"),
        ] {
            let error = parsed(wrong).err().unwrap_or_default();
            assert!(error.contains(why) && error.contains("write tcp://"), "{wrong}: {error}");
        }
    }
}

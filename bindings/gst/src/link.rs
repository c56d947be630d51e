//! The way from a sender: TCP, A1, or a stream of a server.

use std::io::{self, Read as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use freshwire::a1::{Closed, Connection, Node, PublicKey};
use freshwire_media::framing::{chunked, length_prefixed};
use freshwire_server::client::{FetchError, StreamAddress};
use freshwire_server::peer::Newcomers;

use crate::endpoint::{Keys, Location, accept_tcp, connect_tcp, listen_tcp};
use crate::log::CAT;
use crate::names::{Framing, Mode};
use crate::uri::shown;

/// Bytes read at a time.
const READ_BYTES: usize = 64 << 10;

/// Where records come from.
#[derive(Clone, Debug)]
pub(crate) struct LinkSettings {
    pub(crate) location: Location,
    pub(crate) mode: Mode,
    pub(crate) keys: Keys,
    pub(crate) framing: Framing,
    /// How long connecting may take.
    pub(crate) timeout: Duration,
}

/// Something that came.
pub(crate) enum Arrival {
    /// A record.
    Record {
        /// Its bytes.
        bytes: Vec<u8>,
        /// How old its content was when it was taken, if the carrier says.
        age: Duration,
    },
    /// Part of a byte stream, cut at any place.
    Bytes(Vec<u8>),
    /// The sender has abandoned a record in progress.
    Abandoned,
    /// The stream has ended in order.
    End,
}

/// A connection to a sender, or the wait for one.
pub(crate) struct Link(State);

enum State {
    TcpListener(TcpListener, Framing),
    A1Listener(Node, Newcomers),
    Tcp(TcpStream, Deframer),
    A1 { connection: Connection, node: Node, others: Option<Newcomers> },
    Ended,
}

enum Deframer {
    Raw,
    Chunked(chunked::Reader),
    LengthPrefixed(length_prefixed::Reader),
}

impl From<Framing> for Deframer {
    fn from(framing: Framing) -> Self {
        match framing {
            Framing::Raw => Self::Raw,
            Framing::Chunked => Self::Chunked(chunked::Reader::default()),
            Framing::LengthPrefixed => Self::LengthPrefixed(length_prefixed::Reader::default()),
        }
    }
}

impl Deframer {
    /// The next record in what was read.
    fn next(&mut self) -> Option<Result<Arrival, String>> {
        let record = |bytes| Arrival::Record { bytes, age: Duration::ZERO };
        match self {
            Self::Raw => None,
            Self::Chunked(reader) => Some(match reader.next()? {
                Ok(chunked::Event::Record { payload, .. }) => Ok(record(payload)),
                Ok(_) => Ok(Arrival::Abandoned),
                Err(error) => Err(error.to_string()),
            }),
            Self::LengthPrefixed(reader) => {
                Some(reader.next()?.map(record).map_err(|error| error.to_string()))
            }
        }
    }

    fn finish(&mut self) -> Result<(), String> {
        match self {
            Self::Raw => Ok(()),
            Self::Chunked(reader) => std::mem::take(reader).finish().map_err(|error| error.to_string()),
            Self::LengthPrefixed(reader) => {
                std::mem::take(reader).finish().map_err(|error| error.to_string())
            }
        }
    }
}

/// A refusal's text.
struct Text(String);

impl From<FetchError> for Text {
    fn from(error: FetchError) -> Self {
        Self(error.to_string())
    }
}

impl Link {
    /// Connects, or begins to listen.
    pub(crate) fn open(settings: &LinkSettings) -> Result<Self, String> {
        let LinkSettings { location, mode, keys, framing, timeout } = settings;
        Ok(Self(match (location, mode) {
            (Location::Http(_), Mode::Listener) => {
                return Err("a server's stream is fetched: use mode=caller".to_owned());
            }
            (Location::Http(url), Mode::Caller) => {
                let address: StreamAddress =
                    url.parse().map_err(|error| format!("location {:?}: {error}", shown(url)))?;
                let connect = |peer: &str| connect_tcp(peer, *timeout).map_err(Text);
                let stream = address.open(connect).map_err(|Text(text)| text)?;
                State::Tcp(stream, Framing::Chunked.into())
            }
            (Location::Tcp(address), Mode::Caller) => {
                State::Tcp(connect_tcp(address, *timeout)?, (*framing).into())
            }
            (Location::Tcp(address), Mode::Listener) => State::TcpListener(listen_tcp(address)?, *framing),
            (Location::A1(address), Mode::Caller) => {
                let (node, connection) = keys.connect(address, *timeout)?;
                State::A1 { connection, node, others: None }
            }
            (Location::A1(address), Mode::Listener) => {
                State::A1Listener(keys.listen(address)?, Newcomers::default())
            }
        }))
    }

    /// The key that a sender has to know, of an A1 listener.
    pub(crate) fn public_key(&self) -> Option<PublicKey> {
        match &self.0 {
            State::A1Listener(node, _) | State::A1 { node, others: Some(_), .. } => Some(node.public_key()),
            _ => None,
        }
    }

    /// Where it listens; `None` once a sender has come over TCP.
    pub(crate) fn local_address(&self) -> Option<SocketAddr> {
        match &self.0 {
            State::TcpListener(listener, _) => listener.local_addr().ok(),
            State::A1Listener(node, _) | State::A1 { node, others: Some(_), .. } => node.local_addr().ok(),
            _ => None,
        }
    }

    /// Waits for what comes next, at most `patience`.
    pub(crate) fn poll(&mut self, patience: Duration) -> Result<Option<Arrival>, String> {
        let (arrival, next) = match &mut self.0 {
            State::TcpListener(listener, framing) => match accept_tcp(listener)? {
                Some(stream) => (None, Some(State::Tcp(stream, (*framing).into()))),
                None => {
                    std::thread::sleep(patience);
                    (None, None)
                }
            },
            State::A1Listener(node, newcomers) => {
                match newcomers.accept(node, patience).map_err(|error| error.to_string())? {
                    Some(connection) => return Ok(self.stay(connection)),
                    None => (None, None),
                }
            }
            State::Tcp(stream, deframer) => (read(stream, deframer, patience)?, None),
            State::A1 { connection, node, others } => {
                if let Some(others) = others {
                    refuse_others(others, node)?;
                }
                (receive(connection, patience)?, None)
            }
            State::Ended => (Some(Arrival::End), None),
        };
        if let Some(next) = next {
            self.0 = next;
        } else if matches!(arrival, Some(Arrival::End)) {
            self.0 = State::Ended;
        }
        Ok(arrival)
    }

    /// Somebody has come: nobody else may. Nothing has arrived of it yet.
    fn stay(&mut self, connection: Connection) -> Option<Arrival> {
        gst::info!(CAT, "{} has connected", connection.peer_addr());
        if let State::A1Listener(node, others) = std::mem::replace(&mut self.0, State::Ended) {
            self.0 = State::A1 { connection, node, others: Some(others) };
        }
        None
    }
}

fn refuse_others(others: &mut Newcomers, node: &Node) -> Result<(), String> {
    let refused = others.refuse(node, "it has a sender already").map_err(|error| error.to_string())?;
    for address in refused {
        gst::info!(CAT, "{address} is refused: there is a sender already");
    }
    Ok(())
}

fn receive(connection: &Connection, patience: Duration) -> Result<Option<Arrival>, String> {
    match connection.recv(patience) {
        Ok(Some(message)) => Ok(Some(Arrival::Record { bytes: message.data.to_vec(), age: message.age })),
        Ok(None) => Ok(None),
        Err(Closed::Peer { code: 0, .. }) => Ok(Some(Arrival::End)),
        Err(error) => Err(format!("the connection to the sender broke: {error}")),
    }
}

fn read(
    stream: &mut TcpStream,
    deframer: &mut Deframer,
    patience: Duration,
) -> Result<Option<Arrival>, String> {
    if let Some(arrival) = deframer.next() {
        return arrival.map(Some);
    }
    let broken = |error: io::Error| format!("the connection to the sender broke: {error}");
    stream.set_read_timeout(Some(patience)).map_err(broken)?;
    let mut buffer = vec![0; READ_BYTES];
    let len = match stream.read(&mut buffer) {
        Ok(len) => len,
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
            ) =>
        {
            return Ok(None);
        }
        Err(error) => return Err(broken(error)),
    };
    if len == 0 {
        return deframer.finish().map(|()| Some(Arrival::End));
    }
    buffer.truncate(len);
    match deframer {
        Deframer::Raw => return Ok(Some(Arrival::Bytes(buffer))),
        Deframer::Chunked(reader) => reader.push(&buffer),
        Deframer::LengthPrefixed(reader) => reader.push(&buffer),
    }
    deframer.next().transpose()
}

//! The two ways to a TCP connection: connect to somebody, or wait for somebody.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::num::NonZeroU16;
use std::time::Duration;

use anyhow::{Context as _, bail};

use crate::output::say;

/// How often a peer that does not listen yet is tried again.
const RETRY: Duration = Duration::from_millis(50);

/// One end of a connection that is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// `HOST:PORT` of a peer that listens; it is tried again for this long while it does not.
    Connect(String, Duration),
    /// `ADDR:PORT`, `:PORT` or `PORT` to wait on for one peer.
    Listen(String),
}

impl Endpoint {
    /// The connection, as soon as there is one.
    pub(crate) fn open(&self) -> anyhow::Result<TcpStream> {
        match self {
            Self::Connect(peer, patience) => connect(peer, *patience),
            Self::Listen(address) => accept(address),
        }
    }
}

fn connect(peer: &str, patience: Duration) -> anyhow::Result<TcpStream> {
    let addresses = addresses(peer)?;
    let give_up = freshwire_io::now() + patience;
    loop {
        match TcpStream::connect(addresses.as_slice()) {
            Ok(stream) => return Ok(stream),
            Err(error) if may_come(&error) && freshwire_io::now() < give_up => std::thread::sleep(RETRY),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                bail!("nobody listens on {peer}; start the other side first, or wait for it with --wait 10s")
            }
            Err(error) => return Err(error).with_context(|| format!("cannot connect to {peer}")),
        }
    }
}

/// The addresses of `HOST:PORT`.
pub(crate) fn addresses(peer: &str) -> anyhow::Result<Vec<SocketAddr>> {
    let (host, port) =
        peer.rsplit_once(':').with_context(|| format!("{peer:?} is not HOST:PORT: the port is missing"))?;
    if port.parse::<NonZeroU16>().is_err() {
        bail!("{peer:?} is not HOST:PORT: a port is a number from 1 to 65535");
    }
    let found = peer.to_socket_addrs().with_context(|| format!("the host {host:?} is not known"))?;
    Ok(found.collect())
}

/// Whether the error may go away when the other side has started.
fn may_come(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable};
    matches!(error.kind(), ConnectionRefused | HostUnreachable | NetworkUnreachable)
}

fn accept(address: &str) -> anyhow::Result<TcpStream> {
    let listener = match address.strip_prefix(':').unwrap_or(address).parse::<u16>() {
        // A machine without IPv6 has only the second.
        Ok(port) => TcpListener::bind(("::", port)).or_else(|_| TcpListener::bind(("0.0.0.0", port))),
        Err(_) => TcpListener::bind(address),
    }
    .with_context(|| format!("cannot listen on {address}"))?;
    say(&format!("listening on {}", listener.local_addr().context("cannot tell the address")?));
    let (stream, peer) = listener.accept().context("cannot accept a connection")?;
    say(&format!("connected to {peer}"));
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_comes_late_is_waited_for() -> anyhow::Result<()> {
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let endpoint = |patience| Endpoint::Connect(address.to_string(), patience);
        let error = endpoint(Duration::ZERO).open().map_err(|error| error.to_string());
        assert!(error.is_err_and(|error| error.contains("nobody listens")));
        let late = std::thread::spawn(move || {
            // Pause: the listener comes late.
            std::thread::sleep(Duration::from_millis(100));
            TcpListener::bind(address)?.accept()
        });
        endpoint(Duration::from_secs(10)).open()?;
        assert!(late.join().is_ok_and(|accepted| accepted.is_ok()));
        Ok(())
    }

    #[test]
    fn what_is_no_address_is_said_so() {
        for (endpoint, expected) in [
            (
                Endpoint::Connect("a".to_owned(), Duration::ZERO),
                "\"a\" is not HOST:PORT: the port is missing",
            ),
            (Endpoint::Connect("a:99999".to_owned(), Duration::ZERO), "a number from 1 to 65535"),
            (
                Endpoint::Connect("a.invalid:5".to_owned(), Duration::ZERO),
                "the host \"a.invalid\" is not known",
            ),
            (Endpoint::Listen("nowhere".to_owned()), "cannot listen on nowhere"),
        ] {
            let error = endpoint.open().map_err(|error| error.to_string());
            assert!(error.as_ref().is_err_and(|error| error.contains(expected)), "{error:?}");
        }
    }
}

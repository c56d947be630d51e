//! The two ways to a TCP connection: connect to somebody, or wait for somebody.

use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use freshwire_server::peer::{self, Patience, PeerError};

use crate::output::say;

/// Time for a host that does not answer at all. The system sends its request five times within it (RFC 6298
/// has the timeouts), and would go on for two minutes.
const ANSWER: Duration = Duration::from_secs(30);

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
    peer::connect(peer, Patience { answer: ANSWER, listen: patience }).map_err(|error| match error {
        PeerError::NobodyListens(_) => {
            anyhow!("{error}; start the other side first, or wait for it with --wait 10s")
        }
        error => error.into(),
    })
}

fn accept(address: &str) -> anyhow::Result<TcpStream> {
    let listener = peer::listen(address)?;
    say(&format!("listening on {}", listener.local_addr().context("cannot tell the address")?));
    let (stream, peer) = listener.accept().context("cannot accept a connection")?;
    say(&format!("connected to {peer}"));
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn an_absent_peer_is_an_error_with_a_remedy() -> anyhow::Result<()> {
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let error = Endpoint::Connect(address.to_string(), Duration::ZERO).open();
        let error = error.map_err(|error| format!("{error:#}")).err().unwrap_or_default();
        assert_eq!(
            error,
            format!(
                "nobody listens on {address}; start the other side first, or wait for it with --wait 10s"
            )
        );
        let error = Endpoint::Listen("nowhere".to_owned()).open().map_err(|error| error.to_string());
        assert!(error.as_ref().is_err_and(|error| error.contains("cannot listen on nowhere")), "{error:?}");
        Ok(())
    }
}

//! Listening sockets that a service manager holds, so that they outlive the server.

use std::collections::BTreeMap;
use std::net::TcpListener;

use listenfd::ListenFd;

use super::address::Address;
use super::error::ServeError;
use crate::config::Config;

/// Which sockets there can be, and what they are named.
pub(super) const NAMES: [&str; 7] = ["rtsp", "rtsps", "rtmp", "rtmps", "http", "https", "internal"];

/// Listening sockets from a service manager (systemd's socket activation), by protocol. Connections that arrive while no server runs wait in
/// them for the next one, so a restart refuses nobody.
#[derive(Debug, Default)]
pub struct Inherited {
    listeners: BTreeMap<&'static str, TcpListener>,
}

impl Inherited {
    /// Takes the sockets that the environment announces (`LISTEN_FDS`, `LISTEN_FDNAMES`); none without it. Call it once, before there are
    /// threads: it changes the environment.
    ///
    /// # Errors
    ///
    /// [`ServeError::Inherited`] if a socket has no name of a protocol, or listens for no connections.
    pub fn from_environment() -> Result<Self, ServeError> {
        let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
        let mut sockets = ListenFd::from_env();
        let mut names = names.split(':');
        let mut inherited = Self::default();
        for at in 0..sockets.len() {
            let given = names.next().filter(|name| !name.is_empty()).unwrap_or("unknown").to_owned();
            let fail = |reason: String| ServeError::Inherited { name: given.clone(), reason };
            let Some(&name) = NAMES.iter().find(|&&name| name == given) else {
                return Err(fail(format!(
                    "FileDescriptorName= of its unit has to be one of {}",
                    NAMES.join(", ")
                )));
            };
            let listener = sockets.take_tcp_listener(at).map_err(|error| fail(error.to_string()))?;
            let listener = listener.ok_or_else(|| fail("it is taken".to_owned()))?;
            let listens = rustix::net::sockopt::socket_acceptconn(&listener);
            if !listens.map_err(|error| fail(error.to_string()))? {
                return Err(fail("it does not listen; use ListenStream= without Accept=".to_owned()));
            }
            listener.set_nonblocking(true).map_err(|error| fail(error.to_string()))?;
            if inherited.listeners.insert(name, listener).is_some() {
                return Err(fail("there are two; have one ListenStream= in its unit".to_owned()));
            }
        }
        Ok(inherited)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.listeners.is_empty()
    }

    /// Where they listen.
    pub(super) fn addresses(&self) -> Result<Vec<Address>, ServeError> {
        let address = |(&protocol, listener): (&&'static str, &TcpListener)| {
            let address = listener.local_addr().map_err(ServeError::Engine)?;
            Ok(Address { protocol, address })
        };
        self.listeners.iter().map(address).collect()
    }

    /// The socket for a protocol, once.
    pub(super) fn take(&mut self, name: &str) -> Option<TcpListener> {
        self.listeners.remove(name)
    }
}

/// Has the configuration say where inherited sockets listen, instead of what it said.
pub(super) fn enter(addresses: &[Address], config: &mut Config) -> Result<(), ServeError> {
    for &Address { protocol, address } in addresses {
        let is_tls = ["rtsps", "rtmps", "https"].contains(&protocol);
        if is_tls && config.tls.is_none() {
            let reason = "there is no certificate; name one in [tls] of the configuration".to_owned();
            return Err(ServeError::Inherited { name: protocol.to_owned(), reason });
        }
        let place = match protocol {
            "rtsp" => &mut config.rtsp.plain,
            "rtsps" => &mut config.rtsp.tls,
            "rtmp" => &mut config.rtmp.plain,
            "rtmps" => &mut config.rtmp.tls,
            "http" => &mut config.http.plain,
            "https" => &mut config.http.tls,
            _ => &mut config.internal,
        };
        *place = Some(address);
    }
    Ok(())
}

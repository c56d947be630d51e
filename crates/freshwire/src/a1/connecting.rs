//! Connecting without a thread that waits.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use freshwire_a1::{ConnectConfig, PublicKey, Qos};
use freshwire_io::udp::plain;

use super::connection::Connection;
use super::driver::Protocol as _;
use super::error::ConnectError;
use super::events::Events;
use super::node::Node;

/// An outgoing connection whose handshake is in progress, from [`Node::begin_connect`]. Dropping it gives up.
pub struct Connecting(Connection);

impl Connecting {
    /// Returns a file that becomes readable when the handshake has ended.
    ///
    /// # Errors
    ///
    /// If the system refuses a file descriptor.
    pub fn events(&self) -> io::Result<Events> {
        self.0.events()
    }

    /// Returns the connection once the handshake is complete; `None` until then.
    ///
    /// # Errors
    ///
    /// If the handshake has failed, or the connection was closed since.
    pub fn poll_open(&self) -> Result<Option<Connection>, ConnectError> {
        Ok(self.0.poll_open()?.then(|| self.0.clone()))
    }
}

impl Connecting {
    /// Waits for the end of the handshake.
    pub(super) fn wait(self) -> Result<Connection, ConnectError> {
        self.0.wait_open()?;
        Ok(self.0)
    }
}

impl Node {
    /// Begins to connect to the node with this key at `address`, and returns at once. See [`Node::connect`] for names.
    ///
    /// # Errors
    ///
    /// If the node cannot send to the address or has stopped, or the quality of service exceeds the maximum.
    pub fn begin_connect(
        &self,
        address: SocketAddr,
        key: &PublicKey,
        config: &ConnectConfig,
    ) -> Result<Connecting, ConnectError> {
        self.begin_connect_within(address, key, config, None)
    }

    /// The same with this maximum of the quality of service instead of the node's.
    pub(super) fn begin_connect_within(
        &self,
        address: SocketAddr,
        key: &PublicKey,
        config: &ConnectConfig,
        maximum: Option<Qos>,
    ) -> Result<Connecting, ConnectError> {
        if !self.reaches(address.ip())? {
            return Err(ConnectError::Family);
        }
        let address = plain(address);
        let shared = self.next_shard();
        let (id, changed) = shared.act(|core, now| match core.is_stopped() {
            true => Err(ConnectError::Stopped),
            false => core.connect(now, address, *key, config, maximum),
        })?;
        Ok(Connecting(Connection::new(Arc::clone(shared), id, address, changed)))
    }
}

use std::net::SocketAddr;
use std::sync::Arc;

use freshwire_a1::{Incoming as Asked, Protection, PublicKey, Qos, Refusal};

use super::codes::CODE_ABORTED;
use super::connection::Connection;
use super::driver::Protocol as _;
use super::error::{AcceptError, NodeStopped};
use super::shared::Shared;

/// A connection attempt that waits for the application's decision, for at most
/// [`Limits::handshake_time`](super::Limits::handshake_time) and the initiator's own time limit
/// ([`ConnectConfig::timeout`](super::ConnectConfig::timeout)). The peer has proved that it receives at its
/// address and owns its key.
///
/// Dropping it without a decision refuses the connection, with code 256.
#[must_use = "dropped, it is refused"]
pub struct Incoming {
    node: Arc<Shared>,
    asked: Asked,
    /// The refusal that it gets when it is dropped; `None` if it was accepted.
    refusal: Option<Refusal>,
}

impl Incoming {
    pub(super) fn new(node: Arc<Shared>, asked: Asked) -> Self {
        Self { node, asked, refusal: Some(Refusal::new(CODE_ABORTED, "not wanted")) }
    }

    /// Address of the peer.
    pub fn peer_addr(&self) -> SocketAddr {
        self.asked.from.address
    }

    /// Public key of the peer.
    pub fn peer_key(&self) -> PublicKey {
        self.asked.key
    }

    /// Weakest protection that the peer accepts.
    pub fn protection(&self) -> Protection {
        self.asked.protection
    }

    /// Requested quality of service, from this end's view: the peer wants to receive what this end sends.
    pub fn qos(&self) -> Qos {
        self.asked.qos
    }

    /// Upper limit of the peer's requests on this connection, from this end's view.
    pub fn maximum(&self) -> Qos {
        self.asked.maximum
    }

    /// Accepts the connection, within the node's maximum. It can be used at once. If the peer never receives
    /// the answer, the connection ends with [`Closed::Silent`](super::Closed::Silent).
    ///
    /// # Errors
    ///
    /// If the attempt has timed out or the node has stopped.
    pub fn accept(self) -> Result<Connection, AcceptError> {
        let all = self.asked.maximum;
        self.admit(&all)
    }

    /// Accepts the connection with this upper limit of the quality of service, now and later, and within the
    /// node's. Otherwise as [`Incoming::accept`].
    ///
    /// # Errors
    ///
    /// As [`Incoming::accept`], and if `maximum` is invalid; the connection is then refused.
    pub fn accept_within(self, maximum: &Qos) -> Result<Connection, AcceptError> {
        maximum.check_range()?;
        self.admit(maximum)
    }

    /// Refuses the connection with a code for the peer, from 256 on the application's, and a reason of at
    /// most 256 bytes.
    pub fn refuse(mut self, code: u64, reason: &str) {
        self.refusal = Some(Refusal::new(code, reason));
    }

    fn admit(mut self, maximum: &Qos) -> Result<Connection, AcceptError> {
        let changed = self.node.act(|core, now| match core.is_stopped() {
            true => Err(AcceptError::Stopped(NodeStopped)),
            false => core.admit(now, &self.asked, maximum).ok_or(AcceptError::Gone),
        })?;
        self.refusal = None;
        let Asked { handle, from, .. } = self.asked;
        Ok(Connection::new(Arc::clone(&self.node), handle, from.address, changed))
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        if let Some(refusal) = self.refusal.take() {
            self.node.act(|core, now| core.refuse(now, self.asked.handle, refusal));
        }
    }
}

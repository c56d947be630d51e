use std::net::SocketAddr;
use std::sync::Arc;

use freshwire_a1::{Incoming as Asked, Protection, PublicKey, Qos, Refusal};

use super::connection::Connection;
use super::core::CODE_ABORTED;
use super::error::{AcceptError, NodeStopped};
use super::node::Shared;

/// A node that wants to connect and waits for the application's decision, for at most
/// [`Limits::handshake_time`](super::Limits::handshake_time), and no longer than its own patience
/// ([`ConnectConfig::timeout`](super::ConnectConfig::timeout)). It has shown that it receives at its address and has its key.
///
/// Dropping it without a decision refuses it, with code 256.
#[must_use = "dropped, it is refused"]
pub struct Incoming {
    node: Arc<Shared>,
    asked: Asked,
    /// What it is told when it is dropped; `None` if it was accepted.
    refusal: Option<Refusal>,
}

impl Incoming {
    pub(super) fn new(node: Arc<Shared>, asked: Asked) -> Self {
        Self { node, asked, refusal: Some(Refusal::new(CODE_ABORTED, "not wanted")) }
    }

    /// Where it is.
    pub fn peer_addr(&self) -> SocketAddr {
        self.asked.from
    }

    /// Who it is.
    pub fn peer_key(&self) -> PublicKey {
        self.asked.key
    }

    /// The least protection that is good enough for it.
    pub fn protection(&self) -> Protection {
        self.asked.protection
    }

    /// The quality of service that it asks for now, as this end sees it: it wants to receive what this end sends.
    pub fn qos(&self) -> Qos {
        self.asked.qos
    }

    /// The most that it will ever ask for on this connection, as this end sees it.
    pub fn maximum(&self) -> Qos {
        self.asked.maximum
    }

    /// Accepts it, with the node's maximum. The connection can be used at once, without waiting for the initiator to show that it
    /// has got the answer; if it never does, the connection ends with [`Closed::Silent`](super::Closed::Silent).
    pub fn accept(self) -> Result<Connection, AcceptError> {
        let all = self.asked.maximum;
        self.admit(&all)
    }

    /// Accepts it with at most this quality of service, now and later, and at most the node's. Otherwise as
    /// [`Incoming::accept`].
    pub fn accept_within(self, maximum: &Qos) -> Result<Connection, AcceptError> {
        maximum.check_range()?;
        self.admit(maximum)
    }

    /// Refuses it. It is told the code, from 256 on the application's, and the reason, of which at most 256 bytes.
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
        Ok(Connection::new(Arc::clone(&self.node), handle, from, changed))
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        if let Some(refusal) = self.refusal.take() {
            self.node.act(|core, now| core.refuse(now, self.asked.handle, refusal));
        }
    }
}

//! The sessions of a server.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use super::port::Port;
use super::registry::Sessions;

/// The protocol of its viewers in statistics.
pub(crate) const WEBRTC: &str = "webrtc";

/// The WebRTC sessions of a server.
#[derive(Default)]
pub struct WebRtc {
    pub(super) port: OnceLock<Port>,
    sessions: Mutex<Sessions>,
}

impl std::fmt::Debug for WebRtc {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WebRtc").field("sessions", &self.sessions().len()).finish_non_exhaustive()
    }
}

impl WebRtc {
    /// Opens the port of all sessions. Counts once.
    ///
    /// # Errors
    ///
    /// If the address cannot be bound.
    pub fn open(&self, address: SocketAddr, addresses: Vec<IpAddr>) -> io::Result<SocketAddr> {
        let port = Port::open(address, addresses)?;
        let local = port.local;
        let _ = self.port.set(port);
        Ok(local)
    }

    pub(super) fn sessions(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many sessions there are.
    pub fn len(&self) -> usize {
        self.sessions().len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether WebRTC is served.
    pub(crate) fn is_open(&self) -> bool {
        self.port.get().is_some()
    }

    /// Ends a session. Returns `false` if there is none of this identifier.
    pub(crate) fn end(&self, id: &str) -> bool {
        let session = self.sessions().remove(id);
        session.inspect(|session| session.end("the client has left")).is_some()
    }

    /// Whether the session was offered with this ICE user fragment.
    pub(crate) fn is_offered(&self, id: &str, ufrag: &str) -> bool {
        self.sessions().find(id).is_some_and(|session| session.is_offered(ufrag))
    }

    /// Whether there is a session of this identifier.
    pub(crate) fn has(&self, id: &str) -> bool {
        self.sessions().find(id).is_some()
    }
}

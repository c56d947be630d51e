//! The sessions of a server.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Semaphore;

use super::port::Port;
use super::registry::Sessions;

/// The WebRTC sessions of a server.
pub struct WebRtc {
    pub(super) port: Port,
    /// Offers that are read at a time: as many as leave processors for everything else.
    pub(super) negotiations: Semaphore,
    sessions: Mutex<Sessions>,
}

impl std::fmt::Debug for WebRtc {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WebRtc").field("sessions", &self.sessions().len()).finish_non_exhaustive()
    }
}

impl WebRtc {
    /// Opens the port of all sessions, at the address and at others by which clients reach it.
    ///
    /// # Errors
    ///
    /// If the address cannot be bound.
    pub fn open(address: SocketAddr, addresses: Vec<IpAddr>) -> io::Result<Self> {
        let port = Port::open(address, addresses)?;
        let at_once = std::thread::available_parallelism().map_or(1, |count| count.get().div_ceil(2));
        Ok(Self { port, negotiations: Semaphore::new(at_once), sessions: Mutex::default() })
    }

    /// The address of the port.
    pub fn local_addr(&self) -> SocketAddr {
        self.port.local
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

//! WebRTC: browsers view streams (WHEP) and publish them (WHIP, RFC 9725) over one UDP port.
//!
//! ```text
//!  POST /NAME/whep, /whip ─► offer: answer and Session ──► work: one task a session, its timers and its end
//!                                       ▲  ▲
//!  UDP port ─► udp: by address, by ufrag ┘  └─ SessionPath ◄── engine ◄── ring: what the viewer gets
//! ```
//!
//! The protocol itself is `str0m`'s, which does no input or output. A session's state is behind one lock. The UDP task, the session's task
//! and the engine take it in turn, and none of them calls the hub with the lock of a viewer. A panic under the lock ends that session only.
//!
//! The server is an ICE-lite agent: it answers checks and sends nothing to addresses that have not proved that they know the session's
//! password. So nobody can have it send to a stranger.

mod offer;
mod path;
mod publish;
mod registry;
mod session;
mod tcp;
mod udp;
mod view;
mod work;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd as _;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use freshwire_io::udp::{UdpConfig, UdpSocket};
use str0m::config::{CryptoProvider, DtlsCert};

use crate::context::Context;

pub(crate) use offer::OfferError;
pub(crate) use publish::{PublishAsk, PublishError, publish};
pub(crate) use view::{ViewAsk, view};

use registry::Sessions;

/// The protocol of its viewers in statistics.
pub(crate) const WEBRTC: &str = "webrtc";

/// The WebRTC sessions of a server.
#[derive(Default)]
pub struct WebRtc {
    port: OnceLock<Port>,
    sessions: Mutex<Sessions>,
}

/// The port of all sessions.
struct Port {
    socket: std::net::UdpSocket,
    /// For clients that cannot use datagrams, at the same port number.
    listener: std::net::TcpListener,
    local: SocketAddr,
    /// Addresses by which clients reach it besides its own, as behind an address translator.
    addresses: Vec<IpAddr>,
    crypto: Arc<CryptoProvider>,
    certificate: DtlsCert,
}

/// How a session was asked for.
pub(crate) struct Ask {
    /// The client's address.
    pub(crate) peer: SocketAddr,
    /// The address by which it reached the server.
    pub(crate) local: Option<IpAddr>,
    /// The offer, SDP.
    pub(crate) offer: String,
}

/// A session that was begun.
pub(crate) struct Begun {
    /// Nobody can guess it, so that it is the right to end the session.
    pub(crate) id: String,
    /// The answer, SDP.
    pub(crate) answer: String,
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
        let (socket, listener) = bind(address)?;
        let local = socket.local_addr()?;
        let crypto = Arc::new(str0m::crypto::from_feature_flags());
        let certificate = crypto.dtls_provider.generate_certificate();
        let certificate =
            certificate.ok_or_else(|| io::Error::other("no certificate for WebRTC can be made"))?;
        let _ = self.port.set(Port { socket, listener, local, addresses, crypto, certificate });
        Ok(local)
    }

    fn sessions(&self) -> MutexGuard<'_, Sessions> {
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
}

/// Serves the port until the server stops. Returns at once if none is open.
pub async fn serve(context: Arc<Context>) {
    if !context.webrtc.is_open() {
        return;
    }
    tokio::join!(
        context.tasks.keep("webrtc over udp".to_owned(), || udp::receive(&context)),
        context.tasks.keep("webrtc over tcp".to_owned(), || tcp::accept(&context)),
    );
}

/// The sockets of both protocols. Where the system chooses the port, it has to be free for both.
fn bind(address: SocketAddr) -> io::Result<(std::net::UdpSocket, std::net::TcpListener)> {
    let mut attempts = if address.port() == 0 { ATTEMPTS } else { 1 };
    loop {
        attempts -= 1;
        let bound = UdpSocket::bind(address, UdpConfig::default().receive_buffer(RECEIVE_BUFFER))?;
        let socket = std::net::UdpSocket::from(bound.as_fd().try_clone_to_owned()?);
        socket.set_nonblocking(true)?;
        match std::net::TcpListener::bind(socket.local_addr()?) {
            Ok(listener) => {
                listener.set_nonblocking(true)?;
                return Ok((socket, listener));
            }
            Err(error) if attempts == 0 => return Err(error),
            Err(_) => {}
        }
    }
}

/// Ports that are tried where the system chooses.
const ATTEMPTS: u32 = 16;

/// Bytes of datagrams that the system keeps for all sessions: 50 ms of 160 Mbit/s from publishers.
const RECEIVE_BUFFER: usize = 1 << 20;

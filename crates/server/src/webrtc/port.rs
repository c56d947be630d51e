//! The port of all sessions.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd as _;
use std::sync::Arc;

use freshwire_io::udp::{UdpConfig, UdpSocket};
use str0m::config::{CryptoProvider, DtlsCert};

/// The port of all sessions.
pub(super) struct Port {
    pub(super) socket: std::net::UdpSocket,
    /// For clients that cannot use datagrams, at the same port number.
    pub(super) listener: std::net::TcpListener,
    pub(super) local: SocketAddr,
    /// Addresses by which clients reach it besides its own, as behind an address translator.
    pub(super) addresses: Vec<IpAddr>,
    pub(super) crypto: Arc<CryptoProvider>,
    pub(super) certificate: DtlsCert,
}

impl Port {
    /// Opens it.
    pub(super) fn open(address: SocketAddr, addresses: Vec<IpAddr>) -> io::Result<Self> {
        let (socket, listener) = bind(address)?;
        let local = socket.local_addr()?;
        let crypto = Arc::new(str0m::crypto::from_feature_flags());
        let certificate = crypto.dtls_provider.generate_certificate();
        let certificate =
            certificate.ok_or_else(|| io::Error::other("no certificate for WebRTC can be made"))?;
        Ok(Self { socket, listener, local, addresses, crypto, certificate })
    }

    /// The addresses at which a client may reach the port that reached the server by `local`.
    pub(super) fn candidates(&self, local: Option<IpAddr>) -> Vec<SocketAddr> {
        let mut found: Vec<IpAddr> = Vec::new();
        let own = self.local.ip().to_canonical();
        if !own.is_unspecified() {
            found.push(own);
        } else {
            found.extend(local.map(|local| local.to_canonical()));
        }
        // A translator's address is better for those behind it, and the others find the rest.
        for &address in &self.addresses {
            if !found.contains(&address) {
                found.push(address);
            }
        }
        found.into_iter().map(|ip| SocketAddr::new(ip, self.local.port())).collect()
    }
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

use std::io;
use std::net::SocketAddr;

use crate::config::ConfigError;
use crate::hub::HubError;
use crate::tls::TlsError;

/// The server cannot start, or cannot take a new configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The configuration contradicts itself.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The certificate cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// An address cannot be listened on.
    #[error("cannot listen on {address} for {protocol}: {cause}; {advice}")]
    Listen {
        /// The protocol's name.
        protocol: &'static str,
        /// The address.
        address: SocketAddr,
        /// The system's error. A part of the message, so that a chain of causes does not repeat it.
        cause: io::Error,
        /// The remedy.
        advice: &'static str,
    },
    /// A listening socket of the service manager cannot be used.
    #[error("the service manager's socket {name:?} cannot be used: {reason}")]
    Inherited {
        /// Its name there.
        name: String,
        /// The problem, and the remedy.
        reason: String,
    },
    /// A stream cannot be made.
    #[error(transparent)]
    Stream(#[from] HubError),
    /// A source cannot be used.
    #[error("stream {name}: {origin}: {reason}")]
    Source {
        /// The stream's name.
        name: String,
        /// The source.
        origin: String,
        /// The problem, and the remedy.
        reason: String,
    },
    /// The system refuses threads, sockets or signals.
    #[error("the system refuses what a server needs: {0}")]
    Engine(#[source] io::Error),
}

impl ServeError {
    pub(super) fn listen(protocol: &'static str, address: SocketAddr, cause: io::Error) -> Self {
        let advice = match cause.kind() {
            io::ErrorKind::AddrInUse => {
                "another program listens there; end it, or choose another port (--listen-rtsp, --listen-rtmp, --listen-http, \
                 --listen-webrtc, --listen-internal)"
            }
            io::ErrorKind::PermissionDenied => {
                "ports below 1024 need CAP_NET_BIND_SERVICE (the systemd unit has it); choose a larger port"
            }
            io::ErrorKind::AddrNotAvailable => {
                "this machine has no such address; `ip address` lists those it has"
            }
            _ => "choose another address",
        };
        Self::Listen { protocol, address, cause, advice }
    }
}

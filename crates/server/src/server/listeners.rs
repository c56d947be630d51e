use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use tokio::net::{TcpListener, TcpSocket};

use super::address::Address;
use super::error::ServeError;
use super::inherited::Inherited;
use crate::config::Config;

/// The listeners that the configuration asks for.
pub(super) struct Listeners {
    pub(super) rtsp: Option<TcpListener>,
    pub(super) rtsps: Option<TcpListener>,
    pub(super) rtmp: Option<TcpListener>,
    pub(super) rtmps: Option<TcpListener>,
    pub(super) http: Option<TcpListener>,
    pub(super) https: Option<TcpListener>,
    pub(super) internal: Option<TcpListener>,
}

impl Listeners {
    /// Binds those that are not inherited.
    pub(super) async fn bind(config: &Config, mut inherited: Inherited) -> Result<Self, ServeError> {
        let held = &mut inherited;
        Ok(Self {
            rtsp: held_or_bound(held, "rtsp", config.rtsp.plain, true).await?,
            rtsps: held_or_bound(held, "rtsps", config.rtsp.tls, true).await?,
            // Its usual port may belong to another server, which matters only if RTMP was asked for.
            rtmp: held_or_bound(held, "rtmp", config.rtmp.plain, config.requires_rtmp).await?,
            rtmps: held_or_bound(held, "rtmps", config.rtmp.tls, config.requires_rtmp).await?,
            http: held_or_bound(held, "http", config.http.plain, true).await?,
            https: held_or_bound(held, "https", config.http.tls, true).await?,
            internal: held_or_bound(held, "internal", config.internal, true).await?,
        })
    }

    pub(super) fn addresses(&self) -> Result<Vec<Address>, ServeError> {
        let all = [
            ("rtsp", &self.rtsp),
            ("rtsps", &self.rtsps),
            ("rtmp", &self.rtmp),
            ("rtmps", &self.rtmps),
            ("http", &self.http),
            ("https", &self.https),
            ("internal", &self.internal),
        ];
        let bound = all.into_iter().filter_map(|(protocol, listener)| Some((protocol, listener.as_ref()?)));
        bound
            .map(|(protocol, listener)| {
                let address = listener.local_addr().map_err(ServeError::Engine)?;
                Ok(Address { protocol, address })
            })
            .collect()
    }
}

/// The inherited listener for a protocol, or else one at the address.
async fn held_or_bound(
    held: &mut Inherited,
    protocol: &'static str,
    address: Option<SocketAddr>,
    is_required: bool,
) -> Result<Option<TcpListener>, ServeError> {
    match held.take(protocol) {
        Some(listener) => TcpListener::from_std(listener).map(Some).map_err(ServeError::Engine),
        None if is_required => bind(protocol, address).await,
        None => bind_if_free(protocol, address).await,
    }
}

async fn bind(
    protocol: &'static str,
    address: Option<SocketAddr>,
) -> Result<Option<TcpListener>, ServeError> {
    let Some(address) = address else { return Ok(None) };
    let listener = match address {
        SocketAddr::V6(all) if all.ip().is_unspecified() => bind_all(address).await,
        _ => TcpListener::bind(address).await,
    };
    listener.map(Some).map_err(|error| ServeError::listen(protocol, address, error))
}

/// The same, unless another program listens there.
async fn bind_if_free(
    protocol: &'static str,
    address: Option<SocketAddr>,
) -> Result<Option<TcpListener>, ServeError> {
    match bind(protocol, address).await {
        Err(ServeError::Listen { address, cause, .. }) if cause.kind() == io::ErrorKind::AddrInUse => {
            tracing::warn!(
                "{protocol} is not served: another program listens on {address}; choose another port with --listen-rtmp or \
                 [rtmp] listen, or none"
            );
            Ok(None)
        }
        result => result,
    }
}

/// Listens on all addresses of this machine: those of IPv4 as well, whatever the system's setting, and only those on a machine
/// without IPv6.
async fn bind_all(address: SocketAddr) -> io::Result<TcpListener> {
    let open = || {
        let socket = TcpSocket::new_v6()?;
        rustix::net::sockopt::set_ipv6_v6only(&socket, false)?;
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    };
    match open() {
        Err(error) if is_without_ipv6(&error) => {
            TcpListener::bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, address.port()))).await
        }
        result => result,
    }
}

fn is_without_ipv6(error: &io::Error) -> bool {
    let no_family = rustix::io::Errno::AFNOSUPPORT.raw_os_error();
    error.kind() == io::ErrorKind::AddrNotAvailable || error.raw_os_error() == Some(no_family)
}

/// Connections that wait in the kernel.
const BACKLOG: u32 = 1024;

#[cfg(test)]
mod tests {
    use tokio::net::TcpStream;

    use super::*;

    #[tokio::test]
    async fn all_addresses_are_those_of_ipv4_as_well() {
        let all = "[::]:0".parse().ok();
        let listener = bind("rtsp", all).await.expect("it listens").expect("an address");
        let port = listener.local_addr().expect("its address").port();
        assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.is_ok());
    }

    #[test]
    fn machines_without_ipv6_are_known() {
        let no_family = io::Error::from_raw_os_error(rustix::io::Errno::AFNOSUPPORT.raw_os_error());
        assert!(is_without_ipv6(&no_family) && is_without_ipv6(&io::ErrorKind::AddrNotAvailable.into()));
        assert!(!is_without_ipv6(&io::ErrorKind::AddrInUse.into()));
    }
}

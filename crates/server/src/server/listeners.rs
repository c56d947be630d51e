use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use tokio::net::{TcpListener, TcpSocket};

use super::error::ServeError;
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

/// Where the server listens for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// `rtsp`, `rtsps`, `rtmp`, `rtmps`, `http`, `https`, `webrtc`, or `internal` for what operators ask.
    pub protocol: &'static str,
    /// The address.
    pub address: SocketAddr,
}

impl Listeners {
    pub(super) async fn bind(config: &Config) -> Result<Self, ServeError> {
        Ok(Self {
            rtsp: bind("rtsp", config.rtsp.plain).await?,
            rtsps: bind("rtsps", config.rtsp.tls).await?,
            rtmp: bind_rtmp("rtmp", config.rtmp.plain, config.requires_rtmp).await?,
            rtmps: bind_rtmp("rtmps", config.rtmp.tls, config.requires_rtmp).await?,
            http: bind("http", config.http.plain).await?,
            https: bind("https", config.http.tls).await?,
            internal: bind("internal", config.internal).await?,
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

/// The same for RTMP. Its usual port may belong to another server, which matters only if RTMP was asked for.
async fn bind_rtmp(
    protocol: &'static str,
    address: Option<SocketAddr>,
    is_required: bool,
) -> Result<Option<TcpListener>, ServeError> {
    match bind(protocol, address).await {
        Err(ServeError::Listen { address, cause, .. })
            if !is_required && cause.kind() == io::ErrorKind::AddrInUse =>
        {
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

impl Address {
    /// A line to type to see the stream of this name here.
    pub(super) fn invitation(&self, stream: &str, base_path: &str) -> Option<String> {
        let Self { protocol, address } = *self;
        let host = reachable(address);
        match protocol {
            "rtsp" | "rtsps" => {
                Some(format!("ffplay -fflags nobuffer -rtsp_transport tcp {protocol}://{host}/{stream}"))
            }
            "http" | "https" => Some(format!("{protocol}://{host}{base_path}/{stream}")),
            _ => None,
        }
    }

    /// The line for a publisher of values, or of pictures, as the stream of this name. `user` is true if that takes a
    /// password.
    pub(super) fn calls(&self, stream: &str, base_path: &str, user: bool) -> Vec<String> {
        let Self { protocol, address } = *self;
        let host = reachable(address);
        let at = format!("{host}{base_path}/{stream}");
        let (curl, name) = if user { ("curl --anyauth --user NAME", "NAME:PASSWORD@") } else { ("curl", "") };
        let socket = if protocol == "https" { "wss" } else { "ws" };
        match protocol {
            "rtsp" | "rtsps" => {
                vec![format!(
                    "publish pictures  ffmpeg ... -f rtsp -rtsp_transport tcp {protocol}://{name}{host}/{stream}"
                )]
            }
            "rtmp" | "rtmps" => {
                vec![format!("publish (OBS)     ffmpeg ... -f flv {protocol}://{name}{host}/{stream}")]
            }
            "http" | "https" => vec![
                format!("watch values      {protocol}://{at}/watch"),
                format!("set a value       {curl} --data '{{\"n\":1}}' {protocol}://{at}/KEY"),
                format!("publish values    {socket}://{at}/push"),
                format!("read values       {socket}://{at}/values"),
                format!("read as events    {curl} -N {protocol}://{at}/events"),
                format!("watch pictures    {protocol}://{at}"),
            ],
            _ => Vec::new(),
        }
    }
}

/// The address of another machine's view of this one, for listeners on all addresses.
fn reachable(address: SocketAddr) -> SocketAddr {
    if !address.ip().is_unspecified() {
        return address;
    }
    // Nothing is sent: this only asks the system which address it would send from.
    let asked = std::net::UdpSocket::bind("0.0.0.0:0").and_then(|socket| {
        socket.connect("192.0.2.1:9")?;
        socket.local_addr()
    });
    let ip = asked.map_or(std::net::Ipv4Addr::LOCALHOST.into(), |local| local.ip());
    SocketAddr::new(ip, address.port())
}

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

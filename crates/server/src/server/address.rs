use std::net::SocketAddr;

/// Where the server listens for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// `rtsp`, `rtsps`, `rtmp`, `rtmps`, `http`, `https`, `webrtc`, or `internal` for what operators ask.
    pub protocol: &'static str,
    /// The address.
    pub address: SocketAddr,
}

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

    /// A line to see the values of the stream of this name here.
    pub(super) fn value_invitation(&self, stream: &str, base_path: &str) -> Option<String> {
        let Self { protocol, address } = *self;
        let at = format!("{}{base_path}/{stream}", reachable(address));
        protocol.starts_with("http").then(|| format!("{protocol}://{at}/watch"))
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

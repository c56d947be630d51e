use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use freshwire::network::NetworkQos;

use super::base_path::BasePath;
use super::destination::Destination;
use super::encoder::Encoder;
use super::error::ConfigError;
use super::hub::HubConfig;
use super::limits::Limits;
use super::multicast::MulticastConfig;
use super::origin::Origins;
use super::relay::RelayAddress;
use super::rung::Rung;
use super::source::Source;
use super::target::Target;
use crate::access::{Names, Rights, Rules};

/// Everything that can be configured.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where RTSP is served. Default 127.0.0.1:8554, with TLS 8322.
    pub rtsp: Listen,
    /// Where publishers are taken by RTMP. Default 127.0.0.1:1935, with TLS 1936.
    pub rtmp: Listen,
    /// RTMP was asked for: an address that another program has is an error. Else it is only said in the log.
    pub requires_rtmp: bool,
    /// RTSP over multicast. Default `None`: off.
    pub multicast: Option<MulticastConfig>,
    /// Where the page and its streams are served. Default 127.0.0.1:8080, with TLS 8443.
    pub http: Listen,
    /// Where WebRTC is served. Default 127.0.0.1:8189.
    pub webrtc: Option<SocketAddr>,
    /// Addresses by which browsers reach it besides its own, such as that of an address translator that passes the port on.
    pub webrtc_addresses: Vec<IpAddr>,
    /// Other sites whose pages may play, such as a proxy that does not say which address the browser asked for.
    pub trusted_origins: Origins,
    /// The path below which a proxy shows the pages. Default: none.
    pub base_path: BasePath,
    /// Where `/metrics`, `/health` and `/api/streams` are served, without any password. Default 127.0.0.1:9464.
    pub internal: Option<SocketAddr>,
    /// The certificate; without one nothing is encrypted.
    pub tls: Option<TlsFiles>,
    /// The process's nice value, -20 to 19, for [`set_nice`](crate::priority::set_nice).
    pub nice: Option<i32>,
    /// Everybody may view, whoever it is.
    pub open: bool,
    /// Users, signed links and what needs neither.
    pub access: Rules,
    /// Limits of clients.
    pub limits: Limits,
    /// How viewers are served.
    pub hub: HubConfig,
    /// The streams by name.
    pub streams: BTreeMap<String, StreamConfig>,
}

/// The addresses of one protocol; `None` is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listen {
    /// Not encrypted.
    pub plain: Option<SocketAddr>,
    /// Encrypted; `None` as long as there is no certificate.
    pub tls: Option<SocketAddr>,
}

/// The files of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate with its chain, PEM.
    pub certificate: PathBuf,
    /// Its private key, PEM.
    pub key: PathBuf,
}

/// One stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamConfig {
    /// Where it comes from.
    pub source: Source,
    /// Other codings of the same pictures, such as a camera's sub stream.
    pub renditions: Vec<RenditionConfig>,
    /// Smaller renditions for ffmpeg to make while somebody views.
    pub ladder: Vec<Rung>,
    /// The encoder of the ladder, if one is named.
    pub encoder: Option<Encoder>,
    /// Servers that it is published to by RTMP.
    pub forward: Vec<Target>,
    /// Relays of Media over QUIC at which it is announced, below these paths.
    pub relays: Vec<RelayAddress>,
}

/// A rendition of a stream that has a source of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenditionConfig {
    /// Its name.
    pub name: String,
    /// Where it comes from.
    pub source: Source,
}

impl From<Source> for StreamConfig {
    /// A stream of one rendition.
    fn from(source: Source) -> Self {
        Self {
            source,
            renditions: Vec::new(),
            ladder: Vec::new(),
            encoder: None,
            forward: Vec::new(),
            relays: Vec::new(),
        }
    }
}

impl StreamConfig {
    /// All servers that it is published to.
    pub fn destinations(&self) -> impl Iterator<Item = Destination> + '_ {
        let forward = self.forward.iter().cloned().map(Destination::Rtmp);
        forward.chain(self.relays.iter().cloned().map(Destination::Relay))
    }
}

const RTSP_PORTS: (u16, u16) = (8554, 8322);
const RTMP_PORTS: (u16, u16) = (1935, 1936);
const HTTP_PORTS: (u16, u16) = (8080, 8443);
const WEBRTC_PORT: u16 = 8189;
const INTERNAL_PORT: u16 = 9464;

impl Default for Config {
    fn default() -> Self {
        let listen = |(plain, _): (u16, u16)| Listen { plain: Some(loopback(plain)), tls: None };
        Self {
            rtsp: listen(RTSP_PORTS),
            rtmp: listen(RTMP_PORTS),
            requires_rtmp: false,
            multicast: None,
            http: listen(HTTP_PORTS),
            webrtc: Some(loopback(WEBRTC_PORT)),
            webrtc_addresses: Vec::new(),
            trusted_origins: Origins::default(),
            base_path: BasePath::default(),
            internal: Some(loopback(INTERNAL_PORT)),
            tls: None,
            nice: None,
            open: false,
            access: Rules::default(),
            limits: Limits::default(),
            hub: HubConfig::default(),
            streams: BTreeMap::new(),
        }
    }
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

impl Config {
    /// Whether the settings fit together. Call it when nothing is changed any more.
    ///
    /// # Errors
    ///
    /// With what does not fit together, and what to change.
    pub fn check(&self) -> Result<(), ConfigError> {
        if let Some(name) = &self.hub.congestion {
            check_congestion(name)?;
        }
        check_network("hub", &self.hub.network)?;
        for (name, network) in &self.hub.stream_network {
            check_network(&format!("streams.{name}"), network)?;
        }
        let public = [self.rtsp, self.rtmp, self.http].map(|listen| [listen.plain, listen.tls]);
        let mut public = public.into_iter().flatten().chain([self.webrtc]).flatten();
        let Some(exposed) = public.find(|address| !is_loopback(address.ip())) else {
            return Ok(());
        };
        if self.open || self.has_credentials() || self.access.anonymous != Rights::default() {
            return Ok(());
        }
        Err(ConfigError::general(format!(
            "{exposed} can be reached from other machines, and nobody has a password: add a user \
             (--user NAME:PASSWORD, or [access.users.NAME] in the file), a link_secret for signed links, or let everybody \
             view with --open"
        )))
    }

    /// The rules of access that follow. Without any credential, programs on this machine may do everything but send to brokers.
    pub fn rules(&self) -> Rules {
        let mut rules = self.access.clone();
        if !self.has_credentials() {
            // Values for a broker may reach further than this machine.
            rules.local = Rights { broker: Names::default(), ..Rights::all() };
        }
        if self.open {
            rules.anonymous.view = Rights::all().view;
        }
        rules
    }

    /// Sections that differ from `newer` and stay as they are until the server restarts.
    pub fn fixed_differences(&self, newer: &Self) -> Vec<&'static str> {
        let hub = |config: &Self| format!("{:?}", config.hub);
        [
            (self.rtsp != newer.rtsp || self.multicast != newer.multicast, "rtsp"),
            (self.rtmp != newer.rtmp, "rtmp"),
            (
                self.http != newer.http
                    || self.internal != newer.internal
                    || self.base_path != newer.base_path,
                "http",
            ),
            (self.webrtc != newer.webrtc || self.webrtc_addresses != newer.webrtc_addresses, "webrtc"),
            (self.tls.is_some() != newer.tls.is_some(), "tls"),
            (self.nice != newer.nice, "process"),
            (hub(self) != hub(newer), "hub"),
        ]
        .into_iter()
        .filter_map(|(differs, section)| differs.then_some(section))
        .collect()
    }

    /// Serves TLS on the usual ports, at the addresses that are served without, unless other ones were given.
    pub fn complete_tls(&mut self) {
        if self.tls.is_none() {
            return;
        }
        let all = [(&mut self.rtsp, RTSP_PORTS), (&mut self.rtmp, RTMP_PORTS), (&mut self.http, HTTP_PORTS)];
        for (listen, (_, port)) in all {
            if listen.tls.is_none() {
                let ip = listen.plain.map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |address| address.ip());
                listen.tls = Some(SocketAddr::new(ip, port));
            }
        }
    }

    fn has_credentials(&self) -> bool {
        !self.access.users.is_empty() || self.access.link_key.is_some()
    }
}

/// Whether the kernel lets this process have the congestion control, which it says only of a socket.
fn check_congestion(name: &str) -> Result<(), ConfigError> {
    use rustix::net::{AddressFamily, SocketType, socket, sockopt};
    let refused = |error| {
        ConfigError::general(format!(
            "hub.congestion: connections cannot have {name:?}: {error}; `sysctl net.ipv4.tcp_allowed_congestion_control` lists \
             what they can have, and without the setting they have the system's own"
        ))
    };
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).map_err(refused)?;
    sockopt::set_tcp_congestion(&socket, name).map_err(refused)
}

/// Whether the kernel gives this process the service, which it says only of a socket.
fn check_network(section: &str, network: &NetworkQos) -> Result<(), ConfigError> {
    let refused = |error: &dyn std::fmt::Display| ConfigError::general(format!("{section}: {error}"));
    let socket = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|error| refused(&error))?;
    network.apply_to_stream(&socket).map_err(|error| refused(&error))
}

fn is_loopback(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use freshwire::choice::MAX_RENDITIONS;
use freshwire::engine::Transfer;
use freshwire::network::{Dscp, NetworkQos};
use freshwire_record::{Rate, parse_duration, parse_size};
use serde::Deserialize;
use toml::Spanned;

use super::base_path::BasePath;
use super::encoder::Encoder;
use super::error::{ConfigError, Fault};
use super::hub::HubConfig;
use super::limits::Limits;
use super::multicast::MulticastConfig;
use super::relay::RelayAddress;
use super::rendition::{MAIN, check_rendition_name};
use super::rung::{Rung, RungError};
use super::settings::{Config, Listen, RenditionConfig, StreamConfig, TlsFiles};
use super::source::{Source, check_stream_name, parse_source, relative_to};
use super::target::Target;
use super::values::{Quantity, Texts, link_key, parse_count, parse_listen, secret_from_file, set};
use crate::access::{Names, Password, Rights, Rules, User};

const TOO_MANY: &str = "8 renditions of a stream are the limit, its own source among them";
const _: () = assert!(MAX_RENDITIONS == 8);

type Value = Option<Spanned<Quantity>>;
type Text = Option<Spanned<String>>;
type List = Option<Vec<Spanned<String>>>;

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct File {
    rtsp: RtspSection,
    rtmp: RtmpSection,
    http: HttpSection,
    webrtc: WebRtcSection,
    tls: Option<Spanned<TlsSection>>,
    access: AccessSection,
    limits: LimitsSection,
    process: ProcessSection,
    hub: HubSection,
    streams: BTreeMap<Spanned<String>, StreamSection>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RtspSection {
    listen: Text,
    tls_listen: Text,
    multicast: Text,
    multicast_port: Value,
    multicast_ttl: Value,
    multicast_interface: Text,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RtmpSection {
    listen: Text,
    tls_listen: Text,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct HttpSection {
    listen: Text,
    tls_listen: Text,
    trusted_origins: List,
    base_path: Text,
    internal: Text,
    hosts: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct WebRtcSection {
    listen: Text,
    addresses: List,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TlsSection {
    certificate: PathBuf,
    key: PathBuf,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct AccessSection {
    open: bool,
    link_secret: Text,
    link_secret_file: Text,
    link_secret_env: Text,
    anonymous: RightsSection,
    users: BTreeMap<Spanned<String>, UserSection>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RightsSection {
    view: Vec<String>,
    publish: Vec<String>,
    broker: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct UserSection {
    password: Text,
    password_file: Text,
    password_env: Text,
    sha256: Text,
    md5: Text,
    view: Option<Vec<String>>,
    publish: Option<Vec<String>>,
    broker: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct LimitsSection {
    max_connections: Value,
    max_connections_per_ip: Value,
    max_connection_rate_per_ip: Value,
    handshake_timeout: Value,
    request_timeout: Value,
    idle_timeout: Value,
    keepalive: Value,
    keepalive_timeout: Value,
    answer_timeout: Value,
    max_connection_age: Value,
    max_header: Value,
    max_body: Value,
    max_publish_rate: Value,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ProcessSection {
    nice: Value,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct HubSection {
    max_streams: Value,
    unused_timeout: Value,
    max_viewers: Value,
    arena: Value,
    max_keys: Value,
    max_value: Value,
    max_publishers: Value,
    latency: Value,
    key_grace: Value,
    join_age: Value,
    stall_timeout: Value,
    rtp_packet: Value,
    congestion: Option<String>,
    dscp: Text,
    priority: Value,
    max_rate: Value,
    engines: Value,
    io_uring: Option<bool>,
    transfer: Text,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StreamSection {
    source: Spanned<String>,
    view: List,
    publish: List,
    #[serde(default)]
    rendition: Vec<RenditionSection>,
    #[serde(default)]
    ladder: Vec<Spanned<String>>,
    encoder: Text,
    encoder_device: Text,
    #[serde(default)]
    forward: Texts,
    #[serde(default)]
    relay: Texts,
    dscp: Text,
    priority: Value,
    max_rate: Value,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RenditionSection {
    source: Spanned<String>,
    name: Text,
}

/// Reads the text of the file at `path`.
pub(super) fn read(text: &str, path: &Path) -> Result<Config, ConfigError> {
    let file: File = toml::from_str(text).map_err(|error| {
        let place = error.span().unwrap_or_default();
        Fault::new(place, without_value(error.message()).replace('\n', ", ")).in_file(text, path)
    })?;
    let folder = path.parent().unwrap_or(Path::new(""));
    apply(file, folder).map_err(|fault| fault.in_file(text, path))
}

/// The message of an error without the value of another type, which may be a secret.
fn without_value(message: &str) -> String {
    let shown = || {
        let (value, expected) = message.strip_prefix("invalid type: ")?.rsplit_once(", expected ")?;
        let name = value.split(['"', '`']).next()?.trim_end();
        Some(format!("invalid type: {name}, expected {expected}"))
    };
    shown().unwrap_or_else(|| message.to_owned())
}

fn apply(file: File, folder: &Path) -> Result<Config, Fault> {
    let mut config = Config::default();
    listen(&mut config.rtsp, "rtsp", &file.rtsp.listen, &file.rtsp.tls_listen, file.tls.is_some())?;
    listen(&mut config.rtmp, "rtmp", &file.rtmp.listen, &file.rtmp.tls_listen, file.tls.is_some())?;
    config.requires_rtmp = file.rtmp.listen.is_some() || file.rtmp.tls_listen.is_some();
    listen(&mut config.http, "http", &file.http.listen, &file.http.tls_listen, file.tls.is_some())?;
    config.multicast = multicast(&file.rtsp)?;
    if let Some(webrtc) = address("webrtc.listen", &file.webrtc.listen)? {
        config.webrtc = webrtc;
    }
    for address in file.webrtc.addresses.iter().flatten() {
        config.webrtc_addresses.push(ip(address)?);
    }
    for origin in file.http.trusted_origins.iter().flatten() {
        let trusted = config.trusted_origins.trust(origin.get_ref());
        trusted.map_err(|error| Fault::new(origin.span(), format!("trusted_origins: {error}")))?;
    }
    if let Some(path) = &file.http.base_path {
        let parsed = BasePath::parse(path.get_ref());
        config.base_path = parsed.map_err(|error| Fault::new(path.span(), format!("base_path: {error}")))?;
    }
    if let Some(internal) = address("http.internal", &file.http.internal)? {
        config.internal = internal;
    }
    let off = |listen: &Text| listen.as_ref().is_some_and(|text| text.get_ref() == "none");
    let (no_rtsps, no_https) = (off(&file.rtsp.tls_listen), off(&file.http.tls_listen));
    let no_rtmps = off(&file.rtmp.tls_listen);
    if let Some(tls) = file.tls {
        let TlsSection { certificate, key } = tls.into_inner();
        config.tls = Some(TlsFiles { certificate: folder.join(certificate), key: folder.join(key) });
        config.complete_tls();
        if no_rtsps {
            config.rtsp.tls = None;
        }
        if no_rtmps {
            config.rtmp.tls = None;
        }
        if no_https {
            config.http.tls = None;
        }
    }
    config.open = file.access.open;
    config.access = access(file.access, folder)?;
    config.access.hosts = file.http.hosts;
    // A proxy in front of a trusted site may pass the site's name on.
    config.access.hosts.extend(config.trusted_origins.hosts().map(str::to_owned));
    config.limits = limits(&file.limits)?;
    let nice = |text: &str| match text.parse() {
        Ok(nice) => Ok(Some(nice)),
        Err(_) => Err(format!("{text:?} is not a whole number such as -10")),
    };
    set(&mut config.nice, "nice", file.process.nice.as_ref(), nice, ("-20", "19"))?;
    config.hub = hub(file.hub)?;
    for (name, section) in file.streams {
        stream(&mut config, &name, &section, folder)?;
    }
    Ok(config)
}

fn listen(target: &mut Listen, section: &str, plain: &Text, tls: &Text, encrypts: bool) -> Result<(), Fault> {
    if let Some(plain) = address(&format!("{section}.listen"), plain)? {
        target.plain = plain;
    }
    if let Some(address) = address(&format!("{section}.tls_listen"), tls)? {
        if let (Some(_), false, Some(text)) = (address, encrypts, tls) {
            let message =
                format!("{section}.tls_listen needs a certificate: add [tls] with certificate and key");
            return Err(Fault::new(text.span(), message));
        }
        target.tls = address;
    }
    Ok(())
}

fn multicast(section: &RtspSection) -> Result<Option<MulticastConfig>, Fault> {
    let Some(text) = &section.multicast else { return Ok(None) };
    let range = text.get_ref().parse();
    let range = range.map_err(|error| Fault::new(text.span(), format!("rtsp.multicast: {error}")))?;
    let mut multicast = MulticastConfig { range, port: 5004, ttl: 1, interface: None };
    let number = |text: &str| text.parse().map_err(|_| format!("{text:?} is not a whole number"));
    let port = |text: &str| {
        let port: u16 = number(text).map_err(|error| format!("{error} such as 5004"))?;
        if port.is_multiple_of(2) {
            Ok(port)
        } else {
            Err(format!("{port} is odd; RTP has even ports, such as 5004"))
        }
    };
    set(&mut multicast.port, "multicast_port", section.multicast_port.as_ref(), port, ("1024", "65532"))?;
    let ttl = |text: &str| number(text).and_then(|ttl| u8::try_from(ttl).map_err(|error| error.to_string()));
    set(&mut multicast.ttl, "multicast_ttl", section.multicast_ttl.as_ref(), ttl, ("1", "255"))?;
    if let Some(text) = &section.multicast_interface {
        multicast.interface = Some(interface(text.get_ref()).map_err(|why| Fault::new(text.span(), why))?);
    }
    Ok(Some(multicast))
}

/// One of the addresses of WebRTC.
fn ip(text: &Spanned<String>) -> Result<IpAddr, Fault> {
    text.get_ref().parse().map_err(|_| {
        let message = format!("webrtc.addresses: {:?} is no IP address, such as 203.0.113.7", text.get_ref());
        Fault::new(text.span(), message)
    })
}

/// The interface with this address of this machine.
fn interface(text: &str) -> Result<Ipv4Addr, String> {
    let address = text.parse::<Ipv4Addr>().map_err(|_| {
        format!(
            "multicast_interface: {text:?} is no IPv4 address; write that of an interface (`ip -4 address`)"
        )
    })?;
    // Only an address of this machine can be bound.
    std::net::UdpSocket::bind((address, 0)).map_err(|error| {
        format!("multicast_interface: no interface of this machine has {address}: {error}; `ip -4 address` lists them")
    })?;
    Ok(address)
}

fn address(key: &str, text: &Text) -> Result<Option<Option<std::net::SocketAddr>>, Fault> {
    let read = |text: &Spanned<String>| {
        parse_listen(text.get_ref()).map_err(|error| Fault::new(text.span(), format!("{key}: {error}")))
    };
    text.as_ref().map(read).transpose()
}

fn limits(section: &LimitsSection) -> Result<Limits, Fault> {
    let mut limits = Limits::default();
    let size = |text: &str| parse_size(text).map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
    let rate = |text: &str| Rate::from_str(text);
    let counts = ("1", "1000000");
    let times = ("100ms", "1h");
    let sizes = ("1KiB", "1MiB");
    set(
        &mut limits.max_connections,
        "max_connections",
        section.max_connections.as_ref(),
        parse_count,
        counts,
    )?;
    let per_ip = section.max_connections_per_ip.as_ref();
    set(&mut limits.max_connections_per_ip, "max_connections_per_ip", per_ip, parse_count, counts)?;
    let often = section.max_connection_rate_per_ip.as_ref();
    set(&mut limits.max_connection_rate_per_ip, "max_connection_rate_per_ip", often, parse_count, counts)?;
    let handshake = section.handshake_timeout.as_ref();
    set(&mut limits.handshake_timeout, "handshake_timeout", handshake, parse_duration, times)?;
    set(
        &mut limits.request_timeout,
        "request_timeout",
        section.request_timeout.as_ref(),
        parse_duration,
        times,
    )?;
    set(&mut limits.idle_timeout, "idle_timeout", section.idle_timeout.as_ref(), parse_duration, times)?;
    // The system's own questions go by seconds.
    let keepalives = ("1s", "1h");
    set(&mut limits.keepalive, "keepalive", section.keepalive.as_ref(), parse_duration, keepalives)?;
    let unanswered = section.keepalive_timeout.as_ref();
    set(&mut limits.keepalive_timeout, "keepalive_timeout", unanswered, parse_duration, keepalives)?;
    let answer = section.answer_timeout.as_ref();
    set(&mut limits.answer_timeout, "answer_timeout", answer, parse_duration, times)?;
    let age = section.max_connection_age.as_ref();
    set(&mut limits.max_connection_age, "max_connection_age", age, parse_duration, ("1s", "24h"))?;
    set(&mut limits.max_header_bytes, "max_header", section.max_header.as_ref(), size, sizes)?;
    set(&mut limits.max_body_bytes, "max_body", section.max_body.as_ref(), size, sizes)?;
    let publish = section.max_publish_rate.as_ref();
    set(&mut limits.max_publish_rate, "max_publish_rate", publish, rate, ("10kbit", "100Gbit"))?;
    Ok(limits)
}

fn hub(section: HubSection) -> Result<HubConfig, Fault> {
    let mut hub = HubConfig::default();
    let size = |text: &str| parse_size(text).map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
    set(&mut hub.max_streams, "max_streams", section.max_streams.as_ref(), parse_count, ("1", "10000"))?;
    set(&mut hub.max_viewers, "max_viewers", section.max_viewers.as_ref(), parse_count, ("1", "65536"))?;
    set(&mut hub.arena_bytes, "arena", section.arena.as_ref(), size, ("1MiB", "2GiB"))?;
    set(&mut hub.max_keys, "max_keys", section.max_keys.as_ref(), parse_count, ("1", "4096"))?;
    set(&mut hub.max_value_bytes, "max_value", section.max_value.as_ref(), size, ("64B", "1MiB"))?;
    let publishers = section.max_publishers.as_ref();
    set(&mut hub.max_publishers, "max_publishers", publishers, parse_count, ("1", "65536"))?;
    let bound = |text: &str| parse_duration(text).map(Some);
    set(&mut hub.latency, "latency", section.latency.as_ref(), bound, ("20ms", "1min"))?;
    set(&mut hub.key_grace, "key_grace", section.key_grace.as_ref(), parse_duration, ("0s", "1min"))?;
    set(&mut hub.join_age, "join_age", section.join_age.as_ref(), parse_duration, ("0s", "1min"))?;
    let unused = section.unused_timeout.as_ref();
    set(&mut hub.unused_timeout, "unused_timeout", unused, parse_duration, ("1s", "24h"))?;
    let stall = section.stall_timeout.as_ref();
    set(&mut hub.stall_timeout, "stall_timeout", stall, parse_duration, ("1s", "1h"))?;
    // MIN_PACKET_BYTES and MAX_PACKET_BYTES of the framing.
    set(&mut hub.rtp_packet_bytes, "rtp_packet", section.rtp_packet.as_ref(), size, ("256B", "65000B"))?;
    hub.congestion = section.congestion;
    hub.network = network(&section.dscp, &section.priority, &section.max_rate)?;
    hub.io_uring = section.io_uring.unwrap_or(hub.io_uring);
    if let Some(text) = &section.transfer {
        hub.transfer = transfer(text)?;
    }
    set(&mut hub.engines, "engines", section.engines.as_ref(), parse_count, ("1", "64"))?;
    Ok(hub)
}

/// How payload gets into sockets.
fn transfer(text: &Spanned<String>) -> Result<Transfer, Fault> {
    match text.get_ref().as_str() {
        "auto" => Ok(Transfer::Auto),
        "copy" => Ok(Transfer::Copy),
        "reference" => Ok(Transfer::Reference),
        other => {
            let message = format!("transfer: {other:?} is none of \"auto\", \"copy\" and \"reference\"");
            Err(Fault::new(text.span(), message))
        }
    }
}

/// Service asked of the network.
fn network(dscp: &Text, priority: &Value, max_rate: &Value) -> Result<NetworkQos, Fault> {
    let mut network = NetworkQos::default();
    if let Some(text) = dscp {
        let dscp = text.get_ref().parse::<Dscp>();
        network.dscp = Some(dscp.map_err(|error| Fault::new(text.span(), format!("dscp: {error}")))?);
    }
    let number = |text: &str| match text.parse() {
        Ok(number) => Ok(Some(number)),
        Err(_) => Err(format!("{text:?} is not a whole number such as 5")),
    };
    set(&mut network.priority, "priority", priority.as_ref(), number, ("0", "4294967295"))?;
    let rate = |text: &str| Rate::from_str(text).map(Some);
    set(&mut network.max_rate, "max_rate", max_rate.as_ref(), rate, ("10kbit", "1000Gbit"))?;
    Ok(network)
}

fn access(section: AccessSection, folder: &Path) -> Result<Rules, Fault> {
    let secret = Secret {
        key: "link_secret",
        plain: section.link_secret,
        file: section.link_secret_file,
        env: section.link_secret_env,
    };
    let link_key = match secret.read(folder)? {
        Some((place, secret)) => Some(link_key(&secret).map_err(|message| Fault::new(place, message))?),
        None => None,
    };
    let mut users = BTreeMap::new();
    for (name, section) in section.users {
        users.insert(name.get_ref().clone(), user(&name, section, folder)?);
    }
    let names = |names: Vec<String>| names.into_iter().collect();
    let RightsSection { view, publish, broker } = section.anonymous;
    let anonymous = Rights { view: names(view), publish: names(publish), broker: names(broker) };
    Ok(Rules { users, anonymous, link_key, ..Rules::default() })
}

fn user(name: &Spanned<String>, section: UserSection, folder: &Path) -> Result<User, Fault> {
    let user = name.get_ref();
    if user.is_empty() || user.contains([':', '"', '\\']) || user.chars().any(char::is_control) {
        // The name is left out: behind a colon it may have the password.
        let message = "a user's name is not empty and has no colons, quotes and backslashes; a password belongs into password_file";
        return Err(Fault::new(name.span(), message));
    }
    let hashes = Password { sha256: hash(&section.sha256, 64)?, md5: hash(&section.md5, 32)? };
    let secret = Secret {
        key: "password",
        plain: section.password,
        file: section.password_file,
        env: section.password_env,
    };
    let has_hash = hashes != Password::default();
    let password = match secret.read(folder)? {
        Some((place, _)) if has_hash => {
            return Err(Fault::new(place, "a user has a password or hashes of it (sha256, md5); remove one"));
        }
        Some((_, password)) => Password::from_plain(user, &password),
        None if has_hash => hashes,
        None => {
            let message = format!(
                "user {user} has no password; add password_file = \"PATH\" (or password_env, password, or sha256 and md5)"
            );
            return Err(Fault::new(name.span(), message));
        }
    };
    let view = section.view.map_or_else(Names::all, Names::from_iter);
    let publish = section.publish.unwrap_or_default().into_iter().collect();
    let broker = section.broker.into_iter().collect();
    Ok(User { password, rights: Rights { view, publish, broker } })
}

/// A hash of `USER:freshwire:PASSWORD` with this number of hexadecimal digits.
fn hash(text: &Text, digits: usize) -> Result<Option<String>, Fault> {
    let Some(text) = text else { return Ok(None) };
    let hash = text.get_ref().to_ascii_lowercase();
    if hash.len() == digits && hash.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Ok(Some(hash));
    }
    let tool = if digits == 64 { "sha256sum" } else { "md5sum" };
    let message = format!(
        "a hash has {digits} hexadecimal digits; make it with: printf %s USER:freshwire:PASSWORD | {tool}"
    );
    Err(Fault::new(text.span(), message))
}

/// The three ways to give a secret.
struct Secret {
    key: &'static str,
    plain: Text,
    file: Text,
    env: Text,
}

impl Secret {
    fn read(self, folder: &Path) -> Result<Option<(Range<usize>, String)>, Fault> {
        let key = self.key;
        let mut given = [&self.plain, &self.file, &self.env].into_iter().flatten();
        let (first, second) = (given.next(), given.next());
        if let Some(second) = second {
            let message = format!("{key} is given twice; keep one of {key}, {key}_file and {key}_env");
            return Err(Fault::new(second.span(), message));
        }
        let Some(place) = first.map(Spanned::span) else { return Ok(None) };
        let secret = match (&self.plain, &self.file, &self.env) {
            (Some(plain), ..) => Ok(plain.get_ref().clone()),
            (_, Some(file), _) => secret_from_file(&folder.join(file.get_ref())),
            (.., Some(env)) => std::env::var(env.get_ref())
                .map_err(|_| format!("the environment has no variable {}; set it", env.get_ref())),
            (None, None, None) => return Ok(None),
        };
        match secret {
            Ok(secret) if secret.is_empty() => {
                Err(Fault::new(place, format!("{key} is empty; write a secret")))
            }
            Ok(secret) => Ok(Some((place, secret))),
            Err(message) => Err(Fault::new(place, format!("{key}: {message}"))),
        }
    }
}

fn stream(
    config: &mut Config,
    name: &Spanned<String>,
    section: &StreamSection,
    folder: &Path,
) -> Result<(), Fault> {
    check_stream_name(name.get_ref()).map_err(|error| Fault::new(name.span(), error.to_string()))?;
    let read = |source: &Spanned<String>| {
        let parsed = parse_source(source.get_ref());
        let source = parsed.map_err(|error| Fault::new(source.span(), error.to_string()))?;
        Ok(relative_to(source, folder))
    };
    let source = read(&section.source)?;
    let renditions = renditions(&section.rendition, read)?;
    if matches!(source, Source::Broker(_)) {
        let mut pictures = section.ladder.iter().chain(&section.forward.0).chain(&section.relay.0);
        let first = pictures.next().or(section.rendition.first().map(|rendition| &rendition.source));
        if let Some(first) = first {
            let message =
                "a broker gives values and no pictures; remove rendition, ladder, forward and relay";
            return Err(Fault::new(first.span(), message));
        }
    }
    let ladder = ladder(&section.ladder, &renditions)?;
    let encoder = encoder(section)?;
    let forward: Vec<Target> = addresses("forward", &section.forward.0)?;
    let relays: Vec<RelayAddress> = addresses("relay", &section.relay.0)?;
    for (list, is_view) in [(&section.view, true), (&section.publish, false)] {
        for user in list.iter().flatten() {
            let Some(known) = config.access.users.get_mut(user.get_ref()) else {
                let message = format!("there is no user {:?}; add [access.users.NAME]", user.get_ref());
                return Err(Fault::new(user.span(), message));
            };
            let names = if is_view { &mut known.rights.view } else { &mut known.rights.publish };
            names.add(name.get_ref());
        }
    }
    let network = network(&section.dscp, &section.priority, &section.max_rate)?;
    if network != NetworkQos::default() {
        config.hub.stream_network.insert(name.get_ref().clone(), network);
    }
    let stream = StreamConfig { source, renditions, ladder, encoder, forward, relays };
    config.streams.insert(name.get_ref().clone(), stream);
    Ok(())
}

/// The servers that the stream is published to.
fn addresses<T>(setting: &str, addresses: &[Spanned<String>]) -> Result<Vec<T>, Fault>
where
    T: FromStr<Err: fmt::Display> + fmt::Display + PartialEq,
{
    let mut targets: Vec<T> = Vec::new();
    for text in addresses {
        // The message leaves out the address, which has the key.
        let target = text.get_ref().parse::<T>();
        let target = target.map_err(|error| Fault::new(text.span(), format!("{setting}: {error}")))?;
        if targets.contains(&target) {
            let message = format!("{setting}: {target} is there already with this key");
            return Err(Fault::new(text.span(), message));
        }
        targets.push(target);
    }
    Ok(targets)
}

/// The encoder of the ladder.
fn encoder(section: &StreamSection) -> Result<Option<Encoder>, Fault> {
    let Some(name) = section.encoder.as_ref().or(section.encoder_device.as_ref()) else { return Ok(None) };
    if section.ladder.is_empty() {
        return Err(Fault::new(name.span(), "this stream has nothing to encode; add a ladder"));
    }
    if section.encoder.is_none() {
        return Err(Fault::new(name.span(), "a device needs an encoder; add encoder = \"NAME\""));
    }
    let device = section.encoder_device.as_ref().map(|device| device.get_ref().as_str());
    let encoder = Encoder::new(name.get_ref(), device);
    encoder.map(Some).map_err(|error| Fault::new(name.span(), error.to_string()))
}

/// The renditions that ffmpeg makes.
fn ladder(rungs: &[Spanned<String>], others: &[RenditionConfig]) -> Result<Vec<Rung>, Fault> {
    let mut ladder: Vec<Rung> = Vec::new();
    for text in rungs {
        let rung: Rung =
            text.get_ref().parse().map_err(|error: RungError| Fault::new(text.span(), error.to_string()))?;
        let name = rung.name();
        if ladder.iter().any(|other| other.name() == name) || others.iter().any(|other| other.name == name) {
            let message =
                format!("there is a rendition {name:?} already; give each rung a height of its own");
            return Err(Fault::new(text.span(), message));
        }
        if ladder.len() + others.len() + 1 >= MAX_RENDITIONS {
            return Err(Fault::new(text.span(), TOO_MANY));
        }
        ladder.push(rung);
    }
    Ok(ladder)
}

/// The further renditions of a stream. Without a name they are `sub`, `sub2` and so on.
fn renditions(
    sections: &[RenditionSection],
    read: impl Fn(&Spanned<String>) -> Result<Source, Fault>,
) -> Result<Vec<RenditionConfig>, Fault> {
    let mut renditions: Vec<RenditionConfig> = Vec::new();
    for (section, number) in sections.iter().zip(1..) {
        let place = section.name.as_ref().map_or(section.source.span(), Spanned::span);
        let default = if number == 1 { "sub".to_owned() } else { format!("sub{number}") };
        let name = section.name.as_ref().map_or(default, |name| name.get_ref().clone());
        check_rendition_name(&name).map_err(|error| Fault::new(place.clone(), error.to_string()))?;
        if name == MAIN || renditions.iter().any(|other| other.name == name) {
            let message = format!("there is a rendition {name:?} already; give each a name of its own");
            return Err(Fault::new(place, message));
        }
        if number >= MAX_RENDITIONS {
            return Err(Fault::new(place, TOO_MANY));
        }
        let source = read(&section.source)?;
        if matches!(source, Source::Broker(_)) {
            let message = "a broker gives values and no pictures; give it a stream of its own";
            return Err(Fault::new(section.source.span(), message));
        }
        renditions.push(RenditionConfig { name, source });
    }
    Ok(renditions)
}

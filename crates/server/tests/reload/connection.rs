//! One client of any kind.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use freshwire::websocket::{Event, Opcode, Reader, Role, header};
use freshwire_media::rtmp::amf0::Value;
use freshwire_server::access::{LinkKey, Right, answer};
use str0m::media::{Direction, MediaKind};

use crate::rtsp_rig::{Client, TCP, datagram_sockets, with_session};
use crate::testing::wait_for;
use crate::webrtc_rig::{SDP, ask};
use crate::{rtmp_rig, webrtc_rig};

/// A busy machine may be late by much.
const PATIENCE: Duration = Duration::from_secs(30);

/// How a client has a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// RTSP, before PLAY.
    RtspSetup,
    RtspTcp,
    RtspUdp,
    Multicast,
    PublishTcp,
    PublishUdp,
    /// MP4 in WebSocket.
    Pictures,
    /// `.ts` and the like.
    Body(&'static str),
    Values,
    Events,
    Push,
    /// WebRTC: a viewer, a publisher.
    Whep,
    Whip,
    /// A publisher.
    Rtmp,
}

impl Kind {
    /// Publishers that need a stream for themselves.
    const ALONE: [Self; 4] = [Self::PublishTcp, Self::PublishUdp, Self::Whip, Self::Rtmp];

    pub(crate) fn publishes(self) -> bool {
        self == Self::Push || Self::ALONE.contains(&self)
    }

    /// Whether pages of other sites can have a stream so.
    fn is_for_pages(self) -> bool {
        matches!(self, Self::Pictures | Self::Values | Self::Events | Self::Push | Self::Whep | Self::Whip)
    }

    pub(crate) fn is_of(self, credential: Credential) -> bool {
        credential != Credential::Site || self.is_for_pages()
    }
}

/// What lets a client in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Credential {
    Open,
    User,
    Link,
    /// A page of a trusted site.
    Site,
}

impl Credential {
    pub(crate) const ALL: [Self; 4] = [Self::Open, Self::User, Self::Link, Self::Site];

    pub(crate) fn is_open(self) -> bool {
        matches!(self, Self::Open | Self::Site)
    }
}

/// Where the server listens.
#[derive(Clone, Copy)]
pub(crate) struct Addresses {
    pub(crate) rtsp: SocketAddr,
    pub(crate) http: SocketAddr,
    pub(crate) rtmp: SocketAddr,
}

/// The streams of clients with a credential. Publishers of pictures need one each.
pub(crate) struct Names(&'static str);

impl Names {
    pub(crate) fn of(credential: Credential) -> Self {
        Self(if credential.is_open() { "open" } else { "closed" })
    }

    fn of_kind(&self, kind: Kind, credential: Credential) -> String {
        if Kind::ALONE.contains(&kind) {
            format!("{}-{kind:?}-{credential:?}", self.0)
        } else {
            format!("{}-cam", self.0)
        }
    }

    pub(crate) fn all(&self) -> Vec<String> {
        let credentials = Credential::ALL.into_iter().filter(|&of| Self::of(of).0 == self.0);
        let own = credentials.flat_map(|of| Kind::ALONE.map(|kind| self.of_kind(kind, of)));
        own.chain([format!("{}-cam", self.0), format!("{}-spare", self.0)]).collect()
    }
}

/// A client and what it has received.
pub(crate) struct Connection {
    kind: Kind,
    credential: Credential,
    over: Over,
}

enum Over {
    Rtsp { client: Client, ports: Option<(UdpSocket, UdpSocket)>, next: Option<u16> },
    Http { socket: TcpStream, read: Vec<u8>, frames: Option<Reader> },
    WebRtc { client: Attended, http: SocketAddr, session: String },
    Rtmp(rtmp_rig::Client),
}

/// A client of WebRTC that takes part on a thread of its own until it is dropped: what comes while nobody reads would be lost.
struct Attended(Arc<Mutex<webrtc_rig::Client>>);

impl Attended {
    fn new(client: webrtc_rig::Client) -> Self {
        let client = Arc::new(Mutex::new(client));
        let weak = Arc::downgrade(&client);
        thread::spawn(move || {
            while let Some(client) = weak.upgrade() {
                let has_ended = client.lock().unwrap().run(Duration::from_millis(5), |client| client.ended);
                if has_ended {
                    return;
                }
                // Pause: those who ask have their turn.
                thread::sleep(Duration::from_millis(1));
            }
        });
        Self(client)
    }

    fn now(&self) -> MutexGuard<'_, webrtc_rig::Client> {
        self.0.lock().unwrap()
    }
}

impl Connection {
    pub(crate) fn open(
        kind: Kind,
        credential: Credential,
        Addresses { rtsp, http, rtmp }: Addresses,
        key: &LinkKey,
        site: &str,
    ) -> Self {
        let name = Names::of(credential).of_kind(kind, credential);
        let right = if kind.publishes() { Right::Publish } else { Right::View };
        let query = if credential == Credential::Link {
            format!("?{}", key.query(right, &name, u64::from(u32::MAX)))
        } else {
            String::new()
        };
        let origin = (credential == Credential::Site).then_some(site);
        let over = match kind {
            Kind::Whep | Kind::Whip => {
                let end = format!("{kind:?}").to_lowercase();
                open_webrtc(http, &format!("/{name}/{end}{query}"), kind, credential, origin)
            }
            Kind::Rtmp => {
                let user = if credential == Credential::User { "?user=anna&pass=sesame" } else { "" };
                let mut client = rtmp_rig::Client::connect(rtmp, "").unwrap();
                client.publish(&format!("{name}{query}{user}")).unwrap();
                Over::Rtmp(client)
            }
            Kind::Pictures | Kind::Body(_) | Kind::Values | Kind::Events | Kind::Push => {
                let path = match kind {
                    Kind::Body(suffix) => format!("/{name}.{suffix}{query}"),
                    Kind::Pictures => format!("/{name}/ws{query}"),
                    _ => format!("/{name}/{}{query}", format!("{kind:?}").to_lowercase()),
                };
                open_http(http, &path, kind, credential, origin)
            }
            _ => open_rtsp(rtsp, &name, &query, kind, credential),
        };
        Self { kind, credential, over }
    }

    pub(crate) fn what(&self) -> (Kind, Credential) {
        (self.kind, self.credential)
    }

    /// Checks that it gets what was fed, or that the server listens to it.
    pub(crate) fn goes_on(&mut self, mark: u8) {
        let what = format!("{:?} by {:?}", self.kind, self.credential);
        match &mut self.over {
            Over::Rtsp { client, ports, next } => match (self.kind, ports) {
                (Kind::RtspTcp, _) => loop {
                    let (channel, packet) = client.packet();
                    if channel == 0 && follows(&packet, next, &what) == mark {
                        return;
                    }
                },
                (Kind::RtspUdp | Kind::Multicast, Some((rtp, _))) => loop {
                    let mut packet = [0; 2000];
                    let count = rtp.recv(&mut packet).unwrap_or_else(|error| panic!("{what}: {error}"));
                    if follows(&packet[..count], next, &what) == mark {
                        return;
                    }
                },
                _ => assert_eq!(client.ask("OPTIONS", "", "").status, "200", "{what}"),
            },
            Over::Http { socket, read, frames } => {
                if self.kind == Kind::Push {
                    send_frame(socket, 0x89, &[mark]);
                }
                let pattern = match self.kind {
                    Kind::Pictures | Kind::Body(_) => vec![mark; 60],
                    Kind::Push => vec![0x8a, 1, mark],
                    _ => format!("\"mark {mark}\"").into_bytes(),
                };
                let mut bytes = [0; 4096];
                while !read.windows(pattern.len()).any(|at| at == pattern) {
                    let count = socket.read(&mut bytes).unwrap_or_else(|error| panic!("{what}: {error}"));
                    assert!(count > 0, "{what} has ended: {:?}", String::from_utf8_lossy(read));
                    read.extend(&bytes[..count]);
                }
                if let Some(frames) = frames {
                    frames.push(read);
                    for event in frames.by_ref() {
                        assert!(!matches!(event, Ok(Event::Close { .. }) | Err(_)), "{what}: {event:?}");
                    }
                }
                read.clear();
            }
            Over::WebRtc { client, .. } if self.kind == Kind::Whep => {
                wait_for(&what, PATIENCE, || client.now().payload.last() == Some(&mark));
            }
            Over::WebRtc { client, http, session } => {
                assert!(has_session(*http, session) && !client.now().ended, "{what} has ended");
            }
            Over::Rtmp(client) => {
                let (name, _) = client.call("createStream", vec![Value::Null]);
                assert_eq!(name, "_result", "{what}");
            }
        }
    }

    /// Waits until the server ends it; the reason, where the protocol has a place for one.
    pub(crate) fn ends(&mut self) -> Option<String> {
        let what = format!("{:?} by {:?}", self.kind, self.credential);
        match &mut self.over {
            Over::Rtsp { client, ports, .. } => {
                let mut bytes = [0; 4096];
                loop {
                    match client.socket.read(&mut bytes) {
                        Ok(0) => break,
                        Ok(count) => client.read.extend(&bytes[..count]),
                        Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
                        Err(error) => panic!("{what} does not end: {error}"),
                    }
                }
                match (self.kind, ports) {
                    (Kind::RtspTcp, _) => {
                        let packets = std::iter::from_fn(|| client.take_packet());
                        let goodbye = packets
                            .filter(|(channel, _)| *channel == 1)
                            .find_map(|(_, packet)| goodbye(&packet));
                        Some(goodbye.unwrap_or_else(|| panic!("{what}: no BYE")))
                    }
                    // A group goes on for others.
                    (Kind::Multicast, Some(_)) if self.credential == Credential::User => None,
                    (Kind::RtspUdp | Kind::Multicast, Some((_, rtcp))) => loop {
                        let count =
                            rtcp.recv(&mut bytes).unwrap_or_else(|error| panic!("{what}: no BYE: {error}"));
                        if let Some(why) = goodbye(&bytes[..count]) {
                            return Some(why);
                        }
                    },
                    _ => None,
                }
            }
            Over::Http { socket, read, frames } => {
                match socket.read_to_end(read) {
                    Ok(_) => {}
                    Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
                    Err(error) => panic!("{what} does not end: {error}"),
                }
                match frames {
                    Some(frames) => {
                        frames.push(read);
                        let close = frames.by_ref().find_map(|event| match event {
                            Ok(Event::Close { code, reason }) => Some((code, reason)),
                            _ => None,
                        });
                        let (code, reason) = close.unwrap_or_else(|| panic!("{what}: no close frame"));
                        let expected = if reason.contains("removed") { 1001 } else { 1008 };
                        assert_eq!(code, Some(expected), "{what}: {reason}");
                        Some(reason)
                    }
                    None if self.kind == Kind::Events => {
                        let text = String::from_utf8_lossy(read);
                        Some(text.lines().rfind(|line| line.starts_with(": ")).unwrap_or_default().to_owned())
                    }
                    None => None,
                }
            }
            Over::WebRtc { client, http, session } => {
                wait_for(&what, PATIENCE, || client.now().ended && !has_session(*http, session));
                let said = client.now().said.last().cloned().filter(|_| self.kind == Kind::Whep)?;
                let said: serde_json::Value = serde_json::from_str(&said).unwrap();
                let reason = said["reason"].as_str().unwrap_or_else(|| panic!("{what}: {said}"));
                let is_gone = reason.contains("removed") || reason.contains("codec");
                assert_eq!(said["code"], if is_gone { 1001 } else { 1008 }, "{what}: {said}");
                Some(reason.to_owned())
            }
            Over::Rtmp(client) => {
                let status = client.status();
                assert_eq!(client.status(), None, "{what} goes on");
                Some(status.unwrap_or_else(|| panic!("{what}: no status")))
            }
        }
    }
}

/// Whether the server has this session of WebRTC.
fn has_session(http: SocketAddr, session: &str) -> bool {
    let fragment = "content-type: application/trickle-ice-sdpfrag\r\n";
    let answer = ask(http, "PATCH", session, fragment, "");
    assert!(matches!(answer.status, 204 | 404), "{answer:?}");
    answer.status == 204
}

/// The picture of a packet of the stream, whose number has to be the next one.
fn follows(packet: &[u8], next: &mut Option<u16>, what: &str) -> u8 {
    let number = u16::from_be_bytes([packet[2], packet[3]]);
    assert!(next.is_none_or(|next| next == number), "{what}: {next:?}, then {number}");
    *next = Some(number.wrapping_add(1));
    *packet.last().unwrap()
}

/// The reason of a BYE.
fn goodbye(packet: &[u8]) -> Option<String> {
    let at = packet.get(8..)?;
    (at.get(1) == Some(&203)).then(|| String::from_utf8_lossy(&at[9..9 + usize::from(at[8])]).into_owned())
}

fn open_rtsp(address: SocketAddr, name: &str, query: &str, kind: Kind, by: Credential) -> Over {
    let socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let url = format!("rtsp://{address}/{name}{query}");
    let mut client = Client { socket, read: Vec::new(), cseq: 0, url };
    let first = if kind.publishes() { "ANNOUNCE" } else { "DESCRIBE" };
    let mut credentials = String::new();
    if by == Credential::User {
        let refused = client.ask(first, "", "");
        let challenge = refused.header("WWW-Authenticate").unwrap();
        let answer = answer(challenge, "anna", "sesame", first, &client.url).unwrap();
        credentials = format!("Authorization: {answer}\r\n");
    }
    if kind.publishes() {
        let description = "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=x\r\nt=0 0\r\nm=video 0 RTP/AVP 96\r\n\
            a=rtpmap:96 VP9/90000\r\na=control:streamid=0\r\n";
        credentials += "Content-Type: application/sdp\r\n";
        client.cseq += 1;
        let (url, cseq, length) = (&client.url, client.cseq, description.len());
        let text = format!(
            "ANNOUNCE {url} RTSP/1.0\r\nCSeq: {cseq}\r\nContent-Length: {length}\r\n{credentials}\r\n{description}"
        );
        client.send(text.as_bytes());
        assert_eq!(client.answer().status, "200");
    } else {
        assert_eq!(client.ask("DESCRIBE", "", &credentials).status, "200");
    }
    let (rtp, rtcp, datagrams) = datagram_sockets();
    let (transport, ports) = match kind {
        Kind::RtspUdp | Kind::PublishUdp => (datagrams, Some((rtp, rtcp))),
        Kind::Multicast => ("Transport: RTP/AVP;multicast\r\n".to_owned(), None),
        _ => (TCP.to_owned(), None),
    };
    let url = client.url.clone();
    let track = if kind.publishes() { "streamid=0" } else { "trackID=0" };
    let (path, query) = url
        .split_once('?')
        .map_or((url.as_str(), String::new()), |(path, query)| (path, format!("?{query}")));
    let setup = client.ask_url("SETUP", &format!("{path}/{track}{query}"), &transport);
    assert_eq!(setup.status, "200", "{setup:?}");
    let ports = if kind == Kind::Multicast { Some(members(&setup)) } else { ports };
    let session = with_session(&setup.session());
    match kind {
        Kind::RtspSetup => {}
        Kind::PublishTcp | Kind::PublishUdp => assert_eq!(client.ask("RECORD", "", &session).status, "200"),
        _ => assert_eq!(client.ask("PLAY", "", &session).status, "200"),
    }
    Over::Rtsp { client, ports, next: None }
}

/// Sockets in the group that an answer to SETUP names.
fn members(setup: &crate::rtsp_rig::Answer) -> (UdpSocket, UdpSocket) {
    use rustix::net::{AddressFamily, SocketType, bind, socket, sockopt};
    let transport = setup.header("Transport").unwrap();
    let field = |name: &str| transport.split(';').find_map(|field| field.strip_prefix(name)).unwrap();
    let group: std::net::Ipv4Addr = field("destination=").parse().unwrap();
    let (rtp, rtcp) = field("port=").split_once('-').unwrap();
    let [rtp, rtcp] = [rtp, rtcp].map(|port| {
        let socket = socket(AddressFamily::INET, SocketType::DGRAM, None).unwrap();
        sockopt::set_socket_reuseaddr(&socket, true).unwrap();
        bind(&socket, &SocketAddr::from((group, port.parse().unwrap()))).unwrap();
        let socket = UdpSocket::from(socket);
        socket.join_multicast_v4(&group, &std::net::Ipv4Addr::LOCALHOST).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    });
    (rtp, rtcp)
}

/// A viewer to which the server answers, or a publisher that is connected.
fn open_webrtc(http: SocketAddr, path: &str, kind: Kind, by: Credential, origin: Option<&str>) -> Over {
    let mut client = match kind {
        Kind::Whep => webrtc_rig::Client::page(),
        _ => webrtc_rig::Client::offering(&[MediaKind::Video], Direction::SendOnly),
    };
    let mut head = SDP.to_owned();
    if let Some(origin) = origin {
        head += &format!("origin: {origin}\r\n");
    }
    if by == Credential::User {
        let refused = ask(http, "POST", path, &head, &client.offer);
        let challenge = refused.header("www-authenticate").unwrap();
        let answer = answer(challenge, "anna", "sesame", "POST", path).unwrap();
        head += &format!("authorization: {answer}\r\n");
    }
    let answer = ask(http, "POST", path, &head, &client.offer);
    assert_eq!(answer.status, 201, "{path}: {answer:?}");
    client.accept(&answer.body);
    let is_open = |client: &webrtc_rig::Client| match kind {
        Kind::Whep => !client.said.is_empty(),
        _ => client.connected,
    };
    assert!(client.run(PATIENCE, is_open), "{path}");
    let (folder, _) = path.split_once('?').map_or(path, |(path, _)| path).rsplit_once('/').unwrap();
    let session = format!("{folder}/{}", answer.header("location").unwrap());
    Over::WebRtc { client: Attended::new(client), http, session }
}

fn open_http(address: SocketAddr, path: &str, kind: Kind, by: Credential, origin: Option<&str>) -> Over {
    let mut headers = format!("Host: {address}\r\n");
    if by == Credential::User {
        let mut socket = TcpStream::connect(address).unwrap();
        write!(socket, "GET {path} HTTP/1.1\r\n{headers}Connection: close\r\n\r\n").unwrap();
        let mut refused = String::new();
        socket.read_to_string(&mut refused).unwrap();
        let challenge = refused.lines().find_map(|line| line.strip_prefix("www-authenticate: ")).unwrap();
        headers +=
            &format!("Authorization: {}\r\n", answer(challenge, "anna", "sesame", "GET", path).unwrap());
    }
    if let Some(origin) = origin {
        headers += &format!("Origin: {origin}\r\n");
    }
    let is_socket = !matches!(kind, Kind::Body(_) | Kind::Events);
    if is_socket {
        headers += "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
            Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    }
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(socket, "GET {path} HTTP/1.1\r\n{headers}\r\n").unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        socket.read_exact(&mut byte).unwrap();
        head.extend(byte);
    }
    let head = String::from_utf8(head).unwrap();
    let expected = if is_socket { "HTTP/1.1 101" } else { "HTTP/1.1 200" };
    assert!(head.starts_with(expected), "{path}: {head}");
    Over::Http { socket, read: Vec::new(), frames: is_socket.then(|| Reader::new(Role::Client, 1 << 20)) }
}

/// A masked frame with this first byte.
fn send_frame(socket: &mut TcpStream, first: u8, payload: &[u8]) {
    let mut frame = Vec::new();
    header(Opcode::Text, payload.len() as u64, &mut frame);
    frame[0] = first;
    frame[1] |= 0x80;
    let mask = [1, 2, 3, 4];
    frame.extend_from_slice(&mask);
    frame.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    socket.write_all(&frame).unwrap();
}

//! An RTSP server on loopback, a source of small pictures, and a client that reports the server's answers.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use freshwire::Timestamp;
use freshwire::choice::{Aim, LinkView, Record};
use freshwire::datagram::{DatagramPath, Flushed, KnownPath};
use freshwire_media::framing::Framing;
use freshwire_media::unit::{Kind, MediaTime, Tracks, Unit, UnitHead, VideoCodec, VideoTrack};
use freshwire_server::access::Access;
use freshwire_server::config::Limits;
use freshwire_server::context::Context;
use freshwire_server::hub::{
    Hub, HubConfig, HubError, Publisher, RenditionSelection, Stream, ViewRequest, ViewSocket, Viewer,
};
use freshwire_server::net::Acceptor;
use freshwire_server::rtsp;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// A server on loopback. Dropping it stops it.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) context: Arc<Context>,
    pub(crate) stop: watch::Sender<bool>,
    pub(crate) runtime: Runtime,
}

impl Server {
    pub(crate) fn new(access: Access, limits: Limits) -> Self {
        Self::with(access, limits, HubConfig::default())
    }

    pub(crate) fn with(access: Access, limits: Limits, config: HubConfig) -> Self {
        Self::at("127.0.0.1:0", access, limits, config)
    }

    pub(crate) fn at(address: &str, access: Access, limits: Limits, config: HubConfig) -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let hub = Hub::new(config).expect("a hub");
        let (stop, stopped) = watch::channel(false);
        let context = Arc::new(Context::new(hub, access, limits, stopped));
        let acceptor = runtime.block_on(async {
            let listener = TcpListener::bind(address).await.expect("a port");
            Acceptor::new(listener, None, Arc::clone(&context.admission), context.tasks.clone())
                .expect("an acceptor")
        });
        let address = acceptor.local_addr();
        runtime.spawn(rtsp::serve(acceptor, Arc::clone(&context)));
        Self { address, context, stop, runtime }
    }

    pub(crate) fn open() -> Self {
        Self::new(Access::open(), Limits::default())
    }

    pub(crate) fn publish(&self, name: &str) -> Source {
        let stream = self.context.hub.stream(name).expect("room for a stream");
        Source::of(stream.publish("test", None).expect("nobody publishes"))
    }

    pub(crate) fn client(&self) -> Client {
        let socket = TcpStream::connect(self.address).expect("a connection");
        socket.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
        Client { socket, read: Vec::new(), cseq: 0, url: format!("rtsp://{}/cam", self.address) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}

pub(crate) struct Source {
    pub(crate) publisher: Publisher,
    pub(crate) tracks: Arc<Tracks>,
    pub(crate) count: i64,
    pub(crate) group: u32,
}

impl Source {
    pub(crate) fn of(mut publisher: Publisher) -> Self {
        let codec = VideoCodec::H264 { sps: vec![0x67, 0x42, 0xC0, 0x1E, 1], pps: vec![0x68, 1, 2] };
        let video = Some(VideoTrack { codec, width: 320, height: 180 });
        let tracks = Arc::new(Tracks { video, audio: None });
        publisher.tracks(Arc::clone(&tracks));
        Self { publisher, tracks, count: 0, group: 0 }
    }

    /// Publishes one key picture.
    pub(crate) fn push(&mut self) {
        self.group = self.count as u32 + 1;
        self.push_picture([0x65, 0x88], [0; 2]);
    }

    /// Publishes one key picture of `len` bytes.
    pub(crate) fn push_large(&mut self, len: usize) {
        self.group = self.count as u32 + 1;
        self.push_picture_of([0x65, 0x88], [0; 2], len);
    }

    /// Publishes one picture that depends on the one before it.
    pub(crate) fn push_dependent(&mut self) {
        self.push_picture([0x41, 0x9a], [1, 0]);
    }

    fn push_picture(&mut self, header: [u8; 2], refs: [u32; 2]) {
        self.push_picture_of(header, refs, 100);
    }

    fn push_picture_of(&mut self, header: [u8; 2], refs: [u32; 2], len: usize) {
        let mut bytes = vec![0, 0, 0, 1, header[0], header[1]];
        bytes.resize(bytes.len() + len, self.count as u8);
        let time = MediaTime::from_nanos(self.count * 40_000_000);
        self.count += 1;
        let len = bytes.len() as u32;
        let head = UnitHead {
            kind: Kind::Video,
            pts: time,
            dts: time,
            duration_ns: 40_000_000,
            key: refs == [0; 2],
            len,
            nals: std::iter::once(4..len).collect(),
            nal_headers: vec![header],
            repeat: None,
            tracks: Arc::clone(&self.tracks),
        };
        self.publisher.push(Unit { head, layer: 0, group: self.group, refs, bytes });
    }
}

/// A client that reports the server's answers.
pub(crate) struct Client {
    pub(crate) socket: TcpStream,
    pub(crate) read: Vec<u8>,
    pub(crate) cseq: u32,
    pub(crate) url: String,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: String,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    pub(crate) fn session(&self) -> String {
        self.header("Session").expect("a session").split(';').next().expect("its name").to_owned()
    }
}

impl Client {
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).expect("sent");
    }

    /// A request for the stream, or what `suffix` makes of its URL.
    pub(crate) fn ask(&mut self, method: &str, suffix: &str, headers: &str) -> Answer {
        let url = format!("{}{suffix}", self.url);
        self.ask_url(method, &url, headers)
    }

    pub(crate) fn ask_url(&mut self, method: &str, url: &str, headers: &str) -> Answer {
        self.cseq += 1;
        let text = format!("{method} {url} RTSP/1.0\r\nCSeq: {}\r\n{headers}\r\n", self.cseq);
        self.send(text.as_bytes());
        let answer = self.answer();
        assert_eq!(answer.header("CSeq"), Some(self.cseq.to_string().as_str()), "{answer:?}");
        answer
    }

    pub(crate) fn fill(&mut self) -> bool {
        let mut chunk = [0; 4096];
        match self.socket.read(&mut chunk) {
            Ok(0) => false,
            Ok(count) => {
                self.read.extend(&chunk[..count]);
                true
            }
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => false,
            Err(error) => panic!("no answer: {error}; so far {:?}", String::from_utf8_lossy(&self.read)),
        }
    }

    /// The next answer, passing over packets.
    pub(crate) fn answer(&mut self) -> Answer {
        loop {
            while self.take_packet().is_some() {}
            let end = self.read.windows(4).position(|at| at == b"\r\n\r\n");
            if let Some(end) = end.filter(|_| self.read[0] != b'$') {
                let head = String::from_utf8(self.read[..end].to_vec()).expect("text");
                let mut answer = Answer { status: head[9..12].to_owned(), head, body: String::new() };
                let body =
                    answer.header("Content-Length").map_or(0, |length| length.parse().expect("a length"));
                while self.read.len() < end + 4 + body {
                    assert!(self.fill());
                }
                let bytes: Vec<u8> = self.read.drain(..end + 4 + body).collect();
                answer.body = String::from_utf8(bytes[end + 4..].to_vec()).expect("text");
                return answer;
            }
            assert!(self.fill(), "closed without an answer");
        }
    }

    pub(crate) fn take_packet(&mut self) -> Option<(u8, Vec<u8>)> {
        let &[b'$', channel, high, low, ..] = &self.read[..] else { return None };
        let end = 4 + usize::from(u16::from_be_bytes([high, low]));
        if self.read.len() < end {
            return None;
        }
        let packet: Vec<u8> = self.read.drain(..end).collect();
        Some((channel, packet[4..].to_vec()))
    }

    /// The next packet.
    pub(crate) fn packet(&mut self) -> (u8, Vec<u8>) {
        loop {
            if let Some(packet) = self.take_packet() {
                return packet;
            }
            assert!(self.fill(), "closed without a packet");
        }
    }

    /// Waits until the server closes.
    pub(crate) fn is_closed(&mut self) -> bool {
        while self.fill() {}
        true
    }
}

pub(crate) const TCP: &str = "Transport: RTP/AVP/TCP;unicast;interleaved=0-1\r\n";

pub(crate) fn with_session(session: &str) -> String {
    format!("Session: {session}\r\n")
}

/// A client's sockets for RTP and RTCP, and the header that offers them.
pub(crate) fn datagram_sockets() -> (UdpSocket, UdpSocket, String) {
    let sockets = [(); 2].map(|()| {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        socket.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
        socket
    });
    let ports = sockets.each_ref().map(|socket| socket.local_addr().expect("bound").port());
    let [rtp, rtcp] = sockets;
    (rtp, rtcp, format!("Transport: RTP/AVP/UDP;unicast;client_port={}-{}\r\n", ports[0], ports[1]))
}

/// The server's ports of an answer to SETUP.
pub(crate) fn server_ports(setup: &Answer) -> [u16; 2] {
    let transport = setup.header("Transport").expect("a transport");
    let ports = transport.split("server_port=").nth(1).and_then(|rest| rest.split(';').next());
    let (rtp, rtcp) = ports.and_then(|ports| ports.split_once('-')).expect("two ports");
    [rtp, rtcp].map(|port| port.parse().expect("a port"))
}

/// A path over datagrams that leads nowhere.
struct Nowhere;

impl DatagramPath for Nowhere {
    fn view(&self, _now: Timestamp, _committed: u64) -> LinkView {
        LinkView::default()
    }

    fn ready_at(&self, now: Timestamp, _bytes: u64) -> Timestamp {
        now
    }

    fn send(&mut self, _now: Timestamp, _record: Option<&Record>, _packets: &[u8]) {}

    fn flush(&mut self, _now: Timestamp) -> std::io::Result<Flushed> {
        Ok(Flushed::default())
    }

    fn known(&self) -> KnownPath {
        KnownPath::default()
    }
}

/// Somebody who views over such a path.
pub(crate) fn view_nowhere(stream: &Arc<Stream>) -> Result<Viewer, HubError> {
    stream.view(ViewRequest {
        socket: ViewSocket::Datagrams(Box::new(Nowhere)),
        preface: Vec::new(),
        framer: Framing::Raw.into(),
        catalog: stream.catalog(),
        renditions: RenditionSelection::All,
        seal: None,
        protocol: "test",
        peer: SocketAddr::from(([127, 0, 0, 1], 9)),
        user: None,
        only: None,
        latency: None,
        reorders: true,
        join_age: None,
        aim: Aim::Screen,
    })
}

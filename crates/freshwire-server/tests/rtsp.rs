//! Conversations with the RTSP server, line by line.
#![allow(clippy::disallowed_methods, reason = "clients wait in real time")]

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use freshwire_media::unit::{Kind, MediaTime, Tracks, Unit, UnitHead, VideoCodec, VideoTrack};
use freshwire_server::access::{Access, LinkKey, Names, Password, Right, Rights, Rules, User};
use freshwire_server::config::Limits;
use freshwire_server::context::Context;
use freshwire_server::hub::{DatagramSink, Hub, HubConfig, Publisher};
use freshwire_server::net::Acceptor;
use freshwire_server::rtsp;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// A server on loopback. Dropping it stops it.
struct Server {
    address: SocketAddr,
    context: Arc<Context>,
    stop: watch::Sender<bool>,
    _runtime: Runtime,
}

impl Server {
    fn new(access: Access, limits: Limits) -> Self {
        Self::with(access, limits, HubConfig::default())
    }

    fn with(access: Access, limits: Limits, config: HubConfig) -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let hub = Hub::new(config).expect("a hub");
        let (stop, stopped) = watch::channel(false);
        let context = Arc::new(Context::new(hub, access, limits, stopped));
        let acceptor = runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            Acceptor::new(listener, None, Arc::clone(&context.admission), context.tasks.clone())
                .expect("an acceptor")
        });
        let address = acceptor.local_addr();
        runtime.spawn(rtsp::serve(acceptor, Arc::clone(&context)));
        Self { address, context, stop, _runtime: runtime }
    }

    fn open() -> Self {
        Self::new(Access::open(), Limits::default())
    }

    fn publish(&self, name: &str) -> Source {
        let stream = self.context.hub.stream(name).expect("room for a stream");
        let mut publisher = stream.publish("test", None).expect("nobody publishes");
        let codec = VideoCodec::H264 { sps: vec![0x67, 0x42, 0xC0, 0x1E, 1], pps: vec![0x68, 1, 2] };
        let video = Some(VideoTrack { codec, width: 320, height: 180 });
        let tracks = Arc::new(Tracks { video, audio: None });
        publisher.tracks(Arc::clone(&tracks));
        Source { publisher, tracks, count: 0 }
    }

    fn client(&self) -> Client {
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

struct Source {
    publisher: Publisher,
    tracks: Arc<Tracks>,
    count: i64,
}

impl Source {
    /// Publishes one key picture.
    fn push(&mut self) {
        let mut bytes = vec![0, 0, 0, 1, 0x65, 0x88];
        bytes.extend([self.count as u8; 100]);
        let time = MediaTime::from_nanos(self.count * 40_000_000);
        self.count += 1;
        let len = bytes.len() as u32;
        let head = UnitHead {
            kind: Kind::Video,
            pts: time,
            dts: time,
            duration_ns: 40_000_000,
            key: true,
            len,
            nals: std::iter::once(4..len).collect(),
            nal_headers: vec![[0x65, 0x88]],
            repeat: None,
            tracks: Arc::clone(&self.tracks),
        };
        self.publisher.push(Unit { head, layer: 0, group: self.count as u32, refs: [0; 2], bytes });
    }
}

/// A client that says what it is told.
struct Client {
    socket: TcpStream,
    read: Vec<u8>,
    cseq: u32,
    url: String,
}

/// An answer.
#[derive(Debug)]
struct Answer {
    status: String,
    head: String,
    body: String,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    fn session(&self) -> String {
        self.header("Session").expect("a session").split(';').next().expect("its name").to_owned()
    }
}

impl Client {
    fn send(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).expect("sent");
    }

    /// A request for the stream, or what `suffix` makes of its URL.
    fn ask(&mut self, method: &str, suffix: &str, headers: &str) -> Answer {
        let url = format!("{}{suffix}", self.url);
        self.ask_url(method, &url, headers)
    }

    fn ask_url(&mut self, method: &str, url: &str, headers: &str) -> Answer {
        self.cseq += 1;
        let text = format!("{method} {url} RTSP/1.0\r\nCSeq: {}\r\n{headers}\r\n", self.cseq);
        self.send(text.as_bytes());
        let answer = self.answer();
        assert_eq!(answer.header("CSeq"), Some(self.cseq.to_string().as_str()), "{answer:?}");
        answer
    }

    fn fill(&mut self) -> bool {
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
    fn answer(&mut self) -> Answer {
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

    fn take_packet(&mut self) -> Option<(u8, Vec<u8>)> {
        let &[b'$', channel, high, low, ..] = &self.read[..] else { return None };
        let end = 4 + usize::from(u16::from_be_bytes([high, low]));
        if self.read.len() < end {
            return None;
        }
        let packet: Vec<u8> = self.read.drain(..end).collect();
        Some((channel, packet[4..].to_vec()))
    }

    /// The next packet.
    fn packet(&mut self) -> (u8, Vec<u8>) {
        loop {
            if let Some(packet) = self.take_packet() {
                return packet;
            }
            assert!(self.fill(), "closed without a packet");
        }
    }

    /// Waits until the server closes.
    fn is_closed(&mut self) -> bool {
        while self.fill() {}
        true
    }
}

const TCP: &str = "Transport: RTP/AVP/TCP;unicast;interleaved=0-1\r\n";

fn with_session(session: &str) -> String {
    format!("Session: {session}\r\n")
}

#[test]
fn a_viewer_from_describe_to_teardown() {
    let server = Server::open();
    let mut source = server.publish("cam");
    let mut client = server.client();
    assert!(client.ask_url("OPTIONS", "*", "").header("Public").expect("methods").contains("DESCRIBE"));
    let described = client.ask("DESCRIBE", "/", "Accept: application/sdp\r\n");
    assert_eq!(
        (described.status.as_str(), described.header("Content-Base")),
        ("200", Some(&*format!("{}/", client.url)))
    );
    assert!(described.body.contains("a=control:trackID=0"));
    let setup = client.ask("SETUP", "/trackID=0", "Transport: RTP/AVP/TCP;unicast;interleaved=6-7\r\n");
    assert!(setup.header("Transport").expect("a transport").contains("interleaved=6-7"));
    let session = with_session(&setup.session());
    let play = client.ask("PLAY", "/", &format!("{session}Range: npt=0-\r\n"));
    assert_eq!((play.status.as_str(), play.header("Range")), ("200", Some("npt=now-")));
    source.push();
    let (channel, report) = client.packet();
    assert_eq!((channel, report[1]), (7, 200));
    let (channel, packet) = client.packet();
    assert_eq!((channel, packet[0], packet[1] & 0x7F), (6, 0x80, 96));
    let seq = format!("seq={}", u16::from_be_bytes([packet[2], packet[3]]));
    assert!(play.header("RTP-Info").expect("info").ends_with(&seq));
    // Requests while it plays, with receiver reports between them.
    client.send(b"$\x07\0\x04abcd");
    assert_eq!(client.ask("GET_PARAMETER", "", &session).status, "200");
    assert_eq!(client.ask("SETUP", "/trackID=0", TCP).status, "455");
    assert_eq!(client.ask("DANCE", "", "").status, "501");
    assert_eq!(client.ask("PAUSE", "", &session).status, "200");
    assert_eq!(client.ask("PLAY", "", &session).status, "200");
    source.push();
    assert_eq!(client.packet().0, 6);
    assert_eq!(client.ask("TEARDOWN", "", &session).status, "200");
    assert!(client.is_closed());
}

/// Requests as one player makes them: method, and what is behind the stream's URL. What the viewer is served with, and the URL
/// by which PLAY names the track.
fn latency_after(server: &Server, requests: &[(&str, &str)]) -> (Option<Duration>, String) {
    let mut client = server.client();
    let (mut session, mut info) = (String::new(), String::new());
    for (method, suffix) in requests {
        let headers = if *method == "SETUP" { TCP.to_owned() } else { session.clone() };
        let answer = client.ask(method, suffix, &headers);
        assert_eq!(answer.status, "200", "{method} {suffix}: {answer:?}");
        match *method {
            "DESCRIBE" => {
                let base = answer.header("Content-Base").expect("a base");
                let query = suffix.split_once('?').map(|(_, query)| format!("?{query}")).unwrap_or_default();
                assert_eq!(base, format!("{}/{query}", client.url), "the query stays");
            }
            "SETUP" => session = with_session(&answer.session()),
            _ => info = answer.header("RTP-Info").expect("info").to_owned(),
        }
    }
    let stream = server.context.hub.find("cam").expect("published");
    let latency = stream.snapshot().viewers.last().expect("a viewer").latency;
    let url = info.strip_prefix("url=").and_then(|rest| rest.split(';').next()).expect("a URL");
    (latency, url.strip_prefix(&client.url).expect("the stream's").to_owned())
}

#[test]
fn a_latency_is_kept_however_players_write_their_urls() {
    let server = Server::open();
    let _source = server.publish("cam");
    let two = Some(Duration::from_secs(2));
    let cases: [(&[(&str, &str)], _); 11] = [
        // ffmpeg and mpv, GStreamer, VLC: the control behind the base, its query included.
        (&[("DESCRIBE", "?latency=2s"), ("SETUP", "/?latency=2s/trackID=0"), ("PLAY", "/?latency=2s")], two),
        // The control behind the URL that was asked for.
        (&[("DESCRIBE", "?latency=2s"), ("SETUP", "?latency=2s/trackID=0"), ("PLAY", "?latency=2s/")], two),
        // As in RFC 3986: the query is gone.
        (&[("DESCRIBE", "?latency=2s"), ("SETUP", "/trackID=0"), ("PLAY", "/")], two),
        // The control in the path, the query behind it.
        (&[("DESCRIBE", "?latency=2s"), ("SETUP", "/trackID=0?latency=2s"), ("PLAY", "?latency=2s")], two),
        // One who knows the stream, one who keeps the query from PLAY, and one who has changed its mind.
        (&[("SETUP", "/trackID=0?latency=2s"), ("PLAY", "/")], two),
        (&[("SETUP", "/trackID=0"), ("PLAY", "?latency=2s")], two),
        (&[("DESCRIBE", "?latency=1s"), ("SETUP", "/trackID=0"), ("PLAY", "?latency=2s")], two),
        (&[("DESCRIBE", "?a=b/c&latency=2s"), ("SETUP", "/?a=b/c&latency=2s/trackID=0"), ("PLAY", "/")], two),
        // Others' queries, which only resemble ours.
        (&[("DESCRIBE", "?track=7"), ("SETUP", "/?track=7/trackID=0"), ("PLAY", "/?track=7")], None),
        (&[("DESCRIBE", "?a=b;c,d"), ("SETUP", "/?max-latency=9/trackID=0"), ("PLAY", "/?stream=1")], None),
        (&[("DESCRIBE", ""), ("SETUP", "/trackID=0"), ("PLAY", "/")], None),
    ];
    for (requests, latency) in cases {
        let setup = requests.iter().find(|(method, _)| *method == "SETUP").expect("a track");
        assert_eq!(latency_after(&server, requests), (latency, setup.1.to_owned()), "{requests:?}");
    }
}

#[test]
fn a_latency_that_cannot_be_kept_is_refused() {
    let server = Server::open();
    let _source = server.publish("cam");
    let mut client = server.client();
    for (method, url) in [("DESCRIBE", "?latency=soon"), ("SETUP", "/?latency=soon/trackID=0")] {
        let refused = client.ask(method, url, TCP);
        assert!(
            refused.head.contains(" 400 Bad Request: latency=soon is not a duration from"),
            "{refused:?}"
        );
    }
    let (_rtp, _rtcp, udp) = datagram_sockets();
    let refused = client.ask("SETUP", "/trackID=0?latency=2s", &udp);
    assert!(
        refused.head.contains(" 461 Unsupported Transport; use RTP/AVP/TCP with latency="),
        "{refused:?}"
    );
    // Over UDP nothing is left out to be in time.
    let mut over_udp = server.client();
    let session = with_session(&over_udp.ask("SETUP", "/trackID=0", &udp).session());
    assert_eq!(over_udp.ask("PLAY", "?latency=2s", &session).status, "455");
    assert_eq!(over_udp.ask("PLAY", "", &session).status, "200");
    let session = with_session(&client.ask("SETUP", "/trackID=0?latency=2s", TCP).session());
    assert_eq!(client.ask("PLAY", "?latency=soon", &session).status, "400");
    assert_eq!(client.ask("PLAY", "", &session).status, "200");
    assert_eq!(client.ask("PLAY", "?latency=2s", &session).status, "200", "as before");
    assert_eq!(client.ask("PLAY", "?latency=1s", &session).status, "455");
}

/// One who opens a connection for each request is let in as well, by the base that DESCRIBE gives.
#[test]
fn a_signed_link_stays_in_the_base() {
    let key = LinkKey::new("a secret of some length");
    let link = key.query(Right::View, "cam", u64::MAX);
    let rules = Rules { link_key: Some(key), ..Rules::default() };
    let server = Server::new(Access::new(rules), Limits::default());
    let _source = server.publish("cam");
    let described = server.client().ask("DESCRIBE", &format!("?{link}&latency=2s"), "");
    let base = described.header("Content-Base").expect("a base").to_owned();
    let mut other = server.client();
    let session = with_session(&other.ask_url("SETUP", &format!("{base}/trackID=0"), TCP).session());
    assert_eq!(other.ask_url("PLAY", &base, &session).status, "200");
    let viewers = server.context.hub.find("cam").expect("published").snapshot().viewers;
    assert_eq!(viewers[0].latency, Some(Duration::from_secs(2)));
    let forged =
        server.client().ask_url("SETUP", &format!("{}/trackID=0", base.replace("sig=", "sig=0")), TCP);
    assert_eq!(forged.status, "403");
}

#[test]
fn refusals_have_their_codes() {
    let server = Server::open();
    let _source = server.publish("cam");
    let mut client = server.client();
    let unknown = client.ask_url("DESCRIBE", &format!("rtsp://{}/other", server.address), "");
    assert!(unknown.head.starts_with("RTSP/1.0 404 Not Found: no stream other"), "{unknown:?}");
    assert_eq!(client.ask("DESCRIBE", "", "Accept: text/html\r\n").status, "406");
    assert_eq!(client.ask("DESCRIBE", "", "Require: funky\r\n").header("Unsupported"), Some("funky"));
    assert_eq!(client.ask_url("DESCRIBE", "*", "").status, "400");
    assert_eq!(client.ask("PLAY", "", "").status, "455");
    assert_eq!(client.ask("RECORD", "", "").status, "455");
    assert_eq!(client.ask("PAUSE", "", "Session: nobody\r\n").status, "454");
    assert_eq!(client.ask("TEARDOWN", "", "").status, "454");
    let dance = client.ask("DANCE", "", "");
    assert!(dance.status == "501" && dance.header("Allow").is_some());
    assert_eq!(client.ask("REDIRECT", "", "").status, "405");
    assert_eq!(client.ask("SETUP", "/trackID=1", TCP).status, "404");
    assert_eq!(
        client.ask("SETUP", "/trackID=0", "Transport: RTP/SAVP;unicast;client_port=5-6\r\n").status,
        "461"
    );
    assert_eq!(client.ask("SETUP", "/trackID=0", "Transport: RTP/AVP;multicast\r\n").status, "461");
    assert_eq!(client.ask("ANNOUNCE", "x", "").status, "400");
    client.send(b"OPTIONS * RTSP/1.0\r\n\r\n");
    assert_eq!(client.answer().status, "400");
    client.send(b"OPTIONS * RTSP/2.0\r\nCSeq: 1\r\n\r\n");
    assert_eq!(client.answer().status, "505");
    assert_eq!(client.ask("OPTIONS", "", "").status, "200");
}

#[test]
fn a_stream_without_source_is_waited_for() {
    let server = Server::open();
    server.context.hub.stream("cam").expect("room");
    let mut client = server.client();
    let asked = Instant::now();
    std::thread::scope(|scope| {
        let late = scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(300));
            server.publish("cam")
        });
        assert_eq!(client.ask("DESCRIBE", "", "").status, "200");
        assert!(asked.elapsed() >= Duration::from_millis(300));
        late.join().expect("published");
    });
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let server = Server::open();
    let _source = server.publish("cam");
    let mut client = server.client();
    let url = client.url.clone();
    let all: String =
        (1..=20).map(|cseq| format!("DESCRIBE {url} RTSP/1.0\r\nCSeq: {cseq}\r\n\r\n")).collect();
    client.send(all.as_bytes());
    for cseq in 1..=20 {
        let answer = client.answer();
        assert_eq!((answer.status.as_str(), answer.header("CSeq")), ("200", Some(&*cseq.to_string())));
    }
}

#[test]
fn requests_behind_play_in_the_same_segment_are_answered() {
    let server = Server::open();
    let _source = server.publish("cam");
    let mut client = server.client();
    let session = client.ask("SETUP", "/trackID=0", TCP).session();
    let url = client.url.clone();
    let play = format!("PLAY {url} RTSP/1.0\r\nCSeq: 8\r\nSession: {session}\r\n\r\n");
    client.send(format!("{play}OPTIONS {url} RTSP/1.0\r\nCSeq: 9\r\n\r\n").as_bytes());
    assert_eq!(client.answer().header("CSeq"), Some("8"));
    assert_eq!(client.answer().header("CSeq"), Some("9"));
}

#[test]
fn a_viewer_over_udp() {
    let server = Server::open();
    let mut source = server.publish("cam");
    let mut client = server.client();
    let (rtp, rtcp, transport) = datagram_sockets();
    let setup = client.ask("SETUP", "/trackID=0", &transport);
    let session = with_session(&setup.session());
    assert_eq!(client.ask("PLAY", "", &session).status, "200");
    source.push();
    let mut datagram = [0; 2000];
    let (count, from) = rtp.recv_from(&mut datagram).expect("a packet");
    assert!(from.port() == server_ports(&setup)[0] && count > 100 && datagram[1] & 0x7F == 96);
    assert!(rtcp.recv(&mut datagram).expect("a report") >= 28 && datagram[1] == 200);
    assert_eq!(client.ask("PAUSE", "", &session).status, "200");
    source.push();
    assert_eq!(client.ask("PLAY", "", &session).status, "200");
    source.push();
    rtp.recv(&mut datagram).expect("a packet");
    assert_eq!(datagram[40], 2, "the picture of the pause is not sent");
    assert_eq!(client.ask("TEARDOWN", "", &session).status, "200");
    source.push();
    rtp.set_read_timeout(Some(Duration::from_millis(200))).expect("a timeout");
    rtp.recv(&mut datagram).expect_err("nothing behind TEARDOWN");
}

#[test]
fn the_rights_are_asked_for() {
    let password = Password { sha256: None, md5: Some("0".repeat(32)) };
    let rights = Rights { view: Names::all(), publish: Names::default() };
    let users = [("me".to_owned(), User { password, rights })].into();
    let server = Server::new(Access::new(Rules { users, ..Rules::default() }), Limits::default());
    let _source = server.publish("cam");
    let mut client = server.client();
    let challenge = client.ask("DESCRIBE", "", "");
    assert_eq!(challenge.status, "401");
    assert!(challenge.header("WWW-Authenticate").expect("a challenge").starts_with("Digest"));
    assert_eq!(client.ask("SETUP", "/trackID=0", TCP).status, "401");
    assert_eq!(client.ask("ANNOUNCE", "", "").status, "401");
    let nonce =
        challenge.head.split("nonce=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a nonce");
    let url = client.url.clone();
    let wrong = format!(
        "Authorization: Digest username=\"me\", realm=\"freshwire\", nonce=\"{nonce}\", uri=\"{url}\", \
         response=\"{}\"\r\n",
        "1".repeat(32)
    );
    let refused = client.ask("DESCRIBE", "", &wrong).status;
    assert!(refused == "401" || refused == "403", "{refused}");
    assert_eq!(server.context.counters.denied.value(), 1);
    // Others are served all the while.
    assert_eq!(server.client().ask_url("OPTIONS", "*", "").status, "200");
}

#[test]
fn bad_clients_are_disconnected_and_counted() {
    let limits = Limits {
        request_timeout: Duration::from_millis(400),
        idle_timeout: Duration::from_millis(900),
        max_header_bytes: 1000,
        ..Limits::default()
    };
    let server = Server::new(Access::open(), limits);
    let mut silent = server.client();
    let mut half = server.client();
    half.send(b"OPTIONS * RTSP/1.0\r\nCSe");
    let mut garbage = server.client();
    garbage.send(b"\x16\x03\x01\x02\0\x01\r\n\r\n");
    assert_eq!(garbage.answer().status, "400");
    let mut large = server.client();
    large.send(&[b'A'; 1500]);
    assert_eq!(large.answer().status, "400");
    let mut idle = server.client();
    assert_eq!(idle.ask("OPTIONS", "", "").status, "200");
    for client in [&mut silent, &mut half, &mut garbage, &mut large, &mut idle] {
        assert!(client.is_closed());
    }
    assert_eq!(server.context.counters.bad_requests.value(), 3);
}

const ANNOUNCED: &str = "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=x\r\nt=0 0\r\nm=video 0 RTP/AVP 96\r\n\
    a=rtpmap:96 VP9/90000\r\na=control:streamid=0\r\n";

fn announce(client: &mut Client) -> Answer {
    announce_text(client, ANNOUNCED)
}

fn announce_text(client: &mut Client, description: &str) -> Answer {
    let headers = format!("Content-Type: application/sdp\r\nContent-Length: {}\r\n", description.len());
    client.cseq += 1;
    let text =
        format!("ANNOUNCE {} RTSP/1.0\r\nCSeq: {}\r\n{headers}\r\n{description}", client.url, client.cseq);
    client.send(text.as_bytes());
    client.answer()
}

/// A client's sockets for RTP and RTCP, and the header that offers them.
fn datagram_sockets() -> (UdpSocket, UdpSocket, String) {
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
fn server_ports(setup: &Answer) -> [u16; 2] {
    let transport = setup.header("Transport").expect("a transport");
    let ports = transport.split("server_port=").nth(1).and_then(|rest| rest.split(';').next());
    let (rtp, rtcp) = ports.and_then(|ports| ports.split_once('-')).expect("two ports");
    [rtp, rtcp].map(|port| port.parse().expect("a port"))
}

#[test]
fn who_publishes_over_udp_is_put_in_order_and_asked_for_a_key_picture_after_a_loss() {
    let server = Server::open();
    let mut client = server.client();
    let sound = "m=audio 0 RTP/AVP 97\r\na=rtpmap:97 opus/48000/2\r\na=control:streamid=1\r\n";
    let session = with_session(&announce_text(&mut client, &format!("{ANNOUNCED}{sound}")).session());
    let (rtp, rtcp, transport) = datagram_sockets();
    let setup = client.ask("SETUP", "/streamid=0", &transport);
    assert_eq!(setup.status, "200");
    rtp.connect(("127.0.0.1", server_ports(&setup)[0])).expect("an address");
    let (sound, _, transport) = datagram_sockets();
    let second = client.ask("SETUP", "/streamid=1", &transport);
    sound.connect(("127.0.0.1", server_ports(&second)[0])).expect("an address");
    assert_eq!(client.ask("RECORD", "", &session).status, "200");
    let send = |number: u8| {
        let mut packet = vec![0x80, 96, 0, number, 0, 0, 0, 0, 1, 2, 3, 4];
        packet.extend([0x08, 0, 0]);
        rtp.send(&packet).expect("sent");
    };
    // Of somebody else: not let in.
    let stranger = UdpSocket::bind("127.0.0.1:0").expect("a port");
    stranger.send_to(&[0x80; 100], ("127.0.0.1", server_ports(&setup)[0])).expect("sent");
    for number in [1, 3, 2, 4] {
        send(number);
    }
    // A frame of sound is lost.
    for number in [1, 3] {
        sound.send(&[0x80, 97, 0, number, 0, 0, 0, 0, 5, 6, 7, 8, 0xfc, 0xff, 0xfe]).expect("sent");
    }
    let published = || server.context.counters.published_bytes.value();
    let begun = Instant::now();
    while published() < 90 && begun.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(published(), 90);
    let mut datagram = [0; 100];
    rtcp.set_read_timeout(Some(Duration::from_millis(200))).expect("a timeout");
    rtcp.recv(&mut datagram).expect_err("no picture is lost, so none is asked for");
    rtcp.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
    for number in [6, 8] {
        send(number);
    }
    // Behind an empty report, feedback that a picture of this source was lost.
    assert_eq!(rtcp.recv(&mut datagram).expect("a report"), 20);
    assert_eq!((datagram[9], &datagram[16..20]), (206, &[1, 2, 3, 4][..]));
    rtcp.set_read_timeout(Some(Duration::from_millis(300))).expect("a timeout");
    rtcp.recv(&mut datagram).expect_err("asked for once for two losses");
    assert_eq!(client.ask("TEARDOWN", "", &session).status, "200");
}

#[test]
fn who_goes_over_to_tcp_by_itself_is_made_to() {
    let server = Server::open();
    let mut client = server.client();
    let description = ANNOUNCED.replace("t=0 0\r\n", "t=0 0\r\na=tool:libavformat 61.7.100\r\n");
    assert_eq!(announce_text(&mut client, &description).status, "200");
    let (_rtp, _rtcp, transport) = datagram_sockets();
    let refused = client.ask("SETUP", "/streamid=0", &transport);
    assert!(refused.head.contains("461") && refused.head.contains("publish over RTP/AVP/TCP"), "{refused:?}");
    assert_eq!(client.ask("SETUP", "/streamid=0", TCP).status, "200");
}

#[test]
fn one_publishes_and_the_second_is_refused() {
    let server = Server::open();
    let mut first = server.client();
    let session = with_session(&announce(&mut first).session());
    assert_eq!(first.ask("RECORD", "", &session).status, "455");
    assert_eq!(first.ask("SETUP", "/streamid=0", "Transport: RTP/AVP;multicast\r\n").status, "461");
    assert_eq!(first.ask("SETUP", "/streamid=9?x=y", TCP).status, "200", "the only track needs no name");
    assert_eq!(first.ask("RECORD", "", &session).status, "200");
    let mut second = server.client();
    let refused = announce(&mut second);
    assert!(refused.head.contains("503") && refused.head.contains("has a publisher already"), "{refused:?}");
    // It breaks off; the stream is free again.
    drop(first);
    let freed = Instant::now();
    while announce(&mut second).status != "200" {
        assert!(freed.elapsed() < Duration::from_secs(5));
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_publisher_of_garbage_harms_nobody() {
    let server = Server::open();
    let mut client = server.client();
    let session = with_session(&announce(&mut client).session());
    assert_eq!(client.ask("SETUP", "/streamid=0", TCP).status, "200");
    assert_eq!(client.ask("RECORD", "", &session).status, "200");
    for length in 0..200u8 {
        let mut packet = vec![b'$', length % 4, 0, length];
        packet.extend((0..length).map(|at| at.wrapping_mul(length)));
        client.send(&packet);
    }
    assert_eq!(client.ask("OPTIONS", "", &session).status, "200");
    assert_eq!(server.context.counters.published_bytes.value(), (0..200).sum::<u64>());
    assert_eq!(client.ask("TEARDOWN", "", &session).status, "200");
}

struct Nothing;

impl DatagramSink for Nothing {
    fn send(&mut self, _head: &UnitHead, _bytes: &[u8]) -> bool {
        true
    }
}

#[test]
fn a_publisher_is_asked_for_a_key_picture() {
    let server = Server::open();
    let mut client = server.client();
    let session = with_session(&announce(&mut client).session());
    let transport = "Transport: RTP/AVP/TCP;unicast;interleaved=4-5;mode=record\r\n";
    assert_eq!(client.ask("SETUP", "/streamid=0", transport).status, "200");
    assert_eq!(client.ask("RECORD", "", &session).status, "200");
    client.send(&[b'$', 4, 0, 14, 0x80, 96, 0, 1, 0, 0, 0, 0, 1, 2, 3, 4, 0x08, 0]);
    assert_eq!(client.ask("OPTIONS", "", "").status, "200");
    let stream = server.context.hub.find("cam").expect("announced");
    stream.view_datagrams(Box::new(Nothing)).expect("room");
    let (channel, packet) = client.packet();
    assert_eq!(
        (channel, packet.len(), &packet[8..12], &packet[16..]),
        (5, 20, &[0x81, 206, 0, 2][..], &[1, 2, 3, 4][..])
    );
}

#[test]
fn a_stop_ends_connections() {
    let server = Server::open();
    let _source = server.publish("cam");
    let mut asking = server.client();
    assert_eq!(asking.ask("OPTIONS", "", "").status, "200");
    let mut viewing = server.client();
    let session = with_session(&viewing.ask("SETUP", "/trackID=0", TCP).session());
    assert_eq!(viewing.ask("PLAY", "", &session).status, "200");
    server.stop.send_replace(true);
    assert!(asking.is_closed() && viewing.is_closed());
}

/// So many announcements without a description filled the places of all streams, each with the memory of one.
#[test]
fn announcements_that_come_to_nothing_take_no_place() {
    let config = HubConfig { max_streams: 2, ..HubConfig::default() };
    let server = Server::with(Access::open(), Limits::default(), config);
    let mut client = server.client();
    for number in 0..60 {
        client.url = format!("rtsp://{}/name-{number}", server.address);
        assert_eq!(announce_text(&mut client, "no description").status, "400");
    }
    assert_eq!(server.context.hub.streams().len(), 0);
    for number in 0..20 {
        client.url = format!("rtsp://{}/name-{number}", server.address);
        let session = announce(&mut client).session();
        assert_eq!(client.ask("TEARDOWN", "", &with_session(&session)).status, "200");
    }
    assert_eq!(server.context.hub.streams().len(), 2);
}

#[test]
fn whoever_announces_and_does_not_record_loses_the_name() {
    let limits = Limits { request_timeout: Duration::from_millis(500), ..Limits::default() };
    let server = Server::new(Access::open(), limits);
    let mut holder = server.client();
    let session = with_session(&announce(&mut holder).session());
    let mut other = server.client();
    assert_eq!(announce(&mut other).status, "503");
    let began = Instant::now();
    let keep_alive = format!("OPTIONS * RTSP/1.0\r\nCSeq: 9\r\n{session}\r\n");
    while holder.socket.write_all(keep_alive.as_bytes()).is_ok() {
        assert!(began.elapsed() < Duration::from_secs(20), "it still has the name");
        std::thread::sleep(Duration::from_millis(100));
    }
    let mut next = server.client();
    assert_eq!(announce(&mut next).status, "200");
}

#[test]
fn a_published_name_is_no_other_streams_address() {
    let server = Server::open();
    let mut client = server.client();
    for name in ["live.ts", "live/ws", "a/../b", "_/player.js", ".hidden"] {
        client.url = format!("rtsp://{}/{name}", server.address);
        let answer = announce(&mut client);
        assert!(answer.status == "400" && answer.head.contains("cannot be a stream's name"), "{answer:?}");
    }
    assert_eq!(server.context.hub.streams().len(), 0);
}

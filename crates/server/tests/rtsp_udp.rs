//! Viewers over RTP/UDP that report well, badly or not at all, with packets on loopback.
#![allow(clippy::disallowed_methods, reason = "clients wait in real time")]

mod rtsp_rig;

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use freshwire_server::access::Access;
use freshwire_server::config::{Limits, MulticastConfig};
use freshwire_server::hub::{HubConfig, HubError, ViewerSnapshot};
use rtsp_rig::{Client, Server, Source, datagram_sockets, server_ports, view_nowhere, with_session};

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

/// A player after PLAY: its ports, and the stream as it saw it.
struct Player {
    client: Client,
    rtp: UdpSocket,
    rtcp: UdpSocket,
    server_rtcp: SocketAddr,
    ssrc: u32,
    highest: u16,
    /// Numbers of packets that came again. A request that is repeated may have two answers.
    answered: Vec<u16>,
}

impl Player {
    /// Plays, and receives the first packet and the first sender report.
    fn start(server: &Server, source: &mut Source) -> Self {
        Self::start_with(server, source, "RTP/AVP", "")
    }

    /// The same in this profile, with this query.
    fn start_with(server: &Server, source: &mut Source, profile: &str, query: &str) -> Self {
        let mut client = server.client();
        let (rtp, rtcp, transport) = datagram_sockets();
        let transport = transport.replace("RTP/AVP", profile);
        let setup = client.ask("SETUP", &format!("/trackID=0{query}"), &transport);
        let answered = setup.header("Transport").expect("a transport");
        assert!(answered.starts_with(&format!("{profile};unicast;")), "{answered}");
        let session = with_session(&setup.session());
        assert_eq!(client.ask("PLAY", "", &session).status, "200");
        let server_rtcp = SocketAddr::new(server.address.ip(), server_ports(&setup)[1]);
        let mut player = Self { client, rtp, rtcp, server_rtcp, ssrc: 0, highest: 0, answered: Vec::new() };
        source.push();
        player.receive();
        player.rtcp.recv(&mut [0; 200]).expect("a report");
        player
    }

    /// The next packet of the stream.
    fn receive(&mut self) -> Vec<u8> {
        let mut packet = vec![0; 2000];
        let count = loop {
            let count = self.rtp.recv(&mut packet).expect("a packet");
            if !self.is_answered(&packet) {
                break count;
            }
        };
        assert!(count > 12 && packet[1] & 0x7f == 96);
        packet.truncate(count);
        self.highest = u16::from_be_bytes([packet[2], packet[3]]);
        self.ssrc = u32::from_be_bytes([packet[8], packet[9], packet[10], packet[11]]);
        packet
    }

    /// Whether it is a retransmission packet that has come before.
    fn is_answered(&self, packet: &[u8]) -> bool {
        packet[1] & 0x7f == 98 && self.answered.contains(&u16::from_be_bytes([packet[12], packet[13]]))
    }

    /// The next packet that comes again, as it was sent first. Asks again and again, since a packet is not repeated within the round
    /// trip after it was sent, which may be long on a busy machine. `None`: none has come in all the time.
    fn repeated(&mut self, ask: impl Fn(&Self)) -> Option<Vec<u8>> {
        self.rtp.set_read_timeout(Some(Duration::from_millis(50))).expect("a timeout");
        let started = Instant::now();
        let mut packet = vec![0; 2000];
        let mut received = None;
        while received.is_none() && started.elapsed() < PATIENCE {
            ask(self);
            received = self.rtp.recv(&mut packet).ok().filter(|_| !self.is_answered(&packet));
        }
        self.rtp.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
        packet.truncate(received?);
        assert!(packet[1] & 0x7f == 98 && packet[8..12] != self.ssrc.to_be_bytes(), "a stream of its own");
        self.answered.push(u16::from_be_bytes([packet[12], packet[13]]));
        packet[1] = packet[1] & 0x80 | 96;
        packet[8..12].copy_from_slice(&self.ssrc.to_be_bytes());
        packet.copy_within(12..14, 2);
        packet.drain(12..14);
        Some(packet)
    }

    fn report(&self, lost: u32, last_report: u32) -> Vec<u8> {
        report(self.ssrc, self.highest, lost, last_report)
    }

    fn say(&self, bytes: &[u8]) {
        self.rtcp.send_to(bytes, self.server_rtcp).expect("sent");
    }

    fn viewer(server: &Server) -> ViewerSnapshot {
        let stream = server.context.hub.find("cam").expect("the stream");
        stream.snapshot().viewers.pop().expect("a viewer")
    }
}

/// A receiver's report with one block.
fn report(ssrc: u32, highest: u16, lost: u32, last_report: u32) -> Vec<u8> {
    let words =
        [0x81 << 24 | 201 << 16 | 7, 77, ssrc, lost & 0xFF_FFFF, u32::from(highest), 0, last_report, 0];
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// Longer than packets are kept: what has not come by then never will.
const PATIENCE: Duration = Duration::from_secs(3);

/// A request for one packet (RFC 4585, 6.2.1), alone in its datagram (RFC 5506).
fn nack(ssrc: u32, seq: u16) -> Vec<u8> {
    let words = [0x81 << 24 | 205 << 16 | 3, 77, ssrc, u32::from(seq) << 16];
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// Repeats `step` until `is_met`, at most for ten seconds.
fn until(is_met: impl Fn() -> bool, mut step: impl FnMut()) {
    let started = Instant::now();
    while !is_met() {
        assert!(started.elapsed() < Duration::from_secs(10), "not within ten seconds");
        step();
        // Pause: until the next look.
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn is_limited(server: &Server) -> bool {
    Player::viewer(server).sink.path.is_some_and(|path| !path.at_least)
}

#[test]
fn a_report_of_loss_lowers_the_rate() {
    let server = Server::open();
    let mut source = server.publish("cam");
    let mut player = Player::start(&server, &mut source);
    assert!(!is_limited(&server));
    let mut pushed = 0;
    until(
        || is_limited(&server),
        || {
            source.push();
            pushed += 1;
            player.receive();
            // Two thirds of all packets are said to be lost.
            player.say(&player.report(pushed * 2 / 3, 0));
        },
    );
    let viewer = Player::viewer(&server);
    assert_eq!((viewer.protocol, viewer.sink.carrier.name()), ("rtp", "datagrams"));
}

#[test]
fn a_report_from_another_port_counts_and_gets_no_answer() {
    let server = Server::open();
    let mut source = server.publish("cam");
    let mut player = Player::start(&server, &mut source);
    // As behind an address translator that gives reports a port of their own.
    let translated = UdpSocket::bind("127.0.0.1:0").expect("a port");
    translated.set_nonblocking(true).expect("a mode");
    let mut pushed = 0;
    until(
        || is_limited(&server),
        || {
            source.push();
            pushed += 1;
            player.receive();
            translated.send_to(&player.report(pushed * 2 / 3, 0), player.server_rtcp).expect("sent");
        },
    );
    source.push();
    player.receive();
    translated.recv(&mut [0; 100]).expect_err("packets go to the ports of SETUP");
}

#[test]
fn reports_that_lie_change_nothing() {
    let server = Server::open();
    let mut source = server.publish("cam");
    let mut player = Player::start(&server, &mut source);
    let stranger = UdpSocket::bind("127.0.0.2:0").expect("loopback is a network");
    let started = Instant::now();
    let mut pushed = 0;
    // For longer than a report has to be old.
    while started.elapsed() < Duration::from_millis(1500) {
        source.push();
        pushed += 1;
        player.receive();
        // From another host, of another source, of packets that were never sent. No report is true, so none may count.
        stranger.send_to(&player.report(pushed, 0), player.server_rtcp).expect("sent");
        player.say(&report(player.ssrc ^ 1, player.highest, pushed, 0));
        player.say(&report(player.ssrc, player.highest.wrapping_add(20_000), pushed, 0));
        player.say(&[0x80; 64]);
        player.say(b"\x80\xcc\0\x02abcdNAME");
        // Pause: the pace of the forged reports.
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(!is_limited(&server));
    // Nor does a flood: the next picture comes as ever.
    for _ in 0..500 {
        player.say(&player.report(pushed, 0));
    }
    source.push();
    player.receive();
    assert_eq!(player.client.ask("OPTIONS", "", "").status, "200");
}

#[test]
fn retransmission_is_described_where_the_address_asks_for_it() {
    let server = Server::open();
    let _source = server.publish("cam");
    let mut client = server.client();
    for query in ["", "?retransmission=off", "?latency=2s"] {
        let plain = client.ask("DESCRIBE", query, "");
        assert!(plain.body.contains("m=video 0 RTP/AVP 96\r\n") && !plain.body.contains("rtx"), "{plain:?}");
    }
    let offer = client.ask("DESCRIBE", "?latency=2s&retransmission=on", "");
    for line in ["m=video 0 RTP/AVPF 96 98", "a=rtcp-fb:96 nack", "a=fmtp:98 apt=96;rtx-time=1000"] {
        assert!(offer.body.contains(&format!("{line}\r\n")), "{line}: {}", offer.body);
    }
    assert_eq!(client.ask("DESCRIBE", "?retransmission=1", "").status, "400");
    // Over TCP nothing is lost; the profile is answered as it was asked for.
    let tcp = "Transport: RTP/AVPF/TCP;unicast;interleaved=0-1\r\n";
    let setup = client.ask("SETUP", "/trackID=0", tcp);
    assert!(
        setup.header("Transport").is_some_and(|it| it.starts_with("RTP/AVPF/TCP;unicast;interleaved=0-1"))
    );
}

#[test]
fn lost_packets_come_back_as_they_were() {
    let server = Server::open();
    let mut source = server.publish("cam");
    let mut player = Player::start_with(&server, &mut source, "RTP/AVPF", "");
    for compound in [false, true] {
        // A packet is kept for a second, which a busy machine may take for itself.
        let repeated = std::cell::RefCell::new(None);
        until(
            || repeated.borrow().is_some(),
            || {
                source.push_dependent();
                let lost = player.receive();
                let report = if compound { player.report(1, 0) } else { Vec::new() };
                let request = [report, nack(player.ssrc, player.highest)].concat();
                if let Some(packet) = player.repeated(|player| player.say(&request)) {
                    assert_eq!(packet, lost);
                    *repeated.borrow_mut() = Some(packet);
                }
            },
        );
    }
    until(
        || Player::viewer(&server).sink.repaired >= 2,
        || {
            source.push_dependent();
            player.receive();
        },
    );
    // The retransmission stream has reports of its own. One is due after a second of pictures.
    for _ in 0..26 {
        source.push_dependent();
    }
    let mut report = [0; 200];
    let mut is_own = || {
        let count = player.rtcp.recv(&mut report).expect("a report");
        assert!(count > 32 && report[1] == 200);
        report[4..8] != player.ssrc.to_be_bytes() && report[4..8] == report[32..36] && report[23] >= 2
    };
    assert!((0..8).any(|_| is_own()));
}

#[test]
fn requests_of_others_and_for_packets_never_sent_get_nothing() {
    let server = Server::open();
    let mut source = server.publish("cam");
    let mut player = Player::start_with(&server, &mut source, "RTP/AVPF", "");
    let other_port = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let other_host = UdpSocket::bind("127.0.0.2:0").expect("loopback is a network");
    let answered = std::cell::Cell::new(0);
    until(
        || answered.get() == 3,
        || {
            source.push_dependent();
            player.receive();
            source.push_dependent();
            player.receive();
            let before = player.highest.wrapping_sub(1);
            let ask = |player: &Player| {
                for stranger in [&other_port, &other_host] {
                    stranger.send_to(&nack(player.ssrc, before), player.server_rtcp).expect("sent");
                }
                player.say(&nack(player.ssrc ^ 1, before));
                player.say(&nack(player.ssrc, player.highest.wrapping_add(1)));
                player.say(&nack(player.ssrc, player.highest.wrapping_add(20_000)));
                // Requests are read in order, so an answer to one of those would come first.
                player.say(&nack(player.ssrc, player.highest));
            };
            if let Some(packet) = player.repeated(ask) {
                assert_eq!(packet[2..4], player.highest.to_be_bytes());
                answered.set(answered.get() + 1);
            }
        },
    );
    for stranger in [other_port, other_host] {
        stranger.set_nonblocking(true).expect("a mode");
        stranger.recv(&mut [0; 100]).expect_err("nothing goes to strangers");
    }
}

#[test]
fn a_request_that_comes_too_late_gets_nothing() {
    let server = Server::open();
    let mut source = server.publish("cam");
    // A keyframe may be 600 ms older than the latency.
    let mut player = Player::start_with(&server, &mut source, "RTP/AVPF", "?latency=50ms");
    let (ssrc, first) = (player.ssrc, player.highest);
    let late = || Player::viewer(&server).sink.late_repairs;
    let ask = |player: &mut Player, source: &mut Source| {
        source.push();
        player.say(&nack(ssrc, first));
    };
    until(|| late() > 0, || ask(&mut player, &mut source));
    let repaired = Player::viewer(&server).sink.repaired;
    until(|| late() > 3, || ask(&mut player, &mut source));
    assert_eq!(Player::viewer(&server).sink.repaired, repaired);
}

#[test]
fn a_player_that_did_not_ask_for_it_gets_nothing_again() {
    let server = Server::open();
    let mut source = server.publish("cam");
    let mut player = Player::start(&server, &mut source);
    for _ in 0..10 {
        player.say(&nack(player.ssrc, player.highest));
        source.push();
        // Whatever is sent again would be in front of the next packet, or behind it.
        player.receive();
    }
    assert_eq!(Player::viewer(&server).sink.repaired, 0);
}

/// A socket of a member of the group, on loopback.
fn member(group: std::net::Ipv4Addr, port: u16) -> UdpSocket {
    let socket = freshwire_io::udp::UdpSocket::bind(
        SocketAddr::new(group.into(), port),
        freshwire_io::udp::UdpConfig::default().shared(true),
    )
    .expect("a port");
    let interface = freshwire_io::udp::Interface::Of(std::net::Ipv4Addr::LOCALHOST);
    socket.join(freshwire_io::udp::Group { address: group.into(), interface }).expect("joined");
    let socket = UdpSocket::from(std::os::fd::AsFd::as_fd(&socket).try_clone_to_owned().expect("a clone"));
    socket.set_nonblocking(false).expect("a mode");
    socket.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
    socket
}

#[test]
fn all_members_of_a_group_get_the_same_packets() {
    let server = Server::open();
    let mut source = server.publish("cam");
    let multicast = "Transport: RTP/AVP;multicast\r\n";
    let mut clients = [server.client(), server.client()];
    assert_eq!(clients[0].ask("SETUP", "/trackID=0", multicast).status, "461", "it is off");
    let range = "239.255.77.0/28".parse().expect("a range");
    server.context.allow_multicast(MulticastConfig { range, port: 35_004, ttl: 1, interface: None });
    let sockets = [(); 2].map(|()| member([239, 255, 77, 0].into(), 35_004));
    for client in &mut clients {
        let setup = client.ask("SETUP", "/trackID=0", multicast);
        let transport = setup.header("Transport").expect("a transport");
        assert!(
            transport.starts_with("RTP/AVP;multicast;destination=239.255.77.0;")
                && transport.contains(";ttl=1;"),
            "{transport}"
        );
        assert_eq!(client.ask("PLAY", "", &with_session(&setup.session())).status, "200");
    }
    let stream = server.context.hub.find("cam").expect("the stream");
    let viewers = stream.snapshot().viewers;
    assert_eq!(viewers.iter().map(|viewer| viewer.protocol).collect::<Vec<_>>(), ["rtp-multicast"]);
    source.push();
    let packets = sockets.each_ref().map(|socket| {
        let mut packet = [0; 2000];
        let count = socket.recv(&mut packet).expect("a packet");
        packet[..count].to_vec()
    });
    assert!(packets[0].len() > 100 && packets[0] == packets[1]);
    // The group ends with its last member.
    drop(clients);
    until(|| stream.snapshot().viewers.is_empty(), || {});
}

#[test]
fn viewers_over_datagrams_take_a_place_until_they_leave() {
    let limits = HubConfig { max_viewers: 2, ..HubConfig::default() };
    let server = Server::with(Access::open(), Limits::default(), limits);
    let _source = server.publish("cam");
    let stream = server.context.hub.find("cam").expect("the stream");
    let viewers = [(); 2].map(|()| view_nowhere(&stream).expect("room"));
    assert!(matches!(view_nowhere(&stream), Err(HubError::TooManyViewers(2))));
    drop(viewers);
    let again = std::cell::RefCell::new(None);
    until(|| again.borrow().is_some(), || *again.borrow_mut() = view_nowhere(&stream).ok());
}

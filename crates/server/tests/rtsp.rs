//! Conversations with the RTSP server, line by line.
#![allow(clippy::disallowed_methods, reason = "clients wait in real time")]

mod rtsp_rig;

use std::io::Write as _;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

use freshwire::choice::MAX_RENDITIONS;
use freshwire_server::access::{Access, LinkKey, Names, Password, Right, Rights, Rules, User};
use freshwire_server::config::Limits;
use freshwire_server::hub::HubConfig;
use rtsp_rig::{
    Answer, Client, Server, Source, TCP, datagram_sockets, server_ports, view_nowhere, with_session,
};

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

/// The sizes of the RTP packets in which a picture of 200 kB comes to a viewer that makes these requests.
fn packets_after(server: &Server, source: &mut Source, requests: [(&str, &str); 3]) -> Vec<usize> {
    let mut client = server.client();
    let mut session = String::new();
    for (method, suffix) in requests {
        let headers = if method == "SETUP" { TCP.to_owned() } else { session.clone() };
        let answer = client.ask(method, suffix, &headers);
        assert_eq!(answer.status, "200", "{method} {suffix}: {answer:?}");
        if method == "SETUP" {
            session = with_session(&answer.session());
        }
    }
    source.push_large(200_000);
    let (mut sizes, mut is_last) = (Vec::new(), false);
    while !is_last {
        let (channel, packet) = client.packet();
        if channel == 0 {
            is_last = packet[1] & 0x80 != 0;
            sizes.push(packet.len());
        }
    }
    assert!(sizes.iter().sum::<usize>() > 200_000, "{sizes:?}");
    sizes
}

#[test]
fn packets_are_as_large_as_configured_or_asked_for() {
    let configured = |rtp_packet_bytes| {
        let config = HubConfig { rtp_packet_bytes, ..HubConfig::default() };
        Server::with(Access::open(), Limits::default(), config)
    };
    for (server, default) in [(Server::open(), 65_000), (configured(4000), 4000)] {
        let mut source = server.publish("cam");
        let cases = [
            ([("DESCRIBE", ""), ("SETUP", "/trackID=0"), ("PLAY", "/")], default),
            ([("DESCRIBE", "?packet=1400"), ("SETUP", "/trackID=0"), ("PLAY", "/")], 1400),
            ([("DESCRIBE", ""), ("SETUP", "/trackID=0?packet=16KiB"), ("PLAY", "/")], 16_384),
            (
                [("DESCRIBE", "?packet=300"), ("SETUP", "/?packet=300/trackID=0"), ("PLAY", "/?packet=300")],
                300,
            ),
            ([("DESCRIBE", "?packet=300"), ("SETUP", "/trackID=0"), ("PLAY", "?packet=65000")], 65_000),
        ];
        for (requests, most) in cases {
            let sizes = packets_after(&server, &mut source, requests);
            // What the first write has no room for makes packets smaller, and never larger.
            assert!(sizes.iter().all(|&size| size <= most), "{requests:?}: {sizes:?}");
            assert!(most > 10_000 || sizes.iter().filter(|&&size| size == most).count() > 10, "{sizes:?}");
        }
        let mut client = server.client();
        for (method, url) in [("DESCRIBE", "?packet=255"), ("SETUP", "/?packet=255/trackID=0")] {
            let refused = client.ask(method, url, TCP);
            let reason = "400 Bad Request: packet=255 is not a size from 256 to 65000 bytes";
            assert!(refused.head.contains(reason), "{refused:?}");
        }
        let session = with_session(&client.ask("SETUP", "/trackID=0", TCP).session());
        assert_eq!(client.ask("PLAY", "?packet=1400", &session).status, "200");
        assert_eq!(client.ask("PLAY", "?packet=1500", &session).status, "455", "it stays as it was");
    }
}

#[test]
fn datagrams_are_never_larger_than_the_path_takes() {
    let server = Server::open();
    let mut source = server.publish("cam");
    for (asked, most) in [("", 1400), ("?packet=65000", 1400), ("?packet=300", 300)] {
        let (rtp, _rtcp, udp) = datagram_sockets();
        let mut client = server.client();
        let setup = client.ask("SETUP", &format!("/trackID=0{asked}"), &udp);
        assert_eq!(client.ask("PLAY", "", &with_session(&setup.session())).status, "200");
        source.push_large(20_000);
        let mut packet = [0; 65_536];
        let sizes: Vec<_> = (0..10).map(|_| rtp.recv(&mut packet).expect("a packet")).collect();
        assert_eq!(sizes, [most; 10], "{asked}");
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
    let mut over_udp = server.client();
    let session = with_session(&over_udp.ask("SETUP", "/trackID=0?latency=2s", &udp).session());
    assert_eq!(over_udp.ask("PLAY", "?latency=2s", &session).status, "200");
    assert_eq!(over_udp.ask("PLAY", "?latency=1s", &session).status, "455", "it stays as it was");
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
            // Pause: the publisher comes late.
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
fn the_rights_are_asked_for() {
    let password = Password { sha256: None, md5: Some("0".repeat(32)) };
    let rights = Rights { view: Names::all(), ..Rights::default() };
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

/// What costs no bytes costs time.
#[test]
fn packets_without_content_count() {
    let server = Server::open();
    let _source = server.publish("cam");
    for plays in [false, true] {
        let mut client = server.client();
        if plays {
            let session = with_session(&client.ask("SETUP", "/trackID=0", TCP).session());
            assert_eq!(client.ask("PLAY", "", &session).status, "200");
        }
        client.send(&b"$\x01\0\0".repeat(2000));
        assert_eq!(client.ask("OPTIONS", "", "").status, "200", "reports of a lively player");
        // The server may close before all is sent.
        let _ = client.socket.write_all(&b"$\x01\0\0".repeat(40_000));
        assert!(client.is_closed(), "plays: {plays}");
    }
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

#[test]
fn a_udp_publisher_is_reordered_and_asked_for_a_keyframe() {
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
    // Packets of somebody else are not let in.
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
    let started = Instant::now();
    while published() < 90 && started.elapsed() < Duration::from_secs(10) {
        // Pause: until the next look.
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
fn a_player_that_goes_over_to_tcp_by_itself_is_made_to() {
    let server = Server::open();
    let mut client = server.client();
    let description = ANNOUNCED.replace("t=0 0\r\n", "t=0 0\r\na=tool:libavformat 61.7.100\r\n");
    assert_eq!(announce_text(&mut client, &description).status, "200");
    let (_rtp, _rtcp, transport) = datagram_sockets();
    let refused = client.ask("SETUP", "/streamid=0", &transport);
    assert!(refused.head.contains("461") && refused.head.contains("publish over RTP/AVP/TCP"), "{refused:?}");
    assert_eq!(client.ask("SETUP", "/streamid=0", TCP).status, "200");
}

/// Whatever the order: the stream's own name always has its place, and a place that is free again can be taken.
#[test]
fn a_stream_has_eight_renditions_and_the_ninth_is_refused() {
    for main_at in 0..MAX_RENDITIONS {
        let server = Server::open();
        let publish = |name: &str| {
            let mut client = server.client();
            client.url = format!("rtsp://{}/{name}", server.address);
            let answer = announce(&mut client);
            (client, answer)
        };
        let mut names: Vec<_> = (1..MAX_RENDITIONS).map(|number| format!("live~r{number}")).collect();
        names.insert(main_at, "live".to_owned());
        let mut clients: Vec<_> = names.iter().map(|name| publish(name)).collect();
        for (name, (_, answer)) in names.iter().zip(&clients) {
            assert_eq!(answer.status, "200", "{name}, with {main_at} before the main one: {answer:?}");
        }
        let (_, refused) = publish("live~more");
        assert_eq!(refused.status, "503");
        let says =
            "the stream has 8 renditions, which is the limit: main, r1, r2, r3, r4, r5, r6, r7; end the";
        assert!(refused.head.contains(says), "{refused:?}");
        let (_, busy) = publish("live~r3");
        assert!(busy.head.contains("stream live~r3 has a publisher already"), "{busy:?}");
        assert_eq!(server.context.hub.streams().len(), 1);
        let third = names.iter().position(|name| name == "live~r3").expect("it is one of them");
        assert_eq!(clients[third].0.ask("TEARDOWN", "", "").status, "200");
        assert_eq!(publish("live~more").1.status, "200");
        let (_, wrong) = publish("live~all");
        assert!(wrong.status == "400" && wrong.head.contains("cannot be a rendition's name"), "{wrong:?}");
    }
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
        // Pause: until the next look.
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
    let _viewer = view_nowhere(&stream).expect("room");
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

/// Announcements without a description filled the places of all streams, each with the memory of one.
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
fn an_announcement_without_record_loses_the_name() {
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
        // Pause: the pace of a client that keeps its session.
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

//! WHEP and WHIP without a browser: offers that are none, clients that vanish, and strangers. Other viewers notice nothing of it.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test")]

mod http_rig;
mod testing;
mod webrtc_rig;

use std::net::{TcpListener, UdpSocket};
use std::time::{Duration, Instant};

use freshwire_server::access::{Access, LinkKey, Names, Password, Right, Rights, Rules, User};
use freshwire_server::config::Limits;
use freshwire_server::ingest::PatternConfig;
use freshwire_server::webrtc::WebRtc;
use http_rig::Server;
use str0m::media::{Direction, MediaKind};
use testing::{is_there, wait_for};
use webrtc_rig::{Client, SDP, ask};

const PATIENCE: Duration = Duration::from_secs(30);

fn server(access: Access, limits: Limits) -> Server {
    let webrtc = WebRtc::open(([127, 0, 0, 1], 0).into(), Vec::new()).unwrap();
    Server::with_webrtc(TcpListener::bind("127.0.0.1:0").unwrap(), access, limits, webrtc)
}

/// A server with the test picture; `None` without ffmpeg.
fn playing(limits: Limits) -> Option<Server> {
    if !is_there("ffmpeg") {
        return None;
    }
    let server = server(Access::open(), limits);
    server.feed("clock", PatternConfig { width: 320, height: 180, kbit: 300, ..PatternConfig::default() });
    let tracks = server.context.hub.stream("clock").unwrap().tracks();
    wait_for("the source", PATIENCE, || tracks.borrow().is_some());
    Some(server)
}

/// A viewer that gets pictures.
fn viewer(server: &Server) -> Client {
    let mut client = Client::receiving(&[MediaKind::Video, MediaKind::Audio]);
    let answer = ask(server.address, "POST", "/clock/whep", SDP, &client.offer);
    assert_eq!(answer.status, 201, "{answer:?}");
    client.accept(&answer.body);
    assert!(client.run(PATIENCE, |client| client.packets > 20), "{}", answer.body);
    client
}

/// Whether packets go on coming to it.
fn goes_on(client: &mut Client) -> bool {
    let before = client.packets;
    client.run(Duration::from_secs(10), |client| client.packets > before + 20)
}

#[test]
fn requests_that_are_no_offers_are_refused() {
    let Some(server) = playing(Limits::default()) else { return };
    let mut other = viewer(&server);
    let client = Client::receiving(&[MediaKind::Video]);
    let sound = Client::receiving(&[MediaKind::Audio]);
    let truncated = &client.offer[..client.offer.len() / 2];
    let no_ice = client.offer.replace("a=ice-ufrag", "a=x-ufrag");
    let no_fingerprint = client.offer.replace("a=fingerprint", "a=x-fingerprint");
    let twice = client.offer.replace("m=video", "m=video 9 UDP/TLS/RTP/SAVPF 96\r\na=mid:0\r\nm=video");
    let no_h264 = client.offer.replace("H264", "H26x");
    for (offer, status) in [
        ("", 400),
        ("v=0", 400),
        ("rubbish \u{1f600}", 400),
        (&*no_ice, 400),
        (&*no_fingerprint, 400),
        (&*twice, 400),
        (&*no_h264, 406),
        (&*sound.offer, 406),
    ] {
        let answer = ask(server.address, "POST", "/clock/whep", SDP, offer);
        assert_eq!(answer.status, status, "{offer}: {answer:?}");
        assert!(!answer.body.trim().is_empty());
    }
    assert!(ask(server.address, "POST", "/clock/whep", SDP, truncated).status >= 400);
    let long = "v=0\r\n".repeat(20_000);
    assert_eq!(ask(server.address, "POST", "/clock/whep", SDP, &long).status, 413);
    let answer = ask(server.address, "POST", "/clock/whep", "content-type: text/plain\r\n", &client.offer);
    assert_eq!((answer.status, answer.header("accept-post")), (415, Some("application/sdp")));
    assert_eq!(ask(server.address, "POST", "/other/whep", SDP, &client.offer).status, 404);
    assert_eq!(ask(server.address, "GET", "/clock/whep", "", "").status, 405);
    let answer = ask(server.address, "OPTIONS", "/clock/whep", "", "");
    assert_eq!((answer.status, answer.header("accept-post")), (204, Some("application/sdp")));
    let foreign = format!("{SDP}origin: https://evil.example\r\n");
    assert_eq!(ask(server.address, "POST", "/clock/whep", &foreign, &client.offer).status, 403);
    let camera = Client::offering(&[MediaKind::Video], Direction::SendOnly).offer;
    for (path, offer, status) in [
        ("/clock/whip", &camera, 409),
        ("/a.ts/whip", &camera, 400),
        ("/new/whip", &client.offer, 406),
        ("/clock/whep", &camera, 406),
    ] {
        assert_eq!(ask(server.address, "POST", path, SDP, offer).status, status, "{path}");
    }
    assert_eq!(server.sessions(), 1);
    assert!(goes_on(&mut other));
    assert_eq!(server.context.tasks.panics(), 0);
}

#[test]
fn a_session_ends_once() {
    let Some(server) = playing(Limits::default()) else { return };
    let mut other = viewer(&server);
    let mut client = Client::receiving(&[MediaKind::Video]);
    let answer = ask(server.address, "POST", "/clock/whep", SDP, &client.offer);
    let session = format!("/clock/{}", answer.header("location").unwrap());
    assert_eq!(answer.header("etag"), Some("\"1\""));
    client.accept(&answer.body);
    assert!(client.run(PATIENCE, |client| client.packets > 0));
    let fragment = "content-type: application/trickle-ice-sdpfrag\r\n";
    let ufrag = client.offer.lines().find(|line| line.starts_with("a=ice-ufrag")).unwrap().to_owned();
    assert_eq!(ask(server.address, "PATCH", &session, fragment, &ufrag).status, 204);
    assert_eq!(ask(server.address, "PATCH", &session, fragment, "a=ice-ufrag:other").status, 422);
    assert_eq!(ask(server.address, "PATCH", &session, SDP, &ufrag).status, 415);
    assert_eq!(ask(server.address, "GET", &session, "", "").status, 405);
    assert_eq!(ask(server.address, "DELETE", &session, "", "").status, 200);
    assert_eq!(ask(server.address, "DELETE", &session, "", "").status, 404);
    assert!(client.run(PATIENCE, |client| client.ended), "it is told");
    assert_eq!(ask(server.address, "PATCH", &session, fragment, &ufrag).status, 404);
    assert!(goes_on(&mut other));
    let stream = server.context.hub.find("clock").unwrap();
    wait_for("one viewer", PATIENCE, || stream.snapshot().viewers.len() == 1);
    assert_eq!(stream.snapshot().viewers[0].protocol, "webrtc");
}

#[test]
fn connections_that_never_complete_are_removed() {
    let limits = Limits { handshake_timeout: Duration::from_secs(2), ..Limits::default() };
    let Some(server) = playing(limits) else { return };
    let mut other = viewer(&server);
    let open = server.context.admission.open();
    for _ in 0..20 {
        let client = Client::receiving(&[MediaKind::Video]);
        assert_eq!(ask(server.address, "POST", "/clock/whep", SDP, &client.offer).status, 201);
    }
    assert_eq!(server.sessions(), 21);
    assert!(server.context.admission.open() >= open + 20, "they count as connections");
    assert!(goes_on(&mut other));
    wait_for("their end", PATIENCE, || server.sessions() == 1);
    wait_for("their places", PATIENCE, || server.context.admission.open() <= open);
    assert!(goes_on(&mut other));
}

#[test]
fn a_wrong_fingerprint_ends_the_session() {
    let Some(server) = playing(Limits::default()) else { return };
    let mut other = viewer(&server);
    let mut client = Client::receiving(&[MediaKind::Video]);
    let at = client.offer.find("sha-256 ").unwrap() + 8;
    let mut offer = client.offer.clone();
    let digit = if &offer[at..=at] == "A" { "B" } else { "A" };
    offer.replace_range(at..=at, digit);
    let answer = ask(server.address, "POST", "/clock/whep", SDP, &offer);
    assert_eq!(answer.status, 201, "{answer:?}");
    client.accept(&answer.body);
    assert!(!client.run(Duration::from_secs(3), |client| client.packets > 0), "nothing for it");
    wait_for("its end", PATIENCE, || server.sessions() == 1);
    assert!(goes_on(&mut other));
}

#[test]
fn a_viewer_that_vanishes_is_removed() {
    let Some(server) = playing(Limits::default()) else { return };
    let mut other = viewer(&server);
    let gone = viewer(&server);
    assert_eq!(server.sessions(), 2);
    drop(gone);
    let begin = Instant::now();
    while server.sessions() > 1 {
        assert!(goes_on(&mut other));
        assert!(begin.elapsed() < Duration::from_secs(60), "it is still there");
    }
    let stream = server.context.hub.find("clock").unwrap();
    wait_for("one viewer", PATIENCE, || stream.snapshot().viewers.len() == 1);
}

#[test]
fn strangers_disturb_nobody() {
    let Some(server) = playing(Limits::default()) else { return };
    let mut other = viewer(&server);
    let answer = {
        let client = Client::receiving(&[MediaKind::Video]);
        ask(server.address, "POST", "/clock/whep", SDP, &client.offer).body
    };
    let ufrag = answer.lines().find_map(|line| line.strip_prefix("a=ice-ufrag:")).unwrap();
    let port = answer.lines().find_map(|line| line.strip_prefix("a=candidate:")).unwrap();
    let port: u16 = port.split(' ').nth(5).unwrap().parse().unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    // A binding request for a session that exists, without its password; rubbish; and what looks like media.
    let name = format!("{ufrag}:xxxx");
    let mut request = vec![0, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];
    request.extend([0, 6, 0, name.len() as u8]);
    request.extend(name.bytes());
    request.resize(request.len().next_multiple_of(4), 0);
    request.extend([0, 8, 0, 20]);
    request.extend([7; 20]);
    let length = (request.len() - 20) as u16;
    request[2..4].copy_from_slice(&length.to_be_bytes());
    for number in 0..20_000_u32 {
        let media = [&[0x80, 96][..], &number.to_be_bytes(), &[0; 40]].concat();
        for bytes in [&request[..], &[0; 3], &[1; 900], &[22; 60], &media, &[]] {
            let _ = socket.send_to(bytes, ("127.0.0.1", port));
        }
    }
    let mut buffer = [0; 100];
    assert!(socket.recv_from(&mut buffer).is_err(), "nobody is answered who does not know the password");
    assert!(goes_on(&mut other));
    assert_eq!(server.context.tasks.panics(), 0);
}

/// As a close frame of WebSocket does. The words are sent again if they are lost, and no picture comes meanwhile.
#[test]
fn a_page_hears_why_its_session_ends() {
    for is_lossy in [false, true] {
        let Some(server) = playing(Limits::default()) else { return };
        let mut other = viewer(&server);
        let mut page = Client::page();
        let answer = ask(server.address, "POST", "/clock/whep", SDP, &page.offer);
        page.accept(&answer.body);
        assert!(page.run(PATIENCE, |page| page.packets > 20 && page.said.len() > 2));
        server.context.set_access(Access::new(Rules::default()));
        let withdrawn = Instant::now();
        if is_lossy {
            let stream = server.context.hub.find("clock").unwrap();
            page.lose_while(|| !stream.snapshot().viewers.is_empty());
            // The words as well, once.
            page.lose_while(|| withdrawn.elapsed() < Duration::from_millis(500));
        }
        let is_end = |said: &String| said.contains("\"end\"");
        let before = page.packets;
        assert!(page.run(PATIENCE, |page| page.said.iter().any(is_end)), "lossy: {is_lossy}");
        let end = page.said.iter().find(|said| is_end(said)).unwrap();
        assert_eq!(
            end,
            r#"{"type":"end","code":1008,"reason":"the right to view this stream was withdrawn"}"#
        );
        assert!(withdrawn.elapsed() < Duration::from_secs(10), "{:?}", withdrawn.elapsed());
        assert!(page.run(PATIENCE, |page| page.ended));
        assert!(!is_lossy || page.packets == before, "pictures came after the withdrawal");
        assert!(other.run(PATIENCE, |other| other.ended), "one that is no page ends, too");
        wait_for("the end of the sessions", PATIENCE, || server.sessions() == 0);
    }
}

/// A page that hears nothing any more does not keep its session.
#[test]
fn a_deaf_page_ends_soon() {
    let Some(server) = playing(Limits::default()) else { return };
    let mut page = Client::page();
    let answer = ask(server.address, "POST", "/clock/whep", SDP, &page.offer);
    page.accept(&answer.body);
    assert!(page.run(PATIENCE, |page| page.packets > 20 && page.said.len() > 2));
    let stream = server.context.hub.find("clock").unwrap();
    server.context.set_access(Access::new(Rules::default()));
    wait_for("the end of the viewer", PATIENCE, || stream.snapshot().viewers.is_empty());
    wait_for("the end of the session", Duration::from_secs(10), || server.sessions() == 0);
}

#[test]
fn passwords_and_links_are_asked_for() {
    if !is_there("ffmpeg") {
        return;
    }
    let rights = Rights { view: Names::all(), publish: Names::all(), ..Rights::default() };
    let anna = User { password: Password::from_plain("anna", "secret"), rights };
    let key = LinkKey::new("a secret of sixteen characters");
    let link = key.query(Right::View, "clock", u64::from(u32::MAX));
    let rules = Rules { users: [("anna".to_owned(), anna)].into(), link_key: Some(key), ..Rules::default() };
    let server = server(Access::new(rules), Limits::default());
    server.feed("clock", PatternConfig { width: 320, height: 180, ..PatternConfig::default() });
    let tracks = server.context.hub.stream("clock").unwrap().tracks();
    wait_for("the source", PATIENCE, || tracks.borrow().is_some());
    let offer = Client::receiving(&[MediaKind::Video]).offer;
    let with =
        |path: &str, head: &str| ask(server.address, "POST", path, &format!("{SDP}{head}"), &offer).status;
    assert_eq!(with("/clock/whep", ""), 401);
    assert_eq!(with("/clock/whep?expires=4294967295&sig=00", ""), 403);
    assert_eq!(with(&format!("/clock/whep?{link}"), ""), 201);
    assert_eq!(with("/clock/whep", &format!("authorization: Bearer {link}\r\n")), 201);
    assert_eq!(with("/clock/whip", &format!("authorization: Bearer {link}\r\n")), 403, "it is for viewers");
    // A password in plain text, whatever it is: it needs TLS, as everywhere.
    assert_eq!(with("/clock/whep", "authorization: Bearer anna:secret\r\n"), 401);
    assert_eq!(with("/clock/whep", "authorization: Bearer nonsense\r\n"), 401);
    assert_eq!(server.sessions(), 2);
}

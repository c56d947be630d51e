//! Clients that mean no good, or do not know what they do: nothing of it disturbs others.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use freshwire_media::rtmp::{HANDSHAKE_BYTES, Message, kind};
use freshwire_server::log::{self, MAX_LINE_BYTES};

use crate::rtmp_rig::{Client, PATIENCE, Scene};
use crate::testing::wait_for;

const SHORT: &str = "[limits]\nrequest_timeout = \"1s\"\nidle_timeout = \"2s\"\n";

/// Waits until the server ends the connection.
fn ends(socket: &mut TcpStream) {
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut bytes = [0; 4096];
    loop {
        match socket.read(&mut bytes) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return,
            Err(error) => panic!("it does not end: {error}"),
        }
    }
}

fn raw(scene: &Scene, bytes: &[u8]) -> TcpStream {
    let mut socket = TcpStream::connect(scene.address("rtmp")).unwrap();
    socket.write_all(bytes).unwrap();
    socket
}

#[test]
fn handshakes_that_stall_or_are_none_end() {
    let scene = Scene::new(SHORT);
    let begin = Instant::now();
    let mut stalled = [&[][..], &[3], &[3; 1000], &[3; 1 + HANDSHAKE_BYTES]].map(|bytes| raw(&scene, bytes));
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"\x16\x03\x01\x02\0", b"\x06", b"\0"] {
        ends(&mut raw(&scene, bytes));
    }
    stalled.iter_mut().for_each(ends);
    assert!(begin.elapsed() >= Duration::from_millis(900));
    let mut silent = Client::open(scene.address("rtmp"));
    let mut connected = Client::connect(scene.address("rtmp"), "live").unwrap();
    ends(&mut silent.socket);
    ends(&mut connected.socket);
    wait_for("all places to be free", PATIENCE, || scene.server.context().admission.open() == 0);
    assert!(scene.server.context().counters.bad_requests.value() >= 8);
}

#[test]
fn rubbish_ends_one_connection_only() {
    let scene = Scene::new(SHORT);
    let mut good = scene.publish("live", "").unwrap();
    let rubbish: [&[u8]; 5] = [
        // A header that refers to none before, chunks of no size, objects in objects, a reference, no connect.
        &[0xc3, 1, 2, 3],
        &[2, 0, 0, 0, 0, 0, 4, 1, 0, 0, 0, 0, 0, 0, 0, 0],
        &[&[3, 0, 0, 0, 0, 0, 100, 20, 0, 0, 0, 0][..], &[3, 0, 1, b'a'].repeat(25)].concat(),
        &[3, 0, 0, 0, 0, 0, 3, 20, 0, 0, 0, 0, 7, 0, 0],
        &[3, 0, 0, 0, 0, 0, 4, 20, 0, 0, 0, 0, 2, 0, 1, b'x'],
    ];
    for bytes in rubbish {
        let mut client = Client::open(scene.address("rtmp"));
        client.socket.write_all(bytes).unwrap();
        ends(&mut client.socket);
    }
    let mut flood = Client::connect(scene.address("rtmp"), "live").unwrap();
    // Empty messages without end. The server may end it in the middle.
    let empty = [6, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0].repeat(100_000);
    let _ = flood.socket.write_all(&empty);
    ends(&mut flood.socket);
    good.send(kind::AUDIO, 1, 0, &[0xaf, 0, 0x11, 0x90]);
    good.send(kind::AUDIO, 1, 0, &[0xaf, 1, 0x21, 0x10, 4]);
    wait_for("the other's sound", PATIENCE, || {
        scene.units("live") > 0 || {
            good.send(kind::AUDIO, 1, 2000, &[0xaf, 1, 0x21, 0x10, 4]);
            false
        }
    });
    assert_eq!(scene.server.context().tasks.panics(), 0);
}

/// Sends this again and again until the server ends the connection: long before this many bytes.
#[track_caller]
fn flood(mut socket: &TcpStream, piece: &[u8], what: &str) {
    const MOST_BYTES: usize = 48 << 20;
    socket.set_nonblocking(true).unwrap();
    let (mut sent, mut at, mut heard) = (0, 0, [0; 4096]);
    let begin = Instant::now();
    loop {
        match socket.read(&mut heard) {
            Ok(0) => return,
            Err(error) if error.kind() != std::io::ErrorKind::WouldBlock => return,
            _ => {}
        }
        // It may have ended since.
        let written = socket.write(&piece[at..]).unwrap_or_default();
        (sent, at) = (sent + written, (at + written) % piece.len());
        assert!(sent < MOST_BYTES && begin.elapsed() < PATIENCE, "{what}: {sent} bytes do not end it");
    }
}

/// A piece of a flood: messages of this kind.
fn messages(kind: u8) -> Vec<u8> {
    let mut bytes = Vec::new();
    let body = 60_000_u32.to_be_bytes().to_vec();
    Message { timestamp: 0, kind, stream: 0, body }.write(2, 128, &mut bytes);
    bytes.repeat(4096)
}

/// Messages that are given up before their last chunk, in chunks of this many bytes.
fn torsos(chunk_bytes: usize) -> Vec<u8> {
    let control = |kind: u8, value: u32| {
        let body = value.to_be_bytes().to_vec();
        Message { timestamp: 0, kind, stream: 0, body }
    };
    let mut bytes = Vec::new();
    control(kind::SET_CHUNK_SIZE, chunk_bytes as u32).write(2, 128, &mut bytes);
    let body = vec![0; 50_000];
    Message { timestamp: 0, kind: kind::VIDEO, stream: 0, body }.write(5, chunk_bytes, &mut bytes);
    bytes.truncate(bytes.len() - chunk_bytes - 1);
    control(kind::ABORT, 5).write(2, chunk_bytes, &mut bytes);
    control(kind::SET_CHUNK_SIZE, 128).write(2, chunk_bytes, &mut bytes);
    bytes
}

/// A second of a flood costs what its rate allows, whatever it is made of, before there is a user and behind it.
#[test]
fn a_flood_of_any_kind_ends() {
    let scene = Scene::new("[limits]\nmax_publish_rate = \"1Mbit\"\n");
    let commands = [kind::COMMAND, kind::COMMAND_AMF3];
    let floods = (0..=25).chain([255]).filter(|kind| !commands.contains(kind));
    let mut floods: Vec<_> = floods.map(|kind| (format!("kind {kind}"), messages(kind))).collect();
    floods.extend([1, 2, 50].map(|bytes| (format!("chunks of {bytes}"), torsos(bytes))));
    for (what, piece) in &floods {
        flood(&Client::open(scene.address("rtmp")).socket, piece, what);
        let connected = Client::connect(scene.address("rtmp"), "live").unwrap();
        flood(&connected.socket, piece, &format!("{what}, connected"));
        let publisher = scene.publish("live", "").unwrap();
        flood(&publisher.socket, piece, &format!("{what}, publishing"));
        wait_for("the name", PATIENCE, || !scene.is_published("live"));
    }
    assert_eq!(scene.server.context().tasks.panics(), 0);
}

/// A quarter of what the rate allows, in tags of nothing within messages.
#[test]
fn tags_within_a_message_cost_as_messages_do() {
    let scene = Scene::new("[limits]\nmax_publish_rate = \"1Mbit\"\n");
    let mut publisher = scene.publish("live", "").unwrap();
    let tags = [kind::AUDIO, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 11].repeat(2500);
    for _ in 0..4 {
        publisher.send(kind::AGGREGATE, 1, 0, &tags);
    }
    let status = publisher.status().unwrap();
    assert!(status.contains("publishes more than 1000000 bit/s"), "{status}");
}

/// The log of this program.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Names of every length, by all ways that a stranger has to choose one.
#[test]
fn names_of_strangers_make_no_long_lines() {
    let kept = Kept::default();
    let (writer, end) = log::to(kept.clone()).unwrap();
    tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).init();
    let scene = Scene::new("[access.users.studio]\npassword = \"sesame\"\npublish = [\"*\"]\n");
    let ask = |protocol: &str, text: String| {
        let mut socket = TcpStream::connect(scene.address(protocol)).unwrap();
        // The server may refuse it in the middle.
        let _ = socket.write_all(text.as_bytes());
        let _ = socket.shutdown(std::net::Shutdown::Write);
        ends(&mut socket);
    };
    for len in [10, 1000, 1500, 2000, 3000, 7000, 12_000, 60_000] {
        let name = "x".repeat(len);
        for app in [
            format!("live?authmod=adobe&user={name}"),
            format!("{name}?authmod=adobe&user=a&response=b"),
            name.clone(),
        ] {
            assert!(Client::connect(scene.address("rtmp"), &app).is_err(), "{len}");
        }
        let mut client = Client::connect(scene.address("rtmp"), "").unwrap();
        assert!(client.publish(&name).is_err(), "{len}");
        ends(&mut client.socket);
        let digest = "Authorization: Digest a\r\nConnection: close";
        ask("http", format!("GET /{name} HTTP/1.1\r\nHost: localhost\r\n{digest}\r\n\r\n"));
        ask("rtsp", format!("DESCRIBE rtsp://localhost/{name} RTSP/1.0\r\nCSeq: 1\r\n{digest}\r\n\r\n"));
    }
    let text = || String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
    for said in ["connection ended", "access denied", "is not let in", "bytes, more than"] {
        wait_for(said, PATIENCE, || text().contains(said));
    }
    drop(end);
    let text = text();
    let longest = text.lines().map(str::len).max();
    assert!(longest.is_some_and(|len| len > 1000 && len < MAX_LINE_BYTES + 50), "{longest:?}");
}

/// Messages of the largest size, announced on many chunk streams: before and after the right to publish.
#[test]
fn announcements_take_no_memory() {
    let scene = Scene::new("");
    let announce = |len: [u8; 3], id: u8| [&[id, 0, 0, 0][..], &len, &[9, 1, 0, 0, 0]].concat();
    let mut early = Client::open(scene.address("rtmp"));
    early.socket.write_all(&announce([0xff; 3], 4)).unwrap();
    ends(&mut early.socket);
    let mut publisher = scene.publish("live", "").unwrap();
    let piece = vec![0; 60_000];
    for id in 4..6 {
        publisher.socket.write_all(&announce([0xff, 0xff, 0xf0], id)).unwrap();
        // All chunks of a message but the last. The server may end it in the middle.
        for chunk in 0..270 {
            let header: &[u8] = if chunk == 0 { &[] } else { &[0xc0 | id] };
            let _ = publisher.socket.write_all(&[header, &piece].concat());
        }
    }
    let status = publisher.status().unwrap();
    assert!(status.contains("more than the limit of 16777216"), "{status}");
    wait_for("the publisher's end", PATIENCE, || !scene.is_published("live"));
}

#[test]
fn a_publisher_that_vanishes_frees_its_name() {
    let scene = Scene::new("");
    let publisher = scene.publish("live", "").unwrap();
    let silent = scene.publish("quiet", "").unwrap();
    let begin = Instant::now();
    drop(publisher);
    wait_for("the name", Duration::from_secs(5), || scene.publish("live", "").is_ok());
    // One whose connection stays, and which sends nothing: a network that is gone.
    wait_for("the other name", PATIENCE, || !scene.is_published("quiet"));
    assert!(begin.elapsed() > Duration::from_secs(12));
    drop(silent);
}

//! Clients that mean no good, or do not know what they do: nothing of it disturbs others.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use freshwire_media::rtmp::{HANDSHAKE_BYTES, kind};

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

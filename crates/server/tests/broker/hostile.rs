//! Peers that are no brokers, or bad ones.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use serde_json::json;

use crate::rig::{PATIENCE, Site};

/// A peer that treats each of its connections like this.
fn peer(treat: impl Fn(TcpStream, usize) + Send + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for (socket, number) in listener.incoming().zip(0..) {
            let socket = socket.unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            treat(socket, number);
        }
    });
    port
}

/// The version in the first packet of a client of MQTT.
fn version(socket: &mut TcpStream) -> u8 {
    let mut connect = [0; 256];
    let count = socket.read(&mut connect).unwrap_or_default();
    assert!(count > 8 && connect[0] == 0x10, "{:?}", &connect[..count]);
    connect[8]
}

#[test]
fn a_broker_that_knows_only_an_older_version_is_asked_in_it() {
    let accept = |socket: &mut TcpStream| {
        socket.write_all(b"\x20\x02\x00\x00").unwrap();
        let mut subscribe = [0; 64];
        let _ = socket.read(&mut subscribe).unwrap();
        socket.write_all(b"\x90\x03\x00\x01\x00\x31\x04\x00\x01a7").unwrap();
        let _ = socket.read(&mut subscribe);
    };
    let refuses = peer(move |mut socket, _| match version(&mut socket) {
        5 => socket.write_all(b"\x20\x02\x00\x01").unwrap(),
        _ => accept(&mut socket),
    });
    let closes = peer(move |mut socket, _| {
        if version(&mut socket) != 5 {
            accept(&mut socket);
        }
    });
    for (port, failures) in [(refuses, 0), (closes, 1)] {
        let site = Site::start(&format!("mqtt://127.0.0.1:{port}/#"));
        site.has(&json!({"a": 7}));
        let found = site.broker();
        assert_eq!((&found["protocol"], &found["failures"]), (&json!("MQTT 3.1.1"), &json!(failures)));
    }
    let site = Site::start(&format!("mqtt://127.0.0.1:{refuses}/#?version=5"));
    site.fails("does not speak this version");
}

#[test]
fn garbage_is_an_error_with_a_remedy() {
    let answers: [&'static [u8]; 5] = [
        b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\x15\x03\x01\x00\x02\x02\x16",
        b"\x00\x00\x00\x00\x00\x00\x00\x00",
        b"\xff\xff\xff\xff\xff\xff\xff\xff",
    ];
    for answer in answers {
        let port = peer(move |mut socket, _| {
            let _ = socket.write_all(answer);
            let _ = socket.read(&mut [0; 512]);
        });
        for (scheme, name) in [("mqtt", "MQTT"), ("nats", "NATS")] {
            let site = Site::start(&format!("{scheme}://127.0.0.1:{port}/a"));
            let reason = |site: &Site| site.broker()["reason"].as_str().unwrap_or_default().to_owned();
            site.wait("an error", |site| !reason(site).is_empty());
            let reason = reason(&site);
            let is_named = reason.contains(&format!("speaks no {name}"));
            assert!(is_named, "{}: {reason}", answer.escape_ascii());
        }
    }
}

#[test]
fn an_endless_answer_takes_no_memory() {
    let endless = |begin: &'static [u8]| {
        peer(move |mut socket, _| {
            let piece = vec![b'x'; 1 << 20];
            if socket.write_all(begin).is_ok() {
                for _ in 0..64 {
                    if socket.write_all(&piece).is_err() {
                        break;
                    }
                }
            }
        })
    };
    // Messages of 256 MB, and lines without an end.
    let info = b"INFO {}\r\nPONG\r\nMSG a 1 268435455\r\n";
    let mqtt = b"\x20\x02\x00\x00\x90\x03\x00\x01\x00\x30\xff\xff\xff\x7f";
    let before = resident();
    for (source, refused) in [
        (format!("nats://127.0.0.1:{}/a", endless(info)), true),
        (format!("nats://127.0.0.1:{}/a", endless(b"INFO {")), false),
        (format!("mqtt://127.0.0.1:{}/a?version=3.1.1", endless(mqtt)), true),
    ] {
        let site = Site::start(&source);
        site.fails("");
        assert_eq!(site.broker()["refused"].get("too-large").is_some(), refused, "{}", site.broker());
    }
    let grown = resident().saturating_sub(before);
    assert!(grown < 32 << 20, "{} MiB for 192 MiB", grown >> 20);
}

/// A peer that asks and never reads the answers.
#[test]
fn a_broker_that_reads_nothing_is_left() {
    let asks = |question: &'static str| {
        peer(move |mut socket, _| {
            let questions = question.repeat(10_000);
            let hello = socket.write_all(b"INFO {}\r\nPONG\r\n");
            while hello.is_ok() && socket.write_all(questions.as_bytes()).is_ok() {}
        })
    };
    for (question, place) in
        [("PING\r\n", "a"), ("HMSG a 1 $fc 16 16\r\nNATS/1.0 100\r\n\r\n\r\n", "kv/STATE")]
    {
        Site::start(&format!("nats://127.0.0.1:{}/{place}", asks(question))).fails("it reads nothing");
    }
}

/// Bytes of this process's memory that are resident.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

#[test]
fn a_peer_that_accepts_and_stalls_is_left() {
    let silent = || {
        peer(|socket, _| {
            std::thread::spawn(move || {
                let _ = { &socket }.read(&mut [0; 512]);
                // Pause: this is what the test is about.
                std::thread::sleep(PATIENCE);
                drop(socket);
            });
        })
    };
    // Both at once: each takes ten seconds.
    let mqtt = Site::start(&format!("mqtt://127.0.0.1:{}/a", silent()));
    let nats = Site::start(&format!("nats://127.0.0.1:{}/a", silent()));
    let tls = Site::start(&format!("mqtts://127.0.0.1:{}/a", silent()));
    let later = peer(|mut socket, _| {
        socket.write_all(b"\x20\x02\x00\x00\x90\x03\x00\x01\x00").unwrap();
        std::thread::spawn(move || {
            // Pause: this is what the test is about.
            std::thread::sleep(PATIENCE * 2);
            drop(socket);
        });
    });
    let later = Site::start(&format!("mqtt://127.0.0.1:{later}/a?version=3.1.1"));
    mqtt.fails("longer than 10s to take the connection and the subscription");
    nats.fails("longer than 10s to say hello");
    tls.fails("longer than 10s to establish TLS");
    later.fails("has sent nothing for");
}

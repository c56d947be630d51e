//! The command where others mean it no good, or where nobody listens to it.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test waits for real processes")]

#[allow(dead_code, reason = "other tests use the rest")]
mod support;

use std::fs::OpenOptions;
use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use freshwire::a1::{ConnectConfig, Node, NodeConfig, PublicKey};

use support::{Running, freshwire, run, write_records};

const PROGRAM: &str = env!("CARGO_BIN_EXE_freshwire");

/// The address and the key at the end of what a listener says the other side types.
fn peer(line: &str) -> (SocketAddr, PublicKey) {
    let mut words = line.split_whitespace();
    let address = words.find_map(|word| word.parse().ok()).unwrap();
    (address, words.last().unwrap().parse().unwrap())
}

/// Each caller without the secret had the listener's attention for ten seconds: with five a second nobody else ever got it.
#[test]
fn callers_without_the_secret_keep_nobody_out() {
    let folder = tempfile::tempdir().unwrap();
    let psk = folder.path().join("psk");
    std::fs::write(&psk, "ab".repeat(32)).unwrap();
    let psk = psk.to_str().unwrap();
    let listens = ["recv", "--carrier", "a1", "--listen", "127.0.0.1:0", "--content", "bytes", "--psk", psk];
    let recv = Running::start(&mut freshwire(&listens));
    recv.line();
    let line = recv.line();
    let (address, key) = peer(&line);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let node =
                        Node::bind("127.0.0.1:0".parse().unwrap(), NodeConfig::new().unwrap()).unwrap();
                    let config = ConnectConfig::default().timeout(Duration::from_millis(500));
                    assert!(node.connect(address, &key, &config).is_err(), "it has not the secret");
                }
            });
        }
        // Pause: the crowd comes first.
        std::thread::sleep(Duration::from_secs(2));
        let (to, key) = (address.to_string(), key.to_string());
        let sends =
            ["send", "--carrier", "a1", "--to", &to, "--peer-key", &key, "--psk", psk, "--wait", "60s"];
        let mut send = Running::start(freshwire(&sends).arg("records").stdin(Stdio::piped()));
        write_records(send.stdin(), &[vec![7; 100]]).unwrap();
        let sent = send.wait();
        stop.store(true, Ordering::Relaxed);
        sent.ok();
    });
    let received = recv.wait().ok();
    assert!(received.text().contains("received   100 B"), "{received:?}");
}

#[test]
fn a_full_or_closed_standard_output_is_no_panic() {
    let secret = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(secret.path(), "a secret of some length").unwrap();
    let secret = secret.path().to_str().unwrap();
    for arguments in [&["sign", "live", "--secret-file", secret][..], &["doctor"]] {
        // To a full disk.
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let ended = freshwire(arguments).stdout(full).stderr(Stdio::piped()).output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.code() == Some(2) && !said.contains("panicked"), "{arguments:?}: {said}");
        // To a reader that is gone: as with other programs that is no error.
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let ended = freshwire(arguments).stdout(writer).stderr(Stdio::piped()).output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.code().is_some() && !said.contains("panicked"), "{arguments:?}: {said}");
        // With nobody to complain to.
        let [out, err] = [(); 2].map(|()| OpenOptions::new().write(true).open("/dev/full").unwrap());
        let ended = freshwire(arguments).stdout(out).stderr(err).status().unwrap();
        assert_eq!(ended.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn a_servers_answer_commands_no_terminal() {
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/live.fw", server.local_addr().unwrap());
    std::thread::spawn(move || {
        use std::io::{Read as _, Write as _};
        for stream in server.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(b"HTTP/1.1 500 \x1b]0;owned\x07\x1b[2J\r\n\r\n");
        }
    });
    for arguments in [&["recv", &url][..], &["top", "--once", &url]] {
        let ended = run(arguments);
        assert_ne!(ended.code, Some(0), "{ended:?}");
        assert!(!ended.stderr.contains('\x1b') && ended.stderr.contains("\\u{1b}"), "{ended:?}");
    }
}

#[test]
fn a_congestion_control_that_nobody_has_fails_the_check() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "[hub]\ncongestion = \"nosuch\"\n[streams.live]\nsource = \"publish\"\n")
        .unwrap();
    run(&["serve", "--check", "--config", file.path().to_str().unwrap()])
        .failed(2, "connections cannot have \"nosuch\"");
}

//! `freshwire send lines`: the newest value of each key, also to who connects again. Keys that exist before their end runs, and a
//! link that says what 127.0.0.1 is.
#![allow(clippy::disallowed_methods, reason = "a test waits for real processes")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};

use crate::support::{Running, TIMEOUT, freshwire, has, run, succeeds};

/// `freshwire send` to a listener of the test's own, with lines on its standard input.
fn send_lines(arguments: &[&str]) -> (Running, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let to = listener.local_addr().expect("an address").to_string();
    let mut command = freshwire(&["send", "--to", &to, "--quiet", "--json"]);
    (Running::start(command.args(arguments).stdin(Stdio::piped())), listener)
}

fn accept(listener: &TcpListener) -> TcpStream {
    let (stream, _) = listener.accept().expect("a connection");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a time-out");
    stream
}

fn read_all(mut stream: TcpStream) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("a stream with an end");
    text
}

#[test]
fn any_reader_gets_lines_with_their_ends() {
    for (arguments, lines) in [
        (&["lines"][..], "one\n\ntwo\r\nthree"),
        (&["lines", "--key-field", "id"], "{\"id\": 1, \"x\": 5}\n{\"event\": \"goal\"}\n{\"id\": 2}"),
    ] {
        let (mut send, listener) = send_lines(arguments);
        let mut stdin = send.stdin();
        stdin.write_all(lines.as_bytes()).expect("it reads");
        drop(stdin);
        assert_eq!(read_all(accept(&listener)), format!("{lines}\n"));
        let account = send.wait().ok().json();
        assert_eq!(account["delivered_records"], lines.split('\n').count());
        assert_eq!((&account["connections"], &account["records_sent_again"]), (&1.into(), &0.into()));
    }
}

#[test]
fn a_stalled_reader_gets_the_newest_line_of_each_key() {
    const UPDATES: u64 = 6000;
    let (mut send, listener) = send_lines(&["lines", "--key-field", "id"]);
    let mut stdin = send.stdin();
    let stream = accept(&listener);
    let filler = "x".repeat(4000);
    for number in 0..UPDATES {
        for id in ["left", "right"] {
            writeln!(stdin, "{{\"id\": \"{id}\", \"n\": {number}, \"pad\": \"{filler}\"}}")
                .expect("it reads");
        }
    }
    drop(stdin);
    let mut newest = BTreeMap::new();
    let mut lines = 0;
    for line in BufReader::new(stream).lines() {
        let line: serde_json::Value = serde_json::from_str(&line.expect("a line")).expect("a whole line");
        let number = line["n"].as_u64().expect("a number");
        let before = newest.insert(line["id"].to_string(), number);
        assert!(before.is_none_or(|before| before < number), "{before:?}, then {number}");
        lines += 1;
    }
    assert_eq!(newest.into_values().collect::<Vec<_>>(), [UPDATES - 1; 2]);
    assert!(lines < 2 * UPDATES, "48 MB are more than anybody's buffers, so something was superseded");
    let account = send.wait().ok().json();
    assert_eq!(account["delivered_records"], lines);
    assert_eq!(account["dropped"]["superseded"], 2 * UPDATES - lines);
}

/// Connects, stops until its standard input ends, and then reads.
const PYTHON_READER: &str = "
import socket, sys
stream = socket.create_connection(('127.0.0.1', int(sys.argv[1])))
sys.stdin.read()
sys.stdout.buffer.write(stream.makefile('rb').read())
";

#[test]
fn netcat_and_python_get_the_newest_line_of_each_key() {
    const UPDATES: u64 = 4000;
    for (program, version, arguments) in
        [("nc", "-h", vec!["127.0.0.1"]), ("python3", "--version", vec!["-c", PYTHON_READER])]
    {
        if !has(program, version) {
            continue;
        }
        let listens = ["send", "--listen", "0", "--json", "lines", "--key-field", "id"];
        let mut send = Running::start(freshwire(&listens).stdin(Stdio::piped()));
        let port = send.port().to_string();
        let mut reader =
            Running::start(Command::new(program).args(&arguments).arg(port).stdin(Stdio::piped()));
        let filler = "x".repeat(4000);
        let mut stdin = send.stdin();
        for number in 0..UPDATES {
            for id in 0..3 {
                writeln!(stdin, "{{\"id\": {id}, \"n\": {number}, \"pad\": \"{filler}\"}}")
                    .expect("it reads");
            }
        }
        drop(stdin);
        drop(reader.stdin());
        let ended = reader.wait().ok();
        let mut newest = BTreeMap::new();
        for line in ended.text().lines() {
            let line: serde_json::Value = serde_json::from_str(line).expect("a whole line");
            let number = line["n"].as_u64().expect("a number");
            let before = newest.insert(line["id"].to_string(), number);
            assert!(before.is_none_or(|before| before < number), "{before:?}, then {number}");
        }
        assert_eq!(newest.into_values().collect::<Vec<_>>(), [UPDATES - 1; 3], "{program}");
        let account = send.wait().ok().json();
        assert_eq!(account["delivered_records"], ended.text().lines().count(), "{program}");
    }
}

#[test]
fn a_reconnecting_reader_gets_the_newest_line_of_each_key_first() {
    let (mut send, listener) = send_lines(&["--reconnect", "lines", "--key-field", "id"]);
    let mut stdin = send.stdin();
    let mut put = |line: &str| writeln!(stdin, "{line}").expect("it reads");
    let first = BufReader::new(accept(&listener));
    put(r#"{"id": "a", "n": 1}"#);
    put(r#"{"id": "b", "n": 1}"#);
    let lines: Vec<_> = first.lines().take(2).map(|line| line.expect("a line")).collect();
    assert_eq!(lines, [r#"{"id": "a", "n": 1}"#, r#"{"id": "b", "n": 1}"#]);
    // The reader and its socket are gone; what is written to them now is lost, but for the newest of each key.
    put(r#"{"id": "a", "n": 2}"#);
    put(r#"{"id": "c", "n": 1}"#);
    let mut second = BufReader::new(accept(&listener)).lines();
    let mut wanted = vec![r#"{"id": "b", "n": 1}"#, r#"{"id": "a", "n": 2}"#, r#"{"id": "c", "n": 1}"#];
    while !wanted.is_empty() {
        let line = second.next().expect("more lines").expect("a line");
        assert_ne!(line, r#"{"id": "a", "n": 1}"#, "there is a newer one");
        wanted.retain(|wanted| *wanted != line);
    }
    put(r#"{"id": "a", "n": 3}"#);
    drop(stdin);
    assert_eq!(second.next().expect("a line").expect("a line"), r#"{"id": "a", "n": 3}"#);
    assert!(second.next().is_none());
    let account = send.wait().ok().json();
    assert_eq!(account["connections"], 2, "{account}");
    assert!(account["records_sent_again"].as_u64().is_some_and(|again| again >= 1), "{account}");
}

#[test]
fn a_reader_that_never_returns_is_awaited_for_the_drain_time() {
    let (mut send, listener) = send_lines(&["--reconnect", "--drain", "1s", "lines", "--key-field", "id"]);
    let mut stdin = send.stdin();
    drop(accept(&listener));
    drop(listener);
    // Bytes written to a closed socket break the connection.
    for number in 0..50 {
        writeln!(stdin, "{{\"id\": 1, \"n\": {number}}}").expect("it reads");
        // Pause: the pace of a source.
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    drop(stdin);
    send.wait().failed(2, "nobody has connected again 1s after the end of the source");
}

#[test]
fn a_line_that_is_no_json_ends_it_and_what_came_before_arrives() {
    let (mut send, listener) = send_lines(&["lines", "--key-field", "id"]);
    let mut stdin = send.stdin();
    stdin.write_all(b"{\"id\": 1}\nposition 4711\n{\"id\": 2}\n").expect("it reads");
    drop(stdin);
    assert_eq!(read_all(accept(&listener)), "{\"id\": 1}\n");
    send.wait().failed(2, "line 2 is no JSON, and --key-field looks for \"id\" in it");
}

#[test]
fn a_key_is_there_before_its_end_runs() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("key");
    let file = file.to_str().expect("a path");
    let key = run(&["key", file]).ok();
    assert!(key.stderr.contains("the private key is in"), "{}", key.stderr);
    let key = key.text().trim().to_owned();
    let again = run(&["key", file]).ok();
    assert_eq!((again.text().trim(), again.stderr.as_str()), (key.as_str(), ""));
    let listens = ["recv", "--carrier", "a1", "--listen", "127.0.0.1:0", "--key", file];
    let recv = Running::start(freshwire(&listens).stdin(Stdio::null()));
    assert!(recv.port() > 0);
    assert!(recv.line().trim().ends_with(&format!("--peer-key {key}")));
    std::fs::write(file, "nonsense").expect("a file");
    run(&["key", file]).failed(2, "holds no private key");
}

#[test]
fn a_link_says_what_127_0_0_1_is() {
    if !succeeds("a user namespace", Command::new("unshare").args(["--user", "--net", "true"])) {
        return;
    }
    let program = crate::PROGRAM;
    let link = ["link", "--account", "none", "--", program, "send", "--to"];
    let hint = "Inside a link 127.0.0.1 and localhost are the end itself";
    run(&[&link[..], &["127.0.0.1:9", "layers"]].concat()).failed(2, hint);
    let other =
        run(&[&link[..], &["10.77.0.2:9", "layers"]].concat()).failed(2, "nobody listens on 10.77.0.2");
    assert!(!other.stderr.contains(hint), "{}", other.stderr);
}

//! The `freshwire` command as its users meet it: real processes, real sockets, other people's programs.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test waits for real processes")]

mod generate;
mod lines;
mod support;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use support::{Running, TIMEOUT, freshwire, has, repository, run, some_records, write_records};

const PROGRAM: &str = env!("CARGO_BIN_EXE_freshwire");

/// A listener of the test's own, and its port as text.
fn listener(address: &str) -> (TcpListener, String) {
    let listener = TcpListener::bind(address).unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    (listener, port)
}

fn accept(listener: &TcpListener) -> TcpStream {
    let (stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream
}

fn read_all(mut stream: TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    bytes
}

/// `freshwire send ... records`, fed from a thread.
fn send_records(arguments: &[&str], records: Vec<Vec<u8>>) -> Running {
    let mut send = Running::start(freshwire(&["send"]).args(arguments).arg("records").stdin(Stdio::piped()));
    let stdin = send.stdin();
    // A sender that gives up early leaves a broken pipe, which its exit code tells.
    std::thread::spawn(move || write_records(stdin, &records));
    send
}

#[test]
fn a_wrong_command_line_ends_with_2_and_says_why() {
    for (arguments, message) in [
        (&["send"][..], "Usage"),
        (&["send", "layers"], "say where to send: --to HOST:PORT"),
        (&["send", "--to", "a:1", "--listen", "1", "layers"], "cannot be used with"),
        (&["send", "--to", "localhost", "layers"], "is not HOST:PORT"),
        (&["send", "--to", "a:1", "records", "--policy", "deadline"], "say with --deadline"),
        (&["send", "--to", "a:1", "layers", "--deadline", "5"], "is not a duration such as 50ms"),
        (&["recv"], "say where from: --from HOST:PORT"),
        (&["recv", "--listen", "99999"], "cannot listen on 99999"),
        (&["recv", "--listen", "0", "--outstanding", "5"], "--outstanding is for A1"),
        (&["recv", "--listen", "0", "--carrier", "a1", "--outstanding", "0"], "0 is not in 1..=65536"),
        (
            &["recv", "--carrier", "a1", "--listen", "192.0.2.7:1"],
            "socket: Cannot assign requested address (os error 99)\n",
        ),
        (&["recv", "--listen", "0", "--out", "x", "--deadline", "1s"], "only layers say so"),
        (&["send", "--carrier", "nonsense"], "invalid value"),
        (&["no-such-command"], "unrecognized subcommand"),
    ] {
        let ended = run(arguments);
        assert!(ended.stdout.is_empty(), "{arguments:?}");
        ended.failed(2, message);
    }
}

#[test]
fn help_is_a_result() {
    for command in ["send", "recv"] {
        assert!(run(&[command, "--help"]).ok().text().contains("Exit code:"), "{command}");
    }
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    for arguments in ["send --help", "doctor --json"] {
        let script = format!("{PROGRAM} {arguments} | head -n 1");
        let ended = Running::start(Command::new("sh").args(["-c", &script])).wait().ok();
        assert_eq!(ended.text().lines().count(), 1);
        assert!(!ended.stderr.contains("panicked") && !ended.stderr.contains("pipe"), "{}", ended.stderr);
    }
}

#[test]
fn a_payload_that_nobody_reads_any_more_is_no_error() {
    let mut recv = freshwire(&["recv", "--listen", "127.0.0.1:0", "--out", "-"]);
    let (reads, writes) = std::io::pipe().unwrap();
    let mut child = recv.stdout(writes).stderr(Stdio::piped()).spawn().unwrap();
    drop(recv);
    drop(reads);
    let mut line = Vec::new();
    let mut stderr = child.stderr.take().unwrap();
    while !line.ends_with(b"\n") {
        let mut byte = [0];
        stderr.read_exact(&mut byte).unwrap();
        line.push(byte[0]);
    }
    let port = String::from_utf8(line).unwrap().trim().rsplit_once(':').unwrap().1.parse::<u16>().unwrap();
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    // A process that another test starts just now has the reader's end for a moment.
    let give_up = Instant::now() + TIMEOUT;
    while stream.write_all(b"some bytes").is_ok() {
        assert!(Instant::now() < give_up, "it goes on although nobody reads");
        // Pause: the pace of a writer.
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut rest = String::new();
    stderr.read_to_string(&mut rest).unwrap();
    assert!(child.wait().unwrap().success(), "{rest}");
    assert!(!rest.contains("panicked") && !rest.contains("pipe"), "{rest}");
}

#[test]
fn any_reader_gets_the_exact_bytes_over_both_families() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let (listener, port) = listener(address);
        let to = address.replace(":0", &format!(":{port}"));
        let records = some_records(40);
        let expected = records.concat();
        let send = send_records(&["--to", &to, "--json"], records);
        assert_eq!(read_all(accept(&listener)), expected);
        let account = send.wait().ok().json();
        assert_eq!(account["delivered_records"], 40);
        assert_eq!(account["delivered_bytes"], expected.len());
        assert_eq!(account["dropped"], serde_json::json!({}));
    }
}

#[test]
fn recv_writes_what_send_was_given_in_every_framing() {
    let folder = tempfile::tempdir().unwrap();
    for framing in ["raw", "chunked", "length-prefixed"] {
        let out = folder.path().join(framing);
        let out = out.to_str().unwrap();
        let arguments = ["recv", "--listen", "127.0.0.1:0", "--framing", framing, "--out", out, "--json"];
        let recv = Running::start(freshwire(&arguments).stdin(Stdio::null()));
        let to = format!("127.0.0.1:{}", recv.port());
        let records = some_records(30);
        send_records(&["--to", &to, "--framing", framing], records.clone()).wait().ok();
        let account = recv.wait().ok().json();
        assert_eq!(std::fs::read(out).unwrap(), records.concat(), "{framing}");
        if framing != "raw" {
            assert_eq!(account["records"], 30);
        }
    }
}

/// The command that the side which listens over A1 prints for the other one, without the program's name.
fn other_side(listening: &Running) -> Vec<String> {
    let line = listening.line();
    let command = line.trim().strip_prefix("the other side: freshwire ").map(str::split_whitespace);
    command.unwrap_or_else(|| panic!("no command in {line:?}")).map(str::to_owned).collect()
}

#[test]
fn over_a1_each_side_may_listen_and_prints_what_the_other_types() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (key, psk, out) = (path("key"), path("psk"), path("out"));
    std::fs::write(&psk, "5a".repeat(32)).unwrap();
    let records = some_records(30);
    let listens = ["recv", "--carrier", "a1", "--listen", "127.0.0.1:0", "--key", &key, "--psk", &psk];
    let recv = Running::start(freshwire(&listens).args(["--out", &out, "--json"]).stdin(Stdio::null()));
    assert!(recv.port() > 0);
    let command = other_side(&recv);
    let command: Vec<&str> = command.iter().map(String::as_str).chain(["--psk", &psk, "--json"]).collect();
    let sent = send_records(&command[1..], records.clone()).wait().ok().json();
    assert_eq!((&sent["carrier"], &sent["delivered_records"]), (&"a1".into(), &30.into()));
    assert_eq!(recv.wait().ok().json()["payload_bytes"], records.concat().len());
    assert_eq!(std::fs::read(&out).unwrap(), records.concat());

    let listens = ["send", "--carrier", "a1", "--listen", "[::1]:0", "layers", "--duration", "2s"];
    let send = Running::start(freshwire(&listens).stdin(Stdio::null()));
    assert!(send.port() > 0);
    let command = other_side(&send);
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    let received = run(&[&command[..], &["--json", "--deadline", "1s"]].concat()).ok().json();
    assert_eq!((&received["records"], &received["missing_records"]), (&16.into(), &0.into()));
    send.wait().ok();
}

/// With a key of the other side, and no name of a carrier, A1 goes over TCP where UDP does not pass.
#[test]
fn auto_carries_a1_over_udp_and_over_tcp_where_udp_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    for swallows in [false, true] {
        let out = folder.path().join("out").to_str().unwrap().to_owned();
        let listens = ["recv", "--carrier", "auto", "--listen", "127.0.0.1:0", "--out", &out, "--json"];
        let recv = Running::start(freshwire(&listens).stdin(Stdio::null()));
        let port = recv.port();
        let command = other_side(&recv);
        let key = command.last().unwrap();
        // A firewall: nothing that comes to its UDP port goes on, and TCP does.
        let (firewall, blocked) = listener("127.0.0.1:0");
        let blocked = format!("127.0.0.1:{blocked}");
        let _udp = UdpSocket::bind(&blocked).unwrap();
        let to = if swallows { blocked } else { format!("127.0.0.1:{port}") };
        if swallows {
            std::thread::spawn(move || {
                forward(&accept(&firewall), &TcpStream::connect(("127.0.0.1", port)).unwrap());
            });
        }
        let records = some_records(30);
        let arguments = ["--to", &to, "--peer-key", key, "--wait", "60s", "--json"];
        let sent = send_records(&arguments, records.clone()).wait().ok().json();
        let carrier = if swallows { "a1-over-tcp" } else { "a1" };
        assert_eq!((&sent["carrier"], &sent["delivered_records"]), (&carrier.into(), &30.into()));
        recv.wait().ok();
        assert_eq!(std::fs::read(&out).unwrap(), records.concat(), "{carrier}");
    }
}

/// Passes bytes on in both directions, until both have ended.
fn forward(near: &TcpStream, far: &TcpStream) {
    std::thread::scope(|scope| {
        for (mut from, mut to) in [(near, far), (far, near)] {
            scope.spawn(move || {
                let _ = std::io::copy(&mut from, &mut to);
                let _ = to.shutdown(std::net::Shutdown::Write);
            });
        }
    });
}

/// Waits until the side that listens has its peer.
fn has_its_peer(listening: &Running) {
    while !listening.line().contains("connected to") {}
}

#[test]
fn over_a1_who_comes_second_is_refused_at_either_end() {
    let taken = "it has a peer already";
    let listens = ["recv", "--carrier", "a1", "--listen", "127.0.0.1:0", "--content", "bytes", "--json"];
    let recv = Running::start(freshwire(&listens).stdin(Stdio::null()));
    recv.port();
    let command = other_side(&recv);
    let command: Vec<&str> = command.iter().map(String::as_str).chain(["records"]).collect();
    let mut first = Running::start(freshwire(&command).stdin(Stdio::piped()));
    let stdin = first.stdin();
    has_its_peer(&recv);
    run(&command).failed(2, taken);
    write_records(stdin, &some_records(3)).unwrap();
    first.wait().ok();
    assert_eq!(recv.wait().ok().json()["records"], 3);

    let listens = ["send", "--carrier", "a1", "--listen", "127.0.0.1:0", "records"];
    let mut send = Running::start(freshwire(&listens).stdin(Stdio::piped()));
    let stdin = send.stdin();
    send.port();
    let command = other_side(&send);
    let command: Vec<&str> = command.iter().map(String::as_str).chain(["--out", "-"]).collect();
    let first = Running::start(freshwire(&command).stdin(Stdio::null()));
    has_its_peer(&send);
    run(&command).failed(2, taken);
    write_records(stdin, &some_records(3)).unwrap();
    assert_eq!(first.wait().ok().stdout, some_records(3).concat());
    send.wait().ok();
}

#[test]
fn over_a1_a_source_may_pause_longer_than_the_idle_timeout() {
    let listens = ["recv", "--carrier", "a1", "--listen", "127.0.0.1:0", "--content", "bytes", "--json"];
    let recv = Running::start(freshwire(&listens).args(["--idle-timeout", "2s"]).stdin(Stdio::null()));
    recv.port();
    let command = other_side(&recv);
    let mut send = Running::start(freshwire(&[]).args(&command).arg("records").stdin(Stdio::piped()));
    let stdin = send.stdin();
    write_records(&stdin, &some_records(1)).unwrap();
    // Pause: longer than two of the seconds after which progress is printed.
    std::thread::sleep(Duration::from_millis(2500));
    write_records(stdin, &some_records(1)).unwrap();
    send.wait().ok();
    assert_eq!(recv.wait().ok().json()["records"], 2);
}

#[test]
fn over_a1_keys_for_wireshark_go_to_the_users_file() {
    let folder = tempfile::tempdir().unwrap();
    let keys = folder.path().join("keys");
    let recv = Running::start(
        freshwire(&["recv", "--carrier", "a1", "--listen", "127.0.0.1:0", "--content", "bytes"])
            .env("FRESHWIRE_KEYLOGFILE", &keys)
            .stdin(Stdio::null()),
    );
    recv.port();
    let command = other_side(&recv);
    let command: Vec<&str> = command[1..].iter().map(String::as_str).collect();
    send_records(&command, some_records(3)).wait().ok();
    recv.wait().ok();
    let keys = std::fs::read_to_string(keys).unwrap();
    let senders: Vec<_> = keys.lines().map(|line| line.split(' ').nth(3).unwrap()).collect();
    assert!(senders == ["R", "I"] && keys.starts_with("A1 "), "{keys}");
}

#[test]
fn over_a1_a_wrong_key_is_reported_and_a_kept_one_stays() {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key").to_str().unwrap().to_owned();
    let listens = ["recv", "--carrier", "a1", "--listen", "127.0.0.1:0", "--key", &key];
    let key_of = |recv: &Running| other_side(recv).pop().unwrap();
    let first = Running::start(freshwire(&listens).stdin(Stdio::null()));
    let port = first.port();
    let own = key_of(&first);
    let to = format!("127.0.0.1:{port}");
    let wrong = "11".repeat(32);
    let refused = run(&["send", "--carrier", "a1", "--to", &to, "--peer-key", &wrong, "layers"]);
    refused.failed(2, "it has another key");
    let nobody = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let asked =
        ["send", "--carrier", "a1", "--to", &nobody, "--peer-key", &wrong, "--wait", "300ms", "layers"];
    let said = run(&asked).failed(2, "no answer in 300ms; start the other side first").stderr;
    assert!(!said.contains("key"), "{said}");
    drop(first);
    let second = Running::start(freshwire(&listens).stdin(Stdio::null()));
    second.port();
    assert_eq!(key_of(&second), own);
}

#[test]
fn over_a1_only_listed_keys_connect_and_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    // The key of a side that connects is printed when it is refused.
    let listens = ["recv", "--carrier", "a1", "--listen", "127.0.0.1:0", "--content", "bytes"];
    let other = "22".repeat(32);
    let refuses = Running::start(freshwire(&listens).args(["--allow-key", &other]).stdin(Stdio::null()));
    refuses.port();
    let command = other_side(&refuses);
    let own = path("own");
    let sends: Vec<&str> = command.iter().map(String::as_str).chain(["--key", &own]).collect();
    let refused = send_records(&sends[1..], some_records(3)).wait();
    let text = refused.failed(2, "the key is not on the list").stderr;
    let key = text.split("the key of this end is ").nth(1).and_then(|rest| rest.get(..64)).expect(&text);

    let list = ["--allow-key", &other, "--allow-key", key];
    let accepts = Running::start(freshwire(&listens).args(list).stdin(Stdio::null()));
    accepts.port();
    let command = other_side(&accepts);
    let sends: Vec<&str> = command.iter().map(String::as_str).chain(["--key", &own]).collect();
    send_records(&sends[1..], some_records(3)).wait().ok();
    let mut lines = std::iter::repeat_with(|| accepts.line());
    let connected = lines.find(|line| line.contains("connected to 127.0.0.1:")).unwrap();
    assert!(connected.contains(key), "{connected}");
    accepts.wait().ok();
}

#[test]
fn over_a1_a_too_large_record_is_an_error_with_a_remedy() {
    let listens = ["recv", "--carrier", "a1", "--listen", "127.0.0.1:0", "--content", "bytes", "--json"];
    for (most, is_enough) in [("4MiB", false), ("5MiB", true)] {
        let recv = Running::start(freshwire(&listens).args(["--largest-record", most]).stdin(Stdio::null()));
        recv.port();
        let command = other_side(&recv);
        let sends: Vec<&str> =
            command.iter().map(String::as_str).chain(["--largest-record", "8MiB"]).collect();
        let sent = send_records(&sends[1..], vec![vec![7; 3], vec![7; 5_000_000]]).wait();
        if is_enough {
            sent.ok();
            assert_eq!(recv.wait().ok().json()["records"], 2);
        } else {
            sent.failed(2, "--largest-record");
            // What came before it is there, and the receiver knows that this is not all.
            let received = recv.wait().failed(1, "the sender failed: a record has 5000000 bytes");
            assert_eq!(received.json()["records"], 1);
        }
    }
}

#[test]
fn over_a1_the_average_rate_is_what_either_end_allows() {
    let listens = ["recv", "--carrier", "a1", "--listen", "127.0.0.1:0", "--content", "bytes", "--json"];
    for (of_receiver, of_sender) in [(Some("4Mbit/s"), None), (None, Some("4Mbit/s"))] {
        let rate = |of: Option<&'static str>| of.map_or_else(Vec::new, |rate| vec!["--rate", rate]);
        let recv = Running::start(freshwire(&listens).args(rate(of_receiver)).stdin(Stdio::null()));
        recv.port();
        let command = other_side(&recv);
        let sends: Vec<&str> = command.iter().map(String::as_str).chain(rate(of_sender)).collect();
        let begin = Instant::now();
        send_records(&sends[1..], vec![vec![7; 10_000]; 64]).wait().ok();
        // 640,000 bytes, of which 65,536 may come at once.
        assert!(begin.elapsed() > Duration::from_millis(1100), "{:?}", begin.elapsed());
        assert_eq!(recv.wait().ok().json()["records"], 64);
    }
}

#[test]
fn over_a1_as_many_records_are_outstanding_as_either_end_says() {
    let listens = ["recv", "--carrier", "a1", "--listen", "127.0.0.1:0", "--content", "bytes"];
    let writes = |of_receiver: &[&str], of_sender: &[&str]| {
        let recv = Running::start(freshwire(&listens).args(of_receiver).stdin(Stdio::null()));
        recv.port();
        let command = other_side(&recv);
        let sends = command.iter().map(String::as_str).chain(of_sender.iter().copied());
        let sends: Vec<&str> = sends.chain(["--json"]).collect();
        let sent = send_records(&sends[1..], vec![vec![7; 3]; 2000]).wait().ok().json();
        recv.wait().ok();
        assert_eq!(sent["delivered_records"], 2000);
        sent["writes"].as_u64().unwrap()
    };
    // Small records share packets unless one is to be consumed before the next one may start.
    assert!(writes(&[], &[]) < 1000);
    assert!(writes(&["--outstanding", "1"], &[]) >= 2000);
    assert!(writes(&[], &["--outstanding", "1"]) >= 2000);
}

#[test]
fn send_may_be_the_one_that_waits() {
    let mut send =
        Running::start(freshwire(&["send", "--listen", "127.0.0.1:0", "records"]).stdin(Stdio::piped()));
    let stdin = send.stdin();
    let from = format!("127.0.0.1:{}", send.port());
    let recv = Running::start(freshwire(&["recv", "--from", &from, "--out", "-"]).stdin(Stdio::null()));
    write_records(stdin, &some_records(5)).unwrap();
    assert_eq!(recv.wait().ok().stdout, some_records(5).concat());
    send.wait().ok();
}

const LAYERS: [&str; 8] = ["layers", "--duration", "600ms", "--window", "200ms", "--layers", "4", "--quiet"];

#[test]
fn layers_are_accounted_for_at_both_ends() {
    for framing in ["raw", "chunked"] {
        let arguments = [
            "recv",
            "--listen",
            "127.0.0.1:0",
            "--framing",
            framing,
            "--deadline",
            "30s",
            "--json",
            "--quiet",
        ];
        let recv = Running::start(freshwire(&arguments).stdin(Stdio::null()));
        let to = format!("127.0.0.1:{}", recv.port());
        let arguments = ["send", "--to", &to, "--framing", framing, "--deadline", "30s", "--json"];
        let send = Running::start(freshwire(&arguments).args(LAYERS).stdin(Stdio::null())).wait().ok().json();
        let received = recv.wait().ok().json();
        assert_eq!(
            (&send["offered_records"], &send["delivered_records"]),
            (&12.into(), &12.into()),
            "{send}"
        );
        assert_eq!((&received["records"], &received["windows"]), (&12.into(), &3.into()), "{received}");
        assert_eq!(
            (&received["missing_records"], &received["problem"]),
            (&0.into(), &serde_json::Value::Null)
        );
        assert_eq!(received["ages_known"], true, "both ends are on this machine");
        for layer in 0..4 {
            let account = &received["layers"][layer];
            assert_eq!((&account["layer"], &account["records"]), (&layer.into(), &3.into()), "{received}");
            assert_eq!(account["on_time_records"], 3, "{received}");
            assert!(account["age"]["p50_ms"].as_f64().unwrap() < 30e3, "{received}");
        }
    }
}

#[test]
fn ctrl_c_ends_both_in_order() {
    let mut recv = freshwire(&["recv", "--listen", "127.0.0.1:0", "--json"]);
    let recv = Running::start(recv.stdin(Stdio::null()));
    let to = format!("127.0.0.1:{}", recv.port());
    let mut send =
        freshwire(&["send", "--to", &to, "--json", "layers", "--window", "100ms", "--deadline", "30s"]);
    let send = Running::start(send.stdin(Stdio::null()));
    // Its carrier, then the first line of progress: it is at work.
    send.line();
    send.line();
    send.interrupt();
    let account = send.wait().ok().json();
    let received = recv.wait().ok().json();
    assert!(account["delivered_records"].as_u64() > Some(0), "{account}");
    assert_eq!(
        (&received["records"], &received["problem"]),
        (&account["delivered_records"], &serde_json::Value::Null)
    );

    let recv = Running::start(freshwire(&["recv", "--listen", "127.0.0.1:0"]).stdin(Stdio::null()));
    recv.port();
    recv.interrupt();
    assert_eq!(recv.wait().code, Some(130), "nobody has come yet");
}

#[test]
fn an_independent_reader_agrees() {
    if !has("python3", "--version") {
        return;
    }
    let mut python = Command::new("python3");
    python.args(["-m", "freshwire_lab.reader", "--host", "127.0.0.1", "--listen", "0"]);
    let reader =
        Running::start(python.current_dir(repository().join("research/python")).stdin(Stdio::null()));
    let to = format!("127.0.0.1:{}", reader.port());
    let arguments = ["send", "--to", &to, "--deadline", "30s"];
    Running::start(freshwire(&arguments).args(LAYERS).stdin(Stdio::null())).wait().ok();
    let read = reader.wait().ok();
    let account: serde_json::Value = serde_json::from_str(read.text()).unwrap();
    assert_eq!((&account["records"], &account["windows"]), (&12.into(), &3.into()), "{account}");
    assert_eq!(account["skipped"], 0, "{account}");
}

/// `freshwire recv` with these arguments, fed with these bytes.
fn feed(arguments: &[&str], bytes: &[u8]) -> support::Ended {
    let mut recv = freshwire(&["recv", "--listen", "127.0.0.1:0", "--json"]);
    let recv = Running::start(recv.args(arguments).stdin(Stdio::null()));
    let mut stream = TcpStream::connect(("127.0.0.1", recv.port())).unwrap();
    // A receiver that has found the fault may be gone already.
    let _ = stream.write_all(bytes);
    drop(stream);
    recv.wait()
}

#[test]
fn a_stream_that_is_torn_or_something_else_ends_with_1() {
    let mut version = *b"FWLR\x02\x00\x00\x20aaaabbbbccccccccdddddddd";
    version[12..16].copy_from_slice(&32u32.to_be_bytes());
    for (arguments, bytes, message) in [
        (
            &[][..],
            &b"GET / HTTP/1.1\r\nHost: a\r\nUser-Agent: b\r\n\r\n"[..],
            "a record begins with \"FWLR\"",
        ),
        (&[], b"FWLR\x01", "the stream ended"),
        (&[], &version, "record header version 2; this reader knows version 1"),
        (&["--framing", "chunked"], b"FWCK\x02\0\0\0", "chunked framing version 2"),
        (&["--framing", "chunked"], b"FWLR\x01\0\0\x20", "was it written with another framing?"),
        (&["--framing", "length-prefixed"], b"\xff\xff\xff\xff", "is the input length-prefixed?"),
        (&["--framing", "length-prefixed", "--content", "bytes"], b"\0\0\0\x09ab", "inside the record"),
    ] {
        let ended = feed(arguments, bytes).failed(1, message);
        assert!(
            ended.json()["problem"].as_str().is_some_and(|problem| problem.contains(message)),
            "{ended:?}"
        );
    }
}

#[test]
fn a_full_disk_is_said() {
    feed(&["--out", "/dev/full"], b"some bytes").failed(2, "cannot write /dev/full: No space left on device");
}

#[test]
fn an_unusable_file_is_reported_before_connecting() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("text");
    std::fs::write(&text, "no video at all").unwrap();
    let empty = folder.path().join("empty");
    std::fs::write(&empty, "").unwrap();
    run(&["recv", "--listen", "0", "--out", "/does/not/exist"])
        .failed(2, "cannot create /does/not/exist: No such");
    run(&["send", "--to", "127.0.0.1:1", "h264", "/does/not/exist"])
        .failed(2, "cannot open /does/not/exist: No such");
    for (path, message) in [
        (text.as_path(), "does not begin with a start code; is it an Annex B byte stream"),
        (&empty, "has no picture in it"),
        (folder.path(), "Is a directory"),
    ] {
        let (listener, port) = listener("127.0.0.1:0");
        let to = format!("127.0.0.1:{port}");
        let send = Running::start(freshwire(&["send", "--to", &to, "h264"]).arg(path).stdin(Stdio::null()));
        drop(accept(&listener));
        send.wait().failed(2, message);
    }
}

#[test]
fn a_peer_that_is_not_there_or_goes_away_is_said() {
    let (listener, port) = listener("127.0.0.1:0");
    let to = format!("127.0.0.1:{port}");
    let send = send_records(&["--to", &to], vec![vec![0; 100_000]; 500]);
    let mut stream = accept(&listener);
    stream.read_exact(&mut [0; 1000]).unwrap();
    // Closing with unread bytes resets the connection.
    drop(stream);
    send.wait().failed(2, "the connection broke: ");
    drop(listener);
    run(&["send", "--to", &to, "layers"]).failed(2, "start the other side first, or wait for it with --wait");
}

const STATES: u32 = 8000;

#[test]
fn of_a_state_a_slow_reader_gets_the_newest() {
    let (listener, port) = listener("127.0.0.1:0");
    let to = format!("127.0.0.1:{port}");
    let states: Vec<Vec<u8>> = (0..STATES).map(|number| number.to_be_bytes().repeat(1024)).collect();
    let mut send = freshwire(&["send", "--to", &to, "--policy", "latest", "--json", "records"]);
    let mut send = Running::start(send.stdin(Stdio::piped()));
    let stream = accept(&listener);
    // More than the ring holds, and nobody reads: a state that takes an older one's place needs no room.
    let mut stdin = send.stdin();
    let (done, written) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let (fill_the_buffers, rest) = states.split_at(1000);
        write_records(&mut stdin, fill_the_buffers)?;
        // Pause: the reader's buffers fill meanwhile.
        std::thread::sleep(Duration::from_millis(300));
        done.send(write_records(stdin, rest)).map_err(std::io::Error::other)
    });
    written.recv_timeout(TIMEOUT / 2).expect("the source never waits").unwrap();
    let bytes = read_all(stream);
    let read: Vec<u32> =
        bytes.chunks(4096).map(|record| u32::from_be_bytes(*record.first_chunk().unwrap())).collect();
    assert!(read.is_sorted() && bytes.len().is_multiple_of(4096), "{read:?}");
    assert_eq!(read.last(), Some(&(STATES - 1)));
    assert!(read.len() < STATES as usize, "nothing was replaced");
    let account = send.wait().ok().json();
    assert_eq!(account["delivered_records"], read.len());
    let delivered_and_dropped = read.len() as u64 + account["dropped"]["superseded"].as_u64().unwrap();
    assert_eq!(delivered_and_dropped, u64::from(STATES), "{account}");
}

#[test]
fn ffmpeg_reads_a_paced_stream_without_an_error() {
    if !has("ffmpeg", "-version") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let video = folder.path().join("video.h264");
    let mut encode = Command::new("ffmpeg");
    encode.args([
        "-v",
        "error",
        "-f",
        "lavfi",
        "-i",
        "testsrc2=s=320x180:r=50",
        "-frames:v",
        "50",
        "-c:v",
        "libx264",
    ]);
    encode.args(["-g", "25", "-bf", "3", "-x264-params", "b-pyramid=strict", "-f", "h264"]).arg(&video);
    assert!(encode.status().unwrap().success());
    let (listener, port) = listener("127.0.0.1:0");
    drop(listener);
    let url = format!("tcp://127.0.0.1:{port}?listen");
    let mut decode = Command::new("ffmpeg");
    decode.args(["-v", "error", "-f", "h264", "-i", &url, "-f", "framecrc", "-"]);
    let decode = Running::start(decode.stdin(Stdio::null()));
    let to = format!("127.0.0.1:{port}");
    let begin = std::time::Instant::now();
    let arguments = ["send", "--to", &to, "--wait", "20s", "--deadline", "30s", "--json", "h264"];
    let send = Running::start(freshwire(&arguments).arg(&video).stdin(Stdio::null())).wait().ok().json();
    assert!(begin.elapsed() > Duration::from_millis(950), "49 intervals of 20 ms, as the stream says");
    assert_eq!((&send["offered_records"], &send["delivered_records"]), (&50.into(), &50.into()), "{send}");
    let decoded = decode.wait().ok();
    assert_eq!(decoded.stderr, "", "a decoder error");
    assert_eq!(decoded.text().lines().filter(|line| line.starts_with("0,")).count(), 50);
}

#[test]
fn a_bad_link_keeps_records_whole_and_the_base_layer() {
    if run(&["doctor", "--json", "--probe-link"]).code != Some(0) || !has("unshare", "--version") {
        return;
    }
    let program = PROGRAM;
    let folder = tempfile::tempdir().unwrap();
    let account = folder.path().join("account");
    let file = account.display();
    let peer = format!("exec {program} recv --listen 5000 --json --quiet > {file}");
    // The far end is stopped when the near one ends, so that waits for the far end's account.
    let send = format!("{program} send --to 10.77.0.2:5000 --wait 20s --json --quiet layers --duration 4s");
    let script = format!("{send} && until test -s {file}; do sleep 0.05; done");
    let mut link =
        freshwire(&["link", "--rate", "512Kibit", "--loss", "1%", "--seed", "7", "--account", "none"]);
    link.args(["--peer", &peer, "--", "sh", "-c", &script]);
    let send = Running::start(link.stdin(Stdio::null())).wait().ok().json();
    let received: serde_json::Value = serde_json::from_slice(&std::fs::read(&account).unwrap()).unwrap();
    let received = &received["data"];
    assert_eq!(received["problem"], serde_json::Value::Null, "{received}");
    assert_eq!(received["records"], send["delivered_records"], "{received} {send}");
    assert_eq!(received["ages_known"], true, "{received}");
    assert_eq!(received["layers"][0]["records"], 4, "the base layer of every window: {received}");
    assert!(send["delivered_records"].as_u64() < Some(28), "the link carries half of the source: {send}");
}

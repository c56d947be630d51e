//! `freshwire-host push` with other people's receivers: what they say and write has to be what was sent, in order.

use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{Ended, Running, TIMEOUT, freshwire, has, run, succeeds};
use crate::wait::wait_until;

/// Bytes that the kernel may account for in a buffer of [`BUFFER`] before the next datagram is sent. It
/// accounts up to 128 KiB. A push starts at two thirds, and a quarter may be accounted for although it is
/// gone.
const ROOM: u64 = 90 << 10;
const BUFFER: u32 = 64 << 10;

/// A port of the loopback interface that nobody uses, and a socket that sends to it.
fn sender() -> (u16, UdpSocket) {
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    (port, socket)
}

/// Bytes in the receive buffer of the socket that is bound to this port, as the kernel tells everybody.
fn queued(port: u16) -> Option<u64> {
    let sockets = std::fs::read_to_string("/proc/self/net/udp").unwrap();
    let mine = sockets.lines().find(|line| {
        line.split_whitespace().nth(1).is_some_and(|at| at.ends_with(&format!(":{port:04X}")))
    })?;
    u64::from_str_radix(mine.split_whitespace().nth(4)?.split_once(':')?.1, 16).ok()
}

/// The number that ends before the last such words.
fn number_before(text: &str, words: &str) -> Option<u64> {
    let digits = |text: &str| text.rsplit(|byte: char| !byte.is_ascii_digit()).next()?.parse().ok();
    text.rmatch_indices(words).find_map(|(at, _)| digits(&text[..at]))
}

fn pushed(arguments: &[&str]) -> Running {
    Running::start(freshwire(&["push", "--report", "--"]).args(arguments).stdin(Stdio::null()))
}

/// It ended well, and datagrams went through its memory.
#[track_caller]
fn was_served(ended: Ended) -> Ended {
    let ended = ended.ok();
    let report = ended.stderr.lines().find(|line| line.contains(" datagrams moved in "));
    assert!(report.is_some_and(|line| !line.contains(" 0 datagrams moved")), "nothing was pushed: {ended:?}");
    ended
}

/// RTP packets of uncompressed sound, as many bytes of it in each.
fn rtp(number: u16, len: usize) -> (Vec<u8>, Vec<u8>) {
    let sound: Vec<u8> = (0..len).map(|at| (usize::from(number) * 31 + at * 7) as u8).collect();
    let mut packet = vec![0x80, 96];
    packet.extend(number.to_be_bytes());
    packet.extend((u32::from(number) * len as u32 / 2).to_be_bytes());
    packet.extend([1, 2, 3, 4]);
    packet.extend(&sound);
    (packet, sound)
}

#[test]
fn gstreamer_gets_every_rtp_packet_although_it_is_slow() {
    const PACKETS: u16 = 300;
    if !has("gst-launch-1.0", "--version")
        || !succeeds("udpsrc", Command::new("gst-inspect-1.0").arg("udpsrc"))
        || !succeeds("rtpL16depay", Command::new("gst-inspect-1.0").arg("rtpL16depay"))
    {
        return;
    }
    let (port, socket) = sender();
    let source =
        format!("udpsrc address=127.0.0.1 port={port} buffer-size={BUFFER} num-buffers={PACKETS} caps=");
    let kind = "application/x-rtp,media=audio,encoding-name=L16,clock-rate=48000,channels=1,payload=96";
    // The source's own thread sleeps, so that its socket's buffer fills.
    let pipeline =
        format!("{source}{kind} ! identity sleep-time=2000 ! rtpL16depay ! fdsink fd=1 sync=false");
    let mut arguments = vec!["gst-launch-1.0", "-q"];
    arguments.extend(pipeline.split(' '));
    let player = pushed(&arguments);
    wait_until(|| queued(port).is_some(), || "GStreamer does not listen".to_owned());
    let mut sent = Vec::new();
    for number in 0..PACKETS {
        wait_until(|| queued(port).is_none_or(|bytes| bytes < ROOM), || "GStreamer does not read".to_owned());
        let (packet, sound) = rtp(number, 1200);
        socket.send_to(&packet, ("127.0.0.1", port)).unwrap();
        sent.extend(sound);
    }
    let ended = was_served(player.wait());
    assert!(ended.stdout == sent, "{} of {} bytes: {}", ended.stdout.len(), sent.len(), ended.stderr);
}

#[test]
fn netcat_writes_what_was_sent() {
    const DATAGRAMS: usize = 400;
    if !has("nc", "-h") {
        return;
    }
    let (port, socket) = sender();
    let (port_text, count) = (port.to_string(), DATAGRAMS.to_string());
    // `-W` ends it. Its buffer holds 16 such datagrams; it cuts off one that finds less room, with push or without.
    let netcat = pushed(&["nc", "-u", "-l", "-W", &count, "127.0.0.1", &port_text]);
    wait_until(|| queued(port).is_some(), || "nc does not listen".to_owned());
    let mut sent = Vec::new();
    for number in 0..DATAGRAMS {
        wait_until(|| queued(port).is_none_or(|bytes| bytes < ROOM), || "nc does not read".to_owned());
        let payload: Vec<u8> = (0..1024).map(|at| (number * 13 + at) as u8).collect();
        socket.send_to(&payload, ("127.0.0.1", port)).unwrap();
        sent.extend(payload);
    }
    let ended = netcat.wait().ok();
    assert!(ended.stdout == sent, "{} of {} bytes: {}", ended.stdout.len(), sent.len(), ended.stderr);
    assert!(ended.stderr.contains("freshwire-host push: 1 sockets"), "{}", ended.stderr);
}

#[test]
fn iperf_counts_every_datagram_in_order() {
    // Its own exit codes do not say that it is there.
    if !succeeds("iperf", Command::new("sh").args(["-c", "command -v iperf"])) {
        return;
    }
    let (port, _) = sender();
    let port_text = port.to_string();
    let server = pushed(&["iperf", "-s", "-u", "-B", "127.0.0.1", "-p", &port_text, "-P", "1", "-e"]);
    wait_until(|| queued(port).is_some(), || "iperf does not listen".to_owned());
    let client = ["-c", "127.0.0.1", "-u", "-p", &port_text, "-b", "20m", "-n", "2m", "-l", "1400"];
    let sent = Running::start(Command::new("iperf").args(client).stdin(Stdio::null())).wait().ok();
    let ended = server.wait().ok();
    // Losses depend on the machine; a datagram counted twice or out of order would be the library's doing.
    let sent = number_before(sent.text(), " datagrams").expect("the client says how many it sent");
    let seen = number_before(ended.text(), " (").expect("lost/total (per cent)");
    // The last one, which ends the test, is no part of the total.
    assert!(seen == sent || seen + 1 == sent, "{seen} of {sent}: {}", ended.text());
    assert!(!ended.text().contains("out-of-order"), "{}", ended.text());
    assert!(ended.stderr.contains("freshwire-host push: 1 sockets"), "{}", ended.stderr);
}

/// A question for the address of `host.example`.
fn dns_question(id: u16) -> Vec<u8> {
    let mut question = id.to_be_bytes().to_vec();
    question.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    question.extend(b"\x04host\x07example\x00\x00\x01\x00\x01");
    question
}

/// A server that answers for `example`. It listens by TCP as well, and another program may have that port.
fn dns_server() -> (Running, u16, UdpSocket) {
    loop {
        let (port, socket) = sender();
        let port_option = format!("--port={port}");
        let mut arguments = vec!["dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--pid-file="];
        arguments.extend(["--no-resolv", "--no-hosts", "--bind-interfaces", "--listen-address=127.0.0.1"]);
        arguments.extend(["--log-facility=-", "--address=/example/192.0.2.7", &port_option]);
        if rustix::process::getuid().is_root() {
            arguments.push("--user=root");
        }
        let server = pushed(&arguments);
        // An empty line comes before the reason of a failure.
        let said = server.line() + &server.line();
        if said.contains("started, version") {
            return (server, port, socket);
        }
        assert!(said.contains("Address already in use"), "{said}");
    }
}

#[test]
fn a_dns_server_answers_every_question() {
    const QUESTIONS: u16 = 500;
    if !has("dnsmasq", "--version") {
        return;
    }
    let (server, port, socket) = dns_server();
    let mut answers = std::collections::BTreeSet::new();
    let mut buffer = [0; 512];
    let begin = Instant::now();
    // Fifty at a time; what is lost, as questions may be, is asked again.
    while answers.len() < usize::from(QUESTIONS) {
        assert!(begin.elapsed() < TIMEOUT, "{} of {QUESTIONS} answers", answers.len());
        let open: Vec<u16> = (0..QUESTIONS).filter(|id| !answers.contains(id)).take(50).collect();
        for id in &open {
            socket.send_to(&dns_question(*id), ("127.0.0.1", port)).unwrap();
        }
        for _ in &open {
            let Ok(len) = socket.recv(&mut buffer) else { break };
            assert_eq!(buffer[len - 4..len], [192, 0, 2, 7], "{:?}", &buffer[..len]);
            answers.insert(u16::from_be_bytes([buffer[0], buffer[1]]));
        }
    }
    // It says nothing of what it served: a signal ends it past the C library's exit.
    drop(server);
}

#[test]
fn a_packet_capture_runs_untouched_with_a_notice() {
    if !has("tshark", "--version") || !succeeds("capturing", Command::new("tshark").arg("-D")) {
        return;
    }
    let (port, socket) = sender();
    let filter = format!("udp dst port {port}");
    let reader = pushed(&[
        "tshark",
        "-q",
        "-i",
        "lo",
        "-f",
        &filter,
        "-c",
        "3",
        "-l",
        "-T",
        "fields",
        "-e",
        "udp.length",
    ]);
    let notice = reader.line();
    assert!(notice.contains("tshark: captures packets with libpcap"), "{notice}");
    assert!(notice.contains("; it runs untouched"), "{notice}");
    // It begins to capture some time after it was started.
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let sending = std::thread::spawn({
        let stop = std::sync::Arc::clone(&stop);
        move || {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                // Refused where nobody listens.
                let _ = socket.send_to(&[0; 92], ("127.0.0.1", port));
                // Pause: the pace of the sender.
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    });
    let ended = reader.wait();
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    sending.join().unwrap();
    let ended = ended.ok();
    assert_eq!(ended.text(), "100\n100\n100\n", "{}", ended.stderr);
    assert!(!ended.stderr.contains("datagrams moved"), "{}", ended.stderr);
}

#[test]
fn a_static_program_runs_untouched_with_a_notice() {
    let is_static = |path: &str| {
        let linked = Command::new("ldd").arg(path).output();
        linked.is_ok_and(|linked| !linked.status.success())
    };
    if !has("busybox", "--help") {
        return;
    }
    if !is_static("/bin/busybox") {
        assert!(std::env::var_os("CI").is_none(), "a static busybox is needed in CI");
        println!("skipped: busybox is not static on this machine");
        return;
    }
    let ended = run(&["push", "--", "/bin/busybox", "echo", "done"]).ok();
    assert_eq!(ended.text(), "done\n");
    assert!(ended.stderr.contains("/bin/busybox: is statically linked"), "{}", ended.stderr);
    assert!(ended.stderr.contains("; it runs untouched"), "{}", ended.stderr);
}

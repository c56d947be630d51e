//! The DSCP, the ECN bits and the pacing rate on the wire, of the commands as people run them.
//!
//! It has no test harness: an unprivileged process must create its namespaces while it has a single thread.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods, reason = "a test")]

#[allow(dead_code, reason = "other tests use the rest")]
mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::process::ExitCode;
use std::time::Duration;

use freshwire_netns::testing::namespaces;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, eth, recv, socket_with, sockopt};
use support::{Running, freshwire, run};

const PROGRAM: &str = env!("CARGO_BIN_EXE_freshwire");

/// Hosts whose packets are looked at.
const HOSTS: [&str; 2] = ["127.0.0.1", "[::1]"];

/// Names and numbers of code points.
const DSCPS: [(&str, u8); 5] = [("EF", 46), ("AF41", 34), ("cs1", 8), ("LE", 1), ("63", 63)];

/// ECN-capable transport, as TCP and A1 use it.
const ECT0: u8 = 0b10;

fn main() -> ExitCode {
    let namespaces = match namespaces() {
        Ok(namespaces) => namespaces,
        Err(status) => return status,
    };
    let tested = namespaces.in_near(|| {
        // TCP asks for ECN, so that its bits are seen beside the DSCP.
        std::fs::write("/proc/sys/net/ipv4/tcp_ecn", "1").unwrap();
        what_the_kernel_refuses_is_said();
        for host in HOSTS {
            for (name, dscp) in DSCPS {
                tcp_has_the_dscp_and_its_ecn_bits(host, name, dscp);
            }
            a1_has_the_dscp_and_its_ecn_bits(host, "EF", 46);
            rtp_has_the_streams_dscp(host, "AF41", 34);
        }
        tcp_keeps_to_the_pacing_rate();
    });
    tested.unwrap();
    ExitCode::SUCCESS
}

/// All packets of the namespace.
struct Tap(OwnedFd);

/// A packet as far as it is looked at.
#[derive(Clone, Copy, Debug)]
struct Packet {
    class: u8,
    protocol: u8,
    destination: u16,
    payload: usize,
}

impl Tap {
    fn open() -> Self {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::PACKET, SocketType::DGRAM, flags, Some(eth::ALL)).unwrap();
        sockopt::set_socket_recv_buffer_size_force(&socket, 64 << 20).unwrap();
        Self(socket)
    }

    fn packets(&self) -> Vec<Packet> {
        let mut bytes = vec![0; 1 << 17];
        let mut packets = Vec::new();
        while let Ok((len, _)) = recv(&self.0, &mut bytes[..], RecvFlags::empty()) {
            packets.extend(Packet::parse(&bytes[..len]));
        }
        packets
    }
}

impl Packet {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let (class, protocol, header) = match bytes.first()? >> 4 {
            4 => (bytes[1], bytes[9], usize::from(bytes[0] & 15) * 4),
            6 => (bytes[0] << 4 | bytes[1] >> 4, bytes[6], 40),
            _ => return None,
        };
        let head = bytes.get(header..)?;
        let port = |at: usize| Some(u16::from_be_bytes(head.get(at..at + 2)?.try_into().ok()?));
        let own = if protocol == 6 { usize::from(head.get(12)? >> 4) * 4 } else { 8 };
        let payload = head.len().saturating_sub(own);
        Some(Self { class, protocol, destination: port(2)?, payload })
    }

    fn is_to(&self, protocol: u8, port: u16) -> bool {
        self.protocol == protocol && self.destination == port && self.payload > 0
    }
}

const TCP: u8 = 6;
const UDP: u8 = 17;

/// Records as `freshwire send records` reads them, of sizes from one byte to a megabyte.
fn records() -> Vec<u8> {
    let sizes = [1_usize, 100, 1400, 16_000, 300_000, 1_000_000];
    sizes.iter().flat_map(|&size| [&(size as u32).to_be_bytes()[..], &vec![7; size]].concat()).collect()
}

fn records_bytes() -> usize {
    records().len() - 4 * 6
}

fn tcp_has_the_dscp_and_its_ecn_bits(host: &str, name: &str, dscp: u8) {
    let listener = TcpListener::bind(format!("{host}:0")).unwrap();
    let address = listener.local_addr().unwrap();
    let tap = Tap::open();
    let to = address.to_string();
    let mut sending = Running::start(
        freshwire(&["send", "--to", &to, "--dscp", name, "--priority", "5", "--quiet", "records"])
            .stdin(std::process::Stdio::piped()),
    );
    let (mut stream, _) = listener.accept().unwrap();
    let reading = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        bytes.len()
    });
    sending.stdin().write_all(&records()).unwrap();
    sending.wait().ok();
    assert_eq!(reading.join().unwrap(), records_bytes());
    let packets: Vec<_> =
        tap.packets().into_iter().filter(|packet| packet.is_to(TCP, address.port())).collect();
    assert!(packets.len() > 6, "{}", packets.len());
    for packet in packets {
        assert_eq!((packet.class >> 2, packet.class & 3), (dscp, ECT0), "{host} {name}: {packet:?}");
    }
}

fn a1_has_the_dscp_and_its_ecn_bits(host: &str, name: &str, dscp: u8) {
    let listen = format!("{host}:0");
    let receiving = Running::start(&mut freshwire(&[
        "recv",
        "--carrier",
        "a1",
        "--listen",
        &listen,
        "--quiet",
        "--content",
        "bytes",
    ]));
    let port = receiving.port();
    let hint = receiving.line();
    let key = hint.trim().rsplit(' ').next().unwrap().to_owned();
    let tap = Tap::open();
    let to = format!("{host}:{port}");
    let mut sending = Running::start(
        freshwire(&[
            "send",
            "--carrier",
            "a1",
            "--to",
            &to,
            "--peer-key",
            &key,
            "--dscp",
            name,
            "--quiet",
            "records",
        ])
        .stdin(std::process::Stdio::piped()),
    );
    sending.stdin().write_all(&records()).unwrap();
    sending.wait().ok();
    receiving.wait().ok();
    let packets: Vec<_> = tap.packets().into_iter().filter(|packet| packet.is_to(UDP, port)).collect();
    assert!(packets.len() > 6, "{}", packets.len());
    for packet in &packets {
        assert_eq!(packet.class >> 2, dscp, "{host} {name}: {packet:?}");
    }
    let marked = packets.iter().filter(|packet| packet.class & 3 == ECT0).count();
    assert!(marked > packets.len() / 2, "{marked} of {}", packets.len());
}

/// What an RTSP server answers, with the body.
fn ask(stream: &mut BufReader<TcpStream>, request: &str) -> String {
    stream.get_mut().write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    let mut length = 0;
    loop {
        let mut line = String::new();
        assert!(stream.read_line(&mut line).unwrap() > 0, "{answer}");
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        answer.push_str(&line);
        if line.trim().is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).unwrap();
    assert!(answer.starts_with("RTSP/1.0 200"), "{request} {answer}");
    answer + std::str::from_utf8(&body).unwrap()
}

fn rtp_has_the_streams_dscp(host: &str, name: &str, dscp: u8) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("freshwire.toml");
    let port = TcpListener::bind(format!("{host}:0")).unwrap().local_addr().unwrap().port();
    let text = format!(
        "[rtsp]\nlisten = \"{host}:{port}\"\n[http]\nlisten = \"none\"\ninternal = \"none\"\n\
         [hub]\ndscp = \"CS1\"\n[streams.live]\nsource = \"test\"\ndscp = \"{name}\"\n"
    );
    std::fs::write(&file, text).unwrap();
    let _server = Running::start(&mut freshwire(&["serve", "--config", file.to_str().unwrap()]));
    let viewer = UdpSocket::bind(format!("{host}:0")).unwrap();
    viewer.set_read_timeout(Some(support::TIMEOUT)).unwrap();
    let own = viewer.local_addr().unwrap().port();
    let address: SocketAddr = format!("{host}:{port}").parse().unwrap();
    let give_up = std::time::Instant::now() + support::TIMEOUT;
    let stream = loop {
        match TcpStream::connect(address) {
            Ok(stream) => break stream,
            Err(error) => assert!(std::time::Instant::now() < give_up, "{error}"),
        }
        // Pause: between two looks whether the server listens.
        std::thread::sleep(Duration::from_millis(50));
    };
    let mut stream = BufReader::new(stream);
    let url = format!("rtsp://{host}:{port}/live");
    let described = ask(&mut stream, &format!("DESCRIBE {url} RTSP/1.0\r\nCSeq: 1\r\n\r\n"));
    let video = &described[described.find("m=video").unwrap()..];
    let control = video.split("a=control:").nth(1).unwrap().lines().next().unwrap().trim();
    let track = if control.starts_with("rtsp:") { control.to_owned() } else { format!("{url}/{control}") };
    let transport = format!("RTP/AVP;unicast;client_port={own}-{}", own ^ 1);
    let set_up = format!("SETUP {track} RTSP/1.0\r\nCSeq: 2\r\nTransport: {transport}\r\n\r\n");
    let answer = ask(&mut stream, &set_up);
    let session = answer.lines().find_map(|line| line.strip_prefix("Session:")).unwrap();
    let session = session.split(';').next().unwrap().trim().to_owned();
    let tap = Tap::open();
    ask(&mut stream, &format!("PLAY {url} RTSP/1.0\r\nCSeq: 3\r\nSession: {session}\r\n\r\n"));
    for _ in 0..20 {
        viewer.recv(&mut [0; 2048]).unwrap();
    }
    let packets = tap.packets();
    let rtp: Vec<_> = packets.iter().filter(|packet| packet.is_to(UDP, own)).collect();
    assert!(rtp.len() >= 20, "{}", rtp.len());
    for packet in rtp {
        assert_eq!(packet.class >> 2, dscp, "{host} {name}: {packet:?}");
    }
}

fn tcp_keeps_to_the_pacing_rate() {
    // 1.3 MB at 8 Mbit/s take 1.3 s; loopback alone takes milliseconds.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap().to_string();
    let mut sending = Running::start(
        freshwire(&["send", "--to", &to, "--pacing-rate", "8Mbit", "--quiet", "records"])
            .stdin(std::process::Stdio::piped()),
    );
    let (mut stream, _) = listener.accept().unwrap();
    let mut input = sending.stdin();
    let writing = std::thread::spawn(move || input.write_all(&records()).unwrap());
    let start = std::time::Instant::now();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let took = start.elapsed();
    writing.join().unwrap();
    sending.wait().ok();
    assert_eq!(bytes.len(), records_bytes());
    println!("8 Mbit/s asked for, {:.2} Mbit/s reached", bytes.len() as f64 * 8e-6 / took.as_secs_f64());
    // A busy machine makes it slower, never faster. The first congestion window leaves at once.
    assert!(took > Duration::from_millis(800), "{took:?}");
}

fn what_the_kernel_refuses_is_said() {
    run(&["send", "--to", "127.0.0.1:9", "--dscp", "64", "records"]).failed(2, "AF11 to AF43");
    run(&["send", "--to", "127.0.0.1:9", "--departure-times", "records"]).failed(2, "--pacing-rate");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap().to_string();
    run(&["send", "--to", &to, "--pacing-rate", "1Mbit", "--departure-times", "records"])
        .failed(2, "departure times are for datagrams");
    let receiving = Running::start(&mut freshwire(&["recv", "--carrier", "a1", "--listen", "127.0.0.1:0"]));
    let (port, hint) = (receiving.port(), receiving.line());
    let peer = hint.trim().rsplit(' ').next().unwrap().to_owned();
    let to = format!("127.0.0.1:{port}");
    for more in [&[][..], &["--departure-times"]] {
        let arguments = [
            &["send", "--carrier", "a1", "--to", &to, "--peer-key", &peer, "--pacing-rate", "1Mbit"][..],
            more,
            &["records"],
        ];
        run(&arguments.concat()).failed(2, "tc qdisc replace dev lo root fq");
    }
}

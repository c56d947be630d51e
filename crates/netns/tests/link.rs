//! The emulated link on this kernel, as root and as an unprivileged user.
//!
//! It has no test harness: an unprivileged process must create its namespaces while it has a single thread. Started
//! as root it runs everything twice, the second time in a child without privileges.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use freshwire_io::now;
use freshwire_io::poll::Poller;
use freshwire_io::udp::{
    Ecn, Group, Interface, Outgoing, ReceiveBuffer, Sent, UdpConfig, UdpSocket as FreshUdpSocket,
};
use freshwire_link::{Config, Direction, Link, Loss, Verdict};
use freshwire_netns::trust::{Trial, measure};
use freshwire_netns::{Emulator, EmulatorOptions, Namespaces};
use freshwire_record::{Rate, Timestamp};
use rustix::net::{AddressFamily, SocketType};

#[path = "link/standalone.rs"]
mod standalone;

const NOBODY: u32 = 65534;
const CHILD: &str = "FRESHWIRE_TEST_CHILD";

type Test = fn(&Namespaces);

const TESTS: [(&str, Test); 12] = [
    ("nothing_passes_without_an_emulator", nothing_passes_without_an_emulator),
    ("delay_is_within_half_a_millisecond", delay_is_within_half_a_millisecond),
    ("tcp_gets_the_rate_within_one_percent", tcp_gets_the_rate_within_one_percent),
    ("the_lost_packets_are_those_of_the_model", the_lost_packets_are_those_of_the_model),
    ("every_congestion_control_can_be_chosen", every_congestion_control_can_be_chosen),
    ("ipv6_passes", ipv6_passes),
    ("two_links_at_once", two_links_at_once),
    ("a_child_lives_behind_the_link", a_child_lives_behind_the_link),
    ("the_packet_log_has_both_ends", the_packet_log_has_both_ends),
    (
        "datagrams_are_segmented_and_marked_across_the_link",
        datagrams_are_segmented_and_marked_across_the_link,
    ),
    ("a_datagram_larger_than_the_link_is_refused", a_datagram_larger_than_the_link_is_refused),
    ("a_group_is_for_its_members", a_group_is_for_its_members),
];

fn main() -> ExitCode {
    // Cargo's own arguments (`--list`, filters) are for a harness; a plain filter is honoured.
    let filter = std::env::args().nth(1).filter(|argument| !argument.starts_with('-')).unwrap_or_default();
    // Before this process enters a user namespace of its own: it needs none for these.
    for (name, test) in standalone::TESTS {
        if name.contains(&filter) && standalone::is_permitted() {
            test();
            println!("ok: {name} (user {})", rustix::process::geteuid().as_raw());
        }
    }
    let namespaces = match Namespaces::create() {
        Ok(namespaces) => namespaces,
        Err(error) if error.is_not_permitted() && std::env::var_os("CI").is_none() => {
            println!("skipped: {error}");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            println!("failed: {error}");
            return ExitCode::FAILURE;
        }
    };
    let user = rustix::process::geteuid();
    for (name, test) in TESTS {
        if name.contains(&filter) {
            test(&namespaces);
            println!("ok: {name} (user {})", user.as_raw());
        }
    }
    drop(namespaces);
    if user.is_root() && std::env::var_os(CHILD).is_none() { as_nobody(&filter) } else { ExitCode::SUCCESS }
}

fn as_nobody(filter: &str) -> ExitCode {
    // The build directory may be closed to other users.
    let copy = std::env::temp_dir().join(format!("freshwire-netns-{}", std::process::id()));
    std::fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
    std::fs::set_permissions(&copy, PermissionsExt::from_mode(0o755)).unwrap();
    let status =
        Command::new(&copy).arg(filter).env(CHILD, "1").uid(NOBODY).gid(NOBODY).current_dir("/").status();
    std::fs::remove_file(&copy).unwrap();
    if status.unwrap().success() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn nothing_passes_without_an_emulator(namespaces: &Namespaces) {
    let far = udp(namespaces, Direction::Down);
    let near = udp(namespaces, Direction::Up);
    near.send_to(b"x", far.local_addr().unwrap()).unwrap();
    assert!(receive(&far, Duration::from_millis(50)).is_none());
}

fn delay_is_within_half_a_millisecond(namespaces: &Namespaces) {
    measure("link: delay within half a millisecond", Duration::from_micros(500), || delays(namespaces));
}

fn delays(namespaces: &Namespaces) -> Trial {
    let config = |millis| Config::builder().delay(Duration::from_millis(millis)).build().unwrap();
    let emulator = start(namespaces, config(30), config(10));
    let far = udp(namespaces, Direction::Down);
    let near = udp(namespaces, Direction::Up);
    let mut round_trips = Vec::new();
    for _ in 0..15 {
        let sent = now();
        near.send_to(b"ping", far.local_addr().unwrap()).unwrap();
        let (_, from) = receive(&far, Duration::from_secs(1)).unwrap();
        let there = now();
        far.send_to(b"pong", from).unwrap();
        receive(&near, Duration::from_secs(1)).unwrap();
        round_trips.push((there.saturating_since(sent), now().saturating_since(there)));
    }
    let account = emulator.stop();
    let mut trial = Trial::new(true, String::new);
    for (direction, expected, index) in [("up", 30, 0), ("down", 10, 1)] {
        let mut delays: Vec<_> =
            round_trips.iter().map(|trip| if index == 0 { trip.0 } else { trip.1 }).collect();
        delays.sort();
        let expected = Duration::from_millis(expected);
        assert!(delays[0] >= expected, "{direction}: {delays:?}");
        if delays[delays.len() / 2] >= expected + Duration::from_micros(500) {
            trial = Trial::new(false, || format!("{direction}: {delays:?}"));
        }
    }
    assert_eq!(account.up.link.delivered_packets, 15);
    assert_eq!(account.up.link.delivered_bytes, 15 * (4 + 28));
    trial.with_faults(account.faults)
}

fn tcp_gets_the_rate_within_one_percent(namespaces: &Namespaces) {
    for (rate, seconds) in [("1Mbit", 2.0), ("20Mbit", 1.0)] {
        let name = format!("link: TCP gets {rate} within one percent");
        measure(&name, Duration::from_millis(1), || rate_of(namespaces, rate, seconds));
    }
}

fn rate_of(namespaces: &Namespaces, rate: &str, seconds: f64) -> Trial {
    let rate: Rate = rate.parse().unwrap();
    let up = Config::builder().rate(rate).queue_bytes(1_000_000).build().unwrap();
    let emulator = start(namespaces, up, Config::default());
    let (client, server) = connection(namespaces, Namespaces::FAR_V4.into());
    let measured = throughput(client, server, seconds);
    let account = emulator.stop();
    let expected = rate.bits_per_sec() as f64 * 1448.0 / 1500.0;
    println!("{rate}: {:.2} % of the ideal; late {:?}", 100.0 * measured / expected, account.lateness);
    let holds = (measured / expected - 1.0).abs() < 0.01;
    Trial::new(holds, || format!("{measured} of {expected} bit/s")).with_faults(account.faults)
}

fn the_lost_packets_are_those_of_the_model(namespaces: &Namespaces) {
    const PACKETS: u32 = 1000;
    let config =
        Config::builder().loss(Loss::Burst { share: 0.1, mean_packets: 3.0 }).seed(7).build().unwrap();
    let mut model = Link::new(config.clone(), Direction::Up, Timestamp::ZERO);
    let expected: Vec<u32> =
        (0..PACKETS).filter(|_| model.handle_packet(Timestamp::ZERO, 32, ()) == Verdict::Carried).collect();
    let emulator = start(namespaces, config, Config::default());
    let far = udp(namespaces, Direction::Down);
    let near = udp(namespaces, Direction::Up);
    let mut arrived = Vec::new();
    for number in 0..PACKETS {
        near.send_to(&number.to_be_bytes(), far.local_addr().unwrap()).unwrap();
        if number % 50 == 49 {
            while let Some((number, _)) = receive(&far, Duration::from_millis(20)) {
                arrived.push(number);
            }
        }
    }
    assert_eq!(arrived, expected);
    let account = emulator.stop();
    assert_eq!(account.up.link.lost_packets, u64::from(PACKETS) - expected.len() as u64);
    assert_eq!(account.up.link.offered_packets, u64::from(PACKETS));
}

fn every_congestion_control_can_be_chosen(namespaces: &Namespaces) {
    let available = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap();
    for name in available.split_whitespace() {
        let socket = namespaces
            .in_near(|| rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None))
            .unwrap()
            .unwrap();
        rustix::net::sockopt::set_tcp_congestion(&socket, name)
            .unwrap_or_else(|error| panic!("cannot choose {name}: {error}"));
        assert_eq!(rustix::net::sockopt::tcp_congestion(&socket).unwrap(), name);
    }
}

fn ipv6_passes(namespaces: &Namespaces) {
    if !namespaces.has_ipv6() {
        println!("this kernel has no IPv6");
        return;
    }
    let config = Config::builder().rate("20Mbit".parse().unwrap()).queue_bytes(1_000_000).build().unwrap();
    let emulator = start(namespaces, config.clone(), config);
    let (client, server) = connection(namespaces, Namespaces::FAR_V6.into());
    let measured = throughput(client, server, 0.3);
    assert!(measured > 15e6, "{measured}");
    // Router solicitations and neighbour discovery would show here.
    assert_eq!(emulator.stop().down.link.lost_packets, 0);
}

fn two_links_at_once(namespaces: &Namespaces) {
    let other = Namespaces::create().unwrap();
    let first = start(namespaces, Config::default(), Config::default());
    let second = start(&other, Config::default(), Config::default());
    for namespaces in [namespaces, &other] {
        let (mut client, mut server) = connection(namespaces, Namespaces::FAR_V4.into());
        client.write_all(b"hello").unwrap();
        let mut received = [0; 5];
        server.read_exact(&mut received).unwrap();
        assert_eq!(&received, b"hello");
    }
    let offered = first.stop().up.link.offered_packets;
    assert!(offered > 0 && offered < 20);
    assert!(second.stop().up.link.offered_packets > 0);
}

fn a_child_lives_behind_the_link(namespaces: &Namespaces) {
    let emulator = start(namespaces, Config::default(), Config::default());
    let far = udp(namespaces, Direction::Down);
    let port = far.local_addr().unwrap().port();
    let script =
        format!("echo -n abcd > /dev/udp/{}/{port}; grep CapAmb /proc/self/status", Namespaces::FAR_V4);
    let mut command = Command::new("bash");
    command.arg("-c").arg(script).stdout(Stdio::piped());
    let child = match namespaces.spawn_near(&mut command) {
        Ok(child) => child,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            println!("there is no bash to test with");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let (_, from) = receive(&far, Duration::from_secs(5)).unwrap();
    assert_eq!(from.ip(), IpAddr::from(Namespaces::NEAR_V4));
    let output = child.wait_with_output().unwrap();
    let capabilities = String::from_utf8(output.stdout).unwrap();
    // Bits 10, 12 and 13: to listen anywhere, to administer the namespace's network, to ping.
    let kept = if rustix::process::geteuid().is_root() { "0000000000000000" } else { "0000000000003400" };
    assert!(capabilities.trim().ends_with(kept), "{capabilities}");
    emulator.stop();
}

fn the_packet_log_has_both_ends(namespaces: &Namespaces) {
    let path = std::env::temp_dir().join(format!("freshwire-{}.pcapng", std::process::id()));
    let options = EmulatorOptions { packet_log: Some(path.clone()), ..EmulatorOptions::default() };
    let config = Config::builder().loss(Loss::Random { share: 0.5 }).build().unwrap();
    let emulator = Emulator::start(namespaces, config, Config::default(), options).unwrap();
    let far = udp(namespaces, Direction::Down);
    let near = udp(namespaces, Direction::Up);
    for number in 0..100u32 {
        near.send_to(&number.to_be_bytes(), far.local_addr().unwrap()).unwrap();
    }
    while receive(&far, Duration::from_millis(100)).is_some() {}
    let account = emulator.stop();
    assert!(account.faults.iter().all(|fault| !fault.contains("log")), "{account:?}");
    let log = std::fs::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let comment = b"lost on the wire";
    let comments = log.windows(comment.len()).filter(|window| window == comment).count() as u64;
    assert_eq!(comments, account.up.link.lost_packets + account.down.link.lost_packets);
    // Enhanced packet blocks: type 6, then a length, an interface, a time and twice the length of the frame.
    let mut sides = [0, 0];
    let mut rest = &log[..];
    while let Some(head) = rest.get(..12) {
        let word = |at: usize| u32::from_ne_bytes(head[at..at + 4].try_into().unwrap());
        if word(0) == 6 {
            sides[word(8) as usize] += 1;
        }
        rest = &rest[word(4) as usize..];
    }
    // A connection of an earlier test may still be saying goodbye.
    let (up, down) = (account.up.link, account.down.link);
    assert!(up.offered_packets >= 100, "{account:?}");
    let near = up.offered_packets + down.delivered_packets;
    assert_eq!(sides, [near, up.delivered_packets + down.offered_packets]);
}

fn datagrams_are_segmented_and_marked_across_the_link(namespaces: &Namespaces) {
    let emulator = start(namespaces, Config::default(), Config::default());
    let (mut near, far) = edges(namespaces);
    let bytes: Vec<u8> = (0..14_000u32).map(|at| (at / 7) as u8).collect();
    let to = far.local_addr().unwrap();
    // Here the interface computes no checksums, for which some kernels refuse to segment: what the first pass finds
    // out, the second one knows.
    for _ in 0..2 {
        let outgoing = Outgoing { to, from: None, ecn: Some(Ecn::Ect1), bytes: &bytes, segment: Some(1400) };
        assert_eq!(near.send(&outgoing).unwrap(), Sent::All);
        let arrived = arrivals(&far, 10);
        assert_eq!(arrived.concat(), bytes);
        assert!(arrived.iter().all(|datagram| datagram.len() == 1400));
    }
    println!("{} datagrams in one system call", near.segments());
    assert_eq!(emulator.stop().up.link.delivered_packets, 20);
}

fn a_datagram_larger_than_the_link_is_refused(namespaces: &Namespaces) {
    let emulator = start(namespaces, Config::default(), Config::default());
    let (mut near, far) = edges(namespaces);
    let bytes = [7; 3 * 1473];
    let outgoing = Outgoing {
        to: far.local_addr().unwrap(),
        from: None,
        ecn: Some(Ecn::Ect1),
        bytes: &bytes,
        segment: Some(1473),
    };
    assert_eq!(near.send(&outgoing).unwrap(), Sent::TooLarge(0));
    let largest = Outgoing { bytes: &bytes[..1472], segment: None, ..outgoing };
    assert_eq!(near.send(&largest).unwrap(), Sent::All);
    assert_eq!(arrivals(&far, 1), [&bytes[..1472]]);
    emulator.stop();
}

fn a_group_is_for_its_members(namespaces: &Namespaces) {
    // The only interface beside loopback.
    let number = Interface::Number(2);
    let mut groups = vec![
        ("239.77.0.1", "0.0.0.0:0", number),
        ("239.77.0.2", "0.0.0.0:0", Interface::Of(Namespaces::NEAR_V4)),
    ];
    if namespaces.has_ipv6() {
        groups.push(("ff15::77", "[::]:0", number));
    }
    for (group, any, interface) in groups {
        let group = Group { address: group.parse().unwrap(), interface };
        let bind = || FreshUdpSocket::bind(any.parse().unwrap(), UdpConfig::default()).unwrap();
        let (mut sender, member) = namespaces.in_near(|| (bind(), bind())).unwrap();
        let to = SocketAddr::new(group.address, member.local_addr().unwrap().port());
        let outgoing = Outgoing { to, from: None, ecn: Some(Ecn::Ect1), bytes: b"all", segment: None };
        sender.set_multicast(group, 1, true).unwrap();
        sender.send(&outgoing).unwrap();
        assert_eq!(arrivals(&member, 1), [b""; 0], "not a member yet");
        member.join(group).unwrap();
        sender.send(&outgoing).unwrap();
        assert_eq!(arrivals(&member, 1), [b"all"]);
        sender.set_multicast(group, 1, false).unwrap();
        sender.send(&outgoing).unwrap();
        assert_eq!(arrivals(&member, 1), [b""; 0], "this machine was left out");
        sender.set_multicast(group, 1, true).unwrap();
        member.leave(group).unwrap();
        sender.send(&outgoing).unwrap();
        assert_eq!(arrivals(&member, 1), [b""; 0], "not a member any more");
    }
}

fn edges(namespaces: &Namespaces) -> (FreshUdpSocket, FreshUdpSocket) {
    let bind = |address: Ipv4Addr| FreshUdpSocket::bind((address, 0).into(), UdpConfig::default()).unwrap();
    let near = namespaces.in_near(|| bind(Namespaces::NEAR_V4)).unwrap();
    (near, namespaces.in_far(|| bind(Namespaces::FAR_V4)).unwrap())
}

/// The payloads that arrive, each marked `Ect1`, until there are `count` or none came for 200 ms.
fn arrivals(socket: &FreshUdpSocket, count: usize) -> Vec<Vec<u8>> {
    let poller = Poller::new().unwrap();
    poller.add_reader(socket, 0).unwrap();
    let mut buffer = ReceiveBuffer::default();
    let mut arrived = Vec::new();
    let mut ready = Vec::new();
    while arrived.len() < count {
        poller.wait(Some(Duration::from_millis(200)), &mut ready).unwrap();
        if ready.drain(..).next().is_none() {
            break;
        }
        assert!(socket.receive(&mut buffer).unwrap());
        for datagram in buffer.datagrams() {
            assert_eq!(datagram.ecn, Some(Ecn::Ect1));
            arrived.push(datagram.bytes.to_vec());
        }
    }
    arrived
}

fn start(namespaces: &Namespaces, up: Config, down: Config) -> Emulator {
    Emulator::start(namespaces, up, down, EmulatorOptions::default()).unwrap()
}

/// A socket on the side from which `direction` leads away.
fn udp(namespaces: &Namespaces, direction: Direction) -> UdpSocket {
    match direction {
        Direction::Up => namespaces.in_near(|| UdpSocket::bind((Namespaces::NEAR_V4, 0))).unwrap().unwrap(),
        Direction::Down => namespaces.in_far(|| UdpSocket::bind((Namespaces::FAR_V4, 0))).unwrap().unwrap(),
    }
}

fn receive(socket: &UdpSocket, patience: Duration) -> Option<(u32, SocketAddr)> {
    socket.set_read_timeout(Some(patience)).unwrap();
    let mut data = [0; 4];
    match socket.recv_from(&mut data) {
        Ok((_, from)) => Some((u32::from_be_bytes(data), from)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
        Err(error) => panic!("{error}"),
    }
}

/// From near to far.
fn connection(namespaces: &Namespaces, far: IpAddr) -> (TcpStream, TcpStream) {
    let listener = namespaces.in_far(|| TcpListener::bind((far, 0))).unwrap().unwrap();
    let address = listener.local_addr().unwrap();
    let client =
        namespaces.in_near(|| TcpStream::connect_timeout(&address, Duration::from_secs(5))).unwrap().unwrap();
    (client, listener.accept().unwrap().0)
}

/// Bits per second that `server` reads over `seconds`, once the connection is under way.
fn throughput(mut client: TcpStream, mut server: TcpStream, seconds: f64) -> f64 {
    rustix::net::sockopt::set_tcp_congestion(&client, "reno").unwrap();
    // Less than the link's queue: nothing is dropped, so that the sender never pauses.
    rustix::net::sockopt::set_socket_send_buffer_size(&client, 32 << 10).unwrap();
    let writer = std::thread::spawn(move || while client.write_all(&[0; 16384]).is_ok() {});
    let mut buffer = vec![0; 1 << 16];
    let begin = now();
    let mut first = None;
    let rate = loop {
        let count = server.read(&mut buffer).unwrap();
        let time = now();
        match &mut first {
            None if time.saturating_since(begin) > Duration::from_millis(200) => first = Some((time, 0)),
            None => {}
            Some((since, bytes)) => {
                *bytes += count;
                let elapsed = time.saturating_since(*since).as_secs_f64();
                if elapsed >= seconds {
                    break *bytes as f64 * 8.0 / elapsed;
                }
            }
        }
    };
    drop(server);
    writer.join().unwrap();
    rate
}

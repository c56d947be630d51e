//! Real TCP connections through the filter, between two hosts on this machine. Needs root.
#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "the kernel is waited for by its clock")]
#![allow(clippy::unwrap_used, reason = "a test")]

mod capture;
mod support;

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{IpAddr, Shutdown, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use capture::{Connection, Kind, LINK, PATIENCE, Scenario, Stack, far};
use freshwire_acks::{Config, Filter, FilterError, Hook, HookChoice, Rule, Verdict};
use freshwire_netns::testbed::{Outcome, Receiver, Testbed, TestbedError, Transfer, connect};
use freshwire_netns::{LinkConfig, Loss, Namespaces};
use rustix::net::sockopt::set_socket_recv_buffer_size;
use support::skip;

fn testbed(name: &str, receiver: Receiver) -> Option<Testbed> {
    match Testbed::new(name, receiver) {
        Ok(testbed) => Some(testbed),
        Err(TestbedError::NotRoot) => skip("network namespaces with interfaces need root"),
        Err(error @ TestbedError::Missing(_)) => skip(&error.to_string()),
        Err(error) => panic!("{error}"),
    }
}

fn filter(testbed: &Testbed, hook: Hook, rule: Rule) -> Option<Filter> {
    let made = testbed
        .in_near(|| Filter::new(testbed.interface(), HookChoice::Only(hook), &Config::new(rule)))
        .expect("the near host is there");
    match made {
        Ok(filter) => Some(filter),
        Err(FilterError::NoTcx) => skip("BPF links at tc need Linux 6.6"),
        Err(error) => panic!("{error}"),
    }
}

fn transfer(connections: usize, bytes: u64) -> Transfer {
    Transfer { connections, bytes, congestion: "cubic".to_owned(), check: true }
}

fn assert_whole(outcome: &Outcome, transfer: &Transfer) {
    assert_eq!(outcome.bytes, transfer.bytes * transfer.connections as u64);
    assert_eq!(outcome.wrong, 0);
}

/// Packets that found the backlog of a processor full, in all namespaces of this machine (`softnet_show` of Linux).
fn backlog_drops() -> u64 {
    let text = std::fs::read_to_string("/proc/net/softnet_stat").unwrap();
    let drops = text.lines().map(|line| line.split_whitespace().nth(1).unwrap());
    drops.map(|count| u64::from_str_radix(count, 16).unwrap()).sum()
}

#[test]
fn every_byte_arrives_and_most_acknowledgements_do_not() {
    let Some(testbed) = testbed("bytes", Receiver::EachPacket) else { return };
    let plan = transfer(4, 10_000_000);
    let plain = testbed.transfer(testbed.address(), &plan).unwrap();
    assert_whole(&plain, &plan);
    let addresses = [testbed.address(), testbed.address_v6()];
    for hook in [Hook::Xdp, Hook::Tc] {
        for address in addresses {
            let Some(filter) = filter(&testbed, hook, Rule::Safe) else { return };
            assert_eq!(filter.hook(), Some(hook));
            let before = backlog_drops();
            let outcome = testbed.transfer(address, &plan).unwrap();
            let lost = backlog_drops() - before;
            assert_whole(&outcome, &plan);
            let counters = filter.counters().unwrap();
            assert!(counters.share() > 0.6, "{hook:?} {address}: {counters:?}");
            assert!(
                outcome.tcp.segments_in < plain.tcp.segments_in / 2,
                "{hook:?} {address}: {outcome:?} {plain:?}"
            );
            assert!(counters.acks() > 0 && counters.packets > counters.segments, "{counters:?}");
            // Fewer acknowledgements make longer bursts, of which the receiving host's backlog loses some. A loaded machine delays probes.
            let most = plain.tcp.retransmitted + lost + counters.packets / 200;
            assert!(outcome.tcp.retransmitted <= most, "{hook:?} {lost} lost {outcome:?} {plain:?}");
        }
    }
}

#[test]
fn every_rule_delivers_and_a_small_transfer_ends_at_once() {
    let Some(testbed) = testbed("rules", Receiver::EachPacket) else { return };
    for rule in [Rule::Safe, Rule::Cake, Rule::Checkpoint] {
        let Some(filter) = filter(&testbed, Hook::Xdp, rule) else { return };
        for bytes in [1, 1448, 3000, 100_000, 10_000_000] {
            let plan = transfer(2, bytes);
            assert_whole(&testbed.transfer(testbed.address(), &plan).unwrap(), &plan);
        }
        assert!(filter.counters().unwrap().dropped() > 0, "{rule:?}");
    }
}

#[test]
fn filter_that_comes_and_goes_disturbs_no_connection() {
    let Some(testbed) = testbed("comes", Receiver::EachPacket) else { return };
    let Some(mut filter) = filter(&testbed, Hook::Xdp, Rule::Safe) else { return };
    let plan = transfer(2, 100_000_000);
    let outcome = std::thread::scope(|scope| {
        let moving = scope.spawn(|| testbed.transfer(testbed.address(), &plan));
        while !moving.is_finished() {
            testbed.in_near(|| filter.detach()).unwrap().unwrap();
            assert_eq!(filter.hook(), None);
            testbed.in_near(|| filter.attach()).unwrap().unwrap();
        }
        moving.join().unwrap().unwrap()
    });
    assert_whole(&outcome, &plan);
}

#[test]
fn receiver_with_offload_leaves_little_to_drop() {
    let Some(testbed) = testbed("gro", Receiver::Offload) else { return };
    let Some(filter) = filter(&testbed, Hook::Tc, Rule::Safe) else { return };
    let plan = transfer(1, 50_000_000);
    assert_whole(&testbed.transfer(testbed.address(), &plan).unwrap(), &plan);
    let counters = filter.counters().unwrap();
    assert!(counters.acks() < counters.packets / 4, "{counters:?}");
    assert!(counters.of(Verdict::Spacing) > 0 || counters.share() < 0.5, "{counters:?}");
}

/// `/sys` has the interfaces of the host: only the kernel knows those of the thread's namespace.
#[test]
fn a_tunnel_of_another_namespace_is_refused() {
    let Some(testbed) = testbed("tunnel", Receiver::EachPacket) else { return };
    let attach = |interface: &str| {
        let made = testbed.in_near(|| Filter::new(interface, HookChoice::Auto, &Config::default()));
        made.expect("the near host is there")
    };
    let ip = |arguments: &str| {
        let run = || Command::new("ip").args(arguments.split(' ')).status();
        testbed.in_near(run).expect("the near host is there").is_ok_and(|status| status.success())
    };
    if ip("tuntap add fwtunnel mode tun") {
        assert!(!std::path::Path::new("/sys/class/net/fwtunnel").exists(), "/sys is the host's");
        let refused = attach("fwtunnel").err().map(|error| error.to_string()).unwrap_or_default();
        assert!(refused.starts_with("packets of fwtunnel have no Ethernet header"), "{refused}");
    } else {
        skip::<()>("the system gives no tun device").unwrap_or_default();
    }
    assert!(matches!(attach("fwnowhere"), Err(FilterError::NoInterface(_))));
    for interface in ["lo", testbed.interface()] {
        match attach(interface) {
            Ok(filter) => assert_eq!(filter.hook(), Some(Hook::Tc), "{interface}"),
            Err(FilterError::NoTcx) => {
                return skip::<()>("BPF links at tc need Linux 6.6").unwrap_or_default();
            }
            Err(error) => panic!("{interface}: {error}"),
        }
    }
}

/// Not a test: what the one below starts, and kills. In the near host of a testbed it holds a filter and says so.
#[test]
fn hold_a_filter_until_killed() {
    let Ok(interface) = std::env::var("FRESHWIRE_HOLD_A_FILTER") else { return };
    let _filter = Filter::new(&interface, HookChoice::Only(Hook::Xdp), &Config::default()).unwrap();
    println!("\nattached");
    loop {
        std::thread::park();
    }
}

#[test]
fn programs_leave_with_a_process_that_is_killed() {
    let Some(testbed) = testbed("killed", Receiver::EachPacket) else { return };
    let Some(filter) = filter(&testbed, Hook::Tc, Rule::Safe) else { return };
    let programs = || testbed.in_near(|| freshwire_acks::tc_programs(testbed.interface())).unwrap().unwrap();
    assert_eq!(programs(), [1, 1]);
    drop(filter);
    assert_eq!(programs(), [0, 0]);
    let mut child = testbed
        .in_near(|| {
            Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "hold_a_filter_until_killed", "--nocapture"])
                .env("FRESHWIRE_HOLD_A_FILTER", testbed.interface())
                .stdout(Stdio::piped())
                .spawn()
        })
        .unwrap()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line == "attached"), "the child has said so");
    assert_eq!(programs(), [0, 1]);
    child.kill().unwrap();
    child.wait().unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    while programs() != [0, 0] {
        assert!(Instant::now() < deadline, "the programs are still there: {:?}", programs());
        // Pause: until the next look.
        std::thread::sleep(Duration::from_millis(10));
    }
    // XDP has one place: it is free.
    assert_eq!(self::filter(&testbed, Hook::Xdp, Rule::Safe).unwrap().hook(), Some(Hook::Xdp));
}

#[test]
fn unknown_interface_is_named() {
    let Some(testbed) = testbed("none", Receiver::EachPacket) else { return };
    for choice in [HookChoice::Auto, HookChoice::Only(Hook::Tc), HookChoice::Only(Hook::Xdp)] {
        let error =
            testbed.in_near(|| Filter::new("nowhere0", choice, &Config::default())).unwrap().unwrap_err();
        assert_eq!(error.to_string(), "there is no network interface nowhere0; `ip link` lists them");
    }
}

/// Bytes over the long connection of a capture, and after how many the far host answers with some of its own.
const LONG: usize = 3_000_000;
const ANSWERED: usize = 1_000_000;
const ANSWER: [u8; 8] = *b"received";

/// Packets in a segment before offload, at most.
const SEGMENT_PACKETS: u64 = 8;

/// Hosts for captures: the far one acknowledges each packet, and the near one makes segments of known size.
fn captured_hosts() -> Option<Namespaces> {
    if !rustix::process::geteuid().is_root() {
        return skip("eBPF needs root");
    }
    let namespaces = Namespaces::create().unwrap();
    let packets = SEGMENT_PACKETS.to_string();
    for (is_near, arguments) in [
        (true, vec!["link", "set", "dev", LINK, "gso_max_segs", &packets]),
        (false, "route replace 10.77.0.0/24 dev link0 src 10.77.0.2 quickack 1".split(' ').collect()),
        (false, "-6 route replace fd77::/64 dev link0 src fd77::2 quickack 1".split(' ').collect()),
    ] {
        let mut command = Command::new("ip");
        command.args(&arguments);
        let child =
            if is_near { namespaces.spawn_near(&mut command) } else { namespaces.spawn_far(&mut command) };
        match child {
            Ok(mut child) => assert!(child.wait().unwrap().success(), "ip {arguments:?}"),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return skip("no `ip`: apt-get install iproute2");
            }
            Err(error) => panic!("{error}"),
        }
    }
    Some(namespaces)
}

/// A connection between the hosts: its near end, and its far one.
fn connected(namespaces: &Namespaces, is_v6: bool, receive_buffer: Option<usize>) -> (TcpStream, TcpStream) {
    let host: IpAddr = far(is_v6);
    let listener = namespaces.in_far(|| TcpListener::bind((host, 0))).unwrap().unwrap();
    if let Some(bytes) = receive_buffer {
        set_socket_recv_buffer_size(&listener, bytes).unwrap();
    }
    let to = listener.local_addr().unwrap();
    let near = namespaces.in_near(|| connect(to, "cubic")).unwrap().unwrap();
    let (far, _) = listener.accept().unwrap();
    for end in [&near, &far] {
        end.set_read_timeout(Some(PATIENCE)).unwrap();
        end.set_write_timeout(Some(PATIENCE)).unwrap();
    }
    (near, far)
}

/// The transferred bytes. Their period is prime, so that it is at another place in each segment.
fn pattern(bytes: usize) -> Vec<u8> {
    (0..65_521_u32).map(|place| (place.wrapping_mul(2_654_435_761) >> 24) as u8).cycle().take(bytes).collect()
}

/// Sends many bytes, of which the far host compares each, and a few back; returns the near port.
fn long_transfer(namespaces: &Namespaces, is_v6: bool) -> u16 {
    let (mut near, mut far) = connected(namespaces, is_v6, None);
    let port = near.local_addr().unwrap().port();
    let sent = pattern(LONG);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut received = vec![0; ANSWERED];
            for expected in sent.chunks(ANSWERED) {
                far.read_exact(&mut received).unwrap();
                assert!(received == expected, "other bytes than were sent");
                far.write_all(&ANSWER).unwrap();
            }
            assert_eq!(far.read(&mut received).unwrap(), 0);
            far.shutdown(Shutdown::Write).unwrap();
        });
        near.write_all(&sent).unwrap();
        near.shutdown(Shutdown::Write).unwrap();
        let mut answers = Vec::new();
        near.read_to_end(&mut answers).unwrap();
        assert_eq!(answers, ANSWER.repeat(LONG / ANSWERED));
    });
    port
}

/// A receiver that does not read until its window is closed.
fn stalled_transfer(namespaces: &Namespaces, stack: &mut Stack, is_v6: bool) {
    let (mut near, mut far) = connected(namespaces, is_v6, Some(64 << 10));
    let port = near.local_addr().unwrap().port();
    let sent = pattern(LONG / 4);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            near.write_all(&sent).unwrap();
            near.shutdown(Shutdown::Write).unwrap();
        });
        stack.wait_for("a closed window", |segment| segment.ports.1 == port && segment.window == 0);
        let mut received = Vec::new();
        far.read_to_end(&mut received).unwrap();
        assert!(received == sent, "other bytes than were sent");
    });
    drop(far);
    assert_eq!(near.read(&mut [0]).unwrap(), 0);
}

/// A receiver that leaves without reading what is there.
fn reset_transfer(namespaces: &Namespaces, is_v6: bool) {
    let (mut near, far) = connected(namespaces, is_v6, None);
    near.write_all(&pattern(1000)).unwrap();
    far.peek(&mut [0]).unwrap();
    drop(far);
    assert_eq!(near.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::ConnectionReset);
}

fn path(rate: &str, delay: Duration, loss: Loss, late: f64, seed: u64) -> LinkConfig {
    let builder = LinkConfig::builder().rate(rate.parse().unwrap()).delay(delay).queue_bytes(16 << 20);
    builder.loss(loss).reorder(late, Duration::from_millis(2)).seed(seed).build().unwrap()
}

/// Adds up what [`Connection::check_rule`] has found of each.
fn check_rules(connections: &[Connection]) -> (std::collections::BTreeMap<Kind, usize>, usize) {
    let (mut all, mut dropped) = (std::collections::BTreeMap::new(), 0);
    for connection in connections {
        let (kinds, more) = connection.check_rule(SEGMENT_PACKETS);
        dropped += more;
        for (kind, count) in kinds {
            *all.entry(kind).or_default() += count;
        }
    }
    (all, dropped)
}

#[test]
fn captures_show_that_only_covered_acknowledgements_are_dropped() {
    // Longer than the pauses of a machine with some load, so that no probe is due.
    let delay = Duration::from_millis(5);
    let clean = || path("100Mbit", delay, Loss::None, 0.0, 0);
    for (hook, is_v6) in [(Hook::Tc, false), (Hook::Xdp, true)] {
        let Some(namespaces) = captured_hosts() else { return };
        let scenario = Scenario { up: clean(), down: clean(), hook };
        let Some(captured) = scenario.run(&namespaces, |namespaces, stack| {
            long_transfer(namespaces, is_v6);
            stalled_transfer(namespaces, stack, is_v6);
            reset_transfer(namespaces, is_v6);
        }) else {
            return;
        };
        assert_eq!(captured.connections.len(), 3);
        let (kinds, dropped) = check_rules(&captured.connections);
        assert_eq!(dropped as u64, captured.counters.dropped(), "{kinds:?}");
        assert!(dropped > 100, "{dropped} of {kinds:?}");
        for kind in [Kind::Data, Kind::Syn, Kind::Fin, Kind::Rst, Kind::Duplicate, Kind::Window] {
            assert!(kinds.contains_key(&kind), "{kind:?} is missing: {kinds:?}");
        }
        let is_on_time = captured.account.lateness.max < delay && captured.account.is_trustworthy();
        assert!(captured.connections.iter().any(|connection| connection.closed_windows() > 0), "{kinds:?}");
        for connection in &captured.connections {
            let found = connection.retransmissions();
            assert_eq!(found.by_filter, 0, "{hook:?} {found:?}");
            // A machine that stops for a while makes TCP probe; that is the machine's fault. A receiver without room may drop packets,
            // which is as good as loss.
            let is_without_loss = is_on_time && connection.closed_windows() == 0;
            assert!(!is_without_loss || found.all == 0, "{hook:?} {found:?} {:?}", captured.account);
        }
    }
}

#[test]
fn captures_show_the_same_repairs_as_without_the_filter() {
    for (hook, is_v6) in [(Hook::Tc, true), (Hook::Xdp, false)] {
        // New ones: the last acknowledgement of a connection may be lost, and is repeated later.
        let Some(namespaces) = captured_hosts() else { return };
        let direction =
            |seed| path("100Mbit", Duration::from_millis(1), Loss::Random { share: 0.01 }, 0.01, seed);
        let scenario = Scenario { up: direction(1), down: direction(2), hook };
        let Some(captured) = scenario.run(&namespaces, |namespaces, _| {
            long_transfer(namespaces, is_v6);
        }) else {
            return;
        };
        let [connection] = &captured.connections[..] else { panic!("one connection") };
        let (kinds, dropped) = check_rules(&captured.connections);
        assert_eq!(dropped as u64, captured.counters.dropped(), "{kinds:?}");
        assert!(dropped > 0 && connection.lost() > 0 && connection.reordered > 0, "{dropped} {kinds:?}");
        for kind in [Kind::Sack, Kind::Outside] {
            assert!(kinds.contains_key(&kind), "{kind:?} is missing: {kinds:?}");
        }
        let found = connection.retransmissions();
        // The last byte has arrived, so each lost segment was sent again.
        assert!(found.all - found.needless > 0, "{hook:?} {found:?}");
        assert_eq!(found.by_filter, 0, "{hook:?} {found:?}");
    }
}

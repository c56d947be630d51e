//! One stream to many by IP multicast, on the loopback interface or, for IPv6, on that of a namespace.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use freshwire::a1::{
    Group, GroupConfig, GroupConfigError, GroupError, GroupTransportConfig, Interface, InviteError,
    JoinConfig, JoinError, Rate,
};

use freshwire_netns::Namespaces;

use super::*;

const GROUP: Ipv4Addr = Ipv4Addr::new(239, 255, 77, 1);

/// Whether this machine brings a multicast packet from itself to itself. In CI it has to.
pub(crate) fn has_multicast() -> bool {
    let heard = || -> std::io::Result<()> {
        let member = UdpSocket::bind((GROUP, 0))?;
        member.join_multicast_v4(&GROUP, &Ipv4Addr::LOCALHOST)?;
        member.set_read_timeout(Some(Duration::from_secs(1)))?;
        UdpSocket::bind("127.0.0.1:0")?.send_to(b"x", member.local_addr()?)?;
        member.recv(&mut [0; 1]).map(drop)
    };
    let Err(error) = heard() else { return true };
    assert!(std::env::var_os("CI").is_none(), "IP multicast on loopback is needed in CI: {error}");
    println!("skipped: no IP multicast on this machine's loopback: {error}");
    false
}

/// An address that no other test has: the kernel may give the same free port twice.
pub(crate) fn address() -> SocketAddr {
    static NEXT: AtomicU8 = AtomicU8::new(2);
    let group = Ipv4Addr::new(239, 255, 77, NEXT.fetch_add(1, Ordering::Relaxed));
    UdpSocket::bind((group, 0)).unwrap().local_addr().unwrap()
}

struct Member {
    _node: Node,
    /// The sender's end.
    to: Connection,
    /// The member's end.
    at: Connection,
}

struct Stage {
    node: Node,
    group: Group,
    sender: Sender,
    next: u64,
}

impl Stage {
    fn new(change: impl FnOnce(GroupConfig) -> GroupConfig) -> Self {
        let config = GroupConfig::new(address(), Rate::from_bits_per_sec(1_000_000_000));
        Self::of(node(), &change(config))
    }

    fn of(node: Node, config: &GroupConfig) -> Self {
        let group = node.group(config).unwrap();
        let room = RingConfig { rings: 20, slots: 1024, block_bytes: 4096, blocks: 2048 };
        Self { node, group, sender: Sender::without_engine(&room).unwrap(), next: 0 }
    }

    fn feed(&mut self) -> Sink {
        self.sender.add_a1_group(&self.group, SinkConfig::new(choice::expiring())).unwrap()
    }

    fn connect(&self, config: NodeConfig) -> Member {
        let beside = SocketAddr::new(self.node.local_addr().unwrap().ip(), 0);
        let node = Node::bind(beside, config).unwrap();
        let (to, at) = connect(&self.node, &node);
        Member { _node: node, to, at }
    }

    /// A member that has joined.
    fn member(&self, config: NodeConfig) -> Member {
        let member = self.connect(config.join(JoinConfig::default()));
        self.group.invite(&member.to).unwrap();
        assert_eq!(joined(&member), Ok(()));
        member
    }

    fn push(&mut self, sink: &Sink, count: u64, len: usize) -> std::ops::Range<u64> {
        let first = self.next;
        self.next += count;
        for seq in first..self.next {
            self.sender.push(sink.id(), &payload(seq, len), &meta(seq)).unwrap();
        }
        first..self.next
    }
}

fn config() -> NodeConfig {
    NodeConfig::new().unwrap()
}

fn payload(seq: u64, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at as u64 ^ seq) as u8).collect()
}

/// The result of the invitation.
fn joined(member: &Member) -> Result<(), JoinError> {
    found("an invitation", || match member.at.memberships().as_slice() {
        [membership] => Some(membership.joined.clone()),
        _ => None,
    })
}

/// The next messages, in whichever order they came.
fn take(member: &Member, seqs: std::ops::Range<u64>, len: usize) {
    let mut arrived: Vec<_> = seqs.clone().map(|_| message(&member.at)).collect();
    arrived.sort_by_key(|message| message.seq);
    assert_eq!(arrived.iter().map(|message| message.seq).collect::<Vec<_>>(), seqs.collect::<Vec<_>>());
    for message in arrived {
        assert_eq!(message.data, payload(message.seq, len));
        assert!(!message.late && message.age < PATIENCE);
    }
}

fn repairs(member: &Member) -> u64 {
    member.to.stats().unwrap().repairs_sent
}

#[test]
fn a_group_that_has_a_sink_costs_no_ring() {
    if !has_multicast() {
        return;
    }
    let mut stage = Stage::new(|config| config);
    let _sink = stage.feed();
    let mut other = Sender::without_engine(&RingConfig { rings: 1, ..RingConfig::default() }).unwrap();
    for _ in 0..10_000 {
        let refused = other.add_a1_group(&stage.group, SinkConfig::new(choice::fifo())).map(|sink| sink.id());
        assert!(matches!(refused, Err(SenderError::HasSink)), "{refused:?}");
    }
    let another = Stage::new(|config| config);
    other.add_a1_group(&another.group, SinkConfig::new(choice::fifo())).unwrap();
}

#[test]
fn the_packets_of_a_group_go_where_the_first_member_is() {
    if !has_multicast() {
        return;
    }
    let anywhere = Node::bind("0.0.0.0:0".parse().unwrap(), config()).unwrap();
    let mut stage = Stage::of(anywhere, &GroupConfig::new(address(), Rate::from_bits_per_sec(1_000_000_000)));
    let sink = stage.feed();
    let node = bind(config().join(JoinConfig::default()));
    let (to, at) = connect(&stage.node, &node);
    let member = Member { _node: node, to, at };
    stage.group.invite(&member.to).unwrap();
    assert_eq!(joined(&member), Ok(()));
    let pushed = stage.push(&sink, 5, 1000);
    take(&member, pushed, 1000);
    assert!(member.at.stats().unwrap().group_packets_received > 0);
}

#[test]
fn lost_packets_are_repaired_and_a_stalled_member_holds_nobody() {
    if !has_multicast() {
        return;
    }
    let mut stage = Stage::new(|mut config| {
        config.transport.repair_for = Duration::from_secs(5);
        config
    });
    let sink = stage.feed();
    let good = [stage.member(config()), stage.member(config())];
    // Its kernel keeps one or two packets: a burst is more than that.
    let mut small = config();
    small.receive_buffer = 1;
    let losing = stage.member(small);
    let stalled = stage.member(config());
    let mut rounds = 0;
    while repairs(&losing) == 0 {
        rounds += 1;
        assert!(rounds <= 20, "no burst was lost");
        // All of it fits into the buffer of those that have one, so that they cannot lose it.
        let pushed = stage.push(&sink, 40, 1000);
        for member in good.iter().chain([&losing]) {
            take(member, pushed.clone(), 1000);
        }
        // What its application does not take is read all the same.
        until("the stalled member has everything", || {
            stalled.at.stats().unwrap().messages_received >= stage.next
        });
    }
    for member in good.iter().chain([&stalled]) {
        assert_eq!(repairs(member), 0, "it has asked for nothing");
    }
    let stats = stage.group.stats().unwrap();
    assert_eq!((stats.members, stats.packets_refused), (4, 0));
    // Its oldest messages have given way to as many as the first window has: the application has taken none (A1-FLOW-1).
    let last = std::iter::from_fn(|| stalled.at.recv(Duration::from_millis(100)).unwrap());
    let last: Vec<_> = last.map(|message| message.seq).collect();
    let kept = stage.next.saturating_sub(64);
    assert_eq!(last, (kept..stage.next).collect::<Vec<_>>());
}

/// A network namespace with an interface that has IPv6 multicast, which the loopback interface has not. In CI there has to be one.
fn ipv6_network() -> Option<Namespaces> {
    let why = match Namespaces::create() {
        Ok(namespaces) if namespaces.has_ipv6() => return Some(namespaces),
        Ok(_) => "the kernel has no IPv6".to_owned(),
        Err(error) => error.to_string(),
    };
    assert!(std::env::var_os("CI").is_none(), "a network with IPv6 is needed in CI: {why}");
    println!("skipped: {why}");
    None
}

#[test]
fn a_group_and_its_repairs_go_over_ipv6() {
    let Some(network) = ipv6_network() else { return };
    let play = || {
        let node = Node::bind((Namespaces::NEAR_V6, 0).into(), config()).unwrap();
        let address = (Ipv6Addr::new(0xff15, 0, 0, 0, 0, 0, 0x4657, 1), 5004).into();
        let mut stage = Stage::of(node, &GroupConfig::new(address, Rate::from_bits_per_sec(1_000_000_000)));
        let sink = stage.feed();
        let good = stage.member(config());
        // Its kernel keeps one or two packets: a burst is more than that.
        let mut small = config();
        small.receive_buffer = 1;
        let losing = stage.member(small);
        for member in [&good, &losing] {
            assert_eq!(member.at.memberships()[0].address, address);
        }
        let mut rounds = 0;
        while repairs(&losing) == 0 {
            rounds += 1;
            assert!(rounds <= 20, "no burst was lost");
            let pushed = stage.push(&sink, 40, 1000);
            for member in [&good, &losing] {
                take(member, pushed.clone(), 1000);
            }
        }
        assert_eq!(repairs(&good), 0, "it has asked for nothing");
        assert_eq!(stage.group.stats().unwrap().members, 2);
    };
    network.in_near(play).unwrap();
}

#[test]
fn a_record_is_acknowledged_when_it_can_be_repaired_no_more() {
    if !has_multicast() {
        return;
    }
    let keep = Duration::from_millis(300);
    let began = now();
    let mut stage = Stage::new(|mut config| {
        config.transport.repair_for = keep;
        config
    });
    let sink = stage.feed();
    let member = stage.member(config());
    let pushed = stage.push(&sink, 3, 3000);
    take(&member, pushed, 3000);
    // Long expired: a turn of the node's thread may use a time from just before the push.
    let stale = Meta { deadline: began, ..meta(99) };
    stage.sender.push(sink.id(), b"stale", &stale).unwrap();
    let id = sink.id();
    let monitor = sink.monitor();
    assert_eq!(sink.close(CloseMode::Drain, PATIENCE), Ended::Closed);
    let fates: Vec<_> = stage.sender.fates(id).unwrap().collect();
    assert_eq!(fates.len(), 4, "{fates:?}");
    for fate in fates {
        if fate.seq == 99 {
            assert_eq!(fate.outcome, Outcome::Dropped(Reason::Expired));
            continue;
        }
        assert_eq!(fate.outcome, Outcome::Acked);
        let kept = fate.acked_at.unwrap().saturating_since(fate.committed_at.unwrap());
        assert!(kept >= keep, "{kept:?}");
    }
    let stats = monitor.stats();
    assert_eq!((stats.carrier, stats.committed, stats.finished, stats.acked), (CarrierInUse::A1, 3, 3, 9000));
    assert_eq!(stats.bytes, stage.group.stats().unwrap().bytes_sent);
    // The group and its members outlive the sink.
    stage.sender.reuse(id);
    let sink = stage.feed();
    // Numbers begin anew if the node has not let go of the first ring yet, and another one was taken: the payload tells.
    let mut pushed: Vec<_> = stage.push(&sink, 2, 100).map(|seq| payload(seq, 100)).collect();
    for arrived in [message(&member.at), message(&member.at)] {
        assert!(!arrived.late && arrived.age < PATIENCE);
        let place = pushed.iter().position(|pushed| arrived.data == *pushed);
        pushed.remove(place.expect("it is one of those that were pushed, and came once"));
    }
    let again = stage.sender.add_a1_group(&stage.group, SinkConfig::new(choice::fifo()));
    assert!(matches!(again, Err(SenderError::HasSink)));
}

#[test]
fn nobody_is_led_to_a_group_that_does_not_want_to() {
    if !has_multicast() {
        return;
    }
    let mut stage = Stage::new(|config| config);
    let sink = stage.feed();
    let unwilling = stage.connect(config());
    let full = stage.connect(config().join(JoinConfig::default().most(0)));
    let lost = stage.connect(config().join(JoinConfig::default().interface(Interface::Number(u32::MAX))));
    for member in [&unwilling, &full, &lost] {
        stage.group.invite(&member.to).unwrap();
    }
    assert_eq!(joined(&unwilling), Err(JoinError::NotWanted));
    assert_eq!(joined(&full), Err(JoinError::TooMany));
    assert!(matches!(joined(&lost), Err(JoinError::Refused(_))), "{:?}", joined(&lost));
    let willing = stage.member(config());
    let pushed = stage.push(&sink, 1, 10);
    take(&willing, pushed, 10);
    assert!(unwilling.at.recv(Duration::from_millis(50)).unwrap().is_none());
}

#[test]
fn a_member_leaves_with_its_connection() {
    if !has_multicast() {
        return;
    }
    let mut stage = Stage::new(|config| config);
    let _sink = stage.feed();
    let [first, second] = [stage.member(config()), stage.member(config())];
    let SocketAddr::V4(group) = stage.group.address() else { panic!("a group of IPv4") };
    let address = u32::from_ne_bytes(group.ip().octets());
    let wanted = format!("{address:08X}:{:04X}", group.port());
    let sockets = || {
        let table = std::fs::read_to_string("/proc/net/udp").unwrap();
        let local = |line: &str| line.split_whitespace().nth(1).unwrap_or_default().to_owned();
        table.lines().filter(|line| local(line) == wanted).count()
    };
    assert_eq!(sockets(), 2);
    first.to.close(0, "");
    until("the socket is closed", || sockets() == 1);
    until("one member is left", || stage.group.stats().unwrap().members == 1);
    assert_eq!(stage.group.invite(&first.to), Err(InviteError::Ended));
    second.at.close(0, "");
    until("the socket is closed", || sockets() == 0);
    until("nobody is left", || stage.group.stats().unwrap().members == 0);
}

#[test]
fn invalid_groups_and_invitations_are_refused() {
    let node = node();
    let rate = Rate::from_bits_per_sec(1_000_000);
    for wrong in ["127.0.0.1:5004", "239.255.77.1:0"] {
        let made = node.group(&GroupConfig::new(wrong.parse().unwrap(), rate));
        assert!(matches!(made, Err(GroupError::Config(GroupConfigError::Address(_)))), "{wrong}");
    }
    let there = "239.255.77.1:5004".parse().unwrap();
    let small = node.group(&GroupTransportConfig::new(there, rate).datagram(1199).into());
    assert!(matches!(small, Err(GroupError::Config(GroupConfigError::Datagram(1199)))));
    let group = node.group(&GroupConfig::new(there, rate)).unwrap();
    let others = pair();
    assert_eq!(group.invite(&others.sending), Err(InviteError::OtherNode));
    drop(node);
    assert!(group.stats().is_none());
}

#[test]
fn a_stopped_node_ends_the_sinks_of_its_groups() {
    let mut stage = Stage::new(|config| config);
    let sink = stage.feed();
    let pushed = stage.push(&sink, 1, 10);
    let Stage { node, mut sender, .. } = stage;
    drop(node);
    assert_eq!(sink.ended(), Some(Ended::Broken(SinkError::Stopped)));
    assert_eq!(sender.poll_fate(sink.id()).unwrap().unwrap().seq, pushed.start);
}

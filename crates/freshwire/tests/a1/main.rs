//! Sinks over A1 on loopback: real sockets, real threads.
#![allow(clippy::unwrap_used, reason = "a test")]

mod buffers;
mod byte_stream;
mod events;
mod fallback;
mod groups;
mod newcomers;
mod quality;
mod relay;
mod socket;
mod stalls;
mod stop;
mod threads;
#[path = "../until/mod.rs"]
mod until;

use std::time::Duration;

use until::{found, until};

use freshwire::a1::{
    AcceptError, BindError, Closed, ConnectConfig, ConnectError, Connection, ConnectionConfig,
    ConnectionStatus, Message, Missing, Node, NodeConfig, Protection, Qos, QosError, SinkConfig,
};
use freshwire::choice::Reason;
use freshwire::sink::{CarrierInUse, CloseMode, SinkError};
use freshwire::{Ended, Meta, Outcome, RingConfig, Sender, SenderError, Sink, choice, now};

const PATIENCE: Duration = Duration::from_secs(20);

struct Pair {
    _near: Node,
    _far: Node,
    sending: Connection,
    receiving: Connection,
}

fn node() -> Node {
    bind(NodeConfig::new().unwrap())
}

/// A node whose connections have at most this quality of service.
fn limited(maximum: Qos) -> NodeConfig {
    NodeConfig::new().unwrap().connection(ConnectionConfig::default().maximum(maximum))
}

fn bind(config: NodeConfig) -> Node {
    Node::bind("127.0.0.1:0".parse().unwrap(), config).unwrap()
}

fn connect(near: &Node, far: &Node) -> (Connection, Connection) {
    let address = far.local_addr().unwrap();
    let sending = near.connect(address, &far.public_key(), &ConnectConfig::default()).unwrap();
    let receiving = far.accept(PATIENCE).unwrap().unwrap();
    (sending, receiving)
}

fn pair() -> Pair {
    let (near, far) = (node(), node());
    let (sending, receiving) = connect(&near, &far);
    Pair { _near: near, _far: far, sending, receiving }
}

fn sender(rings: u32) -> Sender {
    Sender::without_engine(&RingConfig { rings, slots: 256, block_bytes: 4096, blocks: 512 }).unwrap()
}

fn meta(seq: u64) -> Meta {
    Meta { seq, generated: now(), ..Meta::default() }
}

fn message(connection: &Connection) -> Message {
    connection.recv(PATIENCE).unwrap().expect("a message")
}

#[test]
fn records_arrive_whole_and_their_fates_say_so() {
    let pair = pair();
    let mut sender = sender(1);
    let sink = sender.add_a1_sink(&pair.sending, SinkConfig::new(choice::fifo())).unwrap();
    let payloads: Vec<Vec<u8>> =
        (0..50u8).map(|seq| (0..usize::from(seq) * 300).map(|at| at as u8 ^ seq).collect()).collect();
    for (seq, payload) in payloads.iter().enumerate() {
        let meta = Meta { layer: 3, group: 7, key: 9, ..meta(seq as u64) };
        sender.push(sink.id(), payload, &meta).unwrap();
    }
    let mut arrived: Vec<_> = payloads.iter().map(|_| message(&pair.receiving)).collect();
    arrived.sort_by_key(|message| message.seq);
    for (message, payload) in arrived.iter().zip(&payloads) {
        assert_eq!((message.layer, message.group, message.key), (3, 7, 9));
        assert_eq!(&message.data, payload);
        assert!(!message.late && message.age < PATIENCE);
    }
    let id = sink.id();
    let monitor = sink.monitor();
    assert_eq!(sink.close(CloseMode::Drain, PATIENCE), Ended::Closed);
    for _ in 0..50 {
        let fate = sender.poll_fate(id).unwrap().unwrap();
        assert_eq!(fate.outcome, Outcome::Acked);
        assert!(fate.committed_at <= fate.acked_at);
    }
    let stats = monitor.stats();
    assert_eq!((stats.carrier, stats.committed, stats.finished), (CarrierInUse::A1, 50, 50));
    assert!(stats.bytes > stats.acked && stats.acked > 0);
    assert!(matches!(pair.receiving.recv(PATIENCE), Err(Closed::Peer { code: 0, .. })));
}

#[test]
fn a_sink_that_is_refused_costs_no_ring() {
    let (pair, ended) = (self::pair(), self::pair());
    let mut all = sender(2);
    let config = || SinkConfig::new(choice::fifo());
    let mut first = sender(2);
    let _sink = first.add_a1_sink(&pair.sending, config()).unwrap();
    ended.sending.close(0, "");
    until("the connection has ended", || ended.sending.closed().is_some());
    for time in 0..10_000 {
        let connection = if time % 2 == 0 { &pair.sending } else { &ended.sending };
        let refused = all.add_a1_sink(connection, config()).map(|sink| sink.id());
        assert!(!matches!(refused, Ok(_) | Err(SenderError::Claim(_))), "{time}: {refused:?}");
    }
    let more = [self::pair(), self::pair()];
    let sinks: Vec<_> = more.iter().map(|pair| all.add_a1_sink(&pair.sending, config()).unwrap()).collect();
    for (sink, pair) in sinks.iter().zip(&more) {
        all.push(sink.id(), b"after", &meta(1)).unwrap();
        assert_eq!(message(&pair.receiving).data, &b"after"[..]);
    }
}

#[test]
fn both_ends_of_a_connection_can_be_sinks() {
    let pair = pair();
    let mut sender = sender(2);
    let there = sender.add_a1_sink(&pair.sending, SinkConfig::new(choice::fifo())).unwrap();
    let back = sender.add_a1_sink(&pair.receiving, SinkConfig::new(choice::fifo())).unwrap();
    sender.push(there.id(), b"ask", &meta(1)).unwrap();
    assert_eq!(message(&pair.receiving).data[..], *b"ask");
    sender.push(back.id(), b"answer", &meta(2)).unwrap();
    assert_eq!(message(&pair.sending).data[..], *b"answer");
    let again = sender.add_a1_sink(&pair.sending, SinkConfig::new(choice::fifo()));
    assert!(matches!(again, Err(SenderError::Claim(_) | SenderError::HasSink)));
}

/// Fills the window of a receiver that takes nothing, so that what is pushed next stays in the ring.
fn fill(sender: &mut Sender, sink: &Sink) -> u64 {
    let qos_window = u64::from(NARROW.outstanding);
    for seq in 0..qos_window {
        sender.push(sink.id(), &seq.to_be_bytes(), &meta(seq)).unwrap();
    }
    until("the window is full", || sink.stats().finished == qos_window);
    qos_window
}

const NARROW: Qos = Qos {
    outstanding: 4,
    max_send_message: 4096,
    max_receive_message: 4096,
    send_average: None,
    send_burst: 1 << 16,
    receive_average: None,
    receive_burst: 1 << 16,
    priority: 0,
    checksum: true,
    retransmission: true,
};

/// A connection whose window holds four messages.
fn narrow_pair() -> Pair {
    let narrow = || bind(limited(NARROW));
    let (near, far) = (narrow(), narrow());
    let (sending, receiving) = connect(&near, &far);
    Pair { _near: near, _far: far, sending, receiving }
}

#[test]
fn waiting_records_can_be_dropped_changed_and_replaced() {
    let pair = narrow_pair();
    let mut sender = sender(1);
    let sink = sender.add_a1_sink(&pair.sending, SinkConfig::new(choice::fifo())).unwrap();
    let id = sink.id();
    let first = fill(&mut sender, &sink);
    for (seq, payload) in (first..).zip([b"dropped", b"changed", b"old one"]) {
        sender.push(id, payload, &Meta { key: seq, ..meta(seq) }).unwrap();
    }
    assert_eq!(sender.drop_seq(id, first), Ok(true));
    sender.modify(id, first + 1, |edit| edit.write(0, b"CHANGED")).unwrap();
    let _in_place = sender.replace(id, b"new one", &Meta { key: first + 2, ..meta(first + 3) }).unwrap();
    let arrived: Vec<_> = (0..first + 2).map(|_| message(&pair.receiving)).collect();
    let rest: Vec<_> = arrived[first as usize..].iter().map(|it| (it.seq, &it.data[..])).collect();
    assert_eq!(rest, [(first + 1, &b"CHANGED"[..]), (first + 3, b"new one")]);
    assert_eq!(sink.close(CloseMode::Drain, PATIENCE), Ended::Closed);
    let fates: Vec<_> = sender.fates(id).unwrap().collect();
    let dropped: Vec<_> = fates
        .iter()
        .filter(|fate| matches!(fate.outcome, Outcome::Dropped(_)))
        .map(|fate| fate.seq)
        .collect();
    assert_eq!(dropped, [first]);
}

#[test]
fn an_expired_record_is_not_sent_and_the_receiver_is_notified() {
    let pair = narrow_pair();
    let mut sender = sender(1);
    let policy = SinkConfig::new(choice::deadline(Duration::ZERO));
    let sink = sender.add_a1_sink(&pair.sending, policy).unwrap();
    let first = fill(&mut sender, &sink);
    let deadline = now() + Duration::from_millis(30);
    for seq in first..first + 3 {
        sender.push(sink.id(), b"stale", &Meta { deadline, ..meta(seq) }).unwrap();
    }
    // Pause: the deadlines pass.
    std::thread::sleep(Duration::from_millis(60));
    sender.push(sink.id(), b"fresh", &meta(first + 3)).unwrap();
    let arrived: Vec<_> = (0..=first).map(|_| message(&pair.receiving).seq).collect();
    assert_eq!(arrived.last(), Some(&(first + 3)), "{arrived:?}");
    let mut missing = Vec::new();
    while missing.iter().sum::<u64>() < 3 {
        match found("a report of missing records", || pair.receiving.poll_missing()) {
            Missing::NeverCommitted { first: seq, count, .. } => {
                assert!((first..first + 3).contains(&seq));
                missing.push(count);
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(sink.stats().drops, [(Reason::Expired, 3)]);
}

#[test]
fn finish_record_delivers_committed_records_and_drops_the_rest() {
    let pair = narrow_pair();
    let mut sender = sender(1);
    let sink = sender.add_a1_sink(&pair.sending, SinkConfig::new(choice::fifo())).unwrap();
    let id = sink.id();
    let first = fill(&mut sender, &sink);
    sender.push(id, b"uncommitted", &meta(first)).unwrap();
    assert_eq!(sink.close(CloseMode::FinishRecord, PATIENCE), Ended::Closed);
    let fates: Vec<_> = sender.fates(id).unwrap().collect();
    assert_eq!(fates.len() as u64, first + 1);
    let closed = Outcome::Dropped(Reason::Closed);
    assert_eq!(fates.last().map(|fate| fate.outcome), Some(closed));
    // What had come is there to be taken after the end.
    for _ in 0..first {
        message(&pair.receiving);
    }
    assert!(matches!(pair.receiving.recv(PATIENCE), Err(Closed::Peer { code: 0, .. })));
}

#[test]
fn an_aborted_sink_tells_the_peer() {
    let pair = narrow_pair();
    let mut sender = sender(1);
    let sink = sender.add_a1_sink(&pair.sending, SinkConfig::new(choice::fifo())).unwrap();
    let first = fill(&mut sender, &sink);
    sender.push(sink.id(), b"given up", &meta(first)).unwrap();
    assert_eq!(sink.close(CloseMode::Abort, PATIENCE), Ended::Closed);
    for _ in 0..first {
        message(&pair.receiving);
    }
    let closed = pair.receiving.recv(PATIENCE);
    assert!(matches!(closed, Err(Closed::Peer { code: 256, .. })), "{closed:?}");
}

#[test]
fn a_peer_that_closes_ends_the_sink_and_resolves_every_record() {
    let pair = narrow_pair();
    let mut sender = sender(1);
    let sink = sender.add_a1_sink(&pair.sending, SinkConfig::new(choice::fifo())).unwrap();
    let first = fill(&mut sender, &sink);
    sender.push(sink.id(), b"too late", &meta(first)).unwrap();
    pair.receiving.close(300, "seen enough");
    let ended = found("the sink ends", || sink.ended());
    let closed = Closed::Peer { code: 300, reason: "seen enough".to_owned() };
    assert_eq!(ended, Ended::Broken(SinkError::A1(closed)));
    assert!(sender.push(sink.id(), b"x", &meta(99)).is_err());
    let fates: Vec<_> = sender.fates(sink.id()).unwrap().collect();
    assert_eq!(fates.len() as u64, first + 1);
    let lost = Outcome::Dropped(Reason::ConnectionLost);
    assert_eq!(fates.last().map(|fate| fate.outcome), Some(lost));
}

#[test]
fn a_slow_sink_does_not_hold_the_other_one() {
    let (near, far) = (node(), node());
    let narrow = bind(limited(NARROW));
    let (to_fast, fast) = connect(&near, &far);
    let (to_slow, _slow) = connect(&near, &narrow);
    let mut sender = sender(2);
    let sinks = [&to_fast, &to_slow]
        .map(|connection| sender.add_a1_sink(connection, SinkConfig::new(choice::fifo())).unwrap());
    for seq in 0..200u64 {
        let rings = sinks.iter().map(Sink::id);
        assert_eq!(sender.push_to_all(rings, &[7; 1000], &meta(seq)).unwrap(), 2);
        assert_eq!(message(&fast).seq, seq);
    }
    assert_eq!(sinks[1].stats().committed, u64::from(NARROW.outstanding));
}

#[test]
fn a_node_with_another_key_is_not_connected_to() {
    let (near, far, other) = (node(), node(), node());
    let address = far.local_addr().unwrap();
    let config = ConnectConfig::default().timeout(Duration::from_millis(500));
    let refused = near.connect(address, &other.public_key(), &config);
    assert!(matches!(refused, Err(ConnectError::Failed(_))), "{:?}", refused.err());
    assert!(far.accept(Duration::ZERO).unwrap().is_none());
}

#[test]
fn an_ipv4_mapped_address_reaches_an_ipv4_node() {
    let far = node();
    let mapped = |node: &Node| {
        let address = node.local_addr().unwrap();
        format!("[::ffff:{}]:{}", address.ip(), address.port())
    };
    let config = ConnectConfig::default().timeout(PATIENCE);
    for near in ["[::]:0", "127.0.0.1:0"] {
        let near = Node::bind(near.parse().unwrap(), NodeConfig::new().unwrap()).unwrap();
        let connection = near.connect(&*mapped(&far), &far.public_key(), &config).unwrap();
        assert_eq!(connection.peer_addr(), far.local_addr().unwrap());
    }
}

#[test]
fn connect_resolves_names_and_tries_several_addresses() {
    let (near, far) = (node(), node());
    let (at, key) = (far.local_addr().unwrap(), far.public_key());
    let config = ConnectConfig::default().timeout(Duration::from_secs(2));
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let other = "[::1]:9".parse().unwrap();
    let by_name = near.connect(("localhost", at.port()), &key, &config).unwrap();
    let by_text = near.connect(&*at.to_string(), &key, &config).unwrap();
    let of_several = near.connect(&[other, silent, at][..], &key, &config).unwrap();
    for connection in [by_name, by_text, of_several] {
        assert_eq!(connection.peer_addr(), at);
    }
    for (refused, why) in [
        (near.connect(other, &key, &config), ConnectError::Family),
        (
            near.connect("localhost", &key, &config),
            ConnectError::Unknown("invalid socket address".to_owned()),
        ),
    ] {
        assert_eq!(refused.err(), Some(why));
    }
}

#[test]
fn only_those_on_the_list_are_accepted() {
    let mut far_config = NodeConfig::new().unwrap();
    let near = node();
    far_config.endpoint.allowed = Some([near.public_key()].into());
    let far = Node::bind("[::1]:0".parse().unwrap(), far_config).unwrap();
    let stranger = Node::bind("[::1]:0".parse().unwrap(), NodeConfig::new().unwrap()).unwrap();
    let address = far.local_addr().unwrap();
    let refused = stranger.connect(address, &far.public_key(), &ConnectConfig::default());
    let text = refused.err().unwrap().to_string();
    assert!(text.contains("refused by the peer"), "{text}");
}

#[test]
fn a_connection_says_what_holds_it_and_how_it_ended() {
    let pair = narrow_pair();
    let mut sender = sender(1);
    let sink = sender.add_a1_sink(&pair.sending, SinkConfig::new(choice::fifo())).unwrap();
    assert_eq!(pair.sending.status(), ConnectionStatus::default());
    let await_status = |connection: &Connection, is_wanted: fn(&ConnectionStatus) -> bool| {
        until("the status changes", || is_wanted(&connection.status()));
    };
    let first = fill(&mut sender, &sink);
    sender.push(sink.id(), b"one too many", &meta(first)).unwrap();
    await_status(&pair.sending, |status| status.window_exceeded);
    pair.sending.set_qos(Qos { max_send_message: 100, ..NARROW }).unwrap();
    for connection in [&pair.sending, &pair.receiving] {
        await_status(connection, |status| status.qos_changed);
        assert!(!connection.status().qos_changed, "it is reported once");
    }
    for _ in 0..=first {
        message(&pair.receiving);
    }
    assert_eq!(sink.close(CloseMode::Drain, PATIENCE), Ended::Closed);
    let done = |status: &ConnectionStatus| matches!(status.closed, Some(Closed::Peer { code: 0, .. }));
    await_status(&pair.receiving, done);
    assert!(done(&pair.receiving.status()), "it stays so");
    assert_eq!(pair.sending.status().closed, Some(Closed::Local));
}

#[test]
fn a_connection_that_has_ended_gets_no_other_quality() {
    let pair = pair();
    let lower = Qos { outstanding: 2, ..Qos::default() };
    pair.sending.set_qos(lower).unwrap();
    pair.receiving.close(0, "");
    assert_eq!(pair.receiving.set_qos(lower), Err(QosError::Ended));
    assert!(pair.sending.recv(PATIENCE).is_err());
    assert_eq!(pair.sending.set_qos(lower), Err(QosError::Ended));
}

#[test]
fn a_quality_out_of_range_is_refused_before_anything_is_sent() {
    let (near, far) = (node(), bind(NodeConfig::new().unwrap().ask(true)));
    let address = far.local_addr().unwrap();
    let outstanding = |outstanding| Qos { outstanding, ..Qos::default() };
    for beyond in [
        outstanding(0),
        outstanding(Qos::MAX_OUTSTANDING + 1),
        Qos { max_send_message: Qos::MAX_MESSAGE + 1, ..Qos::default() },
        Qos { max_receive_message: Qos::MAX_MESSAGE + 1, ..Qos::default() },
    ] {
        let config = limited(beyond);
        let bound = Node::bind("127.0.0.1:0".parse().unwrap(), config);
        assert!(matches!(bound, Err(BindError::Maximum(QosError::OutOfRange { .. }))), "{:?}", bound.err());
    }
    let none = outstanding(0);
    let refused = near.connect(address, &far.public_key(), &ConnectConfig::default().qos(none));
    assert!(matches!(refused, Err(ConnectError::Qos(QosError::OutOfRange { .. }))), "{:?}", refused.err());
    let (key, config) = (far.public_key(), ConnectConfig::default());
    std::thread::scope(|scope| {
        let connecting = scope.spawn(|| near.connect(address, &key, &config));
        let incoming = far.incoming(PATIENCE).unwrap().unwrap();
        assert!(matches!(incoming.accept_within(&none), Err(AcceptError::Qos(_))));
        assert!(connecting.join().unwrap().is_err(), "it was refused");
    });
    let Pair { sending, .. } = &pair();
    assert!(matches!(sending.set_qos(none), Err(QosError::OutOfRange { .. })));
}

#[test]
fn both_ends_see_the_better_protection_of_what_they_ask_for() {
    use Protection::{Aead, DangerousPlain};
    for (ours, theirs, agreed) in
        [(Aead, DangerousPlain, Aead), (DangerousPlain, DangerousPlain, DangerousPlain)]
    {
        let bind = |least| {
            bind(NodeConfig::new().unwrap().connection(ConnectionConfig::default().protection(least)))
        };
        let [near, far] = [ours, theirs].map(bind);
        let (sending, receiving) = connect(&near, &far);
        assert_eq!((sending.protection(), receiving.protection()), (Some(agreed), Some(agreed)));
    }
}

#[test]
fn a_sink_is_waited_for_as_over_tcp() {
    let pair = pair();
    let mut sender = sender(1);
    let sink = sender.add_a1_sink(&pair.sending, SinkConfig::new(choice::fifo())).unwrap();
    let watch = freshwire::watch::SinkWatch::new(&sink).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let wait = async {
        let number = watch.push(&mut sender, b"hello", &Meta::default()).await.unwrap();
        let fate = watch.next_fate(&mut sender).await.unwrap().unwrap();
        assert_eq!((fate.seq, fate.outcome), (number, Outcome::Acked));
        drop(sink);
        assert_eq!(watch.next_fate(&mut sender).await, Ok(None));
    };
    runtime.block_on(async { tokio::time::timeout(PATIENCE, wait).await }).unwrap();
}

#[test]
fn a_stopped_node_ends_what_it_had() {
    let Pair { _near: near, _far, sending, receiving } = pair();
    let mut sender = sender(1);
    let sink = sender.add_a1_sink(&sending, SinkConfig::new(choice::fifo())).unwrap();
    drop(near);
    assert_eq!(sink.ended(), Some(Ended::Broken(SinkError::Stopped)));
    assert!(matches!(receiving.recv(PATIENCE), Err(Closed::Peer { code: 256, .. })));
    assert!(matches!(sending.recv(PATIENCE), Err(Closed::Local)));
}

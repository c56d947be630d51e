//! Newcomers, and the decisions of the node and the application on them.

use std::time::Duration;

use freshwire::a1::{
    AcceptError, Closed, ConnectConfig, ConnectError, Connection, HandshakeError, Incoming, Limits, Node,
    NodeConfig, Qos, QosError, Refusal, SinkConfig,
};
use freshwire::sink::CloseMode;
use freshwire::{Ended, choice};

use super::{NARROW, PATIENCE, bind, limited, message, meta, node, sender};

fn try_connect(near: &Node, far: &Node) -> Result<Connection, ConnectError> {
    near.connect(far.local_addr().unwrap(), &far.public_key(), &ConnectConfig::default())
}

/// The refusal that the initiator received.
fn refusal(result: Result<Connection, ConnectError>) -> Refusal {
    match result.err() {
        Some(ConnectError::Failed(HandshakeError::Refused(refusal))) => refusal,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_node_keeps_to_its_limits_and_counts_whom_it_refused() {
    let limits = Limits { connections: 1, ..Limits::default() };
    let mut config = NodeConfig::new().unwrap();
    config.endpoint.limits = limits;
    let far = bind(config);
    let near = node();
    let _first = try_connect(&near, &far).unwrap();
    assert_eq!(far.stats().refused, 0);
    let refusal = refusal(try_connect(&near, &far));
    assert_eq!((refusal.code, &*refusal.text), (Refusal::BUSY, "too many connections"));
    assert_eq!((far.stats().refused, far.stats().retries), (1, 2));
}

#[test]
fn a_full_backlog_refuses_newcomers_until_one_is_accepted() {
    let far = bind(NodeConfig::new().unwrap().backlog(2));
    let near = node();
    let _two: Vec<_> = (0..2).map(|_| try_connect(&near, &far).unwrap()).collect();
    let refusal = refusal(try_connect(&near, &far));
    assert_eq!((refusal.code, &*refusal.text), (Refusal::BUSY, "too many connections wait to be accepted"));
    let _one = far.accept(PATIENCE).unwrap().unwrap();
    let _another = try_connect(&near, &far).unwrap();
    for _ in 0..2 {
        let accepted = far.accept(PATIENCE).unwrap().unwrap();
        assert_eq!(accepted.closed(), None);
    }
    assert!(far.accept(Duration::ZERO).unwrap().is_none());
}

#[test]
fn an_ended_newcomer_keeps_its_place_only_with_unread_messages() {
    let far = bind(NodeConfig::new().unwrap().backlog(1));
    let near = node();
    drop(try_connect(&near, &far).unwrap());
    let second = try_connect(&near, &far).unwrap();
    let mut sender = sender(1);
    let sink = sender.add_a1_sink(&second, SinkConfig::new(choice::fifo())).unwrap();
    sender.push(sink.id(), b"left behind", &meta(1)).unwrap();
    assert_eq!(sink.close(CloseMode::Drain, PATIENCE), Ended::Closed);
    assert_eq!(refusal(try_connect(&near, &far)).code, Refusal::BUSY, "it keeps its place");
    let accepted = far.accept(PATIENCE).unwrap().unwrap();
    assert_eq!(message(&accepted).data[..], *b"left behind");
    assert!(matches!(accepted.recv(PATIENCE), Err(Closed::Peer { code: 0, .. })));
}

#[test]
fn a_node_that_only_connects_ignores_whoever_tries() {
    let mut config = NodeConfig::new().unwrap();
    config.endpoint.accept = false;
    let far = bind(config);
    let config = ConnectConfig::default().timeout(Duration::from_millis(200));
    let ignored = node().connect(far.local_addr().unwrap(), &far.public_key(), &config);
    assert!(matches!(ignored.err(), Some(ConnectError::Failed(HandshakeError::NoAnswer))));
}

fn asking() -> Node {
    bind(NodeConfig::new().unwrap().ask(true))
}

/// What comes of connecting to a node that decides like this.
fn decided<T>(
    near: &Node,
    far: &Node,
    decide: impl FnOnce(Incoming) -> T,
) -> (Result<Connection, ConnectError>, T) {
    std::thread::scope(|scope| {
        let connecting = scope.spawn(|| try_connect(near, far));
        let incoming = far.incoming(PATIENCE).unwrap().unwrap();
        assert_eq!(incoming.peer_addr(), near.local_addr().unwrap());
        assert_eq!(incoming.peer_key(), near.public_key());
        let decided = decide(incoming);
        (connecting.join().unwrap(), decided)
    })
}

#[test]
fn the_application_narrows_what_a_newcomer_gets() {
    let (near, far) = (node(), asking());
    let narrow = Qos { max_receive_message: 1000, outstanding: 3, ..Qos::default() };
    let (connected, accepted) = decided(&near, &far, |incoming| {
        assert_eq!((incoming.qos(), incoming.maximum()), (Qos::default(), Qos::default()));
        incoming.accept_within(&narrow).unwrap()
    });
    let connection = connected.unwrap();
    let agreed = connection.qos().unwrap();
    assert_eq!((agreed.max_send_message, agreed.outstanding), (1000, 3));
    assert_eq!(accepted.qos().unwrap(), agreed.mirrored());
    assert_eq!((connection.maximum(), accepted.maximum()), (Some(agreed), Some(agreed.mirrored())));
    for end in [&connection, &accepted] {
        let wider = end.set_qos(Qos { outstanding: 4, ..end.qos().unwrap() });
        assert!(matches!(wider, Err(QosError::BeyondMaximum(_))), "{wider:?}");
        end.set_qos(end.maximum().unwrap()).unwrap();
    }
}

#[test]
fn the_application_never_widens_what_the_node_gives() {
    let (near, far) = (node(), bind(limited(NARROW).ask(true)));
    let wide = Qos::default();
    let (connected, _accepted) = decided(&near, &far, |incoming| incoming.accept_within(&wide).unwrap());
    assert_eq!(connected.unwrap().qos().unwrap().outstanding, NARROW.outstanding);
}

#[test]
fn a_refused_newcomer_receives_the_reason() {
    let (near, far) = (node(), asking());
    let (connected, ()) = decided(&near, &far, |incoming| incoming.refuse(300, "come back tomorrow"));
    let text = connected.as_ref().err().unwrap().to_string();
    assert_eq!(text, "refused by the peer: come back tomorrow (code 300)");
    assert_eq!(refusal(connected), Refusal::new(300, "come back tomorrow"));
    let (dropped, ()) = decided(&near, &far, drop);
    assert_eq!(refusal(dropped).code, 256);
}

#[test]
fn accept_takes_whom_the_application_would_be_asked_about() {
    let (near, far) = (node(), asking());
    std::thread::scope(|scope| {
        let connecting = scope.spawn(|| try_connect(&near, &far).unwrap());
        let accepted = far.accept(PATIENCE).unwrap().unwrap();
        let mut sender = sender(1);
        // It need not wait for the initiator.
        let sink = sender.add_a1_sink(&accepted, SinkConfig::new(choice::fifo())).unwrap();
        sender.push(sink.id(), b"welcome", &meta(1)).unwrap();
        assert_eq!(message(&connecting.join().unwrap()).data[..], *b"welcome");
    });
}

#[test]
fn an_undecided_newcomer_keeps_its_place_until_the_time_limit() {
    let limits = Limits { handshake_time: Duration::from_millis(300), ..Limits::default() };
    let mut config = NodeConfig::new().unwrap().ask(true).backlog(1);
    config.endpoint.limits = limits;
    let far = bind(config);
    let (near, other) = (node(), node());
    let config = ConnectConfig::default().timeout(Duration::from_millis(150));
    let (address, key) = (far.local_addr().unwrap(), far.public_key());
    let ignored = near.connect(address, &key, &config);
    assert!(matches!(ignored.err(), Some(ConnectError::Failed(HandshakeError::NoResponse))));
    assert_eq!(refusal(try_connect(&other, &far)).code, Refusal::BUSY);
    let late = far.incoming(PATIENCE).unwrap().unwrap();
    // Pause: the handshake's time passes.
    std::thread::sleep(limits.handshake_time);
    assert_eq!(late.accept().err(), Some(AcceptError::Gone));
    assert!(near.connect(address, &key, &config).is_err());
    // Pause: another attempt would have come by now.
    std::thread::sleep(2 * limits.handshake_time);
    assert!(far.incoming(Duration::ZERO).unwrap().is_none());
}

//! Who wants to connect, and what the node or the application says to that.

use std::time::Duration;

use freshwire::a1::{
    Closed, ConnectConfig, ConnectError, Connection, HandshakeError, Limits, Node, NodeConfig, Refusal,
    SinkConfig,
};
use freshwire::{CloseMode, Ended, choice};

use super::{PATIENCE, bind, message, meta, node, sender};

fn try_connect(near: &Node, far: &Node) -> Result<Connection, ConnectError> {
    near.connect(far.local_addr().unwrap(), &far.public_key(), &ConnectConfig::default())
}

/// What the initiator was told.
fn refusal(result: Result<Connection, ConnectError>) -> Refusal {
    match result.err() {
        Some(ConnectError::Failed(HandshakeError::Refused(refusal))) => refusal,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_node_keeps_to_its_limits_and_counts_whom_it_refused() {
    let limits = Limits { connections: 1, ..Limits::default() };
    let far = bind(NodeConfig::new().unwrap().limits(limits));
    let near = node();
    let _first = try_connect(&near, &far).unwrap();
    assert_eq!(far.stats().refused, 0);
    let refusal = refusal(try_connect(&near, &far));
    assert_eq!((refusal.code, &*refusal.text), (Refusal::BUSY, "too many connections"));
    assert_eq!((far.stats().refused, far.stats().retries), (1, 2));
}

#[test]
fn whoever_finds_the_backlog_full_is_refused_until_one_was_accepted() {
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
fn a_newcomer_that_ends_leaves_the_backlog_unless_it_has_left_something_to_read() {
    let far = bind(NodeConfig::new().unwrap().backlog(1));
    let near = node();
    drop(try_connect(&near, &far).unwrap());
    let second = try_connect(&near, &far).unwrap();
    let mut sender = sender(1);
    let sink = sender.add_a1_sink(&second, SinkConfig::new(choice::fifo())).unwrap();
    sender.push(sink.ring(), b"left behind", &meta(1)).unwrap();
    assert_eq!(sink.close(CloseMode::Drain, PATIENCE), Ended::Closed);
    assert_eq!(refusal(try_connect(&near, &far)).code, Refusal::BUSY, "it keeps its place");
    let accepted = far.accept(PATIENCE).unwrap().unwrap();
    assert_eq!(message(&accepted).data[..], *b"left behind");
    assert!(matches!(accepted.recv(PATIENCE), Err(Closed::Peer { code: 0, .. })));
}

#[test]
fn a_node_that_only_connects_ignores_whoever_tries() {
    let far = bind(NodeConfig::new().unwrap().accept(false));
    let config = ConnectConfig::default().timeout(Duration::from_millis(200));
    let ignored = node().connect(far.local_addr().unwrap(), &far.public_key(), &config);
    assert!(matches!(ignored.err(), Some(ConnectError::Failed(HandshakeError::NoAnswer))));
}

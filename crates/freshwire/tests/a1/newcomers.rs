//! Who wants to connect, and what the node or the application says to that.

use freshwire::a1::{
    ConnectConfig, ConnectError, Connection, HandshakeError, Limits, Node, NodeConfig, Refusal,
};

use super::{bind, node};

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

//! Nodes that are stopped while others use them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use freshwire::a1::{AcceptError, ConnectConfig, ConnectError, Node, NodeConfig, NodeStopped, SinkConfig};
use freshwire::choice::{Choice, Decision, LinkView, Record};
use freshwire::sink::SinkError;
use freshwire::{Ended, Timestamp};

use super::{PATIENCE, bind, connect, found, meta, node, pair, sender, until};

/// Longer than any test: only the stop ends such a wait.
const FOREVER: Duration = Duration::from_secs(3600);

/// What comes of a call that another thread makes on a node which is stopped meanwhile.
fn stopped_during<T: Send + 'static>(node: Node, call: impl FnOnce(&Node) -> T + Send + 'static) -> T {
    let node = Arc::new(node);
    let ((started, starts), (ended, ends)) = (channel(), channel());
    let shared = Arc::clone(&node);
    std::thread::spawn(move || {
        started.send(()).unwrap();
        let _ = ended.send(call(&shared));
    });
    starts.recv_timeout(PATIENCE).unwrap();
    node.stop();
    ends.recv_timeout(PATIENCE).expect("the call ends")
}

fn asking() -> Node {
    bind(NodeConfig::new().unwrap().ask(true))
}

#[test]
fn calls_that_wait_end_with_the_node_and_so_do_later_ones() {
    assert_eq!(stopped_during(node(), |node| node.accept(FOREVER).err()), Some(NodeStopped));
    assert_eq!(stopped_during(asking(), |node| node.accept(FOREVER).err()), Some(NodeStopped));
    assert_eq!(stopped_during(asking(), |node| node.incoming(FOREVER).err()), Some(NodeStopped));
    let key = node().public_key();
    let config = ConnectConfig::default().timeout(FOREVER);
    let connected = stopped_during(node(), move |node| node.connect("127.0.0.1:9", &key, &config).err());
    assert_eq!(connected, Some(ConnectError::Stopped));
    let node = node();
    let connecting =
        node.begin_connect("127.0.0.1:9".parse().unwrap(), &key, &ConnectConfig::default()).unwrap();
    for _ in 0..2 {
        node.stop();
        assert_eq!(connecting.poll_open().err(), Some(ConnectError::Stopped));
        assert_eq!(node.accept(FOREVER).err(), Some(NodeStopped));
        let later = node.connect("127.0.0.1:9", &key, &ConnectConfig::default());
        assert_eq!(later.err(), Some(ConnectError::Stopped));
    }
}

#[test]
fn all_threads_that_wait_are_woken_by_the_stop() {
    let node = Arc::new(node());
    let (ended, ends) = channel();
    for _ in 0..4 {
        let (node, ended) = (Arc::clone(&node), ended.clone());
        std::thread::spawn(move || ended.send(node.accept(FOREVER).err()));
    }
    node.stop();
    for _ in 0..4 {
        assert_eq!(ends.recv_timeout(PATIENCE).expect("each one ends"), Some(NodeStopped));
    }
}

#[test]
fn nobody_is_accepted_after_the_stop() {
    let (near, far, asking) = (node(), node(), asking());
    let _waits =
        near.connect(far.local_addr().unwrap(), &far.public_key(), &ConnectConfig::default()).unwrap();
    far.stop();
    assert_eq!(far.accept(Duration::ZERO).err(), Some(NodeStopped));
    let address = asking.local_addr().unwrap();
    let _asks = near.begin_connect(address, &asking.public_key(), &ConnectConfig::default()).unwrap();
    let incoming = asking.incoming(PATIENCE).unwrap().unwrap();
    asking.stop();
    assert_eq!(incoming.accept().err(), Some(AcceptError::Stopped(NodeStopped)));
}

/// Counts how often it is asked; sends nothing.
struct Asked(Arc<AtomicUsize>);

impl Choice for Asked {
    fn pick(&mut self, _now: Timestamp, _queue: &[Record], _link: &LinkView) -> Decision {
        self.0.fetch_add(1, Ordering::Relaxed);
        Decision::Wait(None)
    }
}

#[test]
fn a_policy_is_not_asked_after_the_stop() {
    let (near, far) = (node(), node());
    let (sending, receiving) = connect(&near, &far);
    let asked = Arc::<AtomicUsize>::default();
    let mut sender = sender(1);
    let sink = sender.add_a1_sink(&sending, SinkConfig::new(Asked(Arc::clone(&asked)))).unwrap();
    sender.push(sink.id(), b"waits", &meta(1)).unwrap();
    until("the policy is asked", || asked.load(Ordering::Relaxed) > 0);
    near.stop();
    let before = asked.load(Ordering::Relaxed);
    assert_eq!(sink.ended(), Some(Ended::Broken(SinkError::Stopped)));
    // Whether it is refused or not, it wakes the node.
    let _ = sender.push(sink.id(), b"late", &meta(2));
    sending.close(0, "");
    drop(near);
    assert_eq!(asked.load(Ordering::Relaxed), before);
    let code = found("the peer is notified", || receiving.closed());
    assert_eq!(code.to_string(), "closed by the peer: the node was stopped (code 256)");
}

#[test]
fn a_connection_of_a_stopped_node_ends_and_gets_no_sink() {
    let pair = pair();
    let connection = pair.sending.clone();
    let (ended, ends) = channel();
    std::thread::spawn(move || ended.send(connection.recv(FOREVER).err()));
    pair._near.stop();
    assert!(ends.recv_timeout(PATIENCE).unwrap().is_some());
    assert!(sender(1).add_a1_sink(&pair.sending, SinkConfig::new(freshwire::choice::fifo())).is_err());
}

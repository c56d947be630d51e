//! A node on several threads: one address, a socket for each, and datagrams that find their connection.

use std::time::Duration;

use freshwire::a1::{
    BindError, ConnectConfig, Connection, GroupConfig, GroupError, MAX_THREADS, Node, NodeConfig, Rate,
    SinkConfig,
};
use freshwire::choice;

use super::relay::Relay;
use super::{PATIENCE, bind, connect, message, meta, node, sender};

const CLIENTS: usize = 24;

fn threads(count: usize) -> NodeConfig {
    NodeConfig::new().unwrap().threads(count)
}

/// A client with its own node, and the server's connection with it.
fn joined(server: &Node) -> (Node, Connection, Connection) {
    let client = node();
    let (near, far) = connect(&client, server);
    (client, near, far)
}

#[test]
fn each_of_many_clients_gets_its_records_from_its_thread() {
    for count in [1, 2, 3] {
        let server = bind(threads(count));
        let clients: Vec<_> = (0..CLIENTS).map(|_| joined(&server)).collect();
        // Each connection has a sink of one sender, and gets what is meant for it.
        let mut sender = sender(CLIENTS as u32);
        let sinks: Vec<_> = clients
            .iter()
            .map(|(_, _, far)| sender.add_a1_sink(far, SinkConfig::new(choice::fifo())).unwrap())
            .collect();
        for round in 0..5 {
            for (number, sink) in sinks.iter().enumerate() {
                let text = format!("{round} for {number}");
                sender.push(sink.id(), text.as_bytes(), &meta(round)).unwrap();
            }
        }
        for (number, (_, near, _)) in clients.iter().enumerate() {
            let mut texts: Vec<_> = (0..5).map(|_| message(near).data.to_vec()).collect();
            texts.sort();
            let wanted: Vec<_> = (0..5).map(|round| format!("{round} for {number}").into_bytes()).collect();
            assert_eq!(texts, wanted, "{count} threads, client {number}");
        }
        let stats = server.stats();
        assert_eq!((stats.unknown, stats.resets), (0, 0), "{count} threads");
        assert!(stats.retries >= CLIENTS as u64, "in sum over the threads: {stats:?}");
    }
}

/// A home router gives clients other ports; whatever socket the kernel would select for these, the datagrams reach the connection.
#[test]
fn a_client_that_changes_its_address_keeps_its_connection() {
    let server = bind(threads(2));
    let mut sender = sender(8);
    let mut kept = Vec::new();
    for _ in 0..8 {
        let client = node();
        let relay = Relay::to(server.local_addr().unwrap());
        let sending =
            client.connect(relay.address(), &server.public_key(), &ConnectConfig::default()).unwrap();
        let receiving = server.accept(PATIENCE).unwrap().unwrap();
        let sink = sender.add_a1_sink(&sending, SinkConfig::new(choice::fifo())).unwrap();
        for seq in 0..4 {
            relay.rebind();
            sender.push(sink.id(), &[seq as u8], &meta(seq)).unwrap();
            assert_eq!(message(&receiving).data[..], [seq as u8]);
        }
        kept.push((client, relay, sending, receiving, sink));
    }
    let stats = server.stats();
    assert_eq!((stats.unknown, stats.resets), (0, 0));
}

/// Connections that the node makes itself take turns among its threads, and answers find them.
#[test]
fn a_node_on_several_threads_connects_too() {
    let (near, far) = (bind(threads(3)), bind(threads(2)));
    let mut sender = sender(6);
    let pairs: Vec<_> = (0..6).map(|_| connect(&near, &far)).collect();
    for (number, (sending, receiving)) in pairs.iter().enumerate() {
        let sink = sender.add_a1_sink(sending, SinkConfig::new(choice::fifo())).unwrap();
        sender.push(sink.id(), &[number as u8], &meta(1)).unwrap();
        assert_eq!(message(receiving).data[..], [number as u8]);
    }
    assert_eq!((near.stats().unknown, far.stats().unknown), (0, 0));
}

#[test]
fn stopping_ends_waiting_calls_and_connections_of_all_threads() {
    let server = bind(threads(2));
    let clients: Vec<_> = (0..8).map(|_| joined(&server)).collect();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| server.accept(PATIENCE));
        server.stop();
        assert!(waiting.join().unwrap().is_err());
    });
    for (_, near, far) in &clients {
        assert!(near.recv(PATIENCE).is_err() && far.recv(PATIENCE).is_err());
    }
    assert!(server.accept(Duration::ZERO).is_err());
}

#[test]
fn asking_works_on_several_threads() {
    let server = bind(threads(2).ask(true));
    for _ in 0..6 {
        let client = node();
        let address = server.local_addr().unwrap();
        let connecting =
            client.begin_connect(address, &server.public_key(), &ConnectConfig::default()).unwrap();
        let incoming = server.incoming(PATIENCE).unwrap().expect("an attempt");
        let _accepted = incoming.accept().unwrap();
        super::until("the handshake is complete", || connecting.poll_open().unwrap().is_some());
    }
}

#[test]
fn groups_tcp_and_wrong_numbers_of_threads_are_refused() {
    for wrong in [0, MAX_THREADS + 1] {
        let refused = Node::bind("127.0.0.1:0".parse().unwrap(), threads(wrong));
        assert!(matches!(refused.err(), Some(BindError::Threads(count)) if count == wrong));
    }
    let refused = Node::bind("127.0.0.1:0".parse().unwrap(), threads(2).tcp_fallback(true));
    assert!(matches!(refused.err(), Some(BindError::ThreadsOverTcp)));
    let server = bind(threads(2));
    let address = "239.1.2.3:5000".parse().unwrap();
    let group = GroupConfig::new(address, Rate::from_bits_per_sec(1_000_000));
    assert!(matches!(server.group(&group).err(), Some(GroupError::Threads)));
    // Neither one thread nor several share an address with somebody else.
    let address = server.local_addr().unwrap();
    for count in [1, 2] {
        assert!(matches!(Node::bind(address, threads(count)).err(), Some(BindError::Socket(_))), "{count}");
    }
}

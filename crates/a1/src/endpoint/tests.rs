mod handshake;
mod hostile;
mod key_log;
mod limits;
mod quality;
mod reset;

use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use bytes::Bytes;
use freshwire_choice::Record;
use freshwire_record::Timestamp;

use super::*;
use crate::config::Limits;
use crate::crypto::StaticKey;
use crate::source::Queue;

const CLIENT: usize = 0;
const SERVER: usize = 1;

/// A datagram on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
struct InFlight {
    from: SocketAddr,
    to: SocketAddr,
    bytes: Vec<u8>,
}

/// An endpoint with what its owner keeps.
struct Node {
    address: SocketAddr,
    endpoint: Endpoint,
    sources: BTreeMap<ConnectionHandle, Queue>,
    events: Vec<EndpointEvent>,
    received: Vec<(ConnectionHandle, Vec<u8>)>,
    /// Accepts who wants to connect, with this.
    accepts: Option<ConnectionConfig>,
}

/// Nodes on a network with a delay of 10 ms, which loses the packets that a test names and remembers
/// everything.
struct World {
    now: Timestamp,
    nodes: Vec<Node>,
    flying: VecDeque<(Timestamp, InFlight)>,
    history: Vec<InFlight>,
    /// Datagrams that are lost, by their place in the history.
    losses: Vec<usize>,
}

fn seconds(seconds: u64) -> Timestamp {
    Timestamp::ZERO + Duration::from_secs(seconds)
}

fn key(name: u8) -> StaticKey {
    StaticKey::generate([name; 32])
}

fn client_config() -> EndpointConfig {
    EndpointConfig::new(key(1)).accept(false)
}

fn server_config() -> EndpointConfig {
    EndpointConfig::new(key(2))
}

impl Node {
    fn new(address: &str, config: EndpointConfig, seed: u8) -> Self {
        Self {
            address: address.parse().unwrap(),
            endpoint: Endpoint::new(config, [seed; 32]),
            sources: BTreeMap::new(),
            events: Vec::new(),
            received: Vec::new(),
            accepts: Some(ConnectionConfig::default()),
        }
    }

    fn datagram<'a>(&self, flying: &'a mut InFlight) -> Datagram<'a> {
        Datagram {
            from: flying.from.into(),
            to: Some(self.address.ip()),
            marked: false,
            bytes: &mut flying.bytes,
        }
    }

    /// Empties all queues, as the documentation of [`Endpoint`] says.
    fn drain(&mut self, now: Timestamp) -> Vec<InFlight> {
        let mut sent = Vec::new();
        while let Some(event) = self.endpoint.poll_event() {
            if let (EndpointEvent::Incoming(incoming), Some(config)) = (&event, &self.accepts) {
                self.endpoint.accept(now, incoming.handle, config.clone()).unwrap();
            }
            self.events.push(event);
        }
        let mut out = Vec::new();
        while let Some(outgoing) = self.endpoint.poll_handshake(&mut out) {
            self.fly(&mut sent, outgoing, &mut out);
        }
        while let Some(handle) = self.endpoint.next_ready() {
            while let Some(message) = self.endpoint.recv(now, handle) {
                self.received.push((handle, message.data.to_vec()));
            }
            let source = self.sources.entry(handle).or_default();
            while let Some(outgoing) = self.endpoint.poll_transmit(now, handle, source, &mut out) {
                let mut datagrams = Vec::new();
                assert_eq!(outgoing.bytes, out.len());
                for bytes in out.chunks(outgoing.segment) {
                    datagrams.push(InFlight {
                        from: self.address,
                        to: outgoing.to.address,
                        bytes: bytes.to_vec(),
                    });
                }
                sent.append(&mut datagrams);
                out.clear();
            }
        }
        while let Some(event) = self.endpoint.poll_event() {
            self.events.push(event);
        }
        sent
    }

    fn fly(&self, sent: &mut Vec<InFlight>, outgoing: Outgoing, out: &mut Vec<u8>) {
        assert_eq!((outgoing.bytes, outgoing.segment), (out.len(), out.len()));
        assert!(outgoing.from.is_none_or(|from| from == self.address.ip()));
        sent.push(InFlight { from: self.address, to: outgoing.to.address, bytes: std::mem::take(out) });
    }

    fn push(&mut self, handle: ConnectionHandle, payload: &[u8]) {
        let source = self.sources.entry(handle).or_default();
        source.push(Record::numbered(0), Bytes::copy_from_slice(payload));
        self.endpoint.wake(handle);
    }

    fn connected(&self) -> Vec<ConnectionHandle> {
        let connected = |event: &EndpointEvent| match event {
            EndpointEvent::Connected(handle) => Some(*handle),
            _ => None,
        };
        self.events.iter().filter_map(connected).collect()
    }

    fn failures(&self) -> Vec<ConnectError> {
        let failed = |event: &EndpointEvent| match event {
            EndpointEvent::Failed(_, error) => Some(error.clone()),
            _ => None,
        };
        self.events.iter().filter_map(failed).collect()
    }

    fn incoming(&self) -> Vec<Incoming> {
        let incoming = |event: &EndpointEvent| match event {
            EndpointEvent::Incoming(incoming) => Some(*incoming),
            _ => None,
        };
        self.events.iter().filter_map(incoming).collect()
    }
}

impl World {
    fn new(client: EndpointConfig, server: EndpointConfig) -> Self {
        Self::with_seed(11, client, server)
    }

    fn with_seed(seed: u8, client: EndpointConfig, server: EndpointConfig) -> Self {
        let nodes = vec![Node::new("192.0.2.1:4001", client, seed), Node::new("192.0.2.2:4002", server, 12)];
        Self { now: seconds(1), nodes, flying: VecDeque::new(), history: Vec::new(), losses: Vec::new() }
    }

    fn client(&mut self) -> &mut Node {
        &mut self.nodes[CLIENT]
    }

    fn server(&mut self) -> &mut Node {
        &mut self.nodes[SERVER]
    }

    fn connect(&mut self) -> ConnectionHandle {
        self.connect_with(&ConnectConfig::default(), ConnectionConfig::default())
    }

    fn connect_with(&mut self, config: &ConnectConfig, connection: ConnectionConfig) -> ConnectionHandle {
        let (address, key) = (self.nodes[SERVER].address, self.nodes[SERVER].endpoint.public_key());
        let now = self.now;
        self.client().endpoint.connect(now, address, key, config, connection).unwrap()
    }

    /// A world with an established connection: its handles at the client and at the server.
    fn connected() -> (Self, ConnectionHandle, ConnectionHandle) {
        let mut world = Self::new(client_config(), server_config());
        let ours = world.connect();
        world.run(Duration::from_secs(1));
        let theirs = *world.server().connected().first().expect("the server has the connection");
        assert_eq!(world.client().connected(), [ours]);
        (world, ours, theirs)
    }

    /// What the nodes have to send goes on its way.
    fn launch(&mut self) {
        for node in &mut self.nodes {
            for flying in node.drain(self.now) {
                if !self.losses.contains(&self.history.len()) {
                    self.flying.push_back((self.now + DELAY, flying.clone()));
                }
                self.history.push(flying);
            }
        }
    }

    /// Gives a datagram to whoever has its address.
    fn deliver(&mut self, flying: &InFlight) {
        let now = self.now;
        if let Some(node) = self.nodes.iter_mut().find(|node| node.address == flying.to) {
            let flying = &mut flying.clone();
            let datagram = node.datagram(flying);
            node.endpoint.handle_datagram(now, datagram);
        }
    }

    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            self.launch();
            let timers = self.nodes.iter().filter_map(|node| node.endpoint.poll_timeout());
            let arrival = self.flying.front().map(|(at, _)| *at);
            let next = timers.chain(arrival).min().unwrap_or(Timestamp::MAX);
            if next > end {
                self.now = end;
                return;
            }
            self.now = self.now.max(next);
            while self.flying.front().is_some_and(|(at, _)| *at <= self.now) {
                if let Some((_, flying)) = self.flying.pop_front() {
                    self.deliver(&flying);
                }
            }
            for node in &mut self.nodes {
                node.endpoint.handle_timeout(self.now);
            }
        }
    }

    /// Datagrams that a node has sent.
    fn sent_by(&self, node: usize) -> Vec<&InFlight> {
        self.history.iter().filter(|flying| flying.from == self.nodes[node].address).collect()
    }

    fn hash(&self) -> Vec<u8> {
        let bytes: Vec<u8> = self.history.iter().flat_map(|flying| flying.bytes.clone()).collect();
        digest(&SHA256, &bytes).as_ref().to_vec()
    }
}

const DELAY: Duration = Duration::from_millis(10);

//! Endpoints across paths, in virtual time.
//!
//! ```text
//!  near nodes                    paths                          far nodes
//!  ┌────────────────┐   ┌──────────────────────┐   ┌──────────────────────────┐
//!  │ Endpoint       ├──►│ up: Pipe             ├──►│ Endpoint, one flow each  │
//!  │ one flow, many │   │ shared by its flows  │   │                          │
//!  │ flows          │◄──┤ down: Pipe           │◄──┤                          │
//!  └────────────────┘   └──────────────────────┘   └──────────────────────────┘
//! ```

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use freshwire_a1::{ConnectConfig, Connection, ConnectionHandle, Datagram, EndpointEvent, Event, Outgoing};
use freshwire_link::{Counters, Direction};
use freshwire_record::Timestamp;

use crate::feed::Feed;
use crate::flow::{Flow, FlowConfig, Side};
use crate::node::Node;
use crate::pipe::{DirectionConfig, DirectionStats, Packet, Pipe};
use crate::rng::Rng;

/// Endpoints, paths, and the time. Nothing in it depends on anything but its seed and the calls: the same give the same
/// datagrams, which [`World::fingerprint`] shows.
pub struct World {
    now: Timestamp,
    seed: u64,
    nodes: Vec<Node>,
    paths: Vec<[Pipe; 2]>,
    flows: Vec<Flow>,
    fingerprint: u64,
    datagrams: u64,
    /// Datagrams to addresses that nobody has.
    astray: u64,
    /// The last datagrams that were sent, the newest at the end.
    overheard: VecDeque<CapturedDatagram>,
}

/// A datagram as somebody beside the path sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapturedDatagram {
    /// The sender's address.
    pub from: SocketAddr,
    /// To whom.
    pub to: SocketAddr,
    /// Its payload.
    pub bytes: Vec<u8>,
}

/// Names a path of a [`World`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathId(usize);

/// Names a node of a [`World`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeId(usize);

/// Names a flow of a [`World`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowId(usize);

impl World {
    /// An empty world at [`World::START`].
    pub fn new(seed: u64) -> Self {
        Self {
            now: Self::START,
            seed,
            nodes: Vec::new(),
            paths: Vec::new(),
            flows: Vec::new(),
            fingerprint: FNV_OFFSET,
            datagrams: 0,
            astray: 0,
            overheard: VecDeque::new(),
        }
    }

    /// Time at which a world starts.
    pub const START: Timestamp = Timestamp::from_nanos(1_000_000_000);

    /// Adds a path between the near and the far side.
    pub fn add_path(&mut self, up: DirectionConfig, down: DirectionConfig) -> PathId {
        let purpose = 2 * self.paths.len() as u64;
        let pipe = |config, direction, purpose| {
            Pipe::new(config, direction, self.now, Rng::new(self.seed, PIPES + purpose))
        };
        self.paths.push([pipe(up, Direction::Up, purpose), pipe(down, Direction::Down, purpose + 1)]);
        PathId(self.paths.len() - 1)
    }

    /// Adds an endpoint on the near side, which begins connections.
    pub fn add_near(&mut self) -> NodeId {
        self.add_node(None)
    }

    /// Adds a flow: a connection from `near` across `path` to a far endpoint of its own, with what each end sends over it.
    pub fn add_flow(&mut self, near: NodeId, path: PathId, config: FlowConfig) -> FlowId {
        let far = self.add_node(Some(path));
        let rng = Rng::new(self.seed, FLOWS + self.flows.len() as u64);
        let flow = self.flows.len();
        self.flows.push(Flow::new([near.0, far.0], config, rng));
        self.connect(flow);
        FlowId(flow)
    }

    /// The time.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// A hash of every datagram that was sent, with when, from where and to where.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// Datagrams that were sent.
    pub fn datagrams(&self) -> u64 {
        self.datagrams
    }

    /// Datagrams that came to an address that nobody has.
    pub fn astray(&self) -> u64 {
        self.astray
    }

    /// The last datagrams that were sent, the newest at the end; they may still be on their way.
    pub fn overheard(&self) -> &VecDeque<CapturedDatagram> {
        &self.overheard
    }

    /// Somebody beside the path sends a datagram, which comes at once.
    pub fn inject(&mut self, datagram: &CapturedDatagram) {
        let Some(node) = self.node_at(datagram.to) else {
            self.astray += 1;
            return;
        };
        let to = Some(datagram.to.ip());
        let bytes = &mut datagram.bytes.clone();
        let datagram = Datagram { from: datagram.from.into(), to, marked: false, bytes };
        self.nodes[node].endpoint.handle_datagram(self.now, datagram);
    }

    /// What an end of a flow sends.
    pub fn feed(&self, flow: FlowId, side: Side) -> &Feed {
        self.flows[flow.0].feed(side)
    }

    /// The same, to push, replace or drop; its connection is woken.
    pub fn feed_mut(&mut self, flow: FlowId, side: Side) -> &mut Feed {
        let flow = &mut self.flows[flow.0];
        if let Some(handle) = flow.handle(side) {
            self.nodes[flow.node(side)].endpoint.wake(handle);
        }
        flow.feed_mut(side)
    }

    /// A flow, with what became of it.
    pub fn flow(&self, flow: FlowId) -> &Flow {
        &self.flows[flow.0]
    }

    /// An end's connection, while it is open.
    pub fn connection(&self, flow: FlowId, side: Side) -> Option<&Connection> {
        let flow = &self.flows[flow.0];
        self.nodes[flow.node(side)].endpoint.connection(flow.handle(side)?)
    }

    /// The same, to change it.
    pub fn connection_mut(&mut self, flow: FlowId, side: Side) -> Option<&mut Connection> {
        let flow = &self.flows[flow.0];
        self.nodes[flow.node(side)].endpoint.connection_mut(flow.handle(side)?)
    }

    /// What a direction of a path has done.
    pub fn path_stats(&self, path: PathId, direction: Direction) -> DirectionStats {
        self.paths[path.0][usize::from(direction == Direction::Down)].stats()
    }

    /// What the link of a direction of a path counts. Cheaper than [`World::path_stats`].
    pub fn counters(&self, path: PathId, direction: Direction) -> Counters {
        self.paths[path.0][usize::from(direction == Direction::Down)].counters()
    }

    /// Bytes that wait for the transmitter of a direction of a path.
    pub fn queued_bytes(&mut self, path: PathId, direction: Direction) -> u64 {
        self.paths[path.0][usize::from(direction == Direction::Down)].queued_bytes(self.now)
    }

    /// An end's application takes messages from now on, or leaves them.
    pub fn consume(&mut self, flow: FlowId, side: Side, consumes: bool) {
        let flow = &mut self.flows[flow.0];
        flow.consume(side, consumes);
        if let Some(handle) = flow.handle(side) {
            self.nodes[flow.node(side)].endpoint.wake(handle);
        }
    }

    /// A NAT gives the near end of a flow, and whatever else its node has, another port; the old one leads nowhere.
    pub fn rebind(&mut self, flow: FlowId) {
        self.nodes[self.flows[flow.0].node(Side::Near)].rebind();
    }

    /// An end's process dies and begins anew with the same key. What its connections had taken is queued again.
    pub fn restart(&mut self, flow: FlowId, side: Side) {
        let node = self.flows[flow.0].node(side);
        self.nodes[node].restart();
        let now = self.now;
        for flow in 0..self.flows.len() {
            if self.flows[flow].node(side) == node {
                self.flows[flow].connection_lost(now, side);
                if side == Side::Near {
                    self.connect(flow);
                }
            }
        }
    }

    /// Nothing more is offered from now on.
    pub fn stop_offers(&mut self) {
        self.flows.iter_mut().for_each(Flow::stop_offers);
    }

    /// Whether nothing is queued or unsettled anywhere.
    pub fn is_settled(&self) -> bool {
        self.flows.iter().all(Flow::is_settled)
    }

    /// Goes on until `end`.
    ///
    /// # Panics
    /// If an endpoint does not let the time go on.
    pub fn run_until(&mut self, end: Timestamp) {
        let mut rounds = 0;
        loop {
            self.offer();
            for node in 0..self.nodes.len() {
                self.give_turns(node);
            }
            let Some(next) = self.next_at().filter(|&at| at <= end) else { break };
            rounds = if next > self.now { 0 } else { rounds + 1 };
            assert!(rounds < RESTLESS, "an endpoint wants to be woken again and again at {}", self.now);
            self.now = self.now.max(next);
            self.deliver();
            for node in &mut self.nodes {
                node.endpoint.handle_timeout(self.now);
            }
        }
        self.now = self.now.max(end);
    }

    /// Goes on for `time`.
    pub fn run_for(&mut self, time: Duration) {
        self.run_until(self.now + time);
    }

    /// When something happens next.
    fn next_at(&self) -> Option<Timestamp> {
        let nodes = self.nodes.iter().filter_map(|node| node.endpoint.poll_timeout());
        let pipes = self.paths.iter().flatten().filter_map(Pipe::timeout);
        let flows = self.flows.iter().filter_map(Flow::next_offer);
        nodes.chain(pipes).chain(flows).min()
    }

    fn add_node(&mut self, path: Option<PathId>) -> NodeId {
        let number = self.nodes.len();
        let rng = Rng::new(self.seed, NODES + number as u64);
        self.nodes.push(Node::new(number, path.map(|path| path.0), rng));
        NodeId(number)
    }

    fn connect(&mut self, flow: usize) {
        let now = self.now;
        let Flow { config, .. } = &self.flows[flow];
        let connection = config.near.clone().maximum(config.qos).protection(config.protection);
        let [near, far] = [Side::Near, Side::Far].map(|side| self.flows[flow].node(side));
        let (address, key) = (self.nodes[far].address(), self.nodes[far].endpoint.public_key());
        let endpoint = &mut self.nodes[near].endpoint;
        let handle = endpoint
            .connect(now, address, key, &ConnectConfig::default(), connection)
            .expect("a flow has a valid quality of service");
        self.flows[flow].begin(now, Side::Near, handle);
    }

    /// Applications put into their queues what is due.
    fn offer(&mut self) {
        for flow in &mut self.flows {
            for side in Side::BOTH {
                if flow.offer(self.now, side)
                    && let Some(handle) = flow.handle(side)
                {
                    self.nodes[flow.node(side)].endpoint.wake(handle);
                }
            }
        }
    }

    /// Empties a node's queues, as the documentation of [`freshwire_a1::Endpoint`] says.
    fn give_turns(&mut self, node: usize) {
        let mut out = Vec::new();
        loop {
            while let Some(event) = self.nodes[node].endpoint.poll_event() {
                self.on_event(node, event);
            }
            while let Some(outgoing) = self.nodes[node].endpoint.poll_handshake(&mut out) {
                self.send(node, outgoing, &mut out);
            }
            let Some(handle) = self.nodes[node].endpoint.next_ready() else { break };
            self.give_turn(node, handle, &mut out);
        }
    }

    fn give_turn(&mut self, node: usize, handle: ConnectionHandle, out: &mut Vec<u8>) {
        let now = self.now;
        let Some((flow, side)) = self.flow_of(node, handle) else { return };
        self.read(node, flow, side, handle);
        loop {
            self.flows[flow].offer(now, side);
            let endpoint = &mut self.nodes[node].endpoint;
            let feed = self.flows[flow].feed_mut(side);
            let Some(outgoing) = endpoint.poll_transmit(now, handle, feed, out) else { break };
            self.send(node, outgoing, out);
        }
    }

    /// Takes what a connection has for its application.
    fn read(&mut self, node: usize, flow: usize, side: Side, handle: ConnectionHandle) {
        let now = self.now;
        let Some(connection) = self.nodes[node].endpoint.connection_mut(handle) else { return };
        let flow = &mut self.flows[flow];
        while let Some(event) = connection.poll_event() {
            if let Event::Closed(reason) = event {
                flow.closed(now, side, reason);
            }
        }
        while connection.poll_missing().is_some() {
            flow.count_missing(side);
        }
        while flow.consumes(side)
            && let Some(message) = connection.recv(now)
        {
            flow.received(now, side, &message);
        }
    }

    fn on_event(&mut self, node: usize, event: EndpointEvent) {
        let now = self.now;
        match event {
            EndpointEvent::Incoming(incoming) => {
                let Some(flow) = self.flows.iter().position(|flow| flow.node(Side::Far) == node) else {
                    return;
                };
                let Flow { config, .. } = &self.flows[flow];
                let accept = config.far.clone().maximum(config.qos.mirrored()).protection(config.protection);
                if self.nodes[node].endpoint.accept(now, incoming.handle, accept).is_ok() {
                    self.set_policy(node, flow, incoming.handle);
                }
            }
            EndpointEvent::Connected(handle) => self.on_connected(node, handle),
            EndpointEvent::Failed(handle, _) => self.ended(node, handle),
            EndpointEvent::Ended(handle) => {
                if let Some((flow, side)) = self.flow_of(node, handle) {
                    self.read(node, flow, side, handle);
                }
                self.nodes[node].endpoint.remove(handle);
                self.ended(node, handle);
            }
            _ => {}
        }
    }

    fn on_connected(&mut self, node: usize, handle: ConnectionHandle) {
        let now = self.now;
        if let Some((flow, side)) = self.flow_of(node, handle) {
            self.flows[flow].connected(now, side);
            return self.set_policy(node, flow, handle);
        }
        // At the far end connections count from now on: an initiator may start twice and complete one.
        let Some(flow) = self.flows.iter().position(|flow| flow.node(Side::Far) == node) else { return };
        if let Some(before) = self.flows[flow].handle(Side::Far) {
            self.read(node, flow, Side::Far, before);
            self.nodes[node].endpoint.remove(before);
        }
        self.flows[flow].begin(now, Side::Far, handle);
        self.flows[flow].connected(now, Side::Far);
        self.nodes[node].endpoint.wake(handle);
    }

    fn set_policy(&mut self, node: usize, flow: usize, handle: ConnectionHandle) {
        let policy = self.flows[flow].config.policy.make();
        if let Some(connection) = self.nodes[node].endpoint.connection_mut(handle) {
            connection.set_policy(policy);
        }
    }

    /// A connection is over. The near application begins another one.
    fn ended(&mut self, node: usize, handle: ConnectionHandle) {
        let Some((flow, side)) = self.flow_of(node, handle) else { return };
        self.flows[flow].connection_lost(self.now, side);
        if side == Side::Near {
            self.connect(flow);
        }
    }

    fn flow_of(&self, node: usize, handle: ConnectionHandle) -> Option<(usize, Side)> {
        let of = |flow: &Flow| {
            Side::BOTH.into_iter().find(|&side| flow.node(side) == node && flow.handle(side) == Some(handle))
        };
        self.flows.iter().enumerate().find_map(|(place, flow)| Some((place, of(flow)?)))
    }

    /// Datagrams leave a node.
    fn send(&mut self, node: usize, outgoing: Outgoing, out: &mut Vec<u8>) {
        let now = self.now;
        let (from, to) = (self.nodes[node].address(), outgoing.to.address);
        for bytes in out.chunks(outgoing.segment.max(1)) {
            self.datagrams += 1;
            self.hash(from, to, bytes);
            if self.overheard.len() == OVERHEARD {
                self.overheard.pop_front();
            }
            self.overheard.push_back(CapturedDatagram { from, to, bytes: bytes.to_vec() });
            let packet = Packet { from, to, marked: false, sent: now, bytes: bytes.to_vec() };
            let (path, direction) = match self.nodes[node].path {
                Some(path) => (Some(path), 1),
                None => (self.node_at(to).and_then(|to| self.nodes[to].path), 0),
            };
            match path {
                Some(path) => self.paths[path][direction].send(now, outgoing.ecn, packet),
                None => self.astray += 1,
            }
        }
        out.clear();
    }

    /// Delivers datagrams that have arrived. Datagrams of one instant and node come together.
    fn deliver(&mut self) {
        let mut batches: Vec<Vec<Packet>> = vec![Vec::new(); self.nodes.len()];
        for path in 0..self.paths.len() {
            for direction in 0..2 {
                while let Some(packet) = self.paths[path][direction].receive(self.now) {
                    match self.node_at(packet.to) {
                        Some(node) => batches[node].push(packet),
                        None => self.astray += 1,
                    }
                }
            }
        }
        for (node, mut batch) in self.nodes.iter_mut().zip(batches) {
            let datagrams = batch.iter_mut().map(|packet| Datagram {
                from: packet.from.into(),
                to: Some(packet.to.ip()),
                marked: packet.marked,
                bytes: &mut packet.bytes,
            });
            node.endpoint.handle_batch(self.now, datagrams);
        }
    }

    fn node_at(&self, address: SocketAddr) -> Option<usize> {
        self.nodes.iter().position(|node| node.address() == address)
    }

    fn hash(&mut self, from: SocketAddr, to: SocketAddr, bytes: &[u8]) {
        let place = [u64::from(from.port()), u64::from(to.port()), self.now.as_nanos(), bytes.len() as u64];
        let words = place.iter().flat_map(|word| word.to_be_bytes());
        for byte in words.chain(bytes.iter().copied()) {
            self.fingerprint = (self.fingerprint ^ u64::from(byte)).wrapping_mul(FNV_PRIME);
        }
    }
}

/// This number of rounds at one instant is a loop, not work. Chosen, not measured.
const RESTLESS: u32 = 100_000;

/// Datagrams that are remembered. Chosen, not measured.
const OVERHEARD: usize = 64;

/// FNV-1a of 64 bits.
const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0100_0000_01b3;

/// Keep the generators of nodes, flows and pipes apart.
const NODES: u64 = 1 << 32;
const FLOWS: u64 = 2 << 32;
const PIPES: u64 = 3 << 32;

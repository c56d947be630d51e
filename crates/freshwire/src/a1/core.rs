//! The work of a node under its lock: datagrams in, datagrams out, and the requests of its connections.

mod accepting;
mod attempts;
mod fallback;
mod newcomers;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use freshwire_a1::{
    Closed, ConnectConfig, ConnectError as HandshakeError, Connection as Transport, ConnectionHandle,
    Datagram, Endpoint, EndpointEvent, EndpointStats, Event, Message, Outgoing, PublicKey, Qos, Queue, Shard,
    Source,
};
use freshwire_choice::Reason;
use freshwire_io::poll::Poller;
use freshwire_io::udp::{Ecn, ReceiveBuffer, Route, Steering, UdpConfig, UdpSocket};
use freshwire_record::{Rate, Timestamp};

use self::attempts::Fallback;
pub(super) use self::newcomers::Arrivals;
use self::newcomers::Newcomers;
use super::codes::{CODE_ABORTED, CODE_DONE};
use super::config::NodeConfig;
use super::departing::Departing;
use super::driver::{Activity, Condvar, Protocol, RING_SCAN};
use super::error::{BindError, ConnectError, NodeStopped};
use super::group_config::{GroupConfig, GroupError, InviteError};
use super::joined::{JoinError, Joined, Membership};
use super::multicast::Groups;
use super::outbound::Outbound;
use super::peer::{Peer, State};
use super::sink::{AttachedSink, CloseAction};
use super::tcp_paths::TcpPaths;
use crate::sink::ended::{Ended, SinkError};
use crate::sink::signal::Signal;

/// How many system calls fetch datagrams before something is sent again. A bound, not
/// measured: a call fills up to eight slots of 64 KiB, so at most 4 MiB arrive before acknowledgements leave.
const FETCHES_PER_TURN: usize = 8;

/// How many bursts of one connection leave before the next connection has its turn. A bound, not
/// measured: a burst has at most 60,000 bytes, so a connection sends at most half a megabyte before the others.
const BURSTS_PER_TURN: usize = 8;

/// How many connections have their turn before datagrams are fetched again. A bound, not
/// measured: with one burst each they send about as much as one round of fetches brings.
const TURNS: usize = 64;

pub(super) struct Core {
    endpoint: Endpoint,
    config: NodeConfig,
    socket: UdpSocket,
    route: Route,
    arrived: ReceiveBuffer,
    outbound: Outbound,
    departing: Departing,
    peers: BTreeMap<ConnectionHandle, Peer>,
    /// Connections with a sink.
    sinks: BTreeMap<ConnectionHandle, AttachedSink>,
    /// Connections whose sink is closing.
    closing: Vec<ConnectionHandle>,
    /// The groups that it sends to.
    groups: Groups,
    /// The groups that it has joined.
    joined: Joined,
    newcomers: Newcomers,
    tcp_paths: TcpPaths,
    /// Connections of this node's that may go over TCP.
    fallbacks: BTreeMap<ConnectionHandle, Fallback>,
    activity: Activity,
    /// The agreed rates of all connections in sum; `None` if one has no limit.
    agreed: Option<Rate>,
    /// More is to be done than one round does.
    has_more: bool,
    /// When it looked last at every ring.
    looked_at: Timestamp,
    is_stopped: bool,
}

/// The connection or group that a ring feeds.
#[derive(Clone, Copy, Debug)]
pub(super) enum SinkTarget {
    Connection(ConnectionHandle),
    /// The group with this number.
    Group(u32),
}

impl Core {
    /// The node of a new socket; those of groups that it joins are added to `poller`.
    pub(super) fn new(
        address: SocketAddr,
        config: NodeConfig,
        poller: Arc<Poller>,
    ) -> Result<Self, BindError> {
        let mut tcp_paths = TcpPaths::new(config.endpoint.limits, Arc::clone(&poller));
        let socket = if config.tcp_fallback && config.endpoint.accept {
            bind_both(address, buffers(&config), &mut tcp_paths)?
        } else {
            UdpSocket::bind(address, buffers(&config))?
        };
        Self::over(address, socket, tcp_paths, config, poller)
    }

    /// The nodes of several sockets at one address, of which each has its part of the connections and its poller.
    pub(super) fn several(
        address: SocketAddr,
        config: &NodeConfig,
        arrivals: &Arc<Arrivals>,
    ) -> Result<Vec<(Self, Arc<Poller>)>, BindError> {
        let steering =
            Steering { offset: Shard::ID_OFFSET, kind_mask: Shard::KIND_MASK, unnumbered: Shard::INITIATION };
        let sockets = UdpSocket::bind_several(address, buffers(config), config.threads, &steering)?;
        let cores = sockets.into_iter().zip(0..).map(|(socket, number)| {
            let (config, poller) = (config.of_thread(number), Arc::new(Poller::new()?));
            let tcp_paths = TcpPaths::new(config.endpoint.limits, Arc::clone(&poller));
            let mut core = Self::over(address, socket, tcp_paths, config, Arc::clone(&poller))?;
            core.newcomers.share(arrivals);
            Ok((core, poller))
        });
        cores.collect()
    }

    fn over(
        address: SocketAddr,
        mut socket: UdpSocket,
        tcp_paths: TcpPaths,
        config: NodeConfig,
        poller: Arc<Poller>,
    ) -> Result<Self, BindError> {
        socket.set_network_qos(&config.network)?;
        Ok(Self {
            socket,
            agreed: None,
            tcp_paths,
            fallbacks: BTreeMap::new(),
            route: Route::new(address)?,
            groups: Groups::default(),
            joined: Joined::new(config.join, config.receive_buffer, poller),
            endpoint: Endpoint::new(config.endpoint.clone(), freshwire_io::random()?),
            newcomers: Newcomers::new(config.backlog),
            config,
            arrived: ReceiveBuffer::default(),
            outbound: Outbound::default(),
            departing: Departing::default(),
            peers: BTreeMap::new(),
            sinks: BTreeMap::new(),
            closing: Vec::new(),
            activity: Activity::default(),
            has_more: false,
            looked_at: Timestamp::ZERO,
            is_stopped: false,
        })
    }

    pub(super) fn stats(&self) -> EndpointStats {
        self.endpoint.stats()
    }

    /// Begins to connect, with the node's maximum of the quality of service or another one.
    pub(super) fn connect(
        &mut self,
        now: Timestamp,
        address: SocketAddr,
        key: PublicKey,
        config: &ConnectConfig,
        maximum: Option<Qos>,
    ) -> Result<(ConnectionHandle, Arc<Condvar>), ConnectError> {
        self.config.network.check_towards(address)?;
        let mut connection = self.config.connection_over(self.largest_datagram(address));
        connection.maximum = maximum.unwrap_or(connection.maximum);
        if self.config.tcp_fallback {
            // A receiver would not notice otherwise that the path is gone.
            let silence = connection.keep_alive.unwrap_or(FALLBACK_KEEP_ALIVE).min(FALLBACK_KEEP_ALIVE);
            connection.keep_alive = Some(silence);
        }
        let id = self.endpoint.connect(now, address, key, config, connection)?;
        self.begin_fallback(id, address, now);
        Ok((id, self.enter(id, Peer::new(address, key))))
    }

    /// The largest datagram that leaves on the way to `to`, as far as the kernel tells: where there is no way, there will be
    /// no connection.
    fn largest_datagram(&self, to: SocketAddr) -> Option<u16> {
        let largest = self.route.largest_datagram(to).ok()?;
        u16::try_from(largest).ok()
    }

    fn enter(&mut self, id: ConnectionHandle, peer: Peer) -> Arc<Condvar> {
        let changed = Arc::clone(&peer.changed);
        self.peers.insert(id, peer);
        changed
    }

    pub(super) fn peer(&mut self, id: ConnectionHandle) -> Option<&mut Peer> {
        self.peers.get_mut(&id)
    }

    /// The next message of a connection, as old as it is at `now`.
    pub(super) fn recv(&mut self, now: Timestamp, id: ConnectionHandle) -> Option<Message> {
        self.endpoint.recv(now, id)
    }

    /// Whether a connection has something to do.
    pub(super) fn has_ready(&self) -> bool {
        self.endpoint.has_ready()
    }

    /// The application's file for newcomers and the node's end.
    pub(super) fn newcomers_signal(&mut self) -> Arc<Signal> {
        self.newcomers.signal.get()
    }

    pub(super) fn transport(&mut self, id: ConnectionHandle) -> Option<&mut Transport> {
        self.endpoint.connection_mut(id)
    }

    /// Feeds a connection from now on. False: it is fed already.
    pub(super) fn attach(&mut self, id: ConnectionHandle, sink: AttachedSink) -> bool {
        let is_free = !self.sinks.contains_key(&id);
        if is_free {
            sink.set_over_tcp(self.endpoint.connection(id).is_some_and(Transport::is_over_tcp));
            self.sinks.insert(id, sink);
            self.endpoint.wake(id);
        }
        is_free
    }

    /// Has the kernel note when datagrams leave that ask for it.
    pub(super) fn note_departures(&mut self) -> io::Result<()> {
        self.departing.ask(&self.socket)
    }

    /// Applies a request of a sink's owner.
    pub(super) fn ask(
        &mut self,
        id: ConnectionHandle,
        now: Timestamp,
        ask: impl FnOnce(&mut AttachedSink, Timestamp) -> CloseAction,
    ) {
        let Some(sink) = self.sinks.get_mut(&id) else { return };
        let action = ask(sink, now);
        if sink.timeout().is_some() && !self.closing.contains(&id) {
            self.closing.push(id);
        }
        self.endpoint.wake(id);
        self.grant(id, now, action);
    }

    /// The application has no handle of the connection any more.
    pub(super) fn forget(&mut self, id: ConnectionHandle, now: Timestamp) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        peer.is_forgotten = true;
        if matches!(peer.state, State::Failed(_))
            || self.endpoint.connection(id).is_some_and(Transport::is_ended)
        {
            self.remove(id);
        } else if !self.sinks.contains_key(&id) {
            self.close(id, now, CODE_DONE, "");
        }
    }

    /// Ends a connection.
    pub(super) fn close(&mut self, id: ConnectionHandle, now: Timestamp, code: u64, reason: &str) {
        // It may be in the middle of a turn that has nothing left to send.
        self.endpoint.wake(id);
        match self.endpoint.connection_mut(id) {
            Some(connection) => connection.close(now, code, reason),
            // The handshake is not complete, and the peer gets no notice.
            None => self.remove(id),
        }
    }

    /// Makes a group to send to.
    pub(super) fn add_group(&mut self, now: Timestamp, config: &GroupConfig) -> Result<u32, GroupError> {
        if self.is_stopped {
            return Err(NodeStopped.into());
        }
        let local = self.socket.local_addr()?.ip();
        self.groups.add(now, local, config, &self.config.network)
    }

    /// The groups that it sends to.
    pub(super) fn groups(&mut self) -> &mut Groups {
        &mut self.groups
    }

    /// Makes the peer of a connection a member of a group.
    pub(super) fn invite(
        &mut self,
        group: u32,
        id: ConnectionHandle,
        now: Timestamp,
    ) -> Result<(), InviteError> {
        let peer = self.peers.get(&id).filter(|peer| matches!(peer.state, State::Open));
        let ends = (self.endpoint.local_ip(id), peer.ok_or(InviteError::Ended)?.address);
        let connection = self.endpoint.connection_mut(id).ok_or(InviteError::Ended)?;
        if !self.groups.invite(group, now, id, connection, ends) {
            return Err(NodeStopped.into());
        }
        Ok(())
    }

    /// The peer of a connection has invited us.
    fn join(&mut self, id: ConnectionHandle, group: u32, address: SocketAddr) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let from = (self.endpoint.local_ip(id), peer.address);
        let joined = self.joined.join(id, group, address, from);
        let joined = joined.and_then(|()| match self.endpoint.join(group, id) {
            true => Ok(()),
            false => Err(JoinError::Twice),
        });
        peer.memberships.push(Membership { group, address, joined });
    }

    fn remove(&mut self, id: ConnectionHandle) {
        self.groups.part(id);
        self.joined.leave(id);
        self.end_fallback(id);
        self.endpoint.remove(id);
        self.peers.remove(&id);
    }

    /// A producer has put something on this ring.
    pub(super) fn call(&mut self, target: SinkTarget) {
        match target {
            SinkTarget::Connection(id) => self.endpoint.wake(id),
            SinkTarget::Group(id) => self.groups.call(id),
        }
    }

    /// Some producer may have put something on its ring.
    fn call_all(&mut self, now: Timestamp) {
        self.looked_at = now;
        for (id, sink) in &self.sinks {
            if sink.source.notified() {
                self.endpoint.wake(*id);
            }
        }
        self.groups.call_all();
    }

    fn send_handshakes(&mut self) -> bool {
        loop {
            let bytes = self.outbound.begin();
            let Some(outgoing) = self.endpoint.poll_handshake(bytes) else { return true };
            if !self.send(outgoing) {
                return false;
            }
        }
    }

    /// Asks the network for the service of a connection, before its datagrams leave.
    fn ask_network(&mut self, id: ConnectionHandle) {
        if !self.config.translate {
            return;
        }
        let Some(connection) = self.endpoint.connection(id) else { return };
        let (qos, wanted) = (connection.qos(), self.config.network_of(connection.qos(), self.agreed));
        // The options are the same kinds as when the node was bound, with values that need no privilege.
        let _ = self.socket.set_network_qos(&wanted);
        let limit = self.config.network.max_rate;
        let rate = qos.send_average.into_iter().chain(limit).min();
        self.socket.set_departure_rate(rate);
    }

    /// Sums up the agreed rates after a change.
    fn sum_up(&mut self) {
        if !self.config.translate {
            return;
        }
        let open = self.peers.iter().filter(|(_, peer)| matches!(peer.state, State::Open)).map(|(id, _)| *id);
        let rates = open.filter_map(|id| self.endpoint.connection(id)).map(|open| open.qos().send_average);
        self.agreed = rates
            .reduce(|sum, rate| {
                Some(Rate::from_bits_per_sec(sum?.bits_per_sec().saturating_add(rate?.bits_per_sec())))
            })
            .flatten();
    }

    /// Sends what was just made. False: some of it waits for room in the socket.
    fn send(&mut self, outgoing: Outgoing) -> bool {
        if outgoing.to.is_tcp {
            self.tcp_paths.send(&outgoing, self.outbound.bytes());
            return true;
        }
        self.outbound.send(&mut self.socket, outgoing)
    }

    /// Gives a connection its turn. False: the socket has no room for what it sends.
    fn turn(&mut self, id: ConnectionHandle, now: Timestamp) -> bool {
        self.take_in(id, now);
        self.ask_network(id);
        let mut nothing = Queue::default();
        for _ in 0..BURSTS_PER_TURN {
            self.grant_tcp_room(id, now);
            let source: &mut dyn Source = match self.sinks.get_mut(&id) {
                Some(sink) => &mut *sink.source,
                None => &mut nothing,
            };
            let bytes = self.outbound.begin();
            let Some(outgoing) = self.endpoint.poll_transmit(now, id, source, bytes) else {
                self.take_in(id, now);
                self.rest(id, now);
                return true;
            };
            if let Some(sink) = self.sinks.get_mut(&id) {
                let ends = sink.source.take_ends();
                if !outgoing.to.is_tcp {
                    self.departing.add(sink.shared(), ends, self.outbound.noted());
                }
            }
            if !self.send(outgoing) {
                return false;
            }
        }
        self.endpoint.wake(id);
        true
    }

    /// Lets a sink rest, or closes it, after its connection has sent all that it may.
    fn rest(&mut self, id: ConnectionHandle, now: Timestamp) {
        self.watch_answers(id);
        let (Some(sink), Some(connection)) = (self.sinks.get_mut(&id), self.endpoint.connection(id)) else {
            return;
        };
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.turns += 1;
            if std::mem::take(&mut peer.is_awaited) {
                peer.note_turn(&mut self.activity);
            }
        }
        sink.account(connection.stats().bytes_sent, &connection.link(now));
        let action = sink.close_action(now, connection.is_idle());
        if action == CloseAction::Stay && !sink.source.rest() {
            self.endpoint.wake(id);
        }
        self.grant(id, now, action);
    }

    fn grant(&mut self, id: ConnectionHandle, now: Timestamp, action: CloseAction) {
        let (ended, code) = match action {
            CloseAction::Stay => return,
            CloseAction::Close => (Ended::Closed, CODE_DONE),
            CloseAction::Abort(ended) => (ended, CODE_ABORTED),
        };
        self.end_sink(id, now, Reason::Closed, ended);
        self.close(id, now, code, if code == CODE_DONE { "" } else { "aborted" });
    }

    fn end_sink(&mut self, id: ConnectionHandle, now: Timestamp, reason: Reason, ended: Ended) {
        self.closing.retain(|closing| *closing != id);
        if let Some(mut sink) = self.sinks.remove(&id) {
            if let Some(connection) = self.endpoint.connection_mut(id) {
                connection.settle(now, &mut *sink.source);
            }
            sink.end(reason, now, ended);
        }
    }

    /// Takes over what has happened to a connection.
    fn take_in(&mut self, id: ConnectionHandle, now: Timestamp) {
        while let Some(event) = self.endpoint.connection_mut(id).and_then(Transport::poll_event) {
            let Some(peer) = self.peers.get_mut(&id) else { return };
            match event {
                Event::Readable => peer.is_readable = true,
                Event::QosPending => peer.news.pending = true,
                Event::QosChanged => {
                    peer.news.changed = true;
                    peer.note(&mut self.activity);
                    self.sum_up();
                    continue;
                }
                Event::Migrated(remote) => {
                    peer.address = remote.address;
                    self.on_path(id, now);
                    if let Some(peer) = self.peers.get(&id) {
                        peer.note(&mut self.activity);
                    }
                    continue;
                }
                Event::Invited { group, address } => {
                    self.join(id, group, address);
                    if let Some(peer) = self.peers.get(&id) {
                        peer.note(&mut self.activity);
                    }
                    continue;
                }
                Event::GroupMissing { group, missing } => {
                    if let Some(connection) = self.endpoint.connection_mut(id) {
                        self.groups.repair(group, now, &missing, id, connection);
                    }
                    continue;
                }
                Event::Closed(closed) => {
                    self.on_closed(id, now, closed);
                    continue;
                }
                _ => {}
            }
            peer.note(&mut self.activity);
        }
    }

    /// A connection that stood is over.
    fn on_closed(&mut self, id: ConnectionHandle, now: Timestamp, closed: Closed) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let ended = Ended::Broken(closed.clone().into());
        peer.state = State::Closed(closed);
        peer.is_forgotten |= self.newcomers.on_end(id, peer.is_readable);
        peer.note_end(&mut self.activity);
        self.groups.part(id);
        self.joined.leave(id);
        self.sum_up();
        self.fallbacks.remove(&id);
        self.end_sink(id, now, Reason::ConnectionLost, ended);
    }

    /// A handshake was not completed.
    fn on_failed(&mut self, id: ConnectionHandle, now: Timestamp, error: HandshakeError) {
        self.newcomers.on_failed(id);
        let Some(peer) = self.peers.get_mut(&id) else { return };
        if peer.is_incoming || peer.is_forgotten {
            return self.remove(id);
        }
        if matches!(peer.state, State::Open) {
            // The application has accepted it and works with it already.
            return self.on_closed(id, now, Closed::Silent);
        }
        peer.state = State::Failed(error);
        peer.note_end(&mut self.activity);
    }

    fn handle_events(&mut self, now: Timestamp) {
        while let Some(event) = self.endpoint.poll_event() {
            match event {
                EndpointEvent::Incoming(incoming) => self.on_incoming(now, &incoming),
                EndpointEvent::Connected(id) => {
                    self.on_path(id, now);
                    let Some(peer) = self.peers.get_mut(&id) else { continue };
                    // The application may have closed the connection since it accepted it.
                    if !peer.state.is_over() {
                        peer.state = State::Open;
                    }
                    peer.note(&mut self.activity);
                    if std::mem::take(&mut peer.is_incoming) {
                        self.on_newcomer(now, id);
                    }
                    self.sum_up();
                }
                EndpointEvent::Failed(id, error) => self.on_failed(id, now, error),
                EndpointEvent::Ended(id) if self.peers.get(&id).is_none_or(|peer| peer.is_forgotten) => {
                    self.remove(id);
                }
                _ => {}
            }
        }
    }

    /// Ends everything, and tells the peers as far as the socket takes it now.
    pub(super) fn stop(&mut self, now: Timestamp) {
        self.end_all(now, &SinkError::Stopped);
        self.newcomers.clear();
        self.advance(now);
    }

    /// Takes in the datagrams that the socket has. False: it has none. The clock is read after the datagrams. If this thread were descheduled in between, an earlier reading
    /// would shorten a round trip by that time. The shortest round trip is the reference for all others.
    fn fetch(&mut self, clock: &dyn Fn() -> Timestamp) -> bool {
        for fetch in 0..FETCHES_PER_TURN {
            // An error is an ICMP message about an earlier datagram: what it tells is no proof of anything.
            if !matches!(self.socket.receive(&mut self.arrived), Ok(true)) {
                return fetch > 0;
            }
            let now = clock();
            let datagrams = self.arrived.datagrams().map(|datagram| Datagram {
                from: datagram.from.into(),
                to: datagram.to,
                marked: datagram.ecn == Some(Ecn::Ce),
                bytes: datagram.bytes,
            });
            self.endpoint.handle_batch(now, datagrams);
            if !self.arrived.is_full() {
                return true;
            }
        }
        self.has_more = true;
        true
    }

    fn end_all(&mut self, now: Timestamp, error: &SinkError) {
        self.is_stopped = true;
        self.groups.end_all(now, error);
        for id in self.peers.keys().copied().collect::<Vec<_>>() {
            self.end_sink(id, now, Reason::ConnectionLost, Ended::Broken(error.clone()));
            if let Some(connection) = self.endpoint.connection_mut(id) {
                connection.close(now, CODE_ABORTED, "the node was stopped");
            }
        }
        for peer in self.peers.values_mut() {
            if !peer.state.is_over() {
                peer.state = State::Closed(Closed::Local);
            }
            peer.changed.notify_all();
            peer.note_end(&mut self.activity);
        }
        self.newcomers.announce();
        self.activity.note();
    }
}

impl Protocol for Core {
    type Socket = UdpSocket;

    fn socket(&self) -> &UdpSocket {
        &self.socket
    }

    fn receive(&mut self, clock: &dyn Fn() -> Timestamp) -> bool {
        let has_received = self.fetch(clock);
        // After the datagrams, so that every acknowledgement among them finds its record's departure.
        self.departing.take_in(&self.socket);
        has_received
    }

    fn receive_other(&mut self, clock: &dyn Fn() -> Timestamp, token: u64) {
        if Self::is_tcp_token(token) {
            return self.on_tcp(clock(), token);
        }
        // It may have been left since it was found ready.
        let Some(socket) = self.joined.socket(token) else { return };
        for _ in 0..FETCHES_PER_TURN {
            if !matches!(socket.receive(&mut self.arrived), Ok(true)) {
                return;
            }
            let now = clock();
            for datagram in self.arrived.datagrams() {
                self.endpoint.handle_group_datagram(now, datagram.bytes);
            }
            if !self.arrived.is_full() {
                return;
            }
        }
    }

    fn on_wake_up(&mut self, now: Timestamp, is_called: bool) {
        if is_called || now >= self.looked_at + RING_SCAN {
            self.call_all(now);
        }
    }

    fn advance(&mut self, now: Timestamp) {
        self.has_more = false;
        if self.endpoint.poll_timeout().is_some_and(|at| at <= now) {
            // A datagram that waits on a group's socket is not missing.
            for token in self.joined.tokens() {
                self.receive_other(&|| now, token);
            }
        }
        self.advance_fallbacks(now);
        self.endpoint.handle_timeout(now);
        for id in self.closing.clone() {
            if self.sinks.get(&id).and_then(AttachedSink::timeout).is_some_and(|at| at <= now) {
                self.endpoint.wake(id);
            }
        }
        self.handle_events(now);
        self.groups.advance(now);
        for (id, group) in self.groups.take_notices(now) {
            if let Some(connection) = self.endpoint.connection_mut(id) {
                self.groups.tell(group, connection);
            }
        }
        if !self.outbound.resume(&mut self.socket) || !self.send_handshakes() {
            return;
        }
        for _ in 0..TURNS {
            let Some(id) = self.endpoint.next_ready() else { return self.handle_events(now) };
            if !self.turn(id, now) {
                // The socket has no room.
                self.endpoint.wake(id);
                return self.handle_events(now);
            }
        }
        // A change at the last connection is to be sent before the next round too.
        self.endpoint.end_turn();
        self.has_more = true;
        self.handle_events(now);
    }

    fn due(&self, now: Timestamp) -> Timestamp {
        if self.has_more && !self.outbound.is_waiting() {
            return now;
        }
        let closing = self.closing.iter().filter_map(|id| self.sinks.get(id)?.timeout()).min();
        let is_fed = !self.sinks.is_empty() || self.groups.has_sink();
        let scan = is_fed.then(|| self.looked_at + RING_SCAN);
        let timers = [self.endpoint.poll_timeout(), self.groups.due(now), closing, scan, self.fallback_due()];
        timers.into_iter().flatten().min().unwrap_or(Timestamp::MAX)
    }

    fn is_blocked(&self) -> bool {
        self.outbound.is_waiting()
    }

    fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    fn fail(&mut self, now: Timestamp, error: &io::Error) {
        let message = format!("the node's socket failed: {error}");
        self.end_all(now, &SinkError::Io { kind: error.kind(), message });
    }

    fn activity(&mut self) -> &mut Activity {
        &mut self.activity
    }
}

fn buffers(config: &NodeConfig) -> UdpConfig {
    UdpConfig::default().receive_buffer(config.receive_buffer)
}

/// Binds UDP and TCP to one port. Where the kernel chooses the port of UDP, that of TCP may be taken.
fn bind_both(address: SocketAddr, config: UdpConfig, tcp_paths: &mut TcpPaths) -> io::Result<UdpSocket> {
    let mut attempts = if address.port() == 0 { BIND_ATTEMPTS } else { 1 };
    loop {
        let socket = UdpSocket::bind(address, config)?;
        attempts -= 1;
        match tcp_paths.listen(SocketAddr::new(address.ip(), socket.local_addr()?.port())) {
            Ok(()) => return Ok(socket),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && attempts > 0 => {}
            Err(error) => return Err(error),
        }
    }
}

/// Ports that are tried until UDP and TCP are both free. Chosen, not measured.
const BIND_ATTEMPTS: usize = 16;

/// Silence after which a connection that may fall back to TCP is pinged. Chosen, not measured: a packet of some 40 bytes each
/// second, so that a receiver notices the loss of its path within two seconds.
const FALLBACK_KEEP_ALIVE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;

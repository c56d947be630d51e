//! What a node does while its lock is held: datagrams in, datagrams out, and what its connections ask for.

mod newcomers;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar};
use std::time::Duration;

use freshwire_a1::{
    Closed, ConnectError, Connection as Transport, ConnectionHandle, Datagram, Endpoint, EndpointEvent,
    EndpointStats, Event, Message, PublicKey, QosError, Queue, Source,
};
use freshwire_choice::Reason;
use freshwire_io::poll::Poller;
use freshwire_io::udp::{Ecn, ReceiveBuffer, Route, UdpConfig, UdpSocket};
use freshwire_units::Timestamp;

use self::newcomers::Newcomers;
use super::config::{ConnectConfig, NodeConfig};
use super::connection::Fed;
use super::error::NodeStopped;
use super::group::{GroupConfig, GroupError, InviteError};
use super::joined::{JoinError, Joined, Membership};
use super::multicast::Groups;
use super::outbound::Outbound;
use super::peer::{Peer, State};
use super::sink::{Feeding, Wish};
use super::spin::Spin;
use super::status::Status;
use super::stream::Stream;
use crate::ended::{Ended, SinkError};

/// How many system calls fetch datagrams before something is sent again.
const FETCHES_PER_TURN: usize = 8;

/// How many bursts of one connection leave before it is another one's turn.
const BURSTS_PER_TURN: usize = 8;

/// How many connections have their turn before datagrams are fetched again.
const TURNS: usize = 64;

/// The longest time until every ring is looked at, called for or not. A producer in another process that is killed between its
/// push and its call leaves a record that nobody calls for.
//= spec/ring.md R-ROLE-7
const MAX_UNSEEN: Duration = Duration::from_secs(1);

/// How long what follows from datagrams may wait when they brought what a thread has waited for: as a rule its answer goes
/// at once, and takes the acknowledgement along.
const GRACE: Duration = Duration::from_millis(1);

/// For how long after that the node's thread looks every [`GRACE`], so that it need not be woken for it each time.
const LIVELY: Duration = Duration::from_millis(20);

/// The code of a connection that ends as it should.
pub(super) const CODE_DONE: u64 = 0;

/// The code of a connection whose owner gives up what is not delivered.
pub(super) const CODE_ABORTED: u64 = 256;

pub(super) struct Core {
    endpoint: Endpoint,
    config: NodeConfig,
    socket: UdpSocket,
    route: Route,
    arrived: ReceiveBuffer,
    outbound: Outbound,
    peers: BTreeMap<ConnectionHandle, Peer>,
    /// Those of them that are fed.
    feedings: BTreeMap<ConnectionHandle, Feeding>,
    /// Those of these that are at their end.
    closing: Vec<ConnectionHandle>,
    /// The groups that it sends to.
    groups: Groups,
    /// The groups that it has joined.
    joined: Joined,
    newcomers: Newcomers,
    activity: Activity,
    /// More is to be done than one round does.
    again: bool,
    /// When the node's thread wakes up by itself; `None` while it is awake.
    asleep_until: Option<Timestamp>,
    /// When it looked last at every ring.
    looked_at: Timestamp,
    /// How a thread waits that waits for datagrams in place of the node's.
    pub(super) spin: Spin,
    /// What producers do that are served on their own threads.
    pub(super) stream: Stream,
    /// Threads of the application that wait to be notified.
    pub(super) waiting: usize,
    /// By when what follows from the last datagrams is to be sent.
    owed: Option<Timestamp>,
    lively_until: Timestamp,
    watched: Watch,
    is_stopped: bool,
}

/// What the node's thread watches the socket for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Watch {
    pub(super) datagrams: bool,
    pub(super) room: bool,
}

/// How often something has happened that a thread may wait for without knowing the connection.
#[derive(Default)]
pub(super) struct Activity {
    pub(super) count: u64,
    is_new: bool,
}

impl Activity {
    pub(super) fn note(&mut self) {
        self.count += 1;
        self.is_new = true;
    }

    /// Whether something has happened since the last call.
    pub(super) fn take_new(&mut self) -> bool {
        std::mem::take(&mut self.is_new)
    }
}

impl Core {
    /// The node of this socket; those of groups that it joins are added to `poller`.
    pub(super) fn new(address: SocketAddr, config: NodeConfig, poller: Arc<Poller>) -> io::Result<Self> {
        let buffers = UdpConfig::default().receive_buffer(config.receive_buffer);
        Ok(Self {
            socket: UdpSocket::bind(address, buffers)?,
            route: Route::new(address)?,
            groups: Groups::default(),
            joined: Joined::new(config.join, config.receive_buffer, poller),
            endpoint: Endpoint::new(config.endpoint(freshwire_io::random()?)),
            newcomers: Newcomers::new(config.backlog),
            config,
            arrived: ReceiveBuffer::default(),
            outbound: Outbound::default(),
            peers: BTreeMap::new(),
            feedings: BTreeMap::new(),
            closing: Vec::new(),
            activity: Activity::default(),
            again: false,
            asleep_until: None,
            looked_at: Timestamp::ZERO,
            spin: Spin::new(),
            stream: Stream::default(),
            waiting: 0,
            owed: None,
            lively_until: Timestamp::ZERO,
            watched: Watch { datagrams: true, room: false },
            is_stopped: false,
        })
    }

    pub(super) fn socket(&self) -> &UdpSocket {
        &self.socket
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    pub(super) fn stats(&self) -> EndpointStats {
        self.endpoint.stats()
    }

    pub(super) fn activity(&mut self) -> &mut Activity {
        &mut self.activity
    }

    /// Begins to connect.
    pub(super) fn connect(
        &mut self,
        now: Timestamp,
        address: SocketAddr,
        key: PublicKey,
        config: &ConnectConfig,
    ) -> Result<(ConnectionHandle, Arc<Condvar>), QosError> {
        if let Some(qos) = config.qos {
            qos.check(&self.config.maximum)?;
        }
        let config = self.config.connecting(config, self.largest_datagram(address));
        let id = self.endpoint.connect(now, address, key, config);
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

    pub(super) fn transport(&mut self, id: ConnectionHandle) -> Option<&mut Transport> {
        self.endpoint.connection_mut(id)
    }

    /// Feeds a connection from now on. False: it is fed already.
    pub(super) fn feed(&mut self, id: ConnectionHandle, feeding: Feeding) -> bool {
        let is_free = !self.feedings.contains_key(&id);
        if is_free {
            self.feedings.insert(id, feeding);
            self.endpoint.wake(id);
        }
        is_free
    }

    /// What a sink's owner asks of it.
    pub(super) fn ask(
        &mut self,
        id: ConnectionHandle,
        now: Timestamp,
        ask: impl FnOnce(&mut Feeding, Timestamp) -> Wish,
    ) {
        let Some(feeding) = self.feedings.get_mut(&id) else { return };
        let wish = ask(feeding, now);
        if feeding.timeout().is_some() && !self.closing.contains(&id) {
            self.closing.push(id);
        }
        self.endpoint.wake(id);
        self.grant(id, now, wish);
    }

    /// The application has no handle of the connection any more.
    pub(super) fn forget(&mut self, id: ConnectionHandle, now: Timestamp) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        peer.is_forgotten = true;
        if matches!(peer.state, State::Failed(_))
            || self.endpoint.connection(id).is_some_and(Transport::is_ended)
        {
            self.remove(id);
        } else if !self.feedings.contains_key(&id) {
            self.close(id, now, CODE_DONE, "");
        }
    }

    /// Ends a connection.
    pub(super) fn close(&mut self, id: ConnectionHandle, now: Timestamp, code: u64, reason: &str) {
        // It may be in the middle of a turn that has nothing left to send.
        self.endpoint.wake(id);
        match self.endpoint.connection_mut(id) {
            Some(connection) => connection.close(now, code, reason),
            // It does not stand yet, and nobody is told.
            None => self.remove(id),
        }
    }

    /// Makes a group to send to.
    pub(super) fn add_group(&mut self, now: Timestamp, config: &GroupConfig) -> Result<u32, GroupError> {
        if self.is_stopped {
            return Err(NodeStopped.into());
        }
        let local = self.socket.local_addr()?.ip();
        Ok(self.groups.add(now, local, config)?)
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
        self.endpoint.remove(id);
        self.peers.remove(&id);
    }

    /// A producer has put something on this ring.
    pub(super) fn call(&mut self, fed: Fed) {
        match fed {
            Fed::Connection(id) => self.endpoint.wake(id),
            Fed::Group(id) => self.groups.call(id),
        }
    }

    /// Some producer may have put something on its ring.
    fn call_all(&mut self, now: Timestamp) {
        self.looked_at = now;
        for (id, feeding) in &self.feedings {
            if feeding.source.notified() {
                self.endpoint.wake(*id);
            }
        }
        self.groups.call_all();
    }

    /// Takes in what has arrived for the group whose socket has this token.
    pub(super) fn receive_of_group(&mut self, clock: impl Fn() -> Timestamp, token: u64) {
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

    /// Takes in what has arrived. False: nothing has. The clock is read after the datagrams: read before, it would make a round trip
    /// too short by as long as this thread stood still in between, and all others are measured by the shortest.
    pub(super) fn receive(&mut self, clock: impl Fn() -> Timestamp) -> bool {
        for fetch in 0..FETCHES_PER_TURN {
            // An error is an ICMP message about an earlier datagram: what it tells is no proof of anything.
            if !matches!(self.socket.receive(&mut self.arrived), Ok(true)) {
                return fetch > 0;
            }
            let now = clock();
            let datagrams = self.arrived.datagrams().map(|datagram| Datagram {
                from: datagram.from,
                to: datagram.to,
                marked: datagram.ecn == Some(Ecn::Ce),
                bytes: datagram.bytes,
            });
            self.endpoint.handle_batch(now, datagrams);
            if !self.arrived.is_full() {
                return true;
            }
        }
        self.again = true;
        true
    }

    /// Does what is due, and sends what there is to send and room for.
    pub(super) fn advance(&mut self, now: Timestamp) {
        self.again = false;
        self.owed = None;
        if self.endpoint.poll_timeout().is_some_and(|at| at <= now) {
            // What waits on a group's socket is not missing.
            for token in self.joined.tokens() {
                self.receive_of_group(|| now, token);
            }
        }
        self.endpoint.handle_timeout(now);
        for id in self.closing.clone() {
            if self.feedings.get(&id).and_then(Feeding::timeout).is_some_and(|at| at <= now) {
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
        // What is changed at the last one before the next round is to be sent too.
        self.endpoint.end_turn();
        self.again = true;
        self.handle_events(now);
    }

    /// Whether something was put off.
    pub(super) fn owes(&self) -> bool {
        self.owed.is_some()
    }

    /// Puts off what follows from the datagrams that were just taken in.
    pub(super) fn owe(&mut self, now: Timestamp) {
        self.owed = Some(now + GRACE);
        self.lively_until = now + LIVELY;
    }

    /// From here on the thread sleeps, for at most this long.
    pub(super) fn sleep(&mut self, now: Timestamp) -> Option<Duration> {
        let due = self.due(now);
        self.asleep_until = Some(due);
        (due < Timestamp::MAX).then(|| due.saturating_since(now))
    }

    /// The thread is awake: by itself, or because it was `called`, perhaps by a producer, who does not say for which ring.
    pub(super) fn awake(&mut self, now: Timestamp, called: bool) {
        self.asleep_until = None;
        if called || now >= self.looked_at + MAX_UNSEEN {
            self.call_all(now);
        }
    }

    /// Whether the thread sleeps longer than what is to be done permits.
    pub(super) fn is_due_before_wake(&self, now: Timestamp) -> bool {
        self.asleep_until.is_some_and(|at| self.outbound.is_waiting() || self.due(now) < at)
    }

    /// What the node's thread is to watch the socket for, if that has changed; another thread waits for datagrams if `is_driven`.
    pub(super) fn watch(&mut self, is_driven: bool) -> Option<Watch> {
        let wanted = Watch { datagrams: !is_driven, room: self.outbound.is_waiting() };
        (wanted != std::mem::replace(&mut self.watched, wanted)).then_some(wanted)
    }

    fn due(&self, now: Timestamp) -> Timestamp {
        if self.again && !self.outbound.is_waiting() {
            return now;
        }
        let closing = self.closing.iter().filter_map(|id| self.feedings.get(id)?.timeout()).min();
        let is_fed = !self.feedings.is_empty() || self.groups.is_any_fed();
        let latest = is_fed.then(|| self.looked_at + MAX_UNSEEN);
        let lively = (now < self.lively_until).then(|| now + GRACE);
        let timers = [self.endpoint.poll_timeout(), self.groups.due(now)];
        let due = timers.into_iter().chain([closing, latest, lively, self.owed]).flatten().min();
        due.unwrap_or(Timestamp::MAX)
    }

    fn send_handshakes(&mut self) -> bool {
        loop {
            let bytes = self.outbound.begin();
            let Some(outgoing) = self.endpoint.poll_handshake(bytes) else { return true };
            if !self.outbound.send(&mut self.socket, outgoing) {
                return false;
            }
        }
    }

    /// Gives a connection its turn. False: the socket has no room for what it sends.
    fn turn(&mut self, id: ConnectionHandle, now: Timestamp) -> bool {
        self.take_in(id, now);
        let mut nothing = Queue::default();
        for _ in 0..BURSTS_PER_TURN {
            let source: &mut dyn Source = match self.feedings.get_mut(&id) {
                Some(feeding) => &mut *feeding.source,
                None => &mut nothing,
            };
            let bytes = self.outbound.begin();
            let Some(outgoing) = self.endpoint.poll_transmit(now, id, source, bytes) else {
                self.take_in(id, now);
                self.rest(id, now);
                return true;
            };
            if !self.outbound.send(&mut self.socket, outgoing) {
                return false;
            }
        }
        self.endpoint.wake(id);
        true
    }

    /// What follows for a sink when its connection has sent what it can.
    fn rest(&mut self, id: ConnectionHandle, now: Timestamp) {
        let (Some(feeding), Some(connection)) = (self.feedings.get_mut(&id), self.endpoint.connection(id))
        else {
            return;
        };
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.turns += 1;
            if std::mem::take(&mut peer.is_awaited) {
                peer.notify(self.waiting);
                self.activity.note();
            }
        }
        feeding.account(connection.stats().bytes_sent, &connection.link(now));
        let wish = feeding.wish(now, connection.is_idle());
        if wish == Wish::Stay && !feeding.source.rest() {
            self.endpoint.wake(id);
        }
        self.grant(id, now, wish);
    }

    fn grant(&mut self, id: ConnectionHandle, now: Timestamp, wish: Wish) {
        let (ended, code) = match wish {
            Wish::Stay => return,
            Wish::Close => (Ended::Closed, CODE_DONE),
            Wish::Abort(ended) => (ended, CODE_ABORTED),
        };
        self.end_feeding(id, now, Reason::Closed, ended);
        self.close(id, now, code, if code == CODE_DONE { "" } else { "aborted" });
    }

    fn end_feeding(&mut self, id: ConnectionHandle, now: Timestamp, reason: Reason, ended: Ended) {
        self.closing.retain(|closing| *closing != id);
        if let Some(mut feeding) = self.feedings.remove(&id) {
            if let Some(connection) = self.endpoint.connection_mut(id) {
                connection.settle(now, &mut *feeding.source);
            }
            feeding.end(reason, now, ended);
        }
    }

    /// Takes over what has happened to a connection.
    fn take_in(&mut self, id: ConnectionHandle, now: Timestamp) {
        let waiting = self.waiting;
        while let Some(event) = self.endpoint.connection_mut(id).and_then(Transport::poll_event) {
            let Some(peer) = self.peers.get_mut(&id) else { return };
            match event {
                Event::Readable => peer.is_readable = true,
                Event::QosPending => peer.news.set(Status::QOS_PENDING, true),
                Event::QosChanged => peer.news.set(Status::QOS_CHANGED, true),
                Event::Migrated(address) => peer.address = address,
                Event::Invited { group, address } => {
                    self.join(id, group, address);
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
            peer.notify(waiting);
            self.activity.note();
        }
    }

    /// A connection that stood is over.
    fn on_closed(&mut self, id: ConnectionHandle, now: Timestamp, closed: Closed) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let ended = Ended::Broken(closed.clone().into());
        peer.state = State::Closed(closed);
        peer.is_forgotten |= self.newcomers.on_end(id, peer.is_readable);
        peer.notify(self.waiting);
        self.activity.note();
        self.groups.part(id);
        self.joined.leave(id);
        self.end_feeding(id, now, Reason::ConnectionLost, ended);
    }

    /// A handshake was not completed.
    fn on_failed(&mut self, id: ConnectionHandle, now: Timestamp, error: ConnectError) {
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
        peer.notify(self.waiting);
        self.activity.note();
    }

    fn handle_events(&mut self, now: Timestamp) {
        let waiting = self.waiting;
        while let Some(event) = self.endpoint.poll_event() {
            match event {
                EndpointEvent::Incoming(incoming) => self.on_incoming(now, &incoming),
                EndpointEvent::Connected(id) => {
                    let Some(peer) = self.peers.get_mut(&id) else { continue };
                    // Who was accepted may have been closed since.
                    if !peer.state.is_over() {
                        peer.state = State::Open;
                    }
                    peer.notify(waiting);
                    self.activity.note();
                    if std::mem::take(&mut peer.is_incoming) {
                        self.on_newcomer(now, id);
                    }
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
        self.advance(now);
    }

    /// The socket can be used no more.
    pub(super) fn fail(&mut self, now: Timestamp, error: &io::Error) {
        self.end_all(
            now,
            &SinkError::Io { kind: error.kind(), message: format!("the node's socket failed: {error}") },
        );
    }

    fn end_all(&mut self, now: Timestamp, error: &SinkError) {
        self.is_stopped = true;
        self.groups.end_all(now, error);
        for id in self.peers.keys().copied().collect::<Vec<_>>() {
            self.end_feeding(id, now, Reason::ConnectionLost, Ended::Broken(error.clone()));
            if let Some(connection) = self.endpoint.connection_mut(id) {
                connection.close(now, CODE_ABORTED, "the node was stopped");
            }
        }
        for peer in self.peers.values_mut() {
            if !peer.state.is_over() {
                peer.state = State::Closed(Closed::Local);
            }
            peer.changed.notify_all();
        }
        self.activity.note();
    }
}

#[cfg(test)]
mod tests;

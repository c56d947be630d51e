//! Many connections over one socket: demultiplexing, accepting, address validation.

mod agreement;
mod bucket;
mod datagram;
mod event;
mod initiating;
mod places;
mod responding;
mod table;
#[cfg(test)]
mod tests;
mod timers;

pub use datagram::{Datagram, Outgoing};
pub use event::{
    ConnectError, ConnectionHandle, EndpointEvent, EndpointStats, Incoming, Refusal, WrongHandle,
};

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

use freshwire_record::Timestamp;

use crate::config::{ConnectConfig, ConnectionConfig, EndpointConfig};
use crate::connection::{Connection, Setup};
use crate::crypto::{CookieJar, Local, PublicKey, Random, ResetKey, ResetToken};
use crate::inbox::Message;
use crate::pool::Pool;
use crate::remote::Remote;
use crate::source::Source;
use crate::wire::{DATA_HEADER, DataHeader, Packet, QosError, RESET_LENGTH, is_urgent};

use bucket::Bucket;
use datagram::InitiationPacket;
use initiating::{Action, Initiating, Outcome, Plan};
use places::Places;
use table::{Entry, Open, State, Table};

/// Any number of connections over one UDP socket, to which others may connect as well. It does no input or output of its
/// own: it is given datagrams and the time, and gives datagrams, events and the time of the next timer.
///
/// After each call that changes it, its owner empties three queues, then waits for datagrams or the timer:
/// ```text
///   handle_batch, handle_timeout, connect, accept, wake …
///        │
///        ├─► poll_event              until None
///        ├─► poll_handshake          until None: datagrams of handshakes, and resets
///        ├─► next_ready              until None: a connection that wants a turn
///        │      ├─► connection_mut   its events and messages
///        │      └─► poll_transmit    until None, with the connection's source: its datagrams
///        └─► poll_timeout            when to call handle_timeout
/// ```
/// The source of what a connection sends is its owner's: [`Endpoint::wake`] tells that there is something new in it.
///
/// An initiator first proves by a cookie that it receives at its address. Until then, no state is kept for it, and it
/// is sent at most a thirtieth of what it sent. State of initiators that have not confirmed the response is bounded
/// by [`Limits`](crate::Limits).
///
/// After a restart, a packet of an unknown connection is answered with a reset, and the peer's connection ends with
/// [`crate::Closed::PeerRestarted`]. The proof in it follows from [`EndpointConfig::key`]. An endpoint restarted with
/// another key therefore cannot end its predecessor's connections, and their peers wait for the idle timeout.
/// Endpoints that run at the same time should not share a key: resets of one would let an observer on the path end
/// the connections of another.
pub struct Endpoint {
    config: EndpointConfig,
    random: Random,
    cookies: CookieJar,
    table: Table,
    half_open: Places,
    /// Refused connections, whose refusal is sent again.
    refused: Places,
    /// Connections that others began, by [`table::Initiation::digest`]. An initiator that begins anew, with another cookie,
    /// has two of them for a while: which one it completes is up to it.
    initiators: BTreeMap<[u8; 32], ConnectionHandle>,
    resets: ResetKey,
    retries: Bucket,
    responses: Bucket,
    reset_bucket: Bucket,
    /// The connections whose peers have made this end a member of a group, by the group's number.
    groups: BTreeMap<u32, ConnectionHandle>,
    handshakes: VecDeque<(Outgoing, Vec<u8>)>,
    events: VecDeque<EndpointEvent>,
    stats: EndpointStats,
    pool: Pool,
}

impl Endpoint {
    /// Creates an endpoint without connections.
    ///
    /// All randomness comes from `seed`: 32 bytes that nobody can guess and that are never used again. The same seed and
    /// the same calls give the same bytes.
    pub fn new(config: EndpointConfig, seed: [u8; 32]) -> Self {
        let mut random = Random::from_seed(seed);
        let limits = config.limits;
        Self {
            cookies: CookieJar::new(random.bytes()),
            resets: ResetKey::new(&config.key),
            random,
            table: Table::default(),
            half_open: Places::default(),
            refused: Places::default(),
            initiators: BTreeMap::new(),
            retries: Bucket::new(limits.retries_per_second),
            responses: Bucket::new(limits.responses_per_second),
            reset_bucket: Bucket::new(limits.resets_per_second),
            groups: BTreeMap::new(),
            handshakes: VecDeque::new(),
            events: VecDeque::new(),
            stats: EndpointStats::default(),
            pool: Pool::default(),
            config,
        }
    }

    /// The key that peers know this endpoint by.
    pub fn public_key(&self) -> PublicKey {
        self.config.key.public_key()
    }

    /// Begins a connection to the owner of `key` at `remote`. [`EndpointEvent::Connected`] or
    /// [`EndpointEvent::Failed`] follows.
    ///
    /// # Errors
    ///
    /// If the maximum of `connection` is out of range, or `config` requests more.
    pub fn connect(
        &mut self,
        now: Timestamp,
        remote: SocketAddr,
        key: PublicKey,
        config: &ConnectConfig,
        connection: ConnectionConfig,
    ) -> Result<ConnectionHandle, QosError> {
        let qos = connection.requested(config)?;
        let handle = self.table.reserve(&mut self.random, self.config.shard);
        let reset = self.resets.token(handle.id, remote.ip());
        let plan = Plan { id: handle.id, remote: remote.into(), key, reset, qos, connection };
        self.table.insert_ours(handle, Initiating::new(now, now + config.timeout, plan));
        self.on_timer(now, handle);
        Ok(handle)
    }

    /// Tries another way to the peer of a connection that this end has started. During the handshake both ways are tried, and the
    /// first answer decides. Afterwards the other way is used from its first answer on. It has to be there: for TCP, its connection.
    /// False: there is no such connection.
    //= spec/a1.md A1-TCP-2, A1-TCP-3
    pub fn attempt(&mut self, now: Timestamp, handle: ConnectionHandle, remote: Remote) -> bool {
        let Some(entry) = self.table.get_mut(handle) else { return false };
        match &mut entry.state {
            State::Initiating(initiating) => initiating.attempt(now, remote),
            State::Open(open) => open.connection.attempt(now, remote),
            State::PendingRequest(_) | State::Refused(_) => return false,
        }
        self.table.queue(handle);
        self.table.set_timer(handle.id);
        self.handle_timeout(now);
        true
    }

    /// Takes the datagrams that one system call brought. Datagrams with retransmitted blocks, or with nothing
    /// but acknowledgements and the like, go first: they may open the window for waiting data (Mapp 1997).
    //= spec/a1.md A1-PKT-5
    pub fn handle_batch<'a>(&mut self, now: Timestamp, datagrams: impl IntoIterator<Item = Datagram<'a>>) {
        let mut others = Vec::new();
        for datagram in datagrams {
            if is_urgent(datagram.bytes) {
                self.handle_datagram(now, datagram);
            } else {
                others.push(datagram);
            }
        }
        for datagram in others {
            self.handle_datagram(now, datagram);
        }
    }

    /// Takes one datagram.
    pub fn handle_datagram(&mut self, now: Timestamp, datagram: Datagram<'_>) {
        match Packet::parse(datagram.bytes) {
            Ok(Packet::Data(header, _)) => self.on_data(now, datagram, header),
            Ok(Packet::Group { group, number, .. }) => self.on_group(now, group, number, datagram.bytes),
            Ok(Packet::Initiation { version, from, cookie, noise }) => {
                self.on_initiation(now, &datagram, InitiationPacket { version, from, cookie, noise });
            }
            Ok(Packet::Retry { to, cookie }) => self.on_retry(now, &datagram, to, cookie),
            Ok(Packet::Response { to, noise, .. }) => self.on_response(now, &datagram, to, noise),
            Ok(Packet::Version { to, version }) => match self.table.initiating(to, datagram.from) {
                Some((_, initiating)) => {
                    initiating.on_version(now, version);
                    self.table.set_timer(to);
                }
                None => self.stats.unknown += 1,
            },
            Ok(Packet::Reset { to, token }) => self.on_reset(datagram.from, to, &token),
            Err(_) => self.stats.malformed += 1,
        }
    }

    /// Takes one datagram that came to a group's address, and is opened in place. Others than the group's packets are
    /// ignored: an answer to what went to many at once would be one of many.
    //= spec/a1.md A1-GRP-2
    pub fn handle_group_datagram(&mut self, now: Timestamp, bytes: &mut [u8]) {
        match Packet::parse(bytes) {
            Ok(Packet::Group { group, number, .. }) => self.on_group(now, group, number, bytes),
            _ => self.stats.malformed += 1,
        }
    }

    /// When [`Endpoint::handle_timeout`] is to be called. It may be early, and nothing comes of it then.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        self.table.next_timeout()
    }

    /// The time that [`Endpoint::poll_timeout`] named has come.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        while let Some(handle) = self.table.due(now) {
            self.on_timer(now, handle);
        }
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<EndpointEvent> {
        self.events.pop_front()
    }

    /// Appends the next datagram of a handshake, or the next reset, to `out`.
    pub fn poll_handshake(&mut self, out: &mut Vec<u8>) -> Option<Outgoing> {
        let (outgoing, bytes) = self.handshakes.pop_front()?;
        out.extend(bytes);
        Some(outgoing)
    }

    /// The connection whose turn it is: something came for it, its timer fired, or it was woken. The turn lasts until the
    /// next call, or [`Endpoint::end_turn`].
    pub fn next_ready(&mut self) -> Option<ConnectionHandle> {
        self.table.next_turn()
    }

    /// Ends the turn of the connection that has it. For who gives no other one for now: what is changed at the connection from
    /// here on gives it another turn.
    pub fn end_turn(&mut self) {
        self.table.end_turn();
    }

    /// Appends the next datagrams of a connection to `out`, as many as may leave at once. `None`: nothing may be sent now.
    /// A caller that stops before must [`Endpoint::wake`] the connection, or its timer does not run.
    pub fn poll_transmit(
        &mut self,
        now: Timestamp,
        handle: ConnectionHandle,
        source: &mut dyn Source,
        out: &mut Vec<u8>,
    ) -> Option<Outgoing> {
        let entry = self.table.get_mut(handle)?;
        let State::Open(open) = &mut entry.state else { return None };
        if let Some(transmit) = open.connection.poll_transmit(now, source, out) {
            return Some(Outgoing::from_connection(transmit, entry.local));
        }
        self.report_end(handle);
        self.table.set_timer(handle.id);
        None
    }

    /// Gives the connection a turn: its source has something new.
    pub fn wake(&mut self, handle: ConnectionHandle) {
        self.table.queue(handle);
    }

    /// A connection after its handshake.
    pub fn connection(&self, handle: ConnectionHandle) -> Option<&Connection> {
        match &self.table.get(handle)?.state {
            State::Open(open) => Some(&open.connection),
            _ => None,
        }
    }

    /// A connection after its handshake, to change it. It gets a turn for that, unless it has the turn now.
    pub fn connection_mut(&mut self, handle: ConnectionHandle) -> Option<&mut Connection> {
        self.table.queue_unless_in_turn(handle);
        match &mut self.table.get_mut(handle)?.state {
            State::Open(open) => Some(&mut open.connection),
            _ => None,
        }
    }

    /// The next message of a connection that came whole, as old as it is at `now`. The connection gets a turn only if the
    /// window has grown by enough to say so, as opposed to [`Endpoint::connection_mut`].
    pub fn recv(&mut self, now: Timestamp, handle: ConnectionHandle) -> Option<Message> {
        let State::Open(open) = &mut self.table.get_mut(handle)?.state else { return None };
        let message = open.connection.recv(now);
        if open.connection.has_credit_to_say() {
            self.table.queue_unless_in_turn(handle);
        }
        message
    }

    /// Whether a connection waits for its turn.
    pub fn has_ready(&self) -> bool {
        self.table.has_ready()
    }

    /// Forgets a connection; the handle is void then. The peer is not informed; when it sends something, it learns
    /// that there is no such connection. Use [`Connection::close`] first, and wait for [`EndpointEvent::Ended`]. A
    /// handshake in progress is given up. False: there is no such connection.
    pub fn remove(&mut self, handle: ConnectionHandle) -> bool {
        self.half_open.remove(handle);
        self.refused.remove(handle);
        let Some(entry) = self.table.remove(handle) else { return false };
        if let Some(initiation) = entry.initiation {
            self.initiators.remove(&initiation.digest);
        }
        self.groups.retain(|_, member| *member != handle);
        true
    }

    /// Packets of this multicast group are for this connection, which was [`crate::Event::Invited`] to it. False: another
    /// connection has a group of the same number.
    pub fn join(&mut self, group: u32, handle: ConnectionHandle) -> bool {
        *self.groups.entry(group).or_insert(handle) == handle
    }

    /// The local address that a connection's peer sends to, as far as it is known.
    pub fn local_ip(&self, handle: ConnectionHandle) -> Option<IpAddr> {
        self.table.get(handle)?.local
    }

    /// Connections of all kinds, with those that are half-open.
    pub fn connections(&self) -> usize {
        self.table.len()
    }

    /// Initiators that have not shown yet that they have got an answer.
    pub fn half_open(&self) -> usize {
        self.half_open.len()
    }

    /// The counters so far.
    pub fn stats(&self) -> EndpointStats {
        self.stats
    }

    fn on_group(&mut self, now: Timestamp, group: u32, number: u32, bytes: &mut [u8]) {
        let Some(&handle) = self.groups.get(&group) else {
            self.stats.unknown += 1;
            return;
        };
        let sealed = bytes.get_mut(DATA_HEADER..).unwrap_or_default();
        if let Some(connection) = self.connection_mut(handle) {
            connection.handle_group_packet(now, group, number, sealed);
        }
    }

    //= spec/a1.md A1-HS-6
    fn on_data(&mut self, now: Timestamp, datagram: Datagram<'_>, header: DataHeader) {
        let Some((handle, entry)) = self.table.by_id(header.to) else {
            self.stats.unknown += 1;
            // Another endpoint with the same key has the connection, if it was put here by mistake: it must not be ended.
            if self.config.shard.is_none_or(|shard| shard.owns(header.to)) {
                self.send_reset(now, &datagram, header.to);
            }
            return;
        };
        let Entry { state: State::Open(open), local, .. } = entry else {
            self.stats.unknown += 1;
            return;
        };
        let sealed = datagram.bytes.get_mut(DATA_HEADER..).unwrap_or_default();
        if open.connection.handle_packet(now, datagram.from, datagram.marked, header, sealed) {
            *local = datagram.to;
            if open.response.take().is_some() {
                self.half_open.remove(handle);
                self.events.push_back(EndpointEvent::Connected(handle));
            }
        }
        self.table.queue(handle);
    }

    /// Ends a connection that this endpoint has forgotten at its peer. What comes may be forged: the answer is smaller than
    /// it, good for its address only, and rare.
    //= spec/a1.md A1-RST-1
    fn send_reset(&mut self, now: Timestamp, datagram: &Datagram<'_>, to: u32) {
        if datagram.bytes.len() <= RESET_LENGTH {
            return;
        }
        if !self.reset_bucket.take(now) {
            self.stats.over_limit += 1;
            return;
        }
        let token = self.resets.token(to, datagram.from.address.ip());
        let mut bytes = Vec::new();
        Packet::Reset { to, token }.put(&mut bytes);
        self.send(datagram.from, datagram.to, bytes);
        self.stats.resets += 1;
    }

    /// Somebody says that there is no connection `to` where this end sends to.
    //= spec/a1.md A1-RST-3
    fn on_reset(&mut self, from: Remote, to: u32, token: &ResetToken) {
        let Some((handle, open)) = self.table.by_peer(to, from) else {
            self.stats.unknown += 1;
            return;
        };
        if open.connection.on_reset(token) {
            self.table.queue(handle);
        } else {
            self.stats.unauthentic += 1;
        }
    }

    fn on_retry(&mut self, now: Timestamp, datagram: &Datagram<'_>, to: u32, cookie: &[u8]) {
        let Some((handle, initiating)) = self.table.initiating(to, datagram.from) else {
            self.stats.unknown += 1;
            return;
        };
        initiating.on_retry(now, datagram.from, cookie);
        self.table.set_timer(handle.id);
        self.handle_timeout(now);
    }

    fn on_response(&mut self, now: Timestamp, datagram: &Datagram<'_>, to: u32, noise: &[u8]) {
        let Some((handle, initiating)) = self.table.initiating(to, datagram.from) else {
            self.stats.unknown += 1;
            return;
        };
        match initiating.on_response(datagram.from, noise, self.config.key_log.as_ref()) {
            Outcome::Unauthentic => self.stats.unauthentic += 1,
            Outcome::Failed(error) => self.fail(handle, error),
            Outcome::Agreed(agreed) => {
                let setup = Setup {
                    epoch: agreed.epoch,
                    remote: agreed.remote,
                    peer_id: agreed.peer_id,
                    keys: agreed.keys,
                    local: agreed.local,
                    peer: agreed.peer,
                    qos: agreed.qos,
                    is_initiator: true,
                    config: agreed.connection,
                    seed: self.random.bytes(),
                    pool: self.pool.clone(),
                };
                self.table.open(handle, Open { connection: Connection::new(now, setup), response: None });
                if let Some(entry) = self.table.get_mut(handle) {
                    entry.local = datagram.to;
                }
                self.events.push_back(EndpointEvent::Connected(handle));
                self.table.queue(handle);
            }
        }
    }

    fn on_timer(&mut self, now: Timestamp, handle: ConnectionHandle) {
        let Some(entry) = self.table.get_mut(handle) else { return };
        match &mut entry.state {
            State::Initiating(initiating) => {
                let EndpointConfig { key, psk, .. } = &self.config;
                let local = Local { key, psk: psk.as_ref(), prologue: &[], seed: self.random.bytes() };
                match initiating.on_timeout(now, local) {
                    Action::Send(remote, bytes) => {
                        self.send(remote, None, bytes);
                        self.table.set_timer(handle.id);
                    }
                    Action::GiveUp(error) => self.fail(handle, error),
                }
            }
            State::PendingRequest(_) | State::Refused(_) => self.expire(handle),
            State::Open(open) => {
                if open.response.as_ref().is_some_and(|response| response.expires <= now) {
                    return self.expire(handle);
                }
                open.connection.handle_timeout(now);
                // The turn sets the timer again.
                self.table.queue(handle);
            }
        }
    }

    /// Forgets a half-open connection.
    fn expire(&mut self, handle: ConnectionHandle) {
        // The application knows of a connection that it refused.
        if self.table.get(handle).is_some_and(|entry| matches!(entry.state, State::Refused(_))) {
            self.remove(handle);
        } else {
            self.fail(handle, ConnectError::NotCompleted);
        }
    }

    fn fail(&mut self, handle: ConnectionHandle, error: ConnectError) {
        if self.remove(handle) {
            self.events.push_back(EndpointEvent::Failed(handle, error));
        }
    }

    //= spec/a1.md A1-END-3
    fn report_end(&mut self, handle: ConnectionHandle) {
        let Some(entry) = self.table.get_mut(handle) else { return };
        let State::Open(open) = &mut entry.state else { return };
        if open.connection.is_ended() && !entry.is_reported {
            entry.is_reported = true;
            open.response = None;
            self.half_open.remove(handle);
            self.events.push_back(EndpointEvent::Ended(handle));
        }
    }

    fn send(&mut self, to: Remote, from: Option<IpAddr>, bytes: Vec<u8>) {
        if self.handshakes.len() >= MAX_HANDSHAKES {
            self.stats.queue_full += 1;
            return;
        }
        self.handshakes.push_back((Outgoing::single(to, from, bytes.len()), bytes));
    }
}

/// Datagrams of handshakes that may wait to be fetched: as many as incomplete handshakes (A1-HS-8).
const MAX_HANDSHAKES: usize = 1024;

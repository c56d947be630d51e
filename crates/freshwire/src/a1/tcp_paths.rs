//! The TCP connections of a node, which carry A1's packets where UDP does not pass.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use freshwire_a1::{ConnectionHandle, Limits, Outgoing};
use freshwire_io::poll::Poller;
use freshwire_io::tcp::TcpSocket;
use freshwire_io::udp::plain;
use freshwire_record::Timestamp;

use crate::sink::reserve::Reserve;

/// The TCP connections of a node, by the peer's address.
pub(super) struct TcpPaths {
    poller: Arc<Poller>,
    limits: Limits,
    listener: Option<TcpListener>,
    /// The listener is watched: not after the system refused a connection, until the next look.
    is_listening: bool,
    paths: BTreeMap<SocketAddr, TcpPath>,
    next_token: u64,
    looked_at: Timestamp,
    /// Kept for its memory.
    chunk: Vec<u8>,
}

/// What became of a TCP connection.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// It is established.
    Opened(SocketAddr),
    /// It has room again.
    Room(SocketAddr),
    /// It is over, and these connections of A1 had it.
    Ended(BTreeSet<ConnectionHandle>),
}

struct TcpPath {
    socket: TcpSocket,
    token: u64,
    is_connecting: bool,
    opened_at: Timestamp,
    /// A1's connections that it is for.
    users: BTreeSet<ConnectionHandle>,
    /// The begin of a packet of which the rest has not come.
    input: Vec<u8>,
    /// What the socket had no room for.
    output: Vec<u8>,
    reserve: u32,
    reserve_at: Timestamp,
    watches_room: bool,
    is_broken: bool,
}

impl TcpPaths {
    pub(super) fn new(limits: Limits, poller: Arc<Poller>) -> Self {
        Self {
            poller,
            limits,
            listener: None,
            is_listening: false,
            paths: BTreeMap::new(),
            next_token: LISTENER + 1,
            looked_at: Timestamp::ZERO,
            chunk: Vec::new(),
        }
    }

    /// Accepts connections at this address.
    pub(super) fn listen(&mut self, address: SocketAddr) -> io::Result<()> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        self.poller.add_reader(&listener, LISTENER)?;
        (self.listener, self.is_listening) = (Some(listener), true);
        Ok(())
    }

    /// Whether a token is that of the listener or a connection.
    pub(super) fn is_token(token: u64) -> bool {
        token >= LISTENER
    }

    /// A connection to this address for `user`: an existing one, or one that is being made.
    pub(super) fn open(
        &mut self,
        now: Timestamp,
        to: SocketAddr,
        user: ConnectionHandle,
    ) -> io::Result<Option<Change>> {
        if let Some(path) = self.paths.get_mut(&to) {
            path.users.insert(user);
            return Ok((!path.is_connecting).then_some(Change::Opened(to)));
        }
        self.add(now, to, TcpSocket::connect(to)?, true)?.users.insert(user);
        Ok(None)
    }

    fn add(
        &mut self,
        now: Timestamp,
        peer: SocketAddr,
        socket: TcpSocket,
        is_connecting: bool,
    ) -> io::Result<&mut TcpPath> {
        socket.set_user_timeout(USER_TIMEOUT)?;
        let token = self.next_token;
        self.next_token += 1;
        self.poller.add_reader(&socket, token)?;
        self.poller.watch_reader(&socket, token, is_connecting)?;
        let path = TcpPath {
            socket,
            token,
            is_connecting,
            opened_at: now,
            users: BTreeSet::new(),
            input: Vec::new(),
            output: Vec::new(),
            reserve: 1,
            reserve_at: Timestamp::ZERO,
            watches_room: is_connecting,
            is_broken: false,
        };
        self.paths.insert(peer, path);
        Ok(self.paths.get_mut(&peer).expect("it was put there"))
    }

    /// A connection of A1 has come over, or gone over, to TCP.
    pub(super) fn hold(&mut self, peer: SocketAddr, user: ConnectionHandle) {
        if let Some(path) = self.paths.get_mut(&peer) {
            path.users.insert(user);
        }
    }

    /// A connection of A1 needs none of them, except that to `kept`. One without users is closed.
    pub(super) fn release(&mut self, user: ConnectionHandle, kept: Option<SocketAddr>) {
        let poller = &self.poller;
        self.paths.retain(|peer, path| {
            if Some(*peer) == kept || !path.users.remove(&user) {
                return true;
            }
            path.flush(poller);
            !path.users.is_empty()
        });
    }

    /// A1's connections that the connection to this peer is for.
    pub(super) fn users(&self, peer: SocketAddr) -> BTreeSet<ConnectionHandle> {
        self.paths.get(&peer).map_or_else(BTreeSet::new, |path| path.users.clone())
    }

    /// Whether one of them is for this connection of A1.
    pub(super) fn is_used_by(&self, user: ConnectionHandle) -> bool {
        self.paths.values().any(|path| path.users.contains(&user))
    }

    /// How many bytes the connection to this peer takes now: its unsent queue is at most the reserve, as for a sink over TCP.
    pub(super) fn room(&mut self, now: Timestamp, peer: SocketAddr) -> u64 {
        let poller = &self.poller;
        self.paths.get_mut(&peer).map_or(0, |path| {
            let room = path.room(now);
            if room == 0 {
                path.watch_room(poller, true);
            }
            room
        })
    }

    /// Hands packets over. Without such a connection they are lost, as on a network.
    pub(super) fn send(&mut self, outgoing: &Outgoing, bytes: &[u8]) {
        let Some(path) = self.paths.get_mut(&outgoing.to.address) else { return };
        for packet in bytes.chunks(outgoing.segment.max(1)) {
            path.put(packet);
        }
        path.flush(&self.poller);
    }

    /// Something happened at the file with this token. Packets that have come go to `take`, with the peer's address.
    pub(super) fn on_ready(
        &mut self,
        now: Timestamp,
        token: u64,
        mut take: impl FnMut(SocketAddr, &mut [u8]),
    ) -> Option<Change> {
        if token == LISTENER {
            self.accept(now);
            return None;
        }
        let (&peer, path) = self.paths.iter_mut().find(|(_, path)| path.token == token)?;
        if path.is_connecting {
            return path.on_connected(&self.poller, peer).or_else(|| self.take_broken(peer));
        }
        self.chunk.resize(CHUNK, 0);
        path.receive(&mut self.chunk, |packet| take(peer, packet));
        let had_no_room = path.watches_room;
        path.flush(&self.poller);
        let has_room = had_no_room && path.room(now) > 0;
        if has_room {
            path.watch_room(&self.poller, false);
        }
        self.take_broken(peer).or(has_room.then_some(Change::Room(peer)))
    }

    fn take_broken(&mut self, peer: SocketAddr) -> Option<Change> {
        if !self.paths.get(&peer)?.is_broken {
            return None;
        }
        let path = self.paths.remove(&peer)?;
        Some(Change::Ended(path.users))
    }

    /// A connection that broke while something was sent.
    pub(super) fn next_broken(&mut self) -> Option<Change> {
        let (&peer, _) = self.paths.iter().find(|(_, path)| path.is_broken)?;
        self.take_broken(peer)
    }

    //= spec/a1.md A1-TCP-5
    fn accept(&mut self, now: Timestamp) {
        let Some(listener) = &self.listener else { return };
        let mut accepted = Vec::new();
        loop {
            match listener.accept() {
                Ok(new) => accepted.push(new),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(_) => {
                    // Such as too many open files: asking again at once would not end.
                    let _ = self.poller.remove(listener);
                    self.is_listening = false;
                    break;
                }
            }
        }
        for (stream, peer) in accepted {
            let peer = plain(peer);
            self.make_way(peer.ip());
            // A connection that fails at once is none.
            let _ = stream.set_nonblocking(true).and_then(|()| {
                let socket = TcpSocket::new(stream)?;
                self.add(now, peer, socket, false).map(drop)
            });
        }
    }

    /// Closes the oldest connection without a user if there are too many of them, in all or from one address.
    fn make_way(&mut self, from: IpAddr) {
        let unused = || self.paths.iter().filter(|(_, path)| path.users.is_empty());
        let of_address = || unused().filter(|(peer, _)| peer.ip() == from);
        let oldest = if of_address().count() >= self.limits.half_open_per_address {
            of_address().min_by_key(|(_, path)| path.token)
        } else if unused().count() >= self.limits.half_open {
            unused().min_by_key(|(_, path)| path.token)
        } else {
            None
        };
        if let Some(peer) = oldest.map(|(&peer, _)| peer) {
            self.paths.remove(&peer);
        }
    }

    /// Closes connections that nobody uses although there was time for a handshake, and listens again after a failure.
    pub(super) fn look(&mut self, now: Timestamp) {
        if self.listener.is_none() && self.paths.is_empty() || now < self.looked_at + LOOK {
            return;
        }
        self.looked_at = now;
        let time = self.limits.handshake_time;
        self.paths.retain(|_, path| !path.users.is_empty() || now < path.opened_at + time);
        if let Some(listener) = self.listener.as_ref().filter(|_| !self.is_listening) {
            self.is_listening = self.poller.add_reader(listener, LISTENER).is_ok();
        }
    }

    /// When to look, if anything may have to be closed.
    pub(super) fn due(&self) -> Option<Timestamp> {
        let is_unused = |path: &TcpPath| path.users.is_empty();
        let is_waiting = self.paths.values().any(is_unused) || self.listener.is_some() && !self.is_listening;
        is_waiting.then(|| self.looked_at + LOOK)
    }
}

impl TcpPath {
    fn on_connected(&mut self, poller: &Poller, peer: SocketAddr) -> Option<Change> {
        if self.socket.is_connected() {
            self.is_connecting = false;
            self.watch_room(poller, false);
            return Some(Change::Opened(peer));
        }
        self.is_broken = !matches!(self.socket.take_error(), Ok(None));
        None
    }

    /// Each packet has its length in front of it, 16 bits.
    //= spec/a1.md A1-TCP-1
    fn put(&mut self, packet: &[u8]) {
        let Ok(len) = u16::try_from(packet.len()) else { return };
        // What the congestion window does not hold back, such as acknowledgements, may be lost like on any path.
        if self.is_connecting || self.output.len() + packet.len() > MAX_OUTPUT {
            return;
        }
        self.output.extend_from_slice(&len.to_be_bytes());
        self.output.extend_from_slice(packet);
    }

    /// Writes what the socket takes.
    fn flush(&mut self, poller: &Poller) {
        if self.is_connecting || self.is_broken {
            return;
        }
        let mut from = 0;
        while from < self.output.len() {
            match self.socket.write(&self.output[from..]) {
                Ok(Some(written)) => from += written,
                Ok(None) => break,
                Err(_) => {
                    self.is_broken = true;
                    break;
                }
            }
        }
        self.output.drain(..from);
        if !self.output.is_empty() {
            self.watch_room(poller, true);
        }
    }

    fn room(&mut self, now: Timestamp) -> u64 {
        if self.is_connecting || self.is_broken || !self.output.is_empty() {
            return 0;
        }
        if now >= self.reserve_at + RESERVE_KEEPS {
            self.reserve_at = now;
            self.renew_reserve();
        }
        let reserve = u64::from(self.reserve);
        match self.socket.unsent() {
            Ok(unsent) if unsent < reserve => reserve - unsent,
            _ => 0,
        }
    }

    fn renew_reserve(&mut self) {
        let (Ok(info), Ok(congestion)) = (self.socket.info(), self.socket.congestion()) else { return };
        let rate = (info.delivered > 0).then_some(info.delivery_rate);
        self.reserve = Reserve::Auto.bytes(&congestion, &info, rate);
        self.is_broken |= self.socket.set_notsent_lowat(self.reserve).is_err();
    }

    fn watch_room(&mut self, poller: &Poller, watches: bool) {
        if self.watches_room != watches {
            self.watches_room = watches;
            self.is_broken |= poller.watch_reader(&self.socket, self.token, watches).is_err();
        }
    }

    /// Takes in what has come, at most as much as one look fetches.
    fn receive(&mut self, chunk: &mut [u8], mut take: impl FnMut(&mut [u8])) {
        for _ in 0..CHUNKS_PER_LOOK {
            match self.socket.read(chunk) {
                Ok(Some(0)) | Err(_) => {
                    self.is_broken = true;
                    return;
                }
                Ok(Some(len)) => self.input.extend_from_slice(&chunk[..len]),
                Ok(None) => return,
            }
            let mut at = 0;
            while let Some(len) = self.packet_at(at) {
                let end = at + LENGTH + len;
                if self.users.is_empty() && len > MAX_UNKNOWN {
                    self.is_broken = true;
                    return;
                }
                let Some(packet) = self.input.get_mut(at + LENGTH..end) else { break };
                take(packet);
                at = end;
            }
            self.input.drain(..at);
        }
    }

    /// The length of the packet that begins at this place of the input.
    fn packet_at(&self, at: usize) -> Option<usize> {
        let length = self.input.get(at..at + LENGTH)?;
        Some(usize::from(u16::from_be_bytes([length[0], length[1]])))
    }
}

/// Token of the listener; those of connections follow. Sockets of multicast groups count from 1.
const LISTENER: u64 = 1 << 62;
/// Bytes of the length in front of each packet (A1-TCP-1).
const LENGTH: usize = 2;
/// The largest packet of a connection that no user of A1 has: that of a handshake (A1-TCP-5).
const MAX_UNKNOWN: usize = 2048;
/// Packets beyond the socket's room that wait, in bytes: one of the largest fits. Chosen, not measured.
const MAX_OUTPUT: usize = 128 << 10;
/// Bytes read at a time, and how often at one look, before other sockets have their turn. Chosen, not measured.
const CHUNK: usize = 64 << 10;
const CHUNKS_PER_LOOK: usize = 16;
/// Time for which the reserve is kept that follows from the connection's rate. Chosen, not measured: asking takes a microsecond.
const RESERVE_KEEPS: Duration = Duration::from_millis(10);
/// Interval of looks for connections that nobody uses.
const LOOK: Duration = Duration::from_secs(1);
/// Time after which a TCP connection counts as broken whose data is not acknowledged: A1 then makes another one. Chosen, not
/// measured: several retransmissions of TCP, and a sixth of A1's default idle timeout.
const USER_TIMEOUT: Duration = Duration::from_secs(5);

//! The way over TCP, for connections of this node's that UDP does not carry: staggered attempts during the handshake (Happy
//! Eyeballs, RFC 8305), and another path afterwards.

use std::net::SocketAddr;
use std::time::Duration;

use freshwire_a1::{Connection as Transport, ConnectionHandle, Datagram, Remote};
use freshwire_record::Timestamp;

use super::Core;
use super::attempts::{FIRST_PAUSE, Fallback, LONGEST_UDP_PAUSE};
use crate::a1::peer::State;
use crate::a1::tcp_paths::{Change, TcpPaths};

impl Core {
    /// A connection has been started: TCP is tried too if UDP has brought no answer after the attempt delay.
    //= spec/a1.md A1-TCP-2
    pub(super) fn begin_fallback(&mut self, id: ConnectionHandle, address: SocketAddr, now: Timestamp) {
        if self.config.tcp_fallback {
            self.fallbacks.insert(id, Fallback::new(address, now + self.config.attempt_delay));
        }
    }

    /// Opens the TCP connections that are due, and tries UDP again where that is due.
    pub(super) fn advance_fallbacks(&mut self, now: Timestamp) {
        let is_due = |fallback: &&mut Fallback| fallback.at.min(fallback.udp_at) <= now;
        let mut due = Vec::new();
        for (id, fallback) in &mut self.fallbacks {
            due.extend(Some(fallback).filter(is_due).map(|_| *id));
        }
        for id in due {
            self.try_other(id, now);
        }
        while let Some(change) = self.tcp_paths.next_broken() {
            self.on_tcp_change(change, now);
        }
        self.tcp_paths.look(now);
    }

    fn try_other(&mut self, id: ConnectionHandle, now: Timestamp) {
        let is_connecting = self.peers.get(&id).is_some_and(|peer| matches!(peer.state, State::Connecting));
        let connection = self.endpoint.connection(id);
        let is_over_tcp = connection.is_some_and(Transport::is_over_tcp);
        let is_unanswered = connection.is_some_and(|connection| connection.unanswered_since().is_some());
        let Some(fallback) = self.fallbacks.get_mut(&id) else { return };
        let address = fallback.address;
        if std::mem::replace(&mut fallback.at, Timestamp::MAX) <= now {
            if is_connecting || is_over_tcp || is_unanswered {
                self.open_tcp(id, address, now);
            }
        } else if std::mem::replace(&mut fallback.udp_at, Timestamp::MAX) <= now && is_over_tcp {
            fallback.udp_pause = (fallback.udp_pause * 2).min(LONGEST_UDP_PAUSE);
            fallback.udp_at = now + fallback.udp_pause;
            self.endpoint.attempt(now, id, Remote::udp(address));
        }
    }

    fn open_tcp(&mut self, id: ConnectionHandle, address: SocketAddr, now: Timestamp) {
        match self.tcp_paths.open(now, address, id) {
            Ok(Some(change)) => self.on_tcp_change(change, now),
            Ok(None) => {}
            Err(_) => {
                if let Some(fallback) = self.fallbacks.get_mut(&id) {
                    fallback.failed(now);
                }
            }
        }
    }

    /// Something happened at the listener, or at a TCP connection.
    pub(super) fn on_tcp(&mut self, now: Timestamp, token: u64) {
        let Self { endpoint, tcp_paths, .. } = self;
        let change = tcp_paths.on_ready(now, token, |from, bytes| {
            endpoint
                .handle_datagram(now, Datagram { from: Remote::tcp(from), to: None, marked: false, bytes });
        });
        if let Some(change) = change {
            self.on_tcp_change(change, now);
        }
    }

    fn on_tcp_change(&mut self, change: Change, now: Timestamp) {
        match change {
            Change::Opened(address) => {
                let users = self.tcp_paths.users(address);
                for id in users {
                    self.endpoint.attempt(now, id, Remote::tcp(address));
                    if let Some(fallback) = self.fallbacks.get_mut(&id) {
                        fallback.pause = FIRST_PAUSE;
                    }
                }
            }
            Change::Room(address) => {
                for id in self.tcp_paths.users(address) {
                    self.endpoint.wake(id);
                }
            }
            Change::Ended(users) => {
                for id in users {
                    if let Some(fallback) = self.fallbacks.get_mut(&id) {
                        fallback.failed(now);
                    }
                }
            }
        }
    }

    /// A handshake is complete, or the peer is reached elsewhere.
    pub(super) fn on_path(&mut self, id: ConnectionHandle, now: Timestamp) {
        let Some(remote) = self.endpoint.connection(id).map(Transport::remote) else { return };
        if remote.is_tcp {
            self.tcp_paths.hold(remote.address, id);
        }
        self.tcp_paths.release(id, remote.is_tcp.then_some(remote.address));
        if let Some(sink) = self.sinks.get(&id) {
            sink.set_over_tcp(remote.is_tcp);
        }
        if let Some(fallback) = self.fallbacks.get_mut(&id) {
            fallback.at = Timestamp::MAX;
            fallback.udp_at = if remote.is_tcp { now + fallback.udp_pause } else { Timestamp::MAX };
        }
    }

    /// After a connection's turn: TCP is due if UDP has brought no answer for too long.
    //= spec/a1.md A1-TCP-3
    pub(super) fn watch_answers(&mut self, id: ConnectionHandle) {
        let Some(fallback) = self.fallbacks.get_mut(&id).filter(|fallback| fallback.at == Timestamp::MAX)
        else {
            return;
        };
        if let Some(since) = self.endpoint.connection(id).and_then(Transport::unanswered_since)
            && !self.tcp_paths.is_used_by(id)
        {
            fallback.at = since + UNANSWERED;
        }
    }

    pub(super) fn end_fallback(&mut self, id: ConnectionHandle) {
        self.fallbacks.remove(&id);
        self.tcp_paths.release(id, None);
    }

    /// When something of this is due.
    pub(super) fn fallback_due(&self) -> Option<Timestamp> {
        let due = self.fallbacks.values().map(|fallback| fallback.at.min(fallback.udp_at));
        due.chain(self.tcp_paths.due()).min()
    }

    /// Lets a connection over TCP send what its TCP connection takes.
    //= spec/a1.md A1-TCP-4
    pub(super) fn grant_tcp_room(&mut self, id: ConnectionHandle, now: Timestamp) {
        let Some(remote) = self.endpoint.connection(id).map(Transport::remote).filter(|remote| remote.is_tcp)
        else {
            return;
        };
        let room = self.tcp_paths.room(now, remote.address);
        if let Some(connection) = self.endpoint.connection_mut(id) {
            connection.set_tcp_room(room);
        }
    }

    /// Whether this is a file of its own.
    pub(super) fn is_tcp_token(token: u64) -> bool {
        TcpPaths::is_token(token)
    }
}

/// Time without an answer over UDP after which an established connection tries TCP: the connection attempt delay that RFC 8305
/// recommends (section 8).
const UNANSWERED: Duration = Duration::from_millis(250);

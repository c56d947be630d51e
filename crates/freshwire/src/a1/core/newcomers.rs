//! Those who want to connect, until the application has them.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar};

use freshwire_a1::{ConnectionHandle, Incoming, Refusal};
use freshwire_units::Timestamp;

use super::{CODE_ABORTED, Core};
use crate::a1::peer::Peer;

/// What whoever finds the backlog full is told.
const CROWDED: &str = "too many connections wait to be accepted";

/// Connections that others have made and the application has not taken.
pub(super) struct Newcomers {
    /// How many may wait.
    most: usize,
    standing: VecDeque<ConnectionHandle>,
}

impl Newcomers {
    pub(super) fn new(most: usize) -> Self {
        Self { most, standing: VecDeque::new() }
    }

    fn is_full(&self) -> bool {
        self.standing.len() >= self.most
    }

    /// A connection has ended. True: it waited here and nobody gets it, since there is nothing in it to be read.
    pub(super) fn on_end(&mut self, id: ConnectionHandle, is_readable: bool) -> bool {
        let place = self.standing.iter().position(|standing| *standing == id).filter(|_| !is_readable);
        place.and_then(|place| self.standing.remove(place)).is_some()
    }
}

impl Core {
    /// The oldest connection that others have made and nobody has taken.
    pub(in crate::a1) fn accept(&mut self) -> Option<(ConnectionHandle, SocketAddr, Arc<Condvar>)> {
        let id = self.newcomers.standing.pop_front()?;
        let peer = self.peers.get(&id)?;
        Some((id, peer.address, Arc::clone(&peer.changed)))
    }

    /// Somebody wants to connect.
    ///
    /// Those that have not completed the handshake take no place: whoever begins many and completes none would keep all others
    /// out. The endpoint bounds them.
    pub(super) fn on_incoming(&mut self, now: Timestamp, incoming: &Incoming) {
        let id = incoming.handle;
        if self.newcomers.is_full() {
            // One that has gone needs no answer.
            let _ = self.endpoint.refuse(now, id, Refusal::new(Refusal::BUSY, CROWDED));
            return;
        }
        let config = self.config.accepting(self.largest_datagram(incoming.from));
        if self.endpoint.accept(now, id, config).is_ok() {
            self.enter(id, Peer::incoming(incoming.from, incoming.key));
        }
    }

    /// A connection that another node has made stands.
    pub(super) fn on_newcomer(&mut self, now: Timestamp, id: ConnectionHandle) {
        if !self.newcomers.is_full() {
            return self.newcomers.standing.push_back(id);
        }
        // The places were taken while it completed the handshake.
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.is_forgotten = true;
        }
        self.close(id, now, CODE_ABORTED, CROWDED);
    }
}

#[cfg(test)]
mod tests {
    use freshwire_a1::Closed;
    use freshwire_io::now;
    use freshwire_io::poll::Poller;

    use super::*;
    use crate::a1::peer::State;
    use crate::a1::{ConnectConfig, NodeConfig};

    fn core(backlog: usize) -> Core {
        let config = NodeConfig::new().unwrap().backlog(backlog);
        let poller = Arc::new(Poller::new().unwrap());
        Core::new("127.0.0.1:0".parse().unwrap(), config, poller).unwrap()
    }

    fn serve(core: &mut Core) {
        core.receive(now());
        core.advance(now());
    }

    #[test]
    fn of_two_that_come_at_once_for_one_place_one_is_turned_away() {
        let (mut far, mut near) = (core(1), [core(1), core(1)]);
        let (address, key) = (far.socket().local_addr().unwrap(), far.config.key.public_key());
        let ids = near.each_mut().map(|near| {
            let (id, _) = near.connect(now(), address, key, &ConnectConfig::default()).unwrap();
            near.advance(now());
            serve(&mut far);
            // It has its cookie and sends its handshake, which is left where it is.
            serve(near);
            id
        });
        serve(&mut far);
        assert_eq!(far.peers.len(), 2, "both are in the middle of the handshake");
        let give_up = now() + std::time::Duration::from_secs(20);
        let mut closed = Vec::new();
        while closed.is_empty() {
            assert!(now() < give_up);
            near.iter_mut().for_each(serve);
            serve(&mut far);
            let peers = near.iter_mut().zip(ids).filter_map(|(near, id)| near.peer(id));
            closed.extend(peers.filter_map(|peer| match &peer.state {
                State::Closed(closed) => Some(closed.clone()),
                _ => None,
            }));
        }
        assert_eq!(closed, [Closed::Peer { code: CODE_ABORTED, reason: CROWDED.to_owned() }]);
        assert!(far.accept().is_some() && far.accept().is_none());
    }
}

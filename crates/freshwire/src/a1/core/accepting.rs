//! How a node accepts the connections of others.

use std::net::SocketAddr;
use std::sync::Arc;

use freshwire_a1::{ConnectionHandle, Incoming, Qos, Refusal};
use freshwire_record::Timestamp;

use super::Core;
use crate::a1::codes::CODE_ABORTED;
use crate::a1::driver::Condvar;
use crate::a1::peer::{Peer, State};

/// The refusal of a connection over an interface that paces no datagrams.
const UNPACED: &str = "this end cannot give the connection the pacing that it is set to";

/// The refusal of a connection that finds the backlog full.
const CROWDED: &str = "too many connections wait to be accepted";

impl Core {
    /// The oldest connection that others have made and nobody has taken.
    pub(in crate::a1) fn accept(&mut self) -> Option<(ConnectionHandle, SocketAddr, Arc<Condvar>)> {
        let id = self.newcomers.standing.pop_front()?;
        let peer = self.peers.get(&id)?;
        Some((id, peer.address, Arc::clone(&peer.changed)))
    }

    /// The initiator that waits for the application's decision longest.
    pub(in crate::a1) fn incoming(&mut self) -> Option<Incoming> {
        self.newcomers.undecided.pop_front()
    }

    /// The application accepts an initiator. `None`: it does not wait any more.
    pub(in crate::a1) fn admit(
        &mut self,
        now: Timestamp,
        incoming: &Incoming,
        maximum: &Qos,
    ) -> Option<Arc<Condvar>> {
        let config = self.config.accepting(maximum, self.largest_datagram(incoming.from.address));
        self.endpoint.accept(now, incoming.handle, config).ok()?;
        let peer = Peer { state: State::Open, ..Peer::new(incoming.from.address, incoming.key) };
        Some(self.enter(incoming.handle, peer))
    }

    /// The application refuses an initiator.
    pub(in crate::a1) fn refuse(&mut self, now: Timestamp, id: ConnectionHandle, refusal: Refusal) {
        // One that has gone needs no answer.
        let _ = self.endpoint.refuse(now, id, refusal);
    }

    /// Somebody wants to connect.
    ///
    /// Connections without a complete handshake take no place: a peer that starts many and completes none would keep all others
    /// out. The endpoint bounds them.
    pub(super) fn on_incoming(&mut self, now: Timestamp, incoming: &Incoming) {
        let id = incoming.handle;
        if self.newcomers.is_full() {
            return self.refuse(now, id, Refusal::new(Refusal::BUSY, CROWDED));
        }
        if self.config.network.check_towards(incoming.from.address).is_err() {
            // The reason names interfaces of this host, which are not for strangers.
            return self.refuse(now, id, Refusal::new(CODE_ABORTED, UNPACED));
        }
        if self.config.ask {
            self.newcomers.undecided.push_back(*incoming);
            self.newcomers.announce();
            return self.activity.note();
        }
        let config = self.config.connection_over(self.largest_datagram(incoming.from.address));
        if self.endpoint.accept(now, id, config).is_ok() {
            self.enter(id, Peer::incoming(incoming.from.address, incoming.key));
        }
    }

    /// The handshake of an incoming connection is complete.
    pub(super) fn on_newcomer(&mut self, now: Timestamp, id: ConnectionHandle) {
        if !self.newcomers.is_full() {
            self.newcomers.standing.push_back(id);
            return self.newcomers.announce();
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
    use std::time::Duration;

    use freshwire_a1::{Closed, ConnectConfig, Limits};
    use freshwire_io::now;

    use super::*;
    use crate::a1::NodeConfig;
    use crate::a1::core::tests::{core, serve};
    use crate::a1::driver::Protocol as _;

    #[test]
    fn of_two_that_come_at_once_for_one_place_one_is_turned_away() {
        let config = || NodeConfig::new().unwrap().backlog(1);
        let (mut far, mut near) = (core(config()), [core(config()), core(config())]);
        let (address, key) = (far.socket().local_addr().unwrap(), far.config.endpoint.key.public_key());
        let ids = near.each_mut().map(|near| {
            let (id, _) = near.connect(now(), address, key, &ConnectConfig::default(), None).unwrap();
            near.advance(now());
            serve(&mut far);
            // It has its cookie and sends its handshake, which is left where it is.
            serve(near);
            id
        });
        serve(&mut far);
        assert_eq!(far.peers.len(), 2, "both are in the middle of the handshake");
        let give_up = now() + Duration::from_secs(20);
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

    /// The connection of `near` there, once it was accepted: the answer is on its way.
    fn admitted(near: &mut Core, far: &mut Core) -> ConnectionHandle {
        let (address, key) = (far.socket().local_addr().unwrap(), far.config.endpoint.key.public_key());
        near.connect(now(), address, key, &ConnectConfig::default(), None).unwrap();
        near.advance(now());
        serve(far);
        serve(near);
        serve(far);
        let incoming = far.incoming().unwrap();
        assert!(far.admit(now(), &incoming, &incoming.maximum).is_some());
        incoming.handle
    }

    #[test]
    fn a_connection_closed_before_its_first_packet_stays_closed() {
        let config = || NodeConfig::new().unwrap().ask(true);
        let (mut far, mut near) = (core(config()), core(config()));
        let handle = admitted(&mut near, &mut far);
        far.advance(now());
        // It has its answer, and its first packet is on the way.
        serve(&mut near);
        far.close(handle, now(), CODE_ABORTED, "enough");
        far.advance(now());
        for _ in 0..2 {
            let state = &far.peer(handle).unwrap().state;
            assert!(matches!(state, State::Closed(Closed::Local)), "{state:?}");
            serve(&mut far);
        }
    }

    #[test]
    fn one_that_was_accepted_and_is_not_heard_of_again_ends() {
        let limits = Limits { handshake_time: Duration::from_millis(50), ..Limits::default() };
        let config = || {
            let mut config = NodeConfig::new().unwrap().ask(true);
            config.endpoint.limits = limits;
            config
        };
        let (mut far, mut near) = (core(config()), core(config()));
        let handle = admitted(&mut near, &mut far);
        assert!(matches!(far.peer(handle).unwrap().state, State::Open));
        // Pause: the handshake's time passes.
        std::thread::sleep(limits.handshake_time);
        serve(&mut far);
        let peer = far.peer(handle).unwrap();
        assert!(matches!(peer.state, State::Closed(Closed::Silent)), "{:?}", peer.state);
        far.forget(handle, now());
        assert!(far.peers.is_empty());
    }
}

use std::net::SocketAddr;
use std::time::Duration;

use freshwire_units::Timestamp;

use crate::crypto::Random;

/// Where the peer is, and where it may have moved to.
pub(super) struct Path {
    remote: SocketAddr,
    peer_id: u32,
    random: Random,
    candidate: Option<Candidate>,
    /// A challenge of the peer's, and where it came from.
    pub(super) to_answer: Option<([u8; 8], SocketAddr)>,
}

/// An address from which a packet of the peer came. Nothing but challenges goes there until it has answered one.
struct Candidate {
    address: SocketAddr,
    token: [u8; 8],
    send_at: Timestamp,
    tries: u8,
}

impl Path {
    pub(super) fn new(remote: SocketAddr, peer_id: u32, seed: [u8; 32]) -> Self {
        Self { remote, peer_id, random: Random::from_seed(seed), candidate: None, to_answer: None }
    }

    pub(super) fn remote(&self) -> SocketAddr {
        self.remote
    }

    pub(super) fn peer_id(&self) -> u32 {
        self.peer_id
    }

    /// The newest packet came from `from`.
    pub(super) fn on_newest(&mut self, now: Timestamp, from: SocketAddr) {
        if from == self.remote {
            self.candidate = None;
        } else if self.candidate.as_ref().is_none_or(|candidate| candidate.address != from) {
            let token = self.random.bytes();
            self.candidate = Some(Candidate { address: from, token, send_at: now, tries: TRIES });
        }
    }

    /// A challenge that is due, and where it goes.
    pub(super) fn challenge(&mut self, now: Timestamp) -> Option<([u8; 8], SocketAddr)> {
        let candidate = self.candidate.as_mut().filter(|candidate| candidate.send_at <= now)?;
        candidate.tries = candidate.tries.checked_sub(1)?;
        candidate.send_at = now + AGAIN;
        Some((candidate.token, candidate.address))
    }

    /// An answer to a challenge. The new address, if it is proved by this.
    //= spec/a1.md A1-PATH-2
    pub(super) fn on_response(&mut self, token: [u8; 8]) -> Option<SocketAddr> {
        let candidate = self.candidate.take_if(|candidate| candidate.token == token)?;
        self.remote = candidate.address;
        Some(self.remote)
    }

    pub(super) fn timeout(&self) -> Option<Timestamp> {
        self.candidate.as_ref().map(|candidate| candidate.send_at)
    }

    //= spec/a1.md A1-PATH-4
    pub(super) fn on_timeout(&mut self, now: Timestamp) {
        self.candidate.take_if(|candidate| candidate.tries == 0 && candidate.send_at <= now);
    }
}

/// How often an address is challenged before it is forgotten.
const TRIES: u8 = 5;
const AGAIN: Duration = Duration::from_millis(200);

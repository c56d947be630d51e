use std::time::Duration;

use freshwire_record::Timestamp;

use crate::crypto::Random;
use crate::remote::Remote;

/// Where the peer is, and where it may have moved to.
pub(super) struct Path {
    remote: Remote,
    peer_id: u32,
    random: Random,
    candidate: Option<Candidate>,
    /// A challenge of the peer's that is to be answered.
    answer: Option<Answer>,
    /// Bytes of the packet that came last.
    latest_bytes: u64,
}

/// An address from which a packet of the peer came, or which this end tries. Nothing but challenges goes there until it has
/// answered one.
struct Candidate {
    remote: Remote,
    /// This end has chosen it: packets from elsewhere do not end the attempt.
    is_own: bool,
    token: [u8; 8],
    send_at: Timestamp,
    tries: u8,
    /// Bytes that may still go there: who sends from there may have forged the address.
    budget: u64,
}

struct Answer {
    token: [u8; 8],
    to: Remote,
    /// Bytes that may go there for the packet with the challenge.
    budget: u64,
}

impl Path {
    pub(super) fn new(remote: Remote, peer_id: u32, seed: [u8; 32]) -> Self {
        Self {
            remote,
            peer_id,
            random: Random::from_seed(seed),
            candidate: None,
            answer: None,
            latest_bytes: 0,
        }
    }

    pub(super) fn remote(&self) -> Remote {
        self.remote
    }

    pub(super) fn peer_id(&self) -> u32 {
        self.peer_id
    }

    /// A packet of `bytes` came from `from`.
    pub(super) fn on_packet(&mut self, now: Timestamp, from: Remote, bytes: u64, is_newest: bool) {
        self.latest_bytes = bytes;
        if let Some(candidate) = self.candidate.as_mut().filter(|candidate| candidate.remote == from) {
            candidate.budget = candidate.budget.saturating_add(AMPLIFICATION * bytes);
        } else if self.is_trying() {
        } else if is_newest && from == self.remote {
            self.candidate = None;
        } else if is_newest {
            let (token, budget) = (self.random.bytes(), AMPLIFICATION * bytes);
            self.candidate =
                Some(Candidate { remote: from, is_own: false, token, send_at: now, tries: TRIES, budget });
        }
    }

    /// Challenges another way to the peer, which is used from its answer on. The handshake has proved the peer's address, so nothing
    /// bounds the bytes that go there.
    //= spec/a1.md A1-TCP-3
    pub(super) fn attempt(&mut self, now: Timestamp, remote: Remote) {
        let (token, budget) = (self.random.bytes(), u64::MAX);
        self.candidate = Some(Candidate { remote, is_own: true, token, send_at: now, tries: TRIES, budget });
    }

    /// Whether a way of this end's choice has not answered yet.
    pub(super) fn is_trying(&self) -> bool {
        self.candidate.as_ref().is_some_and(|candidate| candidate.is_own)
    }

    /// The packet that came last challenges the address of this end as `from` sees it.
    pub(super) fn on_challenge(&mut self, token: [u8; 8], from: Remote) {
        self.answer = Some(Answer { token, to: from, budget: AMPLIFICATION * self.latest_bytes });
    }

    /// The answer to a challenge, and where it goes, in a packet of `size` bytes. There is none where these are too many:
    /// the peer asks again.
    pub(super) fn answer(&mut self, size: u64) -> Option<([u8; 8], Remote)> {
        let Answer { token, to, mut budget } = self.answer.take()?;
        let is_proved = to == self.remote;
        let budget = match &mut self.candidate {
            Some(candidate) if candidate.remote == to => &mut candidate.budget,
            _ => &mut budget,
        };
        if !is_proved {
            *budget = budget.checked_sub(size)?;
        }
        Some((token, to))
    }

    /// A challenge that is due, and where it goes, in a packet of `size` bytes.
    pub(super) fn challenge(&mut self, now: Timestamp, size: u64) -> Option<([u8; 8], Remote)> {
        let candidate = self.candidate.as_mut().filter(|candidate| candidate.send_at <= now)?;
        let budget = candidate.budget.checked_sub(size)?;
        candidate.tries = candidate.tries.checked_sub(1)?;
        candidate.budget = budget;
        candidate.send_at = now + AGAIN;
        Some((candidate.token, candidate.remote))
    }

    /// An answer to a challenge. The new address, if it is proved by this.
    //= spec/a1.md A1-PATH-2
    pub(super) fn on_response(&mut self, token: [u8; 8]) -> Option<Remote> {
        let candidate = self.candidate.take_if(|candidate| candidate.token == token)?;
        self.remote = candidate.remote;
        Some(self.remote)
    }

    /// When a challenge is due that is a packet of `size` bytes. What may not go waits for more from there.
    pub(super) fn timeout(&self, size: u64) -> Option<Timestamp> {
        let candidate = self.candidate.as_ref()?;
        (candidate.tries == 0 || candidate.budget >= size).then_some(candidate.send_at)
    }

    //= spec/a1.md A1-PATH-4
    pub(super) fn on_timeout(&mut self, now: Timestamp) {
        self.candidate.take_if(|candidate| candidate.tries == 0 && candidate.send_at <= now);
    }
}

/// Challenges of an address before it is forgotten (A1-PATH-4).
const TRIES: u8 = 5;
/// Their interval (A1-PATH-4).
const AGAIN: Duration = Duration::from_millis(200);
/// This multiple of the bytes that came from an address may go there before it is proved (A1-PATH-2; RFC
/// 9000, section 8.1).
const AMPLIFICATION: u64 = 3;

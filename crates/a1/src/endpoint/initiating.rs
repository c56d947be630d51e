use std::time::Duration;

use freshwire_record::Timestamp;

use crate::config::ConnectionConfig;
use crate::crypto::{Initiator, Keys, Local, Protection, PublicKey, ResetToken};
use crate::key_log::{Ids, KeyLog};
use crate::remote::Remote;
use crate::wire::{Packet, Parameters, Qos, VERSION};

use super::ConnectError;
use super::agreement::{Answer, parameters, prologue};

/// A connection that this end has started, until the responder has answered.
///
/// ```text
///  initiation, padded ──────────────►  no state
///                     ◄──────────────  retry with a cookie
///  initiation with the cookie and the handshake's first message ──►  half-open
///                     ◄──────────────  response with its second message
///  first data packet  ──────────────►  connected
/// ```
pub(super) struct Initiating {
    id: u32,
    key: PublicKey,
    connection: ConnectionConfig,
    local: Parameters,
    /// The ways to the peer that are tried. The first answer decides.
    attempts: Vec<Attempt>,
    give_up_at: Timestamp,
    /// What the peer speaks instead of our version, if it said so.
    version: Option<u32>,
    /// An answer came that could not be read.
    is_suspicious: bool,
}

/// The handshake on one way to the peer.
struct Attempt {
    remote: Remote,
    handshake: Option<Handshake>,
    /// The packet to send, and to send again.
    packet: Vec<u8>,
    send_at: Timestamp,
    pause: Duration,
    /// Repetitions that are still to follow without a longer pause.
    quick: u8,
    /// A cookie for the next packet.
    cookie: Option<Vec<u8>>,
    /// How many more cookies are answered at once.
    hurries: u8,
}

/// A connection that is to be made.
pub(super) struct Plan {
    pub(super) id: u32,
    pub(super) remote: Remote,
    pub(super) key: PublicKey,
    pub(super) reset: ResetToken,
    pub(super) qos: Qos,
    pub(super) connection: ConnectionConfig,
}

struct Handshake {
    noise: Initiator,
    cookie: Vec<u8>,
    began: Timestamp,
}

/// What a connection is made of.
pub(super) struct Agreed {
    pub(super) epoch: Timestamp,
    pub(super) remote: Remote,
    pub(super) peer_id: u32,
    pub(super) keys: Keys,
    pub(super) local: Parameters,
    pub(super) peer: Parameters,
    pub(super) qos: Qos,
    pub(super) connection: ConnectionConfig,
}

/// What a response means to an initiator.
pub(super) enum Outcome {
    Agreed(Box<Agreed>),
    Failed(ConnectError),
    /// It was not made by the responder for this handshake.
    Unauthentic,
}

/// What to do at a time that [`Initiating::timeout`] named.
pub(super) enum Action {
    /// This packet goes there.
    Send(Remote, Vec<u8>),
    GiveUp(ConnectError),
}

impl Attempt {
    fn new(now: Timestamp, id: u32, remote: Remote) -> Self {
        let mut packet = Vec::new();
        Packet::Initiation { version: VERSION, from: id, cookie: &[], noise: &[] }.put(&mut packet);
        Self {
            remote,
            handshake: None,
            packet,
            send_at: now,
            pause: FIRST_PAUSE,
            quick: QUICK,
            cookie: None,
            hurries: HURRIES,
        }
    }

    /// The packet leaves, and is repeated later.
    //= spec/a1.md A1-HS-5
    fn on_sent(&mut self, now: Timestamp) {
        self.send_at = now + self.pause;
        self.quick = self.quick.saturating_sub(1);
        if self.quick == 0 {
            self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// The cookie is for the next packet, which is due at once. A peer that hands out cookies without end
    /// does not hold us in a loop: later ones wait until something is sent anyway.
    //= spec/a1.md A1-HS-7
    fn on_retry(&mut self, now: Timestamp, cookie: &[u8]) {
        let is_known = self.handshake.as_ref().is_some_and(|handshake| handshake.cookie == cookie);
        if is_known || cookie.is_empty() {
            return;
        }
        self.cookie = Some(cookie.to_vec());
        if self.hurries > 0 {
            self.hurries -= 1;
            self.send_at = now;
            (self.pause, self.quick) = (FIRST_PAUSE, QUICK);
        }
    }
}

impl Initiating {
    pub(super) fn new(now: Timestamp, give_up_at: Timestamp, plan: Plan) -> Self {
        let Plan { id, remote, key, reset, qos, connection } = plan;
        let local = parameters(&connection, connection.protection, qos, reset);
        let attempts = vec![Attempt::new(now, id, remote)];
        Self { id, key, connection, local, attempts, give_up_at, version: None, is_suspicious: false }
    }

    /// Tries this way too, from the start.
    pub(super) fn attempt(&mut self, now: Timestamp, remote: Remote) {
        self.attempts.retain(|attempt| attempt.remote != remote);
        self.attempts.push(Attempt::new(now, self.id, remote));
    }

    pub(super) fn goes_to(&self, remote: Remote) -> bool {
        self.attempts.iter().any(|attempt| attempt.remote == remote)
    }

    pub(super) fn timeout(&self) -> Timestamp {
        let next = self.attempts.iter().map(|attempt| attempt.send_at).min();
        next.unwrap_or(Timestamp::MAX).min(self.give_up_at)
    }

    /// Something is due: the packet of one way, or the end. The next way has its own call.
    pub(super) fn on_timeout(&mut self, now: Timestamp, local: Local<'_>) -> Action {
        let first = self.attempts.iter_mut().min_by_key(|attempt| attempt.send_at);
        let Some(attempt) = first.filter(|_| now < self.give_up_at) else {
            let is_answered = self.attempts.iter().any(|attempt| attempt.handshake.is_some());
            return Action::GiveUp(match self.version {
                Some(version) => ConnectError::Version(version),
                None if self.is_suspicious => ConnectError::NotAuthentic,
                None if is_answered => ConnectError::NoResponse,
                None => ConnectError::NoAnswer,
            });
        };
        if let Some(cookie) = attempt.cookie.take() {
            begin(now, (self.id, &self.key, &self.local), local, attempt, cookie);
        }
        attempt.on_sent(now);
        Action::Send(attempt.remote, attempt.packet.clone())
    }

    pub(super) fn on_retry(&mut self, now: Timestamp, from: Remote, cookie: &[u8]) {
        if let Some(attempt) = self.attempts.iter_mut().find(|attempt| attempt.remote == from) {
            attempt.on_retry(now, cookie);
        }
    }

    /// The peer says that it speaks another version. That is not authentic, so the right answer may still come; but not
    /// for long.
    //= spec/a1.md A1-HS-7
    pub(super) fn on_version(&mut self, now: Timestamp, version: u32) {
        if self.version.is_none() && version != VERSION {
            self.version = Some(version);
            self.give_up_at = self.give_up_at.min(now + PATIENCE);
        }
    }

    //= spec/a1.md A1-HS-4
    pub(super) fn on_response(&mut self, from: Remote, noise: &[u8], log: Option<&KeyLog>) -> Outcome {
        let attempt = self.attempts.iter_mut().find(|attempt| attempt.remote == from);
        let Some(handshake) = attempt.and_then(|attempt| attempt.handshake.as_mut()) else {
            return Outcome::Unauthentic;
        };
        let mut payload = Vec::new();
        let Ok(secrets) = handshake.noise.finish(noise, &mut payload) else {
            self.is_suspicious = true;
            return Outcome::Unauthentic;
        };
        // The responder's number that counts is the one inside: nobody on the path can have changed it.
        let (peer_id, peer) = match Answer::read(&payload) {
            Ok(Answer::Accepted(id, peer)) => (id, peer),
            Ok(Answer::Refused(refusal)) => return Outcome::Failed(ConnectError::Refused(refusal)),
            Err(_) => return broken("an answer that cannot be read"),
        };
        // The responder has chosen; it may choose more than was asked for, never less.
        let asked = Protection::from_code(self.local.protection);
        let protection = match Protection::from_code(peer.protection) {
            Some(chosen) if Some(chosen) <= asked => chosen,
            _ => return broken("less protection than was asked for"),
        };
        if let Some(log) = log {
            let ids = Ids { initiator: self.id, responder: peer_id };
            log.write(ids, true, protection, &secrets);
        }
        Outcome::Agreed(Box::new(Agreed {
            epoch: handshake.began,
            remote: from,
            peer_id,
            keys: Keys::new(protection, &secrets),
            local: self.local,
            peer,
            qos: self.local.qos.within(&peer.qos.mirrored()),
            connection: self.connection.clone(),
        }))
    }
}

/// Makes the first message of the handshake. Its prologue is the cookie and more, so that a message is good for one
/// address and some seconds.
//= spec/a1.md A1-HS-9
fn begin(
    now: Timestamp,
    (id, key, parameters): (u32, &PublicKey, &Parameters),
    local: Local<'_>,
    attempt: &mut Attempt,
    cookie: Vec<u8>,
) {
    let (mut payload, mut message) = (Vec::new(), Vec::new());
    parameters.put(&mut payload);
    let local = Local { prologue: &prologue(id, &cookie), ..local };
    let noise = Initiator::begin(local, key, &payload, &mut message)
        .expect("parameters are shorter than a message may be");
    attempt.packet.clear();
    Packet::Initiation { version: VERSION, from: id, cookie: &cookie, noise: &message }
        .put(&mut attempt.packet);
    attempt.handshake = Some(Handshake { noise, cookie, began: now });
}

fn broken(what: &'static str) -> Outcome {
    Outcome::Failed(ConnectError::Protocol(what))
}

/// Time that a packet waits for an answer before it is sent again (A1-HS-5). At first it is short, so that a
/// burst of losses at the start costs a second and not ten.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// Repetitions at that interval, before it doubles each time (A1-HS-5).
const QUICK: u8 = 6;
/// The longest interval (A1-HS-5). At 1200 bytes each that is 10 kbit/s to a host that does not answer.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// Cookies that are answered at once (A1-HS-7): the first, and one for each time that it ages or that the
/// responder restarts.
const HURRIES: u8 = 4;
/// Time for an answer in our version after another version was offered (A1-HS-7).
const PATIENCE: Duration = Duration::from_secs(1);

use std::net::SocketAddr;
use std::time::Duration;

use freshwire_record::Timestamp;

use crate::config::ConnectionConfig;
use crate::crypto::{Initiator, Keys, Local, Protection, PublicKey, ResetToken};
use crate::key_log::{Ids, KeyLog};
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
    remote: SocketAddr,
    key: PublicKey,
    connection: ConnectionConfig,
    local: Parameters,
    handshake: Option<Handshake>,
    /// The packet to send, and to send again.
    packet: Vec<u8>,
    send_at: Timestamp,
    pause: Duration,
    /// Repetitions that are still to follow without a longer pause.
    quick: u8,
    give_up_at: Timestamp,
    /// A cookie for the next packet.
    cookie: Option<Vec<u8>>,
    /// How many more cookies are answered at once.
    hurries: u8,
    /// What the peer speaks instead of our version, if it said so.
    version: Option<u32>,
    /// An answer came that could not be read.
    is_suspicious: bool,
}

/// A connection that is to be made.
pub(super) struct Plan {
    pub(super) id: u32,
    pub(super) remote: SocketAddr,
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
    pub(super) remote: SocketAddr,
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
    Send,
    GiveUp(ConnectError),
}

impl Initiating {
    pub(super) fn new(now: Timestamp, give_up_at: Timestamp, plan: Plan) -> Self {
        let Plan { id, remote, key, reset, qos, connection } = plan;
        let local = parameters(&connection, connection.protection, qos, reset);
        let mut packet = Vec::new();
        Packet::Initiation { version: VERSION, from: id, cookie: &[], noise: &[] }.put(&mut packet);
        Self {
            id,
            remote,
            key,
            connection,
            local,
            handshake: None,
            packet,
            send_at: now,
            pause: FIRST_PAUSE,
            quick: QUICK,
            give_up_at,
            cookie: None,
            hurries: HURRIES,
            version: None,
            is_suspicious: false,
        }
    }

    pub(super) fn remote(&self) -> SocketAddr {
        self.remote
    }

    pub(super) fn packet(&self) -> &[u8] {
        &self.packet
    }

    pub(super) fn timeout(&self) -> Timestamp {
        self.send_at.min(self.give_up_at)
    }

    //= spec/a1.md A1-HS-5
    pub(super) fn on_timeout(&mut self, now: Timestamp, local: Local<'_>) -> Action {
        if now >= self.give_up_at {
            return Action::GiveUp(match self.version {
                Some(version) => ConnectError::Version(version),
                None if self.is_suspicious => ConnectError::NotAuthentic,
                None if self.handshake.is_some() => ConnectError::NoResponse,
                None => ConnectError::NoAnswer,
            });
        }
        if let Some(cookie) = self.cookie.take() {
            self.begin(now, local, cookie);
        }
        self.send_at = now + self.pause;
        self.quick = self.quick.saturating_sub(1);
        if self.quick == 0 {
            self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        }
        Action::Send
    }

    /// The cookie is for the next packet, which is due at once. A peer that hands out cookies without end
    /// does not hold us in a loop: later ones wait until something is sent anyway.
    //= spec/a1.md A1-HS-7
    pub(super) fn on_retry(&mut self, now: Timestamp, cookie: &[u8]) {
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

    /// Makes the first message of the handshake. Its prologue is the cookie and more, so that a message is good for one
    /// address and some seconds.
    //= spec/a1.md A1-HS-9
    fn begin(&mut self, now: Timestamp, local: Local<'_>, cookie: Vec<u8>) {
        let (mut payload, mut message) = (Vec::new(), Vec::new());
        self.local.put(&mut payload);
        let local = Local { prologue: &prologue(self.id, &cookie), ..local };
        let noise = Initiator::begin(local, &self.key, &payload, &mut message)
            .expect("parameters are shorter than a message may be");
        self.packet.clear();
        Packet::Initiation { version: VERSION, from: self.id, cookie: &cookie, noise: &message }
            .put(&mut self.packet);
        self.handshake = Some(Handshake { noise, cookie, began: now });
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
    pub(super) fn on_response(&mut self, noise: &[u8], log: Option<&KeyLog>) -> Outcome {
        let Some(handshake) = &mut self.handshake else { return Outcome::Unauthentic };
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
            remote: self.remote,
            peer_id,
            keys: Keys::new(protection, &secrets),
            local: self.local,
            peer,
            qos: self.local.qos.within(&peer.qos.mirrored()),
            connection: self.connection.clone(),
        }))
    }
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

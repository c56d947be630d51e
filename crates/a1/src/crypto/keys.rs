use std::time::Duration;

use freshwire_record::Timestamp;
use thiserror::Error;
use zeroize::Zeroizing;

use super::aead::{Key, TAG_LENGTH};

/// How the packets of a connection are protected, the strongest first. A connection has the stronger of what its two ends
/// ask for: less than encryption takes the consent of both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Protection {
    /// Encrypted and authenticated with AEGIS-128X2 (RFC 10032).
    #[default]
    Aead,
    /// Readable and forgeable by everybody on the path. For closed networks only. A CRC-32 finds damage as long as the quality of
    /// service asks for [it](crate::Qos::checksum).
    DangerousPlain,
}

impl Protection {
    pub(crate) fn code(self) -> u8 {
        self as u8
    }

    pub(crate) fn from_code(code: u8) -> Option<Self> {
        [Self::Aead, Self::DangerousPlain].into_iter().find(|protection| protection.code() == code)
    }
}

/// The keys that a handshake ends with.
pub(crate) struct Secrets {
    pub(crate) send: Zeroizing<[u8; 32]>,
    pub(crate) receive: Zeroizing<[u8; 32]>,
}

/// Why a packet was not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub(crate) enum Opening {
    /// Forged, damaged or not for this connection.
    #[error("the packet is not authentic")]
    Unauthentic,
    /// Protected with a key that is no longer kept.
    #[error("the packet's key is no longer kept")]
    KeyForgotten,
    /// Too many packets were not authentic for the key to be safe: the connection has to end.
    #[error("too many packets were not authentic")]
    Exhausted,
}

/// Why a packet was not sealed: the connection has to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the key has protected as many packets as is safe, and the peer has not confirmed another")]
pub(crate) struct KeyExhausted;

/// A key update that has to wait for the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the peer has not confirmed the current key yet")]
pub(crate) struct Unconfirmed;

/// How long keys serve.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyLimits {
    /// Packets sealed with a key before the next key, if the peer has confirmed this one.
    pub(crate) update_after: u64,
    /// Packets that a key seals at most.
    pub(crate) seals: u64,
    /// Packets of a connection that may fail to open.
    pub(crate) failures: u64,
}

impl Default for KeyLimits {
    /// Far below what AEGIS permits (RFC 10032, section 5): a key that leaks opens little. The forgeries are those that
    /// QUIC permits at most (RFC 9001, section 6.6).
    //= spec/a1.md A1-SEC-4
    fn default() -> Self {
        Self { update_after: 1 << 22, seals: 1 << 23, failures: 1 << 52 }
    }
}

/// Protection of a connection's data packets in both directions. A packet's number is the nonce, so no number may be
/// sealed twice; what tells the ends' two directions apart are their keys.
///
/// The key of a direction is followed by the one that Noise's rekeying makes of it, and the phase bit of a packet is the
/// parity of its key. The end that begins an update seals with the next key at once; the other follows when the first
/// packet of that key opens.
///
/// ```text
///        this end                                    the peer
///  send key 0 ──── phase 0 ──────────────────────►  receive key 0
///  update(): send key 1 ──── phase 1 ────────────►  receive key 1, key 0 kept for a while; send key 1
///  receive key 1, confirmed ◄──── phase 1, ACK ───
/// ```
pub(crate) struct Keys {
    kind: Kind,
}

enum Kind {
    Aead(Box<Aead>),
    Plain {
        /// Whether packets get a checksum, which is what their phase bit says.
        checksum: bool,
    },
}

struct Aead {
    limits: KeyLimits,
    /// How long the previous receiving key is kept after an update.
    retention: Duration,
    sender: Sender,
    receiver: Receiver,
    failures: u64,
}

struct Sender {
    key: Key,
    generation: u64,
    /// Packets sealed with `key`.
    sealed: u64,
    /// The first number sealed with `key`.
    first: Option<u64>,
    /// The peer has acknowledged a packet that was sealed with `key`.
    is_confirmed: bool,
}

struct Receiver {
    key: Key,
    generation: u64,
    /// The number of the packet that brought `key` into use; what the previous key has sealed is older.
    first: u64,
    previous: Option<(Key, Timestamp)>,
    /// Made when a packet first asks for it.
    next: Option<Box<Key>>,
}

impl Keys {
    /// Keys of a multicast group, of which only one direction is used: everybody else receives.
    pub(crate) fn of_group(key: [u8; 32]) -> Self {
        Self::new(Protection::Aead, &Secrets { send: key.into(), receive: key.into() })
    }

    /// `secrets` are used by [`Protection::Aead`] only.
    pub(crate) fn new(protection: Protection, secrets: &Secrets) -> Self {
        Self::with_limits(protection, secrets, KeyLimits::default())
    }

    pub(crate) fn with_limits(protection: Protection, secrets: &Secrets, limits: KeyLimits) -> Self {
        let kind = match protection {
            Protection::Aead => Kind::Aead(Box::new(Aead::new(secrets, limits))),
            Protection::DangerousPlain => Kind::Plain { checksum: true },
        };
        Self { kind }
    }

    pub(crate) fn protection(&self) -> Protection {
        match self.kind {
            Kind::Aead(_) => Protection::Aead,
            Kind::Plain { .. } => Protection::DangerousPlain,
        }
    }

    /// Whether packets that are not encrypted get a checksum from now on; at first they do.
    //= spec/a1.md A1-SEC-5
    pub(crate) fn set_checksum(&mut self, wanted: bool) {
        if let Kind::Plain { checksum } = &mut self.kind {
            *checksum = wanted;
        }
    }

    /// Bytes that protection adds to a packet.
    pub(crate) fn overhead(&self) -> usize {
        match self.kind {
            Kind::Aead(_) => TAG_LENGTH,
            Kind::Plain { checksum: true } => CHECKSUM_LENGTH,
            Kind::Plain { checksum: false } => 0,
        }
    }

    /// Protects the end of `out` from `begin` on, in place, and gives the phase bit for the packet's header. Updates the key
    /// by itself when it has served for long enough.
    pub(crate) fn seal(
        &mut self,
        number: u64,
        out: &mut Vec<u8>,
        begin: usize,
    ) -> Result<bool, KeyExhausted> {
        match &mut self.kind {
            Kind::Aead(aead) => aead.seal(number, out, begin),
            Kind::Plain { checksum: has_sum } => {
                if *has_sum {
                    let sum = checksum(number, out.get(begin..).unwrap_or_default());
                    out.extend(sum.to_be_bytes());
                }
                Ok(*has_sum)
            }
        }
    }

    /// Opens a packet in place; what it protects. When it fails the keys are as they were, and the bytes are not.
    pub(crate) fn open<'a>(
        &mut self,
        now: Timestamp,
        number: u64,
        phase: bool,
        sealed: &'a mut [u8],
    ) -> Result<&'a [u8], Opening> {
        match &mut self.kind {
            Kind::Aead(aead) => aead.open(now, number, phase, sealed),
            Kind::Plain { .. } if phase => {
                let (plain, sum) = sealed.split_last_chunk().ok_or(Opening::Unauthentic)?;
                if checksum(number, plain) != u32::from_be_bytes(*sum) {
                    return Err(Opening::Unauthentic);
                }
                Ok(plain)
            }
            Kind::Plain { .. } => Ok(sealed),
        }
    }

    /// The peer has acknowledged the packet of this number.
    pub(crate) fn on_acknowledged(&mut self, number: u64) {
        if let Kind::Aead(aead) = &mut self.kind {
            aead.sender.is_confirmed |= aead.sender.first.is_some_and(|first| number >= first);
        }
    }

    /// How long packets of the previous key are still opened after an update: some round trips.
    pub(crate) fn set_retention(&mut self, retention: Duration) {
        if let Kind::Aead(aead) = &mut self.kind {
            aead.retention = retention;
        }
    }

    /// Seals with the next key from now on. Protection without keys has nothing to update.
    pub(crate) fn update(&mut self) -> Result<(), Unconfirmed> {
        match &mut self.kind {
            Kind::Aead(aead) if aead.may_update() => {
                aead.sender.advance();
                Ok(())
            }
            Kind::Aead(_) => Err(Unconfirmed),
            Kind::Plain { .. } => Ok(()),
        }
    }
}

impl Aead {
    fn new(secrets: &Secrets, limits: KeyLimits) -> Self {
        Self {
            limits,
            retention: DEFAULT_RETENTION,
            sender: Sender {
                key: Key::new(&secrets.send),
                generation: 0,
                sealed: 0,
                first: None,
                is_confirmed: false,
            },
            receiver: Receiver {
                key: Key::new(&secrets.receive),
                generation: 0,
                first: 0,
                previous: None,
                next: None,
            },
            failures: 0,
        }
    }

    fn seal(&mut self, number: u64, out: &mut Vec<u8>, begin: usize) -> Result<bool, KeyExhausted> {
        if self.sender.sealed >= self.limits.update_after && self.may_update() {
            self.sender.advance();
        }
        // The last number is kept for rekeying.
        if self.sender.sealed >= self.limits.seals || number == u64::MAX {
            return Err(KeyExhausted);
        }
        self.sender.sealed += 1;
        self.sender.first.get_or_insert(number);
        let tag = self.sender.key.seal(number, out.get_mut(begin..).unwrap_or_default());
        out.extend_from_slice(&tag);
        Ok(is_odd(self.sender.generation))
    }

    fn open<'a>(
        &mut self,
        now: Timestamp,
        number: u64,
        phase: bool,
        sealed: &'a mut [u8],
    ) -> Result<&'a [u8], Opening> {
        if self.failures >= self.limits.failures {
            return Err(Opening::Exhausted);
        }
        let receiver = &mut self.receiver;
        receiver.previous.take_if(|(_, until)| *until < now);
        if phase == is_odd(receiver.generation) {
            return self.counted(|aead| aead.receiver.key.open(number, sealed));
        }
        if number < receiver.first {
            if receiver.previous.is_none() {
                return Err(Opening::KeyForgotten);
            }
            return self.counted(|aead| aead.receiver.previous.as_ref()?.0.open(number, sealed));
        }
        let opened = self.counted(|aead| aead.receiver.next().open(number, sealed))?;
        self.receiver.advance(number, now + self.retention);
        if self.sender.generation < self.receiver.generation {
            self.sender.advance();
        }
        Ok(opened)
    }

    fn counted<'a>(&mut self, open: impl FnOnce(&mut Self) -> Option<&'a [u8]>) -> Result<&'a [u8], Opening> {
        if let Some(opened) = open(self) {
            return Ok(opened);
        }
        self.failures += 1;
        Err(if self.failures >= self.limits.failures { Opening::Exhausted } else { Opening::Unauthentic })
    }

    /// A key may be left behind only if the peer is known to receive and to send with it. Otherwise the peer
    /// might have to skip a key, which the phase bit cannot tell.
    //= spec/a1.md A1-SEC-3
    fn may_update(&self) -> bool {
        self.sender.is_confirmed && self.sender.generation == self.receiver.generation
    }
}

impl Sender {
    fn advance(&mut self) {
        self.key = self.key.next();
        self.generation += 1;
        self.sealed = 0;
        self.first = None;
        self.is_confirmed = false;
    }
}

impl Receiver {
    fn next(&mut self) -> &Key {
        self.next.get_or_insert_with(|| Box::new(self.key.next()))
    }

    fn advance(&mut self, first: u64, keep_until: Timestamp) {
        let next = self.next.take().map_or_else(|| self.key.next(), |next| *next);
        self.previous = Some((std::mem::replace(&mut self.key, next), keep_until));
        self.generation += 1;
        self.first = first;
    }
}

fn checksum(number: u64, plain: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&number.to_be_bytes());
    hasher.update(plain);
    hasher.finalize()
}

fn is_odd(generation: u64) -> bool {
    generation % 2 == 1
}

const CHECKSUM_LENGTH: usize = 4;
/// Time for which the previous key is kept where nothing was acknowledged yet (A1-SEC-3).
const DEFAULT_RETENTION: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;

//! Protection of packets: the handshake, keys, replays, cookies, resets.
//!
//! The handshake is `Noise_IKpsk2_25519_AESGCM_SHA256` by the `snow` crate, whose ephemeral keys come from our own
//! seeded generator: the same seed gives the same bytes. Data packets are protected with the handshake's two split
//! keys by the `aegis` crate: AEGIS takes a third of AES-GCM's time in large packets.

mod aead;
mod cookie;
mod identity;
mod keys;
mod noise;
mod random;
mod replay;
mod reset;

pub(crate) use cookie::CookieJar;
pub use identity::{ParseKeyError, Psk, PublicKey, StaticKey};
#[cfg(test)]
pub(crate) use keys::KeyLimits;
pub use keys::Protection;
pub(crate) use keys::{Keys, Opening, Secrets};
pub(crate) use noise::{Initiator, Local, Responder};
pub(crate) use random::Random;
pub(crate) use replay::{Freshness, ReplayWindow};
pub(crate) use reset::{ResetKey, ResetToken};

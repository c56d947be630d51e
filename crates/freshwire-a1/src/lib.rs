//! A1: a transport of messages over datagrams, sans-IO, in which the choice of what is worth sending is made at every
//! transmission and every retransmission.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod crypto;
mod endpoint;
mod recovery;
mod wire;

pub use crypto::{ParseKeyError, Protection, Psk, PublicKey, StaticKey};
pub use wire::{Malformed, Qos};

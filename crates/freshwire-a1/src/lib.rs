//! A1: a transport of messages over datagrams, sans-IO, in which the choice of what is worth sending is made at every
//! transmission and every retransmission.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod acks;
mod connection;
mod crypto;
mod endpoint;
mod fec;
mod group;
mod inbox;
mod outbox;
mod pool;
mod ranges;
mod recovery;
mod sequence;
mod source;
mod violation;
mod window;
mod wire;

pub use connection::{
    Closed, Congestion, Connection, ConnectionConfig, ConnectionStats, Event, Transmit, UnknownCongestion,
};
pub use crypto::{ParseKeyError, Protection, Psk, PublicKey, StaticKey};
pub use endpoint::{
    AcceptConfig, ConnectConfig, ConnectError, ConnectionHandle, Datagram, Endpoint, EndpointConfig,
    EndpointEvent, EndpointStats, Incoming, KeyLog, Limits, Outgoing, Refusal, WrongHandle,
};
pub use group::{Group, GroupConfig, GroupStats};
pub use inbox::{Message, Missing};
pub use sequence::Sequence;
pub use source::{Queue, Source, Taken};
pub use violation::Violation;
pub use wire::{Malformed, Qos, QosError};

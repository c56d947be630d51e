//! A1: a transport of messages over datagrams, sans-IO, in which the choice of what is worth sending is made at every
//! transmission and every retransmission.
#![forbid(unsafe_code)]
#![warn(clippy::missing_errors_doc)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod acks;
mod config;
mod connection;
mod crypto;
mod endpoint;
mod fec;
mod group;
mod inbox;
mod key_log;
mod outbox;
mod pool;
mod ranges;
mod recovery;
mod remote;
mod sequence;
mod shard;
mod source;
mod truncated;
mod violation;
mod window;
mod wire;

pub use config::{
    Congestion, ConnectConfig, ConnectionConfig, DEFAULT_CONNECT_TIMEOUT, EndpointConfig, GroupConfigError,
    GroupTransportConfig, Limits, UnknownCongestion,
};
pub use connection::{Closed, Connection, ConnectionStats, Event, Transmit};
pub use crypto::{ParseKeyError, Protection, Psk, PublicKey, StaticKey};
pub use endpoint::{
    ConnectError, ConnectionHandle, Datagram, Endpoint, EndpointEvent, EndpointStats, Incoming, Outgoing,
    Refusal, WrongHandle,
};
pub use group::{Group, GroupStats};
pub use inbox::{Message, Missing};
pub use key_log::KeyLog;
pub use remote::Remote;
pub use sequence::Sequence;
pub use shard::Shard;
pub use source::{Queue, Source, Taken};
pub use violation::Violation;
pub use wire::{Malformed, Qos, QosError};

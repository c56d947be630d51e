//! Records over A1: a transport over UDP in which the choice of what is worth sending is made at each transmission and each
//! retransmission.
//!
//! ```text
//!  application ─► ring ─► policy ─► blocks, encrypted ─► UDP ─► Connection::recv ─► application
//!      Sender             at each packet                          window: what was received and not taken
//! ```
//!
//! A [`Node`] has an address, a key and a thread, or [several](NodeConfig::threads). It makes connections to other nodes, whose key has to be known, and
//! accepts theirs. A [`Connection`] works in both directions: it receives messages, and
//! [`add_a1_sink`](crate::Sender::add_a1_sink) makes it a sink of a [`Sender`](crate::Sender). Policies, fates and
//! endings are those of a sink over TCP.
//!
//! Where all that is written has to arrive, in its order, a [`ByteStream`] on top of a connection does what TCP does.
//!
//! One stream to many goes by adding a sink for each, or by a [`Group`] where the network has IP multicast.
//!
//! ```no_run
//! use std::time::Duration;
//! use freshwire::a1::{ConnectConfig, Node, NodeConfig, SinkConfig};
//! use freshwire::{Meta, RingConfig, Sender, choice, now};
//!
//! # let (address, key) = ("camera.example.org:5000", "".parse()?);
//! let node = Node::bind("0.0.0.0:0".parse()?, NodeConfig::new()?)?;
//! let connection = node.connect(address, &key, &ConnectConfig::default())?;
//! let mut sender = Sender::without_engine(&RingConfig::default())?;
//! let sink = sender.add_a1_sink(&connection, SinkConfig::new(choice::deadline(Duration::ZERO)))?;
//! let now = now();
//! let meta = Meta { generated: now, deadline: now + Duration::from_millis(300), ..Meta::default() };
//! sender.push(sink.id(), b"position 4711", &meta)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod attach;
mod buffers;
mod byte_stream;
mod codes;
mod config;
mod connecting;
mod connection;
mod core;
mod departing;
mod driver;
mod error;
mod events;
mod group;
mod group_config;
mod incoming;
mod joined;
mod multicast;
mod node;
mod outbound;
mod peer;
mod record_source;
#[cfg(feature = "reproduction")]
pub mod reproduction;
mod shared;
mod sink;
mod source;
mod status;
mod tcp_paths;

pub use freshwire_a1::ConnectError as HandshakeError;
pub use freshwire_a1::{
    Closed, Congestion, ConnectConfig, ConnectionConfig, ConnectionStats, DEFAULT_CONNECT_TIMEOUT,
    EndpointConfig, EndpointStats, GroupConfigError, GroupTransportConfig, KeyLog, Limits, Message, Missing,
    ParseKeyError, Protection, Psk, PublicKey, Qos, QosError, Refusal, StaticKey,
};
pub use freshwire_io::udp::Interface;
pub use freshwire_record::Rate;

pub use buffers::{BufferError, BufferLimits, BufferSink};
pub use byte_stream::{
    ByteReader, ByteStream, ByteStreamError, ByteWriter, MAX_STREAM_BLOCK, STREAM_BLOCK_TIME,
};
pub use config::{
    ATTEMPT_DELAYS, DEFAULT_ATTEMPT_DELAY, DEFAULT_BACKLOG, MAX_THREADS, NodeConfig, SinkConfig, generate_key,
};
pub use connecting::Connecting;
pub use connection::Connection;
pub use driver::DEFAULT_BUSY_POLL;
pub use error::{AcceptError, BindError, ConnectError, NodeStopped};
pub use events::Events;
pub use group::Group;
pub use group_config::{GroupConfig, GroupError, GroupStats, InviteError};
pub use incoming::Incoming;
pub use joined::{JoinConfig, JoinError, Membership};
pub use node::Node;
pub use status::ConnectionStatus;

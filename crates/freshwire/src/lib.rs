//! Time-critical data, as fresh as the path allows.
//!
//! ```text
//!  application ──push, drop, modify, replace──► ring ──► choice ──► framing ──► TCP, just in time ──► any receiver
//!      Sender                                   shared memory         Engine, one Sink per destination
//! ```
//!
//! # Concepts
//!
//! A **record** is one piece of data: a picture, a sample, the state of an object. Its payload is bytes. Its [`Meta`] has the number,
//! the layer, the key, the generation time, the deadline, and the records that it refers to.
//!
//! A **ring** is the queue of one destination, in shared memory. A [`Sender`] has a ring for each destination and one arena for all
//! payloads, so it stores a record for a thousand destinations once. Until a record is committed, the application or a second process
//! drops, modifies or replaces it.
//!
//! A **policy** ([`choice`]) decides what is sent next, and only when the path can take data. It sees the queue and the state of the
//! path. It drops stale records, and names one to send or a time to wait for.
//!
//! At the **commit point** the first byte of the record goes to the kernel. From then on the record is sent; a framing that
//! permits it can still abandon the rest.
//!
//! The **fate** of a record is its end: acknowledged, sent, dropped for a [`Reason`], or refused by a full ring.
//! [`Sender::poll_fate`] returns each [`Fate`] once.
//!
//! A **sink** is one destination, with its policy, framing and carrier ([`SinkConfig`]). The receiver is any TCP program. A dropped
//! [`Sink`] finishes the record in progress and closes the connection.
//!
//! An **engine** serves sinks, usually on a thread of its own ([`Engine::spawn`]). It keeps the kernel's queue almost empty, since
//! nobody can withdraw data from there.
//!
//! # Example
//!
//! ```no_run
//! use std::net::TcpStream;
//! use std::time::Duration;
//! use freshwire::{Engine, Meta, RingConfig, Sender, SinkConfig, choice, now};
//!
//! let engine = Engine::new()?.spawn()?;
//! let mut sender = Sender::new(&RingConfig::default(), &engine.handle())?;
//! let sink = sender.add_sink(TcpStream::connect("viewer:5000")?, SinkConfig::new(choice::deadline(Duration::ZERO)))?;
//! let now = now();
//! let meta = Meta { generated: now, deadline: now + Duration::from_millis(300), ..Meta::default() };
//! sender.push(sink.id(), b"position 4711", &meta)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![warn(clippy::missing_errors_doc)]

pub mod a1;
mod carrier;
pub mod datagram;
#[cfg_attr(
    not(feature = "fanout"),
    allow(dead_code, unreachable_pub, reason = "only a fan-out sends past the rings")
)]
pub mod engine;
mod error;
#[cfg(feature = "fanout")]
pub mod fanout;
pub mod framing;
mod kernel;
mod kernel_view;
pub mod network;
pub mod receive;
pub mod ring;
pub mod sender;
pub mod sink;
pub mod stats;
#[cfg_attr(
    not(feature = "fanout"),
    allow(dead_code, unreachable_pub, reason = "only a fan-out sends past the rings")
)]
mod tcp;
#[cfg(feature = "tokio")]
pub mod tokio;
mod turn;
pub mod watch;
pub mod websocket;

pub use freshwire_choice as choice;
pub use freshwire_io::now;
pub use freshwire_media::framing::Framing;
pub use freshwire_record::{Rate, Timestamp};
pub use freshwire_ring::{Config as RingConfig, Fate, Meta, Outcome, Reason};

pub use engine::handle::EngineHandle;
pub use engine::thread::Engine;
pub use error::{PushError, SenderError};
pub use sender::Sender;
pub use sink::config::SinkConfig;
pub use sink::ended::Ended;
pub use sink::handle::Sink;
pub use sink::id::SinkId;

/// The examples of the README files and the guide, compiled with the tests.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/guide.md")]
    struct Guide;
    #[doc = include_str!("../README.md")]
    struct OfCrate;
}

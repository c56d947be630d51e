//! Time-critical data, as fresh as the path allows.
//!
//! ```text
//!  application ──push, drop, modify, replace──► ring ──► choice ──► framing ──► TCP, just in time ──► any receiver
//!      Sender                                   shared memory         Engine, one Sink per destination
//! ```
//!
//! A [`Sender`] puts records into rings in shared memory. An [`Engine`] takes the next one only when TCP can put it on
//! the wire, and asks the sink's policy which one that is. Until then the application, or a second process, changes its
//! mind at will. The receiver is any TCP program.
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
pub mod datagram;
#[cfg_attr(
    not(feature = "fanout"),
    allow(dead_code, unreachable_pub, reason = "only a fan-out sends past the rings")
)]
pub mod engine;
#[cfg(feature = "fanout")]
pub mod fanout;
pub mod framing;
mod kernel;
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
pub mod websocket;

pub use freshwire_choice as choice;
pub use freshwire_io::now;
pub use freshwire_media::framing::Framing;
pub use freshwire_ring::{Config as RingConfig, Fate, Meta, Outcome, Reason};
pub use freshwire_units::{Rate, Timestamp};

pub use engine::handle::EngineHandle;
pub use engine::thread::Engine;
pub use sender::Sender;
pub use sender::error::{PushError, SenderError};
pub use sink::config::SinkConfig;
pub use sink::ended::Ended;
pub use sink::handle::Sink;
pub use sink::id::SinkId;

/// The examples of the documents, compiled with the tests.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/guide.md")]
    struct Guide;
    #[doc = include_str!("../README.md")]
    struct OfCrate;
}

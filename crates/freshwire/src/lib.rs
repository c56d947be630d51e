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
mod datagram;
#[cfg_attr(
    not(feature = "fanout"),
    allow(dead_code, unreachable_pub, reason = "only a fan-out sends past the rings")
)]
mod engine;
#[cfg(feature = "fanout")]
pub mod fanout;
mod kernel;
mod receive;
mod sender;
mod sink;
mod stats;
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
pub use freshwire_io::poll::Waker;
pub use freshwire_media::framing::event_stream;
pub use freshwire_media::framing::{Framer, Framing, Piece};
pub use freshwire_record::{Rate, Timestamp};
pub use freshwire_ring::{
    AttachError, ClaimError, Config as RingConfig, ConfigError, CreateError, Edit, EditError, Editor, Fate,
    MAX_KEPT_FATES, Meta, ModifyError as EditorModifyError, NO_INDEX, Outcome, Pushed, Reason, Record,
    Region, Replaced, Stage, Standing, TooLate,
};

pub use datagram::path::{DatagramPath, Flushed, KnownPath};
pub use engine::{DEFAULT_FILL_FIRST, Engine, EngineGroup, EnginePool, EngineThread, Handle};
pub use receive::{Message, ReceiveError, Receiver};
pub use sender::Sender;
pub use sender::error::{ModifyError, PushError, SenderError};
pub use sink::carrier::{Carrier, CarrierError, CarrierInUse};
pub use sink::config::{DEFAULT_LINGER, DEFAULT_MAX_UNREAD, DEFAULT_QUEUE_TARGET, SinkConfig};
pub use sink::ended::{CloseMode, Ended, SinkError};
pub use sink::handle::{Monitor, Sink};
pub use sink::id::{SinkId, StaleSink};
pub use sink::reserve::{MAX_RESERVE, Reserve};
pub use sink::seal::Seal;
pub use sink::watch::{EndEvent, SinkEvents, SinkWatch};
pub use stats::{LAYERS, PathRate, SinkSnapshot, SinkStats, UnreadBy};

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

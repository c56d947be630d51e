//! A sans-IO model of a network path: rate, delay, queue, loss, trace.
//!
//! ```text
//!              ┌────────── Link: one direction ───────────────────────────────────┐
//! handle_packet│  queue ──► transmitter ──► wire                                  │poll_transmit
//!  ───────────►│  (bytes,   (one packet,    (lose packet i as f(seed, direction,  ├───────────►
//!              │ tail drop)  rate of now)    i), then wait for the delay)         │
//!              └──────────────────────────────────────────────────────────────────┘
//! ```
//!
//! What the model means, exactly:
//!
//! - Lengths are those of IP packets (header and payload); the link adds nothing of its own.
//! - The transmitter holds one packet; the queue holds those that wait behind it. A packet that would make the
//!   waiting bytes exceed the queue's size is dropped. A packet that finds the transmitter idle never waits.
//! - Loss happens on the wire, after serialisation: a lost packet has used up the rate, so what arrives is
//!   rate × (1 - loss).
//! - Whether packet i is lost depends on the seed, the direction and i alone, where i counts every packet offered to
//!   that direction, dropped ones too. Timing cannot change it.
//! - Order is kept, but for packets that [`Builder::reorder`] makes late; those are chosen as losses are. Each packet
//!   occupies the transmitter for its length over the rate, rounded up to a nanosecond.
//!
//! The drain law: call [`Link::handle_packet`] as packets come, then [`Link::poll_transmit`] until it returns `None`,
//! then sleep until [`Link::poll_timeout`].
#![forbid(unsafe_code)]
#![warn(clippy::missing_errors_doc)]

mod config;
mod direction;
mod link;
mod loss;
mod path;
mod schedule;

pub use config::{Builder, Config, ConfigError};
pub use direction::Direction;
pub use link::{Counters, Delivery, Link, Verdict};
pub use loss::Loss;
pub use path::Path;
pub use schedule::{Schedule, Step, TraceError, TraceProblem};

//! Late data choice: at the commit point, which of the queued records goes on the wire, which is dropped, and why.
//!
//! ```text
//!              oldest                     newest
//!  queue:   [ r0 | r1 | r2 | r3 | r4 | ... ]        a view; the ring owns the records
//!                │
//!   pick(now, queue, link) ──► Drop(i, why)         the carrier removes r_i, reports the outcome, asks again
//!                          ──► Send(i)              commit point: r_i can no longer be changed
//!                          ──► Wait(until)          nothing is worth sending now
//! ```
//!
//! A [`Choice`] takes the time from its caller and reads neither a clock nor randomness: the same calls give the same
//! decisions, so a [`log`] of them can be replayed. Most needs are met by a [`Policy`], an ordered list of drop
//! [`Rule`]s and one sending [`Order`]; [`screen()`] and [`frames`] plan ahead for video; [`from_fn`] takes the application's own rule.

#![warn(clippy::missing_errors_doc)]
#![forbid(unsafe_code)]

mod choice;
mod frames;
mod gate;
mod idle_probe;
mod link;
mod live;
pub mod log;
mod lost;
mod number;
mod policy;
mod ready_made;
mod rendition;
pub mod screen;
#[cfg(feature = "serde")]
mod serde_units;
mod turns;

pub use freshwire_record::{Outcome, Reason, Record};

pub use choice::{Around, AskAgain, Choice, Decision, FromFn, Progress, from_fn};
pub use frames::Frames;
pub use gate::{Gate, Gated, gate};
pub use link::LinkView;
pub use live::{Aim, Live};
pub use number::{MAX_RENDITIONS, RENDITION_BITS, rendition_of};
pub use policy::{Builder, Order, Policy, Rule};
pub use ready_made::{
    deadline, expiring, fifo, frames, latest, layered, live, priority_progress, screen, thesis,
};
pub use rendition::{Adaptive, Cost, Selected, Selection, Why};

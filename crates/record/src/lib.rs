//! Time, rate and size with their units, the description of a record, and the vocabulary for its fate.
//!
//! ```text
//!  application        queue                     commit point, end
//!  Meta ──push──► Record (index, len) ──► Outcome: acknowledged, sent, dropped (Reason), refused
//!                                           └─ with its times: Fate
//! ```
//!
//! The ring, the policies, A1 and the engine use these types and no others. The ring writes the fields of [`Meta`] and the
//! codes of [`Reason`] into shared memory (`spec/ring.md`); A1 sends the codes (`spec/a1.md`).
//!
//! Every other crate counts in [`Timestamp`] and [`Rate`]. `kbit` is 1000 bit and `Kibit` is 1024 bit; both may be written, and neither is
//! ever taken for the other.

#![forbid(unsafe_code)]
#![warn(clippy::missing_errors_doc)]

mod fate;
mod parse;
mod rate;
mod reason;
mod record;
mod timestamp;

pub use fate::{Fate, NO_INDEX, Outcome};
pub use parse::{ParseUnitError, parse_duration, parse_share, parse_size};
pub use rate::Rate;
pub use reason::Reason;
pub use record::{Meta, Record};
pub use timestamp::Timestamp;

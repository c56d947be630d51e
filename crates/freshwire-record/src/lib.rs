//! The description of a record, and the vocabulary for its fate.
//!
//! ```text
//!  application        queue                     commit point, end
//!  Meta ──push──► Record (index, len) ──► Outcome: acknowledged, sent, dropped (Reason), refused
//!                                           └─ with its times: Fate
//! ```
//!
//! The ring, the policies, A1 and the engine use these types and no others. The ring writes the fields of [`Meta`] and the
//! codes of [`Reason`] into shared memory (`spec/ring.md`); A1 sends the codes (`spec/a1.md`).

#![forbid(unsafe_code)]

mod fate;
mod reason;
mod record;

pub use fate::{Fate, NO_INDEX, Outcome};
pub use reason::Reason;
pub use record::{Meta, Record};

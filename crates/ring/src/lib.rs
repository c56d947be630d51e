//! The shared-memory arena and rings of late data choice.
//!
//! An application puts records into a ring that it shares with a sender. Until the sender takes a record, the
//! application or a second process can drop it, modify it in place, re-rank it or replace it. The answer is exact:
//! done, or too late. One arena holds payload bytes, once; each destination has its own ring of descriptors into it.
//!
//! ```text
//!              taken, finished          ready            free
//!            ┌───┬───┬───┬───┬───╥───┬───┬───┬───┬───╥───┬───┐
//!  slots     │ S │ D │ S │ T │ T ║ R │ H │ D │ R │ R ║   │   │   S sent  D dead  T taken
//!            └───┴───┴───┴───┴───╨───┴───┴───┴───┴───╨───┴───┘   R ready H held for editing
//!                                 ▲           ▲       ▲
//!                              kern_i      umod_i   user_i
//! ```
//!
//! The sender consumes from `kern_i`, the oldest record that it may still take; the producer fills `user_i`, the
//! next free slot. The names are those of the ABI and of Birkedal 2006, section 4.1.4. `umod_i` is where the
//! sender is held back, if it is. Each slot's state word decides every race by compare-and-swap.
//!
//! - [`Region`]: the memory. [`Producer`], [`Consumer`], [`Editor`]: the roles.
//! - The other side may lie, or die at any instruction: every value that is loaded is checked, no reference is formed
//!   to payload bytes, each loop is bounded. `spec/ring.md` has the ABI and the rules.
//!
//! ```
//! use freshwire_ring::{Config, Meta, Region};
//! use freshwire_record::Timestamp;
//!
//! let region = Region::heap(&Config { slots: 8, ..Config::default() })?;
//! let mut producer = region.producer()?;
//! let mut sender = region.consumer(0)?;
//!
//! let _ = producer.push(0, b"stale", &Meta { seq: 1, ..Meta::default() })?;
//! let _ = producer.push(0, b"fresh", &Meta { seq: 2, ..Meta::default() })?;
//! assert!(producer.drop_seq(0, 1));
//!
//! let mut queue = Vec::new();
//! sender.queue(16, &mut queue);
//! let taken = sender.take(queue[0].index)?;
//! let mut payload = Vec::new();
//! sender.copy(&taken, 0, usize::MAX, &mut payload);
//! assert_eq!(payload, b"fresh");
//! sender.finish(&taken, Timestamp::from_nanos(1))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![warn(clippy::missing_errors_doc)]

mod blocks;
mod consumer;
mod edit;
mod editor;
mod error;
mod fates;
mod finished;
mod layout;
#[cfg(not(loom))]
mod lend;
#[cfg(not(loom))]
mod lent;
mod limits;
mod own;
mod passing;
mod poll;
mod prefetch;
mod process;
mod producer;
mod pushed;
mod record;
mod region;
mod reserve;
mod roles;
mod storage;
mod sync;
mod takeover;
mod view;
mod word;

pub use freshwire_record::{Fate, Meta, NO_INDEX, Outcome, Reason, Record};

pub use blocks::Stored;
pub use consumer::{Consumer, Counters, RawSlice, Taken};
pub use edit::Edit;
pub use editor::Editor;
pub use error::{
    AttachError, ClaimError, ConfigError, CreateError, EditError, ModifyError, PushError, TooLate,
};
pub use fates::MAX_KEPT_FATES;
pub use layout::{
    ABI_VERSION, Config, MAGIC, MAX_BLOCK_BYTES, MAX_BLOCKS, MAX_RECORD_SLOTS, MAX_REGION_BYTES, MAX_RINGS,
    MAX_SLOTS, MIN_BLOCK_BYTES, MIN_SLOTS,
};
pub use prefetch::prefetch;
pub use producer::Producer;
pub use pushed::{Pushed, Replaced};
pub use record::{RecordStatus, Stage};
pub use region::Region;
pub use reserve::Reservation;

//! Shared memory: a ring for each sink over one arena, and the roles of two processes that share it.
//!
//! A [`Region`] is a file that a second process can map. Its [`Editor`] drops, modifies and replaces records that a
//! [`Sender`](crate::Sender) has queued.

pub use freshwire_ring::{
    AttachError, ClaimError, Config, ConfigError, CreateError, Edit, EditError, Editor, Fate, MAX_KEPT_FATES,
    Meta, ModifyError, NO_INDEX, Outcome, Pushed, Reason, Record, RecordStatus, Region, Replaced,
    Reservation, Stage, TooLate,
};

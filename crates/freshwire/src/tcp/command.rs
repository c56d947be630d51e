use std::time::Duration;

use super::destination::Destination;
use super::load::Place;
use crate::ended::CloseMode;

/// What an [`Engine`](super::engine::Engine) is asked to do by its [`Handle`](super::engine::Handle)s.
pub(crate) enum Command {
    Add(u64, Destination, Place),
    Close(u64, CloseMode),
    /// Close as if dropped: finish the record, send these bytes, and abort if that takes longer than the time given.
    Leave(u64, Vec<u8>, Duration),
    /// Send bytes between two records.
    Interject(u64, Vec<u8>),
    /// Ask the policy again, although neither the queue nor the path has changed.
    AskAgain(u64),
    Stop,
}

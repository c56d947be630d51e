use freshwire_choice::{Reason, Record};

use super::batch::Plan;
use super::committed::Room;
use super::output::WriteBuffers;

/// Room for listings and system calls. No connection needs it between its turns, so the engine has it once.
#[derive(Default)]
pub(super) struct Scratch {
    pub(super) records: Vec<Record>,
    pub(super) gone: Vec<(u64, Reason)>,
    pub(super) head: Vec<u8>,
    pub(super) write: WriteBuffers,
    pub(super) committed: Room,
    pub(super) plan: Plan,
}

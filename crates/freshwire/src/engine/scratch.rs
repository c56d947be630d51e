use freshwire_choice::Record;
use freshwire_io::tcp::IoSlice;
use freshwire_ring::{Queued, RawSlice};

use super::connection::{Number, Room};
use super::output::{Buffers, End};

/// Room for listings and system calls. No connection needs it between its turns, so the engine has it once.
#[derive(Default)]
pub(super) struct Scratch {
    pub(super) queued: Vec<Queued>,
    pub(super) records: Vec<Record>,
    pub(super) gone: Vec<(u64, u8)>,
    pub(super) raw: Vec<RawSlice>,
    pub(super) slices: Vec<IoSlice>,
    pub(super) plain: Vec<u8>,
    pub(super) head: Vec<u8>,
    pub(super) ended: Vec<(Number, End)>,
    pub(super) buffers: Buffers,
    pub(super) begun: Room,
}

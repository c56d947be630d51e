use std::io;

use crate::limits::{
    ABI_VERSION, MAX_BLOCK_BYTES, MAX_BLOCKS, MAX_REGION_BYTES, MAX_RINGS, MAX_SLOTS, MIN_BLOCK_BYTES,
    MIN_SLOTS,
};

/// A region of this size is not possible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// Too few or too many rings.
    #[error("{0} rings: choose 1 to {MAX_RINGS}")]
    Rings(u32),
    /// Not a power of two, too few or too many slots.
    #[error("{0} slots in a ring: choose a power of two from {MIN_SLOTS} to {MAX_SLOTS}")]
    Slots(u32),
    /// Blocks too small or too large.
    #[error("blocks of {0} bytes: choose {MIN_BLOCK_BYTES} to {MAX_BLOCK_BYTES}")]
    BlockBytes(u32),
    /// No blocks, or too many.
    #[error("{0} blocks: choose 1 to {MAX_BLOCKS}")]
    Blocks(u32),
    /// Each part is within its limit, the whole is not.
    #[error("a region of {0} bytes: choose sizes that add up to at most {MAX_REGION_BYTES}")]
    Region(u64),
}

/// The region could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CreateError {
    /// The sizes are out of their limits.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The machine has too little memory for it.
    #[error("a region of {wanted} bytes does not fit into memory: use fewer slots or blocks")]
    OutOfMemory {
        /// Bytes that the region needs.
        wanted: u64,
    },
    /// A system call failed.
    #[error("the memory file could not be made")]
    Io(#[source] io::Error),
}

/// The file or the memory is not a region that may be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttachError {
    /// The other side could shrink the file under us.
    #[error("the file is not sealed against a change of size: pass the descriptor of a region")]
    NotSealed,
    /// The file or the memory is shorter than a header, or not as long as its header says.
    #[error("the region has {actual} bytes where {expected} are needed")]
    WrongSize {
        /// Bytes of the file, or of the memory.
        actual: u64,
        /// Bytes that a header takes, or that the header states.
        expected: u64,
    },
    /// It does not begin with the magic number.
    #[error("this is not a freshwire region of this byte order")]
    WrongMagic,
    /// The memory does not begin at a multiple of 4096.
    #[error("the region's memory does not begin at a page")]
    Misaligned,
    /// It has another ABI version.
    #[error(
        "the region has ABI version {0}, this library has {ABI_VERSION}: use the same release on both sides"
    )]
    WrongVersion(u32),
    /// Its offsets do not follow from its sizes.
    #[error("the region's header contradicts itself")]
    WrongLayout,
    /// Its sizes are out of their limits.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A system call failed.
    #[error("the region could not be mapped")]
    Io(#[source] io::Error),
}

/// A role of the region is not to be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClaimError {
    /// A living process has it.
    #[error("process {pid} has this role: end it first, or take over explicitly")]
    AlreadyClaimed {
        /// The process.
        pid: u32,
    },
    /// The kernel is the sender of this ring and stays it.
    #[error("the kernel has this role: the ring is its own")]
    Kernel,
    /// The region has no such ring.
    #[error(
        "there is no ring {0}: all are in use; raise RingConfig::rings, or end the sink of one that has left"
    )]
    NoSuchRing(usize),
    /// The ring's indexes cannot be continued.
    #[error("the indexes of ring {0} were overwritten: make a new region")]
    Corrupt(usize),
}

/// The record was not put on the ring. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PushError {
    /// No free slot: wait, drop or replace.
    #[error("the ring is full: wait, drop or replace a record")]
    Full,
    /// No free block in the arena: wait, drop or replace.
    #[error("the arena has no free block: wait, drop or replace a record")]
    OutOfBlocks,
    /// Larger than all slots of a ring, or than the whole arena.
    #[error("the record is larger than the ring can ever hold: use more slots or larger blocks")]
    TooLarge,
    /// The region has no such ring.
    #[error("there is no such ring: use that of a sink, or raise RingConfig::rings")]
    NoSuchRing,
    /// The sender has closed the ring: its connection is over.
    #[error("the sender has closed this ring: its connection is over")]
    Closed,
    /// The stored payload or the reservation belongs to another producer, or the reservation was committed before.
    #[error(
        "the payload was stored by another producer, or the reservation was committed before: reserve again"
    )]
    ForeignPayload,
}

/// The record is no longer there to be changed, taken or dropped: the other side was first, or it never was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too late: the record has been taken, held or dropped")]
pub struct TooLate;

/// Error of modifying a queued record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ModifyError {
    /// The record has been taken, held or dropped, or was never in the ring.
    #[error(transparent)]
    TooLate(#[from] TooLate),
    /// A change does not fit the record. The record stays queued, with the changes made before this one.
    #[error(transparent)]
    Invalid(#[from] EditError),
}

/// The payload of a held record was not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EditError {
    /// The same payload is in other rings.
    #[error("the payload is shared with other rings: replace the record instead")]
    Shared,
    /// Past the end of the record, or of its slots.
    #[error("the change does not fit into the record: replace it instead")]
    OutOfRange,
}

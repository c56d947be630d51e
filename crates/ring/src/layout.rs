//! The ABI: what lies where in the shared memory. `spec/ring.md` prints the same offsets.

#[cfg(not(loom))]
use std::mem::offset_of;

use crate::error::ConfigError;
pub use crate::limits::{
    ABI_VERSION, MAX_BLOCK_BYTES, MAX_BLOCKS, MAX_REGION_BYTES, MAX_RINGS, MAX_SLOTS, MIN_BLOCK_BYTES,
    MIN_SLOTS,
};
use crate::sync::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

/// `"FWRING01"`, read as a little-endian number: another byte order does not match.
pub const MAGIC: u64 = u64::from_le_bytes(*b"FWRING01");
/// Most slots of one record, if the ring has that many.
pub const MAX_RECORD_SLOTS: u32 = 65_535;

/// Indexes from here on are refused: no honest producer reaches them.
pub(crate) const MAX_INDEX: u64 = 1 << 62;
/// `umod_i` of a ring that is not held back.
pub(crate) const NO_HOLD: u64 = u64::MAX;
/// `kern_flag`: the sender sleeps.
pub(crate) const FLAG_SLEEPS: u32 = 1;
/// `kern_flag`: the sender has closed the ring.
pub(crate) const FLAG_CLOSED: u32 = 2;
/// `kern_flag`: the sender has closed the ring, and still tells of acknowledgements.
pub(crate) const FLAG_TELLS: u32 = 4;
/// `features`: the senders find records whose slots the producer has passed over.
pub(crate) const FEATURE_PASSES_OVER: u32 = 1;
/// Slot flags: the payload is in other rings too.
pub(crate) const SLOT_SHARED: u8 = 1;

/// The size of a region. Every limit has a name: [`MAX_RINGS`], [`MIN_SLOTS`], [`MAX_SLOTS`], [`MIN_BLOCK_BYTES`],
/// [`MAX_BLOCK_BYTES`], [`MAX_BLOCKS`], [`MAX_REGION_BYTES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Rings, one per destination. Default 1.
    pub rings: u32,
    /// Slots of each ring, a power of two. Default 1024.
    pub slots: u32,
    /// Payload bytes of one slot; a larger record takes several slots. Default 1448, one segment on a 1500-byte path.
    pub block_bytes: u32,
    /// Payload blocks, shared by all rings. Default 1024.
    pub blocks: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self { rings: 1, slots: 1024, block_bytes: 1448, blocks: 1024 }
    }
}

impl Config {
    /// Returns sizes for `clients` clients at a time, each with a ring for the newest values of `keys` keys of at most `bytes` bytes. A
    /// value is never refused, whatever the paths do. Leaving clients count until their sink has ended.
    ///
    /// Each ring has [`slots_for`](Self::slots_for) the keys, and the arena one block per slot. Creating the region fails if the sizes
    /// exceed the limits.
    ///
    /// Over A1 a value keeps its slot until it is acknowledged. Add to `keys` the values that may be in flight: rate
    /// × (round trip + queueing delay) / bytes of a value with its overhead. For example, 1 Mbit/s × 150 ms / (16 +
    /// 40) B = 335. With fewer slots, a push is refused while every slot holds a value in flight.
    pub fn for_clients(clients: u32, keys: u32, bytes: u32) -> Self {
        let slots = Self::slots_for(keys);
        let block_bytes = bytes.max(MIN_BLOCK_BYTES);
        Self { rings: clients, slots, block_bytes, blocks: clients.saturating_mul(slots) }
    }

    /// Slots that the newest values of `keys` keys need in a ring, each in one slot. The number is one for each key
    /// plus an eighth of the ring for values in progress, rounded up to a power of two. The sender has no more than
    /// that in progress at a time.
    pub fn slots_for(keys: u32) -> u32 {
        let needed = u64::from(keys) * 8 / 7 + 1;
        u32::try_from(needed.next_power_of_two()).unwrap_or(u32::MAX).max(MIN_KEYED_SLOTS)
    }

    /// Records that may be in progress while others still find the slots that [`slots_for`](Self::slots_for) counts on.
    pub fn in_progress_slots(&self) -> u32 {
        (self.slots / 8).max(1)
    }
}

/// A ring for keys has room for one value in progress, one that waits, and some more: chosen, not measured.
const MIN_KEYED_SLOTS: u32 = 8;

/// The private, checked copy of a region's sizes. Nothing of it is read again from the shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) config: Config,
    pub(crate) block_stride: u32,
    pub(crate) rings_offset: u64,
    pub(crate) slots_offset: u64,
    pub(crate) arena_offset: u64,
    pub(crate) total: u64,
    /// The producer may pass over slots that are still in use.
    pub(crate) passes_over: bool,
}

impl Layout {
    pub(crate) fn new(config: &Config) -> Result<Self, ConfigError> {
        let Config { rings, slots, block_bytes, blocks } = *config;
        if !(1..=MAX_RINGS).contains(&rings) {
            return Err(ConfigError::Rings(rings));
        }
        if !(MIN_SLOTS..=MAX_SLOTS).contains(&slots) || !slots.is_power_of_two() {
            return Err(ConfigError::Slots(slots));
        }
        if !(MIN_BLOCK_BYTES..=MAX_BLOCK_BYTES).contains(&block_bytes) {
            return Err(ConfigError::BlockBytes(block_bytes));
        }
        if !(1..=MAX_BLOCKS).contains(&blocks) {
            return Err(ConfigError::Blocks(blocks));
        }
        let block_stride = block_bytes.next_multiple_of(64);
        let rings_offset = size_of_u64::<Header>();
        let slots_offset = rings_offset + u64::from(rings) * size_of_u64::<RingHeader>();
        let slot_bytes = u64::from(rings) * u64::from(slots) * size_of_u64::<Slot>();
        let arena_offset = (slots_offset + slot_bytes).next_multiple_of(PAGE);
        let total = (arena_offset + u64::from(blocks) * u64::from(block_stride)).next_multiple_of(PAGE);
        if total > MAX_REGION_BYTES || usize::try_from(total).is_err() {
            return Err(ConfigError::Region(total));
        }
        Ok(Self {
            config: *config,
            block_stride,
            rings_offset,
            slots_offset,
            arena_offset,
            total,
            passes_over: true,
        })
    }

    /// The lap in which `index` uses its slot.
    pub(crate) fn lap(&self, index: u64) -> u32 {
        (index >> self.config.slots.trailing_zeros()) as u32
    }

    /// Slots that a record of `len` bytes takes, `None` if no ring of this region can hold it.
    pub(crate) fn span(&self, len: usize) -> Option<u32> {
        let span = len.div_ceil(self.config.block_bytes as usize).max(1);
        let span = u32::try_from(span).ok()?;
        (span <= self.max_span() && u32::try_from(len).is_ok()).then_some(span)
    }

    /// Most slots of one record.
    pub(crate) fn max_span(&self) -> u32 {
        self.config.slots.min(MAX_RECORD_SLOTS)
    }
}

/// The head of a region.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct Header {
    pub(crate) magic: AtomicU64,
    pub(crate) version: AtomicU32,
    pub(crate) header_bytes: AtomicU32,
    pub(crate) total_bytes: AtomicU64,
    pub(crate) rings: AtomicU32,
    pub(crate) slots: AtomicU32,
    pub(crate) block_bytes: AtomicU32,
    pub(crate) blocks: AtomicU32,
    pub(crate) ring_header_bytes: AtomicU32,
    pub(crate) slot_bytes: AtomicU32,
    pub(crate) rings_offset: AtomicU64,
    pub(crate) slots_offset: AtomicU64,
    pub(crate) arena_offset: AtomicU64,
    pub(crate) block_stride: AtomicU32,
    /// What the senders of this region know beyond the first version of the ABI.
    pub(crate) features: AtomicU32,
    pub(crate) producer_claim: Line<AtomicU64>,
}

/// A word alone on its cache line, so that its writer does not slow the readers of its neighbours.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct Line<T>(pub(crate) T);

/// The producer's line of a ring.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct UserLine {
    /// Next free slot.
    pub(crate) user_i: AtomicU64,
    /// Oldest slot that is not reclaimed; for the next producer.
    pub(crate) tail_i: AtomicU64,
    /// From here on no slot was passed over.
    pub(crate) passed_i: AtomicU64,
}

/// The head of one ring.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct RingHeader {
    pub(crate) user: UserLine,
    /// The sender takes nothing at or above it. Written by the producer.
    pub(crate) umod_i: Line<AtomicU64>,
    /// Oldest slot that is neither taken nor dead. Written by the sender.
    pub(crate) kern_i: Line<AtomicU64>,
    /// Set by the sender, `FLAG_SLEEPS` cleared by whoever wakes it.
    pub(crate) kern_flag: Line<AtomicU32>,
    /// Counts what became visible other than by `user_i`. Written by every process.
    pub(crate) changes: Line<AtomicU64>,
    /// The sender's claim.
    pub(crate) consumer_claim: Line<AtomicU64>,
}

/// One descriptor: the first line is the submitter's, the second the sender's.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) state: AtomicU64,
    pub(crate) user_seq: AtomicU64,
    pub(crate) generated: AtomicU64,
    pub(crate) deadline: AtomicU64,
    pub(crate) key: AtomicU64,
    pub(crate) block: AtomicU32,
    pub(crate) len: AtomicU32,
    pub(crate) group: AtomicU32,
    pub(crate) refs: [AtomicU32; 2],
    /// Slots of the record in its first slot; the slot's number within the record in the others.
    pub(crate) span: AtomicU16,
    pub(crate) layer: AtomicU8,
    pub(crate) flags: AtomicU8,
    /// One more than the index of the record that this line speaks of.
    pub(crate) fate_of: AtomicU64,
    pub(crate) committed_at: AtomicU64,
    pub(crate) finished_at: AtomicU64,
    pub(crate) acked_at: AtomicU64,
    pub(crate) horizon: AtomicU32,
    /// One more than the bytes that the receiving program had not read; 0 where that is not known.
    pub(crate) unread: AtomicU32,
}

const PAGE: u64 = 4096;

const fn size_of_u64<T>() -> u64 {
    size_of::<T>() as u64
}

// Loom's atomics are larger than the words that they stand for.
#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<Header>() == 192);
    assert!(offset_of!(Header, version) == 8);
    assert!(offset_of!(Header, header_bytes) == 12);
    assert!(offset_of!(Header, total_bytes) == 16);
    assert!(offset_of!(Header, rings) == 24);
    assert!(offset_of!(Header, slots) == 28);
    assert!(offset_of!(Header, block_bytes) == 32);
    assert!(offset_of!(Header, blocks) == 36);
    assert!(offset_of!(Header, ring_header_bytes) == 40);
    assert!(offset_of!(Header, slot_bytes) == 44);
    assert!(offset_of!(Header, rings_offset) == 48);
    assert!(offset_of!(Header, slots_offset) == 56);
    assert!(offset_of!(Header, arena_offset) == 64);
    assert!(offset_of!(Header, block_stride) == 72);
    assert!(offset_of!(Header, producer_claim) == 128);
    assert!(size_of::<RingHeader>() == 384);
    assert!(offset_of!(Header, features) == 76);
    assert!(offset_of!(UserLine, tail_i) == 8);
    assert!(offset_of!(UserLine, passed_i) == 16);
    assert!(offset_of!(Slot, unread) == 100);
    assert!(offset_of!(RingHeader, umod_i) == 64);
    assert!(offset_of!(RingHeader, kern_i) == 128);
    assert!(offset_of!(RingHeader, kern_flag) == 192);
    assert!(offset_of!(RingHeader, changes) == 256);
    assert!(offset_of!(RingHeader, consumer_claim) == 320);
    assert!(size_of::<Slot>() == 128);
    // Slots follow the ring headers directly, and these the header.
    assert!(align_of::<Slot>() == 64 && align_of::<RingHeader>() == 64 && align_of::<Header>() == 64);
    assert!(offset_of!(Slot, user_seq) == 8);
    assert!(offset_of!(Slot, generated) == 16);
    assert!(offset_of!(Slot, deadline) == 24);
    assert!(offset_of!(Slot, key) == 32);
    assert!(offset_of!(Slot, block) == 40);
    assert!(offset_of!(Slot, len) == 44);
    assert!(offset_of!(Slot, group) == 48);
    assert!(offset_of!(Slot, refs) == 52);
    assert!(offset_of!(Slot, span) == 60);
    assert!(offset_of!(Slot, layer) == 62);
    assert!(offset_of!(Slot, flags) == 63);
    assert!(offset_of!(Slot, fate_of) == 64);
    assert!(offset_of!(Slot, committed_at) == 72);
    assert!(offset_of!(Slot, finished_at) == 80);
    assert!(offset_of!(Slot, acked_at) == 88);
    assert!(offset_of!(Slot, horizon) == 96);
};

#[cfg(loom)]
mod loom_values {
    //! Loom's atomics cannot be made from zeroed memory.
    use super::*;

    impl Header {
        pub(crate) fn zeroed() -> Self {
            Self {
                magic: AtomicU64::new(0),
                version: AtomicU32::new(0),
                header_bytes: AtomicU32::new(0),
                total_bytes: AtomicU64::new(0),
                rings: AtomicU32::new(0),
                slots: AtomicU32::new(0),
                block_bytes: AtomicU32::new(0),
                blocks: AtomicU32::new(0),
                ring_header_bytes: AtomicU32::new(0),
                slot_bytes: AtomicU32::new(0),
                rings_offset: AtomicU64::new(0),
                slots_offset: AtomicU64::new(0),
                arena_offset: AtomicU64::new(0),
                block_stride: AtomicU32::new(0),
                features: AtomicU32::new(0),
                producer_claim: Line(AtomicU64::new(0)),
            }
        }
    }

    impl RingHeader {
        pub(crate) fn zeroed() -> Self {
            Self {
                user: UserLine {
                    user_i: AtomicU64::new(0),
                    tail_i: AtomicU64::new(0),
                    passed_i: AtomicU64::new(0),
                },
                umod_i: Line(AtomicU64::new(0)),
                kern_i: Line(AtomicU64::new(0)),
                kern_flag: Line(AtomicU32::new(0)),
                changes: Line(AtomicU64::new(0)),
                consumer_claim: Line(AtomicU64::new(0)),
            }
        }
    }

    impl Slot {
        pub(crate) fn zeroed() -> Self {
            Self {
                state: AtomicU64::new(0),
                user_seq: AtomicU64::new(0),
                generated: AtomicU64::new(0),
                deadline: AtomicU64::new(0),
                key: AtomicU64::new(0),
                block: AtomicU32::new(0),
                len: AtomicU32::new(0),
                group: AtomicU32::new(0),
                refs: [AtomicU32::new(0), AtomicU32::new(0)],
                span: AtomicU16::new(0),
                layer: AtomicU8::new(0),
                flags: AtomicU8::new(0),
                fate_of: AtomicU64::new(0),
                committed_at: AtomicU64::new(0),
                finished_at: AtomicU64::new(0),
                acked_at: AtomicU64::new(0),
                horizon: AtomicU32::new(0),
                unread: AtomicU32::new(0),
            }
        }
    }
}

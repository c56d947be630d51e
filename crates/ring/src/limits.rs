//! Sizes that a region can have.

/// The version of the ABI; changes whenever an offset or a meaning does.
pub const ABI_VERSION: u32 = 1;

/// Largest block, in bytes.
pub const MAX_BLOCK_BYTES: u32 = 1 << 24;

/// Most blocks in an arena.
pub const MAX_BLOCKS: u32 = 1 << 24;

/// Largest region, in bytes.
pub const MAX_REGION_BYTES: u64 = 1 << 40;

/// Most rings in a region.
pub const MAX_RINGS: u32 = 65_536;

/// Most slots of a ring.
pub const MAX_SLOTS: u32 = 65_536;

/// Smallest block, in bytes.
pub const MIN_BLOCK_BYTES: u32 = 16;

/// Fewest slots of a ring.
pub const MIN_SLOTS: u32 = 2;

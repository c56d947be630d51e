//! The atomics of the shared memory. Loom replaces them, so that it can try every interleaving.

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

/// Tells loom about plain accesses to the arena's blocks, so that it reports a payload that is read and written at
/// once. Costs nothing otherwise.
#[cfg(loom)]
#[derive(Debug)]
pub(crate) struct BlockAccess(Vec<loom::cell::UnsafeCell<()>>);

#[cfg(loom)]
impl BlockAccess {
    pub(crate) fn new(blocks: u32) -> Self {
        Self((0..blocks).map(|_| loom::cell::UnsafeCell::new(())).collect())
    }

    pub(crate) fn read(&self, block: u32) {
        self.0[block as usize].with(|_| ());
    }

    pub(crate) fn write(&self, block: u32) {
        self.0[block as usize].with_mut(|_| ());
    }
}

#[cfg(not(loom))]
#[derive(Debug)]
pub(crate) struct BlockAccess;

#[cfg(not(loom))]
impl BlockAccess {
    pub(crate) fn new(_blocks: u32) -> Self {
        Self
    }

    #[inline(always)]
    pub(crate) fn read(&self, _block: u32) {}

    #[inline(always)]
    pub(crate) fn write(&self, _block: u32) {}
}

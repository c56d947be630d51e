//! The producer's private account of the arena's blocks. Nothing of it is in shared memory: after a take-over it is
//! built again from what the rings hold.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

const NIL: u32 = u32::MAX;

#[derive(Debug)]
pub(crate) struct Blocks {
    free: Vec<u32>,
    users: Vec<u32>,
    chains: Arc<Chains>,
}

/// The blocks of payloads that have a handle. The producer alone changes them; handles follow their own.
#[derive(Debug)]
pub(crate) struct Chains {
    /// The block after this one in a payload.
    next: Box<[AtomicU32]>,
    /// Payloads whose handle has been dropped, until the producer looks. Its room is reserved for one entry per block,
    /// so that dropping a handle never allocates.
    returned: Mutex<Vec<u32>>,
}

/// A payload in the arena that can be pushed to any number of rings without another copy. Its blocks are free again
/// when the handle has been dropped and every ring is done with it.
#[derive(Debug)]
#[must_use = "a stored payload that is not pushed is dropped"]
pub struct Stored {
    /// `NIL` once its blocks are another's.
    first: u32,
    len: u32,
    chains: Arc<Chains>,
}

impl Stored {
    /// Payload bytes.
    #[expect(clippy::len_without_is_empty, reason = "an empty payload is nothing special")]
    pub fn len(&self) -> u32 {
        self.len
    }

    pub(crate) fn first(&self) -> u32 {
        self.first
    }

    /// From each of its blocks the one after it.
    pub(crate) fn after(&self, block: u32) -> Option<u32> {
        self.chains.after(block)
    }

    /// Takes the payload out, with this length; what is left is empty and gives nothing back.
    pub(crate) fn take(&mut self, len: u32) -> Self {
        self.len = 0;
        Self { first: std::mem::replace(&mut self.first, NIL), len, chains: Arc::clone(&self.chains) }
    }

    /// Hands the blocks over, with the use that the handle was.
    pub(crate) fn into_first(mut self) -> u32 {
        std::mem::replace(&mut self.first, NIL)
    }
}

impl Drop for Stored {
    fn drop(&mut self) {
        if self.first != NIL {
            self.chains.returned().push(self.first);
        }
    }
}

impl Chains {
    fn returned(&self) -> std::sync::MutexGuard<'_, Vec<u32>> {
        self.returned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn after(&self, block: u32) -> Option<u32> {
        let next = self.next.get(block as usize)?;
        Some(next.load(Ordering::Relaxed)).filter(|&next| next != NIL)
    }

    fn link(&self, block: u32, next: u32) {
        self.next[block as usize].store(next, Ordering::Relaxed);
    }
}

impl Blocks {
    /// All blocks, those that `users` names with the number of slots that use them.
    pub(crate) fn new(users: Vec<u32>) -> Self {
        let count = users.len();
        let mut free = Vec::with_capacity(count);
        free.extend((0..count as u32).rev().filter(|&block| users[block as usize] == 0));
        let next = (0..count).map(|_| AtomicU32::new(NIL)).collect();
        let chains = Arc::new(Chains { next, returned: Mutex::new(Vec::with_capacity(count)) });
        Self { free, users, chains }
    }

    pub(crate) fn available(&self) -> usize {
        self.free.len()
    }

    pub(crate) fn total(&self) -> usize {
        self.users.len()
    }

    /// The next `span` blocks that are used, in ascending order.
    #[cfg(not(loom))]
    pub(crate) fn upcoming(&mut self, span: u32) -> impl Iterator<Item = u32> + '_ {
        let start = self.free.len().saturating_sub(span as usize);
        self.free[start..].sort_unstable();
        self.free[start..].iter().copied()
    }

    /// A fresh block with one user.
    #[inline]
    pub(crate) fn alloc(&mut self) -> Option<u32> {
        let block = self.free.pop()?;
        self.users[block as usize] = 1;
        Some(block)
    }

    pub(crate) fn retain(&mut self, block: u32) {
        self.users[block as usize] += 1;
    }

    #[inline]
    pub(crate) fn release(&mut self, block: u32) {
        let users = &mut self.users[block as usize];
        *users = users.saturating_sub(1);
        if *users == 0 {
            self.free.push(block);
        }
    }

    /// Fresh blocks for a payload of `len` bytes. In ascending order, because neighbours are one piece.
    pub(crate) fn chain(&mut self, span: u32, len: u32) -> Option<Stored> {
        let start = self.free.len().checked_sub(span as usize)?;
        self.free[start..].sort_unstable();
        let first = *self.free.get(start)?;
        for place in start..self.free.len() {
            let block = self.free[place];
            self.users[block as usize] = 1;
            self.chains.link(block, self.free.get(place + 1).copied().unwrap_or(NIL));
        }
        self.free.truncate(start);
        Some(Stored { first, len, chains: Arc::clone(&self.chains) })
    }

    /// Frees the blocks of a payload behind the first `span`.
    pub(crate) fn cut(&mut self, stored: &Stored, span: usize) {
        let mut last = stored.first;
        for _ in 1..span {
            last = self.after(last).unwrap_or(last);
        }
        let rest = self.after(last);
        self.chains.link(last, NIL);
        self.release_from(rest);
    }

    /// Whether the payload is one of these blocks.
    pub(crate) fn owns(&self, stored: &Stored) -> bool {
        Arc::ptr_eq(&self.chains, &stored.chains) && stored.first != NIL
    }

    pub(crate) fn after(&self, block: u32) -> Option<u32> {
        self.chains.after(block)
    }

    /// Takes back the payloads whose handle is gone.
    pub(crate) fn collect(&mut self) {
        let chains = Arc::clone(&self.chains);
        for first in chains.returned().drain(..) {
            self.release_from(Some(first));
        }
    }

    fn release_from(&mut self, mut block: Option<u32>) {
        while let Some(this) = block {
            block = self.after(this);
            self.release(this);
        }
    }
}

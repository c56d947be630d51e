//! The producer's private account of the arena's blocks. Nothing of it is in shared memory: after a take-over it is
//! built again from what the rings hold.

use std::sync::{Arc, Mutex, PoisonError};

const NIL: u32 = u32::MAX;

#[derive(Debug)]
pub(crate) struct Blocks {
    free: Vec<u32>,
    users: Vec<u32>,
    /// The block after this one in a stored payload.
    next: Vec<u32>,
    returned: Arc<Returned>,
}

/// Payloads whose handle has been dropped, until the producer looks. Its room is reserved for one entry per block,
/// so that dropping a handle never allocates.
#[derive(Debug)]
pub(crate) struct Returned(Mutex<Vec<u32>>);

/// A payload in the arena that can be pushed to any number of rings without another copy. Its blocks are free again
/// when the handle has been dropped and every ring is done with it.
#[derive(Debug)]
#[must_use = "a stored payload that is not pushed is dropped"]
pub struct Stored {
    first: u32,
    len: u32,
    pool: Arc<Returned>,
}

impl Stored {
    /// Payload bytes.
    #[expect(clippy::len_without_is_empty, reason = "an empty payload is nothing special")]
    pub fn len(&self) -> u32 {
        self.len
    }
}

impl Drop for Stored {
    fn drop(&mut self) {
        self.pool.lock().push(self.first);
    }
}

impl Returned {
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Blocks {
    /// All blocks, those that `users` names with the number of slots that use them.
    pub(crate) fn new(users: Vec<u32>) -> Self {
        let count = users.len();
        let mut free = Vec::with_capacity(count);
        free.extend((0..count as u32).rev().filter(|&block| users[block as usize] == 0));
        let returned = Arc::new(Returned(Mutex::new(Vec::with_capacity(count))));
        Self { free, users, next: vec![NIL; count], returned }
    }

    pub(crate) fn available(&self) -> usize {
        self.free.len()
    }

    pub(crate) fn total(&self) -> usize {
        self.users.len()
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

    /// Puts `block` behind `last` in a payload that is being stored.
    pub(crate) fn link(&mut self, last: Option<u32>, block: u32) {
        self.next[block as usize] = NIL;
        if let Some(last) = last {
            self.next[last as usize] = block;
        }
    }

    /// The handle of a stored payload whose blocks have been linked.
    pub(crate) fn handle(&self, first: u32, len: u32) -> Stored {
        Stored { first, len, pool: Arc::clone(&self.returned) }
    }

    pub(crate) fn owns(&self, stored: &Stored) -> bool {
        Arc::ptr_eq(&self.returned, &stored.pool)
    }

    /// The first block of a stored payload, and from each block the one after it.
    pub(crate) fn first(&self, stored: &Stored) -> u32 {
        stored.first
    }

    pub(crate) fn after(&self, block: u32) -> Option<u32> {
        Some(self.next[block as usize]).filter(|&next| next != NIL)
    }

    /// Takes back the payloads whose handle is gone.
    pub(crate) fn collect(&mut self) {
        let returned = Arc::clone(&self.returned);
        for first in returned.lock().drain(..) {
            let mut block = Some(first);
            while let Some(this) = block {
                block = self.after(this);
                self.release(this);
            }
        }
    }
}

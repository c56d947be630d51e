//! Payload that the kernel sends from the arena's own pages, without a copy.
//!
//! The packets refer to these pages, in the socket's queue and, on one machine, in the receiver's queue too. They do so for an
//! unknown time: an acknowledgement comes before the receiver has read. So the producer never writes to such a page again.
//! It takes the page out of the memory file and puts a fresh one there. The old page is the packets' alone.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::atomic::Ordering;

use rustix::fs::{FallocateFlags, fallocate};

use crate::consumer::RawSlice;
use crate::process::Claim;
use crate::region::{Inner, Region};
use crate::sync::Ordering as WordOrdering;

impl Region {
    /// The range of the memory file that holds a piece of payload, for a system call that sends it without a copy
    /// (`sendfile`). The blocks are marked: the producer gives them fresh pages before it uses them again. So what was sent
    /// never changes, however long packets and the receiver's queue refer to it. `None` if the region cannot lend the piece:
    ///
    /// - the piece is not of this region's arena, or the region is not a [memory file](Self::as_fd);
    /// - its blocks are not whole pages, or the system gives memory files huge pages
    ///   (`/sys/kernel/mm/transparent_hugepage/shmem_enabled`);
    /// - the producer is another process, or uses another mapping.
    ///
    /// Adjacent pieces can be lent as one. The bytes stay those of the record until it is finished.
    //= spec/ring.md R-LEND-1, R-LEND-2
    pub fn lend(&self, piece: RawSlice) -> Option<(BorrowedFd<'_>, u64)> {
        let inner = self.inner();
        let producer = inner.header().producer_claim.0.load(WordOrdering::Acquire);
        if !self.can_lend() || Claim(producer) != Claim::current() {
            return None;
        }
        let at = inner.place_in_arena(piece)?;
        let stride = u64::from(inner.layout.block_stride);
        let blocks = (at / stride) as usize..(at + piece.len as u64).div_ceil(stride) as usize;
        inner.lent.any.store(true, Ordering::Relaxed);
        // The state by which the record ends makes it visible to the producer.
        inner.lent.lent.get(blocks)?.iter().for_each(|lent| lent.store(true, Ordering::Relaxed));
        Some((self.as_fd()?, inner.layout.arena_offset + at))
    }

    /// Whether a piece is in this region's arena.
    pub fn holds(&self, piece: RawSlice) -> bool {
        self.inner().place_in_arena(piece).is_some()
    }

    /// Whether some block may have been lent.
    pub(crate) fn has_lent(&self) -> bool {
        self.inner().lent.any.load(Ordering::Relaxed)
    }

    /// Whether [`lend`](Self::lend) lends pieces of the arena.
    pub fn can_lend(&self) -> bool {
        let lent = &self.inner().lent;
        !lent.lent.is_empty() && lent.has_producer.load(Ordering::Acquire)
    }
}

impl Inner {
    /// Where in the arena a piece begins, if all of it is there.
    fn place_in_arena(&self, piece: RawSlice) -> Option<u64> {
        let config = &self.layout.config;
        let size = u64::from(config.blocks) * u64::from(self.layout.block_stride);
        let at = (piece.ptr.addr() as u64).checked_sub(self.arena().addr().get() as u64)?;
        let end = at.checked_add(piece.len as u64)?;
        (end <= size).then_some(at)
    }

    /// Gives those of these blocks fresh pages that were lent. They are the producer's, and nobody needs their bytes.
    ///
    /// # Errors
    ///
    /// If the system has no pages: none of the blocks may be written to.
    //= spec/ring.md R-LEND-1
    pub(crate) fn renew(&self, blocks: impl IntoIterator<Item = u32>) -> io::Result<()> {
        let mut lent = blocks.into_iter().filter(|&block| self.lent.is_lent(block)).peekable();
        while let Some(first) = lent.next() {
            let mut count = 1;
            while lent.next_if_eq(&(first + count)).is_some() {
                count += 1;
            }
            self.renew_run(first, count)?;
        }
        Ok(())
    }

    #[cold]
    fn renew_run(&self, first: u32, count: u32) -> io::Result<()> {
        let Some(file) = self.file() else { return Ok(()) };
        let stride = u64::from(self.layout.block_stride);
        let (at, len) = (self.layout.arena_offset + u64::from(first) * stride, u64::from(count) * stride);
        fallocate(file.as_fd(), FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, at, len)?;
        // Reserved again, so that no access can fail.
        fallocate(file.as_fd(), FallocateFlags::empty(), at, len)?;
        let lent = self.lent.lent.iter().skip(first as usize).take(count as usize);
        lent.for_each(|lent| lent.store(false, Ordering::Relaxed));
        Ok(())
    }
}

//! Buffers that io_uring takes by itself: a ring of them for each connection, from which a send bundle takes all at once.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::{IoUring, types::BufRingEntry};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use super::picture::Picture;

/// Bytes of a buffer.
const BUFFER: usize = 4096;

/// Bytes of a connection's ring: the kernel wants whole pages.
const RING_BYTES: usize = 4096;

/// Most buffers that the kernel takes for a bundle, and that a ring of one page holds.
const MOST_BUFFERS: usize = 256;

/// A ring of buffers for each connection, whose group has the connection's number.
#[derive(Debug)]
pub(crate) struct Groups {
    memory: NonNull<u8>,
    connections: usize,
    /// Entries of a ring: a power of two.
    entries: u16,
    /// Where the next buffer of each connection goes.
    tails: Vec<u16>,
}

impl Groups {
    /// Registers the rings, all of them empty.
    pub(crate) fn new(ring: &IoUring, connections: usize, picture: &Picture) -> io::Result<Self> {
        if !ring.params().is_feature_recvsend_bundle() {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "send bundles need Linux 6.10"));
        }
        let buffers = picture.len().div_ceil(BUFFER);
        if buffers > MOST_BUFFERS || connections > usize::from(u16::MAX) {
            let most =
                format!("a bundle takes at most {MOST_BUFFERS} pages, for at most {} connections", u16::MAX);
            return Err(io::Error::new(io::ErrorKind::Unsupported, most));
        }
        let entries = buffers.next_power_of_two() as u16;
        let (protection, bytes) = (ProtFlags::READ | ProtFlags::WRITE, connections.max(1) * RING_BYTES);
        // SAFETY: new memory at an address of the kernel's choice, which belongs to the groups alone and is zeroed.
        let address = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, protection, MapFlags::PRIVATE)? };
        let memory =
            NonNull::new(address.cast()).ok_or_else(|| io::Error::other("mmap returned no address"))?;
        let groups = Self { memory, connections, entries, tails: vec![0; connections] };
        for connection in 0..connections {
            let address = groups.ring(connection) as u64;
            // SAFETY: the ring is `entries` entries of 16 bytes within a page of its own. The owner of `groups` drops it after the
            // io_uring, so the kernel does not use the page when it is gone.
            unsafe { ring.submitter().register_buf_ring_with_flags(address, entries, connection as u16, 0)? };
        }
        Ok(groups)
    }

    /// Gives a connection's ring, of which every buffer has been taken, the picture again.
    pub(crate) fn provide(&mut self, connection: usize, picture: &Picture) {
        let base = self.ring(connection);
        let mut tail = self.tails[connection];
        for (number, buffer) in picture.bytes().chunks(BUFFER).enumerate() {
            let place = usize::from(tail & (self.entries - 1));
            // SAFETY: `place` is below `entries`, all of which lie in the connection's page. The kernel reads an entry only between the
            // tail's store below and its completion, after which the caller comes here again.
            let entry = unsafe { &mut *base.wrapping_add(place) };
            entry.set_addr(buffer.as_ptr() as u64);
            entry.set_len(buffer.len() as u32);
            entry.set_bid(number as u16);
            tail = tail.wrapping_add(1);
        }
        self.tails[connection] = tail;
        // SAFETY: `base` is the first entry of a registered ring.
        let shared = unsafe { BufRingEntry::tail(base) };
        // SAFETY: it is aligned and lives as long as `self`; the kernel reads it atomically, and only this program writes it.
        let shared = unsafe { AtomicU16::from_ptr(shared.cast_mut()) };
        // Pairs with the kernel's acquiring read: it sees the entries before it sees the tail.
        shared.store(tail, Ordering::Release);
    }

    fn ring(&self, connection: usize) -> *mut BufRingEntry {
        debug_assert!(connection < self.connections);
        self.memory.as_ptr().wrapping_add(connection * RING_BYTES).cast()
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        // SAFETY: `new` mapped exactly this range, and the io_uring that knew it has gone before.
        let _ = unsafe { munmap(self.memory.as_ptr().cast(), self.connections.max(1) * RING_BYTES) };
    }
}

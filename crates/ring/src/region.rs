use std::fmt;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use crate::error::{ClaimError, ConfigError, CreateError};
use crate::layout::{
    ABI_VERSION, Config, FEATURE_PASSES_OVER, Header, Layout, MAGIC, NO_HOLD, RingHeader, Slot,
};
#[cfg(not(loom))]
use crate::lent::LentBlocks;
use crate::process::Claim;
use crate::storage::Storage;
use crate::sync::{AtomicU64, BlockAccess, Ordering};

/// One piece of memory with its rings and its arena. A clone is another handle to the same memory.
///
/// ```text
/// ┌────────┬──────────────┬───────────────────────────┬───────────────────┐
/// │ header │ ring headers │ slots of ring 0, 1, 2 ... │ arena: blocks     │
/// └────────┴──────────────┴───────────────────────────┴───────────────────┘
/// ```
///
/// The mapping is undone when the last clone, and the last role taken from one, is gone.
#[derive(Clone)]
pub struct Region {
    inner: Arc<Inner>,
}

impl Region {
    /// Makes a region in a sealed memory file that another process can map, see [`as_fd`](Self::as_fd). Its memory
    /// is reserved at once, so that no later access can fail.
    ///
    /// # Errors
    ///
    /// [`CreateError`] if the sizes are out of their limits, or the system has too little memory.
    #[cfg(not(loom))]
    pub fn create(config: &Config) -> Result<Self, CreateError> {
        let layout = Layout::new(config)?;
        let region = Self::from_storage(layout, Storage::create(&layout)?, false);
        region.inner.initialise();
        Ok(region)
    }

    /// Maps the region that another process made, after checking that nothing in it can lead outside of it.
    ///
    /// # Errors
    ///
    /// [`AttachError`](crate::AttachError) if the file is not sealed, or is not a region of this ABI version and
    /// byte order.
    #[cfg(not(loom))]
    pub fn attach(fd: std::os::fd::OwnedFd) -> Result<Self, crate::AttachError> {
        let (layout, storage) = Storage::attach(fd)?;
        Ok(Self::from_storage(layout, storage, true))
    }

    /// Views a region that somebody else made and that is mapped already: `bytes` bytes at `base`, such as a kernel
    /// module's ring behind a socket. Its header is checked as that of a file is; `keeper` is dropped, and by that may
    /// undo the mapping, when the last handle to the region is gone.
    ///
    /// # Safety
    ///
    /// Until `keeper` is dropped the memory stays mapped for reading and writing, and no access to it can fail: whoever
    /// made it can neither shrink nor withdraw it. No reference to it exists in this process.
    ///
    /// # Errors
    ///
    /// [`AttachError`](crate::AttachError) if the memory is not a region of this ABI version and byte order.
    #[cfg(not(loom))]
    pub unsafe fn from_memory(
        base: NonNull<u8>,
        bytes: usize,
        keeper: impl Send + Sync + 'static,
    ) -> Result<Self, crate::AttachError> {
        // SAFETY: the caller vouches for the memory.
        let (layout, storage) = unsafe { Storage::foreign(base, bytes, Box::new(keeper)) }?;
        Ok(Self::from_storage(layout, storage, true))
    }

    /// Makes a region in this process's own memory: for one process, for tests and for provers.
    ///
    /// # Errors
    ///
    /// [`CreateError`] if the sizes are out of their limits, or the system has too little memory.
    pub fn heap(config: &Config) -> Result<Self, CreateError> {
        let layout = Layout::new(config)?;
        let region = Self::from_storage(layout, Storage::heap(&layout)?, false);
        region.inner.initialise();
        Ok(region)
    }

    /// The sizes it was made with.
    pub fn config(&self) -> Config {
        self.inner.layout.config
    }

    /// Bytes of the whole region.
    pub fn total_bytes(&self) -> u64 {
        self.inner.layout.total
    }

    /// The largest record that a ring of this region can hold, in bytes.
    pub fn max_record_bytes(&self) -> u64 {
        let slots = self.inner.layout.max_span().min(self.inner.layout.config.blocks);
        (u64::from(slots) * u64::from(self.inner.layout.config.block_bytes)).min(u64::from(u32::MAX))
    }

    /// Bytes that a region of this size takes.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if the sizes are out of their limits.
    pub fn bytes_for(config: &Config) -> Result<u64, ConfigError> {
        Ok(Layout::new(config)?.total)
    }

    /// The memory file, to be handed to another process; `None` for a region on the heap, and for one that somebody else
    /// made and mapped.
    pub fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.storage.fd().map(AsFd::as_fd)
    }

    /// `is_used`: another process may have used its blocks.
    fn from_storage(layout: Layout, storage: Storage, is_used: bool) -> Self {
        #[cfg(loom)]
        let _ = is_used;
        let inner = Inner {
            access: BlockAccess::new(layout.config.blocks),
            #[cfg(not(loom))]
            lent: LentBlocks::new(&layout, storage.fd().is_some(), is_used),
            layout,
            storage,
        };
        Self { inner: Arc::new(inner) }
    }

    pub(crate) fn inner(&self) -> &Inner {
        &self.inner
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region")
            .field("config", &self.inner.layout.config)
            .field("bytes", &self.inner.layout.total)
            .finish_non_exhaustive()
    }
}

/// The mapping, and the only ways into it. Control words are atomics and are lent as references; payload bytes are
/// only ever copied by raw pointer, because the other side may write them at any time.
pub(crate) struct Inner {
    pub(crate) layout: Layout,
    storage: Storage,
    access: BlockAccess,
    #[cfg(not(loom))]
    pub(crate) lent: LentBlocks,
}

impl Inner {
    #[cfg(not(loom))]
    pub(crate) fn arena(&self) -> NonNull<u8> {
        self.storage.arena()
    }

    #[cfg(not(loom))]
    pub(crate) fn file(&self) -> Option<&std::os::fd::OwnedFd> {
        self.storage.fd()
    }

    fn initialise(&self) {
        let header = self.header();
        let layout = &self.layout;
        header.version.store(ABI_VERSION, Ordering::Relaxed);
        header.header_bytes.store(size_u32::<Header>(), Ordering::Relaxed);
        header.total_bytes.store(layout.total, Ordering::Relaxed);
        header.rings.store(layout.config.rings, Ordering::Relaxed);
        header.slots.store(layout.config.slots, Ordering::Relaxed);
        header.block_bytes.store(layout.config.block_bytes, Ordering::Relaxed);
        header.blocks.store(layout.config.blocks, Ordering::Relaxed);
        header.ring_header_bytes.store(size_u32::<RingHeader>(), Ordering::Relaxed);
        header.slot_bytes.store(size_u32::<Slot>(), Ordering::Relaxed);
        header.rings_offset.store(layout.rings_offset, Ordering::Relaxed);
        header.slots_offset.store(layout.slots_offset, Ordering::Relaxed);
        header.arena_offset.store(layout.arena_offset, Ordering::Relaxed);
        header.block_stride.store(layout.block_stride, Ordering::Relaxed);
        header.features.store(FEATURE_PASSES_OVER, Ordering::Relaxed);
        for ring in 0..layout.config.rings as usize {
            if let Some(ring) = self.ring(ring) {
                ring.umod_i.0.store(NO_HOLD, Ordering::Relaxed);
            }
        }
        // Pairs with the Acquire load of the magic in `Storage::attach`: who sees it sees the rest.
        header.magic.store(MAGIC, Ordering::Release);
    }

    pub(crate) fn header(&self) -> &Header {
        // SAFETY: `storage` holds a live, aligned `Header` of atomics for as long as `self` lives.
        unsafe { self.storage.header().as_ref() }
    }

    /// The head of ring `ring`, if there is such a ring.
    pub(crate) fn ring(&self, ring: usize) -> Option<&RingHeader> {
        if ring >= self.layout.config.rings as usize {
            return None;
        }
        // SAFETY: `ring` is below the number of ring headers that `storage` holds.
        let head = unsafe { self.storage.rings().add(ring) };
        // SAFETY: it points at a live, aligned `RingHeader` of atomics for as long as `self` lives.
        Some(unsafe { head.as_ref() })
    }

    /// The slot that `index` uses in ring `ring`.
    #[inline]
    pub(crate) fn slot(&self, ring: usize, index: u64) -> &Slot {
        let slots = u64::from(self.layout.config.slots);
        let ring = ring.min(self.layout.config.rings as usize - 1);
        let at = ring * slots as usize + (index & (slots - 1)) as usize;
        // SAFETY: ring < rings and index & (slots - 1) < slots, so `at` is below the number of slots in `storage`.
        let slot = unsafe { self.storage.slots().add(at) };
        // SAFETY: it points at a live, aligned `Slot` of atomics for as long as `self` lives.
        unsafe { slot.as_ref() }
    }

    /// Where `range` of block `block` lies; `None` if any of it is outside the block or the arena.
    fn bytes(&self, block: u32, range: Range<usize>) -> Option<NonNull<u8>> {
        let config = &self.layout.config;
        if block >= config.blocks || range.end > config.block_bytes as usize || range.start > range.end {
            return None;
        }
        let at = block as usize * self.layout.block_stride as usize + range.start;
        // SAFETY: block < blocks and range.end <= block_bytes <= block_stride, so this stays inside the arena.
        Some(unsafe { self.storage.arena().add(at) })
    }

    /// Copies `from` into block `block` at `offset`. The caller owns the block: it is fresh from the free list, or
    /// its record is held by the caller. Returns false, and copies nothing, if it does not fit.
    #[inline]
    pub(crate) fn copy_in(&self, block: u32, offset: usize, from: &[u8]) -> bool {
        let Some(end) = offset.checked_add(from.len()) else { return false };
        let Some(to) = self.bytes(block, offset..end) else { return false };
        self.access.write(block);
        // SAFETY: `to` is valid for `from.len()` bytes (checked by `bytes`), `from` is private memory and so does not
        // overlap. No reference to the destination exists, and honest parties do not touch a block that is not
        // theirs; a dishonest one in another process can only garble the bytes.
        unsafe { copy(NonNull::from(from).cast().as_ptr(), to.as_ptr(), from.len()) };
        true
    }

    /// Copies from block `block` at `offset` into `to`. Returns false, and copies nothing, if that is outside.
    pub(crate) fn copy_out(&self, block: u32, offset: usize, to: &mut [u8]) -> bool {
        let Some(end) = offset.checked_add(to.len()) else { return false };
        let Some(from) = self.bytes(block, offset..end) else { return false };
        self.access.read(block);
        let len = to.len();
        // SAFETY: `from` is valid for `len` bytes (checked by `bytes`). `to` is private memory and so does
        // not overlap. Any byte is a valid u8, and no reference to the source exists.
        unsafe { copy(from.as_ptr(), NonNull::from(to).cast().as_ptr(), len) };
        true
    }

    /// Adds `len` bytes of block `block` from `offset` on to `out`. Returns false, and adds nothing, if that is outside.
    pub(crate) fn append_out(&self, block: u32, offset: usize, len: usize, out: &mut Vec<u8>) -> bool {
        let Some(end) = offset.checked_add(len) else { return false };
        let Some(from) = self.bytes(block, offset..end) else { return false };
        self.access.read(block);
        out.reserve(len);
        let to = out.spare_capacity_mut().as_mut_ptr().cast();
        // SAFETY: `from` is valid for `len` bytes (checked by `bytes`), and `to` for the `len` bytes just
        // reserved. `to` is private memory and so does not overlap; no reference to the source exists.
        unsafe { copy(from.as_ptr(), to, len) };
        let filled = out.len() + len;
        // SAFETY: the bytes up to there have just been written, and any byte is a valid u8.
        unsafe { out.set_len(filled) };
        true
    }

    /// The address of `len` bytes of block `block` at `offset`, for a system call to read.
    pub(crate) fn address(&self, block: u32, offset: usize, len: usize) -> Option<*const u8> {
        let end = offset.checked_add(len)?;
        self.access.read(block);
        self.bytes(block, offset..end).map(|at| at.as_ptr().cast_const())
    }

    /// The address of `range` of block `block`, for its owner to write to.
    pub(crate) fn address_to_write(&self, block: u32, range: Range<usize>) -> Option<NonNull<u8>> {
        self.access.write(block);
        self.bytes(block, range)
    }
}

/// The producer's role of a region, until the producer and its reservations are gone: a successor would
/// take the blocks of a reservation for free ones.
//= spec/ring.md R-CLAIM-7
#[derive(Debug)]
pub(crate) struct ProducerRole {
    pub(crate) region: Region,
    claim: Claim,
}

impl ProducerRole {
    pub(crate) fn claim(region: &Region, force: bool) -> Result<Self, ClaimError> {
        let claim = claim(&region.inner().header().producer_claim.0, force)?;
        #[cfg(not(loom))]
        region.inner().lent.set_producer(true);
        Ok(Self { region: region.clone(), claim })
    }

    pub(crate) fn block_bytes(&self) -> usize {
        self.region.inner().layout.config.block_bytes as usize
    }
}

impl Drop for ProducerRole {
    fn drop(&mut self) {
        #[cfg(not(loom))]
        self.region.inner().lent.set_producer(false);
        release_claim(&self.region.inner().header().producer_claim.0, self.claim);
    }
}

/// Copies `len` bytes, a piece at a time.
///
/// # Safety
///
/// As for [`std::ptr::copy_nonoverlapping`].
#[inline]
unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    for done in (0..len).step_by(PIECE) {
        // SAFETY: it is valid for `len` bytes, as the caller says, and `done` is less.
        let from = unsafe { from.add(done) };
        // SAFETY: so is this.
        let to = unsafe { to.add(done) };
        // SAFETY: as above, and they do not overlap.
        unsafe { from.copy_to_nonoverlapping(to, (len - done).min(PIECE)) };
    }
}

/// The C library copies more than this at once with `rep movsb`. On some processors (Zen 3) that takes thirty
/// times as long where the destination lies up to 31 bytes further into its page than the source. A block of
/// the arena and memory from the heap are such a pair.
const PIECE: usize = 2 << 10;

// SAFETY: `storage` is plain memory without thread affinity; its control words are atomics, and payload bytes are
// accessed only under the state protocol that `copy_in` and `copy_out` name.
unsafe impl Send for Inner {}
// SAFETY: as above; every shared access is atomic or guarded by the state protocol.
unsafe impl Sync for Inner {}

/// Takes a role. With `force`, also from a living process, but never from this one, nor from the kernel.
/// //= spec/ring.md R-CLAIM-2, R-CLAIM-5
pub(crate) fn claim(word: &AtomicU64, force: bool) -> Result<Claim, ClaimError> {
    let own = Claim::current();
    // Bounded: another claimant that wins each time is alive and is reported.
    for _ in 0..8 {
        // Acquire pairs with the Release of `release_claim`: what the former owner wrote is visible.
        let seen = Claim(word.load(Ordering::Acquire));
        if seen == Claim::KERNEL {
            return Err(ClaimError::Kernel);
        }
        let blocked = if force { seen == own } else { seen != Claim::NOBODY && seen.is_alive() };
        if blocked {
            return Err(ClaimError::AlreadyClaimed { pid: seen.pid() });
        }
        if word.compare_exchange(seen.0, own.0, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            return Ok(own);
        }
    }
    Err(ClaimError::AlreadyClaimed { pid: Claim(word.load(Ordering::Relaxed)).pid() })
}

/// Gives a role back, unless somebody has taken it over.
pub(crate) fn release_claim(word: &AtomicU64, own: Claim) {
    // Release pairs with the Acquire in `claim`. A failure means that the role is another's by now.
    let _taken_over = word.compare_exchange(own.0, Claim::NOBODY.0, Ordering::Release, Ordering::Relaxed);
}

fn size_u32<T>() -> u32 {
    size_of::<T>() as u32
}

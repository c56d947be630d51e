//! Where a region's memory comes from: a sealed memory file, somebody else's mapping, the heap, or loom's own objects.

use std::os::fd::OwnedFd;
use std::ptr::NonNull;

use crate::error::CreateError;
use crate::layout::{Header, Layout, RingHeader, Slot};

/// Memory with a header, its ring headers, its slots and its arena, as many of each as the layout says.
pub(crate) struct Storage {
    header: NonNull<Header>,
    rings: NonNull<RingHeader>,
    slots: NonNull<Slot>,
    arena: NonNull<u8>,
    backing: Backing,
}

impl Storage {
    pub(crate) fn header(&self) -> NonNull<Header> {
        self.header
    }

    pub(crate) fn rings(&self) -> NonNull<RingHeader> {
        self.rings
    }

    pub(crate) fn slots(&self) -> NonNull<Slot> {
        self.slots
    }

    pub(crate) fn arena(&self) -> NonNull<u8> {
        self.arena
    }
}

#[cfg(not(loom))]
pub(crate) use native::Backing;
#[cfg(not(loom))]
mod native {
    use std::alloc;
    use std::ffi::c_void;
    use std::fs::File;
    use std::io;
    use std::os::unix::fs::FileExt;

    use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
    use rustix::io::Errno;
    use rustix::mm::{MapFlags, ProtFlags};

    use super::*;
    use crate::error::AttachError;
    use crate::layout::{ABI_VERSION, Config, FEATURE_PASSES_OVER, MAGIC};
    use crate::sync::Ordering;

    pub(crate) enum Backing {
        Mapped {
            fd: OwnedFd,
            base: NonNull<u8>,
            bytes: usize,
        },
        /// Somebody else's: dropping the keeper may undo the mapping.
        Foreign {
            _keeper: Keeper,
        },
        Heap {
            base: NonNull<u8>,
            layout: alloc::Layout,
        },
    }

    pub(crate) type Keeper = Box<dyn Send + Sync>;

    impl Storage {
        /// A fresh memory file of zeros, sealed and mapped.
        pub(crate) fn create(layout: &Layout) -> Result<Self, CreateError> {
            let out_of_memory = CreateError::OutOfMemory { wanted: layout.total };
            // Reserving pages that the machine does not have would wake its out-of-memory killer.
            if available_bytes().is_some_and(|available| layout.total > available) {
                return Err(out_of_memory);
            }
            let error = |errno: Errno| match errno {
                Errno::NOMEM | Errno::NOSPC => CreateError::OutOfMemory { wanted: layout.total },
                other => CreateError::Io(other.into()),
            };
            let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
            let fd = rustix::fs::memfd_create("freshwire", flags).map_err(error)?;
            rustix::fs::ftruncate(&fd, layout.total).map_err(error)?;
            rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, layout.total).map_err(error)?;
            rustix::fs::fcntl_add_seals(&fd, SEALS).map_err(error)?;
            Self::map(fd, layout).map_err(error)
        }

        /// Checks the file's header and maps it. //= spec/ring.md R-ATTACH-1..4
        pub(crate) fn attach(fd: OwnedFd) -> Result<(Layout, Self), AttachError> {
            let io = |errno: Errno| AttachError::Io(errno.into());
            // A descriptor that has no seals is not a memory file at all.
            let seals = rustix::fs::fcntl_get_seals(&fd).map_err(|_| AttachError::NotSealed)?;
            if !seals.contains(SEALS) {
                return Err(AttachError::NotSealed);
            }
            let actual = u64::try_from(rustix::fs::fstat(&fd).map_err(io)?.st_size).unwrap_or(0);
            let expected = size_of::<Header>() as u64;
            if actual < expected {
                return Err(AttachError::WrongSize { actual, expected });
            }
            let file = File::from(fd);
            let config = read_config(&file)?;
            let layout = Layout::new(&config)?;
            if actual != layout.total {
                return Err(AttachError::WrongSize { actual, expected: layout.total });
            }
            let storage = Self::map(OwnedFd::from(file), &layout).map_err(io)?;
            storage.check(&layout)?;
            Ok((storage.with_features(layout), storage))
        }

        /// Checks the header of memory that is mapped already. //= spec/ring.md R-ATTACH-3, R-ATTACH-4
        ///
        /// # Safety
        ///
        /// As for [`Region::from_memory`](crate::Region::from_memory).
        pub(crate) unsafe fn foreign(
            base: NonNull<u8>,
            bytes: usize,
            keeper: Keeper,
        ) -> Result<(Layout, Self), AttachError> {
            if !base.addr().get().is_multiple_of(4096) {
                return Err(AttachError::Misaligned);
            }
            let actual = bytes as u64;
            let expected = size_of::<Header>() as u64;
            if actual < expected {
                return Err(AttachError::WrongSize { actual, expected });
            }
            // SAFETY: the memory is aligned, long enough and live; a header consists of atomics.
            let config = config_of(unsafe { base.cast::<Header>().as_ref() })?;
            let layout = Layout::new(&config)?;
            if actual != layout.total {
                return Err(AttachError::WrongSize { actual, expected: layout.total });
            }
            let storage = Self::over(base, &layout, Backing::Foreign { _keeper: keeper });
            storage.check(&layout)?;
            Ok((storage.with_features(layout), storage))
        }

        /// Zeroed memory of this process.
        pub(crate) fn heap(layout: &Layout) -> Result<Self, CreateError> {
            let error = || CreateError::OutOfMemory { wanted: layout.total };
            let bytes = usize::try_from(layout.total).map_err(|_| error())?;
            let memory = alloc::Layout::from_size_align(bytes, 4096).map_err(|_| error())?;
            // SAFETY: the size is not zero, a header alone is larger.
            let base = NonNull::new(unsafe { alloc::alloc_zeroed(memory) }).ok_or_else(error)?;
            Ok(Self::over(base, layout, Backing::Heap { base, layout: memory }))
        }

        pub(crate) fn fd(&self) -> Option<&OwnedFd> {
            match &self.backing {
                Backing::Mapped { fd, .. } => Some(fd),
                Backing::Foreign { .. } | Backing::Heap { .. } => None,
            }
        }

        fn map(fd: OwnedFd, layout: &Layout) -> Result<Self, Errno> {
            let bytes = usize::try_from(layout.total).map_err(|_| Errno::NOMEM)?;
            let prot = ProtFlags::READ | ProtFlags::WRITE;
            // SAFETY: a fresh mapping at an address of the kernel's choice touches no memory of ours.
            let base =
                unsafe { rustix::mm::mmap(std::ptr::null_mut(), bytes, prot, MapFlags::SHARED, &fd, 0) }?;
            let base = NonNull::new(base.cast::<u8>()).ok_or(Errno::NOMEM)?;
            Ok(Self::over(base, layout, Backing::Mapped { fd, base, bytes }))
        }

        /// Views `base`, which is page-aligned, zeroed or checked, and `layout.total` bytes long.
        fn over(base: NonNull<u8>, layout: &Layout, backing: Backing) -> Self {
            // SAFETY: the offset is inside the memory, by construction of the layout.
            let rings = unsafe { base.add(layout.rings_offset as usize) };
            // SAFETY: as above.
            let slots = unsafe { base.add(layout.slots_offset as usize) };
            // SAFETY: as above.
            let arena = unsafe { base.add(layout.arena_offset as usize) };
            Self { header: base.cast(), rings: rings.cast(), slots: slots.cast(), arena, backing }
        }

        /// Compares what the header says with what follows from its sizes.
        /// The layout with what the maker of the region has said of its senders.
        fn with_features(&self, layout: Layout) -> Layout {
            // SAFETY: the header is part of the mapping, and made of atomics.
            let header = unsafe { self.header.as_ref() };
            let features = header.features.load(Ordering::Relaxed);
            Layout { passes_over: features & FEATURE_PASSES_OVER != 0, ..layout }
        }

        fn check(&self, layout: &Layout) -> Result<(), AttachError> {
            // SAFETY: the header lies at the start of a live mapping and consists of atomics.
            let header = unsafe { self.header.as_ref() };
            // Pairs with the Release store of the magic in `Inner::initialise`.
            if header.magic.load(Ordering::Acquire) != MAGIC {
                return Err(AttachError::WrongMagic);
            }
            let same = header.header_bytes.load(Ordering::Relaxed) as usize == size_of::<Header>()
                && header.ring_header_bytes.load(Ordering::Relaxed) as usize == size_of::<RingHeader>()
                && header.slot_bytes.load(Ordering::Relaxed) as usize == size_of::<Slot>()
                && header.total_bytes.load(Ordering::Relaxed) == layout.total
                && header.rings_offset.load(Ordering::Relaxed) == layout.rings_offset
                && header.slots_offset.load(Ordering::Relaxed) == layout.slots_offset
                && header.arena_offset.load(Ordering::Relaxed) == layout.arena_offset
                && header.block_stride.load(Ordering::Relaxed) == layout.block_stride;
            if same { Ok(()) } else { Err(AttachError::WrongLayout) }
        }
    }

    impl Drop for Storage {
        fn drop(&mut self) {
            match self.backing {
                Backing::Mapped { base, bytes, .. } => {
                    let base = base.as_ptr().cast::<c_void>();
                    // SAFETY: it was mapped with this size, and every pointer into it has ended with `self`.
                    let unmapped = unsafe { rustix::mm::munmap(base, bytes) };
                    debug_assert!(unmapped.is_ok(), "a mapping of our own can be undone");
                }
                Backing::Foreign { .. } => {}
                // SAFETY: it was allocated with this layout, and every pointer into it has ended with `self`.
                Backing::Heap { base, layout } => unsafe { alloc::dealloc(base.as_ptr(), layout) },
            }
        }
    }

    /// The four sizes, read with the file interface before anything is mapped.
    fn read_config(file: &File) -> Result<Config, AttachError> {
        let mut bytes = [0; 40];
        file.read_exact_at(&mut bytes, 0).map_err(AttachError::Io)?;
        let word = |at: usize| {
            let mut word = [0; 4];
            word.copy_from_slice(&bytes[at..at + 4]);
            u32::from_ne_bytes(word)
        };
        if bytes[..8] != MAGIC.to_ne_bytes() {
            return Err(AttachError::WrongMagic);
        }
        if word(8) != ABI_VERSION {
            return Err(AttachError::WrongVersion(word(8)));
        }
        Ok(Config { rings: word(24), slots: word(28), block_bytes: word(32), blocks: word(36) })
    }

    /// The four sizes of mapped memory, each read once.
    fn config_of(header: &Header) -> Result<Config, AttachError> {
        // Pairs with the Release store of the magic by whoever made the region.
        if header.magic.load(Ordering::Acquire) != MAGIC {
            return Err(AttachError::WrongMagic);
        }
        let version = header.version.load(Ordering::Relaxed);
        if version != ABI_VERSION {
            return Err(AttachError::WrongVersion(version));
        }
        Ok(Config {
            rings: header.rings.load(Ordering::Relaxed),
            slots: header.slots.load(Ordering::Relaxed),
            block_bytes: header.block_bytes.load(Ordering::Relaxed),
            blocks: header.blocks.load(Ordering::Relaxed),
        })
    }

    /// What the machine can still give without swapping; `None` if it does not say.
    fn available_bytes() -> Option<u64> {
        let text = std::fs::read_to_string("/proc/meminfo").ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
    }

    impl From<io::Error> for AttachError {
        fn from(error: io::Error) -> Self {
            Self::Io(error)
        }
    }

    const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);
}

#[cfg(loom)]
pub(crate) use model::Backing;
#[cfg(loom)]
mod model {
    use super::*;

    pub(crate) struct Backing {
        _header: Box<Header>,
        _rings: Box<[RingHeader]>,
        _slots: Box<[Slot]>,
        _arena: Box<[u8]>,
    }

    impl Backing {
        fn fd(&self) -> Option<&OwnedFd> {
            None
        }
    }

    impl Storage {
        pub(crate) fn heap(layout: &Layout) -> Result<Self, CreateError> {
            let slots = layout.config.rings * layout.config.slots;
            let mut header = Box::new(Header::zeroed());
            let mut rings: Box<[_]> = (0..layout.config.rings).map(|_| RingHeader::zeroed()).collect();
            let mut slots: Box<[_]> = (0..slots).map(|_| Slot::zeroed()).collect();
            let mut arena = vec![0; (layout.config.blocks * layout.block_stride) as usize].into_boxed_slice();
            Ok(Self {
                header: NonNull::from(&mut *header),
                rings: NonNull::from(&mut *rings).cast(),
                slots: NonNull::from(&mut *slots).cast(),
                arena: NonNull::from(&mut *arena).cast(),
                backing: Backing { _header: header, _rings: rings, _slots: slots, _arena: arena },
            })
        }

        pub(crate) fn fd(&self) -> Option<&OwnedFd> {
            self.backing.fd()
        }
    }
}

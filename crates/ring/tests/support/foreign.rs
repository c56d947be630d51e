//! A second mapping of a region's memory, as a program has one of a ring that the kernel made.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::ptr::NonNull;

use freshwire_ring::{AttachError, Region};
use rustix::mm::{MapFlags, ProtFlags};

/// Undoes the mapping.
struct Keeper {
    base: usize,
    bytes: usize,
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // SAFETY: `map` made this mapping, and its only user has ended.
        let unmapped = unsafe { rustix::mm::munmap(self.base as *mut _, self.bytes) };
        assert_eq!(unmapped, Ok(()));
    }
}

/// Maps `bytes` bytes of a memory file and views them.
pub(crate) fn map(file: impl AsFd, bytes: usize) -> Result<Region, AttachError> {
    let prot = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a fresh mapping at an address of the kernel's choice touches no memory of ours.
    let base =
        unsafe { rustix::mm::mmap(std::ptr::null_mut(), bytes, prot, MapFlags::SHARED, file.as_fd(), 0) };
    let base = base.map_err(|errno| AttachError::Io(errno.into()))?;
    let keeper = Keeper { base: base as usize, bytes };
    let base = NonNull::new(base.cast()).ok_or_else(|| AttachError::Io(io::ErrorKind::InvalidData.into()))?;
    // SAFETY: the file has these bytes and nobody shrinks it, and the keeper unmaps them only at the end.
    unsafe { Region::from_memory(base, bytes, keeper) }
}

/// The same memory once more, without the right of its maker.
pub(crate) fn view(region: &Region) -> Result<Region, AttachError> {
    let file = region.as_fd().ok_or_else(|| AttachError::Io(io::ErrorKind::Unsupported.into()))?;
    map(File::from(file.try_clone_to_owned()?), region.total_bytes() as usize)
}

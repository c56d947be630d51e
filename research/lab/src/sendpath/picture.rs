//! The picture to send: the same bytes in memory, in a file, and as the file's mapping.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// The bytes of one picture, never changed: in the program's memory, and in a file in memory that is also mapped.
#[derive(Debug)]
pub(crate) struct Picture {
    bytes: Vec<u8>,
    file: OwnedFd,
    mapped: NonNull<u8>,
}

// SAFETY: the mapping belongs to the picture alone, and is only read.
unsafe impl Send for Picture {}

// SAFETY: as above; `&Picture` gives out shared slices of bytes that never change.
unsafe impl Sync for Picture {}

impl Picture {
    /// Puts the bytes into a file in memory and maps it.
    ///
    /// # Errors
    ///
    /// If `bytes` is empty ([`io::ErrorKind::InvalidInput`]), or the system has no memory.
    pub(crate) fn new(bytes: &[u8]) -> io::Result<Self> {
        if bytes.is_empty() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a picture without bytes"));
        }
        let file = memfd_create("freshwire-picture", MemfdFlags::CLOEXEC)?;
        let mut written = 0;
        while written < bytes.len() {
            written += rustix::io::write(&file, &bytes[written..])?;
        }
        // SAFETY: a new mapping at an address of the kernel's choice, for reading only.
        let address =
            unsafe { mmap(std::ptr::null_mut(), bytes.len(), ProtFlags::READ, MapFlags::SHARED, &file, 0)? };
        let mapped =
            NonNull::new(address.cast()).ok_or_else(|| io::Error::other("mmap returned no address"))?;
        Ok(Self { bytes: bytes.to_vec(), file, mapped })
    }

    /// Its size in bytes, at least 1.
    #[allow(clippy::len_without_is_empty, reason = "never empty")]
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The bytes in the program's memory.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The bytes of the mapped file.
    pub(crate) fn mapped(&self) -> &[u8] {
        // SAFETY: the mapping is as long as the picture and lives as long as `self`; nobody else has the file, and nothing writes to it
        // after `new`.
        unsafe { std::slice::from_raw_parts(self.mapped.as_ptr(), self.bytes.len()) }
    }

    /// The file in memory, of [`Picture::len`] bytes.
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for Picture {
    fn drop(&mut self) {
        // SAFETY: `new` mapped exactly this range, and no reference to it outlives `self`.
        let _ = unsafe { munmap(self.mapped.as_ptr().cast(), self.bytes.len()) };
    }
}

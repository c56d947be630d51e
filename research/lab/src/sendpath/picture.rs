//! The picture to send: the same bytes in memory, in a file, and as the file's mapping.

use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::ptr::NonNull;

use rustix::fs::{Advice, MemfdFlags, Mode, OFlags, fadvise, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// The place of the file and the order of its pages in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Pages {
    /// A file in memory.
    #[default]
    Memory,
    /// A file on disk that was read in order into the page cache.
    InOrder,
    /// A file on disk whose pages came into the page cache one by one, in another order, between those of another file.
    Scattered,
}

impl Pages {
    /// Its name in reports and on the command line.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::InOrder => "in order",
            Self::Scattered => "scattered",
        }
    }
}

/// Bytes of a page's entry in `/proc/PID/pagemap`, and the part of it that is the frame's number (`Documentation/admin-guide/mm/pagemap.rst`).
const PAGEMAP_ENTRY: usize = 8;
const FRAME_NUMBER: u64 = (1 << 55) - 1;

/// The bytes of one picture, never changed: in the program's memory, and in a file that is also mapped.
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
        Self::with_pages(bytes, Pages::Memory)
    }

    /// The same, with the file of that kind; files on disk are nameless ones in the folder for temporary files.
    ///
    /// # Errors
    ///
    /// As [`Picture::new`], or if the folder's file system has no nameless files (`O_TMPFILE`).
    pub(crate) fn with_pages(bytes: &[u8], pages: Pages) -> io::Result<Self> {
        if bytes.is_empty() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a picture without bytes"));
        }
        let file = match pages {
            Pages::Memory => File::from(memfd_create("freshwire-picture", MemfdFlags::CLOEXEC)?),
            Pages::InOrder | Pages::Scattered => nameless()?,
        };
        match pages {
            Pages::Memory => file.write_all_at(bytes, 0)?,
            Pages::InOrder => read_in_order(&file, bytes)?,
            Pages::Scattered => scatter(&file, bytes)?,
        }
        let file = OwnedFd::from(file);
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

    /// The part of the file's pages that lie in memory right behind the page before, from 0 to 1. `None`: there is one page, or only root
    /// may look.
    pub(crate) fn adjacent(&self) -> Option<f64> {
        let size = rustix::param::page_size();
        let pages = self.bytes.len().div_ceil(size);
        // A page that was never touched is not in this process's map.
        let touched: u64 = self.mapped().iter().step_by(size).map(|byte| u64::from(*byte)).sum();
        std::hint::black_box(touched);
        let mut entries = vec![0; pages * PAGEMAP_ENTRY];
        let place = self.mapped.as_ptr() as usize / size * PAGEMAP_ENTRY;
        File::open("/proc/self/pagemap").ok()?.read_exact_at(&mut entries, place as u64).ok()?;
        let frames: Vec<u64> = entries
            .chunks_exact(PAGEMAP_ENTRY)
            .map(|entry| {
                entry.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte)) & FRAME_NUMBER
            })
            .collect();
        if frames.len() < 2 || frames.contains(&0) {
            return None;
        }
        let adjacent = frames.windows(2).filter(|pair| pair[0] + 1 == pair[1]).count();
        Some(adjacent as f64 / (frames.len() - 1) as f64)
    }

    /// The file, of [`Picture::len`] bytes.
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

fn nameless() -> io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::open(std::env::temp_dir(), flags, Mode::RUSR | Mode::WUSR)?))
}

/// Writes the bytes, has the kernel forget its pages, and reads them from the disk in one go.
fn read_in_order(mut file: &File, bytes: &[u8]) -> io::Result<()> {
    file.write_all_at(bytes, 0)?;
    file.sync_data()?;
    fadvise(file, 0, None, Advice::DontNeed)?;
    fadvise(file, 0, None, Advice::Sequential)?;
    file.rewind()?;
    file.read_exact(&mut vec![0; bytes.len()])
}

/// Writes page by page, far from the one before, and a page of another file after each.
fn scatter(file: &File, bytes: &[u8]) -> io::Result<()> {
    let size = rustix::param::page_size();
    let pages: Vec<&[u8]> = bytes.chunks(size).collect();
    let between = nameless()?;
    // A step without a common divisor comes to each page once.
    let step = (pages.len() / 2 + 1..).find(|step| divisor(*step, pages.len()) == 1).unwrap_or(1);
    for turn in 0..pages.len() {
        let place = turn * step % pages.len();
        file.write_all_at(pages[place], (place * size) as u64)?;
        between.write_all_at(pages[place], (turn * size) as u64)?;
    }
    Ok(())
}

/// The greatest common divisor.
fn divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { divisor(b, a % b) }
}

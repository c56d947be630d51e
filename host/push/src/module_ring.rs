//! Datagrams from the ring of the kernel module `pkt_push` (`host/kernel/pkt_push`): what a receiver is compared with.
//!
//! Needs the module. Its header, `include/uapi/linux/pkt_push.h`, says how the memory is laid out and how a record is taken.

use std::fs::{File, OpenOptions};
use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd as _;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

const DEVICE: &str = "/dev/pkt_push";
/// `PKT_PUSH_ATTACH`: `_IOWR(0xb8, 1, struct pkt_push_attach)`.
const ATTACH: libc::c_ulong = 0xc020_b801;
const MIN_BYTES: usize = 4096;
const MAX_BYTES: usize = 1 << 30;

/// `struct pkt_push_region`: what the kernel wrote last, and what was taken last.
const TAIL: usize = 64;
const HEAD: usize = 128;
const DATA: usize = 4096;

/// `struct pkt_push_record`: at multiples of 64 bytes, the payload behind it.
const RECORD: usize = 64;
const FLAGS: usize = 4;
/// Nothing is here, and the record is at the start of the ring.
const PAD: u16 = 1;

#[repr(C)]
struct Attach {
    socket: i32,
    flags: u32,
    data_bytes: u64,
    records: u32,
    reserved: u32,
    total_bytes: u64,
}

/// A UDP socket whose buffer the module empties into memory of this process.
#[derive(Debug)]
pub struct ModuleRing {
    socket: UdpSocket,
    _device: File,
    region: NonNull<u8>,
    total_bytes: usize,
    data_bytes: usize,
}

impl ModuleRing {
    /// Attaches a ring to a socket: of the next power of two in bytes, 4 KiB to 1 GiB.
    ///
    /// # Errors
    ///
    /// A system call's: [`NotFound`](io::ErrorKind::NotFound) without the module, `ENOBUFS` beyond `RLIMIT_MEMLOCK`.
    pub fn open(socket: UdpSocket, bytes: usize) -> io::Result<Self> {
        let device = OpenOptions::new().read(true).write(true).open(DEVICE).map_err(|error| {
            let kind = error.kind();
            io::Error::new(kind, format!("{DEVICE}: {error}; load the module of host/kernel/pkt_push"))
        })?;
        let data_bytes = bytes.clamp(MIN_BYTES, MAX_BYTES).next_power_of_two();
        let mut attach = Attach {
            socket: socket.as_raw_fd(),
            flags: 0,
            data_bytes: data_bytes as u64,
            records: 0,
            reserved: 0,
            total_bytes: 0,
        };
        // SAFETY: the request takes this structure, which lives until the call is back.
        if unsafe { libc::ioctl(device.as_raw_fd(), ATTACH, &raw mut attach) } < 0 {
            return Err(io::Error::last_os_error());
        }
        let total_bytes = usize::try_from(attach.total_bytes).unwrap_or(0);
        if total_bytes < DATA + data_bytes {
            return Err(io::Error::other(format!("{DEVICE} maps {total_bytes} bytes for {data_bytes}")));
        }
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping where the kernel finds room.
        let region = unsafe {
            let anywhere = std::ptr::null_mut();
            libc::mmap(anywhere, total_bytes, protection, libc::MAP_SHARED, device.as_raw_fd(), 0)
        };
        if region == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let region = NonNull::new(region.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { socket, _device: device, region, total_bytes, data_bytes })
    }

    /// Takes the oldest datagram: from the ring without a system call, else with the socket's `recv`, which waits.
    ///
    /// # Errors
    ///
    /// The socket's; `InvalidData` if the ring holds no record where one has to be.
    pub fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let head = self.word(HEAD).load(Ordering::Acquire);
            if head == self.word(TAIL).load(Ordering::Acquire) {
                return self.socket.recv(buffer);
            }
            let copied = self.copy(head, buffer);
            let end = copied.map_or(head, |(_, end)| end);
            // The copy is worth something only if nobody has taken the record meanwhile.
            if self.word(HEAD).compare_exchange(head, end, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                return copied.map(|(len, _)| len).ok_or_else(|| io::ErrorKind::InvalidData.into());
            }
        }
    }

    /// Copies the record at a position. Returns its length in the buffer, and the position behind it.
    fn copy(&self, head: u64, buffer: &mut [u8]) -> Option<(usize, u64)> {
        let (mut head, mut at) = (head, (head % self.data_bytes as u64) as usize);
        if !at.is_multiple_of(RECORD) {
            return None;
        }
        let mut record = self.record(at);
        // SAFETY: a record's header is inside the ring.
        let flags = unsafe { record.add(FLAGS) };
        // SAFETY: as above, and aligned, because records are.
        if unsafe { flags.cast::<u16>().read_volatile() } & PAD != 0 {
            head += (self.data_bytes - at) as u64;
            at = 0;
            record = self.record(at);
        }
        // SAFETY: as above.
        let len = unsafe { record.cast::<u32>().read_volatile() } as usize;
        let span = (RECORD + len).next_multiple_of(RECORD);
        if span > self.data_bytes - at {
            return None;
        }
        let copied = len.min(buffer.len());
        // SAFETY: the payload ends inside the ring, as was checked.
        let payload = unsafe { record.add(RECORD) };
        // SAFETY: as above; the buffer is as long, and the program's alone.
        unsafe { std::ptr::copy_nonoverlapping(payload.as_ptr(), buffer.as_mut_ptr(), copied) };
        Some((copied, head + span as u64))
    }

    /// `at` is below `data_bytes`, a multiple of [`RECORD`].
    fn record(&self, at: usize) -> NonNull<u8> {
        // SAFETY: the mapping has `DATA + data_bytes` bytes at least.
        unsafe { self.region.add(DATA + at) }
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: inside the mapping's first page.
        let word = unsafe { self.region.add(offset) };
        // SAFETY: eight aligned bytes of the mapping, which kernel and program use as an atomic value.
        unsafe { AtomicU64::from_ptr(word.cast().as_ptr()) }
    }
}

impl Drop for ModuleRing {
    fn drop(&mut self) {
        // SAFETY: the mapping of `open`, which nothing points into any more.
        unsafe { libc::munmap(self.region.as_ptr().cast(), self.total_bytes) };
    }
}

//! The ring inside Linux's TCP, provided by the module `tcp_ldc`. Records lie in memory that a program and the kernel
//! share; the kernel takes the next one when TCP can send it.
//!
//! ```text
//!  attach (TCP_ULP "ldc") ─► LDC_RING: sizes ─► map ─► records go without system calls; notify when the sender sleeps
//! ```
//!
//! What lies in the memory is `spec/ring.md`'s, and not this crate's. A [`Poller`](crate::poll::Poller) reports room to write
//! when [`RingSocket::set_free_slots_wanted`] slots are free.

mod error;
mod uapi;

use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::time::Duration;

pub use error::{KernelRingError, Refused};
pub use uapi::Stats;

use freshwire_record::Timestamp;

use crate::tcp::TcpSocket;

/// Acknowledgements that one call asks for: they lie on the stack.
const ACKS_AT_ONCE: usize = 256;

/// The sizes of a ring. The limits are those of the ring ABI (`spec/ring.md`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Slots, a power of two.
    pub slots: u32,
    /// Payload bytes of a slot; a larger record takes several slots.
    pub block_bytes: u32,
    /// Payload blocks.
    pub blocks: u32,
    /// Records whose acknowledgement the kernel keeps for [`RingSocket::take_acks`] where their slot has been used again, and that may
    /// wait for it; 40 bytes of the kernel's memory each. At most [`MAX_KEEP_ACKS`]; 0 keeps none.
    pub keep_acks: u32,
}

/// How many segments may be committed to TCP before it can send them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Horizon {
    /// None: a record is taken when its bytes go on the wire at once.
    Nothing,
    /// One, which waits for the next acknowledgement.
    #[default]
    OneSegment,
}

/// The longest time between two looks at an empty ring ([`RingSocket::set_watch`]).
pub const MAX_WATCH: Duration = Duration::from_millis(uapi::LDC_MAX_WATCH as u64);

/// Most records whose acknowledgement the kernel keeps ([`Geometry::keep_acks`]).
pub const MAX_KEEP_ACKS: u32 = uapi::LDC_MAX_KEEP_ACKS;

/// A TCP socket that sends from a ring in the kernel, and from nothing else: writing to it fails.
///
/// Dropping the last descriptor closes the connection, also while the ring is still mapped: the kernel finishes the
/// record in progress and drops the others.
#[derive(Debug)]
pub struct RingSocket(TcpSocket);

/// The ring's memory in this process. Dropping it undoes the mapping.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the value is an address and a length, and owns the mapping there, which no thread has to itself.
unsafe impl Send for Mapping {}
// SAFETY: as above; nothing is read or written through it here.
unsafe impl Sync for Mapping {}

/// Whether the module is loaded. Attaching loads it by name if the process may load modules (`CAP_NET_ADMIN`).
pub fn is_loaded() -> bool {
    let names = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_ulp").unwrap_or_default();
    names.split_whitespace().any(|name| name.as_bytes() == uapi::TCP_ULP_LDC)
}

impl RingSocket {
    /// Gives a connected socket a ring of this size. On failure the socket comes back as it was: it still sends what is
    /// written to it. (If only the memory was refused it stays marked as one that may have a ring, which changes nothing.)
    ///
    /// # Errors
    ///
    /// If the kernel has no module for it, or refuses the socket, the geometry or the memory. The socket is returned.
    pub fn attach(socket: TcpSocket, geometry: &Geometry) -> Result<Self, Refused> {
        match attach(socket.as_fd(), geometry) {
            Ok(()) => Ok(Self(socket)),
            Err(error) => Err(Refused { socket, error }),
        }
    }

    /// Takes a socket that has its ring already, for instance one that another process passed on.
    ///
    /// # Errors
    ///
    /// If the socket has no ring. It is returned.
    pub fn join(socket: TcpSocket) -> Result<Self, Refused> {
        match read_geometry(socket.as_fd()) {
            Ok(_) => Ok(Self(socket)),
            Err(error) => Err(Refused { socket, error: KernelRingError::NoRing(error) }),
        }
    }

    /// The socket, for what TCP says of the connection, and for ending it. Writing to it fails.
    pub fn tcp(&self) -> &TcpSocket {
        &self.0
    }

    /// The ring's sizes.
    ///
    /// # Errors
    ///
    /// If the kernel refuses the query.
    pub fn geometry(&self) -> io::Result<Geometry> {
        let raw = read_geometry(self.0.as_fd())?;
        let mut keep_acks = 0_u32;
        // SAFETY: every bit pattern is a valid number.
        unsafe { get(self.0.as_fd(), uapi::LDC_KEEP_ACKS, &mut keep_acks) }?;
        Ok(Geometry { slots: raw.slots, block_bytes: raw.block_bytes, blocks: raw.blocks, keep_acks })
    }

    /// Maps the ring's memory. A child process does not inherit the mapping.
    ///
    /// # Errors
    ///
    /// If the kernel refuses the mapping, or describes an invalid ring.
    pub fn map(&self) -> Result<Mapping, KernelRingError> {
        let raw = read_geometry(self.0.as_fd()).map_err(KernelRingError::NoRing)?;
        let bytes = usize::try_from(raw.total_bytes).map_err(|_| KernelRingError::OutOfMemory)?;
        let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        let socket = self.0.as_fd().as_raw_fd();
        // SAFETY: a fresh mapping at an address of the kernel's choice touches no memory of ours.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), bytes, prot, flags, socket, 0) };
        if base == libc::MAP_FAILED {
            return Err(KernelRingError::of_ring(io::Error::last_os_error()));
        }
        let base = NonNull::new(base.cast()).ok_or(KernelRingError::OutOfMemory)?;
        Ok(Mapping { base, bytes })
    }

    /// Wakes a sleeping sender; to be called by whoever found that it sleeps and has to be notified. One system call.
    /// Fails with `BrokenPipe` when the sending direction has ended.
    ///
    /// # Errors
    ///
    /// `BrokenPipe` if the sending direction has ended.
    pub fn notify(&self) -> io::Result<()> {
        // SAFETY: this request has no argument.
        check(unsafe { libc::ioctl(self.0.as_fd().as_raw_fd(), uapi::LDC_IOC_NOTIFY) })
    }

    /// Chooses how much may be committed and not on the wire. Default: [`Horizon::OneSegment`].
    ///
    /// # Errors
    ///
    /// If the kernel refuses the option.
    pub fn set_horizon(&self, horizon: Horizon) -> io::Result<()> {
        self.set_word(uapi::LDC_HORIZON, u32::from(horizon == Horizon::OneSegment))
    }

    /// Lets segments refer to the ring's memory instead of copying from it; a record is then finished when TCP lets go of
    /// its last page. Default: copying.
    ///
    /// # Errors
    ///
    /// If the kernel refuses the option.
    pub fn set_zero_copy(&self, zero_copy: bool) -> io::Result<()> {
        self.set_word(uapi::LDC_ZEROCOPY, u32::from(zero_copy))
    }

    /// Has the kernel look at an empty ring again after this time instead of sleeping, until nothing has come for a
    /// second. A steady stream then needs one notification, at its beginning, and a record waits for the next look.
    /// `None`: it sleeps at once. Whole milliseconds, rounded up; at most [`MAX_WATCH`], else `InvalidInput`.
    /// Default: `None`.
    ///
    /// # Errors
    ///
    /// `InvalidInput` above [`MAX_WATCH`].
    pub fn set_watch(&self, every: Option<Duration>) -> io::Result<()> {
        let millis = every.unwrap_or_default().as_nanos().div_ceil(1_000_000);
        let Some(word) = u32::try_from(millis).ok().filter(|&millis| millis <= uapi::LDC_MAX_WATCH) else {
            let text = format!("the kernel looks at an empty ring every {MAX_WATCH:?} at the least");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        };
        self.set_word(uapi::LDC_WATCH, word)
    }

    /// How many slots have to be free, each with a block, for the socket to count as writable: 1 to the number of slots.
    /// Default: 1.
    ///
    /// # Errors
    ///
    /// If `slots` is out of range.
    pub fn set_free_slots_wanted(&self, slots: u32) -> io::Result<()> {
        self.set_word(uapi::LDC_LOWAT, slots)
    }

    /// What the kernel has done with the ring's records.
    ///
    /// # Errors
    ///
    /// If the kernel refuses the query.
    pub fn stats(&self) -> io::Result<Stats> {
        let mut stats = Stats::default();
        // An older module knows fewer counters; the rest stays zero.
        // SAFETY: `Stats` is a C struct of integers for which every bit pattern is valid.
        unsafe { get(self.0.as_fd(), uapi::LDC_STATS, &mut stats) }?;
        Ok(stats)
    }

    /// Takes the acknowledgements of records whose slots had been used again, oldest first, each once: the record's index and the time.
    /// The kernel keeps [`Geometry::keep_acks`] of them.
    ///
    /// # Errors
    ///
    /// If the kernel refuses the query.
    pub fn take_acks(&self, mut each: impl FnMut(u64, Timestamp)) -> io::Result<()> {
        // Bounded: what comes meanwhile is taken the next time.
        for _ in 0..=MAX_KEEP_ACKS as usize / ACKS_AT_ONCE {
            let mut acks = [uapi::Ack::default(); ACKS_AT_ONCE];
            // SAFETY: `Ack` is a C struct of integers for which every bit pattern is valid.
            let bytes = unsafe { get(self.0.as_fd(), uapi::LDC_ACKS, &mut acks) }?;
            let taken = &acks[..bytes / size_of::<uapi::Ack>()];
            taken.iter().for_each(|ack| each(ack.index, Timestamp::from_nanos(ack.acked_at)));
            if taken.len() < acks.len() {
                return Ok(());
            }
        }
        Ok(())
    }

    fn set_word(&self, option: c_int, word: u32) -> io::Result<()> {
        set(self.0.as_fd(), uapi::SOL_LDC, option, &word)
    }
}

impl AsFd for RingSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Mapping {
    /// The first byte; at a multiple of 4096.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// How many bytes are mapped.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this size, and who uses the memory keeps this value.
        let unmapped = unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
        debug_assert_eq!(unmapped, 0, "a mapping of our own can be undone");
    }
}

fn attach(socket: BorrowedFd<'_>, geometry: &Geometry) -> Result<(), KernelRingError> {
    let name = uapi::TCP_ULP_LDC;
    // SAFETY: the pointer and length describe `name`, which outlives the call.
    let attached = check(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_ULP,
            name.as_ptr().cast(),
            name.len() as libc::socklen_t,
        )
    });
    attached.map_err(KernelRingError::of_attaching)?;
    let Geometry { slots, block_bytes, blocks, keep_acks } = *geometry;
    if keep_acks > 0 {
        set(socket, uapi::SOL_LDC, uapi::LDC_KEEP_ACKS, &keep_acks).map_err(KernelRingError::of_ring)?;
    }
    let raw = uapi::Geometry { slots, block_bytes, blocks, flags: 0, total_bytes: 0 };
    set(socket, uapi::SOL_LDC, uapi::LDC_RING, &raw).map_err(KernelRingError::of_ring)
}

fn read_geometry(socket: BorrowedFd<'_>) -> io::Result<uapi::Geometry> {
    let mut raw = uapi::Geometry::default();
    // SAFETY: `Geometry` is a C struct of integers for which every bit pattern is valid.
    unsafe { get(socket, uapi::LDC_RING, &mut raw) }?;
    Ok(raw)
}

fn set<T>(socket: BorrowedFd<'_>, level: c_int, option: c_int, value: &T) -> io::Result<()> {
    let value: *const T = value;
    let bytes = size_of::<T>() as libc::socklen_t;
    // SAFETY: the pointer and length describe `value`, which outlives the call.
    check(unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, value.cast::<c_void>(), bytes) })
}

/// Reads an option of the ring into `value`, as much of it as the kernel has; returns how many bytes that is.
///
/// # Safety
///
/// Every bit pattern is a valid `T`.
unsafe fn get<T>(socket: BorrowedFd<'_>, option: c_int, value: &mut T) -> io::Result<usize> {
    let mut bytes = size_of::<T>() as libc::socklen_t;
    let value: *mut T = value;
    // SAFETY: the kernel writes at most `bytes` bytes to `value`, where the caller allows any.
    check(unsafe {
        libc::getsockopt(socket.as_raw_fd(), uapi::SOL_LDC, option, value.cast::<c_void>(), &raw mut bytes)
    })?;
    Ok(bytes as usize)
}

fn check(result: c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests;

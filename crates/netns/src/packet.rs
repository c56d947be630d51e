//! An `AF_PACKET` socket with a memory-mapped receive ring (`TPACKET_V2`).
//!
//! The ring gives each packet's arrival time without a system call, and its size is not limited by
//! `net.core.rmem_max`, which an unprivileged process cannot raise.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::net::{SendFlags, send};

/// Room for the ring's own header and a full-size Ethernet frame.
const FRAME_BYTES: usize = 2048;
/// Frames of a ring: 8 MiB. Chosen, not measured.
const FRAMES: usize = 4096;
/// Bytes of a block of the ring. Chosen, not measured.
const BLOCK_BYTES: usize = 64 * 1024;
const RING_BYTES: usize = FRAME_BYTES * FRAMES;

/// A received frame.
pub(super) struct Received<'a> {
    /// When the kernel took it in, in nanoseconds of `CLOCK_REALTIME`.
    pub(super) real_ns: u64,
    /// The frame with its Ethernet header.
    pub(super) frame: &'a [u8],
    /// It was longer than the ring's frames and is cut.
    pub(super) truncated: bool,
}

/// Bound to one interface of the namespace in which it was opened.
pub(super) struct PacketSocket {
    socket: OwnedFd,
    ring: NonNull<u8>,
    next: usize,
}

// SAFETY: the mapping is owned by this value alone and is not tied to a thread.
unsafe impl Send for PacketSocket {}

impl PacketSocket {
    pub(super) fn open(interface: u32) -> io::Result<Self> {
        // Protocol 0 receives nothing until the ring is there and `bind` names the protocol.
        // SAFETY: no pointers.
        let socket = check(unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) })?;
        // SAFETY: the descriptor was just created and belongs to nobody else.
        let socket = unsafe { OwnedFd::from_raw_fd(socket) };
        set_option(&socket, libc::PACKET_VERSION, &(libc::tpacket_versions::TPACKET_V2 as libc::c_int))?;
        set_option(&socket, libc::PACKET_IGNORE_OUTGOING, &1)?;
        set_option(&socket, libc::PACKET_QDISC_BYPASS, &1)?;
        let request = libc::tpacket_req {
            tp_block_size: BLOCK_BYTES as u32,
            tp_block_nr: (RING_BYTES / BLOCK_BYTES) as u32,
            tp_frame_size: FRAME_BYTES as u32,
            tp_frame_nr: FRAMES as u32,
        };
        set_option(&socket, libc::PACKET_RX_RING, &request)?;
        let ring = map_ring(socket.as_fd())?;
        let opened = Self { socket, ring, next: 0 };
        opened.bind(interface)?;
        Ok(opened)
    }

    /// The next received frame, which is given back to the kernel when `f` returns; `None` if there is none.
    pub(super) fn receive<T>(&mut self, f: impl FnOnce(Received<'_>) -> T) -> Option<T> {
        // SAFETY: `next` is below FRAMES, so this stays inside the mapping.
        let frame = unsafe { self.ring.add(self.next * FRAME_BYTES) };
        let header = frame.cast::<libc::tpacket2_hdr>();
        // SAFETY: the status is the first field of the header, aligned, and only accessed atomically by us.
        let status = unsafe { AtomicU32::from_ptr(frame.cast::<u32>().as_ptr()) };
        // Pairs with the kernel's write barrier before it sets the status.
        if status.load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
            return None;
        }
        // SAFETY: until the status is given back the kernel leaves the frame alone.
        let header = unsafe { header.read() };
        let start = usize::from(header.tp_mac).min(FRAME_BYTES);
        let length = (header.tp_snaplen as usize).min(FRAME_BYTES - start);
        // SAFETY: start + length is inside this frame, see above; the kernel has initialised it.
        let data = unsafe { frame.add(start) };
        let received = Received {
            real_ns: u64::from(header.tp_sec) * 1_000_000_000 + u64::from(header.tp_nsec),
            // SAFETY: as above, and the kernel does not write to it before the status changes.
            frame: unsafe { std::slice::from_raw_parts(data.as_ptr(), length) },
            truncated: header.tp_len as usize > length,
        };
        let result = f(received);
        // Pairs with the kernel's read of the status before it fills the frame again.
        status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.next = (self.next + 1) % FRAMES;
        Some(result)
    }

    /// Puts a frame on the interface.
    pub(super) fn send(&self, frame: &[u8]) -> io::Result<()> {
        send(&self.socket, frame, SendFlags::DONTWAIT)?;
        Ok(())
    }

    /// Frames that found the ring full since the last call.
    pub(super) fn take_drops(&self) -> io::Result<u64> {
        let mut stats = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
        let mut length = size_of::<libc::tpacket_stats>() as libc::socklen_t;
        // SAFETY: `stats` is as long as `length` says.
        check(unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut stats).cast(),
                &raw mut length,
            )
        })?;
        Ok(u64::from(stats.tp_drops))
    }

    fn bind(&self, interface: u32) -> io::Result<()> {
        // SAFETY: `sockaddr_ll` is plain old data, for which all-zero is a value.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        address.sll_ifindex = interface as i32;
        let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: `address` is as long as `length` says.
        check(unsafe { libc::bind(self.socket.as_raw_fd(), (&raw const address).cast(), length) })?;
        Ok(())
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for PacketSocket {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, of this length, and no reference into it outlives `receive`.
        unsafe { libc::munmap(self.ring.as_ptr().cast(), RING_BYTES) };
    }
}

fn map_ring(socket: BorrowedFd<'_>) -> io::Result<NonNull<u8>> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new shared mapping of the ring at an address of the kernel's choice.
    let ring = unsafe {
        libc::mmap(std::ptr::null_mut(), RING_BYTES, protection, libc::MAP_SHARED, socket.as_raw_fd(), 0)
    };
    if ring == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(ring.cast()).ok_or_else(|| io::Error::other("the ring was mapped at address zero"))
}

/// `T` is what the option is declared to take.
fn set_option<T>(socket: &OwnedFd, option: libc::c_int, value: &T) -> io::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    let value = std::ptr::from_ref(value).cast();
    // SAFETY: `value` is readable for `length` bytes.
    check(unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_PACKET, option, value, length) })?;
    Ok(())
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

//! Datagrams from a packet socket's ring in shared memory (`TPACKET_V3`): what a receiver is compared with.
//!
//! Needs `CAP_NET_RAW`, sees Ethernet frames, and has no say in what the UDP socket of that port does.

use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Bytes of a block of the ring. Chosen, not measured.
const BLOCK_BYTES: usize = 1 << 18;
/// The kernel hands over a block that is not full after this time, in milliseconds: the shortest that it
/// accepts.
const RETIRE_MS: u32 = 1;
/// Ethernet, IPv4 without options, UDP.
const HEADERS: usize = 14 + 20 + 8;

/// A ring on the loopback interface that takes datagrams to one port over IPv4.
#[derive(Debug)]
pub struct PacketRing {
    socket: OwnedFd,
    ring: NonNull<u8>,
    blocks: usize,
    block: usize,
    /// Packets of the present block that were not taken, and where the next one is in the block.
    left: u32,
    at: usize,
}

impl PacketRing {
    /// A ring of at most this many bytes for the interface of this number.
    ///
    /// # Errors
    ///
    /// A system call's: `EPERM` without `CAP_NET_RAW`.
    pub fn open(interface: i32, port: u16, bytes: usize) -> io::Result<Self> {
        let blocks = (bytes / BLOCK_BYTES).max(2);
        // SAFETY: plain numbers.
        let socket = check(unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) })?;
        // SAFETY: the descriptor is new and belongs to nobody else.
        let socket = unsafe { OwnedFd::from_raw_fd(socket) };
        set(&socket, libc::SOL_PACKET, libc::PACKET_VERSION, &(libc::tpacket_versions::TPACKET_V3 as i32))?;
        set(&socket, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &1_i32)?;
        let request = libc::tpacket_req3 {
            tp_block_size: u32::try_from(BLOCK_BYTES).unwrap_or(0),
            tp_block_nr: u32::try_from(blocks).unwrap_or(u32::MAX),
            tp_frame_size: 2048,
            tp_frame_nr: u32::try_from(blocks * (BLOCK_BYTES / 2048)).unwrap_or(u32::MAX),
            tp_retire_blk_tov: RETIRE_MS,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        set(&socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &request)?;
        filter(&socket, port)?;
        let ring = map(&socket, blocks * BLOCK_BYTES)?;
        let opened = Self { socket, ring, blocks, block: 0, left: 0, at: 0 };
        opened.bind(interface)?;
        Ok(opened)
    }

    fn bind(&self, interface: i32) -> io::Result<()> {
        // SAFETY: a plain C structure, for which zero bytes are a value.
        let mut address = unsafe { std::mem::zeroed::<libc::sockaddr_ll>() };
        address.sll_family = u16::try_from(libc::AF_PACKET).unwrap_or(0);
        address.sll_protocol = u16::try_from(libc::ETH_P_IP).unwrap_or(0).to_be();
        address.sll_ifindex = interface;
        let size = u32::try_from(size_of_val(&address)).unwrap_or(0);
        // SAFETY: the address is a local whose size is given.
        check(unsafe { libc::bind(self.socket.as_raw_fd(), (&raw const address).cast(), size) }).map(drop)
    }

    /// Takes the next datagram into a buffer. Waits for it at most `timeout`.
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if none came in time.
    pub fn receive(&mut self, buffer: &mut [u8], timeout: Duration) -> io::Result<usize> {
        while self.left == 0 {
            if self.status().load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
                self.wait(timeout)?;
                continue;
            }
            // SAFETY: the block is the program's until its status is given back.
            let descriptor = unsafe { self.start().cast::<libc::tpacket_block_desc>().read() };
            // SAFETY: blocks of this version have this header.
            let header = unsafe { descriptor.hdr.bh1 };
            (self.left, self.at) = (header.num_pkts, header.offset_to_first_pkt as usize);
            if self.left == 0 {
                self.give_back();
            }
        }
        let len = self.copy(buffer);
        self.left -= 1;
        if self.left == 0 {
            self.give_back();
        }
        Ok(len)
    }

    fn copy(&mut self, buffer: &mut [u8]) -> usize {
        if self.at + size_of::<libc::tpacket3_hdr>() > BLOCK_BYTES {
            return 0;
        }
        // SAFETY: inside the block, as was checked.
        let packet = unsafe { self.start().add(self.at) };
        // SAFETY: the kernel puts a header there.
        let header = unsafe { packet.cast::<libc::tpacket3_hdr>().read() };
        let payload = usize::from(header.tp_mac) + HEADERS;
        let room = BLOCK_BYTES.saturating_sub(self.at + payload);
        let len = (header.tp_snaplen as usize).saturating_sub(HEADERS).min(buffer.len()).min(room);
        // SAFETY: `len` bytes from there are inside the block.
        let payload = unsafe { packet.add(payload) };
        // SAFETY: as above; and the buffer is as long, which is the program's alone.
        unsafe { std::ptr::copy_nonoverlapping(payload.as_ptr(), buffer.as_mut_ptr(), len) };
        self.at += header.tp_next_offset as usize;
        len
    }

    fn start(&self) -> NonNull<u8> {
        // SAFETY: the block's number is below their count.
        unsafe { self.ring.add(self.block * BLOCK_BYTES) }
    }

    fn status(&self) -> &AtomicU32 {
        const STATUS: usize = 8;
        // SAFETY: inside the block.
        let status = unsafe { self.start().add(STATUS) };
        // SAFETY: four aligned bytes of the mapping, which kernel and program use as an atomic value.
        unsafe { AtomicU32::from_ptr(status.cast().as_ptr()) }
    }

    fn give_back(&mut self) {
        self.status().store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.block = (self.block + 1) % self.blocks;
    }

    fn wait(&self, timeout: Duration) -> io::Result<()> {
        let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos().into() };
        match poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&timeout)) {
            Ok(0) => Err(io::ErrorKind::WouldBlock.into()),
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl Drop for PacketRing {
    fn drop(&mut self) {
        // SAFETY: the mapping of `map`, which nothing points into any more.
        unsafe { libc::munmap(self.ring.as_ptr().cast(), self.blocks * BLOCK_BYTES) };
    }
}

/// Lets only UDP over IPv4 to this port into the ring.
fn filter(socket: &OwnedFd, port: u16) -> io::Result<()> {
    const LOAD_BYTE: u16 = 0x30;
    const LOAD_HALF: u16 = 0x28;
    const JUMP_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut program = [
        step(LOAD_BYTE, 0, 0, 14 + 9),
        step(JUMP_EQUAL, 0, 3, libc::IPPROTO_UDP.cast_unsigned()),
        step(LOAD_HALF, 0, 0, 14 + 20 + 2),
        step(JUMP_EQUAL, 0, 1, port.into()),
        step(RETURN, 0, 0, u32::MAX),
        step(RETURN, 0, 0, 0),
    ];
    let program = libc::sock_fprog { len: 6, filter: program.as_mut_ptr() };
    set(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
}

fn map(socket: &OwnedFd, len: usize) -> io::Result<NonNull<u8>> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping where the kernel finds room.
    let ring =
        unsafe { libc::mmap(std::ptr::null_mut(), len, protection, libc::MAP_SHARED, socket.as_raw_fd(), 0) };
    if ring == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(ring.cast()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

/// `T` is what the option is declared to take.
fn set<T>(socket: &OwnedFd, level: i32, option: i32, value: &T) -> io::Result<()> {
    let size = u32::try_from(size_of::<T>()).unwrap_or(0);
    let value = std::ptr::from_ref(value).cast();
    // SAFETY: the value is readable for its size.
    check(unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, value, size) }).map(drop)
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

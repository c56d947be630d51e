//! Receiving by `io_uring`: a multishot `recvmsg` into provided buffers, *lanes*.
//!
//! The kernel receives in the program's thread, also while that thread computes or sleeps, as long as lanes are free. The ring
//! is made with neither `DEFER_TASKRUN` nor `COOP_TASKRUN`: with either, nothing is received before the thread's next call.
//!
//! One thread receives, the owner: the kernel works in the thread that submitted the request. All methods are called with the
//! state locked. The pusher looks at the ring but takes nothing from it, so whatever was posted wakes a waiting owner.

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd as _, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use io_uring::types::{BufRingEntry, CancelBuilder, Fd, RecvMsgOut, Timespec};
use io_uring::{IoUring, cqueue, opcode};

use crate::sys::{self, Notes};

/// Room for a source address, a `sockaddr_in6`, and to keep what follows aligned.
const NAME_ROOM: u32 = 32;
/// Room for control messages: what the receiver asks for takes less than half of it.
const CONTROL_ROOM: usize = 256;
/// Room in front of a payload: a header of 16 bytes, name and control messages.
const HEADER_ROOM: usize = 16 + NAME_ROOM as usize + CONTROL_ROOM;
/// More would keep a busy program's lanes out of the processor's cache: at 2 KiB each they are 2 MiB. Chosen,
/// not measured.
const LANES_MAX: usize = 1024;
/// Fewer are not worth a ring. Chosen, not measured.
const LANES_MIN: usize = 16;
/// Time that an end waits for the thread that owns the request. Chosen, not measured.
const PATIENCE: Duration = Duration::from_secs(1);
const GROUP: u16 = 0;
const REQUEST: u64 = 1;

/// Why a receiver does not use `io_uring`, or no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoRing {
    /// [`Backend::Thread`](crate::Backend::Thread) was asked for.
    NotWanted,
    /// The policy decides about datagrams while the program is busy, or the application classifies them.
    Policy,
    /// The kernel or the sandbox refuses: the error number, such as `ENOSYS` or `EPERM`.
    Refused(i32),
    /// A second thread received while the first one's request was under way.
    SecondThread,
    /// The configuration asks for coalescing: lanes that hold what is coalesced cost more than they save.
    Coalesces,
}

/// A datagram in a lane.
pub(crate) struct Datagram<'a> {
    pub(crate) payload: &'a [u8],
    /// Bytes of the datagram, of which the lane may hold fewer.
    pub(crate) len: usize,
    pub(crate) name: &'a [u8],
    pub(crate) notes: Notes,
}

/// A receiver's ring and lanes.
pub(crate) struct Ring {
    io: ManuallyDrop<IoUring>,
    lanes: ManuallyDrop<Map>,
    entries: ManuallyDrop<Map>,
    count: usize,
    stride: usize,
    header: Box<libc::msghdr>,
    socket: RawFd,
    tail: u16,
    process: u32,
    owner: u32,
    armed: bool,
    /// The last request was cancelled: it ends without receiving anything more.
    cancelled: bool,
    retired: Option<NoRing>,
    received: bool,
    /// Threads that wait for a completion, or are going to: they have given back the lock.
    waiters: usize,
    /// The request's last completion is in the queue, though it was dealt with: those threads return when they find it.
    /// Without it a thread that comes late would wait for a request that has ended.
    lingers: bool,
}

// SAFETY: the pointers inside point to memory that the value owns.
unsafe impl Send for Ring {}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").field("lanes", &self.count).field("armed", &self.armed).finish_non_exhaustive()
    }
}

impl Ring {
    /// A ring whose lanes take at most `memory` bytes and hold datagrams of `longest` bytes. Pages are touched as datagrams
    /// come, and stay.
    pub(crate) fn new(socket: RawFd, memory: usize, longest: usize) -> io::Result<Self> {
        let stride = (HEADER_ROOM + longest.clamp(1, sys::DATAGRAM_MAX)).next_multiple_of(64);
        let fitting = (memory / stride).clamp(LANES_MIN, LANES_MAX);
        // The kernel wants a power of two.
        let count = 1 << fitting.ilog2();
        let lanes = Map::new(count * stride)?;
        let entries = Map::new(count * size_of::<BufRingEntry>())?;
        let completions = u32::try_from(2 * count).unwrap_or(u32::MAX);
        let io = IoUring::builder().dontfork().setup_cqsize(completions).build(8)?;
        let address = entries.address.as_ptr() as u64;
        let ring_entries = u16::try_from(count).unwrap_or(u16::MAX);
        // SAFETY: the mapping has room for `count` entries and is unmapped after the ring's end only.
        unsafe { io.submitter().register_buf_ring_with_flags(address, ring_entries, GROUP, 0) }?;
        // SAFETY: a plain C structure, for which zero bytes are a value.
        let mut header = Box::new(unsafe { std::mem::zeroed::<libc::msghdr>() });
        header.msg_namelen = NAME_ROOM;
        header.msg_controllen = CONTROL_ROOM;
        let mut ring = Self {
            io: ManuallyDrop::new(io),
            lanes: ManuallyDrop::new(lanes),
            entries: ManuallyDrop::new(entries),
            count,
            stride,
            header,
            socket,
            tail: 0,
            process: std::process::id(),
            owner: 0,
            armed: false,
            cancelled: false,
            retired: None,
            received: false,
            waiters: 0,
            lingers: false,
        };
        for lane in 0..ring_entries {
            ring.provide(lane);
        }
        Ok(ring)
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.io.as_raw_fd()
    }

    /// Whether a request is the kernel's, as far as its completions were read.
    pub(crate) fn is_armed(&self) -> bool {
        self.armed
    }

    /// Whether the last request was cancelled, perhaps while the owner received.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled
    }

    pub(crate) fn owner(&self) -> u32 {
        self.owner
    }

    pub(crate) fn retired(&self) -> Option<NoRing> {
        self.retired
    }

    /// No request is made any more.
    pub(crate) fn retire(&mut self, reason: NoRing) {
        self.retired.get_or_insert(reason);
    }

    /// Lanes that hold something; at most one too many, for the request's end.
    pub(crate) fn waiting(&mut self) -> usize {
        self.io.completion().len() - usize::from(self.lingers)
    }

    /// Whether there is something to [`wait`] for. If so, the calling thread does, and calls [`end_wait`](Self::end_wait) after it.
    pub(crate) fn begin_wait(&mut self) -> bool {
        let is_empty = self.waiting() == 0;
        self.waiters += usize::from(is_empty);
        is_empty
    }

    pub(crate) fn end_wait(&mut self) {
        self.waiters -= 1;
    }

    /// Lanes that the kernel can still fill.
    pub(crate) fn free(&mut self) -> usize {
        self.count.saturating_sub(self.waiting())
    }

    /// Makes the request. The calling thread becomes the owner.
    pub(crate) fn arm(&mut self) -> io::Result<()> {
        let header: *const libc::msghdr = &raw const *self.header;
        let flags = libc::MSG_TRUNC.cast_unsigned();
        let request = opcode::RecvMsgMulti::new(Fd(self.socket), header, GROUP).flags(flags).build();
        let request = request.user_data(REQUEST);
        // SAFETY: header and lanes are freed after the request's end only. Nothing else is in the queue.
        let result = unsafe { self.io.submission().push(&request) };
        result.map_err(|_| io::Error::from_raw_os_error(libc::EBUSY))?;
        self.owner = sys::thread_id();
        self.cancelled = false;
        loop {
            match self.io.submit() {
                Ok(_) => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        // A thread that still comes to wait finds the new request's completions.
        self.clear();
        self.armed = true;
        Ok(())
    }

    /// Ends the request. The completion that says so comes when the owner runs.
    pub(crate) fn cancel(&mut self) {
        if self.armed && !self.cancelled {
            self.cancelled = true;
            // A request that is not found has ended.
            let _ = self
                .io
                .submitter()
                .register_sync_cancel(Some(Timespec::new()), CancelBuilder::user_data(REQUEST));
        }
    }

    /// Whether the kernel receives nothing more, although its completions were not all read.
    pub(crate) fn is_over(&mut self) -> bool {
        if !self.armed || self.cancelled {
            return true;
        }
        // Looked at, not taken: the queue's head stays where it is.
        let mut completions = ManuallyDrop::new(self.io.completion());
        completions.by_ref().last().is_some_and(|last| !cqueue::more(last.flags()))
    }

    /// The oldest datagram in a lane, or the socket's error.
    pub(crate) fn first(&mut self) -> Option<io::Result<Datagram<'_>>> {
        if self.waiters == 0 {
            self.clear();
        }
        let lane = loop {
            if self.lingers {
                return None;
            }
            let mut completions = ManuallyDrop::new(self.io.completion());
            let entry = completions.next()?;
            let lane = cqueue::buffer_select(entry.flags());
            if let Some(lane) = lane.filter(|lane| entry.result() >= 0 && usize::from(*lane) < self.count) {
                break lane;
            }
            // No datagram.
            self.done(&entry);
            match -entry.result() {
                // No lane was free, or the owner has ended, or the request was cancelled.
                ..=0 | libc::ENOBUFS | libc::ECANCELED => {}
                error @ (libc::EINVAL | libc::EOPNOTSUPP) if !self.received => {
                    self.retire(NoRing::Refused(error));
                }
                error => return Some(Err(io::Error::from_raw_os_error(error))),
            }
        };
        let lane = self.lane(lane);
        // SAFETY: the lane is the program's until it is provided again, and as long as the stride.
        let lane = unsafe { std::slice::from_raw_parts(lane, self.stride) };
        let Ok(out) = RecvMsgOut::parse(lane, &self.header) else {
            return Some(Err(io::Error::from_raw_os_error(libc::EIO)));
        };
        let control = &lane[16 + NAME_ROOM as usize..][..out.control_data().len()];
        Some(Ok(Datagram {
            len: out.incoming_payload_len() as usize,
            payload: &lane[HEADER_ROOM..HEADER_ROOM + out.payload_data().len()],
            name: &lane[16..][..out.name_data().len()],
            notes: sys::notes(control),
        }))
    }

    /// Takes the oldest datagram, the last one that [`first`](Self::first) has returned, and gives its lane back.
    pub(crate) fn consume(&mut self) {
        let mut completions = ManuallyDrop::new(self.io.completion());
        let Some(entry) = completions.next() else { return };
        let next = completions.next().and_then(|next| cqueue::buffer_select(next.flags()));
        if let Some(next) = next {
            sys::prefetch(self.lane(next));
        }
        self.received = true;
        self.done(&entry);
    }

    /// The oldest completion was dealt with.
    fn done(&mut self, entry: &cqueue::Entry) {
        self.armed &= cqueue::more(entry.flags());
        self.lingers = true;
        if self.armed || self.waiters == 0 {
            self.clear();
        }
        if let Some(lane) = cqueue::buffer_select(entry.flags()) {
            self.provide(lane);
        }
    }

    /// Takes the completion that lingers off the queue.
    fn clear(&mut self) {
        if std::mem::take(&mut self.lingers) {
            self.io.completion().next();
        }
    }

    fn lane(&self, lane: u16) -> *mut u8 {
        // SAFETY: the offset is inside the mapping, because the number is below the count.
        unsafe { self.lanes.address.as_ptr().add((usize::from(lane) % self.count) * self.stride) }
    }

    fn provide(&mut self, lane: u16) {
        let address = self.lane(lane) as u64;
        let base = self.entries.address.as_ptr().cast::<BufRingEntry>();
        // SAFETY: the place is inside the mapping.
        let entry = unsafe { base.add(usize::from(self.tail) & (self.count - 1)) };
        // SAFETY: the kernel reads entries below the tail only, and this one is not.
        let entry = unsafe { &mut *entry };
        entry.set_addr(address);
        entry.set_len(u32::try_from(self.stride).unwrap_or(u32::MAX));
        entry.set_bid(lane);
        self.tail = self.tail.wrapping_add(1);
        // SAFETY: the first entry of the mapping, which is page aligned.
        let tail = unsafe { BufRingEntry::tail(base) };
        // SAFETY: two aligned bytes of the mapping, which program and kernel use as an atomic value.
        let tail = unsafe { AtomicU16::from_ptr(tail.cast_mut()) };
        tail.store(self.tail, Ordering::Release);
    }

    /// Waits until the kernel has let go of the lanes. False if the owner does not run.
    fn end(&mut self) -> bool {
        self.cancel();
        let until = sys::now() + PATIENCE;
        while self.armed {
            while self.first().is_some() {
                self.consume();
            }
            if self.armed && wait(self.fd(), Some(until.saturating_since(sys::now()))).is_err() {
                return false;
            }
        }
        true
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // In a forked process the request is the parent's, and the mapping of the ring is not there.
        if self.process != std::process::id() {
            return;
        }
        let ended = self.end();
        // SAFETY: not used again.
        unsafe { ManuallyDrop::drop(&mut self.io) };
        if ended {
            // SAFETY: not used again, and the kernel writes there no more.
            unsafe { ManuallyDrop::drop(&mut self.lanes) };
            // SAFETY: as above.
            unsafe { ManuallyDrop::drop(&mut self.entries) };
        }
        // Else the kernel may still write into the lanes: their memory is never used for anything else.
    }
}

/// Waits until a completion is in the ring's queue.
///
/// # Errors
///
/// [`WouldBlock`](io::ErrorKind::WouldBlock) when the time is over; else the system call's.
pub(crate) fn wait(ring: RawFd, timeout: Option<Duration>) -> io::Result<()> {
    #[repr(C)]
    struct Argument {
        signals: u64,
        signals_size: u32,
        min_wait: u32,
        time: u64,
    }
    const GETEVENTS_AND_EXT_ARG: u32 = 1 | 8;
    if timeout.is_some_and(|timeout| timeout.is_zero()) {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    let time = timeout.map(|timeout| libc::timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    });
    let time = time.as_ref().map_or(0, |time| std::ptr::from_ref(time) as u64);
    let argument = Argument { signals: 0, signals_size: 8, min_wait: 0, time };
    let size = size_of::<Argument>();
    // SAFETY: argument and time are locals, which outlive the call.
    let result = unsafe {
        let flags = GETEVENTS_AND_EXT_ARG;
        libc::syscall(libc::SYS_io_uring_enter, ring, 0, 1, flags, &raw const argument, size)
    };
    if result >= 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::ETIME) => Err(io::ErrorKind::WouldBlock.into()),
        Some(libc::EINTR) => Ok(()),
        _ => Err(error),
    }
}

/// Whether this kernel and sandbox let a receiver use `io_uring`: tried with a socket of our own.
///
/// # Errors
///
/// What refuses it.
pub fn probe() -> io::Result<()> {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0")?;
    let mut ring = Ring::new(socket.as_raw_fd(), 0, 64)?;
    ring.arm()?;
    socket.send_to(b"probe", socket.local_addr()?)?;
    let until = sys::now() + PATIENCE;
    loop {
        if let Some(found) = ring.first() {
            return found.map(drop);
        }
        if let Some(NoRing::Refused(error)) = ring.retired() {
            return Err(io::Error::from_raw_os_error(error));
        }
        wait(ring.fd(), Some(until.saturating_since(sys::now())))?;
    }
}

/// Anonymous memory, whose pages are there when they are touched.
struct Map {
    address: NonNull<u8>,
    len: usize,
}

impl Map {
    fn new(len: usize) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping where the kernel finds room.
        let address = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, -1, 0) };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let address = NonNull::new(address.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { address, len })
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`, which nothing points into any more.
        unsafe { libc::munmap(self.address.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread looks, finds nothing, and gives back the lock; before it is in the kernel's call, another one reads the
    /// request's last completion.
    #[test]
    fn a_late_thread_does_not_wait_for_a_request_that_ended() {
        if let Err(error) = probe() {
            assert!(std::env::var_os("CI").is_none(), "no io_uring: {error}");
            return;
        }
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("bind");
        let mut ring = Ring::new(socket.as_raw_fd(), 0, 64).expect("a ring");
        ring.arm().expect("a request");
        assert!(ring.first().is_none() && ring.begin_wait());
        ring.cancel();
        wait(ring.fd(), Some(PATIENCE)).expect("the request's end");
        for _ in 0..3 {
            assert!(ring.first().is_none() && ring.waiting() == 0 && !ring.is_armed());
        }
        wait(ring.fd(), Some(PATIENCE)).expect("the late thread returns");
        ring.end_wait();
        assert!(ring.first().is_none());
        let over = wait(ring.fd(), Some(Duration::from_millis(1))).expect_err("nothing lingers");
        assert_eq!(over.kind(), io::ErrorKind::WouldBlock);
        // A new request is as good as the first one.
        ring.arm().expect("a request");
        socket.send_to(b"datagram", socket.local_addr().expect("address")).expect("send");
        wait(ring.fd(), Some(PATIENCE)).expect("a datagram");
        assert_eq!(ring.first().expect("a lane").expect("a datagram").payload, b"datagram");
        ring.consume();
        assert!(ring.waiting() == 0 && ring.is_armed());
    }
}

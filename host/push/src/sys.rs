//! System calls on a UDP socket. They go past the C library's wrappers of the socket calls, so that a program's
//! preloaded library does not meet itself.

use std::io;
use std::mem::{size_of, zeroed};
use std::num::NonZeroUsize;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::name::Name;
use freshwire_record::Timestamp;
use libc::{c_int, c_void, iovec, mmsghdr, sockaddr_storage};

/// The largest UDP payload, and more.
pub const DATAGRAM_MAX: usize = 65_536;
/// Distance of a batch's datagrams. A power of two would put them all into the same few places of the processor's
/// caches: 25 lines more spread datagrams of a packet of Ethernet evenly.
const STRIDE: usize = DATAGRAM_MAX + 25 * 64;
/// Room for a datagram's control messages. All that IPv4 and IPv6 sockets can ask for take less than half of it.
pub const CONTROL_MAX: usize = 1024;

#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Control([u8; CONTROL_MAX]);

/// Room for what [`Receiver`](crate::Receiver) asks for, and more.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
struct Control256([u8; 256]);

/// Buffers for one `recvmmsg`.
pub struct Batch {
    payload: Box<[u8]>,
    control: Box<[Control]>,
    names: Box<[sockaddr_storage]>,
    vectors: Box<[iovec]>,
    messages: Box<[mmsghdr]>,
}

// SAFETY: the pointers inside point into allocations of the same value, and are set anew before each use.
unsafe impl Send for Batch {}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batch").field("lanes", &self.messages.len()).finish()
    }
}

/// A datagram of a batch.
#[derive(Clone, Copy, Debug)]
pub struct Raw<'a> {
    /// The payload.
    pub payload: &'a [u8],
    /// The source's `sockaddr`.
    pub name: &'a [u8],
    /// Control messages.
    pub control: &'a [u8],
    /// The kernel's flags.
    pub flags: c_int,
}

impl Batch {
    /// Buffers for this many datagrams of any size. Memory is touched as datagrams come: a page for each of at most
    /// 4096 bytes, and 2 kB for its address and control messages.
    pub fn new(lanes: usize) -> Self {
        let lanes = lanes.clamp(1, 1024);
        // SAFETY: a plain C structure, for which zero bytes are a value.
        let name = unsafe { zeroed() };
        // SAFETY: as above.
        let message = unsafe { zeroed() };
        let vector = iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        Self {
            payload: vec![0; lanes * STRIDE].into_boxed_slice(),
            control: vec![Control([0; CONTROL_MAX]); lanes].into_boxed_slice(),
            names: vec![name; lanes].into_boxed_slice(),
            vectors: vec![vector; lanes].into_boxed_slice(),
            messages: vec![message; lanes].into_boxed_slice(),
        }
    }

    /// How many datagrams one call takes at most.
    pub fn lanes(&self) -> usize {
        self.messages.len()
    }

    /// Receives at most `most` datagrams. With `MSG_DONTWAIT` in `flags` it does not block; without, it waits for the
    /// first as long as the socket's `SO_RCVTIMEO` says if `MSG_WAITFORONE` is there.
    ///
    /// # Errors
    ///
    /// The system call's.
    pub fn receive(&mut self, fd: RawFd, most: usize, flags: c_int) -> io::Result<usize> {
        self.call(fd, most, flags, DATAGRAM_MAX)
    }

    /// How many datagrams wait, up to `most`, without their bytes. The socket's `SO_PEEK_OFF` must be zero: then each
    /// peek goes on behind the last one.
    ///
    /// # Errors
    ///
    /// The system call's.
    pub fn count(&mut self, fd: RawFd, most: usize) -> io::Result<usize> {
        self.call(fd, most, libc::MSG_DONTWAIT | libc::MSG_PEEK | libc::MSG_TRUNC, 0)
    }

    fn call(&mut self, fd: RawFd, most: usize, flags: c_int, room: usize) -> io::Result<usize> {
        let most = most.min(self.lanes());
        for lane in 0..most {
            self.vectors[lane] = iovec {
                iov_base: self.payload[lane * STRIDE..].as_mut_ptr().cast::<c_void>(),
                iov_len: room,
            };
            let message = &mut self.messages[lane].msg_hdr;
            message.msg_name = (&raw mut self.names[lane]).cast::<c_void>();
            message.msg_namelen = u32::try_from(size_of::<sockaddr_storage>()).unwrap_or(0);
            message.msg_iov = &raw mut self.vectors[lane];
            message.msg_iovlen = 1;
            message.msg_control = self.control[lane].0.as_mut_ptr().cast::<c_void>();
            message.msg_controllen = CONTROL_MAX;
            message.msg_flags = 0;
        }
        let messages = self.messages.as_mut_ptr();
        let none = std::ptr::null_mut::<libc::timespec>();
        // SAFETY: the first `most` messages point into buffers of this value, whose sizes they give.
        let received = unsafe { libc::syscall(libc::SYS_recvmmsg, fd, messages, most, flags, none) };
        usize::try_from(received).map_err(|_| io::Error::last_os_error())
    }

    /// One of the datagrams of the last [`receive`](Self::receive).
    ///
    /// # Panics
    ///
    /// If there are fewer lanes.
    pub fn get(&self, lane: usize) -> Raw<'_> {
        let message = &self.messages[lane];
        let len = (message.msg_len as usize).min(DATAGRAM_MAX);
        let name = (&raw const self.names[lane]).cast::<u8>();
        let name_len = (message.msg_hdr.msg_namelen as usize).min(size_of::<sockaddr_storage>());
        // SAFETY: a sockaddr_storage is plain bytes, zeroed at first, and `name_len` is at most its size.
        let name = unsafe { std::slice::from_raw_parts(name, name_len) };
        Raw {
            payload: &self.payload[lane * STRIDE..][..len],
            name,
            control: &self.control[lane].0[..message.msg_hdr.msg_controllen.min(CONTROL_MAX)],
            flags: message.msg_hdr.msg_flags,
        }
    }
}

/// What the program asks of a datagram beside its bytes. The kernel copies the rest only if it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Detail {
    /// Nothing.
    Length,
    /// The source.
    Source,
    /// The source and the control messages.
    All,
}

/// A datagram that was received past the program's memory.
#[derive(Clone, Copy, Debug)]
pub struct Direct {
    /// Bytes of the datagram: more than the buffer's if it was too small.
    pub len: usize,
    /// The source, if it was asked for.
    pub name: Name,
    /// The control messages, if they were asked for, and their length.
    control: Control256,
    control_len: usize,
}

impl Direct {
    /// Control messages as the kernel laid them out.
    pub fn control(&self) -> &[u8] {
        &self.control.0[..self.control_len]
    }
}

/// Receives one datagram into the caller's buffer, with `MSG_TRUNC` and these flags.
///
/// # Errors
///
/// The system call's.
pub fn receive_one(fd: RawFd, buffer: &mut [u8], detail: Detail, flags: c_int) -> io::Result<Direct> {
    let mut control = Control256([0; 256]);
    let mut name = [0_u64; 16];
    let mut name_len = 0;
    let mut control_len = 0;
    let received = if detail == Detail::All {
        let mut vector = iovec { iov_base: buffer.as_mut_ptr().cast::<c_void>(), iov_len: buffer.len() };
        // SAFETY: a plain C structure, for which zero bytes are a value.
        let mut message = unsafe { zeroed::<libc::msghdr>() };
        message.msg_name = name.as_mut_ptr().cast::<c_void>();
        message.msg_namelen = u32::try_from(size_of_val(&name)).unwrap_or(0);
        message.msg_iov = &raw mut vector;
        message.msg_iovlen = 1;
        message.msg_control = control.0.as_mut_ptr().cast::<c_void>();
        message.msg_controllen = control.0.len();
        let message_at = &raw mut message;
        // SAFETY: the message points to the caller's buffer and to locals, whose sizes it gives.
        let received = unsafe { libc::syscall(libc::SYS_recvmsg, fd, message_at, flags | libc::MSG_TRUNC) };
        (name_len, control_len) = (message.msg_namelen, message.msg_controllen.min(control.0.len()));
        received
    } else {
        // Copies nothing else (notebook, push and its alternatives).
        let (bytes, room) = (buffer.as_mut_ptr(), buffer.len());
        let (mut place, mut len) = (std::ptr::null_mut(), std::ptr::null_mut::<libc::socklen_t>());
        if detail == Detail::Source {
            name_len = u32::try_from(size_of_val(&name)).unwrap_or(0);
            (place, len) = (name.as_mut_ptr(), &raw mut name_len);
        }
        // SAFETY: the caller's buffer and locals, whose sizes are given.
        unsafe { libc::syscall(libc::SYS_recvfrom, fd, bytes, room, flags | libc::MSG_TRUNC, place, len) }
    };
    let len = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
    let name = Name::new(as_bytes(&name, name_len as usize));
    Ok(Direct { len, name, control, control_len })
}

/// The first bytes of these words.
fn as_bytes(words: &[u64], len: usize) -> &[u8] {
    // SAFETY: integers are plain bytes, and `len` is at most their size.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), len.min(size_of_val(words))) }
}

/// What the kernel says of a socket's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Bytes in the receive buffer, by the kernel's accounting. Falls lazily: up to a quarter of the limit after the
    /// datagrams are gone.
    pub used: u32,
    /// The receive buffer's size.
    pub limit: u32,
    /// Datagrams that the kernel has dropped: what `SO_RXQ_OVFL` reports.
    pub drops: u32,
}

/// Reads `SO_MEMINFO`.
///
/// # Errors
///
/// The system call's.
pub fn memory(fd: RawFd) -> io::Result<Memory> {
    let mut values = [0_u32; 9];
    get_option(fd, libc::SOL_SOCKET, libc::SO_MEMINFO, &mut values)?;
    Ok(Memory { used: values[0], limit: values[1], drops: values[8] })
}

/// Reads `SO_COOKIE`: the same for every descriptor of a socket, and never that of another one.
///
/// # Errors
///
/// The system call's.
pub fn cookie(fd: RawFd) -> io::Result<u64> {
    let mut value = [0_u64];
    get_option(fd, libc::SOL_SOCKET, libc::SO_COOKIE, &mut value)?;
    Ok(value[0])
}

/// Reads an option whose value is a C `int`.
///
/// # Errors
///
/// The system call's.
pub fn get_int(fd: RawFd, level: c_int, name: c_int) -> io::Result<c_int> {
    let mut value: [c_int; 1] = [0];
    get_option(fd, level, name, &mut value)?;
    Ok(value[0])
}

/// Sets an option whose value is a C `int`.
///
/// # Errors
///
/// The system call's.
pub fn set_int(fd: RawFd, level: c_int, name: c_int, value: c_int) -> io::Result<()> {
    // SAFETY: the value is an int whose size is given.
    let result =
        unsafe { libc::syscall(libc::SYS_setsockopt, fd, level, name, &raw const value, size_of::<c_int>()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sets `SO_RCVTIMEO`; zero waits for ever.
///
/// # Errors
///
/// The system call's.
pub fn set_timeout(fd: RawFd, timeout: Duration) -> io::Result<()> {
    let value = libc::timeval {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_usec: i64::from(timeout.subsec_micros()),
    };
    let size = size_of::<libc::timeval>();
    // SAFETY: the value is a timeval whose size is given.
    let result = unsafe {
        libc::syscall(libc::SYS_setsockopt, fd, libc::SOL_SOCKET, libc::SO_RCVTIMEO, &raw const value, size)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A descriptor number that a program hardly gets to: near the limit of its descriptors.
pub fn high_descriptor() -> RawFd {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(1024);
    RawFd::try_from(limit.min(65_536).saturating_sub(64)).unwrap_or(0)
}

/// Makes an eventfd readable, or unreadable.
pub fn signal(fd: RawFd, readable: bool) {
    let mut count = 1_u64;
    let size = size_of::<u64>();
    let number = if readable { libc::SYS_write } else { libc::SYS_read };
    // SAFETY: eight bytes of a local are read or written. The descriptor does not block.
    unsafe { libc::syscall(number, fd, &raw mut count, size) };
}

/// Plain integers: any bytes are a value.
trait Integer: Copy {}
impl Integer for u32 {}
impl Integer for u64 {}
impl Integer for c_int {}

fn get_option<T: Integer>(fd: RawFd, level: c_int, name: c_int, values: &mut [T]) -> io::Result<()> {
    let mut len = u32::try_from(std::mem::size_of_val(values)).unwrap_or(0);
    // SAFETY: the kernel writes at most `len` bytes, the size of `values`, which any bytes are good for.
    let result =
        unsafe { libc::syscall(libc::SYS_getsockopt, fd, level, name, values.as_mut_ptr(), &raw mut len) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Whether a descriptor is a UDP socket over IPv4 or IPv6.
pub fn is_udp(fd: RawFd) -> bool {
    let is = |name, value| get_int(fd, libc::SOL_SOCKET, name).is_ok_and(|found| found == value);
    is(libc::SO_PROTOCOL, libc::IPPROTO_UDP)
        && is(libc::SO_TYPE, libc::SOCK_DGRAM)
        && (is(libc::SO_DOMAIN, libc::AF_INET) || is(libc::SO_DOMAIN, libc::AF_INET6))
}

/// Whether a socket over IPv4 or IPv6 has a port of its own.
pub fn has_port(fd: RawFd) -> bool {
    // A sockaddr_in6, which is the longer one. The port is at the same place in both.
    let mut name = [0_u16; 14];
    let mut len = u32::try_from(std::mem::size_of_val(&name)).unwrap_or(0);
    // SAFETY: the kernel writes at most `len` bytes, the size of `name`, which any bytes are good for.
    let result = unsafe { libc::syscall(libc::SYS_getsockname, fd, name.as_mut_ptr(), &raw mut len) };
    result == 0 && name[1] != 0
}

/// The precedence that a thread got over others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precedence {
    /// Real time: before all ordinary threads.
    RealTime,
    /// A nice value of -20.
    Nice,
    /// None: the system allows nothing else.
    #[default]
    Normal,
}

/// Gives the calling thread what precedence the system allows. Threads and processes that it makes do not inherit it.
pub fn take_precedence() -> Precedence {
    let parameters = libc::sched_param { sched_priority: 1 };
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // SAFETY: zero is the calling thread, and the parameters live through the call.
    if unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const parameters) } == 0 {
        return Precedence::RealTime;
    }
    // SAFETY: the call takes plain numbers; zero is the calling thread.
    if unsafe { libc::syscall(libc::SYS_setpriority, libc::PRIO_PROCESS, 0, -20) } == 0 {
        return Precedence::Nice;
    }
    Precedence::Normal
}

/// The calling thread's number.
pub fn thread_id() -> u32 {
    thread_local!(static ID: u32 = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned());
    ID.with(|id| *id)
}

/// Whether a thread of this process has not ended.
pub fn is_running(thread: u32) -> bool {
    // SAFETY: plain numbers; signal zero only asks.
    let result = unsafe { libc::syscall(libc::SYS_tgkill, std::process::id(), thread, 0) };
    result == 0
}

/// Lends the calling thread's real-time priority to another thread of the process for this long. Waits meanwhile.
///
/// The kernel gives the priority of a thread that waits for a lock with priority inheritance to the thread that holds it.
/// Here the other thread holds a lock that it does not know of.
pub fn lend_precedence(thread: u32, time: Duration) {
    let word = AtomicU32::new(thread);
    let until = now() + time;
    let until = libc::timespec {
        tv_sec: i64::try_from(until.as_nanos() / 1_000_000_000).unwrap_or(i64::MAX),
        tv_nsec: i64::try_from(until.as_nanos() % 1_000_000_000).unwrap_or(0),
    };
    let operation = libc::FUTEX_LOCK_PI2 | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: word and time are locals, which outlive the call. The call ends at that time, or when the thread has ended.
    let result =
        unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, 0, &raw const until, 0, 0) };
    // Before Linux 5.14, or if the thread is gone: without a loan, but not at once, so that this is no busy loop.
    if result != 0 && io::Error::last_os_error().raw_os_error() != Some(libc::ETIMEDOUT) {
        std::thread::sleep(time);
    }
}

/// Asks for the first bytes of what is read next.
#[inline]
pub fn prefetch(bytes: *const u8) {
    #[cfg(target_arch = "x86_64")]
    for line in 0..8 {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch of any address has no effect but on the cache.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(bytes.wrapping_add(line * 64).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = bytes;
}

/// Keeps all signals of the program away from the calling thread.
pub fn block_signals() {
    // SAFETY: a sigset_t is plain bytes, and sigfillset writes only to it.
    let mut all = unsafe { zeroed::<libc::sigset_t>() };
    // SAFETY: as above.
    unsafe { libc::sigfillset(&raw mut all) };
    // SAFETY: the set was filled; the old one is not asked for.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut()) };
}

/// What Freshwire's receiver reads from control messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Notes {
    /// `SO_TIMESTAMPNS`: when the kernel took the datagram in, since 1970.
    pub stamped: Option<Duration>,
    /// The two bits of explicit congestion notification.
    pub ecn: Option<u8>,
    /// Bytes of each datagram but the last one, if the kernel has coalesced several (`UDP_GRO`).
    pub segment: Option<NonZeroUsize>,
}

impl Notes {
    /// The time of arrival by `CLOCK_MONOTONIC`: the kernel's stamp, or `now` without one. `offset` is that of `CLOCK_REALTIME`.
    pub fn arrived(&self, now: Timestamp, offset: u64) -> Timestamp {
        self.stamped.map_or(now, |stamped| {
            let nanos = u64::try_from(stamped.as_nanos()).unwrap_or(u64::MAX);
            Timestamp::from_nanos(nanos.saturating_sub(offset)).min(now)
        })
    }
}

/// Reads the control messages that the receiver asks for.
pub fn notes(mut control: &[u8]) -> Notes {
    let mut notes = Notes::default();
    while let Some((level, kind, data, rest)) = next_message(control) {
        match (level, kind) {
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                let part = |from: usize| data.get(from..from + 8).and_then(|bytes| bytes.try_into().ok());
                if let (Some(seconds), Some(nanos)) = (part(0), part(8)) {
                    let seconds = u64::try_from(i64::from_ne_bytes(seconds)).unwrap_or(0);
                    let nanos = u64::try_from(i64::from_ne_bytes(nanos)).unwrap_or(0);
                    notes.stamped = Some(Duration::from_secs(seconds) + Duration::from_nanos(nanos));
                }
            }
            (libc::IPPROTO_IP, libc::IP_TOS) | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                // IPv4 gives one byte, IPv6 an int.
                let byte = if data.len() == 4 {
                    data.try_into().ok().map(i32::from_ne_bytes).and_then(|class| u8::try_from(class).ok())
                } else {
                    data.first().copied()
                };
                notes.ecn = byte.map(|byte| byte & 3);
            }
            (libc::SOL_UDP, libc::UDP_GRO) => {
                let size = data.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes));
                notes.segment = size.and_then(|size| usize::try_from(size).ok()).and_then(NonZeroUsize::new);
            }
            _ => {}
        }
        control = rest;
    }
    notes
}

/// Size of a control message's header.
pub const HEADER: usize = size_of::<libc::cmsghdr>();

/// Splits off the first control message: level, type, data, and what follows it.
pub fn next_message(control: &[u8]) -> Option<(c_int, c_int, &[u8], &[u8])> {
    let len = usize::from_ne_bytes(control.get(..8)?.try_into().ok()?);
    let level = c_int::from_ne_bytes(control.get(8..12)?.try_into().ok()?);
    let kind = c_int::from_ne_bytes(control.get(12..16)?.try_into().ok()?);
    let data = control.get(HEADER..len)?;
    Some((level, kind, data, control.get(len.next_multiple_of(8)..).unwrap_or_default()))
}

/// `CLOCK_MONOTONIC`.
pub fn now() -> Timestamp {
    nanos(rustix::time::ClockId::Monotonic)
}

/// The difference of the clocks is read again if it took longer than this: without an interruption, two readings take less than
/// a tenth of it. Chosen, not measured.
const CLOCK_GAP: Duration = Duration::from_micros(10);

/// What to subtract from `CLOCK_REALTIME`, in nanoseconds, for `CLOCK_MONOTONIC`. The best of at most four readings: a thread may
/// lose its processor between the two clocks.
pub fn realtime_offset() -> u64 {
    let read = || {
        let (before, real) = (now(), nanos(rustix::time::ClockId::Realtime));
        let gap = now().saturating_since(before);
        (gap, real.as_nanos().saturating_sub((before + gap / 2).as_nanos()))
    };
    let mut best = read();
    for _ in 0..3 {
        if best.0 <= CLOCK_GAP {
            break;
        }
        best = best.min(read());
    }
    best.1
}

/// The difference of the two clocks, for stamps that come one after the other. Read again a tenth of a second later.
#[derive(Debug, Default)]
pub struct Offset {
    value: AtomicU64,
    until: AtomicU64,
}

impl Offset {
    /// The time by `CLOCK_MONOTONIC` of a stamp; now, without one.
    pub fn arrived(&self, notes: Notes) -> Timestamp {
        let Some(stamped) = notes.stamped else { return now() };
        let nanos = u64::try_from(stamped.as_nanos()).unwrap_or(u64::MAX);
        // Two threads at once read the clocks twice, which does no harm: the values differ by the clocks' slew.
        if !(self.until.load(Ordering::Relaxed).saturating_sub(100_000_000)
            ..self.until.load(Ordering::Relaxed))
            .contains(&nanos)
        {
            self.value.store(realtime_offset(), Ordering::Relaxed);
            self.until.store(nanos.saturating_add(100_000_000), Ordering::Relaxed);
        }
        Timestamp::from_nanos(nanos.saturating_sub(self.value.load(Ordering::Relaxed)))
    }
}

fn nanos(clock: rustix::time::ClockId) -> Timestamp {
    let time = rustix::time::clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Timestamp::from_nanos(
        seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0)),
    )
}

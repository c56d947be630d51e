//! The receiver that programs use.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, UdpSocket};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use freshwire_record::Timestamp;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll};

use crate::lock::Guard;
use crate::policy::{Classify, Drops, Policy};
use crate::pushed::{PushedSocket, Rules, State};
use crate::pusher::Pusher;
use crate::queue::{COALESCED_MAX, Head, Name, Queue};
use crate::sys::{self, Batch, Detail, Precedence};
use crate::uring::{self, NoRing, Ring};

/// Datagrams that one receive of the program takes from the kernel at most. Chosen, not measured.
const LANES: usize = 16;
/// Receives from the kernel by a policy that compares datagrams, before it answers: 4096 datagrams. Chosen,
/// not measured.
const ROUNDS: usize = 256;

/// The source of a datagram for a caller that does not ask for it.
const UNKNOWN: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0));
/// No timeout.
const FOREVER: u64 = u64::MAX;

/// How a [`Receiver`] is made.
pub struct Config {
    /// Memory for datagrams that wait, in bytes; at least 64 KiB. A datagram of 1400 bytes takes 1536. Pages are touched
    /// as they are needed, so a receiver that keeps up stays small.
    pub memory: usize,
    /// What goes when that is full, or a datagram expires.
    pub policy: Policy,
    /// The application's reading of a datagram: key and lifetime.
    pub classify: Option<Classify>,
    /// Longest datagram that the program expects, in bytes; longer ones are truncated, as by a short buffer. With `io_uring`
    /// each datagram has a place of this length, and these places take as much as `memory` again: the shorter, the more.
    pub longest: usize,
    /// What moves datagrams into the program's memory.
    pub backend: Backend,
    /// Receive datagrams of a sender several at a time where the path coalesces them (`UDP_GRO`). They are returned one by one
    /// all the same, by a thread instead of `io_uring`. Needs 256 KiB of `memory`. Off by default: it saves no processor time
    /// (`docs/push.md`).
    pub coalesces: bool,
    /// Size of the kernel's buffer, as `SO_RCVBUF` takes it; `None` for the largest that the system allows.
    pub kernel_buffer: Option<usize>,
    /// Called, on the pusher's thread, when the memory is three quarters full; again only after it was half empty.
    pub alarm: Option<fn()>,
}

impl Default for Config {
    /// 16 MiB, the kernel's policy, the largest buffer that the system allows.
    fn default() -> Self {
        Self {
            memory: 16 << 20,
            policy: Policy::default(),
            classify: None,
            longest: sys::DATAGRAM_MAX,
            backend: Backend::Auto,
            coalesces: false,
            kernel_buffer: None,
            alarm: None,
        }
    }
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Config")
            .field("memory", &self.memory)
            .field("policy", &self.policy)
            .field("kernel_buffer", &self.kernel_buffer)
            .finish_non_exhaustive()
    }
}

/// The choice of a [`Pump`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// `io_uring` where kernel and sandbox have it, the policy is [`Policy::Newest`] and nothing is coalesced, else a thread.
    #[default]
    Auto,
    /// A thread.
    Thread,
}

/// What moves datagrams into the program's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pump {
    /// `io_uring`, and a thread of this precedence for what it has no place for.
    IoUring(Precedence),
    /// A thread of the process, of this precedence.
    Thread(Precedence),
}

/// A datagram that was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Bytes in the caller's buffer.
    pub len: usize,
    /// Bytes of the datagram: more than `len` if the buffer was too small.
    pub datagram_len: usize,
    /// Where it came from.
    pub source: SocketAddr,
    /// When the kernel took it in; `CLOCK_MONOTONIC`, to which the kernel's stamp by `CLOCK_REALTIME` is converted.
    pub arrived: Timestamp,
    /// The two bits of explicit congestion notification.
    pub ecn: u8,
}

impl Received {
    /// Whether the end of the datagram was cut off because the caller's buffer was too small.
    pub fn is_truncated(&self) -> bool {
        self.len < self.datagram_len
    }
}

/// What became of datagrams, and what memory they take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statistics {
    /// What moves datagrams into the program's memory.
    pub pump: Pump,
    /// Why that is not `io_uring`.
    pub no_ring: Option<NoRing>,
    /// Why the kernel coalesces no datagrams: the error number, or zero if the configuration does not permit it.
    pub no_coalescing: Option<i32>,
    /// Datagrams that the kernel handed over together with others.
    pub coalesced: u64,
    /// Datagrams that the kernel dropped since the receiver was made, as `SO_RXQ_OVFL` counts them; modulo 2^32.
    pub kernel_drops: u32,
    /// Datagrams dropped in the program's memory, by reason.
    pub drops: Drops,
    /// Times that the kernel's buffer was emptied because it was above the threshold.
    pub pushes: u64,
    /// Datagrams that were moved so.
    pub pushed: u64,
    /// Times that the program's memory became three quarters full.
    pub alarms: u64,
    /// Datagrams that wait in the program's memory.
    pub waiting: usize,
    /// Memory for datagrams in bytes, what they occupy of it, and what they occupied at most.
    pub memory: usize,
    /// Bytes of it that are occupied.
    pub occupied: usize,
    /// The most that was occupied.
    pub peak: usize,
    /// Size of the kernel's buffer, by its accounting: twice what `SO_RCVBUF` was given.
    pub kernel_buffer: u32,
    /// Length of the kernel's buffer above which it is emptied, in the same bytes.
    pub threshold: u32,
}

/// A UDP socket whose datagrams wait in the program's memory.
///
/// All calls take `&self`, and several threads may receive. Dropping the receiver closes the socket; sending goes
/// through [`socket`](Self::socket). Nobody else may receive from the socket: it would take datagrams out of order.
/// After `fork` the receiver belongs to the parent.
#[derive(Debug)]
pub struct Receiver {
    socket: UdpSocket,
    pushed: Arc<PushedSocket>,
    pusher: Pusher,
    /// Readable while something waits in the program's memory; the pusher knows it by number.
    event: OwnedFd,
    /// Watches that and the socket.
    poll: OwnedFd,
    nonblocking: AtomicBool,
    /// Nanoseconds; [`FOREVER`] for none.
    timeout: AtomicU64,
    drops_before: u32,
    /// The ring's descriptor, to wait for; open as long as the receiver lives.
    ring: Option<RawFd>,
    offset: sys::Offset,
    no_ring: Option<NoRing>,
    no_coalescing: Option<i32>,
}

impl Receiver {
    /// A receiver with the default configuration.
    ///
    /// # Errors
    ///
    /// See [`with_config`](Self::with_config).
    pub fn new(socket: UdpSocket) -> io::Result<Self> {
        Self::with_config(socket, Config::default())
    }

    /// A receiver around a socket. What waits in the socket already is received first.
    ///
    /// # Errors
    ///
    /// A system call's: no descriptor or thread is left, or a requested buffer size was refused.
    pub fn with_config(socket: UdpSocket, config: Config) -> io::Result<Self> {
        let fd = socket.as_raw_fd();
        socket.set_nonblocking(false)?;
        enlarge(fd, config.kernel_buffer)?;
        sys::set_int(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)?;
        let v6 = sys::get_int(fd, libc::SOL_SOCKET, libc::SO_DOMAIN)? == libc::AF_INET6;
        sys::set_int(fd, libc::IPPROTO_IP, libc::IP_RECVTOS, 1)?;
        if v6 {
            sys::set_int(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1)?;
        }
        sys::set_timeout(fd, Duration::ZERO)?;
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&poll, &event, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        epoll::add(&poll, &socket, epoll::EventData::new_u64(1), epoll::EventFlags::IN)?;
        let no_coalescing = coalesce(fd, config.coalesces && config.memory >= COALESCED_MAX);
        let splits = no_coalescing.is_none();
        let ring = ring(fd, &config);
        let queue = Queue::new(config.memory, config.policy, config.classify);
        let rules = Rules { splits, after_push: Some(show), alarm: config.alarm, ..Rules::default() };
        let pushed = Arc::new(PushedSocket::new(fd, queue, rules)?);
        pushed.lock().event = Some(event.as_raw_fd());
        let (ring, no_ring) = match ring {
            Ok(ring) => (Some(ring), None),
            Err(reason) => (None, Some(reason)),
        };
        let ring_fd = ring.as_ref().map(Ring::fd);
        if let Some(ring) = ring_fd {
            // SAFETY: the ring is open until the receiver is dropped, and the poll descriptor goes with it.
            let ring = unsafe { BorrowedFd::borrow_raw(ring) };
            epoll::add(&poll, ring, epoll::EventData::new_u64(2), epoll::EventFlags::IN)?;
        }
        pushed.lock().ring = ring;
        let pusher = Pusher::global()?;
        pusher.add(Arc::clone(&pushed));
        Ok(Self {
            drops_before: sys::memory(fd)?.drops,
            socket,
            pushed,
            pusher,
            event,
            poll,
            ring: ring_fd,
            offset: sys::Offset::default(),
            no_ring,
            no_coalescing,
            nonblocking: AtomicBool::new(false),
            timeout: AtomicU64::new(FOREVER),
        })
    }

    /// The socket, to send and to set options. Not to receive.
    pub fn socket(&self) -> &UdpSocket {
        &self.socket
    }

    /// Receives without waiting from now on, or waits again. The socket itself stays as it is, so sends may block.
    pub fn set_nonblocking(&self, nonblocking: bool) {
        self.nonblocking.store(nonblocking, Ordering::Relaxed);
    }

    /// How long a receive waits; `None` for ever.
    ///
    /// # Errors
    ///
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) for a timeout of zero.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        if timeout.is_some_and(|timeout| timeout.is_zero()) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a timeout of 0 s would never end: use set_nonblocking",
            ));
        }
        let nanos = timeout.map_or(FOREVER, |timeout| u64::try_from(timeout.as_nanos()).unwrap_or(FOREVER));
        sys::set_timeout(self.pushed.fd(), timeout.unwrap_or_default())?;
        self.timeout.store(nanos, Ordering::Relaxed);
        Ok(())
    }

    /// Receives a datagram; the rest of one that is larger than the buffer is lost.
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if nothing came in time; else the socket's error, such as
    /// [`ConnectionRefused`](io::ErrorKind::ConnectionRefused) from a connected peer's machine.
    pub fn recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(self.take(buffer, Detail::Length, false)?.len)
    }

    /// Receives a datagram and where it came from.
    ///
    /// # Errors
    ///
    /// As [`recv`](Self::recv).
    pub fn recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let received = self.take(buffer, Detail::Source, false)?;
        Ok((received.len, received.source))
    }

    /// Receives a datagram with all that is known of it.
    ///
    /// # Errors
    ///
    /// As [`recv`](Self::recv).
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Received> {
        self.take(buffer, Detail::All, false)
    }

    /// Like [`receive`](Self::receive), but the datagram stays.
    ///
    /// # Errors
    ///
    /// As [`recv`](Self::recv).
    pub fn peek(&self, buffer: &mut [u8]) -> io::Result<Received> {
        self.take(buffer, Detail::All, true)
    }

    /// Receives a datagram if one waits, whatever [`set_nonblocking`](Self::set_nonblocking) says.
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if none does; else as [`recv`](Self::recv).
    pub fn try_receive(&self, buffer: &mut [u8]) -> io::Result<Received> {
        self.take_until(self.pushed.lock(), buffer, Detail::All, false, Timeout::None)
    }

    /// What became of datagrams so far.
    ///
    /// # Errors
    ///
    /// If the kernel does not tell of its buffer.
    pub fn statistics(&self) -> io::Result<Statistics> {
        let memory = sys::memory(self.pushed.fd())?;
        let mut state = self.pushed.lock();
        let (in_lanes, retired) =
            state.ring.as_mut().map_or((0, None), |ring| (ring.waiting(), ring.retired()));
        let no_ring = self.no_ring.or(retired);
        let precedence = self.pusher.precedence();
        Ok(Statistics {
            pump: if no_ring.is_some() { Pump::Thread(precedence) } else { Pump::IoUring(precedence) },
            no_ring,
            no_coalescing: self.no_coalescing,
            coalesced: state.counters.coalesced,
            kernel_drops: memory.drops.wrapping_sub(self.drops_before),
            drops: state.queue.drops(),
            pushes: state.counters.pushes,
            pushed: state.counters.pushed,
            alarms: state.counters.alarms,
            waiting: state.queue.len() + in_lanes,
            memory: state.queue.capacity(),
            occupied: state.queue.occupied(),
            peak: state.queue.peak(),
            kernel_buffer: memory.limit,
            threshold: state.threshold().level() as u32,
        })
    }

    fn take(&self, buffer: &mut [u8], detail: Detail, peek: bool) -> io::Result<Received> {
        let state = self.pushed.lock();
        let timeout = if self.nonblocking.load(Ordering::Relaxed) {
            Timeout::None
        } else {
            match self.timeout.load(Ordering::Relaxed) {
                FOREVER => Timeout::Endless,
                timeout => Timeout::For(Duration::from_nanos(timeout)),
            }
        };
        self.take_until(state, buffer, detail, peek, timeout)
    }

    fn take_until<'a>(
        &'a self,
        mut state: Guard<'a, State>,
        buffer: &mut [u8],
        detail: Detail,
        peek: bool,
        mut timeout: Timeout,
    ) -> io::Result<Received> {
        loop {
            if let Some(result) = self.take_posted(&mut state, buffer, detail, peek) {
                return result;
            }
            if let Some(result) = self.take_waiting(&mut state, buffer, (detail, peek), true) {
                return result;
            }
            if let Some(ring) = self.ring
                && wants_ring(&mut state)
            {
                if state.ring.as_mut().is_some_and(Ring::begin_wait) {
                    drop(state);
                    let ready = uring::wait(ring, timeout.left());
                    state = self.pushed.lock();
                    if let Some(waited) = state.ring.as_mut() {
                        waited.end_wait();
                    }
                    ready?;
                }
                continue;
            }
            // A thread in the kernel would not see the other datagrams of a message that another one receives.
            if state.queue.is_plain() && !peek && self.no_coalescing.is_some() {
                if let Some(received) = self.receive_direct(state, buffer, detail, &mut timeout)? {
                    return Ok(received);
                }
                state = self.pushed.lock();
                continue;
            }
            self.fill(&mut state)?;
            if let Some(result) = self.take_waiting(&mut state, buffer, (detail, peek), false) {
                return result;
            }
            state.waiters += 1;
            drop(state);
            let ready = self.wait(timeout.left());
            state = self.pushed.lock();
            state.waiters -= 1;
            show(&mut state);
            ready?;
        }
    }

    /// The oldest of what the kernel has put into a lane.
    fn take_posted(
        &self,
        state: &mut State,
        buffer: &mut [u8],
        detail: Detail,
        peek: bool,
    ) -> Option<io::Result<Received>> {
        let ring = state.ring.as_mut()?;
        let is_overtaken = ring.is_cancelled();
        let datagram = match ring.first()? {
            Ok(datagram) => datagram,
            Err(error) => return Some(Err(error)),
        };
        let notes = datagram.notes;
        let asks = is_overtaken || detail == Detail::All;
        let arrived = if asks { self.offset.arrived(notes) } else { Timestamp::MAX };
        // The pusher has received although the owner may have been in the middle of it.
        if is_overtaken && state.queue.head().is_some_and(|head| head.arrived < arrived) {
            return None;
        }
        let len = datagram.payload.len().min(buffer.len());
        buffer[..len].copy_from_slice(&datagram.payload[..len]);
        let received = source(&Name::new(datagram.name)).map(|source| Received {
            len,
            datagram_len: datagram.len,
            source,
            arrived,
            ecn: notes.ecn.unwrap_or(0),
        });
        if !peek {
            ring.consume();
            self.pushed.received(1);
        }
        Some(received)
    }

    /// Receives from the kernel into the caller's buffer, and waits there. While the caller blocks in the
    /// kernel, the pusher leaves the socket alone. `None` if a signal ended the wait.
    fn receive_direct(
        &self,
        state: Guard<'_, State>,
        buffer: &mut [u8],
        detail: Detail,
        timeout: &mut Timeout,
    ) -> io::Result<Option<Received>> {
        let flags = if matches!(timeout, Timeout::None) { libc::MSG_DONTWAIT } else { 0 };
        let inside = self.pushed.leave_for_kernel(state);
        let result = sys::receive_one(self.pushed.fd(), buffer, detail, flags);
        drop(inside);
        let received = result.and_then(|direct| {
            self.pushed.received(1);
            self.describe(&direct, buffer.len(), detail)
        });
        match received {
            Ok(received) => Ok(Some(received)),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                let is_over = timeout.left().is_some_and(|left| left.is_zero());
                if is_over { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(None) }
            }
            Err(error) => Err(error),
        }
    }

    fn describe(&self, direct: &sys::Direct, room: usize, detail: Detail) -> io::Result<Received> {
        let notes = sys::notes(direct.control());
        let arrived = if detail == Detail::All { self.offset.arrived(notes) } else { Timestamp::MAX };
        let source = match detail {
            Detail::Length => UNKNOWN,
            Detail::Source | Detail::All => source(&direct.name)?,
        };
        let ecn = notes.ecn.unwrap_or(0);
        Ok(Received { len: direct.len.min(room), datagram_len: direct.len, source, arrived, ecn })
    }

    /// Waits until something is there, in the kernel or here.
    fn wait(&self, left: Option<Duration>) -> io::Result<()> {
        let would_block = || io::Error::from(io::ErrorKind::WouldBlock);
        if left.is_some_and(|left| left.is_zero()) {
            return Err(would_block());
        }
        let timeout = left.map(|left| Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        });
        let mut ready = [PollFd::new(&self.socket, PollFlags::IN), PollFd::new(&self.event, PollFlags::IN)];
        match poll(&mut ready, timeout.as_ref()) {
            Ok(0) => Err(would_block()),
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// The oldest of what waits in the program's memory. `first`: nothing was asked of the kernel yet, so a policy that
    /// has to see everything takes nothing.
    fn take_waiting(
        &self,
        state: &mut State,
        buffer: &mut [u8],
        (detail, peek): (Detail, bool),
        first: bool,
    ) -> Option<io::Result<Received>> {
        if let Some(error) = state.error.take() {
            return Some(Err(io::Error::from_raw_os_error(error)));
        }
        if first && state.queue.looks_ahead() {
            return None;
        }
        if state.queue.may_expire() {
            state.queue.expire_front(sys::now());
        }
        let head = state.queue.head()?;
        let len = head.len.min(buffer.len());
        state.queue.copy(0, &mut buffer[..len]);
        let received = describe(&state.queue, &head, len, detail);
        if !peek {
            state.queue.pop();
            show(state);
        }
        Some(received)
    }

    /// Takes from the kernel what there is, a batch of it or, for a policy that compares, all.
    fn fill(&self, state: &mut State) -> io::Result<()> {
        let mut batch = match state.batch.take() {
            Some(batch) => batch,
            None => Batch::new(LANES),
        };
        let result = self.fill_from(state, &mut batch);
        state.batch = Some(batch);
        show(state);
        match result {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            result => result,
        }
    }

    fn fill_from(&self, state: &mut State, batch: &mut Batch) -> io::Result<()> {
        let rounds = if state.queue.looks_ahead() { ROUNDS } else { 1 };
        for _ in 0..rounds {
            let lanes = self.pushed.certain_room(state).clamp(1, batch.lanes());
            let received = batch.receive(self.pushed.fd(), lanes, libc::MSG_DONTWAIT)?;
            let (now, offset) = (sys::now(), sys::realtime_offset());
            let datagrams = self.pushed.take_in(state, batch, received, now, offset);
            self.pushed.received(datagrams);
            if received < lanes {
                break;
            }
        }
        Ok(())
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.pushed.close();
        // A push that is under way uses the descriptors: wait for it, and let no later one see the event.
        let mut state = self.pushed.lock();
        state.event = None;
        // The socket is closed after the ring: its request still names the descriptor.
        state.ring = None;
    }
}

impl AsFd for Receiver {
    /// A descriptor that is readable while a datagram waits, in the program's memory or in the kernel: to poll, not to
    /// read. The first call makes the receiver keep it up to date, which takes two system calls for each batch.
    fn as_fd(&self) -> BorrowedFd<'_> {
        let mut state = self.pushed.lock();
        state.polled = true;
        show(&mut state);
        self.poll.as_fd()
    }
}

impl std::os::fd::AsRawFd for Receiver {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

/// Asks the kernel to coalesce datagrams. Returns why it does not.
fn coalesce(socket: RawFd, wanted: bool) -> Option<i32> {
    if !wanted {
        // It may be the program's. A kernel that does not know the option coalesces nothing.
        let _ = sys::set_int(socket, libc::SOL_UDP, libc::UDP_GRO, 0);
        return Some(0);
    }
    let result = sys::set_int(socket, libc::SOL_UDP, libc::UDP_GRO, 1);
    result.err().map(|error| error.raw_os_error().unwrap_or(libc::EIO))
}

/// The ring of a receiver, or why there is none.
fn ring(socket: RawFd, config: &Config) -> Result<Ring, NoRing> {
    if config.backend == Backend::Thread {
        return Err(NoRing::NotWanted);
    }
    if config.coalesces {
        return Err(NoRing::Coalesces);
    }
    if !matches!(config.policy, Policy::Newest) || config.classify.is_some() {
        return Err(NoRing::Policy);
    }
    Ring::new(socket, config.memory, config.longest)
        .map_err(|error| NoRing::Refused(error.raw_os_error().unwrap_or(libc::EIO)))
}

/// Sees to it that the kernel receives for this thread, which found nothing. False if the thread has to receive by itself.
fn wants_ring(state: &mut State) -> bool {
    let Some(ring) = state.ring.as_mut() else { return false };
    if ring.is_armed() {
        // The request of a thread that has ended ends as well, a little later.
        if ring.owner() != sys::thread_id() && sys::is_running(ring.owner()) {
            ring.retire(NoRing::SecondThread);
            ring.cancel();
        }
        // Also after the end of a cancelled request only: what it received is older.
        return true;
    }
    if ring.retired().is_some() {
        return false;
    }
    match ring.arm() {
        Ok(()) => true,
        Err(error) => {
            ring.retire(NoRing::Refused(error.raw_os_error().unwrap_or(libc::EIO)));
            false
        }
    }
}

/// How long a receive waits. The clock is read when it has to, which is rare.
enum Timeout {
    None,
    For(Duration),
    Until(Timestamp),
    Endless,
}

impl Timeout {
    fn left(&mut self) -> Option<Duration> {
        if let Self::For(time) = *self {
            *self = Self::Until(sys::now() + time);
            return Some(time);
        }
        match self {
            Self::None => Some(Duration::ZERO),
            Self::Until(until) => Some(until.saturating_since(sys::now())),
            Self::For(_) | Self::Endless => None,
        }
    }
}

/// Makes the descriptor to poll show whether something waits.
fn show(state: &mut State) {
    let waits = (state.polled || state.waiters > 0) && !state.queue.is_empty();
    if let Some(event) = state.event
        && waits != state.signalled
    {
        sys::signal(event, waits);
        state.signalled = waits;
    }
}

/// Sets the size of the kernel's buffer, or the largest that is allowed.
fn enlarge(fd: RawFd, size: Option<usize>) -> io::Result<()> {
    let set = |name, size: usize| {
        sys::set_int(fd, libc::SOL_SOCKET, name, i32::try_from(size).unwrap_or(i32::MAX / 2))
    };
    if let Some(size) = size {
        return set(libc::SO_RCVBUF, size);
    }
    // With the privilege 64 MiB whatever the system's limit, without it as much as that limit.
    set(libc::SO_RCVBUFFORCE, 32 << 20).or_else(|_| set(libc::SO_RCVBUF, 32 << 20))
}

fn describe(queue: &Queue, head: &Head, len: usize, detail: Detail) -> io::Result<Received> {
    let mut received =
        Received { len, datagram_len: head.len, source: UNKNOWN, arrived: head.arrived, ecn: 0 };
    if detail >= Detail::Source {
        received.source = source(&head.name)?;
    }
    if detail == Detail::All {
        let mut control = [0; 256];
        let copied = queue.copy(head.len, &mut control);
        received.ecn = sys::notes(&control[..copied]).ecn.unwrap_or(0);
    }
    Ok(received)
}

fn source(name: &Name) -> io::Result<SocketAddr> {
    address(name).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the source is no IP address"))
}

fn address(name: &Name) -> Option<SocketAddr> {
    let bytes = name.as_bytes();
    let family = u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?);
    let port = u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?);
    if i32::from(family) == libc::AF_INET {
        let ip: [u8; 4] = bytes.get(4..8)?.try_into().ok()?;
        return Some(SocketAddrV4::new(Ipv4Addr::from(ip), port).into());
    }
    let flow = u32::from_ne_bytes(bytes.get(4..8)?.try_into().ok()?);
    let ip: [u8; 16] = bytes.get(8..24)?.try_into().ok()?;
    let scope = u32::from_ne_bytes(bytes.get(24..28)?.try_into().ok()?);
    Some(SocketAddrV6::new(Ipv6Addr::from(ip), port, flow, scope).into())
}

//! A socket whose buffer is emptied: what the program's calls and the pusher share.

use std::io;
use std::num::NonZeroUsize;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use freshwire_record::Timestamp;

use crate::lock::{Guard, Lock};
use crate::queue::{Arrival, COALESCED_MAX, MESSAGE_MAX, Name, Queue};
use crate::sys::{self, Batch, Memory};
use crate::threshold::Threshold;
use crate::uring::Ring;

/// The first check is in time for this rate of growth, in accounted bytes per second; no check allows for
/// more. It is 430,000 datagrams of 1400 bytes, for each of which the kernel accounts 2304.
const PREPARED_FOR: f64 = 1e9;
/// Later checks are in time for this multiple of the highest rate. A multiple of the mean rate, six, was tried: a sender that
/// catches up is faster (notebook, packet push). Twice the highest rate lost no less (notebook, push and its alternatives).
const ABOVE_PEAK: f64 = 1.3;
/// Time for which a late owner is treated as if it had no lanes: the rule measured in the notebook, packet
/// push; the value is chosen.
const WARY_SECONDS: f64 = 1.0;
/// Rates are measured over at least this time, which is about that to the next look. Over shorter times a burst of a few datagrams looks like a rate that nobody has to fear.
const WINDOW: Duration = Duration::from_millis(1);
/// The highest rate is forgotten with this time constant. Chosen, not measured.
const PEAK_SECONDS: f64 = 0.5;
/// Checks are at least this far apart: a wake-up costs 16 to 18 us on a virtual machine (notebook, packet
/// push), so at most a tenth of a processor.
const CHECK_MIN: Duration = Duration::from_micros(200);
/// And at most this far while datagrams come. Chosen, not measured.
const CHECK_MAX: Duration = Duration::from_millis(10);
/// A socket without arrivals for this long is no longer checked; the next arrival wakes the pusher. With it a
/// datagram cost 3.5 to 3.8 us instead of 9.1 us at 20,000/s (notebook, packet push).
const IDLE: Duration = Duration::from_millis(100);
/// Bytes that the kernel accounts for a datagram of 1400 bytes, until a push has measured them
/// (docs/push.md).
const ACCOUNTED: f64 = 2304.0;
/// Share of the buffer that is emptied if nobody has received since the last look. Waiting for the threshold takes two to
/// four looks, each of which costs more than the push.
const AWAY: f64 = 0.25;
/// Time to the next look when the program's memory is full: a program that takes a datagram in a microsecond has made room
/// for a buffer of hundreds by then.
const FULL: Duration = Duration::from_millis(1);
/// The longest wait of the pusher for a receiving thread, and the other way round. Chosen, not measured.
const PATIENCE: Duration = Duration::from_millis(2);
/// The longest wait for the state of a socket that is closed. A holder that waits for a processor on a busy machine
/// needs some of it; a holder that was stopped delays the `close()` by it. Chosen, not measured.
const CLOSE_PATIENCE: Duration = Duration::from_millis(100);
/// Time for which a thread that keeps the pusher from its work gets the pusher's precedence: a receive takes
/// a few microseconds. Chosen, not measured.
const LOAN: Duration = Duration::from_micros(50);
/// Batches that one push takes at most: arrivals that are faster than the pusher do not keep the lock for
/// ever. Chosen, not measured.
const ROUNDS: usize = 32;

/// How a [`PushedSocket`] treats its socket.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rules {
    /// Leave the newest datagram in the kernel's buffer. The socket stays readable for `poll` and its relatives as long
    /// as anything waits, in the kernel or in the program.
    pub keep_one: bool,
    /// The kernel may coalesce datagrams (`UDP_GRO`), which are taken apart here.
    pub splits: bool,
    /// Asked before each push; `false` postpones it.
    pub may_push: Option<fn() -> bool>,
    /// Called after each push, with the state locked.
    pub after_push: Option<fn(&mut State)>,
    /// Called when the program's memory is three quarters full, and not again before it is half empty.
    pub alarm: Option<fn()>,
}

/// Counters of a socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Times that the kernel's buffer was emptied because it was above the threshold.
    pub pushes: u64,
    /// Datagrams that came into the program's memory by a push.
    pub pushed: u64,
    /// Times that the program's memory became three quarters full.
    pub alarms: u64,
    /// Looks at the kernel's buffer.
    pub checks: u64,
    /// Datagrams that the kernel handed over together with others.
    pub coalesced: u64,
}

/// The state behind the lock.
#[derive(Debug)]
pub struct State {
    /// Datagrams in the program's memory.
    pub queue: Queue,
    /// An error of the socket that a push met: the next receive reports it.
    pub error: Option<i32>,
    /// Counters.
    pub counters: Counters,
    /// Descriptor that is readable while something waits here, and whether it is now.
    pub(crate) event: Option<RawFd>,
    pub(crate) signalled: bool,
    /// Whether somebody may wait for that descriptor at any time.
    pub(crate) polled: bool,
    /// Threads that wait for it now.
    pub(crate) waiters: u32,
    /// Buffers of the receiver's own calls.
    pub(crate) batch: Option<Batch>,
    /// The ring by which the kernel receives. Its datagrams are older than those in the queue.
    pub(crate) ring: Option<Ring>,
    /// The ring's owner got the pusher's precedence, and the buffer is above the threshold since.
    lent: bool,
    /// The owner was late within the last second.
    wary: f64,
    posted: usize,
    threshold: Threshold,
    alarmed: bool,
    checked: Timestamp,
    active: Timestamp,
    used: f64,
    native: u64,
    /// What the program had received from the kernel at the last push.
    pushed_at: Option<u64>,
    accounted: f64,
    peak: f64,
    /// Bytes that arrived since the last rate was measured, and in what time.
    window: (f64, Duration),
}

impl State {
    /// The threshold as it is now.
    pub fn threshold(&self) -> &Threshold {
        &self.threshold
    }

    fn watch_memory(&mut self, rules: &Rules) {
        let (occupied, capacity) = (self.queue.occupied(), self.queue.capacity());
        if occupied * 2 < capacity {
            self.alarmed = false;
        } else if !self.alarmed && occupied * 4 >= capacity * 3 {
            self.alarmed = true;
            self.counters.alarms += 1;
            if let Some(alarm) = rules.alarm {
                alarm();
            }
        }
    }
}

/// When to look at a socket again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextCheck {
    /// After this time.
    After(Duration),
    /// When a datagram comes.
    Arrival,
    /// Never: the descriptor belongs to another socket or to none.
    Never,
}

/// A socket whose buffer is emptied before it overflows.
#[derive(Debug)]
pub struct PushedSocket {
    fd: RawFd,
    cookie: u64,
    rules: Rules,
    state: Lock<State>,
    /// The thread that holds the lock is in the kernel's call.
    owner_in_kernel: AtomicBool,
    /// Threads in the kernel's call without the lock, and the last of them that went there.
    others_in_kernel: AtomicU32,
    last_in_kernel: AtomicU32,
    native: AtomicU64,
    closed: AtomicBool,
    /// Nanoseconds from one look to the next while nothing waits.
    pace: AtomicU64,
    /// What the pusher saw when it last could not lock: datagrams taken, and when that or the buffer last changed.
    seen_native: AtomicU64,
    seen_at: AtomicU64,
}

impl PushedSocket {
    /// The state of a UDP socket. The descriptor is not owned.
    ///
    /// # Errors
    ///
    /// If it is none.
    pub fn new(fd: RawFd, queue: Queue, rules: Rules) -> io::Result<Self> {
        let limit = sys::memory(fd)?.limit;
        let now = sys::now();
        Ok(Self {
            fd,
            cookie: sys::cookie(fd)?,
            rules,
            state: Lock::new(State {
                queue,
                error: None,
                counters: Counters::default(),
                event: None,
                signalled: false,
                polled: false,
                waiters: 0,
                batch: None,
                ring: None,
                lent: false,
                wary: 0.0,
                posted: 0,
                threshold: Threshold::new(f64::from(limit)),
                alarmed: false,
                checked: now,
                active: now,
                used: 0.0,
                native: 0,
                pushed_at: None,
                accounted: ACCOUNTED,
                peak: PREPARED_FOR / ABOVE_PEAK,
                window: (0.0, Duration::ZERO),
            }),
            owner_in_kernel: AtomicBool::new(false),
            others_in_kernel: AtomicU32::new(0),
            last_in_kernel: AtomicU32::new(0),
            native: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            pace: AtomicU64::new(0),
            seen_native: AtomicU64::new(0),
            seen_at: AtomicU64::new(now.as_nanos()),
        })
    }

    /// The descriptor.
    pub fn fd(&self) -> RawFd {
        self.fd
    }

    /// What tells this socket from others.
    pub fn cookie(&self) -> u64 {
        self.cookie
    }

    /// Locks the state, for a receiver that holds the lock in no call that blocks.
    pub fn lock(&self) -> Guard<'_, State> {
        self.state.lock()
    }

    /// Locks the state, if nobody holds it.
    pub fn try_lock(&self) -> Option<Guard<'_, State>> {
        self.state.try_lock()
    }

    /// Locks the state of a socket that is closed. `None` if a receive in the kernel's call holds it, or a stopped
    /// thread for longer than 100 ms.
    pub fn lock_at_close(&self) -> Option<Guard<'_, State>> {
        self.state.try_lock().or_else(|| {
            let in_kernel = self.owner_in_kernel.load(Ordering::SeqCst);
            if in_kernel { None } else { self.state.lock_within(CLOSE_PATIENCE) }
        })
    }

    /// Locks the state, unless a thread that holds the lock is in the kernel's call. Then nothing waits here, nothing
    /// is pushed before [`KernelCall`] is dropped, and the caller goes to the kernel as well.
    pub fn lock_or_follow(&self) -> Result<Guard<'_, State>, KernelCall<'_>> {
        loop {
            if let Some(guard) = self.state.try_lock() {
                return Ok(guard);
            }
            if !self.owner_in_kernel.load(Ordering::SeqCst) {
                // A push, or another thread that takes a datagram: short.
                if let Some(guard) = self.state.lock_within(PATIENCE) {
                    return Ok(guard);
                }
                continue;
            }
            self.others_in_kernel.fetch_add(1, Ordering::SeqCst);
            let others = KernelCall(self);
            // Still there: the pusher, which needs the lock first, will see us.
            if self.owner_in_kernel.load(Ordering::SeqCst) {
                return Err(others);
            }
        }
    }

    /// Makes the kernel's call with the lock held. The pusher waits for the lock when the buffer is above the
    /// threshold, and lends its precedence. So a thread that has to wait for a processor in the middle of its call
    /// gets one.
    pub fn in_kernel<T>(&self, guard: Guard<'_, State>, call: impl FnOnce() -> T) -> T {
        self.owner_in_kernel.store(true, Ordering::SeqCst);
        let returned = call();
        self.owner_in_kernel.store(false, Ordering::SeqCst);
        drop(guard);
        returned
    }

    /// Gives the lock back for a call in the kernel. Nothing is pushed before the returned value is dropped. The pusher lends
    /// its precedence to a thread that has lost its processor in that call.
    pub fn leave_for_kernel(&self, guard: Guard<'_, State>) -> KernelCall<'_> {
        self.last_in_kernel.store(sys::thread_id(), Ordering::Relaxed);
        self.others_in_kernel.fetch_add(1, Ordering::SeqCst);
        drop(guard);
        KernelCall(self)
    }

    /// Counts datagrams that were received from the kernel, past the program's memory.
    pub fn received(&self, datagrams: u64) {
        self.native.fetch_add(datagrams, Ordering::Relaxed);
    }

    /// The pusher forgets the socket.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// Looks at the kernel's buffer, and empties it if it is above the threshold. Returns when to look again, and whether
    /// datagrams were moved.
    pub fn check(&self, batch: &mut Batch, now: Timestamp) -> (NextCheck, bool) {
        if self.closed.load(Ordering::Acquire) {
            return (NextCheck::Never, false);
        }
        let Ok(memory) = sys::memory(self.fd) else { return (NextCheck::Never, false) };
        let native = self.native.load(Ordering::Relaxed);
        let used = f64::from(memory.used);
        // A quarter may be accounted for that is gone already. With less in the buffer nobody is waited for.
        let urgent = used > f64::from(memory.limit) / 2.0;
        let locked = if urgent { self.state.lock_within(PATIENCE) } else { self.state.try_lock() };
        let Some(mut state) = locked else {
            let next = self.next_without_lock(memory, native, now);
            return (if urgent { NextCheck::After(CHECK_MIN) } else { next }, false);
        };
        state.counters.checks += 1;
        // Nobody has received since the last look, or does now.
        let is_away = native == state.native
            && self.others_in_kernel.load(Ordering::SeqCst) == 0
            && state.ring.as_mut().is_none_or(Ring::is_over);
        self.learn(&mut state, memory, native, now);
        let mut pushed = false;
        let due = state.threshold.is_due(used);
        if let Some(thread) = self.obstacle(&mut state, used, due) {
            drop(state);
            sys::lend_precedence(thread, LOAN);
            return (NextCheck::After(Duration::ZERO), false);
        }
        if due || (is_away && used > state.threshold.limit() * AWAY) {
            if self.certain_room(&state) == 0 {
                // Only the program can make room.
                return (NextCheck::After(FULL), false);
            }
            match self.push(&mut state, batch, now) {
                Ok(moved) => pushed = moved > 0,
                Err(ReusedDescriptor) => return (NextCheck::Never, false),
            }
        }
        if now.saturating_since(state.active) > IDLE {
            state.queue.release();
            state.batch = None;
            return (NextCheck::Arrival, pushed);
        }
        // Free lanes are worth nothing while the owner does not run.
        let is_wary = state.wary > 0.0;
        let lanes = state.ring.as_mut().filter(|ring| ring.is_armed() && !is_wary).map_or(0, Ring::free);
        // In time for the overflow, which is nearer the fuller the buffer is.
        let room = state.threshold.level().min(state.threshold.limit() - state.used).max(0.0);
        let silence = (room + lanes as f64 * state.accounted) / (state.peak * ABOVE_PEAK);
        let longest = Duration::try_from_secs_f64(silence).unwrap_or(CHECK_MAX).clamp(CHECK_MIN, CHECK_MAX);
        self.pace.store(u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
        (NextCheck::After(longest), pushed)
    }

    /// When to look again if a thread of the program is in its receive, with the lock: it takes what comes by itself.
    fn next_without_lock(&self, memory: Memory, native: u64, now: Timestamp) -> NextCheck {
        if memory.used > 0 || self.seen_native.swap(native, Ordering::Relaxed) != native {
            self.seen_at.store(now.as_nanos(), Ordering::Relaxed);
        }
        let silent = now.saturating_since(Timestamp::from_nanos(self.seen_at.load(Ordering::Relaxed)));
        if silent > IDLE {
            return NextCheck::Arrival;
        }
        let pace = Duration::from_nanos(self.pace.load(Ordering::Relaxed));
        let room = 1.0 - f64::from(memory.used) / f64::from(memory.limit.max(1));
        NextCheck::After(pace.mul_f64(room.clamp(0.0, 1.0)).max(CHECK_MIN))
    }

    /// The thread that receives from the kernel by itself, so that a push would disturb the order, if it is late with that.
    fn obstacle(&self, state: &mut State, used: f64, due: bool) -> Option<u32> {
        if due && self.others_in_kernel.load(Ordering::SeqCst) > 0 {
            return Some(self.last_in_kernel.load(Ordering::Relaxed));
        }
        let limit = state.threshold.limit();
        let ring = state.ring.as_mut()?;
        if used < limit / 4.0 || ring.is_over() {
            state.lent = false;
            return None;
        }
        if !state.lent {
            state.lent = true;
            state.wary = WARY_SECONDS;
            return Some(ring.owner());
        }
        if due {
            // It does not even run with precedence: it is stopped, or waits for a disk.
            ring.cancel();
        }
        None
    }

    fn learn(&self, state: &mut State, memory: Memory, native: u64, now: Timestamp) {
        let used = f64::from(memory.used);
        let taken = native.wrapping_sub(state.native) as f64 * state.accounted;
        let posted = state.ring.as_mut().map_or(0, Ring::waiting);
        let growth = (used - state.used).max(0.0) + (posted as f64 - state.posted as f64) * state.accounted;
        let arrived = (growth + taken).max(0.0);
        state.posted = posted;
        state.threshold.resize(f64::from(memory.limit));
        let interval = now.saturating_since(state.checked);
        state.threshold.arrived(arrived, interval);
        state.wary = (state.wary - interval.max(CHECK_MIN).as_secs_f64()).max(0.0);
        let window = (state.window.0 + arrived, state.window.1 + interval);
        state.window = window;
        if window.1 >= WINDOW {
            let seconds = window.1.as_secs_f64();
            let remembered = state.peak * (1.0 - seconds / PEAK_SECONDS).max(0.0);
            state.peak = remembered.max(window.0 / seconds).min(PREPARED_FOR / ABOVE_PEAK);
            state.window = (0.0, Duration::ZERO);
        }
        if arrived > 0.0 {
            state.active = now;
        }
        state.checked = now;
        state.native = native;
        state.used = used;
    }

    fn push(&self, state: &mut State, batch: &mut Batch, now: Timestamp) -> Result<u64, ReusedDescriptor> {
        if sys::cookie(self.fd).ok() != Some(self.cookie) {
            return Err(ReusedDescriptor);
        }
        if self.rules.may_push.is_some_and(|may_push| !may_push()) {
            return Ok(0);
        }
        // A program that peeks by offset would meet ours.
        let peeks = self.rules.keep_one
            && sys::get_int(self.fd, libc::SOL_SOCKET, libc::SO_PEEK_OFF).is_ok_and(|offset| offset >= 0);
        if peeks {
            return Ok(0);
        }
        let before = state.used;
        let pushed = self.move_all(state, batch, now);
        let end = sys::now();
        state.threshold.pushed(end.saturating_since(now));
        state.used = sys::memory(self.fd).map_or(0.0, |memory| f64::from(memory.used));
        if pushed > 0 {
            state.counters.pushes += 1;
            state.counters.pushed += pushed;
            // The kernel may still account for datagrams that the program has received, up to a quarter of the buffer.
            let each = (before - state.used) / pushed as f64;
            if each > 0.0 && state.pushed_at == Some(state.native) {
                state.accounted = each;
            }
            state.pushed_at = Some(state.native);
            state.watch_memory(&self.rules);
            if let Some(after_push) = self.rules.after_push {
                after_push(state);
            }
        }
        Ok(pushed)
    }

    /// Moves everything, or all but one, into the program's memory. Returns how many datagrams.
    fn move_all(&self, state: &mut State, batch: &mut Batch, now: Timestamp) -> u64 {
        let lanes = batch.lanes();
        let offset = sys::realtime_offset();
        let mut moved = 0;
        for _ in 0..ROUNDS {
            // What finds no room is better kept by the kernel, as long as it can.
            let room = self.certain_room(state).min(lanes);
            if room == 0 {
                break;
            }
            let found = if self.rules.keep_one { self.count(state, batch) } else { lanes + 1 };
            let wanted = found.saturating_sub(1).min(room);
            if wanted == 0 {
                break;
            }
            let received = match batch.receive(self.fd, wanted, libc::MSG_DONTWAIT) {
                Ok(received) => received,
                Err(error) => {
                    remember(state, &error);
                    break;
                }
            };
            moved += self.take_in(state, batch, received, now, offset);
            if found < lanes || received < wanted {
                break;
            }
        }
        if self.rules.keep_one {
            // Nothing is left to do if it fails: the option is the socket's own again, or the socket is gone.
            let _ = sys::set_int(self.fd, libc::SOL_SOCKET, libc::SO_PEEK_OFF, -1);
        }
        moved
    }

    /// How many more messages of the kernel fit for certain.
    pub(crate) fn certain_room(&self, state: &State) -> usize {
        state.queue.certain_room(if self.rules.splits { COALESCED_MAX } else { MESSAGE_MAX })
    }

    /// Puts the first messages of a batch into the queue. `offset` is that of `CLOCK_REALTIME`. Returns how many datagrams they
    /// were.
    pub(crate) fn take_in(
        &self,
        state: &mut State,
        batch: &Batch,
        received: usize,
        now: Timestamp,
        offset: u64,
    ) -> u64 {
        let mut datagrams = 0;
        for lane in 0..received {
            let raw = batch.get(lane);
            let notes = sys::notes(raw.control);
            let arrival = Arrival {
                payload: raw.payload,
                control: raw.control,
                name: Name::new(raw.name),
                flags: raw.flags & !libc::MSG_TRUNC,
                arrived: notes.arrived(now, offset),
            };
            let count =
                push_each(&mut state.queue, &arrival, notes.segment.filter(|_| self.rules.splits), now);
            state.counters.coalesced += if count > 1 { count } else { 0 };
            datagrams += count;
        }
        datagrams
    }

    fn count(&self, state: &mut State, batch: &mut Batch) -> usize {
        if sys::set_int(self.fd, libc::SOL_SOCKET, libc::SO_PEEK_OFF, 0).is_err() {
            return 0;
        }
        batch.count(self.fd, batch.lanes()).unwrap_or_else(|error| {
            remember(state, &error);
            0
        })
    }
}

/// The descriptor belongs to another socket by now.
struct ReusedDescriptor;

/// A thread that is in the kernel's call while another one holds the lock there.
#[derive(Debug)]
pub struct KernelCall<'a>(&'a PushedSocket);

impl Drop for KernelCall<'_> {
    fn drop(&mut self) {
        self.0.others_in_kernel.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Keeps an error of the socket, which the call has taken from it, for the program's next receive.
fn remember(state: &mut State, error: &io::Error) {
    if error.kind() != io::ErrorKind::WouldBlock {
        state.error = error.raw_os_error();
    }
}

/// Puts a message into a queue, in datagrams of `segment` bytes if the kernel has coalesced them. Returns how many.
fn push_each(queue: &mut Queue, arrival: &Arrival<'_>, segment: Option<NonZeroUsize>, now: Timestamp) -> u64 {
    let Some(segment) = segment.filter(|segment| segment.get() < arrival.payload.len()) else {
        queue.push(arrival, now);
        return 1;
    };
    let datagrams = arrival.payload.chunks(segment.get());
    let count = datagrams.len() as u64;
    for payload in datagrams {
        queue.push(&Arrival { payload, ..*arrival }, now);
    }
    count
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::IntoRawFd as _;
    use std::sync::mpsc;

    use super::*;
    use crate::policy::Policy;

    fn pushed() -> PushedSocket {
        let fd = UdpSocket::bind("127.0.0.1:0").expect("bind").into_raw_fd();
        let queue = Queue::new(1 << 20, Policy::Newest, None);
        PushedSocket::new(fd, queue, Rules::default()).expect("a socket")
    }

    /// The report of a program lost a socket that the pusher was looking at when it was closed.
    #[test]
    fn a_close_waits_for_a_push_and_not_for_a_receive() {
        let pushed = pushed();
        let (locked, is_locked) = mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let guard = pushed.lock();
                locked.send(()).expect("the test waits");
                // Pause: a holder that waits for a processor.
                std::thread::sleep(Duration::from_millis(5));
                drop(guard);
            });
            is_locked.recv().expect("locked");
            assert!(pushed.lock_at_close().is_some());
        });
        let guard = pushed.lock();
        pushed.in_kernel(guard, || {
            std::thread::scope(|scope| {
                let closing = scope.spawn(|| pushed.lock_at_close().is_none());
                assert!(closing.join().expect("no panic"));
            });
        });
    }
}

//! A socket whose buffer is emptied: what the program's calls and the pusher share.

use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use freshwire_units::Timestamp;

use crate::queue::{Arrival, Name, Queue};
use crate::sys::{self, Batch, Memory};
use crate::threshold::Threshold;

/// Rate of growth, in accounted bytes per second, that a check after silence is in time for: 100,000 datagrams of
/// 1400 bytes, which the kernel accounts for with 2304 each.
const PREPARED_FOR: f64 = 1000e6;
/// Checks are at least this far apart.
const CHECK_MIN: Duration = Duration::from_micros(200);
/// And at most this far while datagrams come.
const CHECK_MAX: Duration = Duration::from_millis(10);
/// A socket without arrivals for this long is no longer checked; the next arrival wakes the pusher.
const IDLE: Duration = Duration::from_millis(100);
/// What the kernel accounts for with a datagram, until a push has measured it.
const ACCOUNTED: f64 = 2304.0;
/// Batches that one push takes at most: arrivals that are faster than the pusher do not keep the lock for ever.
const ROUNDS: usize = 32;

/// How a [`Pushed`] treats its socket.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rules {
    /// Leave the newest datagram in the kernel's buffer. The socket stays readable for `poll` and its relatives as long
    /// as anything waits, in the kernel or in the program.
    pub keep_one: bool,
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
}

/// What is locked.
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
    /// Whether somebody waits for that descriptor.
    pub(crate) polled: bool,
    threshold: Threshold,
    alarmed: bool,
    checked: Timestamp,
    active: Timestamp,
    used: f64,
    native: u64,
    accounted: f64,
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
pub enum Next {
    /// After this time.
    After(Duration),
    /// When a datagram comes.
    Arrival,
    /// Never: the descriptor belongs to another socket or to none.
    Never,
}

/// A socket whose buffer is emptied before it overflows.
#[derive(Debug)]
pub struct Pushed {
    fd: RawFd,
    cookie: u64,
    rules: Rules,
    state: Mutex<State>,
    in_kernel: AtomicU32,
    native: AtomicU64,
    closed: AtomicBool,
}

impl Pushed {
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
            state: Mutex::new(State {
                queue,
                error: None,
                counters: Counters::default(),
                event: None,
                signalled: false,
                polled: false,
                threshold: Threshold::new(f64::from(limit)),
                alarmed: false,
                checked: now,
                active: now,
                used: 0.0,
                native: 0,
                accounted: ACCOUNTED,
            }),
            in_kernel: AtomicU32::new(0),
            native: AtomicU64::new(0),
            closed: AtomicBool::new(false),
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

    /// Locks the state.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A thread is about to receive from the socket itself. Needs the lock, so that a push is not under way: while a
    /// thread is in the kernel nothing is pushed, because it takes the datagrams, and in order.
    pub fn enter_kernel(&self, _locked: &State) {
        self.in_kernel.fetch_add(1, Ordering::Relaxed);
    }

    /// The thread is back with so many datagrams.
    pub fn leave_kernel(&self, received: u64) {
        self.native.fetch_add(received, Ordering::Relaxed);
        self.in_kernel.fetch_sub(1, Ordering::Release);
    }

    /// The pusher forgets the socket.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// Looks at the kernel's buffer, and empties it if it is above the threshold. Returns when to look again, and whether
    /// datagrams were moved.
    pub fn check(&self, batch: &mut Batch, now: Timestamp) -> (Next, bool) {
        if self.closed.load(Ordering::Acquire) {
            return (Next::Never, false);
        }
        let Ok(memory) = sys::memory(self.fd) else { return (Next::Never, false) };
        let native = self.native.load(Ordering::Relaxed);
        let mut state = self.lock();
        state.counters.checks += 1;
        self.learn(&mut state, memory, native, now);
        let mut pushed = false;
        if state.threshold.is_due(f64::from(memory.used)) && self.in_kernel.load(Ordering::Acquire) == 0 {
            match self.push(&mut state, batch, now) {
                Ok(moved) => pushed = moved > 0,
                Err(Gone) => return (Next::Never, false),
            }
        }
        if now.saturating_since(state.active) > IDLE {
            state.queue.release();
            return (Next::Arrival, pushed);
        }
        let silence = state.threshold.level() / PREPARED_FOR;
        let left = state.threshold.time_left(state.used) / 2;
        let longest = Duration::try_from_secs_f64(silence).unwrap_or(CHECK_MAX).clamp(CHECK_MIN, CHECK_MAX);
        (Next::After(left.clamp(CHECK_MIN, longest)), pushed)
    }

    fn learn(&self, state: &mut State, memory: Memory, native: u64, now: Timestamp) {
        let used = f64::from(memory.used);
        let taken = native.wrapping_sub(state.native) as f64 * state.accounted;
        let arrived = (used - state.used).max(0.0) + taken;
        state.threshold.resize(f64::from(memory.limit));
        state.threshold.arrived(arrived, now.saturating_since(state.checked));
        if arrived > 0.0 {
            state.active = now;
        }
        state.checked = now;
        state.native = native;
        state.used = used;
    }

    fn push(&self, state: &mut State, batch: &mut Batch, now: Timestamp) -> Result<u64, Gone> {
        if sys::cookie(self.fd).ok() != Some(self.cookie) {
            return Err(Gone);
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
            let each = (before - state.used) / pushed as f64;
            if each > 0.0 {
                state.accounted = each;
            }
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
            let room = state.queue.certain_room().min(lanes);
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
            take_in(&mut state.queue, batch, received, now, offset);
            moved += received as u64;
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
struct Gone;

/// Keeps an error of the socket, which the call has taken from it, for the program's next receive.
fn remember(state: &mut State, error: &io::Error) {
    if error.kind() != io::ErrorKind::WouldBlock {
        state.error = error.raw_os_error();
    }
}

/// Puts the first datagrams of a batch into a queue. `offset` is that of `CLOCK_REALTIME`.
pub(crate) fn take_in(queue: &mut Queue, batch: &Batch, received: usize, now: Timestamp, offset: u64) {
    for lane in 0..received {
        let raw = batch.get(lane);
        let stamped = sys::notes(raw.control).stamped;
        let arrived = stamped.map_or(now, |stamped| {
            let nanos = u64::try_from(stamped.as_nanos()).unwrap_or(u64::MAX);
            Timestamp::from_nanos(nanos.saturating_sub(offset)).min(now)
        });
        let arrival = Arrival {
            payload: raw.payload,
            control: raw.control,
            name: Name::new(raw.name),
            flags: raw.flags & !libc::MSG_TRUNC,
            arrived,
        };
        queue.push(&arrival, now);
    }
}

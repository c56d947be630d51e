//! The thread that empties sockets' buffers while the program is busy. One serves all sockets of a process.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use freshwire_record::Timestamp;
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};

use crate::pushed::{NextCheck, PushedSocket};
use crate::sys::{self, Batch, Precedence};

/// Datagrams that one system call moves. Chosen, not measured.
const LANES: usize = 64;
/// Looking at sockets takes at most a quarter of a processor (docs/push.md): the thread sleeps three times as
/// long as that took. Pushes do not count.
const REST: u32 = 3;
/// Shorter rests are not worth a system call: a wake-up costs 16 to 18 us on a virtual machine (notebook,
/// packet push).
const REST_MIN: Duration = Duration::from_micros(100);
/// The key of the descriptor that wakes the thread for new sockets.
const INBOX: u64 = u64::MAX;

/// A handle to the thread.
#[derive(Clone, Debug)]
pub struct Pusher {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    epoll: OwnedFd,
    wake: OwnedFd,
    inbox: Mutex<Vec<Arc<PushedSocket>>>,
    gate: Mutex<()>,
    precedence: OnceLock<Precedence>,
}

impl Pusher {
    /// Starts a thread. `high` keeps its two descriptors away from the numbers that a program gets next.
    ///
    /// # Errors
    ///
    /// If the system has no descriptor or thread left.
    pub fn spawn(high: bool) -> io::Result<Self> {
        let place = |fd: OwnedFd| if high { out_of_the_way(&fd) } else { Ok(fd) };
        let shared = Arc::new(Shared {
            epoll: place(epoll::create(epoll::CreateFlags::CLOEXEC)?)?,
            wake: place(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)?,
            inbox: Mutex::default(),
            gate: Mutex::default(),
            precedence: OnceLock::new(),
        });
        let data = epoll::EventData::new_u64(INBOX);
        epoll::add(&shared.epoll, &shared.wake, data, epoll::EventFlags::IN)?;
        let own = Arc::clone(&shared);
        std::thread::Builder::new().name("freshwire-push".to_owned()).spawn(move || {
            sys::block_signals();
            let _ = own.precedence.set(sys::take_precedence());
            Thread::new(own).run();
        })?;
        Ok(Self { shared })
    }

    /// The process's thread for [`Receiver`](crate::Receiver)s, started at the first call.
    ///
    /// # Errors
    ///
    /// If it cannot be started.
    pub fn global() -> io::Result<Self> {
        static GLOBAL: OnceLock<Pusher> = OnceLock::new();
        if let Some(pusher) = GLOBAL.get() {
            return Ok(pusher.clone());
        }
        let new = Self::spawn(false)?;
        Ok(GLOBAL.get_or_init(|| new).clone())
    }

    /// The socket's buffer is emptied from now on, until it is closed.
    pub fn add(&self, pushed: Arc<PushedSocket>) {
        self.shared.inbox.lock().unwrap_or_else(PoisonError::into_inner).push(pushed);
        // A full counter wakes the thread as well.
        let _ = rustix::io::write(&self.shared.wake, &1_u64.to_ne_bytes());
    }

    /// Keeps the thread from touching any socket as long as the guard lives.
    pub fn pause(&self) -> MutexGuard<'_, ()> {
        self.shared.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The precedence of the thread; what it is at first until it has run.
    pub fn precedence(&self) -> Precedence {
        self.shared.precedence.get().copied().unwrap_or_default()
    }

    /// The thread's descriptors.
    pub fn descriptors(&self) -> [RawFd; 2] {
        [self.shared.epoll.as_raw_fd(), self.shared.wake.as_raw_fd()]
    }
}

/// Moves a descriptor to a high number.
fn out_of_the_way(fd: &OwnedFd) -> io::Result<OwnedFd> {
    Ok(rustix::io::fcntl_dupfd_cloexec(fd, sys::high_descriptor())?)
}

struct Slot {
    pushed: Arc<PushedSocket>,
    watched: bool,
}

struct Thread {
    shared: Arc<Shared>,
    slots: Vec<Option<Slot>>,
    spare: Vec<usize>,
    due: BinaryHeap<Reverse<(Timestamp, usize)>>,
    batch: Batch,
}

impl Thread {
    fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            slots: Vec::new(),
            spare: Vec::new(),
            due: BinaryHeap::new(),
            batch: Batch::new(LANES),
        }
    }

    fn run(&mut self) {
        let mut events = Vec::with_capacity(64);
        loop {
            let timeout = self.due.peek().map(|Reverse((due, _))| due.saturating_since(sys::now()));
            let timeout = timeout.map(timespec);
            events.clear();
            let buffer = rustix::buffer::spare_capacity(&mut events);
            match epoll::wait(&self.shared.epoll, buffer, timeout.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                // The program has closed our descriptors: nothing can be done any more.
                Err(_) => return,
            }
            let now = sys::now();
            for event in &events {
                let key = event.data.u64();
                if key == INBOX {
                    self.take_new(now);
                } else if let Some(index) = usize::try_from(key).ok()
                    && self.slots.get(index).is_some_and(Option::is_some)
                {
                    self.due.push(Reverse((now, index)));
                }
            }
            let rest = self.check_due(now) * REST;
            if rest >= REST_MIN {
                std::thread::sleep(rest);
            }
        }
    }

    /// Looks at all sockets that are due. Returns how long that took, without the pushes.
    fn check_due(&mut self, now: Timestamp) -> Duration {
        let shared = Arc::clone(&self.shared);
        let _open = shared.gate.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut begin, mut looked) = (now, Duration::ZERO);
        while let Some(&Reverse((due, index))) = self.due.peek()
            && due <= now
        {
            self.due.pop();
            let pushed = self.check(index);
            let end = sys::now();
            if !pushed {
                looked += end.saturating_since(begin);
            }
            begin = end;
        }
        looked
    }

    fn take_new(&mut self, now: Timestamp) {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.shared.wake, &mut count);
        let new = std::mem::take(&mut *self.shared.inbox.lock().unwrap_or_else(PoisonError::into_inner));
        for pushed in new {
            let slot = Some(Slot { pushed, watched: false });
            let index = if let Some(index) = self.spare.pop() {
                self.slots[index] = slot;
                index
            } else {
                self.slots.push(slot);
                self.slots.len() - 1
            };
            self.due.push(Reverse((now, index)));
        }
    }

    /// Looks at one socket. Returns whether datagrams were moved.
    fn check(&mut self, index: usize) -> bool {
        let Some(slot) = self.slots.get_mut(index).and_then(Option::as_mut) else { return false };
        let now = sys::now();
        let (next, pushed) = slot.pushed.check(&mut self.batch, now);
        let next = match next {
            NextCheck::Arrival => watch(&self.shared.epoll, slot, index),
            next => next,
        };
        match next {
            NextCheck::After(time) => self.due.push(Reverse((now + time, index))),
            NextCheck::Arrival => {}
            NextCheck::Never => {
                self.slots[index] = None;
                self.spare.push(index);
            }
        }
        pushed
    }
}

/// Wakes the thread at the next arrival.
fn watch(epoll: &OwnedFd, slot: &mut Slot, index: usize) -> NextCheck {
    let flags = epoll::EventFlags::IN | epoll::EventFlags::ONESHOT;
    let data = epoll::EventData::new_u64(index as u64);
    // SAFETY: the descriptor is the program's and may be closed at any moment; then the call fails, or watches another
    // one, which the next check notices by its cookie. No memory depends on it.
    let fd = unsafe { BorrowedFd::borrow_raw(slot.pushed.fd()) };
    let result =
        if slot.watched { epoll::modify(epoll, fd, data, flags) } else { epoll::add(epoll, fd, data, flags) };
    slot.watched = true;
    match result {
        Ok(()) => NextCheck::Arrival,
        // A descriptor that was closed and made again is unknown to the epoll.
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::EXIST) => {
            slot.watched = false;
            NextCheck::After(Duration::from_millis(10))
        }
        Err(_) => NextCheck::Never,
    }
}

fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(time.subsec_nanos()),
    }
}

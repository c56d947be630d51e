//! The driver's lock and its threads. The model compiles this file a second time, with loom's lock and condition variables.

use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::{PoisonError, TryLockError};
use std::time::Duration;

use freshwire_record::Timestamp;

use super::burst::BurstDetector;
use super::busy_poll::{BusyPoll, PollMode};
use super::state::{Claim, Interest, State};
use super::sync::{AtomicBool, Condvar, Mutex, MutexGuard, Ordering, spin_loop, yield_now};
use super::times::{DEFERRAL, MAX_DEFERRALS};

/// Token of the node's own socket.
pub(in crate::a1) const SOCKET: u64 = 0;

/// The driven protocol: the connections and groups of a node. Called with the driver's lock held.
pub(in crate::a1) trait Protocol {
    /// The socket whose datagrams it takes in.
    type Socket;

    fn socket(&self) -> &Self::Socket;

    /// Takes in the datagrams that the socket has. False: it has none. `clock` tells the time.
    fn receive(&mut self, clock: &dyn Fn() -> Timestamp) -> bool;

    /// Takes in what another socket has: that of a group or of a TCP connection, with this token.
    fn receive_other(&mut self, clock: &dyn Fn() -> Timestamp, token: u64);

    /// The node's thread has woken up. Looks at every ring if a producer may have called, since a call names
    /// no ring, or if the last look is long ago.
    fn on_wake_up(&mut self, now: Timestamp, is_called: bool);

    /// Does what is due, and sends what there is to send and room for.
    fn advance(&mut self, now: Timestamp);

    /// When [`Self::advance`] has work, the past if at once.
    fn due(&self, now: Timestamp) -> Timestamp;

    /// Whether datagrams wait for room in the socket.
    fn is_blocked(&self) -> bool;

    fn is_stopped(&self) -> bool;

    /// The socket has failed.
    fn fail(&mut self, now: Timestamp, error: &io::Error);

    fn activity(&mut self) -> &mut Activity;
}

/// The pollers of the driver. Two watch the same socket: one for the node's thread, one for the application's
/// thread that drives the socket. Each has its own waker.
pub(in crate::a1) trait Platform<S> {
    fn now(&self) -> Timestamp;

    /// Waits as the node's thread. Appends the tokens of the sockets that have datagrams; true: it was woken.
    fn wait_node(&self, timeout: Option<Duration>, readable: &mut Vec<u64>) -> io::Result<bool>;

    /// Waits for datagrams as a thread of the application. False: it was woken, or the time is over.
    fn wait_application(&self, timeout: Duration) -> io::Result<bool>;

    fn wake_node(&self);

    fn wake_application(&self);

    /// Lets the node's poller watch the socket for this.
    fn watch(&self, socket: &S, interest: Interest) -> io::Result<()>;
}

/// Events that threads may wait for, and the number of waiting threads. Notifying costs a system call even if nobody waits, so it is
/// left out then.
#[derive(Default)]
pub(in crate::a1) struct Activity {
    /// How often something has happened.
    pub(in crate::a1) count: u64,
    /// Threads of the application that sleep until they are notified.
    waiting: usize,
    is_new: bool,
}

impl Activity {
    /// Something has happened that a thread may wait for without knowing the connection.
    pub(in crate::a1) fn note(&mut self) {
        self.count += 1;
        self.is_new = true;
    }

    /// The same, and notifies the threads that wait for this connection.
    pub(in crate::a1) fn note_at(&mut self, changed: &Condvar) {
        self.note();
        if self.waiting > 0 {
            changed.notify_all();
        }
    }

    /// Whether something has happened since the last call.
    fn take_new(&mut self) -> bool {
        std::mem::take(&mut self.is_new)
    }
}

/// The state that a node's thread and the application's threads share.
pub(in crate::a1) struct Driver<C, P> {
    locked: Mutex<Locked<C>>,
    platform: P,
    /// Notified when the core's activity has gone on.
    active: Condvar,
    /// Copy of [`State::is_application_driving`] for the node's thread, which reads it without the lock: a hint whether the lock's
    /// holder keeps it busy.
    is_application_driving: AtomicBool,
}

/// The core, and who drives it.
pub(in crate::a1) struct Locked<C> {
    state: State,
    busy_poll: BusyPoll,
    bursts: BurstDetector,
    core: C,
}

/// The driver's lock.
pub(in crate::a1) type Guard<'a, C> = MutexGuard<'a, Locked<C>>;

impl<C> Deref for Locked<C> {
    type Target = C;

    fn deref(&self) -> &C {
        &self.core
    }
}

impl<C> DerefMut for Locked<C> {
    fn deref_mut(&mut self) -> &mut C {
        &mut self.core
    }
}

impl<C: Protocol> Locked<C> {
    /// Whether responses to the last datagrams were put off.
    pub(in crate::a1) fn owes_responses(&self) -> bool {
        self.state.owes_responses()
    }

    fn advance(&mut self, now: Timestamp) {
        self.state.advanced();
        self.core.advance(now);
    }

    fn must_wake_node_thread(&self, now: Timestamp) -> bool {
        self.state.must_wake_node_thread(now, self.core.due(now), self.core.is_blocked())
    }
}

impl<C: Protocol, P: Platform<C::Socket>> Driver<C, P> {
    /// A thread has to call [`Self::serve`]. The node's poller watches the socket for datagrams.
    pub(in crate::a1) fn new(core: C, platform: P, busy_poll: BusyPoll) -> Self {
        let bursts = BurstDetector::default();
        Self {
            locked: Mutex::new(Locked { state: State::new(), busy_poll, bursts, core }),
            platform,
            active: Condvar::new(),
            is_application_driving: AtomicBool::new(false),
        }
    }

    pub(in crate::a1) fn platform(&self) -> &P {
        &self.platform
    }

    /// Notified when something has happened that a thread may wait for without knowing the connection.
    pub(in crate::a1) fn active(&self) -> &Condvar {
        &self.active
    }

    pub(in crate::a1) fn lock(&self) -> Guard<'_, C> {
        self.locked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None`: another thread has it.
    fn try_lock(&self) -> Option<Guard<'_, C>> {
        match self.locked.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn is_application_driving(&self) -> bool {
        self.is_application_driving.load(Ordering::Relaxed)
    }

    /// Does something, sends what follows from it, and wakes the node's thread if it has to know.
    pub(in crate::a1) fn act<T>(&self, act: impl FnOnce(&mut C, Timestamp) -> T) -> T {
        let mut guard = self.lock();
        let now = self.platform.now();
        let result = act(&mut guard, now);
        self.finish(guard, now);
        result
    }

    /// Sends what follows from what was done to the core.
    pub(in crate::a1) fn finish(&self, mut guard: Guard<'_, C>, now: Timestamp) {
        guard.advance(now);
        self.conclude(guard, now);
    }

    /// A producer has pushed to a ring, which `mark` marks. Serves it on the producer's thread, unless another thread holds the lock,
    /// or the producer is in a burst.
    pub(in crate::a1) fn push(&self, mark: impl FnOnce(&mut C)) {
        let Some(mut guard) = self.try_lock() else { return self.platform.wake_node() };
        mark(&mut guard);
        let called = self.platform.now();
        if guard.bursts.is_burst(called) {
            drop(guard);
            return self.platform.wake_node();
        }
        guard.advance(called);
        let served = self.platform.now();
        guard.bursts.served(called, served);
        self.conclude(guard, called);
    }

    fn conclude(&self, mut guard: Guard<'_, C>, now: Timestamp) {
        self.notify(&mut guard);
        let must_wake = guard.must_wake_node_thread(now);
        drop(guard);
        if must_wake {
            self.platform.wake_node();
        }
    }

    /// The node's thread.
    pub(in crate::a1) fn serve(&self) {
        let (mut readable, mut is_called, mut deferrals) = (Vec::new(), false, 0);
        loop {
            let timeout = if let Some(guard) = self.lock_for_round(is_called, deferrals) {
                deferrals = 0;
                let Some(timeout) = self.round(guard, std::mem::take(&mut is_called), &readable) else {
                    return;
                };
                timeout
            } else {
                deferrals += 1;
                Some(DEFERRAL)
            };
            readable.clear();
            match self.platform.wait_node(timeout, &mut readable) {
                Ok(is_woken) => is_called |= is_woken,
                Err(error) => {
                    let mut guard = self.lock();
                    guard.fail(self.platform.now(), &error);
                    return self.notify(&mut guard);
                }
            }
        }
    }

    /// The lock; `None` if it is better left to an application's thread that drives the socket, and does what is due. See [`DEFERRAL`].
    fn lock_for_round(&self, is_called: bool, deferrals: u32) -> Option<Guard<'_, C>> {
        let may_defer = !is_called && deferrals < MAX_DEFERRALS && self.is_application_driving();
        if may_defer { self.try_lock() } else { Some(self.lock()) }
    }

    /// Does what is due; how long to wait for more, `None` at the end.
    fn round(&self, mut guard: Guard<'_, C>, is_called: bool, readable: &[u64]) -> Option<Option<Duration>> {
        guard.state.awake();
        guard.core.on_wake_up(self.platform.now(), is_called);
        if guard.is_stopped() {
            return None;
        }
        let clock = || self.platform.now();
        for token in readable {
            match *token {
                SOCKET => _ = guard.receive(&clock),
                other => guard.receive_other(&clock, other),
            }
        }
        let now = clock();
        guard.state.take_over();
        guard.advance(now);
        self.watch(&mut guard, now);
        self.notify(&mut guard);
        let due = guard.due(now);
        Some(guard.state.sleep(now, due))
    }

    /// Waits until `is_done`, which is asked each time that something happens, at most until `give_up`. `changed` is notified of what
    /// the caller waits for.
    pub(in crate::a1) fn wait<'a>(
        &'a self,
        mut guard: Guard<'a, C>,
        changed: &Condvar,
        give_up: Timestamp,
        mut is_done: impl FnMut(&mut C) -> bool,
    ) -> Guard<'a, C> {
        let (mut is_driving, mut owes_responses) = (false, false);
        while !is_done(&mut guard) {
            let now = self.platform.now();
            if std::mem::take(&mut owes_responses) {
                self.respond(&mut guard, now);
                continue;
            }
            let left = give_up.saturating_since(now);
            if left.is_zero() {
                break;
            }
            if is_driving {
                (guard, owes_responses) = self.drive(guard, left);
                continue;
            }
            match guard.state.claim() {
                Claim::Granted => {
                    is_driving = true;
                    self.is_application_driving.store(true, Ordering::Relaxed);
                    self.watch(&mut guard, now);
                }
                // The application had no reply to what it took.
                Claim::RespondFirst => self.respond(&mut guard, now),
                Claim::Taken => {
                    guard.activity().waiting += 1;
                    guard = changed.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner).0;
                    guard.activity().waiting -= 1;
                }
            }
        }
        if is_driving {
            self.release(&mut guard, owes_responses);
        }
        guard
    }

    /// The caller stops driving the socket.
    fn release(&self, guard: &mut Guard<'_, C>, owes_responses: bool) {
        let now = self.platform.now();
        guard.state.release(now, owes_responses);
        self.is_application_driving.store(false, Ordering::Relaxed);
        if !owes_responses {
            self.watch(guard, now);
        }
        self.wake_if_due(guard, now);
    }

    /// Waits for datagrams in place of the node's thread and takes them in. True: responses are owed.
    fn drive<'a>(&'a self, guard: Guard<'a, C>, timeout: Duration) -> (Guard<'a, C>, bool) {
        let began = self.platform.now();
        self.wake_if_due(&guard, began);
        let (mut guard, mut came) = self.poll(guard, began);
        if !came {
            drop(guard);
            let asleep = self.platform.now();
            let result = self.platform.wait_application(timeout);
            guard = self.lock();
            let woke = self.platform.now();
            match result {
                Ok(is_readable) => came = is_readable && guard.receive(&|| self.platform.now()),
                Err(error) => guard.fail(woke, &error),
            }
            if came {
                guard.busy_poll.slept(woke.saturating_since(asleep));
            }
        }
        self.notify_sleepers(&mut guard);
        (guard, came)
    }

    /// Sends what follows from what came to the thread that drives the socket.
    fn respond(&self, guard: &mut Guard<'_, C>, now: Timestamp) {
        guard.advance(now);
        self.notify_sleepers(guard);
    }

    /// Polls the socket for a little while, if that has paid, and takes in what comes. It yields only where it has to: on a busy
    /// machine it would not get the processor back when something comes, as a thread that sleeps does.
    fn poll<'a>(&'a self, mut guard: Guard<'a, C>, began: Timestamp) -> (Guard<'a, C>, bool) {
        let Some((mode, limit)) = guard.busy_poll.begin() else { return (guard, false) };
        loop {
            if mode == PollMode::Yielding {
                drop(guard);
                yield_now();
                guard = self.lock();
            }
            let took = self.platform.now().saturating_since(began);
            let came = guard.receive(&|| self.platform.now());
            if came || took >= limit {
                guard.busy_poll.ended(came, took);
                return (guard, came);
            }
            if mode == PollMode::Spinning {
                drop(guard);
                spin_loop();
                guard = self.lock();
            }
        }
    }

    fn wake_if_due(&self, guard: &Guard<'_, C>, now: Timestamp) {
        if guard.must_wake_node_thread(now) {
            self.platform.wake_node();
        }
    }

    /// Lets the node's poller watch the socket for what it has to.
    fn watch(&self, guard: &mut Guard<'_, C>, now: Timestamp) {
        let is_blocked = guard.is_blocked();
        let Some(interest) = guard.state.change_interest(is_blocked) else { return };
        if let Err(error) = self.platform.watch(guard.socket(), interest) {
            guard.fail(now, &error);
        }
    }

    /// Notifies the threads that wait for what has happened.
    fn notify(&self, guard: &mut Guard<'_, C>) {
        if self.notify_sleepers(guard) && self.is_application_driving() {
            self.platform.wake_application();
        }
    }

    /// As [`Self::notify`], but for the one that drives the socket. False: nothing has happened.
    fn notify_sleepers(&self, guard: &mut Guard<'_, C>) -> bool {
        let is_new = guard.activity().take_new();
        if is_new && guard.activity().waiting > 0 {
            self.active.notify_all();
        }
        is_new
    }
}

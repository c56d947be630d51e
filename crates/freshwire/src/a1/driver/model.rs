//! Every interleaving of the driver's threads, with loom: no datagram is left while everybody sleeps, and no thread is left asleep when
//! what it waits for is there. Loom reports either as a deadlock.
//!
//! The threads' code and the state machine are those of production, with loom's lock, condition variables and
//! atomics. The socket, the two pollers and the clock are a [`World`]; the protocol is a [`Count`] of records. A poll
//! without a time limit sleeps until it is woken. One with a limit ends at once and moves the clock by more than the
//! limit, as on a slow machine. The periodic look at every ring, which would end any sleep after a second, is left
//! out.
//!
//! A [`Fault`] takes one kind of wake-up away. The model finds each of them, which is the test of the model.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use freshwire_record::Timestamp;
use loom::sync::{Condvar, Mutex, MutexGuard};
use loom::thread;

use super::busy_poll::BusyPoll;
use super::state::Interest;
use super::times::{FREQUENT_WAKE_UPS, RESPONSE_DELAY};
// The names that `threads` finds beside it.
use super::{burst, busy_poll, state, times};

#[allow(clippy::duplicate_mod, reason = "production code on loom's primitives is the point of the model")]
#[expect(dead_code, reason = "the model needs no handles of connections")]
#[path = "threads.rs"]
mod threads;

mod sync {
    pub(super) use loom::hint::spin_loop;
    pub(super) use loom::sync::atomic::{AtomicBool, Ordering};
    pub(super) use loom::sync::{Condvar, Mutex, MutexGuard};
    pub(super) use loom::thread::yield_now;
}

use threads::{Activity, Driver, Platform, Protocol, SOCKET};

/// A wake-up that does not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// The node's thread is not woken.
    NodeWaker,
    /// The thread that drives the socket is not woken.
    ApplicationWaker,
    /// The node's poller does not watch the socket again.
    Watch,
    /// The threads that sleep until notified are not.
    Notify,
}

/// The content of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Datagram {
    /// A record of this connection.
    Record(usize),
    /// A connection, which threads wait for without knowing it.
    Newcomer,
    /// Something that the node answers a while later.
    Timer,
}

use Datagram::{Newcomer, Record, Timer};

/// The world outside the driver.
struct World {
    system: Mutex<System>,
    changed: Condvar,
    fault: Fault,
}

#[derive(Default)]
struct System {
    clock: Duration,
    /// Datagrams in the socket.
    datagrams: Vec<Datagram>,
    /// The poller of the application's thread fails.
    is_broken: bool,
    has_room: bool,
    interest: Option<Interest>,
    is_node_woken: bool,
    is_application_woken: bool,
    /// Records in the ring of a producer.
    pushed: usize,
    /// The actions of the core.
    taken_in: usize,
    sent: usize,
}

impl World {
    fn new(fault: Fault) -> Arc<Self> {
        let interest = Some(Interest { datagrams: true, room: false });
        let system = System { interest, clock: Duration::from_secs(1), ..System::default() };
        Arc::new(Self { system: Mutex::new(system), changed: Condvar::new(), fault })
    }

    fn lock(&self) -> MutexGuard<'_, System> {
        self.system.lock().unwrap()
    }

    fn change(&self, change: impl FnOnce(&mut System)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    fn arrive(&self, datagram: Datagram) {
        self.change(|system| system.datagrams.push(datagram));
    }

    /// Waits without taking part in the driver.
    fn wait_until(&self, is_done: impl Fn(&System) -> bool) {
        let mut system = self.lock();
        while !is_done(&system) {
            system = self.changed.wait(system).unwrap();
        }
    }
}

impl Platform<()> for Arc<World> {
    fn now(&self) -> Timestamp {
        Timestamp::ZERO + self.lock().clock
    }

    fn wait_node(&self, timeout: Option<Duration>, readable: &mut Vec<u64>) -> io::Result<bool> {
        let mut system = self.lock();
        loop {
            let is_woken = std::mem::take(&mut system.is_node_woken);
            let interest = system.interest.unwrap();
            let is_readable = interest.datagrams && !system.datagrams.is_empty();
            if is_readable {
                readable.push(SOCKET);
            }
            if is_woken || is_readable || interest.room && system.has_room {
                return Ok(is_woken);
            }
            if let Some(timeout) = timeout {
                system.clock += timeout + FREQUENT_WAKE_UPS;
                drop(system);
                thread::yield_now();
                return Ok(false);
            }
            system = self.changed.wait(system).unwrap();
        }
    }

    fn wait_application(&self, _timeout: Duration) -> io::Result<bool> {
        let mut system = self.lock();
        loop {
            let is_woken = std::mem::take(&mut system.is_application_woken);
            if system.is_broken {
                return Err(io::ErrorKind::Other.into());
            }
            if is_woken || !system.datagrams.is_empty() {
                return Ok(!system.datagrams.is_empty());
            }
            system = self.changed.wait(system).unwrap();
        }
    }

    fn wake_node(&self) {
        if self.fault != Fault::NodeWaker {
            self.change(|system| system.is_node_woken = true);
        }
    }

    fn wake_application(&self) {
        if self.fault != Fault::ApplicationWaker {
            self.change(|system| system.is_application_woken = true);
        }
    }

    fn watch(&self, _socket: &(), interest: Interest) -> io::Result<()> {
        if !(self.fault == Fault::Watch && interest.datagrams) {
            self.lock().interest = Some(interest);
        }
        Ok(())
    }
}

/// A protocol of two connections whose records are counted. It keeps the order of the real one: a record can
/// be received as soon as it is taken in, and sleeping threads are notified when the protocol advances.
struct Count {
    world: Arc<World>,
    received: [usize; 2],
    /// Not announced yet.
    is_new: [bool; 2],
    changed: [Arc<Condvar>; 2],
    newcomers: usize,
    is_newcomer_new: bool,
    /// When something is to be sent.
    timer: Option<Timestamp>,
    /// The ring has to be looked at.
    is_called: bool,
    /// A datagram waits for room.
    is_blocked: bool,
    is_closed: bool,
    is_stopped: bool,
    activity: Activity,
}

impl Count {
    fn announce(&mut self, connection: usize) {
        match self.world.fault {
            Fault::Notify => self.activity.note(),
            _ => self.activity.note_at(&self.changed[connection]),
        }
    }
}

impl Protocol for Count {
    type Socket = ();

    fn socket(&self) -> &() {
        &()
    }

    fn receive(&mut self, clock: &dyn Fn() -> Timestamp) -> bool {
        let datagrams = std::mem::take(&mut self.world.lock().datagrams);
        for datagram in &datagrams {
            match *datagram {
                Record(connection) => {
                    self.received[connection] += 1;
                    self.is_new[connection] = true;
                }
                Newcomer => {
                    self.newcomers += 1;
                    self.is_newcomer_new = true;
                }
                Timer => self.timer = Some(clock() + RESPONSE_DELAY),
            }
        }
        self.world.change(|system| system.taken_in += datagrams.len());
        !datagrams.is_empty()
    }

    fn receive_other(&mut self, _clock: &dyn Fn() -> Timestamp, _token: u64) {}

    fn on_wake_up(&mut self, _now: Timestamp, is_called: bool) {
        self.is_called |= is_called;
    }

    fn advance(&mut self, now: Timestamp) {
        for connection in 0..2 {
            if std::mem::take(&mut self.is_new[connection]) {
                self.announce(connection);
            }
        }
        if std::mem::take(&mut self.is_newcomer_new) {
            self.activity.note();
        }
        if self.timer.take_if(|at| *at <= now).is_some() {
            self.world.change(|system| system.sent += 1);
        }
        if self.is_blocked && self.world.lock().has_room {
            self.is_blocked = false;
            self.world.change(|system| system.sent += 1);
        }
        if std::mem::take(&mut self.is_called) {
            self.world.change(|system| system.sent += std::mem::take(&mut system.pushed));
        }
    }

    fn due(&self, now: Timestamp) -> Timestamp {
        if self.is_called { now } else { self.timer.unwrap_or(Timestamp::MAX) }
    }

    fn is_blocked(&self) -> bool {
        self.is_blocked
    }

    fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    fn fail(&mut self, _now: Timestamp, _error: &io::Error) {
        self.is_closed = true;
        self.announce(0);
    }

    fn activity(&mut self) -> &mut Activity {
        &mut self.activity
    }
}

type Node = Driver<Count, Arc<World>>;

/// A node with its thread, and threads of the application.
struct Scene {
    node: Arc<Node>,
    world: Arc<World>,
    thread: thread::JoinHandle<()>,
}

impl Scene {
    fn new(fault: Fault) -> Self {
        let world = World::new(fault);
        let core = Count {
            world: Arc::clone(&world),
            received: [0; 2],
            is_new: [false; 2],
            changed: [Arc::new(Condvar::new()), Arc::new(Condvar::new())],
            newcomers: 0,
            is_newcomer_new: false,
            timer: None,
            is_called: false,
            is_blocked: false,
            is_closed: false,
            is_stopped: false,
            activity: Activity::default(),
        };
        let node = Arc::new(Node::new(core, Arc::clone(&world), BusyPoll::with_processors(None, 2)));
        let served = Arc::clone(&node);
        let thread = thread::spawn(move || served.serve());
        Self { node, world, thread }
    }

    /// A thread that waits for a number of records of a connection, one after the other.
    fn receiver(&self, connection: usize, records: usize) -> thread::JoinHandle<()> {
        let node = Arc::clone(&self.node);
        thread::spawn(move || (1..=records).for_each(|records| receive(&node, connection, records)))
    }

    /// A thread that waits for a connection of another node.
    fn acceptor(&self) -> thread::JoinHandle<()> {
        let node = Arc::clone(&self.node);
        thread::spawn(move || {
            let is_done = |core: &mut Count| core.newcomers > 0 || core.is_closed;
            drop(node.wait(node.lock(), node.active(), Timestamp::MAX, is_done));
        })
    }

    fn end(self) {
        self.node.act(|core, _| core.is_stopped = true);
        // Not by the waker that may be at fault.
        self.world.change(|system| system.is_node_woken = true);
        self.thread.join().unwrap();
    }
}

/// Waits until a connection has this many records, or is closed.
fn receive(node: &Node, connection: usize, records: usize) {
    let guard = node.lock();
    let changed = Arc::clone(&guard.changed[connection]);
    let is_done = |core: &mut Count| core.received[connection] >= records || core.is_closed;
    drop(node.wait(guard, &changed, Timestamp::MAX, is_done));
}

fn model(preemptions: usize, body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.check(body);
}

/// A dialogue: a thread waits for a record, leaves with responses owed, and comes back for the next one.
fn dialogue(fault: Fault) {
    model(3, move || {
        let scene = Scene::new(fault);
        let receiver = scene.receiver(0, 2);
        scene.world.arrive(Record(0));
        scene.world.arrive(Record(0));
        receiver.join().unwrap();
        scene.end();
    });
}

/// A thread receives a record and does not come back. The next datagram is the node's thread's.
fn departure(fault: Fault) {
    model(3, move || {
        let scene = Scene::new(fault);
        scene.world.arrive(Record(0));
        receive(&scene.node, 0, 1);
        scene.world.arrive(Record(1));
        scene.world.wait_until(|system| system.taken_in == 2);
        scene.end();
    });
}

/// Two threads wait for records: one drives the socket, the other sleeps. What the first one takes in for the second when it leaves is
/// announced at the latest when it comes back.
fn two_receivers(fault: Fault) {
    model(2, move || {
        let scene = Scene::new(fault);
        let receiver = scene.receiver(0, 2);
        scene.world.arrive(Record(1));
        scene.world.arrive(Record(0));
        receive(&scene.node, 1, 1);
        scene.world.arrive(Record(0));
        receiver.join().unwrap();
        scene.end();
    });
}

/// A producer pushes while another thread drives the socket and the node's thread sleeps.
fn producer(fault: Fault) {
    model(2, move || {
        let scene = Scene::new(fault);
        let receiver = scene.receiver(0, 1);
        scene.world.change(|system| system.pushed += 1);
        scene.node.push(|core| core.is_called = true);
        scene.world.wait_until(|system| system.sent == 1);
        scene.world.arrive(Record(0));
        receiver.join().unwrap();
        scene.end();
    });
}

/// A connection is closed while a thread waits for its records.
fn closing(fault: Fault) {
    model(3, move || {
        let scene = Scene::new(fault);
        let receiver = scene.receiver(0, 1);
        scene.node.act(|core, _| {
            core.is_closed = true;
            core.announce(0);
        });
        receiver.join().unwrap();
        scene.end();
    });
}

/// The socket has no room for what a thread sends while another one drives it.
fn blocked(fault: Fault) {
    model(2, move || {
        let scene = Scene::new(fault);
        let receiver = scene.receiver(0, 1);
        scene.node.act(|core, _| core.is_blocked = true);
        scene.world.change(|system| system.has_room = true);
        scene.world.wait_until(|system| system.sent == 1);
        scene.world.arrive(Record(0));
        receiver.join().unwrap();
        scene.end();
    });
}

/// A thread waits for a connection, another one for a record.
fn newcomer(fault: Fault) {
    model(2, move || {
        let scene = Scene::new(fault);
        let (acceptor, receiver) = (scene.acceptor(), scene.receiver(0, 1));
        scene.world.arrive(Newcomer);
        acceptor.join().unwrap();
        scene.world.arrive(Record(0));
        receiver.join().unwrap();
        scene.end();
    });
}

/// The poller fails under a thread that drives the socket while another one sleeps.
fn failure(fault: Fault) {
    model(2, move || {
        let scene = Scene::new(fault);
        let acceptor = scene.acceptor();
        scene.world.change(|system| system.is_broken = true);
        receive(&scene.node, 0, 1);
        acceptor.join().unwrap();
        scene.end();
    });
}

/// What a thread that drives the socket takes in is answered a while later.
fn timer(fault: Fault) {
    model(2, move || {
        let scene = Scene::new(fault);
        let receiver = scene.receiver(0, 1);
        scene.world.arrive(Timer);
        scene.world.wait_until(|system| system.sent == 1);
        scene.world.arrive(Record(0));
        receiver.join().unwrap();
        scene.end();
    });
}

#[test]
fn a_newcomer_is_announced_to_sleepers() {
    newcomer(Fault::None);
}

#[test]
fn a_failure_is_announced_to_sleepers() {
    failure(Fault::None);
}

#[test]
fn a_timer_that_an_application_thread_set_is_kept() {
    timer(Fault::None);
}

#[test]
#[should_panic(expected = "deadlock")]
fn the_model_misses_the_wake_up_of_the_node_thread_for_a_timer() {
    timer(Fault::NodeWaker);
}

#[test]
fn a_dialogue_goes_on() {
    dialogue(Fault::None);
}

#[test]
fn no_datagram_is_left_while_everybody_sleeps() {
    departure(Fault::None);
}

#[test]
fn no_waiter_is_left_asleep_when_its_record_is_there() {
    two_receivers(Fault::None);
}

#[test]
fn a_pushed_record_is_sent() {
    producer(Fault::None);
}

#[test]
fn no_waiter_is_left_asleep_when_its_connection_closes() {
    closing(Fault::None);
}

#[test]
fn a_datagram_that_waits_for_room_is_sent() {
    blocked(Fault::None);
}

#[test]
#[should_panic(expected = "deadlock")]
fn the_model_misses_the_node_thread_wake_up_for_a_handover() {
    departure(Fault::NodeWaker);
}

#[test]
#[should_panic(expected = "deadlock")]
fn the_model_misses_the_node_thread_wake_up_for_a_producer() {
    producer(Fault::NodeWaker);
}

#[test]
#[should_panic(expected = "deadlock")]
fn the_model_misses_the_node_thread_wake_up_for_room() {
    blocked(Fault::NodeWaker);
}

#[test]
#[should_panic(expected = "deadlock")]
fn the_model_misses_the_wake_up_of_the_thread_that_drives() {
    closing(Fault::ApplicationWaker);
}

#[test]
#[should_panic(expected = "deadlock")]
fn the_model_misses_the_return_of_the_socket_to_the_node_thread() {
    departure(Fault::Watch);
}

#[test]
#[should_panic(expected = "deadlock")]
fn the_model_misses_the_notification_of_a_thread_that_sleeps() {
    two_receivers(Fault::Notify);
}

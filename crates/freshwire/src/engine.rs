//! The thread that serves many rings: the 'kernel side' of the documents' figure, in user space.

mod admit;
mod connection;
mod destination;
mod estimate;
mod kernel;
mod output;
mod reserve;
mod scratch;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use freshwire_choice::Reason;
use freshwire_io::now;
use freshwire_io::poll::{Poller, Ready, Waker};
use freshwire_io::tcp::TcpSocket;
use freshwire_ring::Consumer;
use freshwire_units::Timestamp;

use crate::direct::Direct;
use crate::sink::{CloseMode, Ended, Server, Sink, SinkConfig};
use admit::{Admitted, admit};
use connection::Next;
use destination::Destination;
use scratch::Scratch;

pub(crate) use admit::AddError;
pub use reserve::{MAX_RESERVE, Reserve};

/// How a sink ended that was aborted while it drained.
const OUT_OF_TIME: &str = "aborted before everything was delivered";

/// What an [`Engine`] is asked to do by its [`Handle`]s.
pub(crate) enum Command {
    Add(u64, Destination),
    Close(u64, CloseMode),
    /// Close as if dropped: finish the record, and abort if that takes longer than the time given.
    Leave(u64, Duration),
    /// Send bytes between two records.
    Interject(u64, Vec<u8>),
    Stop,
}

/// Serves sinks from one thread. The owner of the engine drives it with [`Engine::run_once`] or [`Engine::run`], or
/// gives it a thread with [`Engine::spawn`].
pub struct Engine {
    poller: Poller,
    commands: mpsc::Receiver<Command>,
    handle: Handle,
    connections: BTreeMap<u64, Served>,
    timers: Timers,
    again: Vec<u64>,
    ready: Vec<Ready>,
    scratch: Scratch,
    stopped: bool,
}

/// A connection with its place in the poller's set and among the timers. It is boxed, so that a search and a timer that was
/// put off touch little memory.
struct Served {
    connection: Destination,
    watched: bool,
    /// When the connection wants its next turn at the latest.
    wake_at: Timestamp,
    /// When its timer fires, which may be earlier: a time that is put off again and again costs no new timer.
    timer_at: Timestamp,
}

impl Served {
    fn new(connection: Destination) -> Self {
        Self { connection, watched: false, wake_at: Timestamp::MAX, timer_at: Timestamp::MAX }
    }

    /// The time of a timer to start, if none fires early enough.
    fn set_timer(&mut self) -> Option<Timestamp> {
        let is_needed = self.wake_at < self.timer_at;
        if is_needed {
            self.timer_at = self.wake_at;
        }
        is_needed.then_some(self.wake_at)
    }

    /// Gives the connection a turn; how it ended, if it did.
    fn turn(&mut self, id: u64, now: Timestamp, desk: Desk<'_>) -> Option<Ended> {
        let (watch, wake_at) = match self.connection.turn(now, desk.scratch) {
            Ok(Next::Again) => {
                desk.again.push(id);
                (false, Timestamp::MAX)
            }
            Ok(Next::Room(at)) => (true, at),
            Ok(Next::Push(at) | Next::Time(at)) => (false, at),
            Ok(Next::Ended) => return Some(Ended::Closed),
            Err(error) => return Some(Ended::Broken(error.to_string())),
        };
        self.wake_at = wake_at;
        if let Some(at) = self.set_timer() {
            desk.timers.push(Reverse((at, id)));
        }
        if watch != self.watched {
            self.watched = watch;
            if let Err(error) = desk.poller.watch(self.connection.socket(), id, watch) {
                return Some(Ended::Broken(error.to_string()));
            }
        }
        None
    }
}

/// What a turn uses of the engine.
struct Desk<'a> {
    poller: &'a Poller,
    timers: &'a mut Timers,
    again: &'a mut Vec<u64>,
    scratch: &'a mut Scratch,
}

/// Times with the connections that want a turn then, the earliest first.
type Timers = BinaryHeap<Reverse<(Timestamp, u64)>>;

/// Adds sinks to an engine from any thread.
#[derive(Clone)]
pub struct Handle {
    commands: mpsc::Sender<Command>,
    waker: Waker,
    next_id: Arc<AtomicU64>,
}

/// A sink's place in an engine.
struct InEngine {
    engine: Handle,
    id: u64,
}

impl Server for InEngine {
    fn close(&self, mode: CloseMode) {
        self.engine.send(Command::Close(self.id, mode));
    }

    fn leave(&self, linger: Duration) {
        self.engine.send(Command::Leave(self.id, linger));
    }

    fn interject(&self, bytes: Vec<u8>) {
        self.engine.send(Command::Interject(self.id, bytes));
    }
}

/// An engine on a thread of its own. Dropping it stops the engine: sinks that are still open are aborted.
pub struct EngineThread {
    handle: Handle,
    thread: Option<std::thread::JoinHandle<io::Result<()>>>,
}

impl Handle {
    /// Serves `stream` from `ring`: the stream's unsent queue is kept at the configured reserve from now on.
    ///
    /// Fails if the socket does not take its settings, for instance for a congestion control that the kernel lacks, or if
    /// it cannot have the carrier. The records stay in `consumer`'s ring until the policy has chosen them, also where the
    /// kernel could do without.
    pub fn add(&self, stream: TcpStream, consumer: Consumer, config: SinkConfig) -> io::Result<Sink> {
        let (sink, _) = self.admit(stream, consumer, config, false)?;
        Ok(sink)
    }

    /// Serves `stream`. With `may_be_direct` the application fills the kernel's ring itself where the kernel can carry out
    /// what is asked; the second value is its side of that ring.
    pub(crate) fn admit(
        &self,
        stream: TcpStream,
        consumer: Consumer,
        config: SinkConfig,
        may_be_direct: bool,
    ) -> Result<(Sink, Option<Direct>), AddError> {
        let socket = TcpSocket::new(stream)?;
        if let Some(name) = &config.congestion {
            socket.set_congestion(name)?;
        }
        if let Some(timeout) = config.min_rto {
            socket.set_min_rto(timeout)?;
        }
        if let Some(timeout) = config.max_rto {
            socket.set_max_rto(timeout)?;
        }
        let (ring, linger) = (consumer.ring(), config.linger);
        let Admitted { destination, shared, direct } = admit(socket, consumer, config, may_be_direct)?;
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        self.send(Command::Add(id, destination));
        let server = Box::new(InEngine { engine: self.clone(), id });
        Ok((Sink { ring, shared, server, linger, closed: false }, direct))
    }

    /// What a producer wakes after a push that asks for it.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    pub(crate) fn wake(&self) {
        self.waker.wake();
    }

    pub(crate) fn send(&self, command: Command) {
        // An engine that is gone has ended all its sinks, so there is nothing left to ask of it.
        if self.commands.send(command).is_ok() {
            self.waker.wake();
        }
    }
}

impl Engine {
    /// An engine without sinks.
    pub fn new() -> io::Result<Self> {
        let poller = Poller::new()?;
        let (sender, commands) = mpsc::channel();
        let handle = Handle { commands: sender, waker: poller.waker(), next_id: Arc::new(AtomicU64::new(0)) };
        Ok(Self {
            poller,
            commands,
            handle,
            connections: BTreeMap::new(),
            timers: BinaryHeap::new(),
            again: Vec::new(),
            ready: Vec::new(),
            scratch: Scratch::default(),
            stopped: false,
        })
    }

    /// A handle to add sinks with.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// How many sinks are served.
    pub fn sinks(&self) -> usize {
        self.connections.len()
    }

    /// Moves the engine to a thread of its own.
    pub fn spawn(mut self) -> io::Result<EngineThread> {
        let handle = self.handle();
        let thread = std::thread::Builder::new().name("freshwire".to_owned()).spawn(move || self.run())?;
        Ok(EngineThread { handle, thread: Some(thread) })
    }

    /// Serves until it is stopped. Fails only if the poller itself does.
    pub fn run(&mut self) -> io::Result<()> {
        while !self.stopped {
            self.run_once(None)?;
        }
        Ok(())
    }

    /// Waits at most `timeout` for something to do and does it. Fails only if the poller itself does; what happens to
    /// one sink never shows here.
    pub fn run_once(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let mut ready = std::mem::take(&mut self.ready);
        let timeout = if self.again.is_empty() { self.until_timer(timeout) } else { Some(Duration::ZERO) };
        let woken = self.poller.wait(timeout, &mut ready)?;
        let now = now();
        let mut turns = std::mem::take(&mut self.again);
        if woken {
            self.take_commands(now, &mut turns);
            self.turn_notified(now);
        }
        for event in ready.drain(..) {
            if event.hung_up {
                self.broken(event.token, now);
            } else {
                turns.push(event.token);
            }
        }
        self.due_timers(now, &mut turns);
        turns.sort_unstable();
        turns.dedup();
        for id in turns {
            self.turn(id, now);
        }
        self.ready = ready;
        Ok(())
    }

    fn until_timer(&self, timeout: Option<Duration>) -> Option<Duration> {
        let timer = self.timers.peek().map(|Reverse((at, _))| at.saturating_since(now()));
        match (timer, timeout) {
            (Some(timer), Some(timeout)) => Some(timer.min(timeout)),
            (timer, timeout) => timer.or(timeout),
        }
    }

    fn due_timers(&mut self, now: Timestamp, turns: &mut Vec<u64>) {
        while let Some(&Reverse((at, id))) = self.timers.peek() {
            if at > now {
                break;
            }
            self.timers.pop();
            // A timer that was overtaken by an earlier one is left in the heap and recognised here.
            let Some(served) = self.connections.get_mut(&id).filter(|served| served.timer_at == at) else {
                continue;
            };
            served.timer_at = Timestamp::MAX;
            if served.wake_at <= now {
                turns.push(id);
            } else if let Some(at) = served.set_timer() {
                self.timers.push(Reverse((at, id)));
            }
        }
    }

    fn take_commands(&mut self, now: Timestamp, turns: &mut Vec<u64>) {
        while let Ok(command) = self.commands.try_recv() {
            match command {
                Command::Add(id, connection) => {
                    if let Err(error) = self.poller.add(connection.socket(), id) {
                        connection.shared().end(Ended::Broken(error.to_string()));
                        continue;
                    }
                    self.connections.insert(id, Served::new(connection));
                    turns.push(id);
                }
                Command::Leave(id, linger) => {
                    let Some(Served { connection, .. }) = self.connections.get_mut(&id) else { continue };
                    connection.give_up_at(now + linger);
                    match connection.close(CloseMode::FinishRecord, now) {
                        Ok(_) => turns.push(id),
                        Err(error) => self.remove(id, Ended::Broken(error.to_string())),
                    }
                }
                Command::Close(id, mode) => {
                    let Some(Served { connection, .. }) = self.connections.get_mut(&id) else { continue };
                    let was_closing = connection.is_closing();
                    match connection.close(mode, now) {
                        Ok(false) => turns.push(id),
                        Ok(true) if was_closing => self.remove(id, Ended::Broken(OUT_OF_TIME.to_owned())),
                        Ok(true) => self.remove(id, Ended::Closed),
                        Err(error) => self.remove(id, Ended::Broken(error.to_string())),
                    }
                }
                Command::Interject(id, bytes) => {
                    let Some(Served { connection, .. }) = self.connections.get_mut(&id) else { continue };
                    match connection.interject(bytes) {
                        Ok(()) => turns.push(id),
                        Err(why) => self.remove(id, Ended::Broken(why.to_owned())),
                    }
                }
                Command::Stop => {
                    self.stopped = true;
                    self.abort_all();
                }
            }
        }
    }

    fn turn(&mut self, id: u64, now: Timestamp) {
        let Self { connections, poller, timers, again, scratch, .. } = self;
        let Some(served) = connections.get_mut(&id) else { return };
        if let Some(ended) = served.turn(id, now, Desk { poller, timers, again, scratch }) {
            self.remove(id, ended);
        }
    }

    /// Gives those a turn whose producer has called: in one pass, because the look for the call and the turn touch the same
    /// memory.
    fn turn_notified(&mut self, now: Timestamp) {
        let Self { connections, poller, timers, again, scratch, .. } = self;
        let mut ends = Vec::new();
        for (&id, served) in connections.iter_mut().filter(|(_, served)| served.connection.notified()) {
            let ended = served.turn(id, now, Desk { poller, timers, again, scratch });
            ends.extend(ended.map(|ended| (id, ended)));
        }
        for (id, ended) in ends {
            self.remove(id, ended);
        }
    }

    fn broken(&mut self, id: u64, now: Timestamp) {
        let Some(Served { connection, .. }) = self.connections.get_mut(&id) else { return };
        // Both sides have ended their direction: that is how a finished connection looks too.
        if connection.is_delivered(now) {
            return self.remove(id, Ended::Closed);
        }
        let error = connection.socket().take_error().ok().flatten();
        if error.is_none() && connection.is_flushing() {
            // The peer has yet to acknowledge. The set would report the hang-up without end; the connection's timer looks
            // for the acknowledgement, and for an error.
            let _ = self.poller.remove(connection.socket());
            return;
        }
        self.remove(id, Ended::Broken(error.map_or_else(|| "the peer closed".to_owned(), |e| e.to_string())));
    }

    fn abort_all(&mut self) {
        for id in self.connections.keys().copied().collect::<Vec<_>>() {
            if let Some(Served { connection, .. }) = self.connections.get(&id) {
                // Without the option the peer sees an end of file in the middle of a record instead of a reset.
                let _ = connection.socket().abort_on_close();
            }
            self.remove(id, Ended::Broken("the engine was stopped".to_owned()));
        }
    }

    fn remove(&mut self, id: u64, ended: Ended) {
        if let Some(Served { connection, .. }) = self.connections.remove(&id) {
            // The socket is closed just after, which takes it out of the set too.
            let _ = self.poller.remove(connection.socket());
            connection.end(Reason::ConnectionLost, now(), ended);
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.abort_all();
    }
}

impl EngineThread {
    /// A handle to add sinks with.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }
}

impl Drop for EngineThread {
    fn drop(&mut self) {
        self.handle.send(Command::Stop);
        if let Some(thread) = self.thread.take() {
            // A panic of the engine is its own message; nothing here can undo it.
            let _ = thread.join();
        }
    }
}

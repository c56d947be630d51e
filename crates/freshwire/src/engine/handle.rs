//! From any thread: adds sinks to an engine, and has it serve them.

use std::io;
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, mpsc};
use std::time::Duration;

use freshwire_choice::Record;
use freshwire_io::poll::Waker;
use freshwire_io::tcp::TcpSocket;
use freshwire_io::{now, thread_time};
use freshwire_ring::Consumer;

use super::admit::{Admission, admit};
use super::any_sink::AnySink;
use super::load::{Load, Place, Work};
use super::scheduler::Command;
use super::scheduler::Scheduler;
use crate::carrier::CarrierInUse;
use crate::datagram::path::DatagramPath;
use crate::datagram::sink::DatagramSink;
use crate::error::SenderError;
use crate::kernel::direct::Direct;
use crate::sink::config::SinkConfig;
use crate::sink::ended::CloseMode;
use crate::sink::handle::{Server, Sink};
use crate::sink::shared::SinkShared;
use crate::tcp::transfer::Transfer;
use crate::turn::offer::{Offer, Target};

/// Adds sinks to an engine, from any thread.
#[derive(Clone)]
pub struct EngineHandle {
    commands: mpsc::Sender<Command>,
    waker: Waker,
    next_id: Arc<AtomicU64>,
    load: Arc<Load>,
    /// `None` after the engine's end.
    scheduler: Arc<Mutex<Option<Scheduler>>>,
}

/// A sink that an engine serves from now on.
pub(crate) struct NewSink {
    pub(crate) id: u64,
    pub(crate) sink: Sink,
    /// The application's side of the kernel's ring, if it fills that itself.
    pub(crate) direct: Option<Direct>,
}

/// A sink's place in an engine.
struct EngineServer {
    engine: EngineHandle,
    id: u64,
}

impl Server for EngineServer {
    fn close(&self, mode: CloseMode) {
        self.engine.send(Command::Close(self.id, mode));
    }

    fn leave(&self, last: Vec<u8>, linger: Duration) {
        self.engine.send(Command::Leave(self.id, last, linger));
    }

    fn interject(&self, bytes: Vec<u8>) {
        self.engine.send(Command::Interject(self.id, bytes));
    }
}

impl EngineHandle {
    pub(crate) fn new(waker: Waker, commands: mpsc::Sender<Command>, scheduler: Scheduler) -> Self {
        Self {
            commands,
            waker,
            next_id: Arc::new(AtomicU64::new(0)),
            load: Arc::default(),
            scheduler: Arc::new(Mutex::new(Some(scheduler))),
        }
    }

    /// Ends the engine, and aborts all its sinks.
    pub(crate) fn end(&self) {
        self.load.go();
        let mut scheduler = self.scheduler.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(mut scheduler) = scheduler.take() {
            scheduler.abort_all();
        }
    }

    /// Serves `stream` from the ring of `consumer`; the stream's unsent queue is kept at the configured
    /// reserve.
    ///
    /// # Errors
    ///
    /// If the socket refuses a setting, for example a congestion control that the kernel lacks, or if the
    /// carrier is unavailable.
    pub fn add(
        &self,
        stream: TcpStream,
        consumer: Consumer,
        config: SinkConfig,
    ) -> Result<Sink, SenderError> {
        let place = Place::new(Arc::clone(&self.load), Arc::default());
        let added = self.admit(stream, consumer, config, place, false)?;
        Ok(added.sink)
    }

    /// Serves `stream`. With `may_be_direct` the application fills the kernel's ring itself where the kernel can carry out
    /// what is asked.
    pub(crate) fn admit(
        &self,
        stream: TcpStream,
        consumer: Consumer,
        config: SinkConfig,
        place: Place,
        may_be_direct: bool,
    ) -> Result<NewSink, SenderError> {
        let socket = TcpSocket::new(stream)?;
        if let Some(name) = &config.congestion {
            socket.set_congestion(name)?;
        }
        config.network.apply_to_stream(&socket)?;
        if let Some(timeout) = config.min_rto {
            socket.set_min_rto(timeout)?;
        }
        if let Some(timeout) = config.max_rto {
            socket.set_max_rto(timeout)?;
        }
        let (ring, linger) = (consumer.ring(), config.linger);
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (mut config, engine) = (config, self.clone());
        config.policy.attach(Arc::new(move || engine.send(Command::AskAgain(id))));
        let Admission { any_sink, shared, direct } = admit(socket, consumer, config, may_be_direct)?;
        self.send(Command::Add(id, any_sink, place));
        let server = Box::new(EngineServer { engine: self.clone(), id });
        Ok(NewSink { id, sink: Sink::new(ring, shared, server, linger), direct })
    }

    /// Serves a receiver of datagrams from the ring of `consumer`.
    pub(crate) fn add_datagrams(
        &self,
        path: Box<dyn DatagramPath>,
        consumer: Consumer,
        mut config: SinkConfig,
        place: Place,
    ) -> NewSink {
        let (ring, linger) = (consumer.ring(), config.linger);
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let engine = self.clone();
        config.policy.attach(Arc::new(move || engine.send(Command::AskAgain(id))));
        let shared = Arc::new(SinkShared::new(CarrierInUse::Datagrams, None, None));
        let sink = DatagramSink::new(path, consumer, config, Arc::clone(&shared));
        self.send(Command::Add(id, AnySink::Datagrams(Box::new(sink)), place));
        let server = Box::new(EngineServer { engine: self.clone(), id });
        NewSink { id, sink: Sink::new(ring, shared, server, linger), direct: None }
    }

    /// The waker that a producer uses after a push that asks to notify.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Serves those of the sinks in `order` whose producers have called, on this thread. Where the engine is at work already, it is
    /// left to it.
    pub(crate) fn serve(&self, order: &[(u64, usize)]) {
        let is_left_to_engine = match self.scheduler.try_lock() {
            Ok(mut scheduler) => scheduler
                .as_mut()
                .is_some_and(|scheduler| self.counted(scheduler, |scheduler| scheduler.serve(now(), order))),
            Err(TryLockError::WouldBlock | TryLockError::Poisoned(_)) => true,
        };
        if is_left_to_engine {
            self.waker.wake();
        }
    }

    /// Offers a payload to sinks past their rings, on this thread. `queue` puts it on the ring of one and gives its index there. Where the
    /// engine is at work already, nothing is sent.
    pub(crate) fn offer(&self, offered: Offer<'_>, queue: impl FnMut(&Target) -> Option<u64>) {
        let Ok(mut scheduler) = self.scheduler.try_lock() else { return };
        let Some(scheduler) = scheduler.as_mut() else { return };
        if self.counted(scheduler, |scheduler| scheduler.offer(now(), offered, queue)) {
            self.waker.wake();
        }
    }

    /// Has the policy of a sink drop what is of no more use, until `has_room` says that `newcomer` finds room. Waits for the engine's
    /// present turn.
    pub(crate) fn make_room(&self, id: u64, newcomer: &Record, has_room: &mut dyn FnMut() -> bool) {
        // An engine whose policies have panicked drops nothing more.
        let Ok(mut scheduler) = self.scheduler.lock() else { return };
        if let Some(scheduler) = scheduler.as_mut() {
            scheduler.make_room(now(), id, newcomer, has_room);
        }
    }

    /// Does work for the sinks, and counts it where there are many.
    pub(crate) fn counted<T>(&self, scheduler: &mut Scheduler, work: impl FnOnce(&mut Scheduler) -> T) -> T {
        let sinks = scheduler.sinks();
        if !Work::counts(sinks) {
            return work(scheduler);
        }
        let before = thread_time();
        let done = work(scheduler);
        scheduler.work.add(now(), thread_time().saturating_sub(before), sinks, &self.load);
        done
    }

    pub(crate) fn lock(&self) -> io::Result<MutexGuard<'_, Option<Scheduler>>> {
        self.scheduler
            .lock()
            .map_err(|_| io::Error::other("a policy or a framing panicked while it was asked"))
    }

    /// How much work it has.
    pub(crate) fn load(&self) -> &Arc<Load> {
        &self.load
    }

    /// Sets whether writes to many sinks share a system call, by io_uring. Default `true`. Without io_uring each write has a
    /// call of its own.
    pub fn set_io_uring(&self, on: bool) {
        // After a panic of a policy nothing is sent any more.
        let Ok(mut scheduler) = self.scheduler.lock() else { return };
        if let Some(scheduler) = scheduler.as_mut() {
            scheduler.set_batching(on);
        }
    }

    /// Sets how payload gets from the arena into TCP sockets. Default: [`Transfer::Auto`].
    ///
    /// By reference, packets refer to the arena's pages, and the processor copies nothing. Small pieces, encrypted streams, sinks that
    /// note departures, sockets in blocking mode and regions that cannot [lend](freshwire_ring::Region::lend) are copied in any case.
    /// [`SinkSnapshot::bytes_by_reference`](crate::stats::SinkSnapshot::bytes_by_reference) reports what was not.
    pub fn set_transfer(&self, transfer: Transfer) {
        // After a panic of a policy nothing is sent any more.
        let Ok(mut scheduler) = self.scheduler.lock() else { return };
        if let Some(scheduler) = scheduler.as_mut() {
            scheduler.set_transfer(transfer);
        }
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

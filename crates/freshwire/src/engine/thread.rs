//! The thread that serves many rings: the 'kernel side' of Birkedal's figure, in user space.

use std::io;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use freshwire_io::poll::{Poller, Ready};

use super::handle::EngineHandle;
use super::scheduler::{Command, Scheduler};

/// Serves sinks, one thread at a time. The owner of the engine drives it with [`Engine::run_once`] or [`Engine::run`], or
/// gives it a thread with [`Engine::spawn`].
pub struct Engine {
    poller: Arc<Poller>,
    handle: EngineHandle,
    ready: Vec<Ready>,
}

/// An engine on its own thread. Dropping it stops the engine and aborts the sinks that are still open.
pub struct EngineThread {
    handle: EngineHandle,
    thread: Option<std::thread::JoinHandle<io::Result<()>>>,
}

impl Engine {
    /// Creates an engine without sinks.
    ///
    /// # Errors
    ///
    /// If the system refuses a poller or a wake-up descriptor.
    pub fn new() -> io::Result<Self> {
        let poller = Arc::new(Poller::new()?);
        let (sender, commands) = mpsc::channel();
        let handle = EngineHandle::new(poller.waker(), sender, Scheduler::new(Arc::clone(&poller), commands));
        Ok(Self { poller, handle, ready: Vec::new() })
    }

    /// A handle to add sinks with.
    pub fn handle(&self) -> EngineHandle {
        self.handle.clone()
    }

    /// Number of sinks in service.
    pub fn sinks(&self) -> usize {
        self.handle.lock().map_or(0, |scheduler| scheduler.as_ref().map_or(0, Scheduler::sinks))
    }

    /// Moves the engine to its own thread.
    ///
    /// # Errors
    ///
    /// If the system refuses a thread.
    pub fn spawn(self) -> io::Result<EngineThread> {
        self.spawn_as(0)
    }

    /// As [`spawn`](Self::spawn); the thread's name tells its place in a pool.
    pub(crate) fn spawn_as(mut self, place: usize) -> io::Result<EngineThread> {
        let handle = self.handle();
        let name = if place == 0 { "freshwire".to_owned() } else { format!("freshwire-{place}") };
        let thread = std::thread::Builder::new().name(name).spawn(move || self.run())?;
        Ok(EngineThread { handle, thread: Some(thread) })
    }

    /// Serves until it is stopped.
    ///
    /// # Errors
    ///
    /// Only if the poller itself fails; a failing sink ends alone.
    pub fn run(&mut self) -> io::Result<()> {
        while self.go_on(None)? {}
        Ok(())
    }

    /// Waits at most `timeout` for work and does it.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run).
    pub fn run_once(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.go_on(timeout).map(|_| ())
    }

    /// As [`run_once`](Self::run_once); false if it has been stopped.
    fn go_on(&mut self, timeout: Option<Duration>) -> io::Result<bool> {
        let timeout = match self.handle.lock()?.as_mut() {
            Some(scheduler) => scheduler.before_wait(timeout),
            None => return Ok(false),
        };
        let woken = self.poller.wait(timeout, &mut self.ready)?;
        let mut scheduler = self.handle.lock()?;
        let Some(scheduler) = scheduler.as_mut() else { return Ok(false) };
        Ok(self.handle.counted(scheduler, |scheduler| scheduler.after_wait(woken, &mut self.ready)))
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.handle.end();
    }
}

impl EngineThread {
    /// Returns `true` while the thread serves its sinks. It stops early only after a panic or a failure of
    /// the poller.
    pub fn is_running(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// A handle to add sinks with.
    pub fn handle(&self) -> EngineHandle {
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

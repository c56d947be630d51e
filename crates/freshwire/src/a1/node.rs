//! A socket, an endpoint and the thread that serves them.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use freshwire_a1::{ConnectionHandle, PublicKey};
use freshwire_io::now;
use freshwire_io::poll::{Poller, Waker};
use freshwire_units::Timestamp;

use super::config::{ConnectConfig, NodeConfig};
use super::connection::Connection;
use super::core::Core;
use super::error::{BindError, ConnectError, NodeStopped};

/// An address of A1: makes connections to other nodes and accepts theirs, all over one UDP socket and on one thread.
///
/// Dropping it aborts its connections. The socket is closed when their handles are gone as well.
pub struct Node {
    shared: Arc<Shared>,
    public_key: PublicKey,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// What the node's thread and the application's threads have in common. Whoever has something to do takes the lock, does it
/// and sends what follows from it, so that no thread waits for another one to send (seed 001, "Implementation").
pub(super) struct Shared {
    core: Mutex<Core>,
    poller: Poller,
    waker: Waker,
    /// The core's activity has gone on.
    active: Condvar,
}

impl Node {
    /// Binds to `address`; port 0 lets the kernel choose one.
    pub fn bind(address: SocketAddr, config: NodeConfig) -> Result<Self, BindError> {
        let public_key = config.key.public_key();
        let core = Core::new(address, config)?;
        let poller = Poller::new()?;
        poller.add_reader(core.socket(), SOCKET)?;
        let waker = poller.waker();
        let shared = Arc::new(Shared { core: Mutex::new(core), poller, waker, active: Condvar::new() });
        let served = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("freshwire-a1".to_owned())
            .spawn(move || served.serve())
            .map_err(BindError)?;
        Ok(Self { shared, public_key, thread: Some(thread) })
    }

    /// The address that it is bound to.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.shared.lock().socket().local_addr()
    }

    /// The key by which others know it.
    pub fn public_key(&self) -> PublicKey {
        self.public_key
    }

    /// What wakes its thread, for a producer in another process whose push asks for it.
    pub fn waker(&self) -> Waker {
        self.shared.waker.clone()
    }

    /// Connects to the node with this key at `address`, and waits until it has agreed.
    pub fn connect(
        &self,
        address: SocketAddr,
        key: &PublicKey,
        config: &ConnectConfig,
    ) -> Result<Connection, ConnectError> {
        let (id, changed) = self.shared.act(|core, now| core.connect(now, address, *key, config));
        let connection = Connection::new(Arc::clone(&self.shared), id, address, changed);
        connection.wait_open()?;
        Ok(connection)
    }

    /// The next connection that another node has made, waiting at most `timeout` for it. `Ok(None)`: none came.
    pub fn accept(&self, timeout: Duration) -> Result<Option<Connection>, NodeStopped> {
        let give_up = now() + timeout;
        let mut core = self.shared.lock();
        let (id, address, changed) = loop {
            if let Some(accepted) = core.accept() {
                break accepted;
            }
            if core.is_stopped() {
                return Err(NodeStopped);
            }
            let left = give_up.saturating_since(now());
            if left.is_zero() {
                return Ok(None);
            }
            core = self.shared.active.wait_timeout(core, left).unwrap_or_else(PoisonError::into_inner).0;
        };
        drop(core);
        Ok(Some(Connection::new(Arc::clone(&self.shared), id, address, changed)))
    }
}

impl Node {
    /// How often something has happened, to be waited for with [`Node::wait_activity`].
    pub(super) fn activity(&self) -> u64 {
        self.shared.lock().activity().count
    }

    /// Waits until something happens beyond the `seen` times, at most for `timeout`.
    pub(super) fn wait_activity(&self, seen: u64, timeout: Duration) {
        let core = self.shared.lock();
        let is_seen = |core: &mut Core| core.activity().count == seen && !core.is_stopped();
        let _core = self.shared.active.wait_timeout_while(core, timeout, is_seen);
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.shared.act(Core::stop);
        self.shared.waker.wake();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread is its own message; nothing here can undo it.
            let _ = thread.join();
        }
    }
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something, sends what follows from it, and lets the node's thread know when its time has changed.
    pub(super) fn act<T>(&self, act: impl FnOnce(&mut Core, Timestamp) -> T) -> T {
        let mut core = self.lock();
        let now = now();
        let result = act(&mut core, now);
        self.finish(core, now);
        result
    }

    /// A producer has put something on the ring of a connection. Serves it on the producer's thread, unless another
    /// thread is at it.
    pub(super) fn call(&self, id: ConnectionHandle) {
        let mut core = match self.core.try_lock() {
            Ok(core) => core,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return self.waker.wake(),
        };
        core.call(id);
        self.finish(core, now());
    }

    /// Sends what follows from what was done to the core.
    pub(super) fn finish(&self, mut core: MutexGuard<'_, Core>, now: Timestamp) {
        core.advance(now);
        self.tell(&mut core);
        let wake = core.is_due_before_wake(now);
        drop(core);
        if wake {
            self.waker.wake();
        }
    }

    fn serve(&self) {
        let mut ready = Vec::new();
        let mut woken = false;
        let mut readable = false;
        while let Some(timeout) = self.round(woken, readable) {
            match self.poller.wait(timeout, &mut ready) {
                Ok(is_woken) => woken = is_woken,
                Err(error) => {
                    let mut core = self.lock();
                    core.fail(now(), &error);
                    return self.tell(&mut core);
                }
            }
            readable = ready.drain(..).any(|event| event.readable || event.hung_up);
        }
    }

    /// Does what is due; how long to wait for more, `None` at the end.
    fn round(&self, woken: bool, readable: bool) -> Option<Option<Duration>> {
        let mut core = self.lock();
        let now = now();
        core.awake();
        if core.is_stopped() {
            return None;
        }
        if woken {
            core.call_all();
        }
        if readable {
            core.receive(now);
        }
        core.advance(now);
        self.tell(&mut core);
        let watch = self.poller.watch_reader(core.socket(), SOCKET, core.wants_room());
        if let Err(error) = watch {
            core.fail(now, &error);
            self.tell(&mut core);
            return None;
        }
        Some(core.sleep(now))
    }

    fn tell(&self, core: &mut Core) {
        if core.activity().take_new() {
            self.active.notify_all();
        }
    }
}

/// The socket among what the poller watches.
const SOCKET: u64 = 0;

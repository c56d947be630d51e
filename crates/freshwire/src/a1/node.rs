//! A socket, an endpoint and the thread that serves them.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use freshwire_a1::{EndpointStats, PublicKey};
use freshwire_io::now;
use freshwire_io::poll::{Poller, Ready, Waker, wait_precisely};
use freshwire_io::udp::plain;
use freshwire_units::Timestamp;

use super::config::{ConnectConfig, NodeConfig};
use super::connection::{Connection, Fed};
use super::core::{Core, Watch};
use super::error::{BindError, ConnectError, NodeStopped};
use super::group::{Group, GroupConfig, GroupError};
use super::incoming::Incoming;
use super::spin::{Look, SPIN};

/// An A1 address: connects to other nodes and accepts their connections, over one UDP socket and on one
/// thread.
///
/// Dropping it aborts its connections. The socket is closed once their handles are dropped as well.
pub struct Node {
    shared: Arc<Shared>,
    public_key: PublicKey,
    /// The application decides about newcomers.
    asks: bool,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// What the node's thread and the application's threads have in common. Whoever has something to do takes the lock, does it
/// and sends what follows from it, so that no thread waits for another one to send (Mapp 1997, "Implementation"). A thread
/// that waits for a message waits for datagrams itself, so that none has to wake it; the node's thread keeps the time
/// meanwhile.
pub(super) struct Shared {
    core: Mutex<Core>,
    /// What the node's thread waits for.
    poller: Arc<Poller>,
    waker: Waker,
    /// What the application's thread waits for that waits for datagrams.
    driver: Poller,
    driver_waker: Waker,
    /// The core's activity has gone on.
    active: Condvar,
    /// An application's thread waits for datagrams in place of the node's. Written with the core's lock.
    is_driven: AtomicBool,
}

impl Node {
    /// Binds to `address`; port 0 lets the kernel choose one.
    ///
    /// # Errors
    ///
    /// If [`NodeConfig::maximum`] is invalid (see [`Qos`](super::Qos)), or the system refuses a socket or a
    /// thread.
    pub fn bind(address: SocketAddr, config: NodeConfig) -> Result<Self, BindError> {
        config.maximum.check_range()?;
        let (public_key, asks) = (config.key.public_key(), config.ask);
        let poller = Arc::new(Poller::new()?);
        let core = Core::new(address, config, Arc::clone(&poller))?;
        poller.add_reader(core.socket(), SOCKET)?;
        let driver = Poller::new()?;
        driver.add_reader(core.socket(), SOCKET)?;
        let shared = Arc::new(Shared {
            core: Mutex::new(core),
            waker: poller.waker(),
            poller,
            driver_waker: driver.waker(),
            driver,
            active: Condvar::new(),
            is_driven: AtomicBool::new(false),
        });
        let served = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("freshwire-a1".to_owned())
            .spawn(move || served.serve())
            .map_err(BindError::Socket)?;
        Ok(Self { shared, public_key, asks, thread: Some(thread) })
    }

    /// Local address of the socket.
    ///
    /// # Errors
    ///
    /// If the operating system cannot tell.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.shared.lock().socket().local_addr()
    }

    /// Public key by which peers identify this node.
    pub fn public_key(&self) -> PublicKey {
        self.public_key
    }

    /// Counters since the node was bound, mainly of ignored and invalid datagrams.
    pub fn stats(&self) -> EndpointStats {
        self.shared.lock().stats()
    }

    /// Waker of the node's thread, for a producer in another process after a push that asks to notify.
    pub fn waker(&self) -> Waker {
        self.shared.waker.clone()
    }

    /// Connects to the node with this key at `address`, such as `("camera.example.org", 5000)`, and blocks
    /// until the handshake is complete.
    ///
    /// A name is looked up first, on this thread and without a time limit. Its reachable addresses are tried
    /// one after the other.
    ///
    /// # Errors
    ///
    /// If the address is unknown or unreachable, the quality of service exceeds the maximum, or the handshake
    /// fails.
    pub fn connect(
        &self,
        address: impl ToSocketAddrs,
        key: &PublicKey,
        config: &ConnectConfig,
    ) -> Result<Connection, ConnectError> {
        let local = self.local_addr().map_err(|_| ConnectError::Stopped)?.ip();
        let found = address.to_socket_addrs().map_err(|error| ConnectError::Unknown(error.to_string()))?;
        let addresses: Vec<SocketAddr> = found.filter(|found| reaches(local, found.ip())).collect();
        let give_up = now() + config.timeout;
        let mut connected = Err(ConnectError::Family);
        for (address, left) in addresses.iter().zip((1..=addresses.len() as u32).rev()) {
            let share = give_up.saturating_since(now()) / left;
            connected = self.connect_to(*address, key, &config.clone().timeout(share));
            if connected.is_ok() {
                break;
            }
        }
        connected
    }

    fn connect_to(
        &self,
        address: SocketAddr,
        key: &PublicKey,
        config: &ConnectConfig,
    ) -> Result<Connection, ConnectError> {
        let address = plain(address);
        let (id, changed) = self.shared.act(|core, now| core.connect(now, address, *key, config))?;
        let connection = Connection::new(Arc::clone(&self.shared), id, address, changed);
        connection.wait_open()?;
        Ok(connection)
    }

    /// Creates a multicast group for sending, without members.
    ///
    /// # Errors
    ///
    /// If the configuration is invalid or the system refuses the socket.
    pub fn group(&self, config: &GroupConfig) -> Result<Group, GroupError> {
        config.check()?;
        let id = self.shared.act(|core, now| core.add_group(now, config))?;
        Ok(Group::new(Arc::clone(&self.shared), id, config.address))
    }

    /// Returns the next incoming connection, after at most `timeout`, or `None`. If the application decides
    /// about connections ([`NodeConfig::ask`]), accepts the next one.
    ///
    /// # Errors
    ///
    /// If the node has stopped.
    pub fn accept(&self, timeout: Duration) -> Result<Option<Connection>, NodeStopped> {
        let give_up = now() + timeout;
        if self.asks {
            return self.accept_asked(give_up);
        }
        let accepted = self.await_newcomer(give_up, Core::accept)?;
        Ok(accepted
            .map(|(id, address, changed)| Connection::new(Arc::clone(&self.shared), id, address, changed)))
    }

    /// Returns the next connection attempt for the application to accept or refuse, after at most `timeout`,
    /// or `None`. Requires [`NodeConfig::ask`].
    ///
    /// # Errors
    ///
    /// If the node has stopped.
    pub fn incoming(&self, timeout: Duration) -> Result<Option<Incoming>, NodeStopped> {
        let asked = self.await_newcomer(now() + timeout, Core::incoming)?;
        Ok(asked.map(|asked| Incoming::new(Arc::clone(&self.shared), asked)))
    }

    /// One that waits no more makes way for the next one.
    fn accept_asked(&self, give_up: Timestamp) -> Result<Option<Connection>, NodeStopped> {
        loop {
            let left = give_up.saturating_since(now());
            let Some(incoming) = self.incoming(left)? else { return Ok(None) };
            if let Ok(connection) = incoming.accept() {
                return Ok(Some(connection));
            }
        }
    }

    fn await_newcomer<T>(
        &self,
        give_up: Timestamp,
        take: impl Fn(&mut Core) -> Option<T>,
    ) -> Result<Option<T>, NodeStopped> {
        let mut taken = None;
        let core = self.shared.lock();
        let core = self.shared.wait(core, &self.shared.active, give_up, |core| {
            taken = take(core);
            taken.is_some() || core.is_stopped()
        });
        if taken.is_none() && core.is_stopped() { Err(NodeStopped) } else { Ok(taken) }
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
        let is_new = |core: &mut Core| core.activity().count != seen || core.is_stopped();
        drop(self.shared.wait(core, &self.shared.active, now() + timeout, is_new));
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

    /// `None`: another thread has it.
    fn try_lock(&self) -> Option<MutexGuard<'_, Core>> {
        match self.core.try_lock() {
            Ok(core) => Some(core),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn is_driven(&self) -> bool {
        self.is_driven.load(Ordering::Relaxed)
    }

    /// Does something, sends what follows from it, and lets the node's thread know when its time has changed.
    pub(super) fn act<T>(&self, act: impl FnOnce(&mut Core, Timestamp) -> T) -> T {
        let mut core = self.lock();
        let now = now();
        let result = act(&mut core, now);
        self.finish(core, now);
        result
    }

    /// A producer has put something on the ring of a connection or group. Serves it on the producer's thread, unless another
    /// thread is at it, or the producer has so much that it had better go on.
    pub(super) fn call(&self, fed: Fed) {
        let Some(mut core) = self.try_lock() else { return self.waker.wake() };
        core.call(fed);
        let called = now();
        if core.stream.goes_on(called) {
            drop(core);
            return self.waker.wake();
        }
        core.advance(called);
        core.stream.served(called, now());
        self.conclude(core, called);
    }

    /// Sends what follows from what was done to the core.
    pub(super) fn finish(&self, mut core: MutexGuard<'_, Core>, now: Timestamp) {
        core.advance(now);
        self.conclude(core, now);
    }

    fn conclude(&self, mut core: MutexGuard<'_, Core>, now: Timestamp) {
        self.tell(&mut core);
        let wake = core.is_due_before_wake(now);
        drop(core);
        if wake {
            self.waker.wake();
        }
    }

    fn serve(&self) {
        // What is due soonest is what the pacer has put off.
        wait_precisely();
        let (mut ready, mut woken, mut passed) = (Vec::new(), false, 0);
        loop {
            let timeout = if let Some(core) = self.turn(woken, passed) {
                passed = 0;
                let Some(timeout) = self.round(core, std::mem::take(&mut woken), &ready) else { return };
                timeout
            } else {
                passed += 1;
                Some(PASS)
            };
            ready.clear();
            match self.poller.wait(timeout, &mut ready) {
                Ok(is_woken) => woken |= is_woken,
                Err(error) => {
                    let mut core = self.lock();
                    core.fail(now(), &error);
                    return self.tell(&mut core);
                }
            }
        }
    }

    /// The core, unless an application's thread is at it that waits for datagrams: it does what is due, and whoever waits for
    /// the lock costs it two system calls each time that it lets go of it. The node's thread waits for it all the same if it was
    /// woken, or has passed some times.
    fn turn(&self, woken: bool, passed: u32) -> Option<MutexGuard<'_, Core>> {
        let may_pass = !woken && passed < MOST_PASSED && self.is_driven();
        if may_pass { self.try_lock() } else { Some(self.lock()) }
    }

    /// Does what is due; how long to wait for more, `None` at the end.
    fn round(
        &self,
        mut core: MutexGuard<'_, Core>,
        woken: bool,
        ready: &[Ready],
    ) -> Option<Option<Duration>> {
        core.awake(now(), woken);
        if core.is_stopped() {
            return None;
        }
        for event in ready.iter().filter(|event| event.readable || event.hung_up) {
            match event.token {
                SOCKET => _ = core.receive(now),
                group => core.receive_of_group(now, group),
            }
        }
        let now = now();
        core.advance(now);
        self.watch(&mut core, now);
        self.tell(&mut core);
        Some(core.sleep(now))
    }

    /// Waits until `is_done`, which is asked each time that something happens, at most until `give_up`. `changed` is notified
    /// of what the caller waits for.
    pub(super) fn wait<'a>(
        &'a self,
        mut core: MutexGuard<'a, Core>,
        changed: &Condvar,
        give_up: Timestamp,
        mut is_done: impl FnMut(&mut Core) -> bool,
    ) -> MutexGuard<'a, Core> {
        let (mut drives, mut owes) = (false, false);
        while !is_done(&mut core) {
            let now = now();
            if std::mem::take(&mut owes) {
                self.follow(&mut core, now);
                continue;
            }
            let left = give_up.saturating_since(now);
            if left.is_zero() {
                break;
            }
            if !drives && !self.is_driven() {
                if core.owes() {
                    // The application had nothing to answer to what it took.
                    self.follow(&mut core, now);
                    continue;
                }
                drives = true;
                self.is_driven.store(true, Ordering::Relaxed);
                self.watch(&mut core, now);
            }
            if drives {
                (core, owes) = self.drive(core, left);
                continue;
            }
            core.waiting += 1;
            core = changed.wait_timeout(core, left).unwrap_or_else(PoisonError::into_inner).0;
            core.waiting -= 1;
        }
        if drives {
            let now = now();
            self.is_driven.store(false, Ordering::Relaxed);
            if owes {
                // The node's thread takes over when it looks next, which is soon.
                core.owe(now);
            } else {
                self.watch(&mut core, now);
            }
            self.wake_if_due(&core, now);
        }
        core
    }

    /// Waits for datagrams in place of the node's thread and takes them in. True: something is to be sent for them.
    fn drive<'a>(&'a self, core: MutexGuard<'a, Core>, timeout: Duration) -> (MutexGuard<'a, Core>, bool) {
        let began = now();
        self.wake_if_due(&core, began);
        let (mut core, mut came) = self.spin(core, began);
        if !came {
            drop(core);
            let (mut ready, asleep) = (Vec::new(), now());
            let result = self.driver.wait(Some(timeout), &mut ready);
            core = self.lock();
            let woke = now();
            if let Err(error) = result {
                core.fail(woke, &error);
            }
            came = !ready.is_empty() && core.receive(now);
            if came {
                core.spin.slept(woke.saturating_since(asleep));
            }
        }
        self.tell_sleepers(&mut core);
        (core, came)
    }

    /// Sends what follows from what came to the thread that waits for datagrams.
    fn follow(&self, core: &mut Core, now: Timestamp) {
        core.advance(now);
        self.tell_sleepers(core);
    }

    /// Looks for datagrams for a little while, if that has been worth it, and takes them in. It yields only where it has to: on a
    /// busy machine it would not get the processor back when something comes, as one who sleeps does.
    fn spin<'a>(&'a self, mut core: MutexGuard<'a, Core>, began: Timestamp) -> (MutexGuard<'a, Core>, bool) {
        let Some(how) = core.spin.begins() else { return (core, false) };
        loop {
            if how == Look::Yielding {
                drop(core);
                std::thread::yield_now();
                core = self.lock();
            }
            let took = now().saturating_since(began);
            let came = core.receive(now);
            if came || took >= SPIN {
                core.spin.ended(came, took);
                return (core, came);
            }
            if how == Look::Busily {
                drop(core);
                std::hint::spin_loop();
                core = self.lock();
            }
        }
    }

    fn wake_if_due(&self, core: &Core, now: Timestamp) {
        if core.is_due_before_wake(now) {
            self.waker.wake();
        }
    }

    /// Lets the node's thread watch the socket for what it has to.
    fn watch(&self, core: &mut Core, now: Timestamp) {
        let wanted = core.watch(self.is_driven());
        let Some(wanted) = wanted else { return };
        let socket = core.socket();
        let watched = match wanted {
            Watch { datagrams: true, room } => self.poller.watch_reader(socket, SOCKET, room),
            Watch { datagrams: false, room } => self.poller.watch(socket, SOCKET, room),
        };
        if let Err(error) = watched {
            core.fail(now, &error);
        }
    }

    /// Lets threads know that wait for what has happened.
    fn tell(&self, core: &mut Core) {
        if self.tell_sleepers(core) && self.is_driven() {
            self.driver_waker.wake();
        }
    }

    /// As [`Self::tell`], but for the one that waits for datagrams. False: nothing has happened.
    fn tell_sleepers(&self, core: &mut Core) -> bool {
        let is_new = core.activity().take_new();
        if is_new && core.waiting > 0 {
            self.active.notify_all();
        }
        is_new
    }
}

/// Whether a socket that is bound to `local` sends to `address`: one for every IPv6 address does to IPv4 too.
fn reaches(local: IpAddr, address: IpAddr) -> bool {
    let is_dual = local.is_ipv6() && local.is_unspecified();
    is_dual || local.is_ipv4() == address.to_canonical().is_ipv4()
}

/// For how long the node's thread leaves the core to an application's thread, and how often in a row.
const PASS: Duration = Duration::from_micros(200);
const MOST_PASSED: u32 = 25;

/// The socket among what the poller watches.
const SOCKET: u64 = 0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_for_datagrams_tells_the_others_what_followed_from_them() {
        let any = "127.0.0.1:0".parse().unwrap();
        let node = Node::bind(any, NodeConfig::new().unwrap()).unwrap();
        let mut core = node.shared.lock();
        core.activity().note();
        core.owe(now());
        let mut asked = 0;
        let mut core = node.shared.wait(core, &Condvar::new(), Timestamp::MAX, |_| {
            asked += 1;
            asked == 2
        });
        assert!(!core.activity().take_new(), "it was told before it went on");
    }
}

//! A socket, an endpoint and the thread that serves them.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use freshwire_a1::{ConnectConfig, EndpointStats, PublicKey, Qos};
use freshwire_io::network::NetworkQos;
use freshwire_io::now;
use freshwire_io::poll::{Poller, Waker, wait_precisely};
use freshwire_record::Timestamp;

use super::codes::CODE_DONE;
use super::config::{ATTEMPT_DELAYS, MAX_THREADS, NodeConfig};
use super::connection::Connection;
use super::core::{Arrivals, Core};
use super::driver::{BusyPoll, Platform as _, Protocol as _};
use super::error::{BindError, ConnectError, NodeStopped};
use super::events::Events;
use super::group::Group;
use super::group_config::{GroupConfig, GroupError};
use super::incoming::Incoming;
use super::shared::{Pollers, Shared};

/// An A1 address: connects to other nodes and accepts their connections, over one UDP socket and on one
/// thread, or on [several](NodeConfig::threads). Where UDP does not pass it can [go on over TCP](NodeConfig::tcp_fallback).
///
/// Dropping it aborts its connections, and so does [`Node::stop`]. The socket is closed once their handles are dropped as well.
pub struct Node {
    /// One for each thread, at least one.
    shards: Vec<Arc<Shared>>,
    /// Newcomers of all of them.
    arrivals: Arc<Arrivals>,
    /// Outgoing connections so far: the threads take turns.
    connected: AtomicUsize,
    public_key: PublicKey,
    /// The application decides about newcomers.
    asks: bool,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Node {
    /// Binds to `address`; port 0 lets the kernel choose one.
    ///
    /// # Errors
    ///
    /// If [`ConnectionConfig::maximum`](super::ConnectionConfig::maximum) is invalid (see [`Qos`](super::Qos)), or the system refuses a socket, a
    /// thread, or the program that distributes datagrams to several threads.
    pub fn bind(address: SocketAddr, config: NodeConfig) -> Result<Self, BindError> {
        config.connection.check()?;
        if !ATTEMPT_DELAYS.contains(&config.attempt_delay) {
            return Err(BindError::AttemptDelay(config.attempt_delay));
        }
        match config.threads {
            1 => {}
            2..=MAX_THREADS if config.tcp_fallback && config.endpoint.accept => {
                return Err(BindError::ThreadsOverTcp);
            }
            2..=MAX_THREADS => {}
            wrong => return Err(BindError::Threads(wrong)),
        }
        let arrivals = Arc::new(Arrivals::default());
        let mut node = Self {
            shards: Vec::new(),
            arrivals: Arc::clone(&arrivals),
            connected: AtomicUsize::new(0),
            public_key: config.endpoint.key.public_key(),
            asks: config.ask,
            threads: Vec::new(),
        };
        let busy_poll = config.busy_poll;
        let cores = if config.threads == 1 {
            let poller = Arc::new(Poller::new()?);
            vec![(Core::new(address, config, Arc::clone(&poller))?, poller)]
        } else {
            Core::several(address, &config, &arrivals)?
        };
        for (core, poller) in cores {
            let pollers = Pollers::new(poller, core.socket())?;
            node.shards.push(Arc::new(Shared::new(core, pollers, BusyPoll::new(busy_poll))));
        }
        // After an error the node is dropped, which ends the threads that have started.
        for shared in node.shards.clone() {
            let thread = std::thread::Builder::new().name("freshwire-a1".to_owned()).spawn(move || {
                // Datagrams that the pacer has put off are due first.
                wait_precisely();
                shared.serve();
            });
            node.threads.push(thread.map_err(BindError::Socket)?);
        }
        Ok(node)
    }

    /// The part of the first thread, which is all of it unless there are several.
    fn first(&self) -> &Arc<Shared> {
        &self.shards[0]
    }

    /// The part that has the next outgoing connection.
    pub(super) fn next_shard(&self) -> &Arc<Shared> {
        let turn = self.connected.fetch_add(1, Ordering::Relaxed);
        &self.shards[turn % self.shards.len()]
    }

    /// Local address of the socket.
    ///
    /// # Errors
    ///
    /// If the operating system cannot tell.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.first().lock().socket().local_addr()
    }

    /// Service asked of the network for the datagrams that left last.
    pub fn network_qos(&self) -> NetworkQos {
        *self.first().lock().socket().network_qos()
    }

    /// Public key by which peers identify this node.
    pub fn public_key(&self) -> PublicKey {
        self.public_key
    }

    /// Counters since the node was bound, mainly of ignored and invalid datagrams, in sum over its threads.
    pub fn stats(&self) -> EndpointStats {
        self.shards.iter().map(|shared| shared.lock().stats()).sum()
    }

    /// Waker of the node's thread, for a producer in another process after a push that asks to notify. If there are several threads,
    /// it is that of the first: have one where other processes produce.
    pub fn waker(&self) -> Waker {
        self.first().platform().node_waker().clone()
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
        let found = address.to_socket_addrs().map_err(|error| ConnectError::Unknown(error.to_string()))?;
        let mut addresses = Vec::new();
        for address in found {
            if self.reaches(address.ip())? {
                addresses.push(address);
            }
        }
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
        self.begin_connect(address, key, config)?.wait()
    }

    /// Connects anew to the peer of `connection`, with a larger maximum of the quality of service: the remedy for
    /// [`QosError::BeyondMaximum`](super::QosError::BeyondMaximum), since a connection's maximum is fixed. `maximum` may exceed the
    /// node's. Blocks until the peer has agreed to all of it.
    ///
    /// The old connection stays as it is. Close its sink to deliver the records in progress, add one to the new connection, and drop the old one.
    ///
    /// # Errors
    ///
    /// As [`Node::connect`]. With [`ConnectError::Qos`] if the peer allows less than `maximum`: the new connection is
    /// closed again, and the old one remains.
    //= spec/a1.md A1-QOS-9
    pub fn reopen(
        &self,
        connection: &Connection,
        maximum: Qos,
        config: &ConnectConfig,
    ) -> Result<Connection, ConnectError> {
        let (address, key) = (connection.peer_addr(), connection.peer_key().ok_or(ConnectError::Stopped)?);
        let connecting = self.begin_connect_within(address, &key, config, Some(maximum))?;
        let reopened = connecting.wait()?;
        let common = reopened.maximum().ok_or(ConnectError::Stopped)?;
        match maximum.check(&common) {
            Ok(()) => Ok(reopened),
            Err(error) => {
                reopened.close(CODE_DONE, "less than the maximum that was asked for");
                Err(error.into())
            }
        }
    }

    /// Returns a file that becomes readable when a connection or an attempt waits to be taken, or the node has stopped: call
    /// [`Node::accept`] or [`Node::incoming`] with a timeout of zero.
    ///
    /// # Errors
    ///
    /// If the system refuses a file descriptor.
    pub fn events(&self) -> io::Result<Events> {
        let signal = self.first().lock().newcomers_signal();
        Events::new(signal)
    }

    /// Stops the node, as dropping it does, for a node that several threads share: its connections are aborted and its sinks
    /// end. Waiting calls of other threads return their errors, and so does every later one. May be called again.
    ///
    /// The sinks' policies are not asked after the return. Policies run with the node locked, so one that calls this waits for
    /// itself. Connections that were not accepted are lost.
    pub fn stop(&self) {
        for shared in &self.shards {
            shared.act(Core::stop);
            shared.platform().wake_node();
        }
    }

    /// Whether the node's socket sends to `address`.
    pub(super) fn reaches(&self, address: IpAddr) -> Result<bool, ConnectError> {
        let local = self.local_addr().map_err(|_| ConnectError::Stopped)?.ip();
        Ok(reaches(local, address))
    }

    /// Creates a multicast group for sending, without members.
    ///
    /// # Errors
    ///
    /// If the configuration is invalid, the system refuses the socket, or the node has several threads.
    pub fn group(&self, config: &GroupConfig) -> Result<Group, GroupError> {
        config.transport.check()?;
        let [shared] = &self.shards[..] else { return Err(GroupError::Threads) };
        let id = shared.act(|core, now| core.add_group(now, config))?;
        Ok(Group::new(Arc::clone(shared), id, config.transport.address))
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
        Ok(accepted.map(|(shared, (id, address, changed))| Connection::new(shared, id, address, changed)))
    }

    /// Returns the next connection attempt for the application to accept or refuse, after at most `timeout`,
    /// or `None`. Requires [`NodeConfig::ask`].
    ///
    /// # Errors
    ///
    /// If the node has stopped.
    pub fn incoming(&self, timeout: Duration) -> Result<Option<Incoming>, NodeStopped> {
        let asked = self.await_newcomer(now() + timeout, Core::incoming)?;
        Ok(asked.map(|(shared, asked)| Incoming::new(shared, asked)))
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
    ) -> Result<Option<(Arc<Shared>, T)>, NodeStopped> {
        let [shared] = &self.shards[..] else { return self.await_any(give_up, take) };
        let mut taken = None;
        let core = shared.lock();
        let core = shared.wait(core, shared.active(), give_up, |core| {
            taken = take(core);
            taken.is_some() || core.is_stopped()
        });
        if taken.is_none() && core.is_stopped() {
            return Err(NodeStopped);
        }
        Ok(taken.map(|taken| (Arc::clone(shared), taken)))
    }

    /// The same for several threads, which serve their sockets themselves meanwhile.
    fn await_any<T>(
        &self,
        give_up: Timestamp,
        take: impl Fn(&mut Core) -> Option<T>,
    ) -> Result<Option<(Arc<Shared>, T)>, NodeStopped> {
        loop {
            let seen = self.arrivals.count();
            let mut is_stopped = false;
            for shared in &self.shards {
                let mut core = shared.lock();
                if let Some(taken) = take(&mut core) {
                    drop(core);
                    return Ok(Some((Arc::clone(shared), taken)));
                }
                is_stopped |= core.is_stopped();
            }
            let left = give_up.saturating_since(now());
            if is_stopped {
                return Err(NodeStopped);
            } else if left.is_zero() {
                return Ok(None);
            }
            self.arrivals.wait(seen, left);
        }
    }
}

#[cfg(feature = "reproduction")]
impl Node {
    /// How often something has happened, to be waited for with [`Node::wait_activity`].
    pub(super) fn activity(&self) -> u64 {
        self.first().lock().activity().count
    }

    /// Waits until something happens beyond the `seen` times, at most for `timeout`.
    pub(super) fn wait_activity(&self, seen: u64, timeout: Duration) {
        let shared = self.first();
        let core = shared.lock();
        let is_new = |core: &mut Core| core.activity().count != seen || core.is_stopped();
        drop(shared.wait(core, shared.active(), now() + timeout, is_new));
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.stop();
        for thread in self.threads.drain(..) {
            // A panic of the thread is its own message; nothing here can undo it.
            let _ = thread.join();
        }
    }
}

/// Whether a socket that is bound to `local` sends to `address`: one for every IPv6 address does to IPv4 too.
fn reaches(local: IpAddr, address: IpAddr) -> bool {
    let is_dual = local.is_ipv6() && local.is_unspecified();
    is_dual || local.is_ipv4() == address.to_canonical().is_ipv4()
}

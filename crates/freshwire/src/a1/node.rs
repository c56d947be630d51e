//! A socket, an endpoint and the thread that serves them.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use freshwire_a1::{ConnectConfig, EndpointStats, PublicKey, Qos};
use freshwire_io::network::NetworkQos;
use freshwire_io::now;
use freshwire_io::poll::{Poller, Waker, wait_precisely};
use freshwire_record::Timestamp;

use super::codes::CODE_DONE;
use super::config::{ATTEMPT_DELAYS, NodeConfig};
use super::connection::Connection;
use super::core::Core;
use super::driver::{BusyPoll, Platform as _, Protocol as _};
use super::error::{BindError, ConnectError, NodeStopped};
use super::events::Events;
use super::group::Group;
use super::group_config::{GroupConfig, GroupError};
use super::incoming::Incoming;
use super::shared::{Pollers, Shared};

/// An A1 address: connects to other nodes and accepts their connections, over one UDP socket and on one
/// thread. Where UDP does not pass it can [go on over TCP](NodeConfig::tcp_fallback).
///
/// Dropping it aborts its connections, and so does [`Node::stop`]. The socket is closed once their handles are dropped as well.
pub struct Node {
    shared: Arc<Shared>,
    public_key: PublicKey,
    /// The application decides about newcomers.
    asks: bool,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Node {
    /// Binds to `address`; port 0 lets the kernel choose one.
    ///
    /// # Errors
    ///
    /// If [`ConnectionConfig::maximum`](super::ConnectionConfig::maximum) is invalid (see [`Qos`](super::Qos)), or the system refuses a socket or a
    /// thread.
    pub fn bind(address: SocketAddr, config: NodeConfig) -> Result<Self, BindError> {
        config.connection.check()?;
        if !ATTEMPT_DELAYS.contains(&config.attempt_delay) {
            return Err(BindError::AttemptDelay(config.attempt_delay));
        }
        let (public_key, asks) = (config.endpoint.key.public_key(), config.ask);
        let poller = Arc::new(Poller::new()?);
        let busy_poll = BusyPoll::new(config.busy_poll);
        let core = Core::new(address, config, Arc::clone(&poller))?;
        let pollers = Pollers::new(poller, core.socket())?;
        let shared = Arc::new(Shared::new(core, pollers, busy_poll));
        let served = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("freshwire-a1".to_owned())
            .spawn(move || {
                // Datagrams that the pacer has put off are due first.
                wait_precisely();
                served.serve();
            })
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

    /// Service asked of the network for the datagrams that left last.
    pub fn network_qos(&self) -> NetworkQos {
        *self.shared.lock().socket().network_qos()
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
        self.shared.platform().node_waker().clone()
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
        let signal = self.shared.lock().newcomers_signal();
        Events::new(signal)
    }

    /// Stops the node, as dropping it does, for a node that several threads share: its connections are aborted and its sinks
    /// end. Waiting calls of other threads return their errors, and so does every later one. May be called again.
    ///
    /// The sinks' policies are not asked after the return. Policies run with the node locked, so one that calls this waits for
    /// itself. Connections that were not accepted are lost.
    pub fn stop(&self) {
        self.shared.act(Core::stop);
        self.shared.platform().wake_node();
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
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
    /// If the configuration is invalid or the system refuses the socket.
    pub fn group(&self, config: &GroupConfig) -> Result<Group, GroupError> {
        config.transport.check()?;
        let id = self.shared.act(|core, now| core.add_group(now, config))?;
        Ok(Group::new(Arc::clone(&self.shared), id, config.transport.address))
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
        let core = self.shared.wait(core, self.shared.active(), give_up, |core| {
            taken = take(core);
            taken.is_some() || core.is_stopped()
        });
        if taken.is_none() && core.is_stopped() { Err(NodeStopped) } else { Ok(taken) }
    }
}

#[cfg(feature = "reproduction")]
impl Node {
    /// How often something has happened, to be waited for with [`Node::wait_activity`].
    pub(super) fn activity(&self) -> u64 {
        self.shared.lock().activity().count
    }

    /// Waits until something happens beyond the `seen` times, at most for `timeout`.
    pub(super) fn wait_activity(&self, seen: u64, timeout: Duration) {
        let core = self.shared.lock();
        let is_new = |core: &mut Core| core.activity().count != seen || core.is_stopped();
        drop(self.shared.wait(core, self.shared.active(), now() + timeout, is_new));
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.stop();
        if let Some(thread) = self.thread.take() {
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

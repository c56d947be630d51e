//! The application's handle of a connection.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use freshwire_a1::{
    Closed, ConnectionHandle, ConnectionStats, Message, Missing, Protection, PublicKey, Qos, QosError,
};
use freshwire_io::now;
use freshwire_record::Timestamp;
use freshwire_ring::Consumer;

use super::config::SinkConfig;
use super::core::{Core, SinkTarget};
use super::driver::{Condvar, Protocol as _};
use super::error::ConnectError;
use super::events::Events;
use super::joined::Membership;
use super::peer::{Peer, State};
use super::record_source::RecordSource;
use super::shared::Shared;
use super::sink::{AttachedSink, CloseAction, Keeper, NodeServer};
use super::source::RingSource;
use super::status::{ConnectionStatus, QosNews};
use crate::carrier::CarrierInUse;
use crate::error::SenderError;
use crate::sink::handle::{Notifier, Sink};
use crate::sink::shared::SinkShared;
use crate::sink::signal::Signal;

/// A connection to another node: receives messages, and sends from a ring after
/// [`Sender::add_a1_sink`](crate::Sender::add_a1_sink). Clones refer to the same connection. Dropping the
/// last one closes it; a sink holds one.
#[derive(Clone)]
pub struct Connection(Arc<Inner>);

/// The connection as long as anybody has it.
struct Inner {
    node: Arc<Shared>,
    id: ConnectionHandle,
    /// Where the other node was at first.
    address: SocketAddr,
    changed: Arc<Condvar>,
}

impl Connection {
    pub(super) fn new(
        node: Arc<Shared>,
        id: ConnectionHandle,
        address: SocketAddr,
        changed: Arc<Condvar>,
    ) -> Self {
        Self(Arc::new(Inner { node, id, address, changed }))
    }

    /// Current address of the peer, which may change during the connection.
    pub fn peer_addr(&self) -> SocketAddr {
        self.0.node.lock().peer(self.0.id).map_or(self.0.address, |peer| peer.address)
    }

    /// Whether it goes over TCP now: [`NodeConfig::tcp_fallback`](super::NodeConfig::tcp_fallback) permits it, and UDP does not pass.
    pub fn is_over_tcp(&self) -> bool {
        self.0.node.lock().transport(self.0.id).is_some_and(|connection| connection.is_over_tcp())
    }

    /// Public key of the peer.
    pub fn peer_key(&self) -> Option<PublicKey> {
        self.0.node.lock().peer(self.0.id).map(|peer| peer.key)
    }

    /// Quality of service in force, from this end's view; the last one after the connection's end. `None` if it was never
    /// established.
    pub fn qos(&self) -> Option<Qos> {
        self.0.node.lock().transport(self.0.id).map(|connection| *connection.qos())
    }

    /// Protection of the packets: the stronger of both ends' requirements. `None` if the connection was never established.
    pub fn protection(&self) -> Option<Protection> {
        self.0.node.lock().transport(self.0.id).map(|connection| connection.protection())
    }

    /// Upper limit for [`Connection::set_qos`]: the smaller of both ends' maxima in each field, from this
    /// end's view. `None` if the connection was never established.
    pub fn maximum(&self) -> Option<Qos> {
        self.0.node.lock().transport(self.0.id).map(|connection| *connection.maximum())
    }

    /// Requests another quality of service within [`Connection::maximum`]. It takes effect with the peer's
    /// answer.
    ///
    /// # Errors
    ///
    /// If the request exceeds the maximum, another change is pending, or the connection has ended.
    pub fn set_qos(&self, qos: Qos) -> Result<(), QosError> {
        self.0.node.act(|core, _| match core.transport(self.0.id) {
            Some(connection) => connection.set_qos(qos),
            None => Err(QosError::Ended),
        })
    }

    /// Statistics, also after the connection's end. `None` if it was never established.
    pub fn stats(&self) -> Option<ConnectionStats> {
        self.0.node.lock().transport(self.0.id).map(|connection| connection.stats())
    }

    /// Reason for the end; `None` while the connection is open.
    pub fn closed(&self) -> Option<Closed> {
        match &self.0.node.lock().peer(self.0.id)?.state {
            State::Closed(closed) => Some(closed.clone()),
            _ => None,
        }
    }

    /// Returns the next message, after at most `timeout`, or `None`. Receiving it frees its space in the
    /// peer's window.
    ///
    /// # Errors
    ///
    /// If the connection has ended; messages that arrived before are returned first.
    pub fn recv(&self, timeout: Duration) -> Result<Option<Message>, Closed> {
        let Inner { node, id, changed, .. } = &*self.0;
        let core = node.lock();
        let (called, mut received) = (now(), Ok(None));
        // The first look is now; each one after it has its own time, for the age of what it finds.
        let mut looks_at = Some(called);
        let core = node.wait(core, changed, called + timeout, |core| {
            received = match core.recv(looks_at.take().unwrap_or_else(now), *id) {
                Some(message) => Ok(Some(message)),
                None => match core.peer(*id).map(|peer| &peer.state) {
                    Some(State::Closed(closed)) => Err(closed.clone()),
                    _ => Ok(None),
                },
            };
            !matches!(received, Ok(None))
        });
        // A message that was taken may open the window.
        if !core.owes_responses() && core.has_ready() {
            node.finish(core, now());
        }
        received
    }

    /// Returns a file that becomes readable when a message or a report of a missing one has come, or the connection has
    /// ended. A change of the quality of service and an invitation count too. Call [`Connection::recv`] with a timeout of
    /// zero then.
    ///
    /// # Errors
    ///
    /// If the system refuses a file descriptor.
    pub fn events(&self) -> io::Result<Events> {
        self.events_of(|peer| peer.news_signal.get())
    }

    /// The file for each time that it has sent what it could, as far as it is asked for with [`Self::await_turn_after`].
    pub(super) fn turn_events(&self) -> io::Result<Events> {
        self.events_of(|peer| peer.turn_signal.get())
    }

    fn events_of(&self, of_peer: impl FnOnce(&mut Peer) -> Arc<Signal>) -> io::Result<Events> {
        // One that is forgotten has ended: its file is readable from the start, as every one is.
        let signal = self.0.node.lock().peer(self.0.id).map(of_peer).unwrap_or_default();
        Events::new(signal)
    }

    /// Returns the next message that the peer has announced as dropped or abandoned, the oldest first.
    pub fn poll_missing(&self) -> Option<Missing> {
        self.0.node.lock().transport(self.0.id)?.poll_missing()
    }

    /// Multicast groups to which the peer has invited this node. [`Connection::recv`] returns their messages.
    pub fn memberships(&self) -> Vec<Membership> {
        self.0.node.lock().peer(self.0.id).map(|peer| peer.memberships.clone()).unwrap_or_default()
    }

    /// Closes the connection with a code (0 for normal) and a text for the peer. Undelivered messages are
    /// abandoned; close the sink instead to deliver them first.
    pub fn close(&self, code: u64, reason: &str) {
        self.0.node.act(|core, now| core.close(self.0.id, now, code, reason));
    }

    /// Current status: what holds messages back, changes of the quality of service, and the end. A change of the
    /// quality of service is reported once.
    pub fn status(&self) -> ConnectionStatus {
        let (held, news) = (self.held(), self.take_news());
        ConnectionStatus {
            qos_pending: held.qos_pending || news.pending,
            qos_changed: news.changed,
            closed: self.closed(),
            ..held
        }
    }

    /// The reason that holds messages back, and whether a change of the quality of service is pending.
    pub(super) fn held(&self) -> ConnectionStatus {
        let mut core = self.0.node.lock();
        let Some(connection) = core.transport(self.0.id) else { return ConnectionStatus::default() };
        ConnectionStatus {
            window_exceeded: connection.is_window_full(),
            rate_exceeded: connection.is_rate_exceeded(),
            qos_pending: connection.is_qos_pending(),
            over_tcp: connection.is_over_tcp(),
            ..ConnectionStatus::default()
        }
    }

    /// Changes of the quality of service since the last call.
    pub(super) fn take_news(&self) -> QosNews {
        self.0.node.lock().peer(self.0.id).map_or(QosNews::default(), |peer| std::mem::take(&mut peer.news))
    }

    /// Sends what it may of its ring.
    #[cfg(feature = "reproduction")]
    pub(super) fn catch_up(&self) {
        self.0.node.act(|core, _| core.call(SinkTarget::Connection(self.0.id)));
    }

    /// How many more messages the receiver takes.
    #[cfg(feature = "reproduction")]
    pub(super) fn credit(&self) -> u64 {
        self.0.node.lock().transport(self.0.id).map_or(0, |connection| connection.credit())
    }

    /// Asks for it to count as activity of the node when it has sent what it could.
    #[cfg(feature = "reproduction")]
    pub(super) fn await_turn(&self) {
        if let Some(peer) = self.0.node.lock().peer(self.0.id) {
            peer.is_awaited = true;
        }
    }

    /// Whether it hands out messages in order, and the quality of service in force. `None`: the connection has ended.
    pub(super) fn order_and_qos(&self) -> Option<(bool, Qos)> {
        let mut core = self.0.node.lock();
        core.transport(self.0.id).map(|connection| (connection.is_in_order(), *connection.qos()))
    }

    /// How often it has sent what it could.
    pub(super) fn turns(&self) -> u64 {
        self.0.node.lock().peer(self.0.id).map_or(0, |peer| peer.turns)
    }

    /// Waits until it has sent what it could again since it had done so `turns` times, or has ended, at most until `give_up`.
    pub(super) fn wait_turn(&self, turns: u64, give_up: Timestamp) {
        let Inner { node, id, changed, .. } = &*self.0;
        drop(node.wait(node.lock(), changed, give_up, |core| {
            let Some(peer) = core.peer(*id) else { return true };
            peer.is_awaited = true;
            peer.turns != turns || peer.state.is_over()
        }));
    }

    /// Makes [`Self::turn_events`] readable at the first turn after the first `turns`.
    pub(super) fn await_turn_after(&self, turns: u64) {
        let mut core = self.0.node.lock();
        let Some(peer) = core.peer(self.0.id) else { return };
        if peer.turns != turns || peer.state.is_over() {
            return peer.turn_signal.set();
        }
        peer.is_awaited = true;
    }

    /// Waits until the handshake is complete.
    pub(super) fn wait_open(&self) -> Result<(), ConnectError> {
        let Inner { node, id, changed, .. } = &*self.0;
        let mut result = Ok(());
        drop(node.wait(node.lock(), changed, Timestamp::MAX, |core| {
            let is_open = handshake(core, *id);
            let is_over = !matches!(is_open, Ok(false));
            result = is_open.map(drop);
            is_over
        }));
        result
    }

    /// Whether its handshake is complete.
    pub(super) fn poll_open(&self) -> Result<bool, ConnectError> {
        handshake(&mut self.0.node.lock(), self.0.id)
    }

    /// Feeds it from a ring.
    pub(crate) fn serve(&self, consumer: Consumer, config: SinkConfig) -> Result<Sink, SenderError> {
        let ring = consumer.ring();
        let departures = config.departures;
        self.attach(ring, config, |shared| {
            Box::new(RingSource::new(consumer, shared).telling_ends(departures))
        })
    }

    /// Feeds it, and counts what that does.
    pub(super) fn attach(
        &self,
        ring: usize,
        config: SinkConfig,
        make_source: impl FnOnce(Arc<SinkShared>) -> Box<dyn RecordSource>,
    ) -> Result<Sink, SenderError> {
        let shared = Arc::new(SinkShared::new(CarrierInUse::A1, None, None));
        let SinkConfig { policy, linger, departures } = config;
        let sink = AttachedSink::new(make_source(Arc::clone(&shared)), Arc::clone(&shared));
        self.0.node.act(|core, _| {
            match core.peer(self.0.id).map(|peer| &peer.state) {
                Some(State::Open) => {}
                Some(State::Closed(closed)) => return Err(SenderError::ConnectionEnded(closed.clone())),
                _ => return Err(SenderError::NotConnected),
            }
            if departures {
                core.note_departures()?;
            }
            if !core.attach(self.0.id, sink) {
                return Err(SenderError::HasSink);
            }
            if let Some(connection) = core.transport(self.0.id) {
                connection.set_policy(policy);
            }
            Ok(())
        })?;
        let server = Box::new(NodeServer(self.clone()));
        Ok(Sink::new(ring, shared, server, linger))
    }

    /// Notifies the node after a push that asks for it.
    pub(crate) fn notifier(&self) -> NodeNotifier {
        NodeNotifier { node: Arc::downgrade(&self.0.node), target: SinkTarget::Connection(self.0.id) }
    }

    pub(super) fn id(&self) -> ConnectionHandle {
        self.0.id
    }

    /// Whether it is one of this node's.
    pub(super) fn is_of(&self, node: &Arc<Shared>) -> bool {
        Arc::ptr_eq(&self.0.node, node)
    }
}

/// Whether a connection's handshake is complete.
fn handshake(core: &mut Core, id: ConnectionHandle) -> Result<bool, ConnectError> {
    match core.peer(id).map(|peer| peer.state.clone()) {
        Some(State::Open) => Ok(true),
        Some(State::Connecting) => Ok(false),
        Some(State::Failed(error)) => Err(error.into()),
        Some(State::Closed(Closed::Local)) if core.is_stopped() => Err(ConnectError::Stopped),
        Some(State::Closed(closed)) => Err(closed.into()),
        None => Err(ConnectError::Stopped),
    }
}

impl Keeper for Connection {
    fn ask(&self, ask: impl FnOnce(&mut AttachedSink, Timestamp) -> CloseAction) {
        self.0.node.act(|core, now| core.ask(self.0.id, now, ask));
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.node.act(|core, now| core.forget(self.id, now));
    }
}

/// Calls a node for one of its connections or groups.
pub(crate) struct NodeNotifier {
    node: Weak<Shared>,
    target: SinkTarget,
}

impl NodeNotifier {
    pub(super) fn of_group(node: &Arc<Shared>, id: u32) -> Self {
        Self { node: Arc::downgrade(node), target: SinkTarget::Group(id) }
    }
}

impl Notifier for NodeNotifier {
    fn notify(&self) {
        if let Some(node) = self.node.upgrade() {
            node.push(|core| core.call(self.target));
        }
    }
}

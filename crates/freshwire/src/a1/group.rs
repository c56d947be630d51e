//! The application's handle of a multicast group.

use std::net::SocketAddr;
use std::sync::Arc;

use freshwire_record::Timestamp;
use freshwire_ring::Consumer;

use super::config::SinkConfig;
use super::connection::{Connection, NodeNotifier};
use super::group_config::{GroupStats, InviteError};
use super::record_source::RecordSource;
use super::shared::Shared;
use super::sink::{AttachedSink, CloseAction, Keeper, NodeServer};
use super::source::RingSource;
use crate::carrier::CarrierInUse;
use crate::error::SenderError;
use crate::sink::handle::Sink;
use crate::sink::shared::SinkShared;

/// One stream to many over IP multicast: a record's packets are sent once for all members, and a member requests missing packets over its
/// connection. A slow or lost member does not affect the others.
///
/// [`add_a1_group`](crate::Sender::add_a1_group) makes it a sink of a [`Sender`](crate::Sender), with these differences:
/// - The policy is asked once, at the commit point. [`GroupTransportConfig::repair_for`](super::GroupTransportConfig::repair_for) and the record's deadline decide about repairs.
/// - There are no acknowledgements. The fate *acknowledged*, and acknowledged bytes, mean that a record was sent and that the time for
///   its repair is over, regardless of who received it.
/// - Closing the sink closes no connection. Draining takes the time for repairs.
///
/// The sender does not learn whether a member has joined the address, nor whether the network delivers the packets. The member's
/// [`Connection::memberships`](super::Connection::memberships) reports the former. Connections with a group are kept alive. Clones refer
/// to the same group, which ends when the last one is dropped; a sink holds one.
#[derive(Clone)]
pub struct Group(Arc<Inner>);

/// The group as long as anybody has it.
struct Inner {
    node: Arc<Shared>,
    id: u32,
    address: SocketAddr,
}

impl Group {
    pub(super) fn new(node: Arc<Shared>, id: u32, address: SocketAddr) -> Self {
        Self(Arc::new(Inner { node, id, address }))
    }

    /// AnySink address of the packets.
    pub fn address(&self) -> SocketAddr {
        self.0.address
    }

    /// Number of the group in its packets.
    pub fn id(&self) -> u32 {
        self.0.id
    }

    /// Makes the peer of a connection a member until the connection ends. It receives the address, the
    /// group's key, and records sent from now on.
    ///
    /// # Errors
    ///
    /// If the connection belongs to another node or has ended, or the node has stopped.
    pub fn invite(&self, connection: &Connection) -> Result<(), InviteError> {
        if !connection.is_of(&self.0.node) {
            return Err(InviteError::OtherNode);
        }
        self.0.node.act(|core, now| core.invite(self.0.id, connection.id(), now))
    }

    /// Statistics. `None` if the node has stopped.
    pub fn stats(&self) -> Option<GroupStats> {
        self.0.node.lock().groups().stats(self.0.id)
    }

    /// Feeds it from a ring.
    pub(crate) fn serve(&self, consumer: Consumer, config: SinkConfig) -> Result<Sink, SenderError> {
        let ring = consumer.ring();
        self.attach(ring, config, |shared| Box::new(RingSource::new(consumer, shared)))
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
        if departures {
            return Err(SenderError::NoDepartures("a multicast group"));
        }
        let sink = AttachedSink::new(make_source(Arc::clone(&shared)), Arc::clone(&shared));
        self.0.node.act(|core, _| core.groups().attach(self.0.id, sink, policy))?;
        Ok(Sink::new(ring, shared, Box::new(NodeServer(self.clone())), linger))
    }

    /// Notifies the node after a push that asks for it.
    pub(crate) fn notifier(&self) -> NodeNotifier {
        NodeNotifier::of_group(&self.0.node, self.0.id)
    }
}

impl Keeper for Group {
    fn ask(&self, ask: impl FnOnce(&mut AttachedSink, Timestamp) -> CloseAction) {
        self.0.node.act(|core, now| core.groups().ask(self.0.id, now, ask));
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.node.act(|core, _| core.groups().forget(self.id));
    }
}

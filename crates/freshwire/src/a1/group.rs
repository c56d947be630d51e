//! The application's handle of a multicast group.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use freshwire_io::udp::Interface;
use freshwire_ring::Consumer;
use freshwire_units::{Rate, Timestamp};

use super::config::SinkConfig;
use super::connection::{Caller, Connection};
use super::error::NodeStopped;
use super::node::Shared;
use super::sink::{Feeding, InNode, Keeper, Wish};
use super::source::RingSource;
use super::supply::Supply;
use crate::carrier::CarrierInUse;
use crate::sender::SenderError;
use crate::sink::{Sink, SinkShared};

/// How a [`Group`] sends.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct GroupConfig {
    /// The multicast address.
    pub address: SocketAddr,
    /// At which rate, in UDP payload. Nobody acknowledges, so there is no congestion control: the network has to provide
    /// for this rate.
    pub rate: Rate,
    /// The largest UDP payload, 1200 or more. Every member's path has to carry it. Default: 1200.
    pub datagram: u16,
    /// For how long a record is kept for repairs after it was sent, unless its deadline comes first. Its slot and its blocks
    /// of the ring are in use for that long. Default: one second.
    pub repair_for: Duration,
    /// Where the members are. Default: where an IPv4 address that the node is bound to is, else where the connection of the first
    /// member is, which is known for IPv4, and for IPv6 with link-local addresses; else what the routing table says. Members
    /// elsewhere get all of it as repairs, late.
    pub interface: Interface,
    /// How many networks away members may be, less one: routers count this down. Default: 1, this network only.
    pub hops: u8,
    /// Whether members on this machine get the packets too. Default: yes.
    pub to_this_machine: bool,
}

impl GroupConfig {
    /// The defaults with this address and rate.
    pub fn new(address: SocketAddr, rate: Rate) -> Self {
        Self {
            address,
            rate,
            datagram: MIN_DATAGRAM,
            repair_for: Duration::from_secs(1),
            interface: Interface::default(),
            hops: 1,
            to_this_machine: true,
        }
    }

    /// Sets the largest UDP payload.
    #[must_use]
    pub fn datagram(mut self, bytes: u16) -> Self {
        self.datagram = bytes;
        self
    }

    /// Sets for how long a record is kept for repairs.
    #[must_use]
    pub fn repair_for(mut self, time: Duration) -> Self {
        self.repair_for = time;
        self
    }

    /// Sets where the members are.
    #[must_use]
    pub fn interface(mut self, interface: Interface) -> Self {
        self.interface = interface;
        self
    }

    /// Sets how many networks away members may be, less one.
    #[must_use]
    pub fn hops(mut self, hops: u8) -> Self {
        self.hops = hops;
        self
    }

    /// Sets whether members on this machine get the packets too.
    #[must_use]
    pub fn to_this_machine(mut self, wanted: bool) -> Self {
        self.to_this_machine = wanted;
        self
    }

    pub(super) fn check(&self) -> Result<(), GroupError> {
        if !self.address.ip().is_multicast() || self.address.port() == 0 {
            return Err(GroupError::Address(self.address));
        }
        if self.rate.bits_per_sec() == 0 || self.datagram < MIN_DATAGRAM {
            return Err(GroupError::Size);
        }
        Ok(())
    }
}

/// Why a group could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GroupError {
    /// The address is nobody's group, or has no port.
    #[error("{0} is not a multicast address with a port")]
    Address(SocketAddr),
    /// The rate is zero, or the datagram smaller than what every path carries.
    #[error("a group needs a rate above zero and datagrams of at least {MIN_DATAGRAM} bytes")]
    Size,
    /// The operating system gives no socket for it.
    #[error("cannot send to the group: {0}")]
    Socket(#[from] io::Error),
    /// The node was dropped, or its socket failed.
    #[error(transparent)]
    Stopped(#[from] NodeStopped),
}

/// Why a peer cannot be invited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InviteError {
    /// The connection is one of another node.
    #[error("the connection belongs to another node than the group")]
    OtherNode,
    /// The connection does not stand any more.
    #[error("the connection has ended")]
    Ended,
    /// The node was dropped, or its socket failed.
    #[error(transparent)]
    Stopped(#[from] NodeStopped),
}

/// What a group has done so far. Bytes are UDP payload. What its members were sent again is in
/// [`Connection::stats`](super::Connection::stats).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupStats {
    /// Packets sent to the group's address.
    pub packets_sent: u64,
    /// Bytes of them.
    pub bytes_sent: u64,
    /// Of these packets, those that the operating system did not take: there is no way to the address, or they are larger
    /// than the network carries. If it refuses all, nobody gets anything.
    pub packets_refused: u64,
    /// Connections that were invited and stand.
    pub members: usize,
}

/// One stream to many over IP multicast: a record's packets leave once for all members, and a member that misses some asks
/// for them over its connection. A member that is slow, or gone, costs the others nothing.
///
/// It is a sink of a [`Sender`](crate::Sender) once it was given to [`add_a1_group`](crate::Sender::add_a1_group), with these
/// differences:
/// - The policy is asked before a record is begun, and not again. What is repaired is decided by
///   [`GroupConfig::repair_for`] and the record's deadline.
/// - Nobody acknowledges. The fate *acknowledged*, and the bytes that are counted so, mean that a record was sent and that the
///   time for its repair is over, whoever has got it.
/// - Closing the sink closes no connection. Draining takes the time for repairs.
///
/// Whether a member has joined the address, and whether the network takes the packets there, the sender does not get to know:
/// the member's own [`Connection::memberships`](super::Connection::memberships) says the first. A connection with a group is
/// kept alive. Clones are the same group. It ends when the last one is dropped; a sink holds one.
#[derive(Clone)]
pub struct Group(Arc<Held>);

/// The group as long as anybody has it.
struct Held {
    node: Arc<Shared>,
    id: u32,
    address: SocketAddr,
}

impl Group {
    pub(super) fn new(node: Arc<Shared>, id: u32, address: SocketAddr) -> Self {
        Self(Arc::new(Held { node, id, address }))
    }

    /// Where its packets go.
    pub fn address(&self) -> SocketAddr {
        self.0.address
    }

    /// The number that its packets carry.
    pub fn id(&self) -> u32 {
        self.0.id
    }

    /// Makes the peer of a connection a member: it is told the address and the group's key, and gets what is sent from now
    /// on. It stays one until the connection ends.
    pub fn invite(&self, connection: &Connection) -> Result<(), InviteError> {
        if !connection.is_of(&self.0.node) {
            return Err(InviteError::OtherNode);
        }
        self.0.node.act(|core, now| core.invite(self.0.id, connection.id(), now))
    }

    /// What it has done so far. `None`: the node has stopped.
    pub fn stats(&self) -> Option<GroupStats> {
        self.0.node.lock().groups().stats(self.0.id)
    }

    /// Feeds it from a ring.
    pub(crate) fn serve(&self, consumer: Consumer, config: SinkConfig) -> Result<Sink, SenderError> {
        let ring = consumer.ring();
        self.feed(ring, config, |shared| Box::new(RingSource::new(consumer, shared)))
    }

    /// Feeds it, and counts what that does.
    pub(super) fn feed(
        &self,
        ring: usize,
        config: SinkConfig,
        supply: impl FnOnce(Arc<SinkShared>) -> Box<dyn Supply>,
    ) -> Result<Sink, SenderError> {
        let shared = Arc::new(SinkShared::new(CarrierInUse::A1, None, None));
        let SinkConfig { policy, linger } = config;
        let feeding = Feeding::new(supply(Arc::clone(&shared)), Arc::clone(&shared));
        self.0.node.act(|core, _| core.groups().feed(self.0.id, feeding, policy))?;
        Ok(Sink { ring, shared, server: Box::new(InNode(self.clone())), linger, closed: false })
    }

    /// What a producer calls whose push asks for it.
    pub(crate) fn caller(&self) -> Caller {
        Caller::of_group(&self.0.node, self.0.id)
    }
}

impl Keeper for Group {
    fn ask(&self, ask: impl FnOnce(&mut Feeding, Timestamp) -> Wish) {
        self.0.node.act(|core, now| core.groups().ask(self.0.id, now, ask));
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.node.act(|core, _| core.groups().forget(self.id));
    }
}

/// The smallest datagram that every path carries.
const MIN_DATAGRAM: u16 = 1200;

//! Configuration, errors and statistics of multicast groups.

use std::io;
use std::net::SocketAddr;

use freshwire_a1::{GroupConfigError, GroupTransportConfig};
use freshwire_io::network::NetworkQosError;
use freshwire_io::udp::Interface;
use freshwire_record::Rate;

use super::error::NodeStopped;

/// Configuration of a [`Group`](super::Group).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct GroupConfig {
    /// Address, rate and repairs.
    pub transport: GroupTransportConfig,
    /// Network interface of the members. Default: that of an IPv4 address to which the node is bound. Otherwise that
    /// of the first member's connection, known for IPv4 and for link-local IPv6; otherwise by the routing table.
    /// Members elsewhere receive everything as repairs, late.
    pub interface: Interface,
    /// Number of networks to cross (TTL). Default: 1, this network only.
    pub hops: u8,
    /// Whether members on this machine receive the packets too. Default: `true`.
    pub to_this_machine: bool,
}

impl From<GroupTransportConfig> for GroupConfig {
    fn from(transport: GroupTransportConfig) -> Self {
        Self { transport, interface: Interface::default(), hops: 1, to_this_machine: true }
    }
}

impl GroupConfig {
    /// Creates the defaults with this address and rate.
    pub fn new(address: SocketAddr, rate: Rate) -> Self {
        GroupTransportConfig::new(address, rate).into()
    }

    /// Sets the network interface of the members.
    #[must_use]
    pub fn interface(mut self, interface: Interface) -> Self {
        self.interface = interface;
        self
    }

    /// Sets the number of networks to cross.
    #[must_use]
    pub fn hops(mut self, hops: u8) -> Self {
        self.hops = hops;
        self
    }

    /// Sets whether members on this machine receive the packets too.
    #[must_use]
    pub fn to_this_machine(mut self, wanted: bool) -> Self {
        self.to_this_machine = wanted;
        self
    }
}

/// Error of creating a group.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GroupError {
    /// Address, rate or datagram size is invalid.
    #[error(transparent)]
    Config(#[from] GroupConfigError),
    /// The host does not give the group's datagrams the wanted quality of service.
    #[error(transparent)]
    Network(#[from] NetworkQosError),
    /// The node has several threads, of which each has only a part of the connections.
    #[error("a node with several threads sends to no group: bind one with threads set to 1")]
    Threads,
    /// The operating system gives no socket for it.
    #[error("cannot send to the group: {0}")]
    Socket(#[from] io::Error),
    /// The node was stopped or dropped, or its socket failed.
    #[error(transparent)]
    Stopped(#[from] NodeStopped),
}

/// Error of inviting a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InviteError {
    /// The connection is one of another node.
    #[error("the connection belongs to another node than the group")]
    OtherNode,
    /// The connection has ended.
    #[error("the connection has ended")]
    Ended,
    /// The node was stopped or dropped, or its socket failed.
    #[error(transparent)]
    Stopped(#[from] NodeStopped),
}

/// Statistics of a group. Bytes are UDP payload. Repairs to members are in
/// [`Connection::stats`](super::Connection::stats).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupStats {
    /// Packets sent to the group's address.
    pub packets_sent: u64,
    /// Bytes sent to the group's address.
    pub bytes_sent: u64,
    /// The part of `packets_sent` that the operating system refused: there is no route to the address, or they
    /// are too large. If all are refused, no member receives anything.
    pub packets_refused: u64,
    /// Open connections that were invited.
    pub members: usize,
}

//! The multicast groups to which others have invited the node.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use freshwire_a1::ConnectionHandle;
use freshwire_io::poll::Poller;
use freshwire_io::udp::{Group, Interface, UdpConfig, UdpSocket};

/// Rules for joining multicast groups on a peer's invitation.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct JoinConfig {
    /// Largest number of groups, over all connections. Default: 16.
    pub most: usize,
    /// Network interface. Default: that of the connection, if known (IPv4 by its local address, link-local
    /// IPv6); else by the routing table.
    pub interface: Option<Interface>,
}

impl Default for JoinConfig {
    fn default() -> Self {
        Self { most: 16, interface: None }
    }
}

impl JoinConfig {
    /// Sets the largest number of groups.
    #[must_use]
    pub fn most(mut self, most: usize) -> Self {
        self.most = most;
        self
    }

    /// Sets the network interface.
    #[must_use]
    pub fn interface(mut self, interface: Interface) -> Self {
        self.interface = Some(interface);
        self
    }
}

/// A multicast group to which the peer of a connection has invited this node.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Membership {
    /// The number that the group's packets carry.
    pub group: u32,
    /// Destination address of the group's packets.
    pub address: SocketAddr,
    /// Whether this node has joined the address. Delivery is up to the network.
    pub joined: Result<(), JoinError>,
}

/// Reason for which an invitation was declined.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// [`NodeConfig::join`](super::NodeConfig::join) does not permit it.
    #[error("the node joins no groups")]
    NotWanted,
    /// The address is nobody's group.
    #[error("not a multicast address")]
    NotMulticast,
    /// The node has as many as it may have.
    #[error("the node is in as many groups as it may be")]
    TooMany,
    /// Another connection has a group of the same number.
    #[error("the node is in this group by another connection")]
    Twice,
    /// The operating system did not let it.
    #[error("cannot join: {0}")]
    Refused(String),
}

/// The sockets of the groups that a node has joined.
pub(super) struct Joined {
    config: Option<JoinConfig>,
    receive_buffer: usize,
    poller: Arc<Poller>,
    sockets: BTreeMap<Place, Socket>,
    next_token: u64,
}

/// Where a group's packets come.
type Place = (Group, u16);

struct Socket {
    socket: UdpSocket,
    token: u64,
    /// For which groups of which connections it is there.
    memberships: BTreeSet<(ConnectionHandle, u32)>,
}

impl Joined {
    pub(super) fn new(config: Option<JoinConfig>, receive_buffer: usize, poller: Arc<Poller>) -> Self {
        Self { config, receive_buffer, poller, sockets: BTreeMap::new(), next_token: FIRST_TOKEN }
    }

    /// Joins a group. `local` is the address to which the connection's peer sends, `peer` the peer's own.
    //= spec/a1.md A1-GRP-7
    pub(super) fn join(
        &mut self,
        handle: ConnectionHandle,
        group: u32,
        address: SocketAddr,
        (local, peer): (Option<IpAddr>, SocketAddr),
    ) -> Result<(), JoinError> {
        let config = self.config.ok_or(JoinError::NotWanted)?;
        if !address.ip().is_multicast() {
            return Err(JoinError::NotMulticast);
        }
        if self.sockets.values().map(|socket| socket.memberships.len()).sum::<usize>() >= config.most {
            return Err(JoinError::TooMany);
        }
        let interface = config.interface.unwrap_or_else(|| interface_of(address, local, peer));
        let place = (Group { address: address.ip(), interface }, address.port());
        if !self.sockets.contains_key(&place) {
            let socket = self.open(place, address).map_err(|error| JoinError::Refused(error.to_string()))?;
            self.sockets.insert(place, socket);
        }
        if let Some(socket) = self.sockets.get_mut(&place) {
            socket.memberships.insert((handle, group));
        }
        Ok(())
    }

    fn open(&mut self, (group, _): Place, address: SocketAddr) -> io::Result<Socket> {
        let config = UdpConfig::default().shared(true).only_v6(true).receive_buffer(self.receive_buffer);
        // Bound to the group's address it gets nothing else that comes to this port.
        let socket = UdpSocket::bind(address, config)?;
        socket.join(group)?;
        let token = self.next_token;
        self.poller.add_reader(&socket, token)?;
        self.next_token += 1;
        Ok(Socket { socket, token, memberships: BTreeSet::new() })
    }

    /// Leaves the groups of a connection that has ended.
    pub(super) fn leave(&mut self, handle: ConnectionHandle) {
        self.sockets.retain(|_, socket| {
            socket.memberships.retain(|(member, _)| *member != handle);
            !socket.memberships.is_empty()
        });
    }

    /// The tokens of its sockets.
    pub(super) fn tokens(&self) -> Vec<u64> {
        self.sockets.values().map(|socket| socket.token).collect()
    }

    /// The socket with this token.
    pub(super) fn socket(&self, token: u64) -> Option<&UdpSocket> {
        self.sockets.values().find(|socket| socket.token == token).map(|socket| &socket.socket)
    }
}

/// The interface for a group that a connection is on, as far as its ends tell it.
pub(super) fn interface_of(group: SocketAddr, local: Option<IpAddr>, peer: SocketAddr) -> Interface {
    match (group, local, peer) {
        (SocketAddr::V4(_), Some(IpAddr::V4(local)), _) => Interface::Of(local),
        (SocketAddr::V6(_), _, SocketAddr::V6(peer)) if peer.scope_id() != 0 => {
            Interface::Number(peer.scope_id())
        }
        _ => Interface::Routed,
    }
}

/// The first token that is not the node's own socket.
const FIRST_TOKEN: u64 = 1;

//! The multicast groups to which the node sends.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::time::Duration;

use freshwire_a1::{Connection as Transport, ConnectionHandle, Group, Queue, Source};
use freshwire_choice::{Choice, LinkView, Reason};
use freshwire_io::network::NetworkQos;
use freshwire_io::udp::{self, Interface, Outgoing, Sent, UdpConfig, UdpSocket};
use freshwire_record::Timestamp;

use super::group_config::{GroupConfig, GroupError, GroupStats};
use super::joined::interface_of;
use super::sink::{AttachedSink, CloseAction};
use crate::error::SenderError;
use crate::sink::ended::{Ended, SinkError};

/// How many packets of one group leave before it is somebody else's turn.
const PACKETS_PER_TURN: usize = 64;

/// When a socket without room is tried again.
const RETRY: Duration = Duration::from_millis(1);

/// The groups that a node sends to, by their numbers.
#[derive(Default)]
pub(super) struct Groups(BTreeMap<u32, Sending>);

/// A group that this node sends to.
struct Sending {
    group: Group,
    config: GroupConfig,
    socket: UdpSocket,
    /// The packet that is being made, or that the socket had no room for.
    packet: Vec<u8>,
    retry_at: Option<Timestamp>,
    sink: Option<AttachedSink>,
    members: BTreeSet<ConnectionHandle>,
    refused: u64,
    /// There is something to do at once.
    called: bool,
    /// The application has no handle of it any more.
    is_forgotten: bool,
}

impl Groups {
    /// Makes a group of a node that is bound to `local`.
    pub(super) fn add(
        &mut self,
        now: Timestamp,
        local: IpAddr,
        config: &GroupConfig,
        network: &NetworkQos,
    ) -> Result<u32, GroupError> {
        network.check_towards(config.transport.address)?;
        let mut socket = open(local, config)?;
        socket.set_network_qos(network)?;
        let group = loop {
            let group = new_group(now, config)?;
            if !self.0.contains_key(&group.id()) {
                break group;
            }
        };
        let id = group.id();
        let sending = Sending {
            group,
            config: config.clone(),
            socket,
            packet: Vec::new(),
            retry_at: None,
            sink: None,
            members: BTreeSet::new(),
            refused: 0,
            called: false,
            is_forgotten: false,
        };
        self.0.insert(id, sending);
        Ok(id)
    }

    pub(super) fn stats(&self, id: u32) -> Option<GroupStats> {
        let sending = self.0.get(&id)?;
        let sent = sending.group.stats();
        Some(GroupStats {
            packets_sent: sent.packets_sent,
            bytes_sent: sent.bytes_sent,
            packets_refused: sending.refused,
            members: sending.members.len(),
        })
    }

    /// Feeds a group from now on.
    pub(super) fn attach(
        &mut self,
        id: u32,
        sink: AttachedSink,
        policy: Box<dyn Choice>,
    ) -> Result<(), SenderError> {
        let sending = self.0.get_mut(&id);
        let sending = sending.ok_or(SenderError::NotConnected)?;
        if sending.sink.is_some() {
            return Err(SenderError::HasSink);
        }
        sending.group.set_policy(policy);
        sending.sink = Some(sink);
        sending.called = true;
        Ok(())
    }

    /// Applies a request of a sink's owner.
    pub(super) fn ask(
        &mut self,
        id: u32,
        now: Timestamp,
        ask: impl FnOnce(&mut AttachedSink, Timestamp) -> CloseAction,
    ) {
        let Some(sending) = self.0.get_mut(&id) else { return };
        let Some(sink) = &mut sending.sink else { return };
        let action = ask(sink, now);
        sending.called = true;
        sending.grant(now, action);
    }

    /// The application has no handle of the group any more.
    pub(super) fn forget(&mut self, id: u32) {
        let Some(sending) = self.0.get_mut(&id) else { return };
        sending.is_forgotten = true;
        if sending.sink.is_none() {
            self.0.remove(&id);
        }
    }

    /// Makes the peer of a connection a member. `ends` are where the connection is at this end, if that is known, and at the peer's.
    /// False: there is no such group.
    pub(super) fn invite(
        &mut self,
        id: u32,
        now: Timestamp,
        handle: ConnectionHandle,
        connection: &mut Transport,
        ends: (Option<IpAddr>, SocketAddr),
    ) -> bool {
        let Some(sending) = self.0.get_mut(&id) else { return false };
        if sending.members.is_empty() {
            sending.go_beside(ends);
        }
        if sending.members.insert(handle) {
            sending.group.invite(now, connection);
        }
        true
    }

    /// A connection has ended.
    pub(super) fn part(&mut self, handle: ConnectionHandle) {
        for sending in self.0.values_mut() {
            sending.members.remove(&handle);
        }
    }

    /// A member misses packets.
    pub(super) fn repair(
        &mut self,
        id: u32,
        now: Timestamp,
        missing: &[RangeInclusive<u64>],
        handle: ConnectionHandle,
        connection: &mut Transport,
    ) {
        let Some(sending) = self.0.get_mut(&id).filter(|sending| sending.members.contains(&handle)) else {
            return;
        };
        match &sending.sink {
            Some(sink) => sending.group.repair(now, missing, &*sink.source, connection),
            None => sending.group.repair(now, missing, &Queue::default(), connection),
        }
    }

    /// A producer has put something on the ring of this group.
    pub(super) fn call(&mut self, id: u32) {
        if let Some(sending) = self.0.get_mut(&id) {
            sending.called = true;
        }
    }

    /// A producer has put something on a ring, nobody says on which.
    pub(super) fn call_all(&mut self) {
        for sending in self.0.values_mut() {
            sending.called |= sending.sink.as_ref().is_some_and(|sink| sink.source.notified());
        }
    }

    /// Whether one of them has a ring.
    pub(super) fn has_sink(&self) -> bool {
        self.0.values().any(|sending| sending.sink.is_some())
    }

    /// When [`Self::advance`] has something to do.
    pub(super) fn due(&self, now: Timestamp) -> Option<Timestamp> {
        self.0.values().filter_map(|sending| sending.due(now)).min()
    }

    /// Members that wait for a report of their group's progress, each with its group's number.
    pub(super) fn take_notices(&mut self, now: Timestamp) -> Vec<(ConnectionHandle, u32)> {
        let due = self.0.iter_mut().filter_map(|(id, sending)| {
            sending.group.takes_notice(now).then(|| sending.members.iter().map(|member| (*member, *id)))
        });
        due.flatten().collect()
    }

    /// Tells a member how far its group is.
    pub(super) fn tell(&self, id: u32, connection: &mut Transport) {
        if let Some(sending) = self.0.get(&id) {
            sending.group.tell(connection);
        }
    }

    /// Sends what is due.
    pub(super) fn advance(&mut self, now: Timestamp) {
        for sending in self.0.values_mut() {
            if sending.due(now).is_some_and(|at| at <= now) {
                sending.advance(now);
            }
        }
        self.0.retain(|_, sending| !sending.is_forgotten || sending.sink.is_some());
    }

    /// Ends all of them.
    pub(super) fn end_all(&mut self, now: Timestamp, error: &SinkError) {
        for (_, sending) in std::mem::take(&mut self.0) {
            if let Some(sink) = sending.sink {
                sink.end(Reason::ConnectionLost, now, Ended::Broken(error.clone()));
            }
        }
    }
}

impl Sending {
    /// Sends on the interface of the first member's connection from now on, unless another one was named.
    fn go_beside(&self, (local, peer): (Option<IpAddr>, SocketAddr)) {
        let interface = interface_of(self.config.transport.address, local, peer);
        if self.config.interface == Interface::Routed && interface != Interface::Routed {
            // Where that fails the routing table decides, and members elsewhere get repairs.
            let _ = set_multicast(&self.socket, &self.config, interface);
        }
    }

    fn due(&self, now: Timestamp) -> Option<Timestamp> {
        if self.retry_at.is_some() {
            return self.retry_at;
        }
        if self.called {
            return Some(now);
        }
        let closing = self.sink.as_ref().and_then(AttachedSink::timeout);
        [self.group.poll_timeout(), closing].into_iter().flatten().min()
    }

    fn advance(&mut self, now: Timestamp) {
        self.called = false;
        if self.retry_at.take().is_some() && !self.send(now) {
            return;
        }
        let mut nothing = Queue::default();
        for _ in 0..PACKETS_PER_TURN {
            let source: &mut dyn Source = match &mut self.sink {
                Some(sink) => &mut *sink.source,
                None => &mut nothing,
            };
            self.packet.clear();
            if !self.group.poll_transmit(now, source, &mut self.packet) {
                return self.rest(now);
            }
            if !self.send(now) {
                return;
            }
        }
        self.called = true;
    }

    /// Sends the packet. False: the socket has no room for it.
    fn send(&mut self, now: Timestamp) -> bool {
        let to = self.group.address();
        let outgoing = Outgoing { to, from: None, ecn: None, bytes: &self.packet, segment: None };
        match self.socket.send(&outgoing) {
            Ok(Sent::All) => {}
            Ok(Sent::Part(_)) => self.retry_at = Some(now + RETRY),
            Ok(Sent::TooLarge(_)) | Err(_) => self.refused += 1,
        }
        self.retry_at.is_none()
    }

    /// Lets the sink rest, or closes it, after the group has sent all that it may.
    fn rest(&mut self, now: Timestamp) {
        let Some(sink) = &mut self.sink else { return };
        let stats = self.group.stats();
        sink.account(
            stats.bytes_sent,
            &LinkView { rate: Some(self.config.transport.rate), ..LinkView::default() },
        );
        let action = match stats.key_exhausted {
            true => CloseAction::Abort(Ended::Broken(SinkError::KeysExhausted)),
            false => sink.close_action(now, self.group.is_idle()),
        };
        if action == CloseAction::Stay && !sink.source.rest() {
            self.called = true;
        }
        self.grant(now, action);
    }

    fn grant(&mut self, now: Timestamp, action: CloseAction) {
        let ended = match action {
            CloseAction::Stay => return,
            CloseAction::Close => Ended::Closed,
            CloseAction::Abort(ended) => ended,
        };
        self.group.abandon();
        if let Some(sink) = self.sink.take() {
            sink.end(Reason::Closed, now, ended);
        }
    }
}

fn new_group(now: Timestamp, config: &GroupConfig) -> io::Result<Group> {
    let transport = config.transport.clone();
    // Until it is fed it has nothing to choose from.
    Ok(Group::new(now, transport, Box::new(freshwire_choice::fifo()), freshwire_io::random()?))
}

fn open(local: IpAddr, config: &GroupConfig) -> io::Result<UdpSocket> {
    // The kernel takes the interface of an IPv4 source where no other one is set.
    let from = match (config.transport.address, local) {
        (SocketAddr::V4(_), IpAddr::V4(ip)) => ip.into(),
        (SocketAddr::V6(_), IpAddr::V6(ip)) => ip.into(),
        (SocketAddr::V4(_), _) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
        (SocketAddr::V6(_), _) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind(SocketAddr::new(from, 0), UdpConfig::default().only_v6(true))?;
    set_multicast(&socket, config, config.interface)?;
    Ok(socket)
}

fn set_multicast(socket: &UdpSocket, config: &GroupConfig, interface: Interface) -> io::Result<()> {
    let group = udp::Group { address: config.transport.address.ip(), interface };
    socket.set_multicast(group, config.hops, config.to_this_machine)
}

//! What a node and its connections report.

use freshwire::a1;
use pyo3::prelude::*;

use crate::choice::Reason;

/// How a connection has ended.
#[pyclass(frozen, eq, from_py_object, module = "freshwire.a1")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Closed {
    /// This end closed it.
    Local {},
    /// The peer closed it, with a code and a text; code 0 is a normal end.
    Peer { code: u64, reason: String },
    /// Nothing came for too long.
    Silent {},
    /// The peer broke the protocol.
    Violation { reason: String },
    /// The peer has restarted, and does not know the connection.
    PeerRestarted {},
    /// The keys can protect no more packets.
    KeysExhausted {},
    /// Another reason.
    Other { reason: String },
}

impl Closed {
    pub(super) fn new(closed: a1::Closed) -> Self {
        match closed {
            a1::Closed::Local => Self::Local {},
            a1::Closed::Peer { code, reason } => Self::Peer { code, reason },
            a1::Closed::Silent => Self::Silent {},
            a1::Closed::Violation(violation) => Self::Violation { reason: violation.to_string() },
            a1::Closed::PeerRestarted => Self::PeerRestarted {},
            a1::Closed::KeysExhausted => Self::KeysExhausted {},
            // Of a newer release.
            other => Self::Other { reason: other.to_string() },
        }
    }
}

#[pymethods]
impl Closed {
    fn __repr__(&self) -> String {
        match self {
            Self::Local {} => "Closed.Local()".to_owned(),
            Self::Peer { code, reason } => format!("Closed.Peer({code}, {reason:?})"),
            Self::Silent {} => "Closed.Silent()".to_owned(),
            Self::Violation { reason } => format!("Closed.Violation({reason:?})"),
            Self::PeerRestarted {} => "Closed.PeerRestarted()".to_owned(),
            Self::KeysExhausted {} => "Closed.KeysExhausted()".to_owned(),
            Self::Other { reason } => format!("Closed.Other({reason:?})"),
        }
    }
}

/// A message that will not come.
#[pyclass(frozen, eq, from_py_object, module = "freshwire.a1")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// One whose sending had started, by its number among those (`Message.id`).
    Committed { id: u64, reason: Reason },
    /// One of a multicast group, by its number among those of the group.
    OfGroup { group: u32, id: u64, reason: Reason },
    /// `count` messages from the application's number `first` on, whose sending never started.
    NeverCommitted { first: u64, count: u64, reason: Reason },
}

impl Missing {
    pub(super) fn new(missing: a1::Missing) -> Option<Self> {
        Some(match missing {
            a1::Missing::Committed { id, reason } => Self::Committed { id, reason: Reason::of(reason) },
            a1::Missing::OfGroup { group, id, reason } => {
                Self::OfGroup { group, id, reason: Reason::of(reason) }
            }
            a1::Missing::NeverCommitted { first, count, reason } => {
                Self::NeverCommitted { first, count, reason: Reason::of(reason) }
            }
            // Of a newer release: nothing that this one could name.
            _ => return None,
        })
    }
}

/// What holds messages of a connection back, and changes since the last call.
#[pyclass(frozen, get_all, module = "freshwire.a1")]
pub(crate) struct ConnectionStatus {
    /// A message waits because the receiver's window is full.
    window_exceeded: bool,
    /// A message waits for the agreed rate.
    rate_exceeded: bool,
    /// A change of the quality of service is pending.
    qos_pending: bool,
    /// The quality of service has changed since it was last reported, whichever end requested it.
    qos_changed: bool,
    /// How it has ended; `None` while it is open.
    closed: Option<Closed>,
}

impl ConnectionStatus {
    pub(super) fn new(status: a1::ConnectionStatus) -> Self {
        Self {
            window_exceeded: status.window_exceeded,
            rate_exceeded: status.rate_exceeded,
            qos_pending: status.qos_pending,
            qos_changed: status.qos_changed,
            closed: status.closed.map(Closed::new),
        }
    }
}

/// Counters of a connection. Bytes are UDP payload unless said otherwise.
#[pyclass(frozen, get_all, module = "freshwire.a1")]
pub(crate) struct ConnectionStats {
    packets_sent: u64,
    bytes_sent: u64,
    /// Packets that came and opened.
    packets_received: u64,
    bytes_received: u64,
    /// Packets declared lost.
    packets_lost: u64,
    /// Packets declared lost that had arrived after all.
    spurious_losses: u64,
    /// Bytes of messages sent for the first time.
    payload_sent: u64,
    /// Bytes of messages sent again.
    payload_resent: u64,
    parity_sent: u64,
    /// Messages completed by parity.
    messages_made_whole: u64,
    /// Packets that did not open, or came twice.
    packets_refused: u64,
    /// Complete messages received.
    messages_received: u64,
    /// Blocks of multicast groups that the peer missed, asked for and is sent.
    repairs_sent: u64,
    /// Packets of multicast groups that came by way of their addresses.
    group_packets_received: u64,
    /// Blocks of multicast groups that this end missed and got over this connection.
    repairs_received: u64,
}

impl ConnectionStats {
    pub(super) fn new(stats: &a1::ConnectionStats) -> Self {
        Self {
            packets_sent: stats.packets_sent,
            bytes_sent: stats.bytes_sent,
            packets_received: stats.packets_received,
            bytes_received: stats.bytes_received,
            packets_lost: stats.packets_lost,
            spurious_losses: stats.spurious_losses,
            payload_sent: stats.payload_sent,
            payload_resent: stats.payload_resent,
            parity_sent: stats.parity_sent,
            messages_made_whole: stats.messages_made_whole,
            packets_refused: stats.packets_refused,
            messages_received: stats.messages_received,
            repairs_sent: stats.repairs_sent,
            group_packets_received: stats.group_packets_received,
            repairs_received: stats.repairs_received,
        }
    }
}

#[pymethods]
impl ConnectionStats {
    fn __repr__(&self) -> String {
        let Self { bytes_sent, bytes_received, packets_lost, messages_received, .. } = self;
        format!(
            "<freshwire.a1.ConnectionStats bytes_sent={bytes_sent} bytes_received={bytes_received} \
             packets_lost={packets_lost} messages_received={messages_received}>"
        )
    }
}

/// Counters of a node since it was bound, mainly of ignored and invalid datagrams.
#[pyclass(frozen, get_all, module = "freshwire.a1")]
pub(crate) struct EndpointStats {
    /// Datagrams that are no packet of this protocol.
    malformed: u64,
    /// Packets for a connection that is not there.
    unknown: u64,
    /// Cookies that were handed out.
    retries: u64,
    /// Initiations with a cookie that is too old, or not for their address.
    wrong_cookies: u64,
    /// Handshake messages and resets that were not authentic.
    unauthentic: u64,
    /// Resets that were sent.
    resets: u64,
    /// Initiators that were refused.
    refused: u64,
    /// Datagrams that were not answered because of a limit.
    over_limit: u64,
    /// Handshake packets of this node that found the queue full.
    queue_full: u64,
}

impl EndpointStats {
    pub(super) fn new(stats: &a1::EndpointStats) -> Self {
        Self {
            malformed: stats.malformed,
            unknown: stats.unknown,
            retries: stats.retries,
            wrong_cookies: stats.wrong_cookies,
            unauthentic: stats.unauthentic,
            resets: stats.resets,
            refused: stats.refused,
            over_limit: stats.over_limit,
            queue_full: stats.queue_full,
        }
    }
}

/// A multicast group to which the peer of a connection has invited this node.
#[pyclass(frozen, get_all, module = "freshwire.a1")]
pub(crate) struct Membership {
    /// The number that the group's packets carry.
    group: u32,
    /// Destination of the group's packets, as (host, port).
    address: (String, u16),
    /// Whether this node has joined the address. Delivery is up to the network.
    joined: bool,
    /// Why it has not, or `None`.
    reason: Option<String>,
}

impl Membership {
    pub(super) fn new(membership: &a1::Membership) -> Self {
        let a1::Membership { group, address, joined, .. } = membership;
        Self {
            group: *group,
            address: (address.ip().to_string(), address.port()),
            joined: joined.is_ok(),
            reason: joined.as_ref().err().map(ToString::to_string),
        }
    }
}

#[pymethods]
impl Membership {
    fn __repr__(&self) -> String {
        let state = self.reason.as_deref().unwrap_or("joined");
        format!("<freshwire.a1.Membership {} of {}:{}: {state}>", self.group, self.address.0, self.address.1)
    }
}

//! Reports of a node and its connections.

use freshwire::a1;
use pyo3::prelude::*;

use crate::choice::Reason;
use crate::common::structures::fw_a1_stats;

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
            // One of a newer release.
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
            // One of a newer release has no name here.
            _ => return None,
        })
    }
}

/// Reasons why messages of a connection wait, and changes since the last call.
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
    /// The connection goes over TCP: `tcp_fallback` permits it, and UDP does not pass.
    over_tcp: bool,
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
            over_tcp: status.over_tcp,
            closed: status.closed.map(Closed::new),
        }
    }
}

#[pymethods]
impl fw_a1_stats {
    fn __repr__(&self) -> String {
        let Self { bytes_sent, bytes_received, packets_lost, messages_received, .. } = self;
        format!(
            "<freshwire.a1.ConnectionStats bytes_sent={bytes_sent} bytes_received={bytes_received} \
             packets_lost={packets_lost} messages_received={messages_received}>"
        )
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

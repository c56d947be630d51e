//! Structures of C that are classes of Python: their members are the same numbers in both languages.
#![allow(non_camel_case_types, reason = "names of C")]
#![allow(unreachable_pub, reason = "C exports them")]

use freshwire::{RingConfig, a1};

/// Sizes of a sender's shared memory.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "python",
    pyo3::pyclass(frozen, eq, get_all, from_py_object, name = "Ring", module = "freshwire")
)]
pub struct fw_ring {
    /// Destinations at a time.
    pub rings: u32,
    /// Records of each, a power of two.
    pub slots: u32,
    /// Bytes of a payload block; a larger record takes several slots.
    pub block_bytes: u32,
    /// Payload blocks, shared by all rings.
    pub blocks: u32,
}

impl From<fw_ring> for RingConfig {
    fn from(ring: fw_ring) -> Self {
        let fw_ring { rings, slots, block_bytes, blocks } = ring;
        Self { rings, slots, block_bytes, blocks }
    }
}

impl From<RingConfig> for fw_ring {
    fn from(ring: RingConfig) -> Self {
        let RingConfig { rings, slots, block_bytes, blocks } = ring;
        Self { rings, slots, block_bytes, blocks }
    }
}

macro_rules! copied {
    ($from:ident: $($field:ident),+) => { Self { $($field: $from.$field),+ } };
}

/// Counters of a connection. Bytes are UDP payload unless said otherwise.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[cfg_attr(
    feature = "python",
    pyo3::pyclass(frozen, get_all, name = "ConnectionStats", module = "freshwire.a1")
)]
pub struct fw_a1_stats {
    /// Packets sent.
    pub packets_sent: u64,
    /// Bytes sent.
    pub bytes_sent: u64,
    /// Packets that came and opened.
    pub packets_received: u64,
    /// Bytes of them.
    pub bytes_received: u64,
    /// Packets declared lost.
    pub packets_lost: u64,
    /// Packets declared lost that had arrived after all.
    pub spurious_losses: u64,
    /// Bytes of messages sent for the first time.
    pub payload_sent: u64,
    /// Bytes of messages sent again.
    pub payload_resent: u64,
    /// Bytes of parity sent.
    pub parity_sent: u64,
    /// Messages completed by parity.
    pub messages_made_whole: u64,
    /// Packets that did not open, or came twice.
    pub packets_refused: u64,
    /// Complete messages received.
    pub messages_received: u64,
    /// Blocks of multicast groups that the peer missed, asked for and is sent.
    pub repairs_sent: u64,
    /// Packets of multicast groups that came by way of their addresses.
    pub group_packets_received: u64,
    /// Blocks of multicast groups that this end missed and got over this connection.
    pub repairs_received: u64,
}

impl From<a1::ConnectionStats> for fw_a1_stats {
    fn from(known: a1::ConnectionStats) -> Self {
        copied!(known: packets_sent, bytes_sent, packets_received, bytes_received, packets_lost, spurious_losses,
            payload_sent, payload_resent, parity_sent, messages_made_whole, packets_refused, messages_received,
            repairs_sent, group_packets_received, repairs_received)
    }
}

/// Counters of a node since it was bound, mainly of ignored and invalid datagrams.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[cfg_attr(
    feature = "python",
    pyo3::pyclass(frozen, get_all, name = "EndpointStats", module = "freshwire.a1")
)]
pub struct fw_endpoint_stats {
    /// Datagrams that are no packet of this protocol.
    pub malformed: u64,
    /// Packets for a connection that is not there.
    pub unknown: u64,
    /// Cookies that were handed out.
    pub retries: u64,
    /// Initiations with a cookie that is too old, or not for their address.
    pub wrong_cookies: u64,
    /// Handshake messages and resets that were not authentic.
    pub unauthentic: u64,
    /// Resets that were sent.
    pub resets: u64,
    /// Initiators that were refused.
    pub refused: u64,
    /// Datagrams that were not answered because of a limit.
    pub over_limit: u64,
    /// Handshake packets of this node that found the queue full.
    pub queue_full: u64,
}

impl From<a1::EndpointStats> for fw_endpoint_stats {
    fn from(known: a1::EndpointStats) -> Self {
        copied!(known: malformed, unknown, retries, wrong_cookies, unauthentic, resets, refused, over_limit, queue_full)
    }
}

/// Counters of a group. Bytes are UDP payload. Repairs are in fw_connection_stats of the members.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[cfg_attr(feature = "python", pyo3::pyclass(frozen, get_all, name = "GroupStats", module = "freshwire.a1"))]
pub struct fw_multicast_stats {
    /// Packets sent to the group's address.
    pub packets_sent: u64,
    /// Bytes sent to the group's address.
    pub bytes_sent: u64,
    /// Packets among `packets_sent` that the operating system refused.
    pub packets_refused: u64,
    /// Open connections that were invited.
    pub members: u64,
}

impl From<a1::GroupStats> for fw_multicast_stats {
    fn from(known: a1::GroupStats) -> Self {
        let a1::GroupStats { packets_sent, bytes_sent, packets_refused, members, .. } = known;
        Self { packets_sent, bytes_sent, packets_refused, members: members as u64 }
    }
}

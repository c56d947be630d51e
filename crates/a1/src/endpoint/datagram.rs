use std::net::IpAddr;

use crate::connection::Transmit;
use crate::remote::Remote;

/// A datagram that arrived.
#[derive(Debug)]
pub struct Datagram<'a> {
    /// The sender's address, and what brought it.
    pub from: Remote,
    /// The local address that it came to, where the socket tells: answers are sent from there.
    pub to: Option<IpAddr>,
    /// Whether a router has marked it: congestion experienced (RFC 3168).
    pub marked: bool,
    /// Its payload, which is opened in place: afterwards it is something else.
    pub bytes: &'a mut [u8],
}

/// Datagrams that leave: they were appended to the buffer that was lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[must_use]
pub struct Outgoing {
    /// Where they go.
    pub to: Remote,
    /// The local address that they are sent from; `None` leaves it to the routing table.
    pub from: Option<IpAddr>,
    /// Bytes that were appended to the buffer.
    pub bytes: usize,
    /// Length of each datagram but the last, which may be shorter; all of `bytes` if there is one.
    pub segment: usize,
    /// Whether routers may mark them instead of dropping them.
    pub ecn: bool,
}

impl Outgoing {
    pub(super) fn single(to: Remote, from: Option<IpAddr>, bytes: usize) -> Self {
        Self { to, from, bytes, segment: bytes, ecn: false }
    }

    pub(super) fn from_connection(transmit: Transmit, from: Option<IpAddr>) -> Self {
        let Transmit { to, bytes, segment, ecn } = transmit;
        Self { to, from, bytes, segment, ecn }
    }
}

/// What an initiation's packet holds.
#[derive(Clone, Copy)]
pub(super) struct InitiationPacket<'a> {
    pub(super) version: u32,
    pub(super) from: u32,
    pub(super) cookie: &'a [u8],
    pub(super) noise: &'a [u8],
}

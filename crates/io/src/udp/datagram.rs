//! Datagrams, their marks and their addresses.

use std::net::{IpAddr, SocketAddr, SocketAddrV6};

use quinn_udp::EcnCodepoint;

/// The largest payload of one datagram over IPv4, and of all segments of one system call.
pub const MAX_DATAGRAM_BYTES: usize = 65_507;

/// What the two congestion bits of an IP header say of a datagram whose sender takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ecn {
    /// Can be marked, classic meaning (RFC 3168).
    Ect0,
    /// Can be marked, low-latency meaning (RFC 9331).
    Ect1,
    /// Was marked on the way: congestion experienced.
    Ce,
}

impl Ecn {
    /// The two bits of the header.
    pub const fn bits(self) -> u8 {
        match self {
            Self::Ect1 => 0b01,
            Self::Ect0 => 0b10,
            Self::Ce => 0b11,
        }
    }

    /// From the two bits of the header; `None`: the sender does not take part.
    pub const fn from_bits(bits: u8) -> Option<Self> {
        match bits & 0b11 {
            0b01 => Some(Self::Ect1),
            0b10 => Some(Self::Ect0),
            0b11 => Some(Self::Ce),
            _ => None,
        }
    }
}

/// Datagrams to one destination.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// Where they go.
    pub to: SocketAddr,
    /// The local address they come from; `None` leaves it to the routing table.
    pub from: Option<IpAddr>,
    /// Their congestion mark.
    pub ecn: Option<Ecn>,
    /// The datagrams one after the other.
    pub bytes: &'a [u8],
    /// The size of each datagram but the last, which may be shorter. `None`: `bytes` is one datagram.
    pub segment: Option<usize>,
}

/// How much of an [`Outgoing`] the kernel took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// All of it.
    All,
    /// This many bytes from the beginning, which are whole datagrams. The rest can be sent when the socket is writable.
    Part(usize),
    /// The datagram that begins at this byte is larger than the path's first link carries; what is before it was taken.
    TooLarge(usize),
}

/// A datagram that arrived.
#[derive(Debug)]
pub struct Incoming<'a> {
    /// The sender's address.
    pub from: SocketAddr,
    /// The local address it was sent to: ours, or a group's. `None`: the kernel does not tell.
    pub to: Option<IpAddr>,
    /// Its congestion mark.
    pub ecn: Option<Ecn>,
    /// Its payload, in the buffer.
    pub bytes: &'a mut [u8],
}

/// A socket of the newer family takes addresses of the older one in its own form.
pub(super) fn addressed(to: SocketAddr, is_v6: bool) -> SocketAddr {
    match to {
        SocketAddr::V4(v4) if is_v6 => SocketAddrV6::new(v4.ip().to_ipv6_mapped(), v4.port(), 0, 0).into(),
        to => to,
    }
}

/// An IPv4 address in the newer family's form as what it is, which is how a [`ReceiveBuffer`](super::ReceiveBuffer) gives it.
#[must_use]
pub fn plain(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V6(v6) => match v6.ip().to_ipv4_mapped() {
            Some(ip) => SocketAddr::new(ip.into(), v6.port()),
            None => address,
        },
        v4 => v4,
    }
}

pub(super) fn to_quinn(ecn: Ecn) -> EcnCodepoint {
    match ecn {
        Ecn::Ect0 => EcnCodepoint::Ect0,
        Ecn::Ect1 => EcnCodepoint::Ect1,
        Ecn::Ce => EcnCodepoint::Ce,
    }
}

pub(super) fn from_quinn(ecn: EcnCodepoint) -> Ecn {
    match ecn {
        EcnCodepoint::Ect0 => Ecn::Ect0,
        EcnCodepoint::Ect1 => Ecn::Ect1,
        EcnCodepoint::Ce => Ecn::Ce,
    }
}

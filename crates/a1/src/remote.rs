use std::net::SocketAddr;

/// Where a peer is, and what carries packets there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Remote {
    /// Address and port, of UDP or of TCP.
    pub address: SocketAddr,
    /// Whether a TCP connection to the address carries the packets, instead of UDP.
    pub is_tcp: bool,
}

impl Remote {
    /// A peer that is reached over UDP.
    pub const fn udp(address: SocketAddr) -> Self {
        Self { address, is_tcp: false }
    }

    /// A peer that is reached over a TCP connection.
    pub const fn tcp(address: SocketAddr) -> Self {
        Self { address, is_tcp: true }
    }
}

/// The peer at this address, over UDP.
impl From<SocketAddr> for Remote {
    fn from(address: SocketAddr) -> Self {
        Self::udp(address)
    }
}

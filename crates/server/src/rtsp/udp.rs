//! Pairs of UDP ports for RTP and RTCP, of viewers and of publishers.

use std::io;
use std::net::{SocketAddr, UdpSocket};

/// The sockets of one track.
#[derive(Debug)]
pub(crate) struct Ports {
    rtp: UdpSocket,
    rtcp: UdpSocket,
}

/// The same host, in the same zone, and another port.
pub(crate) fn with_port(mut address: SocketAddr, port: u16) -> SocketAddr {
    address.set_port(port);
    address
}

impl Ports {
    /// Two ports in a row, the first even, towards the client's ports.
    pub(crate) fn open(local: SocketAddr, client: SocketAddr, rtp: u16, rtcp: u16) -> io::Result<Self> {
        let ports = Self::bind(local)?;
        for (socket, port) in [(&ports.rtp, rtp), (&ports.rtcp, rtcp)] {
            socket.connect(with_port(client, port))?;
        }
        Ok(ports)
    }

    /// Two ports in a row, the first even, towards nobody yet.
    pub(crate) fn bind(local: SocketAddr) -> io::Result<Self> {
        for _ in 0..ATTEMPTS {
            let first = UdpSocket::bind(with_port(local, 0))?;
            let port = first.local_addr()?.port();
            // The partner of an odd port is the one below.
            let Ok(second) = UdpSocket::bind(with_port(local, port ^ 1)) else { continue };
            let (rtp, rtcp) = if port % 2 == 0 { (first, second) } else { (second, first) };
            rtp.set_nonblocking(true)?;
            rtcp.set_nonblocking(true)?;
            return Ok(Self { rtp, rtcp });
        }
        Err(io::Error::new(io::ErrorKind::AddrInUse, "no two UDP ports in a row are free"))
    }

    /// The numbers of the own ports.
    pub(crate) fn own(&self) -> io::Result<(u16, u16)> {
        Ok((self.rtp.local_addr()?.port(), self.rtcp.local_addr()?.port()))
    }

    /// Sends a datagram without content to both ports of a sender, so that firewalls let its datagrams in.
    pub(crate) fn greet(&self, sender: SocketAddr, rtp: u16, rtcp: u16) -> io::Result<()> {
        self.rtp.send_to(&[], with_port(sender, rtp))?;
        self.rtcp.send_to(&[], with_port(sender, rtcp)).map(|_| ())
    }

    /// The ports in the answer to SETUP.
    pub(crate) fn transport(&self) -> io::Result<String> {
        let [client, server] = [UdpSocket::peer_addr, UdpSocket::local_addr].map(|end| {
            let (rtp, rtcp) = (end(&self.rtp)?.port(), end(&self.rtcp)?.port());
            io::Result::Ok(format!("{rtp}-{rtcp}"))
        });
        Ok(format!("RTP/AVP;unicast;client_port={};server_port={}", client?, server?))
    }

    /// The socket for RTP and that for RTCP.
    pub(crate) fn into_sockets(self) -> (UdpSocket, UdpSocket) {
        (self.rtp, self.rtcp)
    }
}

const ATTEMPTS: u32 = 16;

//! The UDP socket as a transport in user space needs it: many datagrams in one system call, congestion marks, addresses
//! of both ends, no fragmentation, multicast groups.

mod buffer;
mod control;
mod datagram;
mod departures;
mod gather;
mod multicast;
mod route;
mod served;
mod steering;
#[cfg(test)]
mod tests;

pub use buffer::ReceiveBuffer;
pub use datagram::{Ecn, Incoming, MAX_DATAGRAM_BYTES, Outgoing, Sent, plain};
pub use departures::{DepartureNote, departures, note_departures, send_noted};
pub use gather::{DatagramSender, GatheredDatagrams, MAX_GATHERED_SLICES, send_gathered};
pub use multicast::{Group, Interface};
pub use route::Route;
pub use steering::Steering;

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket as StdSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use freshwire_record::Rate;
use quinn_udp::{Transmit, UdpSockRef, UdpSocketState};
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use crate::network::{NetworkQos, NetworkQosError};
use control::Ends;
use datagram::{addressed, to_quinn};
use departures::send_marked;
use gather::SenderParts;
use served::Served;

/// How a [`UdpSocket`] is made.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct UdpConfig {
    /// An IPv6 wildcard address takes IPv4 too unless this is set.
    pub only_v6: bool,
    /// Other sockets may have the same port, as the members of a multicast group on one machine do.
    pub shared: bool,
    /// It is one of several sockets at its address, see [`UdpSocket::bind_several`].
    several: bool,
    /// Bytes that the kernel keeps for us, overhead included; more than its `net.core.rmem_max` is cut to that.
    /// `None`: the kernel's default.
    pub receive_buffer: Option<usize>,
    /// Bytes that may wait in front of the interface, cut to `net.core.wmem_max`. `None`: the kernel's default.
    pub send_buffer: Option<usize>,
}

/// A bound, non-blocking UDP socket that never fragments. Works with [`Poller`](crate::poll::Poller) by its [`AsFd`].
///
/// Addresses are what they look like to people: a socket for both families gives and takes plain IPv4 addresses.
#[derive(Debug)]
pub struct UdpSocket {
    sender: DatagramSender,
    state: UdpSocketState,
    network: NetworkQos,
    served: Option<Served>,
}

impl UdpConfig {
    /// Sets whether an IPv6 wildcard address leaves IPv4 alone.
    #[must_use]
    pub fn only_v6(mut self, only: bool) -> Self {
        self.only_v6 = only;
        self
    }

    /// Sets whether other sockets may have the same port.
    #[must_use]
    pub fn shared(mut self, shared: bool) -> Self {
        self.shared = shared;
        self
    }

    /// Sets the bytes that the kernel keeps for us.
    #[must_use]
    pub fn receive_buffer(mut self, bytes: usize) -> Self {
        self.receive_buffer = Some(bytes);
        self
    }

    /// Sets the bytes that may wait in front of the interface.
    #[must_use]
    pub fn send_buffer(mut self, bytes: usize) -> Self {
        self.send_buffer = Some(bytes);
        self
    }
}

impl UdpSocket {
    /// Binds to `address`; port 0 lets the kernel choose one. Fails as `bind` does, and if the kernel cannot keep
    /// datagrams whole.
    ///
    /// # Errors
    ///
    /// As bind(2), and if the kernel cannot keep datagrams whole.
    pub fn bind(address: SocketAddr, config: UdpConfig) -> io::Result<Self> {
        let is_v6 = address.is_ipv6();
        let family = if is_v6 { AddressFamily::INET6 } else { AddressFamily::INET };
        let socket: OwnedFd =
            rustix::net::socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        if is_v6 {
            sockopt::set_ipv6_v6only(&socket, config.only_v6)?;
        }
        if config.shared {
            sockopt::set_socket_reuseaddr(&socket, true)?;
        }
        if config.several {
            sockopt::set_socket_reuseport(&socket, true)?;
        }
        if let Some(bytes) = config.receive_buffer {
            sockopt::set_socket_recv_buffer_size(&socket, bytes)?;
        }
        if let Some(bytes) = config.send_buffer {
            sockopt::set_socket_send_buffer_size(&socket, bytes)?;
        }
        rustix::net::bind(&socket, &address)?;
        Self::from_std(StdSocket::from(socket))
    }

    /// Takes over a bound socket and makes it non-blocking. Fails if the kernel cannot keep datagrams whole.
    ///
    /// # Errors
    ///
    /// If the socket refuses its options, or the kernel cannot keep datagrams whole.
    pub fn from_std(socket: StdSocket) -> io::Result<Self> {
        let is_v6 = socket.local_addr()?.is_ipv6();
        let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
        if state.may_fragment() {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "the kernel may fragment datagrams"));
        }
        let segments = state.max_gso_segments().into();
        let sender = DatagramSender(Arc::new(SenderParts { socket, segments, is_v6 }));
        Ok(Self { sender, state, network: NetworkQos::default(), served: None })
    }

    /// The address that it is bound to.
    ///
    /// # Errors
    ///
    /// If the kernel refuses the query.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.sender.0.socket.local_addr().map(plain)
    }

    /// The receive buffer that the kernel granted, in its own count: twice what was asked for, for its overhead.
    ///
    /// # Errors
    ///
    /// If the kernel refuses the query.
    pub fn receive_buffer(&self) -> io::Result<usize> {
        Ok(sockopt::socket_recv_buffer_size(&self.sender.0.socket)?)
    }

    /// Asks for this quality of service from now on; the default undoes DSCP and priority of earlier calls. Whether a pacing rate or
    /// departure times have an effect is for the caller to [check](NetworkQos::check_towards).
    ///
    /// # Errors
    ///
    /// If the kernel refuses an option.
    pub fn set_network_qos(&mut self, qos: &NetworkQos) -> Result<(), NetworkQosError> {
        if self.network != *qos {
            self.served = Served::ask(self.sender.0.socket.as_fd(), (&self.network, self.served), qos)?;
            self.network = *qos;
        }
        Ok(())
    }

    /// Sets the rate at which datagrams depart, if they have departure times: that of the connection whose turn it is.
    pub fn set_departure_rate(&mut self, rate: Option<Rate>) {
        if let Some(served) = &mut self.served {
            served.set_rate(rate);
        }
    }

    /// The quality of service that was asked for.
    pub fn network_qos(&self) -> &NetworkQos {
        &self.network
    }

    /// How many datagrams one system call takes now: 1 without segmentation offload. It falls to 1 for good when the
    /// kernel refuses to segment for the interface that datagrams take.
    pub fn segments(&self) -> usize {
        self.sender.segments()
    }

    /// The sending half, for datagrams without a congestion mark, see [`send_gathered`]. It holds for the present
    /// [quality of service](Self::set_network_qos). `None`: each datagram has a departure time, and needs a call of its own.
    ///
    /// # Errors
    ///
    /// If the kernel refuses an option.
    pub fn sender(&mut self) -> io::Result<Option<DatagramSender>> {
        if let Some(served) = &mut self.served {
            if served.has_departures() {
                return Ok(None);
            }
            served.mark(self.sender.0.socket.as_fd(), None)?;
        }
        Ok(Some(self.sender.clone()))
    }

    /// Sends one datagram with each system call from now on.
    pub fn disable_segmentation(&mut self) {
        self.sender.0.segments.store(1, Ordering::Relaxed);
    }

    /// Hands over as much as the kernel takes now. A datagram that the kernel took can still be lost without a word.
    ///
    /// Errors concern this destination at this moment (no route, a firewall's refusal): the rest of `outgoing` is lost
    /// as if by the network.
    ///
    /// # Errors
    ///
    /// If the destination is unreachable at this moment. The rest of `outgoing` is lost.
    pub fn send(&mut self, outgoing: &Outgoing<'_>) -> io::Result<Sent> {
        let total = outgoing.bytes.len();
        let segment = outgoing.segment.unwrap_or(total).clamp(1, total.max(1));
        let mut at = 0;
        loop {
            let is_single = self.served.as_ref().is_some_and(Served::has_departures);
            let segments = if is_single { 1 } else { self.segments() };
            let batch = segments.min(MAX_DATAGRAM_BYTES / segment).max(1);
            let end = total.min(at + batch * segment);
            let bytes = &outgoing.bytes[at..end];
            match self.send_batch(outgoing, bytes, segment) {
                Ok(()) if end == total => return Ok(Sent::All),
                Ok(()) => at = end,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Sent::Part(at)),
                Err(error) => match error.raw_os_error() {
                    Some(libc::EIO | libc::EINVAL) if bytes.len() > segment => self.fall_back()?,
                    Some(libc::EMSGSIZE) if bytes.len() > segment => {
                        return self.send_singly(outgoing, segment, at);
                    }
                    Some(libc::EMSGSIZE) => return Ok(Sent::TooLarge(at)),
                    _ => return Err(error),
                },
            }
        }
    }

    /// Sends one datagram. The kernel notes when it leaves, with this number, as the socket was [prepared](note_departures) for.
    ///
    /// # Errors
    ///
    /// If the destination is unreachable at this moment.
    pub fn send_noted(&mut self, outgoing: &Outgoing<'_>, id: u32) -> io::Result<Sent> {
        let (ends, bytes) = (self.ends(outgoing), outgoing.bytes);
        let sent = match &mut self.served {
            Some(served) => {
                served.send(self.sender.0.socket.as_fd(), &ends, outgoing.ecn, (bytes, bytes.len()), Some(id))
            }
            None => send_marked(self.sender.0.socket.as_fd(), &ends, outgoing.ecn, bytes, id),
        };
        match sent {
            Ok(()) => Ok(Sent::All),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Sent::Part(0)),
            Err(error) if error.raw_os_error() == Some(libc::EMSGSIZE) => Ok(Sent::TooLarge(0)),
            Err(error) => Err(error),
        }
    }

    /// Fills `buffer` with what has arrived, in the order of arrival and at most as much as it holds; see
    /// [`ReceiveBuffer::datagrams`]. False: nothing is there.
    ///
    /// # Errors
    ///
    /// If the kernel refuses to read. Errors that earlier datagrams caused are none.
    pub fn receive(&self, buffer: &mut ReceiveBuffer) -> io::Result<bool> {
        buffer.fill(|slices, metas| self.state.recv(UdpSockRef::from(&self.sender.0.socket), slices, metas))
    }

    fn send_batch(&mut self, outgoing: &Outgoing<'_>, bytes: &[u8], segment: usize) -> io::Result<()> {
        let ends = self.ends(outgoing);
        if let Some(served) = &mut self.served {
            return served.send(self.sender.0.socket.as_fd(), &ends, outgoing.ecn, (bytes, segment), None);
        }
        let transmit = Transmit {
            destination: ends.to,
            ecn: outgoing.ecn.map(to_quinn),
            contents: bytes,
            segment_size: (bytes.len() > segment).then_some(segment),
            src_ip: ends.from,
        };
        self.state.try_send(UdpSockRef::from(&self.sender.0.socket), &transmit)
    }

    /// A batch fails as a whole if its segments are too large; its datagrams may still pass, the last one above all.
    fn send_singly(&mut self, outgoing: &Outgoing<'_>, segment: usize, at: usize) -> io::Result<Sent> {
        for at in (at..outgoing.bytes.len()).step_by(segment) {
            let end = outgoing.bytes.len().min(at + segment);
            match self.send_batch(outgoing, &outgoing.bytes[at..end], segment) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Sent::Part(at)),
                Err(error) if error.raw_os_error() == Some(libc::EMSGSIZE) => return Ok(Sent::TooLarge(at)),
                Err(error) => return Err(error),
            }
        }
        Ok(Sent::All)
    }

    /// Does without segmentation offload. The state is new because the refusal also made it stop to mark datagrams.
    fn fall_back(&mut self) -> io::Result<()> {
        self.disable_segmentation();
        self.state = UdpSocketState::new(UdpSockRef::from(&self.sender.0.socket))?;
        Ok(())
    }

    fn ends(&self, outgoing: &Outgoing<'_>) -> Ends {
        Ends {
            to: addressed(outgoing.to, self.sender.0.is_v6),
            from: outgoing.from.map(|ip| self.sourced(ip, outgoing.to)),
            is_v4: outgoing.to.is_ipv4(),
        }
    }

    /// The source goes by the destination's family: a mapped destination takes its source as IPv4.
    fn sourced(&self, from: IpAddr, to: SocketAddr) -> IpAddr {
        if to.is_ipv4() { from.to_canonical() } else { from }
    }
}

impl DatagramSender {
    /// Takes over a bound socket and makes it non-blocking; see [`UdpSocket::from_std`].
    ///
    /// # Errors
    ///
    /// If the socket refuses its options, or the kernel cannot keep datagrams whole.
    pub fn new(socket: StdSocket) -> io::Result<Self> {
        UdpSocket::from_std(socket).map(|socket| socket.sender)
    }
}

impl AsFd for UdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.sender.0.socket.as_fd()
    }
}

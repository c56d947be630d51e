//! Datagrams with a DSCP, a priority or a departure time. `quinn-udp` writes the whole traffic class with each datagram, so these
//! leave by a system call of our own, and the class is an option of the socket.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use freshwire_record::{Rate, Timestamp};

use super::datagram::Ecn;
use crate::network::{
    Dscp, NetworkQos, NetworkQosError, set_departure_times, set_max_rate, set_priority, set_traffic_class,
};

/// What the datagrams of a socket get beside their congestion mark.
#[derive(Clone, Copy, Debug)]
pub(super) struct Served {
    dscp: Option<Dscp>,
    priority: Option<u32>,
    /// The traffic class that the socket has now; `None` before the first datagram.
    class: Option<u8>,
    departures: Option<Departures>,
}

/// Departure times at a rate.
#[derive(Clone, Copy, Debug)]
struct Departures {
    rate: Option<Rate>,
    next: Timestamp,
}

/// Where datagrams go, and the local address they come from, as the socket's family has them.
pub(super) struct Ends {
    pub(super) to: SocketAddr,
    pub(super) from: Option<IpAddr>,
    pub(super) is_v4: bool,
}

impl Served {
    /// Asks for `wanted` on a socket that has `before`. `None`: nothing of it concerns single datagrams.
    pub(super) fn ask(
        socket: BorrowedFd<'_>,
        (before, served): (&NetworkQos, Option<Self>),
        wanted: &NetworkQos,
    ) -> Result<Option<Self>, NetworkQosError> {
        if before.max_rate != wanted.max_rate {
            set_max_rate(socket, wanted.max_rate)?;
        }
        if before.priority != wanted.priority {
            set_priority(socket, wanted.priority.unwrap_or(0))?;
        }
        let departures = match (wanted.departure_times, served.and_then(|served| served.departures)) {
            (false, _) => None,
            (true, Some(before)) => Some(Departures { rate: wanted.max_rate, ..before }),
            (true, None) => {
                set_departure_times(socket)?;
                Some(Departures { rate: wanted.max_rate, next: Timestamp::ZERO })
            }
        };
        let is_served = wanted.dscp.is_some() || wanted.priority.is_some() || departures.is_some();
        let (dscp, priority) = (wanted.dscp, wanted.priority);
        Ok(is_served.then_some(Self { dscp, priority, class: None, departures }))
    }

    /// Sets the rate of departures, if there are any.
    pub(super) fn set_rate(&mut self, rate: Option<Rate>) {
        if let Some(departures) = &mut self.departures {
            departures.rate = rate;
        }
    }

    /// Whether each datagram has a departure time of its own, so that none shares a system call.
    pub(super) fn has_departures(&self) -> bool {
        self.departures.is_some()
    }

    /// Sends datagrams of `segment` bytes, the last of which may be shorter.
    pub(super) fn send(
        &mut self,
        socket: BorrowedFd<'_>,
        ends: &Ends,
        ecn: Option<Ecn>,
        (bytes, segment): (&[u8], usize),
    ) -> io::Result<()> {
        let class = self.dscp.map_or(0, Dscp::traffic_class) | ecn.map_or(0, Ecn::bits);
        if self.class != Some(class) {
            set_traffic_class(socket, class)?;
            // The class has selected another priority for IPv4.
            if let Some(priority) = self.priority {
                set_priority(socket, priority).map_err(io::Error::other)?;
            }
            self.class = Some(class);
        }
        let departure = self.departures.map(|times| times.next.max(crate::now()));
        let mut control = Control::new();
        if let Some(ip) = ends.from {
            control.source(ip, ends.is_v4);
        }
        if bytes.len() > segment {
            control.put(libc::SOL_UDP, libc::UDP_SEGMENT, &(segment as u16).to_ne_bytes());
        }
        if let Some(at) = departure {
            control.put(libc::SOL_SOCKET, libc::SCM_TXTIME, &at.as_nanos().to_ne_bytes());
        }
        send(socket, ends.to, bytes, &mut control)?;
        if let (Some(times), Some(at)) = (&mut self.departures, departure) {
            times.next = at + times.rate.map_or(Duration::ZERO, |rate| rate.time_for(bytes.len() as u64));
        }
        Ok(())
    }
}

/// Room for three control messages, aligned as they have to be: the largest, a source of IPv6, takes 40 bytes.
#[repr(C, align(8))]
struct Control {
    bytes: [u8; 3 * 40],
    len: usize,
}

impl Control {
    fn new() -> Self {
        Self { bytes: [0; 3 * 40], len: 0 }
    }

    /// The address that datagrams come from.
    fn source(&mut self, from: IpAddr, is_v4: bool) {
        match from {
            // `struct in_pktinfo`: interface, source, destination.
            IpAddr::V4(ip) if is_v4 => {
                self.put(libc::IPPROTO_IP, libc::IP_PKTINFO, &[[0; 4], ip.octets(), [0; 4]].concat());
            }
            // `struct in6_pktinfo`: source, interface.
            from => {
                let octets = match from {
                    IpAddr::V6(ip) => ip.octets(),
                    IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
                };
                self.put(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &[&octets[..], &[0; 4]].concat());
            }
        }
    }

    /// Adds a message.
    fn put(&mut self, level: libc::c_int, kind: libc::c_int, data: &[u8]) {
        // SAFETY: it only computes a size.
        let space = unsafe { libc::CMSG_SPACE(data.len() as u32) };
        // SAFETY: as above.
        let len = unsafe { libc::CMSG_LEN(data.len() as u32) };
        // SAFETY: a zeroed cmsghdr is a valid value of that C type.
        let mut head: libc::cmsghdr = unsafe { std::mem::zeroed() };
        (head.cmsg_len, head.cmsg_level, head.cmsg_type) = (len as _, level, kind);
        let start = len as usize - data.len();
        let room = &mut self.bytes[self.len..self.len + space as usize];
        room[start..len as usize].copy_from_slice(data);
        // SAFETY: there is room for the head before the data.
        unsafe { room.as_mut_ptr().cast::<libc::cmsghdr>().write_unaligned(head) };
        self.len += space as usize;
    }
}

fn send(socket: BorrowedFd<'_>, to: SocketAddr, bytes: &[u8], control: &mut Control) -> io::Result<()> {
    // SAFETY: a zeroed sockaddr of either family is a valid value of that C type.
    let (mut v4, mut v6): (libc::sockaddr_in, libc::sockaddr_in6) = unsafe { std::mem::zeroed() };
    // SAFETY: a zeroed msghdr is a valid value of that C type.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    match to {
        SocketAddr::V4(to) => {
            v4.sin_family = libc::AF_INET as libc::sa_family_t;
            v4.sin_port = to.port().to_be();
            v4.sin_addr.s_addr = u32::from_ne_bytes(to.ip().octets());
            message.msg_name = (&raw mut v4).cast();
            message.msg_namelen = size_of_val(&v4) as libc::socklen_t;
        }
        SocketAddr::V6(to) => {
            v6.sin6_family = libc::AF_INET6 as libc::sa_family_t;
            v6.sin6_port = to.port().to_be();
            v6.sin6_flowinfo = to.flowinfo();
            v6.sin6_addr.s6_addr = to.ip().octets();
            v6.sin6_scope_id = to.scope_id();
            message.msg_name = (&raw mut v6).cast();
            message.msg_namelen = size_of_val(&v6) as libc::socklen_t;
        }
    }
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    if control.len > 0 {
        message.msg_control = control.bytes.as_mut_ptr().cast();
        message.msg_controllen = control.len as _;
    }
    loop {
        // SAFETY: `message` describes an address, bytes and control messages that outlive the call, which only reads them.
        let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) };
        if sent >= 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

//! System calls for datagrams with control messages of our own.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd};

/// Where datagrams go, and the local address they come from, as the socket's family has them.
pub(super) struct Ends {
    pub(super) to: SocketAddr,
    pub(super) from: Option<IpAddr>,
    pub(super) is_v4: bool,
}

/// Room for control messages, aligned as they have to be. The largest, a source of IPv6, takes 40 bytes.
#[repr(C, align(8))]
pub(super) struct Control {
    bytes: [u8; ROOM],
    len: usize,
}

/// A source, a mark or a size, a departure time, and the two messages of a noted departure.
const ROOM: usize = 40 + 4 * 24;

impl Control {
    pub(super) fn new() -> Self {
        Self { bytes: [0; ROOM], len: 0 }
    }

    /// The address that datagrams come from.
    pub(super) fn source(&mut self, from: IpAddr, is_v4: bool) {
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
    pub(super) fn put(&mut self, level: libc::c_int, kind: libc::c_int, data: &[u8]) {
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

    /// Adds them to a message.
    pub(super) fn attach(&mut self, message: &mut libc::msghdr) {
        if self.len > 0 {
            message.msg_control = self.bytes.as_mut_ptr().cast();
            message.msg_controllen = self.len as _;
        }
    }
}

/// An address as the kernel reads it.
pub(super) enum Address {
    V4(libc::sockaddr_in),
    V6(libc::sockaddr_in6),
}

impl Address {
    pub(super) fn new(to: SocketAddr) -> Self {
        match to {
            SocketAddr::V4(to) => {
                // SAFETY: a zeroed sockaddr_in is a valid value of that C type.
                let mut v4: libc::sockaddr_in = unsafe { std::mem::zeroed() };
                v4.sin_family = libc::AF_INET as libc::sa_family_t;
                v4.sin_port = to.port().to_be();
                v4.sin_addr.s_addr = u32::from_ne_bytes(to.ip().octets());
                Self::V4(v4)
            }
            SocketAddr::V6(to) => {
                // SAFETY: a zeroed sockaddr_in6 is a valid value of that C type.
                let mut v6: libc::sockaddr_in6 = unsafe { std::mem::zeroed() };
                v6.sin6_family = libc::AF_INET6 as libc::sa_family_t;
                v6.sin6_port = to.port().to_be();
                v6.sin6_flowinfo = to.flowinfo();
                v6.sin6_addr.s6_addr = to.ip().octets();
                v6.sin6_scope_id = to.scope_id();
                Self::V6(v6)
            }
        }
    }

    /// Makes it the destination of a message.
    pub(super) fn name(&mut self, message: &mut libc::msghdr) {
        let (name, bytes) = match self {
            Self::V4(v4) => ((&raw mut *v4).cast(), size_of_val(v4)),
            Self::V6(v6) => ((&raw mut *v6).cast(), size_of_val(v6)),
        };
        message.msg_name = name;
        message.msg_namelen = bytes as libc::socklen_t;
    }
}

/// Sends datagrams with these control messages. Without `to` they go where the socket is connected to.
pub(super) fn send(
    socket: BorrowedFd<'_>,
    to: Option<SocketAddr>,
    bytes: &[u8],
    control: &mut Control,
) -> io::Result<()> {
    // SAFETY: a zeroed msghdr is a valid value of that C type.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    let mut address = to.map(Address::new);
    if let Some(address) = &mut address {
        address.name(&mut message);
    }
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    control.attach(&mut message);
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

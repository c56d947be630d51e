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
}

/// Sends datagrams with these control messages. Without `to` they go where the socket is connected to.
pub(super) fn send(
    socket: BorrowedFd<'_>,
    to: Option<SocketAddr>,
    bytes: &[u8],
    control: &mut Control,
) -> io::Result<()> {
    // SAFETY: a zeroed sockaddr of either family is a valid value of that C type.
    let (mut v4, mut v6): (libc::sockaddr_in, libc::sockaddr_in6) = unsafe { std::mem::zeroed() };
    // SAFETY: a zeroed msghdr is a valid value of that C type.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    match to {
        Some(SocketAddr::V4(to)) => {
            v4.sin_family = libc::AF_INET as libc::sa_family_t;
            v4.sin_port = to.port().to_be();
            v4.sin_addr.s_addr = u32::from_ne_bytes(to.ip().octets());
            message.msg_name = (&raw mut v4).cast();
            message.msg_namelen = size_of_val(&v4) as libc::socklen_t;
        }
        Some(SocketAddr::V6(to)) => {
            v6.sin6_family = libc::AF_INET6 as libc::sa_family_t;
            v6.sin6_port = to.port().to_be();
            v6.sin6_flowinfo = to.flowinfo();
            v6.sin6_addr.s6_addr = to.ip().octets();
            v6.sin6_scope_id = to.scope_id();
            message.msg_name = (&raw mut v6).cast();
            message.msg_namelen = size_of_val(&v6) as libc::socklen_t;
        }
        None => {}
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

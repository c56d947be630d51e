//! The six rtnetlink requests that the set-up needs.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};

const HEADER_BYTES: usize = 16;

/// `VETH_INFO_PEER` of `linux/veth.h`.
const VETH_INFO_PEER: u16 = 1;
/// `IFLA_INET6_ADDR_GEN_MODE` of `linux/if_link.h`.
const IFLA_INET6_ADDR_GEN_MODE: u16 = 8;
/// `IN6_ADDR_GEN_MODE_NONE` of `linux/if_link.h`.
const IN6_ADDR_GEN_MODE_NONE: u8 = 1;
/// `NDA_DST` and `NDA_LLADDR` of `linux/neighbour.h`.
const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;

/// A route netlink socket of the calling thread's network namespace.
pub(super) struct Netlink {
    socket: OwnedFd,
    sequence: u32,
}

/// An interface to be made.
pub(super) struct Interface<'a> {
    pub(super) index: u32,
    pub(super) name: &'a str,
    pub(super) mac: [u8; 6],
    pub(super) mtu: u32,
}

impl Netlink {
    pub(super) fn open() -> io::Result<Self> {
        // Protocol 0 is NETLINK_ROUTE.
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
        Ok(Self { socket, sequence: 0 })
    }

    /// A veth pair with one interface here and the other in `namespace`.
    pub(super) fn create_veth(
        &mut self,
        here: &Interface<'_>,
        there: &Interface<'_>,
        namespace: BorrowedFd<'_>,
    ) -> io::Result<()> {
        let flags = (libc::NLM_F_CREATE | libc::NLM_F_EXCL) as u16;
        let mut request = Request::new(libc::RTM_NEWLINK, flags, &link_header(here.index, 0));
        request.interface(here);
        request.nested(libc::IFLA_LINKINFO, |request| {
            request.attribute(libc::IFLA_INFO_KIND, b"veth");
            request.nested(libc::IFLA_INFO_DATA, |request| {
                request.nested(VETH_INFO_PEER, |request| {
                    request.bytes.extend_from_slice(&link_header(there.index, 0));
                    request.interface(there);
                    request.attribute(libc::IFLA_NET_NS_FD, &namespace.as_raw_fd().to_ne_bytes());
                });
            });
        });
        self.execute(request)
    }

    /// No IPv6 link-local address, hence no router solicitations.
    pub(super) fn disable_address_generation(&mut self, index: u32) -> io::Result<()> {
        let mut request = Request::new(libc::RTM_NEWLINK, 0, &link_header(index, 0));
        request.nested(libc::IFLA_AF_SPEC, |request| {
            request.nested(libc::AF_INET6 as u16, |request| {
                request.attribute(IFLA_INET6_ADDR_GEN_MODE, &[IN6_ADDR_GEN_MODE_NONE]);
            });
        });
        self.execute(request)
    }

    pub(super) fn set_up(&mut self, index: u32) -> io::Result<()> {
        self.execute(Request::new(libc::RTM_NEWLINK, 0, &link_header(index, libc::IFF_UP as u32)))
    }

    /// Without duplicate address detection: the address can be used at once.
    pub(super) fn add_address(&mut self, index: u32, address: IpAddr, prefix: u8) -> io::Result<()> {
        let mut header = [0; 8];
        header[0] = family(address);
        header[1] = prefix;
        header[2] = (libc::IFA_F_NODAD | libc::IFA_F_PERMANENT) as u8;
        header[4..].copy_from_slice(&index.to_ne_bytes());
        let flags = (libc::NLM_F_CREATE | libc::NLM_F_EXCL) as u16;
        let mut request = Request::new(libc::RTM_NEWADDR, flags, &header);
        request.address(libc::IFA_LOCAL, address);
        request.address(libc::IFA_ADDRESS, address);
        self.execute(request)
    }

    /// A permanent neighbour: nothing is ever asked on the link.
    pub(super) fn add_neighbour(&mut self, index: u32, address: IpAddr, mac: [u8; 6]) -> io::Result<()> {
        let mut header = [0; 12];
        header[0] = family(address);
        header[4..8].copy_from_slice(&index.to_ne_bytes());
        header[8..10].copy_from_slice(&libc::NUD_PERMANENT.to_ne_bytes());
        let flags = (libc::NLM_F_CREATE | libc::NLM_F_REPLACE) as u16;
        let mut request = Request::new(libc::RTM_NEWNEIGH, flags, &header);
        request.address(NDA_DST, address);
        request.attribute(NDA_LLADDR, &mac);
        self.execute(request)
    }

    fn execute(&mut self, request: Request) -> io::Result<()> {
        self.sequence += 1;
        send(&self.socket, &request.finish(self.sequence), SendFlags::empty())?;
        let mut reply = [0; 4096];
        let (_, bytes) = recv(&self.socket, &mut reply, RecvFlags::empty())?;
        let reply = reply.get(..bytes).unwrap_or_default();
        // An acknowledgement is an error message with code 0 right behind the header.
        let kind = reply.get(4..6).and_then(|kind| kind.try_into().ok()).map(u16::from_ne_bytes);
        let code = reply
            .get(HEADER_BYTES..HEADER_BYTES + 4)
            .and_then(|code| code.try_into().ok())
            .map(i32::from_ne_bytes);
        match (kind.map(i32::from), code) {
            (Some(libc::NLMSG_ERROR), Some(0)) => Ok(()),
            (Some(libc::NLMSG_ERROR), Some(code)) => Err(io::Error::from_raw_os_error(code.saturating_neg())),
            _ => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the kernel's netlink answer is no acknowledgement",
            )),
        }
    }
}

/// A netlink message under construction.
struct Request {
    bytes: Vec<u8>,
}

impl Request {
    fn new(kind: u16, flags: u16, body: &[u8]) -> Self {
        let flags = flags | (libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16;
        let mut bytes = vec![0; 4];
        bytes.extend_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(&flags.to_ne_bytes());
        bytes.resize(HEADER_BYTES, 0);
        bytes.extend_from_slice(body);
        Self { bytes }
    }

    fn attribute(&mut self, kind: u16, value: &[u8]) {
        self.nested(kind, |request| request.bytes.extend_from_slice(value));
    }

    fn address(&mut self, kind: u16, address: IpAddr) {
        match address {
            IpAddr::V4(address) => self.attribute(kind, &address.octets()),
            IpAddr::V6(address) => self.attribute(kind, &address.octets()),
        }
    }

    fn interface(&mut self, interface: &Interface<'_>) {
        let name = [interface.name.as_bytes(), &[0]].concat();
        self.attribute(libc::IFLA_IFNAME, &name);
        self.attribute(libc::IFLA_ADDRESS, &interface.mac);
        self.attribute(libc::IFLA_MTU, &interface.mtu.to_ne_bytes());
    }

    fn nested(&mut self, kind: u16, fill: impl FnOnce(&mut Self)) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0, 0]);
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        fill(self);
        let length = (self.bytes.len() - start) as u16;
        self.bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn finish(mut self, sequence: u32) -> Vec<u8> {
        let length = self.bytes.len() as u32;
        self.bytes[..4].copy_from_slice(&length.to_ne_bytes());
        self.bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
        self.bytes
    }
}

/// `struct ifinfomsg`; `flags` are also the mask of what changes.
fn link_header(index: u32, flags: u32) -> [u8; 16] {
    let mut header = [0; 16];
    header[4..8].copy_from_slice(&index.to_ne_bytes());
    header[8..12].copy_from_slice(&flags.to_ne_bytes());
    header[12..16].copy_from_slice(&flags.to_ne_bytes());
    header
}

fn family(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => libc::AF_INET as u8,
        IpAddr::V6(_) => libc::AF_INET6 as u8,
    }
}

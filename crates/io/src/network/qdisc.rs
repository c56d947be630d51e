//! The interface by which packets to an address leave, and its queueing disciplines (rtnetlink(7)).

use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};

/// Messages and flags of `linux/netlink.h` and `linux/rtnetlink.h`.
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const RTM_GETROUTE: u16 = 26;
const RTM_GETQDISC: u16 = 38;
const RTM_GETLINK: u16 = 18;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_DUMP: u16 = 0x300;
/// Attributes: a route's destination and interface, a qdisc's kind, an interface's name.
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const TCA_KIND: u16 = 1;
const IFLA_IFNAME: u16 = 3;
/// Sizes of `nlmsghdr`, `rtmsg`, `tcmsg` and `ifinfomsg`.
const HEADER: usize = 16;
const RTMSG: usize = 12;
const TCMSG: usize = 20;
const IFINFOMSG: usize = 16;

/// Disciplines that only distribute packets to others.
const DISTRIBUTORS: [&str; 2] = ["mq", "mqprio"];

/// The interface of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outlet {
    /// Name of the interface.
    pub interface: String,
    /// Kinds of its queueing disciplines, such as `fq_codel`.
    pub disciplines: Vec<String>,
}

impl Outlet {
    /// Whether each packet waits for its pacing rate and departure time: every queue is one of `fq`.
    pub fn paces(&self) -> bool {
        let mut queues =
            self.disciplines.iter().filter(|kind| !DISTRIBUTORS.contains(&kind.as_str())).peekable();
        queues.peek().is_some() && queues.all(|kind| kind == "fq")
    }
}

/// Asks the kernel by which interface packets to `to` leave, in the network namespace of the calling thread.
///
/// # Errors
///
/// If there is no route, or the kernel refuses the query.
pub fn outlet_towards(to: IpAddr) -> io::Result<Outlet> {
    // The protocol NETLINK_ROUTE is zero.
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
    let number = interface(&socket, to.to_canonical())?;
    let mut interface = None;
    let head = [&[0; 4][..], &number.to_ne_bytes(), &[0; 8]].concat();
    ask(&socket, RTM_GETLINK, 0, &head, |body| interface = text(body, IFINFOMSG, IFLA_IFNAME))?;
    let mut disciplines = Vec::new();
    ask(&socket, RTM_GETQDISC, NLM_F_DUMP, &[0; TCMSG], |body| {
        if word(body, 4) == Some(number) {
            disciplines.extend(text(body, TCMSG, TCA_KIND));
        }
    })?;
    Ok(Outlet { interface: interface.unwrap_or_else(|| number.to_string()), disciplines })
}

fn interface(socket: &OwnedFd, to: IpAddr) -> io::Result<u32> {
    let (family, address) = match to {
        IpAddr::V4(ip) => (libc::AF_INET, ip.octets().to_vec()),
        IpAddr::V6(ip) => (libc::AF_INET6, ip.octets().to_vec()),
    };
    let mut request = vec![0; RTMSG];
    request[0] = family as u8;
    request[1] = (address.len() * 8) as u8;
    request.extend((4 + address.len() as u16).to_ne_bytes());
    request.extend(RTA_DST.to_ne_bytes());
    request.extend(address);
    let mut found = None;
    ask(socket, RTM_GETROUTE, 0, &request, |body| {
        found = attribute(body, RTMSG, RTA_OIF).and_then(|value| word(value, 0));
    })?;
    found.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the route has no interface"))
}

/// Sends one request and passes on the body of each answer.
fn ask(
    socket: &OwnedFd,
    kind: u16,
    flags: u16,
    body: &[u8],
    mut answer: impl FnMut(&[u8]),
) -> io::Result<()> {
    let len = (HEADER + body.len()) as u32;
    let mut request = len.to_ne_bytes().to_vec();
    request.extend(kind.to_ne_bytes());
    request.extend((NLM_F_REQUEST | flags).to_ne_bytes());
    request.extend([0; 8]);
    request.extend(body);
    send(socket, &request, SendFlags::empty())?;
    let mut buffer = vec![0; 32 << 10];
    loop {
        let (_, len) = recv(socket, &mut buffer, RecvFlags::empty())?;
        let mut rest = buffer.get(..len).unwrap_or_default();
        while let (Some(len), Some(kind)) = (word(rest, 0), half(rest, 4)) {
            let message = rest.get(HEADER..len as usize).unwrap_or_default();
            match kind {
                NLMSG_DONE => return Ok(()),
                NLMSG_ERROR => {
                    let code = word(message, 0).map_or(libc::EPROTO, |code| (code as i32).wrapping_neg());
                    return Err(io::Error::from_raw_os_error(code));
                }
                _ => answer(message),
            }
            rest = rest.get(aligned(len as usize).max(HEADER)..).unwrap_or_default();
        }
        if flags & NLM_F_DUMP == 0 {
            return Ok(());
        }
    }
}

/// The value of an attribute behind the fixed part of a message.
fn attribute(body: &[u8], fixed: usize, wanted: u16) -> Option<&[u8]> {
    let mut rest = body.get(fixed..)?;
    loop {
        let (len, kind) = (usize::from(half(rest, 0)?), half(rest, 2)?);
        if kind == wanted {
            return rest.get(4..len);
        }
        rest = rest.get(aligned(len).max(4)..)?;
    }
}

fn text(body: &[u8], fixed: usize, wanted: u16) -> Option<String> {
    let value = attribute(body, fixed, wanted)?;
    let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
    Some(String::from_utf8_lossy(&value[..end]).into_owned())
}

fn aligned(len: usize) -> usize {
    len.next_multiple_of(4)
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes)
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2)?.try_into().ok().map(u16::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outlet(disciplines: &[&str]) -> Outlet {
        let disciplines = disciplines.iter().map(|&kind| kind.to_owned()).collect();
        Outlet { interface: "eth0".to_owned(), disciplines }
    }

    #[test]
    fn loopback_has_a_name_and_does_not_pace() {
        for to in ["127.0.0.1", "::1", "::ffff:127.0.0.1"] {
            let found = outlet_towards(to.parse().unwrap()).unwrap();
            assert_eq!(found.interface, "lo", "{to}");
            assert!(!found.paces(), "{found:?}");
        }
    }

    #[test]
    fn every_queue_has_to_be_fq() {
        for (kinds, paces) in [
            (&["fq"][..], true),
            (&["mq", "fq", "fq"], true),
            (&["mq", "fq", "fq_codel"], false),
            (&["fq_codel"], false),
            (&["noqueue"], false),
            (&["mq"], false),
            (&[], false),
        ] {
            assert_eq!(outlet(kinds).paces(), paces, "{kinds:?}");
        }
    }
}

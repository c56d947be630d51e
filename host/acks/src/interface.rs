//! What an interface is, as the kernel says (rtnetlink(7)). `/sys` may be that of another network namespace.

use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};

/// Messages and flags of `linux/netlink.h` and `linux/rtnetlink.h`.
const NLMSG_ERROR: u16 = 2;
const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const NLM_F_REQUEST: u16 = 1;
/// Attributes of `linux/if_link.h`: the name, and that of the device on a bus, since Linux 5.14.
const IFLA_IFNAME: u16 = 3;
const IFLA_PARENT_DEV_NAME: u16 = 56;
/// `IFNAMSIZ` of `linux/if.h`, with the zero at the end.
const NAME_BYTES: usize = 16;
/// Sizes of `nlmsghdr` and `ifinfomsg`, and the place of the interface's type in the second.
const HEADER: usize = 16;
const IFINFOMSG: usize = 16;
const TYPE: usize = HEADER + 2;
/// More than the kernel says of an interface without its virtual functions, for which nobody asks.
const ANSWER_BYTES: usize = 32 << 10;

/// `ARPHRD_ETHER` and `ARPHRD_LOOPBACK` of `linux/if_arp.h`.
const ETHERNET: [u16; 2] = [1, 772];

/// An interface of the calling thread's network namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interface {
    /// `ARPHRD_*`.
    kind: u16,
    /// It is one of a device on a bus.
    pub(crate) has_device: bool,
}

impl Interface {
    /// Asks the kernel. The error is `ENODEV` if there is none of this name.
    pub(crate) fn ask(name: &str) -> io::Result<Self> {
        if name.is_empty() || name.len() >= NAME_BYTES || name.contains('\0') {
            return Err(Errno::NODEV.into());
        }
        // The protocol NETLINK_ROUTE is zero.
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
        send(&socket, &request(name), SendFlags::empty())?;
        read(&answer(&socket)?)
    }

    /// Whether its packets have an Ethernet header, as those of loopback do.
    pub(crate) fn has_ethernet(self) -> bool {
        ETHERNET.contains(&self.kind)
    }
}

fn request(name: &str) -> Vec<u8> {
    let attribute = 4 + name.len() + 1;
    let mut bytes = ((HEADER + IFINFOMSG + attribute) as u32).to_ne_bytes().to_vec();
    bytes.extend(RTM_GETLINK.to_ne_bytes());
    bytes.extend(NLM_F_REQUEST.to_ne_bytes());
    bytes.extend([0; 8 + IFINFOMSG]);
    bytes.extend((attribute as u16).to_ne_bytes());
    bytes.extend(IFLA_IFNAME.to_ne_bytes());
    bytes.extend(name.as_bytes());
    bytes.push(0);
    bytes
}

fn answer(socket: &OwnedFd) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; ANSWER_BYTES];
    let (_, len) = recv(socket, &mut bytes, RecvFlags::empty())?;
    bytes.truncate(len);
    Ok(bytes)
}

fn read(answer: &[u8]) -> io::Result<Interface> {
    match (half(answer, 4), half(answer, TYPE)) {
        (Some(NLMSG_ERROR), _) => {
            let code = answer.get(HEADER..HEADER + 4).and_then(|four| four.try_into().ok());
            let code = code.map_or(0, i32::from_ne_bytes).wrapping_neg();
            Err(io::Error::from_raw_os_error(code))
        }
        (Some(RTM_NEWLINK), Some(kind)) => Ok(Interface { kind, has_device: has_device(answer) }),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "its answer has no interface")),
    }
}

fn has_device(answer: &[u8]) -> bool {
    let mut rest = answer.get(HEADER + IFINFOMSG..).unwrap_or_default();
    while let (Some(len), Some(kind)) = (half(rest, 0), half(rest, 2)) {
        if kind == IFLA_PARENT_DEV_NAME {
            return true;
        }
        rest = rest.get(usize::from(len).next_multiple_of(4).max(4)..).unwrap_or_default();
    }
    false
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2)?.try_into().ok().map(u16::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Types of `if_arp.h`: tun and WireGuard, PPP, IPIP, SIT, GRE, raw IP of modems.
    #[test]
    fn only_ethernet_and_loopback_have_ethernet_headers() {
        let has_ethernet = |kind| Interface { kind, has_device: false }.has_ethernet();
        for kind in [1, 772] {
            assert!(has_ethernet(kind), "{kind}");
        }
        for kind in [65534, 512, 768, 776, 778, 519, 823, 0] {
            assert!(!has_ethernet(kind), "{kind}");
        }
    }

    /// A test runs where `/sys` is that of its own namespace.
    #[test]
    fn the_kernel_says_what_its_files_say() {
        let class = std::path::Path::new("/sys/class/net");
        let interfaces = std::fs::read_dir(class).unwrap().map(|entry| entry.unwrap().file_name());
        let mut found = 0;
        for name in interfaces {
            let folder = class.join(&name);
            let Ok(kind) = std::fs::read_to_string(folder.join("type")) else { continue };
            let (kind, has_device) = (kind.trim().parse().unwrap(), folder.join("device").exists());
            let name = name.to_str().unwrap();
            // Another test may have removed its interface meanwhile.
            let Ok(interface) = Interface::ask(name) else {
                assert!(!folder.exists(), "{name}");
                continue;
            };
            assert_eq!(interface, Interface { kind, has_device }, "{name}");
            found += 1;
        }
        assert!(found > 0, "there is loopback");
        for nobody in ["", "no-such", "a name that is too long for Linux"] {
            let error = Interface::ask(nobody).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(Errno::NODEV.raw_os_error()), "{nobody}");
        }
    }

    #[test]
    fn an_answer_without_an_interface_is_an_error() {
        assert!(read(&[]).is_err());
        assert!(read(&[0; 64]).is_err());
        let mut endless = vec![0; 64];
        endless[4] = RTM_NEWLINK as u8;
        assert_eq!(read(&endless).unwrap(), Interface { kind: 0, has_device: false });
    }
}

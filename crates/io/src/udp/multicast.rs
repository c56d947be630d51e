use std::io;
use std::net::{IpAddr, Ipv4Addr};

use rustix::net::sockopt;

use super::UdpSocket;

/// An IP multicast group on one interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Group {
    /// The group's address.
    pub address: IpAddr,
    /// Where its members are.
    pub interface: Interface,
}

/// A network interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Interface {
    /// The one that the routing table has for the address.
    #[default]
    Routed,
    /// The one with this number, see `ip link`.
    Number(u32),
    /// The one with this address; for IPv4 groups only.
    Of(Ipv4Addr),
}

impl Interface {
    /// For IPv4: a number or an address, the other is zero.
    fn v4(self) -> (Ipv4Addr, u32) {
        match self {
            Self::Routed => (Ipv4Addr::UNSPECIFIED, 0),
            Self::Number(number) => (Ipv4Addr::UNSPECIFIED, number),
            Self::Of(address) => (address, 0),
        }
    }

    /// For IPv6.
    fn v6(self) -> io::Result<u32> {
        match self {
            Self::Routed => Ok(0),
            Self::Number(number) => Ok(number),
            Self::Of(_) => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the interface of an IPv6 group is chosen by its number",
            )),
        }
    }
}

impl UdpSocket {
    /// Receives what is sent to the group from now on, if the socket's port is right and its own address is a wildcard
    /// or the group's. Fails for an address that is no group's, for one of the other family, and for a second time.
    ///
    /// # Errors
    ///
    /// If the address is not multicast or of the other family, or the socket is a member already.
    pub fn join(&self, group: Group) -> io::Result<()> {
        match group.address {
            IpAddr::V4(address) => {
                let (local, number) = group.interface.v4();
                sockopt::set_ip_add_membership_with_ifindex(self, &address, &local, number)?;
            }
            IpAddr::V6(address) => {
                sockopt::set_ipv6_add_membership(self, &address, group.interface.v6()?)?;
            }
        }
        Ok(())
    }

    /// Undoes [`join`](Self::join). Closing the socket does so too.
    ///
    /// # Errors
    ///
    /// If the socket is not a member.
    pub fn leave(&self, group: Group) -> io::Result<()> {
        match group.address {
            IpAddr::V4(address) => {
                let (local, number) = group.interface.v4();
                sockopt::set_ip_drop_membership_with_ifindex(self, &address, &local, number)?;
            }
            IpAddr::V6(address) => {
                sockopt::set_ipv6_drop_membership(self, &address, group.interface.v6()?)?;
            }
        }
        Ok(())
    }

    /// Through which interface datagrams to the groups of this address family go, how many routers they may pass
    /// (1: none), and whether members on this machine get them.
    ///
    /// # Errors
    ///
    /// If the interface does not exist, or is unsuitable.
    pub fn set_multicast(&self, group: Group, hops: u8, to_this_machine: bool) -> io::Result<()> {
        match group.address {
            IpAddr::V4(_) => {
                if group.interface != Interface::Routed {
                    let (local, number) = group.interface.v4();
                    sockopt::set_ip_multicast_if_with_ifindex(self, &Ipv4Addr::UNSPECIFIED, &local, number)?;
                }
                sockopt::set_ip_multicast_ttl(self, u32::from(hops))?;
                sockopt::set_ip_multicast_loop(self, to_this_machine)?;
            }
            IpAddr::V6(_) => {
                if group.interface != Interface::Routed {
                    sockopt::set_ipv6_multicast_if(self, group.interface.v6()?)?;
                }
                sockopt::set_ipv6_multicast_hops(self, u32::from(hops))?;
                sockopt::set_ipv6_multicast_loop(self, to_this_machine)?;
            }
        }
        Ok(())
    }
}

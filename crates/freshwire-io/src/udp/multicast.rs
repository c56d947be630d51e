use std::io;
use std::net::{IpAddr, Ipv4Addr};

use rustix::net::sockopt;

use super::UdpSocket;

/// An IP multicast group on one interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// The group's address.
    pub address: IpAddr,
    /// The interface's number; 0 leaves it to the routing table.
    pub interface: u32,
}

impl UdpSocket {
    /// Receives what is sent to the group from now on, if the socket's port is right and its own address is a wildcard
    /// or the group's. Fails for an address that is no group's, for one of the other family, and for a second time.
    pub fn join(&self, group: Group) -> io::Result<()> {
        match group.address {
            IpAddr::V4(address) => sockopt::set_ip_add_membership_with_ifindex(
                &self.socket,
                &address,
                &Ipv4Addr::UNSPECIFIED,
                group.interface,
            )?,
            IpAddr::V6(address) => sockopt::set_ipv6_add_membership(&self.socket, &address, group.interface)?,
        }
        Ok(())
    }

    /// Undoes [`join`](Self::join). Closing the socket does so too.
    pub fn leave(&self, group: Group) -> io::Result<()> {
        match group.address {
            IpAddr::V4(address) => sockopt::set_ip_drop_membership_with_ifindex(
                &self.socket,
                &address,
                &Ipv4Addr::UNSPECIFIED,
                group.interface,
            )?,
            IpAddr::V6(address) => {
                sockopt::set_ipv6_drop_membership(&self.socket, &address, group.interface)?;
            }
        }
        Ok(())
    }

    /// Through which interface datagrams to the groups of this address family go, how many routers they may pass
    /// (1: none), and whether members on this machine get them.
    pub fn set_multicast(&self, group: Group, hops: u8, to_this_machine: bool) -> io::Result<()> {
        match group.address {
            IpAddr::V4(_) => {
                if group.interface != 0 {
                    sockopt::set_ip_multicast_if_with_ifindex(
                        &self.socket,
                        &Ipv4Addr::UNSPECIFIED,
                        &Ipv4Addr::UNSPECIFIED,
                        group.interface,
                    )?;
                }
                sockopt::set_ip_multicast_ttl(&self.socket, u32::from(hops))?;
                sockopt::set_ip_multicast_loop(&self.socket, to_this_machine)?;
            }
            IpAddr::V6(_) => {
                if group.interface != 0 {
                    sockopt::set_ipv6_multicast_if(&self.socket, group.interface)?;
                }
                sockopt::set_ipv6_multicast_hops(&self.socket, u32::from(hops))?;
                sockopt::set_ipv6_multicast_loop(&self.socket, to_this_machine)?;
            }
        }
        Ok(())
    }
}

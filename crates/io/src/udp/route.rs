use std::io;
use std::net::{SocketAddr, UdpSocket as StdSocket};

use rustix::net::sockopt;

use super::datagram::{MAX_DATAGRAM_BYTES, addressed};

/// Asks the kernel about the way to a destination. Nothing is sent.
#[derive(Debug)]
pub struct Route(StdSocket);

impl Route {
    /// For what leaves from the address `local`, which may be a wildcard, in the network namespace of the calling thread. Its
    /// port does not matter.
    ///
    /// # Errors
    ///
    /// If the system refuses a socket.
    pub fn new(mut local: SocketAddr) -> io::Result<Self> {
        local.set_port(0);
        StdSocket::bind(local).map(Self)
    }

    /// The largest UDP payload that the first link on the way to `to` carries, or the whole path as far as the kernel has
    /// learnt it. Fails as `connect` does if there is no way.
    ///
    /// # Errors
    ///
    /// If there is no route, as connect(2).
    pub fn largest_datagram(&self, to: SocketAddr) -> io::Result<usize> {
        let is_v6 = self.0.local_addr()?.is_ipv6();
        self.0.connect(addressed(to, is_v6))?;
        let mtu = if is_v6 { sockopt::ipv6_mtu(&self.0) } else { sockopt::ip_mtu(&self.0) }?;
        let headers = if to.is_ipv4() { 20 + 8 } else { 40 + 8 };
        Ok((mtu as usize).saturating_sub(headers).min(MAX_DATAGRAM_BYTES))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_carries_the_largest_datagrams_of_either_family() {
        let mtu = std::fs::read_to_string("/sys/class/net/lo/mtu").unwrap().trim().parse::<usize>().unwrap();
        for (local, to, headers) in [
            ("127.0.0.1:1", "127.0.0.1:9", 28),
            ("0.0.0.0:0", "127.0.0.1:9", 28),
            ("[::]:0", "[::1]:9", 48),
            ("[::]:0", "127.0.0.1:9", 28),
        ] {
            let route = Route::new(local.parse().unwrap()).unwrap();
            for _ in 0..2 {
                let largest = route.largest_datagram(to.parse().unwrap()).unwrap();
                assert_eq!(largest, (mtu - headers).min(MAX_DATAGRAM_BYTES), "{local} to {to}");
            }
        }
    }

    #[test]
    fn without_a_way_there_is_an_error() {
        let route = Route::new("127.0.0.1:0".parse().unwrap()).unwrap();
        assert!(route.largest_datagram("255.255.255.255:9".parse().unwrap()).is_err());
    }
}

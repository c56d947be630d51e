//! Several sockets at one address, and which of them a datagram goes to.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, AsRawFd as _};

use rustix::net::sockopt;

use super::{UdpConfig, UdpSocket};

/// How the kernel selects one of several sockets at an address: by the remainder of a number in the datagram, divided by the number of
/// sockets. The sockets count in the order in which they were bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steering {
    /// Place of the number, 32 bits in network order. Shorter datagrams go to the first socket.
    pub offset: u32,
    /// Bits of the first byte that name the kind of the datagram.
    pub kind_mask: u8,
    /// Datagrams of this kind have no number. The kernel selects by a hash of both addresses and ports.
    pub unnumbered: u8,
}

impl UdpSocket {
    /// Binds this number of sockets to `address`, at least one; port 0 lets the kernel choose one. Nobody else may have the
    /// address, nor may it be [shared](UdpConfig::shared).
    ///
    /// # Errors
    ///
    /// As [`UdpSocket::bind`], and if the kernel refuses the program that selects the socket.
    pub fn bind_several(
        address: SocketAddr,
        config: UdpConfig,
        sockets: usize,
        steering: &Steering,
    ) -> io::Result<Vec<Self>> {
        // Bound alone, it finds out whether somebody else has the address: a second program of the same user would share it.
        let first = Self::bind(address, UdpConfig { shared: false, several: false, ..config })?;
        let mut bound = vec![first];
        if sockets < 2 {
            return Ok(bound);
        }
        sockopt::set_socket_reuseport(&bound[0], true)?;
        let address = SocketAddr::new(address.ip(), bound[0].local_addr()?.port());
        while bound.len() < sockets {
            bound.push(Self::bind(address, UdpConfig { shared: false, several: true, ..config })?);
        }
        steering.attach(&bound)?;
        Ok(bound)
    }
}

impl Steering {
    /// The program of all sockets of an address; one is enough to attach it.
    fn attach(&self, sockets: &[UdpSocket]) -> io::Result<()> {
        let count = u32::try_from(sockets.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let mut program = self.program(count);
        let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
        let size = size_of::<libc::sock_fprog>() as libc::socklen_t;
        // SAFETY: `filter` names `program`, which lives until the call returns; the kernel copies it.
        let result = unsafe {
            libc::setsockopt(
                sockets[0].as_fd().as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_ATTACH_REUSEPORT_CBPF,
                (&raw const filter).cast(),
                size,
            )
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Classic BPF, whose data begin with the payload (socket(7), `SO_ATTACH_REUSEPORT_CBPF`). A number of no socket leaves the
    /// selection to the kernel's hash.
    fn program(&self, sockets: u32) -> [libc::sock_filter; 7] {
        let step = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
        let is_unnumbered = step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, self.unnumbered.into());
        [
            step(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, 0),
            step(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, self.kind_mask.into()),
            libc::sock_filter { jt: 3, ..is_unnumbered },
            step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, self.offset),
            step(libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K, sockets),
            step(libc::BPF_RET | libc::BPF_A, 0),
            step(libc::BPF_RET | libc::BPF_K, u32::MAX),
        ]
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::ReceiveBuffer;
    use super::*;
    use crate::poll::Poller;

    /// The number is behind the first byte, of which the high half is the kind.
    const STEERING: Steering = Steering { offset: 1, kind_mask: 0xf0, unnumbered: 0x10 };

    fn bind(sockets: usize) -> Vec<UdpSocket> {
        let address = "127.0.0.1:0".parse().unwrap();
        UdpSocket::bind_several(address, UdpConfig::default(), sockets, &STEERING).unwrap()
    }

    /// The place of the socket that gets a datagram.
    fn place_of(sockets: &[UdpSocket], from: &std::net::UdpSocket, datagram: &[u8]) -> usize {
        let poller = Poller::new().unwrap();
        for (socket, token) in sockets.iter().zip(0..) {
            poller.add_reader(socket, token).unwrap();
        }
        from.send_to(datagram, sockets[0].local_addr().unwrap()).unwrap();
        let mut ready = Vec::new();
        poller.wait(Some(Duration::from_secs(20)), &mut ready).unwrap();
        assert_eq!(ready.len(), 1, "one socket has it");
        let place = ready[0].token as usize;
        let mut buffer = ReceiveBuffer::default();
        assert!(sockets[place].receive(&mut buffer).unwrap());
        place
    }

    #[test]
    fn a_datagram_goes_to_the_socket_of_its_number_from_any_address() {
        for count in [2, 3, 7] {
            let sockets = bind(count);
            for number in [0_u32, 1, 2, 100, 0x8000_0001, u32::MAX] {
                for _ in 0..3 {
                    let client = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
                    let [a, b, c, d] = number.to_be_bytes();
                    let place = place_of(&sockets, &client, &[0x40, a, b, c, d, 9]);
                    assert_eq!(place, number as usize % count, "{number} of {count}");
                }
            }
        }
    }

    #[test]
    fn one_without_a_number_goes_where_its_addresses_say() {
        let sockets = bind(2);
        let mut places = [0; 2];
        for _ in 0..64 {
            let client = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            let first = place_of(&sockets, &client, &[0x11, 0, 0, 0, 0]);
            let second = place_of(&sockets, &client, &[0x11, 0, 0, 0, 1]);
            assert_eq!(first, second, "the same addresses");
            places[first] += 1;
        }
        assert!(places.iter().all(|&count| count > 8), "{places:?}");
        let client = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        assert_eq!(place_of(&sockets, &client, &[0x40]), 0, "too short for a number");
    }

    #[test]
    fn an_address_in_use_is_refused_as_for_one_socket() {
        let sockets = bind(2);
        let address = sockets[0].local_addr().unwrap();
        for count in [1, 2] {
            let again = UdpSocket::bind_several(address, UdpConfig::default(), count, &STEERING);
            assert_eq!(again.unwrap_err().kind(), io::ErrorKind::AddrInUse, "{count}");
        }
        drop(sockets);
        UdpSocket::bind_several(address, UdpConfig::default(), 2, &STEERING).unwrap();
    }

    #[test]
    fn a_program_that_the_kernel_refuses_is_an_error() {
        // A program for sockets that do not share an address.
        let alone = UdpSocket::bind("127.0.0.1:0".parse().unwrap(), UdpConfig::default()).unwrap();
        assert!(STEERING.attach(&[alone]).is_err());
    }
}

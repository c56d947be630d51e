//! The other end of a connection within one machine: the kernel says what its program has not read (`sock_diag(7)`).

use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, getpeername, getsockname, netlink, recv,
    send, socket_with, sockopt,
};

/// `SOCK_DIAG_BY_FAMILY` of `linux/sock_diag.h`.
const SOCK_DIAG_BY_FAMILY: u16 = 20;
/// `NLMSG_ERROR` of `linux/netlink.h`.
const NLMSG_ERROR: u16 = 2;
/// `NLM_F_REQUEST` of `linux/netlink.h`.
const NLM_F_REQUEST: u16 = 1;
/// `INET_DIAG_NOCOOKIE` of `linux/inet_diag.h`: any socket with these addresses.
const NO_COOKIE: u64 = u64::MAX;

/// States of `net/tcp_states.h` in which a socket still reads what this end sends: established, `FIN_WAIT1`, `FIN_WAIT2`, `CLOSE_WAIT`.
const READING_STATES: [u8; 4] = [1, 4, 5, 8];

/// `struct nlmsghdr` and `struct inet_diag_req_v2`.
const REQUEST_BYTES: usize = 16 + 56;
/// Places in `struct nlmsghdr` and the `struct inet_diag_msg` behind it.
const KIND: usize = 4;
const SEQUENCE: usize = 8;
const ERROR: usize = 16;
const STATE: usize = 16 + 1;
const COOKIE: usize = 16 + 4 + 40;
const RECEIVE_QUEUE: usize = 16 + 4 + 48 + 4;
const ANSWER_BYTES: usize = 16 + 72;

/// The peer's socket of a connection whose two ends are in one network namespace.
#[derive(Clone, Copy, Debug)]
pub struct LocalPeer {
    near: SocketAddr,
    far: SocketAddr,
    cookie: u64,
}

impl LocalPeer {
    /// Finds the peer's socket; `None` if it is not in this socket's network namespace, or this thread is in another one.
    pub(super) fn find(socket: BorrowedFd<'_>) -> io::Result<Option<Self>> {
        let near = address(getsockname(socket)?);
        let (Some(near), Some(far)) = (near, getpeername(socket)?.and_then(address)) else { return Ok(None) };
        // Another namespace may have sockets of the same addresses: only one that has this socket is the right one.
        let own = sockopt::socket_cookie(socket)?;
        if query(near, far, own)?.is_none() {
            return Ok(None);
        }
        let found = query(far, near, NO_COOKIE)?;
        Ok(found.map(|Answer { cookie, .. }| Self { near, far, cookie }))
    }

    /// Bytes that the peer's kernel has received and its program has not read; `None` if the peer's socket is closed. Two system calls, some
    /// five microseconds.
    ///
    /// # Errors
    ///
    /// If the kernel refuses the query.
    pub fn unread(&self) -> io::Result<Option<u64>> {
        Ok(query(self.far, self.near, self.cookie)?.map(|answer| u64::from(answer.receive_queue)))
    }
}

struct Answer {
    cookie: u64,
    receive_queue: u32,
}

thread_local! {
    /// One for all connections of a thread: a socket per connection would double their number.
    static DIAGNOSTICS: RefCell<Option<Diagnostics>> = const { RefCell::new(None) };
}

struct Diagnostics {
    socket: OwnedFd,
    sequence: u32,
}

/// What the kernel says of the socket with these addresses; `None` if there is none that reads.
fn query(own: SocketAddr, peer: SocketAddr, cookie: u64) -> io::Result<Option<Answer>> {
    DIAGNOSTICS.with_borrow_mut(|diagnostics| {
        let open = match diagnostics.take() {
            Some(open) => open,
            None => Diagnostics::open()?,
        };
        diagnostics.insert(open).query(own, peer, cookie)
    })
}

impl Diagnostics {
    fn open() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let protocol = Some(netlink::SOCK_DIAG);
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol)?;
        Ok(Self { socket, sequence: 0 })
    }

    fn query(&mut self, own: SocketAddr, peer: SocketAddr, cookie: u64) -> io::Result<Option<Answer>> {
        self.sequence = self.sequence.wrapping_add(1);
        send(&self.socket, &request(self.sequence, own, peer, cookie), SendFlags::empty())?;
        let mut answer = [0; 1024];
        loop {
            // The kernel answers within the call that asks. An answer to another question is left from a query that failed.
            let (_, len) = recv(&self.socket, &mut answer, RecvFlags::empty())?;
            let answer = answer.get(..len).unwrap_or_default();
            if word(answer, SEQUENCE) == Some(self.sequence) {
                return read(answer);
            }
        }
    }
}

/// A request for one socket, by its addresses.
fn request(sequence: u32, own: SocketAddr, peer: SocketAddr, cookie: u64) -> [u8; REQUEST_BYTES] {
    let mut bytes = [0; REQUEST_BYTES];
    let mut at = 0;
    let mut put = |part: &[u8]| {
        if let Some(place) = bytes.get_mut(at..at + part.len()) {
            place.copy_from_slice(part);
        }
        at += part.len();
    };
    put(&(REQUEST_BYTES as u32).to_ne_bytes());
    put(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    put(&NLM_F_REQUEST.to_ne_bytes());
    put(&sequence.to_ne_bytes());
    put(&0u32.to_ne_bytes());
    let family = if own.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    put(&[family as u8, libc::IPPROTO_TCP as u8, 0, 0]);
    // All states.
    put(&u32::MAX.to_ne_bytes());
    put(&own.port().to_be_bytes());
    put(&peer.port().to_be_bytes());
    for ip in [own.ip(), peer.ip()] {
        match ip {
            IpAddr::V4(ip) => {
                put(&ip.octets());
                put(&[0; 12]);
            }
            IpAddr::V6(ip) => put(&ip.octets()),
        }
    }
    let scope = match (own, peer) {
        (SocketAddr::V6(own), SocketAddr::V6(peer)) => own.scope_id().max(peer.scope_id()),
        _ => 0,
    };
    put(&scope.to_ne_bytes());
    put(&cookie.to_ne_bytes());
    bytes
}

fn read(answer: &[u8]) -> io::Result<Option<Answer>> {
    let kind = answer.get(KIND..KIND + 2).and_then(|two| two.try_into().ok()).map(u16::from_ne_bytes);
    if kind == Some(NLMSG_ERROR) {
        let code = word(answer, ERROR).map_or(libc::EPROTO, |code| (code as i32).wrapping_neg());
        // Also where a socket with another cookie has these addresses: ESTALE.
        return match code {
            libc::ENOENT | libc::ESTALE => Ok(None),
            code => Err(io::Error::from_raw_os_error(code)),
        };
    }
    let state = answer.get(STATE).copied();
    let cookie = answer.get(COOKIE..COOKIE + 8).and_then(|eight| eight.try_into().ok());
    let (Some(SOCK_DIAG_BY_FAMILY), Some(state), Some(cookie), Some(receive_queue)) =
        (kind, state, cookie, word(answer, RECEIVE_QUEUE))
    else {
        return Err(io::Error::from_raw_os_error(libc::EPROTO));
    };
    if answer.len() < ANSWER_BYTES || !READING_STATES.contains(&state) {
        // Without a connection of these addresses the kernel answers with a listening socket.
        return Ok(None);
    }
    Ok(Some(Answer { cookie: u64::from_ne_bytes(cookie), receive_queue }))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// The address as the kernel's tables have it: an IPv4 one where a socket of IPv6 uses that.
fn address(address: rustix::net::SocketAddrAny) -> Option<SocketAddr> {
    let address = SocketAddr::try_from(address).ok()?;
    Some(match address.ip().to_canonical() {
        IpAddr::V4(ip) => SocketAddr::new(ip.into(), address.port()),
        IpAddr::V6(_) => address,
    })
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use crate::tcp::TcpSocket;

    type Result = std::result::Result<(), Box<dyn std::error::Error>>;

    #[test]
    fn says_to_the_byte_what_the_peer_has_not_read() -> Result {
        for bind in ["127.0.0.1:0", "[::1]:0", "[::]:0"] {
            let listener = TcpListener::bind(bind)?;
            let port = listener.local_addr()?.port();
            // The listener of both families is reached by IPv4: one end is a socket of IPv6 with mapped addresses.
            let host = if bind.starts_with("[::1]") { "::1" } else { "127.0.0.1" };
            for near_is_client in [true, false] {
                let client = TcpStream::connect((host, port))?;
                let server = listener.accept()?.0;
                let (mut near, mut far) = if near_is_client { (client, server) } else { (server, client) };
                let socket = TcpSocket::new(near.try_clone()?)?;
                let peer = socket.local_peer()?.ok_or("the peer is not found")?;
                assert_eq!(peer.unread()?, Some(0), "{bind}");
                near.write_all(&[7; 5000])?;
                assert_eq!(peer.unread()?, Some(5000), "{bind}");
                far.read_exact(&mut [0; 1234])?;
                assert_eq!(peer.unread()?, Some(3766), "{bind}");
                drop(far);
                assert_eq!(peer.unread()?, None, "{bind}");
            }
        }
        Ok(())
    }

    #[test]
    fn a_peer_that_is_gone_is_not_its_listener() -> Result {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let near = TcpStream::connect(listener.local_addr()?)?;
        let socket = TcpSocket::new(near)?;
        let far = listener.accept()?.0;
        let peer = socket.local_peer()?.ok_or("the peer is not found")?;
        socket.abort_on_close()?;
        drop(socket);
        assert_eq!(peer.unread()?, None);
        drop(far);
        assert_eq!(peer.unread()?, None);
        Ok(())
    }
}

//! Connections that are made and read without waiting.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType};

use super::TcpSocket;

impl TcpSocket {
    /// Starts to connect, and returns at once. The socket is writable when the attempt has ended: [`is_connected`](Self::is_connected)
    /// says how, and [`take_error`](Self::take_error) why it failed.
    ///
    /// # Errors
    ///
    /// If the system refuses a socket, or there is no way to the address.
    pub fn connect(address: SocketAddr) -> io::Result<Self> {
        let family = if address.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
        sockopt::set_tcp_nodelay(&socket, true)?;
        match rustix::net::connect(&socket, &address) {
            Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => Ok(Self(socket)),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether an attempt to connect has succeeded.
    pub fn is_connected(&self) -> bool {
        rustix::net::getpeername(&self.0).is_ok()
    }

    /// Reads what has come into `buffer`. `Ok(None)`: nothing is there now. `Ok(Some(0))`: the peer sends nothing any more.
    ///
    /// # Errors
    ///
    /// If the connection is broken.
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            match rustix::net::recv(&self.0, &mut *buffer, RecvFlags::DONTWAIT) {
                Ok((len, _)) => return Ok(Some(len)),
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// How long written data may stay unacknowledged before the connection counts as broken (`TCP_USER_TIMEOUT`, RFC 5482), in whole
    /// milliseconds. The kernel's default is about fifteen minutes.
    ///
    /// # Errors
    ///
    /// If the kernel refuses the option.
    pub fn set_user_timeout(&self, timeout: Duration) -> io::Result<()> {
        let millis = u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX);
        sockopt::set_tcp_user_timeout(&self.0, millis)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::TcpListener;

    use super::*;
    use crate::poll::Poller;

    /// Until the attempt has ended.
    fn wait(socket: &TcpSocket) -> io::Result<()> {
        let poller = Poller::new()?;
        poller.add(socket, 1)?;
        poller.watch(socket, 1, true)?;
        poller.wait(Some(Duration::from_secs(10)), &mut Vec::new()).map(drop)
    }

    #[test]
    fn a_connection_is_made_and_read_without_waiting() -> io::Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let socket = TcpSocket::connect(listener.local_addr()?)?;
        wait(&socket)?;
        assert!(socket.is_connected());
        let mut buffer = [0; 16];
        assert_eq!(socket.read(&mut buffer)?, None);
        let (mut far, _) = listener.accept()?;
        far.write_all(b"news")?;
        drop(far);
        let mut came = Vec::new();
        let poller = Poller::new()?;
        poller.add_reader(&socket, 1)?;
        loop {
            match socket.read(&mut buffer)? {
                Some(0) => break,
                Some(len) => came.extend_from_slice(&buffer[..len]),
                None => _ = poller.wait(Some(Duration::from_secs(10)), &mut Vec::new())?,
            }
        }
        assert_eq!(came, b"news");
        Ok(())
    }

    #[test]
    fn an_attempt_that_is_refused_has_an_error() -> io::Result<()> {
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let socket = TcpSocket::connect(address)?;
        wait(&socket)?;
        let error = socket.take_error()?.map(|error| error.kind());
        assert_eq!((socket.is_connected(), error), (false, Some(io::ErrorKind::ConnectionRefused)));
        Ok(())
    }
}

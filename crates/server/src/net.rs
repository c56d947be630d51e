//! Connections: accepted within limits, encrypted or not, and taken apart for the engine.
//!
//! ```text
//!            ┌────────── one task ──────────┐             ┌─ ViewRequest ─► engine thread: Seal, writes
//!  Acceptor ─┤ Conn: requests and answers   ├─ into_parts ┤
//!            └──────────────────────────────┘             └─ Reader ──────► the same task: reads only
//! ```
//!
//! A connection begins in the hands of one task. When it turns into a viewer, the engine writes and the task only
//! reads. Its second descriptor is registered for reading alone, so that the events of a slow viewer's writes wake
//! nobody here.

mod acceptor;
mod admission;
mod meter;
mod pace;
mod patience;
mod silence;

use std::io::{self, Read as _};
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use freshwire::sink::Seal;
use freshwire_io::tcp::TcpSocket;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsStream;

pub use acceptor::Acceptor;
pub use admission::{Admission, Permit};
pub(crate) use meter::Meter;
pub(crate) use pace::{GRAIN, ONE_PACKET, Pace};
pub(crate) use patience::Patience;

use crate::config::Limits;
use crate::tls::{Session, TlsSeal};

/// The address in its own form: IPv4 as IPv4, also on an IPv6 listener. An IPv6 address keeps its zone.
pub(crate) fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        ip @ std::net::IpAddr::V4(_) => SocketAddr::new(ip, address.port()),
        std::net::IpAddr::V6(_) => address,
    }
}

/// A connection in the hands of one task, encrypted or not. Reads and writes plain bytes.
pub struct Conn {
    stream: Stream,
    peer: SocketAddr,
    permit: Option<Permit>,
}

enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// A connection that was taken apart.
pub struct Parts {
    /// For [`crate::hub::ViewRequest::socket`]; in non-blocking mode.
    pub socket: std::net::TcpStream,
    /// For [`crate::hub::ViewRequest::seal`].
    pub seal: Option<Box<dyn Seal>>,
    /// The receiving half. It holds the connection's place in the limits: drop it when the viewer has ended.
    pub reader: Reader,
}

/// Reads the plain bytes of a connection that somebody else writes.
pub struct Reader {
    socket: AsyncFd<std::net::TcpStream>,
    session: Option<Session>,
    _permit: Option<Permit>,
}

impl Conn {
    /// A connection that is not encrypted and counts towards no limit.
    ///
    /// # Errors
    ///
    /// If the socket is not connected any more.
    pub fn plain(socket: TcpStream) -> io::Result<Self> {
        let peer = socket.peer_addr()?;
        Ok(Self { stream: Stream::Plain(socket), peer, permit: None })
    }

    pub(crate) fn admitted(stream: TcpStream, peer: SocketAddr, permit: Permit) -> Self {
        Self { stream: Stream::Plain(stream), peer, permit: Some(permit) }
    }

    pub(crate) fn encrypted(stream: TlsStream<TcpStream>, peer: SocketAddr, permit: Permit) -> Self {
        Self { stream: Stream::Tls(Box::new(stream)), peer, permit: Some(permit) }
    }

    /// An encrypted connection to another server, which counts towards no limit.
    pub(crate) fn to_server(stream: TlsStream<TcpStream>, peer: SocketAddr) -> Self {
        Self { stream: Stream::Tls(Box::new(stream)), peer, permit: None }
    }

    /// The other end's address; IPv4 in its own form, also on an IPv6 listener.
    pub fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    /// This end's address.
    ///
    /// # Errors
    ///
    /// If the system does not say it.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        match &self.stream {
            Stream::Plain(socket) => socket.local_addr(),
            Stream::Tls(stream) => stream.get_ref().0.local_addr(),
        }
    }

    /// Smallest round trip of the connection; `None` if the system does not say. The smoothed one has the delays of the other
    /// end's acknowledgements.
    pub(crate) fn round_trip(&self) -> Option<Duration> {
        let socket = match &self.stream {
            Stream::Plain(socket) => socket,
            Stream::Tls(stream) => stream.get_ref().0,
        };
        let clone = socket.as_fd().try_clone_to_owned().ok()?;
        let info = TcpSocket::new(clone.into()).and_then(|socket| socket.info()).ok()?;
        Some(info.min_rtt).filter(|rtt| !rtt.is_zero())
    }

    /// Whether nobody on the way can read it.
    pub fn is_encrypted(&self) -> bool {
        matches!(self.stream, Stream::Tls(_))
    }

    /// Takes it apart, so that the engine can write it. Earlier writes must have been flushed.
    ///
    /// # Errors
    ///
    /// If the descriptors are used up.
    pub fn into_parts(self) -> io::Result<Parts> {
        let (socket, session) = match self.stream {
            Stream::Plain(socket) => (socket, None),
            Stream::Tls(stream) => {
                let (socket, connection) = match *stream {
                    TlsStream::Server(stream) => {
                        let (socket, connection) = stream.into_inner();
                        (socket, connection.into())
                    }
                    TlsStream::Client(stream) => {
                        let (socket, connection) = stream.into_inner();
                        (socket, connection.into())
                    }
                };
                (socket, Some(Session::new(connection)))
            }
        };
        let socket = socket.into_std()?;
        #[allow(
            deprecated,
            reason = "its successor is unsafe code, for types that may change their descriptor"
        )]
        let reading = AsyncFd::with_interest(socket.try_clone()?, Interest::READABLE)?;
        let seal = session.clone().map(|session| Box::new(TlsSeal::new(session)) as Box<dyn Seal>);
        Ok(Parts { socket, seal, reader: Reader { socket: reading, session, _permit: self.permit } })
    }
}

impl Reader {
    /// The other end says nothing more, and may be gone: lets the kernel ask at once, where nothing is written that would show it.
    pub(crate) fn probe(&self, limits: &Limits) {
        // A socket that refuses it is gone, which the next look shows.
        let _ = silence::probe(self.socket.get_ref(), Duration::ZERO, limits.keepalive_timeout);
    }

    /// Whether the other end has reset the connection, or given no sign for too long.
    pub(crate) fn is_reset(&self) -> bool {
        self.socket.get_ref().take_error().is_ok_and(|error| error.is_some())
    }

    /// Waits no shorter than this for the acknowledgement of what is written.
    pub(crate) fn outlast(&self, patience: Duration) {
        let _ = silence::outlast(self.socket.get_ref(), patience);
    }
}

impl AsyncRead for Conn {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(socket) => Pin::new(socket).poll_read(cx, buffer),
            Stream::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Conn {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.stream {
            Stream::Plain(socket) => Pin::new(socket).poll_write(cx, bytes),
            Stream::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(socket) => Pin::new(socket).poll_flush(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(socket) => Pin::new(socket).poll_shutdown(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

impl AsyncRead for Reader {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            if let Some(session) = &self.session
                && let Some(result) = session.read_plain(buffer)
            {
                return Poll::Ready(result);
            }
            let mut ready = ready!(self.socket.poll_read_ready(cx))?;
            let read = ready.try_io(|socket| match &self.session {
                None => socket.get_ref().read(buffer.initialize_unfilled()),
                Some(session) => session.read_wire(socket.get_ref()).map(|()| 0),
            });
            match read {
                Ok(Ok(count)) if self.session.is_none() => {
                    buffer.advance(count);
                    return Poll::Ready(Ok(()));
                }
                Ok(Err(error)) if error.kind() != io::ErrorKind::Interrupted => {
                    return Poll::Ready(Err(error));
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests;

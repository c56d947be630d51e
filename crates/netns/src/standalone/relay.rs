//! Proxies of the link's process: from an address of this machine to the near end, and from the far end to an address of this machine.
//!
//! ```text
//!  program ─► 127.0.0.1:p   near end ══ link ══► far end:q   to ─► server
//!             └── proxy ──────┘                   └── proxy ───┘
//! ```
//!
//! Datagrams pass one by one. A proxy holds little of a stream, so that a sender notices the link: small
//! buffers towards this machine, and towards the link no more unsent than some segments.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::sockopt;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::{Namespaces, NetnsError};

/// Connections, and senders of datagrams, that a proxy carries at once. A further connection is closed; a
/// further sender takes the place of the one that was silent longest. Chosen, not measured.
const MAX_PEERS: usize = 256;

/// Buffer of a socket towards this machine, each way; the kernel doubles it. Chosen, not measured.
const BUFFER_BYTES: usize = 4 * 1024;

/// A loopback segment of 64 KiB does not fit into the receive buffer and would wait for a timer.
const SEGMENT_BYTES: libc::c_int = 1448;

/// Bytes that may wait unsent in a socket towards the link: a segment of Ethernet.
const UNSENT_BYTES: libc::c_int = 1448;

/// Bytes that a proxy copies at once: a segment of Ethernet.
const PIECE_BYTES: usize = 1448;

/// Time for a connection through the link, or to the server. Chosen, not measured.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

type Connect = Arc<dyn Fn() -> io::Result<TcpStream> + Send + Sync>;

/// Starts the proxies, and returns the address of the one before the near end. An error is for the program.
pub(super) fn start(namespaces: &Arc<Namespaces>, to: SocketAddr) -> Result<SocketAddr, String> {
    let far = SocketAddr::from((Namespaces::FAR_V4, to.port()));
    let failed = |error: io::Error| format!("cannot listen on port {} at the far end: {error}", to.port());
    let (listener, datagrams) =
        in_far(namespaces, || Ok((TcpListener::bind(far)?, UdpSocket::bind(far)?))).map_err(failed)?;
    let connect: Connect = Arc::new(move || {
        let socket = local_socket(to)?;
        rustix::net::connect(&socket, &to)?;
        Ok(TcpStream::from(socket))
    });
    accept("to server", listener, Side::Link, connect)?;
    let local = move || {
        let any = if to.is_ipv4() {
            SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))
        } else {
            SocketAddr::from(([0; 8], 0))
        };
        let socket = UdpSocket::bind(any)?;
        socket.connect(to)?;
        Ok(socket)
    };
    forward("to server", datagrams, local)?;

    let (listener, datagrams) =
        both_on_loopback().map_err(|error| format!("cannot listen on 127.0.0.1: {error}"))?;
    let address = listener.local_addr().map_err(|error| format!("cannot listen on 127.0.0.1: {error}"))?;
    let through = Arc::clone(namespaces);
    let connect: Connect =
        Arc::new(move || in_near(&through, || TcpStream::connect_timeout(&far, CONNECT_TIMEOUT)));
    accept("to link", listener, Side::Local, connect)?;
    let through = Arc::clone(namespaces);
    let near = move || {
        in_near(&through, || {
            let socket = UdpSocket::bind((Namespaces::NEAR_V4, 0))?;
            socket.connect(far)?;
            Ok(socket)
        })
    };
    forward("to link", datagrams, near)?;
    Ok(address)
}

fn flat<T>(result: Result<io::Result<T>, NetnsError>) -> io::Result<T> {
    result.unwrap_or_else(|error| Err(io::Error::other(error.to_string())))
}

fn in_near<T: Send>(namespaces: &Namespaces, f: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    flat(namespaces.in_near(f))
}

fn in_far<T: Send>(namespaces: &Namespaces, f: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    flat(namespaces.in_far(f))
}

/// A listener and a socket for datagrams on the same free port.
fn both_on_loopback() -> io::Result<(TcpListener, UdpSocket)> {
    const ATTEMPTS: usize = 64;
    let mut last = io::Error::other("no port is free");
    for _ in 0..ATTEMPTS {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let socket = local_socket(any)?;
        rustix::net::bind(&socket, &any)?;
        rustix::net::listen(&socket, 128)?;
        let listener = TcpListener::from(socket);
        match UdpSocket::bind(listener.local_addr()?) {
            Ok(datagrams) => return Ok((listener, datagrams)),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// A socket towards this machine. Its accepted sockets have the same buffers.
fn local_socket(to: SocketAddr) -> io::Result<OwnedFd> {
    let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_recv_buffer_size(&socket, BUFFER_BYTES)?;
    sockopt::set_socket_send_buffer_size(&socket, BUFFER_BYTES)?;
    set_tcp_option(&socket, libc::TCP_MAXSEG, SEGMENT_BYTES)?;
    Ok(socket)
}

fn set_tcp_option(socket: &impl AsRawFd, option: libc::c_int, value: libc::c_int) -> io::Result<()> {
    let length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: `value` is readable for `length` bytes.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, option, (&raw const value).cast(), length)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Where a proxy's connections come from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Local,
    Link,
}

fn thread(name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), String> {
    let started = std::thread::Builder::new().name(name.to_owned()).spawn(run);
    started.map(drop).map_err(|error| format!("cannot start a thread: {error}"))
}

/// Carries each connection to one that `connect` makes.
fn accept(name: &'static str, listener: TcpListener, from: Side, connect: Connect) -> Result<(), String> {
    let open = Arc::new(AtomicUsize::new(0));
    thread(name, move || {
        loop {
            let Ok((accepted, _)) = listener.accept() else {
                // The client gave up, or descriptors are short: neither ends the service.
                std::thread::sleep(Duration::from_millis(10));
                continue;
            };
            if open.load(Ordering::Relaxed) >= MAX_PEERS {
                reset(&accepted);
                continue;
            }
            open.fetch_add(1, Ordering::Relaxed);
            let (connect, counted) = (Arc::clone(&connect), Arc::clone(&open));
            let carried = thread(name, move || {
                match connect() {
                    Ok(connected) => carry_both(&accepted, &connected, from),
                    Err(_) => reset(&accepted),
                }
                counted.fetch_sub(1, Ordering::Relaxed);
            });
            if carried.is_err() {
                open.fetch_sub(1, Ordering::Relaxed);
            }
        }
    })
}

/// Has the connection reset when it is closed, as a refused one would be.
fn reset(stream: &TcpStream) {
    let _ = sockopt::set_socket_linger(stream, Some(Duration::ZERO));
}

/// Carries bytes both ways until both directions have ended.
fn carry_both(accepted: &TcpStream, connected: &TcpStream, from: Side) {
    let link = if from == Side::Link { accepted } else { connected };
    // Without these options the proxies delay more, and carry the same.
    let _ = set_tcp_option(link, libc::TCP_NOTSENT_LOWAT, UNSENT_BYTES);
    let _ = accepted.set_nodelay(true);
    let _ = connected.set_nodelay(true);
    std::thread::scope(|scope| {
        scope.spawn(|| carry(accepted, connected));
        carry(connected, accepted);
    });
}

fn carry(mut from: &TcpStream, mut to: &TcpStream) {
    let mut piece = [0; PIECE_BYTES];
    loop {
        let carried = match from.read(&mut piece) {
            // A half-closed connection stays open the other way.
            Ok(0) => return drop(to.shutdown(Shutdown::Write)),
            Ok(count) => to.write_all(&piece[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => Err(error),
        };
        if carried.is_err() {
            reset(from);
            reset(to);
            let _ = from.shutdown(Shutdown::Both);
            let _ = to.shutdown(Shutdown::Both);
            return;
        }
    }
}

/// One sender of datagrams, with the socket on which it is answered.
struct Peer {
    address: SocketAddr,
    socket: UdpSocket,
}

/// Carries the datagrams of each sender over a socket of its own, and the answers back.
fn forward(
    name: &'static str,
    incoming: UdpSocket,
    open: impl Fn() -> io::Result<UdpSocket> + Send + 'static,
) -> Result<(), String> {
    // Readiness may be spurious: a datagram with a wrong checksum is discarded when it is read.
    incoming.set_nonblocking(true).map_err(|error| error.to_string())?;
    thread(name, move || {
        let mut buffer = vec![0; 1 << 16];
        // The one that was silent longest is first.
        let mut peers: Vec<Peer> = Vec::new();
        loop {
            let ready = {
                let sockets = std::iter::once(&incoming).chain(peers.iter().map(|peer| &peer.socket));
                let mut files: Vec<_> = sockets.map(|socket| PollFd::new(socket, PollFlags::IN)).collect();
                if poll(&mut files, None).is_err() {
                    continue;
                }
                files.iter().map(|file| !file.revents().is_empty()).collect::<Vec<_>>()
            };
            // A datagram that cannot be carried is lost, as it may be anywhere.
            for (peer, _) in peers.iter().zip(&ready[1..]).filter(|(_, ready)| **ready) {
                if let Ok(count) = peer.socket.recv(&mut buffer) {
                    let _ = incoming.send_to(&buffer[..count], peer.address);
                }
            }
            if ready[0]
                && let Ok((count, address)) = incoming.recv_from(&mut buffer)
                && let Ok(peer) = peer_of(&mut peers, address, &open)
            {
                let _ = peer.socket.send(&buffer[..count]);
            }
        }
    })
}

/// The sender with this address, which is a new one or moves to the end.
fn peer_of<'a>(
    peers: &'a mut Vec<Peer>,
    address: SocketAddr,
    open: &impl Fn() -> io::Result<UdpSocket>,
) -> io::Result<&'a Peer> {
    match peers.iter().position(|peer| peer.address == address) {
        Some(at) => peers[at..].rotate_left(1),
        None => {
            let socket = open()?;
            socket.set_nonblocking(true)?;
            if peers.len() >= MAX_PEERS {
                peers.remove(0);
            }
            peers.push(Peer { address, socket });
        }
    }
    peers.last().ok_or_else(|| io::ErrorKind::NotFound.into())
}

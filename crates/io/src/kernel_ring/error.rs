use std::io;

use crate::tcp::TcpSocket;

/// Why a socket has no ring in the kernel, and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KernelRingError {
    /// The kernel knows no such protocol.
    #[error(
        "the module is not there: `sudo modprobe tcp_ldc` loads it, host/kernel/tcp_ldc/README.md says how to build it"
    )]
    NotLoaded,
    /// The module lacks an option of this release.
    #[error(
        "the module that is loaded is older than this program: `sudo rmmod tcp_ldc`, then load the one of this release"
    )]
    OldModule,
    /// The socket is not connected, or its sending direction has ended.
    #[error("the socket is not connected: connect it first")]
    NotConnected,
    /// Another kind of socket: Multipath TCP, or not TCP at all.
    #[error("only a plain TCP socket can have a ring: Multipath TCP cannot")]
    NotPlainTcp,
    /// Another protocol sits on the socket, TLS for instance, or a sockmap has it, or it has a ring already.
    #[error("something else sits on this socket already: TLS, a sockmap or another ring")]
    InUse,
    /// The sizes are out of their limits, or not what this module understands.
    #[error("the module does not take a ring of this size: slots are a power of two from 2 to 65536")]
    Geometry,
    /// The process may not lock that much memory.
    #[error(
        "the ring's memory exceeds the locked memory limit: raise it (`ulimit -l`), or use fewer slots or blocks"
    )]
    MemoryLimit,
    /// The machine has too little memory for it.
    #[error("there is not enough memory for the ring: use fewer slots or blocks")]
    OutOfMemory,
    /// The socket has no ring.
    #[error("the socket has no ring")]
    NoRing(#[source] io::Error),
    /// A system call failed otherwise.
    #[error("the kernel provides no ring")]
    Io(#[source] io::Error),
}

/// A socket that was refused a ring. It is still a TCP socket.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Refused {
    /// The socket.
    pub socket: TcpSocket,
    /// Why.
    #[source]
    pub error: KernelRingError,
}

impl KernelRingError {
    /// What an error of choosing the upper-layer protocol means.
    pub(super) fn of_attaching(error: io::Error) -> Self {
        match error.raw_os_error() {
            // ENOPROTOOPT: a kernel older than upper-layer protocols.
            Some(libc::ENOENT | libc::ENOPROTOOPT) => Self::NotLoaded,
            Some(libc::ENOTCONN) => Self::NotConnected,
            Some(libc::EOPNOTSUPP) => Self::NotPlainTcp,
            Some(libc::EEXIST | libc::EBUSY) => Self::InUse,
            Some(libc::ENOMEM) => Self::OutOfMemory,
            _ => Self::Io(error),
        }
    }

    /// What an error of making or mapping the ring means.
    pub(super) fn of_ring(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::ENOBUFS | libc::EAGAIN | libc::EPERM) => Self::MemoryLimit,
            Some(libc::ENOMEM) => Self::OutOfMemory,
            Some(libc::EINVAL | libc::E2BIG) => Self::Geometry,
            Some(libc::ENOPROTOOPT) => Self::OldModule,
            Some(libc::ENOTCONN | libc::EPIPE) => Self::NotConnected,
            Some(libc::EEXIST | libc::EBUSY) => Self::InUse,
            _ => Self::Io(error),
        }
    }
}

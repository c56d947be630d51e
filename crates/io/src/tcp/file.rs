//! Bytes that a socket takes from a file without copying them.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};

use rustix::fs::OFlags;

use super::{IoSlice, SEND_FLAGS, TcpSocket, sent};

/// Errors of a system that has no `sendfile` for the file, or whose sandbox forbids it.
const REFUSALS: [i32; 4] = [libc::EINVAL, libc::ENOSYS, libc::EPERM, libc::EOPNOTSUPP];

impl TcpSocket {
    /// As [`send`](Self::send), and more follows at once: the last segment waits for it.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send).
    ///
    /// # Safety
    ///
    /// As [`send`](Self::send).
    pub unsafe fn send_more(&self, slices: &[IoSlice]) -> io::Result<Option<usize>> {
        // SAFETY: the caller vouches for the slices.
        unsafe { self.send_with(slices, SEND_FLAGS | libc::MSG_MORE) }
    }

    /// Sends `len` bytes of a file from `offset` on, as much as the socket takes now (`sendfile`). Packets refer to the file's pages: what
    /// is written there later may be sent, and be seen by a receiver on this machine that has yet to read. `Ok(None)`: nothing can be
    /// taken now.
    ///
    /// This call waits if the socket is in blocking mode; ask [`is_non_blocking`](Self::is_non_blocking) before.
    ///
    /// # Errors
    ///
    /// If the connection is broken, its sending direction has ended, or the file has no such bytes.
    /// [`Unsupported`](io::ErrorKind::Unsupported): the system does not send from this kind of file, or forbids the call.
    pub fn send_file(&self, file: BorrowedFd<'_>, offset: u64, len: usize) -> io::Result<Option<usize>> {
        let mut at = libc::off_t::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
        let (socket, file) = (self.as_fd().as_raw_fd(), file.as_raw_fd());
        // SAFETY: the kernel reads and writes `at`, which outlives the call.
        match sent(|| unsafe { libc::syscall(libc::SYS_sendfile, socket, file, &raw mut at, len) }) {
            Ok(Some(0)) if len > 0 => Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) if REFUSALS.contains(&error.raw_os_error().unwrap_or(0)) => {
                Err(io::ErrorKind::Unsupported.into())
            }
            sent => sent,
        }
    }

    /// Keeps incomplete segments back, or sends them (`TCP_CORK`).
    ///
    /// # Errors
    ///
    /// If the kernel refuses the option.
    pub fn set_cork(&self, on: bool) -> io::Result<()> {
        Ok(rustix::net::sockopt::set_tcp_cork(self, on)?)
    }

    /// Whether no system call on the socket waits.
    ///
    /// # Errors
    ///
    /// If the kernel refuses the query.
    pub fn is_non_blocking(&self) -> io::Result<bool> {
        Ok(rustix::fs::fcntl_getfl(self)?.contains(OFlags::NONBLOCK))
    }
}

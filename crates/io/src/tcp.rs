//! The TCP socket as a just-in-time carrier needs it: what is unsent, what is on the wire, and how to keep both small.

mod acks;
pub(crate) mod batch;
mod file;
mod info;
mod local;
mod open;
mod options;

pub use crate::stamps::{CLOCK_GAP, Stage};
pub use acks::AckTime;
pub use batch::{BatchWrite, SendBatch};
pub use info::TcpInfo;
pub use local::LocalPeer;
pub use options::{available_congestion_controls, kernel_release};

use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// A connected TCP socket whose unsent queue the caller keeps small.
#[derive(Debug)]
pub struct TcpSocket(OwnedFd);

/// Bytes somewhere in memory, for [`TcpSocket::send`].
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct IoSlice(libc::iovec);

// SAFETY: the value is an address and a length; nothing is read through it before the unsafe `TcpSocket::send`, whose
// caller vouches for the memory.
unsafe impl Send for IoSlice {}

impl IoSlice {
    /// Describes `len` bytes at `start`. Describing is safe, sending asks for the bytes to be readable.
    pub fn new(start: *const u8, len: usize) -> Self {
        Self(libc::iovec { iov_base: start.cast_mut().cast(), iov_len: len })
    }

    /// Where they are.
    pub fn start(&self) -> *const u8 {
        self.0.iov_base.cast_const().cast()
    }

    /// The number of bytes described.
    pub fn byte_len(&self) -> usize {
        self.0.iov_len
    }

    /// At most `most` bytes, and the rest.
    pub(crate) fn split_at(self, most: usize) -> (Self, Self) {
        let (start, len) = (self.0.iov_base.cast::<u8>().cast_const(), self.0.iov_len);
        let first = len.min(most);
        (Self::new(start, first), Self::new(start.wrapping_add(first), len - first))
    }
}

/// Slices that one [`TcpSocket::send`] takes at most. `UIO_MAXIOV` is 1024. Chosen, not measured.
pub const MAX_SLICES: usize = 256;

impl TcpSocket {
    /// Takes over a connected stream, without Nagle's delay. No call here waits, whether the stream is non-blocking or not: that mode
    /// is one for all clones of a socket, and stays as it is.
    ///
    /// # Errors
    ///
    /// If the socket refuses its options.
    pub fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self(stream.into()))
    }

    /// Sends the slices in order, as much as the socket takes now. `Ok(None)`: nothing can be taken now.
    ///
    /// # Errors
    ///
    /// If the connection is broken, or its sending direction has ended.
    ///
    /// # Safety
    ///
    /// Every slice describes memory that stays mapped and readable during the call. Other threads or processes may
    /// write to it meanwhile; the kernel then sends old or new bytes.
    pub unsafe fn send(&self, slices: &[IoSlice]) -> io::Result<Option<usize>> {
        // SAFETY: the caller vouches for the slices.
        unsafe { self.send_with(slices, SEND_FLAGS) }
    }

    /// The same, and no packet gets bytes of this and of a later call, so that each call's last byte has
    /// [times of its own](Self::tell_all_times).
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send).
    ///
    /// # Safety
    ///
    /// As [`send`](Self::send).
    pub unsafe fn send_apart(&self, slices: &[IoSlice]) -> io::Result<Option<usize>> {
        // SAFETY: the caller vouches for the slices.
        unsafe { self.send_with(slices, SEND_FLAGS | libc::MSG_EOR) }
    }

    /// # Safety
    ///
    /// As [`send`](Self::send).
    unsafe fn send_with(&self, slices: &[IoSlice], flags: libc::c_int) -> io::Result<Option<usize>> {
        // SAFETY: a zeroed msghdr is a valid value of that C type.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = slices.as_ptr().cast_mut().cast();
        message.msg_iovlen = slices.len().min(MAX_SLICES);
        // SAFETY: `message` points at slices that the caller vouches for; sendmsg only reads through it.
        sent(|| unsafe { libc::syscall(libc::SYS_sendmsg, self.0.as_raw_fd(), &raw const message, flags) })
    }

    /// Sends what the socket takes of `bytes` now. `Ok(None)`: nothing can be taken now.
    ///
    /// # Errors
    ///
    /// If the connection is broken, or its sending direction has ended.
    pub fn write(&self, bytes: &[u8]) -> io::Result<Option<usize>> {
        self.write_with(bytes, SEND_FLAGS)
    }

    /// The same, kept apart as by [`send_apart`](Self::send_apart).
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write).
    pub fn write_apart(&self, bytes: &[u8]) -> io::Result<Option<usize>> {
        self.write_with(bytes, SEND_FLAGS | libc::MSG_EOR)
    }

    fn write_with(&self, bytes: &[u8], flags: libc::c_int) -> io::Result<Option<usize>> {
        let (start, len) = (bytes.as_ptr(), bytes.len());
        let nobody = std::ptr::null::<libc::sockaddr>();
        // SAFETY: `bytes` is borrowed for the whole call, which only reads them.
        sent(|| unsafe { libc::syscall(libc::SYS_sendto, self.0.as_raw_fd(), start, len, flags, nobody, 0) })
    }

    /// Fixes the send buffer, which ends the kernel's own tuning of it. The kernel doubles the number for its overhead.
    ///
    /// # Errors
    ///
    /// If the kernel refuses the option.
    pub fn set_send_buffer(&self, bytes: usize) -> io::Result<()> {
        rustix::net::sockopt::set_socket_send_buffer_size(&self.0, bytes)?;
        Ok(())
    }

    /// The connection's state as the kernel sees it. One system call, about a microsecond.
    ///
    /// # Errors
    ///
    /// If the kernel refuses the query.
    pub fn info(&self) -> io::Result<TcpInfo> {
        info::read(self.0.as_fd())
    }

    /// The peer's socket, if it is in this socket's network namespace and the calling thread is there too.
    ///
    /// # Errors
    ///
    /// If the kernel refuses socket diagnostics.
    pub fn local_peer(&self) -> io::Result<Option<LocalPeer>> {
        LocalPeer::find(self.0.as_fd())
    }

    /// Bytes that were written and are not acknowledged, sent or not (`SIOCOUTQ`).
    ///
    /// # Errors
    ///
    /// If the kernel refuses the query.
    pub fn unacknowledged(&self) -> io::Result<u64> {
        options::queue_len(self.0.as_fd(), libc::TIOCOUTQ)
    }

    /// Bytes that were written and are not on the wire (`SIOCOUTQNSD`): the horizon.
    ///
    /// # Errors
    ///
    /// If the kernel refuses the query.
    pub fn unsent(&self) -> io::Result<u64> {
        options::queue_len(self.0.as_fd(), options::SIOCOUTQNSD)
    }

    /// Below how many unsent bytes the socket counts as writable (`TCP_NOTSENT_LOWAT`). The kernel wakes a waiter
    /// when twice the unsent bytes are below it.
    ///
    /// # Errors
    ///
    /// If the kernel refuses the option.
    pub fn set_notsent_lowat(&self, bytes: u32) -> io::Result<()> {
        options::set_u32(self.0.as_fd(), libc::TCP_NOTSENT_LOWAT, bytes)
    }

    /// The shortest retransmission timeout (`TCP_RTO_MIN_US`, Linux 6.15 and later). `Ok(false)`: this kernel has no
    /// such option and keeps its 200 ms.
    ///
    /// # Errors
    ///
    /// If the timeout is out of the kernel's range.
    pub fn set_min_rto(&self, timeout: Duration) -> io::Result<bool> {
        options::set_min_rto(self.0.as_fd(), timeout)
    }

    /// The longest retransmission timeout (`TCP_RTO_MAX_MS`, Linux 6.15 and later), at least a second. `Ok(false)`: this
    /// kernel has no such option and keeps its two minutes.
    ///
    /// # Errors
    ///
    /// If the timeout is out of the kernel's range.
    pub fn set_max_rto(&self, timeout: Duration) -> io::Result<bool> {
        options::set_max_rto(self.0.as_fd(), timeout)
    }

    /// Chooses the congestion control by its kernel name.
    ///
    /// # Errors
    ///
    /// If the kernel has no such algorithm loaded, or does not permit it.
    pub fn set_congestion(&self, name: &str) -> io::Result<()> {
        rustix::net::sockopt::set_tcp_congestion(&self.0, name)?;
        Ok(())
    }

    /// The congestion control's kernel name.
    ///
    /// # Errors
    ///
    /// If the kernel refuses the query.
    pub fn congestion(&self) -> io::Result<String> {
        Ok(rustix::net::sockopt::tcp_congestion(&self.0)?)
    }

    /// Ends the sending direction: the peer reads what was written, then end of file.
    ///
    /// # Errors
    ///
    /// If the socket is not connected.
    pub fn finish(&self) -> io::Result<()> {
        rustix::net::shutdown(&self.0, rustix::net::Shutdown::Write)?;
        Ok(())
    }

    /// Makes closing discard what is unsent and reset the connection, once the last clone of the socket is closed.
    ///
    /// # Errors
    ///
    /// If the kernel refuses the option.
    pub fn abort_on_close(&self) -> io::Result<()> {
        rustix::net::sockopt::set_socket_linger(&self.0, Some(Duration::ZERO))?;
        Ok(())
    }

    /// Discards what is unsent and resets the connection at once, whatever clones of the socket there are: they find it reset too. Where
    /// the kernel does not do that (a socket with a ring of its own), it is reset when the last clone is closed.
    ///
    /// # Errors
    ///
    /// If the kernel neither resets the connection nor takes the option for it.
    pub fn abort(&self) -> io::Result<()> {
        self.abort_on_close()?;
        options::disconnect(self.0.as_fd());
        Ok(())
    }

    /// The error that broke the connection, if one did.
    ///
    /// # Errors
    ///
    /// If the kernel refuses the query.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        Ok(rustix::net::sockopt::socket_error(&self.0)?.err().map(Into::into))
    }
}

pub(crate) const SEND_FLAGS: libc::c_int = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;

/// What a system call has sent, made again where a signal came in between. Not by the C library's function: that makes the thread
/// cancellable and back, 200 cycles of a fan-out's write.
fn sent(mut call: impl FnMut() -> libc::c_long) -> io::Result<Option<usize>> {
    loop {
        if let Ok(sent) = usize::try_from(call()) {
            return Ok(Some(sent));
        }
        let error = io::Error::last_os_error();
        match error.kind() {
            io::ErrorKind::Interrupted => {}
            io::ErrorKind::WouldBlock => return Ok(None),
            _ => return Err(error),
        }
    }
}

impl AsFd for TcpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests;

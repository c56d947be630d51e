//! Datagrams gathered from several places in memory, for many destinations with one system call.
//!
//! ```text
//!  slices    head ─ part of a picture ─ head ─ part ─ head ─ rest     one sendmsg, with UDP_SEGMENT
//!  datagrams └────── segment ───────┘ └── segment ─┘ └─ shorter ┘     up to 64 of them in one submission (io_uring)
//! ```

use std::io;
use std::net::{SocketAddr, UdpSocket as StdSocket};
use std::os::fd::{AsRawFd as _, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::control::{Address, Control};
use super::datagram::addressed;
use crate::tcp::{IoSlice, SEND_FLAGS, SendBatch};

/// Slices that one system call takes (`UIO_MAXIOV`).
pub const MAX_GATHERED_SLICES: usize = 1024;

/// The sending half of a [`UdpSocket`](super::UdpSocket), for [`send_gathered`]. A clone is the same socket.
#[derive(Clone, Debug)]
pub struct DatagramSender(pub(super) Arc<SenderParts>);

/// What a socket and its senders share.
#[derive(Debug)]
pub(super) struct SenderParts {
    pub(super) socket: StdSocket,
    /// How many datagrams one system call takes.
    pub(super) segments: AtomicUsize,
    pub(super) is_v6: bool,
}

impl DatagramSender {
    /// How many datagrams one system call takes; see [`UdpSocket::segments`](super::UdpSocket::segments).
    pub fn segments(&self) -> usize {
        self.0.segments.load(Ordering::Relaxed)
    }

    /// Whether both are of one socket.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// Datagrams to one destination.
#[derive(Clone, Copy, Debug)]
pub struct GatheredDatagrams<'a> {
    /// Where they leave from.
    pub sender: &'a DatagramSender,
    /// Where they go.
    pub to: SocketAddr,
    /// Their bytes one after the other, in at most [`MAX_GATHERED_SLICES`].
    pub slices: &'a [IoSlice],
    /// The size of each datagram but the last, which may be shorter.
    pub segment: usize,
}

/// Hands over as much as the kernel takes now, with one system call if there is a `batch`, else with one for each of `writes`. The
/// bytes that were taken of each are added to `sent`, in the order of `writes`. The rest is lost, as if by the network. Errors there
/// concern the destination.
///
/// # Errors
///
/// If the batch itself fails. It is of no more use; what it did not start was sent without it.
///
/// # Safety
///
/// Every slice describes memory that stays mapped and readable during the call. Other threads or processes may write to it
/// meanwhile; the kernel then sends old or new bytes.
pub unsafe fn send_gathered(
    mut batch: Option<&mut SendBatch>,
    writes: &[GatheredDatagrams<'_>],
    sent: &mut Vec<io::Result<usize>>,
) -> io::Result<()> {
    let mut outcome = Ok(());
    for writes in writes.chunks(SendBatch::MOST) {
        let mut messages: Vec<Message> = writes.iter().map(Message::new).collect();
        let mut results = [None; SendBatch::MOST];
        if let Some(batch) = batch.as_mut().filter(|_| outcome.is_ok()) {
            let entries =
                writes.iter().zip(&mut messages).map(|(write, message)| (write.socket(), message.header()));
            // SAFETY: the messages outlive the call, and the caller vouches for the slices.
            outcome = unsafe { batch.submit(entries, &mut results) };
        }
        for ((write, message), result) in writes.iter().zip(&mut messages).zip(results) {
            let result = match result {
                Some(result) => usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result)),
                // SAFETY: as the caller has promised.
                None => unsafe { message.send(write) },
            };
            // SAFETY: as the caller has promised.
            sent.push(result.or_else(|error| unsafe { write.retry(message, error) }));
        }
    }
    outcome
}

impl GatheredDatagrams<'_> {
    fn socket(&self) -> RawFd {
        self.sender.0.socket.as_raw_fd()
    }

    fn bytes(&self) -> usize {
        self.slices.iter().map(IoSlice::byte_len).sum()
    }

    /// Sends again what was refused, if that may help.
    ///
    /// # Safety
    ///
    /// As [`send_gathered`].
    unsafe fn retry(&self, message: &mut Message, error: io::Error) -> io::Result<usize> {
        let is_several = self.bytes() > self.segment;
        match error.raw_os_error() {
            Some(libc::EAGAIN) => Ok(0),
            // The second is the answer to an earlier datagram, for which these are not to blame.
            // SAFETY: as the caller has promised.
            Some(libc::EINTR | libc::ECONNREFUSED) => unsafe { message.send(self) },
            // SAFETY: as the caller has promised.
            Some(libc::EMSGSIZE) if is_several => unsafe { self.send_singly() },
            Some(libc::EIO | libc::EINVAL) if is_several => {
                // The kernel does not segment for the interface that they take.
                self.sender.0.segments.store(1, Ordering::Relaxed);
                // SAFETY: as the caller has promised.
                unsafe { self.send_singly() }
            }
            _ => Err(error),
        }
    }

    /// Makes a call for each datagram. Datagrams from the first one on that is not taken are lost.
    ///
    /// # Safety
    ///
    /// As [`send_gathered`].
    unsafe fn send_singly(&self) -> io::Result<usize> {
        let (mut taken, mut slices) = (0, Vec::new());
        let mut rest = self.slices.iter().copied();
        let mut next = rest.next();
        while next.is_some() {
            slices.clear();
            let mut room = self.segment;
            while let Some(slice) = next.filter(|_| room > 0) {
                let (part, behind) = slice.split_at(room);
                room -= part.byte_len();
                slices.push(part);
                next = if behind.byte_len() > 0 { Some(behind) } else { rest.next() };
            }
            let Self { sender, to, segment, .. } = *self;
            let single = GatheredDatagrams { sender, to, slices: &slices, segment };
            // SAFETY: as the caller has promised.
            match unsafe { Message::new(&single).send(&single) } {
                Ok(bytes) => taken += bytes,
                Err(error) if taken == 0 && error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                Err(_) => break,
            }
        }
        Ok(taken)
    }
}

/// What the kernel reads of a write, beside its bytes.
struct Message {
    header: libc::msghdr,
    address: Address,
    control: Control,
}

impl Message {
    fn new(write: &GatheredDatagrams<'_>) -> Self {
        // SAFETY: a zeroed msghdr is a valid value of that C type.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_iov = write.slices.as_ptr().cast_mut().cast();
        header.msg_iovlen = write.slices.len().min(MAX_GATHERED_SLICES);
        let mut control = Control::new();
        if write.bytes() > write.segment {
            // A larger one is refused by the kernel.
            let segment = u16::try_from(write.segment).unwrap_or(u16::MAX);
            control.put(libc::SOL_UDP, libc::UDP_SEGMENT, &segment.to_ne_bytes());
        }
        Self { header, address: Address::new(addressed(write.to, write.sender.0.is_v6)), control }
    }

    /// The header, valid while the message is neither moved nor used otherwise.
    fn header(&mut self) -> *const libc::msghdr {
        self.address.name(&mut self.header);
        self.control.attach(&mut self.header);
        &raw const self.header
    }

    /// Sends them with a call of their own.
    ///
    /// # Safety
    ///
    /// As [`send_gathered`].
    unsafe fn send(&mut self, write: &GatheredDatagrams<'_>) -> io::Result<usize> {
        let header = self.header();
        loop {
            // SAFETY: the header describes parts of `self`, and slices that the caller vouches for; the call only reads them.
            let sent = unsafe { libc::sendmsg(write.socket(), header, SEND_FLAGS) };
            match usize::try_from(sent) {
                Ok(bytes) => return Ok(bytes),
                Err(_) => {
                    let error = io::Error::last_os_error();
                    if error.kind() != io::ErrorKind::Interrupted {
                        return Err(error);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;

//! io_uring: one system call submits the sends of all connections that are due, and waits for the first to complete.

use std::io;
use std::net::TcpStream;
use std::os::fd::AsRawFd as _;

use io_uring::{IoUring, cqueue, opcode, squeue, types};

use super::account::Account;
use super::bundle::Groups;
use super::picture::Picture;
use super::ready::{STANDSTILL, standstill};

/// Most sends that are submitted at once; more connections take several submissions.
const ENTRIES: u32 = 1024;

/// `IORING_SEND_ZC_REPORT_USAGE` of `linux/io_uring.h`: the report that a buffer is free says whether it was copied.
const REPORT_USAGE: u16 = 8;

/// `IORING_NOTIF_USAGE_ZC_COPIED`: it was.
const NOTIF_COPIED: u32 = 1 << 31;

/// The request that sends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Request {
    /// `IORING_OP_SEND`, which copies.
    Send,
    /// `IORING_OP_SEND` of all buffers of the connection's group (`IORING_RECVSEND_BUNDLE`), which copies, too.
    Bundle,
    /// `IORING_OP_SEND_ZC` from a registered buffer.
    ZeroCopy,
}

/// One thread's sends.
struct Sends<'a> {
    ring: IoUring,
    /// Behind the ring: it is dropped after it.
    groups: Option<Groups>,
    sockets: &'a [TcpStream],
    picture: &'a Picture,
    request: Request,
    /// Pictures left, and how far the present one is.
    progress: Vec<(u32, usize)>,
    /// Connections with nothing in flight and something to send.
    due: Vec<usize>,
    /// Completions that will still come: results, and reports that a buffer is free.
    outstanding: u64,
}

pub(crate) fn send(
    sockets: &[TcpStream],
    picture: &Picture,
    times: u32,
    request: Request,
) -> io::Result<Account> {
    for socket in sockets {
        // io_uring waits for room by itself, unless the socket says that nobody wants to wait.
        socket.set_nonblocking(false)?;
    }
    let entries = (sockets.len() as u32).next_power_of_two().clamp(2, ENTRIES);
    let ring = IoUring::builder().setup_single_issuer().setup_cqsize(4 * entries).build(entries)?;
    let groups = match request {
        Request::Bundle => Some(Groups::new(&ring, sockets.len(), picture)?),
        Request::Send | Request::ZeroCopy => None,
    };
    if request == Request::ZeroCopy {
        let buffer =
            libc::iovec { iov_base: picture.bytes().as_ptr().cast_mut().cast(), iov_len: picture.len() };
        // SAFETY: the picture outlives the ring, which is dropped when this function returns, and is never changed.
        unsafe { ring.submitter().register_buffers(&[buffer])? };
    }
    let progress = vec![(times, 0); sockets.len()];
    let due = if times == 0 { Vec::new() } else { (0..sockets.len()).collect() };
    Sends { ring, groups, sockets, picture, request, progress, due, outstanding: 0 }.run()
}

impl Sends<'_> {
    fn run(mut self) -> io::Result<Account> {
        let mut account = Account::default();
        while !self.due.is_empty() || self.outstanding > 0 {
            self.queue()?;
            account.system_calls += 1;
            self.submit()?;
            self.complete(&mut account)?;
        }
        Ok(account)
    }

    /// Queues a send for each connection that is due, as far as the submission queue has room.
    fn queue(&mut self) -> io::Result<()> {
        while let Some(connection) = self.due.pop() {
            let entry = self.entry(connection);
            // SAFETY: the bytes and the socket outlive the ring: both are borrowed for longer than `self`.
            // `run` returns early only with an error. Then the ring is closed, which cancels its requests
            // before the borrow ends.
            if unsafe { self.ring.submission().push(&entry) }.is_err() {
                self.due.push(connection);
                return Ok(());
            }
            self.outstanding += 1;
        }
        Ok(())
    }

    fn entry(&mut self, connection: usize) -> squeue::Entry {
        let (_, offset) = self.progress[connection];
        let rest = &self.picture.bytes()[offset..];
        let socket = types::Fd(self.sockets[connection].as_raw_fd());
        let len = u32::try_from(rest.len()).unwrap_or(u32::MAX);
        let flags = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
        let entry = match self.request {
            Request::Send => opcode::Send::new(socket, rest.as_ptr(), len).flags(flags).build(),
            Request::Bundle => {
                if let Some(groups) = &mut self.groups {
                    groups.provide(connection, self.picture);
                }
                opcode::SendBundle::new(socket, connection as u16).flags(flags).build()
            }
            Request::ZeroCopy => {
                let send = opcode::SendZc::new(socket, rest.as_ptr(), len).flags(flags);
                send.buf_index(Some(0)).zc_flags(REPORT_USAGE).build()
            }
        };
        entry.user_data(connection as u64)
    }

    fn submit(&self) -> io::Result<()> {
        let timeout = types::Timespec::from(STANDSTILL);
        let arguments = types::SubmitArgs::new().timespec(&timeout);
        match self.ring.submitter().submit_with_args(1, &arguments) {
            Ok(_) => Ok(()),
            Err(error) if error.raw_os_error() == Some(libc::ETIME) => Err(standstill()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn complete(&mut self, account: &mut Account) -> io::Result<()> {
        for completion in self.ring.completion() {
            let flags = completion.flags();
            if !cqueue::more(flags) {
                self.outstanding -= 1;
            }
            if cqueue::notif(flags) {
                account.copied += u64::from(completion.result().cast_unsigned() & NOTIF_COPIED != 0);
                continue;
            }
            let sent = completion.result();
            if sent <= 0 {
                return Err(io::Error::from_raw_os_error(-sent));
            }
            let connection = completion.user_data() as usize;
            let (left, offset) = &mut self.progress[connection];
            *offset += sent as usize;
            if *offset == self.picture.len() {
                (*left, *offset) = (*left - 1, 0);
            } else if self.request == Request::Bundle && !cqueue::more(flags) {
                // What the kernel has taken of a buffer that it did not send to its end is not known.
                return Err(io::Error::other("the kernel cut a send bundle short"));
            }
            if *left > 0 && (self.request != Request::Bundle || !cqueue::more(flags)) {
                self.due.push(connection);
            }
        }
        Ok(())
    }
}

//! `MSG_ZEROCOPY`: the kernel sends from the program's pages, and reports on the socket's error queue when it needs them no longer.

use std::io;
use std::mem::{size_of, zeroed};
use std::net::TcpStream;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};

use rustix::net::{SendFlags, send};

use crate::account::Account;
use crate::picture::Picture;
use crate::ready::Handover;

/// Sends of a connection after which its reports are fetched. Reports of neighbouring sends come as one.
const REPORT_EVERY: u32 = 16;

/// Room for one report: `struct sock_extended_err` and the address behind it, with their header.
const CONTROL_BYTES: usize = 128;

/// `SO_EE_ORIGIN_ZEROCOPY` and `SO_EE_CODE_ZEROCOPY_COPIED` of `linux/errqueue.h`.
const ORIGIN_ZEROCOPY: u8 = 5;
const CODE_COPIED: u8 = 1;

pub(crate) struct ZeroCopy<'a> {
    picture: &'a Picture,
    /// Sends of each connection since its reports were fetched.
    unreported: Vec<u32>,
}

impl<'a> ZeroCopy<'a> {
    pub(crate) fn new(picture: &'a Picture, sockets: &[TcpStream]) -> io::Result<Self> {
        for socket in sockets {
            let on: libc::c_int = 1;
            // SAFETY: the kernel reads an int at the given address.
            let result = unsafe {
                libc::setsockopt(
                    socket.as_raw_fd(),
                    libc::SOL_SOCKET,
                    libc::SO_ZEROCOPY,
                    (&raw const on).cast(),
                    size_of::<libc::c_int>() as libc::socklen_t,
                )
            };
            if result < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(Self { picture, unreported: vec![0; sockets.len()] })
    }

    fn fetch_reports(
        &mut self,
        connection: usize,
        socket: BorrowedFd<'_>,
        account: &mut Account,
    ) -> io::Result<()> {
        self.unreported[connection] = 0;
        loop {
            account.system_calls += 1;
            match report(socket)? {
                Some(copied) => account.copied += copied,
                None => return Ok(()),
            }
        }
    }
}

impl Handover for ZeroCopy<'_> {
    fn hand_over(
        &mut self,
        connection: usize,
        socket: BorrowedFd<'_>,
        offset: usize,
        account: &mut Account,
    ) -> io::Result<usize> {
        if self.unreported[connection] >= REPORT_EVERY {
            self.fetch_reports(connection, socket, account)?;
        }
        let flags = SendFlags::from_bits_retain(libc::MSG_ZEROCOPY as u32) | SendFlags::NOSIGNAL;
        loop {
            account.system_calls += 1;
            match send(socket, &self.picture.bytes()[offset..], flags) {
                Ok(taken) => {
                    self.unreported[connection] += 1;
                    return Ok(taken);
                }
                // The socket's memory for reports is full of those that were not fetched.
                Err(rustix::io::Errno::NOBUFS) if self.unreported[connection] > 0 => {
                    self.fetch_reports(connection, socket, account)?;
                }
                Err(rustix::io::Errno::NOBUFS) => return Err(io::ErrorKind::WouldBlock.into()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn finish(&mut self, sockets: &[TcpStream], account: &mut Account) -> io::Result<()> {
        // Reports that come later find nobody: the picture is never changed, and the kernel holds its pages as long as it needs them.
        for (connection, socket) in sockets.iter().enumerate() {
            self.fetch_reports(connection, socket.as_fd(), account)?;
        }
        Ok(())
    }
}

/// The next report: how many sends of it were copied. `None`: there is none.
fn report(socket: BorrowedFd<'_>) -> io::Result<Option<u64>> {
    #[repr(align(8))]
    struct Control([u8; CONTROL_BYTES]);
    let mut control = Control([0; CONTROL_BYTES]);
    // SAFETY: all zeroes is a valid msghdr.
    let mut header: libc::msghdr = unsafe { zeroed() };
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = CONTROL_BYTES;
    // SAFETY: the header names a control buffer of its stated size, and no others.
    let result = unsafe {
        libc::recvmsg(socket.as_raw_fd(), &raw mut header, libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT)
    };
    if result < 0 {
        let error = io::Error::last_os_error();
        return if error.kind() == io::ErrorKind::WouldBlock { Ok(None) } else { Err(error) };
    }
    let mut copied = 0;
    // SAFETY: the kernel filled the header; CMSG_FIRSTHDR and CMSG_NXTHDR stay within the control buffer.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(&raw const header) };
    // SAFETY: as above, a header that is not null lies in the control buffer.
    while let Some(message) = unsafe { next.as_ref() } {
        let is_report = matches!(
            (message.cmsg_level, message.cmsg_type),
            (libc::SOL_IP, libc::IP_RECVERR) | (libc::SOL_IPV6, libc::IPV6_RECVERR)
        );
        if is_report {
            // SAFETY: `next` is a header within the control buffer.
            let data = unsafe { libc::CMSG_DATA(next) };
            // SAFETY: a message of these types holds this structure, at any alignment.
            let error = unsafe { data.cast::<libc::sock_extended_err>().read_unaligned() };
            if error.ee_origin == ORIGIN_ZEROCOPY && error.ee_code == CODE_COPIED {
                copied += u64::from(error.ee_data.wrapping_sub(error.ee_info)) + 1;
            }
        }
        // SAFETY: as above.
        next = unsafe { libc::CMSG_NXTHDR(&raw const header, next) };
    }
    Ok(Some(copied))
}

//! `MSG_ZEROCOPY`: the kernel sends from the program's pages, and reports on the socket's error queue when it needs them no longer.

use std::io;
use std::mem::{size_of, zeroed};
use std::net::TcpStream;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};

use rustix::io::Errno;
use rustix::net::SendFlags;

use super::account::Account;
use super::picture::Picture;
use super::ready;

/// Sends of a connection after which its reports are fetched. Reports of neighbouring sends come as one.
const REPORT_EVERY: u32 = 16;

/// Room for one report: `struct sock_extended_err` and the address behind it, with their header.
const CONTROL_BYTES: usize = 128;

/// `SO_EE_ORIGIN_ZEROCOPY` and `SO_EE_CODE_ZEROCOPY_COPIED` of `linux/errqueue.h`.
const ORIGIN_ZEROCOPY: u8 = 5;
const CODE_COPIED: u8 = 1;

pub(crate) fn send(sockets: &[TcpStream], picture: &Picture, times: u32) -> io::Result<Account> {
    for socket in sockets {
        allow(socket.as_fd())?;
    }
    let flags = SendFlags::from_bits_retain(libc::MSG_ZEROCOPY as u32) | SendFlags::NOSIGNAL;
    // Sends of each connection since its reports were fetched.
    let mut unreported = vec![0; sockets.len()];
    let mut account = ready::run(sockets, picture.len(), times, |connection, socket, offset, account| {
        let unreported = &mut unreported[connection];
        if *unreported >= REPORT_EVERY {
            fetch_reports(socket, account)?;
            *unreported = 0;
        }
        loop {
            account.system_calls += 1;
            match rustix::net::send(socket, &picture.bytes()[offset..], flags) {
                Ok(taken) => {
                    *unreported += 1;
                    return Ok(taken);
                }
                // The socket's memory for reports is full of those that were not fetched.
                Err(Errno::NOBUFS) if *unreported > 0 => {
                    fetch_reports(socket, account)?;
                    *unreported = 0;
                }
                Err(Errno::NOBUFS) => return Err(io::ErrorKind::WouldBlock.into()),
                Err(error) => return Err(error.into()),
            }
        }
    })?;
    // Later reports are lost: the picture is never changed, and the kernel holds its pages as long as it needs them.
    for socket in sockets {
        fetch_reports(socket.as_fd(), &mut account)?;
    }
    Ok(account)
}

/// Lets the socket's sends ask for zero copy.
fn allow(socket: BorrowedFd<'_>) -> io::Result<()> {
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
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn fetch_reports(socket: BorrowedFd<'_>, account: &mut Account) -> io::Result<()> {
    loop {
        account.system_calls += 1;
        match report(socket)? {
            Some(copied) => account.copied += copied,
            None => return Ok(()),
        }
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

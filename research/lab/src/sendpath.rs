//! The ways in which Linux lets a program hand the same bytes to many TCP sockets, each behind the same loop.
//!
//! One thread sends a picture again and again over every connection. A connection begins its next picture when the kernel has taken the
//! last byte of the one before. A full socket costs nothing until it has room again.

mod account;
mod bundle;
mod picture;
mod pipes;
mod ready;
mod uring;
mod zero_copy;

use std::fmt;
use std::io::{self, IoSlice};
use std::net::TcpStream;

pub(crate) use account::Account;
pub(crate) use picture::{Pages, Picture};

/// Size of the pieces of `writev` in bytes, and how many the kernel takes at most (`IOV_MAX`).
const PAGE: usize = 4096;
const MOST_PIECES: usize = 1024;

/// A way to hand bytes to a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub(crate) enum Mechanism {
    /// `read` from the file into a buffer, `write` from there: two copies.
    ReadWrite,
    /// `write` from the mapped file: one copy.
    MmapWrite,
    /// `write` from the program's memory: one copy.
    Write,
    /// `writev` of the picture's pages: one copy.
    Writev,
    /// `sendfile` from the file: the kernel's pages, without a copy.
    Sendfile,
    /// `splice` from the file into a pipe, and from there into the socket.
    Splice,
    /// `tee` from one pipe that holds the picture into the connection's, and `splice` from there.
    Tee,
    /// `send` with `MSG_ZEROCOPY`.
    ZeroCopy,
    /// `IORING_OP_SEND`: one submission for all connections that are due.
    UringSend,
    /// A send bundle of the picture's pages, which io_uring takes from a ring of buffers of the connection; submitted likewise.
    UringBundle,
    /// `IORING_OP_SEND_ZC` from a registered buffer, submitted likewise.
    UringSendZc,
}

impl Mechanism {
    /// All of them, in the order of the report.
    pub(crate) const ALL: [Self; 11] = [
        Self::ReadWrite,
        Self::MmapWrite,
        Self::Write,
        Self::Writev,
        Self::Sendfile,
        Self::Splice,
        Self::Tee,
        Self::ZeroCopy,
        Self::UringSend,
        Self::UringBundle,
        Self::UringSendZc,
    ];

    /// Its name in reports and on the command line.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::ReadWrite => "read-write",
            Self::MmapWrite => "mmap-write",
            Self::Write => "write",
            Self::Writev => "writev",
            Self::Sendfile => "sendfile",
            Self::Splice => "splice",
            Self::Tee => "tee",
            Self::ZeroCopy => "zerocopy",
            Self::UringSend => "uring-send",
            Self::UringBundle => "uring-bundle",
            Self::UringSendZc => "uring-send-zc",
        }
    }

    /// Sends the picture `times` times over each connection, and returns when the kernel has taken the last byte.
    ///
    /// # Errors
    ///
    /// If a connection fails, if none takes a byte for 20 s ([`io::ErrorKind::TimedOut`]), or if the kernel does not offer the mechanism
    /// ([`io::ErrorKind::Unsupported`] or the error of `io_uring_setup`).
    pub(crate) fn send(
        self,
        connections: &[TcpStream],
        picture: &Picture,
        times: u32,
    ) -> io::Result<Account> {
        self.send_through(connections, picture, times, None)
    }

    /// The same; `pipe_pages`: how many pages a pipe of [`Mechanism::Splice`] holds, by default those of the picture and at least 16.
    ///
    /// # Errors
    ///
    /// As [`Mechanism::send`], or if the kernel refuses the pipe's size (`/proc/sys/fs/pipe-max-size`).
    pub(crate) fn send_through(
        self,
        connections: &[TcpStream],
        picture: &Picture,
        times: u32,
        pipe_pages: Option<usize>,
    ) -> io::Result<Account> {
        let (len, bytes) = (picture.len(), picture.bytes());
        match self {
            Self::ReadWrite => {
                let mut buffer = vec![0; len];
                ready::run(connections, len, times, |_, socket, offset, account| {
                    account.system_calls += 2;
                    let read = rustix::io::pread(picture.file(), &mut buffer, offset as u64)?;
                    Ok(rustix::io::write(socket, &buffer[..read])?)
                })
            }
            Self::MmapWrite => write_all(connections, picture.mapped(), times),
            Self::Write => write_all(connections, bytes, times),
            Self::Writev => ready::run(connections, len, times, |_, socket, offset, account| {
                account.system_calls += 1;
                let pages = bytes[offset..].chunks(PAGE).take(MOST_PIECES).map(IoSlice::new);
                Ok(rustix::io::writev(socket, &pages.collect::<Vec<_>>())?)
            }),
            Self::Sendfile => ready::run(connections, len, times, |_, socket, offset, account| {
                account.system_calls += 1;
                let mut place = offset as u64;
                Ok(rustix::fs::sendfile(socket, picture.file(), Some(&mut place), len - offset)?)
            }),
            Self::Splice => pipes::splice_file(connections, picture, times, pipe_pages),
            Self::Tee => pipes::tee_pipe(connections, picture, times),
            Self::ZeroCopy => zero_copy::send(connections, picture, times),
            Self::UringSend => uring::send(connections, picture, times, uring::Request::Send),
            Self::UringBundle => uring::send(connections, picture, times, uring::Request::Bundle),
            Self::UringSendZc => uring::send(connections, picture, times, uring::Request::ZeroCopy),
        }
    }
}

/// `write` from one place in memory.
fn write_all(connections: &[TcpStream], bytes: &[u8], times: u32) -> io::Result<Account> {
    ready::run(connections, bytes.len(), times, |_, socket, offset, account| {
        account.system_calls += 1;
        Ok(rustix::io::write(socket, &bytes[offset..])?)
    })
}

impl fmt::Display for Mechanism {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl std::str::FromStr for Mechanism {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let all = Self::ALL.map(Self::name).join(", ");
        Self::ALL
            .into_iter()
            .find(|mechanism| mechanism.name() == name)
            .ok_or_else(|| format!("{name:?} is no mechanism: use one of {all}"))
    }
}

#[cfg(test)]
mod tests;

//! Mechanisms in which the kernel copies from the program's memory.

use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;

use crate::account::Account;
use crate::picture::Picture;
use crate::ready::Handover;

/// Size of the pieces of [`Vectored`], in bytes: a page.
const PIECE: usize = 4096;

/// Reads the file anew for each connection.
pub(crate) struct ReadWrite<'a> {
    picture: &'a Picture,
    buffer: Vec<u8>,
}

impl<'a> ReadWrite<'a> {
    pub(crate) fn new(picture: &'a Picture) -> Self {
        Self { picture, buffer: vec![0; picture.len()] }
    }
}

impl Handover for ReadWrite<'_> {
    fn hand_over(
        &mut self,
        _connection: usize,
        socket: BorrowedFd<'_>,
        offset: usize,
        account: &mut Account,
    ) -> io::Result<usize> {
        account.system_calls += 2;
        let read = rustix::io::pread(self.picture.file(), &mut self.buffer, offset as u64)?;
        Ok(rustix::io::write(socket, &self.buffer[..read])?)
    }
}

/// Writes from one place in memory.
pub(crate) struct FromMemory<'a>(pub(crate) &'a [u8]);

impl Handover for FromMemory<'_> {
    fn hand_over(
        &mut self,
        _connection: usize,
        socket: BorrowedFd<'_>,
        offset: usize,
        account: &mut Account,
    ) -> io::Result<usize> {
        account.system_calls += 1;
        Ok(rustix::io::write(socket, &self.0[offset..])?)
    }
}

/// Writes many pieces with one call.
pub(crate) struct Vectored<'a>(pub(crate) &'a [u8]);

impl Handover for Vectored<'_> {
    fn hand_over(
        &mut self,
        _connection: usize,
        socket: BorrowedFd<'_>,
        offset: usize,
        account: &mut Account,
    ) -> io::Result<usize> {
        account.system_calls += 1;
        let mut pieces: Vec<IoSlice<'_>> = self.0[offset..].chunks(PIECE).map(IoSlice::new).collect();
        // The kernel takes at most this many (IOV_MAX).
        pieces.truncate(1024);
        Ok(rustix::io::writev(socket, &pieces)?)
    }
}

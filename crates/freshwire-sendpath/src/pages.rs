//! Mechanisms that pass on the kernel's own pages.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice, tee};

use crate::account::Account;
use crate::picture::Picture;
use crate::ready::Handover;

pub(crate) struct Sendfile<'a>(pub(crate) &'a Picture);

impl Handover for Sendfile<'_> {
    fn hand_over(
        &mut self,
        _connection: usize,
        socket: BorrowedFd<'_>,
        offset: usize,
        account: &mut Account,
    ) -> io::Result<usize> {
        account.system_calls += 1;
        let mut place = offset as u64;
        Ok(rustix::fs::sendfile(socket, self.0.file(), Some(&mut place), self.0.len() - offset)?)
    }
}

/// A pipe, and how many bytes are in it.
struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
    holds: usize,
}

impl Pipe {
    /// Room for `bytes` of whole pages.
    fn new(bytes: usize) -> io::Result<Self> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        if bytes > 16 * rustix::param::page_size() {
            fcntl_setpipe_size(&write, bytes)?;
        }
        Ok(Self { read, write, holds: 0 })
    }

    /// Adds bytes of the file behind `offset`.
    fn fill(&mut self, picture: &Picture, offset: usize) -> io::Result<()> {
        let mut place = offset as u64;
        let len = picture.len() - offset;
        self.holds += splice(picture.file(), Some(&mut place), &self.write, None, len, SpliceFlags::MOVE)?;
        Ok(())
    }

    fn drain(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
        let taken = splice(&self.read, None, socket, None, self.holds, flags)?;
        self.holds -= taken;
        Ok(taken)
    }
}

/// A pipe for each connection, filled from the file.
pub(crate) struct Splice<'a> {
    picture: &'a Picture,
    pipes: Vec<Pipe>,
}

impl<'a> Splice<'a> {
    pub(crate) fn new(picture: &'a Picture, connections: usize) -> io::Result<Self> {
        Ok(Self { picture, pipes: pipes(picture, connections)? })
    }
}

impl Handover for Splice<'_> {
    fn hand_over(
        &mut self,
        connection: usize,
        socket: BorrowedFd<'_>,
        offset: usize,
        account: &mut Account,
    ) -> io::Result<usize> {
        let pipe = &mut self.pipes[connection];
        if pipe.holds == 0 {
            account.system_calls += 1;
            pipe.fill(self.picture, offset)?;
        }
        account.system_calls += 1;
        pipe.drain(socket)
    }
}

/// One pipe holds the picture for good; each connection's pipe gets references to its pages.
pub(crate) struct Tee {
    source: Pipe,
    pipes: Vec<Pipe>,
}

impl Tee {
    pub(crate) fn new(picture: &Picture, connections: usize) -> io::Result<Self> {
        let mut source = Pipe::new(picture.len())?;
        while source.holds < picture.len() {
            source.fill(picture, source.holds)?;
        }
        Ok(Self { source, pipes: pipes(picture, connections)? })
    }
}

impl Handover for Tee {
    fn hand_over(
        &mut self,
        connection: usize,
        socket: BorrowedFd<'_>,
        offset: usize,
        account: &mut Account,
    ) -> io::Result<usize> {
        let pipe = &mut self.pipes[connection];
        if pipe.holds == 0 {
            // `tee` always begins with the first byte, so the pipe has to take the whole picture.
            debug_assert_eq!(offset, 0);
            account.system_calls += 1;
            pipe.holds = tee(&self.source.read, &pipe.write, self.source.holds, SpliceFlags::empty())?;
            if pipe.holds < self.source.holds {
                return Err(io::Error::other("a pipe has no room for the picture"));
            }
        }
        account.system_calls += 1;
        pipe.drain(socket)
    }
}

fn pipes(picture: &Picture, connections: usize) -> io::Result<Vec<Pipe>> {
    (0..connections).map(|_| Pipe::new(picture.len())).collect()
}

//! Mechanisms that pass the kernel's own pages on through pipes.

use std::io;
use std::net::TcpStream;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice, tee};

use super::account::Account;
use super::picture::Picture;
use super::ready;

/// `PIPE_DEF_BUFFERS` of the kernel.
const OWN_PAGES: usize = 16;

/// A pipe, and how many bytes are in it.
struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
    holds: usize,
}

impl Pipe {
    /// Room for that number of pages; the kernel gives a power of two. `None`: what it gives by itself, 16 pages.
    fn new(pages: Option<usize>) -> io::Result<Self> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        if let Some(pages) = pages {
            fcntl_setpipe_size(&write, pages * rustix::param::page_size())?;
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

/// Fills each connection's pipe from the file. `pages`: the pipe's room, else that of the picture.
pub(crate) fn splice_file(
    sockets: &[TcpStream],
    picture: &Picture,
    times: u32,
    pages: Option<usize>,
) -> io::Result<Account> {
    let mut pipes = pipes(pages.or_else(|| room_for(picture)), sockets.len())?;
    ready::run(sockets, picture.len(), times, |connection, socket, offset, account| {
        let pipe = &mut pipes[connection];
        if pipe.holds == 0 {
            account.system_calls += 1;
            pipe.fill(picture, offset)?;
        }
        account.system_calls += 1;
        pipe.drain(socket)
    })
}

/// One pipe holds the picture for good; each connection's pipe gets references to its pages.
pub(crate) fn tee_pipe(sockets: &[TcpStream], picture: &Picture, times: u32) -> io::Result<Account> {
    let mut source = Pipe::new(room_for(picture))?;
    while source.holds < picture.len() {
        source.fill(picture, source.holds)?;
    }
    let mut pipes = pipes(room_for(picture), sockets.len())?;
    ready::run(sockets, picture.len(), times, |connection, socket, offset, account| {
        let pipe = &mut pipes[connection];
        if pipe.holds == 0 {
            // `tee` always begins with the first byte, so the pipe has to take the whole picture.
            debug_assert_eq!(offset, 0);
            account.system_calls += 1;
            pipe.holds = tee(&source.read, &pipe.write, source.holds, SpliceFlags::empty())?;
            if pipe.holds < source.holds {
                return Err(io::Error::other("a pipe has no room for the picture"));
            }
        }
        account.system_calls += 1;
        pipe.drain(socket)
    })
}

/// Pages for the whole picture; `None`: a pipe has them by itself.
fn room_for(picture: &Picture) -> Option<usize> {
    let pages = picture.len().div_ceil(rustix::param::page_size());
    (pages > OWN_PAGES).then_some(pages)
}

fn pipes(pages: Option<usize>, connections: usize) -> io::Result<Vec<Pipe>> {
    (0..connections).map(|_| Pipe::new(pages)).collect()
}

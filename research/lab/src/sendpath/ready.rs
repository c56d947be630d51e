//! The loop of the mechanisms that write when a socket has room.

use std::collections::VecDeque;
use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};

use super::account::Account;

/// How long no connection may take a byte.
pub(crate) const STANDSTILL: Duration = Duration::from_secs(20);

/// Events that are fetched at once.
const EVENTS: usize = 1024;

/// How far a connection is.
#[derive(Clone, Copy)]
struct Progress {
    pictures_left: u32,
    offset: usize,
}

/// Has `hand_over` hand `times` pictures of `len` bytes to each socket, which does not block. It hands over what follows the given offset
/// of a connection's picture, as much as the socket takes, and counts its system calls.
pub(crate) fn run(
    sockets: &[TcpStream],
    len: usize,
    times: u32,
    mut hand_over: impl FnMut(usize, BorrowedFd<'_>, usize, &mut Account) -> io::Result<usize>,
) -> io::Result<Account> {
    let mut account = Account::default();
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for (connection, socket) in sockets.iter().enumerate() {
        socket.set_nonblocking(true)?;
        let data = epoll::EventData::new_u64(connection as u64);
        epoll::add(&poll, socket, data, epoll::EventFlags::OUT | epoll::EventFlags::ET)?;
    }
    let mut progress = vec![Progress { pictures_left: times, offset: 0 }; sockets.len()];
    let mut unfinished = if times == 0 { 0 } else { sockets.len() };
    // Connections with room, as far as is known. Each is in it once at most.
    let mut ready: VecDeque<usize> = (0..sockets.len()).collect();
    let mut is_ready = vec![true; sockets.len()];
    let mut events = Vec::with_capacity(EVENTS);
    while unfinished > 0 {
        let Some(connection) = ready.pop_front() else {
            account.system_calls += 1;
            events.clear();
            let timeout = Timespec { tv_sec: STANDSTILL.as_secs() as i64, tv_nsec: 0 };
            if epoll::wait(&poll, spare_capacity(&mut events), Some(&timeout))? == 0 {
                return Err(standstill());
            }
            for event in &events {
                let connection = event.data.u64() as usize;
                if progress[connection].pictures_left > 0 && !is_ready[connection] {
                    is_ready[connection] = true;
                    ready.push_back(connection);
                }
            }
            continue;
        };
        let Progress { pictures_left, offset } = &mut progress[connection];
        match hand_over(connection, sockets[connection].as_fd(), *offset, &mut account) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(taken) => *offset += taken,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                is_ready[connection] = false;
                continue;
            }
            Err(error) => return Err(error),
        }
        if *offset == len {
            *offset = 0;
            *pictures_left -= 1;
        }
        if *pictures_left == 0 {
            is_ready[connection] = false;
            unfinished -= 1;
        } else {
            ready.push_back(connection);
        }
    }
    Ok(account)
}

pub(crate) fn standstill() -> io::Error {
    io::Error::new(
        io::ErrorKind::TimedOut,
        format!("no connection took a byte for {} s", STANDSTILL.as_secs()),
    )
}

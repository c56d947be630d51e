//! The processes that share this one's sockets since a fork.
//!
//! What one of them moved into its memory, the other one could not receive. So nothing is pushed as long as both live with the
//! same program. Each holds the end of a pipe; the other end hangs up when its owner has ended or executed another program.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A process with which sockets are shared: the pipe's end that hangs up with it, and the end that it watches.
pub(crate) struct Relative {
    theirs: RawFd,
    ours: RawFd,
}

static RELATIVES: Mutex<Vec<Relative>> = Mutex::new(Vec::new());
/// Whether there may be one, so that most need no lock.
static ANY: AtomicBool = AtomicBool::new(false);

/// The process that the tables belong to.
static OWNER: AtomicI32 = AtomicI32::new(0);

/// Makes this process, a child, the owner of the tables.
pub(crate) fn own_tables() {
    // SAFETY: the call takes and touches nothing.
    OWNER.store(unsafe { libc::getpid() }, Ordering::Relaxed);
}

/// Whether the tables are this process's: a child of `vfork` runs in its parent's memory.
pub(crate) fn is_owner() -> bool {
    // SAFETY: the call takes and touches nothing.
    let own = unsafe { libc::getpid() };
    let owner = OWNER.load(Ordering::Relaxed);
    if owner == 0 {
        OWNER.store(own, Ordering::Relaxed);
    }
    owner == 0 || owner == own
}

pub(crate) fn relatives() -> MutexGuard<'static, Vec<Relative>> {
    RELATIVES.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn remember(relatives: &mut Vec<Relative>, theirs: RawFd, ours: RawFd) {
    relatives.push(Relative { theirs, ours });
    ANY.store(true, Ordering::Release);
}

pub(crate) fn close(fd: RawFd) {
    // SAFETY: the descriptor is one of ours.
    unsafe { libc::syscall(libc::SYS_close, fd) };
}

/// Whether a descriptor is one of ours.
pub(crate) fn is_own(fd: RawFd) -> bool {
    // A signal handler may close while this thread holds the lock; then nothing of ours is at stake.
    ANY.load(Ordering::Acquire)
        && RELATIVES.try_lock().is_ok_and(|relatives| {
            relatives.iter().any(|relative| relative.theirs == fd || relative.ours == fd)
        })
}

/// Whether no other process shares this one's sockets.
pub(crate) fn may_push() -> bool {
    if !ANY.load(Ordering::Acquire) {
        return true;
    }
    let mut relatives = relatives();
    relatives.retain(|relative| {
        let has_gone = hangs_up(relative.theirs);
        if has_gone {
            close(relative.theirs);
            close(relative.ours);
        }
        !has_gone
    });
    ANY.store(!relatives.is_empty(), Ordering::Release);
    relatives.is_empty()
}

fn hangs_up(fd: RawFd) -> bool {
    let mut poll = libc::pollfd { fd, events: 0, revents: 0 };
    // SAFETY: one structure, a local.
    let ready = unsafe { libc::syscall(libc::SYS_poll, &raw mut poll, 1, 0) };
    ready > 0 && poll.revents & (libc::POLLHUP | libc::POLLNVAL) != 0
}

//! Two processes after a fork.
//!
//! They share the socket: what one of them moved into its memory, the other one could not receive. So nothing is pushed as
//! long as both live with the same program. Each holds the end of a pipe; the other end hangs up when its owner has ended or
//! executed another program.

use std::cell::UnsafeCell;
use std::collections::BTreeMap;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError, RwLockWriteGuard};

use freshwire_push::pushed::Pushed;
use freshwire_push::pusher::Pusher;
use freshwire_push::sys;

use crate::sockets;

/// A process with which sockets are shared: the pipe's end that hangs up with it, and the end that it watches.
struct Relative {
    theirs: RawFd,
    ours: RawFd,
}

static RELATIVES: Mutex<Vec<Relative>> = Mutex::new(Vec::new());
/// Whether there may be one, so that most need no lock.
static ANY: AtomicBool = AtomicBool::new(false);

/// The process that the tables belong to.
static OWNER: AtomicI32 = AtomicI32::new(0);

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

/// What is held from before a fork until after it.
struct Held {
    pusher: MutexGuard<'static, Option<Pusher>>,
    sockets: RwLockWriteGuard<'static, BTreeMap<RawFd, Arc<Pushed>>>,
    relatives: MutexGuard<'static, Vec<Relative>>,
    /// The thread's gate: it touches no socket meanwhile.
    gate: Option<MutexGuard<'static, ()>>,
    pipes: Option<[[RawFd; 2]; 2]>,
}

struct Place(UnsafeCell<Option<Held>>);

// SAFETY: only the forking thread uses it, between `prepare` and `parent` or `child`, and forks take turns: the locks in it
// are held that long.
unsafe impl Sync for Place {}

static PLACE: Place = Place(UnsafeCell::new(None));

/// Has the C library tell of forks.
pub(crate) fn prepare_once() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the three functions take and return nothing, and this library is never unloaded.
        unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) };
    });
}

fn relatives() -> MutexGuard<'static, Vec<Relative>> {
    RELATIVES.lock().unwrap_or_else(PoisonError::into_inner)
}

extern "C" fn prepare() {
    let sockets = sockets::write();
    let pusher = sockets::pusher();
    let gate = pusher.as_ref().map(|pusher| {
        // SAFETY: only the lifetime changes. The pusher, whose lock the guard holds, is kept beside it in `Held`, is never
        // replaced while it is there, and is leaked in the child.
        unsafe { std::mem::transmute::<MutexGuard<'_, ()>, MutexGuard<'static, ()>>(pusher.pause()) }
    });
    let relatives = relatives();
    let pipes = if sockets.is_empty() { None } else { pipes() };
    let held = Held { pusher, sockets, relatives, gate, pipes };
    // SAFETY: the locks in `held` keep other forking threads out.
    unsafe { *PLACE.0.get() = Some(held) };
}

extern "C" fn parent() {
    // SAFETY: as in `prepare`, whose locks this thread still holds.
    let Some(mut held) = (unsafe { (*PLACE.0.get()).take() }) else { return };
    if let Some([mine, theirs]) = held.pipes {
        close(mine[1]);
        close(theirs[0]);
        remember(&mut held.relatives, mine[0], theirs[1]);
    }
    drop(held.gate);
}

extern "C" fn child() {
    // SAFETY: as in `prepare`; the child's only thread is the copy of the one that forked.
    let Some(mut held) = (unsafe { (*PLACE.0.get()).take() }) else { return };
    // SAFETY: the call takes and touches nothing.
    OWNER.store(unsafe { libc::getpid() }, Ordering::Relaxed);
    sockets::begin_anew(&mut held.sockets);
    // The thread does not exist here. Its descriptors are closed with what was forgotten of it.
    let old = held.pusher.take();
    std::mem::forget(held.gate.take());
    if let Some(old) = old {
        for fd in old.descriptors() {
            close(fd);
        }
        sockets::set_own(None);
        std::mem::forget(old);
    }
    if let Some([theirs, mine]) = held.pipes {
        close(theirs[0]);
        close(mine[1]);
        remember(&mut held.relatives, mine[0], theirs[1]);
    }
}

fn remember(relatives: &mut Vec<Relative>, theirs: RawFd, ours: RawFd) {
    relatives.push(Relative { theirs, ours });
    ANY.store(true, Ordering::Release);
}

/// Two pipes, at high numbers. `None` if there are no descriptors: then pushing goes on, and the child may miss what was
/// pushed.
fn pipes() -> Option<[[RawFd; 2]; 2]> {
    let mut pipes = [[-1; 2]; 2];
    for pipe in &mut pipes {
        // SAFETY: the call writes two descriptors into the array.
        if unsafe { libc::pipe2(pipe.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
            return None;
        }
        for fd in pipe {
            *fd = out_of_the_way(*fd);
        }
    }
    Some(pipes)
}

fn out_of_the_way(fd: RawFd) -> RawFd {
    let high = sys::high_descriptor();
    // SAFETY: the call takes numbers only.
    let moved = unsafe { crate::real::fcntl(fd, libc::F_DUPFD_CLOEXEC, high.into()) };
    if moved < 0 {
        return fd;
    }
    close(fd);
    moved
}

fn close(fd: RawFd) {
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

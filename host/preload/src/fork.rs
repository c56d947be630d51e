//! What happens to the tables at a fork: the parent keeps them, and the child begins anew.

use std::cell::UnsafeCell;
use std::collections::BTreeMap;
use std::os::fd::RawFd;
use std::sync::{Arc, MutexGuard, Once, RwLockWriteGuard};

use freshwire_push::pushed::PushedSocket;
use freshwire_push::pusher::Pusher;
use freshwire_push::sys;

use crate::relatives::{Relative, close, own_tables, relatives, remember};
use crate::tables;

/// Locks held from before a fork until after it.
struct HeldLocks {
    pusher: MutexGuard<'static, Option<Pusher>>,
    sockets: RwLockWriteGuard<'static, BTreeMap<RawFd, Arc<PushedSocket>>>,
    relatives: MutexGuard<'static, Vec<Relative>>,
    /// The thread's gate: it touches no socket meanwhile.
    gate: Option<MutexGuard<'static, ()>>,
    pipes: Option<[[RawFd; 2]; 2]>,
}

struct Place(UnsafeCell<Option<HeldLocks>>);

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

extern "C" fn prepare() {
    let sockets = tables::write();
    let pusher = tables::pusher();
    let gate = pusher.as_ref().map(|pusher| {
        // SAFETY: only the lifetime changes. The pusher, whose lock the guard holds, is kept beside it in `HeldLocks`, is never
        // replaced while it is there, and is leaked in the child.
        unsafe { std::mem::transmute::<MutexGuard<'_, ()>, MutexGuard<'static, ()>>(pusher.pause()) }
    });
    let relatives = relatives();
    let pipes = if sockets.is_empty() { None } else { pipes() };
    let held = HeldLocks { pusher, sockets, relatives, gate, pipes };
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
    own_tables();
    tables::begin_anew(&mut held.sockets);
    // The thread does not exist here. Its descriptors are closed with what was forgotten of it.
    let old = held.pusher.take();
    std::mem::forget(held.gate.take());
    if let Some(old) = old {
        for fd in old.descriptors() {
            close(fd);
        }
        tables::set_own(None);
        std::mem::forget(old);
    }
    if let Some([theirs, mine]) = held.pipes {
        close(theirs[0]);
        close(mine[1]);
        remember(&mut held.relatives, mine[0], theirs[1]);
    }
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

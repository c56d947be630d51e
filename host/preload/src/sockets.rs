//! Which descriptors are UDP sockets, followed from their creation to their closing.

use std::cell::Cell;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use freshwire_push::Policy;
use freshwire_push::pushed::{PushedSocket, Rules};
use freshwire_push::pusher::Pusher;
use freshwire_push::queue::Queue;
use freshwire_push::sys;

use crate::settings::settings;
use crate::tables::{
    FRESH, KINDS, OTHER, SERVED, Sockets, UNKNOWN, USED, kind, pusher, read, set_own, write,
};
use crate::{fork, relatives, tables};

thread_local! {
    /// Whether this thread holds a lock of ours. A signal handler that receives meanwhile goes to the kernel.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Marks this thread as one that holds locks of ours.
pub(crate) struct LockMark(());

impl LockMark {
    /// `None` if it already does: this is a signal handler.
    pub(crate) fn enter() -> Option<Self> {
        INSIDE.with(|inside| (!inside.replace(true)).then_some(Self(())))
    }
}

impl Drop for LockMark {
    fn drop(&mut self) {
        INSIDE.with(|inside| inside.set(false));
    }
}

/// A new socket.
pub(crate) fn created(fd: RawFd, is_udp: bool) {
    if let Some(kind) = kind(fd)
        && relatives::is_owner()
    {
        if is_udp {
            fork::prepare_once();
        }
        kind.store(if is_udp { FRESH } else { OTHER }, Ordering::Release);
    }
}

/// A socket got an address of its own: a receiver, which its first receive registers. Nothing is pushed before that, because the
/// process that binds may leave the receiving to a child.
pub(crate) fn bound(fd: RawFd) {
    let Some(kind) = kind(fd) else { return };
    if kind.load(Ordering::Acquire) == UNKNOWN {
        created(fd, sys::is_udp(fd));
    }
    if relatives::is_owner() {
        let _is_fresh = kind.compare_exchange(FRESH, USED, Ordering::AcqRel, Ordering::Acquire);
    }
}

/// The socket of a receive; `None` for the kernel alone. `is_socket`: the call is one for sockets, so it is worth asking
/// what an unknown descriptor is.
pub(crate) fn of_receive(fd: RawFd, is_socket: bool) -> Option<Arc<PushedSocket>> {
    let kind = kind(fd)?;
    match kind.load(Ordering::Acquire) {
        SERVED => read().get(&fd).map(Arc::clone),
        USED => register(fd),
        FRESH => {
            kind.store(USED, Ordering::Release);
            // Unless another descriptor of the same socket has something that comes first.
            if read().is_empty() { None } else { share(fd, &mut write()) }
        }
        UNKNOWN if is_socket => {
            let is_udp = sys::is_udp(fd);
            if is_udp && sys::has_port(fd) {
                // Another program has bound it, such as a parent that executed this one.
                bound(fd);
            } else {
                created(fd, is_udp);
            }
            // A child of `vfork` has learned nothing.
            if is_udp && kind.load(Ordering::Acquire) != UNKNOWN { of_receive(fd, true) } else { None }
        }
        _ => None,
    }
}

/// Whether a descriptor may be a UDP socket: one load, for the reads of files.
pub(crate) fn may_be_udp(fd: RawFd) -> bool {
    kind(fd).is_some_and(|kind| kind.load(Ordering::Acquire) >= FRESH)
}

/// The socket of a call that only asks, if it is served.
pub(crate) fn served(fd: RawFd) -> Option<Arc<PushedSocket>> {
    let is_served = kind(fd)?.load(Ordering::Acquire) == SERVED;
    if is_served { read().get(&fd).map(Arc::clone) } else { None }
}

/// Serves the descriptor as another one of its socket is.
fn share(fd: RawFd, sockets: &mut Sockets) -> Option<Arc<PushedSocket>> {
    let cookie = sys::cookie(fd).ok()?;
    let same = sockets.values().find(|pushed| pushed.cookie() == cookie).map(Arc::clone)?;
    sockets.insert(fd, Arc::clone(&same));
    created(fd, true);
    kind(fd)?.store(SERVED, Ordering::Release);
    Some(same)
}

fn register(fd: RawFd) -> Option<Arc<PushedSocket>> {
    let mut sockets = write();
    if let Some(same) = share(fd, &mut sockets) {
        return Some(same);
    }
    crate::report::prepare_once();
    let settings = settings();
    let policy = if settings.oldest { Policy::Oldest } else { Policy::Newest };
    let queue = Queue::new(settings.memory, policy, None);
    let rules = Rules { keep_one: true, may_push: Some(relatives::may_push), ..Rules::default() };
    let pushed = Arc::new(PushedSocket::new(fd, queue, rules).ok()?);
    let mut pusher = pusher();
    if pusher.is_none() {
        *pusher = Pusher::spawn(true).ok();
        set_own(pusher.as_ref().map(Pusher::descriptors));
    }
    let Some(thread) = pusher.as_ref() else {
        // No thread to be had: the kernel alone serves this descriptor.
        kind(fd)?.store(OTHER, Ordering::Release);
        return None;
    };
    thread.add(Arc::clone(&pushed));
    sockets.insert(fd, Arc::clone(&pushed));
    kind(fd)?.store(SERVED, Ordering::Release);
    Some(pushed)
}

/// A descriptor is about to be closed, or was closed.
pub(crate) fn forget(fd: RawFd) {
    let Some(kind) = kind(fd) else { return };
    if kind.load(Ordering::Acquire) == UNKNOWN || !relatives::is_owner() {
        return;
    }
    if kind.swap(UNKNOWN, Ordering::AcqRel) != SERVED {
        return;
    }
    let mut sockets = write();
    let Some(gone) = sockets.remove(&fd) else { return };
    if !sockets.values().any(|pushed| Arc::ptr_eq(pushed, &gone)) {
        gone.close();
        let state = gone.lock_at_close();
        crate::report::add(state.as_deref());
        // A thread that is still in a receive keeps the memory until it is back.
        if let Some(mut state) = state {
            while !state.queue.is_empty() {
                state.queue.pop();
            }
            state.queue.release();
        }
    }
}

/// All descriptors of a range are closed.
pub(crate) fn forget_range(first: usize, last: usize) {
    for (fd, kind) in KINDS.iter().enumerate().take(last.saturating_add(1)).skip(first) {
        if kind.load(Ordering::Relaxed) != UNKNOWN {
            forget(RawFd::try_from(fd).unwrap_or(-1));
        }
    }
}

/// `new` is another descriptor of what `old` is.
pub(crate) fn duplicated(old: RawFd, new: RawFd) {
    if !relatives::is_owner() {
        return;
    }
    forget(new);
    let (Some(from), Some(to)) = (kind(old), kind(new)) else { return };
    match from.load(Ordering::Acquire) {
        SERVED => {
            let mut sockets = write();
            if let Some(pushed) = sockets.get(&old).map(Arc::clone) {
                sockets.insert(new, pushed);
                to.store(SERVED, Ordering::Release);
            }
        }
        other => to.store(other, Ordering::Release),
    }
}

/// Whether a descriptor is one of ours, which the program does not know.
pub(crate) fn is_own(fd: RawFd) -> bool {
    fd >= 0 && (tables::is_of_thread(fd) || relatives::is_own(fd))
}

//! The descriptors of this process: what each one is, the memory of those that are served, and the thread that empties them.

use std::collections::BTreeMap;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicI32, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use freshwire_push::pushed::PushedSocket;
use freshwire_push::pusher::Pusher;

/// Descriptors from here on are served by the kernel alone.
const DESCRIPTORS: usize = 65_536;

/// Nothing is known of it.
pub(crate) const UNKNOWN: u8 = 0;
/// Anything but a UDP socket.
pub(crate) const OTHER: u8 = 1;
/// A UDP socket that was not bound and has received nothing. One that is used once, for a question and its answer, is left alone.
pub(crate) const FRESH: u8 = 2;
/// A UDP socket that was bound or has received something: the next receive registers it.
pub(crate) const USED: u8 = 3;
/// A UDP socket whose buffer is emptied.
pub(crate) const SERVED: u8 = 4;

pub(crate) static KINDS: [AtomicU8; DESCRIPTORS] = [const { AtomicU8::new(UNKNOWN) }; DESCRIPTORS];

pub(crate) type Sockets = BTreeMap<RawFd, Arc<PushedSocket>>;

static SOCKETS: RwLock<Sockets> = RwLock::new(BTreeMap::new());

/// The thread, of this process: after a fork the child needs one of its own.
static PUSHER: Mutex<Option<Pusher>> = Mutex::new(None);

pub(crate) fn kind(fd: RawFd) -> Option<&'static AtomicU8> {
    usize::try_from(fd).ok().and_then(|fd| KINDS.get(fd))
}

pub(crate) fn read() -> RwLockReadGuard<'static, Sockets> {
    SOCKETS.read().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn write() -> RwLockWriteGuard<'static, Sockets> {
    SOCKETS.write().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn pusher() -> MutexGuard<'static, Option<Pusher>> {
    PUSHER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The thread's descriptors.
static OWN: [AtomicI32; 2] = [const { AtomicI32::new(-1) }; 2];

pub(crate) fn set_own(descriptors: Option<[RawFd; 2]>) {
    for (own, fd) in OWN.iter().zip(descriptors.unwrap_or([-1; 2])) {
        own.store(fd, Ordering::Release);
    }
}

/// Whether a descriptor is one of the thread's.
pub(crate) fn is_of_thread(fd: RawFd) -> bool {
    OWN.iter().any(|own| own.load(Ordering::Acquire) == fd)
}

/// After a fork, in the child: the parent has the datagrams that wait, and the child begins anew.
pub(crate) fn begin_anew(sockets: &mut Sockets) {
    for (fd, pushed) in std::mem::take(sockets) {
        if let Some(kind) = kind(fd) {
            kind.store(USED, Ordering::Release);
        }
        // Its lock may be held by a thread that does not exist here.
        std::mem::forget(pushed);
    }
}

/// All sockets that are served.
pub(crate) fn all() -> Vec<Arc<PushedSocket>> {
    read().values().map(Arc::clone).collect()
}

//! Forks of this process, and threads that run a policy's function.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

static FORKS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static DECIDES: Cell<bool> = const { Cell::new(false) };
}

/// Number of forks between the first process and this one.
#[inline]
pub(crate) fn forks() -> u64 {
    FORKS.load(Ordering::Relaxed)
}

/// Counts a fork, in the child.
pub(crate) fn count_fork() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// Whether this thread runs a policy's function, which must not call the library: the engine waits for it, with its lock held.
#[inline]
pub(crate) fn decides() -> bool {
    DECIDES.get()
}

/// Marks this thread as deciding until it is dropped.
pub(crate) struct Deciding(());

impl Deciding {
    pub(crate) fn start() -> Self {
        DECIDES.set(true);
        Self(())
    }
}

impl Drop for Deciding {
    fn drop(&mut self) {
        DECIDES.set(false);
    }
}

//! The report at the end of the program, if the environment asks for it.

use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use freshwire_push::pushed::State;

use crate::settings::settings;
use crate::tables;

static SOCKETS: AtomicU64 = AtomicU64::new(0);
static PUSHES: AtomicU64 = AtomicU64::new(0);
static PUSHED: AtomicU64 = AtomicU64::new(0);
static DROPPED: AtomicU64 = AtomicU64::new(0);
static PEAK: AtomicU64 = AtomicU64::new(0);
static UNCOUNTED: AtomicU64 = AtomicU64::new(0);

/// Counts the datagrams of a socket that is closed. Without its state, because a thread still receives, they are missing, and the
/// report says so.
pub(crate) fn add(state: Option<&State>) {
    SOCKETS.fetch_add(1, Ordering::Relaxed);
    let Some(state) = state else {
        UNCOUNTED.fetch_add(1, Ordering::Relaxed);
        return;
    };
    PUSHES.fetch_add(state.counters.pushes, Ordering::Relaxed);
    PUSHED.fetch_add(state.counters.pushed, Ordering::Relaxed);
    DROPPED.fetch_add(state.queue.drops().total(), Ordering::Relaxed);
    PEAK.fetch_max(state.queue.peak() as u64, Ordering::Relaxed);
}

extern "C" fn at_end() {
    for pushed in tables::all() {
        add(pushed.lock_at_close().as_deref());
    }
    let sockets = SOCKETS.load(Ordering::Relaxed);
    if sockets == 0 {
        return;
    }
    // Nobody may be left who reads it.
    let _ = writeln!(
        std::io::stderr(),
        "freshwire-host push: {sockets} sockets, {} datagrams moved in {} pushes, at most {} bytes waiting, {} dropped",
        PUSHED.load(Ordering::Relaxed),
        PUSHES.load(Ordering::Relaxed),
        PEAK.load(Ordering::Relaxed),
        DROPPED.load(Ordering::Relaxed),
    );
    let uncounted = UNCOUNTED.load(Ordering::Relaxed);
    if uncounted > 0 {
        let _ = writeln!(
            std::io::stderr(),
            "freshwire-host push: the datagrams of {uncounted} of them are not counted: a receive was not over when they were closed",
        );
    }
}

/// Has the report written when the program ends, at the first registered socket.
pub(crate) fn prepare_once() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    if settings().report {
        ONCE.call_once(|| {
            // SAFETY: the function takes and returns nothing, and this library is never unloaded.
            unsafe { libc::atexit(at_end) };
        });
    }
}

//! The report at the end of the program, if the environment asks for it.

use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use freshwire_push::pushed::PushedSocket;

use crate::settings::settings;
use crate::tables;

static SOCKETS: AtomicU64 = AtomicU64::new(0);
static PUSHES: AtomicU64 = AtomicU64::new(0);
static PUSHED: AtomicU64 = AtomicU64::new(0);
static DROPPED: AtomicU64 = AtomicU64::new(0);
static PEAK: AtomicU64 = AtomicU64::new(0);

/// Counts what was done for a socket that is closed.
pub(crate) fn add(pushed: &PushedSocket) {
    let Some(state) = pushed.try_lock() else { return };
    SOCKETS.fetch_add(1, Ordering::Relaxed);
    PUSHES.fetch_add(state.counters.pushes, Ordering::Relaxed);
    PUSHED.fetch_add(state.counters.pushed, Ordering::Relaxed);
    DROPPED.fetch_add(state.queue.drops().total(), Ordering::Relaxed);
    PEAK.fetch_max(state.queue.peak() as u64, Ordering::Relaxed);
}

extern "C" fn at_end() {
    for pushed in tables::all() {
        add(&pushed);
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

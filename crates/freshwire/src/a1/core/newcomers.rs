//! Connections and attempts that wait for the application.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use freshwire_a1::{ConnectionHandle, Incoming};

use crate::a1::events::LazySignal;
use crate::sink::signal::Signal;

/// Incoming connections that wait for the application.
pub(super) struct Newcomers {
    /// How many may wait.
    most: usize,
    /// Connections that others have made and the application has not taken.
    pub(super) standing: VecDeque<ConnectionHandle>,
    /// Initiators that the application has to decide about, where it wants to.
    pub(super) undecided: VecDeque<Incoming>,
    /// For the application's event loop.
    pub(super) signal: LazySignal,
    /// For the application's threads that wait for a newcomer of any of the node's threads.
    arrivals: Option<Arc<Arrivals>>,
}

/// Counts the newcomers of a node that several threads serve, and its end.
#[derive(Default)]
pub(in crate::a1) struct Arrivals {
    count: Mutex<u64>,
    changed: Condvar,
    signal: Arc<Signal>,
}

impl Arrivals {
    /// How many there were so far.
    pub(in crate::a1) fn count(&self) -> u64 {
        *self.lock()
    }

    /// Waits until there is one beyond the `seen` ones, at most for `timeout`.
    pub(in crate::a1) fn wait(&self, seen: u64, timeout: Duration) {
        let waited = self.changed.wait_timeout_while(self.lock(), timeout, |count| *count == seen);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    fn note(&self) {
        *self.lock() += 1;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, u64> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Newcomers {
    pub(super) fn new(most: usize) -> Self {
        let signal = LazySignal::default();
        Self { most, standing: VecDeque::new(), undecided: VecDeque::new(), signal, arrivals: None }
    }

    /// Other threads have newcomers of the same node.
    pub(super) fn share(&mut self, arrivals: &Arc<Arrivals>) {
        self.signal = LazySignal::of(Arc::clone(&arrivals.signal));
        self.arrivals = Some(Arc::clone(arrivals));
    }

    /// There is a newcomer, or there will be none any more.
    pub(super) fn announce(&self) {
        self.signal.set();
        if let Some(arrivals) = &self.arrivals {
            arrivals.note();
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.standing.len() + self.undecided.len() >= self.most
    }

    /// Forgets all newcomers.
    pub(super) fn clear(&mut self) {
        self.standing.clear();
        self.undecided.clear();
    }

    /// An initiator does not wait any more.
    pub(super) fn on_failed(&mut self, id: ConnectionHandle) {
        self.undecided.retain(|incoming| incoming.handle != id);
    }

    /// A connection has ended. True: it waited here and nobody gets it, since there is nothing in it to be read.
    pub(super) fn on_end(&mut self, id: ConnectionHandle, is_readable: bool) -> bool {
        let place = self.standing.iter().position(|standing| *standing == id).filter(|_| !is_readable);
        place.and_then(|place| self.standing.remove(place)).is_some()
    }
}

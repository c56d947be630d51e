//! Connections and attempts that wait for the application.

use std::collections::VecDeque;

use freshwire_a1::{ConnectionHandle, Incoming};

use crate::a1::events::LazySignal;

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
}

impl Newcomers {
    pub(super) fn new(most: usize) -> Self {
        Self { most, standing: VecDeque::new(), undecided: VecDeque::new(), signal: LazySignal::default() }
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

//! How much work an engine has, as far as new sinks and senders need to know.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The counters guide where new sinks go and guard nothing, so that their order does not matter.
#[derive(Debug, Default)]
pub(crate) struct Load {
    /// Senders whose home the engine is.
    homes: AtomicUsize,
    sinks: AtomicUsize,
    is_gone: AtomicBool,
}

impl Load {
    pub(crate) fn sinks(&self) -> usize {
        self.sinks.load(Ordering::Relaxed)
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Relaxed)
    }

    /// The engine takes no further sinks.
    pub(crate) fn go(&self) {
        self.is_gone.store(true, Ordering::Relaxed);
    }

    /// The key by which engines compare as home of a new sender; less is better.
    pub(crate) fn as_home(&self) -> (bool, usize, usize) {
        (self.is_gone(), self.homes.load(Ordering::Relaxed), self.sinks())
    }

    pub(crate) fn add_home(&self) {
        self.homes.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn remove_home(&self) {
        self.homes.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A sink's place in the counters, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    engine: Arc<Load>,
    /// Sinks of its sender on that engine.
    own: Arc<AtomicUsize>,
}

impl Place {
    pub(crate) fn new(engine: Arc<Load>, own: Arc<AtomicUsize>) -> Self {
        engine.sinks.fetch_add(1, Ordering::Relaxed);
        own.fetch_add(1, Ordering::Relaxed);
        Self { engine, own }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.engine.sinks.fetch_sub(1, Ordering::Relaxed);
        self.own.fetch_sub(1, Ordering::Relaxed);
    }
}

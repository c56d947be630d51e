use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use freshwire::engine::EngineGroup;

use crate::config::HubConfig;

/// The part of the hub that its streams use.
pub(super) struct Shared {
    pub(super) config: HubConfig,
    pub(super) engines: EngineGroup,
    viewer_ids: AtomicU64,
}

impl Shared {
    pub(super) fn new(config: HubConfig, engines: EngineGroup) -> Self {
        Self { config, engines, viewer_ids: AtomicU64::new(1) }
    }

    pub(super) fn next_viewer(&self) -> u64 {
        self.viewer_ids.fetch_add(1, Ordering::Relaxed)
    }
}

/// A thread that panicked leaves a sound state: every change is of one field.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

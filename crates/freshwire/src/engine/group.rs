//! Several engines for one sender: which of them serves which sink.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::handle::EngineHandle;
use super::load::{Load, Place};
use super::thread::{Engine, EngineThread};
use crate::tcp::transfer::Transfer;

/// Sinks of one sender that its first engine gets before another engine gets any, as long as their work is not known.
/// At 1 Mbit/s each they take a few per cent of a processor.
pub const DEFAULT_FILL_FIRST: usize = 256;

/// The engines over which a [`Sender`](crate::Sender) spreads its sinks. One engine converts.
///
/// A sink stays with the engine that it was given, and each engine has a lock and a thread of its own. The sender writes
/// a payload once, then a descriptor into the ring of each sink; the engines share nothing but the read-only payload.
#[derive(Clone)]
pub struct EngineGroup {
    engines: Arc<[EngineHandle]>,
    fill_first: Option<usize>,
}

impl EngineGroup {
    /// A group of these engines.
    pub fn new(first: EngineHandle, others: impl IntoIterator<Item = EngineHandle>) -> Self {
        let engines = std::iter::once(first).chain(others).collect();
        Self { engines, fill_first: None }
    }

    /// Sets how many sinks of one sender its first engine gets before another engine gets any; 0 spreads from the second sink
    /// on. A further engine costs a wake-up per push, which few sinks do not pay back.
    ///
    /// Default: as many as take half of a processor, by the work of the last second. Until that is known,
    /// [`DEFAULT_FILL_FIRST`].
    #[must_use]
    pub fn fill_first(mut self, sinks: usize) -> Self {
        self.fill_first = Some(sinks);
        self
    }

    /// Number of engines.
    pub fn engines(&self) -> usize {
        self.engines.len()
    }

    /// Sinks in service or about to be, by engine.
    pub fn sinks(&self) -> Vec<usize> {
        self.engines.iter().map(|engine| engine.load().sinks()).collect()
    }
}

impl From<&EngineHandle> for EngineGroup {
    fn from(engine: &EngineHandle) -> Self {
        Self::new(engine.clone(), [])
    }
}

impl From<&Self> for EngineGroup {
    fn from(group: &Self) -> Self {
        group.clone()
    }
}

/// Engines on threads of their own. Dropping it stops them and aborts the sinks that are still open.
pub struct EnginePool(Vec<EngineThread>);

impl EnginePool {
    /// Starts `count` engines, at least one.
    ///
    /// # Errors
    ///
    /// If the system refuses a thread, a poller or a wake-up descriptor.
    pub fn spawn(count: usize) -> io::Result<Self> {
        (0..count.max(1)).map(|place| Engine::new()?.spawn_as(place)).collect::<io::Result<_>>().map(Self)
    }

    /// Returns `true` while all threads serve their sinks. One stops early only after a panic or a failure of its poller.
    pub fn is_running(&self) -> bool {
        self.0.iter().all(EngineThread::is_running)
    }

    /// Sets [`EngineHandle::set_io_uring`] of all.
    pub fn set_io_uring(&self, on: bool) {
        self.0.iter().for_each(|engine| engine.handle().set_io_uring(on));
    }

    /// Sets [`EngineHandle::set_transfer`] of all.
    pub fn set_transfer(&self, transfer: Transfer) {
        self.0.iter().for_each(|engine| engine.handle().set_transfer(transfer));
    }

    /// The engines as a group, for [`Sender::new`](crate::Sender::new).
    pub fn group(&self) -> EngineGroup {
        let engines = self.0.iter().map(EngineThread::handle).collect();
        EngineGroup { engines, fill_first: None }
    }
}

/// A sender's part of a group.
pub(crate) struct GroupShare {
    engines: Arc<[EngineHandle]>,
    fill_first: Option<usize>,
    /// The engine that gets its first sinks, and that its own thread serves.
    home: usize,
    /// Its sinks, by engine.
    own: Vec<Arc<AtomicUsize>>,
}

impl GroupShare {
    /// The part of a new sender. Its home is the engine that is home of the fewest.
    pub(crate) fn new(group: EngineGroup) -> Self {
        let EngineGroup { engines, fill_first } = group;
        let load = |place: &usize| engines.get(*place).map(|engine| engine.load().as_home());
        let home = (0..engines.len()).min_by_key(load).unwrap_or(0);
        let own = engines.iter().map(|_| Arc::default()).collect();
        let share = Self { engines, fill_first, home, own };
        share.home().load().add_home();
        share
    }

    pub(crate) fn engines(&self) -> &[EngineHandle] {
        &self.engines
    }

    pub(crate) fn home_place(&self) -> usize {
        self.home
    }

    /// The engine that the sender's own thread may serve.
    pub(crate) fn home(&self) -> &EngineHandle {
        // A group has at least one engine, and `home` is a place in it.
        &self.engines[self.home]
    }

    /// Chooses the engine of a new sink. The home gets the first ones of this sender, as many
    /// as [`EngineGroup::fill_first`] says. After that the engine with the fewest sinks of this sender is chosen, and among equals the one with the
    /// fewest sinks of all. Sinks of one sender get the same records, so each means equal work.
    pub(crate) fn place(&self) -> (usize, Place) {
        let sinks = |place: usize| self.own.get(place).map_or(0, |own| own.load(Ordering::Relaxed));
        let is_gone = |place: usize| self.engines.get(place).is_none_or(|engine| engine.load().is_gone());
        let home = self.home().load();
        let has_room = match (self.fill_first, home.capacity()) {
            (Some(most), _) => sinks(self.home) < most,
            (None, Some(capacity)) => home.sinks() < capacity,
            (None, None) => sinks(self.home) < DEFAULT_FILL_FIRST,
        };
        let place = if has_room && !is_gone(self.home) {
            self.home
        } else {
            let load = |place: &usize| {
                let all = self.engines.get(*place).map_or(0, |engine| engine.load().sinks());
                (is_gone(*place), sinks(*place), all, *place != self.home)
            };
            (0..self.engines.len()).min_by_key(load).unwrap_or(self.home)
        };
        let own = self.own.get(place).cloned().unwrap_or_default();
        (place, Place::new(Arc::clone(self.load(place)), own))
    }

    fn load(&self, place: usize) -> &Arc<Load> {
        self.engines.get(place).unwrap_or_else(|| self.home()).load()
    }
}

impl Drop for GroupShare {
    fn drop(&mut self) {
        self.home().load().remove_home();
    }
}

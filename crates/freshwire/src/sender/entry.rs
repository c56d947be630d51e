//! A sink as its sender sees it.

use std::sync::Arc;

use freshwire_ring::{Meta, Producer, PushError as RingError, Record};

use crate::engine::{EngineHandle, GroupShare};
use crate::error::PushError;
use crate::kernel::direct::Direct;
use crate::sink::handle::Notifier;
use crate::sink::id::{SinkId, StaleSink};
use crate::sink::shared::SinkShared;

/// A sink and the route of its records.
pub(super) struct Entry {
    pub(super) id: SinkId,
    pub(super) shared: Arc<SinkShared>,
    pub(super) route: Route,
}

/// Where a sink's records go.
pub(super) enum Route {
    /// An engine serves the region's ring.
    Engine(EngineSinkId),
    /// The records are in the kernel's own ring.
    Kernel(Box<Direct>),
    /// An A1 node serves the region's ring.
    Node(Box<dyn Notifier>),
}

/// A sink of an engine.
#[derive(Clone, Copy)]
pub(super) struct EngineSinkId {
    /// The engine's place in the group.
    pub(super) engine: usize,
    /// The engine's number for the sink.
    pub(super) number: u64,
}

/// Finds a sink.
pub(super) fn find(sinks: &[Option<Entry>], sink: SinkId) -> Result<&Entry, StaleSink> {
    let entry = sinks.get(sink.ring()).and_then(Option::as_ref);
    entry.filter(|entry| entry.id == sink).ok_or(StaleSink(sink))
}

/// Finds a sink, to change it.
pub(super) fn find_mut(sinks: &mut [Option<Entry>], sink: SinkId) -> Result<&mut Entry, StaleSink> {
    let entry = sinks.get_mut(sink.ring()).and_then(Option::as_mut);
    entry.filter(|entry| entry.id == sink).ok_or(StaleSink(sink))
}

impl Entry {
    /// The sink's engine and number, if an engine serves it.
    pub(super) fn engine(&self) -> Option<EngineSinkId> {
        if let Route::Engine(id) = self.route { Some(id) } else { None }
    }

    /// The producer that fills the sink's ring, and the ring's index there. `of_region` is that of the sender's own region.
    pub(super) fn producer<'a>(&'a mut self, of_region: &'a mut Producer) -> (&'a mut Producer, usize) {
        match &mut self.route {
            Route::Kernel(direct) => (&mut direct.producer, 0),
            Route::Engine(_) | Route::Node(_) => (of_region, self.id.ring()),
        }
    }

    /// As [`producer`](Self::producer), to look at the ring.
    pub(super) fn look<'a>(&'a self, of_region: &'a Producer) -> (&'a Producer, usize) {
        match &self.route {
            Route::Kernel(direct) => (&direct.producer, 0),
            Route::Engine(_) | Route::Node(_) => (of_region, self.id.ring()),
        }
    }

    /// Wakes whatever serves the sink. The kernel's ring is notified by the push.
    pub(super) fn wake(&self, engines: Option<&GroupShare>) {
        match &self.route {
            Route::Node(node) => node.notify(),
            Route::Engine(id) => {
                let engine = engines.and_then(|engines| engines.engines().get(id.engine));
                engine.into_iter().for_each(EngineHandle::wake);
            }
            Route::Kernel(_) => {}
        }
    }

    /// Wakes the sink's node, or notes its engine in `to_wake`.
    pub(super) fn wake_later(&self, to_wake: &mut Vec<bool>) {
        match &self.route {
            Route::Node(node) => node.notify(),
            Route::Engine(id) => note_engine(to_wake, id.engine),
            Route::Kernel(_) => {}
        }
    }

    /// Queues a record by `push`. On a full ring, the policy first drops stale records.
    #[inline]
    pub(super) fn push_with<T>(
        &self,
        producer: &mut Producer,
        engines: Option<&GroupShare>,
        len: usize,
        meta: &Meta,
        mut push: impl FnMut(&mut Producer) -> Result<T, RingError>,
    ) -> Result<T, RingError> {
        match push(producer) {
            Err(error) if self.make_room(producer, engines, len, meta, error) => push(producer),
            pushed => pushed,
        }
    }

    /// After a push that found no room: has the policy drop records that have expired or are superseded. Returns `true` if there is
    /// room now.
    #[cold]
    pub(super) fn make_room(
        &self,
        producer: &mut Producer,
        engines: Option<&GroupShare>,
        len: usize,
        meta: &Meta,
        error: RingError,
    ) -> bool {
        if !matches!(error, RingError::Full | RingError::OutOfBlocks) {
            return false;
        }
        let Some(EngineSinkId { engine, number }) = self.engine() else { return false };
        let Some(engine) = engines.and_then(|engines| engines.engines().get(engine)) else { return false };
        let Ok(bytes) = u32::try_from(len) else { return false };
        let mut has_room = || producer.has_room(self.id.ring(), len);
        engine.make_room(number, &Record::of(meta, bytes), &mut has_room);
        has_room()
    }

    /// The error of a push. The record that was not taken has that as its fate.
    #[cold]
    pub(super) fn refused(&mut self, producer: &mut Producer, error: RingError, meta: &Meta) -> PushError {
        let id = self.id;
        if matches!(error, RingError::Full | RingError::OutOfBlocks | RingError::Closed) {
            let (producer, ring) = self.producer(producer);
            producer.note_refused(ring, meta.seq);
        }
        PushError::of(error, id)
    }
}

/// Notes an engine by its place.
pub(super) fn note_engine(to_wake: &mut Vec<bool>, engine: usize) {
    if engine >= to_wake.len() {
        to_wake.resize(engine + 1, false);
    }
    to_wake[engine] = true;
}

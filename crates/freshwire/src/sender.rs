//! Senders: they queue records, and change them until they are committed.

mod entry;
#[cfg(feature = "fanout")]
mod fanout;
mod payload;
mod reserve;

use std::net::TcpStream;
use std::sync::Arc;

use freshwire_ring::{
    ClaimError, Config, Consumer, Edit, EditError, Fate, Meta, Producer, PushError as RingError, Pushed,
    Region, Replaced,
};

use self::entry::{EngineSinkId, Entry, Route, find, find_mut};
use self::payload::Payload;
use crate::datagram::path::DatagramPath;
use crate::engine::{EngineGroup, EngineHandle, GroupShare, NewSink};
pub use crate::error::{ModifyError, PushError, SenderError};
use crate::sink::config::SinkConfig;
use crate::sink::handle::{Notifier, Sink};
use crate::sink::id::{SinkId, StaleSink};
#[cfg(feature = "fanout")]
use crate::turn::offer::OfferRoom;

/// The application's handle: queues records and, until they are committed, drops, modifies or replaces them.
/// One arena holds the payloads of all sinks.
///
/// Sinks are addressed by their handle: [`Sink::id`]. No call blocks: a full ring is a [`PushError`], and the
/// application waits, drops or replaces.
///
/// The records of a sink with [`CarrierInUse::KernelRing`](crate::sink::CarrierInUse::KernelRing) are in the
/// kernel's ring instead; the calls are the same, and [`region_of`](Self::region_of) returns their place.
pub struct Sender {
    producer: Producer,
    engines: Option<GroupShare>,
    /// Engines to wake after a push, by place. Kept for its memory.
    to_wake: Vec<bool>,
    /// Rings that were [given back](Self::reuse).
    left: Vec<usize>,
    /// By ring, its sink; the last one, if that has ended and the ring has no other.
    sinks: Vec<Option<Entry>>,
    /// Sinks that missed the payload of the last [`push_to_all`](Self::push_to_all), and why.
    missed: Vec<(SinkId, PushError)>,
    #[cfg(feature = "fanout")]
    buffers: OfferRoom,
}

impl Sender {
    /// Creates the shared memory for `config.rings` sinks. `engines` is an engine's [`EngineHandle`], or an
    /// [`EngineGroup`] over which the sinks are spread.
    ///
    /// # Errors
    ///
    /// [`SenderError::Create`] if the sizes are invalid or the system has too little memory.
    pub fn new(config: &Config, engines: impl Into<EngineGroup>) -> Result<Self, SenderError> {
        Self::over(&Region::create(config)?, engines)
    }

    /// Continues an existing region, for example one whose producer died; its rings keep their ready records.
    ///
    /// # Errors
    ///
    /// [`SenderError::Claim`] if another sender uses the region.
    pub fn over(region: &Region, engines: impl Into<EngineGroup>) -> Result<Self, SenderError> {
        Self::with(region, Some(engines.into()))
    }

    /// Creates the shared memory for `config.rings` sinks that are all [A1 sinks](Self::add_a1_sink).
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn without_engine(config: &Config) -> Result<Self, SenderError> {
        Self::with(&Region::create(config)?, None)
    }

    fn with(region: &Region, engines: Option<EngineGroup>) -> Result<Self, SenderError> {
        let producer = region.producer()?;
        Ok(Self {
            producer,
            engines: engines.map(GroupShare::new),
            to_wake: Vec::new(),
            left: Vec::new(),
            sinks: Vec::new(),
            missed: Vec::new(),
            #[cfg(feature = "fanout")]
            buffers: OfferRoom::default(),
        })
    }

    /// Serves `stream` from a free ring: one [given back](Self::reuse), one never used, or the one whose sink
    /// ended first. Fates of that ring which were not polled are [lost](Self::fates_lost).
    ///
    /// The stream keeps its blocking mode, so a clone of it can read the client's data as before.
    /// `TCP_NODELAY` is set. Nothing else may write to the stream.
    ///
    /// # Errors
    ///
    /// If no ring is free (raise [`rings`](freshwire_ring::Config::rings)), if the ring has too few slots for
    /// [`SinkConfig::keys`], if the socket refuses a setting, or if the requested carrier is unavailable.
    pub fn add_sink(&mut self, stream: TcpStream, config: SinkConfig) -> Result<Sink, SenderError> {
        let (at, place) = self.engines.as_ref().ok_or(SenderError::NoEngine)?.place();
        self.check_keys(&config)?;
        let consumer = self.free_ring()?;
        let ack_fates = config.ack_fates;
        let engine = self.engine(at)?;
        let NewSink { id: number, sink, direct } = engine.admit(stream, consumer, config, place, true)?;
        let by_engine = Route::Engine(EngineSinkId { engine: at, number });
        self.enter(&sink, direct.map_or(by_engine, |direct| Route::Kernel(Box::new(direct))));
        if ack_fates && let Ok(entry) = find_mut(&mut self.sinks, sink.id()) {
            let (producer, ring) = entry.producer(&mut self.producer);
            producer.keep_fates(ring);
        }
        Ok(sink)
    }

    /// Serves a receiver of datagrams from a free ring, as [`add_sink`](Self::add_sink) does over TCP. `config` gives policy, framing,
    /// keys, linger and `departures`; the other settings have no effect. Every piece of the framing has to be whole packets. Fates are complete when the last packet is
    /// handed over, with `departures` when it has left for the device or did not within five seconds. Nothing can be interjected.
    ///
    /// # Errors
    ///
    /// If no ring is free, if the ring has too few slots for [`SinkConfig::keys`], or if the sender has no engine. If `departures` are wanted
    /// of a path that [notes none](DatagramPath::notes_departures).
    pub fn add_datagram_sink(
        &mut self,
        path: Box<dyn DatagramPath>,
        config: SinkConfig,
    ) -> Result<Sink, SenderError> {
        let (at, place) = self.engines.as_ref().ok_or(SenderError::NoEngine)?.place();
        self.check_keys(&config)?;
        if config.departures && !path.notes_departures() {
            return Err(SenderError::NoDepartures("the path over datagrams"));
        }
        let consumer = self.free_ring()?;
        let NewSink { id: number, sink, .. } = self.engine(at)?.add_datagrams(path, consumer, config, place);
        self.enter(&sink, Route::Engine(EngineSinkId { engine: at, number }));
        Ok(sink)
    }

    fn engine(&self, at: usize) -> Result<&EngineHandle, SenderError> {
        let engines = self.engines.as_ref().map(GroupShare::engines);
        engines.and_then(|engines| engines.get(at)).ok_or(SenderError::NoEngine)
    }

    /// The place of the engine that serves a sink, below [`EngineGroup::engines`]; `None` for a sink that no engine serves.
    ///
    /// # Errors
    ///
    /// [`StaleSink`] if the sender does not serve the sink.
    pub fn engine_of(&self, sink: SinkId) -> Result<Option<usize>, StaleSink> {
        Ok(find(&self.sinks, sink)?.engine().map(|id| id.engine))
    }

    fn check_keys(&self, config: &SinkConfig) -> Result<(), SenderError> {
        let slots = self.producer.region().config().slots;
        match config.keys.map(|keys| (keys, Config::slots_for(keys))) {
            Some((keys, needed)) if needed > slots => Err(SenderError::TooFewSlots { keys, slots, needed }),
            _ => Ok(()),
        }
    }

    /// Lets `serve` take a free ring for a sink outside of the engine, and return what wakes whatever serves it.
    pub(crate) fn attach(
        &mut self,
        serve: impl FnOnce(Consumer) -> Result<(Sink, Box<dyn Notifier>), SenderError>,
    ) -> Result<Sink, SenderError> {
        let (sink, notifier) = serve(self.free_ring()?)?;
        self.enter(&sink, Route::Node(notifier));
        Ok(sink)
    }

    /// Notes a new sink, in place of the one that had its ring before.
    fn enter(&mut self, sink: &Sink, route: Route) {
        let id = sink.id();
        self.left.retain(|&ring| ring != id.ring());
        if id.ring() >= self.sinks.len() {
            self.sinks.resize_with(id.ring() + 1, || None);
        }
        self.sinks[id.ring()] = Some(Entry { id, shared: Arc::clone(&sink.shared), route });
    }

    /// A ring for a new sink. It stays free until [`enter`](Self::enter): a caller that fails on the way just drops it.
    fn free_ring(&mut self) -> Result<Consumer, ClaimError> {
        // The engine may need another moment to let go of a ring whose sink was closed just now.
        for at in 0..self.left.len() {
            if let Ok(consumer) = self.used_ring(self.left[at]) {
                return Ok(consumer);
            }
        }
        let rings = self.producer.region().config().rings as usize;
        let mut error = None;
        for ring in (0..rings).filter(|&ring| self.sinks.get(ring).is_none_or(Option::is_none)) {
            match self.producer.region().consumer(ring) {
                Ok(consumer) => return Ok(consumer),
                Err(refused) => error = error.or(Some(refused)),
            }
        }
        let ended_at = |entry: &Entry| Some((entry.shared.ended_at()?, entry.id.ring()));
        let mut ended: Vec<_> = self.sinks.iter().flatten().filter_map(ended_at).collect();
        ended.sort_unstable();
        let reused = ended.into_iter().find_map(|(_, ring)| self.used_ring(ring).ok());
        reused.ok_or(error.unwrap_or(ClaimError::NoSuchRing(rings)))
    }

    /// Resets a ring before reuse: leftovers of the previous sink must not reach the next one.
    fn used_ring(&mut self, ring: usize) -> Result<Consumer, ClaimError> {
        // The first claim proves that no engine serves the ring. The second one reads the ring as it is after the reset.
        drop(self.producer.region().consumer(ring)?);
        self.producer.renew(ring);
        self.producer.region().consumer(ring)
    }

    /// The region, for sharing with a second process by its file descriptor. Rings of sinks with
    /// [`CarrierInUse::KernelRing`](crate::sink::CarrierInUse::KernelRing) are empty there.
    pub fn region(&self) -> &Region {
        self.producer.region()
    }

    /// Wakes the engines that were noted, each once.
    fn wake_noted_engines(&mut self) {
        let Self { to_wake, engines: Some(engines), .. } = self else { return };
        let noted = to_wake.iter_mut().zip(engines.engines());
        noted
            .filter_map(|(noted, engine)| std::mem::take(noted).then_some(engine))
            .for_each(EngineHandle::wake);
    }

    /// Queues a record for a sink and returns its number: [`Meta::seq`], or the next one if that is
    /// [`Meta::NEXT_SEQ`]. Allocates nothing, and makes no system call while the engine is awake. A full ring first
    /// drops the records that the policy calls stale.
    ///
    /// # Errors
    ///
    /// [`PushError::Full`] or [`PushError::OutOfBlocks`] if there is still no space, [`PushError::Closed`]
    /// after the sink's end, [`PushError::TooLarge`] for a record that never fits. The record's fate is then
    /// [`Outcome::Refused`](freshwire_ring::Outcome::Refused). [`PushError::StaleSink`] if another sink has the ring.
    pub fn push(&mut self, sink: SinkId, payload: &[u8], meta: &Meta) -> Result<u64, PushError> {
        self.put(sink, payload.len(), meta, |producer, ring, meta| producer.push(ring, payload, meta))
    }

    /// Puts one record on a sink's ring by `push`, which gets the producer that fills the ring, and the ring's index there.
    #[inline]
    fn put(
        &mut self,
        sink: SinkId,
        len: usize,
        meta: &Meta,
        mut push: impl FnMut(&mut Producer, usize, &Meta) -> Result<Pushed, RingError>,
    ) -> Result<u64, PushError> {
        let Self { producer, engines, sinks, .. } = self;
        let entry = find_mut(sinks, sink)?;
        let meta = &producer.number(meta);
        let pushed = match &mut entry.route {
            // The kernel is notified already.
            Route::Kernel(direct) => {
                direct.put(meta, |producer, meta| push(producer, 0, meta)).map(|_index| false)
            }
            _ => {
                let push = |producer: &mut Producer| push(producer, sink.ring(), meta);
                entry.push_with(producer, engines.as_ref(), len, meta, push).map(|pushed| pushed.notify)
            }
        };
        match pushed {
            Ok(true) => entry.wake(engines.as_ref()),
            Ok(false) => {}
            Err(error) => return Err(entry.refused(producer, error, meta)),
        }
        Ok(meta.seq)
    }

    /// Queues one payload for several sinks, with the same number. It is copied once, and once more into each kernel
    /// ring. Returns the number of sinks that accepted it.
    ///
    /// A sink is skipped if it has ended, if its ring is full of records that the policy still wants, or if its handle
    /// is stale. [`missed`](Self::missed) lists it, and the record's fate there is
    /// [`Outcome::Refused`](freshwire_ring::Outcome::Refused).
    ///
    /// # Errors
    ///
    /// [`PushError::OutOfBlocks`] without a free block in the arena, [`PushError::TooLarge`] for a payload that never
    /// fits. Sinks before the failing one have the record.
    pub fn push_to_all(
        &mut self,
        sinks: impl IntoIterator<Item = SinkId>,
        payload: &[u8],
        meta: &Meta,
    ) -> Result<usize, PushError> {
        self.put_to_all(sinks, Payload::from(payload), meta)
    }

    /// Puts one payload on the rings of several sinks.
    fn put_to_all(
        &mut self,
        sinks: impl IntoIterator<Item = SinkId>,
        mut payload: Payload<'_>,
        meta: &Meta,
    ) -> Result<usize, PushError> {
        let Self { producer, engines, sinks: entries, missed, to_wake, .. } = self;
        let meta = &producer.number(meta);
        let len = payload.len();
        missed.clear();
        let (mut taken, mut result) = (0, Ok(()));
        for sink in sinks {
            let entry = match find_mut(entries, sink) {
                Ok(entry) => entry,
                Err(stale) => {
                    missed.push((sink, stale.into()));
                    continue;
                }
            };
            let pushed = match &mut entry.route {
                Route::Kernel(direct) => {
                    match payload.bytes(producer).and_then(|bytes| direct.push(bytes, meta)) {
                        Err(RingError::OutOfBlocks) => Err(RingError::Full),
                        pushed => pushed.map(|_index| false),
                    }
                }
                _ => {
                    let push = |producer: &mut Producer| payload.push(producer, sink.ring(), meta);
                    entry.push_with(producer, engines.as_ref(), len, meta, push)
                }
            };
            match pushed {
                Ok(asleep) => {
                    taken += 1;
                    if asleep {
                        entry.wake_later(to_wake);
                    }
                }
                Err(error @ (RingError::Full | RingError::Closed)) => {
                    missed.push((sink, entry.refused(producer, error, meta)));
                }
                Err(error) => {
                    result = Err(PushError::of(error, sink));
                    break;
                }
            }
        }
        // One wake-up for all sinks of an engine.
        self.wake_noted_engines();
        result.map(|()| taken)
    }

    /// Sinks that missed the last [`push_to_all`](Self::push_to_all) or [`replace_to_all`](Self::replace_to_all), with the reason.
    pub fn missed(&self) -> &[(SinkId, PushError)] {
        &self.missed
    }

    /// Drops the queued records with this number. Returns `true` if there was one: it is never sent. Returns `false` if
    /// it is too late.
    ///
    /// # Errors
    ///
    /// [`StaleSink`] if the sender does not serve the sink.
    pub fn drop_seq(&mut self, sink: SinkId, seq: u64) -> Result<bool, StaleSink> {
        let (producer, ring) = find_mut(&mut self.sinks, sink)?.producer(&mut self.producer);
        Ok(producer.drop_seq(ring, seq))
    }

    /// Modifies a queued record in place. `change` has exclusive access to it, and the engine skips it
    /// meanwhile.
    ///
    /// # Errors
    ///
    /// [`ModifyError::TooLate`] if the record was committed, dropped, or is held by another party.
    /// [`ModifyError::Invalid`] with the error of `change`; the record then stays queued.
    /// [`ModifyError::StaleSink`] if the sender does not serve the sink.
    pub fn modify(
        &mut self,
        sink: SinkId,
        seq: u64,
        change: impl FnOnce(&mut Edit<'_>) -> Result<(), EditError>,
    ) -> Result<(), ModifyError> {
        let entry = find_mut(&mut self.sinks, sink)?;
        if let Route::Kernel(direct) = &mut entry.route {
            return Ok(direct.modify(seq, change)?);
        }
        if self.producer.modify(sink.ring(), seq, change)? {
            entry.wake(self.engines.as_ref());
        }
        Ok(())
    }

    /// Replaces the newest queued record with the same key; the new value keeps that record's turn. Without
    /// such a record, or with key 0, the record is queued at the end. A ring with [slots for its
    /// keys](freshwire_ring::Config::slots_for) never refuses it.
    ///
    /// # Errors
    ///
    /// As [`push`](Self::push).
    pub fn replace(&mut self, sink: SinkId, payload: &[u8], meta: &Meta) -> Result<Replaced, PushError> {
        let Self { producer, engines, sinks, .. } = self;
        let meta = &producer.number(meta);
        let entry = find_mut(sinks, sink)?;
        let replaced = replace_quietly(entry, producer, engines.as_ref(), payload, meta)?;
        if replaced.pushed().notify {
            entry.wake(engines.as_ref());
        }
        Ok(replaced)
    }

    /// [Replaces](Self::replace) a value in several sinks, with the same number and one wake-up for each engine. Each ring
    /// gets a copy of its own, which the next value may overwrite. Returns the number of sinks that accepted it;
    /// [`missed`](Self::missed) lists the others, as after [`push_to_all`](Self::push_to_all).
    ///
    /// # Errors
    ///
    /// [`PushError::TooLarge`] for a payload that never fits. Sinks before the failing one have the value.
    pub fn replace_to_all(
        &mut self,
        sinks: impl IntoIterator<Item = SinkId>,
        payload: &[u8],
        meta: &Meta,
    ) -> Result<usize, PushError> {
        let Self { producer, engines, sinks: entries, missed, to_wake, .. } = self;
        let meta = &producer.number(meta);
        missed.clear();
        let (mut taken, mut result) = (0, Ok(()));
        for sink in sinks {
            let entry = match find_mut(entries, sink) {
                Ok(entry) => entry,
                Err(stale) => {
                    missed.push((sink, stale.into()));
                    continue;
                }
            };
            match replace_quietly(entry, producer, engines.as_ref(), payload, meta) {
                Ok(replaced) => {
                    taken += 1;
                    if replaced.pushed().notify {
                        entry.wake_later(to_wake);
                    }
                }
                Err(PushError::TooLarge) => {
                    result = Err(PushError::TooLarge);
                    break;
                }
                Err(error) => missed.push((sink, error)),
            }
        }
        self.wake_noted_engines();
        result.map(|()| taken)
    }

    /// Returns the next known fate of a sink's records, each once, including refused records. The order is
    /// that of pushing, except for records that others overtook.
    ///
    /// A program that polls at least once a second loses no fate below
    /// [`MAX_KEPT_FATES`](freshwire_ring::MAX_KEPT_FATES) records a second; [`fates_lost`](Self::fates_lost)
    /// counts the losses.
    ///
    /// # Errors
    ///
    /// [`StaleSink`] if the sender does not serve the sink: fates last until another sink gets the ring.
    pub fn poll_fate(&mut self, sink: SinkId) -> Result<Option<Fate>, StaleSink> {
        let entry = find_mut(&mut self.sinks, sink)?;
        let shared = Arc::clone(&entry.shared);
        let (producer, ring) = entry.producer(&mut self.producer);
        let awaits = producer.awaits_acks(ring);
        let fate = producer.poll_fate_with(ring, || shared.take_late_acks(awaits));
        Ok(fate.map(|fate| shared.complete(fate)))
    }

    /// Iterates over all fates known now; see [`poll_fate`](Self::poll_fate).
    ///
    /// # Errors
    ///
    /// As [`poll_fate`](Self::poll_fate).
    pub fn fates(&mut self, sink: SinkId) -> Result<impl Iterator<Item = Fate> + '_, StaleSink> {
        find(&self.sinks, sink)?;
        Ok(std::iter::from_fn(move || self.poll_fate(sink).ok().flatten()))
    }

    /// Number of fates of a sink that were not polled in time and are lost.
    ///
    /// # Errors
    ///
    /// [`StaleSink`] if the sender does not serve the sink.
    pub fn fates_lost(&self, sink: SinkId) -> Result<u64, StaleSink> {
        let (producer, ring) = find(&self.sinks, sink)?.look(&self.producer);
        Ok(producer.fates_lost(ring))
    }

    /// Number of queued records of a sink: neither committed nor dropped.
    ///
    /// # Errors
    ///
    /// [`StaleSink`] if the sender does not serve the sink.
    pub fn waiting(&self, sink: SinkId) -> Result<usize, StaleSink> {
        let (producer, ring) = find(&self.sinks, sink)?.look(&self.producer);
        Ok(producer.pending(ring))
    }

    /// Returns `true` if a push of `len` bytes would find space now. If there is none, first drops records that the policy
    /// calls stale, as the push would.
    ///
    /// # Errors
    ///
    /// [`StaleSink`] if the sender does not serve the sink.
    pub fn has_room(&mut self, sink: SinkId, len: usize, meta: &Meta) -> Result<bool, StaleSink> {
        let entry = find_mut(&mut self.sinks, sink)?;
        let (producer, ring) = entry.producer(&mut self.producer);
        let has_room = producer.has_room(ring, len);
        Ok(has_room || entry.make_room(&mut self.producer, self.engines.as_ref(), len, meta, RingError::Full))
    }

    /// See [`Producer::backlog`].
    pub(crate) fn backlog(&self, sink: SinkId) -> usize {
        self.producer.backlog(sink.ring())
    }

    /// Wakes the engines, the A1 nodes and the kernel rings, with one system call each.
    pub fn notify(&self) {
        self.engines.iter().flat_map(GroupShare::engines).for_each(EngineHandle::wake);
        for entry in self.sinks.iter().flatten() {
            match &entry.route {
                Route::Kernel(direct) => direct.notify(),
                Route::Node(node) => node.notify(),
                Route::Engine(_) => {}
            }
        }
    }
}

/// Replaces a value that has its number, and wakes nobody.
fn replace_quietly(
    entry: &mut Entry,
    producer: &mut Producer,
    engines: Option<&GroupShare>,
    payload: &[u8],
    meta: &Meta,
) -> Result<Replaced, PushError> {
    let ring = entry.id.ring();
    let replaced = match &mut entry.route {
        Route::Kernel(direct) => direct.replace(payload, meta),
        _ => {
            let replace = |producer: &mut Producer| producer.replace(ring, payload, meta);
            entry.push_with(producer, engines, payload.len(), meta, replace)
        }
    };
    let replaced = replaced.map_err(|error| entry.refused(producer, error, meta))?;
    if let Replaced::InPlace(_) = replaced {
        entry.shared.stats.on_overwritten();
    }
    Ok(replaced)
}

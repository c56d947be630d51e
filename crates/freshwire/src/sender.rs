pub(crate) mod error;
#[cfg(feature = "fanout")]
mod fanout;

use std::net::TcpStream;
use std::sync::Arc;

use freshwire_ring::{
    ClaimError, Config, Consumer, Edit, EditError, Fate, Meta, Producer, PushError as RingError, Record,
    Region, Replaced, Stored,
};

use crate::datagram::path::DatagramPath;
#[cfg(feature = "fanout")]
use crate::engine::offer::OfferRoom;
use crate::engine::{Added, EngineGroup, GroupShare, Handle};
use crate::kernel::direct::Direct;
use crate::sender::error::{ModifyError, PushError, SenderError};
use crate::sink::config::SinkConfig;
use crate::sink::handle::{Call, Sink};
use crate::sink::id::{SinkId, StaleSink};
use crate::sink::shared::SinkShared;

/// The application's handle: queues records and, until they are committed, drops, modifies or replaces them.
/// One arena holds the payloads of all sinks.
///
/// Sinks are addressed by their handle: [`Sink::id`]. No call blocks: a full ring is a [`PushError`], and the
/// application waits, drops or replaces.
///
/// The records of a sink with [`CarrierInUse::KernelRing`](crate::CarrierInUse::KernelRing) are in the
/// kernel's ring instead; the calls are the same, and [`region_of`](Self::region_of) returns their place.
pub struct Sender {
    producer: Producer,
    engines: Option<GroupShare>,
    /// Engines to wake after a push, by place. Kept for its memory.
    called: Vec<bool>,
    /// Rings that were [given back](Self::reuse).
    left: Vec<usize>,
    /// By ring, its sink; the last one, if that has ended and the ring has no other.
    sinks: Vec<Option<Entry>>,
    /// Sinks that missed the payload of the last [`push_to_all`](Self::push_to_all), and why.
    missed: Vec<(SinkId, PushError)>,
    #[cfg(feature = "fanout")]
    buffers: OfferRoom,
}

/// A sink as its sender sees it.
struct Entry {
    id: SinkId,
    shared: Arc<SinkShared>,
    server: ServedBy,
}

/// Where a sink's records go.
enum ServedBy {
    /// An engine serves the region's ring.
    Engine(Numbered),
    /// The records are in the kernel's own ring.
    Direct(Box<Direct>),
    /// An A1 node serves the region's ring.
    Node(Box<dyn Call>),
}

/// A sink of an engine.
#[derive(Clone, Copy)]
struct Numbered {
    /// The engine's place in the group.
    engine: usize,
    /// The engine's number for the sink.
    number: u64,
}

impl Sender {
    /// Creates the shared memory for `config.rings` sinks. `engines` is an engine's [`Handle`](crate::Handle), or an
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
            called: Vec::new(),
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
        let Added { id: number, sink, direct } = engine.admit(stream, consumer, config, place, true)?;
        let by_engine = ServedBy::Engine(Numbered { engine: at, number });
        self.enter(&sink, direct.map_or(by_engine, |direct| ServedBy::Direct(Box::new(direct))));
        if ack_fates {
            let (producer, ring) = self.producer_of(sink.id());
            producer.keep_fates(ring);
        }
        Ok(sink)
    }

    /// Serves a receiver of datagrams from a free ring, as [`add_sink`](Self::add_sink) does over TCP. Of `config`, policy, framing,
    /// keys and linger count; every piece of the framing has to be whole packets. Fates are complete when the last packet is handed
    /// over, and nothing can be interjected.
    ///
    /// # Errors
    ///
    /// If no ring is free, if the ring has too few slots for [`SinkConfig::keys`], or if the sender has no engine.
    pub fn add_datagram_sink(
        &mut self,
        path: Box<dyn DatagramPath>,
        config: SinkConfig,
    ) -> Result<Sink, SenderError> {
        let (at, place) = self.engines.as_ref().ok_or(SenderError::NoEngine)?.place();
        self.check_keys(&config)?;
        let consumer = self.free_ring()?;
        let Added { id: number, sink, .. } = self.engine(at)?.add_datagrams(path, consumer, config, place);
        self.enter(&sink, ServedBy::Engine(Numbered { engine: at, number }));
        Ok(sink)
    }

    fn engine(&self, at: usize) -> Result<&Handle, SenderError> {
        let engines = self.engines.as_ref().map(GroupShare::engines);
        engines.and_then(|engines| engines.get(at)).ok_or(SenderError::NoEngine)
    }

    /// The place of the engine that serves a sink, below [`EngineGroup::engines`]; `None` for a sink that no engine serves.
    ///
    /// # Errors
    ///
    /// [`StaleSink`] if the sender does not serve the sink.
    pub fn engine_of(&self, sink: SinkId) -> Result<Option<usize>, StaleSink> {
        Ok(match self.entry(sink)?.server {
            ServedBy::Engine(Numbered { engine, .. }) => Some(engine),
            ServedBy::Direct(_) | ServedBy::Node(_) => None,
        })
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
        serve: impl FnOnce(Consumer) -> Result<(Sink, Box<dyn Call>), SenderError>,
    ) -> Result<Sink, SenderError> {
        let (sink, caller) = serve(self.free_ring()?)?;
        self.enter(&sink, ServedBy::Node(caller));
        Ok(sink)
    }

    /// Notes a new sink, in place of the one that had its ring before.
    fn enter(&mut self, sink: &Sink, server: ServedBy) {
        let id = sink.id();
        self.left.retain(|&ring| ring != id.ring());
        if id.ring() >= self.sinks.len() {
            self.sinks.resize_with(id.ring() + 1, || None);
        }
        self.sinks[id.ring()] = Some(Entry { id, shared: Arc::clone(&sink.shared), server });
    }

    fn entry(&self, sink: SinkId) -> Result<&Entry, StaleSink> {
        let entry = self.sinks.get(sink.ring()).and_then(Option::as_ref);
        entry.filter(|entry| entry.id == sink).ok_or(StaleSink(sink))
    }

    /// The kernel's ring of this sink, if it has one.
    fn direct(&mut self, sink: SinkId) -> Result<Option<&mut Direct>, StaleSink> {
        let entry = self.sinks.get_mut(sink.ring()).and_then(Option::as_mut);
        let entry = entry.filter(|entry| entry.id == sink).ok_or(StaleSink(sink))?;
        Ok(if let ServedBy::Direct(direct) = &mut entry.server { Some(direct) } else { None })
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

    /// A ring that had a sink, made anew: what somebody wrote into it for that one is not the next one's affair.
    fn used_ring(&mut self, ring: usize) -> Result<Consumer, ClaimError> {
        // Whoever can claim it knows that nobody serves it; who claims it when it is renewed begins with what is right.
        drop(self.producer.region().consumer(ring)?);
        self.producer.renew(ring);
        self.producer.region().consumer(ring)
    }

    /// The region, for sharing with a second process by its file descriptor. Rings of sinks with
    /// [`CarrierInUse::KernelRing`](crate::CarrierInUse::KernelRing) are empty there.
    pub fn region(&self) -> &Region {
        self.producer.region()
    }

    /// The producer that fills the ring of a sink, and the ring's index there.
    fn producer_of(&mut self, sink: SinkId) -> (&mut Producer, usize) {
        match self.sinks.get_mut(sink.ring()) {
            Some(Some(Entry { server: ServedBy::Direct(direct), .. })) => (&mut direct.producer, 0),
            _ => (&mut self.producer, sink.ring()),
        }
    }

    /// Wakes whatever serves this sink.
    fn call(&self, sink: SinkId) {
        match self.entry(sink).map(|entry| &entry.server) {
            Ok(ServedBy::Node(node)) => node.call(),
            Ok(&ServedBy::Engine(Numbered { engine, .. })) => {
                if let Ok(engine) = self.engine(engine) {
                    engine.wake();
                }
            }
            Ok(ServedBy::Direct(_)) | Err(_) => {}
        }
    }

    fn call_engines(&self) {
        self.engines.iter().flat_map(GroupShare::engines).for_each(Handle::wake);
    }

    /// Notes an engine for [`call_noted`](Self::call_noted).
    fn note_call(called: &mut Vec<bool>, engine: usize) {
        if engine >= called.len() {
            called.resize(engine + 1, false);
        }
        called[engine] = true;
    }

    /// Wakes a sink's node, or notes its engine.
    fn call_later(&mut self, sink: SinkId) {
        let Ok(entry) = self.entry(sink) else { return };
        match &entry.server {
            ServedBy::Node(node) => node.call(),
            &ServedBy::Engine(Numbered { engine, .. }) => Self::note_call(&mut self.called, engine),
            ServedBy::Direct(_) => {}
        }
    }

    /// Wakes the engines that were noted, each once.
    fn call_noted(&mut self) {
        let Self { called, engines: Some(engines), .. } = self else { return };
        let noted = called.iter_mut().zip(engines.engines());
        noted.filter_map(|(called, engine)| std::mem::take(called).then_some(engine)).for_each(Handle::wake);
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
        self.entry(sink)?;
        let meta = &self.producer.number(meta);
        if let Some(direct) = self.direct(sink)? {
            let pushed = direct.push(payload, meta);
            return self.checked(sink, meta, pushed).map(|_index| meta.seq);
        }
        let mut pushed = self.producer.push(sink.ring(), payload, meta);
        if self.make_room(sink, payload.len(), meta, pushed.err()) {
            pushed = self.producer.push(sink.ring(), payload, meta);
        }
        if self.checked(sink, meta, pushed)?.notify {
            self.call(sink);
        }
        Ok(meta.seq)
    }

    /// After a push that found no room: has the policy drop what has expired or is superseded. Returns `true` if there is
    /// room now.
    #[cold]
    fn make_room(&mut self, sink: SinkId, len: usize, meta: &Meta, error: Option<RingError>) -> bool {
        if !matches!(error, Some(RingError::Full | RingError::OutOfBlocks)) {
            return false;
        }
        let Ok(&Entry { server: ServedBy::Engine(Numbered { engine, number }), .. }) = self.entry(sink)
        else {
            return false;
        };
        let Self { producer, engines: Some(engines), .. } = self else { return false };
        let Some(engine) = engines.engines().get(engine) else { return false };
        let Ok(bytes) = u32::try_from(len) else { return false };
        let mut has_room = || producer.has_room(sink.ring(), len);
        engine.make_room(number, &Record::of(meta, bytes), &mut has_room);
        has_room()
    }

    /// The result of a push. A record that was not taken has that as its fate.
    #[inline]
    fn checked<T>(
        &mut self,
        sink: SinkId,
        meta: &Meta,
        pushed: Result<T, RingError>,
    ) -> Result<T, PushError> {
        pushed.map_err(|error| {
            self.refused(sink, error, meta);
            PushError::of(error, sink)
        })
    }

    #[cold]
    fn refused(&mut self, sink: SinkId, error: RingError, meta: &Meta) {
        if matches!(error, RingError::Full | RingError::OutOfBlocks | RingError::Closed) {
            let (producer, ring) = self.producer_of(sink);
            producer.note_refused(ring, meta.seq);
        }
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
        let meta = &self.producer.number(meta);
        let mut stored = None;
        self.missed.clear();
        let (mut taken, mut result) = (0, Ok(()));
        for sink in sinks {
            let pushed = match self.direct(sink) {
                Err(stale) => {
                    self.missed.push((sink, stale.into()));
                    continue;
                }
                Ok(Some(direct)) => match direct.push(payload, meta) {
                    Err(RingError::OutOfBlocks) => Err(RingError::Full),
                    pushed => pushed.map(|_| false),
                },
                Ok(None) => match self.push_once(&mut stored, sink.ring(), payload, meta) {
                    Err(error) if self.make_room(sink, payload.len(), meta, Some(error)) => {
                        self.push_once(&mut stored, sink.ring(), payload, meta)
                    }
                    pushed => pushed,
                },
            };
            match pushed {
                Ok(asleep) => {
                    taken += 1;
                    if asleep {
                        self.call_later(sink);
                    }
                }
                Err(error @ (RingError::Full | RingError::Closed)) => {
                    self.missed.push((sink, PushError::of(error, sink)));
                    self.refused(sink, error, meta);
                }
                Err(error) => {
                    result = Err(PushError::of(error, sink));
                    break;
                }
            }
        }
        // One call for all sinks of an engine.
        self.call_noted();
        result.map(|()| taken)
    }

    /// Sinks that missed the last [`push_to_all`](Self::push_to_all) or [`replace_to_all`](Self::replace_to_all), with the reason.
    pub fn missed(&self) -> &[(SinkId, PushError)] {
        &self.missed
    }

    /// Pushes a payload that is stored when the first ring needs it. True: the engine has to be notified.
    fn push_once(
        &mut self,
        stored: &mut Option<Stored>,
        ring: usize,
        payload: &[u8],
        meta: &Meta,
    ) -> Result<bool, RingError> {
        let stored = match stored {
            Some(stored) => stored,
            None => stored.insert(self.producer.store(payload)?),
        };
        self.producer.push_stored(ring, stored, meta).map(|pushed| pushed.notify)
    }

    /// Drops the queued records with this number. Returns `true` if there was one: it is never sent. Returns `false` if
    /// it is too late.
    ///
    /// # Errors
    ///
    /// [`StaleSink`] if the sender does not serve the sink.
    pub fn drop_seq(&mut self, sink: SinkId, seq: u64) -> Result<bool, StaleSink> {
        self.entry(sink)?;
        let (producer, ring) = self.producer_of(sink);
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
        if let Some(direct) = self.direct(sink)? {
            return Ok(direct.modify(seq, change)?);
        }
        if self.producer.modify(sink.ring(), seq, change)? {
            self.call(sink);
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
        let meta = &self.producer.number(meta);
        let replaced = self.replace_quietly(sink, payload, meta)?;
        if replaced.pushed().notify {
            self.call(sink);
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
        let meta = &self.producer.number(meta);
        self.missed.clear();
        let (mut taken, mut result) = (0, Ok(()));
        for sink in sinks {
            match self.replace_quietly(sink, payload, meta) {
                Ok(replaced) => {
                    taken += 1;
                    if replaced.pushed().notify {
                        self.call_later(sink);
                    }
                }
                Err(PushError::TooLarge) => {
                    result = Err(PushError::TooLarge);
                    break;
                }
                Err(error) => self.missed.push((sink, error)),
            }
        }
        self.call_noted();
        result.map(|()| taken)
    }

    /// Replaces a value that has its number, and wakes nobody.
    fn replace_quietly(&mut self, sink: SinkId, payload: &[u8], meta: &Meta) -> Result<Replaced, PushError> {
        self.entry(sink)?;
        let replaced = match self.direct(sink)? {
            Some(direct) => direct.replace(payload, meta),
            None => {
                let mut replaced = self.producer.replace(sink.ring(), payload, meta);
                if self.make_room(sink, payload.len(), meta, replaced.err()) {
                    replaced = self.producer.replace(sink.ring(), payload, meta);
                }
                replaced
            }
        };
        let replaced = self.checked(sink, meta, replaced)?;
        if let Replaced::InPlace(_) = replaced {
            self.entry(sink)?.shared.stats.on_overwritten();
        }
        Ok(replaced)
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
        for (index, at) in self.entry(sink)?.shared.late_acks().take() {
            self.producer.note_acked(sink.ring(), index, at);
        }
        let (producer, ring) = self.producer_of(sink);
        Ok(producer.poll_fate(ring))
    }

    /// Iterates over all fates known now; see [`poll_fate`](Self::poll_fate).
    ///
    /// # Errors
    ///
    /// As [`poll_fate`](Self::poll_fate).
    pub fn fates(&mut self, sink: SinkId) -> Result<impl Iterator<Item = Fate> + '_, StaleSink> {
        self.entry(sink)?;
        Ok(std::iter::from_fn(move || self.poll_fate(sink).ok().flatten()))
    }

    /// Number of fates of a sink that were not polled in time and are lost.
    ///
    /// # Errors
    ///
    /// [`StaleSink`] if the sender does not serve the sink.
    pub fn fates_lost(&self, sink: SinkId) -> Result<u64, StaleSink> {
        Ok(match &self.entry(sink)?.server {
            ServedBy::Direct(direct) => direct.producer.fates_lost(0),
            _ => self.producer.fates_lost(sink.ring()),
        })
    }

    /// Number of queued records of a sink: neither committed nor dropped.
    ///
    /// # Errors
    ///
    /// [`StaleSink`] if the sender does not serve the sink.
    pub fn waiting(&self, sink: SinkId) -> Result<usize, StaleSink> {
        Ok(match &self.entry(sink)?.server {
            ServedBy::Direct(direct) => direct.producer.pending(0),
            _ => self.producer.pending(sink.ring()),
        })
    }

    /// Returns `true` if a push of `len` bytes would find space now. If there is none, first drops records that the policy
    /// calls stale, as the push would.
    ///
    /// # Errors
    ///
    /// [`StaleSink`] if the sender does not serve the sink.
    pub fn has_room(&mut self, sink: SinkId, len: usize, meta: &Meta) -> Result<bool, StaleSink> {
        self.entry(sink)?;
        let (producer, ring) = self.producer_of(sink);
        Ok(producer.has_room(ring, len) || self.make_room(sink, len, meta, Some(RingError::Full)))
    }

    /// See [`Producer::backlog`].
    pub(crate) fn backlog(&self, sink: SinkId) -> usize {
        self.producer.backlog(sink.ring())
    }

    /// Wakes the engines, the A1 nodes and the kernel rings, with one system call each.
    pub fn notify(&self) {
        self.call_engines();
        for entry in self.sinks.iter().flatten() {
            match &entry.server {
                ServedBy::Direct(direct) => direct.notify(),
                ServedBy::Node(node) => node.call(),
                ServedBy::Engine(_) => {}
            }
        }
    }
}

use std::io;
use std::net::TcpStream;
use std::sync::Arc;

use freshwire_ring::{
    ClaimError, Config, Consumer, CreateError, Edit, EditError, Fate, Meta, Producer, PushError, Region,
    Replaced, Stored, TooLate,
};

use crate::a1::{self, Caller};
use crate::carrier::CarrierError;
use crate::datagrams::DatagramPath;
use crate::direct::Direct;
use crate::engine::{AddError, Added, Handle, Offered, Payload};
use crate::record::record_without_place;
use crate::sink::{Sink, SinkConfig, SinkShared};

/// Error of creating a sender or adding a sink.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SenderError {
    /// The shared memory could not be made.
    #[error(transparent)]
    Create(#[from] CreateError),
    /// The region or a ring is in use by another sender or engine.
    #[error(transparent)]
    Claim(#[from] ClaimError),
    /// The socket refuses a setting of the sink.
    #[error("the socket refuses a setting of the sink: {0}")]
    Stream(#[from] io::Error),
    /// The sink cannot have the kernel's ring.
    #[error(transparent)]
    Carrier(#[from] CarrierError),
    /// The sender was made by [`Sender::without_engine`].
    #[error("TCP sinks need an engine, and this sender has none")]
    NoEngine,
    /// The A1 connection has ended.
    #[error("the A1 connection has ended: {0}")]
    ConnectionEnded(String),
    /// The ring cannot take the newest value of each key at any time.
    #[error(
        "{slots} slots are too few for {keys} keys: raise RingConfig::slots to {needed}, or use RingConfig::for_clients"
    )]
    TooFewSlots {
        /// The keys that the sink was said to have.
        keys: u32,
        /// Slots of each ring.
        slots: u32,
        /// Slots that so many keys need.
        needed: u32,
    },
    /// The A1 connection or group has a sink already.
    #[error("the A1 connection or group has a sink already")]
    HasSink,
}

impl From<AddError> for SenderError {
    fn from(error: AddError) -> Self {
        match error {
            AddError::Stream(error) => Self::Stream(error),
            AddError::Carrier(error) => Self::Carrier(error),
        }
    }
}

/// The application's handle: queues records and, until they are committed, drops, modifies or replaces them.
/// One arena holds the payloads of all sinks.
///
/// Sinks are addressed by their ring: [`Sink::ring`]. No call blocks: a full ring is a [`PushError`], and the
/// application waits, drops or replaces.
///
/// The records of a sink with [`CarrierInUse::KernelRing`](crate::CarrierInUse::KernelRing) are in the
/// kernel's ring instead; the calls are the same, and [`region_of`](Self::region_of) returns their place.
pub struct Sender {
    producer: Producer,
    engine: Option<Handle>,
    next_ring: usize,
    /// Rings that were [given back](Self::reuse).
    left: Vec<usize>,
    /// By ring, its sink as the one who serves it sees it; the last one's, where there is none any more.
    sinks: Vec<Option<Arc<SinkShared>>>,
    /// Rings that missed the payload of the last [`push_to_all`](Self::push_to_all), and why.
    missed: Vec<(usize, PushError)>,
    /// By ring, where the engine does not serve it from the region.
    others: Vec<Option<Other>>,
    /// By ring, the number of the sink that the engine serves from it; the last one's, where there is none any more.
    numbers: Vec<Option<u64>>,
    /// Room to look up sinks by their numbers, and for a payload that they get past their rings.
    order: Vec<(u64, usize)>,
    bytes: Payload,
}

/// Largest payload of [`Sender::send_at_once`], in bytes.
pub const MAX_AT_ONCE: u32 = 64 << 10;

/// A sink to which [`Sender::send_at_once`] offers a payload.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The sink's ring.
    pub ring: usize,
    /// The descriptor that the record would have there.
    pub meta: Meta,
    pub(crate) is_sent: bool,
}

impl Target {
    /// A target: the sink with this ring.
    pub fn new(ring: usize, meta: Meta) -> Self {
        Self { ring, meta, is_sent: false }
    }

    /// Returns `true` if [`Sender::send_at_once`] has sent the payload to this sink.
    pub fn is_sent(&self) -> bool {
        self.is_sent
    }
}

/// A ring that is not the engine's.
enum Other {
    /// Its records lie in the kernel's own.
    Direct(Direct),
    /// An A1 node serves it from the region.
    Node(Caller),
}

impl Sender {
    /// Creates the shared memory for `config.rings` sinks.
    ///
    /// # Errors
    ///
    /// [`SenderError::Create`] if the sizes are invalid or the system has too little memory.
    pub fn new(config: &Config, engine: &Handle) -> Result<Self, SenderError> {
        Self::over(&Region::create(config)?, engine)
    }

    /// Continues an existing region, for example one whose producer died; its rings keep their ready records.
    ///
    /// # Errors
    ///
    /// [`SenderError::Claim`] if another sender uses the region.
    pub fn over(region: &Region, engine: &Handle) -> Result<Self, SenderError> {
        Self::with(region, Some(engine.clone()))
    }

    /// Creates the shared memory for `config.rings` sinks that are all [A1 sinks](Sender::add_a1_sink).
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn without_engine(config: &Config) -> Result<Self, SenderError> {
        Self::with(&Region::create(config)?, None)
    }

    fn with(region: &Region, engine: Option<Handle>) -> Result<Self, SenderError> {
        let producer = region.producer()?;
        Ok(Self {
            producer,
            engine,
            next_ring: 0,
            left: Vec::new(),
            sinks: Vec::new(),
            missed: Vec::new(),
            others: Vec::new(),
            numbers: Vec::new(),
            order: Vec::new(),
            bytes: Payload::default(),
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
        let engine = self.engine.clone().ok_or(SenderError::NoEngine)?;
        self.check_keys(&config)?;
        let consumer = self.free_ring()?;
        let ring = consumer.ring();
        let ack_fates = config.ack_fates;
        let Added { id, sink, direct } = engine.admit(stream, consumer, config, true)?;
        let number = direct.is_none().then_some(id);
        self.set_other(ring, direct.map(Other::Direct));
        self.set_sink(ring, &sink);
        if ack_fates {
            let (producer, ring) = self.producer_of(ring);
            producer.keep_fates(ring);
        }
        self.set_number(ring, number);
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
        let engine = self.engine.clone().ok_or(SenderError::NoEngine)?;
        self.check_keys(&config)?;
        let consumer = self.free_ring()?;
        let ring = consumer.ring();
        let Added { id, sink, .. } = engine.add_datagrams(path, consumer, config);
        self.set_other(ring, None);
        self.set_sink(ring, &sink);
        self.set_number(ring, Some(id));
        Ok(sink)
    }

    fn set_number(&mut self, ring: usize, number: Option<u64>) {
        if ring >= self.numbers.len() {
            self.numbers.resize(ring + 1, None);
        }
        self.numbers[ring] = number;
    }

    fn check_keys(&self, config: &SinkConfig) -> Result<(), SenderError> {
        let slots = self.producer.region().config().slots;
        match config.keys.map(|keys| (keys, Config::slots_for(keys))) {
            Some((keys, needed)) if needed > slots => Err(SenderError::TooFewSlots { keys, slots, needed }),
            _ => Ok(()),
        }
    }

    /// Serves the other end of an A1 connection from a free ring. The connection can still receive; closing
    /// the sink closes it.
    ///
    /// # Errors
    ///
    /// If no ring is free, the connection has ended, or it already has a sink.
    pub fn add_a1_sink(
        &mut self,
        connection: &a1::Connection,
        config: a1::SinkConfig,
    ) -> Result<Sink, SenderError> {
        let consumer = self.free_ring()?;
        let ring = consumer.ring();
        let sink = connection.serve(consumer, config).inspect_err(|_| self.left.push(ring))?;
        self.set_other(ring, Some(Other::Node(connection.caller())));
        self.set_sink(ring, &sink);
        Ok(sink)
    }

    /// Serves a multicast group from a free ring. The ring needs space for the records that the group keeps
    /// for repairs; see [`GroupConfig::repair_for`](a1::GroupConfig::repair_for).
    ///
    /// # Errors
    ///
    /// If no ring is free, or the group already has a sink.
    pub fn add_a1_group(&mut self, group: &a1::Group, config: a1::SinkConfig) -> Result<Sink, SenderError> {
        let consumer = self.free_ring()?;
        let ring = consumer.ring();
        let sink = group.serve(consumer, config).inspect_err(|_| self.left.push(ring))?;
        self.set_other(ring, Some(Other::Node(group.caller())));
        self.set_sink(ring, &sink);
        Ok(sink)
    }

    fn set_sink(&mut self, ring: usize, sink: &Sink) {
        if ring >= self.sinks.len() {
            self.sinks.resize(ring + 1, None);
        }
        self.sinks[ring] = Some(Arc::clone(&sink.shared));
    }

    fn set_other(&mut self, ring: usize, other: Option<Other>) {
        if let Some(place) = self.others.get_mut(ring) {
            *place = other;
        } else if other.is_some() {
            self.others.resize_with(ring, || None);
            self.others.push(other);
        }
    }

    fn free_ring(&mut self) -> Result<Consumer, ClaimError> {
        // The engine may need another moment to let go of a ring whose sink was closed just now.
        for at in 0..self.left.len() {
            if let Ok(consumer) = self.used_ring(self.left[at]) {
                self.left.swap_remove(at);
                return Ok(consumer);
            }
        }
        let error = match self.producer.region().consumer(self.next_ring) {
            Ok(consumer) => {
                self.next_ring += 1;
                return Ok(consumer);
            }
            Err(error) => error,
        };
        let has_ended = |ring: &usize| {
            self.sinks.get(*ring).is_some_and(|sink| sink.as_ref().is_some_and(|sink| sink.has_ended()))
        };
        let mut ended: Vec<usize> = (0..self.next_ring).filter(has_ended).collect();
        ended.sort_by_key(|&ring| self.sinks[ring].as_ref().and_then(|sink| sink.ended_at()));
        ended.into_iter().find_map(|ring| self.used_ring(ring).ok()).ok_or(error)
    }

    /// A ring that had a sink, made anew: what somebody wrote into it for that one is not the next one's affair.
    fn used_ring(&mut self, ring: usize) -> Result<Consumer, ClaimError> {
        // Whoever can claim it knows that nobody serves it; who claims it when it is renewed begins with what is right.
        drop(self.producer.region().consumer(ring)?);
        self.producer.renew(ring);
        self.producer.region().consumer(ring)
    }

    /// Marks a ring as reusable once its dropped sink has ended. Optional: rings of ended sinks are reused
    /// when no other is free.
    pub fn reuse(&mut self, ring: usize) {
        if ring < self.next_ring && !self.left.contains(&ring) {
            self.left.push(ring);
        }
    }

    /// The region, for sharing with a second process by its file descriptor. Rings of sinks with
    /// [`CarrierInUse::KernelRing`](crate::CarrierInUse::KernelRing) are empty there.
    pub fn region(&self) -> &Region {
        self.producer.region()
    }

    /// The region of a sink's records, and the ring's index there, for an [`Editor`](freshwire_ring::Editor).
    /// If a call of the editor asks to notify the sender, call [`Sender::notify`].
    pub fn region_of(&self, ring: usize) -> (&Region, usize) {
        match self.others.get(ring) {
            Some(Some(Other::Direct(direct))) => (direct.region(), 0),
            _ => (self.producer.region(), ring),
        }
    }

    fn direct(&mut self, ring: usize) -> Option<&mut Direct> {
        match self.others.get_mut(ring)?.as_mut()? {
            Other::Direct(direct) => Some(direct),
            Other::Node(_) => None,
        }
    }

    /// Who fills this ring, and its number there.
    fn producer_of(&mut self, ring: usize) -> (&mut Producer, usize) {
        match self.others.get_mut(ring) {
            Some(Some(Other::Direct(direct))) => (&mut direct.producer, 0),
            _ => (&mut self.producer, ring),
        }
    }

    /// Calls who serves this ring.
    fn call(&self, ring: usize) {
        match self.others.get(ring) {
            Some(Some(Other::Node(node))) => node.call(),
            _ => self.call_engine(),
        }
    }

    fn call_engine(&self) {
        if let Some(engine) = &self.engine {
            engine.wake();
        }
    }

    /// Queues a record for a sink and returns its index in the ring. Allocates nothing, and makes no system
    /// call while the engine is awake. A full ring first drops the records that the policy calls stale.
    ///
    /// # Errors
    ///
    /// [`PushError::Full`] or [`PushError::OutOfBlocks`] if there is still no space, [`PushError::Closed`]
    /// after the sink's end, [`PushError::TooLarge`] for a record that never fits. The record's fate is then
    /// [`Outcome::Refused`](freshwire_ring::Outcome::Refused).
    pub fn push(&mut self, ring: usize, payload: &[u8], meta: &Meta) -> Result<u64, PushError> {
        if let Some(direct) = self.direct(ring) {
            return direct.push(payload, meta).inspect_err(|error| self.refused(ring, *error, meta));
        }
        let mut pushed = self.producer.push(ring, payload, meta);
        if self.make_room(ring, payload, meta, pushed.err()) {
            pushed = self.producer.push(ring, payload, meta);
        }
        let pushed = pushed.inspect_err(|error| self.refused(ring, *error, meta))?;
        if pushed.notify {
            self.call(ring);
        }
        Ok(pushed.index)
    }

    /// After a push that found no room: has the policy drop what has expired or is superseded. True: there is room now.
    #[cold]
    fn make_room(&mut self, ring: usize, payload: &[u8], meta: &Meta, error: Option<PushError>) -> bool {
        if !matches!(error, Some(PushError::Full | PushError::OutOfBlocks)) {
            return false;
        }
        let Self { producer, engine: Some(engine), numbers, .. } = self else { return false };
        let Some(&Some(id)) = numbers.get(ring) else { return false };
        let Ok(len) = u32::try_from(payload.len()) else { return false };
        let mut has_room = || producer.has_room(ring, payload.len());
        engine.make_room(id, &record_without_place(meta, len), &mut has_room);
        has_room()
    }

    /// A record was not taken: that is its fate.
    #[cold]
    fn refused(&mut self, ring: usize, error: PushError, meta: &Meta) {
        if matches!(error, PushError::Full | PushError::OutOfBlocks | PushError::Closed) {
            let (producer, ring) = self.producer_of(ring);
            producer.note_refused(ring, meta.user_seq);
        }
    }

    /// Queues one payload for several sinks. It is copied once, and once more into each kernel ring. Returns
    /// the number of rings that accepted it.
    ///
    /// A closed ring, or one full of records that the policy still wants, is skipped:
    /// [`missed`](Self::missed) lists it, and the record's fate there is
    /// [`Outcome::Refused`](freshwire_ring::Outcome::Refused).
    ///
    /// # Errors
    ///
    /// Stops at the first ring with another error: no free block in the arena, a payload that never fits, or
    /// a ring that does not exist.
    pub fn push_to_all(
        &mut self,
        rings: impl IntoIterator<Item = usize>,
        payload: &[u8],
        meta: &Meta,
    ) -> Result<usize, PushError> {
        let mut stored = None;
        self.missed.clear();
        let (mut taken, mut notify, mut result) = (0, false, Ok(()));
        for ring in rings {
            let pushed = match self.direct(ring) {
                Some(direct) => match direct.push(payload, meta) {
                    Err(PushError::OutOfBlocks) => Err(PushError::Full),
                    pushed => pushed.map(|_| false),
                },
                None => match self.push_once(&mut stored, ring, payload, meta) {
                    Err(error) if self.make_room(ring, payload, meta, Some(error)) => {
                        self.push_once(&mut stored, ring, payload, meta)
                    }
                    pushed => pushed,
                },
            };
            match pushed {
                Ok(asleep) => {
                    taken += 1;
                    match self.others.get(ring) {
                        Some(Some(_)) if asleep => self.call(ring),
                        _ => notify |= asleep,
                    }
                }
                Err(error @ (PushError::Full | PushError::Closed)) => {
                    self.missed.push((ring, error));
                    self.refused(ring, error, meta);
                }
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        // One call for all sinks of the engine.
        if notify {
            self.call_engine();
        }
        result.map(|()| taken)
    }

    /// Rings that skipped the last [`push_to_all`](Self::push_to_all), with the reason.
    pub fn missed(&self) -> &[(usize, PushError)] {
        &self.missed
    }

    /// Sends a stored payload directly to the sinks for which it would be the next record on the wire:
    /// nothing is queued or half sent, the path has shown no limit recently, and the policy agrees.
    /// [`Target::is_sent`] reports the result; [push](Producer::push_stored) the payload to the others. For
    /// receivers that keep up this is much cheaper than their rings.
    ///
    /// Such a record has no fate and can be neither dropped nor changed. The call takes as long as the
    /// writes. It sends nothing while the engine is at work, above [`MAX_AT_ONCE`] bytes, or to a sink that
    /// reports [acknowledgements](SinkConfig::ack_fates), encrypts, has a framing that can abandon records,
    /// or is not plain TCP.
    ///
    /// # Errors
    ///
    /// [`PushError::ForeignPayload`] if another producer stored the payload.
    pub fn send_at_once(&mut self, payload: &Stored, targets: &mut [Target]) -> Result<(), PushError> {
        let Self { producer, engine, numbers, order, bytes, .. } = self;
        let Some(engine) = engine.as_ref().filter(|_| payload.len() <= MAX_AT_ONCE) else { return Ok(()) };
        producer.read_stored(payload, bytes.renew())?;
        in_order(order, numbers, targets.iter().map(|target| target.ring));
        let queue = |target: &Target| producer.push_stored_quiet(target.ring, payload, &target.meta).ok();
        engine.offer(Offered { bytes, targets, order }, queue);
        Ok(())
    }

    /// Serves the sinks of these rings on this thread, after pushes that asked to [notify](Self::notify).
    /// This saves the wake-up of the engine's thread, and takes as long as the writes. If the engine is at
    /// work already, it continues the work. Sinks that the engine does not serve are ignored.
    pub fn serve(&mut self, rings: impl IntoIterator<Item = usize>) {
        let Self { engine: Some(engine), numbers, order, .. } = self else { return };
        in_order(order, numbers, rings);
        if !order.is_empty() {
            engine.serve(order);
        }
    }

    /// Pushes a payload that is stored when the first ring needs it. True: the engine has to be notified.
    fn push_once(
        &mut self,
        stored: &mut Option<Stored>,
        ring: usize,
        payload: &[u8],
        meta: &Meta,
    ) -> Result<bool, PushError> {
        let stored = match stored {
            Some(stored) => stored,
            None => stored.insert(self.producer.store(payload)?),
        };
        self.producer.push_stored(ring, stored, meta).map(|pushed| pushed.notify)
    }

    /// Drops the queued records with this number. Returns the number of slots that they occupied; 0 means too
    /// late. A counted record is never sent.
    pub fn drop_seq(&mut self, ring: usize, user_seq: u64) -> usize {
        if let Some(direct) = self.direct(ring) {
            return direct.producer.drop_seq(0, user_seq);
        }
        self.producer.drop_seq(ring, user_seq)
    }

    /// Modifies a queued record in place. `change` has exclusive access to it, and the engine skips it
    /// meanwhile.
    ///
    /// # Errors
    ///
    /// [`TooLate`] if the record was committed, dropped, or is held by another party.
    pub fn modify(
        &mut self,
        ring: usize,
        user_seq: u64,
        change: impl FnOnce(&mut Edit<'_>) -> Result<(), EditError>,
    ) -> Result<Result<(), EditError>, TooLate> {
        if let Some(direct) = self.direct(ring) {
            return direct.modify(user_seq, change);
        }
        let mut edit = self.producer.edit(ring, user_seq)?;
        let changed = change(&mut edit);
        if edit.release()? {
            self.call(ring);
        }
        Ok(changed)
    }

    /// Replaces the newest queued record with the same key; the new value keeps that record's turn. Without
    /// such a record, or with key 0, the record is queued at the end. A ring with [slots for its
    /// keys](freshwire_ring::Config::slots_for) never refuses it.
    ///
    /// # Errors
    ///
    /// As [`push`](Self::push).
    pub fn replace(&mut self, ring: usize, payload: &[u8], meta: &Meta) -> Result<Replaced, PushError> {
        if let Some(direct) = self.direct(ring) {
            return direct.replace(payload, meta).inspect_err(|error| self.refused(ring, *error, meta));
        }
        let mut replaced = self.producer.replace(ring, payload, meta);
        if self.make_room(ring, payload, meta, replaced.err()) {
            replaced = self.producer.replace(ring, payload, meta);
        }
        let replaced = replaced.inspect_err(|error| self.refused(ring, *error, meta))?;
        if replaced.pushed().notify {
            self.call(ring);
        }
        Ok(replaced)
    }

    /// Returns the next known fate of a ring's records, each once, including refused records. The order is
    /// that of pushing, except for records that others overtook.
    ///
    /// A program that polls at least once a second loses no fate below
    /// [`MAX_KEPT_FATES`](freshwire_ring::MAX_KEPT_FATES) records a second; [`fates_lost`](Self::fates_lost)
    /// counts the losses.
    pub fn poll_fate(&mut self, ring: usize) -> Option<Fate> {
        if let Some(Some(sink)) = self.sinks.get(ring) {
            for (index, at) in sink.late_acks().take() {
                self.producer.note_acked(ring, index, at);
            }
        }
        let (producer, ring) = self.producer_of(ring);
        producer.poll_fate(ring)
    }

    /// Iterates over all fates known now; see [`poll_fate`](Self::poll_fate).
    pub fn fates(&mut self, ring: usize) -> impl Iterator<Item = Fate> + '_ {
        std::iter::from_fn(move || self.poll_fate(ring))
    }

    /// Number of fates of a ring that were not polled in time and are lost.
    pub fn fates_lost(&self, ring: usize) -> u64 {
        match self.others.get(ring) {
            Some(Some(Other::Direct(direct))) => direct.producer.fates_lost(0),
            _ => self.producer.fates_lost(ring),
        }
    }

    /// The underlying producer, for quiet pushes, holding back and queue listings. If a call asks to notify
    /// the sender, call [`Sender::notify`]. It does not fill kernel rings.
    pub fn producer(&mut self) -> &mut Producer {
        &mut self.producer
    }

    /// Wakes the engine, the A1 nodes and the kernel rings, with one system call each.
    pub fn notify(&self) {
        self.call_engine();
        for other in self.others.iter().flatten() {
            match other {
                Other::Direct(direct) => direct.notify(),
                Other::Node(node) => node.call(),
            }
        }
    }
}

/// Fills `order` with the numbers of the sinks that the engine serves from these rings, ascending, each with its ring's place.
fn in_order(order: &mut Vec<(u64, usize)>, numbers: &[Option<u64>], rings: impl IntoIterator<Item = usize>) {
    let number = |(place, ring): (usize, usize)| Some(((*numbers.get(ring)?)?, place));
    order.clear();
    order.extend(rings.into_iter().enumerate().filter_map(number));
    order.sort_unstable();
}

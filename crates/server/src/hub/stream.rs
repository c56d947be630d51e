use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use freshwire::choice::{Adaptive, MAX_RENDITIONS, Why, rendition_of};
use freshwire::fanout::{Producer, RingPushError as PushError, Stored, Target};
use freshwire::ring::Record;
use freshwire::{Meta, Reason, RingConfig, Sender, SenderError, Sink, SinkConfig, SinkId, now};
use freshwire_media::framing::Framer;
use freshwire_media::unit::{Catalog, FIRST_SOUND, Kind, MediaTime, Tracks, Unit};
use freshwire_record::Timestamp;
use tokio::sync::{mpsc, watch};

use super::bundle::{PendingBundle, Unbundler};
use super::error::HubError;
use super::identity::Identity;
use super::renditions::Renditions;
use super::shared::{Shared, lock};
use super::snapshot::{RenditionSnapshot, StreamSnapshot, ViewerSnapshot};
use super::taps::{Tapping, Taps};
use super::unit_info::UnitInfo;
use super::view_request::{RenditionsAsked, ViewRequest, ViewSocket};
use super::viewer_queue::ViewerQueue;
use crate::config::{HubConfig, MAIN};

/// Slots of a viewer's ring: 10 s of video, 6 s with sound, so that what follows a keyframe fits while that is on its way over a slow
/// path. Memory is only touched where a viewer is that far behind.
const SLOTS: u32 = 256;

/// Slots behind which a viewer gets no pictures that nothing depends on. It would hardly get them in time, and one that others
/// depend on costs it all up to the next keyframe if it finds no room.
const FAR_BEHIND: usize = SLOTS as usize / 2;

/// Bytes of a block of the arena. A unit takes one slot for each; with 256 slots it has 8 MiB at most.
const BLOCK_BYTES: u32 = 32 << 10;

/// Units that framings can look up: more than any ring holds.
const CATALOG_UNITS: usize = 1024;

/// Pictures of this layer and above have nothing that depends on them.
const LEAF_LAYER: u8 = 3;

/// How old sound may be when it arrives, besides the grace, where the hub has no latency.
const SOUND_LATENCY: Duration = Duration::from_millis(650);

/// The most by which the capture of a picture is held to lie before that of the newest.
const MAX_REORDER: Duration = Duration::from_secs(1);

/// The longest retransmission timeout: after an outage the path is tried again within a second.
const MAX_RTO: Duration = Duration::from_secs(1);

/// How long a viewer that leaves may take to receive what was begun.
const LINGER: Duration = Duration::from_secs(2);

/// One stream. It outlives its publishers: viewers stay connected while a source is away.
pub struct Stream {
    name: String,
    shared: Arc<Shared>,
    catalog: Arc<Catalog>,
    tracks: watch::Sender<Option<Arc<Tracks>>>,
    counters: Counters,
    is_removed: watch::Sender<bool>,
    state: Mutex<State>,
}

#[derive(Default)]
struct Counters {
    units: AtomicU64,
    bytes: AtomicU64,
    keys: AtomicU64,
    lost: AtomicU64,
    encoder_failures: AtomicU64,
    encoder_hangs: AtomicU64,
}

/// What changes with each unit and each viewer.
struct State {
    sender: Sender,
    queues: Vec<ViewerQueue>,
    /// Those who make other renditions of the main one.
    taps: Taps,
    /// Number of the next sound. Pictures of each rendition count apart, because policies count on pictures without gaps.
    next_sound: u64,
    renditions: Renditions,
    /// Sound that waits for the next picture.
    waiting: PendingBundle,
    /// One for each viewer is made from it.
    policy: Adaptive,
    /// The viewers that want the unit at hand and that this thread can serve, in the order of their queues.
    targets: Vec<Target>,
    /// Those whose engines serve them.
    distant: Vec<Target>,
    /// Sinks that have to be served.
    asleep: Vec<SinkId>,
    /// Sinks whose rings got the unit before.
    queued: Vec<SinkId>,
    /// By how much pictures of each rendition are shown after they are decoded, at most.
    reorder: [Duration; MAX_RENDITIONS],
    wall: Option<(MediaTime, SystemTime)>,
    /// A viewer whose ring gives nothing for this long is given up.
    patience: Duration,
    /// How many were.
    given_up: u64,
    /// Faults of the rings that the log has.
    told_faults: u64,
}

/// The right to feed a stream; dropping it lets another one publish.
pub struct Publisher {
    stream: Arc<Stream>,
    rendition: usize,
}

impl Stream {
    pub(super) fn new(name: &str, shared: Arc<Shared>) -> Result<Self, HubError> {
        let HubConfig { max_viewers, arena_bytes, .. } = shared.config;
        let config = RingConfig {
            rings: u32::try_from(max_viewers).unwrap_or(u32::MAX),
            slots: SLOTS,
            block_bytes: BLOCK_BYTES,
            blocks: u32::try_from(arena_bytes / BLOCK_BYTES as usize).unwrap_or(u32::MAX).max(SLOTS),
        };
        let sender =
            Sender::new(&config, &shared.engines).map_err(|error| HubError::Io(error.to_string()))?;
        let state = State {
            sender,
            queues: Vec::new(),
            taps: Taps::default(),
            next_sound: FIRST_SOUND,
            renditions: Renditions::default(),
            waiting: PendingBundle::default(),
            policy: Adaptive::default(),
            targets: Vec::new(),
            distant: Vec::new(),
            asleep: Vec::new(),
            queued: Vec::new(),
            reorder: [Duration::ZERO; MAX_RENDITIONS],
            wall: None,
            patience: shared.config.stall_timeout,
            given_up: 0,
            told_faults: 0,
        };
        Ok(Self {
            name: name.to_owned(),
            shared,
            catalog: Arc::new(Catalog::new(CATALOG_UNITS)),
            tracks: watch::Sender::new(None),
            counters: Counters::default(),
            is_removed: watch::Sender::new(false),
            state: Mutex::new(state),
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn remove(&self) {
        self.is_removed.send_replace(true);
    }

    /// Becomes `true` once no newcomer finds the stream. A stream of the same name is another one.
    pub fn removed(&self) -> watch::Receiver<bool> {
        self.is_removed.subscribe()
    }

    /// How long a viewer's path may take nothing.
    pub(crate) fn stall_timeout(&self) -> Duration {
        self.shared.config.stall_timeout
    }

    /// What the framing of one viewer looks units up in.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.catalog.for_viewer()
    }

    /// What it consists of; `None` until a source has said so.
    pub fn tracks(&self) -> watch::Receiver<Option<Arc<Tracks>>> {
        self.tracks.subscribe()
    }

    /// Which wall time belongs to which media time, as of the newest keyframe; `None` before the first unit.
    pub fn wall_clock(&self) -> Option<(MediaTime, SystemTime)> {
        lock(&self.state).wall
    }

    /// The right to feed it. `origin` is shown to people. `key_requests` gets a message when a viewer needs a keyframe.
    ///
    /// # Errors
    ///
    /// [`HubError::Busy`] if it has a publisher.
    pub fn publish(
        self: &Arc<Self>,
        origin: &str,
        key_requests: Option<mpsc::Sender<()>>,
    ) -> Result<Publisher, HubError> {
        self.publish_rendition(MAIN, origin, key_requests).map_err(|error| match error {
            HubError::Busy(_) => HubError::Busy(self.name.clone()),
            error => error,
        })
    }

    /// The right to feed the rendition of this name: another coding of the same pictures, at the same time. The
    /// rendition published under the stream's own name is `main`. Each viewer gets one at a time, as its path allows.
    ///
    /// # Errors
    ///
    /// [`HubError::Busy`] if it has a publisher; [`HubError::RenditionName`], [`HubError::TooManyRenditions`].
    pub fn publish_rendition(
        self: &Arc<Self>,
        name: &str,
        origin: &str,
        key_requests: Option<mpsc::Sender<()>>,
    ) -> Result<Publisher, HubError> {
        let published = lock(&self.state).renditions.publish(name, origin, key_requests);
        let rendition = published.map_err(|error| match error {
            HubError::Busy(rendition) => HubError::Busy(format!("{}~{rendition}", self.name)),
            error => error,
        })?;
        Ok(Publisher { stream: Arc::clone(self), rendition })
    }

    /// Serves a viewer until it is to [`leave`](Self::leave).
    pub(super) fn add_viewer(&self, request: ViewRequest) -> Result<(Sink, Arc<Identity>), HubError> {
        let config = &self.shared.config;
        let framer: Box<dyn Framer> = Box::new(Unbundler::new(request.framer, request.catalog));
        let mut state = lock(&self.state);
        let allowed = state.allowed(&request.renditions)?;
        let policy = state.policy.for_another(allowed);
        let selection = Arc::clone(policy.selection());
        let mut sink = SinkConfig::new(policy)
            .framing(framer)
            .seal(request.seal)
            .preface(request.preface)
            .stall_timeout(Some(config.stall_timeout))
            .ack_fates(false)
            .linger(LINGER)
            .max_rto(MAX_RTO);
        sink.congestion.clone_from(&config.congestion);
        let added = match request.socket {
            ViewSocket::Tcp(socket) => state.sender.add_sink(socket, sink),
            ViewSocket::Datagrams(path) => state.sender.add_datagram_sink(path, sink),
        };
        let sink = added.map_err(|error| match error {
            SenderError::Claim(_) => HubError::TooManyViewers(config.max_viewers),
            error => HubError::Io(error.to_string()),
        })?;
        let identity = Arc::new(Identity {
            id: self.shared.next_viewer(),
            protocol: request.protocol,
            peer: request.peer,
            user: request.user,
            since: Instant::now(),
            latency: request.latency,
            monitor: sink.monitor(),
            is_given_up: AtomicBool::new(false),
        });
        let mut queue = ViewerQueue::new(sink.id(), Arc::clone(&identity), request.only, request.latency);
        (queue.allowed, queue.selection) = (allowed, selection);
        state.join(queue, request.join_age.unwrap_or(config.join_age), config);
        Ok((sink, identity))
    }

    /// Gives the units of the main rendition to whoever makes others of it, from the next keyframe until `sink` says that it is gone.
    pub(crate) fn tap(&self, sink: Box<dyn Tapping>) {
        let mut state = lock(&self.state);
        state.taps.add(sink);
        state.renditions.ask_for_key(0);
    }

    /// How many viewers may have other renditions than the main one.
    pub(crate) fn choosing_viewers(&self) -> usize {
        lock(&self.state).queues.iter().filter(|queue| queue.allowed != 1).count()
    }

    /// An encoder of its ladder has ended and is started again; `hangs`: it was ended.
    pub(crate) fn count_encoder_failure(&self, hangs: bool) {
        count(&self.counters.encoder_failures, 1);
        count(&self.counters.encoder_hangs, u64::from(hangs));
    }

    /// How many renditions viewers can have now.
    pub fn present_renditions(&self) -> usize {
        lock(&self.state).renditions.all().iter().filter(|rendition| rendition.is_present).count()
    }

    /// Says that there will be a rendition of this name, so that viewers can ask for it and publishers do not take its place.
    pub(crate) fn expect_rendition(&self, name: &str) -> Result<(), HubError> {
        lock(&self.state).renditions.expect(name)
    }

    /// The same of all that are configured; others are not expected any more.
    pub(crate) fn expect_renditions<'a>(
        &self,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Result<(), HubError> {
        lock(&self.state).renditions.expect_only(names)
    }

    /// Whether a viewer can have these renditions: those that have been published, or are configured.
    ///
    /// # Errors
    ///
    /// [`HubError::NoRendition`].
    pub(crate) fn check_renditions(&self, asked: &RenditionsAsked) -> Result<(), HubError> {
        lock(&self.state).allowed(asked).map(|_| ())
    }

    /// What it has carried.
    pub fn snapshot(&self) -> StreamSnapshot {
        let mut state = lock(&self.state);
        let producer = state.sender.producer();
        let config = producer.region().config();
        let used = u64::from(config.blocks) - producer.free_blocks() as u64;
        let queues: Vec<_> = state.queues.iter().map(ViewerQueue::counts).collect();
        let origin = state.renditions.origin().map(str::to_owned);
        let renditions = state.rendition_snapshots();
        let (ring_faults, given_up) = (state.sender.producer().bad_values(), state.given_up);
        drop(state);
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        StreamSnapshot {
            name: self.name.clone(),
            origin,
            units: load(&self.counters.units),
            bytes: load(&self.counters.bytes),
            keys: load(&self.counters.keys),
            lost: load(&self.counters.lost),
            encoder_failures: load(&self.counters.encoder_failures),
            encoder_hangs: load(&self.counters.encoder_hangs),
            arena_bytes: u64::from(config.blocks) * u64::from(config.block_bytes),
            arena_used: used * u64::from(config.block_bytes),
            ring_faults,
            given_up,
            viewers: queues.iter().map(|queue| queue.snapshot(&renditions)).collect(),
            renditions,
        }
    }

    pub(super) fn leave(&self, id: u64, sink: SinkId) {
        let mut state = lock(&self.state);
        state.queues.retain(|queue| queue.id != id);
        state.sender.reuse(sink);
    }

    /// Offers a viewer nothing any more and drops what is queued for it, or goes on.
    pub(super) fn pause(&self, id: u64, paused: bool) {
        let State { sender, queues, .. } = &mut *lock(&self.state);
        let Some(queue) = queues.iter_mut().find(|queue| queue.id == id) else { return };
        queue.set_paused(paused);
        if paused {
            sender.producer().drop_where(queue.sink.ring(), Reason::Application, |_| true);
        }
    }

    pub(super) fn viewer_snapshot(&self, id: u64) -> Option<ViewerSnapshot> {
        let state = lock(&self.state);
        let counts = state.queues.iter().find(|queue| queue.id == id).map(ViewerQueue::counts)?;
        let renditions = state.rendition_snapshots();
        drop(state);
        Some(counts.snapshot(&renditions))
    }

    fn push(&self, rendition: usize, mut unit: Unit) {
        let mut state = lock(&self.state);
        let at = Instant::now();
        if !state.renditions.take(rendition, &mut unit, at) {
            return;
        }
        self.follow(&mut state, at);
        let has_video = unit.head.tracks.video.is_some();
        let begins = !has_video || (unit.head.key && unit.head.kind == Kind::Video);
        let is_reference = rendition == state.renditions.reference();
        if (begins && is_reference) || state.wall.is_none() {
            state.wall = Some((unit.head.dts, SystemTime::now()));
        }
        let counters = &self.counters;
        count(&counters.units, 1);
        count(&counters.bytes, unit.bytes.len() as u64);
        count(&counters.keys, u64::from(begins && has_video));
        if rendition == 0 {
            state.taps.send(&unit.head, &unit.bytes, begins);
        }
        if has_video && unit.head.kind == Kind::Audio {
            if !state.waiting.add(unit) {
                self.spread_sound(&mut state, FanoutPath::AtOnce);
            }
        } else {
            // One write for both of them: what is on a ring is served after this.
            let has_sound = is_reference && self.spread_sound(&mut state, FanoutPath::Rings);
            let way = if has_sound { FanoutPath::Rings } else { FanoutPath::AtOnce };
            self.spread(
                &mut state,
                TrackRecord { rendition, units: vec![unit], begins, published: now() },
                way,
            );
        }
        state.serve();
    }

    /// Tells policies and viewers of renditions that have come or gone.
    fn follow(&self, state: &mut State, at: Instant) {
        let changes = state.renditions.changes(&self.name, at);
        for &(rendition, is_present) in &changes {
            state.policy.set_present(rendition, is_present);
        }
        if !changes.is_empty() {
            state.leave_absent_renditions();
        }
    }

    /// Offers the sound that waits; whether there was any.
    fn spread_sound(&self, state: &mut State, way: FanoutPath) -> bool {
        let waiting = state.waiting.take();
        let rendition = state.renditions.reference();
        let sound =
            waiting.map(|(units, since)| TrackRecord { rendition, units, begins: false, published: since });
        sound.map(|sound| self.spread(state, sound, way)).is_some()
    }

    /// Offers units of one track in one record.
    fn spread(&self, state: &mut State, spread: TrackRecord, way: FanoutPath) {
        let Some(offer) = state.offer(&spread, &self.shared.config) else { return };
        let units = spread.units;
        let len: usize = units.iter().map(|unit| unit.bytes.len()).sum();
        let record = Record::of(&offer.meta, u32::try_from(len).unwrap_or(u32::MAX));
        state.policy.observe(offer.published, &record);
        let number = units.len() as u64;
        let mut bytes = Vec::new();
        for (seq, unit) in (offer.meta.seq..).zip(units) {
            if bytes.is_empty() {
                bytes = unit.bytes;
            } else {
                bytes.extend(unit.bytes);
            }
            self.catalog.add(seq, Arc::new(unit.head));
        }
        if !state.spread(offer, &bytes, way) {
            count(&self.counters.lost, number);
        }
    }
}

/// Units of one track for one record.
struct TrackRecord {
    /// Whose pictures they are.
    rendition: usize,
    units: Vec<Unit>,
    /// A viewer can begin here.
    begins: bool,
    published: Timestamp,
}

/// How a record gets to those who want it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FanoutPath {
    /// Past the rings of those that keep up.
    AtOnce,
    /// Over all rings.
    Rings,
}

fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

impl State {
    /// Gives the units their numbers and their deadline; `None` without any.
    fn offer(&mut self, spread: &TrackRecord, config: &HubConfig) -> Option<UnitInfo> {
        let &TrackRecord { rendition, ref units, begins, published } = spread;
        let first = units.first()?;
        let kind = first.head.kind;
        let count = units.len() as u64;
        let (seq, refs) = match kind {
            Kind::Video => (self.renditions.number(rendition, count), first.refs),
            Kind::Audio => {
                self.next_sound += count;
                (self.next_sound - count, [0; 2])
            }
        };
        let grace = if begins || kind == Kind::Audio { config.key_grace } else { Duration::ZERO };
        let latency = config.latency.or((kind == Kind::Audio).then_some(SOUND_LATENCY));
        let meta = Meta {
            seq,
            generated: self.captured(rendition, first, published),
            deadline: latency.map_or(Timestamp::MAX, |latency| published + latency + grace),
            layer: first.layer,
            group: first.group,
            refs,
            ..Meta::default()
        };
        let is_leaf = kind == Kind::Audio || first.layer >= LEAF_LAYER;
        Some(UnitInfo { meta, rendition, kind, begins, is_leaf, published, grace })
    }

    /// When a unit was captured, as far as its times tell: the picture that is shown last of those that have come was captured now. B
    /// pictures come after it.
    fn captured(&mut self, rendition: usize, unit: &Unit, published: Timestamp) -> Timestamp {
        let Some(most) = self.reorder.get_mut(rendition).filter(|_| unit.head.kind == Kind::Video) else {
            return published;
        };
        let delay = unit.head.pts.as_nanos().saturating_sub(unit.head.dts.as_nanos());
        let delay = Duration::from_nanos(u64::try_from(delay).unwrap_or(0)).min(MAX_REORDER);
        *most = delay.max(*most);
        published - (*most - delay)
    }

    /// Stores the unit and offers it to every queue. False: the arena has no room for it, and nobody gets it.
    fn spread(&mut self, offer: UnitInfo, bytes: &[u8], way: FanoutPath) -> bool {
        if offer.begins {
            self.renditions.begin_group(offer.rendition);
        }
        let stored = match self.sender.producer().store(bytes) {
            Err(PushError::OutOfBlocks) => {
                self.free_stale();
                self.sender.producer().store(bytes)
            }
            stored => stored,
        };
        let Ok(stored) = stored else {
            self.queues.iter_mut().for_each(|queue| queue.missed(&offer));
            return false;
        };
        self.reclaim();
        let Self { sender, queues, targets, distant, .. } = self;
        targets.clear();
        distant.clear();
        for queue in queues.iter_mut() {
            if queue.wants(&offer) {
                let list = if sender.is_at_home(queue.sink) { &mut *targets } else { &mut *distant };
                list.push(Target::new(queue.sink, queue.meta(&offer)));
            }
        }
        // The other engines work while this thread writes to its own viewers.
        if !distant.is_empty() {
            self.queue(&offer, &stored, |state| &mut state.distant);
            if way == FanoutPath::AtOnce {
                self.serve();
            }
        }
        if way == FanoutPath::AtOnce {
            // Fails only with a payload of another sender.
            let _ = self.sender.send_at_once(&stored, &mut self.targets);
        }
        self.queue(&offer, &stored, |state| &mut state.targets);
        self.tell_faults();
        let is_picture = offer.kind == Kind::Video;
        let rendition = offer.rendition;
        self.renditions.remember(rendition, offer, stored);
        if is_picture && self.queues.iter().any(|queue| queue.waits_for(rendition)) {
            self.renditions.ask_for_key(rendition);
        }
        true
    }

    /// Takes back what the engines are done with. A ring gives it back when it is used again, and those past which units go may not be
    /// for long.
    fn reclaim(&mut self) {
        let producer = self.sender.producer();
        for sink in self.queued.drain(..) {
            while producer.poll_fate(sink.ring()).is_some() {}
        }
    }

    /// Puts the unit on the rings of those targets that have yet to get it.
    fn queue(&mut self, offer: &UnitInfo, stored: &Stored, list: fn(&mut Self) -> &mut Vec<Target>) {
        let targets = std::mem::take(list(self));
        let Self { sender, queues, asleep, queued, patience, given_up, .. } = self;
        let producer = sender.producer();
        let is_dispensable = offer.is_leaf && offer.kind == Kind::Video;
        let mut left = targets.iter().filter(|target| !target.is_sent()).peekable();
        queues.retain_mut(|queue| {
            let Some(target) = left.next_if(|target| target.sink == queue.sink) else { return true };
            if is_dispensable && producer.backlog(queue.sink.ring()) >= FAR_BEHIND {
                queue.missed(offer);
                return true;
            }
            queued.push(queue.sink);
            match offer_to(producer, queue, stored, &target.meta) {
                Ok(true) => asleep.push(queue.sink),
                Ok(false) => {}
                // Only the engine closes a ring; it opens one again that somebody else has closed.
                Err(PushError::Closed) if queue.has_ended() => return false,
                Err(_) => {
                    queue.missed(offer);
                    if queue.is_stuck(*patience) {
                        *given_up += 1;
                        queue.give_up();
                        return false;
                    }
                }
            }
            true
        });
        *list(self) = targets;
    }

    /// Tells of faults in the shared memory, each time that there are twice as many.
    fn tell_faults(&mut self) {
        let faults = self.sender.producer().bad_values();
        if faults > 2 * self.told_faults {
            tracing::warn!(
                faults,
                "another process writes into the memory of a stream; its words were put right"
            );
            self.told_faults = faults;
        }
    }

    /// Serves those whose sinks sleep although something is on their rings: the rings are at hand in this processor, and another thread
    /// would have to wake up first.
    fn serve(&mut self) {
        self.sender.serve(self.asleep.drain(..));
    }

    /// Makes room in the arena: nobody joins with the newest group, and what is stale is dropped for those who have
    /// not been able to take it.
    fn free_stale(&mut self) {
        self.renditions.forget_groups();
        let producer = self.sender.producer();
        for queue in &self.queues {
            drop_stale(producer, queue.sink.ring());
        }
    }

    /// Adds a viewer: with what is there of the newest group if its keyframe is no older than `join_age`, else with the
    /// next keyframe.
    fn join(&mut self, mut queue: ViewerQueue, join_age: Duration, config: &HubConfig) {
        let now = now();
        let rendition = queue.first_rendition(&self.renditions);
        let group = self.renditions.group(rendition);
        let fresh = |(first, _): &&(UnitInfo, Stored)| now.saturating_since(first.published) <= join_age;
        if group.first().is_some_and(fresh) {
            for (offer, stored) in group {
                // What was there before the viewer is late for nobody.
                let meta = queue.meta(offer);
                let latest = now + config.latency.unwrap_or(SOUND_LATENCY);
                let meta = Meta { deadline: meta.deadline.max(latest), ..meta };
                if queue.wants(offer) && offer_to(self.sender.producer(), &queue, stored, &meta).is_err() {
                    queue.missed(offer);
                    break;
                }
            }
            self.sender.notify();
        } else {
            self.renditions.ask_for_key(rendition);
        }
        self.queues.push(queue);
    }

    /// The renditions that a viewer may have who asks for these, as bits.
    fn allowed(&self, asked: &RenditionsAsked) -> Result<u8, HubError> {
        match asked {
            RenditionsAsked::All => Ok(u8::MAX),
            RenditionsAsked::None => Ok(1 << self.renditions.reference()),
            RenditionsAsked::Named(name) => match self.renditions.find(name) {
                Some(index) => Ok(1 << index),
                None => Err(HubError::NoRendition {
                    name: name.clone(),
                    known: self.renditions.all().iter().map(|rendition| rendition.name.clone()).collect(),
                }),
            },
        }
    }

    /// Viewers whose rendition has no source want another one at once: their policy is asked only when something is queued for
    /// them. Where none was left, this happens as soon as one comes back.
    fn leave_absent_renditions(&mut self) {
        let is_present =
            |index: usize| self.renditions.all().get(index).is_some_and(|rendition| rendition.is_present);
        let present = self.renditions.all().iter().enumerate().filter(|(_, rendition)| rendition.is_present);
        let cost = |index: usize| self.policy.cost(index).map_or(u64::MAX, |cost| cost.bytes_per_sec);
        let mut others: Vec<usize> = present.map(|(index, _)| index).collect();
        others.sort_by_key(|&index| cost(index));
        for queue in &self.queues {
            let selected = queue.selection.get();
            let has_lost = selected.current.or(selected.wanted).is_some_and(|index| !is_present(index))
                && !selected.wanted.is_some_and(is_present);
            let other = others.iter().find(|&&index| queue.allowed & 1 << index != 0);
            if let Some(&other) = other.filter(|_| has_lost) {
                queue.selection.want(other, Why::Gone);
            }
        }
    }

    fn rendition_snapshots(&self) -> Vec<RenditionSnapshot> {
        let snapshot = |(index, rendition): (usize, &super::renditions::Rendition)| RenditionSnapshot {
            name: rendition.name.clone(),
            origin: rendition.origin.clone(),
            refused: rendition.refused.clone(),
            is_present: rendition.is_present,
            size: rendition.size(),
            cost: self.policy.cost(index),
        };
        self.renditions.all().iter().enumerate().map(snapshot).collect()
    }
}

/// Puts the unit on the queue's ring; what is stale there gives way. True: the engine has to be woken.
fn offer_to(
    producer: &mut Producer,
    queue: &ViewerQueue,
    stored: &Stored,
    meta: &Meta,
) -> Result<bool, PushError> {
    let mut pushed = producer.push_stored(queue.sink.ring(), stored, meta);
    if pushed == Err(PushError::Full) {
        drop_stale(producer, queue.sink.ring());
        pushed = producer.push_stored(queue.sink.ring(), stored, meta);
    }
    pushed.map(|pushed| pushed.notify)
}

/// Drops what a viewer is better off without: what is past its deadline, and pictures from before the newest keyframe that waits. The
/// policy would decide the same, but is only asked when the path takes something.
fn drop_stale(producer: &Producer, ring: usize) {
    let now = now();
    let mut newest_keys = [0; MAX_RENDITIONS];
    producer.drop_where(ring, Reason::Expired, |record| {
        let key = rendition_of(record.seq).filter(|_| record.refs == [0; 2]);
        if let Some(newest) = key.and_then(|rendition| newest_keys.get_mut(rendition)) {
            *newest = record.seq.max(*newest);
        }
        record.deadline < now
    });
    producer.drop_where(ring, Reason::Superseded, |record| {
        let rendition = rendition_of(record.seq);
        rendition.and_then(|rendition| newest_keys.get(rendition)).is_some_and(|&key| record.seq < key)
    });
}

impl Publisher {
    /// The stream's name, with that of the rendition behind `~` unless it is the main one.
    pub fn name(&self) -> String {
        let state = lock(&self.stream.state);
        match state.renditions.all().get(self.rendition).filter(|_| self.rendition > 0) {
            Some(rendition) => format!("{}~{}", self.stream.name, rendition.name),
            None => self.stream.name.clone(),
        }
    }

    /// The stream that it feeds.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Says what the stream consists of, before the first unit and whenever it changes.
    pub fn tracks(&mut self, tracks: Arc<Tracks>) {
        let Stream { name, state, tracks: said, .. } = &*self.stream;
        let all = lock(state).renditions.declare(name, self.rendition, tracks);
        if let Some(all) = all {
            said.send_replace(Some(all));
        }
    }

    /// Says that the times of its units are those of the stream, because they are made of its units. Those of other sources are joined by
    /// when they come.
    pub fn shares_clock(&mut self) {
        lock(&self.stream.state).renditions.share_clock(self.rendition);
    }

    /// Publishes a unit, and writes it to the viewers where the engine rests. Never waits for a viewer.
    pub fn push(&mut self, unit: Unit) {
        self.stream.push(self.rendition, unit);
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        let mut state = lock(&self.stream.state);
        self.stream.spread_sound(&mut state, FanoutPath::AtOnce);
        state.serve();
        let tracks = state.renditions.leave(self.rendition);
        self.stream.follow(&mut state, Instant::now());
        drop(state);
        if let Some(tracks) = tracks {
            self.stream.tracks.send_replace(Some(tracks));
        }
    }
}

#[cfg(test)]
mod hostile;

#[cfg(test)]
mod tests;

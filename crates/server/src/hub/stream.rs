use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use freshwire::network::NetworkQos;
use freshwire::{Rate, Reason, RingConfig, Sender, SenderError, Sink, SinkConfig, SinkId, now};
use freshwire_media::framing::Framer;
use freshwire_media::unit::{Catalog, Kind, MediaTime, Tracks, Unit};
use tokio::sync::{mpsc, watch};

use super::bundle::Unbundler;
use super::error::HubError;
use super::fanout::{Fanout, FanoutPath, SLOTS, TrackRecord};
use super::identity::Identity;
use super::shared::{Shared, lock};
use super::snapshot::{SourceSnapshot, StreamSnapshot, ViewerSnapshot};
use super::sound::PendingSound;
use super::taps::{TapSink, Taps};
use super::view_request::{RenditionSelection, ViewRequest, ViewSocket};
use super::viewer_queue::ViewerQueue;
use crate::config::{HubConfig, MAIN};

/// Bytes of a block of the arena. A unit takes one slot for each; with 256 slots it has 8 MiB at most.
const BLOCK_BYTES: u32 = 32 << 10;

/// Units that framings can look up: more than any ring holds.
const CATALOG_UNITS: usize = 1024;

/// The longest retransmission timeout: after an outage the path is tried again within a second.
const MAX_RTO: Duration = Duration::from_secs(1);

/// How long a viewer that leaves may take to receive a record in progress.
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
    encoder_failures: AtomicU64,
    encoder_hangs: AtomicU64,
    /// Relays that somebody reads the stream from.
    relays: AtomicU64,
    /// Wishes for it from a source on demand by forwarders, which are no viewers yet.
    wishes: AtomicU64,
}

/// The part that changes with each unit and each viewer.
struct State {
    fanout: Fanout,
    /// Encoders that make other renditions of the main one.
    taps: Taps,
    sound: PendingSound,
    wall: Option<(MediaTime, SystemTime)>,
    /// When pictures were captured that are shown at a media time, where the source says it.
    captured: Option<(MediaTime, SystemTime)>,
    /// What it is read from on demand.
    source: Option<SourceSnapshot>,
    /// When the newest unit came.
    fed: Option<Instant>,
}

impl State {
    /// Publishes the sound that waits. Returns `false` without any.
    fn flush_sound(&mut self, path: FanoutPath) -> bool {
        let Some((units, published)) = self.sound.take() else { return false };
        let rendition = self.fanout.renditions.reference();
        self.fanout.publish(TrackRecord { rendition, units, begins: false, published }, path);
        true
    }
}

/// The demand for a stream.
#[cfg(feature = "moq")]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Demand {
    /// Somebody waits for it, or to know its tracks.
    pub(crate) is_awaited: bool,
    /// How many view it.
    pub(crate) viewers: usize,
    /// The renditions that they have or want.
    pub(crate) used: Vec<String>,
    /// The renditions of which it is known what they need of a path.
    pub(crate) measured: Vec<String>,
}

/// Somebody wants a stream whose source delivers on demand, before they are a viewer of it.
pub(crate) struct Wish(Arc<Stream>);

impl Drop for Wish {
    fn drop(&mut self) {
        self.0.counters.wishes.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Somebody reads a stream from a relay.
#[cfg(feature = "moq")]
pub(crate) struct RelayReader(Arc<Stream>);

#[cfg(feature = "moq")]
impl Drop for RelayReader {
    fn drop(&mut self) {
        self.0.counters.relays.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A rendition that viewers can have.
#[cfg(feature = "moq")]
#[derive(Clone, Debug)]
pub(crate) struct Offer {
    pub(crate) name: String,
    pub(crate) tracks: Arc<Tracks>,
    /// Bits per second, once known.
    pub(crate) rate: Option<u64>,
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
        let catalog = Arc::new(Catalog::new(CATALOG_UNITS));
        let state = State {
            fanout: Fanout::new(sender, Arc::clone(&catalog), Arc::clone(&shared)),
            taps: Taps::default(),
            sound: PendingSound::default(),
            fed: None,
            wall: None,
            captured: None,
            source: None,
        };
        Ok(Self {
            name: name.to_owned(),
            shared,
            catalog,
            tracks: watch::Sender::new(None),
            counters: Counters::default(),
            is_removed: watch::Sender::new(false),
            state: Mutex::new(state),
        })
    }

    /// The service asked of the network for its viewers.
    pub(crate) fn network(&self) -> NetworkQos {
        self.shared.config.network_of(&self.name)
    }

    /// The largest RTP packet of its viewers over RTSP connections, in bytes.
    pub(crate) fn rtp_packet_bytes(&self) -> usize {
        self.shared.config.rtp_packet_bytes
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

    /// [`HubConfig::latency`](super::HubConfig::latency).
    pub(crate) fn latency(&self) -> Option<Duration> {
        self.shared.config.latency
    }

    /// How long a viewer's path may take nothing.
    pub(crate) fn stall_timeout(&self) -> Duration {
        self.shared.config.stall_timeout
    }

    /// The catalog of units for the framing of one viewer.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.catalog.for_viewer()
    }

    /// Its tracks; `None` until a source has declared them.
    pub fn tracks(&self) -> watch::Receiver<Option<Arc<Tracks>>> {
        self.tracks.subscribe()
    }

    /// Which wall time belongs to which media time, as of the newest keyframe; `None` before the first unit.
    pub fn wall_clock(&self) -> Option<(MediaTime, SystemTime)> {
        let state = lock(&self.state);
        state.captured.or(state.wall)
    }

    /// When its newest unit came; `None` before the first.
    pub(crate) fn fed(&self) -> Option<Instant> {
        lock(&self.state).fed
    }

    /// The same for when a picture was captured that is shown at a media time: where pictures are reordered, the ones that come first are
    /// captured first, and shown later.
    pub(crate) fn capture_clock(&self) -> Option<(MediaTime, SystemTime)> {
        let state = lock(&self.state);
        if state.captured.is_some() {
            return state.captured;
        }
        let (media, wall) = state.wall?;
        let reorder = state.fanout.reorder(state.fanout.renditions.reference());
        Some((media, wall.checked_sub(reorder)?))
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
        let published = lock(&self.state).fanout.renditions.publish(name, origin, key_requests);
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
        let allowed = state.fanout.allowed(&request.renditions)?;
        let policy = state.fanout.policy.for_another(allowed).with_aim(request.aim);
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
        sink.network = config.network_of(&self.name);
        let added = match request.socket {
            ViewSocket::Tcp(socket) => state.fanout.sender.add_sink(socket, sink),
            ViewSocket::Datagrams(path) => state.fanout.sender.add_datagram_sink(path, sink),
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
        queue.order = (!request.reorders).then(Box::default);
        state.fanout.join(queue, request.join_age.unwrap_or(config.join_age));
        Ok((sink, identity))
    }

    /// Gives the units of the main rendition to whoever makes others of it, from the next keyframe until `sink` says that it is gone.
    pub(crate) fn tap(&self, sink: Box<dyn TapSink>) {
        let mut state = lock(&self.state);
        state.taps.add(sink);
        state.fanout.renditions.ask_for_key(0);
    }

    /// The names of the renditions that its source can deliver on demand, for which places are kept. Names of an earlier call give theirs up.
    ///
    /// # Errors
    ///
    /// [`HubError::TooManyRenditions`]: the first of them have places.
    #[cfg(feature = "moq")]
    pub(crate) fn offer_renditions(&self, names: &[String]) -> Result<(), HubError> {
        lock(&self.state).fanout.renditions.offer(names)
    }

    /// Says what it is read from on demand, and what that connection does; `None`: it has no such source any more.
    #[cfg(feature = "moq")]
    pub(crate) fn set_source(&self, source: Option<SourceSnapshot>) {
        lock(&self.state).source = source;
    }

    /// The demand for the stream at this moment.
    #[cfg(feature = "moq")]
    pub(crate) fn demand(&self) -> Demand {
        let state = lock(&self.state);
        let used = state.fanout.queues.iter().fold(0, |used, queue| used | queue.uses());
        let mut demand = Demand { viewers: state.fanout.queues.len(), ..Demand::default() };
        let is_wished = self.counters.wishes.load(Ordering::Relaxed) > 0;
        demand.is_awaited = is_wished || (self.tracks.borrow().is_none() && self.tracks.receiver_count() > 0);
        for (index, rendition) in state.fanout.renditions.all().iter().enumerate() {
            if used & 1 << index != 0 {
                demand.used.push(rendition.name.clone());
            }
            if state.fanout.policy.cost(index).is_some() {
                demand.measured.push(rendition.name.clone());
            }
        }
        demand
    }

    /// The renditions that viewers can have now, with their tracks and the bits per second that they need of a path.
    #[cfg(feature = "moq")]
    pub(crate) fn offers(&self) -> Vec<Offer> {
        let state = lock(&self.state);
        let all = state.fanout.renditions.all().iter().enumerate();
        let offers = all.filter(|(_, rendition)| rendition.is_present).filter_map(|(index, rendition)| {
            let tracks = rendition.tracks()?;
            let cost = state.fanout.policy.cost(index);
            let rate = cost.map(|cost| cost.bytes_per_sec.saturating_mul(8));
            Some(Offer { name: rendition.name.clone(), tracks, rate })
        });
        offers.collect()
    }

    /// How many viewers may have other renditions than the main one.
    pub(crate) fn choosing_viewers(&self) -> usize {
        let relays = self.counters.relays.load(Ordering::Relaxed);
        let viewers = lock(&self.state).fanout.queues.iter().filter(|queue| queue.allowed != 1).count();
        viewers.saturating_add(usize::try_from(relays).unwrap_or(usize::MAX))
    }

    /// Wants the stream from a source that delivers on demand, until the guard goes.
    pub(crate) fn wish(self: &Arc<Self>) -> Wish {
        self.counters.wishes.fetch_add(1, Ordering::Relaxed);
        Wish(Arc::clone(self))
    }

    /// Says that somebody reads the stream from a relay, and may choose there, until the guard goes.
    #[cfg(feature = "moq")]
    pub(crate) fn read_from_relay(self: &Arc<Self>) -> RelayReader {
        self.counters.relays.fetch_add(1, Ordering::Relaxed);
        RelayReader(Arc::clone(self))
    }

    /// An encoder of its ladder has ended and is started again; `hangs`: it was ended.
    pub(crate) fn count_encoder_failure(&self, hangs: bool) {
        count(&self.counters.encoder_failures, 1);
        count(&self.counters.encoder_hangs, u64::from(hangs));
    }

    /// How many renditions viewers can have now.
    pub fn present_renditions(&self) -> usize {
        lock(&self.state).fanout.renditions.all().iter().filter(|rendition| rendition.is_present).count()
    }

    /// Says that there will be a rendition of this name, so that viewers can ask for it and publishers do not take its place.
    pub(crate) fn expect_rendition(&self, name: &str) -> Result<(), HubError> {
        lock(&self.state).fanout.renditions.expect(name)
    }

    /// The same of all that are configured; others are not expected any more.
    pub(crate) fn expect_renditions<'a>(
        &self,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Result<(), HubError> {
        lock(&self.state).fanout.renditions.expect_only(names)
    }

    /// Whether a viewer can have these renditions: those that have been published, or are configured.
    ///
    /// # Errors
    ///
    /// [`HubError::NoRendition`].
    pub(crate) fn check_renditions(&self, asked: &RenditionSelection) -> Result<(), HubError> {
        lock(&self.state).fanout.allowed(asked).map(|_| ())
    }

    /// Its counters.
    pub fn snapshot(&self) -> StreamSnapshot {
        let mut state = lock(&self.state);
        let producer = state.fanout.sender.producer();
        let config = producer.region().config();
        let used = u64::from(config.blocks) - producer.free_blocks() as u64;
        let queues: Vec<_> = state.fanout.queues.iter().map(ViewerQueue::counts).collect();
        let origin = state.fanout.renditions.origin().map(str::to_owned);
        let (fed, source) = (state.fed, state.source.clone());
        let renditions = state.fanout.rendition_snapshots();
        let ring_faults = state.fanout.sender.producer().bad_values();
        let (given_up, lost) = (state.fanout.given_up, state.fanout.lost);
        drop(state);
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        StreamSnapshot {
            name: self.name.clone(),
            origin,
            source,
            fed,
            units: load(&self.counters.units),
            bytes: load(&self.counters.bytes),
            keys: load(&self.counters.keys),
            lost,
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
        state.fanout.queues.retain(|queue| queue.id != id);
        state.fanout.sender.reuse(sink);
    }

    /// Offers a viewer nothing any more and drops what is queued for it, or goes on.
    pub(super) fn pause(&self, id: u64, paused: bool) {
        let Fanout { sender, queues, .. } = &mut lock(&self.state).fanout;
        let Some(queue) = queues.iter_mut().find(|queue| queue.id == id) else { return };
        queue.set_paused(paused);
        if paused {
            sender.producer().drop_where(queue.sink.ring(), Reason::Application, |_| true);
        }
    }

    /// Asks for a keyframe of the rendition that a viewer gets.
    pub(super) fn ask_for_key(&self, id: u64) {
        let Fanout { queues, renditions, .. } = &mut lock(&self.state).fanout;
        let selected = queues.iter().find(|queue| queue.id == id).map(|queue| queue.selection.get());
        if let Some(rendition) = selected.and_then(|selected| selected.current.or(selected.wanted)) {
            renditions.ask_for_key(rendition);
        }
    }

    /// The rate of the rendition that needs most of a path, once it is known.
    pub(crate) fn largest_rate(&self) -> Option<Rate> {
        let state = lock(&self.state);
        let count = state.fanout.renditions.all().len();
        let costs = (0..count).filter_map(|index| state.fanout.policy.cost(index));
        costs.map(|cost| cost.bytes_per_sec).max().map(Rate::from_bytes_per_sec)
    }

    pub(super) fn viewer_snapshot(&self, id: u64) -> Option<ViewerSnapshot> {
        let state = lock(&self.state);
        let counts = state.fanout.queues.iter().find(|queue| queue.id == id).map(ViewerQueue::counts)?;
        let renditions = state.fanout.rendition_snapshots();
        drop(state);
        Some(counts.snapshot(&renditions))
    }

    fn push(&self, rendition: usize, mut unit: Unit) {
        let mut state = lock(&self.state);
        let at = Instant::now();
        if !state.fanout.renditions.take(rendition, &mut unit, at) {
            return;
        }
        state.fed = Some(at);
        state.fanout.follow(&self.name, at);
        let has_video = unit.head.tracks.video.is_some();
        let begins = !has_video || (unit.head.key && unit.head.kind == Kind::Video);
        let is_reference = rendition == state.fanout.renditions.reference();
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
            if !state.sound.add(unit) {
                state.flush_sound(FanoutPath::Direct);
            }
        } else {
            // One write for both of them: what is on a ring is served after this.
            let has_sound = is_reference && state.flush_sound(FanoutPath::Rings);
            let path = if has_sound { FanoutPath::Rings } else { FanoutPath::Direct };
            let record = TrackRecord { rendition, units: vec![unit], begins, published: now() };
            state.fanout.publish(record, path);
        }
        state.fanout.serve();
    }
}

fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

impl Publisher {
    /// The stream's name, with that of the rendition behind `~` unless it is the main one.
    pub fn name(&self) -> String {
        let state = lock(&self.stream.state);
        match state.fanout.renditions.all().get(self.rendition).filter(|_| self.rendition > 0) {
            Some(rendition) => format!("{}~{}", self.stream.name, rendition.name),
            None => self.stream.name.clone(),
        }
    }

    /// The stream that it feeds.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Declares the tracks, before the first unit and at each change.
    pub fn tracks(&mut self, tracks: Arc<Tracks>) {
        let Stream { name, state, tracks: said, .. } = &*self.stream;
        let all = lock(state).fanout.renditions.declare(name, self.rendition, tracks);
        if let Some(all) = all {
            said.send_replace(Some(all));
        }
    }

    /// Says that the times of its units are those of the stream, because they are made of its units. Other sources are joined by
    /// when they come.
    pub fn shares_clock(&mut self) {
        lock(&self.stream.state).fanout.renditions.share_clock(self.rendition);
    }

    /// Says that the source rests until a viewer wants this rendition, or that it goes on. Viewers can want it meanwhile.
    pub fn set_idle(&mut self, is_idle: bool) {
        let mut state = lock(&self.stream.state);
        state.fanout.renditions.set_idle(self.rendition, is_idle, Instant::now());
        state.fanout.follow(&self.stream.name, Instant::now());
    }

    /// Says when pictures were captured that are shown at this media time, for a source that knows it. Without it, they are captured
    /// when they come.
    pub fn captured(&mut self, media: MediaTime, at: SystemTime) {
        let mut state = lock(&self.stream.state);
        let offset = state.fanout.renditions.offset_ns(self.rendition);
        let media = MediaTime::from_nanos(media.as_nanos().saturating_add(offset));
        state.captured = Some((media, at));
    }

    /// Publishes a unit, and writes it to the viewers where the engine rests. Never waits for a viewer.
    pub fn push(&mut self, unit: Unit) {
        self.stream.push(self.rendition, unit);
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        let mut state = lock(&self.stream.state);
        state.flush_sound(FanoutPath::Direct);
        state.fanout.serve();
        let tracks = state.fanout.renditions.leave(self.rendition);
        if state.fanout.renditions.origin().is_none() {
            state.captured = None;
        }
        state.fanout.follow(&self.stream.name, Instant::now());
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

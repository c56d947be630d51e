use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use freshwire::choice::{Live, SOUND};
use freshwire::{
    Meta, Producer, PushError, RingConfig, Sender, SenderError, SinkConfig, Stored, Target, choice, now,
    reason, record_without_place,
};
use freshwire_media::framing::Framer;
use freshwire_media::unit::{Catalog, Kind, MediaTime, Tracks, Unit};
use freshwire_units::Timestamp;
use tokio::sync::{mpsc, watch};

use super::bundle::{Unbundler, Waiting};
use super::datagrams::{DatagramSink, Datagrams};
use super::seat::Seat;
use super::viewer::{Identity, SeatCounts, ViewRequest, Viewer, ViewerSnapshot};
use super::{HubConfig, HubError, Shared, lock};

/// Slots of a viewer's ring: 2.5 s of video, 1.3 s with sound. A viewer's memory is mostly this, so more would be dear: where
/// a keyframe takes longer on a slow path, pictures do not fit and are missed.
const SLOTS: u32 = 64;

/// Slots behind which a viewer gets no pictures that nothing depends on. It would hardly get them in time, and one that others
/// depend on costs it all up to the next keyframe if it finds no room.
const FAR_BEHIND: usize = SLOTS as usize / 2;

/// Bytes of a block of the arena. A unit takes one slot for each; with 64 slots it has 2 MiB at most.
const BLOCK_BYTES: u32 = 32 << 10;

/// Units that framings can look up: more than any ring holds.
const CATALOG_UNITS: usize = 1024;

/// Pictures of this layer and above have nothing that depends on them.
const LEAF_LAYER: u8 = 3;

/// A group is kept for those who join up to this age, and up to so many units.
const MAX_JOIN_AGE: Duration = Duration::from_secs(5);
const GROUP_UNITS: usize = 512;

/// Least time between two requests for a keyframe.
const KEY_REQUESTS: Duration = Duration::from_millis(500);

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
    published: AtomicBool,
    counters: Counters,
    state: Mutex<State>,
}

#[derive(Default)]
struct Counters {
    units: AtomicU64,
    bytes: AtomicU64,
    keys: AtomicU64,
    lost: AtomicU64,
}

/// What changes with each unit and each viewer.
struct State {
    sender: Sender,
    seats: Vec<Seat>,
    datagrams: Datagrams,
    /// Numbers of the next units: pictures and sound count apart, because policies count on pictures without gaps.
    next_picture: u64,
    next_sound: u64,
    /// Sound that waits for the next picture.
    waiting: Waiting,
    /// One for each viewer is made from it.
    policy: Live,
    /// The newest group from its keyframe on, for those who join.
    group: Vec<(Offer, Stored)>,
    /// The viewers that want the unit at hand, in the order of their seats.
    targets: Vec<Target>,
    /// Rings of those that have to be served.
    asleep: Vec<usize>,
    /// Rings that got the unit before.
    queued: Vec<usize>,
    origin: Option<String>,
    wall: Option<(MediaTime, SystemTime)>,
    key_requests: Option<mpsc::Sender<()>>,
    key_asked: Option<Instant>,
}

/// A unit as seats see it.
#[derive(Clone)]
pub(super) struct Offer {
    pub(super) meta: Meta,
    pub(super) kind: Kind,
    /// A viewer can begin here.
    pub(super) begins: bool,
    /// Nothing depends on it.
    pub(super) is_leaf: bool,
    /// How much older than others it may be when it arrives.
    pub(super) grace: Duration,
}

/// The right to feed a stream; dropping it lets another one publish.
pub struct Publisher {
    stream: Arc<Stream>,
}

/// What a stream has carried.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StreamSnapshot {
    /// Its name.
    pub name: String,
    /// Where it comes from, `None` while nobody publishes.
    pub origin: Option<String>,
    /// Units published.
    pub units: u64,
    /// Payload bytes published.
    pub bytes: u64,
    /// Keyframes published.
    pub keys: u64,
    /// Units that found no room in the arena; nobody got them.
    pub lost: u64,
    /// Bytes of the arena.
    pub arena_bytes: u64,
    /// Bytes of the arena in use, those of finished units that were not collected yet among them.
    pub arena_used: u64,
    /// Its viewers over TCP.
    pub viewers: Vec<ViewerSnapshot>,
    /// Its viewers over datagrams.
    pub datagram_viewers: usize,
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
        let sender = Sender::new(&config, &shared.engine).map_err(|error| HubError::Io(error.to_string()))?;
        let state = State {
            sender,
            seats: Vec::new(),
            datagrams: Datagrams::default(),
            next_picture: 1,
            next_sound: SOUND,
            waiting: Waiting::default(),
            policy: choice::live(),
            group: Vec::new(),
            targets: Vec::new(),
            asleep: Vec::new(),
            queued: Vec::new(),
            origin: None,
            wall: None,
            key_requests: None,
            key_asked: None,
        };
        Ok(Self {
            name: name.to_owned(),
            shared,
            catalog: Arc::new(Catalog::new(CATALOG_UNITS)),
            tracks: watch::Sender::new(None),
            published: AtomicBool::new(false),
            counters: Counters::default(),
            state: Mutex::new(state),
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What its framings look units up in.
    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
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
    pub fn publish(
        self: &Arc<Self>,
        origin: &str,
        key_requests: Option<mpsc::Sender<()>>,
    ) -> Result<Publisher, HubError> {
        if self.published.swap(true, Ordering::AcqRel) {
            return Err(HubError::Busy(self.name.clone()));
        }
        let mut state = lock(&self.state);
        state.origin = Some(origin.to_owned());
        state.key_requests = key_requests;
        Ok(Publisher { stream: Arc::clone(self) })
    }

    /// Serves a viewer from now on.
    pub fn view(self: &Arc<Self>, request: ViewRequest) -> Result<Viewer, HubError> {
        let config = &self.shared.config;
        let framer: Box<dyn Framer> = Box::new(Unbundler::new(request.framer, Arc::clone(&self.catalog)));
        let mut state = lock(&self.state);
        let mut sink = SinkConfig::new(state.policy.for_another())
            .framing(framer)
            .seal(request.seal)
            .preface(request.preface)
            .stall_timeout(Some(config.stall_timeout))
            .ack_fates(false)
            .linger(LINGER)
            .max_rto(MAX_RTO);
        sink.congestion.clone_from(&config.congestion);
        let sink = state.sender.add_sink(request.socket, sink).map_err(|error| match error {
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
        });
        let seat = Seat::new(sink.ring(), Arc::clone(&identity), request.only, request.latency);
        state.join(seat, request.join_age.unwrap_or(config.join_age), config);
        Ok(Viewer { sink, stream: Arc::clone(self), identity })
    }

    /// Serves a viewer over datagrams, from the next keyframe until its sink says that it is gone.
    pub fn view_datagrams(&self, sink: Box<dyn DatagramSink>) -> Result<(), HubError> {
        let limit = self.shared.config.max_viewers;
        let mut state = lock(&self.state);
        if state.datagrams.len() >= limit {
            return Err(HubError::TooManyViewers(limit));
        }
        state.datagrams.add(sink);
        state.ask_for_key();
        Ok(())
    }

    /// What it has carried.
    pub fn snapshot(&self) -> StreamSnapshot {
        let mut state = lock(&self.state);
        let producer = state.sender.producer();
        let config = producer.region().config();
        let used = u64::from(config.blocks) - producer.free_blocks() as u64;
        let seats: Vec<_> = state.seats.iter().map(Seat::counts).collect();
        let (origin, datagram_viewers) = (state.origin.clone(), state.datagrams.len());
        drop(state);
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        StreamSnapshot {
            name: self.name.clone(),
            origin,
            units: load(&self.counters.units),
            bytes: load(&self.counters.bytes),
            keys: load(&self.counters.keys),
            lost: load(&self.counters.lost),
            arena_bytes: u64::from(config.blocks) * u64::from(config.block_bytes),
            arena_used: used * u64::from(config.block_bytes),
            viewers: seats.iter().map(SeatCounts::snapshot).collect(),
            datagram_viewers,
        }
    }

    pub(super) fn leave(&self, id: u64, ring: usize) {
        let mut state = lock(&self.state);
        state.seats.retain(|seat| seat.id != id);
        state.sender.reuse(ring);
    }

    /// Offers a viewer nothing any more and drops what is queued for it, or goes on.
    pub(super) fn pause(&self, id: u64, paused: bool) {
        let State { sender, seats, .. } = &mut *lock(&self.state);
        let Some(seat) = seats.iter_mut().find(|seat| seat.id == id) else { return };
        seat.set_paused(paused);
        if paused {
            sender.producer().drop_where(seat.ring, reason::APPLICATION, |_| true);
        }
    }

    pub(super) fn counts(&self, id: u64) -> Option<SeatCounts> {
        lock(&self.state).seats.iter().find(|seat| seat.id == id).map(Seat::counts)
    }

    fn push(&self, unit: Unit) {
        let has_video = unit.head.tracks.video.is_some();
        let begins = !has_video || (unit.head.key && unit.head.kind == Kind::Video);
        let mut state = lock(&self.state);
        if begins || state.wall.is_none() {
            state.wall = Some((unit.head.dts, SystemTime::now()));
        }
        let counters = &self.counters;
        count(&counters.units, 1);
        count(&counters.bytes, unit.bytes.len() as u64);
        count(&counters.keys, u64::from(begins && has_video));
        state.datagrams.send(&unit.head, &unit.bytes, begins);
        if has_video && unit.head.kind == Kind::Audio {
            if !state.waiting.add(unit) {
                self.spread_sound(&mut state, Way::AtOnce);
            }
        } else {
            // One write for both of them: what is on a ring is served after this.
            let has_sound = self.spread_sound(&mut state, Way::Rings);
            let way = if has_sound { Way::Rings } else { Way::AtOnce };
            self.spread(&mut state, Spread { units: vec![unit], begins, generated: now() }, way);
        }
        state.serve();
    }

    /// Offers the sound that waits; whether there was any.
    fn spread_sound(&self, state: &mut State, way: Way) -> bool {
        let waiting = state.waiting.take();
        let sound = waiting.map(|(units, since)| Spread { units, begins: false, generated: since });
        sound.map(|sound| self.spread(state, sound, way)).is_some()
    }

    /// Offers units of one track in one record.
    fn spread(&self, state: &mut State, spread: Spread, way: Way) {
        let Some(offer) = state.offer(&spread, &self.shared.config) else { return };
        let units = spread.units;
        let len: usize = units.iter().map(|unit| unit.bytes.len()).sum();
        state.policy.observe(&record_without_place(&offer.meta, u32::try_from(len).unwrap_or(u32::MAX)));
        let number = units.len() as u64;
        let mut bytes = Vec::new();
        for (seq, unit) in (offer.meta.user_seq..).zip(units) {
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
struct Spread {
    units: Vec<Unit>,
    /// A viewer can begin here.
    begins: bool,
    generated: Timestamp,
}

/// How a record gets to those who want it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
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
    fn offer(&mut self, spread: &Spread, config: &HubConfig) -> Option<Offer> {
        let &Spread { ref units, begins, generated } = spread;
        let first = units.first()?;
        let kind = first.head.kind;
        let (next, refs) = match kind {
            Kind::Video => (&mut self.next_picture, first.refs),
            Kind::Audio => (&mut self.next_sound, [0; 2]),
        };
        let seq = *next;
        *next += units.len() as u64;
        let grace = if begins || kind == Kind::Audio { config.key_grace } else { Duration::ZERO };
        let meta = Meta {
            user_seq: seq,
            generated,
            deadline: generated + config.latency + grace,
            layer: first.layer,
            group: first.group,
            refs,
            ..Meta::default()
        };
        let is_leaf = kind == Kind::Audio || first.layer >= LEAF_LAYER;
        Some(Offer { meta, kind, begins, is_leaf, grace })
    }

    /// Stores the unit and offers it to every seat. False: the arena has no room for it, and nobody gets it.
    fn spread(&mut self, offer: Offer, bytes: &[u8], way: Way) -> bool {
        if offer.begins {
            self.group.clear();
        }
        let stored = match self.sender.producer().store(bytes) {
            Err(PushError::OutOfBlocks) => {
                self.free_stale();
                self.sender.producer().store(bytes)
            }
            stored => stored,
        };
        let Ok(stored) = stored else {
            self.seats.iter_mut().for_each(|seat| seat.missed(&offer));
            return false;
        };
        let Self { sender, seats, targets, .. } = self;
        targets.clear();
        for seat in seats.iter_mut() {
            if seat.wants(&offer) {
                targets.push(Target::new(seat.ring, seat.meta(&offer)));
            }
        }
        if way == Way::AtOnce {
            // Fails only with a payload of another sender.
            let _ = sender.send_at_once(&stored, targets);
        }
        self.queue(&offer, &stored);
        self.remember(offer, stored);
        if self.seats.iter().any(Seat::waits) {
            self.ask_for_key();
        }
        true
    }

    /// Puts the unit on the rings of those who have yet to get it.
    fn queue(&mut self, offer: &Offer, stored: &Stored) {
        let Self { sender, seats, targets, asleep, queued, .. } = self;
        let producer = sender.producer();
        // A ring gives back what it is done with when it is used again, and those past which units go may not be for long.
        for ring in queued.drain(..) {
            while producer.poll_fate(ring).is_some() {}
        }
        let is_dispensable = offer.is_leaf && offer.kind == Kind::Video;
        let mut left = targets.iter().filter(|target| !target.is_sent()).peekable();
        seats.retain_mut(|seat| {
            let Some(target) = left.next_if(|target| target.ring == seat.ring) else { return true };
            if is_dispensable && producer.backlog(seat.ring) >= FAR_BEHIND {
                seat.missed(offer);
                return true;
            }
            queued.push(seat.ring);
            match offer_to(producer, seat, stored, &target.meta) {
                Ok(true) => asleep.push(seat.ring),
                Ok(false) => {}
                Err(PushError::Closed) => return false,
                Err(_) => seat.missed(offer),
            }
            true
        });
    }

    /// Serves those whose sinks sleep although something is on their rings: the rings are at hand in this processor, and another thread
    /// would have to wake up first.
    fn serve(&mut self) {
        self.sender.serve(self.asleep.drain(..));
    }

    /// Keeps the unit for those who join, as long as its group is young enough for that.
    fn remember(&mut self, offer: Offer, stored: Stored) {
        let age = |(first, _): &(Offer, Stored)| offer.meta.generated.saturating_since(first.meta.generated);
        let is_old = self.group.first().map(age).is_some_and(|age| age > MAX_JOIN_AGE);
        if is_old || self.group.len() >= GROUP_UNITS {
            self.group.clear();
        } else if offer.begins || !self.group.is_empty() {
            self.group.push((offer, stored));
        }
    }

    /// Makes room in the arena: nobody joins with the newest group, and what is stale is dropped for those who have
    /// not been able to take it.
    fn free_stale(&mut self) {
        self.group.clear();
        let now = now();
        let producer = self.sender.producer();
        for seat in &self.seats {
            producer.drop_where(seat.ring, reason::EXPIRED, |record| record.deadline < now);
        }
    }

    /// Seats a viewer: with what is there of the newest group if its keyframe is no older than `join_age`, else with the
    /// next keyframe.
    fn join(&mut self, mut seat: Seat, join_age: Duration, config: &HubConfig) {
        let now = now();
        let fresh = |(first, _): &(Offer, Stored)| now.saturating_since(first.meta.generated) <= join_age;
        if self.group.first().is_some_and(fresh) {
            for (offer, stored) in &self.group {
                // What was there before the viewer is late for nobody.
                let meta = seat.meta(offer);
                let meta = Meta { deadline: meta.deadline.max(now + config.latency), ..meta };
                if seat.wants(offer) && offer_to(self.sender.producer(), &seat, stored, &meta).is_err() {
                    seat.missed(offer);
                    break;
                }
            }
            self.sender.notify();
        } else {
            self.ask_for_key();
        }
        self.seats.push(seat);
    }

    fn ask_for_key(&mut self) {
        let Some(requests) = &self.key_requests else { return };
        if self.key_asked.is_none_or(|at| at.elapsed() >= KEY_REQUESTS) {
            self.key_asked = Some(Instant::now());
            // A full channel holds a request already.
            let _ = requests.try_send(());
        }
    }
}

/// Puts the unit on the seat's ring; what is stale there gives way. True: the engine has to be woken.
fn offer_to(producer: &mut Producer, seat: &Seat, stored: &Stored, meta: &Meta) -> Result<bool, PushError> {
    let mut pushed = producer.push_stored(seat.ring, stored, meta);
    if pushed == Err(PushError::Full) {
        let now = now();
        producer.drop_where(seat.ring, reason::EXPIRED, |record| record.deadline < now);
        pushed = producer.push_stored(seat.ring, stored, meta);
    }
    pushed.map(|pushed| pushed.notify)
}

impl Publisher {
    /// Says what the stream consists of, before the first unit and whenever it changes.
    pub fn tracks(&mut self, tracks: Arc<Tracks>) {
        self.stream.tracks.send_replace(Some(tracks));
    }

    /// Publishes a unit, and writes it to the viewers where the engine rests. Never waits for a viewer.
    pub fn push(&mut self, unit: Unit) {
        self.stream.push(unit);
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        let mut state = lock(&self.stream.state);
        self.stream.spread_sound(&mut state, Way::AtOnce);
        state.serve();
        state.origin = None;
        state.key_requests = None;
        state.group.clear();
        drop(state);
        self.stream.published.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use freshwire::Framing;
    use freshwire::choice::{Choice, Decision, LinkView, Outcome, Record};
    use freshwire_media::unit::UnitHead;
    use freshwire_units::Rate;

    use super::*;
    use crate::hub::Hub;

    fn picture(key: bool, len: u32) -> Unit {
        let tracks = Arc::new(Tracks::default());
        let head = UnitHead {
            kind: Kind::Video,
            pts: MediaTime::default(),
            dts: MediaTime::default(),
            duration_ns: 0,
            key,
            len,
            nals: Vec::new(),
            nal_headers: Vec::new(),
            repeat: None,
            tracks,
        };
        let refs = [u32::from(!key), 0];
        Unit { head, layer: u8::from(!key), group: 0, refs, bytes: vec![0; len as usize] }
    }

    /// Pictures that are too large to go past a ring, and small ones after them.
    #[test]
    fn what_a_viewer_has_got_takes_no_room() {
        let hub = Hub::new(HubConfig::default()).unwrap();
        let stream = hub.stream("watched by one").unwrap();
        let mut publisher = stream.publish("test", None).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let peer = socket.peer_addr().unwrap();
        let (mut far, _) = listener.accept().unwrap();
        let reader = std::thread::spawn(move || std::io::copy(&mut far, &mut std::io::sink()));
        let viewer = stream.view(ViewRequest {
            socket,
            preface: Vec::new(),
            framer: Framing::Raw.into(),
            seal: None,
            protocol: "test",
            peer,
            user: None,
            only: None,
            latency: None,
            join_age: None,
        });
        for number in 0..60 {
            publisher.push(picture(true, if number < 30 { 200_000 } else { 1000 }));
            std::thread::sleep(Duration::from_millis(10));
        }
        let until = Instant::now() + Duration::from_secs(5);
        while stream.snapshot().viewers[0].sink.finished < 60 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        let snapshot = stream.snapshot();
        assert_eq!(snapshot.viewers[0].sink.finished, 60, "{:?}", snapshot.viewers[0]);
        // The newest is kept for those who join.
        assert!(snapshot.arena_used <= 4 * u64::from(BLOCK_BYTES), "{} bytes", snapshot.arena_used);
        drop((viewer, publisher));
        let bytes = reader.join().unwrap().unwrap();
        assert_eq!(bytes, 30 * 201_000);
    }

    /// Whether the policy of the first viewer sends the last picture before a keyframe, which that would delay.
    #[test]
    fn the_first_viewer_gets_what_fits_before_the_next_keyframe() {
        let hub = Hub::new(HubConfig::default()).unwrap();
        let stream = hub.stream("watched by nobody").unwrap();
        let mut publisher = stream.publish("test", None).unwrap();
        let pictures = [true, false, false, true, false];
        for key in pictures {
            publisher.push(picture(key, 1000));
            std::thread::sleep(Duration::from_millis(5));
        }
        let state = lock(&stream.state);
        let mut policy = state.policy.for_another();
        let last = state.next_picture;
        let numbered = |seq| Record { refs: [1, 0], layer: 1, ..Record::numbered(seq) };
        policy.outcome(&numbered(last - 1), Outcome::Sent);
        let now = now();
        let record = Record {
            len: 1000,
            generated: now,
            deadline: now + Duration::from_millis(650),
            ..numbered(last)
        };
        // It takes 400 ms.
        let rate = Some(Rate::from_bits_per_sec(20_000));
        let decision = policy.pick(now, &[record], &LinkView { rate, in_flight: 1, ..LinkView::default() });
        assert!(matches!(decision, Decision::Wait(_)), "{decision:?}");
    }
}

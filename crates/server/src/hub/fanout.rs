//! Offers each record of a stream to its viewers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use freshwire::choice::{Adaptive, MAX_RENDITIONS, Why, rendition_of};
use freshwire::fanout::{Producer, RingPushError as PushError, Stored, Target};
use freshwire::ring::Record;
use freshwire::{Meta, Reason, Sender, SinkId, now};
use freshwire_media::unit::{Catalog, FIRST_SOUND, Kind, Unit};
use freshwire_record::Timestamp;

use super::error::HubError;
use super::renditions::{Rendition, Renditions};
use super::shared::Shared;
use super::snapshot::RenditionSnapshot;
use super::unit_info::UnitInfo;
use super::view_request::RenditionSelection;
use super::viewer_queue::ViewerQueue;

/// Slots of a viewer's ring: 10 s of video, 6 s with sound, so that what follows a keyframe fits while that is on its way over a slow
/// path. Memory is only touched where a viewer is that far behind.
pub(super) const SLOTS: u32 = 256;

/// Slots behind which a viewer gets no pictures that nothing depends on. It would hardly get them in time, and one that others
/// depend on costs it all up to the next keyframe if it finds no room.
const FAR_BEHIND: usize = SLOTS as usize / 2;

/// Pictures of this layer and above have nothing that depends on them.
const LEAF_LAYER: u8 = 3;

/// How old sound may be when it arrives, besides the grace, where the hub has no latency.
const SOUND_LATENCY: Duration = Duration::from_millis(650);

/// The most by which the capture of a picture is held to lie before that of the newest.
const MAX_REORDER: Duration = Duration::from_secs(1);

/// The viewers of a stream with the records that they are offered.
pub(super) struct Fanout {
    shared: Arc<Shared>,
    catalog: Arc<Catalog>,
    pub(super) sender: Sender,
    pub(super) queues: Vec<ViewerQueue>,
    /// Number of the next sound. Pictures of each rendition count apart, because policies count on pictures without gaps.
    next_sound: u64,
    pub(super) renditions: Renditions,
    /// One for each viewer is made from it.
    pub(super) policy: Adaptive,
    /// Viewers that want the present record and that this thread can serve, in the order of their queues.
    targets: Vec<Target>,
    /// The same for viewers that other engines serve.
    distant: Vec<Target>,
    /// Sinks that have to be served.
    asleep: Vec<SinkId>,
    /// Sinks whose rings got the unit before.
    queued: Vec<SinkId>,
    /// By how much pictures of each rendition are shown after they are decoded, at most.
    reorder: [Duration; MAX_RENDITIONS],
    /// Viewers that were given up because their rings gave nothing for the stall timeout.
    pub(super) given_up: u64,
    /// Faults of the rings that the log has.
    reported_faults: u64,
    /// Units for which the arena had no room.
    pub(super) lost: u64,
}

/// Units of one track for one record.
pub(super) struct TrackRecord {
    /// Whose pictures they are.
    pub(super) rendition: usize,
    pub(super) units: Vec<Unit>,
    /// A viewer can begin here.
    pub(super) begins: bool,
    pub(super) published: Timestamp,
}

/// How a record reaches its viewers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum FanoutPath {
    /// Past the rings of viewers that keep up.
    Direct,
    /// Over all rings.
    Rings,
}

impl Fanout {
    pub(super) fn new(sender: Sender, catalog: Arc<Catalog>, shared: Arc<Shared>) -> Self {
        Self {
            shared,
            catalog,
            sender,
            queues: Vec::new(),
            next_sound: FIRST_SOUND,
            renditions: Renditions::default(),
            policy: Adaptive::default(),
            targets: Vec::new(),
            distant: Vec::new(),
            asleep: Vec::new(),
            queued: Vec::new(),
            reorder: [Duration::ZERO; MAX_RENDITIONS],
            given_up: 0,
            reported_faults: 0,
            lost: 0,
        }
    }

    /// Notifies policies and viewers of renditions that have come or gone.
    pub(super) fn follow(&mut self, stream: &str, at: Instant) {
        let changes = self.renditions.changes(stream, at);
        for &(rendition, is_present) in &changes {
            self.policy.set_present(rendition, is_present);
        }
        if !changes.is_empty() {
            self.leave_absent_renditions();
        }
    }

    /// Offers units of one track in one record to each viewer that wants it.
    pub(super) fn publish(&mut self, record: TrackRecord, path: FanoutPath) {
        let Some(offer) = self.offer(&record) else { return };
        let units = record.units;
        let len: usize = units.iter().map(|unit| unit.bytes.len()).sum();
        let record = Record::of(&offer.meta, u32::try_from(len).unwrap_or(u32::MAX));
        self.policy.observe(offer.published, &record);
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
        if !self.spread(offer, &bytes, path) {
            self.lost += number;
        }
    }

    /// Gives the units their numbers and their deadline; `None` without any.
    fn offer(&mut self, record: &TrackRecord) -> Option<UnitInfo> {
        let &TrackRecord { rendition, ref units, begins, published } = record;
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
        let config = &self.shared.config;
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
        let shown = first.head.pts;
        Some(UnitInfo { meta, rendition, kind, begins, is_leaf, shown, published, grace })
    }

    /// By how much pictures of a rendition are shown after they are decoded, at most.
    pub(super) fn reorder(&self, rendition: usize) -> Duration {
        self.reorder.get(rendition).copied().unwrap_or_default()
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
    fn spread(&mut self, offer: UnitInfo, bytes: &[u8], path: FanoutPath) -> bool {
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
            if path == FanoutPath::Direct {
                self.serve();
            }
        }
        if path == FanoutPath::Direct {
            // Fails only with a payload of another sender.
            let _ = self.sender.send_at_once(&stored, &mut self.targets);
        }
        self.queue(&offer, &stored, |state| &mut state.targets);
        self.report_faults();
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
            producer.reclaim_ended(sink.ring());
        }
    }

    /// Puts the unit on the rings of those targets that have yet to get it.
    fn queue(&mut self, offer: &UnitInfo, stored: &Stored, list: fn(&mut Self) -> &mut Vec<Target>) {
        let targets = std::mem::take(list(self));
        let Self { shared, sender, queues, asleep, queued, given_up, .. } = self;
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
                    if queue.is_stuck(shared.config.stall_timeout) {
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

    /// Logs faults in the shared memory, each time their number has doubled.
    fn report_faults(&mut self) {
        let faults = self.sender.producer().bad_values();
        if faults > 2 * self.reported_faults {
            tracing::warn!(
                faults,
                "another process writes into the memory of a stream; its words were put right"
            );
            self.reported_faults = faults;
        }
    }

    /// Serves those whose sinks sleep although something is on their rings: the rings are at hand in this processor, and another thread
    /// would have to wake up first.
    pub(super) fn serve(&mut self) {
        self.sender.serve(self.asleep.drain(..));
    }

    /// Makes room in the arena: no viewer joins with the newest group, and stale records are dropped for viewers that
    /// could not take them.
    fn free_stale(&mut self) {
        self.renditions.forget_groups();
        let producer = self.sender.producer();
        for queue in &self.queues {
            drop_stale(producer, queue.sink.ring());
        }
    }

    /// Adds a viewer: with what is there of the newest group if its keyframe is no older than `join_age`, else with the
    /// next keyframe.
    pub(super) fn join(&mut self, mut queue: ViewerQueue, join_age: Duration) {
        let now = now();
        let rendition = queue.first_rendition(&self.renditions);
        let group = self.renditions.group(rendition);
        let fresh = |(first, _): &&(UnitInfo, Stored)| now.saturating_since(first.published) <= join_age;
        if group.first().is_some_and(fresh) {
            for (offer, stored) in group {
                // Records from before the viewer are late for nobody.
                let meta = queue.meta(offer);
                let latest = now + self.shared.config.latency.unwrap_or(SOUND_LATENCY);
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
    pub(super) fn allowed(&self, asked: &RenditionSelection) -> Result<u8, HubError> {
        match asked {
            RenditionSelection::All => Ok(u8::MAX),
            RenditionSelection::None => Ok(1 << self.renditions.reference()),
            RenditionSelection::Named(name) => match self.renditions.find(name) {
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
    pub(super) fn leave_absent_renditions(&mut self) {
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

    pub(super) fn rendition_snapshots(&self) -> Vec<RenditionSnapshot> {
        let snapshot = |(index, rendition): (usize, &Rendition)| RenditionSnapshot {
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

//! Several codings of the same pictures, of which each receiver gets one at a time.

mod cost;
mod rule;
mod selection;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use freshwire_record::Timestamp;

pub use self::cost::Cost;
use self::cost::{Meter, SoundMeter};
use self::rule::{Load, Rule};
pub use self::selection::{Selected, Selection, Why};
use crate::number::{MAX_RENDITIONS, is_sound, rendition_of};
use crate::{Aim, Choice, Decision, LinkView, Live, Outcome, Progress, Reason, Record};

/// For live pictures in several renditions, with sound: which rendition a receiver gets is decided as late as all the rest.
///
/// The queue has pictures of the present rendition, and those of another one as long as that one is
/// [wanted](Selected::wanted). The rendition changes when a key frame of the wanted one is committed; what is left of the one
/// before is then superseded. So no picture is ever sent whose references the receiver does not have, and the decision can
/// be taken back until then. Within a rendition, and for sound, it does as [`Live`]. A stream of one rendition costs a comparison.
///
/// It goes down as soon as the path carries too little. It goes up when key frames have left so quickly that a higher
/// rendition fits with a margin, or leave open that the next one does. The source documents the rule's origin and constants.
#[derive(Debug)]
pub struct Adaptive {
    stream: Arc<SharedModel>,
    /// The version of what is known that `rule` has.
    version: u64,
    /// The renditions that this receiver may have, as bits.
    allowed: u8,
    /// There has never been more than one for it.
    is_plain: bool,
    selection: Arc<Selection>,
    aim: Aim,
    /// For the present rendition.
    live: Live,
    rule: Rule,
    /// When the key frame of the last change was generated.
    changed: Timestamp,
    /// What the last decision was made with.
    now: Timestamp,
    pipe: u64,
    /// Room for the part of the queue that `live` decides about, with places in the queue.
    part: Vec<Record>,
    places: Vec<usize>,
}

/// What to do about renditions now.
#[derive(Clone, Copy, Debug)]
enum Turn {
    /// Nothing: the present one decides about sound and the pictures from before `until`.
    Stay { until: Timestamp },
    /// A picture is of no use any more.
    Drop(usize, Reason),
    /// This key frame goes, behind sound and, if `is_patient`, pictures from before it.
    Change { at: usize, is_patient: bool },
}

/// Measurements of the renditions, shared by all receivers.
#[derive(Debug, Default)]
struct SharedModel {
    /// Grows with each change.
    version: AtomicU64,
    renditions: Mutex<[Rendition; MAX_RENDITIONS]>,
    /// Sound goes with each of them.
    sound: Mutex<SoundMeter>,
}

#[derive(Debug)]
struct Rendition {
    live: Live,
    meter: Meter,
    /// It has had pictures.
    is_seen: bool,
    is_present: bool,
}

impl Default for Rendition {
    fn default() -> Self {
        Self { live: crate::live(), meter: Meter::default(), is_seen: false, is_present: false }
    }
}

impl SharedModel {
    fn lock(&self) -> MutexGuard<'_, [Rendition; MAX_RENDITIONS]> {
        // A panic elsewhere leaves at worst a measurement half made, and each group is measured anew.
        self.renditions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self) {
        self.version.fetch_add(1, Ordering::Release);
    }

    /// A policy for the pictures of this rendition.
    fn live(&self, rendition: usize, aim: Aim) -> Live {
        if aim == Aim::Deadline {
            return Live::of_frames(crate::frames());
        }
        let mut renditions = self.lock();
        let Some(rendition) = renditions.get_mut(rendition) else { return crate::live() };
        rendition.live.for_another()
    }
}

impl Default for Adaptive {
    fn default() -> Self {
        Self::over(Arc::default(), u8::MAX, Aim::Screen)
    }
}

impl Adaptive {
    fn over(stream: Arc<SharedModel>, allowed: u8, aim: Aim) -> Self {
        let mut policy = Self {
            version: 0,
            allowed,
            is_plain: true,
            selection: Arc::default(),
            aim,
            live: stream.live(0, aim),
            rule: Rule::default(),
            changed: Timestamp::ZERO,
            now: Timestamp::ZERO,
            pipe: 0,
            part: Vec::new(),
            places: Vec::new(),
            stream,
        };
        policy.refresh();
        if let Some(lowest) = policy.rule.lowest() {
            policy.selection.want(lowest, Why::Start);
        }
        policy
    }

    /// Tells of a record of the stream, when it is offered and in order of the numbers of each rendition; see
    /// [`Screen::observe`](crate::screen::Screen::observe).
    pub fn observe(&self, now: Timestamp, record: &Record) {
        let Some(rendition) = rendition_of(record.seq) else {
            let mut sound = self.stream.sound.lock().unwrap_or_else(PoisonError::into_inner);
            return if sound.see(record) {
                self.stream.change()
            };
        };
        let mut renditions = self.stream.lock();
        let Some(rendition) = renditions.get_mut(rendition) else { return };
        rendition.live.observe(now, record);
        let is_new = !std::mem::replace(&mut rendition.is_seen, true);
        if rendition.meter.see(record) || is_new {
            self.stream.change();
        }
    }

    /// Says whether this rendition has a source now: from one without, receivers change to another. None has at first.
    pub fn set_present(&self, rendition: usize, is_present: bool) {
        if let Some(rendition) = self.stream.lock().get_mut(rendition) {
            rendition.is_present = is_present;
            self.stream.change();
        }
    }

    /// A policy for another receiver of the same stream, which may have the renditions whose bits are set in `allowed`. It begins
    /// with the smallest that is known.
    #[must_use]
    pub fn for_another(&self, allowed: u8) -> Self {
        Self::over(Arc::clone(&self.stream), allowed, Aim::Screen)
    }

    /// The same for a receiver whose pictures go elsewhere than to a screen.
    #[must_use]
    pub fn with_aim(self, aim: Aim) -> Self {
        Self::over(self.stream, self.allowed, aim)
    }

    /// Which rendition the receiver has and wants, for the one who fills its queue.
    pub fn selection(&self) -> &Arc<Selection> {
        &self.selection
    }

    /// What a rendition asks of a path; `None` before a whole group was seen.
    pub fn cost(&self, rendition: usize) -> Option<Cost> {
        self.stream.lock().get(rendition).and_then(|rendition| rendition.meter.cost())
    }

    /// Takes over what has become known of the stream.
    fn refresh(&mut self) {
        let version = self.stream.version.load(Ordering::Acquire);
        if version == self.version {
            return;
        }
        self.version = version;
        let sound = self.stream.sound.lock().unwrap_or_else(PoisonError::into_inner).bytes_per_sec();
        let renditions = self.stream.lock();
        let (mut present, mut seen, mut costs) = (0, 0_u8, [None; MAX_RENDITIONS]);
        for (at, (rendition, cost)) in renditions.iter().zip(&mut costs).enumerate() {
            let bit = self.allowed & 1 << at;
            if rendition.is_seen {
                seen |= bit;
            }
            if rendition.is_present && bit != 0 {
                present |= bit;
                *cost = rendition.meter.cost().map(|cost| cost.plus(sound));
            }
        }
        drop(renditions);
        self.is_plain = seen.count_ones() <= 1;
        self.rule.set_costs(present, costs);
    }

    /// Decides which rendition is wanted, and whether its key frame goes now.
    fn turn(&mut self, now: Timestamp, queue: &[Record], link: &LinkView, seen: Selected) -> Turn {
        let Some(current) = seen.current else { return self.begin(queue) };
        let load = load(queue, current);
        self.rule.look(now, current, load, link);
        let (better, why) = self.rule.wanted(now, current, load);
        match why {
            Some(why) => self.selection.want(better, why),
            None if seen.wanted != Some(current) => self.selection.stay(seen),
            None => {}
        }
        // An older one would take the picture back. Newer is not asked for: a rendition may be behind the others for good.
        let is_news = |key: &usize| better != current && queue[*key].generated >= self.changed;
        let key = newest_key(queue, better).filter(is_news);
        let superseded = queue.iter().position(|record| match rendition_of(record.seq) {
            Some(rendition) if rendition == current => false,
            Some(rendition) if rendition == better => key.is_none_or(|key| record.seq < queue[key].seq),
            rendition => rendition.is_some(),
        });
        match (superseded, key) {
            (Some(at), _) => Turn::Drop(at, Reason::Superseded),
            // A receiver that goes up has time for the pictures before it.
            (None, Some(at)) => Turn::Change { at, is_patient: self.rule.is_above(better, current) },
            (None, None) => {
                let is_held = better != current && self.rule.is_too_dear(now, current, load);
                let held = load.key.filter(|_| is_held).map(|(_, since)| since);
                Turn::Stay { until: held.unwrap_or(Timestamp::MAX) }
            }
        }
    }

    /// The key frame to begin with.
    fn begin(&self, queue: &[Record]) -> Turn {
        let first = queue.iter().find_map(|record| rendition_of(record.seq));
        let wanted = self.selection.get().wanted.or(first);
        if let Some(at) = wanted.and_then(|wanted| newest_key(queue, wanted)) {
            return Turn::Change { at, is_patient: false };
        }
        let picture = queue.iter().position(|record| !is_sound(record));
        picture.map_or(Turn::Stay { until: Timestamp::MAX }, |at| Turn::Drop(at, Reason::ReferenceLost))
    }

    /// Lets `live` decide about this part of the queue.
    fn pick_part(
        &mut self,
        now: Timestamp,
        queue: &[Record],
        link: &LinkView,
        is_part: impl Fn(&Record) -> bool,
    ) -> Decision {
        if queue.iter().all(&is_part) {
            return self.live.pick(now, queue, link);
        }
        self.places.clear();
        self.places.extend((0..queue.len()).filter(|&at| is_part(&queue[at])));
        self.part.clear();
        self.part.extend(self.places.iter().map(|&at| queue[at]));
        match self.live.pick(now, &self.part, link) {
            Decision::Send(at) => Decision::Send(self.places[at]),
            Decision::Drop(at, reason) => Decision::Drop(self.places[at], reason),
            wait @ Decision::Wait(_) => wait,
        }
    }

    /// A key frame of another rendition is committed: that is the present one from now on.
    //= spec/choice.md 37
    fn change(&mut self, rendition: usize) {
        let before = self.selection.get().current;
        self.live = self.stream.live(rendition, self.aim);
        self.selection.change(rendition);
        if let Some(before) = before {
            self.rule.changed(self.now, before, self.rule.is_above(rendition, before));
        }
    }
}

/// The place of the newest key frame of this rendition.
fn newest_key(queue: &[Record], rendition: usize) -> Option<usize> {
    let is_key = |record: &Record| record.is_key() && rendition_of(record.seq) == Some(rendition);
    let keys = queue.iter().enumerate().filter(|(_, record)| is_key(record));
    keys.max_by_key(|(_, record)| record.seq).map(|(at, _)| at)
}

/// What waits of this rendition.
fn load(queue: &[Record], rendition: usize) -> Load {
    let pictures = || queue.iter().filter(|record| rendition_of(record.seq) == Some(rendition));
    let times = || pictures().map(|record| record.generated);
    let behind = times().max().zip(times().min()).map(|(newest, oldest)| newest.saturating_since(oldest));
    let key = pictures().find(|record| record.is_key()).map(|key| (key.len, key.generated));
    Load { waiting: pictures().count(), behind: behind.unwrap_or_default(), key }
}

impl Choice for Adaptive {
    fn pick(&mut self, now: Timestamp, queue: &[Record], link: &LinkView) -> Decision {
        self.now = now;
        self.pipe = link.in_flight.saturating_add(link.unsent);
        // In this order: what is wanted since a source has gone is not seen before it is known that it has.
        let seen = self.selection.get();
        self.refresh();
        let current = seen.current;
        let is_of = |record: &Record, rendition| is_sound(record) || rendition_of(record.seq) == rendition;
        if self.is_plain && queue.iter().all(|record| is_of(record, current.or(Some(0)))) {
            return self.live.pick(now, queue, link);
        }
        match self.turn(now, queue, link, seen) {
            Turn::Drop(at, reason) => Decision::Drop(at, reason),
            Turn::Stay { until } => {
                let is_part = |record: &Record| {
                    is_sound(record) || (is_of(record, current) && record.generated < until)
                };
                self.pick_part(now, queue, link, is_part)
            }
            Turn::Change { at, is_patient } => {
                let until = if is_patient { queue[at].generated } else { Timestamp::ZERO };
                let is_part = |record: &Record| {
                    is_sound(record) || (is_of(record, current) && record.generated < until)
                };
                match self.pick_part(now, queue, link, is_part) {
                    Decision::Wait(_) => Decision::Send(at),
                    decision => decision,
                }
            }
        }
    }

    fn progress(&mut self, now: Timestamp, record: &Record, remaining: u32, link: &LinkView) -> Progress {
        self.live.progress(now, record, remaining, link)
    }

    fn overtakes(&self, now: Timestamp, record: &Record, in_progress: &Record) -> bool {
        self.live.overtakes(now, record, in_progress)
    }

    fn outcome(&mut self, record: &Record, outcome: Outcome) {
        let rendition = rendition_of(record.seq);
        let is_sent = outcome.reason().is_none();
        if is_sent {
            let is_key = rendition.is_some() && record.is_key();
            if let Some(rendition) = rendition.filter(|_| rendition != self.selection.get().current) {
                self.changed = record.generated;
                self.change(rendition);
            }
            self.rule.sent(self.now, record.len, is_key, self.pipe);
        }
        if rendition.is_none() || rendition == self.selection.get().current {
            self.live.outcome(record, outcome);
            if rendition.is_some() {
                self.rule.decided(!is_sent);
            }
        }
    }
}

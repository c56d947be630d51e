use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use freshwire_record::{Rate, Timestamp};

use super::ladder::{Expected, Ladder};
use super::plan::{Item, Planner, Start};
use crate::idle_probe::IdleProbe;
use crate::lost::Lost;
use crate::{Choice, Decision, LinkView, Outcome, Progress, Reason, Record};

/// For pictures: the freshest and smoothest screen that the link allows, by the cost in [`crate::screen`](mod@crate::screen).
///
/// It learns the stream's ladder: how often a keyframe comes, and how large the pictures of each layer are. It plans
/// over the queued pictures and the expected ones: the rest of the group, the next keyframe and its successors. The
/// oldest picture is sent if the best plan sends it, and dropped if the plan begins with a later one. So pictures
/// that nothing depends on give way to the reference chain, and the chain gives way to the next keyframe where the
/// screen is better off without it. Pictures go in order and whole.
///
/// A deadline is only a bound: a picture that is predicted to arrive after its own is not started, unless pictures
/// that will be on time depend on it. Without one a picture may be as old as it likes, as long as it is newer than
/// what is on the screen.
#[derive(Debug)]
pub struct Screen {
    margin: Duration,
    lost: Lost,
    /// The newest picture that was sent, by its capture time, and when it reached the screen.
    newest: Option<Timestamp>,
    shown_at: Option<Timestamp>,
    /// A picture was sent whose arrival is not known yet.
    is_sending: bool,
    plan: CurrentPlan,
    probe: IdleProbe,
    stream: Arc<SharedModel>,
}

/// The rest of the last plan. In a long queue it stays valid for some time: new pictures hardly change which
/// one goes next.
#[derive(Debug, Default)]
struct CurrentPlan {
    /// Numbers of the queued pictures that are to be sent.
    sends: VecDeque<u64>,
    until: Timestamp,
    rate: Rate,
}

impl CurrentPlan {
    /// The decision on the oldest picture; `None` if a new plan is needed.
    fn next(&mut self, now: Timestamp, oldest: u64, rate: Rate) -> Option<bool> {
        let off = rate.bits_per_sec().abs_diff(self.rate.bits_per_sec());
        let holds = now < self.until && off <= self.rate.bits_per_sec() / PLAN_SHARE;
        let &next = self.sends.front().filter(|&&next| holds && next >= oldest)?;
        if next == oldest {
            self.sends.pop_front();
        }
        Some(next == oldest)
    }
}

/// The stream, for all receivers of it.
#[derive(Debug, Default)]
struct SharedModel {
    /// One more than the newest record's number, or 0: a receiver with nothing newer does not wait for the others.
    learned: AtomicU64,
    stream: Mutex<Stream>,
}

impl SharedModel {
    fn lock(&self) -> MutexGuard<'_, Stream> {
        // A panic elsewhere leaves at worst a plan half made, and each plan begins anew.
        self.stream.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn learn(&self, now: Timestamp, record: &Record) {
        // Relaxed: it only decides whether to look.
        if record.seq >= self.learned.load(Ordering::Relaxed) {
            let mut stream = self.lock();
            stream.ladder.see(now, record);
            self.learned.fetch_max(record.seq.saturating_add(1), Ordering::Relaxed);
        }
    }
}

/// Knowledge about the stream, shared by all receivers, and room to plan in.
#[derive(Debug)]
struct Stream {
    ladder: Ladder,
    planner: Planner,
    items: Vec<Item>,
    expected: Vec<Expected>,
    /// Sequence numbers of what is queued, ascending, with positions in the queue.
    order: Vec<(u64, usize)>,
}

impl Default for Stream {
    fn default() -> Self {
        Self {
            ladder: Ladder::default(),
            planner: Planner::new(WAYS),
            items: Vec::new(),
            expected: Vec::new(),
            order: Vec::new(),
        }
    }
}

impl Default for Screen {
    fn default() -> Self {
        Self::new(DEFAULT_MARGIN)
    }
}

impl Screen {
    /// A policy that keeps `margin` between a picture's predicted arrival and its deadline, where it has one.
    pub fn new(margin: Duration) -> Self {
        Self {
            margin,
            lost: Lost::default(),
            newest: None,
            shown_at: None,
            is_sending: false,
            plan: CurrentPlan::default(),
            probe: IdleProbe::default(),
            stream: Arc::default(),
        }
    }

    /// A policy with the same settings for another receiver of the same stream, whose records have the same numbers.
    /// The model of the stream is kept once for all of them.
    #[must_use]
    pub fn for_another(&self) -> Self {
        Self { stream: Arc::clone(&self.stream), ..Self::new(self.margin) }
    }

    /// Tells of a record of the stream that may not be in this receiver's queue, when it is offered and in order of the numbers. What
    /// every receiver's queue shows is learned anyway; a receiver that joins plans better if the stream is known by then.
    pub fn observe(&self, now: Timestamp, record: &Record) {
        self.stream.learn(now, record);
    }

    /// How long after its deadline a record may arrive and still serve those that depend on it.
    fn patience(ladder: &Ladder, record: &Record) -> Duration {
        if ladder.is_reference(record) {
            record.deadline.saturating_since(record.generated)
        } else {
            Duration::ZERO
        }
    }

    /// Fills `items` with what is queued and what is expected, in sequence order. `start` is when the link is free: the plan's zero.
    //= spec/choice.md 33
    fn lay_out(
        &self,
        stream: &mut Stream,
        queue: &[Record],
        now: Timestamp,
        start: Timestamp,
        link: &LinkView,
    ) {
        let Stream { ladder, items, expected, order, .. } = stream;
        items.clear();
        order.clear();
        order.extend(queue.iter().enumerate().map(|(at, record)| (record.seq, at)));
        order.sort_unstable();
        let is_cut = cut(order, queue);
        let queued = order.len();
        let Some(own) = order.last().map(|&(_, at)| queue[at]) else { return };
        // A source that has stopped is not waited for.
        let is_overdue = now > ladder.next_due() + ladder.interval() * OVERDUE;
        ladder.expect(expected, if is_overdue { 0 } else { MAX_ITEMS - queued });
        let known = ladder.newest().unwrap_or(own.seq);
        let place_of = |seq: u64| {
            let waits = order.binary_search_by_key(&seq, |&(seq, _)| seq).ok();
            let comes = || expected.binary_search_by_key(&seq, |next| next.record.seq).ok();
            waits.or_else(|| comes().map(|place| queued + place))
        };
        let seconds = |at: Timestamp| seconds_between(start, at);
        let queued_items = order.iter().map(|&(seq, at)| (queue[at], 0.0, ladder.between(seq)));
        let expected_items = expected.iter().map(|next| {
            // Receivers may have different deadlines: the newest that is queued tells this one's.
            let deadline = own.deadline + next.pushed.saturating_since(own.generated);
            (Record { deadline, ..next.record }, seconds(next.pushed).max(0.0), next.between)
        });
        for (place, (record, release, between)) in queued_items.chain(expected_items).enumerate() {
            let mut possible = true;
            let refs = record.refs.map(|back| {
                let reference = record.seq.checked_sub(u64::from(back));
                let Some(reference) = reference.filter(|_| back > 0) else {
                    possible &= back == 0;
                    return 0;
                };
                // A known picture that is not queued was decided before: it is at the receiver, or lost.
                possible &= !(is_cut(reference) || (reference <= known && self.lost.contains(reference)));
                place_of(reference).map_or(0, |found| (place - found) as u32)
            });
            let (latest, patience) = self.bounds(ladder, &record, start, link);
            let captured = seconds(record.generated);
            items.push(Item {
                len: record.len,
                captured,
                release,
                refs,
                possible,
                between,
                latest,
                patience,
            });
        }
    }

    /// Until when a picture has to have left, and how much later it may leave for those that depend on it, in seconds.
    //= spec/choice.md 36
    fn bounds(&self, ladder: &Ladder, record: &Record, start: Timestamp, link: &LinkView) -> (f64, f64) {
        if record.deadline == Timestamp::MAX {
            return (f64::INFINITY, 0.0);
        }
        // Deadlines count at the receiver, the plan at the sender.
        let latest = record.deadline - self.margin - link.min_rtt / 2;
        (seconds_between(start, latest), Self::patience(ladder, record).as_secs_f64())
    }

    /// Whether the only picture in the queue, the newest there is, is there before the next one could be sent: every plan sends it, and
    /// none has to be made. So it is for most pictures on a link that carries the stream.
    fn costs_nothing(&self, ladder: &Ladder, record: &Record, now: Timestamp, link: &LinkView) -> bool {
        let Some(arrival) = link.arrival(now, u64::from(record.len)) else { return false };
        // B pictures are offered long after their capture: what counts is when the next picture is offered.
        let Some(next) = ladder.offered_after(record.seq) else { return false };
        arrival < next + link.min_rtt / 2 && arrival + self.margin <= record.deadline
    }

    /// What to do now; `None` if nothing that is queued is worth sending now.
    //= spec/choice.md 35
    fn decide(&mut self, now: Timestamp, queue: &[Record], link: &LinkView) -> Option<Decision> {
        let (rate, at) = (link.sustained()?, oldest(queue));
        let is_sent = self.plan.next(now, queue[at].seq, rate).or_else(|| {
            self.make_plan(now, queue, link);
            self.plan.next(now, queue[at].seq, rate)
        })?;
        if is_sent {
            return Some(Decision::Send(at));
        }
        let arrival = link.arrival(now, u64::from(queue[at].len))?;
        let late = arrival + self.margin > queue[at].deadline;
        Some(Decision::Drop(at, if late { Reason::PredictedLate } else { Reason::LayerShed }))
    }

    fn make_plan(&mut self, now: Timestamp, queue: &[Record], link: &LinkView) {
        self.plan.sends.clear();
        let (Some(rate), Some(free)) = (link.sustained(), link.arrival(now, 0)) else { return };
        let free = free - link.min_rtt / 2;
        let stream = &mut *self.stream.lock();
        self.lay_out(stream, queue, now, free, link);
        let seconds = |at: Timestamp| seconds_between(free, at);
        let oldest = queue.iter().map(|record| record.generated).min().unwrap_or(now);
        let start = Start {
            free: 0.0,
            newest: self.newest.map_or(seconds(oldest) - EMPTY_SCREEN, seconds),
            shown_at: self.shown_at.map_or(0.0, seconds).min(0.0),
        };
        let per_byte = 8.0 / rate.bits_per_sec().max(1) as f64;
        let goes_on = stream.items.len() > stream.order.len();
        stream.planner.plan(&stream.items, start, goes_on, &|start, len| start + f64::from(len) * per_byte);
        // Pictures queued behind the last one sent give way to the expected ones, once those are there.
        let queued = |(item, left)| stream.order.get(item).map(|&(seq, _)| (seq, left));
        let mut depth = 0.0;
        for (seq, left) in stream.planner.best_path().into_iter().map_while(queued) {
            self.plan.sends.push_back(seq);
            depth = left;
        }
        self.plan.rate = rate;
        self.plan.until =
            now + Duration::from_secs_f64(depth / f64::from(PLAN_SHARE as u32)) + Duration::from_nanos(1);
    }
}

impl Choice for Screen {
    fn pick(&mut self, now: Timestamp, queue: &[Record], link: &LinkView) -> Decision {
        for record in queue {
            self.lost.seen(record.seq);
            self.stream.learn(now, record);
        }
        if let Some(at) = queue.iter().position(|record| record.deadline < now) {
            return Decision::Drop(at, Reason::Expired);
        }
        if let Some(at) = queue.iter().position(|record| self.lost.breaks(record)) {
            return Decision::Drop(at, Reason::ReferenceLost);
        }
        if std::mem::take(&mut self.is_sending) {
            self.shown_at = Some(link.arrival(now, 0).map_or(now, |arrival| arrival - link.min_rtt / 2));
        }
        if queue.is_empty() {
            return Decision::Wait(None);
        }
        if link.sustained().is_none() {
            return Decision::Send(oldest(queue));
        }
        if let [record] = queue
            && self.costs_nothing(&self.stream.lock().ladder, record, now, link)
        {
            return Decision::Send(0);
        }
        let hopeful = self.probe.link(now, link);
        let decision = self.decide(now, queue, link).or_else(|| {
            // Only a deadline keeps pictures from an idle link. Where keys get through, each of them measures the link, and one more
            // picture that comes late is dear.
            let decision = self.decide(now, queue, &hopeful?)?;
            let is_dear = matches!(decision, Decision::Send(at) if !queue[at].is_key());
            (!is_dear || self.probe.may_try(now, link.rate)).then_some(decision)
        });
        decision.unwrap_or_else(|| {
            Decision::Wait(Some(now + self.stream.lock().ladder.interval().max(SHORTEST_WAIT)))
        })
    }

    fn progress(&mut self, now: Timestamp, record: &Record, remaining: u32, link: &LinkView) -> Progress {
        match link.arrival(now, u64::from(remaining)) {
            Some(arrival)
                if arrival > record.deadline + Self::patience(&self.stream.lock().ladder, record) =>
            {
                Progress::Abandon(Reason::PredictedLate)
            }
            _ => Progress::Continue,
        }
    }

    fn outcome(&mut self, record: &Record, outcome: Outcome) {
        self.lost.seen(record.seq);
        match outcome.reason() {
            None => {
                self.newest = self.newest.max(Some(record.generated));
                self.is_sending = true;
            }
            Some(_) => self.lost.insert(record.seq),
        }
    }
}

/// The place of the record with the lowest number in a queue that is not empty.
fn oldest(queue: &[Record]) -> usize {
    (0..queue.len()).min_by_key(|&at| queue[at].seq).unwrap_or(0)
}

/// Shortens a queue that is too long for a plan: to its oldest pictures, and to the newest keyframe with what follows it. Tells which
/// pictures were cut.
fn cut(order: &mut Vec<(u64, usize)>, queue: &[Record]) -> impl Fn(u64) -> bool + use<> {
    let excess = order.len().saturating_sub(MAX_QUEUED);
    let key = order.iter().rposition(|&(_, at)| queue[at].is_key()).unwrap_or(order.len());
    // Some of the oldest stay in any case, and some of what follows the key.
    let from = key.min(MAX_QUEUED).saturating_sub(excess).max(MAX_QUEUED / 4).min(order.len() - excess);
    let end = order.get(from + excess).map_or(u64::MAX, |&(seq, _)| seq);
    let begin = order.get(from).map_or(u64::MAX, |&(seq, _)| seq);
    order.drain(from..from + excess);
    move |seq| excess > 0 && (begin..end).contains(&seq)
}

/// Seconds from one instant to another, negative backwards.
fn seconds_between(from: Timestamp, to: Timestamp) -> f64 {
    to.saturating_since(from).as_secs_f64() - from.saturating_since(to).as_secs_f64()
}

/// Seconds by which an empty screen counts as older than the oldest picture that could be shown. Chosen, not
/// measured.
const EMPTY_SCREEN: f64 = 1.0;
/// A source that is late by this number of pictures has stopped (spec/choice.md, rule 33).
const OVERDUE: u32 = 12;
/// A plan is valid for this part of the time that it needs for the queue, while the rate changes by no more
/// than this part (spec/choice.md, rule 35).
const PLAN_SHARE: u64 = 8;
/// Items that a plan looks at (spec/choice.md, rule 33): one bit each.
const MAX_ITEMS: usize = 128;
/// Queued items among these; the others are expected (spec/choice.md, rule 33).
const MAX_QUEUED: usize = 96;
/// Ways kept at each item of a plan (spec/choice.md, rule 34).
const WAYS: usize = 24;
/// Covers the rounding of the rate and one segment's time on a slow link: 1500 bytes at 2.4 Mbit/s.
const DEFAULT_MARGIN: Duration = Duration::from_millis(5);
/// A plan that waits is made anew after this time even if the stream's pace is unknown. Chosen, not measured.
const SHORTEST_WAIT: Duration = Duration::from_millis(5);

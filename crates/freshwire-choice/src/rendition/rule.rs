//! Which rendition a path should have.

use std::collections::VecDeque;
use std::time::Duration;

use freshwire_units::Timestamp;

use super::cost::Cost;
use super::selection::Why;
use crate::LinkView;
use crate::number::MAX_RENDITIONS;

/// The rule for one receiver.
///
/// Throughput-based, as FESTIVE (Jiang, Sekar, Zhang: "Improving Fairness, Efficiency, and Stability in HTTP-based Adaptive
/// Video Streaming with FESTIVE", CoNEXT 2012): the estimate is the harmonic mean of the last samples, it goes up only with a
/// margin and not more often than once in a while, and down at once. A sample is what FESTIVE takes from a segment: how
/// quickly a whole burst left, here that of a key frame. The delivery rate between bursts is the source's own wherever the
/// stream is smaller than the path, so it counts only while a queue shows. A step up that has to be taken back makes the next
/// one wait twice as long, as the probes of congestion controls and of conference servers do. Where bursts have left before anybody
/// looked, they are too small to show what the path carries: the next rendition, whose bursts are larger, is tried then.
#[derive(Debug)]
pub(super) struct Rule {
    costs: [Option<Cost>; MAX_RENDITIONS],
    /// Those that this receiver may have now, whether they are measured or not, as bits.
    present: u8,
    begun: Option<Timestamp>,
    /// When it changed last.
    changed: Timestamp,
    /// Bytes a second of the last bursts, and whether they made a queue.
    bursts: VecDeque<(f64, bool)>,
    burst: Option<Burst>,
    /// Payload bytes committed so far.
    sent: u64,
    /// Since when the path has carried less than what is sent.
    short_since: Option<Timestamp>,
    /// The rate of a path that shows a queue, in bytes a second, and when it was seen.
    limit: Option<(Timestamp, f64)>,
    /// When a picture was dropped that others depend on.
    torn_at: Option<Timestamp>,
    trial: Trial,
}

/// A key frame that is on its way.
#[derive(Clone, Copy, Debug)]
struct Burst {
    at: Timestamp,
    /// `sent` less what was on the way before it.
    delivered: u64,
    /// `sent` with the end of it.
    end: u64,
    /// A queue was seen while it was on its way.
    is_seen: bool,
}

/// The last step up, and what came of it.
#[derive(Clone, Copy, Debug, Default)]
struct Trial {
    up_at: Option<Timestamp>,
    pause: Duration,
    not_before: Timestamp,
    /// The estimate when it failed.
    failed_at: f64,
}

/// What the queue says of the present rendition.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Load {
    /// Pictures that wait.
    pub(super) waiting: usize,
    /// How much newer the newest of them is than the oldest.
    pub(super) behind: Duration,
    /// Bytes of the key frame that waits, and since when.
    pub(super) key: Option<(u32, Timestamp)>,
}

impl Default for Rule {
    fn default() -> Self {
        Self {
            costs: [None; MAX_RENDITIONS],
            present: 0,
            begun: None,
            changed: Timestamp::ZERO,
            bursts: VecDeque::with_capacity(BURSTS),
            burst: None,
            sent: 0,
            short_since: None,
            limit: None,
            torn_at: None,
            trial: Trial::default(),
        }
    }
}

impl Rule {
    /// The costs of those renditions that this receiver may have now.
    pub(super) fn set_costs(&mut self, present: u8, costs: [Option<Cost>; MAX_RENDITIONS]) {
        (self.present, self.costs) = (present, costs);
    }

    /// Which of two costs more, as far as they are measured.
    pub(super) fn is_above(&self, one: usize, other: usize) -> bool {
        let rate = |at: usize| self.costs.get(at).copied().flatten().map(|cost| cost.bytes_per_sec);
        rate(one) > rate(other)
    }

    /// The smallest.
    pub(super) fn lowest(&self) -> Option<usize> {
        self.ladder().min_by_key(|&(_, cost)| cost.bytes_per_sec).map(|(at, _)| at)
    }

    fn ladder(&self) -> impl Iterator<Item = (usize, Cost)> + '_ {
        self.costs.iter().enumerate().filter_map(|(at, cost)| Some((at, (*cost)?)))
    }

    /// A record is committed.
    pub(super) fn sent(&mut self, now: Timestamp, len: u32, is_key: bool, pipe: u64) {
        if is_key {
            let delivered = self.sent.saturating_sub(pipe);
            self.burst = Some(Burst { at: now, delivered, end: self.sent + u64::from(len), is_seen: false });
        }
        self.sent += u64::from(len);
    }

    /// A picture of the present rendition was dropped that others depend on.
    pub(super) fn torn(&mut self, now: Timestamp) {
        self.torn_at = Some(now);
    }

    /// Another rendition has become the present one.
    pub(super) fn changed(&mut self, now: Timestamp, is_up: bool) {
        let was_trial = self.trial.up_at.filter(|&at| now.saturating_since(at) < TRIAL);
        if is_up {
            self.trial.up_at = Some(now);
        } else {
            if was_trial.is_some() {
                self.trial.pause = (self.trial.pause * 2).clamp(PAUSE.0, PAUSE.1);
                self.trial.not_before = now + self.trial.pause;
                self.trial.failed_at = self.estimate().unwrap_or(0.0);
            }
            self.trial.up_at = None;
            // What was shown before does not count any more.
            self.bursts.clear();
        }
        self.changed = now;
        self.torn_at = None;
        self.short_since = None;
    }

    /// Takes in what the path shows.
    pub(super) fn look(&mut self, now: Timestamp, current: usize, load: Load, link: &LinkView) {
        self.begun.get_or_insert(now);
        let pipe = link.in_flight.saturating_add(link.unsent);
        // As long as all that is offered leaves at once, its rate is the source's. What is on the way alone shows no queue: where a
        // path is calm, it is looked at seldom.
        let rate = link.sustained();
        let has_queue = pipe > 0
            && (link.unsent > 0
                || load.waiting > 1
                || rate.is_some_and(|rate| rate.time_for(pipe) > link.min_rtt.saturating_add(QUEUE)));
        self.look_at_burst(now, pipe, has_queue, link.min_rtt);
        match rate {
            Some(rate) if has_queue => {
                let rate = rate.bits_per_sec() as f64 / 8.0;
                self.limit = Some((now, rate));
                let needed = self.costs.get(current).copied().flatten().map_or(0, |cost| cost.bytes_per_sec);
                let is_short = rate < needed as f64 * SHORT;
                self.short_since = if is_short { self.short_since.or(Some(now)) } else { None };
            }
            _ => self.short_since = None,
        }
        if self.trial.up_at.is_some_and(|at| now.saturating_since(at) >= TRIAL) {
            self.trial = Trial::default();
        }
    }

    /// A burst has left as far as it can be seen: how quickly?
    fn look_at_burst(&mut self, now: Timestamp, pipe: u64, has_queue: bool, min_rtt: Duration) {
        let Some(burst) = &mut self.burst else { return };
        let delivered = self.sent.saturating_sub(pipe);
        burst.is_seen |= has_queue;
        if delivered < burst.end.saturating_sub(SEGMENT) {
            return;
        }
        let burst = *burst;
        self.burst = None;
        let taken = now.saturating_since(burst.at).saturating_sub(min_rtt).max(SHORTEST_BURST);
        let bytes = delivered.saturating_sub(burst.delivered) as f64;
        if self.bursts.len() == BURSTS {
            self.bursts.pop_front();
        }
        self.bursts.push_back((bytes / taken.as_secs_f64(), burst.is_seen));
    }

    /// What the path has shown to carry, in bytes a second.
    fn estimate(&self) -> Option<f64> {
        let slowness: f64 = self.bursts.iter().map(|(rate, _)| rate.max(1.0).recip()).sum();
        (!self.bursts.is_empty()).then(|| self.bursts.len() as f64 / slowness)
    }

    /// Whether a key frame is better not begun, because it would occupy the path until long after a smaller rendition's next one.
    pub(super) fn is_too_dear(&self, now: Timestamp, current: usize, load: Load) -> bool {
        let (Some((len, since)), Some(rate)) = (load.key, self.limit_now(now)) else { return false };
        let lowest = self.lowest().filter(|&lowest| lowest != current);
        let Some(cost) = lowest.and_then(|lowest| self.costs[lowest]) else { return false };
        let will_come = now.saturating_since(since) <= cost.key_interval;
        will_come && f64::from(len) / rate.max(1.0) > TOO_DEAR.as_secs_f64()
    }

    /// The rate of a path that has shown its limit lately.
    fn limit_now(&self, now: Timestamp) -> Option<f64> {
        self.limit.filter(|&(at, _)| now.saturating_since(at) < FRESH).map(|(_, rate)| rate)
    }

    /// The rendition to have, and why another one than the present.
    pub(super) fn wanted(&self, now: Timestamp, current: usize, load: Load) -> (usize, Option<Why>) {
        let Some(cost) = self.costs.get(current).copied().flatten() else {
            return if self.present & 1 << current == 0 { self.gone(current) } else { (current, None) };
        };
        let has_lower = self.ladder().any(|(_, other)| other.bytes_per_sec < cost.bytes_per_sec);
        if let Some(why) = self.trouble(now, current, load).filter(|_| has_lower) {
            return (self.lower(now, cost), Some(why));
        }
        match self.higher(now, cost) {
            Some(higher) => (higher, Some(Why::Carries)),
            None => (current, None),
        }
    }

    fn gone(&self, current: usize) -> (usize, Option<Why>) {
        let known = self.limit.map(|(_, rate)| rate).or_else(|| self.estimate());
        let fitting = self.highest(|cost| known.is_some_and(|known| fits(cost, known, DOWN)));
        match fitting.or_else(|| self.lowest()) {
            Some(other) => (other, Some(Why::Gone)),
            None => (current, None),
        }
    }

    fn trouble(&self, now: Timestamp, current: usize, load: Load) -> Option<Why> {
        let is_short = self.short_since.is_some_and(|since| now.saturating_since(since) >= SHORT_FOR);
        if is_short || self.is_too_dear(now, current, load) {
            Some(Why::Slow)
        } else if load.behind > LATE || self.torn_at.is_some_and(|at| now.saturating_since(at) < TORN) {
            Some(Why::Late)
        } else {
            None
        }
    }

    /// The highest one below that fits.
    fn lower(&self, now: Timestamp, present: Cost) -> usize {
        let known = self.limit_now(now).into_iter().chain(self.estimate()).reduce(f64::min);
        let fitting = self.highest(|cost| {
            let is_lower = cost.bytes_per_sec < present.bytes_per_sec;
            is_lower && known.is_some_and(|known| fits(cost, known, DOWN))
        });
        fitting.or_else(|| self.lowest()).unwrap_or(0)
    }

    /// The highest one above of which the path has shown that it fits.
    fn higher(&self, now: Timestamp, present: Cost) -> Option<usize> {
        let estimate = self.estimate()?;
        let since = now.saturating_since(self.changed);
        let is_young = self.begun.is_none_or(|begun| now.saturating_since(begun) < YOUNG);
        let is_settled = since >= if is_young { Duration::ZERO } else { SETTLED };
        let may_try = now >= self.trial.not_before || estimate > self.trial.failed_at * BETTER;
        if !is_settled || !may_try {
            return None;
        }
        let is_above = |cost: &Cost| cost.bytes_per_sec > present.bytes_per_sec;
        let fitting = self.highest(|cost| is_above(cost) && fits(cost, estimate, UP));
        let is_limited = self.bursts.iter().any(|&(_, is_seen)| is_seen);
        let next = || {
            let above = self.ladder().filter(|(_, cost)| is_above(cost));
            above.min_by_key(|(_, cost)| cost.bytes_per_sec).map(|(at, _)| at)
        };
        fitting.or_else(|| if is_limited { None } else { next() })
    }

    fn highest(&self, is_possible: impl Fn(&Cost) -> bool) -> Option<usize> {
        let possible = self.ladder().filter(|(_, cost)| is_possible(cost));
        possible.max_by_key(|&(_, cost)| cost.bytes_per_sec).map(|(at, _)| at)
    }
}

/// Whether a path of `rate` bytes a second carries it with so much to spare, and a key frame soon enough.
fn fits(cost: &Cost, rate: f64, margin: f64) -> bool {
    let key = cost.key_bytes as f64 / rate.max(1.0);
    cost.bytes_per_sec as f64 * margin <= rate && key <= LONGEST_KEY.as_secs_f64()
}

/// Bursts that the estimate is made of. FESTIVE takes 20 segments; a key frame a second makes that too slow here.
const BURSTS: usize = 3;
/// A path is to carry so much more than a rendition before it goes up to it, and down to it.
const UP: f64 = 1.3;
const DOWN: f64 = 1.15;
/// A key frame that takes longer is a freeze that a person sees.
const LONGEST_KEY: Duration = Duration::from_millis(550);
/// Pictures that wait longer are late: a key frame that takes as long as it may, and a little.
const LATE: Duration = Duration::from_millis(700);
/// A path with less than this part of the rendition's rate is short of it, and after so long it is believed.
const SHORT: f64 = 0.95;
const SHORT_FOR: Duration = Duration::from_millis(400);
/// A key frame that takes longer than this waits for that of a smaller rendition.
const TOO_DEAR: Duration = Duration::from_secs(1);
/// What is on the way for this much longer than the smallest round trip waits in a queue.
const QUEUE: Duration = Duration::from_millis(60);
/// For so long a picture that was dropped asks for less.
const TORN: Duration = Duration::from_secs(5);
/// A limit that was seen is believed for so long.
const FRESH: Duration = Duration::from_secs(2);
/// No burst is thought to have left in less: the clock of the one who looks is not finer.
const SHORTEST_BURST: Duration = Duration::from_millis(5);
/// Framing and rounding: a burst is over when all but this has left.
const SEGMENT: u64 = 1500;
/// A receiver that has just begun goes up as soon as the path has shown enough.
const YOUNG: Duration = Duration::from_secs(10);
/// Afterwards a rendition is kept for at least this long before it goes up.
const SETTLED: Duration = Duration::from_secs(10);
/// A step up that lasts this long was right.
const TRIAL: Duration = Duration::from_secs(12);
/// The first and the longest pause after one that was not.
const PAUSE: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(300));
/// A path that shows so much more than when a step failed is another one.
const BETTER: f64 = 1.5;

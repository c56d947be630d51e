//! Which rendition a path should have.

use std::collections::VecDeque;
use std::time::Duration;

use freshwire_record::Timestamp;

use super::cost::Cost;
use super::selection::Why;
use crate::LinkView;
use crate::number::MAX_RENDITIONS;

/// The rule for one receiver.
///
/// Throughput-based, as FESTIVE (Jiang, Sekar, Zhang: "Improving Fairness, Efficiency, and Stability in
/// HTTP-based Adaptive Video Streaming with FESTIVE", CoNEXT 2012). The estimate is the harmonic mean of the
/// last samples. The rule goes up only with a margin and a minimum pause, and down at once. FESTIVE samples a
/// segment; this rule samples how quickly a whole burst left, here that of a key frame: the path is not idle
/// while it lasts. Between bursts, the delivery rate is the source's own wherever the stream is smaller than
/// the path. (BBR marks such samples as application-limited.) So it counts only while a queue shows.
///
/// A burst bounds the rate from both sides. From above it does so only if a queue of the path was seen:
/// otherwise the congestion window was the limit, or a delayed acknowledgement. Where the bound from above
/// leaves the next rendition possible, that one is tried. Its first key frame is the probe, as probe clusters
/// are in conference senders, and the viewer sees it. It is tried only if that key frame causes no freeze by
/// the bound from below. A step up that is taken back doubles the pause before the next one.
///
/// Trouble is judged by the share of missing pictures and by their age, not by a single picture.
#[derive(Debug)]
pub(super) struct Rule {
    costs: [Option<Cost>; MAX_RENDITIONS],
    /// Renditions that this receiver may have now, measured or not, as bits.
    present: u8,
    first_look: Option<Timestamp>,
    /// When it changed last.
    changed: Timestamp,
    /// The last bursts.
    bursts: VecDeque<Sample>,
    burst: Option<Burst>,
    /// The path's round trip without queues.
    min_rtt: Duration,
    /// Payload bytes committed so far.
    sent: u64,
    /// Since when the path has carried less than what is sent.
    short_since: Option<Timestamp>,
    /// The rate of a path that shows a queue, in bytes a second, and when it was seen.
    limit: Option<(Timestamp, f64)>,
    /// Share of the last pictures that were dropped.
    missing: f64,
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

/// What a burst has shown.
#[derive(Clone, Copy, Debug)]
struct Sample {
    /// Bytes a second that the path carries at least, and at most as far as is known.
    low: f64,
    high: f64,
    bytes: f64,
    taken: Duration,
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
            first_look: None,
            changed: Timestamp::ZERO,
            bursts: VecDeque::with_capacity(BURSTS),
            burst: None,
            min_rtt: Duration::ZERO,
            sent: 0,
            short_since: None,
            limit: None,
            missing: 0.0,
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

    /// A picture of the present rendition was sent or dropped.
    pub(super) fn decided(&mut self, is_dropped: bool) {
        self.missing += (f64::from(u8::from(is_dropped)) - self.missing) / PICTURES;
    }

    /// Another rendition than `before` has become the present one.
    pub(super) fn changed(&mut self, now: Timestamp, before: usize, is_up: bool) {
        let was_trial = self.trial.up_at.filter(|&at| now.saturating_since(at) < TRIAL);
        if is_up {
            self.trial.up_at = Some(now);
        } else {
            if was_trial.is_some() {
                // Where the path carries it all the same, something else than its rate was at fault.
                let left = self.costs.get(before).copied().flatten();
                let fitted = left.zip(self.estimate()).is_some_and(|(cost, rate)| fits(&cost, rate, UP));
                let least = if fitted { SETTLED } else { PAUSE.0 };
                self.trial.pause = (self.trial.pause * 2).clamp(least, PAUSE.1);
                self.trial.not_before = now + self.trial.pause;
                self.trial.failed_at = self.estimate().unwrap_or(0.0);
            }
            self.trial.up_at = None;
            // Bursts of the former rendition do not count any more.
            self.bursts.clear();
        }
        self.changed = now;
        self.missing = 0.0;
        self.short_since = None;
    }

    /// Whether the path, as far as it has shown a limit, carries the present rendition with hardly anything to spare: its queue
    /// never empties then, and every picture is old.
    fn is_tight(&self, current: usize) -> bool {
        let Some(cost) = self.costs.get(current).copied().flatten() else { return false };
        let is_known = self.bursts.len() == BURSTS && self.bursts.iter().all(|burst| burst.high.is_finite());
        is_known && self.estimate().is_some_and(|estimate| cost.bytes_per_sec as f64 * KEEP > estimate)
    }

    /// Takes in what the path shows.
    pub(super) fn look(&mut self, now: Timestamp, current: usize, load: Load, link: &LinkView) {
        self.first_look.get_or_insert(now);
        self.min_rtt = link.min_rtt;
        let pipe = link.in_flight.saturating_add(link.unsent);
        // As long as everything offered leaves at once, the delivery rate is the source's. Bytes in flight
        // alone show no queue: on a calm path this function runs seldom.
        let rate = link.sustained();
        let has_queue = pipe > 0
            && (link.unsent > 0
                || load.waiting > 1
                || rate.is_some_and(|rate| rate.time_for(pipe) > link.min_rtt.saturating_add(QUEUE)));
        // Where the round trip shows none, a window or a timer is the limit.
        let has_round_trip = link.rtt > link.min_rtt.saturating_add(noise(link));
        let is_path = has_round_trip || link.loss > LOSSY || link.agreed.is_some();
        let has_queue = has_queue && is_path;
        self.look_at_burst(now, pipe, has_queue, link);
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
    //= spec/choice.md 38
    fn look_at_burst(&mut self, now: Timestamp, pipe: u64, has_queue: bool, link: &LinkView) {
        let Some(burst) = &mut self.burst else { return };
        let delivered = self.sent.saturating_sub(pipe);
        burst.is_seen |= has_queue;
        let framing = SEGMENT.min((burst.end - burst.delivered) / 8);
        if delivered < burst.end.saturating_sub(framing) {
            return;
        }
        let burst = *burst;
        self.burst = None;
        let left_at = link.acked_at.filter(|&at| at > burst.at).unwrap_or(now);
        let taken = left_at.saturating_since(burst.at).saturating_sub(link.min_rtt).max(SHORTEST_BURST);
        let bytes = delivered.saturating_sub(burst.delivered);
        // The smallest round trip has the time of a small segment in it, and the last acknowledgement may be delayed.
        let (share, unknown) = if bytes < TRAIN {
            (bytes as f64 / (bytes + SEGMENT) as f64, DELAYED_ACK)
        } else {
            (1.0, noise(link).min(taken / 10))
        };
        let rate = |taken: Duration| bytes as f64 / taken.as_secs_f64();
        let least = taken.checked_sub(unknown).filter(|least| burst.is_seen && *least > SHORTEST_BURST);
        if self.bursts.len() == BURSTS {
            self.bursts.pop_front();
        }
        self.bursts.push_back(Sample {
            low: rate(taken) * share,
            high: least.map_or(f64::INFINITY, rate),
            bytes: bytes as f64,
            taken,
        });
    }

    /// What the path has shown to carry, in bytes a second.
    fn estimate(&self) -> Option<f64> {
        let slowness: f64 = self.bursts.iter().map(|burst| burst.low.max(1.0).recip()).sum();
        (!self.bursts.is_empty()).then(|| self.bursts.len() as f64 / slowness)
    }

    /// Whether to hold a key frame back because it would occupy the path until long after a smaller
    /// rendition's next one.
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

    //= spec/choice.md 40
    fn trouble(&self, now: Timestamp, current: usize, load: Load) -> Option<Why> {
        let is_short = self.short_since.is_some_and(|since| now.saturating_since(since) >= SHORT_FOR);
        if is_short || self.is_tight(current) || self.is_too_dear(now, current, load) {
            Some(Why::Slow)
        } else if load.behind > LATE || self.missing > MISSING {
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

    /// The highest one above of which the path has shown that it fits, or the next one, if that may.
    //= spec/choice.md 39
    fn higher(&self, now: Timestamp, present: Cost) -> Option<usize> {
        let estimate = self.estimate()?;
        let since = now.saturating_since(self.changed);
        let is_young = self.first_look.is_none_or(|first| now.saturating_since(first) < YOUNG);
        let is_settled = since >= if is_young { Duration::ZERO } else { SETTLED };
        if !is_settled {
            return None;
        }
        let may_try = now >= self.trial.not_before;
        let above = || self.ladder().filter(|(_, cost)| cost.bytes_per_sec > present.bytes_per_sec);
        if may_try || estimate > self.trial.failed_at * BETTER {
            let fitting = above().filter(|(_, cost)| fits(cost, estimate, UP));
            if let Some((at, _)) = fitting.max_by_key(|(_, cost)| cost.bytes_per_sec) {
                return Some(at);
            }
        }
        let (at, next) = above().min_by_key(|(_, cost)| cost.bytes_per_sec)?;
        (may_try && self.may_carry(&next, estimate)).then_some(at)
    }

    /// Whether the bursts leave open that the path carries it, and its first key frame is soon there even if it does not.
    fn may_carry(&self, cost: &Cost, estimate: f64) -> bool {
        let Some(last) = self.bursts.back() else { return false };
        let high = self.bursts.iter().map(|burst| burst.high).fold(f64::INFINITY, f64::min);
        let key = if high.is_finite() {
            cost.key_bytes as f64 / estimate.max(1.0)
        } else {
            // Slow start doubles what a round trip carries, and on a short path the time grows as the bytes do.
            let ratio = (cost.key_bytes as f64 / last.bytes.max(1.0)).max(1.0);
            let doubled = last.taken + self.min_rtt.mul_f64(ratio.log2().ceil());
            last.taken.mul_f64(ratio).min(doubled.max(SHORT_KEY)).as_secs_f64()
        };
        cost.bytes_per_sec as f64 * UP <= high && key <= LONGEST_KEY.as_secs_f64()
    }

    fn highest(&self, is_possible: impl Fn(&Cost) -> bool) -> Option<usize> {
        let possible = self.ladder().filter(|(_, cost)| is_possible(cost));
        possible.max_by_key(|&(_, cost)| cost.bytes_per_sec).map(|(at, _)| at)
    }
}

/// By how much a round trip exceeds the smallest one without a queue of the path.
fn noise(link: &LinkView) -> Duration {
    (link.min_rtt / 4).max(NOISE)
}

/// Whether a path of `rate` bytes a second carries it with so much to spare, and a key frame soon enough.
fn fits(cost: &Cost, rate: f64, margin: f64) -> bool {
    let key = cost.key_bytes as f64 / rate.max(1.0);
    cost.bytes_per_sec as f64 * margin <= rate && key <= LONGEST_KEY.as_secs_f64()
}

/// Bursts that the estimate is made of. FESTIVE takes 20 segments; with a key frame a second that would be
/// too slow here.
const BURSTS: usize = 3;
/// Factor by which a path carries more than a rendition before a receiver goes up to it (ADR 0047). A
/// rendition that needs 75 % of a link needs 78 % of its payload, which leaves 1.28; the rest is for sizes
/// that vary (`tests/ladder.rs`).
const UP: f64 = 1.2;
/// The same factor for a step down to it (ADR 0047).
const DOWN: f64 = 1.1;
/// The same factor to keep it (ADR 0047).
const KEEP: f64 = 1.1;
/// A key frame that takes longer is a freeze that a person sees (ADR 0047): 15 mean pictures at 75 % of a
/// link take 0.45 s, 20 take 0.6 s.
const LONGEST_KEY: Duration = Duration::from_millis(600);
/// A key frame that takes no longer may be tried on any path without a limit. Chosen, not measured.
const SHORT_KEY: Duration = Duration::from_millis(100);
/// Pictures that wait longer are late (ADR 0047): a key frame that takes as long as it may, and a little.
const LATE: Duration = Duration::from_millis(700);
/// A path with less than this part of the rendition's rate is short of it. Chosen, not measured.
const SHORT: f64 = 0.95;
/// A shortage of this length is believed. Chosen, not measured.
const SHORT_FOR: Duration = Duration::from_millis(400);
/// A key frame that takes longer than this waits for that of a smaller rendition. Chosen, not measured.
const TOO_DEAR: Duration = Duration::from_secs(1);
/// Bytes in flight for this much longer than the smallest round trip wait in a queue. Chosen, not measured.
const QUEUE: Duration = Duration::from_millis(60);
/// Share of retransmissions above which losses limit the congestion window, and with it the rate. Chosen, not
/// measured.
const LOSSY: f64 = 0.005;
/// Number of pictures that count, 2.5 s of most streams (ADR 0047).
const PICTURES: f64 = 64.0;
/// Share of them that may be dropped (ADR 0047).
const MISSING: f64 = 0.15;
/// A train of fewer bytes may end in a segment whose acknowledgement a receiver delays (ADR 0047).
const TRAIN: u64 = 4 * SEGMENT;
/// The longest delay of an acknowledgement: Linux, `TCP_DELACK_MIN`.
const DELAYED_ACK: Duration = Duration::from_millis(40);
/// A round trip this little above the smallest, or a quarter of it, shows no queue, as in the engine's
/// estimate. Chosen, not measured.
const NOISE: Duration = Duration::from_millis(10);
/// Time for which an observed limit is believed. Chosen, not measured.
const FRESH: Duration = Duration::from_secs(2);
/// No burst counts as shorter: the times at which the policy is asked are not finer. Chosen, not measured.
const SHORTEST_BURST: Duration = Duration::from_millis(5);
/// Bytes of a segment, as on Ethernet. For framing and rounding, a burst is over when all but this has left.
const SEGMENT: u64 = 1500;
/// In this time after its start a receiver goes up as soon as the path has shown enough. Chosen, not
/// measured.
const YOUNG: Duration = Duration::from_secs(10);
/// Afterwards a rendition is kept for at least this long before the next step up. Chosen, not measured.
const SETTLED: Duration = Duration::from_secs(10);
/// A step up that lasts this long was right. Chosen, not measured.
const TRIAL: Duration = Duration::from_secs(12);
/// The first and the longest pause after a step up that failed; it doubles in between. Chosen, not measured.
const PAUSE: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(300));
/// Factor by which a path must show more than at the failed step to count as another one. Chosen, not
/// measured.
const BETTER: f64 = 1.5;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_millis(milliseconds)
    }

    /// 400 and 160 kbit/s; the receiver has the lower one.
    fn rule() -> Rule {
        let mut rule = Rule::default();
        let cost = |bytes_per_sec, key_bytes| {
            Some(Cost { bytes_per_sec, key_bytes, key_interval: Duration::from_secs(2) })
        };
        let mut costs = [None; MAX_RENDITIONS];
        (costs[0], costs[1]) = (cost(50_000, 20_000), cost(20_000, 8000));
        rule.set_costs(3, costs);
        rule
    }

    fn link(rtt: u64, acked_at: Option<Timestamp>) -> LinkView {
        let (rtt, min_rtt) = (Duration::from_millis(rtt), Duration::from_millis(20));
        LinkView { rtt, min_rtt, acked_at, ..LinkView::default() }
    }

    /// A key frame is sent; while it is on the way and pictures wait, and when the last of it has arrived.
    fn burst(rule: &mut Rule, arrived: u64, looked: u64, rtt: u64) {
        rule.sent(at(0), 8000, true, 0);
        let waits = Load { waiting: 2, ..Load::default() };
        rule.look(at(arrived / 2), 1, waits, &LinkView { in_flight: 4000, ..link(rtt, None) });
        rule.look(at(looked), 1, Load::default(), &link(rtt, Some(at(arrived))));
    }

    #[test]
    fn a_burst_ends_with_its_last_acknowledgement() {
        let mut rule = rule();
        burst(&mut rule, 100, 140, 80);
        let estimate = rule.estimate().expect("a burst");
        assert!((estimate - 100_000.0).abs() < 1.0, "8000 bytes in 80 ms: {estimate}");
    }

    #[test]
    fn the_next_rendition_is_tried_unless_the_path_showed_a_limit() {
        let wanted = |arrived, rtt| {
            let mut rule = rule();
            burst(&mut rule, arrived, arrived, rtt);
            rule.wanted(at(arrived), 1, Load::default()).0
        };
        assert_eq!(wanted(120, 80), 0, "80 kB/s are enough");
        assert_eq!(wanted(200, 80), 1, "44 kB/s are not, and a queue was there");
        assert_eq!(wanted(200, 22), 0, "a window was the limit");
        assert_eq!(wanted(1200, 22), 1, "the key frame would take too long");
    }

    #[test]
    fn some_missing_pictures_are_no_trouble_and_many_are() {
        let mut rule = rule();
        burst(&mut rule, 60, 60, 80);
        let mut trouble = |dropped: usize| {
            (0..dropped).for_each(|_| rule.decided(true));
            rule.trouble(at(60), 0, Load::default())
        };
        assert_eq!(trouble(3), None);
        assert_eq!(trouble(20), Some(Why::Late));
        (0..100).for_each(|_| rule.decided(false));
        assert_eq!(rule.trouble(at(60), 0, Load::default()), None);
    }

    #[test]
    fn a_path_with_nothing_to_spare_is_left() {
        let trouble = |arrived| {
            let mut rule = rule();
            (0..BURSTS).for_each(|_| burst(&mut rule, arrived, arrived, 80));
            rule.trouble(at(arrived), 0, Load::default())
        };
        assert_eq!(trouble(140), None, "67 kB/s of 50");
        assert_eq!(trouble(175), Some(Why::Slow), "52 kB/s of 50");
    }
}

mod ladder;
mod plan;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use freshwire_units::{Rate, Timestamp};

use self::ladder::Ladder;
use self::plan::{Item, MAX_ITEMS, Planner, Price};
use crate::lost::Lost;
use crate::{Choice, Decision, LinkView, Outcome, Progress, Reason, Record};

/// For video frames: as many whole, decodable frames on time as the link carries.
///
/// It learns the stream's ladder (how often a key frame comes, how large the frames of each layer are) and plans over
/// what is queued and what is expected up to the next key frame. A frame is sent if the best plan sends it; those
/// before it are dropped at that instant and not earlier. So droppable frames give way to the reference chain, a
/// frame that is of no use on time is not begun, and when the chain cannot be kept the link is free for the next key frame.
/// Frames go in order and whole. Made ready by [`crate::frames`].
#[derive(Debug)]
pub struct Frames {
    margin: Duration,
    late_references: bool,
    by_gap: bool,
    gives_up: bool,
    lost: Lost,
    hope: Hope,
    stream: Arc<Known>,
}

/// The stream, for all receivers of it.
#[derive(Debug, Default)]
struct Known {
    /// One more than the newest record's number, or 0: who has nothing newer need not wait for the others.
    learned: AtomicU64,
    stream: Mutex<Stream>,
}

impl Known {
    fn lock(&self) -> MutexGuard<'_, Stream> {
        // A panic elsewhere leaves at worst a plan half made, and each plan begins anew.
        self.stream.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn learn(&self, record: &Record) {
        // Relaxed: only whether to look is decided by it.
        if record.seq >= self.learned.load(Ordering::Relaxed) {
            let mut stream = self.lock();
            stream.ladder.see(record);
            self.learned.fetch_max(record.seq.saturating_add(1), Ordering::Relaxed);
        }
    }
}

/// What is thought of a link on which nothing is on its way.
#[derive(Debug, Default)]
struct Hope {
    /// Since when the pipe has been seen empty.
    idle_since: Option<Timestamp>,
    /// The rate as measured when a frame was sent in the hope of a better one.
    tried_at: Option<Rate>,
    is_judged: bool,
    /// No try before this, because the last one came to nothing.
    not_before: Timestamp,
    pause: Duration,
}

/// What is known of the stream, which is the same for every receiver, and room to plan in.
#[derive(Debug, Default)]
struct Stream {
    ladder: Ladder,
    planner: Planner,
    items: Vec<Item>,
    /// Sequence numbers of what is queued, ascending, with positions in the queue.
    order: Vec<(u64, usize)>,
}

impl Default for Frames {
    fn default() -> Self {
        Self::new(DEFAULT_MARGIN)
    }
}

impl Frames {
    /// A policy that keeps `margin` between a frame's predicted arrival and its deadline.
    pub fn new(margin: Duration) -> Self {
        Self {
            margin,
            late_references: false,
            by_gap: false,
            gives_up: false,
            lost: Lost::default(),
            hope: Hope::default(),
            stream: Arc::default(),
        }
    }

    /// Values a frame by the gap that it closes instead of each alike: a layer above another one halves its gaps, and what
    /// a gap costs a person grows with its square. Fewer frames are sent, and the longest freezes are shorter. A frame is
    /// worth less the older it arrives, down to nothing at its deadline: else each group would begin later than the one
    /// before, until one of them has no time left for its chain.
    #[must_use]
    pub fn by_gap(mut self, wanted: bool) -> Self {
        self.by_gap = wanted;
        self
    }

    /// Drops a frame as soon as no plan sends it and nothing will tell of a better link before its deadline, instead of at that
    /// deadline: for receivers that get something else in its place. Off in [`Frames::new`], on in [`crate::live`].
    #[must_use]
    pub fn giving_up(mut self, wanted: bool) -> Self {
        self.gives_up = wanted;
        self
    }

    /// A policy with the same settings for another receiver of the same stream, whose records have the same numbers. What
    /// is known of the stream is kept once for all of them.
    #[must_use]
    pub fn for_another(&self) -> Self {
        Self { lost: Lost::default(), hope: Hope::default(), stream: Arc::clone(&self.stream), ..*self }
    }

    /// Tells of a record of the stream that may not be in this receiver's queue, in order of the numbers. What every receiver's
    /// queue shows is learned anyway; one that joins plans better if the stream is known by then. Where receivers have
    /// different deadlines, each keeps the distance of its own ones to these.
    pub fn observe(&self, record: &Record) {
        self.stream.learn(record);
    }

    /// Also begins a frame that is predicted late, if frames that depend on it will be on time. A key frame that is a
    /// few milliseconds late then does not cost its group. Never begins one that has expired. Off in [`Frames::new`], on
    /// in [`crate::frames`].
    #[must_use]
    pub fn with_late_references(mut self, allowed: bool) -> Self {
        self.late_references = allowed;
        self
    }

    /// How long after its deadline a record may arrive and still serve those that depend on it.
    fn patience(&self, ladder: &Ladder, record: &Record) -> Duration {
        if self.late_references && ladder.is_reference(record) {
            record.deadline.saturating_since(record.generated)
        } else {
            Duration::ZERO
        }
    }

    /// Fills `items` with what is queued and what is expected, in sequence order. `one_way` shifts releases to the
    /// receiver's side.
    //= spec/choice.md 20
    fn lay_out(&self, stream: &mut Stream, queue: &[Record], rate: Rate, one_way: Duration) {
        let Stream { ladder, items, order, .. } = stream;
        items.clear();
        order.clear();
        order.extend(queue.iter().enumerate().map(|(at, record)| (record.seq, at)));
        order.sort_unstable();
        order.truncate(MAX_ITEMS);
        let queued = order.len();
        let newest = ladder.newest().unwrap_or(0);
        // The plan ends with the next key, and all of its group hangs on that key.
        let key_worth = ladder.worth_of(ladder.group_len().unwrap_or(1), self.by_gap);
        let later =
            order.last().and_then(|&(seq, at)| Some((queue[at].deadline, ladder.find(seq)?.deadline)));
        let expected = ladder.expected(MAX_ITEMS - queued).map(|record| {
            let deadline = later.map_or(record.deadline, |(own, known)| moved(record.deadline, own, known));
            (true, Record { deadline, ..record })
        });
        let records = order.iter().map(|&(_, at)| (false, queue[at])).chain(expected);
        for (is_expected, record) in records {
            let mut needs = 0;
            let mut possible = true;
            for reference in record.references() {
                let seq = reference.unwrap_or(u64::MAX);
                let place = match order.binary_search_by_key(&seq, |&(seq, _)| seq) {
                    Ok(place) => Some(place),
                    Err(_) if seq > newest => {
                        usize::try_from(seq - newest - 1).ok().map(|ahead| queued + ahead)
                    }
                    // What is neither queued nor expected was decided before: at the receiver, or lost.
                    Err(_) => {
                        possible &= !self.lost.contains(seq);
                        continue;
                    }
                };
                match place.filter(|&place| place < items.len()) {
                    Some(place) => needs |= 1 << place,
                    None => possible = false,
                }
            }
            let is_next_key = is_expected && record.is_key();
            let doubt = if is_next_key { ladder.spread(&record) } else { 0 };
            items.push(Item {
                cost: nanos(rate.time_for(u64::from(record.len))),
                release: (record.generated + one_way).as_nanos(),
                deadline: (record.deadline - self.margin).as_nanos(),
                needs,
                possible,
                value: VALUE.saturating_mul(if is_next_key {
                    key_worth
                } else {
                    ladder.worth(&record, self.by_gap)
                }),
                doubt: nanos(rate.time_for(u64::from(doubt))),
                patience: nanos(self.patience(ladder, &record)),
                fades: self.by_gap,
            });
        }
    }

    /// Whether the only frame in the queue, the newest there is, arrives while it is worth something and before the next one could be
    /// sent: every plan sends it, and none has to be made. So it is for most frames on a link that carries the stream.
    fn costs_nothing(&self, ladder: &Ladder, record: &Record, now: Timestamp, link: &LinkView) -> bool {
        let interval = ladder.interval();
        let Some(arrival) = link.arrival(now, u64::from(record.len)) else { return false };
        let next = record.generated + interval + link.min_rtt / 2;
        let latest = record.deadline - self.margin;
        let life = latest.saturating_since(record.generated);
        ladder.newest() == Some(record.seq)
            && !interval.is_zero()
            && arrival + self.margin < next
            && latest.saturating_since(arrival) * VALUE > life
    }

    /// What to do now if the link has the rate that `link` says; `None` if nothing that is queued is worth sending now.
    //= spec/choice.md 22, 24
    fn plan(&self, now: Timestamp, queue: &[Record], link: &LinkView) -> Option<Decision> {
        let (rate, start) = (link.sustained()?, link.arrival(now, 0)?);
        let stream = &mut *self.stream.lock();
        self.lay_out(stream, queue, rate, link.min_rtt / 2);
        let per = nanos(rate.time_for(stream.ladder.mean_len()));
        // Where frames fade, those after the delay tell what it costs.
        let value = if self.by_gap { 0 } else { VALUE };
        let first = stream.planner.first(&stream.items, start.as_nanos(), Price { value, per })?;
        let &(_, oldest) = stream.order.first()?;
        if first == 0 {
            return Some(Decision::Send(oldest));
        }
        if first >= stream.order.len() {
            return None;
        }
        let arrival = link.arrival(now, u64::from(queue[oldest].len))?;
        let late = arrival + self.margin > queue[oldest].deadline;
        Some(Decision::Drop(oldest, if late { Reason::PredictedLate } else { Reason::LayerShed }))
    }

    /// Drops the oldest frame, which no plan sends, if none will before its deadline.
    //= spec/choice.md 22
    fn give_up(&self, now: Timestamp, queue: &[Record], link: &LinkView) -> Option<Decision> {
        let oldest = oldest(queue);
        let is_over = self.gives_up
            && !queue[oldest].is_key()
            && self.hope.next_try(now, link) > queue[oldest].deadline;
        is_over.then_some(Decision::Drop(oldest, Reason::LayerShed))
    }
}

impl Hope {
    /// The link as it may be by now. What was measured before the pipe ran empty says less and less, and a policy that
    /// believed it for ever would never find out that the link has recovered.
    //= spec/choice.md 23
    fn link(&mut self, now: Timestamp, link: &LinkView) -> Option<LinkView> {
        let pipe = link.in_flight.saturating_add(link.unsent);
        if link.rate.map_or(pipe > 0, |rate| rate.time_for(pipe) > TRIFLE) {
            self.idle_since = None;
            return None;
        }
        let idle = now.saturating_since(*self.idle_since.get_or_insert(now));
        let doublings = (idle.as_nanos() / DOUBLING.as_nanos()).min(16) as u32;
        let rate = link.rate?;
        self.judge(now, rate);
        (doublings > 0).then(|| LinkView {
            rate: Some(Rate::from_bits_per_sec(rate.bits_per_sec().saturating_mul(1 << doublings))),
            ..*link
        })
    }

    /// No frame is sent in the hope of more than the measured rate before this.
    fn next_try(&self, now: Timestamp, link: &LinkView) -> Timestamp {
        let empty = self.idle_since.unwrap_or_else(|| {
            let pipe = link.in_flight.saturating_add(link.unsent);
            now + link.rate.map_or(Duration::ZERO, |rate| rate.time_for(pipe))
        });
        self.not_before.max(empty + DOUBLING)
    }

    /// Whether a frame may be sent in the hope of more than this rate. Each that comes to nothing makes the next ones rarer.
    fn may_try(&mut self, now: Timestamp, rate: Option<Rate>) -> bool {
        let may = now >= self.not_before;
        if may {
            (self.tried_at, self.is_judged) = (rate, false);
        }
        may
    }

    /// Says what came of the last try, now that it has left the pipe, and when the link is faster by now.
    //= spec/choice.md 23
    fn judge(&mut self, now: Timestamp, rate: Rate) {
        let Some(before) = self.tried_at.map(Rate::bits_per_sec) else { return };
        if rate.bits_per_sec() > before.saturating_add(before / 2) {
            *self = Self { idle_since: self.idle_since, ..Self::default() };
        } else if !self.is_judged {
            self.is_judged = true;
            self.pause = (self.pause * 2).clamp(PAUSE.0, PAUSE.1);
            self.not_before = now + self.pause;
        }
    }
}

impl Choice for Frames {
    fn pick(&mut self, now: Timestamp, queue: &[Record], link: &LinkView) -> Decision {
        for record in queue {
            self.lost.seen(record.seq);
            self.stream.learn(record);
        }
        if let Some(at) = queue.iter().position(|record| record.deadline < now) {
            return Decision::Drop(at, Reason::Expired);
        }
        if let Some(at) = queue.iter().position(|record| self.lost.breaks(record)) {
            return Decision::Drop(at, Reason::ReferenceLost);
        }
        if queue.is_empty() {
            return Decision::Wait(None);
        }
        let hopeful = self.hope.link(now, link);
        if link.sustained().is_none() {
            return Decision::Send(oldest(queue));
        }
        if let [record] = queue
            && self.costs_nothing(&self.stream.lock().ladder, record, now, link)
        {
            return Decision::Send(0);
        }
        let decision = self.plan(now, queue, link).or_else(|| {
            let decision = self.plan(now, queue, &hopeful?)?;
            // Where keys get through, each of them measures the link, and one more frame that comes late is dear. Where they do not,
            // nothing else could show a better rate.
            let is_dear = matches!(decision, Decision::Send(at) if !queue[at].is_key());
            (!is_dear || self.hope.may_try(now, link.rate)).then_some(decision)
        });
        decision.or_else(|| self.give_up(now, queue, link)).unwrap_or_else(|| {
            Decision::Wait(Some(now + self.stream.lock().ladder.interval().max(SHORTEST_WAIT)))
        })
    }

    fn progress(&mut self, now: Timestamp, record: &Record, remaining: u32, link: &LinkView) -> Progress {
        match link.arrival(now, u64::from(remaining)) {
            Some(arrival)
                if arrival > record.deadline + self.patience(&self.stream.lock().ladder, record) =>
            {
                Progress::Abandon(Reason::PredictedLate)
            }
            _ => Progress::Continue,
        }
    }

    fn outcome(&mut self, record: &Record, outcome: Outcome) {
        self.lost.seen(record.seq);
        if matches!(outcome, Outcome::Dropped(_)) {
            self.lost.insert(record.seq);
        }
    }
}

/// The place of the record with the lowest number in a queue that is not empty.
fn oldest(queue: &[Record]) -> usize {
    (0..queue.len()).min_by_key(|&at| queue[at].seq).unwrap_or(0)
}

/// `instant`, moved by as much as `to` is from `from`.
fn moved(instant: Timestamp, to: Timestamp, from: Timestamp) -> Timestamp {
    if instant == Timestamp::MAX || to == Timestamp::MAX || from == Timestamp::MAX {
        return to;
    }
    instant + to.saturating_since(from) - from.saturating_since(to)
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// What a frame of the highest layer is worth in a plan.
const VALUE: u32 = 1000;
/// Covers the rounding of the rate and one segment's time on a slow link.
const DEFAULT_MARGIN: Duration = Duration::from_millis(5);
/// The rate is thought to have doubled for each such time without traffic, if nothing that is queued would be sent.
const DOUBLING: Duration = Duration::from_millis(125);
/// What the link takes less time for is no traffic: a framing's few bytes in the place of frames.
const TRIFLE: Duration = Duration::from_millis(10);
/// The first and the longest time without such a try.
const PAUSE: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(16));
/// A plan that waits is made anew after this time even if the stream's pace is unknown.
const SHORTEST_WAIT: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_millis(milliseconds)
    }

    fn idle(kbit: u64) -> LinkView {
        LinkView { rate: Some(Rate::from_bits_per_sec(kbit * 1000)), ..LinkView::default() }
    }

    fn busy(kbit: u64) -> LinkView {
        LinkView { in_flight: 1500, ..idle(kbit) }
    }

    /// The rate that is tried when the pipe has been empty for `idle` ms at `now`.
    fn hoped(hope: &mut Hope, now: u64, for_ms: u64, kbit: u64) -> Option<u64> {
        assert!(hope.link(at(now - for_ms - 1), &busy(kbit)).is_none());
        hope.link(at(now - for_ms), &idle(kbit));
        let link = hope.link(at(now), &idle(kbit))?;
        link.rate.filter(|_| hope.may_try(at(now), idle(kbit).rate)).map(|rate| rate.bits_per_sec() / 1000)
    }

    #[test]
    fn a_few_bytes_are_no_traffic() {
        let mut hope = Hope::default();
        let trifling = LinkView { in_flight: 300, ..idle(300) };
        assert!(hope.link(at(0), &busy(300)).is_none());
        for ms in 1..126 {
            assert!(hope.link(at(ms), &trifling).is_none());
        }
        assert!(hope.link(at(126), &trifling).is_some(), "8 ms of the link are on the way");
        assert!(hope.link(at(127), &busy(300)).is_none());
    }

    #[test]
    fn an_idle_link_is_hoped_to_have_recovered() {
        let hoped = |for_ms| hoped(&mut Hope::default(), 1000, for_ms, 300);
        assert_eq!([100, 130, 260].map(hoped), [None, Some(600), Some(1200)]);
    }

    /// 20 ms apart, each depends on the one before, a key is every fourth; keys may be 60 ms older than others.
    fn line(seq: u64, life: u64) -> Record {
        let is_key = seq.is_multiple_of(4);
        let generated = seq * 20;
        let deadline = at(generated + life + if is_key { 60 } else { 0 });
        let refs = [u32::from(!is_key), 0];
        Record {
            len: 1000,
            layer: refs[0] as u8,
            refs,
            generated: at(generated),
            deadline,
            ..Record::numbered(seq)
        }
    }

    /// The plan that would be made agrees, on links and with frames of all sizes, early and late.
    #[test]
    fn what_costs_nothing_is_sent_by_the_plan() {
        let counts = [AtomicU64::new(0), AtomicU64::new(0)];
        bolero::check!().with_type::<([u8; 12], u16, u8, u8, u8, bool)>().for_each(
            |&(lens, kbit, one_way, age, life, by_gap)| {
                let frames = Frames::new(Duration::from_millis(5)).by_gap(by_gap);
                let record = |seq: u64| {
                    let len = 100 * u32::from(lens[seq as usize % lens.len()]);
                    Record { len, ..line(seq, u64::from(life)) }
                };
                let newest = u64::from(lens[0]) % 24 + 1;
                (0..=newest).for_each(|seq| frames.observe(&record(seq)));
                let queue = [record(newest)];
                let now = queue[0].generated + Duration::from_millis(u64::from(age));
                let min_rtt = Duration::from_millis(u64::from(one_way)) * 2;
                let link = LinkView { min_rtt, ..busy(u64::from(kbit) + 1) };
                let stream = &mut *frames.stream.lock();
                let costs_nothing = frames.costs_nothing(&stream.ladder, &queue[0], now, &link);
                counts[usize::from(costs_nothing)].fetch_add(1, Ordering::Relaxed);
                if costs_nothing {
                    let start = link.arrival(now, 0).unwrap().as_nanos();
                    frames.lay_out(stream, &queue, link.rate.unwrap(), min_rtt / 2);
                    let price = Price { value: VALUE, per: 1_000_000 };
                    assert_eq!(stream.planner.first(&stream.items, start, price), Some(0));
                }
            },
        );
        assert!(
            counts.iter().all(|count| count.load(Ordering::Relaxed) > 20),
            "one case hardly occurs: {counts:?}"
        );
    }

    #[test]
    fn what_is_expected_has_the_receivers_own_deadlines() {
        let known = Frames::new(Duration::ZERO);
        (0..9).for_each(|seq| known.observe(&line(seq, 100)));
        for life in [50, 100, 900] {
            let frames = known.for_another();
            let stream = &mut *frames.stream.lock();
            frames.lay_out(
                stream,
                &[line(7, life), line(8, life)],
                Rate::from_bits_per_sec(1),
                Duration::ZERO,
            );
            let lives: Vec<u64> =
                stream.items.iter().map(|item| (item.deadline - item.release) / 1_000_000).collect();
            assert_eq!(lives, [life, life + 60, life, life, life, life + 60], "up to the next key");
        }
        let frames = known.for_another();
        let stream = &mut *frames.stream.lock();
        let unbound = Record { deadline: Timestamp::MAX, ..line(8, 0) };
        frames.lay_out(stream, &[unbound], Rate::from_bits_per_sec(1), Duration::ZERO);
        assert!(stream.items.iter().all(|item| item.deadline == Timestamp::MAX.as_nanos()));
    }

    #[test]
    fn what_nothing_can_save_is_given_up_at_once_if_that_is_wanted() {
        let pick = |gives_up: bool, not_before: u64, seq: u64, link: LinkView| {
            let mut frames = Frames::new(Duration::ZERO).giving_up(gives_up);
            (0..9).for_each(|seq| frames.observe(&line(seq, 200)));
            frames.outcome(&line(seq - 1, 200), Outcome::Sent);
            frames.hope.not_before = at(not_before);
            // It takes 800 ms and would have 200.
            frames.pick(at(seq * 20), &[line(seq, 200)], &link)
        };
        let given_up = Decision::Drop(0, Reason::LayerShed);
        assert_eq!(pick(true, 9000, 9, idle(10)), given_up);
        assert!(matches!(pick(false, 9000, 9, idle(10)), Decision::Wait(_)));
        assert!(
            matches!(pick(true, 0, 9, idle(10)), Decision::Wait(_)),
            "125 ms from now the link may be tried"
        );
        let busy_for = |ms: u64| LinkView { in_flight: ms * 10 / 8, ..idle(10) };
        assert!(matches!(pick(true, 0, 9, busy_for(64)), Decision::Wait(_)), "189 ms from now");
        assert_eq!(pick(true, 0, 9, busy_for(80)), given_up, "205 ms from now");
        assert!(
            matches!(pick(true, 9000, 12, idle(10)), Decision::Wait(_)),
            "a key measures the link by itself"
        );
    }

    #[test]
    fn hope_that_came_to_nothing_is_rare_and_what_came_true_is_not() {
        let mut hope = Hope::default();
        let mut tries = Vec::new();
        for second in 1..60 {
            tries.extend(hoped(&mut hope, second * 1000, 130, 300).map(|_| second));
        }
        assert_eq!(tries, [1, 4, 9, 18, 35, 52], "2, 4, 8 and then 16 s after it is seen that it failed");
        assert_eq!(hoped(&mut hope, 60_000, 130, 1000), Some(2000), "the link has become faster");
    }
}

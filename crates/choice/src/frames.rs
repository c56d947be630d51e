mod ladder;
mod plan;

use std::time::Duration;

use freshwire_record::{Rate, Timestamp};

use self::ladder::Ladder;
use self::plan::{Item, MAX_ITEMS, Planner, Price};
use crate::idle_probe::IdleProbe;
use crate::lost::Lost;
use crate::{Choice, Decision, LinkView, Outcome, Progress, Reason, Record};

/// For video frames: as many whole, decodable frames on time as the link carries.
///
/// It learns the stream's ladder: how often a key frame comes, and how large the frames of each layer are. It plans
/// over the queued frames and the expected ones, up to the next key frame. A frame is sent if the best plan sends it;
/// those before it are dropped at that instant and not earlier. So droppable frames give way to the reference chain,
/// and a frame that would be late is not started. When the chain cannot be kept, the link is free for the next key
/// frame. Frames go in order and whole. Made ready by [`crate::frames`].
#[derive(Debug)]
pub struct Frames {
    margin: Duration,
    late_references: bool,
    lost: Lost,
    probe: IdleProbe,
    stream: Stream,
}

/// Knowledge about the stream, and room to plan in.
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
            lost: Lost::default(),
            probe: IdleProbe::default(),
            stream: Stream::default(),
        }
    }

    /// Also begins a frame that is predicted late, if frames that depend on it will be on time. A key frame that is a
    /// few milliseconds late then does not cost its group. Never begins one that has expired. Off in [`Frames::new`], on
    /// in [`crate::frames`].
    #[must_use]
    pub fn with_late_references(mut self, allowed: bool) -> Self {
        self.late_references = allowed;
        self
    }

    /// A policy with the same settings for another receiver.
    #[must_use]
    pub fn for_another(&self) -> Self {
        Self::new(self.margin).with_late_references(self.late_references)
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
        let key_worth = u32::try_from(ladder.group_len().unwrap_or(1)).unwrap_or(u32::MAX);
        let expected = ladder.expected(MAX_ITEMS - queued).map(|record| (true, record));
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
                    // A record neither queued nor expected was decided before: it is at the receiver, or
                    // lost.
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
                value: VALUE.saturating_mul(if is_next_key { key_worth } else { 1 }),
                doubt: nanos(rate.time_for(u64::from(doubt))),
                patience: nanos(self.patience(ladder, &record)),
            });
        }
    }

    /// Whether the only queued frame, the newest one, arrives while it is worth something and before the next
    /// frame could be sent. Every plan sends it, so none has to be made. On a link that carries the stream
    /// this holds for most frames.
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
    fn plan(&mut self, now: Timestamp, queue: &[Record], link: &LinkView) -> Option<Decision> {
        let (rate, start) = (link.sustained()?, link.arrival(now, 0)?);
        let mut stream = std::mem::take(&mut self.stream);
        self.lay_out(&mut stream, queue, rate, link.min_rtt / 2);
        let per = nanos(rate.time_for(stream.ladder.mean_len()));
        let first = stream.planner.first(&stream.items, start.as_nanos(), Price { value: VALUE, per });
        self.stream = stream;
        let (first, &(_, oldest)) = (first?, self.stream.order.first()?);
        if first == 0 {
            return Some(Decision::Send(oldest));
        }
        if first >= self.stream.order.len() {
            return None;
        }
        let arrival = link.arrival(now, u64::from(queue[oldest].len))?;
        let late = arrival + self.margin > queue[oldest].deadline;
        Some(Decision::Drop(oldest, if late { Reason::PredictedLate } else { Reason::LayerShed }))
    }
}

impl Choice for Frames {
    fn pick(&mut self, now: Timestamp, queue: &[Record], link: &LinkView) -> Decision {
        for record in queue {
            self.lost.seen(record.seq);
            self.stream.ladder.see(record);
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
        let hopeful = self.probe.link(now, link);
        if link.sustained().is_none() {
            return Decision::Send(oldest(queue));
        }
        if let [record] = queue
            && self.costs_nothing(&self.stream.ladder, record, now, link)
        {
            return Decision::Send(0);
        }
        let decision = self.plan(now, queue, link).or_else(|| {
            let decision = self.plan(now, queue, &hopeful?)?;
            // Where keys get through, each of them measures the link, and one more frame that comes late is dear. Where they do not,
            // nothing else could show a better rate.
            let is_dear = matches!(decision, Decision::Send(at) if !queue[at].is_key());
            (!is_dear || self.probe.may_try(now, link.rate)).then_some(decision)
        });
        decision
            .unwrap_or_else(|| Decision::Wait(Some(now + self.stream.ladder.interval().max(SHORTEST_WAIT))))
    }

    fn progress(&mut self, now: Timestamp, record: &Record, remaining: u32, link: &LinkView) -> Progress {
        match link.arrival(now, u64::from(remaining)) {
            Some(arrival) if arrival > record.deadline + self.patience(&self.stream.ladder, record) => {
                Progress::Abandon(Reason::PredictedLate)
            }
            _ => Progress::Continue,
        }
    }

    fn outcome(&mut self, record: &Record, outcome: Outcome) {
        self.lost.seen(record.seq);
        if outcome.reason().is_some() {
            self.lost.insert(record.seq);
        }
    }
}

/// The place of the record with the lowest number in a queue that is not empty.
fn oldest(queue: &[Record]) -> usize {
    (0..queue.len()).min_by_key(|&at| queue[at].seq).unwrap_or(0)
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Value of a frame in a plan, times a factor for the next key frame. Only its ratio to that factor and to
/// rounding matters.
const VALUE: u32 = 1000;
/// Covers the rounding of the rate and one segment's time on a slow link: 1500 bytes at 2.4 Mbit/s.
const DEFAULT_MARGIN: Duration = Duration::from_millis(5);
/// A plan that waits is made anew after this time even if the stream's pace is unknown. Chosen, not measured.
const SHORTEST_WAIT: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

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
    fn a_frame_without_cost_is_sent_by_the_plan() {
        let counts = [AtomicU64::new(0), AtomicU64::new(0)];
        bolero::check!().with_type::<([u8; 12], u16, u8, u8, u8)>().for_each(
            |&(lens, kbit, one_way, age, life)| {
                let mut frames = Frames::new(Duration::from_millis(5));
                let record = |seq: u64| {
                    let len = 100 * u32::from(lens[seq as usize % lens.len()]);
                    Record { len, ..line(seq, u64::from(life)) }
                };
                let newest = u64::from(lens[0]) % 24 + 1;
                (0..=newest).for_each(|seq| frames.stream.ladder.see(&record(seq)));
                let queue = [record(newest)];
                let now = queue[0].generated + Duration::from_millis(u64::from(age));
                let min_rtt = Duration::from_millis(u64::from(one_way)) * 2;
                let link = LinkView { min_rtt, ..busy(u64::from(kbit) + 1) };
                let mut stream = std::mem::take(&mut frames.stream);
                let costs_nothing = frames.costs_nothing(&stream.ladder, &queue[0], now, &link);
                counts[usize::from(costs_nothing)].fetch_add(1, Ordering::Relaxed);
                if costs_nothing {
                    let start = link.arrival(now, 0).unwrap().as_nanos();
                    frames.lay_out(&mut stream, &queue, link.rate.unwrap(), min_rtt / 2);
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
}

mod ladder;
mod plan;

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
/// frame that would be late is not begun, and when the chain cannot be kept the link is free for the next key frame.
/// Frames go in order and whole.
#[derive(Clone, Debug)]
pub struct Frames {
    margin: Duration,
    lost: Lost,
    ladder: Ladder,
    planner: Planner,
    items: Vec<Item>,
    /// Since when the pipe has been seen empty.
    idle_since: Option<Timestamp>,
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
            lost: Lost::default(),
            ladder: Ladder::default(),
            planner: Planner::default(),
            items: Vec::new(),
            idle_since: None,
        }
    }

    /// Fills `items` with what is queued and what is expected. `one_way` shifts releases to the receiver's side.
    fn lay_out(&mut self, queue: &[Record], rate: Rate, one_way: Duration) {
        self.items.clear();
        let base = queue.first().map_or(0, |record| record.seq);
        let queued = queue.iter().take(MAX_ITEMS);
        let expected = self.ladder.expected(MAX_ITEMS.saturating_sub(queue.len()));
        // The plan ends with the next key, and all of its group hangs on that key.
        let group_len = self.ladder.group_len().and_then(|len| u32::try_from(len).ok());
        let key_value = VALUE * group_len.unwrap_or(1);
        let items = &mut self.items;
        for record in queued.copied().chain(expected) {
            let mut needs = 0;
            let mut possible = true;
            for reference in record.references() {
                match reference {
                    // What is neither queued nor expected was decided before: at the receiver, or lost.
                    Some(seq) if seq < base => possible &= !self.lost.contains(seq),
                    Some(seq) if seq - base < items.len() as u64 => needs |= 1 << (seq - base),
                    _ => possible = false,
                }
            }
            let is_next_key = record.is_key() && items.len() >= queue.len();
            let spread = if is_next_key { self.ladder.spread(&record) } else { 0 };
            let deadline = record.deadline - self.margin;
            items.push(Item {
                cost: u64::try_from(rate.time_for(u64::from(record.len)).as_nanos()).unwrap_or(u64::MAX),
                release: (record.generated + one_way).as_nanos(),
                deadline: deadline.as_nanos(),
                needs,
                possible,
                value: if is_next_key { key_value } else { VALUE },
                doubt: u64::try_from(rate.time_for(u64::from(spread)).as_nanos()).unwrap_or(u64::MAX),
            });
        }
    }

    fn plan(&mut self, now: Timestamp, queue: &[Record], link: &LinkView) -> Option<usize> {
        let (Some(rate), Some(start)) = (link.rate, link.arrival(now, 0)) else { return Some(0) };
        self.lay_out(queue, rate, link.min_rtt / 2);
        let mean = u64::try_from(rate.time_for(self.ladder.mean_len()).as_nanos()).unwrap_or(u64::MAX);
        self.planner.first(&self.items, start.as_nanos(), Price { value: VALUE, per: mean })
    }

    /// The link as it may be by now. What was measured before the pipe ran empty says less and less, and a policy that
    /// believed it for ever would never find out that the link has recovered.
    fn hopeful(&mut self, now: Timestamp, link: &LinkView) -> Option<LinkView> {
        if link.in_flight + link.unsent > 0 {
            self.idle_since = None;
            return None;
        }
        let idle = now.saturating_since(*self.idle_since.get_or_insert(now));
        let doublings = (idle.as_nanos() / DOUBLING.as_nanos()).min(16) as u32;
        let rate = link.rate?;
        (doublings > 0).then(|| LinkView {
            rate: Some(Rate::from_bits_per_sec(rate.bits_per_sec().saturating_mul(1 << doublings))),
            ..*link
        })
    }
}

impl Choice for Frames {
    fn pick(&mut self, now: Timestamp, queue: &[Record], link: &LinkView) -> Decision {
        for record in queue {
            self.lost.seen(record.seq);
            self.ladder.see(record);
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
        let hopeful = self.hopeful(now, link);
        let mut plan = self.plan(now, queue, link);
        if let Some(hopeful) = hopeful
            && plan.is_none_or(|at| at >= queue.len())
        {
            plan = self.plan(now, queue, &hopeful);
        }
        match plan {
            Some(0) => Decision::Send(0),
            Some(at) if at < queue.len() => {
                let late = link
                    .arrival(now, u64::from(queue[0].len))
                    .is_some_and(|arrival| arrival + self.margin > queue[0].deadline);
                Decision::Drop(0, if late { Reason::PredictedLate } else { Reason::LayerShed })
            }
            _ => Decision::Wait(Some(now + self.ladder.interval().max(SHORTEST_WAIT))),
        }
    }

    fn progress(&mut self, now: Timestamp, record: &Record, remaining: u32, link: &LinkView) -> Progress {
        match link.arrival(now, u64::from(remaining)) {
            Some(arrival) if arrival > record.deadline => Progress::Abandon(Reason::PredictedLate),
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

/// What one frame is worth in a plan.
const VALUE: u32 = 1000;
/// Covers the rounding of the rate and one segment's time on a slow link.
const DEFAULT_MARGIN: Duration = Duration::from_millis(5);
/// The rate is thought to have doubled for each such time without traffic, if otherwise nothing that is queued would be sent.
const DOUBLING: Duration = Duration::from_millis(125);
/// A plan that waits is made anew after this time even if the stream's pace is unknown.
const SHORTEST_WAIT: Duration = Duration::from_millis(5);

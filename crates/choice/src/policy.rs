use std::collections::VecDeque;
use std::time::Duration;

use freshwire_record::{Rate, Timestamp};

use crate::lost::Lost;
use crate::turns::Turns;
use crate::{Choice, Decision, LinkView, Outcome, Progress, Reason, Record};

/// Condition for dropping a queued record. Rules are asked in the order in which they were added; the first
/// that applies names the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum Rule {
    /// Its deadline has passed.
    Expired,
    /// The record is next to be sent and would arrive less than `margin` before its deadline. Asked only of
    /// the next record, so that the others remain if the link recovers. A record in progress is abandoned if
    /// it would be late at twice the estimated rate.
    PredictedLate {
        /// Safety margin between predicted arrival and deadline.
        margin: Duration,
    },
    /// A record that it depends on was dropped, so the receiver could not use it.
    DependencyClosure,
    /// A newer record with the same key is queued.
    LatestByKey,
    /// Its time window has ended. Windows of this length start at the first record of a group. The rest of an ended window is
    /// dropped from the highest layer down (Birkedal 2006, section 5.1.2).
    WindowEnd {
        /// Length of a window.
        window: Duration,
    },
    /// A record of a newer group is queued.
    NewestGroup,
    /// Its layer is above `highest`.
    LayerLimit {
        /// The highest layer that is sent.
        highest: u8,
    },
}

/// Which of the remaining records is sent first. A record never precedes a queued record that it depends on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum Order {
    /// The oldest.
    #[default]
    Fifo,
    /// The lowest layer of the oldest group.
    ByLayer,
    /// The newest.
    Newest,
    /// The key that has waited longest since it was last sent. Keys take turns, and a newer value keeps its key's turn. A record
    /// without a key waits for itself. With [weights](Builder::weights) the waiting time is multiplied by the weight.
    ByTurn,
}

/// An ordered list of drop rules and one sending order.
///
/// ```
/// use std::time::Duration;
/// use freshwire_choice::{Order, Policy, Rule};
///
/// let policy = Policy::builder()
///     .rule(Rule::Expired)
///     .rule(Rule::DependencyClosure)
///     .rule(Rule::PredictedLate { margin: Duration::from_millis(20) })
///     .order(Order::ByLayer)
///     .build();
/// ```
#[derive(Clone, Debug, Default)]
pub struct Policy {
    rules: Vec<Rule>,
    order: Order,
    lost: Lost,
    windows: Windows,
    turns: Turns,
}

/// Collects the parts of a [`Policy`].
#[derive(Clone, Debug, Default)]
pub struct Builder {
    rules: Vec<Rule>,
    order: Order,
    weights: Vec<u32>,
}

impl Builder {
    /// Adds a rule after the existing ones.
    #[must_use]
    pub fn rule(mut self, rule: Rule) -> Self {
        self.rules.push(rule);
        self
    }

    /// Sets the sending order. Default: [`Order::Fifo`].
    #[must_use]
    pub fn order(mut self, order: Order) -> Self {
        self.order = order;
        self
    }

    /// Sets the weights of the layers under [`Order::ByTurn`], layer 0 first; higher layers have the last
    /// weight. If two keys always have data, one with twice the weight is sent twice as often, and none
    /// starves. Zero counts as one. Default: equal weights.
    #[must_use]
    pub fn weights(mut self, weights: impl IntoIterator<Item = u32>) -> Self {
        self.weights = weights.into_iter().collect();
        self
    }

    /// Builds the policy, with an empty history.
    pub fn build(self) -> Policy {
        let turns = Turns::new(self.weights);
        Policy { rules: self.rules, order: self.order, turns, ..Policy::default() }
    }
}

impl Policy {
    /// Starts a policy without rules that sends in order.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The rules in the order in which they are asked.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The sending order.
    pub fn order(&self) -> Order {
        self.order
    }

    /// Returns the same policy with these [weights](Builder::weights) and an empty history.
    #[must_use]
    pub fn with_weights(self, weights: impl IntoIterator<Item = u32>) -> Self {
        Builder { rules: self.rules, order: self.order, weights: Vec::new() }.weights(weights).build()
    }

    //= spec/choice.md 10, 13..17
    fn victim(&self, rule: Rule, now: Timestamp, queue: &[Record]) -> Option<(usize, Reason)> {
        match rule {
            Rule::Expired => {
                let at = queue.iter().position(|record| record.deadline < now)?;
                Some((at, Reason::Expired))
            }
            Rule::DependencyClosure => {
                let at = queue.iter().position(|record| self.lost.breaks(record))?;
                Some((at, Reason::ReferenceLost))
            }
            Rule::LatestByKey => Some((superseded(queue)?, Reason::Superseded)),
            Rule::WindowEnd { window } => Some((self.windows.ended(now, window, queue)?, Reason::WindowEnd)),
            Rule::NewestGroup => {
                let newest = queue.iter().max_by_key(|record| record.seq)?.group;
                let at = queue.iter().position(|record| record.group != newest)?;
                Some((at, Reason::Superseded))
            }
            Rule::LayerLimit { highest } => {
                let at = queue.iter().position(|record| record.layer > highest)?;
                Some((at, Reason::LayerShed))
            }
            Rule::PredictedLate { .. } => None,
        }
    }

    //= spec/choice.md 18, 19
    fn next(&self, queue: &[Record]) -> Option<usize> {
        let ready = ready(queue);
        let ready = queue.iter().enumerate().filter(|&(at, _)| ready(at));
        let chosen = match self.order {
            Order::Fifo => ready.min_by_key(|(_, record)| record.seq),
            Order::ByLayer => {
                let oldest = queue.iter().min_by_key(|record| record.seq)?.group;
                ready.min_by_key(|(_, record)| (record.group != oldest, record.layer, record.seq))
            }
            Order::Newest => ready.max_by_key(|(_, record)| record.seq),
            Order::ByTurn => self.turns.first(ready),
        };
        chosen.map(|(at, _)| at)
    }

    //= spec/choice.md 11
    fn is_late(&self, now: Timestamp, record: &Record, link: &LinkView) -> bool {
        let arrival = link.arrival(now, u64::from(record.len));
        self.rules.iter().any(|rule| match (rule, arrival) {
            (Rule::PredictedLate { margin }, Some(arrival)) => arrival + *margin > record.deadline,
            _ => false,
        })
    }
}

impl Choice for Policy {
    fn pick(&mut self, now: Timestamp, queue: &[Record], link: &LinkView) -> Decision {
        for record in queue {
            self.lost.seen(record.seq);
        }
        if self.rules.iter().any(|rule| matches!(rule, Rule::WindowEnd { .. })) {
            self.windows.observe(queue);
        }
        if self.order == Order::ByTurn {
            self.turns.observe(queue);
        }
        for &rule in &self.rules {
            if let Some((at, reason)) = self.victim(rule, now, queue) {
                return Decision::Drop(at, reason);
            }
        }
        match self.next(queue) {
            None => Decision::Wait(None),
            Some(at) if self.is_late(now, &queue[at], link) => Decision::Drop(at, Reason::PredictedLate),
            Some(at) => Decision::Send(at),
        }
    }

    //= spec/choice.md 12
    fn progress(&mut self, now: Timestamp, record: &Record, remaining: u32, link: &LinkView) -> Progress {
        for rule in &self.rules {
            match rule {
                Rule::Expired if record.deadline < now => return Progress::Abandon(Reason::Expired),
                // A record in progress has cost bytes; giving it up on a doubt would waste them.
                Rule::PredictedLate { .. } => {
                    let hopeful = LinkView { rate: link.rate.map(doubled), ..*link };
                    let arrival = hopeful.arrival(now, u64::from(remaining));
                    if arrival.is_some_and(|arrival| arrival > record.deadline) {
                        return Progress::Abandon(Reason::PredictedLate);
                    }
                }
                _ => {}
            }
        }
        Progress::Continue
    }

    fn outcome(&mut self, record: &Record, outcome: Outcome) {
        self.lost.seen(record.seq);
        match outcome.reason() {
            None => self.turns.served(record),
            Some(_) => self.lost.insert(record.seq),
        }
    }

    //= spec/choice.md 30
    fn stale(&mut self, now: Timestamp, queue: &[Record], newcomer: &Record) -> Option<(usize, Reason)> {
        for &rule in &self.rules {
            let victim = match rule {
                // The turn stays with the key; see `Turns`.
                Rule::LatestByKey => {
                    let older = |record: &Record| record.key == newcomer.key && record.seq <= newcomer.seq;
                    let replaced = queue.iter().position(older).filter(|_| newcomer.key != 0);
                    replaced.or_else(|| superseded(queue)).map(|at| (at, Reason::Superseded))
                }
                Rule::NewestGroup => {
                    let older = |record: &Record| record.group != newcomer.group && record.seq < newcomer.seq;
                    queue.iter().position(older).map(|at| (at, Reason::Superseded))
                }
                rule => self.victim(rule, now, queue),
            };
            if victim.is_some() {
                return victim;
            }
        }
        None
    }

    fn lookahead(&self) -> usize {
        let head_is_enough = self.rules.iter().all(|rule| {
            matches!(
                rule,
                Rule::Expired
                    | Rule::PredictedLate { .. }
                    | Rule::DependencyClosure
                    | Rule::LayerLimit { .. }
            )
        });
        if head_is_enough && self.order == Order::Fifo { 1 } else { usize::MAX }
    }

    fn is_in_order(&self) -> bool {
        self.order == Order::Fifo && self.rules.iter().all(|rule| *rule == Rule::Expired)
    }

    fn drops_expired(&self) -> bool {
        self.rules.contains(&Rule::Expired)
    }

    fn is_for_state(&self) -> bool {
        self.rules.contains(&Rule::LatestByKey)
    }
}

fn doubled(rate: Rate) -> Rate {
    Rate::from_bits_per_sec(rate.bits_per_sec().saturating_mul(2))
}

/// Tells by position whether a record depends on nothing that is still queued.
fn ready(queue: &[Record]) -> impl Fn(usize) -> bool + '_ {
    let sorted = queue.is_sorted_by_key(|record| record.seq);
    let queued = move |seq: u64| {
        if sorted {
            queue.binary_search_by_key(&seq, |record| record.seq).is_ok()
        } else {
            queue.iter().any(|record| record.seq == seq)
        }
    };
    move |at| queue[at].references().flatten().all(|seq| !queued(seq))
}

/// The oldest record that a newer one with the same key replaces.
fn superseded(queue: &[Record]) -> Option<usize> {
    let keyed = queue.iter().enumerate().filter(|(_, record)| record.key != 0);
    let mut keyed: Vec<_> = keyed.map(|(at, record)| (record.key, record.seq, at)).collect();
    keyed.sort_unstable();
    let replaced = keyed.windows(2).filter(|pair| pair[0].0 == pair[1].0);
    replaced.map(|pair| pair[0].2).min()
}

/// When the first record of each recent group came into being.
#[derive(Clone, Debug, Default)]
struct Windows {
    starts: VecDeque<(u32, Timestamp)>,
}

impl Windows {
    fn observe(&mut self, queue: &[Record]) {
        for record in queue {
            match self.starts.iter_mut().rev().find(|(group, _)| *group == record.group) {
                Some((_, start)) => *start = (*start).min(record.generated),
                None => {
                    if self.starts.len() == GROUPS {
                        self.starts.pop_front();
                    }
                    self.starts.push_back((record.group, record.generated));
                }
            }
        }
    }

    fn start(&self, record: &Record) -> Timestamp {
        let known = self.starts.iter().rev().find(|(group, _)| *group == record.group);
        known.map_or(record.generated, |&(_, start)| start)
    }

    /// The highest layer of the oldest group that has records whose window has ended.
    fn ended(&self, now: Timestamp, window: Duration, queue: &[Record]) -> Option<usize> {
        let has_ended = |record: &Record| {
            let start = self.start(record);
            let length = window.max(Duration::from_nanos(1)).as_nanos();
            let passed = record.generated.saturating_since(start).as_nanos() / length + 1;
            let end = u128::from(start.as_nanos()) + passed.saturating_mul(length);
            u128::from(now.as_nanos()) >= end
        };
        let oldest = queue.iter().filter(|record| has_ended(record)).min_by_key(|record| record.seq)?.group;
        let of_oldest = queue.iter().enumerate().filter(|(_, r)| r.group == oldest && has_ended(r));
        of_oldest.max_by_key(|(_, record)| (record.layer, record.seq)).map(|(at, _)| at)
    }
}

/// Groups whose start is remembered. Only groups with queued records matter; two or three are alive at a time.
const GROUPS: usize = 64;

#[cfg(test)]
mod tests;

//! Which pictures to send so that the screen is as fresh and as smooth as the link allows.

use super::formula::{FREEZE, FREEZE_WEIGHT, MOTION_WEIGHT, area, coarseness};

/// One picture that is queued or expected. Times are seconds on the sender's clock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Item {
    pub(crate) len: u32,
    /// When it was taken.
    pub(crate) captured: f64,
    /// The earliest start, in seconds.
    pub(crate) release: f64,
    /// Distances back to the items that it depends on; 0 is none. What lies before the first item is at the receiver.
    pub(crate) refs: [u32; 2],
    /// False if something that it depends on is lost already.
    pub(crate) possible: bool,
    /// What it closes of the motion's gap if a newer picture is there, in square seconds.
    pub(crate) between: f64,
    /// It has to have left by this.
    pub(crate) latest: f64,
    /// How long after that it is still sent, without being shown, for those that depend on it.
    pub(crate) patience: f64,
}

/// How things stand before the first item.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start {
    /// When the next byte can leave.
    pub(crate) free: f64,
    /// When the last picture came to the screen.
    pub(crate) shown_at: f64,
    /// When the newest picture on the screen was taken.
    pub(crate) newest: f64,
}

/// A way of having handled the items so far.
#[derive(Clone, Copy, Debug)]
struct State {
    /// Items sent that a later item depends on: bit k is the item k before the newest one.
    sent: u128,
    /// When the last byte sent has left.
    free: f64,
    shown_at: f64,
    newest: f64,
    /// The cost up to `shown_at`.
    cost: f64,
    /// The last step of the way.
    step: u32,
}

impl State {
    /// The cost up to `time`, which is not before `shown_at`, if nothing else comes to the screen.
    fn cost_until(&self, time: f64) -> f64 {
        self.cost
            + area(self.newest, self.shown_at, time)
            + FREEZE_WEIGHT * (time - self.shown_at - FREEZE).max(0.0)
    }

    /// With the picture on the screen at `time`.
    fn show(&mut self, item: &Item, time: f64) {
        self.cost = self.cost_until(time);
        if item.captured > self.newest {
            self.cost += MOTION_WEIGHT * coarseness(item.captured - self.newest);
            self.newest = item.captured;
        } else {
            self.cost -= MOTION_WEIGHT * item.between;
        }
        self.shown_at = time;
    }

    /// True if whatever can follow `other` is at least as good after this.
    fn is_as_good_as(&self, other: &Self) -> bool {
        self.free <= other.free
            && self.newest >= other.newest
            && self.shown_at <= other.shown_at
            && self.cost_until(other.shown_at) <= other.cost
    }
}

/// A step of a way: an item that it sends.
#[derive(Clone, Copy, Debug)]
struct Step {
    before: u32,
    item: u32,
    left: f64,
}

/// Memory that is kept from plan to plan.
#[derive(Clone, Debug)]
pub(crate) struct Planner {
    ways: usize,
    states: Vec<State>,
    next: Vec<State>,
    steps: Vec<Step>,
    /// For each item, those up to it that a later one depends on.
    needed: Vec<u128>,
    best: u32,
}

impl Planner {
    /// A planner that keeps at most `ways` ways at each item.
    pub(crate) fn new(ways: usize) -> Self {
        Self { ways, states: Vec::new(), next: Vec::new(), steps: Vec::new(), needed: Vec::new(), best: NONE }
    }

    /// Finds the best way to send a subset of the items, in order because decoders need them so. `end_of`
    /// maps a start and a number of bytes to the time at which the last of them has left. `goes_on`: more
    /// items are to come, unknown ones.
    //= spec/choice.md 34
    pub(crate) fn plan(
        &mut self,
        items: &[Item],
        start: Start,
        goes_on: bool,
        end_of: &dyn Fn(f64, u32) -> f64,
    ) {
        self.look_ahead(items);
        self.steps.clear();
        self.states.clear();
        self.best = NONE;
        let Start { free, shown_at, newest } = start;
        self.states.push(State { sent: 0, free, shown_at, newest, cost: 0.0, step: NONE });
        for (at, item) in items.iter().enumerate() {
            self.step(at, item, end_of);
        }
        let Some(last) = items.last() else { return };
        let end = self.latest(last.release) + TAIL;
        // A stream that goes on soon replaces what was left out at its end.
        let head = items.iter().map(|item| item.captured).fold(f64::NEG_INFINITY, f64::max);
        let head = if goes_on { head - FREEZE } else { head };
        let best = self.states.iter().min_by(|a, b| {
            let (one, other) = (a.cost_to_go(last.release, end, head), b.cost_to_go(last.release, end, head));
            one.total_cmp(&other).then(b.step.cmp(&a.step))
        });
        self.best = best.map_or(NONE, |state| state.step);
    }

    /// All items that the plan sends, in order, and when each has left.
    pub(crate) fn best_path(&self) -> Vec<(usize, f64)> {
        let mut path: Vec<_> = self.backwards().collect();
        path.reverse();
        path
    }

    fn backwards(&self) -> impl Iterator<Item = (usize, f64)> + '_ {
        let mut at = self.best;
        std::iter::from_fn(move || {
            let step = self.steps.get(at as usize)?;
            at = step.before;
            Some((step.item as usize, step.left))
        })
    }

    fn look_ahead(&mut self, items: &[Item]) {
        self.needed.clear();
        self.needed.resize(items.len(), 0);
        for (at, item) in items.iter().enumerate() {
            for back in item.refs.into_iter().map(|back| back as usize).filter(|&back| back > 0 && back <= at)
            {
                let oldest = at - back;
                for place in (oldest..at).take(WINDOW) {
                    self.needed[place] |= 1 << (place - oldest);
                }
            }
        }
    }

    fn step(&mut self, at: usize, item: &Item, end_of: &dyn Fn(f64, u32) -> f64) {
        let needed = self.needed[at];
        let bit = |back: u32| back > 0 && back as usize <= at && back as usize <= WINDOW;
        let asked =
            item.refs.into_iter().filter(|&back| bit(back)).fold(0, |mask, back| mask | 1 << (back - 1));
        self.next.clear();
        for state in &self.states {
            self.next.push(State { sent: (state.sent << 1) & needed, ..*state });
            if !item.possible || state.sent & asked != asked {
                continue;
            }
            let left = end_of(state.free.max(item.release), item.len);
            let mut with = State { sent: (state.sent << 1 | 1) & needed, free: left, ..*state };
            if left <= item.latest {
                with.show(item, left.max(state.shown_at));
            } else if left > item.latest + item.patience || needed & 1 == 0 {
                continue;
            }
            with.step = u32::try_from(self.steps.len()).unwrap_or(NONE);
            self.steps.push(Step { before: state.step, item: at as u32, left });
            self.next.push(with);
        }
        // When the next item comes, a link that was free before is as good as any.
        for state in &mut self.next {
            state.free = state.free.max(item.release);
        }
        self.prune(item);
    }

    /// Keeps the ways of which none is as good as another one with the same references at hand, and of these the best.
    fn prune(&mut self, item: &Item) {
        self.next.sort_unstable_by(|a, b| {
            a.sent.cmp(&b.sent).then(a.free.total_cmp(&b.free)).then(a.cost.total_cmp(&b.cost))
        });
        self.states.clear();
        let mut next = 0;
        while let Some(first) = self.next.get(next) {
            let group = self.states.len();
            let end = next + self.next[next..].iter().take_while(|state| state.sent == first.sent).count();
            for state in &self.next[next..end] {
                let kept = &mut self.states[group..];
                if kept.iter().any(|kept| kept.is_as_good_as(state)) {
                    continue;
                }
                match kept.last_mut() {
                    Some(last) if state.free - last.free < GRAIN && state.newest >= last.newest => {
                        *last = *state
                    }
                    _ => self.states.push(*state),
                }
            }
            self.limit(group, item);
            next = end;
        }
    }

    /// Keeps the best ways from this place on.
    fn limit(&mut self, group: usize, item: &Item) {
        if self.states.len() - group > self.ways {
            let (now, head) = (item.release, f64::NEG_INFINITY);
            let end = self.latest(now) + TAIL;
            let cost = |state: &State| state.cost_to_go(now, end, head);
            self.states[group..]
                .sort_unstable_by(|a, b| cost(a).total_cmp(&cost(b)).then(a.step.cmp(&b.step)));
            self.states.truncate(group + self.ways);
        }
    }

    /// When the link is free again whatever way was taken.
    fn latest(&self, now: f64) -> f64 {
        self.states.iter().map(|state| state.free).fold(now, f64::max)
    }
}

impl State {
    /// The cost up to `end`, which is not before any way's `free`. A way that has shown a picture as new as
    /// `head` keeps the age that the screen has when the next picture can come. The screen of any other way
    /// freezes.
    fn cost_to_go(&self, now: f64, end: f64, head: f64) -> f64 {
        let next = self.free.max(now);
        let age = next - self.newest;
        if self.newest < head {
            self.cost_until(end.max(self.shown_at)) + MOTION_WEIGHT * coarseness(end - self.newest)
        } else {
            self.cost_until(next.max(self.shown_at)) + (end - next) * age + MOTION_WEIGHT * coarseness(age)
        }
    }
}

/// Among ways that free the link within this time of each other, in seconds, only the cheapest is kept.
/// Chosen, not measured.
const GRAIN: f64 = 0.004;
/// Distance back up to which a reference is followed: one bit each in a `u128`.
const WINDOW: usize = 128;
const NONE: u32 = u32::MAX;
/// Seconds for which the age at the end of a plan is assumed to last (spec/choice.md, rule 34).
const TAIL: f64 = 1.0;

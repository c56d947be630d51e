//! What a run has reached, and whether that is enough.

use std::fmt;
use std::time::Duration;

use freshwire_record::{Rate, Timestamp};

use crate::feed::{Ending, Entry, Feed};
use crate::pipe::DirectionStats;
use crate::scenario::{FlowPlan, Scenario};

/// What a run of a scenario has reached.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Outcome {
    /// Outcome of each flow, in the scenario's order.
    pub flows: Vec<FlowOutcome>,
    /// Statistics of each path, up and down.
    pub paths: Vec<[DirectionStats; 2]>,
    /// Expectations that were not met.
    pub misses: Vec<String>,
    /// Violations of properties that must hold in every run, whatever the scenario says.
    pub faults: Vec<String>,
    /// Datagrams that were sent.
    pub datagrams: u64,
    /// A hash of them all: the same scenario and seed give the same one.
    pub fingerprint: u64,
}

/// What a flow has reached.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct FlowOutcome {
    /// Its name.
    pub name: String,
    /// Records that its application offered.
    pub offered: usize,
    /// Share of them that came by their deadline, with all that they depend on.
    pub on_time: f64,
    /// The same of layer 0.
    pub base: f64,
    /// Records that came after their deadline.
    pub late: usize,
    /// Records whose sending never started.
    pub dropped: usize,
    /// Records that were abandoned in progress.
    pub abandoned: usize,
    /// Payload that was of use on time, over the scenario's length.
    pub goodput: Rate,
    /// How long records took that came: 50, 95, 99 of 100, and all.
    pub delays: [Duration; 4],
    /// The same of layer 0.
    pub base_delays: [Duration; 4],
    /// From the end of the trouble until all is well for a second; `None` if it never is.
    pub recovery: Option<Duration>,
    /// Most bytes of payload that were queued or unsettled.
    pub held_peak: u64,
    /// How far a receiver's idea of a record's age was off at most.
    pub age_error: Duration,
    /// Connections that it took.
    pub connections: usize,
    /// What happened to records of each part of the time.
    pub timeline: Vec<Slot>,
}

/// Records of one part of the time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// Came into being in it.
    pub offered: usize,
    /// Offered records that came on time, with everything that they depend on.
    pub on_time: usize,
    /// Offered records that came late.
    pub late: usize,
    /// The longest that one took that came.
    pub slowest: Duration,
}

/// How many parts a time line has.
pub const SLOTS: usize = 60;

impl FlowOutcome {
    pub(crate) fn of(plan: &FlowPlan, scenario: &Scenario, feed: &Feed, start: Timestamp) -> Self {
        let entries = feed.entries();
        let usable = usable(entries);
        let count = |is: fn(&Ending) -> bool| {
            entries.iter().filter(|entry| entry.ending.is_some_and(|(_, ending)| is(&ending))).count()
        };
        let pairs = || entries.iter().zip(usable.iter().copied());
        let bytes: u64 = pairs().filter(|(_, is)| *is).map(|(entry, _)| u64::from(entry.record.len)).sum();
        let seconds = scenario.length.saturating_sub(plan.start).as_secs_f64().max(f64::MIN_POSITIVE);
        let trouble_end = scenario.trouble.map(|(_, to)| start + to);
        Self {
            name: plan.name.clone(),
            offered: entries.len(),
            on_time: share(pairs().map(|(_, is)| is)),
            base: share(pairs().filter(|(entry, _)| entry.record.layer == 0).map(|(_, is)| is)),
            late: entries.iter().filter(|entry| is_late(entry)).count(),
            dropped: count(|ending| matches!(ending, Ending::Dropped(_))),
            abandoned: count(
                |ending| matches!(ending, Ending::Committed(outcome) if outcome.reason().is_some()),
            ),
            goodput: Rate::from_bits_per_sec((bytes as f64 * 8.0 / seconds) as u64),
            delays: delays(entries.iter()),
            base_delays: delays(entries.iter().filter(|entry| entry.record.layer == 0)),
            recovery: trouble_end.and_then(|end| recovery(entries, &usable, end)),
            held_peak: feed.held_peak(),
            age_error: entries
                .iter()
                .filter_map(|entry| Some(entry.arrival?.age_error))
                .max()
                .unwrap_or_default(),
            connections: 0,
            timeline: timeline(entries, &usable, start, scenario.length),
        }
    }

    /// What `plan` expects and this has not reached.
    pub(crate) fn misses(&self, plan: &FlowPlan, has_trouble: bool) -> Vec<String> {
        let expect = &plan.expect;
        let mut misses = Vec::new();
        let mut ask = |is_reached: bool, what: String| {
            if !is_reached {
                misses.push(format!("{}: {what}", plan.name));
            }
        };
        if let Some(wanted) = expect.on_time {
            ask(self.on_time >= wanted, format!("{:.4} on time, {wanted} wanted", self.on_time));
        }
        if let Some(wanted) = expect.base {
            ask(self.base >= wanted, format!("{:.4} of the base on time, {wanted} wanted", self.base));
        }
        if let Some(wanted) = expect.delay_p95 {
            ask(self.delays[1] <= wanted, format!("delay p95 {:?}, {wanted:?} wanted", self.delays[1]));
        }
        if let Some(wanted) = expect.goodput {
            ask(self.goodput >= wanted, format!("goodput {}, {wanted} wanted", self.goodput));
        }
        if let Some(wanted) = expect.recovery.filter(|_| has_trouble) {
            let is_reached = self.recovery.is_some_and(|recovery| recovery <= wanted);
            ask(is_reached, format!("recovery {:?}, {wanted:?} wanted", self.recovery));
        }
        if let Some(wanted) = expect.held {
            ask(self.held_peak <= wanted, format!("{} bytes held, {wanted} wanted", self.held_peak));
        }
        if let Some(wanted) = expect.age_error {
            ask(self.age_error <= wanted, format!("ages are off by {:?}, {wanted:?} wanted", self.age_error));
        }
        misses
    }
}

/// What must hold in every run: what came was right, and what has no deadline came.
pub(crate) fn faults(name: &str, feed: &Feed) -> Vec<String> {
    let said = feed.faults().iter().map(|fault| format!("{name}: {fault}"));
    let lost = feed.entries().iter().filter(|entry| {
        let is_dropped = entry.ending.is_some_and(|(_, ending)| {
            ending == Ending::Dropped(freshwire_choice::Reason::Application)
                || ending == Ending::Dropped(freshwire_choice::Reason::Superseded)
        });
        entry.record.deadline == Timestamp::MAX && entry.arrival.is_none() && !is_dropped
    });
    let lost = lost.map(|entry| format!("{name}: record {} is reliable, and never came", entry.record.seq));
    said.chain(lost).collect()
}

/// Whether each record came by its deadline, with all that it depends on.
fn usable(entries: &[Entry]) -> Vec<bool> {
    let mut usable: Vec<bool> = Vec::with_capacity(entries.len());
    for entry in entries {
        let in_time = entry.arrival.is_some_and(|arrival| arrival.at <= entry.record.deadline);
        let has_all = entry
            .record
            .references()
            .all(|seq| seq.and_then(|seq| usable.get(seq as usize).copied()).unwrap_or_default());
        usable.push(in_time && has_all);
    }
    usable
}

fn is_late(entry: &Entry) -> bool {
    entry.arrival.is_some_and(|arrival| arrival.at > entry.record.deadline)
}

/// 1 if there is none.
fn share(all: impl Iterator<Item = bool>) -> f64 {
    let (mut count, mut good) = (0_u32, 0_u32);
    for is in all {
        count += 1;
        good += u32::from(is);
    }
    if count == 0 { 1.0 } else { f64::from(good) / f64::from(count) }
}

fn delay(entry: &Entry) -> Option<Duration> {
    Some(entry.arrival?.at.saturating_since(entry.record.generated))
}

fn delays<'a>(entries: impl Iterator<Item = &'a Entry>) -> [Duration; 4] {
    let mut delays: Vec<Duration> = entries.filter_map(delay).collect();
    delays.sort_unstable();
    let at = |percent: usize| {
        let place = (delays.len() * percent).div_ceil(100).saturating_sub(1);
        delays.get(place).copied().unwrap_or_default()
    };
    [at(50), at(95), at(99), at(100)]
}

fn recovery(entries: &[Entry], usable: &[bool], end: Timestamp) -> Option<Duration> {
    let base: Vec<(Timestamp, bool)> = entries
        .iter()
        .zip(usable)
        .filter(|(entry, _)| entry.record.layer == 0 && entry.record.deadline < Timestamp::MAX)
        .map(|(entry, usable)| (entry.record.generated, *usable))
        .collect();
    if base.is_empty() {
        let arrivals = entries.iter().filter_map(|entry| Some(entry.arrival?.at));
        return Some(arrivals.filter(|at| *at >= end).min()?.saturating_since(end));
    }
    let last = base.last()?.0;
    let begins = base.iter().map(|(at, _)| *at).filter(|at| *at >= end && *at + WELL <= last);
    let is_well = |from: Timestamp| {
        base.iter().filter(|(at, _)| *at >= from && *at <= from + WELL).all(|(_, usable)| *usable)
    };
    Some(begins.into_iter().find(|from| is_well(*from))?.saturating_since(end))
}

fn timeline(entries: &[Entry], usable: &[bool], start: Timestamp, length: Duration) -> Vec<Slot> {
    let mut slots = vec![Slot::default(); SLOTS];
    for (entry, usable) in entries.iter().zip(usable) {
        let at = entry.record.generated.saturating_since(start).as_nanos();
        let place = at * SLOTS as u128 / length.as_nanos().max(1);
        let Some(slot) = slots.get_mut(place as usize) else { continue };
        slot.offered += 1;
        slot.on_time += usize::from(*usable);
        slot.late += usize::from(is_late(entry));
        slot.slowest = slot.slowest.max(delay(entry).unwrap_or_default());
    }
    slots
}

/// What a path has reached of what was asked of it.
pub(crate) fn path_misses(scenario: &Scenario, paths: &[[DirectionStats; 2]]) -> Vec<String> {
    let each = scenario.paths.iter().zip(paths);
    let missed = each.filter_map(|(plan, ways)| {
        let wait = ways[0].wait_p95;
        let wanted = plan.queue_p95.filter(|wanted| wait > *wanted)?;
        Some(format!("path {}: queue p95 {wait:?}, {wanted:?} wanted", plan.name))
    });
    missed.collect()
}

/// Time for which all has to be well to count as recovered. Chosen, not measured.
const WELL: Duration = Duration::from_secs(1);

impl fmt::Display for FlowOutcome {
    /// A line for a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [p50, p95, p99, max] = self.delays.map(|delay| delay.as_secs_f64() * 1e3);
        write!(
            f,
            "{:<8} {:>5} records, on time {:.4}, base {:.4}, late {}, dropped {}, given up {}, {}, delays {p50:.0} {p95:.0} \
             {p99:.0} {max:.0} ms, recovery {:?}, held {}, ages {:?}, connections {}",
            self.name,
            self.offered,
            self.on_time,
            self.base,
            self.late,
            self.dropped,
            self.abandoned,
            self.goodput,
            self.recovery,
            self.held_peak,
            self.age_error,
            self.connections,
        )
    }
}

//! The source: at each tick every object gets a new value.

use std::time::Duration;

use freshwire_io::now;
use freshwire_record::Timestamp;

use super::schema::Plan;
use crate::scenario::wait_until;

/// Waits for ticks, and notes how late it was.
pub(super) struct Ticks<'a> {
    plan: &'a Plan,
    start: Timestamp,
    next: u32,
    /// Ticks that passed while nobody asked.
    pub(super) skipped: u64,
    lateness: Vec<Duration>,
}

impl<'a> Ticks<'a> {
    pub(super) fn new(plan: &'a Plan, start: Timestamp) -> Self {
        Self { plan, start, next: 0, skipped: 0, lateness: Vec::new() }
    }

    /// The next tick, when it is there; those that passed before the last one are skipped, as a program does that was
    /// blocked. `None`: the source has ended.
    pub(super) fn next(&mut self) -> Option<u32> {
        let at = |tick| self.start + self.plan.tick_at(tick);
        wait_until(at(self.next).min(self.start + self.plan.duration()));
        let now = now();
        let mut tick = self.next;
        while tick + 1 < self.plan.ticks() && at(tick + 1) <= now {
            tick += 1;
        }
        if tick >= self.plan.ticks() {
            return None;
        }
        self.skipped += u64::from(tick - self.next);
        self.lateness.push(now.saturating_since(at(self.next)));
        self.next = tick + 1;
        Some(tick)
    }

    /// How late it was at the 99th percentile, in microseconds.
    pub(super) fn lateness_us(mut self) -> u64 {
        self.lateness.sort_unstable();
        let place = self.lateness.len().saturating_sub(1) * 99 / 100;
        self.lateness.get(place).map_or(0, |late| late.as_micros() as u64)
    }
}

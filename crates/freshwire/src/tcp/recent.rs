//! The extreme of a recent time.

use std::time::Duration;

use freshwire_record::Timestamp;

/// The highest value of a recent time, in two halves of it.
#[derive(Debug, Default)]
pub(super) struct Recent<T> {
    halves: [Option<T>; 2],
    since: Timestamp,
}

impl<T: Copy + Ord> Recent<T> {
    pub(super) fn add(&mut self, now: Timestamp, value: T, time: Duration) {
        if now.saturating_since(self.since) > time / 2 {
            self.halves = [None, self.halves[0]];
            self.since = now;
        }
        self.halves[0] = self.halves[0].max(Some(value));
    }

    pub(super) fn get(&self) -> Option<T> {
        self.halves[0].max(self.halves[1])
    }
}

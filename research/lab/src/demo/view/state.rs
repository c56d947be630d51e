//! The state of the runs in progress.

use std::collections::VecDeque;
use std::time::Duration;

use crate::demo::wire::{Live, Scheme};

/// The state of all runs.
pub(in crate::demo) struct State {
    /// The link in words.
    pub(in crate::demo) link: String,
    pub(in crate::demo) duration: Duration,
    pub(in crate::demo) sides: [Side; Scheme::ALL.len()],
    /// Colours may be used.
    pub(in crate::demo) coloured: bool,
}

/// The state of one run.
#[derive(Default)]
pub(in crate::demo) struct Side {
    pub(in crate::demo) live: Live,
    /// Instants in seconds, and the age of the picture in milliseconds.
    pub(in crate::demo) ages: Vec<(f64, u64)>,
    /// Received bits per second, over the last second.
    pub(in crate::demo) rate_bps: f64,
    /// Instants and received bytes of the last second.
    received: VecDeque<(f64, u64)>,
}

impl Side {
    pub(super) fn take(&mut self, live: &Live) {
        self.live = live.clone();
        self.ages.push((live.at_s, (live.age_s * 1e3) as u64));
        self.received.push_back((live.at_s, live.received_bytes));
        while self.received.len() > 2 && self.received.front().is_some_and(|(at, _)| live.at_s - at > 1.0) {
            self.received.pop_front();
        }
        if let (Some(first), Some(last)) = (self.received.front(), self.received.back())
            && last.0 > first.0
        {
            self.rate_bps = (last.1 - first.1) as f64 * 8.0 / (last.0 - first.0);
        }
    }
}

use std::collections::VecDeque;
use std::time::Duration;

use freshwire_units::Timestamp;

/// When SYNC packets go: periodically while data flows (seed 001), after the last data so that a lost tail shows as a
/// gap, and as a probe.
#[derive(Debug)]
pub(super) struct Syncs {
    next_at: Timestamp,
    tail_at: Option<Timestamp>,
    /// The pause before the tail that is next, and how many follow.
    tail: (Duration, u8),
    probe: bool,
    /// Times of those that were not answered, in microseconds.
    sent: VecDeque<u64>,
    /// The peer's SYNC that is to be answered, with the time when it came.
    pub(super) to_echo: Option<(u64, Timestamp)>,
}

impl Syncs {
    pub(super) fn new(now: Timestamp) -> Self {
        Self {
            next_at: now,
            tail_at: None,
            tail: (TAIL, 0),
            probe: true,
            sent: VecDeque::new(),
            to_echo: None,
        }
    }

    /// The periodic one waits for data: an idle connection sends nothing.
    pub(super) fn timeout(&self, in_flight: bool) -> Option<Timestamp> {
        self.tail_at.filter(|_| in_flight)
    }

    pub(super) fn probe(&mut self) {
        self.probe = true;
    }

    pub(super) fn is_probing(&self) -> bool {
        self.probe
    }

    /// Whether one is due by itself.
    pub(super) fn is_due(&self, now: Timestamp, in_flight: bool) -> bool {
        self.probe || self.timeout(in_flight).is_some_and(|at| at <= now)
    }

    /// Whether one should go along with data.
    pub(super) fn wants_along(&self, now: Timestamp) -> bool {
        self.next_at <= now
    }

    pub(super) fn on_sent(&mut self, now: Timestamp, micros: u64) {
        self.probe = false;
        // What follows data can be lost like the data.
        let (pause, left) = self.tail;
        self.tail_at = (left > 0).then(|| now + pause);
        if let Some(left) = left.checked_sub(1) {
            self.tail = (pause * 2, left);
        }
        self.next_at = now + PERIOD;
        self.sent.push_back(micros);
        if self.sent.len() > UNANSWERED {
            self.sent.pop_front();
        }
    }

    /// Data went: a SYNC follows unless more data does.
    /// Where more waits for room in the window, acknowledgements that are due let it go.
    pub(super) fn on_data(&mut self, now: Timestamp, srtt: Duration, more: bool) {
        let pause = if more { srtt / 2 } else { srtt / 8 }.max(TAIL);
        self.tail_at = Some(now + pause);
        self.tail = (pause * 2, TAILS - 1);
    }

    /// Whether an echo answers a SYNC of ours that was not answered yet.
    pub(super) fn is_answer(&mut self, micros: u64) -> bool {
        let at = self.sent.iter().position(|&sent| sent == micros);
        at.inspect(|&at| {
            self.sent.remove(at);
        })
        .is_some()
    }
}

/// How often the round trip is measured while data flows.
const PERIOD: Duration = Duration::from_millis(500);
/// The shortest pause between the last data and the SYNC behind it.
const TAIL: Duration = Duration::from_millis(1);
/// SYNCs behind the last data, each after twice the pause, as long as it is not acknowledged.
const TAILS: u8 = 3;
/// SYNCs that may be unanswered; older ones are forgotten.
const UNANSWERED: usize = 16;

use std::collections::VecDeque;
use std::time::Duration;

use freshwire_record::Timestamp;

/// When SYNC packets go: periodically while data flows (Mapp 1997), after the last data so that a lost tail shows as a
/// gap, and as a probe.
#[derive(Debug)]
pub(super) struct Syncs {
    next_at: Timestamp,
    tail_at: Option<Timestamp>,
    tail: Tail,
    probe: bool,
    /// Times of those that were not answered, in microseconds.
    sent: VecDeque<u64>,
    /// The peer's SYNC that is to be answered, with the time when it came.
    pub(super) to_echo: Option<(u64, Timestamp)>,
}

/// The SYNCs behind the last data that are still to come.
#[derive(Clone, Copy, Debug, Default)]
struct Tail {
    /// Before the next one; twice as long before the one after it, up to `most`.
    pause: Duration,
    most: Duration,
    left: u8,
}

impl Syncs {
    //= spec/a1.md A1-HS-9
    pub(super) fn new(now: Timestamp) -> Self {
        Self {
            next_at: now,
            tail_at: None,
            tail: Tail::default(),
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
    //= spec/a1.md A1-RTT-1
    pub(super) fn wants_along(&self, now: Timestamp) -> bool {
        self.next_at <= now
    }

    pub(super) fn on_sent(&mut self, now: Timestamp, micros: u64) {
        self.probe = false;
        // What follows data can be lost like the data.
        let Tail { pause, most, left } = self.tail;
        self.tail_at = (left > 0).then(|| now + pause);
        self.tail = Tail { pause: (pause * 2).min(most), most, left: left.saturating_sub(1) };
        self.next_at = now + PERIOD;
        self.sent.push_back(micros);
        if self.sent.len() > UNANSWERED {
            self.sent.pop_front();
        }
    }

    /// Data went, or what is said again if it is lost: a SYNC follows unless more data does.
    /// Where more waits for room in the window, acknowledgements that are due let it go; if they do not, nothing else is on
    /// the path.
    //= spec/a1.md A1-LOSS-2
    pub(super) fn on_data(&mut self, now: Timestamp, srtt: Duration, more: bool) {
        let (first, most) = if more { (srtt / 2, srtt / 4) } else { (srtt / 8, srtt / 2) };
        let (first, most) = (first.max(TAIL), most.max(TAIL));
        self.tail_at = Some(now + first);
        self.tail = Tail { pause: (first * 2).min(most), most, left: TAILS - 1 };
    }

    /// The answers to those that have left tell nothing of the new path.
    //= spec/a1.md A1-PATH-3
    pub(super) fn on_path_change(&mut self) {
        self.sent.clear();
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

/// Interval of round-trip measurements while data flows (A1-RTT-1).
const PERIOD: Duration = Duration::from_millis(500);
/// The shortest pause between the last data and the SYNC behind it (A1-LOSS-2).
const TAIL: Duration = Duration::from_millis(1);
/// SYNCs behind the last data as long as it is not acknowledged (A1-LOSS-2). A burst that swallows the data,
/// or its acknowledgement, swallows some of them as well.
const TAILS: u8 = 8;
/// SYNCs that may be unanswered, two tails; older ones are forgotten. Chosen, not measured.
const UNANSWERED: usize = 16;

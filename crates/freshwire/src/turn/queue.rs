//! The commit step: from the ring of a sink to a record that its framing writes.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use freshwire_choice::{Choice, Decision, LinkView, Outcome, Reason, Record};
use freshwire_media::framing::Framer;
use freshwire_record::Timestamp;
use freshwire_ring::{Consumer, Taken};

use super::Scratch;
use crate::sink::shared::SinkShared;
use crate::stats::SinkStats;

/// How often a policy is asked in a row before the engine turns to other sinks. This bounds the time that a
/// policy with many stale records takes from them. The value is not measured.
pub(crate) const PICKS_PER_TURN: usize = 4096;

/// The pause after which a policy that waits for a time in the past is asked again. A policy with such an error costs little at a
/// thousand questions a second.
pub(crate) const PAST_WAIT: Duration = Duration::from_millis(1);

/// The queue of a sink: its ring, its policy, and the framing of what is committed.
pub(crate) struct RecordQueue {
    pub(crate) consumer: Consumer,
    pub(crate) choice: Box<dyn Choice>,
    pub(crate) framer: Box<dyn Framer>,
    /// When the policy wants to be asked again although nothing changes.
    pub(crate) ask_again_at: Timestamp,
    pub(crate) shared: Arc<SinkShared>,
}

/// A record that the policy has named, taken from the ring.
pub(crate) struct Pick {
    pub(crate) taken: Taken,
    /// The policy has seen nothing behind it.
    pub(crate) is_last: bool,
}

impl RecordQueue {
    pub(crate) fn new(
        consumer: Consumer,
        choice: Box<dyn Choice>,
        framer: Box<dyn Framer>,
        shared: Arc<SinkShared>,
    ) -> Self {
        Self { consumer, choice, framer, ask_again_at: Timestamp::MAX, shared }
    }

    /// Asks the policy until it names a record that is still in the ring. `None`: the queue is empty, the policy holds back, or it was
    /// asked often enough for now. A position outside the queue counts as holding back. `view` is the path as the policy sees it.
    pub(crate) fn pick(
        &mut self,
        now: Timestamp,
        view: impl Fn() -> LinkView,
        scratch: &mut Scratch,
    ) -> Option<Pick> {
        self.ask_again_at = Timestamp::MAX;
        for _ in 0..PICKS_PER_TURN {
            list(&mut self.consumer, self.choice.as_mut(), &self.shared.stats, scratch);
            let records = &scratch.records;
            if records.is_empty() {
                return None;
            }
            match self.choice.pick(now, records, &view()) {
                Decision::Wait(until) => {
                    let until = until.unwrap_or(Timestamp::MAX);
                    self.ask_again_at = if until > now { until } else { now + PAST_WAIT };
                    return None;
                }
                Decision::Drop(place, reason) => {
                    let &record = records.get(place)?;
                    self.discard(record, place, reason, now);
                }
                Decision::Send(place) => {
                    let record = records.get(place)?;
                    if let Ok(taken) = self.consumer.take(record.index) {
                        let is_last = records.len() == 1 && self.choice.lookahead() > 1;
                        return Some(Pick { taken, is_last });
                    }
                }
            }
        }
        self.ask_again_at = now;
        None
    }

    /// Takes a record that the policy wants before the rest of `open`, if there is one and the framing can do that.
    pub(crate) fn overtake(&mut self, now: Timestamp, open: &Record, scratch: &mut Scratch) -> Option<Taken> {
        list(&mut self.consumer, self.choice.as_mut(), &self.shared.stats, scratch);
        let may = |record: &&Record| {
            self.choice.overtakes(now, record, open) && self.framer.can_overtake(record.seq)
        };
        let index = scratch.records.iter().find(may)?.index;
        // An error means that another party edits or dropped the record; the next listing shows which.
        self.consumer.take(index).ok()
    }

    /// Commits a record with `unsent` bytes before it.
    pub(crate) fn commit(&mut self, taken: &Taken, now: Timestamp, unsent: u32) {
        self.consumer.commit(taken, now, unsent);
        // The record as taken: it may have been modified or replaced since the policy saw it.
        self.announce(&taken.record, now);
    }

    /// Whether the policy sends a record, alone in the queue, at once.
    pub(crate) fn wants(&mut self, now: Timestamp, record: &Record, view: &LinkView) -> bool {
        self.choice.pick(now, std::slice::from_ref(record), view) == Decision::Send(0)
    }

    /// Reports a committed record to policy, statistics and framing, whose pieces come next.
    pub(crate) fn announce(&mut self, record: &Record, now: Timestamp) {
        self.choice.outcome(record, Outcome::Sent);
        self.shared.stats.on_committed(record.layer, now.saturating_since(record.generated));
        self.framer.begin(record.seq, record.len);
    }

    /// Drops records that the policy calls stale, one after the other, until `has_room` returns `true`.
    pub(crate) fn make_room(
        &mut self,
        now: Timestamp,
        newcomer: &Record,
        has_room: &mut dyn FnMut() -> bool,
        scratch: &mut Scratch,
    ) {
        // A policy that sends all of it in order gives up nothing: the push that asks costs no listing.
        if self.choice.is_in_order() && !self.choice.drops_expired() {
            return;
        }
        for _ in 0..self.consumer.region().config().slots {
            // All of the queue: a stale record may lie behind the one that would be sent next.
            self.consumer.queue(usize::MAX, &mut scratch.records);
            let Some((place, reason)) = self.choice.stale(now, &scratch.records, newcomer) else { return };
            let Some(&record) = scratch.records.get(place) else { return };
            self.discard(record, place, reason, now);
            if has_room() {
                return;
            }
        }
    }

    /// Drops a record that the policy has named at this place of the queue.
    fn discard(&mut self, record: Record, place: usize, reason: Reason, now: Timestamp) {
        // An error means that another party edits or dropped the record; the next listing shows which.
        if self.consumer.discard(record.index, reason, now).is_ok() {
            self.report_dropped(record, reason);
            if place == 0 {
                self.framer.missed(record.seq);
            }
        }
    }

    /// Reports to a policy that sees all of the queue the records that others dropped.
    pub(crate) fn report_drops_by_others(&mut self, scratch: &mut Scratch) {
        report_drops_by_others(&mut self.consumer, self.choice.as_mut(), &self.shared.stats, scratch);
    }

    pub(crate) fn report_dropped(&mut self, record: Record, reason: Reason) {
        report_dropped(self.choice.as_mut(), &self.shared.stats, record, reason);
    }
}

/// Fills `scratch.records` with the part of the queue that a policy sees.
pub(crate) fn list(
    consumer: &mut Consumer,
    choice: &mut dyn Choice,
    stats: &SinkStats,
    scratch: &mut Scratch,
) {
    consumer.queue(choice.lookahead(), &mut scratch.records);
    report_drops_by_others(consumer, choice, stats, scratch);
}

fn report_drops_by_others(
    consumer: &mut Consumer,
    choice: &mut dyn Choice,
    stats: &SinkStats,
    scratch: &mut Scratch,
) {
    if choice.lookahead() < usize::MAX {
        return;
    }
    scratch.gone.clear();
    consumer.dropped_by_others(&mut scratch.gone);
    while let Some((seq, reason)) = scratch.gone.pop() {
        report_dropped(choice, stats, Record::numbered(seq), reason);
    }
}

/// Reports a dropped record to policy and statistics.
pub(crate) fn report_dropped(choice: &mut dyn Choice, stats: &SinkStats, record: Record, reason: Reason) {
    choice.outcome(&record, Outcome::Dropped(reason));
    stats.on_dropped(record.layer, reason);
}

/// Start and length of the part of a framing's piece that lies in a record of `len` bytes.
pub(crate) fn part_within(piece: &Range<u32>, len: u32) -> (u32, u32) {
    let end = piece.end.min(len);
    let start = piece.start.min(end);
    (start, end - start)
}

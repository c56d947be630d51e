//! Looking at a ring on behalf of a policy.

use std::time::Duration;

use freshwire_choice::{Choice, Outcome, Reason, Record};
use freshwire_ring::Consumer;

use super::turn::Scratch;
use crate::stats::SinkStats;

/// How often a policy is asked in a row before the engine turns to other connections.
pub(crate) const PICKS_PER_TURN: usize = 4096;

/// The pause after which a policy that waits for a time in the past is asked again.
pub(crate) const PAST_WAIT: Duration = Duration::from_millis(1);

/// Looks at the ring for a policy: fills `scratch.records`. A policy that sees all of the queue is also told what others
/// dropped from it.
pub(crate) fn list(
    consumer: &mut Consumer,
    choice: &mut dyn Choice,
    stats: &SinkStats,
    scratch: &mut Scratch,
) {
    consumer.queue(choice.lookahead(), &mut scratch.records);
    tell_of_others(consumer, choice, stats, scratch);
}

/// Tells a policy that sees all of the queue what others dropped from it.
pub(crate) fn tell_of_others(
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
        tell_dropped(choice, stats, Record::numbered(seq), reason);
    }
}

pub(crate) fn tell_dropped(choice: &mut dyn Choice, stats: &SinkStats, record: Record, reason: Reason) {
    choice.outcome(&record, Outcome::Dropped(reason));
    stats.on_dropped(record.layer, reason);
}

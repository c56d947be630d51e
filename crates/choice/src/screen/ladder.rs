//! What the stream has looked like, and what it will look like next.

use std::collections::VecDeque;
use std::time::Duration;

use freshwire_record::Timestamp;

use super::formula::between;
use crate::Record;

/// The pictures seen last, in order, and what follows from them.
#[derive(Clone, Debug, Default)]
pub(super) struct Ladder {
    seen: VecDeque<Observation>,
    sizes: [Option<i64>; LAYERS],
    /// How long after the newest capture time pictures are offered at least.
    lag: Option<Duration>,
}

#[derive(Clone, Copy, Debug)]
struct Observation {
    record: Record,
    /// When the newest picture up to it was taken. It is offered no sooner than the [lag](Ladder::lag) after that.
    taken: Timestamp,
    /// When it was offered.
    pushed: Timestamp,
    /// What it closes of a gap between others, in square seconds.
    between: f64,
    /// Another picture depends on it.
    is_needed: bool,
}

/// A picture that is expected.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expected {
    pub(super) record: Record,
    pub(super) pushed: Timestamp,
    pub(super) between: f64,
}

impl Ladder {
    /// Learns from a picture; one that is not newer than the newest is known already.
    pub(super) fn see(&mut self, now: Timestamp, record: &Record) {
        let newest = self.seen.back();
        if newest.is_some_and(|newest| newest.record.seq >= record.seq) {
            return;
        }
        let taken = newest.map_or(record.generated, |newest| newest.taken.max(record.generated));
        let lag = now.saturating_since(taken);
        self.lag = Some(self.lag.map_or(lag, |least| lag.min(least + LAG_GROWTH)));
        if self.seen.len() == MEMORY {
            self.seen.pop_front();
        }
        for reference in record.references().flatten() {
            if let Some(at) = self.place(reference) {
                self.seen[at].is_needed = true;
            }
        }
        let between = between(|seq| self.find(seq), record);
        self.seen.push_back(Observation { record: *record, taken, pushed: now, between, is_needed: false });
        let len = i64::from(record.len);
        let size = &mut self.sizes[layer_of(record)];
        *size = Some(size.map_or(len, |mean| mean + (len - mean) / SMOOTHING));
    }

    /// Sequence number of the newest picture.
    pub(super) fn newest(&self) -> Option<u64> {
        self.seen.back().map(|seen| seen.record.seq)
    }

    /// When the picture after the newest is offered if it keeps its distance, provided that `seq` is the newest.
    pub(super) fn offered_after(&self, seq: u64) -> Option<Timestamp> {
        let newest = self.seen.back().filter(|seen| seen.record.seq == seq)?;
        Some(newest.pushed + self.interval()).filter(|_| !self.interval().is_zero())
    }

    /// Mean time between two pictures.
    pub(super) fn interval(&self) -> Duration {
        match (self.seen.front(), self.seen.back()) {
            (Some(first), Some(last)) if self.seen.len() > 1 => {
                last.taken.saturating_since(first.taken) / (self.seen.len() as u32 - 1)
            }
            _ => Duration::ZERO,
        }
    }

    /// When the next picture should come.
    pub(super) fn next_due(&self) -> Timestamp {
        self.seen
            .back()
            .map_or(Timestamp::ZERO, |newest| newest.taken + self.lag.unwrap_or_default() + self.interval())
    }

    /// What this picture closes of a gap between others, in square seconds.
    pub(super) fn between(&self, seq: u64) -> f64 {
        self.place(seq).map_or(0.0, |at| self.seen[at].between)
    }

    /// True if the picture is known to be one that others depend on, or may turn out to be.
    pub(super) fn is_reference(&self, record: &Record) -> bool {
        record.layer <= 1 || self.place(record.seq).is_some_and(|at| self.seen[at].is_needed)
    }

    /// Fills `out` with at most `limit` pictures that are expected after the newest one and that others
    /// depend on. They reach to the next keyframe and for a group after it. A picture without dependants is
    /// sent where there is room, so it is no load.
    pub(super) fn expect(&self, out: &mut Vec<Expected>, limit: usize) {
        out.clear();
        let interval = self.interval();
        let (Some(newest), Some(last)) = (self.seen.back(), self.seen.len().checked_sub(1)) else { return };
        let Some((first, period)) = self.pattern() else { return };
        if interval.is_zero() {
            return;
        }
        let start = (0..=last).rev().find(|&at| self.seen[at].record.is_key()).unwrap_or(0);
        for ahead in 1..=MEMORY as u32 {
            let place = last - start + ahead as usize;
            if out.len() == limit || place >= 2 * period.max(last - start) {
                return;
            }
            let like = &self.seen[first + place % period];
            if !like.is_needed && like.record.layer > 1 {
                continue;
            }
            let taken = newest.taken + interval * ahead;
            let len = self.sizes[layer_of(&like.record)].and_then(|mean| u32::try_from(mean).ok());
            let record = Record {
                seq: newest.record.seq.saturating_add(u64::from(ahead)),
                len: len.unwrap_or(like.record.len),
                generated: taken - like.taken.saturating_since(like.record.generated),
                ..like.record
            };
            let pushed = taken + self.lag.unwrap_or_default();
            out.push(Expected { record, pushed, between: like.between });
        }
    }

    /// The start of the pattern that the stream repeats, and its length. This is the longest group that is
    /// remembered: a keyframe that comes sooner than expected costs less than one that does not come. While
    /// the newest group is longer, it is the part between the last two anchors.
    fn pattern(&self) -> Option<(usize, usize)> {
        let marks = |is_mark: fn(&Record) -> bool| {
            (0..self.seen.len()).filter(move |&at| is_mark(&self.seen[at].record))
        };
        let keys = marks(Record::is_key);
        let groups = keys.clone().zip(keys.clone().skip(1)).map(|(key, next)| (key, next - key));
        let newest = self.seen.len() - keys.clone().next_back().unwrap_or(0);
        groups.max_by_key(|&(_, len)| len).filter(|&(_, len)| newest <= len).or_else(|| {
            let mut anchors = marks(|record| record.layer == 1).rev();
            let (newest, before) = (anchors.next()?, anchors.next()?);
            Some((before, newest - before))
        })
    }

    fn find(&self, seq: u64) -> Option<&Record> {
        self.place(seq).map(|at| &self.seen[at].record)
    }

    fn place(&self, seq: u64) -> Option<usize> {
        self.seen.binary_search_by_key(&seq, |seen| seen.record.seq).ok()
    }
}

fn layer_of(record: &Record) -> usize {
    usize::from(record.layer).min(LAYERS - 1)
}

/// Pictures remembered: two groups of four seconds at 60 pictures a second, or more shorter ones.
const MEMORY: usize = 512;
/// Layers with a mean length of their own; higher ones share the last. Chosen, not measured.
const LAYERS: usize = 8;
/// The least lag grows by this much with each picture, so that an old minimum is forgotten. Chosen, not
/// measured.
const LAG_GROWTH: Duration = Duration::from_millis(1);
/// A picture changes the mean length of its layer by this fraction, as a round-trip sample does in RFC 6298.
const SMOOTHING: i64 = 8;

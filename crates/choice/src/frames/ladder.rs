//! What the stream has looked like, and what it will look like next.

use std::collections::VecDeque;
use std::time::Duration;

use crate::Record;

/// The records seen last, in order, and what follows from them.
#[derive(Clone, Debug, Default)]
pub(super) struct Ladder {
    seen: VecDeque<Record>,
    sizes: [Option<Size>; LAYERS],
    /// Layers in which a record was seen that another one depends on.
    referenced: [bool; LAYERS],
}

/// How large the records of a layer are, smoothed.
#[derive(Clone, Copy, Debug)]
struct Size {
    mean: i64,
    deviation: i64,
}

impl Size {
    fn learn(self, len: i64) -> Self {
        let error = len - self.mean;
        Self {
            mean: self.mean + error / SMOOTHING,
            deviation: self.deviation + (error.abs() - self.deviation) / SMOOTHING,
        }
    }
}

impl Ladder {
    /// Learns from a record; one that is not newer than the newest is known already.
    pub(super) fn see(&mut self, record: &Record) {
        if self.seen.back().is_some_and(|newest| newest.seq >= record.seq) {
            return;
        }
        if self.seen.len() == MEMORY {
            self.seen.pop_front();
        }
        for reference in record.references().flatten() {
            if let Some(layer) = self.find(reference).map(layer_of) {
                self.referenced[layer] = true;
            }
        }
        self.seen.push_back(*record);
        let len = i64::from(record.len);
        let size = &mut self.sizes[layer_of(record)];
        *size =
            Some(size.map_or(Size { mean: len, deviation: len / FIRST_DEVIATION }, |size| size.learn(len)));
    }

    /// Sequence number of the newest record.
    pub(super) fn newest(&self) -> Option<u64> {
        self.seen.back().map(|record| record.seq)
    }

    /// Mean time between two records.
    pub(super) fn interval(&self) -> Duration {
        match (self.seen.front(), self.seen.back()) {
            (Some(first), Some(last)) if self.seen.len() > 1 => {
                last.generated.saturating_since(first.generated) / (self.seen.len() as u32 - 1)
            }
            _ => Duration::ZERO,
        }
    }

    /// Mean bytes of a record, over all layers.
    pub(super) fn mean_len(&self) -> u64 {
        let bytes: u64 = self.seen.iter().map(|record| u64::from(record.len)).sum();
        bytes / (self.seen.len() as u64).max(1)
    }

    /// The record with this number as the ladder learned it, if it is remembered.
    pub(super) fn find(&self, seq: u64) -> Option<&Record> {
        let at = self.seen.binary_search_by_key(&seq, |seen| seen.seq).ok()?;
        self.seen.get(at)
    }

    /// The records expected after the newest one, up to and with the next key record after which the stream starts
    /// afresh, at most `limit`.
    pub(super) fn expected(&self, limit: usize) -> impl Iterator<Item = Record> + '_ {
        let period = self.period();
        let interval = self.interval();
        let newest = self.seen.back().copied();
        let count = if interval.is_zero() { 0 } else { limit.min(MEMORY) };
        let mut key_passed = false;
        (1..=count as u32).map_while(move |ahead| {
            if key_passed {
                return None;
            }
            let (newest, period) = (newest?, period?);
            let back = (period - (ahead as usize - 1) % period).min(self.seen.len());
            let like = self.seen[self.seen.len() - back];
            key_passed = like.is_key();
            let generated = newest.generated + interval * ahead;
            Some(Record {
                seq: newest.seq.saturating_add(u64::from(ahead)),
                len: self.sizes[layer_of(&like)]
                    .map_or(like.len, |size| u32::try_from(size.mean).unwrap_or(like.len)),
                generated,
                deadline: generated + like.deadline.saturating_since(like.generated),
                ..like
            })
        })
    }

    /// Records from one key to the next; `None` before the second key.
    pub(super) fn group_len(&self) -> Option<usize> {
        self.distance(Record::is_key)
    }

    /// True if other records depend on such as this.
    pub(super) fn is_reference(&self, record: &Record) -> bool {
        self.referenced[layer_of(record)]
    }

    /// By how much a record of the same layer may well be larger or smaller than expected.
    pub(super) fn spread(&self, record: &Record) -> u32 {
        let spread = self.sizes[layer_of(record)].map_or(0, |size| 2 * size.deviation);
        u32::try_from(spread).unwrap_or(u32::MAX)
    }

    /// Records after which the pattern repeats: a group, or from one anchor to the next while no group is known.
    fn period(&self) -> Option<usize> {
        self.group_len().or_else(|| self.distance(|record| record.layer <= 1))
    }

    fn distance(&self, is_mark: fn(&Record) -> bool) -> Option<usize> {
        let mut marks = (1_usize..).zip(self.seen.iter().rev()).filter(|(_, record)| is_mark(record));
        let (newest, before) = (marks.next()?.0, marks.next()?.0);
        Some(before - newest)
    }
}

fn layer_of(record: &Record) -> usize {
    usize::from(record.layer).min(LAYERS - 1)
}

/// Records remembered: two groups of four seconds at 60 frames a second, or more shorter ones.
const MEMORY: usize = 512;
/// Layers with a mean length of their own; higher ones share the last. Chosen, not measured.
const LAYERS: usize = 8;
/// Part of its size by which the first record of a layer is assumed to be off. Chosen, not measured.
const FIRST_DEVIATION: i64 = 16;
/// A record changes the mean length of its layer by this fraction, as a round-trip sample does in RFC 6298.
const SMOOTHING: i64 = 8;

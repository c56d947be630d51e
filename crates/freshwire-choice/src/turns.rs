//! Whose turn it is: the keys that wait, in the order in which they began to.

use std::collections::BTreeMap;

use crate::Record;

/// The turns of the keys that have something to send. A key takes a turn when its first value is seen, keeps it through newer values,
/// and gives it up when one is sent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Turns {
    waiting: BTreeMap<Owner, u64>,
    next: u64,
    /// By layer; the last one counts for all above. Empty: all are equal.
    weights: Vec<u32>,
}

/// Who waits: a key, or a record without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Owner {
    Key(u64),
    Record(u64),
}

impl Turns {
    pub(crate) fn new(weights: Vec<u32>) -> Self {
        Self { weights, ..Self::default() }
    }

    /// Gives a turn to whoever has none, oldest record first.
    pub(crate) fn observe(&mut self, queue: &[Record]) {
        for record in queue {
            let next = &mut self.next;
            self.waiting.entry(owner(record)).or_insert_with(|| {
                *next += 1;
                *next
            });
        }
        self.forget_who_left(queue);
    }

    /// The key of this record has had its turn.
    pub(crate) fn served(&mut self, record: &Record) {
        self.waiting.remove(&owner(record));
    }

    /// The record whose key has waited longest, by weight.
    pub(crate) fn first<'a>(
        &self,
        records: impl Iterator<Item = (usize, &'a Record)>,
    ) -> Option<(usize, &'a Record)> {
        // The oldest turn wins among equals, and the first in the queue within one key.
        records.min_by_key(|(_, record)| {
            let turn = self.waiting.get(&owner(record)).copied().unwrap_or(self.next);
            let waited = u128::from(self.next - turn + 1) * u128::from(self.weight(record.layer));
            (std::cmp::Reverse(waited), turn)
        })
    }

    fn weight(&self, layer: u8) -> u32 {
        let weight = self.weights.get(usize::from(layer)).or(self.weights.last());
        weight.copied().unwrap_or(1).max(1)
    }

    /// A key whose value expired keeps its turn, until there are too many such: memory is bounded by the queue.
    //= spec/choice.md 7
    fn forget_who_left(&mut self, queue: &[Record]) {
        if self.waiting.len() <= 2 * queue.len() + SPARE {
            return;
        }
        let mut queued: Vec<Owner> = queue.iter().map(owner).collect();
        queued.sort_unstable();
        self.waiting.retain(|owner, _| queued.binary_search(owner).is_ok());
    }
}

fn owner(record: &Record) -> Owner {
    if record.key == 0 { Owner::Record(record.seq) } else { Owner::Key(record.key) }
}

/// Turns of keys without a queued value that are kept in any case.
const SPARE: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_bounded_by_the_queue() {
        let mut turns = Turns::default();
        for key in 1..10_000 {
            turns.observe(&[Record { key, ..Record::numbered(key) }]);
        }
        assert!(turns.waiting.len() <= SPARE + 2, "{}", turns.waiting.len());
    }
}

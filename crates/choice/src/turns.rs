//! Whose turn it is: the keys in the order in which they were sent last.

use std::collections::BTreeMap;

use crate::Record;

/// The turns of the keys. A key takes one when its first value is seen, keeps it through newer values and while it has none, and goes
/// behind all others when a value is sent. Counting from when a value came would give the keys that an application pushes first in
/// each of its rounds more turns than the others.
#[derive(Clone, Debug, Default)]
pub(crate) struct Turns {
    turns: BTreeMap<Owner, u64>,
    last: u64,
    /// By layer; the last one counts for all above. Empty: all are equal.
    weights: Vec<u32>,
}

/// A waiting key, or a waiting record without one.
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
            let last = &mut self.last;
            self.turns.entry(owner(record)).or_insert_with(|| {
                *last += 1;
                *last
            });
        }
        self.forget_who_left(queue);
    }

    /// The key of this record has had its turn.
    pub(crate) fn served(&mut self, record: &Record) {
        let owner = owner(record);
        if matches!(owner, Owner::Record(_)) {
            self.turns.remove(&owner);
        } else if let Some(turn) = self.turns.get_mut(&owner) {
            self.last += 1;
            *turn = self.last;
        }
    }

    /// The record whose key has waited longest, by weight.
    pub(crate) fn first<'a>(
        &self,
        records: impl Iterator<Item = (usize, &'a Record)>,
    ) -> Option<(usize, &'a Record)> {
        // The oldest turn wins among equals, and the first in the queue within one key.
        records.min_by_key(|(_, record)| {
            let turn = self.turns.get(&owner(record)).copied().unwrap_or(self.last);
            let waited = u128::from(self.last - turn + 1) * u128::from(self.weight(record.layer));
            (std::cmp::Reverse(waited), turn)
        })
    }

    fn weight(&self, layer: u8) -> u32 {
        let weight = self.weights.get(usize::from(layer)).or(self.weights.last());
        weight.copied().unwrap_or(1).max(1)
    }

    /// Keys without a value keep their turns until there are too many: memory is bounded by the queue.
    //= spec/choice.md 7
    fn forget_who_left(&mut self, queue: &[Record]) {
        if self.turns.len() <= 2 * queue.len() + SPARE {
            return;
        }
        let mut queued: Vec<Owner> = queue.iter().map(owner).collect();
        queued.sort_unstable();
        self.turns.retain(|owner, _| queued.binary_search(owner).is_ok());
    }
}

fn owner(record: &Record) -> Owner {
    if record.key == 0 { Owner::Record(record.seq) } else { Owner::Key(record.key) }
}

/// Turns of keys without a queued value that are kept in any case. Chosen, not measured.
const SPARE: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_bounded_by_the_queue() {
        let mut turns = Turns::default();
        for key in 1..10_000 {
            turns.observe(&[Record { key, ..Record::numbered(key) }]);
        }
        assert!(turns.turns.len() <= SPARE + 2, "{}", turns.turns.len());
    }
}

//! A set of small numbers: the places of keys in a topic.

/// Bits per word.
const BITS: usize = u64::BITS as usize;

/// Places of keys. A change takes the same time however many there are; a search takes time for each 64 places at most.
#[derive(Debug, Default)]
pub(super) struct Places {
    words: Vec<u64>,
    count: usize,
}

impl Places {
    pub(super) fn len(&self) -> usize {
        self.count
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(super) fn contains(&self, place: usize) -> bool {
        self.words.get(place / BITS).is_some_and(|word| word & 1 << (place % BITS) != 0)
    }

    /// Adds a place; `false` if it was there.
    pub(super) fn insert(&mut self, place: usize) -> bool {
        if place / BITS >= self.words.len() {
            self.words.resize(place / BITS + 1, 0);
        }
        let word = &mut self.words[place / BITS];
        let is_new = *word & 1 << (place % BITS) == 0;
        *word |= 1 << (place % BITS);
        self.count += usize::from(is_new);
        is_new
    }

    /// Removes a place; `false` if it was not there.
    pub(super) fn remove(&mut self, place: usize) -> bool {
        let was_there = self.contains(place);
        if was_there {
            self.words[place / BITS] &= !(1 << (place % BITS));
            self.count -= 1;
        }
        was_there
    }

    /// The first place from `start` on; behind the last one the search begins anew.
    pub(super) fn next_from(&self, start: usize) -> Option<usize> {
        if self.is_empty() {
            return None;
        }
        let words = self.words.len();
        let start = if start / BITS < words { start } else { 0 };
        let first = start / BITS;
        let behind_start = self.words[first] & (u64::MAX << (start % BITS));
        let others = (1..=words).map(|step| (first + step) % words).map(|at| (at, self.words[at]));
        let found = std::iter::once((first, behind_start)).chain(others).find(|(_, word)| *word != 0);
        found.map(|(at, word)| at * BITS + word.trailing_zeros() as usize)
    }

    /// Empties the set and gives what was in it.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = usize> + use<> {
        let Self { words, .. } = std::mem::take(self);
        let bits = |word: u64| (0..BITS).filter(move |bit| word & 1 << bit != 0);
        words.into_iter().enumerate().flat_map(move |(at, word)| bits(word).map(move |bit| at * BITS + bit))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn any_changes_give_the_set_that_a_tree_has() {
        bolero::check!().with_type::<Vec<(bool, u8, u16)>>().for_each(|steps| {
            let (mut places, mut tree) = (Places::default(), BTreeSet::new());
            for &(adds, place, start) in steps {
                let (place, start) = (usize::from(place), usize::from(start % 300));
                if adds {
                    assert_eq!(places.insert(place), tree.insert(place));
                } else {
                    assert_eq!(places.remove(place), tree.remove(&place));
                }
                assert_eq!(places.contains(place), tree.contains(&place));
                assert_eq!((places.len(), places.is_empty()), (tree.len(), tree.is_empty()));
                let next = tree.range(start..).next().or(tree.first());
                assert_eq!(places.next_from(start), next.copied());
            }
            assert_eq!(places.drain().collect::<Vec<_>>(), tree.into_iter().collect::<Vec<_>>());
            assert!(places.is_empty() && places.next_from(0).is_none());
        });
    }
}

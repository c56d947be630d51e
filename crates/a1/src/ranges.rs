//! Sets of numbers that are kept as ranges.

use std::collections::BTreeMap;
use std::ops::Range;

/// A set of numbers as ascending ranges with gaps between them: where each begins, and where it ends. However many there are and in
/// whatever order they come, as the peer says, each costs little.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RangeSet(BTreeMap<u64, u64>);

impl RangeSet {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many ranges there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// How many numbers there are.
    pub(crate) fn total(&self) -> u64 {
        self.iter().map(|range| range.end - range.start).sum()
    }

    pub(crate) fn contains(&self, number: u64) -> bool {
        self.0.range(..=number).next_back().is_some_and(|(_, &end)| number < end)
    }

    /// The first number from `from` on that is not in the set.
    pub(crate) fn next_missing(&self, from: u64) -> u64 {
        self.0.range(..=from).next_back().map_or(from, |(_, &end)| end.max(from))
    }

    /// Whether all of `wanted` is in the set.
    pub(crate) fn covers(&self, wanted: &Range<u64>) -> bool {
        let last = || self.0.range(..=wanted.start).next_back();
        wanted.is_empty() || last().is_some_and(|(_, &end)| wanted.end <= end)
    }

    /// Adds `added`; how many of its numbers were new.
    pub(crate) fn insert(&mut self, added: Range<u64>) -> u64 {
        if added.is_empty() {
            return 0;
        }
        let len = added.end - added.start;
        // The usual case first: it continues the last range.
        if let Some(mut last) = self.0.last_entry().filter(|last| *last.get() == added.start) {
            last.insert(added.end);
            return len;
        }
        let mut known = 0;
        let mut whole = added.clone();
        while let Some((&start, &end)) = self.0.range(..=added.end).next_back()
            && end >= added.start
        {
            known += overlap(&(start..end), &added);
            whole = whole.start.min(start)..whole.end.max(end);
            self.0.remove(&start);
        }
        self.0.insert(whole.start, whole.end);
        len - known
    }

    /// Takes `removed` out.
    pub(crate) fn remove(&mut self, removed: &Range<u64>) {
        if removed.is_empty() {
            return;
        }
        while let Some((&start, &end)) = self.0.range(..removed.end).next_back()
            && end > removed.start
        {
            self.0.remove(&start);
            let left = [start..removed.start, removed.end..end];
            self.0.extend(
                left.into_iter().filter(|range| !range.is_empty()).map(|range| (range.start, range.end)),
            );
        }
    }

    /// The lowest range.
    pub(crate) fn first(&self) -> Option<Range<u64>> {
        self.iter().next()
    }

    /// The ranges, ascending.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = Range<u64>> + ExactSizeIterator {
        self.0.iter().map(|(&start, &end)| start..end)
    }
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> u64 {
    a.end.min(b.end).saturating_sub(a.start.max(b.start))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use bolero::check;

    use super::*;

    #[test]
    fn it_agrees_with_a_set_of_single_numbers() {
        check!().with_type::<Vec<(bool, u8, u8)>>().for_each(|operations| {
            let (mut ranges, mut model) = (RangeSet::default(), BTreeSet::new());
            for &(is_insert, start, len) in operations {
                let range = u64::from(start)..u64::from(start) + u64::from(len % 16);
                if is_insert {
                    let new = range.clone().filter(|&number| model.insert(number)).count() as u64;
                    assert_eq!(ranges.insert(range), new);
                } else {
                    model.retain(|number| !range.contains(number));
                    ranges.remove(&range);
                }
                assert_eq!(ranges.total(), model.len() as u64);
                assert!(ranges.iter().all(|range| !range.is_empty()));
                let apart = ranges.iter().zip(ranges.iter().skip(1)).all(|(a, b)| a.end < b.start);
                assert!(apart, "{ranges:?}");
            }
            for number in 0..280 {
                assert_eq!(ranges.contains(number), model.contains(&number));
                let missing = (number..).find(|number| !model.contains(number));
                assert_eq!(Some(ranges.next_missing(number)), missing);
            }
            if let Some(first) = ranges.first() {
                assert_eq!(Some(&first.start), model.first());
                assert!(ranges.covers(&first));
            }
        });
    }
}

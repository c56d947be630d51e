//! Sets of numbers that are kept as ranges.

use std::ops::Range;

/// A set of numbers as ascending ranges with gaps between them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RangeSet(Vec<Range<u64>>);

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
        self.0.iter().map(|range| range.end - range.start).sum()
    }

    pub(crate) fn contains(&self, number: u64) -> bool {
        let at = self.0.partition_point(|range| range.end <= number);
        self.0.get(at).is_some_and(|range| range.start <= number)
    }

    /// Whether all of `wanted` is in the set.
    pub(crate) fn covers(&self, wanted: &Range<u64>) -> bool {
        let at = self.0.partition_point(|range| range.end <= wanted.start);
        wanted.is_empty()
            || self.0.get(at).is_some_and(|range| range.start <= wanted.start && wanted.end <= range.end)
    }

    /// Adds `added`; how many of its numbers were new.
    pub(crate) fn insert(&mut self, added: Range<u64>) -> u64 {
        if added.is_empty() {
            return 0;
        }
        // The usual case first: it continues the last range, or comes after it.
        match self.0.last_mut() {
            Some(last) if last.end == added.start => {
                last.end = added.end;
                return added.end - added.start;
            }
            Some(last) if last.end > added.start => {}
            _ => {
                let len = added.end - added.start;
                self.0.push(added);
                return len;
            }
        }
        let first = self.0.partition_point(|range| range.end < added.start);
        let after = self.0.partition_point(|range| range.start <= added.end);
        let touched = self.0.get(first..after).unwrap_or_default();
        let known: u64 = touched.iter().map(|range| overlap(range, &added)).sum();
        let start = touched.first().map_or(added.start, |range| range.start.min(added.start));
        let end = touched.last().map_or(added.end, |range| range.end.max(added.end));
        self.0.splice(first..after, std::iter::once(start..end));
        added.end - added.start - known
    }

    /// Takes `removed` out.
    pub(crate) fn remove(&mut self, removed: &Range<u64>) {
        if removed.is_empty() {
            return;
        }
        let first = self.0.partition_point(|range| range.end <= removed.start);
        let after = self.0.partition_point(|range| range.start < removed.end);
        if first >= after {
            return;
        }
        let touched = self.0.get(first..after).unwrap_or_default();
        let head = touched.first().map(|range| range.start..removed.start);
        let tail = touched.last().map(|range| removed.end..range.end);
        let left = [head, tail].into_iter().flatten().filter(|range| !range.is_empty());
        let left: Vec<_> = left.collect();
        self.0.splice(first..after, left);
    }

    /// The lowest range.
    pub(crate) fn first(&self) -> Option<&Range<u64>> {
        self.0.first()
    }

    /// The ranges, ascending.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &Range<u64>> + ExactSizeIterator {
        self.0.iter()
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
            }
            if let Some(first) = ranges.first() {
                assert_eq!(Some(&first.start), model.first());
                assert!(ranges.covers(first));
            }
        });
    }
}

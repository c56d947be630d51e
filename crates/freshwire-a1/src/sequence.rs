//! A map by ascending numbers of which there are few gaps.

use std::collections::VecDeque;

/// What belongs to numbers that are added in ascending order. Finding one takes one comparison as long as none between it and
/// the first was removed; the memory is that of what is there.
#[derive(Debug)]
pub(crate) struct Sequence<T>(VecDeque<(u64, T)>);

impl<T> Default for Sequence<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T> Sequence<T> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The lowest number.
    pub(crate) fn first(&self) -> Option<u64> {
        self.0.front().map(|(number, _)| *number)
    }

    /// Adds what belongs to a number above all others.
    pub(crate) fn push(&mut self, number: u64, value: T) {
        debug_assert!(self.0.back().is_none_or(|(last, _)| *last < number), "{number} is not the highest");
        self.0.push_back((number, value));
    }

    pub(crate) fn get(&self, number: u64) -> Option<&T> {
        self.0.get(self.place(number)?).map(|(_, value)| value)
    }

    pub(crate) fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        let place = self.place(number)?;
        self.0.get_mut(place).map(|(_, value)| value)
    }

    pub(crate) fn remove(&mut self, number: u64) -> Option<T> {
        let place = self.place(number)?;
        self.0.remove(place).map(|(_, value)| value)
    }

    fn place(&self, number: u64) -> Option<usize> {
        let distance = usize::try_from(number.checked_sub(self.first()?)?).ok()?;
        if self.0.get(distance).is_some_and(|(there, _)| *there == number) {
            return Some(distance);
        }
        self.0.binary_search_by_key(&number, |(there, _)| *there).ok()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn it_agrees_with_a_map() {
        bolero::check!().with_type::<Vec<(bool, u8)>>().for_each(|steps| {
            let (mut sequence, mut map, mut next) = (Sequence::default(), BTreeMap::new(), 0);
            for &(adds, step) in steps {
                let step = u64::from(step);
                if adds {
                    // Some numbers are passed over.
                    next += 1 + u64::from(step.is_multiple_of(16));
                    sequence.push(next, step);
                    map.insert(next, step);
                } else {
                    let number = next.saturating_sub(step % 32);
                    assert_eq!(sequence.get(number), map.get(&number));
                    assert_eq!(sequence.get_mut(number), map.get_mut(&number));
                    assert_eq!(sequence.remove(number), map.remove(&number));
                }
                assert_eq!(sequence.first(), map.first_key_value().map(|(number, _)| *number));
                assert_eq!(sequence.is_empty(), map.is_empty());
            }
        });
    }
}

//! A map by numbers that mostly ascend, with few gaps.

use std::collections::VecDeque;

/// A map for numbers that are mostly added and removed in ascending order. Any other order works too, but moves the
/// entries between the number and the nearer end. Finding one takes one comparison as long as none between it and the
/// first was removed; the memory is that of what is there.
#[derive(Clone, Debug)]
pub struct Sequence<T>(VecDeque<(u64, T)>);

impl<T> Default for Sequence<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T> Sequence<T> {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The lowest number.
    pub fn first(&self) -> Option<u64> {
        self.0.front().map(|(number, _)| *number)
    }

    /// Sets what belongs to a number; what belonged to it before.
    pub fn insert(&mut self, number: u64, value: T) -> Option<T> {
        if self.0.back().is_none_or(|(last, _)| *last < number) {
            self.0.push_back((number, value));
            return None;
        }
        match self.place(number) {
            Ok(place) => self.0.get_mut(place).map(|(_, there)| std::mem::replace(there, value)),
            Err(place) => {
                self.0.insert(place, (number, value));
                None
            }
        }
    }

    /// What belongs to a number.
    pub fn get(&self, number: u64) -> Option<&T> {
        self.0.get(self.place(number).ok()?).map(|(_, value)| value)
    }

    /// The same, to change it.
    pub fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        let place = self.place(number).ok()?;
        self.0.get_mut(place).map(|(_, value)| value)
    }

    /// In the order of their numbers.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|(_, value)| value)
    }

    /// Takes out what belongs to a number.
    pub fn remove(&mut self, number: u64) -> Option<T> {
        let place = self.place(number).ok()?;
        self.0.remove(place).map(|(_, value)| value)
    }

    /// Where the number is, or would be.
    fn place(&self, number: u64) -> Result<usize, usize> {
        let distance = number.checked_sub(self.first().unwrap_or(0)).ok_or(0_usize)?;
        let distance = usize::try_from(distance).unwrap_or(usize::MAX);
        if self.0.get(distance).is_some_and(|(there, _)| *there == number) {
            return Ok(distance);
        }
        self.0.binary_search_by_key(&number, |(there, _)| *there)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn it_agrees_with_a_map() {
        bolero::check!().with_type::<Vec<(bool, u8)>>().for_each(|steps| {
            let (mut sequence, mut map, mut next) = (Sequence::default(), BTreeMap::new(), 0_u64);
            for &(adds, step) in steps {
                let step = u64::from(step);
                if adds {
                    // Some numbers are passed over, and some come late or again.
                    next += 1 + u64::from(step.is_multiple_of(16));
                    let number = if step.is_multiple_of(8) { next.saturating_sub(step) } else { next };
                    assert_eq!(sequence.insert(number, step), map.insert(number, step));
                } else {
                    let number = next.saturating_sub(step % 32);
                    assert_eq!(sequence.get(number), map.get(&number));
                    assert_eq!(sequence.get_mut(number), map.get_mut(&number));
                    assert_eq!(sequence.remove(number), map.remove(&number));
                }
                assert_eq!(sequence.first(), map.first_key_value().map(|(number, _)| *number));
                assert_eq!((sequence.len(), sequence.is_empty()), (map.len(), map.is_empty()));
            }
        });
    }
}

//! Which sequence numbers have come, in memory that grows with the gaps only.

use std::collections::BTreeMap;

/// A set of numbers, kept as runs: first and last of each.
#[derive(Clone, Debug, Default)]
pub(super) struct ReceivedNumbers(BTreeMap<u64, u64>);

impl ReceivedNumbers {
    /// Adds a number; false if it is there already.
    pub(super) fn insert(&mut self, number: u64) -> bool {
        let before = self.0.range(..=number).next_back().map(|(&first, &last)| (first, last));
        if before.is_some_and(|(_, last)| last >= number) {
            return false;
        }
        let joins_next = number.checked_add(1).and_then(|next| self.0.remove(&next));
        let last = joins_next.unwrap_or(number);
        let first = match before {
            Some((first, end)) if end + 1 == number => first,
            _ => number,
        };
        self.0.insert(first, last);
        true
    }

    /// Numbers up to the highest that have not come, from 0 on.
    pub(super) fn missing(&self) -> u64 {
        let mut next = 0;
        let mut missing = 0;
        for (&first, &last) in &self.0 {
            missing += first - next;
            next = last.saturating_add(1);
        }
        missing
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn it_is_a_set() {
        let (mut seen, mut model) = (ReceivedNumbers::default(), BTreeSet::new());
        let mut state = 1u64;
        for _ in 0..5000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let number = state >> 56;
            assert_eq!(seen.insert(number), model.insert(number), "{number}");
            let highest = model.last().copied().unwrap_or(0);
            assert_eq!(seen.missing(), highest + 1 - model.len() as u64);
        }
        assert_eq!(seen.0.len(), 1, "all numbers join to one run");
        assert!(seen.insert(u64::MAX));
        assert!(!seen.insert(u64::MAX));
    }
}

//! Two references a picture that stand for all it depends on.

use std::collections::VecDeque;

/// Follows which pictures depend on which, in units in decoding order.
///
/// A unit names at most two others. What a picture depends on is covered by them together with what they name in turn,
/// and may be less than that. Where no two pictures cover it, it cannot be said; from then on reference pictures also
/// name the one before them, so that the newest covers them all.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dependencies {
    next: u64,
    group: u32,
    known: VecDeque<Known>,
    linear: bool,
}

/// How a picture takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// Decoding can begin here; nothing after depends on anything before unless it says so.
    Key,
    /// Others may depend on it.
    Reference,
    /// Only pictures that are shown before the group's key may depend on it.
    LeadingReference,
    /// It is meant to have nothing that depends on it.
    Leaf,
}

/// A picture that others may depend on.
#[derive(Clone, Debug)]
struct Known {
    number: u64,
    group: u32,
    part: Use,
    /// It and all that it depends on, as far as that is known.
    covers: Vec<u64>,
}

/// A unit's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Links {
    pub(crate) number: u64,
    pub(crate) group: u32,
    pub(crate) refs: [u32; 2],
}

impl Dependencies {
    /// The number that the next unit gets.
    pub(crate) fn next_number(&self) -> u64 {
        self.next
    }

    /// Adds the next unit, which depends on the units `on`; `None`, and it is not added, if that cannot be said. Later
    /// ones may depend on the newest units and on those that are `held`.
    pub(crate) fn add(&mut self, part: Use, on: &[u64], held: impl Fn(u64) -> bool) -> Option<Links> {
        let mut on = on.to_vec();
        if self.linear && matches!(part, Use::Reference | Use::LeadingReference) {
            let alike = |known: &&Known| {
                known.group == self.group
                    && (known.part == part || (part == Use::Reference && known.part == Use::Key))
            };
            on.extend(self.known.iter().rev().find(alike).map(|known| known.number));
        }
        let Some(chosen) = self.choose(&on) else {
            self.linear = true;
            return None;
        };
        let number = self.next;
        if part == Use::Key && number > 0 {
            self.group = self.group.wrapping_add(1);
        }
        self.next += 1;
        let mut refs = [0; 2];
        for (distance, &on) in refs.iter_mut().zip(&chosen) {
            *distance = u32::try_from(number - on).ok()?;
        }
        let mut covers: Vec<u64> = self.covered(&chosen).collect();
        covers.push(number);
        covers.sort_unstable();
        covers.dedup();
        self.known.push_back(Known { number, group: self.group, part, covers });
        self.forget(held);
        Some(Links { number, group: self.group, refs })
    }

    fn find(&self, number: u64) -> Option<&Known> {
        let at = self.known.binary_search_by_key(&number, |known| known.number).ok()?;
        self.known.get(at)
    }

    fn covered(&self, numbers: &[u64]) -> impl Iterator<Item = u64> {
        numbers.iter().filter_map(|&number| self.find(number)).flat_map(|known| known.covers.iter().copied())
    }

    /// At most two pictures that cover all of `on`, the newest first.
    fn choose(&self, on: &[u64]) -> Option<Vec<u64>> {
        let mut on = on.to_vec();
        on.sort_unstable_by(|a, b| b.cmp(a));
        on.dedup();
        let all: Option<Vec<&Known>> = on.iter().map(|&number| self.find(number)).collect();
        let all = all?;
        // Nothing covers what is newer, so the ones before suffice.
        let mut chosen: Vec<&Known> = Vec::new();
        for known in all {
            if !chosen.iter().any(|newer| newer.covers.binary_search(&known.number).is_ok()) {
                chosen.push(known);
            }
        }
        if chosen.len() <= 2 {
            return Some(chosen.iter().map(|known| known.number).collect());
        }
        let needed = |pair: [&Known; 2]| {
            chosen.iter().all(|one| pair.iter().any(|side| side.covers.binary_search(&one.number).is_ok()))
        };
        let pairs = self.known.iter().flat_map(|a| self.known.iter().map(move |b| [a, b]));
        let pair = pairs
            .filter(|&[a, b]| a.number > b.number && needed([a, b]))
            .min_by_key(|[a, b]| a.covers.len() + b.covers.len())?;
        Some(pair.map(|known| known.number).to_vec())
    }

    fn forget(&mut self, held: impl Fn(u64) -> bool) {
        let Some(oldest) = self.next.checked_sub(NEWEST) else { return };
        self.known.retain(|known| known.number >= oldest || held(known.number));
        let kept: Vec<u64> = self.known.iter().map(|known| known.number).collect();
        for known in &mut self.known {
            known.covers.retain(|number| kept.binary_search(number).is_ok());
        }
    }
}

/// Units that are remembered in any case: twice the 16 that H.264 and H.265 hold.
const NEWEST: u64 = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn covered_dependencies_are_not_named() {
        let mut all = Dependencies::default();
        assert_eq!(all.add(Use::Key, &[], |_| false).unwrap().refs, [0, 0]);
        assert_eq!(all.add(Use::Reference, &[0], |_| false).unwrap().refs, [1, 0]);
        assert_eq!(all.add(Use::Reference, &[0, 1], |_| false).unwrap().refs, [1, 0]);
        assert_eq!(all.add(Use::Leaf, &[0, 1, 2], |_| false).unwrap().refs, [1, 0]);
        assert_eq!(all.add(Use::Reference, &[4], |_| false), None, "unknown");
        assert_eq!(all.add(Use::Key, &[], |_| false).unwrap(), Links { number: 4, group: 1, refs: [0, 0] });
        assert_eq!(all.add(Use::Leaf, &[4, 2, 1], |_| false).unwrap().refs, [1, 3]);
    }

    #[test]
    fn held_units_are_not_forgotten() {
        let mut all = Dependencies::default();
        all.add(Use::Key, &[], |_| true).unwrap();
        for _ in 0..100 {
            all.add(Use::Leaf, &[0], |number| number == 0).unwrap();
        }
        assert_eq!(all.add(Use::Leaf, &[0], |_| false).unwrap().refs, [101, 0]);
        assert_eq!(all.add(Use::Leaf, &[0], |_| false), None);
    }

    #[test]
    fn a_line_is_drawn_when_two_do_not_suffice() {
        let mut all = Dependencies::default();
        let star = |all: &mut Dependencies| {
            let key = all.add(Use::Key, &[], |_| false).unwrap().number;
            for _ in 0..3 {
                all.add(Use::Reference, &[key], |_| false).unwrap();
            }
            all.add(Use::Leaf, &[key + 1, key + 2, key + 3], |_| false)
        };
        assert_eq!(star(&mut all), None);
        assert_eq!(star(&mut all).unwrap().refs, [1, 0]);
    }

    #[test]
    fn two_references_cover_everything() {
        bolero::check!()
            .with_iterations(crate::testing::ITERATIONS)
            .with_type::<Vec<(u8, [u8; 4])>>()
            .for_each(|pictures| {
                let mut all = Dependencies::default();
                let mut closures: Vec<Vec<u64>> = Vec::new();
                for &(part, back) in pictures {
                    let part =
                        [Use::Key, Use::Reference, Use::LeadingReference, Use::Leaf][usize::from(part % 4)];
                    let next = all.next_number();
                    let on: Vec<u64> = back
                        .iter()
                        .filter(|_| part != Use::Key)
                        .filter_map(|&back| next.checked_sub(u64::from(back % 24)).filter(|&on| on < next))
                        .collect();
                    let Some(links) = all.add(part, &on, |_| false) else { continue };
                    let named =
                        links.refs.iter().filter(|&&back| back > 0).map(|&back| next - u64::from(back));
                    let mut closure: Vec<u64> = named.flat_map(|on| closures[on as usize].clone()).collect();
                    assert!(on.iter().all(|on| closure.contains(on)), "{on:?} in {closure:?}");
                    closure.push(next);
                    closures.push(closure);
                }
            });
    }
}

//! Short-term reference picture sets (ITU-T H.265, 7.3.7 and 7.4.8).

use crate::coding::bits::Bits;

/// The pictures a picture keeps, by their distance in picture order count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ReferenceSet {
    /// Shown before it, the nearest first.
    before: Vec<Entry>,
    /// Shown after it, the nearest first.
    after: Vec<Entry>,
}

/// A picture that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// Its picture order count less that of the picture.
    pub(super) delta: i32,
    /// The picture itself may use it.
    pub(super) used: bool,
}

impl ReferenceSet {
    /// Reads the set after those in `sets`: the sequence's next one, or the one in a slice header.
    pub(super) fn parse(bits: &mut Bits, sets: &[Self], in_slice: bool) -> Option<Self> {
        if !sets.is_empty() && bits.bit()? {
            Self::predicted(bits, sets, in_slice)
        } else {
            Self::listed(bits)
        }
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = Entry> {
        self.before.iter().chain(&self.after).copied()
    }

    fn listed(bits: &mut Bits) -> Option<Self> {
        let counts = [bits.ue()?, bits.ue()?];
        if counts.iter().any(|&count| count > MOST) {
            return None;
        }
        let mut list = |count: u32, sign: i32| {
            let mut delta = 0;
            (0..count)
                .map(|_| {
                    delta += sign * (i32::try_from(bits.ue()?).ok().filter(|&step| step < 1 << 15)? + 1);
                    Some(Entry { delta, used: bits.bit()? })
                })
                .collect::<Option<Vec<Entry>>>()
        };
        let before = list(counts[0], -1)?;
        Some(Self { before, after: list(counts[1], 1)? })
    }

    fn predicted(bits: &mut Bits, sets: &[Self], in_slice: bool) -> Option<Self> {
        let back = if in_slice { usize::try_from(bits.ue()?).ok()?.checked_add(1)? } else { 1 };
        let source = sets.get(sets.len().checked_sub(back)?)?;
        let negative = bits.bit()?;
        let step = i32::try_from(bits.ue()?).ok().filter(|&step| step < 1 << 15)? + 1;
        let step = if negative { -step } else { step };
        let all = source.entries().map(|entry| entry.delta).chain([0]);
        let kept: Vec<Option<Entry>> = all
            .map(|delta| {
                let used = bits.bit()?;
                let keep = used || bits.bit()?;
                Some(keep.then_some(Entry { delta: delta + step, used }))
            })
            .collect::<Option<_>>()?;
        let mut result = Self::default();
        for entry in kept.into_iter().flatten() {
            match entry.delta {
                ..0 => result.before.push(entry),
                0 => {}
                1.. => result.after.push(entry),
            }
        }
        result.before.sort_by_key(|entry| -entry.delta);
        result.after.sort_by_key(|entry| entry.delta);
        let fits = result.before.len().max(result.after.len()) <= MOST as usize;
        fits.then_some(result)
    }
}

/// Pictures that a decoder holds at most (ITU-T H.265, A.4.2).
const MOST: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_predicted_from_the_one_before() {
        // Two pictures before, none after; each one nearer and used.
        let listed = ReferenceSet::parse(&mut Bits::plain(&[0b0111_1111]), &[], false).unwrap();
        let sets = std::slice::from_ref(&listed);
        let deltas = |set: &ReferenceSet| set.entries().map(|entry| entry.delta).collect::<Vec<_>>();
        assert_eq!(deltas(&listed), [-1, -2]);
        // Predicted, one later: of -1, -2 and the picture itself remain -1 and 1.
        let later = ReferenceSet::parse(&mut Bits::plain(&[0b1011_1100]), sets, false).unwrap();
        assert_eq!(deltas(&later), [-1, 1]);
        // One earlier; the first is kept unused, the second is dropped.
        let earlier = ReferenceSet::parse(&mut Bits::plain(&[0b1110_1001]), sets, false).unwrap();
        let entries: Vec<_> = earlier.entries().map(|entry| (entry.delta, entry.used)).collect();
        assert_eq!(entries, [(-1, true), (-2, false)]);
    }
}

//! Parameter sets as they came last.

use std::collections::BTreeMap;

/// The newest parameter sets of one kind, by their number.
#[derive(Clone, Debug)]
pub(crate) struct Sets<T> {
    sets: BTreeMap<u32, Stored<T>>,
}

#[derive(Clone, Debug)]
struct Stored<T> {
    parsed: T,
    nal: Vec<u8>,
    /// It changed after the last key unit that has it.
    is_new: bool,
}

impl<T> Default for Sets<T> {
    fn default() -> Self {
        Self { sets: BTreeMap::new() }
    }
}

impl<T> Sets<T> {
    /// Keeps a set; `None` if it is too large. The kind bounds its numbers.
    pub(crate) fn insert(&mut self, id: u32, parsed: T, nal: &[u8]) -> Option<()> {
        let nal = trimmed(nal);
        if nal.len() > MOST_BYTES {
            return None;
        }
        if self.sets.get(&id).is_none_or(|stored| stored.nal != nal) {
            self.sets.insert(id, Stored { parsed, nal: nal.to_vec(), is_new: true });
        }
        Some(())
    }

    pub(crate) fn get(&self, id: u32) -> Option<&T> {
        self.sets.get(&id).map(|stored| &stored.parsed)
    }

    pub(crate) fn nal(&self, id: u32) -> Option<&[u8]> {
        self.sets.get(&id).map(|stored| stored.nal.as_slice())
    }

    /// The set with the lowest number among those that `belongs`.
    pub(crate) fn first(&self, belongs: impl Fn(&T) -> bool) -> Option<&[u8]> {
        self.sets.values().find(|stored| belongs(&stored.parsed)).map(|stored| stored.nal.as_slice())
    }

    /// Adds to `out` what a unit begins with: a key unit with all sets that `belongs`, others with those that changed
    /// since. A set that changed goes with each unit up to the next key, because any of them may be dropped.
    pub(crate) fn collect(&mut self, key: bool, belongs: impl Fn(&T) -> bool, out: &mut Vec<Vec<u8>>) {
        for stored in self.sets.values_mut().filter(|stored| belongs(&stored.parsed)) {
            if key || stored.is_new {
                out.push(stored.nal.clone());
            }
            stored.is_new &= !key;
        }
    }
}

/// A NAL unit without the zero bytes that may follow it.
pub(crate) fn trimmed(nal: &[u8]) -> &[u8] {
    let end = nal.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    &nal[..end]
}

/// Bytes of parameter sets that are kept. Real sets have less than a tenth of that.
const MOST_BYTES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_set_goes_with_each_unit_up_to_the_next_key() {
        let mut sets = Sets::default();
        let collected = |sets: &mut Sets<()>, key| {
            let mut out = Vec::new();
            sets.collect(key, |()| true, &mut out);
            out.len()
        };
        sets.insert(0, (), b"set").unwrap();
        assert_eq!([false, false, true, false].map(|key| collected(&mut sets, key)), [1, 1, 1, 0]);
        sets.insert(0, (), b"set\0").unwrap();
        assert_eq!(collected(&mut sets, false), 0, "it is the same");
        sets.insert(0, (), b"other").unwrap();
        assert_eq!(collected(&mut sets, false), 1);
        assert_eq!(sets.insert(1, (), &[1; MOST_BYTES + 1]), None);
    }
}

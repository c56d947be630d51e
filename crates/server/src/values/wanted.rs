use std::collections::BTreeSet;

use super::keys::Entry;

/// The keys that a reader asked for. Names are compared once for each key: a topic with many readers asks for each change and each
/// of them.
pub(super) struct WantedKeys {
    names: BTreeSet<String>,
    /// By place: twice the number of the key there, and one more if it is wanted; 0 where none was compared.
    known: Vec<u64>,
}

impl WantedKeys {
    pub(super) fn new(names: BTreeSet<String>) -> Self {
        Self { names, known: Vec::new() }
    }

    /// Whether the key at this place is wanted.
    pub(super) fn contain(&mut self, place: usize, entry: &Entry) -> bool {
        self.look_up(place, entry.number(), &entry.key)
    }

    fn look_up(&mut self, place: usize, number: u64, key: &str) -> bool {
        if let Some(known) = self.known.get(place)
            && known >> 1 == number
        {
            return known & 1 == 1;
        }
        let is_wanted = self.names.contains(key);
        if place >= self.known.len() {
            self.known.resize(place + 1, 0);
        }
        if let Some(known) = self.known.get_mut(place) {
            *known = number << 1 | u64::from(is_wanted);
        }
        is_wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_key_at_the_same_place_is_compared_anew() {
        let mut wanted = WantedKeys::new(["a".to_owned()].into());
        for _ in 0..2 {
            assert!(wanted.look_up(3, 1, "a") && !wanted.look_up(0, 2, "b"));
        }
        assert!(!wanted.look_up(3, 3, "b") && wanted.look_up(0, 4, "a"));
    }
}

//! What a receiver that connects again gets first.

use std::collections::{BTreeMap, BTreeSet};

use super::input::NewRecord;

/// The newest record of each key, for whoever connects again.
pub(super) struct Newest {
    /// Newer records replace older ones.
    by_key: bool,
    /// The records themselves are kept, and not only their numbers.
    keeps_records: bool,
    seqs: BTreeMap<u64, u64>,
    offers: BTreeMap<u64, NewRecord>,
}

impl Newest {
    pub(super) fn new(by_key: bool, keeps_records: bool) -> Self {
        Self { by_key, keeps_records, seqs: BTreeMap::new(), offers: BTreeMap::new() }
    }

    /// Notes a record. A record without a key is nobody's state.
    pub(super) fn put(&mut self, offer: NewRecord) {
        let key = offer.meta.key;
        if !self.by_key || key == 0 {
            return;
        }
        self.seqs.insert(key, offer.meta.seq);
        if self.keeps_records {
            self.offers.insert(key, offer);
        }
    }

    /// The number of the newest record with this key.
    pub(super) fn seq_of(&self, key: u64) -> Option<u64> {
        self.seqs.get(&key).copied()
    }

    /// The numbers of those that are kept.
    pub(super) fn kept(&self) -> BTreeSet<u64> {
        self.offers.values().map(|offer| offer.meta.seq).collect()
    }

    pub(super) fn in_order(&self) -> Vec<NewRecord> {
        let mut offers: Vec<NewRecord> = self.offers.values().cloned().collect();
        offers.sort_by_key(|offer| offer.meta.seq);
        offers
    }
}

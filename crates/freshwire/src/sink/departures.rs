//! When records left, for the program that polls fates: the ring has no place for it.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use freshwire_io::tcp::Stage;
use freshwire_record::Timestamp;
use freshwire_ring::{Fate, MAX_KEPT_FATES};

/// When a record's last byte reached the stages before the acknowledgement, as far as the kernel has said it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Departure {
    pub(crate) scheduled: Option<Timestamp>,
    pub(crate) departed: Option<Timestamp>,
}

/// Departures by the index of their record. If the program never polls, the oldest are dropped.
#[derive(Debug, Default)]
pub(crate) struct Departures(Mutex<BTreeMap<u64, Departure>>);

impl Departures {
    /// Notes a departure; the fate of the record follows.
    pub(crate) fn add(&self, index: u64, departure: Departure) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(index, departure);
        if all.len() > MAX_KEPT_FATES {
            all.pop_first();
        }
    }

    /// Notes that the last byte of a record whose fate is to come has reached a stage.
    pub(crate) fn note(&self, index: u64, stage: Stage, at: Timestamp) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let departure = all.entry(index).or_default();
        match stage {
            Stage::Scheduled => departure.scheduled = Some(at),
            Stage::Departed => departure.departed = Some(at),
            Stage::Acked => {}
        }
        if all.len() > MAX_KEPT_FATES {
            all.pop_first();
        }
    }

    /// The fate with its record's departure.
    pub(crate) fn complete(&self, fate: Fate) -> Fate {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match all.remove(&fate.index) {
            Some(Departure { scheduled, departed }) => {
                Fate { scheduled_at: scheduled, departed_at: departed, ..fate }
            }
            None => fate,
        }
    }
}

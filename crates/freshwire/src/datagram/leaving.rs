//! Records whose last packet was handed over, until the path has noted when it left.

use std::collections::VecDeque;
use std::time::Duration;

use freshwire_io::tcp::Stage;
use freshwire_io::udp::DepartureNote;
use freshwire_record::Timestamp;
use freshwire_ring::{Config, Consumer, Taken};

use crate::sink::departures::Departure;
use crate::sink::shared::SinkShared;

/// Time for which a record's fate waits for its departure: the last packet may have been dropped in front of the device, which nobody
/// reports. Chosen, not measured: longer than any queue that is of use.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// How often notes are looked for while a fate waits. Chosen, not measured.
pub(super) const LOOK: Duration = Duration::from_millis(2);

#[derive(Default)]
pub(super) struct Leaving {
    next_id: u32,
    /// Oldest first, with consecutive numbers up to `next_id`.
    records: VecDeque<LeavingRecord>,
    /// Slots of the ring that these have.
    slots: usize,
    notes: Vec<DepartureNote>,
}

struct LeavingRecord {
    taken: Taken,
    finished: Timestamp,
    departure: Departure,
}

impl Leaving {
    /// The number that the next record's last packet has.
    pub(super) fn next_id(&self) -> u32 {
        self.next_id
    }

    /// The record's last packet was handed over with that number.
    pub(super) fn add(&mut self, taken: Taken, finished: Timestamp) {
        self.next_id = self.next_id.wrapping_add(1);
        self.slots += taken.slots();
        self.records.push_back(LeavingRecord { taken, finished, departure: Departure::default() });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// For the path to add what it has noted.
    pub(super) fn notes(&mut self) -> &mut Vec<DepartureNote> {
        &mut self.notes
    }

    /// Takes over what was noted, and completes the fates that need not wait any more.
    pub(super) fn settle(&mut self, now: Timestamp, consumer: &mut Consumer, shared: &SinkShared) {
        let first = self.next_id.wrapping_sub(self.records.len() as u32);
        // The packets of one socket leave in order: what had not left before another one was dropped in front of the device.
        let mut left = 0;
        for DepartureNote { id, stage, at } in self.notes.drain(..) {
            let place = id.wrapping_sub(first) as usize;
            // A late note of a record that waits no more is of no use.
            let Some(record) = self.records.get_mut(place) else { continue };
            match stage {
                Stage::Scheduled => record.departure.scheduled = Some(at),
                Stage::Departed => {
                    record.departure.departed = Some(at);
                    left = left.max(place + 1);
                }
                Stage::Acked => {}
            }
        }
        let over = self.records.iter().take_while(|record| now >= record.finished + LONGEST_WAIT).count();
        let excess = self.excess(&consumer.region().config());
        self.complete(left.max(over).max(excess), consumer, shared);
    }

    /// The oldest records, whose slots and blocks the ring needs for others: half of either is enough for those that wait.
    fn excess(&self, config: &Config) -> usize {
        let most = config.slots.min(config.blocks) as usize / 2;
        let mut slots = self.slots;
        let is_excess = |record: &&LeavingRecord| {
            let is_excess = slots > most;
            slots -= record.taken.slots();
            is_excess
        };
        self.records.iter().take_while(is_excess).count()
    }

    /// Completes all fates with what is known.
    pub(super) fn end(&mut self, consumer: &mut Consumer, shared: &SinkShared) {
        self.complete(self.records.len(), consumer, shared);
    }

    fn complete(&mut self, count: usize, consumer: &mut Consumer, shared: &SinkShared) {
        for LeavingRecord { taken, finished, departure } in self.records.drain(..count) {
            self.slots -= taken.slots();
            shared.departures().add(taken.record.index, departure);
            // Fails only if the other side overwrote the state of a taken slot; the ring has counted that.
            let _ = consumer.finish_for_good(&taken, finished);
        }
    }
}

#[cfg(test)]
mod tests {
    use freshwire_ring::{Meta, Region};

    use super::*;
    use crate::carrier::CarrierInUse;

    /// No note comes: a record of at most half the ring always finds room, whatever the sizes.
    #[test]
    fn records_without_notes_leave_half_the_ring_free() {
        for slots in [2, 8, 64, 256] {
            for blocks in [slots, slots * 4] {
                for spans in [1, 2, 3, slots / 4, slots / 2, slots] {
                    let config = Config { slots, blocks, block_bytes: 64, ..Config::default() };
                    let region = Region::heap(&config).unwrap();
                    let mut producer = region.producer().unwrap();
                    let mut consumer = region.consumer(0).unwrap();
                    let shared = SinkShared::new(CarrierInUse::Datagrams, None, None);
                    let (mut leaving, mut records) = (Leaving::default(), Vec::new());
                    let spans = spans.clamp(1, slots) as usize;
                    for number in 0..4 * slots as usize {
                        // The last block of some is not full.
                        let payload = vec![0; spans * 64 - number % 64];
                        let pushed = producer.push(0, &payload, &Meta::default());
                        assert!(pushed.is_ok(), "{config:?}: record {number} of {spans} slots: {pushed:?}");
                        consumer.queue(usize::MAX, &mut records);
                        for record in &records {
                            let taken = consumer.take(record.index).unwrap();
                            assert_eq!(taken.slots(), spans);
                            consumer.commit(&taken, Timestamp::ZERO, 0);
                            leaving.add(taken, Timestamp::ZERO);
                        }
                        leaving.settle(Timestamp::ZERO, &mut consumer, &shared);
                        let most = slots as usize / 2 / spans;
                        assert_eq!(leaving.records.len(), most.min(number + 1), "{config:?}, {spans} slots");
                    }
                    leaving.end(&mut consumer, &shared);
                    assert!(leaving.is_empty() && leaving.slots == 0, "{config:?}, {spans} slots");
                }
            }
        }
    }
}

//! A ring of the sender's region as the source of a connection.

use std::sync::Arc;

use freshwire_a1::{Sequence, Source, Taken};
use freshwire_choice::{Outcome, Reason, Record};
use freshwire_record::Timestamp;
use freshwire_ring::Consumer;

use super::record_source::RecordSource;
use crate::sink::shared::SinkShared;

/// The sender's side of a ring, with an account of what the connection does to it.
pub(super) struct RingSource {
    consumer: Consumer,
    shared: Arc<SinkShared>,
    /// The result of the last look, for the account of what is dropped.
    queued: Vec<Record>,
    taken: Sequence<freshwire_ring::Taken>,
    /// Payload bytes of the records that were acknowledged.
    acked: u64,
    /// The connection has looked since the last rest.
    has_looked: bool,
    /// Packets in which records ended, if the sink notes departures.
    ends: Option<Vec<(usize, u64)>>,
}

impl RingSource {
    pub(super) fn new(consumer: Consumer, shared: Arc<SinkShared>) -> Self {
        let taken = Sequence::default();
        Self { consumer, shared, queued: Vec::new(), taken, acked: 0, has_looked: true, ends: None }
    }

    /// Sets whether it tells in which packets records end.
    pub(super) fn telling_ends(self, wanted: bool) -> Self {
        Self { ends: wanted.then(Vec::new), ..self }
    }

    fn abandon(&mut self, taken: &freshwire_ring::Taken, reason: Reason, now: Timestamp) {
        // Fails only if the other side overwrote the state of a taken slot; the ring has counted that.
        let _ = self.consumer.abandon(taken, reason, now);
        self.shared.stats.on_dropped(taken.record.layer, reason);
    }
}

impl Source for RingSource {
    fn list(&mut self, lookahead: usize, records: &mut Vec<Record>, gone: &mut Vec<(u64, Reason)>) {
        self.has_looked = true;
        self.consumer.queue(lookahead, records);
        self.queued.clone_from(records);
        gone.clear();
        // The search goes over the whole ring, and a policy that looks at the oldest records only has no use for it.
        if lookahead < usize::MAX {
            return;
        }
        self.consumer.dropped_by_others(gone);
        for &mut (_, reason) in gone {
            // Which layer it was cannot be read any more.
            self.shared.stats.on_dropped(0, reason);
        }
    }

    fn take(&mut self, now: Timestamp, index: u64, horizon: u32, most: u32) -> Option<Taken> {
        let taken = self.consumer.take_up_to(index, most).ok()?;
        self.consumer.commit(&taken, now, horizon);
        // It may have been modified or replaced since it was listed.
        let record = taken.record;
        self.shared.stats.on_committed(record.layer, now.saturating_since(record.generated));
        self.taken.insert(index, taken);
        Some(Taken { token: index, record })
    }

    fn discard(&mut self, now: Timestamp, index: u64, reason: Reason) -> bool {
        let is_dropped = self.consumer.discard(index, reason, now).is_ok();
        if is_dropped {
            let record = self.queued.iter().find(|record| record.index == index);
            self.shared.stats.on_dropped(record.map_or(0, |record| record.layer), reason);
            self.shared.note_change();
        }
        is_dropped
    }

    fn read(&self, token: u64, offset: u32, bytes: usize, out: &mut Vec<u8>) {
        if let Some(taken) = self.taken.get(token) {
            self.consumer.copy(taken, offset, bytes, out);
        }
    }

    fn ends_in(&mut self, token: u64, at: usize) {
        if let Some(ends) = &mut self.ends {
            ends.push((at, token));
        }
    }

    fn settle(&mut self, now: Timestamp, token: u64, outcome: Outcome) {
        let Some(taken) = self.taken.remove(token) else { return };
        match outcome.reason() {
            None => {
                // Fails only if the other side overwrote the state of a taken slot; the ring has counted that.
                let _ = self.consumer.finish_acked(&taken, now);
                self.shared.stats.on_finished();
                self.acked += u64::from(taken.record.len);
                self.shared.stats.on_acked(self.acked);
            }
            Some(reason) => self.abandon(&taken, reason, now),
        }
        self.shared.note_change();
    }
}

impl RecordSource for RingSource {
    fn take_ends(&mut self) -> Vec<(usize, u64)> {
        self.ends.as_mut().map(std::mem::take).unwrap_or_default()
    }

    fn notified(&self) -> bool {
        self.consumer.notified()
    }

    fn rest(&mut self) -> bool {
        !std::mem::take(&mut self.has_looked) || self.consumer.sleep()
    }

    fn in_hand(&self) -> usize {
        self.taken.len()
    }

    fn bad_values(&self) -> u64 {
        self.consumer.counters().bad_values()
    }

    fn close(&mut self, reason: Reason, now: Timestamp) -> usize {
        self.consumer.close(reason, now)
    }

    fn end(&mut self, reason: Reason, now: Timestamp) -> usize {
        let committed = self.taken.len();
        while let Some(taken) = self.taken.first().and_then(|first| self.taken.remove(first)) {
            self.abandon(&taken, reason, now);
        }
        committed + self.close(reason, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::carrier::CarrierInUse;
    use freshwire_ring::{Config, Meta, Producer, Region};

    fn ring() -> (Producer, RingSource) {
        over(&Region::heap(&Config { slots: 8, ..Config::default() }).unwrap())
    }

    fn over(region: &Region) -> (Producer, RingSource) {
        let shared = Arc::new(SinkShared::new(CarrierInUse::A1, None, None));
        (region.producer().unwrap(), RingSource::new(region.consumer(0).unwrap(), shared))
    }

    fn push(producer: &mut Producer, seq: u64, payload: &[u8]) -> bool {
        let meta = Meta { seq, layer: seq as u8, ..Meta::default() };
        producer.push(0, payload, &meta).unwrap().notify
    }

    fn list(source: &mut RingSource) -> (Vec<Record>, Vec<(u64, Reason)>) {
        let (mut records, mut gone) = (Vec::new(), Vec::new());
        source.list(usize::MAX, &mut records, &mut gone);
        (records, gone)
    }

    const NOW: Timestamp = Timestamp::from_nanos(5);

    #[test]
    fn a_record_is_read_again_and_again_until_it_is_settled() {
        let (mut producer, mut source) = ring();
        push(&mut producer, 1, b"0123456789");
        let (records, _) = list(&mut source);
        let taken = source.take(NOW, records[0].index, 7, 10).unwrap();
        assert_eq!(taken.record.seq, 1);
        assert!(source.take(NOW, records[0].index, 7, 10).is_none());
        for _ in 0..2 {
            let mut part = b"before ".to_vec();
            source.read(taken.token, 5, 4, &mut part);
            assert_eq!(part, b"before 5678");
        }
        assert_eq!(source.in_hand(), 1);
        source.settle(NOW, taken.token, Outcome::Acked);
        let fate = producer.poll_fate(0).unwrap();
        assert_eq!((fate.outcome, fate.committed_at, fate.acked_at), (Outcome::Acked, Some(NOW), Some(NOW)));
        assert_eq!((fate.horizon, source.in_hand()), (7, 0));
    }

    #[test]
    fn a_record_that_grew_after_listing_needs_room_for_its_new_size() {
        let (mut producer, mut source) = ring();
        push(&mut producer, 1, b"0123456789");
        let (records, _) = list(&mut source);
        let mut edit = producer.edit(0, 1).unwrap();
        edit.set_len(12).unwrap();
        edit.release().unwrap();
        assert_eq!(source.take(NOW, records[0].index, 0, 11), None);
        assert_eq!(source.take(NOW, records[0].index, 0, 12).unwrap().record.len, 12);
    }

    #[test]
    fn drops_are_counted_by_reason_and_the_applications_are_listed() {
        let (mut producer, mut source) = ring();
        for seq in 0..4 {
            push(&mut producer, seq, b"x");
        }
        producer.drop_seq(0, 1);
        let (records, gone) = list(&mut source);
        assert_eq!(gone, [(1, Reason::Application)]);
        assert!(source.discard(NOW, records[0].index, Reason::Expired));
        assert!(!source.discard(NOW, records[0].index, Reason::Expired));
        let taken = source.take(NOW, records[1].index, 0, 10).unwrap();
        source.settle(NOW, taken.token, Outcome::Dropped(Reason::Abandoned));
        let (records, gone) = list(&mut source);
        assert_eq!((records.len(), gone.len()), (1, 0), "each is listed once");
        source.end(Reason::ConnectionLost, NOW);
        let drops = source.shared.stats.snapshot().drops;
        assert_eq!(drops, [(Reason::Expired, 1), (Reason::Application, 1), (Reason::Abandoned, 1)]);
    }

    /// The producer reuses the slot of a finished record at any instant.
    #[test]
    fn every_fate_has_its_acknowledgement_despite_slot_reuse() {
        const RECORDS: u64 = 50_000;
        let region = Region::heap(&Config { slots: 2, ..Config::default() }).unwrap();
        let (mut producer, mut source) = over(&region);
        producer.keep_fates(0);
        let settling = std::thread::spawn(move || {
            let (mut records, mut gone, mut settled) = (Vec::new(), Vec::new(), 0);
            while settled < RECORDS {
                source.list(2, &mut records, &mut gone);
                for record in &records {
                    let taken = source.take(NOW, record.index, 0, 10).expect("nobody else takes it");
                    source.settle(NOW, taken.token, Outcome::Acked);
                    settled += 1;
                }
            }
        });
        let (mut pushed, mut acked) = (0, 0);
        while pushed < RECORDS {
            pushed += u64::from(producer.push(0, b"x", &Meta { seq: pushed, ..Meta::default() }).is_ok());
            acked += u64::from(producer.poll_fate(0).is_some_and(|fate| fate.outcome == Outcome::Acked));
        }
        settling.join().unwrap();
        while producer.poll_fate(0).is_some_and(|fate| fate.outcome == Outcome::Acked) {
            acked += 1;
        }
        assert_eq!(acked, RECORDS);
    }

    #[test]
    fn a_push_calls_only_who_rests() {
        let (mut producer, mut source) = ring();
        assert!(!push(&mut producer, 0, b"x"), "it looks anyway");
        assert!(!source.rest(), "what was pushed has not been seen");
        list(&mut source);
        assert!(source.rest());
        assert!(push(&mut producer, 1, b"x"));
        assert!(source.notified());
    }
}

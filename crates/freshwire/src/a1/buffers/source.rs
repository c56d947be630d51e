//! The node's side of a sender of buffers.

use std::sync::{Arc, MutexGuard};

use bytes::Bytes;
use freshwire_a1::{Sequence, Source, Taken};
use freshwire_choice::{Outcome, Reason, Record};
use freshwire_record::Timestamp;
use freshwire_ring::Fate;

use super::state::{Buffer, Shared, State};
use crate::a1::record_source::RecordSource;
use crate::sink::shared::SinkShared;

pub(super) struct BufferSource {
    shared: Arc<Shared>,
    stats: Arc<SinkShared>,
    taken: Sequence<CommittedBuffer>,
    dropped: Vec<Record>,
    /// Fates for the application, reported at the next look or rest, which take the lock anyway.
    fates: Vec<(Record, Fate)>,
    /// Payload bytes of the records that were acknowledged.
    acked: u64,
    /// The connection has looked since the last rest.
    has_looked: bool,
}

/// A record that was taken.
struct CommittedBuffer {
    record: Record,
    payload: Bytes,
    at: Timestamp,
    horizon: u32,
}

impl BufferSource {
    pub(super) fn new(shared: Arc<Shared>, stats: Arc<SinkShared>) -> Self {
        Self {
            shared,
            stats,
            taken: Sequence::default(),
            dropped: Vec::new(),
            fates: Vec::new(),
            acked: 0,
            has_looked: true,
        }
    }

    /// The state, after all collected fates are settled in it.
    fn settled(&mut self) -> MutexGuard<'_, State> {
        let mut state = self.shared.lock();
        if state.settle_all(self.fates.drain(..)) {
            self.shared.room.notify_all();
        }
        state
    }

    fn abandon(&mut self, committed: &CommittedBuffer, reason: Reason, now: Timestamp) {
        self.stats.stats.on_dropped(committed.record.layer, reason);
        self.fates.push((committed.record, committed.fate(Outcome::Dropped(reason), now)));
    }

    /// Drops a record that was never committed.
    fn drop_waiting(&mut self, buffer: &Buffer, reason: Reason, now: Timestamp) {
        let Buffer { record, .. } = buffer;
        self.stats.stats.on_dropped(record.layer, reason);
        let fate = Fate::uncommitted(record.index, record.seq, Outcome::Dropped(reason));
        self.fates.push((*record, Fate { finished_at: Some(now), ..fate }));
    }
}

impl CommittedBuffer {
    fn fate(&self, outcome: Outcome, now: Timestamp) -> Fate {
        Fate {
            committed_at: Some(self.at),
            finished_at: Some(now),
            acked_at: (outcome == Outcome::Acked).then_some(now),
            horizon: self.horizon,
            ..Fate::uncommitted(self.record.index, self.record.seq, outcome)
        }
    }
}

impl Source for BufferSource {
    fn list(&mut self, lookahead: usize, records: &mut Vec<Record>, gone: &mut Vec<(u64, Reason)>) {
        self.has_looked = true;
        let mut dropped = std::mem::take(&mut self.dropped);
        self.settled().look(lookahead, records, &mut dropped);
        self.dropped = dropped;
        gone.clear();
        for record in self.dropped.drain(..) {
            self.stats.stats.on_dropped(record.layer, Reason::Application);
            gone.push((record.seq, Reason::Application));
        }
    }

    fn take(&mut self, now: Timestamp, index: u64, horizon: u32, most: u32) -> Option<Taken> {
        let Buffer { record, payload, .. } = self.shared.lock().take(index, most)?;
        self.stats.stats.on_committed(record.layer, now.saturating_since(record.generated));
        self.taken.insert(index, CommittedBuffer { record, payload, at: now, horizon });
        Some(Taken { token: index, record })
    }

    fn discard(&mut self, now: Timestamp, index: u64, reason: Reason) -> bool {
        let buffer = self.shared.lock().discard(index);
        if let Some(buffer) = &buffer {
            self.drop_waiting(buffer, reason, now);
        }
        buffer.is_some()
    }

    fn read(&self, token: u64, offset: u32, bytes: usize, out: &mut Vec<u8>) {
        let payload = self.taken.get(token).and_then(|committed| committed.payload.get(offset as usize..));
        out.extend_from_slice(payload.and_then(|payload| payload.get(..bytes)).unwrap_or_default());
    }

    fn settle(&mut self, now: Timestamp, token: u64, outcome: Outcome) {
        let Some(committed) = self.taken.remove(token) else { return };
        match outcome.reason() {
            None => {
                self.acked += u64::from(committed.record.len);
                self.stats.stats.on_finished();
                self.stats.stats.on_acked(self.acked);
                self.fates.push((committed.record, committed.fate(outcome, now)));
            }
            Some(reason) => self.abandon(&committed, reason, now),
        }
    }
}

impl RecordSource for BufferSource {
    fn notified(&self) -> bool {
        self.shared.lock().was_called()
    }

    fn rest(&mut self) -> bool {
        let has_looked = std::mem::take(&mut self.has_looked);
        let mut state = self.settled();
        !has_looked || state.rest()
    }

    fn in_hand(&self) -> usize {
        self.taken.len()
    }

    fn bad_values(&self) -> u64 {
        0
    }

    fn close(&mut self, reason: Reason, now: Timestamp) -> usize {
        let waiting = self.shared.lock().close();
        for buffer in &waiting {
            self.drop_waiting(buffer, reason, now);
        }
        drop(self.settled());
        self.shared.room.notify_all();
        waiting.len()
    }

    fn end(&mut self, reason: Reason, now: Timestamp) -> usize {
        let committed = self.taken.len();
        while let Some(committed) = self.taken.first().and_then(|first| self.taken.remove(first)) {
            self.abandon(&committed, reason, now);
        }
        committed + self.close(reason, now)
    }
}

//! The queue of buffers and their fates.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use freshwire_a1::Qos;
use freshwire_choice::{Reason, Record};
use freshwire_ring::{Fate, Meta, Outcome};

use super::limits::{BufferError, BufferLimits};

/// The state that the application's and the node's threads share.
pub(super) struct Shared {
    pub(super) state: Mutex<State>,
    /// There is room again.
    pub(super) room: Condvar,
}

impl Shared {
    pub(super) fn new(limits: BufferLimits) -> Self {
        Self { state: Mutex::new(State::new(limits)), room: Condvar::new() }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) struct State {
    limits: BufferLimits,
    /// Neither taken nor dropped, by index.
    waiting: VecDeque<Buffer>,
    next_index: u64,
    /// Number of the next record that does not bring its own.
    next_seq: u64,
    fates: VecDeque<Fate>,
    /// Records that the application has dropped since the last look.
    dropped: Vec<Record>,
    /// Records that are not at their end, and their bytes.
    records: usize,
    bytes: usize,
    /// Threads that wait for room.
    pub(super) waiters: usize,
    /// How many were pushed or changed, and how many of that the last look showed.
    changes: u64,
    seen: u64,
    /// Nobody looks until a producer calls.
    is_resting: bool,
    /// A producer has called since the last rest.
    was_called: bool,
    is_closed: bool,
}

/// A record and its bytes.
pub(super) struct Buffer {
    pub(super) record: Record,
    pub(super) payload: Bytes,
    /// It took another one's place since the last look: what was decided of that one is not meant for it.
    is_new: bool,
}

impl State {
    pub(super) fn new(limits: BufferLimits) -> Self {
        Self {
            limits,
            waiting: VecDeque::new(),
            next_index: 0,
            next_seq: 0,
            fates: VecDeque::new(),
            dropped: Vec::new(),
            records: 0,
            bytes: 0,
            waiters: 0,
            changes: 0,
            seen: 0,
            is_resting: false,
            was_called: false,
            is_closed: false,
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn has_room(&self, bytes: usize) -> bool {
        let fits = self.bytes.saturating_add(bytes) <= self.limits.bytes;
        self.records == 0 || self.records < self.limits.records && fits
    }

    /// Gives a record its number, as a ring's producer does.
    pub(super) fn number(&mut self, meta: &Meta) -> Meta {
        let seq = if meta.seq == Meta::NEXT_SEQ { self.next_seq } else { meta.seq };
        self.next_seq = seq.wrapping_add(1);
        Meta { seq, ..*meta }
    }

    pub(super) fn push(&mut self, payload: Bytes, meta: &Meta) -> Result<u64, BufferError> {
        let record = record_of(&payload, &self.number(meta))?;
        if self.is_closed {
            return Err(BufferError::Closed);
        }
        if !self.has_room(payload.len()) {
            return Err(BufferError::Full);
        }
        let index = self.next_index;
        self.next_index += 1;
        self.changes += 1;
        self.records += 1;
        self.bytes += payload.len();
        self.waiting.push_back(Buffer { record: Record { index, ..record }, payload, is_new: false });
        Ok(index)
    }

    /// The payload in whose place it is; `None`: there is none with this key.
    pub(super) fn replace(&mut self, payload: &Bytes, meta: &Meta) -> Result<Option<Bytes>, BufferError> {
        let record = record_of(payload, &self.number(meta))?;
        let has_key = |older: &&mut Buffer| record.key != 0 && older.record.key == record.key;
        let Some(older) = self.waiting.iter_mut().rev().find(has_key) else { return Ok(None) };
        let bytes = self.bytes - older.payload.len() + payload.len();
        if self.records > 1 && bytes > self.limits.bytes {
            return Err(BufferError::Full);
        }
        self.bytes = bytes;
        self.changes += 1;
        older.record = Record { index: older.record.index, ..record };
        older.is_new = true;
        Ok(Some(std::mem::replace(&mut older.payload, payload.clone())))
    }

    pub(super) fn drop_seq(&mut self, seq: u64) -> Vec<Buffer> {
        let (dropped, kept) =
            self.waiting.drain(..).partition::<Vec<_>, _>(|buffer| buffer.record.seq == seq);
        self.waiting.extend(kept);
        for Buffer { record, .. } in &dropped {
            self.dropped.push(*record);
            let outcome = Outcome::Dropped(Reason::Application);
            self.settle(record, Fate::uncommitted(record.index, record.seq, outcome));
        }
        dropped
    }

    pub(super) fn poll_fate(&mut self) -> Option<Fate> {
        self.fates.pop_front()
    }

    /// A producer has done something that the node is to look at. True: it has to be called.
    pub(super) fn call(&mut self) -> bool {
        let rests = std::mem::take(&mut self.is_resting);
        self.was_called |= rests;
        rests
    }

    pub(super) fn was_called(&self) -> bool {
        self.was_called
    }

    /// False: something has changed since the last look.
    pub(super) fn rest(&mut self) -> bool {
        self.was_called = false;
        self.is_resting = self.seen == self.changes;
        self.is_resting
    }

    /// Shows the oldest records, and those that the application has dropped since the last look.
    pub(super) fn look(&mut self, lookahead: usize, records: &mut Vec<Record>, dropped: &mut Vec<Record>) {
        self.seen = self.changes;
        records.clear();
        records.extend(self.waiting.iter_mut().take(lookahead).map(|buffer| {
            buffer.is_new = false;
            buffer.record
        }));
        dropped.clear();
        dropped.append(&mut self.dropped);
    }

    /// Takes one out of the queue, if it is there and has at most that many bytes.
    pub(super) fn take(&mut self, index: u64, most: u32) -> Option<Buffer> {
        let place = self.place(index).filter(|place| self.waiting[*place].record.len <= most)?;
        self.waiting.remove(place)
    }

    /// Takes one out of the queue that is to be dropped, unless another one has taken its place.
    pub(super) fn discard(&mut self, index: u64) -> Option<Buffer> {
        let place = self.place(index).filter(|place| !self.waiting[*place].is_new)?;
        self.waiting.remove(place)
    }

    fn place(&self, index: u64) -> Option<usize> {
        self.waiting.binary_search_by_key(&index, |buffer| buffer.record.index).ok()
    }

    /// Refuses further records, and gives up those that wait.
    pub(super) fn close(&mut self) -> VecDeque<Buffer> {
        self.is_closed = true;
        std::mem::take(&mut self.waiting)
    }

    /// Records are at their end. True: somebody waits for room, and there is enough of it to be worth waking up for.
    pub(super) fn settle_all(&mut self, fates: impl Iterator<Item = (Record, Fate)>) -> bool {
        for (record, fate) in fates {
            self.settle(&record, fate);
        }
        self.waiters > 0
            && self.records <= self.limits.records / 4 * 3
            && self.bytes <= self.limits.bytes / 4 * 3
    }

    fn settle(&mut self, record: &Record, fate: Fate) {
        self.records -= 1;
        self.bytes -= record.len as usize;
        if self.fates.len() >= self.limits.records.max(1) {
            self.fates.pop_front();
        }
        self.fates.push_back(fate);
    }
}

fn record_of(payload: &Bytes, meta: &Meta) -> Result<Record, BufferError> {
    match u32::try_from(payload.len()) {
        Ok(len) if len <= Qos::MAX_MESSAGE => Ok(Record::of(meta, len)),
        _ => Err(BufferError::TooLarge { bytes: payload.len() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(seqs: impl IntoIterator<Item = u64>) -> State {
        let mut state = State::new(BufferLimits::default());
        for seq in seqs {
            state.push(Bytes::from_static(b"abc"), &Meta { seq, key: seq, ..Meta::default() }).unwrap();
        }
        state
    }

    fn look(state: &mut State, lookahead: usize) -> (Vec<u64>, Vec<u64>) {
        let (mut records, mut dropped) = (Vec::new(), Vec::new());
        state.look(lookahead, &mut records, &mut dropped);
        let seqs = |records: Vec<Record>| records.iter().map(|record| record.seq).collect();
        (seqs(records), seqs(dropped))
    }

    #[test]
    fn a_decision_on_a_record_does_not_hit_its_replacement() {
        let mut state = state(1..4);
        assert_eq!(look(&mut state, 9), (vec![1, 2, 3], vec![]));
        let meta = Meta { seq: 7, key: 2, ..Meta::default() };
        let older = state.replace(&Bytes::from_static(b"newer"), &meta).unwrap();
        assert_eq!(older.as_deref(), Some(&b"abc"[..]));
        assert!(state.discard(1).is_none());
        assert_eq!(look(&mut state, 9), (vec![1, 7, 3], vec![]));
        assert!(state.discard(1).is_some_and(|buffer| buffer.record.seq == 7));
    }

    #[test]
    fn a_record_is_taken_by_its_index_whatever_went_before_it() {
        let mut state = state(10..15);
        assert_eq!(state.drop_seq(11).len(), 1);
        assert_eq!(look(&mut state, 2), (vec![10, 12], vec![11]));
        assert_eq!(look(&mut state, 2), (vec![10, 12], vec![]), "a drop is reported once");
        assert!(state.take(3, 2).is_none(), "it is too large");
        assert!(state.take(3, 3).is_some_and(|buffer| buffer.record.seq == 13));
        assert!(state.take(3, 3).is_none() && state.take(1, 3).is_none());
        assert_eq!(look(&mut state, 9).0, [10, 12, 14]);
    }

    #[test]
    fn a_replacement_counts_against_the_limits_while_it_waits() {
        let mut state = State::new(BufferLimits { records: 3, bytes: 10 });
        let meta = |seq| Meta { seq, key: seq % 2 + 1, ..Meta::default() };
        state.push(Bytes::from_static(b"ab"), &meta(0)).unwrap();
        state.push(Bytes::from_static(b"cd"), &meta(1)).unwrap();
        state.replace(&Bytes::from_static(b"longer"), &meta(2)).unwrap();
        assert!(state.has_room(2) && !state.has_room(3));
        state.drop_seq(2);
        assert!(state.has_room(8) && !state.has_room(9));
    }

    #[test]
    fn only_a_resting_source_is_called_and_changes_prevent_rest() {
        let mut state = state([1]);
        assert!(!state.call(), "it looks anyway");
        assert!(!state.rest());
        look(&mut state, 9);
        assert!(state.rest() && !state.was_called());
        assert!(state.call() && state.was_called());
        assert!(!state.call(), "it was called already");
        let meta = Meta { seq: 2, key: 1, ..Meta::default() };
        state.replace(&Bytes::new(), &meta).unwrap();
        assert!(!state.rest(), "a change is something new");
        look(&mut state, 9);
        assert!(state.rest());
    }
}

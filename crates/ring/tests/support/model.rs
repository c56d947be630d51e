//! What the rings have to do, said as simply as possible: queues of records and payloads with a count of their users.

use std::collections::VecDeque;

use freshwire_ring::{Outcome, PushError, Reason, Stage};

pub(crate) const RINGS: usize = 2;
pub(crate) const SLOTS: u64 = 4;
const BLOCK_BYTES: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Ready,
    Taken,
    Sent { last: bool },
    Acked,
    Dead(Reason),
}

pub(crate) struct Record {
    pub(crate) index: u64,
    pub(crate) span: u64,
    pub(crate) seq: u64,
    pub(crate) key: u64,
    pub(crate) payload: Vec<u8>,
    pub(crate) shared: bool,
    state: State,
    /// Its payload's number, until it has been given back.
    stored: Option<usize>,
}

#[derive(Default)]
pub(crate) struct Ring {
    pub(crate) user_i: u64,
    pub(crate) asleep: bool,
    records: VecDeque<Record>,
    /// Records that kept their slots while the ring went on.
    behind: Vec<Record>,
    /// Fates of records whose slots were used again: those that are known, and those of which no acknowledgement is known.
    done: VecDeque<(u64, u64, Outcome)>,
    awaiting: Vec<(u64, u64)>,
    hold: Option<u64>,
}

pub(crate) struct Model {
    pub(crate) rings: Vec<Ring>,
    blocks: usize,
    /// Blocks and users of each payload there ever was.
    payloads: Vec<(usize, usize)>,
    /// Payloads whose handle is gone, which the producer has not noticed.
    returned: Vec<usize>,
}

impl Record {
    fn is_finished(&self) -> bool {
        matches!(self.state, State::Sent { .. } | State::Acked | State::Dead(_))
    }

    /// How it ended, once that is known.
    fn outcome(&self) -> Option<Outcome> {
        match self.state {
            State::Acked => Some(Outcome::Acked),
            State::Sent { last: true } => Some(Outcome::Sent),
            State::Dead(reason) => Some(Outcome::Dropped(reason)),
            _ => None,
        }
    }

    pub(crate) fn kill(&mut self, reason: Reason) {
        self.state = State::Dead(reason);
    }
}

impl Ring {
    /// An index of a record, or one where none is.
    pub(crate) fn index_of(&self, nth: u8) -> u64 {
        self.all().nth(usize::from(nth % 8)).map_or(self.user_i, |record| record.index)
    }

    /// Whether this index is from an earlier lap and no record is known there.
    pub(crate) fn is_forgotten(&self, index: u64) -> bool {
        index + SLOTS < self.user_i && self.all().all(|record| record.index != index)
    }

    fn record(&mut self, index: u64) -> Option<&mut Record> {
        self.all_mut().find(|record| record.index == index)
    }

    /// All records by index.
    fn all(&self) -> impl Iterator<Item = &Record> {
        self.behind.iter().chain(&self.records)
    }

    fn all_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut Record> {
        self.behind.iter_mut().chain(&mut self.records)
    }

    /// Whether a record that has not ended uses the slot of this index.
    fn is_in_use(&self, index: u64) -> bool {
        let uses = |record: &Record| {
            (record.index..record.index + record.span).any(|at| at % SLOTS == index % SLOTS)
        };
        self.all().any(|record| !record.is_finished() && uses(record))
    }

    /// Takes a record off whose slots are used again.
    fn park(&mut self, record: &Record) {
        match record.outcome() {
            Some(outcome) => self.done.push_back((record.index, record.seq, outcome)),
            None => self.awaiting.push((record.index, record.seq)),
        }
    }

    fn is_held_back(&self, index: u64) -> bool {
        self.hold.is_some_and(|hold| index >= hold)
    }

    fn used(&self) -> u64 {
        self.user_i - self.records.front().map_or(self.user_i, |record| record.index)
    }
}

impl Model {
    pub(crate) fn new(blocks: usize) -> Self {
        let rings = (0..RINGS).map(|_| Ring::default()).collect();
        Self { rings, blocks, payloads: Vec::new(), returned: Vec::new() }
    }

    pub(crate) fn free_blocks(&self) -> usize {
        let used =
            self.payloads.iter().filter(|(_, users)| *users > 0).map(|(blocks, _)| blocks).sum::<usize>();
        self.blocks - used
    }

    pub(crate) fn push(
        &mut self,
        ring: usize,
        payload: &[u8],
        seq: u64,
        key: u64,
    ) -> Result<(u64, bool), PushError> {
        let (span, index) = self.make_room(ring, payload.len())?;
        self.make_blocks(span)?;
        self.clear_slots(ring, span, index);
        self.payloads.push((span as usize, 1));
        Ok(self.append(ring, span, payload, seq, key, false))
    }

    pub(crate) fn store(&mut self, payload: &[u8]) -> Result<usize, PushError> {
        let span = self.span(payload.len())?;
        self.collect();
        self.make_blocks(span)?;
        self.payloads.push((span as usize, 1));
        Ok(self.payloads.len() - 1)
    }

    pub(crate) fn push_stored(
        &mut self,
        ring: usize,
        id: usize,
        payload: &[u8],
        seq: u64,
    ) -> Result<(u64, bool), PushError> {
        let (span, index) = self.make_room(ring, payload.len())?;
        self.clear_slots(ring, span, index);
        self.payloads[id].1 += 1;
        let pushed = self.append(ring, span, payload, seq, 0, true);
        self.rings[ring].records.back_mut().unwrap().stored = Some(id);
        Ok(pushed)
    }

    /// Puts a reserved payload on a ring, of which this is used.
    pub(crate) fn commit(
        &mut self,
        ring: usize,
        id: usize,
        payload: &[u8],
        seq: u64,
    ) -> Result<(u64, bool), PushError> {
        let (span, index) = self.make_room(ring, payload.len())?;
        self.clear_slots(ring, span, index);
        self.payloads[id].0 = span as usize;
        let pushed = self.append(ring, span, payload, seq, 0, false);
        self.rings[ring].records.back_mut().unwrap().stored = Some(id);
        Ok(pushed)
    }

    pub(crate) fn drop_stored(&mut self, id: usize) {
        self.returned.push(id);
    }

    /// Index, notification, slots dropped; and whether it was done in place.
    pub(crate) fn replace(
        &mut self,
        ring: usize,
        payload: &[u8],
        seq: u64,
        key: u64,
    ) -> (Result<(u64, bool, usize), PushError>, bool) {
        let same = |record: &&mut Record| record.state == State::Ready && record.key == key;
        let older = self.rings[ring].all_mut().rev().find(same).filter(|_| key != 0);
        let Some(older) = older else {
            let pushed = self.push(ring, payload, seq, key);
            return (pushed.map(|(index, notify)| (index, notify, 0)), false);
        };
        if !older.shared && payload.len() <= older.span as usize * BLOCK_BYTES {
            older.payload = payload.to_vec();
            older.seq = seq;
            let index = older.index;
            return (Ok((index, self.wake(ring), 0)), true);
        }
        let (index, span) = (older.index, older.span);
        let is_full = self.make_room(ring, payload.len()) == Err(PushError::Full);
        if is_full
            && self.span(payload.len()).is_ok_and(|wanted| wanted <= span && self.make_blocks(wanted).is_ok())
        {
            self.rings[ring].record(index).unwrap().kill(Reason::Superseded);
            let pushed = self.push(ring, payload, seq, key);
            return (pushed.map(|(new, notify)| (new, notify, span as usize)), false);
        }
        let pushed = self.push(ring, payload, seq, key);
        let pushed = pushed.map(|(new, notify)| {
            let older = self.rings[ring].record(index).unwrap();
            older.kill(Reason::Superseded);
            (new, notify, older.span as usize)
        });
        (pushed, false)
    }

    pub(crate) fn drop_seq(&mut self, ring: usize, seq: u64) -> usize {
        match self.ready(ring, seq) {
            Some(record) => {
                record.kill(Reason::Application);
                record.span as usize
            }
            None => 0,
        }
    }

    pub(crate) fn ready(&mut self, ring: usize, seq: u64) -> Option<&mut Record> {
        self.rings[ring].all_mut().find(|record| record.state == State::Ready && record.seq == seq)
    }

    pub(crate) fn take(&mut self, ring: usize, index: u64) -> Option<Vec<u8>> {
        let held_back = self.rings[ring].is_held_back(index);
        let record =
            self.rings[ring].record(index).filter(|record| record.state == State::Ready && !held_back)?;
        record.state = State::Taken;
        Some(record.payload.clone())
    }

    pub(crate) fn discard(&mut self, ring: usize, index: u64) -> bool {
        match self.rings[ring].record(index).filter(|record| record.state == State::Ready) {
            Some(record) => record.kill(Reason::Expired),
            None => return false,
        }
        true
    }

    pub(crate) fn end(&mut self, ring: usize, index: u64, abandon: bool) {
        let ended = if abandon { State::Dead(Reason::Abandoned) } else { State::Sent { last: false } };
        self.rings[ring].record(index).unwrap().state = ended;
    }

    pub(crate) fn put_back(&mut self, ring: usize, index: u64) {
        self.rings[ring].record(index).unwrap().state = State::Ready;
    }

    /// How far each record is, and one that never was.
    pub(crate) fn stages(&self, ring: usize) -> Vec<(u64, Option<Stage>)> {
        let ring = &self.rings[ring];
        let stage = |record: &Record| match record.state {
            State::Ready => Stage::Waiting,
            State::Taken => Stage::Taken,
            State::Sent { .. } => Stage::Ended(Outcome::Sent),
            State::Acked => Stage::Ended(Outcome::Acked),
            State::Dead(reason) => Stage::Ended(Outcome::Dropped(reason)),
        };
        let known = ring.all().map(|record| (record.index, Some(stage(record))));
        known.chain([(ring.user_i, None)]).collect()
    }

    pub(crate) fn ack(&mut self, ring: usize, index: u64) -> bool {
        let sent = |record: &&mut Record| record.state == State::Sent { last: false };
        match self.rings[ring].record(index).filter(sent) {
            Some(record) => record.state = State::Acked,
            None => return false,
        }
        true
    }

    /// What the sender was too late to say of a record whose slots were used again.
    pub(crate) fn note_acked(&mut self, ring: usize, index: u64) {
        let ring = &mut self.rings[ring];
        if let Some(at) = ring.awaiting.iter().position(|&(waits, _)| waits == index) {
            let (index, seq) = ring.awaiting.remove(at);
            ring.done.push_back((index, seq, Outcome::Acked));
        }
    }

    pub(crate) fn poll_fate(&mut self, ring: usize) -> Option<(u64, u64, Outcome)> {
        let own = &mut self.rings[ring];
        if let Some(fate) = own.done.pop_front() {
            return Some(fate);
        }
        if let Some(at) = own.behind.iter().position(|record| record.outcome().is_some()) {
            let record = own.behind.remove(at);
            let fate = (record.index, record.seq, record.outcome()?);
            self.give_back(record.stored);
            return Some(fate);
        }
        let oldest = own.records.front()?;
        let fate = (oldest.index, oldest.seq, oldest.outcome()?);
        self.reclaim(ring);
        Some(fate)
    }

    pub(crate) fn hold(&mut self, ring: usize, index: u64) -> u64 {
        let ring = &mut self.rings[ring];
        ring.hold = Some(index);
        let tail = ring.user_i - ring.used();
        let is_taken = |record: &&Record| !matches!(record.state, State::Ready | State::Dead(_));
        let last = ring.records.iter().filter(|record| record.index >= index).rfind(is_taken);
        last.map_or(index.max(tail).min(ring.user_i), |record| record.index + record.span)
    }

    pub(crate) fn release_hold(&mut self, ring: usize) -> bool {
        self.rings[ring].hold = None;
        self.wake(ring)
    }

    pub(crate) fn wake(&mut self, ring: usize) -> bool {
        std::mem::take(&mut self.rings[ring].asleep)
    }

    pub(crate) fn new_producer(&mut self) {
        self.collect();
        for ring in 0..RINGS {
            self.give_back_finished(ring);
            let ring = &mut self.rings[ring];
            ring.hold = None;
            // They were the former producer's.
            ring.done.clear();
            ring.awaiting.clear();
            ring.behind.retain(|record| !record.is_finished());
        }
    }

    pub(crate) fn new_consumer(&mut self, ring: usize) {
        self.rings[ring].asleep = false;
        for record in self.rings[ring].all_mut() {
            match record.state {
                State::Taken => record.kill(Reason::SenderLost),
                State::Sent { .. } => record.state = State::Sent { last: true },
                _ => {}
            }
        }
    }

    pub(crate) fn visible(&self, ring: usize) -> Vec<(u64, u64, usize)> {
        let ring = &self.rings[ring];
        let seen = |record: &&Record| record.state == State::Ready && !ring.is_held_back(record.index);
        let show = |record: &Record| (record.index, record.seq, record.payload.len());
        ring.all().filter(seen).map(show).collect()
    }

    pub(crate) fn pending(&self, ring: usize) -> usize {
        self.rings[ring].all().filter(|record| record.state == State::Ready).count()
    }

    pub(crate) fn unfinished(&self, ring: usize) -> usize {
        self.rings[ring].all().filter(|record| !record.is_finished()).count()
    }

    pub(crate) fn free_slots(&self, ring: usize) -> u64 {
        let ring = &self.rings[ring];
        if !ring.behind.is_empty() {
            return (0..SLOTS).take_while(|more| !ring.is_in_use(ring.user_i + more)).count() as u64;
        }
        let first = ring.records.iter().find(|record| !record.is_finished());
        SLOTS - first.map_or(0, |record| ring.user_i - record.index)
    }

    pub(crate) fn has_room(&mut self, ring: usize, len: usize) -> bool {
        self.make_room(ring, len).is_ok_and(|(span, _)| self.make_blocks(span).is_ok())
    }

    fn span(&self, len: usize) -> Result<u64, PushError> {
        let span = len.div_ceil(BLOCK_BYTES).max(1);
        if span as u64 > SLOTS || span > self.blocks { Err(PushError::TooLarge) } else { Ok(span as u64) }
    }

    /// Slots of the record, and the first index from which on that number of slots is free.
    fn make_room(&self, ring: usize, len: usize) -> Result<(u64, u64), PushError> {
        let span = self.span(len)?;
        let ring = &self.rings[ring];
        let is_free = |index: &u64| (*index..index + span).all(|at| !ring.is_in_use(at));
        let index = (ring.user_i..=ring.user_i + SLOTS - span).find(is_free);
        index.map(|index| (span, index)).ok_or(PushError::Full)
    }

    /// Reclaims what has ended in the slots that are used now, and leaves behind what has not ended and lies before them.
    fn clear_slots(&mut self, ring: usize, span: u64, index: u64) {
        let tail = (index + span).saturating_sub(SLOTS);
        while self.rings[ring].records.front().is_some_and(|oldest| oldest.index < tail) {
            let oldest = self.rings[ring].records.pop_front().unwrap();
            if oldest.is_finished() {
                self.rings[ring].park(&oldest);
                self.give_back(oldest.stored);
            } else {
                self.rings[ring].behind.push(oldest);
            }
        }
        for slot in (index..index + span).map(|at| at % SLOTS) {
            let uses =
                |record: &Record| (record.index..record.index + record.span).any(|at| at % SLOTS == slot);
            if let Some(at) = self.rings[ring].behind.iter().position(uses) {
                let record = self.rings[ring].behind.remove(at);
                self.rings[ring].park(&record);
                self.give_back(record.stored);
            }
        }
        self.rings[ring].user_i = index;
    }

    fn make_blocks(&mut self, span: u64) -> Result<(), PushError> {
        if self.free_blocks() < span as usize {
            self.collect();
            (0..RINGS).for_each(|ring| self.give_back_finished(ring));
        }
        if self.free_blocks() < span as usize { Err(PushError::OutOfBlocks) } else { Ok(()) }
    }

    fn append(
        &mut self,
        ring: usize,
        span: u64,
        payload: &[u8],
        seq: u64,
        key: u64,
        shared: bool,
    ) -> (u64, bool) {
        let stored = self.payloads.len().checked_sub(1);
        let index = self.rings[ring].user_i;
        let payload = payload.to_vec();
        let record = Record { index, span, seq, key, payload, shared, state: State::Ready, stored };
        self.rings[ring].records.push_back(record);
        self.rings[ring].user_i += span;
        (index, self.wake(ring))
    }

    fn reclaim(&mut self, ring: usize) {
        let stored = self.rings[ring].records.pop_front().and_then(|record| record.stored);
        self.give_back(stored);
    }

    fn give_back(&mut self, stored: Option<usize>) {
        if let Some(id) = stored {
            self.payloads[id].1 -= 1;
        }
    }

    fn give_back_finished(&mut self, ring: usize) {
        for record in self.rings[ring].all_mut().filter(|record| record.is_finished()) {
            if let Some(id) = record.stored.take() {
                self.payloads[id].1 -= 1;
            }
        }
    }

    fn collect(&mut self) {
        for id in self.returned.drain(..) {
            self.payloads[id].1 -= 1;
        }
    }
}

//! What the rings have to do, said as simply as possible: queues of records and payloads with a count of their users.

use std::collections::VecDeque;

use freshwire_ring::{Outcome, PushError, Stage, reason};

pub(crate) const RINGS: usize = 2;
pub(crate) const SLOTS: u64 = 4;
const BLOCK_BYTES: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Ready,
    Taken,
    Sent { last: bool },
    Acked,
    Dead(u8),
}

pub(crate) struct Record {
    pub(crate) index: u64,
    pub(crate) span: u64,
    pub(crate) user_seq: u64,
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
    pub(crate) fates_lost: u64,
    records: VecDeque<Record>,
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

    pub(crate) fn kill(&mut self, reason: u8) {
        self.state = State::Dead(reason);
    }
}

impl Ring {
    /// An index of a record, or one where none is.
    pub(crate) fn index_of(&self, nth: u8) -> u64 {
        self.records.get(usize::from(nth % 8)).map_or(self.user_i, |record| record.index)
    }

    fn record(&mut self, index: u64) -> Option<&mut Record> {
        self.records.iter_mut().find(|record| record.index == index)
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
        user_seq: u64,
        key: u64,
    ) -> Result<(u64, bool), PushError> {
        let span = self.make_room(ring, payload.len())?;
        self.make_blocks(span)?;
        self.clear_slots(ring, span);
        self.payloads.push((span as usize, 1));
        Ok(self.append(ring, span, payload, user_seq, key, false))
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
        user_seq: u64,
    ) -> Result<(u64, bool), PushError> {
        let span = self.make_room(ring, payload.len())?;
        self.clear_slots(ring, span);
        self.payloads[id].1 += 1;
        let pushed = self.append(ring, span, payload, user_seq, 0, true);
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
        user_seq: u64,
        key: u64,
    ) -> (Result<(u64, bool, usize), PushError>, bool) {
        let same = |record: &&mut Record| record.state == State::Ready && record.key == key;
        let older = self.rings[ring].records.iter_mut().rev().find(same);
        let Some(older) = older else {
            let pushed = self.push(ring, payload, user_seq, key);
            return (pushed.map(|(index, notify)| (index, notify, 0)), false);
        };
        if !older.shared && payload.len() <= older.span as usize * BLOCK_BYTES {
            older.payload = payload.to_vec();
            older.user_seq = user_seq;
            let index = older.index;
            return (Ok((index, self.wake(ring), 0)), true);
        }
        let index = older.index;
        let pushed = self.push(ring, payload, user_seq, key);
        let pushed = pushed.map(|(new, notify)| {
            let older = self.rings[ring].record(index).unwrap();
            older.kill(reason::SUPERSEDED);
            (new, notify, older.span as usize)
        });
        (pushed, false)
    }

    pub(crate) fn drop_seq(&mut self, ring: usize, user_seq: u64) -> usize {
        match self.ready(ring, user_seq) {
            Some(record) => {
                record.kill(reason::APPLICATION);
                record.span as usize
            }
            None => 0,
        }
    }

    pub(crate) fn ready(&mut self, ring: usize, user_seq: u64) -> Option<&mut Record> {
        let records = &mut self.rings[ring].records;
        records.iter_mut().find(|record| record.state == State::Ready && record.user_seq == user_seq)
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
            Some(record) => record.kill(reason::EXPIRED),
            None => return false,
        }
        true
    }

    pub(crate) fn end(&mut self, ring: usize, index: u64, abandon: bool) {
        let ended = if abandon { State::Dead(reason::ABANDONED) } else { State::Sent { last: false } };
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
            State::Sent { .. } => Stage::Sent,
            State::Acked => Stage::Acked,
            State::Dead(reason) => Stage::Dropped(reason),
        };
        let known = ring.records.iter().map(|record| (record.index, Some(stage(record))));
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

    pub(crate) fn poll_fate(&mut self, ring: usize) -> Option<(u64, u64, Outcome)> {
        let oldest = self.rings[ring].records.front()?;
        let outcome = match oldest.state {
            State::Acked => Outcome::Acked,
            State::Sent { last: true } => Outcome::Sent,
            State::Dead(reason) => Outcome::Dropped { reason },
            _ => return None,
        };
        let fate = (oldest.index, oldest.user_seq, outcome);
        self.reclaim(ring);
        Some(fate)
    }

    pub(crate) fn hold(&mut self, ring: usize, index: u64) -> u64 {
        let ring = &mut self.rings[ring];
        ring.hold = Some(index);
        let tail = ring.user_i - ring.used();
        let begun = |record: &&Record| !matches!(record.state, State::Ready | State::Dead(_));
        let last = ring.records.iter().filter(|record| record.index >= index).rfind(begun);
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
            self.rings[ring].fates_lost = 0;
            self.rings[ring].hold = None;
        }
    }

    pub(crate) fn new_consumer(&mut self, ring: usize) {
        self.rings[ring].asleep = false;
        for record in &mut self.rings[ring].records {
            match record.state {
                State::Taken => record.kill(reason::SENDER_LOST),
                State::Sent { .. } => record.state = State::Sent { last: true },
                _ => {}
            }
        }
    }

    pub(crate) fn visible(&self, ring: usize) -> Vec<(u64, u64, usize)> {
        let ring = &self.rings[ring];
        let seen = |record: &&Record| record.state == State::Ready && !ring.is_held_back(record.index);
        let show = |record: &Record| (record.index, record.user_seq, record.payload.len());
        ring.records.iter().filter(seen).map(show).collect()
    }

    pub(crate) fn pending(&self, ring: usize) -> usize {
        self.rings[ring].records.iter().filter(|record| record.state == State::Ready).count()
    }

    pub(crate) fn unfinished(&self, ring: usize) -> usize {
        self.rings[ring].records.iter().filter(|record| !record.is_finished()).count()
    }

    pub(crate) fn free_slots(&self, ring: usize) -> u64 {
        let ring = &self.rings[ring];
        let finished = ring.records.iter().take_while(|record| record.is_finished());
        SLOTS - ring.used() + finished.map(|record| record.span).sum::<u64>()
    }

    fn span(&self, len: usize) -> Result<u64, PushError> {
        let span = len.div_ceil(BLOCK_BYTES).max(1);
        if span as u64 > SLOTS || span > self.blocks { Err(PushError::TooLarge) } else { Ok(span as u64) }
    }

    fn make_room(&mut self, ring: usize, len: usize) -> Result<u64, PushError> {
        let span = self.span(len)?;
        if span > self.free_slots(ring) {
            return Err(PushError::Full);
        }
        Ok(span)
    }

    fn clear_slots(&mut self, ring: usize, span: u64) {
        while self.rings[ring].used() + span > SLOTS {
            self.reclaim(ring);
            self.rings[ring].fates_lost += 1;
        }
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
        user_seq: u64,
        key: u64,
        shared: bool,
    ) -> (u64, bool) {
        let stored = self.payloads.len().checked_sub(1);
        let index = self.rings[ring].user_i;
        let payload = payload.to_vec();
        let record = Record { index, span, user_seq, key, payload, shared, state: State::Ready, stored };
        self.rings[ring].records.push_back(record);
        self.rings[ring].user_i += span;
        (index, self.wake(ring))
    }

    fn reclaim(&mut self, ring: usize) {
        if let Some(id) = self.rings[ring].records.pop_front().and_then(|record| record.stored) {
            self.payloads[id].1 -= 1;
        }
    }

    fn give_back_finished(&mut self, ring: usize) {
        for record in self.rings[ring].records.iter_mut().filter(|record| record.is_finished()) {
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

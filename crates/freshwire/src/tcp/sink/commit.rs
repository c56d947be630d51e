//! Choosing: from the ring to committed pieces.

use freshwire_choice::{Choice, Decision, Outcome, Progress, Reason, Record};
use freshwire_media::framing::Piece;
use freshwire_record::Timestamp;
use freshwire_ring::Taken;

use super::TcpSink;
use crate::engine::listing::{PAST_WAIT, PICKS_PER_TURN, list, tell_dropped};
use crate::engine::turn::Scratch;
use crate::tcp::committed::CommittedRecord;
use crate::tcp::output::End;

/// The most bytes that one write carries.
const MAX_WRITE: u64 = 256 << 10;

/// A chunk that can be given up is not worth its header below this size, unless the record ends with it.
const MIN_CHUNK: u64 = 256;

/// The room that a chunk's header takes at most.
const CHUNK_HEADER: u64 = 8;

impl TcpSink {
    /// Commits pieces worth `budget` bytes as far as the policy names records, rounded up to whole segments: a segment
    /// that is not full costs the path as many packets as a full one (Marigi 2012, section 4.1.5).
    pub(super) fn gather(&mut self, now: Timestamp, budget: u64, scratch: &mut Scratch) {
        let (mss, unsent) = (self.path.mss(), self.path.unsent());
        let goal = (unsent + budget.min(MAX_WRITE)).next_multiple_of(mss);
        self.drained = false;
        let most_committed = self.consumer.region().config().in_progress_slots() as usize;
        // What is picked now is wanted before all that is queued, so only what an earlier write began can be overtaken.
        let mut may_overtake = self.committed.opened().is_some();
        while self.output.has_room() {
            if self.at_boundary {
                while let Some(bytes) = self.interjected.pop_front() {
                    self.output.interject(&bytes);
                }
            }
            let committed = unsent + self.output.planned();
            let room = if committed < goal {
                goal - committed
            } else if self.output.is_sealed() {
                0
            } else {
                committed.next_multiple_of(mss) - committed
            };
            if room == 0 {
                return;
            }
            if self.committed.opened().is_none() {
                if self.drained || self.committed.len() >= most_committed || !self.may_begin(now) {
                    return;
                }
                if !self.pick(now, scratch) {
                    return self.replace();
                }
            } else if may_overtake && self.rest.is_none() && self.framer.can_be_overtaken() {
                may_overtake = self.overtake(now, scratch);
            }
            if !self.plan(now, room) {
                return;
            }
        }
    }

    /// Whether the receiving program may be given another record beside what is committed.
    fn may_begin(&self, now: Timestamp) -> bool {
        self.path.unread_room(now).is_none_or(|room| self.output.planned() < room)
    }

    /// Commits more of the open record, at most `room` bytes of payload. False: the room is not worth a chunk.
    fn plan(&mut self, now: Timestamp, room: u64) -> bool {
        let mut room = room;
        let piece = match self.rest.take() {
            Some(piece) => piece,
            None => {
                if self.framer.can_abandon() {
                    if let Some(reason) = self.reason_to_abandon(now) {
                        self.abandon(reason);
                        return true;
                    }
                    let Some(chunk) = self.chunk_room(room) else { return false };
                    room = chunk;
                }
                let Some(piece) = self.next_piece(room) else { return true };
                piece
            }
        };
        self.at_boundary = false;
        self.commit(piece, room);
        true
    }

    /// Why the open record should be given up, if it should.
    fn reason_to_abandon(&mut self, now: Timestamp) -> Option<Reason> {
        let committed = self.committed.opened().filter(|committed| committed.named > 0)?;
        let remaining = committed.taken.record.len - committed.named;
        let view = self.path.view(now, self.output.planned());
        match self.choice.progress(now, &committed.record(), remaining, &view) {
            Progress::Abandon(reason) => Some(reason),
            Progress::Continue => None,
        }
    }

    fn abandon(&mut self, reason: Reason) {
        let before = self.output.heads().len();
        self.framer.abandon(self.output.heads());
        let head = self.output.heads().len() - before;
        self.output.push(self.committed.number(), head, 0, 0);
        self.end_open_record(End::Abandoned(reason));
    }

    /// How large a chunk may be; `None` if there is no room that is worth its header.
    fn chunk_room(&self, room: u64) -> Option<u64> {
        let remaining =
            self.committed.opened().map_or(0, |committed| committed.taken.record.len - committed.named);
        // One chunk to a segment: the finest grain that costs no packet.
        let room = room.min(self.path.mss());
        let is_worth_it =
            self.output.planned() == 0 || room >= u64::from(remaining).min(MIN_CHUNK) + CHUNK_HEADER;
        is_worth_it.then_some(room.max(MIN_CHUNK + CHUNK_HEADER))
    }

    /// The framing's next piece of the open record, with its framing bytes committed; `None` if the record has ended.
    fn next_piece(&mut self, room: u64) -> Option<Piece> {
        let before = self.output.heads().len();
        let Some(piece) = self.framer.next(room as usize, self.output.heads()) else {
            self.end_open_record(End::Finished);
            return None;
        };
        let head = self.output.heads().len() - before;
        self.output.push(self.committed.number(), head, piece.payload.start, 0);
        Some(piece)
    }

    /// All pieces of the open record are committed.
    fn end_open_record(&mut self, end: End) {
        self.output.end(self.committed.number(), end);
        self.committed.close();
        self.at_boundary = true;
    }

    /// Commits the payload of a piece, or its first `room` bytes.
    fn commit(&mut self, mut piece: Piece, room: u64) {
        let number = self.committed.number();
        let Some(committed) = self.committed.opened_mut() else { return };
        let end = piece.payload.end.min(committed.taken.record.len);
        let start = piece.payload.start.min(end);
        let len = u64::from(end - start).min(room) as u32;
        committed.named = committed.named.max(start + len);
        self.output.push(number, 0, start, len);
        if start + len < end {
            piece.payload = start + len..end;
            self.rest = Some(piece);
            return;
        }
        self.at_boundary = piece.boundary;
        if piece.last {
            self.end_open_record(End::Finished);
        }
    }

    /// Asks the policy until it names a record that is still there, and begins that one. False: there is nothing, it holds back,
    /// or it was asked often enough for now. A position outside the queue counts as holding back.
    fn pick(&mut self, now: Timestamp, scratch: &mut Scratch) -> bool {
        self.ask_again_at = Timestamp::MAX;
        for _ in 0..PICKS_PER_TURN {
            list(&mut self.consumer, self.choice.as_mut(), &self.shared.stats, scratch);
            let records = &scratch.records;
            if records.is_empty() {
                return false;
            }
            let view = self.path.view(now, self.output.planned());
            match self.choice.pick(now, records, &view) {
                Decision::Wait(until) => {
                    let until = until.unwrap_or(Timestamp::MAX);
                    self.ask_again_at = if until > now { until } else { now + PAST_WAIT };
                    return false;
                }
                Decision::Drop(place, reason) => {
                    let Some(&record) = records.get(place) else { return false };
                    // Too late means that somebody else edits or dropped it; the next look tells.
                    if self.consumer.discard(record.index, reason, now).is_ok() {
                        self.dropped(record, reason);
                        if place == 0 {
                            self.framer.missed(record.seq);
                        }
                    }
                }
                Decision::Send(place) => {
                    let Some(record) = records.get(place) else { return false };
                    if let Ok(taken) = self.consumer.take(record.index) {
                        // Before a keyframe that takes seconds, what the decoder holds is to be seen.
                        self.replace();
                        self.drained = records.len() == 1 && self.choice.lookahead() > 1;
                        self.begin(taken, now);
                        return true;
                    }
                }
            }
        }
        self.ask_again_at = now;
        false
    }

    /// Begins a record that the policy wants before the rest of the one that is open, where the framing can do that; false if there
    /// is none.
    fn overtake(&mut self, now: Timestamp, scratch: &mut Scratch) -> bool {
        let Some(open) = self.committed.opened().map(CommittedRecord::record) else { return false };
        list(&mut self.consumer, self.choice.as_mut(), &self.shared.stats, scratch);
        let may = |record: &&Record| {
            self.choice.overtakes(now, record, &open) && self.framer.can_overtake(record.seq)
        };
        let Some(index) = scratch.records.iter().find(may).map(|record| record.index) else { return false };
        // Too late means that somebody else edits or dropped it; the next look tells.
        let Ok(taken) = self.consumer.take(index) else { return false };
        self.begin(taken, now);
        true
    }

    /// Drops what the policy calls of no more use, one after the other, until `has_room` says so.
    pub(crate) fn make_room(
        &mut self,
        now: Timestamp,
        newcomer: &Record,
        has_room: &mut dyn FnMut() -> bool,
        scratch: &mut Scratch,
    ) {
        // A policy that sends all of it in order gives up nothing: the push that asks costs no look at the queue.
        if self.choice.is_in_order() && !self.choice.drops_expired() {
            return;
        }
        for _ in 0..self.consumer.region().config().slots {
            // All of the queue: what makes room may lie behind what would be sent next.
            self.consumer.queue(usize::MAX, &mut scratch.records);
            let Some((place, reason)) = self.choice.stale(now, &scratch.records, newcomer) else { return };
            let Some(&record) = scratch.records.get(place) else { return };
            // Too late means that somebody else edits or dropped it; the next look tells.
            if self.consumer.discard(record.index, reason, now).is_ok() {
                self.dropped(record, reason);
                if place == 0 {
                    self.framer.missed(record.seq);
                }
            }
            if has_room() {
                return;
            }
        }
    }

    fn begin(&mut self, taken: Taken, now: Timestamp) {
        // It may have been modified or replaced since the policy saw it.
        let record = taken.record;
        let unsent = self.path.unsent() + self.output.planned();
        self.consumer.commit(&taken, now, u32::try_from(unsent).unwrap_or(u32::MAX));
        if let Some(unread) = self.path.unread() {
            self.consumer.note_unread(&taken, unread);
        }
        self.announce(&record, now);
        self.committed.open(taken);
    }

    /// Tells policy, statistics and framing of a record that is begun.
    pub(super) fn announce(&mut self, record: &Record, now: Timestamp) {
        self.choice.outcome(record, Outcome::Sent);
        self.shared.stats.on_committed(record.layer, now.saturating_since(record.generated));
        self.framer.begin(record.seq, record.len);
    }

    /// Commits what the receiver gets in the place of records that were dropped.
    fn replace(&mut self) {
        let before = self.output.heads().len();
        let replaced = self.framer.replace(self.output.heads());
        let head = self.output.heads().len() - before;
        if head > 0 {
            self.output.push(None, head, 0, 0);
            self.shared.stats.on_replaced(replaced as u64);
        }
    }

    pub(super) fn dropped(&mut self, record: Record, reason: Reason) {
        tell_dropped(self.choice.as_mut(), &self.shared.stats, record, reason);
    }
}

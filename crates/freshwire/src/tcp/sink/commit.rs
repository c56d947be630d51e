//! Choosing: from the ring to committed pieces.

use freshwire_choice::{Progress, Reason, Record};
use freshwire_media::framing::Piece;
use freshwire_record::Timestamp;
use freshwire_ring::Taken;

use super::TcpSink;
use crate::tcp::TcpScratch;
use crate::tcp::committed::CommittedRecord;
use crate::tcp::output::End;
use crate::turn::queue::{Pick, part_within};

/// The most bytes that one write carries.
const MAX_WRITE: u64 = 256 << 10;

/// A chunk that can be given up is not worth its header below this size, unless the record ends with it.
const MIN_CHUNK: u64 = 256;

/// The room that a chunk's header takes at most.
const CHUNK_HEADER: u64 = 8;

impl TcpSink {
    /// Commits pieces worth `budget` bytes, rounded up to whole segments, as far as the policy names records.
    /// A segment that is not full costs the path as many packets as a full one (Marigi 2012, section 4.1.5).
    pub(super) fn gather(&mut self, now: Timestamp, budget: u64, scratch: &mut TcpScratch) {
        let (mss, unsent) = (self.path.mss(), self.path.unsent());
        let goal = (unsent + budget.min(MAX_WRITE)).next_multiple_of(mss);
        self.drained = false;
        let most_committed = self.queue.consumer.region().config().in_progress_slots() as usize;
        // The policy wants a record that it picks now before all others, so only a record of an earlier write can be overtaken.
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
                    return;
                }
            } else if may_overtake && self.rest.is_none() && self.queue.framer.can_be_overtaken() {
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
                if self.queue.framer.can_abandon() {
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
        match self.queue.choice.progress(now, &committed.record(), remaining, &view) {
            Progress::Abandon(reason) => Some(reason),
            Progress::Continue => None,
        }
    }

    fn abandon(&mut self, reason: Reason) {
        let before = self.output.heads().len();
        self.queue.framer.abandon(self.output.heads());
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
        let Some(piece) = self.queue.framer.next(room as usize, self.output.heads()) else {
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
        let (start, whole) = part_within(&piece.payload, committed.taken.record.len);
        let len = u64::from(whole).min(room) as u32;
        committed.named = committed.named.max(start + len);
        self.output.push(number, 0, start, len);
        if len < whole {
            piece.payload = start + len..start + whole;
            self.rest = Some(piece);
            return;
        }
        self.at_boundary = piece.boundary;
        if piece.last {
            self.end_open_record(End::Finished);
        }
    }

    /// Commits the record that the policy names. False: there is none for now.
    fn pick(&mut self, now: Timestamp, scratch: &mut TcpScratch) -> bool {
        let Self { queue, path, output, .. } = self;
        let picked = queue.pick(now, || path.view(now, output.planned()), &mut scratch.shared);
        // Before a keyframe that takes seconds, the decoder is to show what it holds.
        self.replace();
        let Some(Pick { taken, is_last }) = picked else { return false };
        self.drained = is_last;
        self.begin(taken, now);
        true
    }

    /// Commits a record that the policy wants before the rest of the open one. False: there is none.
    fn overtake(&mut self, now: Timestamp, scratch: &mut TcpScratch) -> bool {
        let Some(open) = self.committed.opened().map(CommittedRecord::record) else { return false };
        let Some(taken) = self.queue.overtake(now, &open, &mut scratch.shared) else { return false };
        self.begin(taken, now);
        true
    }

    /// See [`RecordQueue::make_room`](crate::turn::queue::RecordQueue::make_room).
    pub(crate) fn make_room(
        &mut self,
        now: Timestamp,
        newcomer: &Record,
        has_room: &mut dyn FnMut() -> bool,
        scratch: &mut TcpScratch,
    ) {
        self.queue.make_room(now, newcomer, has_room, &mut scratch.shared);
    }

    fn begin(&mut self, taken: Taken, now: Timestamp) {
        let unsent = self.path.unsent() + self.output.planned();
        self.queue.commit(&taken, now, u32::try_from(unsent).unwrap_or(u32::MAX));
        if let Some(unread) = self.path.unread() {
            self.queue.consumer.note_unread(&taken, unread);
        }
        self.committed.open(taken);
    }

    /// Commits what the receiver gets in the place of records that were dropped.
    fn replace(&mut self) {
        let before = self.output.heads().len();
        let replaced = self.queue.framer.replace(self.output.heads());
        let head = self.output.heads().len() - before;
        if head > 0 {
            self.output.push(None, head, 0, 0);
            self.queue.shared.stats.on_replaced(replaced as u64);
        }
    }
}

//! Past the ring: a record that finds it empty and the path with room needs no place to wait in.

use std::io;

use freshwire_choice::Record;
use freshwire_media::framing::Piece;
use freshwire_record::Timestamp;

use super::{Closing, TcpSink};
use crate::tcp::TcpScratch;
use crate::tcp::batch::{Plan, PlannedPiece, PlannedWrite};
use crate::tcp::output::End;
use crate::turn::OfferOutcome;
use crate::turn::offer::Payload;
use crate::turn::queue::part_within;

impl TcpSink {
    /// Begins the record if it would be the next one on the wire now: the same questions as in a [`turn`](TcpSink::turn),
    /// without a place in the ring.
    pub(crate) fn send_at_once(
        &mut self,
        now: Timestamp,
        record: &Record,
        payload: &mut Payload,
        scratch: &mut TcpScratch,
    ) -> io::Result<OfferOutcome> {
        if !self.may_send(now, record, scratch)? {
            return Ok(OfferOutcome::Declined);
        }
        self.queue.announce(record, now);
        let wire = match self.write_alone(record, payload, scratch)? {
            Ok(wire) => wire,
            Err(committed) => {
                self.output.borrow(&mut scratch.write);
                let wire = self.write_pieces(committed, record, payload, scratch);
                self.output.give_back(&mut scratch.write);
                wire?
            }
        };
        Ok(self.wrote(now, wire))
    }

    /// Begins the record as [`send_at_once`](Self::send_at_once) does, and leaves the write to the caller. `None`: it has to go through
    /// the ring. [`end_at_once`](Self::end_at_once) follows.
    pub(crate) fn plan_at_once(
        &mut self,
        now: Timestamp,
        record: &Record,
        plan: &mut Plan,
        scratch: &mut TcpScratch,
    ) -> io::Result<Option<PlannedWrite>> {
        if !self.may_send(now, record, scratch)? {
            return Ok(None);
        }
        self.queue.announce(record, now);
        let (first, mut bytes) = (plan.pieces.len(), 0);
        loop {
            let before = plan.heads.len();
            let Some(Piece { payload: body, last, .. }) = self.queue.framer.next(usize::MAX, &mut plan.heads)
            else {
                break;
            };
            let (start, len) = part_within(&body, record.len);
            let head = before..plan.heads.len();
            bytes += head.len() as u64 + u64::from(len);
            plan.pieces.push(PlannedPiece { head, start, len });
            if last {
                break;
            }
        }
        Ok(Some(PlannedWrite { pieces: first..plan.pieces.len(), bytes }))
    }

    /// Takes note of what the socket has taken of a planned write.
    pub(crate) fn end_at_once(
        &mut self,
        now: Timestamp,
        write: &PlannedWrite,
        sent: Option<usize>,
        plan: &Plan,
        scratch: &mut TcpScratch,
    ) -> OfferOutcome {
        let sent = sent.unwrap_or(0) as u64;
        if sent < write.bytes {
            let output = &mut self.output;
            output.borrow(&mut scratch.write);
            let number = Some(self.committed.next_number());
            for piece in plan.pieces.get(write.pieces.clone()).unwrap_or_default() {
                let head = plan.heads.get(piece.head.clone()).unwrap_or_default();
                output.heads().extend_from_slice(head);
                output.push(number, head.len(), piece.start, piece.len);
            }
            output.end(number, End::Finished);
            output.advance_unreported(sent, &mut scratch.write);
            output.give_back(&mut scratch.write);
        }
        self.wrote(now, sent)
    }

    /// Whether a record that comes now is sent past the ring.
    fn may_send(&mut self, now: Timestamp, record: &Record, scratch: &mut TcpScratch) -> io::Result<bool> {
        // Past the ring there is no fate to note a departure in.
        if self.output.is_apart() || !self.is_idle() || !self.has_room(now, record.len)? {
            return Ok(false);
        }
        if self.queue.consumer.has_untold() {
            self.queue.report_drops_by_others(&mut scratch.shared);
        }
        let view = self.path.view(now, 0);
        Ok(self.queue.wants(now, record, &view))
    }

    /// The outcome of a record of which the socket has taken `wire` bytes.
    fn wrote(&mut self, now: Timestamp, wire: u64) -> OfferOutcome {
        self.path.wrote(wire);
        self.queue.shared.stats.on_write(wire);
        if !self.output.is_empty() {
            return OfferOutcome::Partial;
        }
        self.path.sent_past_ring();
        self.queue.shared.stats.on_finished();
        OfferOutcome::Sent(self.latest_turn(now))
    }

    /// Keeps the rest of a record that was committed past the ring: it is the ring's newest, at `index`. False: somebody else
    /// has taken hold of it there, and the stream ends within a record.
    pub(crate) fn hold_rest(&mut self, index: u64, now: Timestamp) -> bool {
        let Ok(taken) = self.queue.consumer.take(index) else { return false };
        self.queue.consumer.commit(&taken, now, 0);
        self.committed.hold(taken);
        true
    }

    /// Whether nothing is before a record that comes now, and nobody wants to hear what becomes of it.
    fn is_idle(&self) -> bool {
        self.ending.closing == Closing::No
            && self.output.is_empty()
            && !self.output.is_sealed()
            && self.committed.is_empty()
            && self.interjected.is_empty()
            && !self.path.tells_acks()
            && !self.queue.framer.can_abandon()
            && self.queue.consumer.is_empty()
    }

    /// Whether the path has recently shown no limit and takes a record of `len` bytes with its framing.
    fn has_room(&mut self, now: Timestamp, len: u32) -> io::Result<bool> {
        let needed = u64::from(len) + u64::from(len / FRAMING_SHARE) + FRAMING_BYTES;
        if !self.path.is_recent(now) {
            self.path.look(now, &self.socket, &mut self.queue.consumer, &self.queue.shared)?;
        }
        Ok(self.path.is_calm(now)
            && self.path.budget(now, &self.output).is_some_and(|budget| budget >= needed))
    }

    /// Writes a record that is one piece, as most are; how many bytes went to the wire. Else its first piece.
    fn write_alone(
        &mut self,
        record: &Record,
        payload: &mut Payload,
        scratch: &mut TcpScratch,
    ) -> io::Result<Result<u64, FirstPiece>> {
        let head = &mut scratch.shared.head;
        head.clear();
        let piece = self.queue.framer.next(usize::MAX, head);
        let Some(Piece { payload: body, last: true, .. }) = &piece else {
            return Ok(Err(FirstPiece { piece, sent: None }));
        };
        let (start, len) = part_within(body, record.len);
        let written = payload.headed(head, start, len, |bytes| self.socket.write(bytes));
        let sent = written.transpose()?.map(|sent| sent.unwrap_or(0) as u64);
        let whole = head.len() as u64 + u64::from(len);
        Ok(sent.filter(|&sent| sent == whole).ok_or(FirstPiece { piece, sent }))
    }

    /// Commits the record, whose first piece is `committed`, and writes what is not written of it; how many bytes went to the wire.
    fn write_pieces(
        &mut self,
        committed: FirstPiece,
        record: &Record,
        payload: &mut Payload,
        scratch: &mut TcpScratch,
    ) -> io::Result<u64> {
        let number = Some(self.committed.next_number());
        let output = &mut self.output;
        output.heads().extend_from_slice(&scratch.shared.head);
        let (mut head, mut piece) = (scratch.shared.head.len(), committed.piece);
        while let Some(Piece { payload: body, last, .. }) = piece {
            let (start, len) = part_within(&body, record.len);
            output.push(number, head, start, len);
            if last {
                break;
            }
            let before = output.heads().len();
            piece = self.queue.framer.next(usize::MAX, output.heads());
            head = output.heads().len() - before;
        }
        output.end(number, End::Finished);
        match committed.sent {
            Some(sent) => output.advance_unreported(sent, &mut scratch.write),
            None => return output.write_payload(&self.socket, payload, &mut scratch.write),
        }
        Ok(committed.sent.unwrap_or(0))
    }
}

/// The first piece of a record, whose framing bytes are in `scratch.shared.head`.
struct FirstPiece {
    /// `None`: the framing has nothing to say of the record.
    piece: Option<Piece>,
    /// How much of it the socket has taken, if that was tried.
    sent: Option<u64>,
}

/// The most that a framing adds, roughly: an eighth of the payload and some headers.
const FRAMING_SHARE: u32 = 8;
const FRAMING_BYTES: u64 = 1024;

//! Committed bytes that are not yet handed to the socket.

use std::collections::VecDeque;
use std::io;

use freshwire_choice::Reason;
use freshwire_io::tcp::{IoSlice, MAX_SLICES, TcpSocket};
use freshwire_ring::{Consumer, RawSlice};

use super::batch::is_scattered;
use super::committed::{CommittedRecords, Number};
use super::transfer::{GatheredWrite, Transfers};
use crate::sink::seal::Seal;
use crate::stats::SinkStats;
use crate::turn::offer::Payload;

/// A stretch of the stream: framing bytes, then bytes of a committed record.
struct Piece {
    /// The record that it belongs to, if it belongs to one.
    record: Option<Number>,
    head: u32,
    offset: u32,
    len: u32,
    end: Option<End>,
}

/// How a record leaves the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Finished,
    Abandoned(Reason),
}

/// How much one write has moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    /// Bytes that the socket took.
    pub(crate) wire: u64,
    /// Nothing is left to write.
    pub(crate) whole: bool,
}

/// The socket of a write, and the payload of its pieces: in records of `committed`.
#[derive(Clone, Copy)]
pub(crate) struct WriteTarget<'a> {
    pub(crate) socket: &'a TcpSocket,
    pub(crate) source: &'a Consumer,
    pub(crate) committed: &'a CommittedRecords,
    pub(crate) stats: &'a SinkStats,
}

impl<'a> WriteTarget<'a> {
    /// The write of these slices.
    pub(crate) fn gathered(&self, slices: &'a [IoSlice]) -> GatheredWrite<'a> {
        GatheredWrite { socket: self.socket, slices, region: self.source.region(), stats: self.stats }
    }
}

/// An encrypted stretch of the stream.
struct SealedStream {
    session: Box<dyn Seal>,
    wire: Vec<u8>,
    at: usize,
    /// Bytes of the stream that it contains.
    covers: u64,
}

/// Room for what is committed. Most connections have nothing committed between their turns, so the engine lends them its
/// own: less memory for each, and memory that the processor has at hand.
#[derive(Default)]
struct Buffers {
    pieces: VecDeque<Piece>,
    heads: Vec<u8>,
}

/// Memory of one write, which no connection needs between its turns.
#[derive(Default)]
pub(crate) struct WriteBuffers {
    raw: Vec<RawSlice>,
    slices: Vec<IoSlice>,
    plain: Vec<u8>,
    pub(crate) transfers: Transfers,
    /// Records of which the last byte was handed over.
    pub(crate) ended: Vec<(Number, End)>,
    buffers: Buffers,
}

#[derive(Default)]
pub(crate) struct Output {
    buffers: Buffers,
    heads_at: usize,
    planned: u64,
    sealed: Option<SealedStream>,
    /// A write ends with the record in progress, and no packet has bytes of two.
    is_apart: bool,
}

impl Output {
    /// `is_apart`: each record is a write of its own, so that its last byte has times of its own.
    pub(crate) fn new(session: Option<Box<dyn Seal>>, is_apart: bool) -> Self {
        let sealed = session.map(|session| SealedStream { session, wire: Vec::new(), at: 0, covers: 0 });
        Self { sealed, is_apart, ..Self::default() }
    }

    /// Uses the engine's buffers from now on, unless something waits in its own.
    pub(crate) fn borrow(&mut self, room: &mut WriteBuffers) {
        if self.buffers.pieces.is_empty() {
            self.buffers = std::mem::take(&mut room.buffers);
        }
    }

    /// Gives the engine its buffers back, unless something waits in them.
    pub(crate) fn give_back(&mut self, room: &mut WriteBuffers) {
        if self.buffers.pieces.is_empty() {
            room.buffers = std::mem::take(&mut self.buffers);
        }
    }

    /// Bytes that are committed and not handed over.
    pub(crate) fn planned(&self) -> u64 {
        self.planned
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.planned == 0
            && self.buffers.pieces.is_empty()
            && self.sealed.as_ref().is_none_or(SealedStream::is_empty)
    }

    /// Whether one write can take more pieces.
    pub(crate) fn has_room(&self) -> bool {
        self.buffers.pieces.len() < MAX_SLICES / 2
    }

    /// Where framing bytes of the next piece go; [`push`](Self::push) with their number follows.
    pub(crate) fn heads(&mut self) -> &mut Vec<u8> {
        &mut self.buffers.heads
    }

    /// Adds `head` framing bytes, which were added to [`heads`](Self::heads), and `len` payload bytes from `offset` on of
    /// the record.
    pub(crate) fn push(&mut self, record: Option<Number>, head: usize, offset: u32, len: u32) {
        self.planned += head as u64 + u64::from(len);
        self.buffers.pieces.push_back(Piece { record, head: head as u32, offset, len, end: None });
    }

    /// Says that the record ends with what was pushed.
    pub(crate) fn end(&mut self, record: Option<Number>, end: End) {
        if self.buffers.pieces.back().is_none_or(|piece| piece.record != record) {
            self.push(record, 0, 0, 0);
        }
        if let Some(piece) = self.buffers.pieces.back_mut() {
            piece.end = Some(end);
        }
    }

    /// Adds bytes of no record.
    pub(crate) fn interject(&mut self, bytes: &[u8]) {
        self.buffers.heads.extend_from_slice(bytes);
        self.push(None, bytes.len(), 0, 0);
    }

    /// Adds what ends the stream's session; false if there is nothing to add.
    pub(crate) fn finish_session(&mut self) -> io::Result<bool> {
        let Some(sealed) = &mut self.sealed else { return Ok(false) };
        sealed.session.finish(&mut sealed.wire)?;
        Ok(!sealed.wire.is_empty())
    }

    /// Whether its bytes are encrypted on the way out, so that their number is not that of the wire.
    pub(crate) fn is_sealed(&self) -> bool {
        self.sealed.is_some()
    }

    /// Whether each record is a write of its own.
    pub(crate) fn is_apart(&self) -> bool {
        self.is_apart
    }

    /// Whether what is committed lies in many small pieces, of which one copy costs less than a list.
    pub(crate) fn is_scattered(&self) -> bool {
        is_scattered(self.buffers.pieces.len(), self.planned)
    }

    /// Writes what is committed. `None`: the socket has no room. Ends of records that are handed over are added to
    /// `ended`.
    pub(crate) fn write(
        &mut self,
        target: WriteTarget<'_>,
        room: &mut WriteBuffers,
    ) -> io::Result<Option<Written>> {
        if self.sealed.is_some() {
            return self.write_sealed(target, room);
        }
        self.list(target, room);
        let WriteBuffers { slices, transfers, .. } = &mut *room;
        if self.is_apart {
            let listed: usize = slices.iter().map(IoSlice::byte_len).sum();
            // SAFETY: as below.
            let Some(sent) = (unsafe { target.socket.send_apart(slices) })? else { return Ok(None) };
            let written = self.took(sent, room);
            // The socket may have room for the next record.
            return Ok(Some(Written { whole: sent == listed, ..written }));
        }
        if self.is_scattered() {
            self.copy_plain(target, &mut room.plain);
            let Some(sent) = target.socket.write(&room.plain)? else { return Ok(None) };
            return Ok(Some(self.took(sent, room)));
        }
        // SAFETY: header slices point into `self.buffers.heads`, body slices into the arena that `target.source` keeps mapped;
        // neither is touched before the call returns.
        let Some(sent) = (unsafe { transfers.send(target.gathered(slices)) })? else { return Ok(None) };
        Ok(Some(self.took(sent, room)))
    }

    /// Lists what one write takes.
    pub(crate) fn list<'a>(&self, target: WriteTarget<'_>, room: &'a mut WriteBuffers) -> &'a [IoSlice] {
        let mut raw = std::mem::take(&mut room.raw);
        self.fill_slices(room, |piece, slices| {
            if let Some(committed) = piece.record.and_then(|record| target.committed.get(record)) {
                target.source.slices(&committed.taken, piece.offset, piece.len as usize, &mut raw);
                slices.extend(raw.iter().map(|slice| IoSlice::new(slice.ptr, slice.len)));
            }
        });
        room.raw = raw;
        &room.slices
    }

    /// Takes off what the socket has taken.
    pub(crate) fn took(&mut self, sent: usize, room: &mut WriteBuffers) -> Written {
        self.advance(sent as u64, &mut room.ended);
        Written { wire: sent as u64, whole: self.planned == 0 }
    }

    /// Writes what is committed where its payload is not in the ring: all pieces are of the record with this `payload`. How many
    /// bytes the socket took; ends of records are not reported.
    pub(crate) fn write_payload(
        &mut self,
        socket: &TcpSocket,
        payload: &Payload,
        room: &mut WriteBuffers,
    ) -> io::Result<u64> {
        self.fill_slices(room, |piece, slices| {
            let bytes = payload.bytes(piece.offset, piece.len);
            slices.push(IoSlice::new(bytes.as_ptr(), bytes.len()));
        });
        // SAFETY: the slices point into `self.buffers.heads` and into `payload`, both borrowed for the call.
        let sent = unsafe { socket.send(&room.slices) }?.unwrap_or(0) as u64;
        self.advance_unreported(sent, room);
        Ok(sent)
    }

    /// Takes `sent` bytes off the front.
    pub(crate) fn advance_unreported(&mut self, sent: u64, room: &mut WriteBuffers) {
        self.advance(sent, &mut room.ended);
        room.ended.clear();
    }

    fn write_sealed(
        &mut self,
        target: WriteTarget<'_>,
        room: &mut WriteBuffers,
    ) -> io::Result<Option<Written>> {
        let pending = self.sealed.as_ref().map_or(0, |sealed| sealed.covers);
        if pending == 0 {
            self.copy_plain(target, &mut room.plain);
        }
        let Some(sealed) = &mut self.sealed else { return Ok(None) };
        if pending == 0 {
            sealed.session.flush(&mut sealed.wire)?;
            if !room.plain.is_empty() {
                sealed.session.seal(&room.plain, &mut sealed.wire)?;
                sealed.covers = room.plain.len() as u64;
            }
        }
        let wire = &sealed.wire[sealed.at..];
        let sent = if self.is_apart { target.socket.write_apart(wire) } else { target.socket.write(wire) };
        let Some(sent) = sent? else { return Ok(None) };
        sealed.at += sent;
        if sealed.at < sealed.wire.len() {
            return Ok(Some(Written { wire: sent as u64, whole: false }));
        }
        sealed.wire.clear();
        sealed.at = 0;
        let covers = std::mem::take(&mut sealed.covers);
        self.advance(covers, &mut room.ended);
        Ok(Some(Written { wire: sent as u64, whole: self.is_apart || self.planned == 0 }))
    }

    /// Lists what one write takes; `body` adds the payload of a piece.
    fn fill_slices(&self, room: &mut WriteBuffers, mut body: impl FnMut(&Piece, &mut Vec<IoSlice>)) {
        let slices = &mut room.slices;
        slices.clear();
        let mut head_at = self.heads_at;
        for piece in &self.buffers.pieces {
            if slices.len() >= MAX_SLICES {
                break;
            }
            let head = &self.buffers.heads[head_at..head_at + piece.head as usize];
            head_at += head.len();
            if !head.is_empty() {
                slices.push(IoSlice::new(head.as_ptr(), head.len()));
            }
            if piece.len > 0 {
                body(piece, slices);
            }
            if self.is_apart && piece.end.is_some() {
                break;
            }
        }
        slices.truncate(MAX_SLICES);
    }

    /// A private copy of what is committed: nobody else can change what is encrypted while it is.
    fn copy_plain(&self, target: WriteTarget<'_>, plain: &mut Vec<u8>) {
        plain.clear();
        let mut head_at = self.heads_at;
        for piece in &self.buffers.pieces {
            plain.extend_from_slice(&self.buffers.heads[head_at..head_at + piece.head as usize]);
            head_at += piece.head as usize;
            if piece.len > 0
                && let Some(committed) = piece.record.and_then(|record| target.committed.get(record))
            {
                let end = plain.len() + piece.len as usize;
                target.source.copy(&committed.taken, piece.offset, piece.len as usize, plain);
                plain.resize(end, 0);
            }
            if self.is_apart && piece.end.is_some() {
                break;
            }
        }
    }

    /// Takes `sent` bytes off the front.
    fn advance(&mut self, sent: u64, ended: &mut Vec<(Number, End)>) {
        self.planned -= sent;
        let mut left = sent;
        while let Some(piece) = self.buffers.pieces.front_mut() {
            let len = u64::from(piece.head) + u64::from(piece.len);
            if left < len {
                let head = left.min(u64::from(piece.head)) as u32;
                let body = (left - u64::from(head)) as u32;
                self.heads_at += head as usize;
                piece.head -= head;
                piece.offset += body;
                piece.len -= body;
                if self.heads_at >= COMPACT_BYTES {
                    self.buffers.heads.drain(..self.heads_at);
                    self.heads_at = 0;
                }
                return;
            }
            left -= len;
            self.heads_at += piece.head as usize;
            ended.extend(piece.record.zip(piece.end));
            self.buffers.pieces.pop_front();
        }
        self.buffers.heads.clear();
        self.heads_at = 0;
    }
}

impl SealedStream {
    fn is_empty(&self) -> bool {
        self.wire.is_empty()
    }
}

/// Framing bytes that are done with are kept up to here, so that few writes move what is left.
const COMPACT_BYTES: usize = 4096;

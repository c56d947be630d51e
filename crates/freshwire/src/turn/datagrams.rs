//! Packets of many sinks, planned one after the other and handed over together: headers here, payload where it lies.

use std::io;
use std::net::SocketAddr;
use std::ops::Range;

use freshwire_io::tcp::{IoSlice, SendBatch};
use freshwire_io::udp::{
    DatagramSender, GatheredDatagrams, MAX_DATAGRAM_BYTES, MAX_GATHERED_SLICES, send_gathered,
};
use freshwire_ring::{Consumer, RawSlice, Taken};

use super::offer::Payload;

/// Fewer sends than this are made one by one, as over TCP.
const FEWEST: usize = 4;

/// Packets of several sinks. Memory of the engine, which no sink needs between its turns.
#[derive(Default)]
pub(crate) struct DatagramPlan {
    heads: Vec<u8>,
    pieces: Vec<PlannedPiece>,
    /// Parts of arenas.
    stretches: Vec<IoSlice>,
    /// Room for those of one piece.
    raw: Vec<RawSlice>,
    packets: Vec<PlannedPacket>,
    sends: Vec<PlannedSend>,
}

/// Framing bytes, then bytes of the record.
struct PlannedPiece {
    head: Range<usize>,
    start: u32,
    len: u32,
    /// Where these bytes are; `None`: in the payload that is offered.
    stretches: Option<Range<usize>>,
}

/// A piece from this byte of its head on.
struct PlannedPacket {
    piece: usize,
    skip: usize,
}

/// Packets of one size, of which the last may be shorter.
struct PlannedSend {
    sender: DatagramSender,
    to: SocketAddr,
    segment: usize,
    bytes: usize,
    is_full: bool,
    slices: usize,
    packets: Range<usize>,
}

/// Where the bytes of a record are while its packets are planned.
#[derive(Clone, Copy)]
pub(crate) enum Source<'a> {
    /// In the payload that is offered.
    Payload(&'a Payload),
    /// In the ring's arena.
    Ring(&'a Consumer, &'a Taken),
    /// There are none: the heads are all.
    Heads,
}

/// Pieces of a stream as a sink's framing wrote them: framing bytes, the head, and bytes of a record, the body. For
/// [`DatagramPath::gather`](crate::datagram::DatagramPath::gather).
pub struct PacketPieces<'a> {
    plan: &'a mut DatagramPlan,
    pieces: Range<usize>,
    source: Source<'a>,
}

impl PacketPieces<'_> {
    /// The places of the pieces.
    pub fn places(&self) -> Range<usize> {
        0..self.pieces.len()
    }

    /// The framing bytes of a piece. Empty if there is no such piece.
    pub fn head(&self, place: usize) -> &[u8] {
        let head = self.piece(place).map_or(0..0, |piece| piece.head.clone());
        self.plan.heads.get(head).unwrap_or_default()
    }

    /// How many bytes of the record a piece has.
    pub fn body_bytes(&self, place: usize) -> usize {
        self.piece(place).map_or(0, |piece| piece.len as usize)
    }

    /// Adds these bytes to `out`.
    pub fn copy_body(&self, place: usize, out: &mut Vec<u8>) {
        let Some(&PlannedPiece { start, len, .. }) = self.piece(place) else { return };
        match self.source {
            Source::Payload(payload) => out.extend_from_slice(payload.bytes(start, len)),
            Source::Ring(consumer, taken) => _ = consumer.copy(taken, start, len as usize, out),
            Source::Heads => {}
        }
    }

    /// Sends a stretch of a piece's head as one datagram, with the body behind it if the stretch reaches up to the head's end. Datagrams
    /// of one size leave with one system call.
    pub fn send(&mut self, place: usize, head: Range<usize>, sender: &DatagramSender, to: SocketAddr) {
        let Some(piece) = self.piece(place) else { return };
        let (whole, index) = (piece.head.clone(), self.pieces.start + place);
        let end = whole.start + head.end.min(whole.len());
        let begin = (whole.start + head.start).min(end);
        if end == whole.end {
            return self.plan.add_packet(PlannedPacket { piece: index, skip: head.start }, sender, to);
        }
        // A packet that ends within the head is a piece of its own.
        let own = PlannedPiece { head: begin..end, start: 0, len: 0, stretches: None };
        self.plan.pieces.push(own);
        let piece = self.plan.pieces.len() - 1;
        self.plan.add_packet(PlannedPacket { piece, skip: 0 }, sender, to);
    }

    fn piece(&self, place: usize) -> Option<&PlannedPiece> {
        self.plan.pieces.get(self.pieces.clone())?.get(place)
    }

    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.places().all(|place| self.head(place).is_empty() && self.body_bytes(place) == 0)
    }

    /// Adds the bytes of a piece to `out`.
    pub(crate) fn copy_piece(&self, place: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(self.head(place));
        self.copy_body(place, out);
    }

    /// Adds the bytes of all pieces to `out`.
    pub(crate) fn copy(&self, out: &mut Vec<u8>) {
        self.places().for_each(|place| self.copy_piece(place, out));
    }
}

impl DatagramPlan {
    pub(crate) fn clear(&mut self) {
        self.heads.clear();
        self.pieces.clear();
        self.stretches.clear();
        self.packets.clear();
        self.sends.clear();
    }

    /// Where a framing adds the head of the next piece, and where that begins.
    pub(crate) fn begin_piece(&mut self) -> (usize, &mut Vec<u8>) {
        (self.heads.len(), &mut self.heads)
    }

    /// Ends the piece whose head begins at `head`. Its body is this part of the record.
    pub(crate) fn end_piece(&mut self, head: usize, (start, len): (u32, u32), source: Source<'_>) {
        let stretches = match source {
            Source::Ring(consumer, taken) => {
                let begin = self.stretches.len();
                consumer.slices(taken, start, len as usize, &mut self.raw);
                self.stretches.extend(self.raw.iter().map(|slice| IoSlice::new(slice.ptr, slice.len)));
                Some(begin..self.stretches.len())
            }
            Source::Payload(_) | Source::Heads => None,
        };
        self.pieces.push(PlannedPiece { head: head..self.heads.len(), start, len, stretches });
    }

    /// Place of the next piece.
    pub(crate) fn next_piece(&self) -> usize {
        self.pieces.len()
    }

    /// The pieces from `first` on.
    pub(crate) fn pieces_from<'a>(&'a mut self, first: usize, source: Source<'a>) -> PacketPieces<'a> {
        PacketPieces { pieces: first..self.pieces.len(), plan: self, source }
    }

    /// Place of the next system call.
    pub(crate) fn next_send(&self) -> usize {
        self.sends.len()
    }

    fn add_packet(&mut self, packet: PlannedPacket, sender: &DatagramSender, to: SocketAddr) {
        let Some(piece) = self.pieces.get(packet.piece) else { return };
        let bytes = piece.head.len() - packet.skip + piece.len as usize;
        let slices = 1 + piece.stretches.as_ref().map_or(1, Range::len);
        let at = self.packets.len();
        self.packets.push(packet);
        let fits = |send: &&mut PlannedSend| {
            send.sender.is_same(sender)
                && send.to == to
                && !send.is_full
                && bytes <= send.segment
                && send.bytes + bytes <= MAX_DATAGRAM_BYTES
                && send.packets.len() < sender.segments()
                && send.slices + slices <= MAX_GATHERED_SLICES
        };
        if let Some(send) = self.sends.last_mut().filter(fits) {
            send.is_full = bytes < send.segment;
            send.bytes += bytes;
            send.slices += slices;
            send.packets.end = at + 1;
            return;
        }
        self.sends.push(PlannedSend {
            sender: sender.clone(),
            to,
            segment: bytes,
            bytes,
            is_full: false,
            slices,
            packets: at..at + 1,
        });
    }

    /// Hands over all that is planned, with one system call for up to [`SendBatch::MOST`] sends if there is a batch. The bytes that were
    /// taken of each are added to `sent`. An error concerns the batch: `sent` is complete all the same.
    pub(crate) fn send(
        &self,
        batch: Option<&mut SendBatch>,
        payload: Option<&Payload>,
        sent: &mut Vec<io::Result<usize>>,
    ) -> io::Result<()> {
        let mut slices = Vec::with_capacity(self.sends.iter().map(|send| send.slices).sum());
        let mut ends = Vec::with_capacity(self.sends.len());
        for send in &self.sends {
            for packet in self.packets.get(send.packets.clone()).unwrap_or_default() {
                self.list(packet, payload, &mut slices);
            }
            ends.push(slices.len());
        }
        let mut begin = 0;
        let writes = self.sends.iter().zip(&ends).map(|(send, &end)| {
            let slices = &slices[std::mem::replace(&mut begin, end)..end];
            GatheredDatagrams { sender: &send.sender, to: send.to, slices, segment: send.segment }
        });
        let writes: Vec<_> = writes.collect();
        let batch = batch.filter(|_| writes.len() >= FEWEST);
        // SAFETY: the slices point into the plan and the payload, both borrowed for the call, and into arenas that the consumers of the
        // planned records keep mapped.
        unsafe { send_gathered(batch, &writes, sent) }
    }

    /// Adds the bytes of a packet.
    fn list(&self, packet: &PlannedPacket, payload: Option<&Payload>, out: &mut Vec<IoSlice>) {
        let Some(piece) = self.pieces.get(packet.piece) else { return };
        let mut add = |bytes: &[u8]| {
            if !bytes.is_empty() {
                out.push(IoSlice::new(bytes.as_ptr(), bytes.len()));
            }
        };
        add(self.heads.get(piece.head.start + packet.skip..piece.head.end).unwrap_or_default());
        match &piece.stretches {
            Some(stretches) => {
                out.extend_from_slice(self.stretches.get(stretches.clone()).unwrap_or_default());
            }
            None if piece.len > 0 => {
                add(payload.map_or(&[][..], |payload| payload.bytes(piece.start, piece.len)));
            }
            None => {}
        }
    }
}

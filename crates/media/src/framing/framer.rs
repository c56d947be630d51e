use std::ops::Range;

use super::Framing;

/// Writes the byte stream of one receiver, record by record, at the commit point. It never sees records dropped
/// before, so sequence numbers, counters and durations count only what is sent.
///
/// The law for callers: [`preamble`](Self::preamble) once; then for each committed record [`begin`](Self::begin), and
/// [`next`](Self::next) until it returns `None` or a piece that is `last`. The bytes of the stream are each piece's prefix,
/// then its payload. A caller may write a piece in several goes.
///
/// A record may overtake the one in progress, between two of its pieces, where [`can_overtake`](Self::can_overtake)
/// permits it. `begin` names it, its pieces follow up to the `last`, and then those of the other continue.
pub trait Framer: Send {
    /// Adds the bytes that open the stream to `out`.
    fn preamble(&mut self, out: &mut Vec<u8>) {
        let _ = out;
    }

    /// Begins a record with this number and this many payload bytes.
    fn begin(&mut self, seq: u64, len: u32);

    /// The next piece of the record in progress. Framing bytes are added to `prefix`. `max` is how many bytes are wanted
    /// at most, prefix included; a framing whose packets are larger may exceed it. `None`: with so little room no piece can
    /// be made, or there is nothing more to write of this record.
    fn next(&mut self, max: usize, prefix: &mut Vec<u8>) -> Option<Piece>;

    /// A record may follow within some microseconds. A framing that keeps its state behind a pointer may ask the
    /// processor to have it at hand; for the framing itself the caller has done so.
    fn prefetch(&self) {}

    /// A record was dropped before its commit point; every one before it has been committed or dropped. Called
    /// between two records, or before the first.
    fn missed(&mut self, seq: u64) {
        let _ = seq;
    }

    /// No record follows for now. Adds what the receiver gets in the place of those that it [missed](Self::missed) to
    /// `out`, and says of how many. Called between two records, or before the first.
    fn replace(&mut self, out: &mut Vec<u8>) -> usize {
        let _ = out;
        0
    }

    /// Which plain [`Framing`] this is: one whose bytes depend on the record alone, so that they can be made before
    /// its commit point. `None` if they depend on what was sent before.
    fn plain(&self) -> Option<Framing> {
        None
    }

    /// True if a record is in progress and others can begin before its next piece;
    /// [`can_overtake`](Self::can_overtake) says which.
    fn can_be_overtaken(&self) -> bool {
        false
    }

    /// True if the record with this number can begin now, although another one is in progress: a receiver can
    /// distinguish their pieces. False unless the one in progress [can be overtaken](Self::can_be_overtaken).
    fn can_overtake(&self, seq: u64) -> bool {
        let _ = seq;
        false
    }

    /// True if the record in progress can be abandoned between two pieces with [`abandon`](Self::abandon).
    fn can_abandon(&self) -> bool {
        false
    }

    /// Adds the bytes that abandon the record in progress. Called only if [`can_abandon`](Self::can_abandon).
    fn abandon(&mut self, prefix: &mut Vec<u8>) {
        let _ = prefix;
    }
}

/// A stretch of the stream: framing bytes, then these payload bytes of the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Payload bytes. May be empty, and may leave out bytes between one piece and the next.
    pub payload: Range<u32>,
    /// The record ends with this piece.
    pub last: bool,
    /// Other messages of the same stream may come after this piece, as they may after a record.
    pub boundary: bool,
}

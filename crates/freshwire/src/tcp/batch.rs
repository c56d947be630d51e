//! Records for many sinks past their rings, written with one system call.

use std::io;
use std::ops::Range;

use freshwire_io::tcp::{BatchWrite, IoSlice, MAX_SLICES, SendBatch, TcpSocket};

use crate::turn::offer::Payload;

/// Fewer writes than this are made one by one.
const FEWEST: usize = 4;

/// io_uring, where the system has it and the application wants it.
#[derive(Default)]
pub(crate) enum Batching {
    #[default]
    Untried,
    Ready(Box<SendBatch>),
    Off,
}

impl Batching {
    /// The batch for writes to this number of sinks; `None` if they are written to one by one.
    pub(crate) fn of(&mut self, sinks: usize) -> Option<&mut SendBatch> {
        if sinks < FEWEST {
            return None;
        }
        if let Self::Untried = self {
            // Many containers forbid io_uring. Single writes do the same.
            *self = SendBatch::new().map_or(Self::Off, |batch| Self::Ready(Box::new(batch)));
        }
        match self {
            Self::Ready(batch) => Some(batch),
            Self::Untried | Self::Off => None,
        }
    }
}

/// Framing bytes and stretches of the payload that are to be written.
#[derive(Default)]
pub(crate) struct Plan {
    pub(crate) heads: Vec<u8>,
    pub(crate) pieces: Vec<PlannedPiece>,
    /// Writes of many small pieces, each in one stretch.
    scattered: Vec<u8>,
}

/// Framing bytes, and the part of the payload behind them.
pub(crate) struct PlannedPiece {
    pub(crate) head: Range<usize>,
    pub(crate) start: u32,
    pub(crate) len: u32,
}

/// One sink's part of a plan.
pub(crate) struct PlannedWrite {
    pub(crate) pieces: Range<usize>,
    /// Bytes of all of them.
    pub(crate) bytes: u64,
}

impl Plan {
    pub(crate) fn clear(&mut self) {
        self.heads.clear();
        self.pieces.clear();
    }

    /// Makes these writes, each to its socket. The result of each is added to `sent`, in their order. An error concerns the batch:
    /// `sent` is complete all the same.
    pub(crate) fn write<'a>(
        &'a mut self,
        batch: &mut SendBatch,
        payload: &'a Payload,
        writes: impl Iterator<Item = (&'a TcpSocket, &'a PlannedWrite)>,
        sent: &mut Vec<io::Result<Option<usize>>>,
    ) -> io::Result<()> {
        let writes: Vec<_> = writes.collect();
        let mut stretches = Vec::with_capacity(writes.len());
        self.scattered.clear();
        for (_, write) in &writes {
            let start = self.scattered.len();
            if is_scattered(2 * write.pieces.len(), write.bytes) {
                for piece in self.pieces.get(write.pieces.clone()).unwrap_or_default() {
                    self.scattered.extend_from_slice(self.heads.get(piece.head.clone()).unwrap_or_default());
                    self.scattered.extend_from_slice(payload.bytes(piece.start, piece.len));
                }
            }
            stretches.push(start..self.scattered.len());
        }
        let mut slices = Vec::with_capacity(2 * self.pieces.len());
        let mut places = Vec::with_capacity(SendBatch::MOST);
        for ((socket, write), stretch) in writes.into_iter().zip(stretches) {
            let begin = slices.len();
            if !stretch.is_empty() {
                let stretch = &self.scattered[stretch];
                slices.push(IoSlice::new(stretch.as_ptr(), stretch.len()));
                places.push((socket, begin..slices.len()));
                continue;
            }
            for piece in self.pieces.get(write.pieces.clone()).unwrap_or_default() {
                let head = self.heads.get(piece.head.clone()).unwrap_or_default();
                let body = payload.bytes(piece.start, piece.len);
                let parts = [head, body].into_iter().filter(|part| !part.is_empty());
                slices.extend(parts.map(|part| IoSlice::new(part.as_ptr(), part.len())));
            }
            // Slices beyond the limit of one call are left over, as if the socket had been full.
            slices.truncate(begin + MAX_SLICES);
            places.push((socket, begin..slices.len()));
        }
        let writes = places.into_iter().map(|(socket, place)| (socket, &slices[place]));
        // SAFETY: the slices point into the plan and the payload, both borrowed for the call.
        unsafe { write_together(writes, batch, sent) }
    }
}

/// Makes these writes with one system call, or few of them one by one. The result of each is added to `sent`, in their order. An error
/// concerns the batch: `sent` is complete all the same.
///
/// # Safety
///
/// As for [`TcpSocket::send`].
pub(crate) unsafe fn write_together<'a>(
    writes: impl Iterator<Item = (&'a TcpSocket, &'a [IoSlice])>,
    batch: &mut SendBatch,
    sent: &mut Vec<io::Result<Option<usize>>>,
) -> io::Result<()> {
    let writes: Vec<_> = writes.map(|(socket, slices)| BatchWrite { socket, slices }).collect();
    if writes.len() < FEWEST {
        // SAFETY: as the caller has promised.
        sent.extend(writes.iter().map(|write| unsafe { write.socket.send(write.slices) }));
        return Ok(());
    }
    // SAFETY: as the caller has promised.
    unsafe { batch.send(&writes, sent) }
}

/// Whether a write of `slices` slices with `bytes` bytes is copied into one place first, because the kernel's walk over the list costs more
/// than that. In a sweep of payloads behind heads of 4 bytes a copy took 0.3 of the list's time at 60 bytes and 0.5 at 184 (MPEG-TS). It took
/// 0.9 at 1,000 bytes and 1.0 from 2,000 on (docs/lab-notebook/2026-11-29-packet-sizes.md).
pub(crate) fn is_scattered(slices: usize, bytes: u64) -> bool {
    slices > FEW_SLICES && bytes < slices as u64 * SMALL_SLICE
}

/// With fewer slices the list is short, and a place in a batch saves more. Chosen, not measured.
const FEW_SLICES: usize = 8;

/// Mean bytes of a slice below which it is copied: heads and payloads of 1,000 bytes in turns.
const SMALL_SLICE: u64 = 512;

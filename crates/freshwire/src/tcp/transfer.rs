//! How payload gets from the arena into sockets: copied, or by reference to its pages.

use std::io;
use std::ops::Range;
use std::time::Duration;

use freshwire_io::tcp::{IoSlice, SendBatch, TcpSocket};
use freshwire_io::thread_time;
use freshwire_record::Timestamp;
use freshwire_ring::{Config, Meta, RawSlice, Region};

use super::batch::write_together;
use crate::stats::SinkStats;

/// How an engine hands payload to TCP sockets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Transfer {
    /// By reference where the engine has measured that it takes less processor time, else copied.
    #[default]
    Auto,
    /// Copied.
    Copy,
    /// By reference where that is possible.
    Reference,
}

/// Pieces below this size are copied. Measured: up to 16 KiB a reference cost 1.0 to 1.4 of a copy
/// (docs/lab-notebook/2026-11-29-by-reference.md).
const MIN_PIECE: usize = 16 << 10;

/// Sizes of writes that are measured apart, by powers of two from [`MIN_PIECE`] on: up to the largest write, 256 KiB.
const SIZES: usize = 5;

/// One write in this number is made in the way that seems to cost more, to notice a change. That is an epsilon-greedy choice (Sutton and
/// Barto 2018, section 2.2). As long as nothing changes, the number doubles up to the second one: a reference can cost ten times a copy.
/// The preferred way is measured as often as at first, since to look at the clock costs some per cent of a small write. Chosen, not measured.
const TRIAL_EVERY: u32 = 32;
const TRIAL_EVERY_MOST: u32 = 4096;

/// Measurements of either way before the first choice. Chosen, not measured.
const FIRST_TRIALS: u32 = 4;

/// The weight of a new measurement in the mean. Chosen, not measured.
const WEIGHT: f64 = 0.125;

/// A write to one socket.
#[derive(Clone, Copy)]
pub(crate) struct GatheredWrite<'a> {
    pub(crate) socket: &'a TcpSocket,
    pub(crate) slices: &'a [IoSlice],
    /// The region of its payload.
    pub(crate) region: &'a Region,
    pub(crate) stats: &'a SinkStats,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    Copy,
    Reference,
}

/// What writes of one size have cost.
#[derive(Clone, Copy, Debug, Default)]
struct Costs {
    /// Mean processor time, in nanoseconds per byte, and its measurements.
    copy: (f64, u32),
    reference: (f64, u32),
    /// Writes since the last trial, and from one trial to the next.
    since_trial: u32,
    interval: u32,
}

/// The choice of an engine, with what it has measured.
#[derive(Default)]
pub(crate) struct Transfers {
    wanted: Transfer,
    /// The system refuses to send from a memory file.
    is_refused: bool,
    /// For writes alone, and for those that are made together with others.
    costs: [[Costs; SIZES]; 2],
    /// Processor time of fresh pages for memory that was sent by reference, in nanoseconds per byte, once it was measured.
    renewal: Option<f64>,
    parts: Vec<Part>,
}

/// A part of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    /// Slices that are copied.
    Copied(Range<usize>),
    /// Adjacent slices of the arena.
    Lent(Range<usize>, RawSlice),
}

impl Costs {
    /// How the next write is made, and whether its cost is to be learned. `renewal` is what fresh pages alone cost with a reference.
    fn choose(&mut self, renewal: f64) -> (Method, bool) {
        let (copy, reference) = (self.copy, self.reference);
        if copy.1 < FIRST_TRIALS {
            return (Method::Copy, true);
        }
        self.since_trial = self.since_trial.wrapping_add(1);
        let is_due = self.since_trial.is_multiple_of(TRIAL_EVERY);
        if renewal >= copy.0 {
            return (Method::Copy, is_due);
        }
        if reference.1 < FIRST_TRIALS {
            return (Method::Reference, true);
        }
        let interval = self.interval.max(TRIAL_EVERY);
        let is_trial = self.since_trial >= interval;
        if is_trial {
            (self.since_trial, self.interval) = (0, (2 * interval).min(TRIAL_EVERY_MOST));
        }
        let method = if self.prefers_reference() == is_trial { Method::Copy } else { Method::Reference };
        (method, is_due || is_trial)
    }

    fn prefers_reference(&self) -> bool {
        self.reference.0 < self.copy.0
    }

    fn learn(&mut self, method: Method, cost: f64) {
        let preferred = self.prefers_reference();
        self.add(method, cost);
        if self.prefers_reference() != preferred {
            self.interval = 0;
        }
    }

    fn add(&mut self, method: Method, cost: f64) {
        let (mean, count) = match method {
            Method::Copy => &mut self.copy,
            Method::Reference => &mut self.reference,
        };
        // The first ones count alike.
        let weight = WEIGHT.max(1.0 / f64::from(*count + 1));
        *mean += (cost - *mean) * weight;
        *count = count.saturating_add(1);
    }
}

impl Transfers {
    pub(crate) fn set(&mut self, wanted: Transfer) {
        *self = Self { wanted, ..Self::default() };
    }

    /// Makes a write. `Ok(None)`: the socket has no room.
    ///
    /// # Safety
    ///
    /// As for [`TcpSocket::send`].
    pub(crate) unsafe fn send(&mut self, write: GatheredWrite<'_>) -> io::Result<Option<usize>> {
        let Some(size) = self.size_for_reference(&write) else {
            // SAFETY: as the caller has promised.
            return unsafe { write.socket.send(write.slices) };
        };
        let (method, is_learned) = self.method(size, 1);
        let before = is_learned.then(thread_time);
        let sent = match method {
            // SAFETY: as the caller has promised.
            Method::Copy => unsafe { write.socket.send(write.slices) },
            // SAFETY: as the caller has promised.
            Method::Reference => unsafe { self.send_by_reference(&write) },
        };
        if let Some(before) = before {
            let bytes = sent.as_ref().map_or(0, |sent| sent.unwrap_or(0));
            self.learn(size, method, 1, bytes, before);
        }
        sent
    }

    /// Makes these writes, those that are copied with one system call. The result of each is added to `sent`, in their order. An error
    /// concerns the batch: `sent` is complete all the same.
    ///
    /// # Safety
    ///
    /// As for [`TcpSocket::send`].
    pub(crate) unsafe fn send_together(
        &mut self,
        writes: &[GatheredWrite<'_>],
        batch: &mut SendBatch,
        sent: &mut Vec<io::Result<Option<usize>>>,
    ) -> io::Result<()> {
        // They have the same records, so one size is that of all.
        let size = writes.first().and_then(|write| self.size_for_reference(write));
        let (method, is_learned) = size.map_or((Method::Copy, false), |size| self.method(size, writes.len()));
        let first = sent.len();
        let before = is_learned.then(thread_time);
        let outcome = match method {
            Method::Copy => {
                let plain = writes.iter().map(|write| (write.socket, write.slices));
                // SAFETY: as the caller has promised.
                unsafe { write_together(plain, batch, sent) }
            }
            Method::Reference => {
                for write in writes {
                    // SAFETY: as the caller has promised.
                    sent.push(unsafe { self.send_by_reference(write) });
                }
                Ok(())
            }
        };
        if let Some((size, before)) = size.zip(before) {
            let bytes = sent[first..].iter().flatten().flatten().sum();
            self.learn(size, method, writes.len(), bytes, before);
        }
        outcome
    }

    /// The place among the sizes of a write most of which can be sent by reference.
    fn size_for_reference(&mut self, write: &GatheredWrite<'_>) -> Option<usize> {
        if self.wanted == Transfer::Copy || self.is_refused || !write.region.can_lend() {
            return None;
        }
        let whole: usize = write.slices.iter().map(IoSlice::byte_len).sum();
        if whole < MIN_PIECE {
            return None;
        }
        let mut parts = std::mem::take(&mut self.parts);
        list_parts(write, &mut parts);
        let lent: usize = parts.iter().map(Part::lent).sum();
        self.parts = parts;
        (lent >= whole / 2).then(|| ((whole / MIN_PIECE).ilog2() as usize).min(SIZES - 1))
    }

    fn method(&mut self, size: usize, writes: usize) -> (Method, bool) {
        match self.wanted {
            Transfer::Copy => (Method::Copy, false),
            Transfer::Reference => (Method::Reference, false),
            Transfer::Auto => {
                let renewal = *self.renewal.get_or_insert_with(measure_renewal) / writes as f64;
                self.costs[usize::from(writes > 1)][size].choose(renewal)
            }
        }
    }

    /// Takes note of what `bytes` of these writes have cost since `before`.
    fn learn(&mut self, size: usize, method: Method, writes: usize, bytes: usize, before: Duration) {
        if bytes == 0 {
            return;
        }
        let nanos = thread_time().saturating_sub(before).as_nanos() as f64;
        let renewal = match method {
            Method::Copy => 0.0,
            Method::Reference => *self.renewal.get_or_insert_with(measure_renewal),
        };
        // One payload went to all of them, and its pages are replaced once.
        let cost = nanos / bytes as f64 + renewal / writes as f64;
        self.costs[usize::from(writes > 1)][size].learn(method, cost);
    }

    /// # Safety
    ///
    /// As for [`TcpSocket::send`].
    unsafe fn send_by_reference(&mut self, write: &GatheredWrite<'_>) -> io::Result<Option<usize>> {
        if !write.socket.is_non_blocking()? {
            // `sendfile` would wait for room.
            // SAFETY: as the caller has promised.
            return unsafe { write.socket.send(write.slices) };
        }
        let mut parts = std::mem::take(&mut self.parts);
        list_parts(write, &mut parts);
        let is_corked = parts.iter().filter(|part| part.lent() > 0).count() > 1;
        if is_corked {
            write.socket.set_cork(true)?;
        }
        let (mut taken, mut outcome) = (0, Ok(()));
        for (place, part) in parts.iter().enumerate() {
            let is_last = place + 1 == parts.len();
            // SAFETY: as the caller has promised.
            match unsafe { self.send_part(write, part, is_last) } {
                Ok(sent) => {
                    taken += sent;
                    if sent < part.len(write.slices) {
                        break;
                    }
                }
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            }
        }
        if is_corked {
            write.socket.set_cork(false)?;
        }
        self.parts = parts;
        match outcome {
            // The next write finds the error again.
            Err(error) if taken == 0 => Err(error),
            _ => Ok((taken > 0).then_some(taken)),
        }
    }

    /// Sends one part; how many bytes the socket has taken.
    ///
    /// # Safety
    ///
    /// As for [`TcpSocket::send`].
    unsafe fn send_part(
        &mut self,
        write: &GatheredWrite<'_>,
        part: &Part,
        is_last: bool,
    ) -> io::Result<usize> {
        let GatheredWrite { socket, slices, region, stats } = *write;
        let range = match part {
            Part::Copied(range) => range,
            Part::Lent(range, piece) => {
                if let Some((file, offset)) = region.lend(*piece) {
                    match socket.send_file(file, offset, piece.len) {
                        Ok(sent) => {
                            stats.on_lent(sent.unwrap_or(0) as u64);
                            return Ok(sent.unwrap_or(0));
                        }
                        Err(error) if error.kind() == io::ErrorKind::Unsupported => self.is_refused = true,
                        Err(error) => return Err(error),
                    }
                }
                range
            }
        };
        let slices = slices.get(range.clone()).unwrap_or_default();
        let sent = if is_last {
            // SAFETY: as the caller has promised.
            unsafe { socket.send(slices) }
        } else {
            // SAFETY: as the caller has promised.
            unsafe { socket.send_more(slices) }
        };
        Ok(sent?.unwrap_or(0))
    }
}

impl Part {
    /// Bytes that are sent by reference.
    fn lent(&self) -> usize {
        if let Self::Lent(_, piece) = self { piece.len } else { 0 }
    }

    fn len(&self, slices: &[IoSlice]) -> usize {
        match self {
            Self::Copied(range) => slices[range.clone()].iter().map(IoSlice::byte_len).sum(),
            Self::Lent(_, piece) => piece.len,
        }
    }
}

/// Takes a write apart: adjacent slices of the arena that are long enough, and what is between them.
fn list_parts(write: &GatheredWrite<'_>, parts: &mut Vec<Part>) {
    parts.clear();
    let mut at = 0;
    while let Some(first) = write.slices.get(at) {
        let mut piece = RawSlice { ptr: first.start(), len: first.byte_len() };
        let mut end = at + 1;
        while let Some(next) =
            write.slices.get(end).filter(|next| next.start() == piece.ptr.wrapping_add(piece.len))
        {
            piece.len += next.byte_len();
            end += 1;
        }
        let is_lent = piece.len >= MIN_PIECE && write.region.holds(piece);
        match parts.last_mut() {
            _ if is_lent => parts.push(Part::Lent(at..end, piece)),
            Some(Part::Copied(range)) => range.end = end,
            _ => parts.push(Part::Copied(at..end)),
        }
        at = end;
    }
}

/// The processor time that fresh pages take, in nanoseconds per byte. Infinite where memory cannot be lent.
fn measure_renewal() -> f64 {
    const BYTES: u32 = 64 << 10;
    const ROUNDS: usize = 8;
    let payload = vec![1; BYTES as usize];
    let measure = || {
        let region = Region::create(&Config { rings: 1, slots: 2, block_bytes: BYTES, blocks: 1 }).ok()?;
        let (mut producer, mut consumer) = (region.producer().ok()?, region.consumer(0).ok()?);
        let (mut records, mut pieces, mut times) = (Vec::new(), Vec::new(), [Duration::MAX; 2]);
        for round in 0..2 * ROUNDS {
            let before = thread_time();
            let _pushed = producer.push(0, &payload, &Meta::default()).ok()?;
            // In each second round the pages of the round before are replaced.
            times[round % 2] = times[round % 2].min(thread_time().saturating_sub(before));
            consumer.queue(1, &mut records);
            let taken = consumer.take(records.first()?.index).ok()?;
            consumer.slices(&taken, 0, usize::MAX, &mut pieces);
            if round % 2 == 0 {
                region.lend(*pieces.first()?)?;
            }
            consumer.finish_for_good(&taken, Timestamp::ZERO).ok()?;
        }
        Some(times[1].saturating_sub(times[0]).as_nanos() as f64 / f64::from(BYTES))
    };
    measure().unwrap_or(f64::INFINITY)
}

#[cfg(test)]
mod tests;

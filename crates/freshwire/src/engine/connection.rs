//! One destination: the ring it is fed from, the choice, the framing and the socket.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use freshwire_choice::{Choice, Decision, Outcome, Progress, Reason, Record};
use freshwire_io::tcp::{IoSlice, MAX_SLICES, TcpSocket};
use freshwire_media::framing::{Framing, Prefix};
use freshwire_ring::{Consumer, Queued, RawSlice, Taken};
use freshwire_units::Timestamp;

use super::estimate::Estimate;
use super::reserve::Reserve;
use crate::sink::{CloseMode, Ended, SinkShared};

/// How many writes one connection makes before the engine turns to the next one.
const WRITES_PER_TURN: usize = 32;

/// The most bytes that one write carries.
const MAX_WRITE: u64 = 256 << 10;

/// A chunk is not worth its header below this size, unless the record ends with it.
const MIN_CHUNK: u64 = 256;

/// How often acknowledgements are looked for while the engine has nothing to write: a quarter round trip within this.
const ACK_WATCH: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(25));

/// How often a policy is asked in a row before the engine turns to other connections.
const PICKS_PER_TURN: usize = 4096;

/// The pause after which a policy that waits for a time in the past is asked again.
const PAST_WAIT: Duration = Duration::from_millis(1);

/// The longest sleep on a ring. A producer that is killed between its push and its notification leaves a record that
/// nobody calls for (spec/ring.md R-ROLE-7).
const MAX_SLEEP: Duration = Duration::from_secs(1);

/// What a connection needs next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Another turn, soon: there is more to write than one turn carries.
    Again,
    /// Room in the socket, or the time given.
    Room(Timestamp),
    /// The time given: the path holds as much as it should.
    Time(Timestamp),
    /// A notification from the ring, or the time given.
    Push(Timestamp),
    /// Nothing: everything was delivered and the connection is closed.
    Ended,
}

/// A record that was begun and is not wholly written.
struct Begun {
    taken: Taken,
    record: Record,
    /// How many of its bytes are in [`Connection::pieces`] or written.
    planned: u32,
    ended: bool,
}

/// A stretch of the stream that is committed: framing bytes, then bytes of a record in [`Connection::begun`].
struct Piece {
    prefix: [u8; Prefix::MAX],
    prefix_at: usize,
    prefix_len: usize,
    offset: u32,
    len: u32,
    end: PieceEnd,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum PieceEnd {
    Continues,
    Finished,
    Abandoned(Reason),
}

impl Piece {
    /// A piece without body. `prefix` is cut to [`Prefix::MAX`] bytes, which no framing exceeds.
    fn new(prefix: &[u8], end: PieceEnd) -> Self {
        let mut bytes = [0; Prefix::MAX];
        let prefix_len = prefix.len().min(Prefix::MAX);
        bytes[..prefix_len].copy_from_slice(&prefix[..prefix_len]);
        Self { prefix: bytes, prefix_at: 0, prefix_len, offset: 0, len: 0, end }
    }

    fn prefix(&self) -> &[u8] {
        &self.prefix[self.prefix_at..self.prefix_len]
    }

    fn byte_len(&self) -> u64 {
        self.prefix().len() as u64 + u64::from(self.len)
    }
}

/// What has been asked of the connection's end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Closing {
    No,
    /// Send what the policy still wants, then finish.
    Drain,
    /// The sending direction is closed; waiting for the last acknowledgement.
    Flush,
}

pub(crate) struct Connection {
    socket: TcpSocket,
    consumer: Consumer,
    choice: Box<dyn Choice>,
    framing: Framing,
    reserve: Reserve,
    queue_target: Option<Duration>,
    congestion: String,
    shared: Arc<SinkShared>,
    estimate: Estimate,
    begun: VecDeque<Begun>,
    pieces: VecDeque<Piece>,
    planned: u64,
    written: u64,
    acked_base: u64,
    unacked: VecDeque<(u64, u64)>,
    queued: Vec<Queued>,
    records: Vec<Record>,
    gone: Vec<(u64, u8)>,
    raw: Vec<RawSlice>,
    slices: Vec<IoSlice>,
    lowat: u32,
    wrote: bool,
    /// When the policy wants to be asked again although nothing changes.
    ask_again_at: Timestamp,
    closing: Closing,
    give_up_at: Timestamp,
    pub(super) watched: bool,
    pub(super) wake_at: Timestamp,
}

/// What a new connection is made of.
pub(super) struct Parts {
    pub(super) socket: TcpSocket,
    pub(super) consumer: Consumer,
    pub(super) choice: Box<dyn Choice>,
    pub(super) framing: Framing,
    pub(super) reserve: Reserve,
    pub(super) queue_target: Option<Duration>,
    pub(super) shared: Arc<SinkShared>,
}

impl Connection {
    pub(super) fn new(parts: Parts) -> io::Result<Self> {
        let congestion = parts.socket.congestion()?;
        // Bytes that were written before the connection became ours are not counted as acknowledged records.
        let acked_base = parts.socket.info()?.bytes_acked + parts.socket.unacknowledged()?;
        let mut connection = Self {
            socket: parts.socket,
            consumer: parts.consumer,
            choice: parts.choice,
            framing: parts.framing,
            reserve: parts.reserve,
            queue_target: parts.queue_target,
            congestion,
            shared: parts.shared,
            estimate: Estimate::default(),
            begun: VecDeque::new(),
            pieces: VecDeque::new(),
            planned: 0,
            written: 0,
            acked_base,
            unacked: VecDeque::new(),
            queued: Vec::new(),
            records: Vec::new(),
            gone: Vec::new(),
            raw: Vec::with_capacity(MAX_SLICES),
            slices: Vec::with_capacity(MAX_SLICES),
            lowat: 0,
            wrote: false,
            ask_again_at: Timestamp::MAX,
            closing: Closing::No,
            give_up_at: Timestamp::MAX,
            watched: false,
            wake_at: Timestamp::MAX,
        };
        let preamble = connection.framing.preamble();
        if !preamble.is_empty() {
            connection.push_piece(Piece::new(preamble, PieceEnd::Continues));
        }
        Ok(connection)
    }

    pub(super) fn socket(&self) -> &TcpSocket {
        &self.socket
    }

    /// Whether a producer has notified since the connection went to sleep.
    pub(super) fn notified(&self) -> bool {
        self.consumer.notified()
    }

    /// Takes in what happened on the path and writes as much as the reserve asks for.
    pub(super) fn turn(&mut self, now: Timestamp) -> io::Result<Next> {
        if now >= self.give_up_at {
            self.socket.abort_on_close()?;
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the peer did not take the rest in time"));
        }
        Ok(match self.serve(now)? {
            Next::Room(at) => Next::Room(at.min(self.give_up_at)),
            Next::Time(at) => Next::Time(at.min(self.give_up_at)),
            Next::Push(at) => Next::Push(at.min(self.give_up_at)),
            next => next,
        })
    }

    fn serve(&mut self, now: Timestamp) -> io::Result<Next> {
        for _ in 0..WRITES_PER_TURN {
            let reserve = self.look(now)?;
            if self.closing == Closing::Flush {
                let state = self.flush_state(now);
                if state != Next::Ended
                    && let Some(error) = self.socket.take_error()?
                {
                    return Err(error);
                }
                return Ok(state);
            }
            let unsent = u64::from(self.estimate.info().unsent);
            if unsent >= u64::from(reserve) {
                return Ok(Next::Room(self.ack_watch(now)));
            }
            let mut budget = u64::from(reserve) - unsent;
            if let Some(pipe) = self.queue_target.and_then(|queue| self.estimate.pipe(queue)) {
                let on_the_way = self.estimate.info().outstanding() + unsent;
                if on_the_way >= pipe {
                    return Ok(Next::Time(self.soon(now)));
                }
                budget = budget.min(pipe - on_the_way);
            }
            self.gather(now, budget, unsent);
            if self.pieces.is_empty() {
                return self.rest(now);
            }
            if !self.write(now)? {
                return Ok(Next::Room(self.ack_watch(now)));
            }
        }
        Ok(Next::Again)
    }

    /// Reads the kernel's view, resolves what was acknowledged and returns the reserve in force.
    fn look(&mut self, now: Timestamp) -> io::Result<u32> {
        let info = self.socket.info()?;
        self.estimate.update(now, info);
        // The look that follows a write says what the write left unsent, without a system call of its own.
        if std::mem::take(&mut self.wrote) {
            self.shared.stats.on_horizon(u64::from(info.unsent));
        }
        let acked = info.bytes_acked.saturating_sub(self.acked_base);
        while let Some(&(end, index)) = self.unacked.front() {
            if end > acked {
                break;
            }
            // Too late only if the slot was reused meanwhile; its fate was read as sent then.
            let _ = self.consumer.acked(index, now);
            self.unacked.pop_front();
        }
        let rate = self.estimate.rate(now);
        let reserve = self.reserve.bytes(&self.congestion, &info, rate);
        if self.lowat_is_off(reserve) {
            self.socket.set_notsent_lowat(reserve)?;
            self.lowat = reserve;
        }
        self.shared.stats.on_look(acked, self.lowat, rate, info.rtt, self.consumer.counters().bad_values());
        // The kernel's test for room has to be ours, or it would call us for nothing.
        Ok(self.lowat)
    }

    /// The option follows the reserve loosely: setting it costs a system call, and a quarter more or less wakes no later
    /// than a chunk.
    fn lowat_is_off(&self, reserve: u32) -> bool {
        self.lowat.abs_diff(reserve) > self.lowat / 4
    }

    /// When to look for acknowledgements although nothing can be written.
    fn ack_watch(&self, now: Timestamp) -> Timestamp {
        if self.unacked.is_empty() { Timestamp::MAX } else { self.soon(now) }
    }

    fn soon(&self, now: Timestamp) -> Timestamp {
        now + (self.estimate.info().rtt / 4).clamp(ACK_WATCH.0, ACK_WATCH.1)
    }

    fn flush_state(&self, now: Timestamp) -> Next {
        let acked = self.estimate.info().bytes_acked.saturating_sub(self.acked_base);
        if acked >= self.written { Next::Ended } else { Next::Push(now + ACK_WATCH.1) }
    }

    /// Nothing may be written now: sleep until a push, a time the policy named, or an acknowledgement.
    fn rest(&mut self, now: Timestamp) -> io::Result<Next> {
        if self.closing == Closing::Drain && self.ask_again_at == Timestamp::MAX {
            self.consumer.close(Reason::Closed.code(), now);
            self.socket.finish()?;
            self.closing = Closing::Flush;
            return Ok(Next::Again);
        }
        if !self.consumer.sleep() {
            return Ok(Next::Again);
        }
        Ok(Next::Push(self.ask_again_at.min(self.ack_watch(now)).min(now + MAX_SLEEP)))
    }
}

/// Choosing: from the ring to committed pieces.
impl Connection {
    /// Commits pieces worth `budget` bytes, at least a segment of them, as far as the policy names records.
    fn gather(&mut self, now: Timestamp, budget: u64, unsent: u64) {
        let mss = u64::from(self.estimate.info().mss);
        let budget = budget.clamp(mss, MAX_WRITE);
        while self.planned < budget && self.pieces.len() < MAX_SLICES / 2 {
            if !self.has_open_record() {
                let Some(begun) = self.pick(now, unsent + self.planned) else { return };
                self.begun.push_back(begun);
            }
            if !self.plan(now, budget - self.planned, unsent) {
                return;
            }
        }
    }

    fn has_open_record(&self) -> bool {
        self.begun.back().is_some_and(|begun| !begun.ended)
    }

    /// Commits the next piece of the open record, of at most `room` bytes. False: the room is not worth a chunk.
    fn plan(&mut self, now: Timestamp, room: u64, unsent: u64) -> bool {
        let Some(begun) = self.begun.back_mut() else { return false };
        let (position, remaining) = (begun.planned, begun.taken.len - begun.planned);
        let mut room = room;
        if let Some(marker) = self.framing.abandon() {
            let view = self.estimate.view(now, unsent + self.planned);
            if position > 0
                && let Progress::Abandon(reason) = self.choice.progress(now, &begun.record, remaining, &view)
            {
                begun.ended = true;
                self.push_piece(Piece::new(marker.as_bytes(), PieceEnd::Abandoned(reason)));
                return true;
            }
            // One chunk to a segment: the finest grain that costs no packet.
            room = room.min(u64::from(self.estimate.info().mss));
            if self.planned > 0 && room < u64::from(remaining).min(MIN_CHUNK) + Prefix::MAX as u64 {
                return false;
            }
        }
        let Some(chunk) = self.framing.chunk(begun.record.seq, position, remaining, room as usize) else {
            return false;
        };
        begun.planned += chunk.body;
        begun.ended = chunk.body == remaining;
        let end = if begun.ended { PieceEnd::Finished } else { PieceEnd::Continues };
        let piece = Piece { offset: position, len: chunk.body, ..Piece::new(chunk.prefix.as_bytes(), end) };
        self.push_piece(piece);
        true
    }

    fn push_piece(&mut self, piece: Piece) {
        self.planned += piece.byte_len();
        self.pieces.push_back(piece);
    }

    /// Asks the policy until it names a record that is still there. `None`: there is nothing, it holds back, or it was
    /// asked often enough for now. A position outside the queue counts as holding back.
    fn pick(&mut self, now: Timestamp, horizon: u64) -> Option<Begun> {
        self.ask_again_at = Timestamp::MAX;
        for _ in 0..PICKS_PER_TURN {
            self.refresh_queue();
            if self.records.is_empty() {
                return None;
            }
            let view = self.estimate.view(now, horizon);
            match self.choice.pick(now, &self.records, &view) {
                Decision::Wait(until) => {
                    let until = until.unwrap_or(Timestamp::MAX);
                    self.ask_again_at = if until > now { until } else { now + PAST_WAIT };
                    return None;
                }
                Decision::Drop(place, reason) => {
                    let record = *self.records.get(place)?;
                    // Too late means that somebody else edits or dropped it; the next look tells.
                    if self.consumer.discard(record.index, reason.code(), now).is_ok() {
                        self.dropped(record, reason);
                    }
                }
                Decision::Send(place) => {
                    let record = *self.records.get(place)?;
                    if let Ok(taken) = self.consumer.take(record.index) {
                        // It may have been modified or replaced since the policy saw it.
                        let record = to_record(&taken.record);
                        let horizon = u32::try_from(horizon).unwrap_or(u32::MAX);
                        self.consumer.commit(&taken, now, horizon);
                        self.choice.outcome(&record, Outcome::Sent);
                        self.shared.stats.on_begun(now.saturating_since(record.generated));
                        return Some(Begun { taken, record, planned: 0, ended: false });
                    }
                }
            }
        }
        self.ask_again_at = now;
        None
    }

    fn dropped(&mut self, record: Record, reason: Reason) {
        self.choice.outcome(&record, Outcome::Dropped(reason));
        self.shared.stats.on_dropped(reason.code());
    }

    /// Looks at the ring. A policy that sees all of the queue is also told what others dropped from it.
    fn refresh_queue(&mut self) {
        self.records.clear();
        self.consumer.queue(self.choice.lookahead(), &mut self.queued);
        self.records.extend(self.queued.iter().map(to_record));
        if self.choice.lookahead() == usize::MAX {
            self.gone.clear();
            self.consumer.dropped_by_others(&mut self.gone);
            while let Some((seq, code)) = self.gone.pop() {
                let reason = Reason::try_from(code).unwrap_or(Reason::Invalid);
                self.dropped(Record { seq, ..NO_RECORD }, reason);
            }
        }
    }
}

/// What is left of a record whose slot is not ours to read any more: its number.
const NO_RECORD: Record = Record {
    index: 0,
    seq: 0,
    len: 0,
    layer: 0,
    group: 0,
    key: 0,
    refs: [0; 2],
    generated: Timestamp::ZERO,
    deadline: Timestamp::MAX,
};

fn to_record(queued: &Queued) -> Record {
    Record {
        index: queued.index,
        seq: queued.user_seq,
        len: queued.len,
        layer: queued.layer,
        group: queued.group,
        key: queued.key,
        refs: queued.refs,
        generated: queued.generated,
        deadline: queued.deadline,
    }
}

/// Writing: from committed pieces to the socket.
impl Connection {
    /// Writes the committed pieces. False: the socket has no room.
    fn write(&mut self, now: Timestamp) -> io::Result<bool> {
        self.fill_slices();
        // SAFETY: header slices point into `self.pieces`, body slices into the arena that `self.consumer` keeps mapped;
        // neither is touched before the call returns.
        let Some(sent) = (unsafe { self.socket.send(&self.slices) })? else { return Ok(false) };
        let whole = sent as u64 == self.planned;
        self.advance(now, sent as u64);
        self.shared.stats.on_write(sent as u64);
        self.wrote = true;
        Ok(whole)
    }

    fn fill_slices(&mut self) {
        self.slices.clear();
        let mut record = 0;
        for piece in &self.pieces {
            let prefix = piece.prefix();
            if !prefix.is_empty() {
                self.slices.push(IoSlice::new(prefix.as_ptr(), prefix.len()));
            }
            if piece.len > 0 {
                self.raw.clear();
                let taken = &self.begun[record].taken;
                self.consumer.slices(taken, piece.offset, piece.len as usize, &mut self.raw);
                self.slices.extend(self.raw.iter().map(|slice| IoSlice::new(slice.ptr, slice.len)));
            }
            if piece.end != PieceEnd::Continues {
                record += 1;
            }
        }
        self.slices.truncate(MAX_SLICES);
    }

    /// Takes `sent` bytes off the front of the committed pieces.
    fn advance(&mut self, now: Timestamp, sent: u64) {
        self.written += sent;
        self.planned -= sent;
        let mut left = sent;
        while let Some(piece) = self.pieces.front_mut() {
            if left < piece.byte_len() {
                let prefix = left.min(piece.prefix().len() as u64);
                let body = (left - prefix) as u32;
                piece.prefix_at += prefix as usize;
                piece.offset += body;
                piece.len -= body;
                return;
            }
            left -= piece.byte_len();
            let end = piece.end;
            self.pieces.pop_front();
            self.end_record(now, end);
        }
    }

    fn end_record(&mut self, now: Timestamp, end: PieceEnd) {
        if end == PieceEnd::Continues {
            return;
        }
        let Some(begun) = self.begun.pop_front() else { return };
        match end {
            PieceEnd::Abandoned(reason) => {
                self.give_up(&begun, reason, now);
                self.dropped(begun.record, reason);
            }
            PieceEnd::Finished | PieceEnd::Continues => {
                // Fails only if the other side overwrote the state of a taken slot; the ring has counted that.
                let _ = self.consumer.finish(&begun.taken, now);
                self.unacked.push_back((self.written, begun.taken.index));
                self.shared.stats.on_finished();
            }
        }
    }
}

/// Ending.
impl Connection {
    /// Aborts at `instant` what is not delivered by then.
    pub(super) fn give_up_at(&mut self, instant: Timestamp) {
        self.give_up_at = instant;
    }

    /// Begins to close. Returns true when the connection is at its end already.
    pub(super) fn close(&mut self, mode: CloseMode, now: Timestamp) -> io::Result<bool> {
        match mode {
            CloseMode::Drain => self.closing = Closing::Drain,
            CloseMode::FinishRecord => {
                self.consumer.close(Reason::Closed.code(), now);
                self.closing = Closing::Drain;
            }
            CloseMode::Abort => {
                self.socket.abort_on_close()?;
                self.end(Reason::Closed, now);
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether the stream was ended and only acknowledgements are awaited.
    pub(super) fn is_flushing(&self) -> bool {
        self.closing == Closing::Flush
    }

    /// Whether the stream was ended and all of it acknowledged.
    pub(super) fn is_delivered(&mut self, now: Timestamp) -> bool {
        self.closing == Closing::Flush && self.look(now).is_ok() && self.flush_state(now) == Next::Ended
    }

    /// Whether its end was asked for before.
    pub(super) fn is_closing(&self) -> bool {
        self.closing != Closing::No
    }

    /// Resolves every record that is left.
    pub(super) fn end(&mut self, reason: Reason, now: Timestamp) {
        while let Some(begun) = self.begun.pop_front() {
            self.give_up(&begun, reason, now);
        }
        self.consumer.close(reason.code(), now);
    }

    fn give_up(&mut self, begun: &Begun, reason: Reason, now: Timestamp) {
        // Fails only if the other side overwrote the state of a taken slot; the ring has counted that.
        let _ = self.consumer.abandon(&begun.taken, reason.code(), now);
    }

    pub(super) fn shared(&self) -> &Arc<SinkShared> {
        &self.shared
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // One that the engine has not removed never reached it: the engine was gone before.
        if !self.shared.has_ended() {
            self.end(Reason::ConnectionLost, freshwire_io::now());
            self.shared.end(Ended::Broken("the engine has stopped".to_owned()));
        }
    }
}

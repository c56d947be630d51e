//! A sink over TCP: the ring it is fed from, the choice, the framing and the socket.

mod batched;
mod bypass;
mod commit;
mod path;

use std::collections::VecDeque;
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use freshwire_choice::{Choice, Reason};
use freshwire_io::tcp::TcpSocket;
use freshwire_media::framing::{Framer, Piece};
use freshwire_record::Timestamp;
use freshwire_ring::{Consumer, prefetch};

use super::committed::{CommittedRecord, CommittedRecords, Number};
use super::output::{End, Output, WriteTarget, Written};
use crate::sink::ended::{CloseMode, Ended, SinkError};
use crate::sink::seal::Seal;
use crate::sink::shared::SinkShared;
use crate::tcp::TcpScratch;
use crate::turn::queue::RecordQueue;
use crate::turn::{MAX_SLEEP, TurnOutcome};
pub(crate) use path::Limits;
use path::Path;

/// How many writes one connection makes before the engine turns to the next one.
const WRITES_PER_TURN: usize = 32;

/// How often the end of the last acknowledgement is looked for after the stream's end.
const FLUSH_WATCH: Duration = Duration::from_millis(25);

/// The most bytes that may wait to be sent between records.
const MAX_INTERJECTED: usize = 64 << 10;

/// The stage of the sink's end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Closing {
    No,
    /// Send what the policy still wants, then finish.
    Drain,
    /// The end of the session is being written.
    LastWords,
    /// The sending direction is closed; waiting for the last acknowledgement.
    Flush,
}

pub(crate) struct TcpSink {
    socket: TcpSocket,
    queue: RecordQueue,
    path: Path,
    output: Output,
    committed: CommittedRecords,
    /// The rest of the framing's last piece.
    rest: Option<Piece>,
    /// Bytes of no record may come now.
    at_boundary: bool,
    interjected: VecDeque<Vec<u8>>,
    /// The ring showed nothing but what was taken.
    drained: bool,
    ending: Ending,
}

/// How far a connection is with its end.
struct Ending {
    closing: Closing,
    give_up_at: Timestamp,
    stall_timeout: Option<Duration>,
    /// `leave` reports how the sink ended, so that `drop` does not.
    is_reported: bool,
}

/// The parts of a new sink.
pub(crate) struct Parts {
    pub(crate) socket: TcpSocket,
    pub(crate) consumer: Consumer,
    pub(crate) choice: Box<dyn Choice>,
    pub(crate) framer: Box<dyn Framer>,
    pub(crate) seal: Option<Box<dyn Seal>>,
    pub(crate) preface: Vec<u8>,
    pub(crate) limits: Limits,
    pub(crate) stall_timeout: Option<Duration>,
    pub(crate) shared: Arc<SinkShared>,
}

impl TcpSink {
    pub(crate) fn new(parts: Parts) -> io::Result<Self> {
        let path = Path::new(&parts.socket, parts.limits)?;
        let mut framer = parts.framer;
        let mut output = Output::new(parts.seal, parts.limits.departures);
        let mut opening = parts.preface;
        framer.preamble(&mut opening);
        if !opening.is_empty() {
            output.interject(&opening);
        }
        Ok(Self {
            socket: parts.socket,
            queue: RecordQueue::new(parts.consumer, parts.choice, framer, parts.shared),
            path,
            output,
            committed: CommittedRecords::default(),
            rest: None,
            at_boundary: true,
            interjected: VecDeque::new(),
            drained: false,
            ending: Ending {
                closing: Closing::No,
                give_up_at: Timestamp::MAX,
                stall_timeout: parts.stall_timeout,
                is_reported: false,
            },
        })
    }

    pub(crate) fn socket(&self) -> &TcpSocket {
        &self.socket
    }

    pub(crate) fn shared(&self) -> &Arc<SinkShared> {
        &self.queue.shared
    }

    /// Whether a producer has notified since the connection went to sleep.
    pub(crate) fn notified(&self) -> bool {
        self.queue.consumer.notified()
    }

    /// The socket has something to tell: when something was acknowledged, or that it has failed. False: the former cannot be.
    pub(crate) fn note(&mut self) -> bool {
        matches!(self.socket.take_error(), Ok(None)) && self.path.note()
    }

    /// Asks the processor to have at hand what a turn touches besides this value; without `ring`, what a record past the ring touches.
    pub(crate) fn prefetch_parts(&self, ring: bool) {
        if ring {
            self.queue.consumer.prefetch();
        } else {
            self.queue.consumer.prefetch_is_empty();
        }
        prefetch(&*self.queue.choice);
        prefetch(&*self.queue.framer);
        self.queue.shared.stats.prefetch();
    }

    /// The same for what lies still further.
    pub(crate) fn prefetch_far(&self) {
        self.queue.framer.prefetch();
    }

    /// Queues bytes for the next place between two records. False: too many wait there already.
    pub(crate) fn interject(&mut self, bytes: Vec<u8>) -> bool {
        let waiting: usize = self.interjected.iter().map(Vec::len).sum();
        let fits = waiting + bytes.len() <= MAX_INTERJECTED;
        if fits {
            self.interjected.push_back(bytes);
        }
        fits
    }

    /// Takes in what happened on the path and writes as much as the reserve asks for.
    pub(crate) fn turn(
        &mut self,
        now: Timestamp,
        scratch: &mut TcpScratch,
    ) -> Result<TurnOutcome, SinkError> {
        if now >= self.ending.give_up_at {
            return self.abort(SinkError::Lingered);
        }
        self.borrow(scratch);
        let next = self.serve(0, now, scratch);
        self.give_back(scratch);
        self.bounded(next?, now)
    }

    /// The turn's outcome, with the times at which the connection is given up.
    fn bounded(&self, next: TurnOutcome, now: Timestamp) -> Result<TurnOutcome, SinkError> {
        let stall_at = self.path.stalls_at(self.ending.stall_timeout);
        if now >= stall_at {
            return self.abort(SinkError::Stalled);
        }
        let latest = self.ending.give_up_at.min(stall_at);
        Ok(match next {
            TurnOutcome::Room(at) => TurnOutcome::Room(at.min(latest)),
            TurnOutcome::Time(at) => TurnOutcome::Time(at.min(latest)),
            TurnOutcome::Push(at) => TurnOutcome::Push(at.min(latest)),
            next => next,
        })
    }

    /// Uses the engine's buffers from now on, except where something waits in its own.
    fn borrow(&mut self, scratch: &mut TcpScratch) {
        self.output.borrow(&mut scratch.write);
        self.committed.borrow(&mut scratch.committed);
    }

    /// Gives the engine its buffers back, except those in which something waits.
    fn give_back(&mut self, scratch: &mut TcpScratch) {
        self.output.give_back(&mut scratch.write);
        self.committed.give_back(&mut scratch.committed);
    }

    fn abort(&self, error: SinkError) -> Result<TurnOutcome, SinkError> {
        self.socket.abort()?;
        Err(error)
    }

    /// Writes until nothing may be written now, beginning with the turn's write of this number.
    fn serve(&mut self, first: usize, now: Timestamp, scratch: &mut TcpScratch) -> io::Result<TurnOutcome> {
        for write in first..WRITES_PER_TURN {
            if let ControlFlow::Break(next) = self.before_write(write, now, scratch)? {
                return Ok(next);
            }
            let is_whole = self.write(now, scratch)?;
            if let ControlFlow::Break(next) = self.after_write(is_whole, now)? {
                return Ok(next);
            }
        }
        Ok(TurnOutcome::Again)
    }

    /// Gathers what the turn's next write takes; the turn's end if there is nothing to write.
    fn before_write(
        &mut self,
        write: usize,
        now: Timestamp,
        scratch: &mut TcpScratch,
    ) -> io::Result<ControlFlow<TurnOutcome>> {
        if write > 0 || !self.path.is_known(now, &self.output) {
            self.path.look(now, &self.socket, &mut self.queue.consumer, &self.queue.shared)?;
        }
        if self.ending.closing == Closing::Flush {
            return self.flush(now).map(ControlFlow::Break);
        }
        let Some(budget) = self.path.budget(now, &self.output) else {
            self.path.hold();
            return Ok(ControlFlow::Break(TurnOutcome::Room(self.path.ack_watch(now))));
        };
        if budget == 0 {
            self.path.hold();
            return Ok(ControlFlow::Break(TurnOutcome::Time(self.path.soon(now))));
        }
        self.gather(now, budget, scratch);
        if self.output.is_empty() {
            return self.rest(now).map(ControlFlow::Break);
        }
        Ok(ControlFlow::Continue(()))
    }

    /// The turn's end, if the write was its last one.
    fn after_write(&mut self, is_whole: bool, now: Timestamp) -> io::Result<ControlFlow<TurnOutcome>> {
        if !is_whole {
            return Ok(ControlFlow::Break(TurnOutcome::Room(self.path.ack_watch(now))));
        }
        if self.drained && (!self.output.is_apart() || self.output.is_empty()) && self.path.is_calm(now) {
            return self.rest(now).map(ControlFlow::Break);
        }
        Ok(ControlFlow::Continue(()))
    }

    fn flush(&self, now: Timestamp) -> io::Result<TurnOutcome> {
        if self.path.all_acked() {
            return Ok(TurnOutcome::Ended);
        }
        match self.socket.take_error()? {
            Some(error) => Err(error),
            None => Ok(TurnOutcome::Push(now + FLUSH_WATCH)),
        }
    }

    /// Nothing may be written now: sleep until a push, a time the policy named, or an acknowledgement.
    fn rest(&mut self, now: Timestamp) -> io::Result<TurnOutcome> {
        if self.ending.closing == Closing::Drain && self.queue.ask_again_at == Timestamp::MAX {
            self.queue.consumer.refuse(Reason::Closed, now);
            if self.output.finish_session()? {
                self.ending.closing = Closing::LastWords;
                return Ok(TurnOutcome::Again);
            }
        }
        if matches!(self.ending.closing, Closing::Drain | Closing::LastWords)
            && self.queue.ask_again_at == Timestamp::MAX
        {
            self.socket.finish()?;
            self.ending.closing = Closing::Flush;
            return Ok(TurnOutcome::Again);
        }
        if !self.queue.consumer.sleep() {
            return Ok(TurnOutcome::Again);
        }
        Ok(TurnOutcome::Push(self.queue.ask_again_at.min(self.path.ack_watch(now)).min(now + MAX_SLEEP)))
    }

    /// When a connection that rests, and that nothing calls, wants its next turn.
    fn latest_turn(&self, now: Timestamp) -> Timestamp {
        let stall_at = self.path.stalls_at(self.ending.stall_timeout);
        self.path.ack_watch(now).min(now + MAX_SLEEP).min(stall_at)
    }

    /// Writes what is committed. False: the socket has no room.
    fn write(&mut self, now: Timestamp, scratch: &mut TcpScratch) -> io::Result<bool> {
        let target = WriteTarget {
            socket: &self.socket,
            source: &self.queue.consumer,
            committed: &self.committed,
            stats: &self.queue.shared.stats,
        };
        let written = self.output.write(target, &mut scratch.write)?;
        Ok(self.written(written, now, scratch))
    }

    /// Takes note of a write. False: the socket has no room for the rest.
    fn written(&mut self, written: Option<Written>, now: Timestamp, scratch: &mut TcpScratch) -> bool {
        let Some(written) = written else { return false };
        self.path.wrote(written.wire);
        self.queue.shared.stats.on_write(written.wire);
        for (number, end) in scratch.write.ended.drain(..) {
            self.end_record(now, number, end);
        }
        written.whole
    }

    fn end_record(&mut self, now: Timestamp, number: Number, end: End) {
        let Some(committed) = self.committed.get(number) else { return };
        match end {
            End::Abandoned(reason) => {
                give_up(&mut self.queue.consumer, committed, reason, now);
                let record = committed.record();
                self.queue.report_dropped(record, reason);
            }
            End::Finished => {
                self.path.sent(&mut self.queue.consumer, &committed.taken, now);
                self.queue.shared.stats.on_finished();
            }
        }
        self.committed.forget(number);
    }
}

/// Ending.
impl TcpSink {
    /// Aborts at `instant` what is not delivered by then.
    pub(crate) fn give_up_at(&mut self, instant: Timestamp) {
        self.ending.give_up_at = instant;
    }

    /// Begins to close. Returns true when the connection is at its end already.
    pub(crate) fn close(&mut self, mode: CloseMode, now: Timestamp) -> io::Result<bool> {
        match mode {
            CloseMode::Drain => {}
            CloseMode::FinishRecord => {
                self.queue.consumer.refuse(Reason::Closed, now);
            }
            CloseMode::Abort => {
                self.socket.abort()?;
                self.end(Reason::Closed, now);
                return Ok(true);
            }
        }
        if self.ending.closing == Closing::No {
            self.ending.closing = Closing::Drain;
        }
        Ok(false)
    }

    /// Whether the stream was ended and only acknowledgements are awaited.
    pub(crate) fn is_flushing(&self) -> bool {
        self.ending.closing == Closing::Flush
    }

    /// Whether the stream was ended and all of it acknowledged.
    pub(crate) fn is_delivered(&mut self, now: Timestamp) -> bool {
        self.is_flushing()
            && self.path.look(now, &self.socket, &mut self.queue.consumer, &self.queue.shared).is_ok()
            && self.path.all_acked()
    }

    /// Whether its end was asked for before.
    pub(crate) fn is_closing(&self) -> bool {
        self.ending.closing != Closing::No
    }

    /// Resolves every record that is left, and reports how the sink ended. A wait for that may use its ring again, so that the
    /// ring and the socket are given back before.
    pub(crate) fn leave(mut self, reason: Reason, now: Timestamp, ended: Ended) {
        self.end(reason, now);
        self.ending.is_reported = true;
        let shared = Arc::clone(&self.queue.shared);
        drop(self);
        shared.end(ended);
    }

    /// Resolves every record that is left.
    fn end(&mut self, reason: Reason, now: Timestamp) {
        for committed in self.committed.drain() {
            give_up(&mut self.queue.consumer, &committed, reason, now);
        }
        self.queue.consumer.close(reason, now);
    }
}

fn give_up(consumer: &mut Consumer, committed: &CommittedRecord, reason: Reason, now: Timestamp) {
    // Fails only if the other side overwrote the state of a taken slot; the ring has counted that.
    let _ = consumer.abandon(&committed.taken, reason, now);
}

impl Drop for TcpSink {
    fn drop(&mut self) {
        // One that the engine has not removed never reached it: the engine was gone before.
        if !self.ending.is_reported && !self.queue.shared.has_ended() {
            self.end(Reason::ConnectionLost, freshwire_io::now());
            self.queue.shared.end(Ended::Broken(SinkError::Stopped));
        }
    }
}

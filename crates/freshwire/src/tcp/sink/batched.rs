//! A turn in two halves, between which the first write is made together with those of other sinks.

use std::io;
use std::ops::ControlFlow;

use freshwire_io::tcp::IoSlice;
use freshwire_record::Timestamp;

use super::TcpSink;
use crate::sink::ended::SinkError;
use crate::tcp::TcpScratch;
use crate::tcp::output::WriteTarget;
use crate::tcp::transfer::GatheredWrite;
use crate::turn::TurnOutcome;

impl TcpSink {
    /// Begins a turn. `None`: its first write is to be made, of [`slices`](Self::slices), and [`end_turn`](Self::end_turn) follows. Else
    /// the turn is over.
    pub(crate) fn begin_turn(
        &mut self,
        now: Timestamp,
        scratch: &mut TcpScratch,
    ) -> Result<Option<TurnOutcome>, SinkError> {
        // An encrypted stream has bytes of its own, which are made with the write. One that notes departures has more writes.
        let is_alone = self.output.is_sealed() || self.output.is_apart();
        if now >= self.ending.give_up_at || is_alone {
            return self.turn(now, scratch).map(Some);
        }
        self.borrow(scratch);
        let step = self.before_write(0, now, scratch);
        if let Ok(ControlFlow::Continue(())) = step {
            if !self.output.is_scattered() {
                return Ok(None);
            }
            let next = self.serve(0, now, scratch);
            self.give_back(scratch);
            return self.bounded(next?, now).map(Some);
        }
        self.give_back(scratch);
        match step? {
            ControlFlow::Break(next) => self.bounded(next, now).map(Some),
            ControlFlow::Continue(()) => Ok(None),
        }
    }

    /// Adds what the write takes. It stays where it is until [`end_turn`](Self::end_turn).
    pub(crate) fn slices(&self, scratch: &mut TcpScratch, out: &mut Vec<IoSlice>) {
        out.extend_from_slice(self.output.list(self.target(), &mut scratch.write));
    }

    /// The write of these slices.
    pub(crate) fn gathered<'a>(&'a self, slices: &'a [IoSlice]) -> GatheredWrite<'a> {
        self.target().gathered(slices)
    }

    fn target(&self) -> WriteTarget<'_> {
        WriteTarget {
            socket: &self.socket,
            source: &self.queue.consumer,
            committed: &self.committed,
            stats: &self.queue.shared.stats,
        }
    }

    /// Ends a turn after its first write, and makes its further ones.
    pub(crate) fn end_turn(
        &mut self,
        now: Timestamp,
        sent: io::Result<Option<usize>>,
        scratch: &mut TcpScratch,
    ) -> Result<TurnOutcome, SinkError> {
        let next = self.go_on(now, sent, scratch);
        self.give_back(scratch);
        self.bounded(next?, now)
    }

    fn go_on(
        &mut self,
        now: Timestamp,
        sent: io::Result<Option<usize>>,
        scratch: &mut TcpScratch,
    ) -> io::Result<TurnOutcome> {
        let written = sent?.map(|sent| self.output.took(sent, &mut scratch.write));
        let is_whole = self.written(written, now, scratch);
        match self.after_write(is_whole, now)? {
            ControlFlow::Break(next) => Ok(next),
            ControlFlow::Continue(()) => self.serve(1, now, scratch),
        }
    }
}

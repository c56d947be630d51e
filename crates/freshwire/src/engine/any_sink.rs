//! One sink as the engine serves it, whatever its carrier.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use freshwire_choice::{Reason, Record};
use freshwire_io::tcp::{IoSlice, TcpSocket};
use freshwire_record::Timestamp;
use freshwire_ring::prefetch;

use crate::datagram::sink::{DatagramSink, PlannedTurn};
use crate::kernel::sink::KernelSink;
use crate::sink::ended::{CloseMode, Ended, SinkError};
use crate::sink::shared::SinkShared;
use crate::tcp::TcpScratch;
use crate::tcp::batch::{Plan, PlannedWrite};
use crate::tcp::sink::TcpSink;
use crate::tcp::transfer::GatheredWrite;
use crate::turn::datagrams::DatagramPlan;
use crate::turn::offer::Payload;
use crate::turn::{OfferOutcome, TurnOutcome};

/// A turn that has started.
pub(crate) enum StartedTurn {
    /// Its first write is to be made.
    Write,
    /// Its datagrams are to be sent.
    Datagrams(PlannedTurn),
    /// It is over.
    Over(TurnOutcome),
}

/// A record that was offered past the ring.
pub(crate) enum PlannedOffer {
    /// Its write is to be made.
    Write(PlannedWrite),
    /// These of the planned datagrams are to be sent.
    Datagrams(Range<usize>),
    /// It has to go through the ring.
    Declined,
}

pub(crate) enum AnySink {
    Tcp(Box<TcpSink>),
    Kernel(Box<KernelSink>),
    Datagrams(Box<DatagramSink>),
}

impl AnySink {
    /// The sink to watch; a sink over datagrams has none.
    pub(crate) fn socket(&self) -> Option<&TcpSocket> {
        match self {
            Self::Tcp(sink) => Some(sink.socket()),
            Self::Kernel(sink) => Some(sink.socket()),
            Self::Datagrams(_) => None,
        }
    }

    pub(crate) fn shared(&self) -> &Arc<SinkShared> {
        match self {
            Self::Tcp(sink) => sink.shared(),
            Self::Kernel(sink) => sink.shared(),
            Self::Datagrams(sink) => sink.shared(),
        }
    }

    /// Asks the processor to have at hand what the turn touches that is `turns` turns away: what is reached by one pointer first,
    /// then what is reached through that. Without `ring`, what a record past the ring touches.
    pub(crate) fn prefetch(&self, turns: usize, ring: bool) {
        let Self::Tcp(sink) = self else { return };
        match turns {
            3 => prefetch(&**sink),
            2 => sink.prefetch_parts(ring),
            1 => sink.prefetch_far(),
            _ => {}
        }
    }

    /// Whether a producer has notified since the sink went to sleep.
    pub(crate) fn notified(&self) -> bool {
        match self {
            Self::Tcp(sink) => sink.notified(),
            Self::Kernel(sink) => sink.notified(),
            Self::Datagrams(sink) => sink.notified(),
        }
    }

    /// The socket has something to tell beside its room; see [`TcpSink::note`].
    pub(crate) fn note(&mut self) -> bool {
        match self {
            Self::Tcp(sink) => sink.note(),
            Self::Kernel(_) | Self::Datagrams(_) => false,
        }
    }

    pub(crate) fn turn(
        &mut self,
        now: Timestamp,
        scratch: &mut TcpScratch,
    ) -> Result<TurnOutcome, SinkError> {
        let next = match self {
            Self::Tcp(sink) => sink.turn(now, scratch),
            Self::Kernel(sink) => sink.turn(now, &mut scratch.shared),
            Self::Datagrams(sink) => sink.turn(now, &mut scratch.shared),
        };
        self.shared().note_change();
        next
    }

    /// Begins a turn whose first write may be made together with those of others, or adds its datagrams to the plan; see
    /// [`TcpSink::begin_turn`] and [`DatagramSink::begin_turn`].
    pub(crate) fn begin_turn(
        &mut self,
        now: Timestamp,
        plan: &mut DatagramPlan,
        scratch: &mut TcpScratch,
    ) -> Result<StartedTurn, SinkError> {
        let started = match self {
            Self::Tcp(sink) => {
                sink.begin_turn(now, scratch).map(|next| next.map_or(StartedTurn::Write, StartedTurn::Over))
            }
            Self::Kernel(_) => return self.turn(now, scratch).map(StartedTurn::Over),
            Self::Datagrams(sink) => {
                sink.begin_turn(now, plan, &mut scratch.shared).map(StartedTurn::Datagrams)
            }
        };
        if !matches!(started, Ok(StartedTurn::Write | StartedTurn::Datagrams(_))) {
            self.shared().note_change();
        }
        started
    }

    /// Adds what that write takes; see [`TcpSink::slices`].
    pub(crate) fn slices(&self, scratch: &mut TcpScratch, out: &mut Vec<IoSlice>) {
        if let Self::Tcp(sink) = self {
            sink.slices(scratch, out);
        }
    }

    /// The write of these slices, over plain TCP.
    pub(crate) fn gathered<'a>(&'a self, slices: &'a [IoSlice]) -> Option<GatheredWrite<'a>> {
        if let Self::Tcp(sink) = self { Some(sink.gathered(slices)) } else { None }
    }

    /// Ends such a turn; see [`TcpSink::end_turn`].
    pub(crate) fn end_turn(
        &mut self,
        now: Timestamp,
        sent: io::Result<Option<usize>>,
        scratch: &mut TcpScratch,
    ) -> Result<TurnOutcome, SinkError> {
        let Self::Tcp(sink) = self else { return self.turn(now, scratch) };
        let next = sink.end_turn(now, sent, scratch);
        self.shared().note_change();
        next
    }

    /// Ends a turn whose datagrams were planned; see [`DatagramSink::end_turn`].
    pub(crate) fn end_datagrams(
        &mut self,
        now: Timestamp,
        turn: PlannedTurn,
        sent: &[io::Result<usize>],
        scratch: &mut TcpScratch,
    ) -> Result<TurnOutcome, SinkError> {
        let Self::Datagrams(sink) = self else { return self.turn(now, scratch) };
        let next = sink.end_turn(now, turn, sent);
        self.shared().note_change();
        next
    }

    /// Begins the record past the ring if nothing is before it; see [`TcpSink::send_at_once`].
    pub(crate) fn send_at_once(
        &mut self,
        now: Timestamp,
        record: &Record,
        payload: &mut Payload,
        scratch: &mut TcpScratch,
    ) -> io::Result<OfferOutcome> {
        match self {
            Self::Tcp(sink) => sink.send_at_once(now, record, payload, scratch),
            Self::Kernel(_) => Ok(OfferOutcome::Declined),
            Self::Datagrams(sink) => sink.send_at_once(now, record, payload, &mut scratch.shared),
        }
    }

    /// Begins the record past the ring, to be written together with others where the sink can do that.
    pub(crate) fn plan_at_once(
        &mut self,
        now: Timestamp,
        record: &Record,
        payload: &Payload,
        plans: (&mut Plan, &mut DatagramPlan),
        scratch: &mut TcpScratch,
    ) -> io::Result<PlannedOffer> {
        Ok(match self {
            Self::Tcp(sink) => sink
                .plan_at_once(now, record, plans.0, scratch)?
                .map_or(PlannedOffer::Declined, PlannedOffer::Write),
            Self::Kernel(_) => PlannedOffer::Declined,
            Self::Datagrams(sink) => sink
                .plan_at_once(now, record, payload, plans.1, &mut scratch.shared)
                .map_or(PlannedOffer::Declined, PlannedOffer::Datagrams),
        })
    }

    /// Ends the datagrams of [`plan_at_once`](Self::plan_at_once).
    pub(crate) fn end_datagrams_at_once(
        &mut self,
        now: Timestamp,
        sent: &[io::Result<usize>],
    ) -> io::Result<OfferOutcome> {
        match self {
            Self::Datagrams(sink) => sink.end_at_once(now, sent),
            Self::Tcp(_) | Self::Kernel(_) => Ok(OfferOutcome::Declined),
        }
    }

    /// Ends the write of [`plan_at_once`](Self::plan_at_once).
    pub(crate) fn end_at_once(
        &mut self,
        now: Timestamp,
        write: &PlannedWrite,
        sent: Option<usize>,
        plan: &Plan,
        scratch: &mut TcpScratch,
    ) -> OfferOutcome {
        match self {
            Self::Tcp(sink) => sink.end_at_once(now, write, sent, plan, scratch),
            Self::Kernel(_) | Self::Datagrams(_) => OfferOutcome::Declined,
        }
    }

    /// Drops stale records until `has_room` returns `true`; see [`TcpSink::make_room`]. The kernel drops its own by itself.
    pub(crate) fn make_room(
        &mut self,
        now: Timestamp,
        newcomer: &Record,
        has_room: &mut dyn FnMut() -> bool,
        scratch: &mut TcpScratch,
    ) {
        match self {
            Self::Tcp(sink) => sink.make_room(now, newcomer, has_room, scratch),
            Self::Kernel(_) => {}
            Self::Datagrams(sink) => sink.make_room(now, newcomer, has_room, &mut scratch.shared),
        }
    }

    /// Keeps what is left of such a record; see [`TcpSink::hold_rest`].
    pub(crate) fn hold_rest(&mut self, index: u64, now: Timestamp) -> bool {
        match self {
            Self::Tcp(sink) => sink.hold_rest(index, now),
            Self::Kernel(_) | Self::Datagrams(_) => false,
        }
    }

    /// Queues bytes for the next place between two records. An error ends the sink.
    pub(crate) fn interject(&mut self, bytes: Vec<u8>) -> Result<(), SinkError> {
        let fits = match self {
            Self::Tcp(sink) => sink.interject(bytes),
            Self::Kernel(sink) => sink.interject(&bytes).ok_or(SinkError::CannotInterject)?,
            Self::Datagrams(_) => return Err(SinkError::CannotInterject),
        };
        if fits { Ok(()) } else { Err(SinkError::NotReading) }
    }

    /// Aborts at `instant` what is not delivered by then.
    pub(crate) fn give_up_at(&mut self, instant: Timestamp) {
        match self {
            Self::Tcp(sink) => sink.give_up_at(instant),
            Self::Kernel(sink) => sink.give_up_at(instant),
            Self::Datagrams(sink) => sink.give_up_at(instant),
        }
    }

    /// Finishes the record, sends `last`, and aborts if that takes longer than `linger`.
    pub(crate) fn leave(&mut self, last: Vec<u8>, linger: Duration, now: Timestamp) -> Result<(), SinkError> {
        self.give_up_at(now + linger);
        self.close(CloseMode::FinishRecord, now)?;
        if last.is_empty() { Ok(()) } else { self.interject(last) }
    }

    /// Begins to close. Returns true when the sink is at its end already.
    pub(crate) fn close(&mut self, mode: CloseMode, now: Timestamp) -> io::Result<bool> {
        match self {
            Self::Tcp(sink) => sink.close(mode, now),
            Self::Kernel(sink) => sink.close(mode, now),
            Self::Datagrams(sink) => Ok(sink.close(mode, now)),
        }
    }

    /// Whether its end was asked for before.
    pub(crate) fn is_closing(&self) -> bool {
        match self {
            Self::Tcp(sink) => sink.is_closing(),
            Self::Kernel(sink) => sink.is_closing(),
            Self::Datagrams(sink) => sink.is_closing(),
        }
    }

    /// Whether the stream was ended and only acknowledgements are awaited.
    pub(crate) fn is_flushing(&self) -> bool {
        match self {
            Self::Tcp(sink) => sink.is_flushing(),
            Self::Kernel(sink) => sink.is_flushing(),
            Self::Datagrams(_) => false,
        }
    }

    /// Whether the stream was ended and all of it acknowledged.
    pub(crate) fn is_delivered(&mut self, now: Timestamp) -> bool {
        match self {
            Self::Tcp(sink) => sink.is_delivered(now),
            Self::Kernel(sink) => sink.is_delivered(),
            Self::Datagrams(_) => false,
        }
    }

    /// Resolves every record that is left, closes the socket and says how the sink ended.
    pub(crate) fn end(self, reason: Reason, now: Timestamp, ended: Ended) {
        match self {
            Self::Tcp(sink) => sink.leave(reason, now, ended),
            Self::Kernel(sink) => sink.end(reason, now, ended),
            Self::Datagrams(mut sink) => {
                sink.end(reason, now);
                let shared = Arc::clone(sink.shared());
                // A wait for the end may use the ring again.
                drop(sink);
                shared.end(ended);
            }
        }
    }
}

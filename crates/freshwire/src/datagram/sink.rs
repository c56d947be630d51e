//! A sink over datagrams: the same ring, policy and framing as over TCP; the path says when the next packet may leave.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use freshwire_choice::{LinkView, Reason, Record};
use freshwire_media::framing::Piece;
use freshwire_record::Timestamp;
use freshwire_ring::{Consumer, Taken};

use super::leaving::{LOOK as NOTE_LOOK, Leaving};
use super::path::DatagramPath;
use crate::sink::config::SinkConfig;
use crate::sink::ended::{CloseMode, SinkError};
use crate::sink::shared::SinkShared;
use crate::turn::Scratch;
use crate::turn::datagrams::{DatagramPlan, PacketPieces, Source};
use crate::turn::offer::Payload;
use crate::turn::queue::{Pick, RecordQueue, part_within};
use crate::turn::{MAX_SLEEP, OfferOutcome, TurnOutcome};

/// How many pieces one sink sends before the engine turns to the next one.
const PIECES_PER_TURN: usize = 256;

/// Bytes of packets that are handed to the path together.
const PACKETS_BYTES: usize = 16 << 10;

/// How often the statistics follow the path.
const LOOK: std::time::Duration = std::time::Duration::from_millis(100);

pub(crate) struct DatagramSink {
    path: Box<dyn DatagramPath>,
    queue: RecordQueue,
    /// The record in progress, and behind it the one that overtook it.
    opened: Vec<OpenRecord>,
    /// Records whose last packet is planned.
    planned: Vec<Taken>,
    /// If fates say when records departed.
    leaving: Option<Leaving>,
    looked_at: Timestamp,
    is_closing: bool,
    give_up_at: Timestamp,
}

/// A turn whose datagrams are planned.
pub(crate) struct PlannedTurn {
    next: TurnOutcome,
    /// Places of these datagrams among all that are planned.
    sends: Range<usize>,
}

/// A record of which packets are left.
struct OpenRecord {
    taken: Taken,
    /// Where the payload ends that has been sent.
    sent: u32,
}

impl DatagramSink {
    pub(crate) fn new(
        path: Box<dyn DatagramPath>,
        consumer: Consumer,
        config: SinkConfig,
        shared: Arc<SinkShared>,
    ) -> Self {
        let leaving = config.departures.then(Leaving::default);
        Self {
            path,
            leaving,
            queue: RecordQueue::new(consumer, config.policy, config.framer, shared),
            opened: Vec::new(),
            planned: Vec::new(),
            looked_at: Timestamp::ZERO,
            is_closing: false,
            give_up_at: Timestamp::MAX,
        }
    }

    pub(crate) fn shared(&self) -> &Arc<SinkShared> {
        &self.queue.shared
    }

    pub(crate) fn notified(&self) -> bool {
        self.queue.consumer.notified()
    }

    /// Sends as much as policy and path allow.
    pub(crate) fn turn(&mut self, now: Timestamp, scratch: &mut Scratch) -> Result<TurnOutcome, SinkError> {
        let mut plan = scratch.take_datagrams();
        let planned = self.begin_turn(now, &mut plan, scratch);
        let mut sent = Vec::new();
        // Without a batch there is none that fails.
        let _ = plan.send(None, None, &mut sent);
        scratch.datagrams = plan;
        self.end_turn(now, planned?, &sent)
    }

    /// Begins a turn: plans what policy and path allow. It is to be sent, and [`end_turn`](Self::end_turn) follows.
    pub(crate) fn begin_turn(
        &mut self,
        now: Timestamp,
        plan: &mut DatagramPlan,
        scratch: &mut Scratch,
    ) -> Result<PlannedTurn, SinkError> {
        if now >= self.give_up_at {
            return Err(SinkError::Lingered);
        }
        let begin = plan.next_send();
        let next = self.send(now, plan, scratch);
        Ok(PlannedTurn { next, sends: begin..plan.next_send() })
    }

    /// Ends a turn, of whose datagrams the system has taken `sent`.
    pub(crate) fn end_turn(
        &mut self,
        now: Timestamp,
        turn: PlannedTurn,
        sent: &[io::Result<usize>],
    ) -> Result<TurnOutcome, SinkError> {
        let PlannedTurn { next, sends } = turn;
        self.handed_over(sent.get(sends).unwrap_or_default());
        for taken in self.planned.drain(..) {
            // Fails only if the other side overwrote the state of a taken slot; the ring has counted that.
            let _ = self.queue.consumer.finish_for_good(&taken, now);
        }
        self.flush(now)?;
        self.note_departures(now)?;
        let is_leaving = self.is_leaving();
        let latest = if is_leaving { self.give_up_at.min(now + NOTE_LOOK) } else { self.give_up_at };
        Ok(match next {
            TurnOutcome::Ended if is_leaving => TurnOutcome::Push(latest),
            TurnOutcome::Time(at) => TurnOutcome::Time(at.min(latest)),
            TurnOutcome::Push(at) => TurnOutcome::Push(at.min(latest)),
            next => next,
        })
    }

    /// Takes note of what the system has taken of planned datagrams. One that it refuses is lost like one in the network.
    fn handed_over(&self, sent: &[io::Result<usize>]) {
        if !sent.is_empty() {
            let bytes = sent.iter().flatten().map(|&bytes| bytes as u64).sum();
            self.queue.shared.stats.on_writes(sent.len() as u64, bytes);
        }
    }

    fn is_leaving(&self) -> bool {
        self.leaving.as_ref().is_some_and(|leaving| !leaving.is_empty())
    }

    /// Takes over what the path has noted of departures.
    fn note_departures(&mut self, now: Timestamp) -> io::Result<()> {
        let Self { path, queue, leaving: Some(leaving), .. } = self else { return Ok(()) };
        if !leaving.is_empty() {
            path.departures(leaving.notes())?;
            leaving.settle(now, &mut queue.consumer, &queue.shared);
        }
        Ok(())
    }

    fn send(&mut self, now: Timestamp, plan: &mut DatagramPlan, scratch: &mut Scratch) -> TurnOutcome {
        let mut may_overtake = true;
        for _ in 0..PIECES_PER_TURN {
            let ready = self.path.ready_at(now, 1);
            if ready > now {
                return TurnOutcome::Time(ready);
            }
            if self.opened.is_empty() {
                if !self.pick(now, plan, scratch) {
                    return self.rest(now);
                }
            } else if may_overtake && self.queue.framer.can_be_overtaken() {
                may_overtake = self.overtake(now, scratch);
            }
            self.send_piece(now, plan, scratch);
        }
        TurnOutcome::Again
    }

    /// Sends the next piece of the record in progress.
    fn send_piece(&mut self, now: Timestamp, plan: &mut DatagramPlan, scratch: &mut Scratch) {
        let Self { path, queue, opened, planned, leaving, .. } = self;
        let Some(open) = opened.last_mut() else { return };
        let (record, source) = (open.taken.record, Source::Ring(&queue.consumer, &open.taken));
        let first = plan.next_piece();
        let (begin, head) = plan.begin_piece();
        let piece = queue.framer.next(usize::MAX, head);
        let is_last = piece.as_ref().is_none_or(|piece| piece.last);
        if let Some(Piece { payload, .. }) = piece {
            let (start, len) = part_within(&payload, record.len);
            plan.end_piece(begin, (start, len), source);
            open.sent = open.sent.max(start + len);
        }
        let mut pieces = plan.pieces_from(first, source);
        let noted = leaving.as_mut().filter(|_| is_last && !pieces.is_empty());
        match &noted {
            Some(leaving) => {
                scratch.head.clear();
                pieces.copy(&mut scratch.head);
                path.send_last(now, &record, &scratch.head, leaving.next_id());
            }
            None => hand_to(path.as_mut(), now, Some(&record), &mut pieces, scratch),
        }
        if is_last && let Some(OpenRecord { taken, .. }) = opened.pop() {
            match noted {
                Some(leaving) => leaving.add(taken, now),
                None => planned.push(taken),
            }
            queue.shared.stats.on_finished();
        }
    }

    fn flush(&mut self, now: Timestamp) -> io::Result<()> {
        let flushed = self.path.flush(now)?;
        if flushed.calls > 0 {
            self.queue.shared.stats.on_writes(flushed.calls, flushed.bytes);
        }
        if now < self.looked_at + LOOK {
            return Ok(());
        }
        self.looked_at = now;
        let (known, view) = (self.path.known(), self.path.view(now, 0));
        let invalid = self.queue.consumer.counters().bad_values();
        self.queue.shared.stats.on_acked(known.acked);
        self.queue.shared.stats.on_repairs(known.repaired, known.late_repairs);
        self.queue.shared.stats.on_look(0, view.rate, known.rate, (view.rtt, view.min_rtt), invalid);
        Ok(())
    }

    /// Nothing is to be sent now: sleeps until a push or a time that the policy named.
    fn rest(&mut self, now: Timestamp) -> TurnOutcome {
        if self.is_closing && self.queue.ask_again_at == Timestamp::MAX {
            return TurnOutcome::Ended;
        }
        if !self.queue.consumer.sleep() {
            return TurnOutcome::Again;
        }
        TurnOutcome::Push(self.queue.ask_again_at.min(now + MAX_SLEEP))
    }

    /// Commits the record that the policy names. False: there is none for now.
    fn pick(&mut self, now: Timestamp, plan: &mut DatagramPlan, scratch: &mut Scratch) -> bool {
        let Self { queue, path, opened, .. } = self;
        let picked = queue.pick(now, || view(path.as_ref(), opened, now), scratch);
        self.replace(now, plan, scratch);
        let Some(Pick { taken, .. }) = picked else { return false };
        self.begin(taken, now);
        true
    }

    /// Commits a record that the policy wants before the rest of the open one. False: there is none.
    fn overtake(&mut self, now: Timestamp, scratch: &mut Scratch) -> bool {
        let Some(open) = self.opened.first().map(|opened| opened.taken.record) else { return false };
        let Some(taken) = self.queue.overtake(now, &open, scratch) else { return false };
        self.begin(taken, now);
        true
    }

    fn begin(&mut self, taken: Taken, now: Timestamp) {
        self.queue.commit(&taken, now, 0);
        self.opened.push(OpenRecord { taken, sent: 0 });
    }

    /// Sends what the receiver gets in the place of records that were dropped.
    fn replace(&mut self, now: Timestamp, plan: &mut DatagramPlan, scratch: &mut Scratch) {
        let first = plan.next_piece();
        let (begin, head) = plan.begin_piece();
        let replaced = self.queue.framer.replace(head);
        if replaced > 0 {
            plan.end_piece(begin, (0, 0), Source::Heads);
            let mut pieces = plan.pieces_from(first, Source::Heads);
            hand_to(self.path.as_mut(), now, None, &mut pieces, scratch);
            self.queue.shared.stats.on_replaced(replaced as u64);
        }
    }

    /// Sends a record past the ring if it would be the next one now and the path takes all of it in one burst.
    pub(crate) fn send_at_once(
        &mut self,
        now: Timestamp,
        record: &Record,
        payload: &Payload,
        scratch: &mut Scratch,
    ) -> io::Result<OfferOutcome> {
        let mut plan = scratch.take_datagrams();
        let planned = self.plan_at_once(now, record, payload, &mut plan, scratch);
        let mut sent = Vec::new();
        if planned.is_some() {
            // Without a batch there is none that fails.
            let _ = plan.send(None, Some(payload), &mut sent);
        }
        scratch.datagrams = plan;
        match planned {
            Some(sends) => self.end_at_once(now, sent.get(sends).unwrap_or_default()),
            None => Ok(OfferOutcome::Declined),
        }
    }

    /// Begins the record as [`send_at_once`](Self::send_at_once) does, and leaves its datagrams to the caller, who sends these.
    /// [`end_at_once`](Self::end_at_once) follows. `None`: it has to go through the ring.
    pub(crate) fn plan_at_once(
        &mut self,
        now: Timestamp,
        record: &Record,
        payload: &Payload,
        plan: &mut DatagramPlan,
        scratch: &mut Scratch,
    ) -> Option<Range<usize>> {
        // Past the ring there is no fate to note a departure in.
        let is_idle = self.leaving.is_none()
            && self.opened.is_empty()
            && !self.is_closing
            && self.queue.consumer.is_empty();
        if !is_idle || self.path.ready_at(now, u64::from(record.len)) > now {
            return None;
        }
        if self.queue.consumer.has_untold() {
            self.queue.report_drops_by_others(scratch);
        }
        let view = self.path.view(now, 0);
        if !self.queue.wants(now, record, &view) {
            return None;
        }
        let begin = plan.next_send();
        self.replace(now, plan, scratch);
        self.queue.announce(record, now);
        let (first, source) = (plan.next_piece(), Source::Payload(payload));
        loop {
            let (begin, head) = plan.begin_piece();
            let Some(Piece { payload: body, last, .. }) = self.queue.framer.next(usize::MAX, head) else {
                break;
            };
            plan.end_piece(begin, part_within(&body, record.len), source);
            if last {
                break;
            }
        }
        let mut pieces = plan.pieces_from(first, source);
        hand_to(self.path.as_mut(), now, Some(record), &mut pieces, scratch);
        Some(begin..plan.next_send())
    }

    /// Ends such a record, of whose datagrams the system has taken `sent`.
    pub(crate) fn end_at_once(
        &mut self,
        now: Timestamp,
        sent: &[io::Result<usize>],
    ) -> io::Result<OfferOutcome> {
        self.handed_over(sent);
        self.queue.shared.stats.on_finished();
        self.flush(now)?;
        Ok(OfferOutcome::Sent(now + MAX_SLEEP))
    }

    /// See [`RecordQueue::make_room`].
    pub(crate) fn make_room(
        &mut self,
        now: Timestamp,
        newcomer: &Record,
        has_room: &mut dyn FnMut() -> bool,
        scratch: &mut Scratch,
    ) {
        self.queue.make_room(now, newcomer, has_room, scratch);
    }

    pub(crate) fn give_up_at(&mut self, instant: Timestamp) {
        self.give_up_at = instant;
    }

    /// Begins to close. Returns true when the sink is at its end already.
    pub(crate) fn close(&mut self, mode: CloseMode, now: Timestamp) -> bool {
        match mode {
            CloseMode::Drain => {}
            CloseMode::FinishRecord => {
                self.queue.consumer.refuse(Reason::Closed, now);
            }
            CloseMode::Abort => {
                self.end(Reason::Closed, now);
                return true;
            }
        }
        self.is_closing = true;
        false
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.is_closing
    }

    /// Resolves every record that is left.
    pub(crate) fn end(&mut self, reason: Reason, now: Timestamp) {
        if let Some(leaving) = &mut self.leaving {
            leaving.end(&mut self.queue.consumer, &self.queue.shared);
        }
        for opened in self.opened.drain(..) {
            // Fails only if the other side overwrote the state of a taken slot; the ring has counted that.
            let _ = self.queue.consumer.abandon(&opened.taken, reason, now);
        }
        self.queue.consumer.close(reason, now);
    }
}

/// Gives pieces to a path, copies of them if it wants copies.
fn hand_to(
    path: &mut dyn DatagramPath,
    now: Timestamp,
    record: Option<&Record>,
    pieces: &mut PacketPieces<'_>,
    scratch: &mut Scratch,
) {
    if pieces.is_empty() || path.gather(now, record, pieces) {
        return;
    }
    scratch.head.clear();
    for place in pieces.places() {
        pieces.copy_piece(place, &mut scratch.head);
        if scratch.head.len() >= PACKETS_BYTES {
            path.send(now, record, &scratch.head);
            scratch.head.clear();
        }
    }
    if !scratch.head.is_empty() {
        path.send(now, record, &scratch.head);
    }
}

/// The path as the policy sees it.
fn view(path: &dyn DatagramPath, opened: &[OpenRecord], now: Timestamp) -> LinkView {
    let left = |opened: &OpenRecord| u64::from(opened.taken.record.len.saturating_sub(opened.sent));
    path.view(now, opened.iter().map(left).sum())
}

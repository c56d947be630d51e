//! A sink over datagrams: the same ring, policy and framing as over TCP; the path says when the next packet may leave.

use std::io;
use std::sync::Arc;

use freshwire_choice::{Choice, Decision, LinkView, Outcome, Reason, Record};
use freshwire_media::framing::{Framer, Piece};
use freshwire_record::Timestamp;
use freshwire_ring::{Consumer, Taken};

use super::path::DatagramPath;
use crate::engine::listing::{PAST_WAIT, PICKS_PER_TURN, list, tell_dropped};
use crate::engine::offer::Payload;
use crate::engine::turn::Scratch;
use crate::engine::turn::{AtOnce, MAX_SLEEP, Next};
use crate::sink::config::SinkConfig;
use crate::sink::ended::{CloseMode, SinkError};
use crate::sink::shared::SinkShared;

/// How many pieces one sink sends before the engine turns to the next one.
const PIECES_PER_TURN: usize = 256;

/// Bytes of packets that are handed to the path together.
const PACKETS_BYTES: usize = 16 << 10;

/// How often the statistics follow the path.
const LOOK: std::time::Duration = std::time::Duration::from_millis(100);

pub(crate) struct DatagramSink {
    path: Box<dyn DatagramPath>,
    consumer: Consumer,
    choice: Box<dyn Choice>,
    framer: Box<dyn Framer>,
    /// The record in progress, and behind it the one that overtook it.
    opened: Vec<Opened>,
    ask_again_at: Timestamp,
    looked_at: Timestamp,
    is_closing: bool,
    give_up_at: Timestamp,
    shared: Arc<SinkShared>,
}

/// A record of which packets are left.
struct Opened {
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
        Self {
            path,
            consumer,
            choice: config.policy,
            framer: config.framer,
            opened: Vec::new(),
            ask_again_at: Timestamp::MAX,
            looked_at: Timestamp::ZERO,
            is_closing: false,
            give_up_at: Timestamp::MAX,
            shared,
        }
    }

    pub(crate) fn shared(&self) -> &Arc<SinkShared> {
        &self.shared
    }

    pub(crate) fn notified(&self) -> bool {
        self.consumer.notified()
    }

    /// Sends as much as policy and path allow.
    pub(crate) fn turn(&mut self, now: Timestamp, scratch: &mut Scratch) -> Result<Next, SinkError> {
        if now >= self.give_up_at {
            return Err(SinkError::Lingered);
        }
        let next = self.send(now, scratch);
        self.flush(now)?;
        Ok(match next {
            Next::Time(at) => Next::Time(at.min(self.give_up_at)),
            Next::Push(at) => Next::Push(at.min(self.give_up_at)),
            next => next,
        })
    }

    fn send(&mut self, now: Timestamp, scratch: &mut Scratch) -> Next {
        let mut may_overtake = true;
        for _ in 0..PIECES_PER_TURN {
            let ready = self.path.ready_at(now, 1);
            if ready > now {
                return Next::Time(ready);
            }
            if self.opened.is_empty() {
                if !self.pick(now, scratch) {
                    self.replace(now, scratch);
                    return self.rest(now);
                }
            } else if may_overtake && self.framer.can_be_overtaken() {
                may_overtake = self.overtake(now, scratch);
            }
            self.send_piece(now, scratch);
        }
        Next::Again
    }

    /// Sends the next piece of the record in progress.
    fn send_piece(&mut self, now: Timestamp, scratch: &mut Scratch) {
        let Some(opened) = self.opened.last_mut() else { return };
        scratch.head.clear();
        let piece = self.framer.next(usize::MAX, &mut scratch.head);
        let is_last = piece.as_ref().is_none_or(|piece| piece.last);
        if let Some(Piece { payload, .. }) = piece {
            let end = payload.end.min(opened.taken.record.len);
            let start = payload.start.min(end);
            self.consumer.copy(&opened.taken, start, (end - start) as usize, &mut scratch.head);
            opened.sent = opened.sent.max(end);
        }
        if !scratch.head.is_empty() {
            self.path.send(now, Some(&opened.taken.record), &scratch.head);
        }
        if is_last && let Some(Opened { taken, .. }) = self.opened.pop() {
            // Fails only if the other side overwrote the state of a taken slot; the ring has counted that.
            let _ = self.consumer.finish_for_good(&taken, now);
            self.shared.stats.on_finished();
        }
    }

    fn flush(&mut self, now: Timestamp) -> io::Result<()> {
        let flushed = self.path.flush(now)?;
        if flushed.calls > 0 {
            self.shared.stats.on_writes(flushed.calls, flushed.bytes);
        }
        if now < self.looked_at + LOOK {
            return Ok(());
        }
        self.looked_at = now;
        let (known, view) = (self.path.known(), self.path.view(now, 0));
        let invalid = self.consumer.counters().bad_values();
        self.shared.stats.on_acked(known.acked);
        self.shared.stats.on_repairs(known.repaired, known.late_repairs);
        self.shared.stats.on_look(0, view.rate, known.rate, (view.rtt, view.min_rtt), invalid);
        Ok(())
    }

    /// Nothing is to be sent now: sleeps until a push or a time that the policy named.
    fn rest(&mut self, now: Timestamp) -> Next {
        if self.is_closing && self.ask_again_at == Timestamp::MAX {
            return Next::Ended;
        }
        if !self.consumer.sleep() {
            return Next::Again;
        }
        Next::Push(self.ask_again_at.min(now + MAX_SLEEP))
    }

    fn view(&self, now: Timestamp) -> LinkView {
        let left = |opened: &Opened| u64::from(opened.taken.record.len.saturating_sub(opened.sent));
        self.path.view(now, self.opened.iter().map(left).sum())
    }

    /// Asks the policy until it names a record that is still there, and begins that one, as over TCP.
    fn pick(&mut self, now: Timestamp, scratch: &mut Scratch) -> bool {
        self.ask_again_at = Timestamp::MAX;
        for _ in 0..PICKS_PER_TURN {
            list(&mut self.consumer, self.choice.as_mut(), &self.shared.stats, scratch);
            let records = &scratch.records;
            if records.is_empty() {
                return false;
            }
            let view = self.view(now);
            match self.choice.pick(now, records, &view) {
                Decision::Wait(until) => {
                    let until = until.unwrap_or(Timestamp::MAX);
                    self.ask_again_at = if until > now { until } else { now + PAST_WAIT };
                    return false;
                }
                Decision::Drop(place, reason) => {
                    let Some(&record) = records.get(place) else { return false };
                    self.discard(&record, place, reason, now);
                }
                Decision::Send(place) => {
                    let Some(record) = records.get(place) else { return false };
                    if let Ok(taken) = self.consumer.take(record.index) {
                        self.replace(now, scratch);
                        self.begin(taken, now);
                        return true;
                    }
                }
            }
        }
        self.ask_again_at = now + PAST_WAIT;
        false
    }

    /// Begins a record that the policy wants before the rest of the one in progress; false if there is none.
    fn overtake(&mut self, now: Timestamp, scratch: &mut Scratch) -> bool {
        let Some(open) = self.opened.first().map(|opened| opened.taken.record) else {
            return false;
        };
        list(&mut self.consumer, self.choice.as_mut(), &self.shared.stats, scratch);
        let may = |record: &&Record| {
            self.choice.overtakes(now, record, &open) && self.framer.can_overtake(record.seq)
        };
        let Some(index) = scratch.records.iter().find(may).map(|record| record.index) else { return false };
        let Ok(taken) = self.consumer.take(index) else { return false };
        self.begin(taken, now);
        true
    }

    fn begin(&mut self, taken: Taken, now: Timestamp) {
        // It may have been modified or replaced since the policy saw it.
        let record = taken.record;
        self.consumer.commit(&taken, now, 0);
        self.announce(&record, now);
        self.opened.push(Opened { taken, sent: 0 });
    }

    fn announce(&mut self, record: &Record, now: Timestamp) {
        self.choice.outcome(record, Outcome::Sent);
        self.shared.stats.on_committed(record.layer, now.saturating_since(record.generated));
        self.framer.begin(record.seq, record.len);
    }

    /// Sends what the receiver gets in the place of records that were dropped.
    fn replace(&mut self, now: Timestamp, scratch: &mut Scratch) {
        scratch.head.clear();
        let replaced = self.framer.replace(&mut scratch.head);
        if replaced > 0 {
            self.path.send(now, None, &scratch.head);
            self.shared.stats.on_replaced(replaced as u64);
        }
    }

    /// Drops a record that the policy has named; too late means that somebody else edits or dropped it.
    fn discard(&mut self, record: &Record, place: usize, reason: Reason, now: Timestamp) {
        if self.consumer.discard(record.index, reason, now).is_err() {
            return;
        }
        tell_dropped(self.choice.as_mut(), &self.shared.stats, *record, reason);
        if place == 0 {
            self.framer.missed(record.seq);
        }
    }

    /// Sends a record past the ring if it would be the next one now and the path takes all of it in one burst.
    pub(crate) fn send_at_once(
        &mut self,
        now: Timestamp,
        record: &Record,
        payload: &mut Payload,
        scratch: &mut Scratch,
    ) -> io::Result<AtOnce> {
        let is_idle = self.opened.is_empty()
            && !self.is_closing
            && self.consumer.is_empty()
            && !self.consumer.has_untold();
        if !is_idle || self.path.ready_at(now, u64::from(record.len)) > now {
            return Ok(AtOnce::Not);
        }
        let view = self.path.view(now, 0);
        if self.choice.pick(now, std::slice::from_ref(record), &view) != Decision::Send(0) {
            return Ok(AtOnce::Not);
        }
        self.replace(now, scratch);
        self.announce(record, now);
        scratch.head.clear();
        loop {
            let piece = self.framer.next(usize::MAX, &mut scratch.head);
            let is_last = piece.as_ref().is_none_or(|piece| piece.last);
            if let Some(Piece { payload: body, .. }) = piece {
                let end = body.end.min(record.len);
                let start = body.start.min(end);
                scratch.head.extend_from_slice(payload.bytes(start, end - start));
            }
            if scratch.head.len() >= PACKETS_BYTES || (is_last && !scratch.head.is_empty()) {
                self.path.send(now, Some(record), &scratch.head);
                scratch.head.clear();
            }
            if is_last {
                break;
            }
        }
        self.shared.stats.on_finished();
        self.flush(now)?;
        Ok(AtOnce::Whole(now + MAX_SLEEP))
    }

    /// Drops what the policy calls of no more use, until `has_room` says so.
    pub(crate) fn make_room(
        &mut self,
        now: Timestamp,
        newcomer: &Record,
        has_room: &mut dyn FnMut() -> bool,
        scratch: &mut Scratch,
    ) {
        for _ in 0..self.consumer.region().config().slots {
            self.consumer.queue(usize::MAX, &mut scratch.records);
            let Some((place, reason)) = self.choice.stale(now, &scratch.records, newcomer) else { return };
            let Some(&record) = scratch.records.get(place) else { return };
            self.discard(&record, place, reason, now);
            if has_room() {
                return;
            }
        }
    }

    pub(crate) fn give_up_at(&mut self, instant: Timestamp) {
        self.give_up_at = instant;
    }

    /// Begins to close. Returns true when the sink is at its end already.
    pub(crate) fn close(&mut self, mode: CloseMode, now: Timestamp) -> bool {
        match mode {
            CloseMode::Drain => {}
            CloseMode::FinishRecord => {
                self.consumer.refuse(Reason::Closed, now);
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
        for opened in self.opened.drain(..) {
            // Fails only if the other side overwrote the state of a taken slot; the ring has counted that.
            let _ = self.consumer.abandon(&opened.taken, reason, now);
        }
        self.consumer.close(reason, now);
    }
}

//! From the application's ring to the kernel's: what the policy chooses, as late as the kernel's own ring permits.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use freshwire_choice::{Choice, Decision, Outcome, Reason, Record};
use freshwire_io::kernel_ring::RingSocket;
use freshwire_media::framing::Framer;
use freshwire_record::Timestamp;
use freshwire_ring::{Consumer, Meta, Producer, PushError, RecordStatus, Stage, Taken};

use crate::sink::reserve::Reserve;
use crate::sink::shared::SinkShared;
use crate::stats::SinkStats;
use crate::tcp::estimate::Estimate;
use crate::turn::Scratch;
use crate::turn::queue::{PAST_WAIT, PICKS_PER_TURN, list, report_dropped};
use crate::turn::{MAX_SLEEP, TurnOutcome};

/// How often acknowledgements are looked for: a quarter round trip within this.
const ACK_WATCH: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(25));

/// A segment waits in the kernel's ring, but no more than this where a segment is larger, as on loopback.
const MAX_WAITING: u32 = 4 << 10;

/// The parts of a feed.
pub(crate) struct Parts {
    pub(crate) consumer: Consumer,
    pub(crate) producer: Producer,
    pub(crate) choice: Box<dyn Choice>,
    pub(crate) framer: Box<dyn Framer>,
    pub(crate) reserve: Reserve,
    pub(crate) queue_target: Option<Duration>,
    pub(crate) congestion: String,
}

/// Keeps about a segment's worth of chosen records in the kernel's ring. Records that the kernel has not committed are taken back
/// when something changes, and chosen anew.
pub(crate) struct Feed {
    parts: Parts,
    estimate: Estimate,
    /// The records in the kernel's ring, in its order.
    offered: VecDeque<KernelRecord>,
    ask_again_at: Timestamp,
    /// `LDC_LOWAT` as it is set.
    wanted: u32,
    /// The queue was looked at and nothing is to be sent.
    idle: bool,
    framed: Vec<u8>,
    acked: u64,
}

/// One record of the kernel's ring.
struct KernelRecord {
    index: u64,
    slots: u32,
    bytes: u64,
    stage: Stage,
    committed: bool,
    /// `None` for bytes of no record, and for a record that was taken back.
    record: Option<(Taken, Record)>,
}

impl Feed {
    pub(crate) fn new(parts: Parts) -> Self {
        Self {
            parts,
            estimate: Estimate::default(),
            offered: VecDeque::new(),
            ask_again_at: Timestamp::MAX,
            wanted: 1,
            idle: false,
            framed: Vec::new(),
            acked: 0,
        }
    }

    pub(crate) fn notified(&self) -> bool {
        self.parts.consumer.notified()
    }

    /// Whether the policy wants nothing more of the queue, and the kernel has sent what it was given.
    pub(crate) fn is_idle(&self) -> bool {
        self.idle && self.offered.iter().all(|offered| !offered.is_unfinished())
    }

    /// Puts bytes of no record behind what was offered. False: there is no room.
    pub(crate) fn interject(&mut self, bytes: &[u8], socket: &RingSocket) -> bool {
        self.framed.clear();
        self.framed.extend_from_slice(bytes);
        let Ok(index) = self.push(&Meta::default()) else { return false };
        self.note(index, None);
        if self.parts.producer.wake_needed(0) {
            // Fails when the sending direction has ended, which the poller reports to the engine.
            let _ended = socket.notify();
        }
        true
    }

    /// Notes what the kernel did, and gives it what the policy chooses next.
    pub(crate) fn turn(
        &mut self,
        now: Timestamp,
        socket: &RingSocket,
        shared: &SinkShared,
        scratch: &mut Scratch,
    ) -> io::Result<TurnOutcome> {
        let stats = &shared.stats;
        let info = socket.tcp().info()?;
        self.estimate.update(now, info);
        if let Some(queue) = self.parts.queue_target {
            self.estimate.watch(queue);
        }
        self.settle(now, shared);
        let rate = self.estimate.rate(now);
        let reserve = self.parts.reserve.bytes(&self.parts.congestion, &info, rate);
        let goal = reserve.max(info.mss.min(MAX_WAITING));
        let path = self.estimate.path_rate(now);
        let round_trips = (info.rtt, info.min_rtt);
        stats.on_look(goal, rate, path, round_trips, self.parts.consumer.counters().bad_values());
        stats.on_horizon(u64::from(info.unsent));
        self.reconsider(now, stats, scratch);
        let held_back = !self.fill(now, u64::from(goal), stats, scratch);
        if self.parts.producer.wake_needed(0) {
            socket.notify()?;
        }
        if held_back {
            self.estimate.hold();
            return Ok(TurnOutcome::Time(self.soon(now)));
        }
        self.want_slots(socket)?;
        if !self.parts.consumer.sleep() {
            return Ok(TurnOutcome::Again);
        }
        let wake_at = self.ask_again_at.min(now + MAX_SLEEP);
        Ok(match self.offered.is_empty() {
            true => TurnOutcome::Push(wake_at),
            false if self.unfinished_slots() == 0 => TurnOutcome::Push(wake_at.min(self.soon(now))),
            false => TurnOutcome::Room(wake_at.min(self.soon(now))),
        })
    }

    /// Says of each record that was offered what the kernel has done with it.
    pub(crate) fn settle(&mut self, now: Timestamp, shared: &SinkShared) {
        for at in 0..self.offered.len() {
            let index = self.offered[at].index;
            match self.parts.producer.status(0, index) {
                Some(status) => self.follow(at, status, now, shared),
                None => {
                    debug_assert!(false, "slots are used again only when their record has left this list")
                }
            }
        }
        while self.offered.front().is_some_and(KernelRecord::is_over) {
            self.offered.pop_front();
            // This fate was followed already. The call frees the slots.
            let _followed = self.parts.producer.poll_fate(0);
        }
        shared.stats.on_acked(self.acked);
    }

    fn follow(&mut self, at: usize, status: RecordStatus, now: Timestamp, shared: &SinkShared) {
        let stats = &shared.stats;
        let Parts { consumer, choice, .. } = &mut self.parts;
        let offered = &mut self.offered[at];
        let was = std::mem::replace(&mut offered.stage, status.stage);
        let handed_over = is_handed_over(status.stage);
        let ended_at = status.finished_at.unwrap_or(now);
        let first_end = handed_over && !is_handed_over(was);
        let first_ack = status.stage == ACKED && was != ACKED;
        if first_end {
            stats.on_write(offered.bytes);
        }
        self.acked += if first_ack { offered.bytes } else { 0 };
        let Some((taken, record)) = &offered.record else { return };
        if !offered.committed && (status.committed_at.is_some() || handed_over) {
            offered.committed = true;
            let committed_at = status.committed_at.unwrap_or(ended_at);
            consumer.commit(taken, committed_at, status.horizon);
            choice.outcome(record, Outcome::Sent);
            stats.on_committed(record.layer, committed_at.saturating_since(record.generated));
        }
        // Ends fail only if the other side overwrote the state of a taken slot; the ring has counted that.
        if first_end {
            let _ = consumer.finish(taken, ended_at);
            stats.on_finished();
        }
        if first_ack {
            let at = status.acked_at.unwrap_or(now);
            if consumer.acked(taken.record.index, at).is_err() {
                // The producer has reused the slot.
                shared.late_acks().add(taken.record.index, Some(at));
            }
        }
        if let (Some(reason), None) = (dropped(status.stage), dropped(was)) {
            let _ = consumer.abandon(taken, reason, ended_at);
            report_dropped(choice.as_mut(), stats, *record, reason);
        }
    }

    /// Asks the policy whether what waits in the kernel's ring is still what it would send next; from where it is not, what
    /// waits is taken back.
    fn reconsider(&mut self, now: Timestamp, stats: &SinkStats, scratch: &mut Scratch) {
        let is_waiting = |offered: &&KernelRecord| offered.stage == Stage::Waiting;
        let waiting = self.offered.iter().filter(is_waiting).filter_map(|offered| offered.record.as_ref());
        let waiting: Vec<Record> = waiting.map(|(_, record)| *record).collect();
        // A record that is taken back keeps its slots until all before it are acknowledged: some slots are left for others.
        let is_crowded = self.used_slots() > self.parts.producer.region().config().slots / 2;
        if waiting.is_empty() || is_crowded || self.parts.choice.is_in_order() {
            return;
        }
        list(&mut self.parts.consumer, self.parts.choice.as_mut(), stats, scratch);
        let records = &mut scratch.records;
        records.extend(&waiting);
        records.sort_unstable_by_key(|record| record.index);
        let mut committed = u64::from(self.estimate.info().unsent);
        for record in waiting {
            let view = self.estimate.view(now, committed);
            match self.parts.choice.pick(now, records, &view) {
                Decision::Send(place) if records.get(place) == Some(&record) => records.remove(place),
                _ => return self.take_back(record.index, now),
            };
            committed += u64::from(record.len);
        }
    }

    /// Takes back the record at `first` of the application's ring and the records offered after it, newest
    /// first. Records that the kernel has committed stay there; the others are ready again.
    fn take_back(&mut self, first: u64, now: Timestamp) {
        let is_first =
            |offered: &KernelRecord| offered.record.as_ref().is_some_and(|(_, r)| r.index == first);
        let from = self.offered.iter().position(is_first).unwrap_or(0);
        let Parts { consumer, producer, .. } = &mut self.parts;
        for offered in self.offered.iter_mut().skip(from).rev() {
            let Some((taken, _)) = offered.record.as_ref().filter(|_| offered.stage == Stage::Waiting) else {
                continue;
            };
            if producer.drop_where(0, Reason::Application, |record| record.index == offered.index) == 0 {
                // The kernel was first; so it was with those before.
                return;
            }
            if consumer.put_back(taken).is_err() {
                let _ = consumer.abandon(taken, Reason::Invalid, now);
            }
            offered.record = None;
            offered.stage = Stage::Ended(Outcome::Dropped(Reason::Application));
        }
    }

    /// Takes back all records that the kernel has not committed.
    pub(crate) fn take_all_back(&mut self, now: Timestamp) {
        let first = self.offered.iter().find_map(|offered| offered.record.as_ref());
        if let Some((taken, _)) = first {
            self.take_back(taken.record.index, now);
        }
    }

    /// Offers records until `goal` bytes wait. False: the path holds as much as it should.
    fn fill(&mut self, now: Timestamp, goal: u64, stats: &SinkStats, scratch: &mut Scratch) -> bool {
        self.ask_again_at = Timestamp::MAX;
        self.idle = false;
        for _ in 0..PICKS_PER_TURN {
            let waiting = self.bytes_where(|stage| stage == Stage::Waiting);
            if waiting >= goal {
                return true;
            }
            list(&mut self.parts.consumer, self.parts.choice.as_mut(), stats, scratch);
            if scratch.records.is_empty() {
                self.idle = true;
                return true;
            }
            if self.is_path_full() {
                return false;
            }
            let committed = u64::from(self.estimate.info().unsent) + waiting;
            let view = self.estimate.view(now, committed);
            match self.parts.choice.pick(now, &scratch.records, &view) {
                Decision::Wait(until) => {
                    let until = until.unwrap_or(Timestamp::MAX);
                    self.ask_again_at = if until > now { until } else { now + PAST_WAIT };
                    self.idle = until == Timestamp::MAX;
                    return true;
                }
                Decision::Drop(place, why) => {
                    let Some(&record) = scratch.records.get(place) else { return true };
                    // Too late means that somebody else edits or dropped it; the next look tells.
                    if self.parts.consumer.discard(record.index, why, now).is_ok() {
                        report_dropped(self.parts.choice.as_mut(), stats, record, why);
                    }
                }
                Decision::Send(place) => {
                    let Some(&record) = scratch.records.get(place) else { return true };
                    if let Ok(taken) = self.parts.consumer.take(record.index)
                        && !self.offer(taken, now, stats)
                    {
                        return true;
                    }
                }
            }
        }
        self.ask_again_at = now;
        true
    }

    /// Puts a record into the kernel's ring. False: it has no room, or is closed.
    fn offer(&mut self, taken: Taken, now: Timestamp, stats: &SinkStats) -> bool {
        let Parts { consumer, choice, framer, .. } = &mut self.parts;
        // It may have been modified or replaced since the policy saw it.
        let record = taken.record;
        frame(framer.as_mut(), consumer, &taken, &mut self.framed);
        let deadline = if choice.drops_expired() { record.deadline } else { Timestamp::MAX };
        let Record { seq, generated, layer, group, .. } = record;
        let meta = Meta { seq, generated, deadline, layer, group, ..Meta::default() };
        let pushed = self.push(&meta);
        let Parts { consumer, choice, .. } = &mut self.parts;
        match pushed {
            Ok(index) => {
                self.note(index, Some((taken, record)));
                true
            }
            Err(PushError::Full | PushError::OutOfBlocks | PushError::Closed) => {
                // Fails only if the other side overwrote the state of a taken slot; the ring has counted that.
                let _ = consumer.put_back(&taken);
                false
            }
            Err(_) => {
                let _ = consumer.abandon(&taken, Reason::Invalid, now);
                report_dropped(choice.as_mut(), stats, record, Reason::Invalid);
                true
            }
        }
    }

    /// Puts the framed bytes into the kernel's ring. Slots of what is not acknowledged are not used again, or its
    /// acknowledgement would go unnoticed.
    fn push(&mut self, meta: &Meta) -> Result<u64, PushError> {
        let used = self.used_slots();
        let all = self.parts.producer.region().config().slots;
        if used > 0 && used + self.framed_slots() > all {
            return Err(PushError::Full);
        }
        self.parts.producer.push_quiet(0, &self.framed, meta)
    }

    fn note(&mut self, index: u64, record: Option<(Taken, Record)>) {
        let (slots, bytes) = (self.framed_slots(), self.framed.len() as u64);
        self.offered.push_back(KernelRecord {
            index,
            slots,
            bytes,
            stage: Stage::Waiting,
            committed: false,
            record,
        });
    }

    fn framed_slots(&self) -> u32 {
        let block_bytes = self.parts.producer.region().config().block_bytes as usize;
        u32::try_from(self.framed.len().div_ceil(block_bytes).max(1)).unwrap_or(u32::MAX)
    }

    fn used_slots(&self) -> u32 {
        self.offered.iter().map(|offered| offered.slots).sum()
    }

    /// Has the engine woken when the oldest record that the kernel has is at its end.
    fn want_slots(&mut self, socket: &RingSocket) -> io::Result<()> {
        let Some(oldest) = self.offered.iter().find(|offered| offered.is_unfinished()) else { return Ok(()) };
        let all = self.parts.producer.region().config().slots;
        let wanted = all.saturating_sub(self.unfinished_slots() - oldest.slots).max(1);
        if wanted != self.wanted {
            socket.set_free_slots_wanted(wanted)?;
            self.wanted = wanted;
        }
        Ok(())
    }

    /// Slots from the oldest unfinished record on.
    fn unfinished_slots(&self) -> u32 {
        let unfinished = self.offered.iter().skip_while(|offered| !offered.is_unfinished());
        unfinished.map(|offered| offered.slots).sum()
    }

    fn is_path_full(&self) -> bool {
        let Some(queue) = self.parts.queue_target else { return false };
        let in_ring = self.bytes_where(|stage| matches!(stage, Stage::Waiting | Stage::Taken));
        let ahead = u64::from(self.estimate.info().unsent) + in_ring;
        self.estimate.room(queue, ahead) == Some(0)
    }

    fn bytes_where(&self, is_meant: impl Fn(Stage) -> bool) -> u64 {
        self.offered.iter().filter(|offered| is_meant(offered.stage)).map(|offered| offered.bytes).sum()
    }

    fn soon(&self, now: Timestamp) -> Timestamp {
        now + (self.estimate.info().rtt / 4).clamp(ACK_WATCH.0, ACK_WATCH.1)
    }

    /// Takes nothing more from the application's ring: what is ready there is dropped.
    pub(crate) fn refuse(&mut self, now: Timestamp) {
        self.parts.consumer.close(Reason::Closed, now);
    }

    /// Resolves every record that is left. The socket is closed, so the kernel changes nothing any more.
    pub(crate) fn end(&mut self, reason: Reason, now: Timestamp, shared: &SinkShared) {
        self.settle(now, shared);
        for offered in &self.offered {
            if let Some((taken, _)) = &offered.record
                && offered.is_unfinished()
            {
                // Fails only if the other side overwrote the state of a taken slot; the ring has counted that.
                let _ = self.parts.consumer.abandon(taken, reason, now);
            }
        }
        self.parts.consumer.close(reason, now);
    }
}

const ACKED: Stage = Stage::Ended(Outcome::Acked);

/// Whether the kernel has sent all of it.
fn is_handed_over(stage: Stage) -> bool {
    matches!(stage, Stage::Ended(Outcome::Sent | Outcome::Acked))
}

fn dropped(stage: Stage) -> Option<Reason> {
    match stage {
        Stage::Ended(outcome) => outcome.reason(),
        Stage::Waiting | Stage::Taken => None,
    }
}

impl KernelRecord {
    /// Whether the kernel still has to send it.
    fn is_unfinished(&self) -> bool {
        matches!(self.stage, Stage::Waiting | Stage::Taken)
    }

    /// Whether nothing more will be heard of it.
    fn is_over(&self) -> bool {
        self.stage == ACKED || dropped(self.stage).is_some()
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        // Again where the end was regular, which changes nothing; else the engine was gone before it had the sink.
        self.parts.consumer.close(Reason::ConnectionLost, freshwire_io::now());
    }
}

/// The bytes of a record in the stream. A plain framing makes them of the record alone.
fn frame(framer: &mut dyn Framer, source: &Consumer, taken: &Taken, out: &mut Vec<u8>) {
    out.clear();
    framer.begin(taken.record.seq, taken.record.len);
    while let Some(piece) = framer.next(usize::MAX, out) {
        let end = out.len() + piece.payload.len();
        source.copy(taken, piece.payload.start, piece.payload.len(), out);
        out.resize(end, 0);
        if piece.last {
            return;
        }
    }
}

//! The sinks of an engine and their turns: used by one thread at a time, the engine's own or a pushing one.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::io;
use std::ops::Range;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use freshwire_choice::{Reason, Record};
use freshwire_io::now;
use freshwire_io::poll::{Poller, Ready};
use freshwire_io::tcp::SendBatch;
use freshwire_record::Timestamp;

use super::any_sink::{AnySink, PlannedOffer, StartedTurn};
use super::load::{Place, Work};
use crate::sink::ended::{CloseMode, Ended, SinkError};
use crate::tcp::TcpScratch;
use crate::tcp::batch::{Batching, PlannedWrite};
use crate::tcp::transfer::Transfer;
use crate::turn::offer::Payload;
use crate::turn::offer::{Offer, Target};
use crate::turn::{OfferOutcome, TurnOutcome};

/// How many turns ahead a sink's state is prefetched. A sink is three pointers deep (see [`AnySink::prefetch`]): each turn fetches one level.
const PREFETCHED_TURNS: usize = 3;

/// A request to an [`Engine`](crate::engine::thread::Engine) from one of its handles.
pub(crate) enum Command {
    Add(u64, AnySink, Place),
    Close(u64, CloseMode),
    /// Close as if dropped: finish the record, send these bytes, and abort if that takes longer than the time given.
    Leave(u64, Vec<u8>, Duration),
    /// Send bytes between two records.
    Interject(u64, Vec<u8>),
    /// Ask the policy again, although neither the queue nor the path has changed.
    AskAgain(u64),
    Stop,
}

/// The sinks of an engine, and what their turns need.
pub(crate) struct Scheduler {
    poller: Arc<Poller>,
    commands: mpsc::Receiver<Command>,
    sinks: BTreeMap<u64, Entry>,
    timers: Timers,
    again: Vec<u64>,
    scratch: TcpScratch,
    batching: Batching,
    /// When the engine's thread wakes up by itself; zero while it is awake.
    sleeps_until: Timestamp,
    stopped: bool,
    /// Its work, which guides where new sinks go.
    pub(crate) work: Work,
}

/// A sink with its place in the poller's set and among the timers. It is boxed, so that a search and a timer that was
/// put off touch little memory.
struct Entry {
    sink: AnySink,
    watched: bool,
    /// Idle: a producer must wake the engine. If false, a turn is scheduled.
    is_asleep: bool,
    /// When the sink wants its next turn at the latest.
    wake_at: Timestamp,
    /// When its timer fires, which may be earlier: a time that is put off again and again costs no new timer.
    timer_at: Timestamp,
    /// Counts it among the sinks of the engine.
    _place: Place,
}

impl Entry {
    fn new(sink: AnySink, place: Place) -> Self {
        let never = Timestamp::MAX;
        Self { sink, watched: false, is_asleep: false, wake_at: never, timer_at: never, _place: place }
    }

    /// The time of a timer to start, if none fires early enough.
    fn set_timer(&mut self) -> Option<Timestamp> {
        let is_needed = self.wake_at < self.timer_at;
        if is_needed {
            self.timer_at = self.wake_at;
        }
        is_needed.then_some(self.wake_at)
    }

    /// Sets when the sink wants its next turn.
    fn wake_at(&mut self, wake_at: Timestamp, id: u64, timers: &mut Timers) {
        self.wake_at = wake_at;
        if let Some(at) = self.set_timer() {
            timers.push(Reverse((at, id)));
        }
    }

    /// Offers the sink a record past its ring; `Err` if it has ended. `queue` puts the record on the ring if the rest of it has
    /// to wait, and gives its index.
    fn offer(
        &mut self,
        id: u64,
        target: &mut Target,
        now: Timestamp,
        context: TurnContext<'_>,
        payload: &mut Payload,
        queue: &mut impl FnMut(&Target) -> Option<u64>,
    ) -> Result<(), Ended> {
        if !self.is_asleep {
            return Ok(());
        }
        let record = Record::of(&target.meta, payload.len());
        let at_once = self.sink.send_at_once(now, &record, payload, context.scratch)?;
        self.offered(id, target, now, context, at_once, queue)
    }

    /// Sees to what is left of a record that was offered.
    fn offered(
        &mut self,
        id: u64,
        target: &mut Target,
        now: Timestamp,
        context: TurnContext<'_>,
        at_once: OfferOutcome,
        queue: &mut impl FnMut(&Target) -> Option<u64>,
    ) -> Result<(), Ended> {
        match at_once {
            OfferOutcome::Declined => return Ok(()),
            OfferOutcome::Sent(wake_at) => self.wake_at(wake_at, id, context.timers),
            OfferOutcome::Partial => {
                let held = queue(target).is_some_and(|index| self.sink.hold_rest(index, now));
                if !held {
                    return Err(Ended::Broken(SinkError::Torn));
                }
                if let Some(ended) = self.turn(id, now, context) {
                    return Err(ended);
                }
            }
        }
        target.is_sent = true;
        Ok(())
    }

    /// Gives the sink a turn; how it ended, if it did.
    fn turn(&mut self, id: u64, now: Timestamp, context: TurnContext<'_>) -> Option<Ended> {
        let next = self.sink.turn(now, context.scratch);
        self.turned(id, next, context)
    }

    /// Sees to what the sink needs after a turn; how it ended, if it did.
    fn turned(
        &mut self,
        id: u64,
        next: Result<TurnOutcome, SinkError>,
        context: TurnContext<'_>,
    ) -> Option<Ended> {
        self.is_asleep = matches!(next, Ok(TurnOutcome::Push(_)));
        let (watch, wake_at) = match next {
            Ok(TurnOutcome::Again) => {
                context.again.push(id);
                (false, Timestamp::MAX)
            }
            Ok(TurnOutcome::Room(at)) => (true, at),
            Ok(TurnOutcome::Push(at) | TurnOutcome::Time(at)) => (false, at),
            Ok(TurnOutcome::Ended) => return Some(Ended::Closed),
            Err(error) => return Some(Ended::Broken(error)),
        };
        self.wake_at(wake_at, id, context.timers);
        if watch != self.watched {
            self.watched = watch;
            let watched = self.sink.socket().map(|socket| context.poller.watch(socket, id, watch));
            if let Some(Err(error)) = watched {
                return Some(error.into());
            }
        }
        None
    }
}

/// The part of the engine that a turn uses.
struct TurnContext<'a> {
    poller: &'a Poller,
    timers: &'a mut Timers,
    again: &'a mut Vec<u64>,
    scratch: &'a mut TcpScratch,
}

/// A sink that was asked for, with the place of what is for it.
struct Lookup<'a> {
    id: u64,
    place: usize,
    entry: &'a mut Entry,
}

/// Finds the sinks that `order` names by their numbers, ascending, each with a place; those that are gone are passed over.
fn lookups<'a>(sinks: &'a mut BTreeMap<u64, Entry>, order: &[(u64, usize)]) -> Vec<Lookup<'a>> {
    if let &[(id, place)] = order {
        return sinks.get_mut(&id).map(|entry| Lookup { id, place, entry }).into_iter().collect();
    }
    let mut order = order.iter().peekable();
    let find = |(&id, entry)| {
        while order.next_if(|&&(lookups, _)| lookups < id).is_some() {}
        order.next_if(|&&(lookups, _)| lookups == id).map(|&(_, place)| Lookup { id, place, entry })
    };
    sinks.iter_mut().filter_map(find).collect()
}

/// Gives a turn to the sinks whose producer has called, and returns those that ended. The look for the call
/// and the turn share one pass, because they touch the same memory.
fn turn_notified(
    mut lookups: Vec<Lookup<'_>>,
    now: Timestamp,
    context: TurnContext<'_>,
    batching: &mut Batching,
) -> Vec<(u64, Ended)> {
    let TurnContext { poller, timers, again, scratch } = context;
    let mut ends = Vec::new();
    let mut is_batched = 0;
    while let Some(batch) = batching.of(lookups.len() - is_batched) {
        let end = lookups.len().min(is_batched + SendBatch::MOST);
        let context = TurnContext { poller, timers, again, scratch };
        if turn_together(&mut lookups[is_batched..end], batch, now, context, &mut ends).is_err() {
            *batching = Batching::Off;
        }
        is_batched = end;
    }
    for at in is_batched..lookups.len() {
        prefetch_later(&lookups, at, true);
        let Lookup { id, entry, .. } = &mut lookups[at];
        if entry.sink.notified() {
            let ended = entry.turn(*id, now, TurnContext { poller, timers, again, scratch });
            ends.extend(ended.map(|ended| (*id, ended)));
        }
    }
    ends
}

/// Gives those a turn whose producer has called; their first writes are made with one system call. An error concerns the batch: it is of
/// no more use.
fn turn_together(
    lookups: &mut [Lookup<'_>],
    batch: &mut SendBatch,
    now: Timestamp,
    context: TurnContext<'_>,
    ends: &mut Vec<(u64, Ended)>,
) -> io::Result<()> {
    let TurnContext { poller, timers, again, scratch } = context;
    let (mut writing, mut slices, mut places) = (Vec::new(), Vec::new(), Vec::new());
    let (mut plan, mut planned) = (scratch.shared.take_datagrams(), Vec::new());
    for at in 0..lookups.len() {
        prefetch_later(lookups, at, true);
        let Lookup { id, entry, .. } = &mut lookups[at];
        if !entry.sink.notified() {
            continue;
        }
        let next = match entry.sink.begin_turn(now, &mut plan, scratch) {
            Ok(StartedTurn::Write) => {
                let begin = slices.len();
                entry.sink.slices(scratch, &mut slices);
                writing.push(at);
                places.push(begin..slices.len());
                continue;
            }
            Ok(StartedTurn::Datagrams(turn)) => {
                planned.push((at, turn));
                continue;
            }
            Ok(StartedTurn::Over(next)) => Ok(next),
            Err(error) => Err(error),
        };
        let ended = entry.turned(*id, next, TurnContext { poller, timers, again, scratch });
        ends.extend(ended.map(|ended| (*id, ended)));
    }
    let mut sent = Vec::with_capacity(writing.len());
    let mut outcome = {
        let places = writing.iter().zip(&places);
        let gather =
            |(&at, place): (&usize, &Range<usize>)| lookups[at].entry.sink.gathered(&slices[place.clone()]);
        let writes: Vec<_> = places.filter_map(gather).collect();
        // SAFETY: the slices point into the sinks' own buffers and into arenas that their consumers keep mapped. Neither is
        // touched before the turns end below.
        unsafe { scratch.write.transfers.send_together(&writes, batch, &mut sent) }
    };
    // Where the batch has failed, a turn whose write did not start goes on as if the socket were full.
    for (&at, sent) in writing.iter().zip(sent) {
        let Lookup { id, entry, .. } = &mut lookups[at];
        let next = entry.sink.end_turn(now, sent, scratch);
        let ended = entry.turned(*id, next, TurnContext { poller, timers, again, scratch });
        ends.extend(ended.map(|ended| (*id, ended)));
    }
    let mut sent = Vec::with_capacity(plan.next_send());
    outcome = plan.send(outcome.is_ok().then_some(batch), None, &mut sent).and(outcome);
    for (at, turn) in planned {
        let Lookup { id, entry, .. } = &mut lookups[at];
        let next = entry.sink.end_datagrams(now, turn, &sent, scratch);
        let ended = entry.turned(*id, next, TurnContext { poller, timers, again, scratch });
        ends.extend(ended.map(|ended| (*id, ended)));
    }
    scratch.shared.datagrams = plan;
    outcome
}

/// Offers a payload to these sinks and writes to all of them with one system call. An error concerns the batch: it is of no
/// more use.
fn offer_together(
    lookups: &mut [Lookup<'_>],
    batch: &mut SendBatch,
    now: Timestamp,
    offered: Offer<'_>,
    context: TurnContext<'_>,
    queue: &mut impl FnMut(&Target) -> Option<u64>,
    ends: &mut Vec<(u64, Ended)>,
) -> io::Result<()> {
    let TurnContext { poller, timers, again, scratch } = context;
    let Offer { bytes, targets, .. } = offered;
    let mut plan = std::mem::take(&mut scratch.plan);
    plan.clear();
    let mut writes: Vec<(usize, PlannedWrite)> = Vec::with_capacity(lookups.len());
    let (mut datagrams, mut planned) = (scratch.shared.take_datagrams(), Vec::new());
    for at in 0..lookups.len() {
        prefetch_later(lookups, at, false);
        let Lookup { id, place, entry } = &mut lookups[at];
        if !entry.is_asleep {
            continue;
        }
        let target = &mut targets[*place];
        let record = Record::of(&target.meta, bytes.len());
        let plans = (&mut plan, &mut datagrams);
        match entry.sink.plan_at_once(now, &record, bytes, plans, scratch) {
            Ok(PlannedOffer::Write(write)) => writes.push((at, write)),
            Ok(PlannedOffer::Datagrams(sends)) => planned.push((at, sends)),
            Ok(PlannedOffer::Declined) => {}
            Err(error) => ends.push((*id, error.into())),
        }
    }
    let mut sent = Vec::with_capacity(writes.len());
    let sockets = writes.iter().filter_map(|(at, write)| {
        let socket = lookups[*at].entry.sink.socket()?;
        Some((socket, write))
    });
    let mut outcome = plan.write(batch, bytes, sockets, &mut sent);
    // Where the batch has failed, a record whose write did not start goes on as if the socket were full.
    for ((at, write), sent) in writes.iter().zip(sent) {
        let Lookup { id, place, entry } = &mut lookups[*at];
        let ended = sent.map_err(Ended::from).and_then(|sent| {
            let at_once = entry.sink.end_at_once(now, write, sent, &plan, scratch);
            let context = TurnContext { poller, timers, again, scratch };
            entry.offered(*id, &mut targets[*place], now, context, at_once, queue)
        });
        ends.extend(ended.err().map(|ended| (*id, ended)));
    }
    scratch.plan = plan;
    let mut sent = Vec::with_capacity(datagrams.next_send());
    outcome = datagrams.send(outcome.is_ok().then_some(batch), Some(bytes), &mut sent).and(outcome);
    scratch.shared.datagrams = datagrams;
    for (at, sends) in planned {
        let Lookup { id, place, entry } = &mut lookups[at];
        let sent = sent.get(sends).unwrap_or_default();
        let ended = entry.sink.end_datagrams_at_once(now, sent).map_err(Ended::from).and_then(|at_once| {
            let context = TurnContext { poller, timers, again, scratch };
            entry.offered(*id, &mut targets[*place], now, context, at_once, queue)
        });
        ends.extend(ended.err().map(|ended| (*id, ended)));
    }
    outcome
}

/// Asks for the memory of those whose turn comes after the one at `place`. Each has memory of its own, which the system calls for the
/// others have pushed out.
fn prefetch_later(lookups: &[Lookup<'_>], place: usize, ring: bool) {
    for later in 1..=PREFETCHED_TURNS {
        if let Some(Lookup { entry, .. }) = lookups.get(place + later) {
            entry.sink.prefetch(later, ring);
        }
    }
}

/// Times with the sinks that want a turn then, the earliest first.
type Timers = BinaryHeap<Reverse<(Timestamp, u64)>>;

impl Scheduler {
    pub(crate) fn new(poller: Arc<Poller>, commands: mpsc::Receiver<Command>) -> Self {
        Self {
            poller,
            commands,
            sinks: BTreeMap::new(),
            timers: BinaryHeap::new(),
            again: Vec::new(),
            scratch: TcpScratch::default(),
            batching: Batching::default(),
            sleeps_until: Timestamp::ZERO,
            stopped: false,
            work: Work::default(),
        }
    }

    pub(crate) fn sinks(&self) -> usize {
        self.sinks.len()
    }

    /// How long the engine's thread may wait, `timeout` at most.
    pub(crate) fn before_wait(&mut self, timeout: Option<Duration>) -> Option<Duration> {
        let now = now();
        let latest = timeout.map_or(Timestamp::MAX, |timeout| now + timeout);
        self.sleeps_until = latest.min(self.next_turn(now));
        (self.sleeps_until < Timestamp::MAX).then(|| self.sleeps_until.saturating_since(now))
    }

    /// Does what has come up while the engine's thread waited. False: it is to stop.
    pub(crate) fn after_wait(&mut self, woken: bool, ready: &mut Vec<Ready>) -> bool {
        self.sleeps_until = Timestamp::ZERO;
        let now = now();
        let mut turns = std::mem::take(&mut self.again);
        if woken {
            self.take_commands(now, &mut turns);
            self.turn_notified(now);
        }
        for event in ready.drain(..) {
            let is_note = event.noted && self.note(event.token);
            if event.hung_up && !is_note {
                self.broken(event.token, now);
            } else {
                turns.push(event.token);
            }
        }
        self.due_timers(now, &mut turns);
        turns.sort_unstable();
        turns.dedup();
        for id in turns {
            self.turn(id, now);
        }
        !self.stopped
    }

    /// Gives those of the sinks in `order` a turn whose producer has called. True: the engine's thread has to wake up earlier than it
    /// meant to.
    pub(crate) fn serve(&mut self, now: Timestamp, order: &[(u64, usize)]) -> bool {
        let Self { sinks, poller, timers, again, scratch, batching, .. } = self;
        let context = TurnContext { poller, timers, again, scratch };
        let ends = turn_notified(lookups(sinks, order), now, context, batching);
        self.remove_all(ends);
        self.next_turn(now) < self.sleeps_until
    }

    /// Offers a payload to sinks past their rings. `queue` puts it on the ring of one and gives its index there. True: the engine's
    /// thread has to wake up earlier than it meant to.
    pub(crate) fn offer(
        &mut self,
        now: Timestamp,
        offered: Offer<'_>,
        mut queue: impl FnMut(&Target) -> Option<u64>,
    ) -> bool {
        let Self { sinks, poller, timers, again, scratch, batching, .. } = self;
        let Offer { bytes, targets, order } = offered;
        let mut lookups = lookups(sinks, order);
        let mut ends = Vec::new();
        let mut is_batched = 0;
        while let Some(batch) = batching.of(lookups.len() - is_batched) {
            let end = lookups.len().min(is_batched + SendBatch::MOST);
            let context = TurnContext { poller, timers, again, scratch };
            let part = Offer { bytes: &mut *bytes, targets: &mut *targets, order };
            let lookups = &mut lookups[is_batched..end];
            if offer_together(lookups, batch, now, part, context, &mut queue, &mut ends).is_err() {
                *batching = Batching::Off;
            }
            is_batched = end;
        }
        for at in is_batched..lookups.len() {
            prefetch_later(&lookups, at, false);
            let Lookup { id, place, entry } = &mut lookups[at];
            let context = TurnContext { poller, timers, again, scratch };
            if let Err(ended) = entry.offer(*id, &mut targets[*place], now, context, bytes, &mut queue) {
                ends.push((*id, ended));
            }
        }
        self.remove_all(ends);
        self.next_turn(now) < self.sleeps_until
    }

    /// Has the policy of a sink drop what is of no more use, until there is room.
    pub(crate) fn make_room(
        &mut self,
        now: Timestamp,
        id: u64,
        newcomer: &Record,
        has_room: &mut dyn FnMut() -> bool,
    ) {
        let Self { sinks, scratch, .. } = self;
        if let Some(entry) = sinks.get_mut(&id) {
            entry.sink.make_room(now, newcomer, has_room, scratch);
        }
    }

    /// Whether many sinks are written to with one system call where the system can do that.
    pub(crate) fn set_batching(&mut self, on: bool) {
        self.batching = if on { Batching::Untried } else { Batching::Off };
    }

    /// Sets how payload gets from the arena into sockets.
    pub(crate) fn set_transfer(&mut self, transfer: Transfer) {
        self.scratch.write.transfers.set(transfer);
    }

    /// When a sink wants its next turn.
    fn next_turn(&self, now: Timestamp) -> Timestamp {
        if !self.again.is_empty() {
            return now;
        }
        self.timers.peek().map_or(Timestamp::MAX, |&Reverse((at, _))| at)
    }

    fn due_timers(&mut self, now: Timestamp, turns: &mut Vec<u64>) {
        while let Some(&Reverse((at, id))) = self.timers.peek() {
            if at > now {
                break;
            }
            self.timers.pop();
            // A timer that was overtaken by an earlier one is left in the heap and recognised here.
            let Some(entry) = self.sinks.get_mut(&id).filter(|entry| entry.timer_at == at) else {
                continue;
            };
            entry.timer_at = Timestamp::MAX;
            if entry.wake_at <= now {
                turns.push(id);
            } else if let Some(at) = entry.set_timer() {
                self.timers.push(Reverse((at, id)));
            }
        }
    }

    fn take_commands(&mut self, now: Timestamp, turns: &mut Vec<u64>) {
        while let Ok(command) = self.commands.try_recv() {
            match command {
                Command::Add(id, sink, place) => {
                    let added = sink.socket().map(|socket| self.poller.add(socket, id));
                    if let Some(Err(error)) = added {
                        sink.shared().end(error.into());
                        continue;
                    }
                    self.sinks.insert(id, Entry::new(sink, place));
                    turns.push(id);
                }
                Command::Leave(id, last, linger) => {
                    let Some(Entry { sink, .. }) = self.sinks.get_mut(&id) else { continue };
                    match sink.leave(last, linger, now) {
                        Ok(()) => turns.push(id),
                        Err(error) => self.remove(id, Ended::Broken(error)),
                    }
                }
                Command::Close(id, mode) => {
                    let Some(Entry { sink, .. }) = self.sinks.get_mut(&id) else { continue };
                    let was_closing = sink.is_closing();
                    match sink.close(mode, now) {
                        Ok(false) => turns.push(id),
                        Ok(true) if was_closing => self.remove(id, Ended::Broken(SinkError::OutOfTime)),
                        Ok(true) => self.remove(id, Ended::Closed),
                        Err(error) => self.remove(id, error.into()),
                    }
                }
                Command::Interject(id, bytes) => {
                    let Some(Entry { sink, .. }) = self.sinks.get_mut(&id) else { continue };
                    match sink.interject(bytes) {
                        Ok(()) => turns.push(id),
                        Err(error) => self.remove(id, Ended::Broken(error)),
                    }
                }
                Command::AskAgain(id) => turns.push(id),
                Command::Stop => {
                    self.stopped = true;
                    self.abort_all();
                }
            }
        }
    }

    fn turn(&mut self, id: u64, now: Timestamp) {
        let Self { sinks, poller, timers, again, scratch, .. } = self;
        let Some(entry) = sinks.get_mut(&id) else { return };
        if let Some(ended) = entry.turn(id, now, TurnContext { poller, timers, again, scratch }) {
            self.remove(id, ended);
        }
    }

    /// Gives those a turn whose producer has called.
    fn turn_notified(&mut self, now: Timestamp) {
        let Self { sinks, poller, timers, again, scratch, batching, .. } = self;
        let all = sinks.iter_mut().map(|(&id, entry)| Lookup { id, place: 0, entry }).collect();
        let ends = turn_notified(all, now, TurnContext { poller, timers, again, scratch }, batching);
        self.remove_all(ends);
    }

    /// A socket has something to tell. True: it may be when something was acknowledged, which its next turn reads.
    fn note(&mut self, id: u64) -> bool {
        self.sinks.get_mut(&id).is_some_and(|entry| entry.sink.note())
    }

    fn broken(&mut self, id: u64, now: Timestamp) {
        let Some(Entry { sink, .. }) = self.sinks.get_mut(&id) else { return };
        // Both sides have ended their direction: that is how a finished sink looks too.
        if sink.is_delivered(now) {
            return self.remove(id, Ended::Closed);
        }
        let Some(socket) = sink.socket() else { return };
        let error = socket.take_error().ok().flatten();
        if error.is_none() && sink.is_flushing() {
            // The peer has yet to acknowledge. The set would report the hang-up without end; the sink's timer looks
            // for the acknowledgement, and for an error.
            let _ = self.poller.remove(socket);
            return;
        }
        self.remove(id, Ended::Broken(error.map_or(SinkError::PeerClosed, SinkError::from)));
    }

    pub(crate) fn abort_all(&mut self) {
        for id in self.sinks.keys().copied().collect::<Vec<_>>() {
            if let Some(socket) = self.sinks.get(&id).and_then(|served| served.sink.socket()) {
                // Without the option the peer sees an end of file in the middle of a record instead of a reset.
                let _ = socket.abort();
            }
            self.remove(id, Ended::Broken(SinkError::Stopped));
        }
    }

    fn remove_all(&mut self, ends: Vec<(u64, Ended)>) {
        for (id, ended) in ends {
            self.remove(id, ended);
        }
    }

    fn remove(&mut self, id: u64, ended: Ended) {
        if let Some(Entry { sink, .. }) = self.sinks.remove(&id) {
            if let Some(socket) = sink.socket() {
                // The socket is closed just after, which takes it out of the set too.
                let _ = self.poller.remove(socket);
            }
            sink.end(Reason::ConnectionLost, now(), ended);
        }
    }
}

//! The sending side: which block goes next, first time or again.

mod piece;

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use freshwire_choice::{Choice, Decision, LinkView, Outcome, Progress, Reason, Record};
use freshwire_record::{Rate, Timestamp};

use crate::fec;
use crate::ranges::RangeSet;
use crate::sequence::Sequence;
use crate::source::{Source, read_all};
use crate::wire::{BlockHead, Message, Next, OpenRun, PARITY_HEAD, Qos};

pub(crate) use piece::{LastBlock, Part, Piece, Shape, WORTH_A_BLOCK};

/// Messages in progress that are not settled, and their parts that are to be sent.
pub(crate) struct Outbox {
    choice: Box<dyn Choice>,
    in_progress: Sequence<Transfer>,
    next_id: u64,
    /// The message of which a part was never sent.
    open: Option<u64>,
    /// Messages with lost blocks, the most important first.
    repairs: BTreeSet<(u8, u64)>,
    /// Urgent ones come first.
    duplicates: VecDeque<Duplicate>,
    credit: Credit,
    bytes_started: u64,
    window_full: bool,
    ask_again_at: Option<Timestamp>,
    settled: Vec<(u64, Outcome)>,
    fec: Option<Fec>,
    is_rate_settled: bool,
    /// What the path carries, as far as its first packets show.
    first_rate: Option<Rate>,
    /// Parity to send: the message, the shard's place, how many there are, the shard.
    parity: VecDeque<Shard>,
    gone: VecDeque<Abandoned>,
    /// Reports not yet sent, and reports that were lost.
    dropped: VecDeque<Dropped>,
    dropped_again: VecDeque<Dropped>,
    records: Vec<Record>,
    dropped_by_others: Vec<(u64, Reason)>,
}

/// What the receiver's window lets this end begin, counted from the connection's begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Credit {
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
}

/// The peer says of a message that it is whole, and not all of it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("peer acknowledged a message that has not been fully sent")]
pub(crate) struct NotSent;

/// A message in progress that is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Abandoned {
    pub(crate) id: u64,
    pub(crate) len: u32,
    pub(crate) reason: Reason,
}

/// Messages that were dropped before their start, by the application's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dropped {
    pub(crate) first: u64,
    pub(crate) count: u64,
    pub(crate) reason: Reason,
}

/// Which messages may get parity, and of which size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Fec {
    /// Messages of layers below this get it before the next message starts, the others when nothing else is
    /// to be sent.
    pub(crate) layers: u8,
    /// Bytes of a shard; even.
    pub(crate) shard: u32,
    /// How many packets are lost in a row, as a mean.
    pub(crate) run: f64,
}

/// A block that was sent again and goes once more.
#[derive(Debug)]
struct Duplicate {
    part: Part,
    /// It goes before the next message starts.
    is_urgent: bool,
}

/// A parity shard that waits to be sent.
#[derive(Debug)]
pub(crate) struct Shard {
    pub(crate) id: u64,
    pub(crate) index: u16,
    pub(crate) count: u16,
    pub(crate) record: Record,
    pub(crate) bytes: Vec<u8>,
}

struct Transfer {
    token: u64,
    record: Record,
    /// Up to where it was sent for the first time.
    sent_to: u64,
    lost: RangeSet,
    acked: RangeSet,
    /// Blocks do not cross the borders of shards of this size.
    shard: Option<u32>,
}

impl Transfer {
    /// Its length, where an empty message counts as one byte: something has to be acknowledged.
    fn extent(&self) -> u64 {
        u64::from(self.record.len).max(1)
    }

    fn remaining(&self) -> u32 {
        u32::try_from(self.extent() - self.sent_to + self.lost.total()).unwrap_or(u32::MAX)
    }
}

/// The block that is worth sending now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pick {
    /// A block of this message that was never sent.
    First(u64),
    /// A block of this message that was lost.
    Again(u64),
    /// A block that was sent again, once more.
    Duplicate,
    /// The parity that is next.
    Parity,
    /// A block that a member of a multicast group has missed.
    GroupRepair,
}

impl Pick {
    /// Whether it may be in a packet with the other one. A packet says whether its blocks were sent before, and a duplicate must not be
    /// lost with what it duplicates.
    pub(crate) fn may_share(self, other: Self) -> bool {
        let kind = |chosen| match chosen {
            Self::Again(_) => 1,
            Self::Duplicate => 2,
            Self::First(_) | Self::Parity | Self::GroupRepair => 0,
        };
        kind(self) == kind(other)
    }
}

impl Outbox {
    pub(crate) fn new(choice: Box<dyn Choice>, credit: Credit) -> Self {
        Self {
            choice,
            in_progress: Sequence::default(),
            next_id: 0,
            open: None,
            repairs: BTreeSet::new(),
            duplicates: VecDeque::new(),
            credit,
            bytes_started: 0,
            window_full: false,
            ask_again_at: None,
            settled: Vec::new(),
            fec: None,
            is_rate_settled: false,
            first_rate: None,
            parity: VecDeque::new(),
            gone: VecDeque::new(),
            dropped: VecDeque::new(),
            dropped_again: VecDeque::new(),
            records: Vec::new(),
            dropped_by_others: Vec::new(),
        }
    }

    pub(crate) fn set_choice(&mut self, choice: Box<dyn Choice>) {
        self.choice = choice;
    }

    /// Whether a message in progress has blocks to send, first time or again.
    pub(crate) fn has_work_in_progress(&self) -> bool {
        self.open.is_some() || !self.repairs.is_empty()
    }

    /// Whether every message in progress is settled.
    pub(crate) fn is_settled(&self) -> bool {
        self.in_progress.is_empty()
    }

    /// When the policy that holds back is to be asked again.
    pub(crate) fn ask_again_at(&self) -> Option<Timestamp> {
        self.ask_again_at
    }

    /// The policy is asked when something may go, and not before: its time may come while nothing may.
    pub(crate) fn forget_wait(&mut self) {
        self.ask_again_at = None;
    }

    /// How many more messages the receiver takes, as far as their number goes.
    pub(crate) fn credit(&self) -> u64 {
        self.credit.messages.saturating_sub(self.next_id)
    }

    /// Whether the last look found a message for which the receiver has no room.
    pub(crate) fn is_window_full(&self) -> bool {
        self.window_full
    }

    /// The receiver's window; it only grows.
    pub(crate) fn on_credit(&mut self, credit: Credit) {
        self.credit.messages = self.credit.messages.max(credit.messages);
        self.credit.bytes = self.credit.bytes.max(credit.bytes);
    }

    /// Hands what is settled back to its owner.
    pub(crate) fn settle(&mut self, now: Timestamp, source: &mut dyn Source) {
        for (token, outcome) in self.settled.drain(..) {
            source.settle(now, token, outcome);
        }
    }

    /// The next announcement of a message that will never be complete.
    pub(crate) fn next_gone(&mut self) -> Option<Abandoned> {
        self.gone.pop_front()
    }

    /// The next announcement of messages that were dropped before their start.
    pub(crate) fn next_dropped(&mut self) -> Option<Dropped> {
        self.dropped_again.pop_front().or_else(|| self.dropped.pop_front())
    }

    /// An announcement was lost.
    pub(crate) fn announce_again(&mut self, gone: Abandoned) {
        self.gone.push_front(gone);
    }

    /// An announcement of dropped messages was lost. Where too many wait it is forgotten, as the oldest.
    pub(crate) fn announce_dropped_again(&mut self, dropped: Dropped) {
        if self.dropped_again.len() + self.dropped.len() < MAX_DROPPED {
            self.dropped_again.push_back(dropped);
        }
    }

    /// Whether there is a message to announce that will never be complete.
    pub(crate) fn has_gone(&self) -> bool {
        !self.gone.is_empty()
    }

    /// Whether there is something to announce.
    pub(crate) fn has_announcements(&self) -> bool {
        self.has_gone() || !(self.dropped.is_empty() && self.dropped_again.is_empty())
    }

    /// The block that is worth most now. Lost blocks go first, the most important of them before the rest, as
    /// long as the policy wants their message finished. Then comes the open message. Then the one that the
    /// policy picks from `source`, if it `fits`: it gets its number and its record. Otherwise it stays there.
    //= spec/a1.md A1-MSG-2
    pub(crate) fn choose(
        &mut self,
        now: Timestamp,
        source: &mut dyn Source,
        link: &LinkView,
        qos: &Qos,
        fits: &dyn Fn(u64, &Record) -> bool,
    ) -> Option<Pick> {
        while let Some(&(_, id)) = self.repairs.first() {
            let reason =
                if qos.retransmission { self.reason_to_abandon(now, id, link) } else { Some(UNREPAIRED) };
            match reason {
                None => return Some(Pick::Again(id)),
                Some(reason) => self.abandon(id, reason),
            }
        }
        self.forget_duplicates(now);
        if self.duplicates.front().is_some_and(|next| next.is_urgent && self.open != Some(next.part.id)) {
            return Some(Pick::Duplicate);
        }
        if let Some(id) = self.open {
            match self.reason_to_abandon(now, id, link) {
                None => return Some(Pick::First(id)),
                Some(reason) => self.abandon(id, reason),
            }
        }
        while let Some(shard) = self.parity.front()
            && !(self.in_progress.get(shard.id).is_some() && shard.record.deadline > now)
        {
            self.parity.pop_front();
        }
        let is_urgent = |shard: &Shard| self.fec.is_some_and(|fec| shard.record.layer < fec.layers);
        if self.parity.front().is_some_and(is_urgent) {
            return Some(Pick::Parity);
        }
        let spare = match (self.duplicates.is_empty(), self.parity.is_empty()) {
            (false, _) => Some(Pick::Duplicate),
            (true, false) => Some(Pick::Parity),
            (true, true) => None,
        };
        self.pick(now, source, link, qos, fits).map(Pick::First).or(spare)
    }

    /// Forgets the next duplicates that are of no use any more.
    fn forget_duplicates(&mut self, now: Timestamp) {
        while let Some(Duplicate { part, .. }) = self.duplicates.front()
            && self
                .in_progress
                .get(part.id)
                .is_none_or(|transfer| transfer.record.deadline <= now || transfer.acked.covers(&part.range))
        {
            self.duplicates.pop_front();
        }
    }

    /// No message can start, perhaps for long: drops messages without use on any path. Messages that the
    /// policy would drop for its estimate of the path wait, since that is about to change.
    pub(crate) fn drop_stale(&mut self, now: Timestamp, source: &mut dyn Source, link: &LinkView) {
        for _ in 0..PICKS {
            let Some(Decision::Drop(place, reason)) = self.ask(now, source, link) else { return };
            let is_certain = matches!(
                reason,
                Reason::Expired | Reason::WindowEnd | Reason::Superseded | Reason::ReferenceLost
            );
            if !is_certain || self.discard(now, source, place, reason).is_none() {
                return;
            }
        }
    }

    /// Cuts the next block of the chosen message, of at most `room` bytes with its head, for a packet in which `behind` is the last
    /// one. `None` if the room is too small.
    //= spec/a1.md A1-FRM-3
    pub(crate) fn cut(
        &mut self,
        chosen: Pick,
        room: usize,
        behind: &LastBlock,
        now_us: i64,
        describe: impl Fn(&Record) -> Message,
    ) -> Option<Piece> {
        let id = match chosen {
            Pick::First(id) | Pick::Again(id) => id,
            Pick::Duplicate => self.duplicates.front()?.part.id,
            Pick::Parity | Pick::GroupRepair => return None,
        };
        let transfer = self.in_progress.get_mut(id)?;
        let extent = transfer.extent();
        let to_send = match chosen {
            Pick::Again(_) => transfer.lost.first()?,
            Pick::Duplicate => self.duplicates.front()?.part.range.clone(),
            _ => transfer.sent_to..extent,
        };
        let from = to_send.start;
        let message = describe(&transfer.record);
        let start = (from == 0).then_some(message);
        let head = BlockHead { id, offset: from as u32, start, end: false };
        let shard = transfer.shard.map_or(u64::MAX, |shard| u64::from(shard) - from % u64::from(shard));
        let is_whole = to_send == (0..extent) && u64::from(message.len) <= shard;
        let is_first =
            matches!(chosen, Pick::First(_)) && transfer.shard.is_none_or(|shard| message.len <= shard);
        let shape = shape(behind, &head, &message, (is_first, is_whole), room, now_us);
        let head_len = match &shape {
            Shape::Run(_) => Some(OpenRun::head_len(id, &message)),
            Shape::Block => Some(head.len()),
            Shape::Next(_) | Shape::More(_) => None,
        };
        let most = match (head_len, &shape) {
            (Some(head_len), _) => {
                // Rather the first of the next packet than a few bytes here with a head of their own.
                let is_worth = room >= WORTH_A_BLOCK.min(head_len + message.len as usize);
                if !is_worth {
                    return None;
                }
                shard.min(room.checked_sub(behind.closing_len() + head_len)? as u64)
            }
            (None, Shape::Next(_)) => extent,
            (None, _) => shard.min(room as u64),
        };
        if most == 0 {
            return None;
        }
        let range = from..to_send.end.min(from.saturating_add(most));
        match chosen {
            Pick::Again(_) => {
                transfer.lost.remove(&range);
                if transfer.lost.is_empty() {
                    self.repairs.remove(&(transfer.record.layer, id));
                }
            }
            Pick::Duplicate => {
                let duplicate = self.duplicates.front_mut()?;
                duplicate.part.range.start = range.end;
                if duplicate.part.range.is_empty() {
                    self.duplicates.pop_front();
                }
            }
            _ => transfer.sent_to = range.end,
        }
        if transfer.sent_to == extent && self.open == Some(id) {
            self.open = None;
        }
        let bytes = range.end.min(u64::from(transfer.record.len)).saturating_sub(range.start);
        let head = BlockHead { end: range.end == extent, ..head };
        let part = Part { id, range };
        Some(Piece { head, shape, part, token: transfer.token, bytes: bytes as u32 })
    }

    /// Which messages get parity from now on, and whether the rate of the path is more than the first round
    /// of a connection shows. As long as it is not, no prediction gives up a key in progress.
    pub(crate) fn set_path(&mut self, fec: Option<Fec>, is_rate_settled: bool, rate: Option<Rate>) {
        self.first_rate = rate;
        self.fec = fec;
        self.is_rate_settled = is_rate_settled;
    }

    /// Makes parity for a message of which the last block has just been sent, if a repair of it would come too late.
    //= spec/a1.md A1-FEC-2
    pub(crate) fn protect(&mut self, now: Timestamp, id: u64, source: &dyn Source, link: &LinkView) {
        let Some(transfer) =
            self.in_progress.get(id).filter(|transfer| transfer.sent_to == transfer.extent())
        else {
            return;
        };
        let (Some(fec), Some(shard)) = (self.fec, transfer.shard.map(|shard| shard as usize)) else { return };
        if leaves_time(now, link.rtt, transfer.record.deadline) {
            return;
        }
        let wanted = fec::parity_for((transfer.record.len as usize).div_ceil(shard), link.loss, fec.run);
        let in_time = |count: &usize| {
            let arrival = link.arrival(now, (count * (shard + PARITY_HEAD)) as u64);
            arrival.is_none_or(|arrival| arrival <= transfer.record.deadline)
        };
        let Some(count) = (1..=wanted).rev().find(in_time) else { return };
        let mut payload = Vec::new();
        read_all(source, transfer.token, 0, transfer.record.len as usize, &mut payload);
        let shards = fec::protect(&payload, shard, count);
        let count = shards.len() as u16;
        self.parity.extend(shards.into_iter().zip(0..).map(|(bytes, index)| Shard {
            id,
            index,
            count,
            record: transfer.record,
            bytes,
        }));
    }

    /// Lets a block that has just been sent again go once more, if a repair of it would come too late. If its
    /// message depends on no other, the copy goes behind the other blocks of the message. Otherwise it goes
    /// when there is nothing else to send, if losing it would cost more.
    //= spec/a1.md A1-FEC-4
    pub(crate) fn protect_repair(&mut self, now: Timestamp, part: &Part, link: &LinkView) {
        let (Some(fec), Some(transfer)) = (self.fec, self.in_progress.get(part.id)) else { return };
        if leaves_time(now, link.rtt, transfer.record.deadline) {
            return;
        }
        let blocks = f64::from(transfer.record.len) / f64::from(fec.shard.max(1));
        let part = part.clone();
        if transfer.record.is_key() || transfer.record.layer < fec.layers {
            self.duplicates.push_front(Duplicate { part, is_urgent: true });
        } else if blocks * link.loss >= 1.0 {
            self.duplicates.push_back(Duplicate { part, is_urgent: false });
        }
    }

    /// The parity that [`Pick::Parity`] named.
    pub(crate) fn take_parity(&mut self) -> Option<Shard> {
        self.parity.pop_front()
    }

    /// A packet had no room for it.
    pub(crate) fn return_parity(&mut self, shard: Shard) {
        self.parity.push_front(shard);
    }

    /// A part arrived.
    pub(crate) fn on_acked(&mut self, part: &Part) {
        let Some(transfer) = self.in_progress.get_mut(part.id) else { return };
        let extent = transfer.extent();
        // Most messages are in one packet.
        let is_all = part.range == (0..extent);
        if !is_all {
            transfer.acked.insert(part.range.clone());
        }
        if !transfer.lost.is_empty() {
            transfer.lost.remove(&part.range);
            if transfer.lost.is_empty() {
                self.repairs.remove(&(transfer.record.layer, part.id));
            }
        }
        if is_all || transfer.acked.covers(&(0..extent)) {
            self.settled.push((transfer.token, Outcome::Acked));
            self.in_progress.remove(part.id);
        }
    }

    /// The receiver has made a message whole of parity: what was lost of it need not come.
    //= spec/a1.md A1-FEC-3
    pub(crate) fn on_whole(&mut self, id: u64) -> Result<(), NotSent> {
        // Parity comes last.
        if id >= self.next_id || self.open == Some(id) {
            return Err(NotSent);
        }
        if let Some(transfer) = self.in_progress.remove(id) {
            self.repairs.remove(&(transfer.record.layer, id));
            self.settled.push((transfer.token, Outcome::Acked));
        }
        Ok(())
    }

    /// A part did not arrive, as far as is known.
    pub(crate) fn on_lost(&mut self, part: &Part) {
        let Some(transfer) = self.in_progress.get_mut(part.id) else { return };
        transfer.lost.insert(part.range.clone());
        for known in transfer.acked.iter() {
            transfer.lost.remove(&known);
        }
        if !transfer.lost.is_empty() {
            self.repairs.insert((transfer.record.layer, part.id));
        }
    }

    /// Gives up everything: the connection has ended.
    pub(crate) fn end(&mut self, reason: Reason) {
        while let Some(id) = self.in_progress.first() {
            self.abandon(id, reason);
        }
        self.gone.clear();
        self.duplicates.clear();
        self.parity.clear();
    }

    fn reason_to_abandon(&mut self, now: Timestamp, id: u64, link: &LinkView) -> Option<Reason> {
        let transfer = self.in_progress.get(id)?;
        let rate = link.rate.filter(|_| self.is_rate_settled || !transfer.record.is_key());
        let link = &LinkView { rate, ..*link };
        match self.choice.progress(now, &transfer.record, transfer.remaining(), link) {
            Progress::Continue => None,
            Progress::Abandon(reason) => Some(reason),
        }
    }

    //= spec/a1.md A1-MSG-3
    //= spec/choice.md 5
    fn abandon(&mut self, id: u64, reason: Reason) {
        if self.open == Some(id) {
            self.open = None;
        }
        let Some(transfer) = self.in_progress.remove(id) else { return };
        self.repairs.remove(&(transfer.record.layer, id));
        self.choice.outcome(&transfer.record, Outcome::Dropped(reason));
        self.settled.push((transfer.token, Outcome::Dropped(reason)));
        self.gone.push_back(Abandoned { id, len: transfer.record.len, reason });
    }

    /// Asks the policy until it names a record that is still there.
    fn pick(
        &mut self,
        now: Timestamp,
        source: &mut dyn Source,
        link: &LinkView,
        qos: &Qos,
        fits: &dyn Fn(u64, &Record) -> bool,
    ) -> Option<u64> {
        self.ask_again_at = None;
        self.window_full = false;
        for _ in 0..PICKS {
            match self.ask(now, source, link)? {
                Decision::Wait(until) => {
                    let soonest = now + PAST_WAIT;
                    self.ask_again_at = until.map(|at| at.max(soonest));
                    return None;
                }
                Decision::Drop(place, reason) => self.discard(now, source, place, reason)?,
                Decision::Send(place) => {
                    let record = *self.records.get(place)?;
                    if record.len > qos.max_send_message {
                        self.discard(now, source, place, Reason::Invalid)?;
                        continue;
                    }
                    let credit = self.credit.bytes.saturating_sub(self.bytes_started);
                    if self.credit() == 0 || u64::from(record.len) > credit {
                        self.window_full = true;
                        return None;
                    }
                    if !fits(self.next_id, &record) || self.holds_back(now, &record, link) {
                        return None;
                    }
                    let most = u64::from(qos.max_send_message).min(credit) as u32;
                    let Some(taken) = source.take(now, record.index, 0, most) else { continue };
                    return Some(self.begin(taken.token, taken.record));
                }
            }
        }
        self.ask_again_at = Some(now + PAST_WAIT);
        None
    }

    /// In the first round of a connection, whether a message that depends on another waits. It does if it
    /// would delay the repair of a key in flight until that is too late.
    //= spec/a1.md A1-MSG-2
    fn holds_back(&self, now: Timestamp, record: &Record, link: &LinkView) -> bool {
        if self.is_rate_settled || record.is_key() {
            return false;
        }
        let link = LinkView { rate: self.first_rate, ..*link };
        let len = u64::from(record.len);
        let is_late = |deadline| match link.arrival(now + link.rtt, len) {
            Some(arrival) => arrival > deadline,
            None => deadline != Timestamp::MAX && link.in_flight + len > AT_ONCE,
        };
        self.in_progress
            .values()
            .any(|transfer| transfer.record.is_key() && is_late(transfer.record.deadline))
    }

    /// What the policy wants of the records that the source has; `None` if there are none.
    fn ask(&mut self, now: Timestamp, source: &mut dyn Source, link: &LinkView) -> Option<Decision> {
        source.list(self.choice.lookahead(), &mut self.records, &mut self.dropped_by_others);
        while let Some((seq, reason)) = self.dropped_by_others.pop() {
            self.tell_dropped(&Record::numbered(seq), reason);
        }
        (!self.records.is_empty()).then(|| self.choice.pick(now, &self.records, link))
    }

    /// Drops the record at this place of those that were listed last; `None` if there is none.
    fn discard(
        &mut self,
        now: Timestamp,
        source: &mut dyn Source,
        place: usize,
        reason: Reason,
    ) -> Option<()> {
        let record = *self.records.get(place)?;
        if source.discard(now, record.index, reason) {
            self.tell_dropped(&record, reason);
        }
        Some(())
    }

    //= spec/a1.md A1-MSG-1
    fn begin(&mut self, token: u64, record: Record) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.bytes_started += u64::from(record.len);
        self.choice.outcome(&record, Outcome::Sent);
        let shard = self.fec.filter(|_| record.len > 0).map(|fec| fec.shard);
        let (lost, acked) = (RangeSet::default(), RangeSet::default());
        let transfer = Transfer { token, record, sent_to: 0, lost, acked, shard };
        self.in_progress.insert(id, transfer);
        self.open = Some(id);
        id
    }

    //= spec/a1.md A1-MSG-4
    //= spec/choice.md 4
    fn tell_dropped(&mut self, record: &Record, reason: Reason) {
        self.choice.outcome(record, Outcome::Dropped(reason));
        match self.dropped.back_mut() {
            Some(last) if last.reason == reason && last.first.checked_add(last.count) == Some(record.seq) => {
                last.count += 1;
            }
            _ => self.dropped.push_back(Dropped { first: record.seq, count: 1, reason }),
        }
        if self.dropped.len() > MAX_DROPPED {
            self.dropped.pop_front();
        }
    }
}

/// How a block goes behind what is in the packet. `is_first`: it is sent for the first time, and `is_whole`, it is all of its message.
fn shape(
    behind: &LastBlock,
    head: &BlockHead,
    message: &Message,
    (is_first, is_whole): (bool, bool),
    room: usize,
    now_us: i64,
) -> Shape {
    match behind {
        LastBlock::Nothing if is_first && OpenRun::suits(message, now_us) => {
            // A part that neither begins nor ends here has a shorter head by itself.
            let rest = message.len.saturating_sub(head.offset) as usize;
            let ends = rest + OpenRun::head_len(head.id, message) < room;
            if ends || head.start.is_some() { Shape::Run(*message) } else { Shape::Block }
        }
        LastBlock::Run(run) if is_first && head.start.is_some() && run.is_like(head.id, message) => {
            match run.takes(head.id, message) {
                true => Shape::More(*message),
                false if OpenRun::suits(message, now_us) => Shape::Run(*message),
                false => Shape::Block,
            }
        }
        LastBlock::Block(before) if is_whole => match Next::between(before, head) {
            Some(next) if next.encoded_len() + message.len as usize <= room => Shape::Next(next),
            _ => Shape::Block,
        },
        _ => Shape::Block,
    }
}

/// Whether a repair of what is lost now would come before `deadline`: it is there after a round trip and a half, if it is not lost
/// again.
pub(crate) fn leaves_time(now: Timestamp, rtt: Duration, deadline: Timestamp) -> bool {
    now + rtt * 5 / 2 < deadline
}

/// A lost block whose connection does not repair.
const UNREPAIRED: Reason = Reason::Abandoned;
/// Questions to a policy in a row, against one that drops for ever. Chosen, not measured.
const PICKS: usize = 4096;
/// The pause after which a policy that waits for a time in the past is asked again: the granularity of
/// timers.
const PAST_WAIT: Duration = Duration::from_millis(1);
/// Announcements of dropped messages that wait at most; older ones are forgotten. Chosen, not measured.
const MAX_DROPPED: usize = 256;
/// This number of bytes, the first window of a connection (RFC 9002, section 7.2), delays no repair as far as
/// is known.
const AT_ONCE: u64 = 14_720;

#[cfg(test)]
mod tests {
    use super::*;

    //= spec/a1.md A1-MSG-4
    #[test]
    fn a_report_that_was_lost_is_said_again_as_it_was() {
        let mut outbox = Outbox::new(Box::new(freshwire_choice::fifo()), Credit::default());
        outbox.tell_dropped(&Record::numbered(5), Reason::Expired);
        let lost = outbox.next_dropped().expect("a report");
        outbox.announce_dropped_again(lost);
        for seq in [6, 7, u64::MAX, 0] {
            outbox.tell_dropped(&Record::numbered(seq), Reason::Expired);
        }
        let reports = std::iter::from_fn(|| outbox.next_dropped());
        let reports: Vec<_> = reports.map(|dropped| (dropped.first, dropped.count)).collect();
        assert_eq!(reports, [(5, 1), (6, 2), (u64::MAX, 1), (0, 1)]);
    }
}

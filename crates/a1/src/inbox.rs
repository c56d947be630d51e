//! The receiving side: messages from blocks, and the window that follows from what the application has consumed.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use freshwire_choice::Reason;
use freshwire_record::Timestamp;

use crate::fec::Parities;
use crate::outbox::Credit;
use crate::pool::{Pool, append};
use crate::ranges::RangeSet;
use crate::truncated::full_number;
use crate::window::Window;
use crate::wire::{Block, Message as Head, Parity, Qos};

/// A complete message.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Message {
    /// Its number among all that the sender began, from 0.
    pub id: u64,
    /// The sending application's number.
    pub seq: u64,
    /// Rank in a layered stream; 0 is the base.
    pub layer: u8,
    /// Messages that are decodable together.
    pub group: u32,
    /// Messages with the same key replace each other; 0 is no key.
    pub key: u64,
    /// Distances back in `seq` to the messages it depends on; 0 is none.
    pub refs: [u32; 2],
    /// Age of its content when the application took it, by an estimate of the sender's clock. The estimate is right
    /// to half a round trip at first, and to the asymmetry of the path after the first SYNC.
    pub age: Duration,
    /// It was taken after its deadline, by the same estimate.
    pub late: bool,
    /// The payload. Its memory is used for another message once the last clone of it is dropped.
    pub data: Bytes,
}

/// A message that will not come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Missing {
    /// A message whose sending had started, by its number among those.
    Committed {
        /// The number ([`Message::id`]).
        id: u64,
        /// Why.
        reason: Reason,
    },
    /// A message of a multicast group.
    OfGroup {
        /// The group's number ([`crate::Event::Invited`]).
        group: u32,
        /// The message's number among those of the group ([`Message::id`]).
        id: u64,
        /// Why; [`Reason::Invalid`]: it is larger than this end accepts messages, or came in too many pieces,
        /// [`Reason::Superseded`]: it was not taken, or not whole, before newer ones needed its room.
        reason: Reason,
    },
    /// Messages whose sending never started, by the application's numbers.
    NeverCommitted {
        /// The first number ([`Message::seq`]).
        first: u64,
        /// How many.
        count: u64,
        /// Why.
        reason: Reason,
    },
}

/// A block that the peer must not send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Rejected {
    #[error("a message beyond the window")]
    Window,
    #[error("a message larger than agreed")]
    TooLarge,
    #[error("blocks that contradict each other")]
    Contradiction,
    #[error("a message in too many pieces")]
    Scattered,
}

/// Messages that are not complete, and complete ones that were not consumed.
#[derive(Debug)]
pub(crate) struct Inbox {
    assemblies: BTreeMap<u64, Assembly>,
    /// Numbers of messages that are complete or gone.
    done: RangeSet,
    ready: VecDeque<Ready>,
    /// Whole messages that wait for earlier ones, if order was asked for.
    held: BTreeMap<u64, (Head, Vec<u8>)>,
    next_in_order: Option<u64>,
    missing: VecDeque<Missing>,
    /// The application's numbers of messages that were reported as dropped before their start.
    never_committed: RangeSet,
    /// What the application has consumed, and what is gone.
    consumed: Credit,
    /// How much may be outstanding beyond that.
    window: Window,
    /// Credit that the peer may use; it never falls.
    granted: Credit,
    announced: Credit,
    bytes_seen: u64,
    /// One more than the largest number of a message of which something came.
    next_id: u64,
    /// Messages that parity made whole, of which the sender does not know.
    made_whole: Vec<u64>,
    /// The group that the messages are of, if they are of one.
    group: Option<u32>,
    /// Bytes of messages that are kept, whole ones and parts, and what each costs besides.
    kept_bytes: u64,
    pool: Pool,
}

/// A whole message that waits for its application, which may be slow: how old it is, is seen when it is taken.
#[derive(Debug)]
struct Ready {
    id: u64,
    head: Head,
    data: Bytes,
}

#[derive(Debug, Default)]
struct Assembly {
    head: Option<Head>,
    len: Option<u32>,
    /// Bytes of it that count against the window: its length, or what is known of that.
    counted: u32,
    data: Vec<u8>,
    have: RangeSet,
    parity: Option<Parities>,
}

impl Inbox {
    /// With `in_order`, a message is handed out when all messages started before it are complete or gone.
    pub(crate) fn new(qos: &Qos, in_order: bool, pool: Pool) -> Self {
        let window = Window::new(qos);
        let granted = window.size();
        Self {
            assemblies: BTreeMap::new(),
            done: RangeSet::default(),
            ready: VecDeque::new(),
            held: BTreeMap::new(),
            next_in_order: in_order.then_some(0),
            missing: VecDeque::new(),
            never_committed: RangeSet::default(),
            consumed: Credit { messages: 0, bytes: 0 },
            window,
            granted,
            announced: granted,
            bytes_seen: 0,
            next_id: 0,
            made_whole: Vec::new(),
            group: None,
            kept_bytes: 0,
            pool,
        }
    }

    /// For messages of a group, which nobody grants: as many as the window has are kept, and the oldest give way.
    //= spec/a1.md A1-GRP-4
    pub(crate) fn of_group(group: u32, qos: &Qos, pool: Pool) -> Self {
        let granted = Credit { messages: u64::MAX, bytes: u64::MAX };
        Self { granted, announced: granted, group: Some(group), ..Self::new(qos, false, pool) }
    }

    /// Where payloads are from.
    pub(crate) fn pool(&self) -> Pool {
        self.pool.clone()
    }

    /// A message will not come. False: that is known, or it came.
    pub(crate) fn forget(&mut self, id: u64) -> bool {
        let is_news = self.give_up(id);
        self.make_room();
        is_news
    }

    fn give_up(&mut self, id: u64) -> bool {
        self.take_assembly(id);
        self.done.insert(id..id.saturating_add(1)) > 0
    }

    /// Bytes of messages that are kept, whole ones and parts, and what each of them costs besides.
    pub(crate) fn kept_bytes(&self) -> u64 {
        self.kept_bytes
    }

    /// Lets the oldest message go that is kept; false if there is none.
    pub(crate) fn give_way(&mut self) -> bool {
        let part = self.assemblies.first_key_value().map(|(&id, _)| id);
        match (part, self.ready.front().map(|message| message.id)) {
            (Some(part), whole) if whole.is_none_or(|whole| part < whole) => {
                let is_news = self.forget(part);
                self.tell_gave_way(part);
                is_news
            }
            (_, Some(whole)) => {
                self.tell_gave_way(whole);
                self.take_ready().is_some()
            }
            _ => false,
        }
    }

    /// The number of a message that has these low 24 bits: the nearest to what is expected next.
    //= spec/a1.md A1-FRM-5
    pub(crate) fn full_number(&self, low: u32) -> u64 {
        full_number(self.next_id, low)
    }

    /// Takes a block; whether its message is whole by it.
    pub(crate) fn on_block(&mut self, block: &Block<'_>, qos: &Qos) -> Result<bool, Rejected> {
        let head = &block.head;
        if head.id >= self.granted.messages {
            return Err(Rejected::Window);
        }
        self.next_id = self.next_id.max(head.id.saturating_add(1));
        if self.done.contains(head.id) {
            return Ok(false);
        }
        let reach = head.offset as usize + block.bytes.len();
        if reach > qos.max_receive_message as usize {
            return Err(Rejected::TooLarge);
        }
        if let Some(start) = head.start.filter(|start| start.len as usize == block.bytes.len())
            && !self.assemblies.contains_key(&head.id)
        {
            // All of it is here, as it is with most messages.
            self.count_bytes(start.len.into())?;
            let mut data = self.pool.take(block.bytes.len());
            append(&mut data, block.bytes);
            self.complete(head.id, start, data);
            self.make_room();
            return Ok(true);
        }
        let len = head.start.map(|start| start.len).or(head.end.then_some(reach as u32));
        match len {
            Some(len) => self.on_length(head.id, len, qos)?,
            None => self.on_reach(head.id, reach as u32)?,
        }
        let assembly = assembly(&mut self.assemblies, &mut self.kept_bytes, head.id);
        if head.start.is_some() {
            assembly.head = head.start;
        }
        if assembly.len.is_some_and(|len| reach > len as usize) {
            return Err(Rejected::Contradiction);
        }
        let before = assembly.cost();
        assembly.add(head.offset as usize, reach, block.bytes, &self.pool);
        self.kept_bytes = self.kept_bytes - before + assembly.cost();
        if assembly.is_scattered() {
            return Err(Rejected::Scattered);
        }
        let is_whole = self.complete_if_whole(head.id);
        self.make_room();
        Ok(is_whole)
    }

    /// Takes a parity shard; whether its message is whole by it.
    pub(crate) fn on_parity(&mut self, parity: &Parity<'_>, qos: &Qos) -> Result<bool, Rejected> {
        if parity.id >= self.granted.messages {
            return Err(Rejected::Window);
        }
        if self.done.contains(parity.id) {
            return Ok(false);
        }
        self.on_length(parity.id, parity.message.len, qos)?;
        let assembly = assembly(&mut self.assemblies, &mut self.kept_bytes, parity.id);
        assembly.head = Some(parity.message);
        let (shard, count) = (parity.bytes.len(), usize::from(parity.count));
        if assembly.parity.is_none() {
            assembly.parity = Parities::new(parity.message.len as usize, shard, count);
        }
        let fits = |parities: &mut Parities| parities.add(usize::from(parity.index), count, parity.bytes);
        if !assembly.parity.as_mut().is_some_and(fits) {
            return Err(Rejected::Contradiction);
        }
        Ok(self.complete_if_whole(parity.id))
    }

    /// The length of a message is known.
    fn on_length(&mut self, id: u64, len: u32, qos: &Qos) -> Result<(), Rejected> {
        if len > qos.max_receive_message {
            return Err(Rejected::TooLarge);
        }
        let assembly = assembly(&mut self.assemblies, &mut self.kept_bytes, id);
        if assembly.len.is_some_and(|known| known != len) || assembly.data.len() > len as usize {
            return Err(Rejected::Contradiction);
        }
        assembly.len = Some(len);
        self.on_reach(id, len)
    }

    /// A message has at least `reach` bytes.
    fn on_reach(&mut self, id: u64, reach: u32) -> Result<(), Rejected> {
        let assembly = assembly(&mut self.assemblies, &mut self.kept_bytes, id);
        let more = reach.saturating_sub(assembly.counted);
        assembly.counted += more;
        self.count_bytes(more.into())
    }

    /// More bytes of messages are known of.
    //= spec/a1.md A1-FLOW-3
    fn count_bytes(&mut self, more: u64) -> Result<(), Rejected> {
        self.bytes_seen += more;
        if self.bytes_seen > self.granted.bytes { Err(Rejected::Window) } else { Ok(()) }
    }

    /// The next message that parity made whole.
    pub(crate) fn pop_made_whole(&mut self) -> Option<u64> {
        self.made_whole.pop()
    }

    fn complete_if_whole(&mut self, id: u64) -> bool {
        let Some(assembly) = self.assemblies.get_mut(&id) else { return false };
        if !assembly.is_whole() {
            let before = assembly.cost();
            let is_made = assembly.recover();
            self.kept_bytes = self.kept_bytes - before + assembly.cost();
            if !is_made {
                return false;
            }
            self.made_whole.push(id);
        }
        let whole = self.take_assembly(id);
        let whole = whole.and_then(|assembly| Some((assembly.head?, assembly.data)));
        whole.map(|(head, data)| self.complete(id, head, data)).is_some()
    }

    /// A message in progress will never be complete.
    pub(crate) fn on_gone(&mut self, id: u64, len: u32, reason: Reason) -> Result<(), Rejected> {
        if id >= self.granted.messages {
            return Err(Rejected::Window);
        }
        if self.done.insert(id..id + 1) == 0 {
            return Ok(());
        }
        let part = self.take_assembly(id).unwrap_or_default();
        if part.len.is_some_and(|known| known != len) || part.counted > len {
            return Err(Rejected::Contradiction);
        }
        self.count_bytes((len - part.counted).into())?;
        self.consumed(u64::from(len));
        self.tell_missing(Missing::Committed { id, reason });
        self.release_in_order();
        Ok(())
    }

    /// Messages that were dropped before their start.
    pub(crate) fn on_dropped(&mut self, first: u64, count: u64, reason: Reason) {
        // It comes again if its packet was only thought to be lost.
        if self.never_committed.insert(first..first.saturating_add(count)) == 0 {
            return;
        }
        while self.never_committed.len() > MAX_HOLES
            && let Some(oldest) = self.never_committed.first()
        {
            self.never_committed.remove(&oldest);
        }
        self.tell_missing(Missing::NeverCommitted { first, count, reason });
    }

    /// The next whole message. The window opens by it. `peer_us` is the sender's time now, as far as is known.
    pub(crate) fn pop(&mut self, now: Timestamp, round_trip: Duration, peer_us: u64) -> Option<Message> {
        let Ready { id, head, data } = self.take_ready()?;
        let consumed = self.consumed.messages + 1;
        self.window.on_taken(now, round_trip, consumed, self.ready.is_empty());
        self.consumed(data.len() as u64);
        Some(message(id, &head, data, peer_us))
    }

    /// Whether a whole message waits to be consumed.
    pub(crate) fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Bytes of payload that are kept.
    #[cfg(test)]
    pub(crate) fn held_bytes(&self) -> usize {
        let parts = self.assemblies.values();
        let parity = |part: &Assembly| part.parity.as_ref().map_or(0, Parities::held_bytes);
        let pieces = |part: &Assembly| part.have.len() * PIECE_COST as usize;
        let parts = parts.map(|part| part.data.capacity() + parity(part) + pieces(part));
        let held = self.held.values().map(|(_, data)| data.capacity());
        let ready = self.ready.iter().map(|message| message.data.len());
        parts.chain(held).chain(ready).sum()
    }

    /// Ranges of numbers of messages that are complete or gone.
    #[cfg(test)]
    pub(crate) fn remembered(&self) -> usize {
        self.done.len() + self.never_committed.len()
    }

    /// What else will not come.
    pub(crate) fn pop_missing(&mut self) -> Option<Missing> {
        self.missing.pop_front()
    }

    /// The window to announce, if it has grown by a good part since the last time.
    //= spec/a1.md A1-FLOW-4
    pub(crate) fn credit_due(&self) -> bool {
        let window = self.window.size();
        let messages = self.granted.messages - self.announced.messages;
        let bytes = self.granted.bytes - self.announced.bytes;
        messages > 0 && (messages >= window.messages / CREDIT_PARTS || bytes >= window.bytes / CREDIT_PARTS)
    }

    /// The window as it is now, which is announced by this.
    pub(crate) fn announce(&mut self) -> Credit {
        self.announced = self.granted;
        self.granted
    }

    /// The window is another one from now on; what was granted stays granted.
    pub(crate) fn set_window(&mut self, qos: &Qos) {
        self.window.change(qos);
        self.grant();
    }

    fn take_assembly(&mut self, id: u64) -> Option<Assembly> {
        let assembly = self.assemblies.remove(&id)?;
        self.kept_bytes -= assembly.cost();
        Some(assembly)
    }

    fn take_ready(&mut self) -> Option<Ready> {
        let message = self.ready.pop_front()?;
        self.kept_bytes -= COST + message.data.len() as u64;
        Some(message)
    }

    fn complete(&mut self, id: u64, head: Head, data: Vec<u8>) {
        self.done.insert(id..id + 1);
        self.kept_bytes += COST + data.len() as u64;
        if self.next_in_order.is_some() {
            self.held.insert(id, (head, data));
            self.release_in_order();
        } else {
            self.ready.push_back(Ready { id, head, data: self.pool.payload(data) });
        }
    }

    //= spec/a1.md A1-MSG-5
    fn release_in_order(&mut self) {
        let Some(next) = &mut self.next_in_order else { return };
        while self.done.contains(*next) {
            let held = self.held.remove(next);
            self.ready.extend(held.map(|(head, data)| Ready {
                id: *next,
                head,
                data: self.pool.payload(data),
            }));
            *next += 1;
        }
    }

    //= spec/a1.md A1-FLOW-2
    fn consumed(&mut self, bytes: u64) {
        self.consumed.messages += 1;
        self.consumed.bytes += bytes;
        self.grant();
    }

    /// The window begins where the application is, however often it was changed.
    fn grant(&mut self) {
        let Self { consumed, granted, .. } = self;
        let window = self.window.size();
        granted.messages = granted.messages.max(consumed.messages.saturating_add(window.messages));
        granted.bytes = granted.bytes.max(consumed.bytes.saturating_add(window.bytes));
    }

    fn make_room(&mut self) {
        if self.group.is_none() {
            return;
        }
        let most = self.window.size().messages as usize;
        while self.assemblies.len() > most
            && let Some((&oldest, _)) = self.assemblies.first_key_value()
        {
            self.give_up(oldest);
            self.tell_gave_way(oldest);
        }
        while self.ready.len() > most
            && let Some(message) = self.take_ready()
        {
            self.tell_gave_way(message.id);
        }
        // Numbers far below the newest do not come again.
        while self.done.len() > MAX_HOLES {
            let second = self.done.iter().nth(1).map_or(0, |second| second.end);
            self.done.insert(0..second);
        }
    }

    /// A message of the group made room for newer ones.
    fn tell_gave_way(&mut self, id: u64) {
        if let Some(group) = self.group {
            self.tell_missing(Missing::OfGroup { group, id, reason: Reason::Superseded });
        }
    }

    pub(crate) fn tell_missing(&mut self, missing: Missing) {
        self.missing.push_back(missing);
        if self.missing.len() > MAX_MISSING {
            self.missing.pop_front();
        }
    }
}

fn message(id: u64, head: &Head, data: Bytes, peer_us: u64) -> Message {
    let age_us = peer_us.saturating_add_signed(head.generated_us.saturating_neg());
    Message {
        id,
        seq: head.seq,
        layer: head.layer,
        group: head.group,
        key: head.key,
        refs: head.refs,
        age: Duration::from_micros(age_us),
        late: head.lifetime_us.is_some_and(|lifetime| lifetime < age_us),
        data,
    }
}

/// The parts of a message, of which there may be none yet.
fn assembly<'a>(
    assemblies: &'a mut BTreeMap<u64, Assembly>,
    kept_bytes: &mut u64,
    id: u64,
) -> &'a mut Assembly {
    assemblies.entry(id).or_insert_with(|| {
        *kept_bytes += COST;
        Assembly::default()
    })
}

impl Assembly {
    fn add(&mut self, offset: usize, reach: usize, bytes: &[u8], pool: &Pool) {
        let wanted = self.len.map_or(reach, |len| len as usize);
        if self.data.capacity() == 0 {
            self.data = pool.take(wanted);
        }
        if self.data.capacity() < wanted {
            self.data.reserve_exact(wanted - self.data.len());
        }
        if self.data.len() == offset {
            append(&mut self.data, bytes);
        } else {
            if self.data.len() < reach {
                self.data.resize(reach, 0);
            }
            if let Some(place) = self.data.get_mut(offset..reach) {
                place.copy_from_slice(bytes);
            }
        }
        self.have.insert(offset as u64..reach as u64);
    }

    /// What it takes, about.
    fn cost(&self) -> u64 {
        self.data.capacity() as u64 + COST.max(self.have.len() as u64 * PIECE_COST)
    }

    /// Whether it is in more pieces than who sends blocks of a sensible size can make of it.
    //= spec/a1.md A1-FRM-6
    fn is_scattered(&self) -> bool {
        self.have.len() > PIECES + self.data.len() / PIECE
    }

    fn is_whole(&self) -> bool {
        self.head.is_some() && self.len.is_some_and(|len| self.have.covers(&(0..u64::from(len))))
    }

    /// Makes what is missing, if enough parity came.
    fn recover(&mut self) -> bool {
        let Self { head, len, data, have, parity, .. } = self;
        match (head, len, parity) {
            (Some(_), Some(len), Some(parity)) => parity.recover(data, have, *len as usize),
            _ => false,
        }
    }
}

/// The window is announced when it has grown by this part of it (A1-FLOW-4).
const CREDIT_PARTS: u64 = 8;
/// Memory of a message besides its bytes, about, a few pieces included (A1-GRP-4).
pub(crate) const COST: u64 = 256;
/// Memory of each piece of a message, about (A1-GRP-4).
const PIECE_COST: u64 = 32;
/// Pieces of a message at most, with gaps between them (A1-FRM-6).
const PIECES: usize = 64;
/// One more piece is allowed for this number of its bytes (A1-FRM-6).
const PIECE: usize = 64;
/// Remembered gaps between numbers, of messages that nobody grants and of messages dropped before their
/// start. Chosen, not measured.
const MAX_HOLES: usize = 256;
/// Reports of missing messages that wait for the application; older ones are forgotten. Chosen, not measured.
const MAX_MISSING: usize = 1024;

use std::collections::{BTreeMap, BTreeSet};
use std::slice::SliceIndex;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

use freshwire::choice::{self, Choice, Gate};
use freshwire::fanout::{RingPushError, Stored};
use freshwire::{
    EngineGroup, Meta, PushError, RingConfig, Sender, SenderError, Sink, SinkConfig, SinkId, Timestamp, now,
};

use tokio::sync::watch;

use super::envelope::{number, record};
use super::member::{Identity, WatchRequest, WatcherSnapshot};
use super::{Change, Content, MAX_KEY_BYTES, ValueError};
use crate::hub::HubConfig;

/// Bytes of a block of the arena: most values take one slot.
const BLOCK_BYTES: u32 = 2 << 10;

/// The longest pause before a watcher's path is tried again in an outage.
const MAX_RTO: Duration = Duration::from_secs(1);

/// Watchers that leave get this long to take the value in progress.
const LINGER: Duration = Duration::from_secs(2);

/// The room that an envelope takes beside key and value.
const ENVELOPE_BYTES: usize = 128;

/// Values by key, with those who watch them.
pub struct Topic {
    name: String,
    engines: EngineGroup,
    config: HubConfig,
    is_removed: watch::Sender<bool>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Made for the first watcher.
    sender: Option<Sender>,
    keys: BTreeMap<String, Arc<Value>>,
    /// Their ids ascend.
    members: Vec<Member>,
    /// Keys that there have been; the ring's number of a key. A key that comes again is another one, so that its values do
    /// not replace its deletion.
    numbers: u64,
    /// Changes so far.
    changes: u64,
    watchers: u64,
    publishers: usize,
}

/// The newest value of a key.
pub(super) struct Value {
    number: u64,
    count: u64,
    seq: u64,
    generated: Timestamp,
    content: Kind,
    record: Vec<u8>,
    /// In the arena, for those that get it later than the others: newcomers, and rings that were full.
    stored: OnceLock<Stored>,
}

impl Value {
    pub(super) fn record(&self) -> &[u8] {
        &self.record
    }
}

/// Content of a record, which decides about its readers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Text: for all.
    Text,
    /// Bytes: for those that take them.
    Bytes,
    /// The end of a key's text, because bytes have come: for those that take none.
    NoText,
}

/// A watcher as the topic sees it.
struct Member {
    id: u64,
    sink: SinkId,
    within: Option<Duration>,
    keys: Option<BTreeSet<String>>,
    takes_bytes: bool,
    identity: Arc<Identity>,
    /// Newest values, and deletions, that found no room in its ring.
    missed: BTreeMap<String, Arc<Value>>,
    replaced: u64,
}

/// A new watcher: who it is, its sink, and what it acknowledges to.
pub(super) type Joined = (Arc<Identity>, Sink, Option<Gate>);

/// What a topic has.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TopicSnapshot {
    /// Its name.
    pub name: String,
    /// Keys that have a value.
    pub keys: usize,
    /// Changes so far: values and deletions.
    pub changes: u64,
    /// Publishers over WebSocket.
    pub publishers: usize,
    /// Bytes of the newest values.
    pub bytes: usize,
    /// Bytes of its arena in use.
    pub arena_used: usize,
    /// Those who watch it.
    pub watchers: Vec<WatcherSnapshot>,
}

/// The place of a publisher; dropping it gives the place back.
pub struct PublisherPermit(Arc<Topic>);

impl Drop for PublisherPermit {
    fn drop(&mut self) {
        self.0.lock().publishers -= 1;
    }
}

impl Topic {
    pub(super) fn new(name: String, engines: EngineGroup, config: HubConfig) -> Self {
        Self { name, engines, config, is_removed: watch::Sender::new(false), state: Mutex::default() }
    }

    pub(super) fn remove(&self) {
        // No change is in progress: one that was carried out came before.
        let _state = self.lock();
        self.is_removed.send_replace(true);
    }

    /// Becomes `true` once no newcomer finds the topic. A topic of the same name is another one.
    pub fn removed(&self) -> watch::Receiver<bool> {
        self.is_removed.subscribe()
    }

    /// The lock, for a change.
    fn to_change(&self) -> Result<MutexGuard<'_, State>, ValueError> {
        let state = self.lock();
        if *self.is_removed.borrow() { Err(ValueError::Removed) } else { Ok(state) }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sets a key or deletes it, for all that watch it. Takes about a microsecond for each watcher, and never waits.
    ///
    /// # Errors
    ///
    /// As [`Topic::set`] and [`Topic::delete`].
    pub fn apply(&self, change: &Change) -> Result<(), ValueError> {
        match &change.value {
            Some(content) => self.set(&change.key, content),
            None => self.delete(&change.key),
        }
    }

    /// Sets a key.
    ///
    /// # Errors
    ///
    /// [`ValueError::Key`], [`ValueError::TooLarge`], [`ValueError::TooManyKeys`], [`ValueError::Removed`].
    pub fn set(&self, key: &str, content: &Content) -> Result<(), ValueError> {
        if !(1..=MAX_KEY_BYTES).contains(&key.len()) || key.chars().any(char::is_control) {
            return Err(ValueError::Key(key.chars().take(64).collect()));
        }
        let bytes = match content {
            Content::Json(json) => json.len(),
            Content::Bytes(bytes) => bytes.len(),
        };
        let limit = self.config.max_value_bytes;
        if bytes > limit {
            return Err(ValueError::TooLarge { bytes, limit });
        }
        let mut state = self.to_change()?;
        let before = state.keys.get(key).map(Arc::clone);
        if before.is_none() && state.keys.len() >= self.config.max_keys {
            return Err(ValueError::TooManyKeys(self.config.max_keys));
        }
        let (key_number, count, replaces) = match &before {
            Some(before) => (before.number, before.count + 1, Some(before.seq)),
            None => (state.numbers + 1, 1, None),
        };
        state.numbers = state.numbers.max(key_number);
        state.changes += 1;
        let make = |changes, kind, content| {
            Arc::new(Value {
                number: key_number,
                count,
                seq: number(changes, kind == Kind::Bytes),
                generated: now(),
                content: kind,
                record: record(key, count, SystemTime::now(), content),
                stored: OnceLock::new(),
            })
        };
        let kind = if matches!(content, Content::Bytes(_)) { Kind::Bytes } else { Kind::Text };
        let value = make(state.changes, kind, Some(content));
        state.offer(key, &value, replaces);
        if kind == Kind::Bytes && before.is_some_and(|before| before.content == Kind::Text) {
            let end = make(state.changes, Kind::NoText, None);
            state.offer(key, &end, replaces);
        }
        state.keys.insert(key.to_owned(), value);
        state.retry(..);
        Ok(())
    }

    /// Deletes a key.
    ///
    /// # Errors
    ///
    /// [`ValueError::NoKey`], [`ValueError::Removed`].
    pub fn delete(&self, key: &str) -> Result<(), ValueError> {
        let mut state = self.to_change()?;
        let before = state.keys.remove(key);
        let before = before.ok_or_else(|| ValueError::NoKey(key.chars().take(64).collect()))?;
        state.changes += 1;
        let value = Arc::new(Value {
            number: before.number,
            count: before.count + 1,
            seq: number(state.changes, false),
            generated: now(),
            content: Kind::Text,
            record: record(key, before.count + 1, SystemTime::now(), None),
            stored: OnceLock::new(),
        });
        state.offer(key, &value, Some(before.seq));
        state.retry(..);
        Ok(())
    }

    /// Room for one more publisher over WebSocket.
    ///
    /// # Errors
    ///
    /// [`ValueError::TooManyPublishers`].
    pub fn publisher(self: &Arc<Self>) -> Result<PublisherPermit, ValueError> {
        let mut state = self.lock();
        if state.publishers >= self.config.max_publishers {
            return Err(ValueError::TooManyPublishers(self.config.max_publishers));
        }
        state.publishers += 1;
        Ok(PublisherPermit(Arc::clone(self)))
    }

    /// A ring and a sink for a watcher, with the newest values.
    pub(super) fn join(&self, request: WatchRequest) -> Result<Joined, ValueError> {
        let policy = match request.within {
            None => choice::latest(),
            Some(_) => choice::deadline(Duration::ZERO),
        };
        let (policy, gate): (Box<dyn Choice>, _) = match request.window {
            None => (Box::new(policy), None),
            Some(window) => {
                let (policy, gate) = choice::gate(policy, window);
                (Box::new(policy), Some(gate))
            }
        };
        let mut sink = SinkConfig::new(policy)
            .framing(request.framer)
            .seal(request.seal)
            .preface(request.preface)
            .stall_timeout(Some(self.config.stall_timeout))
            .ack_fates(false)
            .linger(LINGER)
            .max_rto(MAX_RTO);
        sink.congestion.clone_from(&self.config.congestion);
        let mut state = self.lock();
        let sender = match &mut state.sender {
            Some(sender) => sender,
            none => {
                let sender = Sender::new(&self.region(), self.engines.clone());
                none.insert(sender.map_err(|error| ValueError::Io(error.to_string()))?)
            }
        };
        let sink = sender.add_sink(request.socket, sink).map_err(|error| match error {
            SenderError::Claim(_) => ValueError::TooManyWatchers(self.config.max_viewers),
            error => ValueError::Io(error.to_string()),
        })?;
        state.watchers += 1;
        let window = gate.clone().zip(request.window);
        let identity = Identity::new(state.watchers, request.protocol, request.peer, sink.monitor(), window);
        let identity = Arc::new(identity);
        let mut member = Member {
            id: state.watchers,
            sink: sink.id(),
            within: request.within,
            keys: request.keys,
            takes_bytes: request.takes_bytes,
            identity: Arc::clone(&identity),
            missed: BTreeMap::new(),
            replaced: 0,
        };
        let State { sender: Some(sender), keys, members, .. } = &mut *state else {
            return Err(ValueError::Io("the topic has no sender".to_owned()));
        };
        let mut newest: Vec<_> = keys.iter().filter(|(key, value)| member.wants(key, value)).collect();
        newest.sort_unstable_by_key(|(_, value)| value.seq);
        // A current value is news to a newcomer, however old it is.
        let deadline = member.within.map_or(Timestamp::MAX, |within| now() + within);
        // Those without room follow when there is some.
        member.missed = (newest.into_iter())
            .skip_while(|(_, value)| {
                let meta = Meta { deadline, ..member.meta(value) };
                give(sender, member.sink, value, &meta).is_ok()
            })
            .map(|(key, value)| (key.clone(), Arc::clone(value)))
            .collect();
        identity.misses(!member.missed.is_empty());
        members.push(member);
        drop(state);
        Ok((identity, sink, gate))
    }

    /// A ring for each watcher, with room for one value of the limit beside those of all keys.
    fn region(&self) -> RingConfig {
        let most = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let largest = self.config.max_value_bytes + MAX_KEY_BYTES * 6 + ENVELOPE_BYTES;
        let span = most(largest).div_ceil(BLOCK_BYTES);
        let slots = RingConfig::slots_for(most(self.config.max_keys)).max((2 * span).next_power_of_two());
        RingConfig {
            rings: most(self.config.max_viewers),
            slots,
            block_bytes: BLOCK_BYTES,
            blocks: most(self.config.arena_bytes / BLOCK_BYTES as usize),
        }
    }

    /// The newest value of this key, or of all of them in their order.
    pub(super) fn newest(&self, key: Option<&str>) -> Vec<Arc<Value>> {
        let state = self.lock();
        match key {
            Some(key) => state.keys.get(key).map(Arc::clone).into_iter().collect(),
            None => state.keys.values().map(Arc::clone).collect(),
        }
    }

    /// Offers a watcher again what found no room.
    pub(super) fn retry(&self, id: u64) {
        let mut state = self.lock();
        if let Some(at) = state.position(id) {
            state.retry(at..at + 1);
        }
    }

    pub(super) fn leave(&self, id: u64) {
        let mut state = self.lock();
        let Some(at) = state.position(id) else { return };
        let member = state.members.remove(at);
        if let Some(sender) = &mut state.sender {
            sender.reuse(member.sink);
        }
    }

    pub(super) fn watcher_snapshot(&self, id: u64) -> Option<WatcherSnapshot> {
        let state = self.lock();
        state.position(id).map(|at| state.members[at].snapshot())
    }

    /// What it has.
    pub fn snapshot(&self) -> TopicSnapshot {
        let mut state = self.lock();
        let blocks = self.region().blocks as usize;
        let free = state.sender.as_mut().map_or(blocks, |sender| sender.producer().free_blocks());
        TopicSnapshot {
            name: self.name.clone(),
            keys: state.keys.len(),
            changes: state.changes,
            publishers: state.publishers,
            bytes: state.keys.values().map(|value| value.record.len()).sum(),
            arena_used: blocks.saturating_sub(free) * BLOCK_BYTES as usize,
            watchers: state.members.iter().map(Member::snapshot).collect(),
        }
    }

    /// What another thread left half done when it panicked is still sound: a value that was not offered to all is offered
    /// with the next one.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Puts a value into the ring of each that wants it, in place of the one with the number `replaces`.
    fn offer(&mut self, key: &str, value: &Arc<Value>, replaces: Option<u64>) {
        let Self { sender: Some(sender), members, .. } = self else { return };
        // The payload is stored once for all with the same deadline.
        let mut groups: BTreeMap<Option<Duration>, Vec<usize>> = BTreeMap::new();
        for (at, member) in members.iter_mut().enumerate() {
            if !member.wants(key, value) {
                continue;
            }
            member.missed.remove(key);
            if member.within.is_none() {
                member.drop_older(sender, replaces);
            }
            groups.entry(member.within).or_default().push(at);
        }
        for group in groups.into_values() {
            let sinks = group.iter().map(|&at| members[at].sink);
            let meta = members[group[0]].meta(value);
            let pushed = sender.push_to_all(sinks, &value.record, &meta);
            if pushed.is_ok() && sender.missed().is_empty() {
                continue;
            }
            for at in group {
                let refused = sender.missed().iter().find(|(sink, _)| *sink == members[at].sink);
                // Without a free block it is unknown who has the value: it is offered to all of them again.
                if pushed.is_err() || refused.is_some_and(|(_, error)| *error != PushError::Closed) {
                    members[at].miss(key, value);
                }
            }
        }
    }

    /// Where a member is.
    fn position(&self, id: u64) -> Option<usize> {
        self.members.binary_search_by_key(&id, |member| member.id).ok()
    }

    /// Offers these members again what found no room, until one of a member's values finds none again.
    fn retry(&mut self, these: impl SliceIndex<[Member], Output = [Member]>) {
        let Self { sender: Some(sender), members, .. } = self else { return };
        for member in members[these].iter_mut().filter(|member| member.identity.is_missing()) {
            while let Some(first) = member.missed.first_entry() {
                let value = Arc::clone(first.get());
                match give(sender, member.sink, &value, &member.meta(&value)) {
                    Err(RingPushError::Full | RingPushError::OutOfBlocks) => break,
                    // A closed ring wants nothing more.
                    _ => member.missed.pop_first(),
                };
            }
            member.identity.misses(!member.missed.is_empty());
        }
    }
}

/// Puts a value into the ring of one sink. Late readers share one copy of it.
fn give(sender: &mut Sender, sink: SinkId, value: &Value, meta: &Meta) -> Result<(), RingPushError> {
    let producer = sender.producer();
    if value.stored.get().is_none() {
        // No other thread stores it: the topic is locked.
        let _ = value.stored.set(producer.store(&value.record)?);
    }
    let stored = value.stored.get().ok_or(RingPushError::OutOfBlocks)?;
    if producer.push_stored(sink.ring(), stored, meta)?.notify {
        sender.notify();
    }
    Ok(())
}

impl Member {
    fn wants(&self, key: &str, value: &Value) -> bool {
        let is_for_it = match value.content {
            Kind::Text => true,
            Kind::Bytes => self.takes_bytes,
            Kind::NoText => !self.takes_bytes,
        };
        is_for_it && self.keys.as_ref().is_none_or(|keys| keys.contains(key))
    }

    /// Notes a value that found no room.
    fn miss(&mut self, key: &str, value: &Arc<Value>) {
        self.missed.insert(key.to_owned(), Arc::clone(value));
        self.identity.misses(true);
    }

    fn meta(&self, value: &Value) -> Meta {
        Meta {
            seq: value.seq,
            generated: value.generated,
            deadline: self.within.map_or(Timestamp::MAX, |within| value.generated + within),
            key: value.number,
            ..Meta::default()
        }
    }

    /// Drops the key's older value, if it still waits: its blocks are free at once, however slow the path is.
    fn drop_older(&mut self, sender: &mut Sender, replaces: Option<u64>) {
        let waits = sender.waiting(self.sink).is_ok_and(|waiting| waiting > 0);
        if let Some(seq) = replaces.filter(|_| waits)
            && sender.drop_seq(self.sink, seq) == Ok(true)
        {
            self.replaced += 1;
        }
    }

    fn snapshot(&self) -> WatcherSnapshot {
        self.identity.snapshot(self.within, self.replaced, self.missed.len())
    }
}

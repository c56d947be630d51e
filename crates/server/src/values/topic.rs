use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use freshwire::choice::{self, Choice, Gate};
use freshwire::engine::EngineGroup;
use freshwire::{RingConfig, Sender, SenderError, Sink, SinkConfig, now};
use tokio::sync::watch;

use super::backlog::{Member, Wishes};
use super::keys::Keys;
use super::member::{Identity, WatchRequest, WatcherSnapshot};
use super::members::Members;
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

/// Values by key, with their watchers.
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
    keys: Keys,
    members: Members,
    watchers: u64,
    publishers: usize,
}

/// A new watcher: who it is, its sink, and what it acknowledges to.
pub(super) type Joined = (Arc<Identity>, Sink, Option<Gate>);

/// Counters of a topic.
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
    /// Deletions that some watcher has not received yet. Each watcher waits for at most as many as there were keys at a time.
    pub waiting_deletions: usize,
    /// Its watchers.
    pub watchers: Vec<WatcherSnapshot>,
}

/// The place of a publisher; dropping it gives the place back.
pub struct PublisherPermit(Arc<Topic>);

impl Drop for PublisherPermit {
    fn drop(&mut self) {
        self.0.lock().publishers -= 1;
    }
}

/// Whether this can be a key.
///
/// # Errors
///
/// [`ValueError::Key`].
pub(crate) fn check_key(key: &str) -> Result<(), ValueError> {
    if !(1..=MAX_KEY_BYTES).contains(&key.len()) || key.chars().any(char::is_control) {
        return Err(ValueError::Key(key.chars().take(64).collect()));
    }
    Ok(())
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

    /// Its limits.
    pub(crate) fn limits(&self) -> &HubConfig {
        &self.config
    }

    /// Its keys.
    pub(crate) fn keys(&self) -> Vec<String> {
        self.lock().keys.names()
    }

    /// Sets a key or deletes it, for all that watch it. Takes about a microsecond for each watcher that keeps up, less for
    /// the others, and never waits.
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
        check_key(key)?;
        let bytes = match content {
            Content::Json(json) => json.len(),
            Content::Bytes(bytes) => bytes.len(),
        };
        let limit = self.config.max_value_bytes;
        if bytes > limit {
            return Err(ValueError::TooLarge { bytes, limit });
        }
        let mut state = self.to_change()?;
        if !state.keys.has(key) && state.keys.len() >= self.config.max_keys {
            return Err(ValueError::TooManyKeys(self.config.max_keys));
        }
        let place = state.keys.set(key, content);
        state.offer(place, key);
        Ok(())
    }

    /// Deletes a key.
    ///
    /// # Errors
    ///
    /// [`ValueError::NoKey`], [`ValueError::Removed`].
    pub fn delete(&self, key: &str) -> Result<(), ValueError> {
        let mut state = self.to_change()?;
        let place =
            state.keys.delete(key).ok_or_else(|| ValueError::NoKey(key.chars().take(64).collect()))?;
        state.offer(place, key);
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
        sink.network = self.config.network_of(&self.name);
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
        let State { sender: Some(sender), keys, members, .. } = &mut *state else {
            return Err(ValueError::Io("the topic has no sender".to_owned()));
        };
        // One whose sink has ended, and that has not left yet, may have had the ring.
        let ring = sink.id().ring();
        members.iter_mut().filter(|other| other.sink.ring() == ring).for_each(|other| other.leave(keys));
        let wishes = Wishes { within: request.within, keys: request.keys, takes_bytes: request.takes_bytes };
        let mut member = Member::new(sink.id(), Arc::clone(&identity), wishes);
        member.begin(keys.by_age(), keys, sender, now());
        sender.wake_noted();
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

    /// The record of the newest value of this key.
    pub(super) fn record(&self, key: &str) -> Option<Arc<Vec<u8>>> {
        self.lock().keys.record(key)
    }

    /// That of the first key after this one in their order, or of the first key of all.
    pub(super) fn record_after(&self, key: Option<&str>) -> Option<Arc<Vec<u8>>> {
        self.lock().keys.record_after(key)
    }

    /// Offers a watcher again what found no room. Returns `false` if there is still none.
    pub(super) fn retry(&self, id: u64) -> bool {
        let mut state = self.lock();
        let State { sender: Some(sender), keys, members, .. } = &mut *state else { return false };
        let Some(member) = members.get_mut(id) else { return false };
        let has_given = member.refill(keys, sender, now());
        sender.wake_noted();
        has_given
    }

    pub(super) fn leave(&self, id: u64) {
        let mut state = self.lock();
        let Some(mut member) = state.members.remove(id) else { return };
        member.leave(&mut state.keys);
        if let Some(sender) = &mut state.sender {
            sender.reuse(member.sink);
        }
    }

    pub(super) fn watcher_snapshot(&self, id: u64) -> Option<WatcherSnapshot> {
        self.lock().members.get(id).map(Member::snapshot)
    }

    /// Its counters.
    pub fn snapshot(&self) -> TopicSnapshot {
        let mut state = self.lock();
        let blocks = self.region().blocks as usize;
        let free = state.sender.as_mut().map_or(blocks, |sender| sender.producer().free_blocks());
        TopicSnapshot {
            name: self.name.clone(),
            keys: state.keys.len(),
            changes: state.keys.changes(),
            publishers: state.publishers,
            bytes: state.keys.bytes(),
            arena_used: blocks.saturating_sub(free) * BLOCK_BYTES as usize,
            waiting_deletions: state.keys.deleted(),
            watchers: state.members.iter().map(Member::snapshot).collect(),
        }
    }

    /// A thread that panicked leaves a sound state: a value that was not offered to all is offered
    /// with the next one.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Offers a key that has changed to all that want it.
    fn offer(&mut self, place: usize, key: &str) {
        let Self { sender, keys, members, .. } = self;
        // Nobody forgets it before all have been offered it.
        keys.wait(place);
        if let Some(sender) = sender {
            let now = now();
            // Watchers that keep up are first and their engines awake before the crowd of slow ones is looked at. One that falls behind
            // meanwhile is marked once more, which changes nothing.
            for is_behind in [false, true] {
                members.of_key(key, |member| {
                    if member.is_behind() == is_behind {
                        member.offer(place, keys, sender, now);
                    }
                });
                sender.wake_noted();
            }
        }
        keys.stop_waiting(place);
        keys.settle(place);
    }
}

#[cfg(test)]
mod tests;

//! The newest value of each key, and deletions that some reader still has to get.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::ops::Bound;
use std::sync::Arc;
use std::time::SystemTime;

use freshwire::fanout::{Producer, RingPushError, Stored};
use freshwire::{Timestamp, now};

use super::Content;
use super::envelope::{self, record};

/// The newest value of a key, or the end of the key.
#[derive(Default)]
pub(super) struct Value {
    /// The ring's number of the key.
    pub(super) number: u64,
    count: u64,
    pub(super) seq: u64,
    pub(super) generated: Timestamp,
    record: Arc<Vec<u8>>,
    /// In the arena, while a reader waits for it.
    stored: Option<Stored>,
}

/// The state of a key, which decides about its readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Text: for all.
    Text,
    /// Bytes: for those that take them. The others learn that the text has ended.
    Bytes,
    /// Deleted: for those that have a value of it.
    Deleted,
}

/// A key with its place.
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) state: State,
    newest: Value,
    /// The end of the text that preceded bytes, for readers that take no bytes.
    text_end: Option<Value>,
    /// Readers that wait for it.
    waiting: usize,
}

/// Keys by place. The place of a deleted key is free once no reader waits for the deletion.
#[derive(Default)]
pub(super) struct Keys {
    entries: Vec<Option<Entry>>,
    free: BinaryHeap<Reverse<usize>>,
    /// Keys that have a value.
    places: BTreeMap<String, usize>,
    deleted: usize,
    /// Keys that there have been. A key that comes again is another one, so that its values do not replace its deletion.
    numbers: u64,
    /// Changes so far.
    changes: u64,
}

impl Value {
    /// Its copy in the arena, which all readers share.
    pub(super) fn stored(&mut self, producer: &mut Producer) -> Result<&Stored, RingPushError> {
        match &mut self.stored {
            Some(stored) => Ok(stored),
            none => Ok(none.insert(producer.store(&self.record)?)),
        }
    }
}

impl Entry {
    /// The value after the newest.
    fn next(&self, changes: u64, content: Option<&Content>) -> Value {
        let (number, count) = (self.newest.number, self.newest.count + 1);
        let seq = envelope::number(changes, matches!(content, Some(Content::Bytes(_))));
        let record = Arc::new(record(&self.key, count, SystemTime::now(), content));
        Value { number, count, seq, generated: now(), record, stored: None }
    }

    /// The value for a reader: the newest, or the end of the key for it. `has_value`: the reader has one.
    pub(super) fn due(&mut self, takes_bytes: bool, has_value: bool) -> Option<Due<'_>> {
        let Self { state, newest, text_end, .. } = self;
        match (state, has_value) {
            (State::Text, _) => Some(Due { value: newest, is_end: false }),
            (State::Bytes, _) if takes_bytes => Some(Due { value: newest, is_end: false }),
            (State::Bytes, true) => text_end.as_mut().map(|value| Due { value, is_end: true }),
            (State::Deleted, true) => Some(Due { value: newest, is_end: true }),
            (State::Bytes | State::Deleted, false) => None,
        }
    }
}

/// The value that a reader is to get.
pub(super) struct Due<'a> {
    pub(super) value: &'a mut Value,
    /// It ends the key.
    pub(super) is_end: bool,
}

impl Keys {
    /// Keys that have a value.
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// Deleted keys for whose deletion a reader waits.
    pub(super) fn deleted(&self) -> usize {
        self.deleted
    }

    /// Places that there have been at a time.
    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        self.entries.len()
    }

    /// The record of the newest value of this key.
    pub(super) fn record(&self, key: &str) -> Option<Arc<Vec<u8>>> {
        self.record_at(*self.places.get(key)?)
    }

    /// That of the first key that comes after this one in their order, or of the first key of all.
    pub(super) fn record_after(&self, key: Option<&str>) -> Option<Arc<Vec<u8>>> {
        let start = key.map_or(Bound::Unbounded, Bound::Excluded);
        let mut places = self.places.range::<str, _>((start, Bound::Unbounded));
        places.find_map(|(_, place)| self.record_at(*place))
    }

    fn record_at(&self, place: usize) -> Option<Arc<Vec<u8>>> {
        Some(Arc::clone(&self.entries.get(place)?.as_ref()?.newest.record))
    }

    /// Keys that have a value.
    pub(super) fn names(&self) -> Vec<String> {
        self.places.keys().cloned().collect()
    }

    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// Bytes of the newest values.
    pub(super) fn bytes(&self) -> usize {
        let values = self.entries.iter().flatten().filter(|entry| entry.state != State::Deleted);
        values.map(|entry| entry.newest.record.len()).sum()
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.places.contains_key(key)
    }

    pub(super) fn entry(&mut self, place: usize) -> Option<&mut Entry> {
        self.entries.get_mut(place)?.as_mut()
    }

    /// Sets a key and gives its place.
    pub(super) fn set(&mut self, key: &str, content: &Content) -> usize {
        let place = self.places.get(key).copied().unwrap_or_else(|| self.add(key));
        self.change(place, Some(content));
        place
    }

    /// Deletes a key and gives its place; `None` if there is none.
    pub(super) fn delete(&mut self, key: &str) -> Option<usize> {
        let place = self.places.remove(key)?;
        self.change(place, None);
        self.deleted += 1;
        Some(place)
    }

    /// The place of a new key, which [`change`](Self::change) gives a value.
    fn add(&mut self, key: &str) -> usize {
        self.numbers += 1;
        let newest = Value { number: self.numbers, ..Value::default() };
        let entry = Entry { key: key.to_owned(), state: State::Deleted, newest, text_end: None, waiting: 0 };
        // The lowest one: a search through places is short.
        let place = self.free.pop().map_or(self.entries.len(), |Reverse(place)| place);
        if place == self.entries.len() {
            self.entries.push(None);
        }
        self.entries[place] = Some(entry);
        self.places.insert(key.to_owned(), place);
        place
    }

    /// Gives the key at this place a new value; `None` ends it.
    fn change(&mut self, place: usize, content: Option<&Content>) {
        self.changes += 1;
        let changes = self.changes;
        let Some(entry) = self.entry(place) else { return };
        let state = match content {
            Some(Content::Json(_)) => State::Text,
            Some(Content::Bytes(_)) => State::Bytes,
            None => State::Deleted,
        };
        entry.text_end = match (entry.state, state) {
            (State::Text, State::Bytes) => Some(entry.next(changes, None)),
            (_, State::Bytes) => entry.text_end.take(),
            _ => None,
        };
        entry.newest = entry.next(changes, content);
        entry.state = state;
    }

    /// Places of keys that have a value, the oldest value first.
    pub(super) fn by_age(&self) -> Vec<usize> {
        let mut places: Vec<_> = self.places.values().copied().collect();
        places.sort_unstable_by_key(|&place| self.entries[place].as_ref().map(|entry| entry.newest.seq));
        places
    }

    /// A reader waits for it from now on.
    pub(super) fn wait(&mut self, place: usize) {
        if let Some(entry) = self.entry(place) {
            entry.waiting += 1;
        }
    }

    /// A reader does not wait for it any more; [`settle`](Self::settle) follows.
    pub(super) fn stop_waiting(&mut self, place: usize) {
        if let Some(entry) = self.entry(place) {
            entry.waiting -= 1;
        }
    }

    /// Forgets what no reader waits for: copies in the arena, and deletions.
    pub(super) fn settle(&mut self, place: usize) {
        let Some(entry) = self.entry(place).filter(|entry| entry.waiting == 0) else { return };
        entry.newest.stored = None;
        if let Some(end) = &mut entry.text_end {
            end.stored = None;
        }
        if entry.state == State::Deleted {
            self.entries[place] = None;
            self.free.push(Reverse(place));
            self.deleted -= 1;
        }
    }
}

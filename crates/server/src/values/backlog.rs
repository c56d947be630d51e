//! A watcher as its topic sees it: what waits in its ring, and what has found no room there.
//!
//! ```text
//!  change ──► ring of a watcher that keeps up ──► engine
//!        └──► its key is marked ──► ring, when that has room: deletions first, then key after key in turn
//! ```
//!
//! A ring holds few values of a slow watcher. The others are marks: another change of a marked key costs nothing, and a mark takes a bit.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use freshwire::choice::Reason;
use freshwire::fanout::RingPushError;
use freshwire::{Meta, Sender, SinkId, Timestamp};

use super::keys::{Due, Keys, State};
use super::member::{Identity, WatcherSnapshot};
use super::places::Places;

/// Most values that wait in the ring of a watcher that keeps up: one tick of a source with some fifty objects, as in the guide.
const MOST_QUEUED: usize = 64;

/// The same for a watcher whose values are replaced before they are sent. A change finds its key among few then, and the engine has
/// enough to write until the topic looks again.
const FEWEST_QUEUED: usize = 8;

/// A watcher with its backlog.
pub(super) struct Member {
    pub(super) id: u64,
    pub(super) sink: SinkId,
    pub(super) identity: Arc<Identity>,
    wishes: Wishes,
    /// Its ring has ended; it gets nothing more.
    is_gone: bool,
    /// Keys whose newest value it has not been given.
    values: Places,
    /// Keys of which it has a value, and that have ended.
    ends: Places,
    /// Keys of which it has a value.
    held: Places,
    /// Values that wait in its ring, and a few that do no more.
    queued: VecDeque<Queued>,
    /// How many values may wait in its ring.
    room: usize,
    /// Whose turn it is.
    cursor: usize,
    replaced: u64,
    /// Queued values and marks looked at so far.
    #[cfg(test)]
    pub(super) work: u64,
}

/// What a watcher asked for.
pub(super) struct Wishes {
    pub(super) within: Option<Duration>,
    pub(super) keys: Option<BTreeSet<String>>,
    pub(super) takes_bytes: bool,
}

/// A record in the ring.
struct Queued {
    index: u64,
    /// The key's place; `None` for a deletion, after which the place may become that of another key, and in a ring that is kept in order.
    place: Option<usize>,
    /// It ends the text of a key that goes on in bytes.
    is_end: bool,
    deadline: Timestamp,
}

impl Member {
    pub(super) fn new(sink: SinkId, identity: Arc<Identity>, wishes: Wishes) -> Self {
        Self {
            id: identity.id,
            sink,
            identity,
            wishes,
            is_gone: false,
            values: Places::default(),
            ends: Places::default(),
            held: Places::default(),
            queued: VecDeque::new(),
            room: MOST_QUEUED,
            cursor: 0,
            replaced: 0,
            #[cfg(test)]
            work: 0,
        }
    }

    /// Gives a newcomer the newest values, in this order, as many as its ring has room for.
    pub(super) fn begin(&mut self, places: Vec<usize>, keys: &mut Keys, sender: &mut Sender, now: Timestamp) {
        // A current value is news to a newcomer, however old it is.
        let deadline = self.wishes.within.map(|within| now + within);
        for place in places {
            let is_wanted = |key| self.names().is_none_or(|names| names.contains(key));
            let is_wanted = keys.entry(place).is_some_and(|entry| is_wanted(entry.key.as_str()));
            if !is_wanted || self.due(place, keys).is_none() {
                continue;
            }
            if self.is_behind() || !self.give(place, deadline, keys, sender, now) {
                self.mark(place, false, keys);
            }
            // The copy in the arena stays: the next newcomer shares it.
        }
        self.report();
    }

    /// Offers a key that has changed, and that it wants. Its queued value is superseded, unless the watcher gets every value in
    /// time. The caller settles the key.
    pub(super) fn offer(&mut self, place: usize, keys: &mut Keys, sender: &mut Sender, now: Timestamp) {
        if self.is_gone {
            return;
        }
        let due = self.due(place, keys).map(|due| due.is_end);
        let is_marked = due.is_some_and(|is_end| self.marks(is_end).contains(place));
        // A marked key has nothing in the ring, and its mark stays: with many slow watchers that is the most frequent case.
        if !is_marked {
            self.unmark(place, keys);
            self.offer_anew(place, keys, sender, now);
            if self.is_gone {
                return self.leave(keys);
            }
        }
        // A ring with nothing in it is that of a watcher that keeps up: its publisher fills it again, without the detour by its task.
        if self.is_behind() && sender.producer().backlog(self.sink.ring()) == 0 {
            let _given = self.refill(keys, sender, now);
        }
    }

    fn offer_anew(&mut self, place: usize, keys: &mut Keys, sender: &mut Sender, now: Timestamp) {
        let had_turn = self.wishes.within.is_none() && self.take_back(place, sender);
        if let Some(is_end) = self.due(place, keys).map(|due| due.is_end) {
            let may_push = (had_turn || !self.is_behind()) && self.has_room(sender, now);
            if !may_push || !self.give(place, None, keys, sender, now) {
                self.mark(place, is_end, keys);
            }
        }
        self.report();
    }

    /// Gives what is marked, as far as the ring has room. Returns `false` if it has none.
    pub(super) fn refill(&mut self, keys: &mut Keys, sender: &mut Sender, now: Timestamp) -> bool {
        if self.is_gone || !self.is_behind() {
            return false;
        }
        let mut has_given = false;
        self.look(sender);
        if self.queued.is_empty() {
            self.room = (self.room * 2).min(MOST_QUEUED);
        }
        while let Some((place, is_end)) = self.next() {
            if !self.has_room(sender, now) || !self.give(place, None, keys, sender, now) {
                break;
            }
            has_given = true;
            if !is_end {
                self.cursor = place + 1;
            }
            self.unmark(place, keys);
            keys.settle(place);
        }
        if self.is_gone {
            self.leave(keys);
        }
        self.report();
        has_given
    }

    /// Gives up what it waits for: it has left, or its ring has ended.
    pub(super) fn leave(&mut self, keys: &mut Keys) {
        self.is_gone = true;
        self.queued.clear();
        let marked: Vec<_> = self.values.drain().chain(self.ends.drain()).collect();
        for place in marked {
            keys.stop_waiting(place);
            keys.settle(place);
        }
        self.report();
    }

    /// The keys that it asked for; `None` for all.
    pub(super) fn names(&self) -> Option<&BTreeSet<String>> {
        self.wishes.keys.as_ref()
    }

    pub(super) fn snapshot(&self) -> WatcherSnapshot {
        self.identity.snapshot(self.wishes.within, self.replaced, self.values.len() + self.ends.len())
    }

    /// Something is marked.
    pub(super) fn is_behind(&self) -> bool {
        !self.values.is_empty() || !self.ends.is_empty()
    }

    fn report(&self) {
        self.identity.misses(self.is_behind());
    }

    /// Whose turn it is. The end of a key is first: a watcher then has no more values than there were keys at a time, and no more ends
    /// wait for it.
    fn next(&mut self) -> Option<(usize, bool)> {
        #[cfg(test)]
        {
            self.work += 1;
        }
        let end = self.ends.next_from(0).map(|place| (place, true));
        end.or_else(|| self.values.next_from(self.cursor).map(|place| (place, false)))
    }

    fn mark(&mut self, place: usize, is_end: bool, keys: &mut Keys) {
        if self.is_gone {
            return;
        }
        if self.marks(is_end).insert(place) {
            keys.wait(place);
        }
    }

    /// Marks of ends or of values.
    fn marks(&mut self, is_end: bool) -> &mut Places {
        if is_end { &mut self.ends } else { &mut self.values }
    }

    fn unmark(&mut self, place: usize, keys: &mut Keys) {
        if self.values.remove(place) || self.ends.remove(place) {
            keys.stop_waiting(place);
        }
    }

    /// Drops the older value of a key, if it still waits in the ring: its blocks are free at once, however slow the path is. The end of
    /// its text as well: the policy would drop it for a newer value, and the watcher keeps the older one if that is dropped here.
    fn take_back(&mut self, place: usize, sender: &mut Sender) -> bool {
        #[cfg(test)]
        {
            self.work += self.queued.len() as u64;
        }
        let Some(at) = self.queued.iter().position(|queued| queued.place == Some(place)) else {
            return false;
        };
        let Some(Queued { index, is_end, .. }) = self.queued.remove(at) else { return false };
        let is_dropped = sender.producer().drop_at(self.sink.ring(), index, Reason::Application);
        if is_dropped == is_end {
            self.held.insert(place);
        }
        if is_dropped {
            self.replaced += 1;
            self.room = (self.room / 2).max(FEWEST_QUEUED);
        }
        is_dropped
    }

    /// Forgets what does not wait in the ring any more.
    fn look(&mut self, sender: &mut Sender) {
        #[cfg(test)]
        {
            self.work += self.queued.len() as u64;
        }
        let (ring, held) = (self.sink.ring(), &mut self.held);
        let producer = sender.producer();
        self.queued.retain(|queued| {
            let waits = producer.is_waiting(ring, queued.index);
            if let Some(place) = queued.place.filter(|_| !waits && !queued.is_end) {
                held.insert(place);
            }
            waits
        });
    }

    /// Whether another value may wait in the ring.
    fn has_room(&mut self, sender: &mut Sender, now: Timestamp) -> bool {
        if self.wishes.within.is_some() {
            self.drop_expired(sender, now);
            return true;
        }
        if self.queued.len() >= self.room {
            self.look(sender);
        }
        self.queued.len() < self.room
    }

    /// Drops stale values from the ring of a watcher that gets every value in time and in order.
    fn drop_expired(&mut self, sender: &mut Sender, now: Timestamp) {
        while let Some(Queued { index, deadline, .. }) = self.queued.front() {
            let (ring, producer) = (self.sink.ring(), sender.producer());
            if producer.is_waiting(ring, *index) {
                if *deadline >= now {
                    return;
                }
                self.replaced += u64::from(producer.drop_at(ring, *index, Reason::Application));
            }
            self.queued.pop_front();
        }
    }

    fn due<'a>(&self, place: usize, keys: &'a mut Keys) -> Option<Due<'a>> {
        keys.entry(place)?.due(self.wishes.takes_bytes, self.held.contains(place))
    }

    /// Puts what is due of a key into the ring; `false` without room. A ring that has ended takes anything.
    fn give(
        &mut self,
        place: usize,
        deadline: Option<Timestamp>,
        keys: &mut Keys,
        sender: &mut Sender,
        now: Timestamp,
    ) -> bool {
        #[cfg(test)]
        {
            self.work += 1;
        }
        let Some(Due { value, is_end }) = self.due(place, keys) else { return true };
        let deadline = match self.wishes.within {
            // The end of a key is never too late: the watcher has a value of it.
            Some(within) if !is_end => deadline.unwrap_or(value.generated + within),
            _ => Timestamp::MAX,
        };
        if deadline < now {
            return true;
        }
        let (seq, generated, key) = (value.seq, value.generated, value.number);
        let meta = Meta { seq, generated, deadline, key, ..Meta::default() };
        let (ring, producer) = (self.sink.ring(), sender.producer());
        let pushed = value.stored(producer).and_then(|stored| producer.push_stored(ring, stored, &meta));
        let is_deleted = keys.entry(place).is_some_and(|entry| entry.state == State::Deleted);
        match pushed {
            Ok(pushed) => {
                if pushed.notify {
                    sender.note(self.sink);
                }
                let is_in_order = self.wishes.within.is_some();
                if is_end {
                    self.held.remove(place);
                } else if is_in_order {
                    // Without a search of its ring for what is taken: the end of a key that it never got does no harm.
                    self.held.insert(place);
                }
                let place = (!is_deleted && !is_in_order).then_some(place);
                self.queued.push_back(Queued { index: pushed.index, place, is_end, deadline });
                true
            }
            Err(RingPushError::Full | RingPushError::OutOfBlocks) => false,
            Err(error) => {
                // Another one is of a value that never fits.
                self.is_gone |= error == RingPushError::Closed;
                true
            }
        }
    }
}

//! The records in progress: committed and not wholly written.

use std::collections::VecDeque;

use freshwire_choice::Record;
use freshwire_ring::Taken;

/// A committed record that is not wholly written.
pub(crate) struct CommittedRecord {
    pub(crate) taken: Taken,
    /// Where the payload ends that the framing has named so far.
    pub(crate) named: u32,
}

impl CommittedRecord {
    /// The record as policies see it.
    pub(crate) fn record(&self) -> Record {
        self.taken.record
    }
}

/// The record of a piece: records are numbered as they are committed.
pub(crate) type Number = u32;

/// Memory for committed records.
pub(crate) type Room = VecDeque<Option<CommittedRecord>>;

/// Committed records by number. One is open, the one whose pieces come next; another one may wait that it overtook. The others have all
/// their pieces.
#[derive(Default)]
pub(crate) struct CommittedRecords {
    /// `None` for a record that ended before an older one.
    room: Room,
    /// Number of the first in `room`.
    first: Number,
    open: Option<Number>,
    overtaken: Option<Number>,
}

impl CommittedRecords {
    /// Uses the engine's room from now on, unless something is in its own.
    pub(crate) fn borrow(&mut self, room: &mut Room) {
        if self.room.is_empty() {
            self.room = std::mem::take(room);
        }
    }

    /// Gives the engine its room back, unless something is in it.
    pub(crate) fn give_back(&mut self, room: &mut Room) {
        if self.room.is_empty() {
            *room = std::mem::take(&mut self.room);
        }
    }

    /// At least the number of records that are not wholly written.
    pub(crate) fn len(&self) -> usize {
        self.room.len()
    }

    /// Whether all committed records are wholly written.
    pub(crate) fn is_empty(&self) -> bool {
        self.room.is_empty()
    }

    /// The number that the next record will have.
    pub(crate) fn next_number(&self) -> Number {
        self.first.wrapping_add(self.room.len() as u32)
    }

    /// Adds a record that has all its pieces.
    pub(crate) fn hold(&mut self, taken: Taken) {
        let named = taken.record.len;
        self.room.push_back(Some(CommittedRecord { taken, named }));
    }

    /// Opens a record; the one that is open waits for its end.
    pub(crate) fn open(&mut self, taken: Taken) {
        self.overtaken = self.open.replace(self.next_number());
        self.room.push_back(Some(CommittedRecord { taken, named: 0 }));
    }

    /// The open record has all its pieces; the one that it overtook is open again.
    pub(crate) fn close(&mut self) {
        self.open = self.overtaken.take();
    }

    pub(crate) fn opened(&self) -> Option<&CommittedRecord> {
        self.get(self.open?)
    }

    pub(crate) fn opened_mut(&mut self) -> Option<&mut CommittedRecord> {
        let at = self.place(self.open?);
        self.room.get_mut(at)?.as_mut()
    }

    /// The open record's number.
    pub(crate) fn number(&self) -> Option<Number> {
        self.open
    }

    pub(crate) fn get(&self, number: Number) -> Option<&CommittedRecord> {
        self.room.get(self.place(number))?.as_ref()
    }

    /// Forgets a record that is wholly written or given up.
    pub(crate) fn forget(&mut self, number: Number) {
        let at = self.place(number);
        if let Some(committed) = self.room.get_mut(at) {
            *committed = None;
        }
        while let Some(None) = self.room.front() {
            self.room.pop_front();
            self.first = self.first.wrapping_add(1);
        }
    }

    /// Takes out all, oldest first.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = CommittedRecord> + '_ {
        (self.open, self.overtaken) = (None, None);
        self.first = self.first.wrapping_add(self.room.len() as u32);
        self.room.drain(..).flatten()
    }

    fn place(&self, number: Number) -> usize {
        number.wrapping_sub(self.first) as usize
    }
}

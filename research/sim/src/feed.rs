//! What an end of a connection sends: a queue that remembers what became of each record, and checks what comes of it.

use std::collections::VecDeque;
use std::time::Duration;

use freshwire_a1::{Message, Source, Taken};
use freshwire_choice::{Outcome, Reason, Record};
use freshwire_record::Timestamp;

/// A source whose payloads follow from number, version and place, so that every byte that arrives can be checked, and none
/// has to be kept.
#[derive(Debug, Default)]
pub struct Feed {
    entries: Vec<Entry>,
    /// Numbers of the records that are queued, ascending.
    waiting: VecDeque<u64>,
    /// Numbers of those that the application dropped since the connection asked.
    gone: Vec<(u64, Reason)>,
    taken: u64,
    held: u64,
    held_peak: u64,
    faults: Vec<Fault>,
}

/// A record, and what became of it.
#[derive(Clone, Debug)]
pub struct Entry {
    /// As it was pushed or last replaced.
    pub record: Record,
    /// How often its payload was replaced.
    pub version: u32,
    /// How it left the queue, and when.
    pub ending: Option<(Timestamp, Ending)>,
    /// How it came to the other end, first time.
    pub arrival: Option<Arrival>,
    /// Whether it was taken and is not settled.
    taken: bool,
    /// Whether it was ever taken.
    was_taken: bool,
    /// The connection on which it came, counted from 1.
    came_on: Option<u32>,
}

/// How a record ended at its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Its first packet had left.
    Committed(Outcome),
    /// Its sending never started.
    Dropped(Reason),
}

/// How a record came to the other end's application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When.
    pub at: Timestamp,
    /// Whether it was marked late.
    pub marked_late: bool,
    /// Error of the age reported to the receiver.
    pub age_error: Duration,
}

/// Something that must never happen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("record {seq}: {what}")]
pub struct Fault {
    /// The record's number.
    pub seq: u64,
    /// The fault.
    pub what: &'static str,
}

impl Feed {
    /// Queues a record; its number and [`Record::index`] are set here.
    pub fn push(&mut self, record: Record) -> u64 {
        let seq = self.entries.len() as u64;
        let record = Record { index: seq, seq, ..record };
        self.entries.push(Entry {
            record,
            version: 0,
            ending: None,
            arrival: None,
            taken: false,
            was_taken: false,
            came_on: None,
        });
        self.waiting.push_back(seq);
        self.hold(u64::from(record.len));
        seq
    }

    /// The application drops a queued record; false if it is too late.
    pub fn drop_seq(&mut self, now: Timestamp, seq: u64) -> bool {
        let dropped = self.discard(now, seq, Reason::Application);
        if dropped {
            self.gone.push((seq, Reason::Application));
        }
        dropped
    }

    /// The application replaces the payload of a queued record; false if it is too late: it was taken once.
    pub fn replace(&mut self, seq: u64, len: u32) -> bool {
        let Some(entry) = self.entries.get_mut(seq as usize) else { return false };
        if entry.was_taken || entry.ending.is_some() {
            return false;
        }
        let before = std::mem::replace(&mut entry.record.len, len);
        entry.version += 1;
        self.held -= u64::from(before);
        self.hold(u64::from(len));
        true
    }

    /// Every record that was pushed, by its number.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Records that are queued.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Whether nothing is queued, and nothing is taken and unsettled.
    pub fn is_settled(&self) -> bool {
        self.waiting.is_empty() && self.taken == 0
    }

    /// The most bytes of payload that were queued or unsettled at a time.
    pub fn held_peak(&self) -> u64 {
        self.held_peak
    }

    /// What went wrong.
    pub fn faults(&self) -> &[Fault] {
        &self.faults
    }

    /// The connection is gone without a word to its source: what it had taken is queued again.
    pub(crate) fn connection_lost(&mut self, now: Timestamp) {
        let taken: Vec<u64> =
            self.entries.iter().filter(|entry| entry.taken).map(|entry| entry.record.seq).collect();
        for seq in taken {
            self.settle(now, seq, Outcome::Dropped(Reason::ConnectionLost));
        }
    }

    /// The other end's application got `message`, on which of that end's connections, counted from 1.
    pub(crate) fn arrived(&mut self, now: Timestamp, message: &Message, connection: u32) {
        let Some(entry) = self.entries.get_mut(message.seq as usize) else {
            return self.fault(message.seq, "it came, and was never pushed");
        };
        let Record { seq, len, layer, group, key, refs, generated, deadline, .. } = entry.record;
        let wrong = if !entry.was_taken {
            Some("it came, and was never taken")
        } else if entry.came_on == Some(connection) {
            Some("it came twice")
        } else if message.data.len() != len as usize || !is_payload(seq, entry.version, &message.data) {
            Some("it came with other bytes")
        } else if (message.layer, message.group, message.key, message.refs) != (layer, group, key, refs) {
            Some("it came as another record")
        } else {
            None
        };
        entry.came_on = Some(connection);
        let age_error = now.saturating_since(generated).abs_diff(message.age);
        entry.arrival.get_or_insert(Arrival { at: now, marked_late: message.late, age_error });
        if let Some(what) = wrong {
            self.fault(seq, what);
        }
        let off = deadline.saturating_since(now).max(now.saturating_since(deadline));
        let is_wrong = message.late != (now > deadline);
        if is_wrong && off > age_error + ROUNDING {
            self.fault(seq, "its mark disagrees with its age");
        }
    }

    fn fault(&mut self, seq: u64, what: &'static str) {
        self.faults.push(Fault { seq, what });
    }

    fn hold(&mut self, bytes: u64) {
        self.held += bytes;
        self.held_peak = self.held_peak.max(self.held);
    }

    /// Takes a record out of the queue.
    fn unqueue(&mut self, seq: u64) -> Option<&mut Entry> {
        let at = self.waiting.binary_search(&seq).ok()?;
        self.waiting.remove(at)?;
        self.entries.get_mut(seq as usize)
    }
}

impl Source for Feed {
    fn list(&mut self, lookahead: usize, records: &mut Vec<Record>, gone: &mut Vec<(u64, Reason)>) {
        records.clear();
        let oldest = self.waiting.iter().take(lookahead);
        records.extend(oldest.filter_map(|&seq| self.entries.get(seq as usize)).map(|entry| entry.record));
        gone.clear();
        gone.append(&mut self.gone);
    }

    fn take(&mut self, _now: Timestamp, index: u64, _horizon: u32, most: u32) -> Option<Taken> {
        self.entries.get(index as usize).filter(|entry| entry.record.len <= most)?;
        let entry = self.unqueue(index)?;
        entry.taken = true;
        entry.was_taken = true;
        let record = entry.record;
        self.taken += 1;
        Some(Taken { token: index, record })
    }

    fn discard(&mut self, now: Timestamp, index: u64, reason: Reason) -> bool {
        let Some(entry) = self.unqueue(index) else { return false };
        entry.ending = Some((now, Ending::Dropped(reason)));
        self.held -= u64::from(entry.record.len);
        true
    }

    fn read(&self, token: u64, offset: u32, bytes: usize, out: &mut Vec<u8>) {
        let Some(entry) = self.entries.get(token as usize) else { return };
        out.extend((offset..).take(bytes).map(|at| payload_byte(entry.record.seq, entry.version, at)));
    }

    fn settle(&mut self, now: Timestamp, token: u64, outcome: Outcome) {
        let Some(entry) = self.entries.get_mut(token as usize).filter(|entry| entry.taken) else {
            return self.fault(token, "it was settled, and was not taken");
        };
        entry.taken = false;
        self.taken -= 1;
        if outcome == Outcome::Dropped(Reason::ConnectionLost) && entry.record.deadline > now {
            // The application wants it to go on the next connection.
            if let Err(at) = self.waiting.binary_search(&token) {
                self.waiting.insert(at, token);
            }
            return;
        }
        entry.ending = Some((now, Ending::Committed(outcome)));
        self.held -= u64::from(entry.record.len);
    }
}

fn is_payload(seq: u64, version: u32, data: &[u8]) -> bool {
    data.iter().zip(0..).all(|(&byte, at)| byte == payload_byte(seq, version, at))
}

fn payload_byte(seq: u64, version: u32, at: u32) -> u8 {
    (seq as u32)
        .wrapping_mul(31)
        .wrapping_add(version.wrapping_mul(101))
        .wrapping_add(at.wrapping_mul(7))
        .wrapping_add((at >> 8).wrapping_mul(13)) as u8
}

/// Ages and lifetimes travel in whole microseconds.
const ROUNDING: Duration = Duration::from_micros(2);

//! Where the sender's records wait until they are chosen.

use std::collections::VecDeque;

use bytes::Bytes;
use freshwire_choice::{Outcome, Reason, Record};
use freshwire_record::Timestamp;

use crate::sequence::Sequence;

/// A record at its commit point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The source's own name for it, until it is settled.
    pub token: u64,
    /// The record as it is now: it may have been changed since it was listed.
    pub record: Record,
}

/// The queue from which a connection sends. Until a record's first packet leaves, it stays here, where the
/// application can change, replace or drop it. Then its bytes are read for each transmission, until the record is
/// settled.
pub trait Source {
    /// Replaces `records` by the oldest queued ones, oldest first, at least `lookahead` of them where there are as
    /// many. Replaces `gone` by the numbers of those that others dropped since the last call.
    fn list(&mut self, lookahead: usize, records: &mut Vec<Record>, gone: &mut Vec<(u64, Reason)>);

    /// Takes the record with this [`Record::index`] out of the queue; `horizon` are the bytes that are committed and
    /// not yet sent. `None`: it has just been dropped, is being changed, or was changed to more than `most` bytes.
    fn take(&mut self, now: Timestamp, index: u64, horizon: u32, most: u32) -> Option<Taken>;

    /// Drops a queued record; false if it is no longer there.
    fn discard(&mut self, now: Timestamp, index: u64, reason: Reason) -> bool;

    /// Adds `bytes` bytes of the payload of a taken record to `out`, from `offset` on.
    fn read(&self, token: u64, offset: u32, bytes: usize, out: &mut Vec<u8>);

    /// The packet that begins at `at` in the buffer of datagrams has the last byte of a taken record, for the first time.
    fn ends_in(&mut self, token: u64, at: usize) {
        let _ = (token, at);
    }

    /// A taken record is done with: [`Outcome::Acked`], or [`Outcome::Dropped`] if it was abandoned. Its bytes are not read any
    /// more.
    fn settle(&mut self, now: Timestamp, token: u64, outcome: Outcome);
}

/// Adds exactly `bytes` bytes of a payload to `out`, as its head says, whatever the source makes of it.
pub(crate) fn read_all(source: &dyn Source, token: u64, offset: u32, bytes: usize, out: &mut Vec<u8>) {
    let end = out.len() + bytes;
    source.read(token, offset, bytes, out);
    out.resize(end, 0);
}

/// A source in this process's memory. Payloads are [`Bytes`]: they are not copied when they are pushed, and their owner
/// gets them back when the record is settled ([`Bytes::from_owner`]).
#[derive(Debug, Default)]
pub struct Queue {
    waiting: VecDeque<(Record, Bytes)>,
    /// Numbers and payloads.
    taken: Sequence<(u64, Bytes)>,
    next_index: u64,
    settled: VecDeque<(u64, Outcome)>,
    gone: Vec<(u64, Reason)>,
}

impl Queue {
    /// Queues a record; `index` and `len` of `record` are set here.
    pub fn push(&mut self, record: Record, payload: Bytes) {
        let index = self.next_index;
        self.next_index += 1;
        let len = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        self.waiting.push_back((Record { index, len, ..record }, payload));
    }

    /// Records that are queued and not taken.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether nothing is queued.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Drops the queued record with this [`Record::seq`]; false if it is too late.
    pub fn drop_seq(&mut self, seq: u64) -> bool {
        let Some(at) = self.waiting.iter().position(|(record, _)| record.seq == seq) else { return false };
        self.waiting.remove(at);
        self.gone.push((seq, Reason::Application));
        true
    }

    /// Replaces the payload of the queued record with this [`Record::seq`]; false if it is too late.
    pub fn replace(&mut self, seq: u64, payload: Bytes) -> bool {
        let Some((record, bytes)) = self.waiting.iter_mut().find(|(record, _)| record.seq == seq) else {
            return false;
        };
        record.len = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        *bytes = payload;
        true
    }

    /// The next record that is done with, by its [`Record::seq`].
    pub fn poll_fate(&mut self) -> Option<(u64, Outcome)> {
        self.settled.pop_front()
    }
}

impl Source for Queue {
    fn list(&mut self, lookahead: usize, records: &mut Vec<Record>, gone: &mut Vec<(u64, Reason)>) {
        records.clear();
        records.extend(self.waiting.iter().take(lookahead).map(|(record, _)| *record));
        gone.clear();
        gone.append(&mut self.gone);
    }

    fn take(&mut self, _now: Timestamp, index: u64, _horizon: u32, most: u32) -> Option<Taken> {
        let is_it = |record: &Record| record.index == index && record.len <= most;
        let at = self.waiting.iter().position(|(record, _)| is_it(record))?;
        let (record, payload) = self.waiting.remove(at)?;
        self.taken.insert(index, (record.seq, payload));
        Some(Taken { token: index, record })
    }

    fn discard(&mut self, _now: Timestamp, index: u64, _reason: Reason) -> bool {
        let Some(at) = self.waiting.iter().position(|(record, _)| record.index == index) else {
            return false;
        };
        self.waiting.remove(at);
        true
    }

    fn read(&self, token: u64, offset: u32, bytes: usize, out: &mut Vec<u8>) {
        let payload = self.taken.get(token).and_then(|(_, payload)| payload.get(offset as usize..));
        out.extend_from_slice(payload.and_then(|payload| payload.get(..bytes)).unwrap_or_default());
    }

    fn settle(&mut self, _now: Timestamp, token: u64, outcome: Outcome) {
        if let Some((seq, _)) = self.taken.remove(token) {
            self.settled.push_back((seq, outcome));
        }
    }
}

//! Parts of every sender: the records' bytes, and an account of their fates.

use std::time::Duration;

use freshwire_media::layered::{HEADER_BYTES, Header, fill_payload};
use freshwire_record::Timestamp;

use super::offer::OfferedRecord;
use super::receive::Received;
use crate::schema::{Plan, SenderStats};

/// The bytes of a record: the `FWLR` header, then a coded layer frame or a payload that follows from the sequence.
pub(super) fn payload(record: &OfferedRecord, start: Timestamp) -> Vec<u8> {
    let header = Header {
        layer: record.layer,
        window: record.group,
        record_bytes: record.bytes,
        seq: record.seq,
        submitted: start + record.at,
    };
    let mut bytes = vec![0; record.bytes as usize];
    bytes[..HEADER_BYTES].copy_from_slice(&header.encode());
    match &record.coded {
        Some((_, coded)) => bytes[HEADER_BYTES..].copy_from_slice(coded),
        None => fill_payload(record.seq, &mut bytes[HEADER_BYTES..]),
    }
    bytes
}

/// The last report of a sender, Freshwire's or another transport's, on a record.
#[derive(Clone, Debug, Default)]
pub(super) struct LastReport {
    pub(super) committed: Option<Timestamp>,
    /// `None`: not handed over when the run ended.
    pub(super) word: Option<String>,
}

/// From the connection to the first record, so that both ends are ready.
pub(super) const LEAD: Duration = Duration::from_millis(100);

/// The times of a run.
#[derive(Clone, Copy)]
pub(super) struct Span {
    /// The nominal submission of the first record.
    pub(super) start: Timestamp,
    /// When the source ends: later bytes do not count as received in time.
    pub(super) count_until: Timestamp,
    /// When the last record has lost its value, and both ends stop.
    pub(super) stop_at: Timestamp,
}

impl Span {
    pub(super) fn of(plan: &Plan, start: Timestamp) -> Self {
        let count_until = start + Duration::from_nanos(plan.duration_ns());
        Self { start, count_until, stop_at: count_until + Duration::from_nanos(plan.deadline_ns()) }
    }
}

/// The accounts of both ends of a run.
pub(super) struct Ends {
    pub(super) span: Span,
    pub(super) paced: SenderAccount,
    pub(super) received: Received,
}

/// The sender's account.
pub(super) struct SenderAccount {
    pub(super) fates: Vec<LastReport>,
    pub(super) sent_bytes: u64,
    pub(super) stats: SenderStats,
    /// How late the source itself was at worst.
    pub(super) lateness: Duration,
}

impl SenderAccount {
    pub(super) fn new(records: usize) -> Self {
        Self {
            fates: vec![LastReport::default(); records],
            sent_bytes: 0,
            stats: SenderStats::default(),
            lateness: Duration::ZERO,
        }
    }

    pub(super) fn sent(&mut self, record: &OfferedRecord, started: Timestamp) {
        self.fates[record.seq as usize] =
            LastReport { committed: Some(started), word: Some("sent".to_owned()) };
    }

    /// Counts by their fates what was dropped or abandoned.
    pub(super) fn count_drops(&mut self) {
        self.stats.drops.clear();
        for word in self.fates.iter().filter_map(|fate| fate.word.as_deref()) {
            if word == "abandoned" {
                *self.stats.drops.entry("expired".to_owned()).or_default() += 1;
            } else if let Some(reason) = word.strip_prefix("dropped: ") {
                *self.stats.drops.entry(reason.to_owned()).or_default() += 1;
            }
        }
    }

    pub(super) fn dropped(&mut self, record: &OfferedRecord, reason: &str) {
        *self.stats.drops.entry(reason.to_owned()).or_default() += 1;
        self.fates[record.seq as usize].word = Some(format!("dropped: {reason}"));
    }
}

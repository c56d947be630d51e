//! What became of every record.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use freshwire::choice::Reason;
use freshwire::stats::SinkSnapshot;
use freshwire::{Fate, Outcome};
use freshwire_record::Timestamp;
use serde::Serialize;

use super::input::NewRecord;
use crate::histogram::{Histogram, Summary};
use crate::output;

/// The account of one run. Records are entered when they are offered and leave when their fate is known.
pub(super) struct Account {
    begin: Timestamp,
    /// Records without a fate: when they came into being, and their bytes.
    waiting: BTreeMap<u64, (Timestamp, u64)>,
    offered: u64,
    offered_bytes: u64,
    delivered: u64,
    delivered_bytes: u64,
    dropped: BTreeMap<String, u64>,
    age_at_commit: Histogram,
    age_when_acked: Histogram,
    newest_age: Duration,
    /// Records that were offered again to somebody who connected again.
    sent_again: u64,
    connections: u64,
    /// Counts over all connections that have ended; other values are those of the last one.
    stats: SinkSnapshot,
    elapsed: Duration,
}

/// The account as JSON. Ages are counted from a record's coming into being.
#[derive(Serialize)]
struct Data<'a> {
    /// What took the records to the wire: `tcp`, `kernel-ring`, `kernel-fed` or `a1`.
    carrier: &'a str,
    seconds: f64,
    /// How many there were, one after the other.
    connections: u64,
    /// Records that were sent once more to somebody who connected again; each has an outcome each time.
    records_sent_again: u64,
    offered_records: u64,
    offered_bytes: u64,
    /// Records of which the receiver's host has acknowledged every byte.
    delivered_records: u64,
    delivered_bytes: u64,
    dropped: &'a BTreeMap<String, u64>,
    /// Bytes handed to the carrier, framing included; with A1 all of its packets.
    stream_bytes: u64,
    writes: u64,
    /// Bytes committed and not on the wire, after each write.
    horizon_mean_bytes: f64,
    horizon_max_bytes: u64,
    reserve_bytes: u64,
    rate_bps: Option<u64>,
    /// What the path carries, for an encoder that adapts.
    carries_bps: Option<u64>,
    /// The path has shown no limit in the last ten seconds: it may carry more.
    carries_at_least: Option<bool>,
    rtt_ms: f64,
    /// Age at the first byte's commit point, of committed records.
    age_at_commit: Option<Summary>,
    /// Age at the last byte's acknowledgement, of records that were delivered.
    age_when_acked: Option<Summary>,
}

impl Account {
    pub(super) fn new() -> Self {
        Self {
            begin: freshwire_io::now(),
            waiting: BTreeMap::new(),
            offered: 0,
            offered_bytes: 0,
            delivered: 0,
            delivered_bytes: 0,
            dropped: BTreeMap::new(),
            age_at_commit: Histogram::default(),
            age_when_acked: Histogram::default(),
            newest_age: Duration::ZERO,
            sent_again: 0,
            connections: 0,
            stats: SinkSnapshot::default(),
            elapsed: Duration::ZERO,
        }
    }

    pub(super) fn offered(&mut self, offer: &NewRecord) {
        let bytes = offer.bytes.len() as u64;
        self.offered += 1;
        self.offered_bytes += bytes;
        self.waiting.insert(offer.meta.seq, (offer.meta.generated, bytes));
    }

    /// The record is sent once more.
    pub(super) fn offered_again(&mut self, offer: &NewRecord) {
        let known = (offer.meta.generated, offer.bytes.len() as u64);
        if self.waiting.insert(offer.meta.seq, known).is_none() {
            self.sent_again += 1;
        }
    }

    /// A newer record took the place of this one, which has no fate of its own then.
    pub(super) fn replaced(&mut self, seq: Option<u64>) {
        if let Some(seq) = seq {
            self.not_sent(seq, &Reason::Superseded.to_string());
        }
    }

    /// The record never got onto a ring, or had left it already.
    pub(super) fn not_sent(&mut self, seq: u64, why: &str) {
        if self.waiting.remove(&seq).is_some() {
            *self.dropped.entry(why.to_owned()).or_default() += 1;
        }
    }

    /// The connection has ended. Whether records without a fate have arrived is unknown.
    pub(super) fn disconnected(&mut self, stats: &SinkSnapshot) {
        self.connections += 1;
        let mut all = stats.clone();
        all.bytes += self.stats.bytes;
        all.writes += self.stats.writes;
        all.horizon_max = all.horizon_max.max(self.stats.horizon_max);
        self.stats = all;
    }

    /// Nothing more is to be expected of those without a fate, but for these.
    pub(super) fn lose_all_but(&mut self, kept: &BTreeSet<u64>) {
        let lost: Vec<u64> = self.waiting.keys().copied().filter(|seq| !kept.contains(seq)).collect();
        let why = Reason::ConnectionLost.to_string();
        lost.into_iter().for_each(|seq| self.not_sent(seq, &why));
    }

    pub(super) fn fate(&mut self, fate: &Fate) {
        if fate.outcome == Outcome::Refused {
            // The code that pushed it knows, and tries again or counts it.
            return;
        }
        let Some((generated, bytes)) = self.waiting.remove(&fate.seq) else { return };
        if let Some(committed) = fate.committed_at {
            self.newest_age = committed.saturating_since(generated);
            self.age_at_commit.add(self.newest_age);
        }
        match fate.outcome {
            Outcome::Acked => {
                self.delivered += 1;
                self.delivered_bytes += bytes;
                if let Some(acked) = fate.acked_at {
                    self.age_when_acked.add(acked.saturating_since(generated));
                }
            }
            Outcome::Dropped(reason) => {
                *self.dropped.entry(reason.to_string()).or_default() += 1;
            }
            _ => *self.dropped.entry("sent-not-acknowledged".to_owned()).or_default() += 1,
        }
    }

    /// Records whose fate is not known yet.
    pub(super) fn outstanding(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn close(&mut self) {
        self.elapsed = freshwire_io::now().saturating_since(self.begin);
    }

    /// One line for a person who watches.
    pub(super) fn progress(&self, stats: &SinkSnapshot) -> String {
        let mut line = format!(
            "offered {}  delivered {} ({})  waiting {}",
            self.offered,
            self.delivered,
            output::bytes(self.delivered_bytes),
            self.waiting.len()
        );
        self.write_dropped(&mut line);
        let rate = stats.rate.map_or_else(|| "?".to_owned(), output::rate);
        let (horizon, rtt) = (output::bytes(stats.horizon), output::millis(stats.rtt));
        let age = output::millis(self.newest_age);
        let _ = write!(line, "  horizon {horizon}  rate {rate}  rtt {rtt}  age {age}");
        line
    }

    fn write_dropped(&self, line: &mut String) {
        let total: u64 = self.dropped.values().sum();
        if total == 0 {
            return;
        }
        let reasons: Vec<String> =
            self.dropped.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
        // Writing to a String cannot fail.
        let _ = write!(line, "  dropped {total}: {}", reasons.join(", "));
    }

    /// The account for a person.
    pub(super) fn text(&self) -> String {
        let Self { elapsed, stats, .. } = self;
        let mut text = format!(
            "offered    {} records, {} in {:.1} s\ndelivered  {} records, {}",
            self.offered,
            output::bytes(self.offered_bytes),
            elapsed.as_secs_f64(),
            self.delivered,
            output::bytes(self.delivered_bytes)
        );
        for (reason, count) in &self.dropped {
            let _ = write!(text, "\ndropped    {count} {reason}");
        }
        if self.connections > 1 {
            let (connections, again) = (self.connections, self.sent_again);
            let _ = write!(text, "\nconnected  {connections} times; {again} records were sent again");
        }
        let _ = write!(
            text,
            "\nhorizon    mean {}, max {}; reserve {}; carrier {}",
            output::bytes(stats.horizon_mean as u64),
            output::bytes(stats.horizon_max),
            output::bytes(stats.reserve),
            stats.carrier.name()
        );
        for (name, ages) in [("committed", &self.age_at_commit), ("delivered", &self.age_when_acked)] {
            if let Some(Summary { p50_ms, p95_ms, max_ms, .. }) = ages.summary() {
                let _ = write!(
                    text,
                    "\nage when {name}: median {p50_ms:.1} ms, 95 % {p95_ms:.1} ms, max {max_ms:.1} ms"
                );
            }
        }
        text
    }

    /// The account as one JSON line.
    pub(super) fn json(&self) -> anyhow::Result<String> {
        let Self { elapsed, stats, .. } = self;
        let data = Data {
            carrier: stats.carrier.name(),
            seconds: elapsed.as_secs_f64(),
            connections: self.connections,
            records_sent_again: self.sent_again,
            offered_records: self.offered,
            offered_bytes: self.offered_bytes,
            delivered_records: self.delivered,
            delivered_bytes: self.delivered_bytes,
            dropped: &self.dropped,
            stream_bytes: stats.bytes,
            writes: stats.writes,
            horizon_mean_bytes: stats.horizon_mean,
            horizon_max_bytes: stats.horizon_max,
            reserve_bytes: stats.reserve,
            rate_bps: stats.rate.map(freshwire_record::Rate::bits_per_sec),
            carries_bps: stats.path.map(|path| path.rate.bits_per_sec()),
            carries_at_least: stats.path.map(|path| path.at_least),
            rtt_ms: stats.rtt.as_secs_f64() * 1e3,
            age_at_commit: self.age_at_commit.summary(),
            age_when_acked: self.age_when_acked.summary(),
        };
        output::json_line("send", &data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use freshwire::Meta;

    fn offer(seq: u64, at: u64) -> NewRecord {
        let meta = Meta { seq, generated: Timestamp::from_nanos(at), ..Meta::default() };
        NewRecord { bytes: vec![0; 10], meta }
    }

    #[test]
    fn each_record_is_counted_once() {
        let mut account = Account::new();
        for seq in 0..4 {
            account.offered(&offer(seq, 1_000_000));
        }
        account.replaced(Some(2));
        let fate = |seq, outcome| Fate {
            committed_at: Some(Timestamp::from_nanos(3_000_000)),
            acked_at: Some(Timestamp::from_nanos(5_000_000)),
            ..Fate::uncommitted(seq, seq, outcome)
        };
        for _ in 0..2 {
            account.fate(&fate(0, Outcome::Acked));
        }
        account.fate(&fate(1, Outcome::Dropped(Reason::Expired)));
        assert_eq!(account.outstanding(), 1);
        assert_eq!((account.delivered, account.delivered_bytes), (1, 10));
        let words: Vec<_> = account.dropped.iter().map(|(word, count)| (word.as_str(), *count)).collect();
        assert_eq!(words, [("expired", 1), ("superseded", 1)]);
        assert_eq!(account.age_when_acked.summary().map(|ages| ages.max_ms), Some(4.0));
    }
}

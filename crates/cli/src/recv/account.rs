//! What came, in which layer, and how old it was.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use freshwire_media::layered::Header;
use freshwire_record::{Rate, Timestamp};
use serde::Serialize;

use super::seen::ReceivedNumbers;
use super::stream::Item;
use crate::histogram::{Histogram, Summary};
use crate::output;

/// Whether the sender's clock can be compared with ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Clock {
    /// Both ends run on one machine: they read the same `CLOCK_MONOTONIC`.
    Same,
    /// They may not, so nothing is said of ages.
    Unknown,
}

/// A record that must not be there.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum RecordError {
    #[error("record {0} came twice")]
    Twice(u64),
    #[error("record {0} was sent in the future: is the sender on another machine after all?")]
    FromTheFuture(u64),
}

/// The account of one stream.
pub(super) struct Account {
    begin: Timestamp,
    checks_layers: bool,
    deadline: Option<Duration>,
    clock: Clock,
    stream_bytes: u64,
    records: u64,
    payload_bytes: u64,
    abandoned: u64,
    layers: BTreeMap<u8, Layer>,
    windows: ReceivedNumbers,
    window_count: u64,
    seen: ReceivedNumbers,
    newest_age: Option<Duration>,
}

#[derive(Default)]
struct Layer {
    records: u64,
    bytes: u64,
    on_time: u64,
    ages: Histogram,
}

/// The account as JSON.
#[derive(Serialize)]
struct Data<'a> {
    seconds: f64,
    stream_bytes: u64,
    /// Records, of a framing that has them.
    records: u64,
    payload_bytes: u64,
    abandoned_records: u64,
    /// Sequence numbers up to the highest that neither came nor were given up: records that the sender dropped.
    missing_records: Option<u64>,
    windows: Option<u64>,
    layers: Vec<LayerData>,
    /// Age at the arrival of the last byte, over all layers. `null` if the sender's clock is not known to be ours.
    age: Option<Summary>,
    ages_known: bool,
    deadline_ms: Option<f64>,
    /// Error of the stream.
    problem: Option<&'a str>,
}

#[derive(Serialize)]
struct LayerData {
    layer: u8,
    records: u64,
    bytes: u64,
    on_time_records: Option<u64>,
    age: Option<Summary>,
}

impl Account {
    pub(super) fn new(checks_layers: bool, deadline: Option<Duration>, clock: Clock) -> Self {
        Self {
            begin: freshwire_io::now(),
            checks_layers,
            deadline,
            clock,
            stream_bytes: 0,
            records: 0,
            payload_bytes: 0,
            abandoned: 0,
            layers: BTreeMap::new(),
            windows: ReceivedNumbers::default(),
            window_count: 0,
            seen: ReceivedNumbers::default(),
            newest_age: None,
        }
    }

    /// Bytes of the stream, framing included.
    pub(super) fn bytes(&mut self, count: u64) {
        self.stream_bytes += count;
    }

    /// Counts an item that came at `now`.
    pub(super) fn item(&mut self, item: &Item, now: Timestamp) -> Result<(), RecordError> {
        self.payload_bytes += item.bytes().len() as u64;
        match item {
            Item::Layered(header, _) => self.layered(header, now),
            Item::Bytes(_) => {
                self.records += 1;
                Ok(())
            }
            Item::Abandoned => {
                self.abandoned += 1;
                Ok(())
            }
        }
    }

    fn layered(&mut self, header: &Header, now: Timestamp) -> Result<(), RecordError> {
        if !self.seen.insert(header.seq) {
            return Err(RecordError::Twice(header.seq));
        }
        self.records += 1;
        self.window_count += u64::from(self.windows.insert(u64::from(header.window)));
        let layer = self.layers.entry(header.layer).or_default();
        layer.records += 1;
        layer.bytes += u64::from(header.record_bytes);
        if self.clock == Clock::Same {
            if header.submitted > now {
                return Err(RecordError::FromTheFuture(header.seq));
            }
            let age = now.saturating_since(header.submitted);
            layer.ages.add(age);
            layer.on_time += u64::from(self.deadline.is_some_and(|deadline| age <= deadline));
            self.newest_age = Some(age);
        }
        Ok(())
    }

    /// One line for a person who watches.
    pub(super) fn progress(&self) -> String {
        let mut line = format!("received {}", output::bytes(self.stream_bytes));
        if self.checks_layers {
            let layers: Vec<String> = self.layers.values().map(|layer| layer.records.to_string()).collect();
            let _ = write!(line, "  records {}  by layer {}", self.records, layers.join(" "));
        }
        if let Some(age) = self.newest_age {
            let _ = write!(line, "  age {}", output::millis(age));
        }
        line
    }

    /// Records up to the highest that never started. Abandoned ones are gaps between the numbers as well.
    fn never_came(&self) -> u64 {
        self.seen.missing().saturating_sub(self.abandoned)
    }

    fn elapsed(&self) -> Duration {
        freshwire_io::now().saturating_since(self.begin)
    }

    fn all_ages(&self) -> Histogram {
        let mut ages = Histogram::default();
        self.layers.values().for_each(|layer| ages.merge(&layer.ages));
        ages
    }

    /// The account for a person.
    pub(super) fn text(&self) -> String {
        let elapsed = self.elapsed();
        let rate =
            Rate::from_bytes_per_sec((self.stream_bytes as f64 / elapsed.as_secs_f64().max(1e-9)) as u64);
        let mut text = format!(
            "received   {} in {:.1} s ({})",
            output::bytes(self.stream_bytes),
            elapsed.as_secs_f64(),
            output::rate(rate)
        );
        if !self.checks_layers {
            return text;
        }
        let _ = write!(
            text,
            "\nrecords    {} whole and right in {} windows, {} never came, {} given up half-way",
            self.records,
            self.window_count,
            self.never_came(),
            self.abandoned
        );
        for (number, layer) in &self.layers {
            let _ = write!(text, "\nlayer {number:<4} {:>6} records", layer.records);
            if let Some(Summary { p50_ms, p95_ms, max_ms, .. }) = layer.ages.summary() {
                let _ =
                    write!(text, "   age: median {p50_ms:.1} ms, 95 % {p95_ms:.1} ms, max {max_ms:.1} ms");
            }
            if let (Some(deadline), Clock::Same) = (self.deadline, self.clock) {
                let _ = write!(text, "   {} within {}", layer.on_time, output::millis(deadline));
            }
        }
        if self.clock == Clock::Unknown {
            text += "\nages are not known: the sender may be on another machine, with another clock \
                     (--same-host if it is not)";
        }
        text
    }

    /// The account as one JSON line.
    pub(super) fn json(&self, problem: Option<&str>) -> anyhow::Result<String> {
        let layer = |(&number, layer): (&u8, &Layer)| LayerData {
            layer: number,
            records: layer.records,
            bytes: layer.bytes,
            on_time_records: self.deadline.filter(|_| self.clock == Clock::Same).map(|_| layer.on_time),
            age: layer.ages.summary(),
        };
        let data = Data {
            seconds: self.elapsed().as_secs_f64(),
            stream_bytes: self.stream_bytes,
            records: self.records,
            payload_bytes: self.payload_bytes,
            abandoned_records: self.abandoned,
            missing_records: self.checks_layers.then(|| self.never_came()),
            windows: self.checks_layers.then_some(self.window_count),
            layers: self.layers.iter().map(layer).collect(),
            age: self.all_ages().summary(),
            ages_known: self.checks_layers && self.clock == Clock::Same,
            deadline_ms: self.deadline.map(|deadline| deadline.as_secs_f64() * 1e3),
            problem,
        };
        output::json_line("recv", &data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(seq: u64, submitted_ms: u64) -> Item {
        let submitted = Timestamp::ZERO + Duration::from_millis(submitted_ms);
        let header =
            Header { layer: (seq % 8) as u8, window: (seq / 8) as u32, record_bytes: 32, seq, submitted };
        Item::Layered(header, vec![0; 32])
    }

    fn at(ms: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn layers_windows_gaps_and_ages_are_counted() {
        let mut account = Account::new(true, Some(Duration::from_millis(50)), Clock::Same);
        for (seq, age) in [(0, 10), (1, 50), (8, 51), (10, 20)] {
            assert_eq!(account.item(&item(seq, 100), at(100 + age)), Ok(()));
        }
        assert_eq!((account.records, account.window_count, account.seen.missing()), (4, 2, 7));
        let layers: Vec<_> = account.layers.iter().map(|(n, l)| (*n, l.records, l.on_time)).collect();
        assert_eq!(layers, [(0, 2, 1), (1, 1, 1), (2, 1, 1)]);
        assert_eq!(account.all_ages().summary().map(|ages| ages.max_ms), Some(51.0));
    }

    #[test]
    fn a_record_that_was_given_up_is_not_one_that_never_came_too() {
        let mut account = Account::new(true, None, Clock::Same);
        for item in [item(0, 100), Item::Abandoned, item(4, 100)] {
            assert_eq!(account.item(&item, at(200)), Ok(()));
        }
        assert_eq!((account.records, account.abandoned, account.never_came()), (2, 1, 2));
    }

    #[test]
    fn a_record_that_must_not_be_is_an_error() {
        let mut account = Account::new(true, None, Clock::Same);
        assert_eq!(account.item(&item(3, 100), at(99)), Err(RecordError::FromTheFuture(3)));
        assert_eq!(account.item(&item(4, 100), at(101)), Ok(()));
        assert_eq!(account.item(&item(4, 100), at(102)), Err(RecordError::Twice(4)));
    }

    #[test]
    fn ages_are_left_out_when_the_clock_is_not_ours() -> anyhow::Result<()> {
        let mut account = Account::new(true, None, Clock::Unknown);
        assert_eq!(account.item(&item(0, 500), at(100)), Ok(()));
        assert!(account.json(None)?.contains(r#""age":null,"ages_known":false"#));
        assert!(account.text().contains("ages are not known"));
        Ok(())
    }
}

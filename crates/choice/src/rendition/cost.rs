use std::time::Duration;

use freshwire_record::Timestamp;

use crate::Record;

/// What a rendition asks of a path, as measured from key frame to key frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Bytes a second, averaged over whole groups.
    pub bytes_per_sec: u64,
    /// Bytes of a key frame.
    pub key_bytes: u64,
    /// Time from one key frame to the next.
    pub key_interval: Duration,
}

impl Cost {
    /// The same cost with `bytes_per_sec` more.
    pub(super) fn plus(self, bytes_per_sec: u64) -> Self {
        Self { bytes_per_sec: self.bytes_per_sec.saturating_add(bytes_per_sec), ..self }
    }
}

/// Measures the rate of sound.
#[derive(Debug, Default)]
pub(super) struct SoundMeter {
    window: Option<(Timestamp, u64)>,
    bytes_per_sec: u64,
}

impl SoundMeter {
    /// Takes in the next record; true if the rate has changed.
    pub(super) fn see(&mut self, record: &Record) -> bool {
        let (since, bytes) = self.window.get_or_insert((record.generated, 0));
        let passed = record.generated.saturating_since(*since);
        if passed >= WINDOW {
            let rate = u128::from(*bytes) * 1_000_000_000 / passed.as_nanos();
            self.bytes_per_sec = u64::try_from(rate).unwrap_or(u64::MAX);
            self.window = Some((record.generated, record.len.into()));
            return true;
        }
        *bytes += u64::from(record.len);
        false
    }

    pub(super) fn bytes_per_sec(&self) -> u64 {
        self.bytes_per_sec
    }
}

/// Measures the cost of one rendition.
#[derive(Debug, Default)]
pub(super) struct Meter {
    newest: u64,
    /// When the present group began, and its bytes so far.
    group: Option<(Timestamp, u64)>,
    cost: Option<Cost>,
}

impl Meter {
    /// Takes in the next record; true if the cost has changed.
    pub(super) fn see(&mut self, record: &Record) -> bool {
        if record.seq <= self.newest {
            return false;
        }
        self.newest = record.seq;
        let len = u64::from(record.len);
        if !record.is_key() {
            if let Some((_, bytes)) = &mut self.group {
                *bytes += len;
            }
            return false;
        }
        let before = self.group.replace((record.generated, len));
        let Some((began, bytes)) = before else { return false };
        let interval = record.generated.saturating_since(began);
        // Key frames in a burst say nothing of the rate, and neither does a pause of the source.
        if !(SHORTEST_GROUP..=LONGEST_GROUP).contains(&interval) {
            return false;
        }
        let rate = u64::try_from(u128::from(bytes) * 1_000_000_000 / interval.as_nanos()).unwrap_or(u64::MAX);
        let new = Cost { bytes_per_sec: rate, key_bytes: len, key_interval: interval };
        self.cost = Some(self.cost.map_or(new, |old| Cost {
            bytes_per_sec: smooth(old.bytes_per_sec, new.bytes_per_sec),
            key_bytes: smooth(old.key_bytes, new.key_bytes),
            key_interval: interval,
        }));
        true
    }

    /// The cost, once a whole group was seen.
    pub(super) fn cost(&self) -> Option<Cost> {
        self.cost
    }
}

/// A quarter of the way from `old` to `new`: four groups count.
fn smooth(old: u64, new: u64) -> u64 {
    old - old / 4 + new / 4
}

/// Sound is measured over this time. Chosen, not measured.
const WINDOW: Duration = Duration::from_secs(2);
/// Shortest key frame interval that is believed: one picture at 25 a second.
const SHORTEST_GROUP: Duration = Duration::from_millis(40);
/// Longest key frame interval that is believed. Chosen, not measured.
const LONGEST_GROUP: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    fn record(seq: u64, ms: u64, key: bool, len: u32) -> Record {
        let generated = Timestamp::ZERO + Duration::from_millis(ms);
        Record { len, refs: [u32::from(!key), 0], generated, ..Record::numbered(seq) }
    }

    #[test]
    fn a_group_is_measured_from_key_to_key() {
        let mut meter = Meter::default();
        for seq in 1..=50 {
            let key = seq % 25 == 1;
            assert!(!meter.see(&record(seq, seq * 40, key, if key { 10_000 } else { 1000 })) || seq > 25);
        }
        assert!(meter.see(&record(51, 51 * 40, true, 10_000)));
        let cost = meter.cost().expect("two groups");
        assert_eq!((cost.bytes_per_sec, cost.key_bytes), (34_000, 10_000));
        assert_eq!(cost.key_interval, Duration::from_secs(1));
        assert!(!meter.see(&record(50, 0, true, 1)), "an older record is known");
    }

    #[test]
    fn sound_is_measured_in_windows() {
        let mut meter = SoundMeter::default();
        let changes = (0..201).filter(|&at| meter.see(&record(at, at * 20, true, 320))).count();
        assert_eq!((changes, meter.bytes_per_sec()), (2, 16_000));
    }

    #[test]
    fn pauses_and_bursts_are_not_measured() {
        let mut meter = Meter::default();
        for (seq, ms) in [(1, 0), (2, 10), (3, 100_000)] {
            assert!(!meter.see(&record(seq, ms, true, 1000)));
        }
        assert_eq!(meter.cost(), None);
    }
}

//! Frames of sound that are published shortly after each other share a record. There are two for each picture, and a record takes a
//! slot of each viewer's ring and work for each viewer, however small it is.

use std::time::Duration;

use freshwire::now;
use freshwire_media::unit::Unit;
use freshwire_record::Timestamp;

/// The most sound of a record: three frames of AAC at 48 kHz, and so the longest that one waits for a picture or for others.
const MOST_SOUND: Duration = Duration::from_millis(65);

/// The most frames of a record, however short a source says that they are.
const MOST_FRAMES: usize = 8;

/// Sound that waits for more of it, or for the next picture.
#[derive(Default)]
pub(super) struct PendingSound {
    units: Vec<Unit>,
    since: Timestamp,
}

impl PendingSound {
    /// Adds a frame; false if there is no room for another one of its length.
    pub(super) fn add(&mut self, unit: Unit) -> bool {
        let frame = u64::from(unit.head.duration_ns);
        if self.units.is_empty() {
            self.since = now();
        }
        self.units.push(unit);
        let waiting: u64 = self.units.iter().map(|unit| u64::from(unit.head.duration_ns)).sum();
        self.units.len() < MOST_FRAMES && waiting + frame <= MOST_SOUND.as_nanos() as u64
    }

    /// The waiting frames, and the time of the first.
    pub(super) fn take(&mut self) -> Option<(Vec<Unit>, Timestamp)> {
        (!self.units.is_empty()).then(|| (std::mem::take(&mut self.units), self.since))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use freshwire_media::unit::{Kind, MediaTime, UnitHead};

    use super::*;

    /// How many frames of this length go into a record.
    fn frames(duration_ns: u32) -> usize {
        let mut waiting = PendingSound::default();
        let unit = || {
            let head = UnitHead {
                kind: Kind::Audio,
                pts: MediaTime::default(),
                dts: MediaTime::default(),
                duration_ns,
                key: true,
                len: 1,
                nals: Vec::new(),
                nal_headers: Vec::new(),
                repeat: None,
                tracks: Arc::default(),
            };
            Unit { head, layer: 0, group: 0, refs: [0; 2], bytes: vec![0] }
        };
        while waiting.add(unit()) {}
        waiting.take().map_or(0, |(units, _)| units.len())
    }

    #[test]
    fn a_record_has_sound_of_a_bounded_time_and_number() {
        assert_eq!([21_333_333, 23_219_955, 20_000_000, 60_000_000].map(frames), [3, 2, 3, 1]);
        assert_eq!([1, u32::MAX].map(frames), [MOST_FRAMES, 1]);
    }
}

//! What applications offer, and when.

use std::time::Duration;

use freshwire_choice::Record;
use freshwire_record::{Rate, Timestamp};

use crate::feed::Feed;
use crate::rng::Rng;

/// What an application sends.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum SourceConfig {
    /// The layered source of Birkedal 2006: in each window one layer after the other, at even distance. All layers of a window are played
    /// together, so they share its deadline; each depends on the one below it.
    Layers {
        /// How many in a window.
        layers: u8,
        /// Bytes of each.
        bytes: u32,
        /// Length of a window.
        window: Duration,
        /// From the window's begin to the deadline.
        lifetime: Duration,
    },
    /// Pictures of a live encoder: of eight, one anchor (layer 0), one at the half (1), two at the quarters (2), four that
    /// nothing depends on (3).
    Frames {
        /// Pictures in a second.
        fps: f64,
        /// Their mean rate.
        rate: Rate,
        /// Pictures from a key picture to the next.
        gop: u32,
        /// From a picture to its deadline.
        lifetime: Duration,
    },
    /// Where things are, again and again; only the newest of each counts.
    Positions {
        /// How many things.
        objects: u32,
        /// Bytes of each update.
        bytes: u32,
        /// Time between two updates of one thing.
        every: Duration,
        /// For how long an update is of use.
        lifetime: Duration,
    },
    /// Messages at even distance that all have to come.
    Messages {
        /// Bytes of each.
        bytes: u32,
        /// Time between two.
        every: Duration,
    },
    /// As much as goes, all of which has to come.
    Bulk {
        /// Bytes of a record.
        bytes: u32,
    },
}

/// Makes the records of an [`SourceConfig`].
#[derive(Clone, Debug)]
pub(crate) struct Generator {
    offer: SourceConfig,
    start: Timestamp,
    end: Timestamp,
    made: u64,
    rng: Rng,
}

impl Generator {
    pub(crate) fn new(offer: SourceConfig, start: Timestamp, end: Timestamp, rng: Rng) -> Self {
        Self { offer, start, end, made: 0, rng }
    }

    /// When the next record comes into being that does not depend on what was sent.
    pub(crate) fn next_at(&self) -> Option<Timestamp> {
        let at = match self.offer {
            SourceConfig::Bulk { .. } if self.made > 0 => return None,
            SourceConfig::Bulk { .. } => self.start,
            SourceConfig::Layers { layers, window, .. } => {
                self.start + nth(window, self.made, u64::from(layers.max(1)))
            }
            SourceConfig::Frames { fps, .. } => self.start + Duration::from_secs_f64(self.made as f64 / fps),
            SourceConfig::Positions { objects, every, .. } => {
                self.start + nth(every, self.made, u64::from(objects.max(1)))
            }
            SourceConfig::Messages { every, .. } => self.start + nth(every, self.made, 1),
        };
        (at < self.end).then_some(at)
    }

    /// Puts what is due into the feed; whether there was something.
    pub(crate) fn fill(&mut self, now: Timestamp, feed: &mut Feed) -> bool {
        let before = self.made;
        if let SourceConfig::Bulk { bytes } = self.offer {
            while now >= self.start && now < self.end && feed.waiting() < BULK_WAITING {
                feed.push(Record { len: bytes, ..blank(now) });
                self.made += 1;
            }
            return self.made > before;
        }
        while let Some(at) = self.next_at().filter(|&at| at <= now) {
            let record = self.record(at);
            feed.push(record);
            self.made += 1;
        }
        self.made > before
    }

    fn record(&mut self, at: Timestamp) -> Record {
        let made = self.made;
        match self.offer {
            SourceConfig::Layers { layers, bytes, window, lifetime } => {
                let layers = u64::from(layers.max(1));
                let (group, layer) = (made / layers, made % layers);
                Record {
                    len: bytes,
                    group: group as u32,
                    layer: layer as u8,
                    refs: [u32::from(layer > 0), 0],
                    deadline: self.start + nth(window, group, 1) + lifetime,
                    ..blank(at)
                }
            }
            SourceConfig::Frames { fps, rate, gop, lifetime } => {
                let place = (made % u64::from(gop.max(1))) as u32;
                let mean = rate.bytes_per_sec() as f64 / fps;
                let size = mean * weight(place) * (0.75 + 0.5 * self.rng.share()) / mean_weight(gop);
                Record {
                    len: (size as u32).max(MIN_FRAME),
                    group: (made / u64::from(gop.max(1))) as u32,
                    layer: layer(place),
                    refs: [if place > 0 { 1 << place.trailing_zeros().min(3) } else { 0 }, 0],
                    deadline: at + lifetime,
                    ..blank(at)
                }
            }
            SourceConfig::Positions { objects, bytes, lifetime, .. } => Record {
                len: bytes,
                key: 1 + made % u64::from(objects.max(1)),
                deadline: at + lifetime,
                ..blank(at)
            },
            SourceConfig::Messages { bytes, .. } | SourceConfig::Bulk { bytes } => {
                Record { len: bytes, ..blank(at) }
            }
        }
    }
}

/// `each` times `number` over `parts`.
fn nth(each: Duration, number: u64, parts: u64) -> Duration {
    let nanos = each.as_nanos() * u128::from(number) / u128::from(parts);
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

fn blank(generated: Timestamp) -> Record {
    Record { generated, ..Record::numbered(0) }
}

fn layer(place: u32) -> u8 {
    3 - place.trailing_zeros().min(3) as u8
}

/// The size of the picture at this place of its group, relative to others.
fn weight(place: u32) -> f64 {
    match (place, layer(place)) {
        (0, _) => 2.0,
        (_, 0) => 1.4,
        (_, 1) => 1.2,
        (_, 2) => 1.0,
        _ => 0.8,
    }
}

fn mean_weight(gop: u32) -> f64 {
    let gop = gop.max(1);
    (0..gop).map(weight).sum::<f64>() / f64::from(gop)
}

/// Bulk records that wait at a time. Chosen, not measured.
const BULK_WAITING: usize = 4;
/// The smallest picture: its head. Chosen, not measured.
const MIN_FRAME: u32 = 64;

//! The records that the source offers: the same list for every scheme of a cell.

use std::time::Duration;

use crate::schema::{Plan, Source};

/// A record that the source will submit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OfferedRecord {
    pub(super) seq: u64,
    pub(super) group: u32,
    pub(super) layer: u8,
    pub(super) bytes: u32,
    /// Sequences of the records that it depends on.
    pub(super) refs: Vec<u64>,
    /// When it is submitted, from the start of the run.
    pub(super) at: Duration,
    /// When its value ends, from the start of the run.
    pub(super) deadline: Duration,
}

/// Everything that a plan's source offers, in order of time.
pub(super) fn of(plan: &Plan) -> Vec<OfferedRecord> {
    let deadline = Duration::from_nanos(plan.deadline_ns());
    let duration = Duration::from_nanos(plan.duration_ns());
    match plan.source {
        Source::Layers { layers, record_bytes, window_ms, per_layer } => {
            let window = Duration::from_millis(u64::from(window_ms));
            let layer = (u64::from(per_layer), record_bytes);
            layered(u64::from(layers), layer, window, deadline, duration)
        }
        Source::Frames { fps, mean_rate_bps, gop } => {
            let ladder = Ladder { fps, mean_bytes: mean_rate_bps as f64 / 8.0 / fps, gop };
            ladder.frames(plan.link.seed, deadline, duration)
        }
    }
}

/// The source of Birkedal 2006, section 5.1: in each window one layer after the other, at even distance, each in `per_layer` records of
/// `bytes`. All layers of a window are played together, so they share its deadline.
fn layered(
    layers: u64,
    (per_layer, bytes): (u64, u32),
    window: Duration,
    deadline: Duration,
    duration: Duration,
) -> Vec<OfferedRecord> {
    let windows = (duration.as_nanos() / window.as_nanos().max(1)) as u64;
    let spacing_ns = window.as_nanos() as u64 / layers.max(1);
    let record = |seq: u64| {
        let place = seq / per_layer;
        let (group, layer) = (place / layers, place % layers);
        let start = Duration::from_nanos(window.as_nanos() as u64 * group);
        OfferedRecord {
            seq,
            group: group as u32,
            layer: layer as u8,
            bytes,
            // The last record of the layer below.
            refs: if layer > 0 { vec![place * per_layer - 1] } else { Vec::new() },
            at: start + Duration::from_nanos(spacing_ns * layer),
            deadline: start + deadline,
        }
    };
    (0..windows * layers * per_layer).map(record).collect()
}

/// A ladder of four temporal layers, as in live encoders and layered video calls. Every eight frames have one
/// anchor (layer 0), one frame at the half (1), two at the quarters (2) and four that nothing depends on (3).
/// Key frames are anchors.
struct Ladder {
    fps: f64,
    mean_bytes: f64,
    gop: u32,
}

/// Sizes relative to each other: a key frame, then the layers.
const KEY_WEIGHT: f64 = 2.0;
const WEIGHTS: [f64; 4] = [1.4, 1.2, 1.0, 0.8];

/// A frame's size differs from its kind's mean by at most this share.
const JITTER: f64 = 0.25;

/// Each frame carries at least its record header.
const MIN_FRAME: u32 = 64;

impl Ladder {
    fn layer(place: u32) -> u8 {
        3 - place.trailing_zeros().min(3) as u8
    }

    fn weight(place: u32) -> f64 {
        if place == 0 { KEY_WEIGHT } else { WEIGHTS[usize::from(Self::layer(place))] }
    }

    /// How far back the frame at `place` of its group refers: to the frame before it in the layers below, an anchor to the
    /// anchor before.
    fn reference(place: u32) -> Option<u64> {
        (place > 0).then(|| 1 << place.trailing_zeros().min(3))
    }

    fn frames(&self, seed: u64, deadline: Duration, duration: Duration) -> Vec<OfferedRecord> {
        let gop = self.gop.max(1);
        let weight_sum: f64 = (0..gop).map(Self::weight).sum();
        let unit = self.mean_bytes * f64::from(gop) / weight_sum;
        let count = (duration.as_secs_f64() * self.fps).floor() as u64;
        let frame = |seq: u64| {
            let place = (seq % u64::from(gop)) as u32;
            let size = unit * Self::weight(place) * (1.0 + JITTER * noise(seed, seq));
            let at = Duration::from_secs_f64(seq as f64 / self.fps);
            OfferedRecord {
                seq,
                group: (seq / u64::from(gop)) as u32,
                layer: Self::layer(place),
                bytes: (size.round() as u32).max(MIN_FRAME),
                refs: Self::reference(place).map(|back| seq - back).into_iter().collect(),
                at,
                deadline: at + deadline,
            }
        };
        (0..count).map(frame).collect()
    }
}

/// A number from -1 to 1 that follows from the seed and the place alone (splitmix64's finaliser).
fn noise(seed: u64, place: u64) -> f64 {
    let mut x = seed
        .wrapping_mul(0x9E37_79B9_7F4A_7C15)
        .wrapping_add(place.wrapping_add(1))
        .wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^= x >> 31;
    (x >> 11) as f64 / (1u64 << 52) as f64 - 1.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_of_the_published_source() {
        let second = Duration::from_secs(1);
        let records = layered(8, (1, 16384), second, second, Duration::from_secs(2));
        assert_eq!(records.len(), 16);
        assert_eq!(records[9].at, Duration::from_millis(1125));
        assert_eq!(records[9].deadline, Duration::from_secs(2));
        assert_eq!((records[9].group, records[9].layer, records[9].refs.as_slice()), (1, 1, [8].as_slice()));
        assert!(records[8].refs.is_empty());
    }

    #[test]
    fn smaller_records_are_the_same_stream() {
        let second = Duration::from_secs(1);
        let whole = layered(8, (1, 16384), second, second, Duration::from_secs(3));
        for per_layer in [1, 4, 32] {
            let size = 16384 / per_layer as u32;
            let parts = layered(8, (per_layer, size), second, second, Duration::from_secs(3));
            assert_eq!(parts.len(), whole.len() * per_layer as usize);
            for part in &parts {
                let of = &whole[(part.seq / per_layer) as usize];
                assert_eq!(
                    (part.group, part.layer, part.at, part.deadline),
                    (of.group, of.layer, of.at, of.deadline)
                );
                let below: Vec<u8> = part.refs.iter().map(|&seq| parts[seq as usize].layer).collect();
                assert_eq!(below, (part.layer > 0).then(|| part.layer - 1).into_iter().collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn the_ladder_keeps_its_rate_and_refers_only_to_references() {
        let ladder = Ladder { fps: 30.0, mean_bytes: 16_666.0, gop: 32 };
        let frames = ladder.frames(7, Duration::from_millis(300), Duration::from_secs(20));
        assert_eq!(frames.len(), 600);
        let rate = frames.iter().map(|frame| f64::from(frame.bytes)).sum::<f64>() * 8.0 / 20.0;
        assert!((3.8e6..4.2e6).contains(&rate), "{rate}");
        assert_eq!(frames.iter().filter(|frame| frame.refs.is_empty()).count(), 19);
        for frame in &frames {
            for &reference in &frame.refs {
                let layer = frames[reference as usize].layer;
                assert!(layer < frame.layer || (layer == 0 && frame.layer == 0), "{frame:?}");
                assert_eq!(frames[reference as usize].group, frame.group);
            }
        }
        assert_eq!(frames, ladder.frames(7, Duration::from_millis(300), Duration::from_secs(20)));
        assert_ne!(frames, ladder.frames(8, Duration::from_millis(300), Duration::from_secs(20)));
    }
}

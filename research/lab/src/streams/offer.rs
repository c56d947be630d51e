//! The records that the source offers: the same list for every scheme of a cell.

use std::sync::Arc;
use std::time::Duration;

use freshwire_media::layered::HEADER_BYTES;

use crate::schema::{Order, Plan, Source};
use crate::scheme;
use crate::video::{LayerFrame, Video};

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
    /// The layer frame and the number of its picture, where the source is real video; otherwise the payload follows from the sequence.
    pub(super) coded: Option<(u32, Arc<[u8]>)>,
}

/// Everything that a plan's source offers, in order of time; `video` is what a plan with scalable video is of.
pub(super) fn of(plan: &Plan, video: Option<&Video>) -> Vec<OfferedRecord> {
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
        Source::Video { order, window_ms, ref layers, .. } => video.map_or(Vec::new(), |video| {
            let window = Duration::from_millis(u64::from(window_ms));
            let has_windows = order == Order::Window || scheme::ends_windows(&plan.scheme);
            Scalable { video, layers, order, window, has_windows }.records(deadline, duration)
        }),
    }
}

/// The layer frames of scalable video, in the order of their submission.
struct Scalable<'a> {
    video: &'a Video,
    layers: &'a [(u8, u8)],
    order: Order,
    window: Duration,
    /// Records of a window are a group, even if all layers of a picture are sent at its capture. Otherwise the groups would come before the
    /// layers: the top layers of a window before the base layer of the next.
    has_windows: bool,
}

impl Scalable<'_> {
    fn records(&self, deadline: Duration, duration: Duration) -> Vec<OfferedRecord> {
        let frames = self.video.frames.iter().enumerate();
        let frames = frames.take_while(|(_, frame)| frame.captured < duration);
        let mut records: Vec<(usize, OfferedRecord)> =
            frames.map(|(position, frame)| (position, self.record(frame, deadline))).collect();
        records.sort_by_key(|(_, record)| record.at);
        let mut seqs = vec![0; records.len()];
        for (seq, (position, record)) in (0u64..).zip(&mut records) {
            seqs[*position] = seq;
            record.seq = seq;
            // Layers are ordered by their references, so what a record refers to has its sequence by now.
            for reference in &mut record.refs {
                *reference = seqs[*reference as usize];
            }
        }
        records.into_iter().map(|(_, record)| record).collect()
    }

    /// The record of a frame, with positions in the file as references.
    fn record(&self, frame: &LayerFrame, deadline: Duration) -> OfferedRecord {
        let place = self.layers.iter().position(|layer| *layer == (frame.spatial, frame.temporal));
        let layer = place.unwrap_or_default() as u8;
        let window = (frame.captured.as_nanos() / self.window.as_nanos().max(1)) as u32;
        let start = self.window * window;
        let spacing = self.window / (self.layers.len() as u32).max(1);
        let (at, end) = match self.order {
            Order::Live => (frame.captured, frame.captured + deadline),
            Order::Window => (start + spacing * u32::from(layer), start + deadline),
        };
        OfferedRecord {
            seq: 0,
            group: if self.has_windows { window } else { 0 },
            layer,
            bytes: (HEADER_BYTES + frame.bytes.len()) as u32,
            refs: frame.refs.iter().map(|&position| position as u64).collect(),
            at,
            deadline: end,
            coded: Some((frame.picture, Arc::from(&frame.bytes[..]))),
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
            coded: None,
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
                coded: None,
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
    use crate::video::{Preference, layers};

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

    #[test]
    fn layers_of_a_picture_go_at_its_capture_or_by_windows() {
        let video = Video::parse(&crate::video::two_pictures()).unwrap();
        let layers = layers(&video, Preference::Motion).unwrap();
        let (ms, second) = (Duration::from_millis, Duration::from_secs);
        let offered = |order, window, duration| {
            let (video, layers) = (&video, &layers[..]);
            Scalable { video, layers, order, window, has_windows: order == Order::Window }
                .records(ms(300), duration)
        };
        let live = offered(Order::Live, second(1), second(1));
        let shape = |records: &[OfferedRecord]| -> Vec<_> {
            let of = |record: &OfferedRecord| (record.layer, record.at, record.deadline, record.refs.clone());
            records.iter().map(of).collect()
        };
        assert_eq!(
            shape(&live),
            [
                (0, ms(0), ms(300), vec![]),
                (2, ms(0), ms(300), vec![0]),
                (1, ms(40), ms(340), vec![0]),
                (3, ms(40), ms(340), vec![1, 2]),
            ]
        );
        let windows = offered(Order::Window, second(1), second(1));
        assert_eq!(
            shape(&windows),
            [
                (0, ms(0), ms(300), vec![]),
                (1, ms(250), ms(300), vec![0]),
                (2, ms(500), ms(300), vec![0]),
                (3, ms(750), ms(300), vec![2, 1]),
            ]
        );
        assert_eq!(windows.iter().map(|record| record.seq).collect::<Vec<_>>(), [0, 1, 2, 3]);
        assert_eq!(windows[1].coded, Some((1, Arc::from([2; 5]))));
        assert_eq!(windows[1].bytes, 37);
        let groups = |order| -> Vec<u32> {
            offered(order, ms(40), second(1)).iter().map(|record| record.group).collect()
        };
        assert_eq!((groups(Order::Window), groups(Order::Live)), (vec![0, 0, 1, 1], vec![0; 4]));
        assert_eq!(offered(Order::Live, ms(40), ms(40)).len(), 2, "cut at its end");
    }
}

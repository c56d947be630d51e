//! The numbers that follow from a run.

use serde::{Deserialize, Serialize};

/// The numbers that follow from the records of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Metrics {
    /// The metrics of a layered stream.
    Layers(LayersMetrics),
    /// The metrics of a stream of frames.
    Frames(FramesMetrics),
    /// The metrics of scalable video.
    Video(VideoMetrics),
}

/// The numbers that follow from the records of a layered stream.
///
/// All layers of a window are played together. A record is *on time* when it and every record of the layers
/// below it in its window arrived by the window's start plus the deadline. It is *on age* when the same
/// happened by its own nominal submission plus the deadline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct LayersMetrics {
    /// Records that the source offered.
    pub(crate) offered_records: u64,
    /// Their bytes.
    pub(crate) offered_bytes: u64,
    /// Bytes that an oracle could have delivered on time over this link.
    pub(crate) ideal_bytes: u64,
    /// Records on time.
    pub(crate) on_time_records: u64,
    /// Their bytes.
    pub(crate) on_time_bytes: u64,
    /// Bytes on age.
    pub(crate) on_age_bytes: u64,
    /// Bytes on time as a share of the ideal; none where the ideal is nothing.
    pub(crate) share_of_ideal: Option<f64>,
    /// Windows that were offered.
    pub(crate) windows: u64,
    /// Windows whose whole base layer was on time.
    pub(crate) base_windows: u64,
    /// Bytes of each layer in whole records that arrived within the run's duration, the base layer first.
    pub(crate) received_layer_bytes: Vec<u64>,
    /// The same by their window's start plus the deadline, whatever the layers below did; empty in older files.
    #[serde(default)]
    pub(crate) in_time_layer_bytes: Vec<u64>,
    /// The share of the offered bytes that is in time for a player with a start-up buffer.
    #[serde(default)]
    pub(crate) start_up: StartUp,
    /// Bytes received within the run's duration, per second, in Kibit/s (1 Kibit = 1024 bit).
    pub(crate) receive_rate_kibit: f64,
    /// From a record's nominal submission to its arrival, over offered records.
    pub(crate) delay: Delay,
    /// From a record's nominal submission to its commit point, over committed records.
    pub(crate) commit_age: Delay,
    /// From a record's commit point to its arrival, over committed records: the time from one socket to the other.
    #[serde(default)]
    pub(crate) transit: Transit,
    /// Records that arrived and were of no use.
    pub(crate) late_records: u64,
    /// Bytes that arrived late or useless, framing included, as a share of those sent.
    pub(crate) wasted_share: f64,
}

/// The share of the offered bytes that arrived by the end of their window plus a start-up buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct StartUp {
    /// Without a buffer.
    pub(crate) none: f64,
    /// With a buffer of ten seconds.
    pub(crate) ten_s: f64,
    /// With a buffer of twenty seconds.
    pub(crate) twenty_s: f64,
}

/// The time from commit point to arrival, over committed records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Transit {
    /// Its percentiles.
    #[serde(flatten)]
    pub(crate) delay: Delay,
    /// The share of records that took at most 200 ms.
    pub(crate) within_200_ms: f64,
    /// The share of records that took at most 500 ms.
    pub(crate) within_500_ms: f64,
}

/// The numbers that follow from the records of a stream of frames, one record each.
///
/// A frame is *decodable* once it and, transitively, every frame that it refers to have arrived whole. It is
/// *on time* when it is decodable by its own generation plus the deadline. A reference may itself be late and
/// still serve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct FramesMetrics {
    /// Frames that the source offered.
    pub(crate) offered_frames: u64,
    /// Frames that were decodable at some time.
    pub(crate) decodable_frames: u64,
    /// Frames on time.
    pub(crate) on_time_frames: u64,
    /// Bytes of the frames on time.
    pub(crate) on_time_bytes: u64,
    /// Frames that an oracle could have delivered on time over this link.
    pub(crate) oracle_frames: u64,
    /// Frames on time as a share of the oracle's; none where the oracle delivers nothing.
    pub(crate) share_of_oracle: Option<f64>,
    /// Frames that arrived whole and were of no use by their deadline.
    pub(crate) late_frames: u64,
    /// Age of information from the start to the end of the run's duration.
    pub(crate) age: Age,
    /// Gaps between shown frames.
    pub(crate) freezes: Freezes,
    /// The return after the link's last dip.
    pub(crate) recovery: Recovery,
    /// From generation to arrival, over offered frames.
    pub(crate) delay: Delay,
    /// From generation to the commit point, over committed frames.
    pub(crate) commit_age: Delay,
    /// Bytes received within the run's duration, per second, in Kibit/s (1 Kibit = 1024 bit).
    pub(crate) receive_rate_kibit: f64,
    /// Bytes that arrived late or useless, framing included, as a share of those sent.
    pub(crate) wasted_share: f64,
}

/// The numbers that follow from the records of scalable video.
///
/// A layer frame is *in time* when it and, transitively, all that it refers to arrived by their deadlines. A player shows each picture the
/// deadline after its capture, with its layers that are in time, and otherwise leaves the picture before it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct VideoMetrics {
    /// Pictures that the source offered.
    pub(crate) offered_pictures: u64,
    /// Pictures by their spatial layers in time, from none to all.
    pub(crate) pictures_by_layers: Vec<u64>,
    /// Pictures a second with at least one layer.
    pub(crate) pictures_per_s: f64,
    /// Mean number of spatial layers in time of the offered pictures.
    pub(crate) spatial_layers: f64,
    /// Times that the picture does not change.
    pub(crate) freezes: Freezes,
    /// Mean age of the picture on the player's screen, in nanoseconds.
    pub(crate) age_ns: f64,
    /// The same for a viewer without a buffer, who sees each picture when it can be decoded, also after its deadline; none where pictures
    /// are not sent at their capture.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) unbuffered_age_ns: Option<f64>,
    /// Bytes of all records.
    pub(crate) offered_bytes: u64,
    /// Bytes of records in time, of each layer, the base layer first.
    pub(crate) in_time_layer_bytes: Vec<u64>,
    /// From a record's nominal submission to its arrival, over offered records.
    pub(crate) delay: Delay,
    /// Bytes received within the run's duration, per second, in Kibit/s (1 Kibit = 1024 bit).
    pub(crate) receive_rate_kibit: f64,
    /// Bytes that arrived late or useless, framing included, as a share of those sent.
    pub(crate) wasted_share: f64,
}

/// The judgement of libvpx's decoder on the pictures in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Decoded {
    /// Pictures that came out.
    pub(crate) pictures: u64,
    /// Pictures that are not, bit by bit, what the same layers of the whole stream give.
    pub(crate) differing: u64,
    /// SSIM of the player's screen and the camera's picture, in the mean over the camera's; a black screen before the first picture.
    pub(crate) ssim_mean: f64,
    /// Its 5th percentile.
    pub(crate) ssim_p5: f64,
}

/// Age of information over a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Age {
    /// Its mean over time, in nanoseconds.
    pub(crate) mean_ns: f64,
    /// Its greatest value, in nanoseconds.
    pub(crate) peak_ns: u64,
    /// The share of time during which it was above the deadline.
    pub(crate) share_above_deadline: f64,
}

/// Gaps between shown frames that a viewer notices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Freezes {
    /// How many there were.
    pub(crate) count: u64,
    /// Their length together, in nanoseconds.
    pub(crate) total_ns: u64,
    /// The longest, in nanoseconds.
    pub(crate) longest_ns: u64,
}

/// How a stream came back after the link's last dip.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub(crate) enum Recovery {
    /// The link's rate never rose.
    NoDip,
    /// The age of information was at most the deadline from this long after the link's return, for a second or to the
    /// end of the run.
    After {
        /// Nanoseconds from the link's return.
        after_ns: u64,
    },
    /// It never was.
    Never,
}

impl Recovery {
    /// The time as a number; none where the link never dipped.
    pub(crate) fn as_ns(self) -> Option<f64> {
        match self {
            Self::NoDip => None,
            Self::After { after_ns } => Some(after_ns as f64),
            Self::Never => Some(f64::INFINITY),
        }
    }
}

/// Delay percentiles in nanoseconds; none is "never", or that there was nothing to count.
///
/// A percentile is the smallest delay that at least that share of all counted records kept to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Delay {
    /// Half of the records took at most this long.
    pub(crate) p50_ns: Option<u64>,
    /// 95 of 100.
    pub(crate) p95_ns: Option<u64>,
    /// 99 of 100.
    pub(crate) p99_ns: Option<u64>,
    /// All of them.
    pub(crate) max_ns: Option<u64>,
}

//! The result file: JSON Lines, one self-contained run to a line, `{"type": "run", "schema": 1, "data": {...}}`.
//!
//! Every instant is in nanoseconds of one monotonic clock and relative to the start of the run, that is to the nominal
//! submission of the first record. A reader ignores fields that it does not know; a field that changes its meaning, or
//! goes, takes a new schema number.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::results::{Decoded, Metrics};

/// The version of the result file that this program writes and reads.
pub(crate) const SCHEMA: u32 = 1;

/// One stream over one link: what was planned, where it ran, what became of each record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Run {
    /// Everything that was chosen before the run; two runs with equal plans repeat each other.
    pub(crate) plan: Plan,
    /// Where and by what the run was made.
    pub(crate) environment: Environment,
    /// Whether the machine kept up with the run.
    pub(crate) trust: Trust,
    /// Bytes counted at both ends.
    pub(crate) totals: Totals,
    /// The sender's own statistics.
    pub(crate) sender: SenderStats,
    /// Every offered record, in order of sequence, delivered or not.
    pub(crate) records: Vec<RecordFate>,
    /// A decoder's judgement of the pictures, where the records are of real video.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) decoded: Option<Decoded>,
    /// The numbers that follow from the records; filled in when the run is appended to a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) metrics: Option<Metrics>,
}

/// Everything that was chosen before a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// Which experiment the run belongs to.
    pub(crate) experiment: Experiment,
    /// How records were sent: one of the names in [`super::scheme`].
    pub(crate) scheme: String,
    /// The congestion control of the sending socket, as the kernel names it.
    pub(crate) congestion: String,
    /// How records lie in the byte stream: `raw`, `chunked`, ...
    pub(crate) framing: String,
    /// The emulated path, its seed included.
    pub(crate) link: LinkConfig,
    /// The offered records.
    pub(crate) source: Source,
    /// For how long a record keeps its value, in milliseconds.
    pub(crate) deadline_ms: f64,
    /// For how long the source offers records, in seconds.
    pub(crate) duration_s: f64,
}

/// An experiment of the lab.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Experiment {
    /// The layered stream of Birkedal 2006.
    Layers,
    /// Video-like frames that depend on each other.
    Frames,
    /// Real scalable video.
    Video,
}

/// An emulated path in the direction of the data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct LinkConfig {
    /// Bits of IP packets per second from the start; none is unlimited.
    pub(crate) rate_bps: Option<u64>,
    /// Share of packets lost, 0 to 1, the mean where losses come in bursts.
    pub(crate) loss: f64,
    /// Mean length of a loss burst in packets; none means that losses are independent.
    #[serde(default)]
    pub(crate) burst_packets: Option<f64>,
    /// One-way delay in milliseconds, the same in both directions.
    pub(crate) delay_ms: f64,
    /// Bytes that the bottleneck's queue holds; none where the emulation chose.
    #[serde(default)]
    pub(crate) queue_bytes: Option<u64>,
    /// Decides which packets are lost.
    pub(crate) seed: u64,
    /// Later changes of the rate, in order of time; empty for a steady link.
    #[serde(default)]
    pub(crate) steps: Vec<RateStep>,
}

/// A change of a link's rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RateStep {
    /// When the rate changes, in nanoseconds from the start of the run.
    pub(crate) at_ns: u64,
    /// The rate from then on in bits per second; none is unlimited.
    pub(crate) rate_bps: Option<u64>,
}

/// The records that the sender is offered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Source {
    /// The layered source of Birkedal 2006: in each window, the layers one after the other at even distance.
    Layers {
        /// Layers of a window, the base layer included.
        layers: u8,
        /// Bytes of one record, its header included.
        record_bytes: u32,
        /// Length of a window in milliseconds.
        window_ms: u32,
        /// Records of a layer of a window, submitted at once; one in files of older versions.
        #[serde(default = "one")]
        per_layer: u32,
    },
    /// Video-like frames.
    Frames {
        /// Frames per second.
        fps: f64,
        /// Mean rate in bits per second.
        mean_rate_bps: u64,
        /// Frames from one that needs no reference to the next.
        gop: u32,
    },
    /// Scalable video: a record is a layer frame of a picture.
    Video {
        /// The name or the file of the pictures.
        clip: String,
        /// Rate of all layers that the encoder was given.
        rate_bps: u64,
        /// Pictures per second.
        fps: f64,
        /// When the layers of a picture are submitted.
        order: Order,
        /// Length of a window in milliseconds; each begins with a key picture.
        window_ms: u32,
        /// The spatial and the temporal layer, from 0, of each layer; the base layer first.
        layers: Vec<(u8, u8)>,
    },
}

/// When the layers of a picture are submitted, and until when they have their value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Order {
    /// All at the picture's capture, until the deadline after it.
    Live,
    /// As the source of Birkedal 2006: after a window's capture, one layer of all its pictures after the other at even distance, until the
    /// deadline after the first.
    Window,
}

fn one() -> u32 {
    1
}

impl Source {
    /// The mean rate.
    pub(crate) fn bytes_per_second(&self) -> f64 {
        match *self {
            Self::Video { rate_bps, .. } => rate_bps as f64 / 8.0,
            Self::Layers { layers, record_bytes, window_ms, per_layer } => {
                f64::from(layers) * f64::from(per_layer) * f64::from(record_bytes) * 1e3
                    / f64::from(window_ms.max(1))
            }
            Self::Frames { mean_rate_bps, .. } => mean_rate_bps as f64 / 8.0,
        }
    }
}

/// Where and by what a run was made.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Environment {
    /// The commit that the program was built from.
    pub(crate) commit: String,
    /// The running kernel's release.
    pub(crate) kernel: String,
    /// The processor's model name.
    pub(crate) cpu: String,
    /// Logical processors that the run could use.
    pub(crate) cores: u32,
    /// The program's version.
    pub(crate) freshwire: String,
    /// The command line that made the run.
    pub(crate) command: String,
}

/// Whether a run's timing can be believed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Trust {
    /// False when the machine was too busy to keep the link's or the source's timing.
    pub(crate) trustworthy: bool,
    /// Why not, for a person to read.
    #[serde(default)]
    pub(crate) reason: Option<String>,
}

/// Bytes counted at both ends of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Totals {
    /// Bytes of the stream that the receiver read within `duration_s`, parts of records and framing included.
    pub(crate) received_bytes: u64,
    /// Bytes of the stream that the receiver read until the connection ended.
    pub(crate) received_all_bytes: u64,
    /// Bytes of the stream that the sender handed to its carrier.
    pub(crate) sent_bytes: u64,
}

/// The sender's own statistics.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct SenderStats {
    /// Most bytes that were committed and not yet on the wire at any commit.
    pub(crate) horizon_max_bytes: u64,
    /// Their mean over commits.
    pub(crate) horizon_mean_bytes: f64,
    /// Records dropped, by reason, those that were abandoned after their beginning included.
    pub(crate) drops: BTreeMap<String, u64>,
    /// System calls of the sending thread, where they were counted.
    #[serde(default)]
    pub(crate) syscalls: Option<u64>,
    /// Processor time of the sending thread in nanoseconds, where it was measured.
    #[serde(default)]
    pub(crate) cpu_ns: Option<u64>,
}

/// The fate of one offered record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RecordFate {
    /// The record's number in the stream, from 0 and increasing.
    pub(crate) seq: u64,
    /// The window of a layered stream, or the group of a frame.
    pub(crate) group: u32,
    /// The rank in the group, 0 the most important.
    pub(crate) layer: u8,
    /// Bytes of the record, its header included and its framing not.
    pub(crate) bytes: u32,
    /// When the source nominally submitted it.
    pub(crate) generated_ns: u64,
    /// The deadline that the sender had for it.
    pub(crate) deadline_ns: u64,
    /// When its first byte could no longer be changed; none for a record that was never committed.
    #[serde(default)]
    pub(crate) committed_ns: Option<u64>,
    /// When its last byte reached the receiving application; none for one that never did.
    #[serde(default)]
    pub(crate) arrived_ns: Option<u64>,
    /// The sender's last word: `sent`, `abandoned`, `unsent` or `dropped: REASON`.
    pub(crate) fate: String,
    /// Sequences of the records without which this one is useless; a layered record implies the layers below it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) refs: Vec<u64>,
    /// The number of the picture that the record is a layer of, where it is of real video.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) picture: Option<u32>,
}

impl Environment {
    /// The program, the kernel and the processor, for the foot of a page.
    pub(crate) fn line(&self) -> String {
        let Self { commit, kernel, cpu, cores, freshwire, .. } = self;
        format!("freshwire {freshwire} ({commit}), Linux {kernel}, {cpu} ({cores} cores)")
    }

    /// This program on this machine, as it was called.
    pub(crate) fn here() -> Self {
        let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpu
            .lines()
            .find_map(|line| line.strip_prefix("model name")?.split_once(": ").map(|(_, name)| name));
        let mut words = vec!["freshwire-lab".to_owned()];
        words.extend(std::env::args().skip(1));
        Self {
            commit: env!("FRESHWIRE_COMMIT").to_owned(),
            kernel: freshwire_io::tcp::kernel_release(),
            cpu: model.unwrap_or("unknown").to_owned(),
            cores: std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32),
            freshwire: env!("CARGO_PKG_VERSION").to_owned(),
            command: words.join(" "),
        }
    }
}

impl Plan {
    /// The deadline in nanoseconds.
    pub(crate) fn deadline_ns(&self) -> u64 {
        (self.deadline_ms * 1e6).round() as u64
    }

    /// The duration in nanoseconds.
    pub(crate) fn duration_ns(&self) -> u64 {
        (self.duration_s * 1e9).round() as u64
    }
}

impl LinkConfig {
    /// The same link but for the losses that chance picks.
    pub(crate) fn without_seed(&self) -> Self {
        Self { seed: 0, ..self.clone() }
    }

    /// A link whose rate does not change and whose losses are independent.
    pub(crate) fn steady(
        rate_bps: Option<u64>,
        loss: f64,
        delay: Duration,
        queue_bytes: Option<u64>,
        seed: u64,
    ) -> Self {
        let (burst_packets, delay_ms, steps) = (None, delay.as_secs_f64() * 1e3, Vec::new());
        Self { rate_bps, loss, burst_packets, delay_ms, queue_bytes, seed, steps }
    }

    /// When the rate rises for the last time, in nanoseconds from the start of the run; none if it never does.
    pub(crate) fn last_rise_ns(&self) -> Option<u64> {
        let rate = |rate_bps: Option<u64>| rate_bps.unwrap_or(u64::MAX);
        let before = std::iter::once(self.rate_bps).chain(self.steps.iter().map(|step| step.rate_bps));
        let rises =
            self.steps.iter().zip(before).filter(|(step, before)| rate(step.rate_bps) > rate(*before));
        rises.last().map(|(step, _)| step.at_ns)
    }

    /// The one-way delay in nanoseconds.
    pub(crate) fn delay_ns(&self) -> u64 {
        (self.delay_ms * 1e6).round() as u64
    }
}

impl Trust {
    /// The run's timing can be believed if there were no faults.
    pub(crate) fn of(faults: &[String]) -> Self {
        Self { trustworthy: faults.is_empty(), reason: (!faults.is_empty()).then(|| faults.join("; ")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_back_when_its_rate_last_rises() {
        let mut link = LinkConfig::steady(Some(1_000_000), 0.0, Duration::ZERO, None, 1);
        assert_eq!(link.last_rise_ns(), None);
        let step = |at_ns, rate| RateStep { at_ns, rate_bps: Some(rate) };
        link.steps = vec![step(20, 0), step(25, 1_000_000)];
        assert_eq!(link.last_rise_ns(), Some(25));
        link.steps.push(step(30, 500_000));
        assert_eq!(link.last_rise_ns(), Some(25));
    }
}

//! Counters of a sink.

use std::collections::BTreeMap;
use std::time::Duration;

use freshwire::Rate;
use freshwire::stats::{SinkSnapshot, UnreadBy};
use pyo3::prelude::*;

/// Counters of a sink. Times are seconds, rates bits per second.
#[pyclass(frozen, get_all, module = "freshwire")]
pub(crate) struct Stats {
    /// "tcp", "kernel-ring", "kernel-fed" or "a1".
    carrier: &'static str,
    /// Records of which at least one byte was committed.
    committed: u64,
    /// Records whose last byte was handed to the carrier.
    finished: u64,
    /// Bytes handed to the carrier, framing included.
    bytes: u64,
    /// Bytes that the peer has acknowledged.
    acked: u64,
    /// Records dropped, by the name of the reason.
    drops: BTreeMap<&'static str, u64>,
    /// Queued values that `replace` overwrote in place. The new value has the fate; these have none.
    overwritten: u64,
    /// Bytes committed and not on the wire after the last write.
    horizon: u64,
    horizon_max: u64,
    /// The bound of the horizon, but for one chunk.
    reserve: u64,
    age_at_commit_mean: f64,
    age_at_commit_max: f64,
    /// Delivery rate, once it is known.
    rate: Option<u64>,
    rtt: f64,
    min_rtt: f64,
    /// Write system calls.
    writes: u64,
    /// Bytes that the receiving program has not read, where that is known.
    unread: Option<u64>,
    /// How that is known: "queue" (exact) or "window".
    unread_by: Option<&'static str>,
    /// For how long records were held back for it, in all.
    held_unread: f64,
    times_held_unread: u64,
}

impl Stats {
    pub(crate) fn new(stats: &SinkSnapshot) -> Self {
        Self {
            carrier: stats.carrier.name(),
            committed: stats.committed,
            finished: stats.finished,
            bytes: stats.bytes,
            acked: stats.acked,
            drops: stats.drops.iter().map(|(reason, count)| (reason.name(), *count)).collect(),
            overwritten: stats.overwritten,
            horizon: stats.horizon,
            horizon_max: stats.horizon_max,
            reserve: stats.reserve,
            age_at_commit_mean: stats.age_at_commit_mean.as_secs_f64(),
            age_at_commit_max: stats.age_at_commit_max.as_secs_f64(),
            rate: stats.rate.map(Rate::bits_per_sec),
            rtt: seconds(stats.rtt),
            min_rtt: seconds(stats.min_rtt),
            writes: stats.writes,
            unread: stats.unread,
            unread_by: stats.unread_by.map(UnreadBy::name),
            held_unread: seconds(stats.held_unread),
            times_held_unread: stats.times_held_unread,
        }
    }
}

fn seconds(time: Duration) -> f64 {
    time.as_secs_f64()
}

#[pymethods]
impl Stats {
    fn __repr__(&self) -> String {
        let Self { carrier, committed, finished, bytes, acked, .. } = self;
        format!(
            "<freshwire.Stats {carrier}: committed={committed} finished={finished} bytes={bytes} acked={acked}>"
        )
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Stats>()
}

//! The capacity of a link, and the use of a run's bytes.

use crate::results::Delay;
use crate::schema::{LinkConfig, Run};

/// Bits of stream payload per second that a link carries at `rate_bps`: what is left of full packets after headers
/// (1448 bytes of 1500) and losses. Infinite where the rate is not limited.
pub(crate) fn capacity_bps(rate_bps: Option<u64>, loss: f64) -> f64 {
    rate_bps.map_or(f64::INFINITY, |rate| rate as f64 * (1.0 - loss) * 1448.0 / 1500.0)
}

/// Nanoseconds that `bytes` take at `capacity_bps`.
pub(super) fn transfer_ns(bytes: u64, capacity_bps: f64) -> f64 {
    if capacity_bps.is_infinite() { 0.0 } else { bytes as f64 * 8.0 / capacity_bps * 1e9 }
}

/// When `bytes` that begin at `start_ns` end on a link whose rate may change, in nanoseconds; infinite where the
/// link stops for good.
pub(crate) fn transfer_end_ns(link: &LinkConfig, start_ns: f64, bytes: u64) -> f64 {
    let mut now = start_ns;
    let mut bytes_left = bytes as f64;
    let mut capacity = capacity_bps(link.rate_bps, link.loss);
    for step in &link.steps {
        let until = step.at_ns as f64;
        if until > now {
            if capacity.is_infinite() {
                return now;
            }
            let end = now + bytes_left * 8.0 / capacity * 1e9;
            if end <= until {
                return end;
            }
            bytes_left -= (until - now) / 1e9 * capacity / 8.0;
            now = until;
        }
        capacity = capacity_bps(step.rate_bps, link.loss);
    }
    if capacity.is_infinite() { now } else { now + bytes_left * 8.0 / capacity * 1e9 }
}

/// Bytes that arrived and helped nobody, as a share of those sent; 0 where nothing was sent.
pub(super) fn wasted_share(run: &Run, useful_bytes: u64) -> f64 {
    if run.totals.sent_bytes == 0 {
        return 0.0;
    }
    run.totals.received_all_bytes.saturating_sub(useful_bytes) as f64 / run.totals.sent_bytes as f64
}

/// The age of records at their commit point, over committed records.
pub(super) fn commit_age(run: &Run) -> Delay {
    Delay::of(
        run.records
            .iter()
            .filter_map(|record| record.committed_ns.map(|at| Some(at.saturating_sub(record.generated_ns)))),
    )
}

use std::collections::BTreeMap;

use super::link::{capacity_bps, commit_age, transfer_ns, wasted_share};
use crate::results::{Delay, LayersMetrics, StartUp, Transit};
use crate::schema::{Plan, RecordFate, Run, Source};

impl LayersMetrics {
    pub(super) fn of(run: &Run, layers: u8, window_ms: u32) -> Self {
        let (deadline_ns, duration_ns) = (run.plan.deadline_ns(), run.plan.duration_ns());
        let mut metrics = Self {
            offered_records: run.records.len() as u64,
            offered_bytes: run.records.iter().map(|record| u64::from(record.bytes)).sum(),
            ideal_bytes: ideal_bytes(run, layers, window_ms),
            on_time_records: 0,
            on_time_bytes: 0,
            on_age_bytes: 0,
            share_of_ideal: None,
            windows: 0,
            base_windows: base_windows(run, window_ms),
            received_layer_bytes: layer_bytes(run, layers, |_| duration_ns),
            in_time_layer_bytes: layer_bytes(run, layers, |record| {
                duration_ns.min(window_start_ns(record.group, window_ms) + deadline_ns)
            }),
            start_up: start_up(run, window_ms),
            receive_rate_kibit: run.totals.received_bytes as f64 * 8.0 / 1024.0 / run.plan.duration_s,
            delay: Delay::of(
                run.records.iter().map(|r| r.arrived_ns.map(|at| at.saturating_sub(r.generated_ns))),
            ),
            commit_age: commit_age(run),
            transit: transit(run),
            late_records: 0,
            wasted_share: 0.0,
        };
        metrics.windows = windows(run).count() as u64;
        for (record, usable_ns) in run.records.iter().zip(usable_ns(run)) {
            let by = |start_ns: u64| usable_ns.is_some_and(|at| at <= start_ns + deadline_ns);
            if by(window_start_ns(record.group, window_ms)) {
                metrics.on_time_records += 1;
                metrics.on_time_bytes += u64::from(record.bytes);
            } else if record.arrived_ns.is_some() {
                metrics.late_records += 1;
            }
            if by(record.generated_ns) {
                metrics.on_age_bytes += u64::from(record.bytes);
            }
        }
        if metrics.ideal_bytes > 0 {
            metrics.share_of_ideal = Some(metrics.on_time_bytes as f64 / metrics.ideal_bytes as f64);
        }
        metrics.wasted_share = wasted_share(run, metrics.on_time_bytes);
        metrics
    }
}

/// Bits per second that were usable within a playout deadline, for each of `deadlines_s` in seconds. A record
/// counts if it arrived, with the layers below it, by its window's start plus the deadline.
///
/// Empty when the run is not of a layered source.
pub(crate) fn goodput_curve(run: &Run, deadlines_s: &[f64]) -> Vec<f64> {
    let Source::Layers { window_ms, .. } = run.plan.source else { return Vec::new() };
    let mut usable_after: Vec<(u64, u64)> = run
        .records
        .iter()
        .zip(usable_ns(run))
        .filter_map(|(record, usable_ns)| {
            let after = usable_ns?.saturating_sub(window_start_ns(record.group, window_ms));
            Some((after, u64::from(record.bytes)))
        })
        .collect();
    usable_after.sort_unstable();
    let goodput = |deadline_s: &f64| {
        let deadline_ns = (deadline_s * 1e9).round() as u64;
        let in_time = usable_after.partition_point(|(after, _)| *after <= deadline_ns);
        let bytes: u64 = usable_after[..in_time].iter().map(|(_, bytes)| bytes).sum();
        bytes as f64 * 8.0 / run.plan.duration_s
    };
    deadlines_s.iter().map(goodput).collect()
}

/// The time at which each record was usable: its own arrival or that of the last record of the layers below
/// it in its window, whichever is later. `None` when one of them never arrived.
fn usable_ns(run: &Run) -> Vec<Option<u64>> {
    // The time at which all records of a layer had arrived; `None` is a layer that was never whole.
    let mut whole: BTreeMap<(u32, u8), Option<u64>> = BTreeMap::new();
    for record in &run.records {
        let at = whole.entry((record.group, record.layer)).or_insert(Some(0));
        *at = at.zip(record.arrived_ns).map(|(a, b)| a.max(b));
    }
    let usable = |record: &RecordFate| {
        let below = whole.range((record.group, 0)..(record.group, record.layer));
        below.map(|(_, at)| *at).fold(record.arrived_ns, |a, b| a.zip(b).map(|(a, b)| a.max(b)))
    };
    run.records.iter().map(usable).collect()
}

fn base_windows(run: &Run, window_ms: u32) -> u64 {
    let deadline_ns = run.plan.deadline_ns();
    let mut complete: BTreeMap<u32, bool> = BTreeMap::new();
    for record in run.records.iter().filter(|record| record.layer == 0) {
        let until = window_start_ns(record.group, window_ms) + deadline_ns;
        *complete.entry(record.group).or_insert(true) &= record.arrived_ns.is_some_and(|at| at <= until);
    }
    complete.values().filter(|complete| **complete).count() as u64
}

/// Bytes of each layer in records that arrived by a time of their own.
fn layer_bytes(run: &Run, layers: u8, by: impl Fn(&RecordFate) -> u64) -> Vec<u64> {
    let mut bytes = vec![0; usize::from(layers)];
    for record in &run.records {
        if record.arrived_ns.is_some_and(|at| at <= by(record)) {
            bytes[usize::from(record.layer)] += u64::from(record.bytes);
        }
    }
    bytes
}

/// A player without a buffer plays a window at its end, when all of it has been submitted.
fn start_up(run: &Run, window_ms: u32) -> StartUp {
    let offered: u64 = run.records.iter().map(|record| u64::from(record.bytes)).sum();
    let in_time = |buffer_s: u64| {
        let by =
            |record: &RecordFate| window_start_ns(record.group + 1, window_ms) + buffer_s * 1_000_000_000;
        let in_time =
            run.records.iter().filter(|record| record.arrived_ns.is_some_and(|at| at <= by(record)));
        let bytes: u64 = in_time.map(|record| u64::from(record.bytes)).sum();
        bytes as f64 / offered.max(1) as f64
    };
    StartUp { none: in_time(0), ten_s: in_time(10), twenty_s: in_time(20) }
}

fn transit(run: &Run) -> Transit {
    let times: Vec<Option<u64>> = run
        .records
        .iter()
        .filter_map(|record| {
            let committed_ns = record.committed_ns?;
            Some(record.arrived_ns.map(|at| at.saturating_sub(committed_ns)))
        })
        .collect();
    let within = |limit_ms: u64| {
        let count = times.iter().flatten().filter(|time| **time <= limit_ms * 1_000_000).count();
        count as f64 / times.len().max(1) as f64
    };
    let (within_200_ms, within_500_ms) = (within(200), within(500));
    Transit { delay: Delay::of(times), within_200_ms, within_500_ms }
}

/// The bytes that an offline oracle, which knows the link, delivers on time. In each window, once the link is
/// done with the windows before it, the oracle sends the layers in order. Layer l of N starts no earlier than
/// l/N of the window, and a record takes its size over the link's capacity. A record counts while its end
/// plus the one-way delay keeps the deadline.
fn ideal_bytes(run: &Run, layers: u8, window_ms: u32) -> u64 {
    let Plan { link, deadline_ms, .. } = &run.plan;
    let capacity = capacity_bps(link.rate_bps, link.loss);
    let latest_ns = (deadline_ms - link.delay_ms) * 1e6;
    let mut ideal = 0;
    let mut free_at_ns = 0.0_f64;
    for (window, records) in windows(run) {
        let start_ns = window_start_ns(window, window_ms) as f64;
        let mut end_ns = (free_at_ns - start_ns).max(0.0);
        for (layer, bytes) in records {
            let ready_ns = f64::from(layer) * f64::from(window_ms) * 1e6 / f64::from(layers);
            let sent_ns = end_ns.max(ready_ns) + transfer_ns(u64::from(bytes), capacity);
            if sent_ns > latest_ns {
                break;
            }
            end_ns = sent_ns;
            ideal += u64::from(bytes);
        }
        free_at_ns = start_ns + end_ns;
    }
    ideal
}

/// The layer and size of each record, window by window, in order of the layers.
fn windows(run: &Run) -> impl Iterator<Item = (u32, Vec<(u8, u32)>)> {
    let mut windows: BTreeMap<u32, Vec<(u8, u32)>> = BTreeMap::new();
    for record in &run.records {
        windows.entry(record.group).or_default().push((record.layer, record.bytes));
    }
    windows.into_iter().map(|(window, mut records)| {
        records.sort_by_key(|(layer, _)| *layer);
        (window, records)
    })
}

fn window_start_ns(window: u32, window_ms: u32) -> u64 {
    u64::from(window) * u64::from(window_ms) * 1_000_000
}

#[cfg(test)]
mod tests;

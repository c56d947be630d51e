use std::collections::BTreeMap;

use super::age::AgeCurve;
use super::frames::decodable_ns;
use super::link::wasted_share;
use crate::results::{Delay, VideoMetrics};
use crate::schema::{Order, Run, Source};

impl VideoMetrics {
    pub(super) fn of(run: &Run, fps: f64, order: Order, window_ms: u32, layers: &[(u8, u8)]) -> Self {
        let in_time = in_time(run);
        let shown = layers_in_time(run);
        let most = usize::from(layers.iter().map(|(spatial, _)| *spatial).max().unwrap_or(0)) + 1;
        let mut pictures_by_layers = vec![0; most + 1];
        for layers in &shown {
            pictures_by_layers[usize::from(*layers)] += 1;
        }
        let mut in_time_layer_bytes = vec![0; layers.len()];
        for (record, _) in run.records.iter().zip(&in_time).filter(|(_, in_time)| **in_time) {
            in_time_layer_bytes[usize::from(record.layer)] += u64::from(record.bytes);
        }
        // On the player's clock a picture is shown when it was captured; the wait for the deadline comes on top.
        let captured_ns = |picture: usize| (picture as f64 * 1e9 / fps) as u64;
        let end_ns = run.plan.duration_ns();
        let pictures = shown.iter().enumerate().map(|(picture, layers)| {
            let at = captured_ns(picture);
            (at, (*layers > 0).then_some(at))
        });
        let screen = AgeCurve::of(pictures, end_ns);
        let wait_ms = match order {
            Order::Live => run.plan.deadline_ms,
            Order::Window => run.plan.deadline_ms + f64::from(window_ms),
        };
        let decodable = run.records.iter().zip(decodable_ns(run));
        let base = decodable.filter(|(record, _)| layers[usize::from(record.layer)].0 == 0);
        let unbuffered = AgeCurve::of(base.map(|(record, at)| (record.generated_ns, at)), end_ns);
        Self {
            offered_pictures: shown.len() as u64,
            pictures_per_s: shown.iter().filter(|layers| **layers > 0).count() as f64 / run.plan.duration_s,
            spatial_layers: shown.iter().map(|layers| f64::from(*layers)).sum::<f64>()
                / shown.len().max(1) as f64,
            pictures_by_layers,
            freezes: screen.freezes(1e9 / fps),
            age_ns: screen.summary(0).mean_ns + wait_ms * 1e6,
            unbuffered_age_ns: (order == Order::Live).then(|| unbuffered.summary(0).mean_ns),
            offered_bytes: run.records.iter().map(|record| u64::from(record.bytes)).sum(),
            delay: Delay::of(
                run.records
                    .iter()
                    .map(|record| record.arrived_ns.map(|at| at.saturating_sub(record.generated_ns))),
            ),
            receive_rate_kibit: run.totals.received_bytes as f64 * 8.0 / 1024.0 / run.plan.duration_s,
            wasted_share: wasted_share(run, in_time_layer_bytes.iter().sum()),
            in_time_layer_bytes,
        }
    }
}

/// How many spatial layers of each picture, from the smallest, are in time.
pub(crate) fn layers_in_time(run: &Run) -> Vec<u8> {
    let Source::Video { layers, .. } = &run.plan.source else { return Vec::new() };
    let pictures =
        run.records.iter().filter_map(|record| record.picture).max().map_or(0, |last| last as usize + 1);
    // A bit for each spatial layer.
    let mut there = vec![0u64; pictures];
    for (record, _) in run.records.iter().zip(in_time(run)).filter(|(_, in_time)| *in_time) {
        if let (Some(picture), Some((spatial, _))) = (record.picture, layers.get(usize::from(record.layer))) {
            there[picture as usize] |= 1 << spatial;
        }
    }
    there.into_iter().map(|layers| layers.trailing_ones() as u8).collect()
}

/// Whether each record and all that it refers to arrived by their deadlines.
fn in_time(run: &Run) -> Vec<bool> {
    let mut in_time: BTreeMap<u64, bool> = BTreeMap::new();
    for record in &run.records {
        let itself = record.arrived_ns.is_some_and(|at| at <= record.deadline_ns);
        let references = record.refs.iter().all(|seq| in_time.get(seq).copied().unwrap_or(false));
        in_time.insert(record.seq, itself && references);
    }
    in_time.into_values().collect()
}

#[cfg(test)]
mod tests;

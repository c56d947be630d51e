use std::collections::BTreeMap;

use super::age::AgeCurve;
use super::link::{commit_age, wasted_share};
use super::oracle::{self, Frame};
use crate::results::{Delay, FramesMetrics, Recovery};
use crate::schema::Run;

impl FramesMetrics {
    pub(super) fn of(run: &Run, fps: f64) -> Self {
        let deadline_ns = run.plan.deadline_ns();
        let decodable = decodable_ns(run);
        let on_time =
            |at: Option<u64>, generated_ns: u64| at.is_some_and(|at| at <= generated_ns + deadline_ns);
        let (mut on_time_frames, mut on_time_bytes, mut late_frames) = (0, 0, 0);
        for (record, at) in run.records.iter().zip(&decodable) {
            if on_time(*at, record.generated_ns) {
                on_time_frames += 1;
                on_time_bytes += u64::from(record.bytes);
            } else if record.arrived_ns.is_some() {
                late_frames += 1;
            }
        }
        let oracle_frames = oracle::frames_on_time(&oracle_input(run), &run.plan.link, deadline_ns);
        let curve = age_curve(run);
        Self {
            offered_frames: run.records.len() as u64,
            decodable_frames: decodable.iter().flatten().count() as u64,
            on_time_frames,
            on_time_bytes,
            oracle_frames,
            share_of_oracle: (oracle_frames > 0).then(|| on_time_frames as f64 / oracle_frames as f64),
            late_frames,
            age: curve.summary(deadline_ns),
            freezes: curve.freezes(1e9 / fps),
            recovery: run
                .plan
                .link
                .last_rise_ns()
                .map_or(Recovery::NoDip, |return_ns| curve.recovery(return_ns, deadline_ns)),
            delay: Delay::of(
                run.records.iter().map(|r| r.arrived_ns.map(|at| at.saturating_sub(r.generated_ns))),
            ),
            commit_age: commit_age(run),
            receive_rate_kibit: run.totals.received_bytes as f64 * 8.0 / 1024.0 / run.plan.duration_s,
            wasted_share: wasted_share(run, on_time_bytes),
        }
    }
}

/// The age of information over a run of frames.
pub(crate) fn age_curve(run: &Run) -> AgeCurve {
    let generated = run.records.iter().map(|record| record.generated_ns);
    AgeCurve::of(generated.zip(decodable_ns(run)), run.plan.duration_ns())
}

/// When each frame was decodable; none for never. A reference that was not offered makes a frame undecodable.
pub(super) fn decodable_ns(run: &Run) -> Vec<Option<u64>> {
    let mut decodable: BTreeMap<u64, Option<u64>> = BTreeMap::new();
    for record in &run.records {
        let references = record.refs.iter().map(|seq| decodable.get(seq).copied().flatten());
        let at = references.fold(record.arrived_ns, |a, b| a.zip(b).map(|(a, b)| a.max(b)));
        decodable.insert(record.seq, at);
    }
    decodable.into_values().collect()
}

fn oracle_input(run: &Run) -> Vec<Frame> {
    let position: BTreeMap<u64, usize> = run.records.iter().enumerate().map(|(i, r)| (r.seq, i)).collect();
    run.records
        .iter()
        .map(|record| Frame {
            generated_ns: record.generated_ns,
            bytes: u64::from(record.bytes),
            refs: record.refs.iter().map(|seq| position.get(seq).copied()).collect(),
        })
        .collect()
}

#[cfg(test)]
mod tests;

//! The numbers that follow from a run's records. Pure: no clock, no files; the same records give the same numbers.
//!
//! Delays are counted over *offered* records, a record that never arrived being later than every other; otherwise
//! dropping would flatter the tail.

mod age;
mod delay;
mod frames;
mod layers;
mod link;
mod oracle;
mod spread;
mod video;

use anyhow::bail;

pub(crate) use age::AgeCurve;
pub(crate) use delay::ecdf;
pub(crate) use frames::age_curve;
pub(crate) use layers::goodput_curve;
pub(crate) use link::{capacity_bps, transfer_end_ns};
pub(crate) use spread::Spread;
pub(crate) use video::layers_in_time;

use crate::results::{FramesMetrics, LayersMetrics, Metrics, VideoMetrics};
use crate::schema::{Run, Source};

impl Metrics {
    /// Measures a run. Fails when its records contradict each other or the plan.
    pub(crate) fn of(run: &Run) -> anyhow::Result<Self> {
        check(run)?;
        Ok(match run.plan.source {
            Source::Layers { layers, window_ms, .. } => {
                Self::Layers(LayersMetrics::of(run, layers, window_ms))
            }
            Source::Frames { fps, .. } => Self::Frames(FramesMetrics::of(run, fps)),
            Source::Video { fps, order, window_ms, ref layers, .. } => {
                Self::Video(VideoMetrics::of(run, fps, order, window_ms, layers))
            }
        })
    }
}

fn check(run: &Run) -> anyhow::Result<()> {
    if !(run.plan.duration_s.is_finite() && run.plan.duration_s > 0.0) {
        bail!("a run of {} s cannot be measured", run.plan.duration_s);
    }
    if let Source::Layers { layers, window_ms, .. } = run.plan.source
        && (layers == 0 || window_ms == 0)
    {
        bail!("a source of {layers} layers in windows of {window_ms} ms offers nothing");
    }
    for pair in run.records.windows(2) {
        if pair[1].seq <= pair[0].seq || pair[1].generated_ns < pair[0].generated_ns {
            bail!("record {} does not come after record {}", pair[1].seq, pair[0].seq);
        }
    }
    for record in &run.records {
        if let Some(later) = record.refs.iter().find(|&&seq| seq >= record.seq) {
            bail!("record {} refers to record {later}, which is not older", record.seq);
        }
        let layers = match &run.plan.source {
            Source::Layers { layers, .. } => usize::from(*layers),
            Source::Video { layers, .. } => layers.len(),
            Source::Frames { .. } => usize::MAX,
        };
        if usize::from(record.layer) >= layers {
            bail!("record {} is of layer {} in a stream of {layers} layers", record.seq, record.layer);
        }
        if record.picture.is_none() && matches!(run.plan.source, Source::Video { .. }) {
            bail!("record {} is of no picture", record.seq);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::RateStep;
    use crate::testing;

    #[test]
    fn a_transfer_crosses_changes_of_the_rate() {
        let mut link = testing::link(Some(1_500_000), 0.0, 0.0);
        // 1.5 Mbit/s carries 1.448 Mbit/s: 181 bytes take 1 ms.
        assert_eq!(transfer_end_ns(&link, 5e6, 181_000), 1.005e9);
        link.steps = vec![
            RateStep { at_ns: 500_000_000, rate_bps: Some(150_000) },
            RateStep { at_ns: 1_500_000_000, rate_bps: None },
        ];
        // 90 500 bytes in the first half second, 18 100 in the second, then the rest at once.
        assert_eq!(transfer_end_ns(&link, 0.0, 99_550), 1e9);
        assert_eq!(transfer_end_ns(&link, 0.0, 200_000), 1.5e9);
        assert_eq!(transfer_end_ns(&link, 1.6e9, 200_000), 1.6e9);
        link.steps = vec![RateStep { at_ns: 0, rate_bps: Some(0) }];
        assert_eq!(transfer_end_ns(&link, 0.0, 1), f64::INFINITY);
    }

    #[test]
    fn runs_that_contradict_themselves_are_refused() {
        let run = testing::layers_run("tcp", 1);
        let mut unordered = run.clone();
        unordered.records.swap(1, 2);
        assert!(Metrics::of(&unordered).unwrap_err().to_string().contains("does not come after"));
        let mut unknown_layer = run.clone();
        unknown_layer.records[3].layer = 200;
        assert!(Metrics::of(&unknown_layer).unwrap_err().to_string().contains("layer 200"));
        let mut forward = run.clone();
        forward.records[3].refs = vec![7];
        assert!(Metrics::of(&forward).unwrap_err().to_string().contains("not older"));
        let mut empty = run;
        empty.plan.duration_s = 0.0;
        assert!(Metrics::of(&empty).is_err());
    }
}

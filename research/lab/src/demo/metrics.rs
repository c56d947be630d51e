//! A viewer's experience in numbers.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::video::{Stream, interval};
use super::viewer::Shown;

/// Share of the time from the first capture to the end of the stream, and frames, as a viewer had them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Metrics {
    /// Age of what is on the screen, over time: mean.
    pub(super) age_mean_s: f64,
    /// Median.
    pub(super) age_p50_s: f64,
    /// 95th percentile.
    pub(super) age_p95_s: f64,
    /// The worst.
    pub(super) age_max_s: f64,
    /// Share of the time during which it is above the deadline.
    pub(super) late_share: f64,
    /// Frames of the camera.
    pub(super) frames: usize,
    /// Frames shown at all.
    pub(super) shown: usize,
    /// Frames shown within the deadline after their capture.
    pub(super) on_time: usize,
    /// Freezes: gaps between shown frames above max(3 x mean, mean + 150 ms).
    pub(super) freezes: usize,
    /// Their total length.
    pub(super) freeze_total_s: f64,
    /// The longest.
    pub(super) freeze_longest_s: f64,
}

impl Metrics {
    /// Follows from what was shown when.
    pub(super) fn of(stream: &Stream, shown: &[Shown], deadline: Duration) -> Self {
        let mut ages: Vec<f64> = ages(stream, shown).into_iter().map(|(_, age)| age).collect();
        ages.sort_by(f64::total_cmp);
        let limit = deadline.as_secs_f64();
        let on_time = shown.iter().filter(|shown| {
            Duration::from_nanos(shown.at_ns).saturating_sub(stream.captured(shown.frame)) <= deadline
        });
        let freezes = freezes(stream, shown);
        let count = ages.len().max(1) as f64;
        Self {
            age_mean_s: ages.iter().sum::<f64>() / count,
            age_p50_s: percentile(&ages, 0.5),
            age_p95_s: percentile(&ages, 0.95),
            age_max_s: percentile(&ages, 1.0),
            late_share: ages.iter().filter(|&&age| age > limit).count() as f64 / count,
            frames: stream.frames(),
            shown: shown.len(),
            on_time: on_time.count(),
            freezes: freezes.len(),
            // The empty sum of floats is minus zero.
            freeze_total_s: freezes.iter().fold(0.0, |total, gap| total + gap),
            freeze_longest_s: freezes.iter().copied().fold(0.0, f64::max),
        }
    }
}

/// Age of what is on the screen at even instants: seconds since the start, and seconds. Before the first frame it is
/// the time that the viewer has waited.
pub(super) fn ages(stream: &Stream, shown: &[Shown]) -> Vec<(f64, f64)> {
    let steps = stream.duration().as_nanos() / SAMPLE.as_nanos();
    let mut screen = Screen::new(shown);
    let age = |step: u32| {
        let now = SAMPLE * step;
        let captured = screen.at(now).map_or(Duration::ZERO, |frame| stream.captured(frame));
        (now.as_secs_f64(), now.saturating_sub(captured).as_secs_f64())
    };
    (0..=steps as u32).map(age).collect()
}

/// The frame on the screen at each of these ascending instants; `None` before the first frame.
pub(super) fn on_screen(shown: &[Shown], instants: impl IntoIterator<Item = Duration>) -> Vec<Option<usize>> {
    let mut screen = Screen::new(shown);
    instants.into_iter().map(|instant| screen.at(instant)).collect()
}

/// The screen of a player that stays `delay` behind the camera, at each of its instants. The screen has the
/// frame that is due, or the last one before it that has arrived by then; `None` before the first.
pub(super) fn playout(stream: &Stream, shown: &[Shown], delay: Duration) -> Vec<Option<usize>> {
    let mut screen = Screen::new(shown);
    (0..stream.frames()).map(|due| screen.at_most(due, stream.captured(due) + delay)).collect()
}

/// The smallest value that a share of all is not above; `sorted` is ascending.
pub(super) fn percentile(sorted: &[f64], share: f64) -> f64 {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
}

/// Lengths of the freezes until the end of the stream, in seconds.
fn freezes(stream: &Stream, shown: &[Shown]) -> Vec<f64> {
    let end = stream.duration();
    let mut instants: Vec<Duration> = shown.iter().map(|shown| Duration::from_nanos(shown.at_ns)).collect();
    instants.retain(|&at| at < end);
    instants.push(end);
    instants.dedup();
    let gaps: Vec<f64> = instants.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64()).collect();
    let mean = gaps.iter().sum::<f64>() / gaps.len().max(1) as f64;
    let limit = (3.0 * mean).max(mean + 0.15);
    gaps.into_iter().filter(|&gap| gap > limit).collect()
}

/// The screen, asked at instants that only grow.
struct Screen<'a> {
    shown: std::iter::Peekable<std::slice::Iter<'a, Shown>>,
    frame: Option<usize>,
}

impl<'a> Screen<'a> {
    fn new(shown: &'a [Shown]) -> Self {
        Self { shown: shown.iter().peekable(), frame: None }
    }

    fn at(&mut self, now: Duration) -> Option<usize> {
        self.at_most(usize::MAX, now)
    }

    fn at_most(&mut self, frame: usize, now: Duration) -> Option<usize> {
        let due = |next: &&Shown| next.frame <= frame && u128::from(next.at_ns) <= now.as_nanos();
        while let Some(next) = self.shown.next_if(due) {
            self.frame = Some(next.frame);
        }
        self.frame
    }
}

/// Half a frame.
const SAMPLE: Duration = Duration::from_millis(20);

const _: () = assert!(interval().as_nanos() == 2 * SAMPLE.as_nanos());

#[cfg(test)]
mod tests {
    use super::super::video::tests::ladder;
    use super::*;

    /// Every frame, `late` behind its capture.
    fn shown(stream: &Stream, late: Duration) -> Vec<Shown> {
        let at = |frame| (stream.captured(frame) + late).as_nanos() as u64;
        (0..stream.frames()).map(|frame| Shown { frame, at_ns: at(frame) }).collect()
    }

    #[test]
    fn a_steady_viewer_is_steadily_late() {
        let stream = ladder();
        let metrics =
            Metrics::of(&stream, &shown(&stream, Duration::from_millis(100)), Duration::from_millis(100));
        assert_eq!((metrics.shown, metrics.on_time, metrics.freezes), (18, 18, 0));
        assert!((metrics.age_p95_s - 0.12).abs() < 1e-9, "{metrics:?}");
        let late =
            Metrics::of(&stream, &shown(&stream, Duration::from_millis(101)), Duration::from_millis(100));
        assert_eq!(late.on_time, 0);
    }

    #[test]
    fn an_empty_screen_ages_for_the_whole_stream() {
        let stream = ladder();
        let metrics = Metrics::of(&stream, &[], Duration::from_millis(100));
        assert_eq!((metrics.shown, metrics.on_time, metrics.freezes), (0, 0, 0));
        assert!((metrics.age_max_s - stream.duration().as_secs_f64()).abs() < 1e-9);
        assert_eq!(playout(&stream, &[], Duration::from_secs(1)), vec![None; 18]);
    }

    #[test]
    fn a_hole_is_a_freeze_and_ages_what_is_shown() {
        let stream = ladder();
        let mut frames = shown(&stream, Duration::ZERO);
        frames.drain(4..12);
        let metrics = Metrics::of(&stream, &frames, Duration::from_secs(1));
        assert_eq!(metrics.freezes, 1);
        assert!((metrics.freeze_longest_s - 0.36).abs() < 1e-9, "{metrics:?}");
        assert!((metrics.age_max_s - 0.34).abs() < 1e-9, "{metrics:?}");
    }

    #[test]
    fn playout_repeats_what_is_frozen_and_waits_for_what_is_early() {
        let stream = ladder();
        let mut frames = shown(&stream, Duration::from_millis(40));
        frames.drain(1..3);
        for delay in [40, 400] {
            let screen = playout(&stream, &frames, Duration::from_millis(delay));
            assert_eq!(screen[..5], [Some(0), Some(0), Some(0), Some(3), Some(4)], "{delay}");
        }
        assert_eq!(
            playout(&stream, &frames, Duration::ZERO)[..5],
            [None, Some(0), Some(0), Some(0), Some(3)]
        );
        let live = on_screen(&frames, [10, 100, 170].map(Duration::from_millis));
        assert_eq!(live, [None, Some(0), Some(3)]);
    }

    #[test]
    fn percentiles_are_values_that_occur() {
        let values = [1.0, 2.0, 3.0, 4.0];
        assert_eq!(
            [0.0, 0.25, 0.5, 0.95, 1.0].map(|share| percentile(&values, share)),
            [1.0, 1.0, 2.0, 4.0, 4.0]
        );
        assert_eq!(percentile(&[], 0.5), 0.0);
    }
}

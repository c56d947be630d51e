use std::ops::Range;

use crate::results::{Age, Freezes, Recovery};

/// The age of information over time: now minus the generation time of the newest unit that the receiver can decode.
///
/// Until the first unit is there the age counts from the start of the run.
#[derive(Clone, Debug)]
pub(crate) struct AgeCurve {
    /// When a newer unit became decodable, and when it was generated; both rise.
    updates: Vec<(u64, u64)>,
    end_ns: u64,
}

impl AgeCurve {
    /// Builds the curve from `(generated_ns, decodable_ns)` of each unit, up to `end_ns`.
    pub(crate) fn of(units: impl IntoIterator<Item = (u64, Option<u64>)>, end_ns: u64) -> Self {
        let mut decodable: Vec<(u64, u64)> = units
            .into_iter()
            .filter_map(|(generated, at)| Some((at?, generated)))
            .filter(|(at, _)| *at <= end_ns)
            .collect();
        // At one instant the newest unit comes first and hides the others.
        decodable.sort_by_key(|(at, generated)| (*at, std::cmp::Reverse(*generated)));
        let mut updates: Vec<(u64, u64)> = Vec::with_capacity(decodable.len());
        for (at, generated) in decodable {
            if updates.last().is_none_or(|(_, newest)| generated > *newest) {
                updates.push((at, generated));
            }
        }
        Self { updates, end_ns }
    }

    /// Corners `(time, age)` of the curve in seconds, for a plot.
    pub(crate) fn corners_s(&self) -> Vec<(f64, f64)> {
        let seconds = |ns: u64| ns as f64 / 1e9;
        self.pieces()
            .flat_map(|(from, to, generated)| {
                [from, to].map(|at| (seconds(at), seconds(at.saturating_sub(generated))))
            })
            .collect()
    }

    /// Mean, peak and share of time above `deadline_ns`.
    pub(crate) fn summary(&self, deadline_ns: u64) -> Age {
        let (mut area, mut peak_ns, mut above_ns) = (0.0, 0, 0);
        for (from, to, generated) in self.pieces() {
            let (young, old) = (from.saturating_sub(generated), to.saturating_sub(generated));
            area += (young + old) as f64 / 2.0 * (to - from) as f64;
            peak_ns = peak_ns.max(old);
            above_ns += to.saturating_sub(from.max(generated.saturating_add(deadline_ns)));
        }
        let time = self.end_ns.max(1) as f64;
        Age { mean_ns: area / time, peak_ns, share_above_deadline: above_ns as f64 / time }
    }

    /// The age that is not exceeded in that share of the time from `span.start` to `span.end`.
    pub(crate) fn quantile(&self, span: Range<u64>, share: f64) -> u64 {
        let pieces: Vec<(u64, u64)> = self
            .pieces()
            .map(|(from, to, generated)| (from.max(span.start), to.min(span.end), generated))
            .filter(|(from, to, _)| to > from)
            .map(|(from, to, generated)| (from.saturating_sub(generated), to - from))
            .collect();
        let time: u64 = pieces.iter().map(|(_, length)| length).sum();
        // Within a piece the age rises with the time.
        let at_most = |age: u64| -> u64 {
            pieces.iter().map(|(young, length)| age.saturating_sub(*young).min(*length)).sum()
        };
        let wanted = (time as f64 * share) as u64;
        let (mut low, mut high) = (0, self.end_ns);
        while low < high {
            let middle = low + (high - low) / 2;
            if at_most(middle) >= wanted { high = middle } else { low = middle + 1 }
        }
        low
    }

    /// Gaps between shown frames above max(3 x mean, mean + 150 ms), where `interval_ns` is the source's mean distance
    /// of frames.
    ///
    /// The source's distance and not that of the shown frames: otherwise a stream that shows few frames would excuse
    /// its own gaps. A frame is shown when it is decodable and newer than the one on screen. The waits for
    /// the first frame and for the end of the run are gaps too.
    pub(crate) fn freezes(&self, interval_ns: f64) -> Freezes {
        let threshold = (3.0 * interval_ns).max(interval_ns + 150e6);
        let mut freezes = Freezes::default();
        for gap in self.pieces().map(|(from, to, _)| to - from).filter(|gap| *gap as f64 > threshold) {
            freezes.count += 1;
            freezes.total_ns += gap;
            freezes.longest_ns = freezes.longest_ns.max(gap);
        }
        freezes
    }

    /// The time beyond `limit_ns` of all waits for a newer unit, those for the first one and for the end of the run among them.
    pub(crate) fn frozen(&self, limit_ns: u64) -> u64 {
        self.pieces().map(|(from, to, _)| (to - from).saturating_sub(limit_ns)).sum()
    }

    /// How long after `return_ns` the age was at most `deadline_ns` for a second, or to the end of the run.
    pub(crate) fn recovery(&self, return_ns: u64, deadline_ns: u64) -> Recovery {
        let mut good_since = return_ns;
        for (from, to, generated) in self.pieces() {
            let above_from = from.max(generated.saturating_add(deadline_ns));
            if above_from >= to || to <= return_ns {
                continue;
            }
            if above_from >= good_since + STEADY_NS {
                break;
            }
            good_since = to;
        }
        if good_since >= self.end_ns {
            return Recovery::Never;
        }
        Recovery::After { after_ns: good_since - return_ns }
    }

    /// The stretches between updates: from, to, and when what is on screen was generated.
    fn pieces(&self) -> impl Iterator<Item = (u64, u64, u64)> {
        let starts = std::iter::once((0, 0)).chain(self.updates.iter().copied());
        let ends = self.updates.iter().map(|(at, _)| *at).chain(std::iter::once(self.end_ns));
        starts
            .zip(ends)
            .map(|((from, generated), to)| (from, to, generated))
            .filter(|(from, to, _)| to > from)
    }
}

const STEADY_NS: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Units generated at 0, 100, 200, 300 ms; the second never arrives, the fourth before the third.
    fn curve() -> AgeCurve {
        let units = [(0, Some(50)), (100, None), (200, Some(420)), (300, Some(400))];
        AgeCurve::of(units.map(|(g, at)| (g * MS, at.map(|at: u64| at * MS))), 500 * MS)
    }

    #[test]
    fn age_is_a_sawtooth_of_the_newest_unit() {
        assert_eq!(
            curve().corners_s(),
            [(0.0, 0.0), (0.05, 0.05), (0.05, 0.05), (0.4, 0.4), (0.4, 0.1), (0.5, 0.2)]
        );
        let age = curve().summary(150 * MS);
        // 0 to 400 ms: a triangle of 80 000 ms², then 100 ms at 150 ms on average.
        assert!((age.mean_ns - 190e6).abs() < 1.0, "{age:?}");
        assert_eq!(age.peak_ns, 400 * MS);
        // Above from 150 to 400 ms and from 450 to 500 ms.
        assert_eq!(age.share_above_deadline, 0.6);
    }

    #[test]
    fn quantiles_are_of_the_time() {
        let age = |from: u64, to: u64, share| curve().quantile(from * MS..to * MS, share) / MS;
        // 0 to 400 ms, then 100 to 200 ms.
        assert_eq!([age(0, 400, 0.5), age(0, 400, 0.95), age(400, 500, 0.5)], [200, 380, 150]);
        // The age is below 100 ms for 100 ms of 500, and two pieces share the next 100 ms.
        assert_eq!([age(0, 500, 0.2), age(0, 500, 0.5), age(0, 500, 1.0)], [100, 175, 400]);
        assert_eq!(age(600, 700, 0.5), 0, "nothing");
    }

    #[test]
    fn an_empty_stream_ages_from_the_start() {
        let age = AgeCurve::of([(0, None)], 1000 * MS).summary(250 * MS);
        assert_eq!(age, Age { mean_ns: 500e6, peak_ns: 1000 * MS, share_above_deadline: 0.75 });
    }

    #[test]
    fn freezes_are_gaps_of_what_is_shown() {
        // Gaps of 50, 350 and 100 ms.
        assert_eq!(
            curve().freezes(40e6),
            Freezes { count: 1, total_ns: 350 * MS, longest_ns: 350 * MS },
            "190 ms is the threshold at 40 ms"
        );
        assert_eq!(curve().freezes(120e6).count, 0, "360 ms is the threshold at 120 ms");
        assert_eq!(curve().freezes(100e6).count, 1, "300 ms is the threshold at 100 ms");
        assert_eq!(curve().frozen(90 * MS), 270 * MS, "of 350 and 100 ms");
    }

    #[test]
    fn recovery_counts_from_the_return_and_has_to_last() {
        let every_100 = |stale: std::ops::Range<u64>| {
            let units =
                (0..40).map(move |i| (i * 100 * MS, (!stale.contains(&i)).then_some((i * 100 + 20) * MS)));
            AgeCurve::of(units, 4000 * MS)
        };
        // Nothing between 500 ms and 1500 ms, so the age is above 200 ms from 600 to 1520 ms.
        let curve = every_100(5..15);
        assert_eq!(curve.recovery(1000 * MS, 200 * MS), Recovery::After { after_ns: 520 * MS });
        assert_eq!(curve.recovery(2000 * MS, 200 * MS), Recovery::After { after_ns: 0 });
        // The age is never at most 50 ms for long.
        assert_eq!(curve.recovery(1000 * MS, 50 * MS), Recovery::Never);
        // A good spell of 700 ms before another stall is not a recovery.
        let units = (0..40).map(|i| {
            (i * 100 * MS, (i < 5 || (15..20).contains(&i) || i >= 25).then_some((i * 100 + 20) * MS))
        });
        assert_eq!(
            AgeCurve::of(units, 4000 * MS).recovery(1000 * MS, 200 * MS),
            Recovery::After { after_ns: 1520 * MS }
        );
    }
}

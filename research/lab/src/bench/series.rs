//! Numbers that were measured several times, and what is said of them.

use serde::Serialize;

/// Several measurements of one number.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Series {
    /// The part of the bench that it belongs to.
    pub(super) bench: &'static str,
    pub(super) name: String,
    pub(super) unit: Unit,
    pub(super) samples: Vec<f64>,
}

/// A unit of measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Unit {
    Nanoseconds,
    BytesPerSecond,
    Bytes,
    Count,
    Percent,
    /// Processor time for delivered bytes.
    SecondsPerGigabyte,
}

/// One series over another, repetition by repetition.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Ratio {
    pub(super) bench: &'static str,
    pub(super) name: String,
    pub(super) samples: Vec<f64>,
    pub(super) goal: Option<Goal>,
}

/// A goal for the median.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Goal {
    AtMost(f64),
    AtLeast(f64),
}

impl Goal {
    pub(super) fn is_met(self, median: f64) -> bool {
        match self {
            Self::AtMost(limit) => median <= limit,
            Self::AtLeast(limit) => median >= limit,
        }
    }
}

/// Smallest, middle and largest of the samples.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Spread {
    pub(super) min: f64,
    pub(super) median: f64,
    pub(super) max: f64,
}

impl Spread {
    /// NaN without samples.
    pub(super) fn of(samples: &[f64]) -> Self {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = |index: usize| sorted.get(index).copied().unwrap_or(f64::NAN);
        let last = sorted.len().saturating_sub(1);
        Self { min: at(0), median: f64::midpoint(at(last / 2), at(last.div_ceil(2))), max: at(last) }
    }
}

/// Series that a person reads as a table.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Grid {
    /// The part of the bench whose series all stand in it.
    pub(super) bench: &'static str,
    pub(super) caption: String,
    pub(super) columns: Vec<String>,
    /// Each row's name, and the place of the series in each column.
    pub(super) rows: Vec<(String, Vec<Option<usize>>)>,
}

/// Everything that a run has measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Report {
    pub(super) series: Vec<Series>,
    pub(super) ratios: Vec<Ratio>,
    pub(super) grids: Vec<Grid>,
    /// Reasons why something was not measured.
    pub(super) notes: Vec<String>,
}

impl Report {
    /// Adds a series, or samples to the one of this name; returns its place.
    pub(super) fn add(&mut self, bench: &'static str, name: &str, unit: Unit, sample: f64) -> usize {
        let at = self.place(bench, name).unwrap_or_else(|| {
            self.series.push(Series { bench, name: name.to_owned(), unit, samples: Vec::new() });
            self.series.len() - 1
        });
        self.series[at].samples.push(sample);
        at
    }

    /// The place of a series.
    pub(super) fn place(&self, bench: &str, name: &str) -> Option<usize> {
        self.series.iter().position(|series| series.bench == bench && series.name == name)
    }

    /// Adds the ratio of two series that were measured in turn.
    pub(super) fn compare(&mut self, name: &str, over: usize, under: usize, goal: Option<Goal>) {
        let (over, under) = (&self.series[over], &self.series[under]);
        let samples = over.samples.iter().zip(&under.samples).map(|(over, under)| over / under).collect();
        self.ratios.push(Ratio { bench: over.bench, name: name.to_owned(), samples, goal });
    }

    /// Adds a goal for a number itself.
    pub(super) fn demand(&mut self, series: usize, goal: Goal) {
        let Series { bench, name, samples, .. } = self.series[series].clone();
        self.ratios.push(Ratio { bench, name, samples, goal: Some(goal) });
    }

    pub(super) fn all_met(&self) -> bool {
        let met =
            |ratio: &Ratio| ratio.goal.is_none_or(|goal| goal.is_met(Spread::of(&ratio.samples).median));
        self.ratios.iter().all(met)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_even_and_odd_counts() {
        assert_eq!(Spread::of(&[3.0, 1.0, 2.0]), Spread { min: 1.0, median: 2.0, max: 3.0 });
        assert_eq!(Spread::of(&[4.0, 1.0, 2.0, 3.0]).median, 2.5);
        assert!(Spread::of(&[]).median.is_nan());
    }

    #[test]
    fn ratios_are_per_repetition_and_judged_by_their_median() {
        let mut report = Report::default();
        let (mut cost, mut base) = (0, 0);
        for (a, b) in [(1.0, 20.0), (10.0, 100.0), (1.0, 40.0)] {
            cost = report.add("push", "push", Unit::Nanoseconds, a);
            base = report.add("push", "send", Unit::Nanoseconds, b);
        }
        report.compare("push : send", cost, base, Some(Goal::AtMost(0.05)));
        assert_eq!(report.ratios[0].samples, [0.05, 0.1, 0.025]);
        assert!(report.all_met());
        report.demand(cost, Goal::AtLeast(1.5));
        assert!(!report.all_met());
    }
}

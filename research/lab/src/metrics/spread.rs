use serde::{Deserialize, Serialize};

/// The spread of a number over repetitions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Spread {
    /// How many numbers there were.
    pub(crate) n: usize,
    /// The smallest.
    pub(crate) min: f64,
    /// The first quartile.
    pub(crate) q1: f64,
    /// The median.
    pub(crate) median: f64,
    /// The third quartile.
    pub(crate) q3: f64,
    /// The largest.
    pub(crate) max: f64,
}

impl Spread {
    /// Takes the spread of `values`, which may be infinite but not NaN; none when there are none.
    ///
    /// Quantiles between two values are interpolated in proportion; between a finite and an infinite value they are
    /// infinite.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        Some(Self {
            n: sorted.len(),
            min,
            q1: quantile(&sorted, 0.25),
            median: quantile(&sorted, 0.5),
            q3: quantile(&sorted, 0.75),
            max,
        })
    }
}

fn quantile(sorted: &[f64], share: f64) -> f64 {
    let position = share * (sorted.len() - 1) as f64;
    let (below, above) = (sorted[position.floor() as usize], sorted[position.ceil() as usize]);
    let part = position.fract();
    // An infinite neighbour times a part of 0 would not be a number.
    if part == 0.0 || below == above { below } else { below + (above - below) * part }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_are_interpolated() {
        let spread = Spread::of([4.0, 1.0, 3.0, 2.0]).unwrap();
        assert_eq!(spread, Spread { n: 4, min: 1.0, q1: 1.75, median: 2.5, q3: 3.25, max: 4.0 });
        assert_eq!(Spread::of([7.0]).unwrap().q3, 7.0);
        assert_eq!(Spread::of([]), None);
    }

    #[test]
    fn missing_samples_stay_infinite() {
        let spread = Spread::of([1.0, 2.0, f64::INFINITY, f64::INFINITY]).unwrap();
        assert_eq!((spread.q1, spread.median, spread.max), (1.75, f64::INFINITY, f64::INFINITY));
    }
}

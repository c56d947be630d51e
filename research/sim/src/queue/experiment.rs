use super::config::{Config, ConfigError};
use super::model::{Outcome, simulate};

/// The article's table 2: arrival interval and transaction delay in ticks, and the published mean length of the socket buffer in
/// packets.
pub const TABLE_2: [(f64, f64, f64); 4] =
    [(2.0, 5.0, 37.86), (2.0, 10.0, 49.35), (4.0, 5.0, 6.97), (4.0, 10.0, 23.05)];

/// A mean over repetitions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mean {
    /// The mean.
    pub value: f64,
    /// Its standard error; 0 with a single repetition.
    pub error: f64,
}

/// One cell of table 2.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cell {
    /// Mean time between two arrivals, in ticks.
    pub arrival_ticks: f64,
    /// Duration of a transaction, in ticks.
    pub transaction_ticks: f64,
    /// The published mean length, in packets.
    pub published: f64,
    /// Ours over all observations, in packets: [`Outcome::mean_length`].
    pub mean: Mean,
    /// Ours over time, in packets: [`Outcome::time_mean_length`].
    pub time_mean: Mean,
}

/// The mean of a value over `repetitions` experiments with the seeds from `seed` on.
///
/// # Errors
///
/// As [`Config::check`].
pub fn mean_of<const N: usize>(
    config: &Config,
    seed: u64,
    repetitions: u32,
    values: impl Fn(&Outcome) -> [f64; N],
) -> Result<[Mean; N], ConfigError> {
    let (mut sums, mut squares) = ([0.0; N], [0.0; N]);
    for repetition in 0..u64::from(repetitions) {
        let found = values(&simulate(config, seed.wrapping_add(repetition))?);
        for ((sum, square), value) in sums.iter_mut().zip(&mut squares).zip(found) {
            *sum += value;
            *square += value * value;
        }
    }
    let count = f64::from(repetitions.max(1));
    let mut place = 0;
    Ok(sums.map(|sum| {
        let mean = sum / count;
        let variance = (squares[place] / count - mean * mean).max(0.0) * count / (count - 1.0).max(1.0);
        place += 1;
        Mean { value: mean, error: (variance / count).sqrt() }
    }))
}

/// The four cells of table 2, each from `repetitions` experiments.
///
/// # Errors
///
/// As [`Config::check`].
pub fn table_2(config: &Config, seed: u64, repetitions: u32) -> Result<[Cell; 4], ConfigError> {
    let mut cells = TABLE_2.map(|(arrival_ticks, transaction_ticks, published)| {
        let nothing = Mean { value: 0.0, error: 0.0 };
        Cell { arrival_ticks, transaction_ticks, published, mean: nothing, time_mean: nothing }
    });
    for cell in &mut cells {
        let config = config.with_factors(cell.arrival_ticks, cell.transaction_ticks);
        [cell.mean, cell.time_mean] =
            mean_of(&config, seed, repetitions, |outcome| [outcome.mean_length, outcome.time_mean_length])?;
    }
    Ok(cells)
}

/// The 2x2 regression of the article's section 5.3: `y = q0 + qA xA + qB xB + qAB xA xB`, A the transaction delay, B the arrival
/// interval, each -1 at its lower value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Regression {
    /// Mean of the four cells, in packets.
    pub mean: f64,
    /// Effect of the transaction delay, in packets.
    pub delay: f64,
    /// Effect of the arrival interval, in packets.
    pub interval: f64,
    /// Their interaction, in packets.
    pub interaction: f64,
}

impl Regression {
    /// Effects of the four lengths in the order of [`TABLE_2`].
    pub fn of([short_low, short_high, long_low, long_high]: [f64; 4]) -> Self {
        Self {
            mean: (short_low + short_high + long_low + long_high) / 4.0,
            delay: (short_high - short_low + long_high - long_low) / 4.0,
            interval: (long_low + long_high - short_low - short_high) / 4.0,
            interaction: (short_low - short_high - long_low + long_high) / 4.0,
        }
    }

    /// The share of the total variation that is due to the arrival interval, the transaction delay and their interaction, each
    /// from 0 to 1; all 0 without variation.
    pub fn shares(&self) -> [f64; 3] {
        let squares = [self.interval, self.delay, self.interaction].map(|effect| effect * effect);
        let total: f64 = squares.iter().sum();
        squares.map(|square| if total > 0.0 { square / total } else { 0.0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regression_of_the_published_table_is_the_published_one() {
        let regression = Regression::of(TABLE_2.map(|(.., published)| published));
        let Regression { mean, delay, interval, interaction } = regression;
        for (ours, theirs) in [(mean, 29.31), (delay, 6.89), (interval, -14.3), (interaction, 1.15)] {
            assert!((ours - theirs).abs() < 0.006, "{regression:?}");
        }
        let percent = regression.shares().map(|share| share * 100.0);
        // The article computes with more digits than its table has.
        for (ours, theirs) in percent.into_iter().zip([80.75, 18.75, 0.52]) {
            assert!((ours - theirs).abs() < 0.03, "{percent:?}");
        }
    }

    #[test]
    fn cells_without_variation_have_no_shares() {
        assert_eq!(Regression::of([7.0; 4]).shares(), [0.0; 3]);
    }

    #[test]
    fn mean_of_one_repetition_has_no_error() {
        let [arrived] = mean_of(&Config::default(), 1, 1, |outcome| [outcome.arrived as f64])
            .expect("a valid experiment");
        assert_eq!(arrived.error, 0.0);
        assert!(arrived.value > 100.0 && arrived.value < 200.0, "{arrived:?}");
    }
}

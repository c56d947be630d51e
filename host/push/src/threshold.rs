//! When a socket's buffer is emptied: the threshold of Choi, Kim and Yoo, "Self-prevention of socket buffer overflow"
//! (Computer Networks 51, 2007), section 6.2.
//!
//! Pure arithmetic in units of the caller's: bytes by the kernel's accounting in a live receiver, datagrams in a
//! simulation.

use std::time::Duration;

/// Weight of a new push time: the slow filter of the publication's figure 5.
const SLOW: f64 = 0.2;
/// Weight of a new arrival rate. The publication asks for a fast filter and gives no number. Chosen, not
/// measured.
const FAST: f64 = 0.75;

/// The overflow threshold `min(2L/3, L - lambda * m)` of a buffer of size `L`.
///
/// `m` is the mean time of a push, by a slow filter. `lambda` is the arrival rate, by a fast one: arrivals change at
/// once, the time of a push hardly does. Before the first push the threshold is `2L/3`.
///
/// ```
/// use std::time::Duration;
/// use freshwire_push::Threshold;
///
/// let mut threshold = Threshold::new(64.0);
/// assert!(!threshold.is_due(42.0) && threshold.is_due(43.0));
/// // One arrival per millisecond; a push takes 40 ms, in which 40 more arrive.
/// threshold.arrived(100.0, Duration::from_millis(100));
/// threshold.pushed(Duration::from_millis(40));
/// assert_eq!(threshold.level(), 24.0);
/// ```
#[derive(Clone, Debug)]
pub struct Threshold {
    limit: f64,
    push_seconds: Option<f64>,
    rate: Option<f64>,
}

impl Threshold {
    /// The threshold of a buffer that holds `limit`. A limit below zero counts as zero.
    pub fn new(limit: f64) -> Self {
        Self { limit: limit.max(0.0), push_seconds: None, rate: None }
    }

    /// The buffer's size, as given.
    pub fn limit(&self) -> f64 {
        self.limit
    }

    /// The buffer has another size from now on. The learned rates stay.
    pub fn resize(&mut self, limit: f64) {
        self.limit = limit.max(0.0);
    }

    /// A push took this long. The first time counts whole, later ones by the slow filter.
    pub fn pushed(&mut self, took: Duration) {
        let new = took.as_secs_f64();
        self.push_seconds = Some(self.push_seconds.map_or(new, |old| SLOW * new + (1.0 - SLOW) * old));
    }

    /// `amount` arrived within `interval`. An empty interval says nothing and is ignored.
    pub fn arrived(&mut self, amount: f64, interval: Duration) {
        if interval.is_zero() {
            return;
        }
        let new = amount.max(0.0) / interval.as_secs_f64();
        self.rate = Some(self.rate.map_or(new, |old| FAST * new + (1.0 - FAST) * old));
    }

    /// The arrival rate, per second; zero before the first report.
    pub fn rate(&self) -> f64 {
        self.rate.unwrap_or(0.0)
    }

    /// The mean time of a push; zero before the first.
    pub fn push_time(&self) -> Duration {
        Duration::try_from_secs_f64(self.push_seconds.unwrap_or(0.0)).unwrap_or(Duration::MAX)
    }

    /// The length above which the buffer is emptied: `min(2L/3, L - lambda * m)`, at least zero.
    pub fn level(&self) -> f64 {
        let during_push = self.rate() * self.push_seconds.unwrap_or(0.0);
        (self.limit - during_push).min(self.limit * 2.0 / 3.0).max(0.0)
    }

    /// Whether a buffer of this length is to be emptied now.
    pub fn is_due(&self, length: f64) -> bool {
        length > self.level()
    }

    /// How long a buffer of this length takes to reach the threshold at the present rate: zero if it is above,
    /// [`Duration::MAX`] if nothing arrives.
    pub fn time_left(&self, length: f64) -> Duration {
        let room = (self.level() - length).max(0.0);
        if self.rate() <= 0.0 {
            return if self.is_due(length) { Duration::ZERO } else { Duration::MAX };
        }
        Duration::try_from_secs_f64(room / self.rate()).unwrap_or(Duration::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn starts_at_two_thirds() {
        let threshold = Threshold::new(300.0);
        assert_eq!(threshold.level(), 200.0);
        assert!(!threshold.is_due(200.0));
        assert!(threshold.is_due(201.0));
        assert_eq!(threshold.time_left(100.0), Duration::MAX);
        assert_eq!(threshold.time_left(250.0), Duration::ZERO);
    }

    #[test]
    fn short_pushes_leave_two_thirds() {
        let mut threshold = Threshold::new(300.0);
        threshold.arrived(50.0, MS);
        threshold.pushed(MS);
        assert_eq!(threshold.level(), 200.0);
        threshold.pushed(10 * MS);
        // m = 0.2 * 10 ms + 0.8 * 1 ms = 2.8 ms; 140 arrive meanwhile.
        assert!((threshold.level() - 160.0).abs() < 1e-6, "{}", threshold.level());
    }

    #[test]
    fn push_time_is_filtered_slowly_and_rate_fast() {
        let mut threshold = Threshold::new(1000.0);
        threshold.pushed(MS);
        threshold.pushed(2 * MS);
        assert!((threshold.push_time().as_secs_f64() - 0.0012).abs() < 1e-9);
        threshold.arrived(1.0, MS);
        threshold.arrived(2.0, MS);
        assert!((threshold.rate() - 1750.0).abs() < 1e-6);
    }

    #[test]
    fn level_stays_between_zero_and_two_thirds() {
        bolero::check!().with_type::<(u32, Vec<(u32, u16, u16)>)>().for_each(|(limit, steps)| {
            let mut threshold = Threshold::new(f64::from(*limit));
            for &(amount, interval, took) in steps {
                threshold.arrived(f64::from(amount), Duration::from_micros(interval.into()));
                threshold.pushed(Duration::from_micros(took.into()));
                let level = threshold.level();
                assert!((0.0..=f64::from(*limit) * 2.0 / 3.0).contains(&level), "{level} of {limit}");
                if !threshold.is_due(0.0) {
                    let left = threshold.time_left(0.0);
                    let exact = level / threshold.rate();
                    assert!(left == Duration::MAX || left.as_secs_f64() <= exact * (1.0 + 1e-9) + 2e-9);
                }
            }
        });
    }

    #[test]
    fn time_left_is_the_room_over_the_rate() {
        let mut threshold = Threshold::new(300.0);
        threshold.arrived(100.0, Duration::from_secs(1));
        assert_eq!(threshold.time_left(150.0), Duration::from_millis(500));
        threshold.resize(600.0);
        assert_eq!(threshold.time_left(150.0), Duration::from_millis(2500));
        assert_eq!(threshold.limit(), 600.0);
    }
}

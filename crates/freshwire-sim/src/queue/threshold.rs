/// The overflow threshold of the article's figure 5: `min(2L/3, L - lambda * m)`, with a slow filter for the time of a push and a
/// fast one for the arrival rate.
///
/// L is the size of the buffer in packets, m the mean time of a push, lambda the arrival rate. `lambda * m` packets arrive while a
/// push runs, and the buffer has to have room for them.
#[derive(Clone, Debug)]
pub struct Threshold {
    size: f64,
    push_ticks: Option<f64>,
    interval_ticks: Option<f64>,
    last_arrival: Option<f64>,
}

impl Threshold {
    /// For a buffer of `packets`; begins with two thirds of them.
    pub fn new(packets: usize) -> Self {
        Self { size: packets as f64, push_ticks: None, interval_ticks: None, last_arrival: None }
    }

    /// A packet has arrived at `now`, in ticks. Earlier times than that of the last arrival count as the same.
    pub fn on_arrival(&mut self, now: f64) {
        if let Some(last) = self.last_arrival {
            let interval = (now - last).max(0.0);
            self.interval_ticks = Some(filtered(self.interval_ticks, interval, FAST));
        }
        self.last_arrival = Some(now);
    }

    /// A push has taken so many ticks.
    pub fn on_push(&mut self, ticks: f64) {
        self.push_ticks = Some(filtered(self.push_ticks, ticks.max(0.0), SLOW));
    }

    /// A buffer with more packets than this has to be emptied: from 0 to two thirds of its size. Before the first push, or before
    /// the second arrival, two thirds.
    pub fn packets(&self) -> f64 {
        let start = 2.0 * self.size / 3.0;
        let (Some(push), Some(interval)) = (self.push_ticks, self.interval_ticks) else { return start };
        if push == 0.0 {
            return start;
        }
        // Arrivals at the same instant are an infinite rate: everything has to be emptied.
        (self.size - push / interval).clamp(0.0, start)
    }
}

fn filtered(old: Option<f64>, new: f64, weight: f64) -> f64 {
    old.map_or(new, |old| weight * new + (1.0 - weight) * old)
}

/// The article's alpha: the weight of the newest push.
const SLOW: f64 = 0.2;
/// The weight of the newest interval between arrivals. The article asks for a fast filter and gives no number.
const FAST: f64 = 0.8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threshold_starts_at_two_thirds() {
        let mut threshold = Threshold::new(64);
        assert_eq!(threshold.packets(), 128.0 / 3.0);
        threshold.on_arrival(1.0);
        threshold.on_push(30.0);
        assert_eq!(threshold.packets(), 128.0 / 3.0, "one arrival is no rate");
    }

    #[test]
    fn slow_push_lowers_the_threshold_by_what_arrives_meanwhile() {
        let mut threshold = Threshold::new(64);
        threshold.on_arrival(0.0);
        threshold.on_arrival(2.0);
        threshold.on_push(10.0);
        assert_eq!(threshold.packets(), 128.0 / 3.0, "64 - 5 is above two thirds");
        threshold.on_push(310.0);
        // m = 0.2 * 310 + 0.8 * 10 = 70, lambda = 1/2.
        assert!((threshold.packets() - (64.0 - 35.0)).abs() < 1e-9, "{}", threshold.packets());
        threshold.on_push(1e9);
        assert_eq!(threshold.packets(), 0.0);
    }

    #[test]
    fn rate_follows_quickly_and_push_time_slowly() {
        let mut threshold = Threshold::new(1000);
        threshold.on_arrival(0.0);
        threshold.on_arrival(10.0);
        threshold.on_push(1000.0);
        assert!((threshold.packets() - 2000.0 / 3.0).abs() < 1e-9);
        threshold.on_arrival(11.0);
        // The interval is now 0.8 * 1 + 0.2 * 10 = 2.8.
        assert!((threshold.packets() - (1000.0 - 1000.0 / 2.8)).abs() < 1e-9);
        threshold.on_push(0.0);
        // m = 0.8 * 1000.
        assert!((threshold.packets() - 2000.0 / 3.0).abs() < 1e-9);
    }

    #[test]
    fn arrivals_at_one_instant_empty_the_buffer() {
        let mut threshold = Threshold::new(64);
        threshold.on_arrival(5.0);
        threshold.on_arrival(5.0);
        threshold.on_push(1.0);
        assert_eq!(threshold.packets(), 0.0);
    }
}

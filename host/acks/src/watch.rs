//! Whether the filter is worth its place.

use crate::filter::Counters;

/// When the filter steps aside, and when it tries again. Times are in looks, which the caller makes at a steady pace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WatchConfig {
    /// The least dropped acknowledgements of a look, and the least share of all that arrived, that count as a gain.
    pub least_dropped: u64,
    /// From 0 to 1.
    pub least_share: f64,
    /// Looks without a gain until the filter steps aside; at least 1.
    pub patience: u32,
    /// Looks aside until it tries again; at least 1.
    pub aside: u32,
}

impl Default for WatchConfig {
    /// For a look each second: fewer than 200 dropped, or less than a fifth of all, for 5 s; then 30 s aside.
    fn default() -> Self {
        Self { least_dropped: 200, least_share: 0.2, patience: 5, aside: 30 }
    }
}

/// What the filter should do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Be attached.
    Filter,
    /// Be detached, so that packets cost nothing.
    StepAside,
}

/// Follows the gain of a filter: receivers that acknowledge in large steps (generic receive offload) leave it nothing to drop.
///
/// Sans-IO: the caller looks at a steady pace and follows the advice.
#[derive(Clone, Debug)]
pub struct Watch {
    config: WatchConfig,
    last: Counters,
    without_gain: u32,
    aside: u32,
}

impl Watch {
    /// Begins attached.
    pub fn new(config: WatchConfig) -> Self {
        Self { config, last: Counters::default(), without_gain: 0, aside: 0 }
    }

    /// A look at the counters, which only grow.
    pub fn look(&mut self, counters: &Counters) -> Advice {
        let dropped = counters.dropped().saturating_sub(self.last.dropped());
        let acks = counters.acks().saturating_sub(self.last.acks());
        self.last = *counters;
        if self.aside > 0 {
            self.aside -= 1;
            return if self.aside > 0 { Advice::StepAside } else { Advice::Filter };
        }
        let is_gain =
            dropped >= self.config.least_dropped && dropped as f64 >= self.config.least_share * acks as f64;
        self.without_gain = if is_gain { 0 } else { self.without_gain + 1 };
        if self.without_gain < self.config.patience.max(1) {
            return Advice::Filter;
        }
        self.without_gain = 0;
        self.aside = self.config.aside.max(1);
        Advice::StepAside
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decision::Verdict;

    fn look(watch: &mut Watch, total: &mut Counters, dropped: u64, passed: u64) -> Advice {
        *total = total.with(Verdict::Drop, dropped).with(Verdict::Spacing, passed);
        watch.look(total)
    }

    #[test]
    fn filter_stays_while_it_drops_enough() {
        let (mut watch, mut total) = (Watch::new(WatchConfig::default()), Counters::default());
        for _ in 0..100 {
            assert_eq!(look(&mut watch, &mut total, 5000, 800), Advice::Filter);
        }
    }

    #[test]
    fn filter_steps_aside_without_a_gain_and_tries_again() {
        let config = WatchConfig { patience: 3, aside: 4, ..WatchConfig::default() };
        let (mut watch, mut total) = (Watch::new(config), Counters::default());
        assert_eq!(look(&mut watch, &mut total, 5000, 800), Advice::Filter);
        let advice: Vec<Advice> = (0..10).map(|_| look(&mut watch, &mut total, 10, 8000)).collect();
        let (filter, aside) = (Advice::Filter, Advice::StepAside);
        assert_eq!(advice, [filter, filter, aside, aside, aside, aside, filter, filter, filter, aside]);
    }

    #[test]
    fn one_look_with_a_gain_starts_the_patience_again() {
        let config = WatchConfig { patience: 2, ..WatchConfig::default() };
        let (mut watch, mut total) = (Watch::new(config), Counters::default());
        for dropped in [0, 900, 0, 900, 0, 900] {
            assert_eq!(look(&mut watch, &mut total, dropped, 100), Advice::Filter);
        }
        // Many, but a small share.
        look(&mut watch, &mut total, 900, 9000);
        assert_eq!(look(&mut watch, &mut total, 900, 9000), Advice::StepAside);
    }
}

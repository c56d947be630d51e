//! The best sample of a sliding window, in constant memory (Nichols' algorithm, as in Linux `lib/win_minmax.c`).

/// Which sample is the best.
#[derive(Clone, Copy, Debug)]
pub(super) enum Best {
    Min,
    Max,
}

/// The best of the samples of the last `window` ticks: of three samples kept, each is the best since the one before.
#[derive(Clone, Debug)]
pub(super) struct Windowed {
    best: Best,
    window: u64,
    first: Option<Point>,
    second: Point,
    third: Point,
}

#[derive(Clone, Copy, Debug, Default)]
struct Point {
    at: u64,
    value: i64,
}

impl Windowed {
    pub(super) fn new(best: Best, window: u64) -> Self {
        Self { best, window, first: None, second: Point::default(), third: Point::default() }
    }

    pub(super) fn get(&self) -> Option<i64> {
        self.first.map(|point| point.value)
    }

    /// How many ticks a sample counts from now on.
    pub(super) fn set_window(&mut self, window: u64) {
        self.window = window;
    }

    pub(super) fn reset(&mut self) {
        self.first = None;
    }

    /// `at` never decreases.
    pub(super) fn update(&mut self, at: u64, value: i64) {
        let new = Point { at, value };
        let Some(first) = self.first else {
            return self.restart(new);
        };
        if self.at_least_as_good(value, first.value) || at.saturating_sub(self.third.at) > self.window {
            return self.restart(new);
        }
        if self.at_least_as_good(value, self.second.value) {
            self.second = new;
            self.third = new;
        } else if self.at_least_as_good(value, self.third.value) {
            self.third = new;
        }
        self.expire(first, new);
    }

    fn restart(&mut self, new: Point) {
        self.first = Some(new);
        self.second = new;
        self.third = new;
    }

    fn at_least_as_good(&self, value: i64, than: i64) -> bool {
        match self.best {
            Best::Min => value <= than,
            Best::Max => value >= than,
        }
    }

    /// Passes the best one on when it is too old, and keeps the other two from being of the same moment.
    fn expire(&mut self, first: Point, new: Point) {
        let elapsed = new.at.saturating_sub(first.at);
        if elapsed > self.window {
            self.first = Some(self.second);
            self.second = self.third;
            self.third = new;
            if new.at.saturating_sub(self.second.at) > self.window {
                self.first = Some(self.second);
                self.second = self.third;
            }
        } else if self.second.at == first.at && elapsed > self.window / 4 {
            self.second = new;
            self.third = new;
        } else if self.third.at == self.second.at && elapsed > self.window / 2 {
            self.third = new;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_minimum_is_kept_for_the_window_and_then_replaced() {
        let mut filter = Windowed::new(Best::Min, 100);
        assert_eq!(filter.get(), None);
        filter.update(0, 5);
        for at in 1..=100 {
            filter.update(at, 9);
            assert_eq!(filter.get(), Some(5), "{at}");
        }
        filter.update(101, 9);
        assert_eq!(filter.get(), Some(9));
        filter.update(102, 7);
        assert_eq!(filter.get(), Some(7));
    }

    #[test]
    fn the_maximum_too_and_after_a_pause_only_what_is_new_counts() {
        let mut filter = Windowed::new(Best::Max, 10);
        filter.update(0, 5);
        filter.update(1, 3);
        assert_eq!(filter.get(), Some(5));
        filter.update(1000, 1);
        assert_eq!(filter.get(), Some(1));
    }
}

//! Failures that last, for the log.

use std::time::{Duration, Instant};

/// A failure that lasts is logged again after this long.
const BETWEEN_REPORTS: Duration = Duration::from_secs(30);

/// The failure that was logged last. The same failure is not logged at each attempt.
#[derive(Debug, Default)]
pub(crate) struct Failures(Option<(String, Instant)>);

impl Failures {
    /// Whether this one is to be logged now.
    pub(crate) fn is_news(&mut self, failure: &str, now: Instant) -> bool {
        let is_news = self.0.as_ref().is_none_or(|(before, at)| {
            before != failure || now.saturating_duration_since(*at) >= BETWEEN_REPORTS
        });
        if is_news {
            self.0 = Some((failure.to_owned(), now));
        }
        is_news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_that_lasts_is_logged_now_and_then() {
        let (mut failures, start) = (Failures::default(), Instant::now());
        let mut is_news = |failure, after| failures.is_news(failure, start + Duration::from_secs(after));
        assert_eq!(
            [is_news("a", 0), is_news("a", 29), is_news("a", 30), is_news("a", 31)],
            [true, false, true, false]
        );
        assert_eq!([is_news("b", 32), is_news("a", 33)], [true, true]);
    }
}

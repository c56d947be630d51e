//! When a thread that waits for a datagram polls the socket before it sleeps.

use std::time::Duration;

use super::times::SHARED_PROCESSOR;

/// At least one of 2^`MAX_FAILURES` waits is tried.
const MAX_FAILURES: u32 = 8;

/// How a thread polls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PollMode {
    /// It keeps its processor.
    Spinning,
    /// It lets others run in between: the peer shares the processor with it, and could not send otherwise.
    Yielding,
}

/// Polls where that has recently paid. Where it does not it costs next to nothing: after each failure twice as many waits pass until the
/// next attempt.
#[derive(Debug)]
pub(in crate::a1) struct BusyPoll {
    /// For how long it polls; `None` is never.
    limit: Option<Duration>,
    failures: u32,
    /// Waits that sleep at once before the next attempt.
    skip: u32,
    /// The last wait polled, spinning, and nothing came.
    has_failed: bool,
    /// The peer seems to share the processor.
    shares_processor: bool,
}

impl BusyPoll {
    /// Polls for at most `limit`. With one processor a thread that polls keeps the peer from sending, so there it never does.
    pub(in crate::a1) fn new(limit: Option<Duration>) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self::with_processors(limit, processors)
    }

    pub(super) fn with_processors(limit: Option<Duration>, processors: usize) -> Self {
        let limit = limit.filter(|limit| !limit.is_zero() && processors > 1);
        Self { limit, failures: 0, skip: 0, has_failed: false, shares_processor: false }
    }

    /// A wait begins: whether to poll before it sleeps, how, and for how long.
    pub(super) fn begin(&mut self) -> Option<(PollMode, Duration)> {
        self.has_failed = false;
        let limit = self.limit?;
        if self.skip > 0 {
            self.skip -= 1;
            return None;
        }
        let mode = if self.shares_processor { PollMode::Yielding } else { PollMode::Spinning };
        Some((mode, limit))
    }

    /// It polled for `took`, and something came or not. A yielding thread that got the processor back late yielded to others than the
    /// peer.
    pub(super) fn ended(&mut self, came: bool, took: Duration) {
        let is_busy = self.shares_processor && took > self.limit.unwrap_or_default() * 2;
        if came && !is_busy {
            self.failures = 0;
            return;
        }
        self.has_failed = !self.shares_processor;
        self.shares_processor = false;
        self.failures = if is_busy { MAX_FAILURES } else { (self.failures + 1).min(MAX_FAILURES) };
        self.skip = 1 << self.failures;
    }

    /// It slept for `took` until a datagram came. One that comes as soon as it sleeps was held back by its polling.
    pub(super) fn slept(&mut self, took: Duration) {
        if self.has_failed && took < SHARED_PROCESSOR {
            self.shares_processor = true;
            self.skip = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::times::DEFAULT_BUSY_POLL as LIMIT;
    use super::*;

    const SPINNING: Option<(PollMode, Duration)> = Some((PollMode::Spinning, LIMIT));
    const YIELDING: Option<(PollMode, Duration)> = Some((PollMode::Yielding, LIMIT));

    fn poll() -> BusyPoll {
        BusyPoll::with_processors(Some(LIMIT), 2)
    }

    #[test]
    fn attempts_are_rare_while_they_fail() {
        let mut poll = poll();
        let attempts = (0..2000).filter(|_| {
            let tries = poll.begin().is_some();
            if tries {
                poll.ended(false, LIMIT);
                poll.slept(LIMIT);
            }
            tries
        });
        assert!((8..20).contains(&attempts.count()));
        while poll.begin().is_none() {}
        poll.ended(true, LIMIT / 10);
        assert_eq!(poll.begin(), SPINNING, "it paid");
    }

    #[test]
    fn a_peer_on_the_same_processor_gets_it() {
        let mut poll = poll();
        assert_eq!(poll.begin(), SPINNING);
        poll.ended(false, LIMIT);
        poll.slept(SHARED_PROCESSOR / 2);
        for _ in 0..3 {
            assert_eq!(poll.begin(), YIELDING);
            poll.ended(true, LIMIT / 10);
        }
        assert_eq!(poll.begin(), YIELDING);
        poll.ended(false, LIMIT);
        poll.slept(SHARED_PROCESSOR / 2);
        assert_eq!(poll.begin(), None, "it is not that");
    }

    #[test]
    fn a_processor_that_others_need_is_not_polled_on() {
        let mut poll = poll();
        poll.begin();
        poll.ended(false, LIMIT);
        poll.slept(SHARED_PROCESSOR / 2);
        poll.begin();
        poll.ended(true, LIMIT * 20);
        poll.slept(SHARED_PROCESSOR / 2);
        for wait in 0..1 << MAX_FAILURES {
            assert_eq!(poll.begin(), None, "wait {wait}");
        }
        assert_eq!(poll.begin(), SPINNING);
    }

    #[test]
    fn it_never_polls_when_off_or_on_a_single_processor() {
        for (limit, processors) in [(None, 2), (Some(Duration::ZERO), 2), (Some(LIMIT), 1)] {
            let mut poll = BusyPoll::with_processors(limit, processors);
            for _ in 0..1000 {
                assert_eq!(poll.begin(), None);
                poll.slept(Duration::ZERO);
            }
        }
    }
}

//! When to try a link on which nothing is on its way for a rate that it did not have before.

use std::time::Duration;

use freshwire_record::{Rate, Timestamp};

use crate::LinkView;

/// Tries of an idle link for a higher rate.
#[derive(Debug, Default)]
pub(crate) struct IdleProbe {
    /// Since when the pipe has been seen empty.
    idle_since: Option<Timestamp>,
    /// The rate as measured when a frame was sent in the hope of a better one.
    tried_at: Option<Rate>,
    is_judged: bool,
    /// No try before this, because the last one came to nothing.
    not_before: Timestamp,
    pause: Duration,
}

impl IdleProbe {
    /// The link as it may be by now. A measurement from before the pipe ran empty loses weight with time: a
    /// policy that believed it for ever would never find out that the link has recovered.
    //= spec/choice.md 23
    pub(crate) fn link(&mut self, now: Timestamp, link: &LinkView) -> Option<LinkView> {
        let pipe = link.in_flight.saturating_add(link.unsent);
        if link.rate.map_or(pipe > 0, |rate| rate.time_for(pipe) > TRIFLE) {
            self.idle_since = None;
            return None;
        }
        let idle = now.saturating_since(*self.idle_since.get_or_insert(now));
        let doublings = (idle.as_nanos() / DOUBLING.as_nanos()).min(16) as u32;
        let rate = link.rate?;
        self.judge(now, rate);
        (doublings > 0).then(|| LinkView {
            rate: Some(Rate::from_bits_per_sec(rate.bits_per_sec().saturating_mul(1 << doublings))),
            ..*link
        })
    }

    /// Whether a frame may be sent in the hope of more than this rate. Each that comes to nothing makes the next ones rarer.
    pub(crate) fn may_try(&mut self, now: Timestamp, rate: Option<Rate>) -> bool {
        let may = now >= self.not_before;
        if may {
            (self.tried_at, self.is_judged) = (rate, false);
        }
        may
    }

    /// Says what came of the last try, now that it has left the pipe, and when the link is faster by now.
    //= spec/choice.md 23
    fn judge(&mut self, now: Timestamp, rate: Rate) {
        let Some(before) = self.tried_at.map(Rate::bits_per_sec) else { return };
        if rate.bits_per_sec() > before.saturating_add(before / 2) {
            *self = Self { idle_since: self.idle_since, ..Self::default() };
        } else if !self.is_judged {
            self.is_judged = true;
            self.pause = (self.pause * 2).clamp(PAUSE.0, PAUSE.1);
            self.not_before = now + self.pause;
        }
    }
}

/// The rate is assumed to double in each such time without traffic, if nothing queued would be sent
/// (spec/choice.md, rule 23).
const DOUBLING: Duration = Duration::from_millis(125);
/// Bytes that the link takes less time for are no traffic: a framing's few bytes in the place of frames.
/// Chosen, not measured.
const TRIFLE: Duration = Duration::from_millis(10);
/// The first and the longest time without such a try (spec/choice.md, rule 23).
const PAUSE: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(16));

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_millis(milliseconds)
    }

    fn idle(kbit: u64) -> LinkView {
        LinkView { rate: Some(Rate::from_bits_per_sec(kbit * 1000)), ..LinkView::default() }
    }

    fn busy(kbit: u64) -> LinkView {
        LinkView { in_flight: 1500, ..idle(kbit) }
    }

    /// The rate that is tried when the pipe has been empty for `idle` ms at `now`.
    fn hoped(probe: &mut IdleProbe, now: u64, for_ms: u64, kbit: u64) -> Option<u64> {
        assert!(probe.link(at(now - for_ms - 1), &busy(kbit)).is_none());
        probe.link(at(now - for_ms), &idle(kbit));
        let link = probe.link(at(now), &idle(kbit))?;
        link.rate.filter(|_| probe.may_try(at(now), idle(kbit).rate)).map(|rate| rate.bits_per_sec() / 1000)
    }

    #[test]
    fn a_few_bytes_are_no_traffic() {
        let mut probe = IdleProbe::default();
        let trifling = LinkView { in_flight: 300, ..idle(300) };
        assert!(probe.link(at(0), &busy(300)).is_none());
        for ms in 1..126 {
            assert!(probe.link(at(ms), &trifling).is_none());
        }
        assert!(probe.link(at(126), &trifling).is_some(), "8 ms of the link are on the way");
        assert!(probe.link(at(127), &busy(300)).is_none());
    }

    #[test]
    fn an_idle_link_is_hoped_to_have_recovered() {
        let hoped = |for_ms| hoped(&mut IdleProbe::default(), 1000, for_ms, 300);
        assert_eq!([100, 130, 260].map(hoped), [None, Some(600), Some(1200)]);
    }

    #[test]
    fn hope_that_came_to_nothing_is_rare_and_what_came_true_is_not() {
        let mut probe = IdleProbe::default();
        let mut tries = Vec::new();
        for second in 1..60 {
            tries.extend(hoped(&mut probe, second * 1000, 130, 300).map(|_| second));
        }
        assert_eq!(tries, [1, 4, 9, 18, 35, 52], "2, 4, 8 and then 16 s after it is seen that it failed");
        assert_eq!(hoped(&mut probe, 60_000, 130, 1000), Some(2000), "the link has become faster");
    }
}

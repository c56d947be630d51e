//! Whether there are others at the bottleneck, and what they are like.

use std::time::Duration;

use freshwire_units::{Rate, Timestamp};

use super::growth::FEW_PACKETS;
use super::path::Round;

/// What speaks for others, and against them.
#[derive(Debug, Default)]
pub(super) struct Rivals {
    /// Rounds in a row with too long a queue, the window before them, and window and rate once they had settled.
    stuck: u32,
    before: f64,
    settled: Option<(f64, Rate)>,
    /// Rounds since the window grew for want of a queue.
    since_growth: u32,
    full_queues: u32,
    quiet: Quiet,
    cut: Cut,
    span: Span,
}

/// Rounds in a row whose queue was never long, and those in which there was none.
#[derive(Debug, Default)]
struct Quiet {
    since: Timestamp,
    short: u32,
    empty: u32,
}

/// What became of rate and queue when the window was cut.
#[derive(Debug, Default)]
struct Cut {
    last: Option<Moment>,
    /// Before the window was cut, and how many rounds ago that was.
    before: Option<(Moment, u32)>,
}

/// A round in short.
#[derive(Clone, Copy, Debug)]
struct Moment {
    window: f64,
    rate: Rate,
    queue: Duration,
}

/// Some rounds beside others.
#[derive(Debug, Default)]
struct Span {
    rounds: u32,
    acked: u64,
    lost: u64,
    /// Sum of the rounds' delivery rates, in bits per second.
    rates: u64,
}

/// What some rounds beside others have shown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Verdict {
    /// The queue is short again.
    Gone,
    /// It is not, and some rounds went like this.
    Span {
        /// The share of what was sent that was lost.
        lost: f64,
        /// What a round delivered on average.
        delivered: Rate,
    },
}

impl Rivals {
    pub(super) fn on_round(&mut self) {
        self.since_growth = self.since_growth.saturating_add(1);
    }

    pub(super) fn on_growth(&mut self) {
        self.since_growth = 0;
    }

    /// Whether the queue is too long for some rounds.
    pub(super) fn is_stuck(&self) -> bool {
        self.stuck >= SETTLED_ROUNDS
    }

    /// There is no queue, or a short one.
    pub(super) fn on_short_queue(&mut self, none: bool) {
        self.stuck = if none { 0 } else { self.stuck.saturating_sub(1) };
        if self.stuck == 0 {
            self.settled = None;
        }
    }

    /// The queue is too long at this window, which is about to be reduced.
    pub(super) fn on_stuck(&mut self, window: f64, rate: Option<Rate>) {
        if self.stuck == 0 {
            self.before = window;
        }
        self.stuck += 1;
        // Should the path's rate have changed, it is the new one by now.
        if self.stuck >= SETTLED_ROUNDS && self.settled.is_none() {
            self.settled = rate.map(|rate| (window, rate));
        }
    }

    /// After some rounds of a queue that stays: the window from before, if what is delivered fell with it. Alone,
    /// a smaller window delivers no less while there is a queue.
    pub(super) fn take_share(&mut self, window: f64, rate: Option<Rate>) -> Option<f64> {
        let (settled_window, settled_rate) = self.settled?;
        let now = rate?;
        let window_lost = 1.0 - window / settled_window;
        let rate_lost = 1.0 - now.bits_per_sec() as f64 / settled_rate.bits_per_sec() as f64;
        if rate_lost > 2.0 * window_lost + 0.1 {
            // Nobody takes that much so fast: it is the path that has changed.
            self.settled = Some((window, now));
            return None;
        }
        let others = self.stuck > STUCK_ROUNDS && window_lost > 0.15 && rate_lost > 0.4 * window_lost;
        others.then_some(self.before)
    }

    /// A loss came with a full queue. True if that happened often enough while the window did not grow.
    pub(super) fn on_full_queue(&mut self) -> bool {
        self.full_queues += u32::from(self.since_growth > 4);
        self.full_queues >= FULL_QUEUES
    }

    /// What one more round with this window beside them says, if anything.
    pub(super) fn judge(
        &mut self,
        now: Timestamp,
        round: &Round,
        window: Option<f64>,
        target: Duration,
        mtu: u64,
    ) -> Option<Verdict> {
        if self.quiet.on_round(now, round, target)
            || window.is_some_and(|window| self.cut.on_round(round, window, mtu))
        {
            return Some(Verdict::Gone);
        }
        let span = &mut self.span;
        span.rounds += 1;
        span.acked += round.acked;
        span.lost += round.lost;
        span.rates = span.rates.saturating_add(round.rate.map_or(0, Rate::bits_per_sec));
        let sent = span.acked + span.lost;
        if span.rounds < SPAN_ROUNDS || sent < SPAN_PACKETS * mtu {
            return None;
        }
        let lost = span.lost as f64 / sent as f64;
        let delivered = Rate::from_bits_per_sec(span.rates / u64::from(span.rounds));
        *span = Span::default();
        Some(Verdict::Span { lost, delivered })
    }
}

impl Cut {
    /// True when the window was cut, the queue became shorter by what was cut, and no less is delivered: then nobody
    /// else is there.
    fn on_round(&mut self, round: &Round, window: f64, mtu: u64) -> bool {
        let Some(rate) = round.rate else { return false };
        let now = Moment { window, rate, queue: round.queue_max };
        let last = self.last.replace(now);
        match (&mut self.before, last) {
            // With fewer packets chance decides what a round delivers.
            (None, Some(last)) if window < 0.8 * last.window && last.window > FEW_PACKETS * mtu as f64 => {
                self.before = Some((last, 0));
                false
            }
            (Some((_, rounds)), _) if *rounds + 1 < CUT_ROUNDS => {
                *rounds += 1;
                false
            }
            (Some((before, _)), _) => {
                let kept = rate.bits_per_sec() as f64 > 0.9 * before.rate.bits_per_sec() as f64;
                let cut = rate.time_for((before.window - window).max(0.0) as u64);
                let shorter = before.queue.saturating_sub(now.queue) > cut / 2;
                self.before = None;
                kept && shorter
            }
            (None, _) => false,
        }
    }
}

impl Quiet {
    /// True once there was no long queue for some time, or none at all for a shorter time.
    fn on_round(&mut self, now: Timestamp, round: &Round, target: Duration) -> bool {
        if round.queue_max >= target {
            *self = Self { since: now, ..Self::default() };
            return false;
        }
        if self.short == 0 {
            self.since = now;
        }
        self.short += 1;
        self.empty = if round.queue_max < target / 4 { self.empty + 1 } else { 0 };
        let lasted = now.saturating_since(self.since);
        self.short > QUIET_ROUNDS && lasted > QUIET_TIME
            || self.empty >= QUIET_ROUNDS && lasted > QUIET_TIME / 4
    }
}

const SETTLED_ROUNDS: u32 = 3;
const STUCK_ROUNDS: u32 = 6;
/// So long after a cut what is delivered comes from the smaller window.
const CUT_ROUNDS: u32 = 2;
const FULL_QUEUES: u32 = 3;
const SPAN_ROUNDS: u32 = 16;
const SPAN_PACKETS: u64 = 60;
/// CUBIC's own pauses between two full queues are shorter than this on most paths.
const QUIET_ROUNDS: u32 = 8;
const QUIET_TIME: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a cut of the window from so many packets to seven tenths, which costs no rate, says that nobody else is there.
    fn cut_from(packets: f64) -> bool {
        let round = |queue_ms| {
            let mut round = Round::default();
            round.rate = Some(Rate::from_bits_per_sec(1_000_000));
            round.queue_max = Duration::from_millis(queue_ms);
            round
        };
        let mut cut = Cut::default();
        let window = packets * 1000.0;
        assert!(!cut.on_round(&round(200), window, 1000));
        (0..=CUT_ROUNDS).any(|_| cut.on_round(&round(100), 0.7 * window, 1000))
    }

    #[test]
    fn a_cut_that_only_shortens_the_queue_says_that_nobody_else_is_there() {
        assert!(cut_from(20.0));
        assert!(!cut_from(9.0), "of so few packets it says nothing");
    }
}

//! Beside flows that do not yield to loss.

use std::time::Duration;

use freshwire_units::{Rate, Timestamp};

use super::super::Ack;
use super::gaps;
use crate::recovery::filter::{Best, Windowed};

/// Holds its own against senders that ignore loss, as BBR's first version does, by doing what they do: the best
/// delivery rate of ten round trips is the rate, within what is to be held, probed by a quarter more in one round of eight, and up to two
/// round trips' worth of it may be in flight. It ends after some time, and where it is in vain: see [`Flood::on_span`].
#[derive(Debug)]
pub(super) struct Flood {
    bandwidth: Windowed,
    hold: Hold,
    /// The share that is lost of late, once it is known.
    lost: Option<f64>,
    round: u64,
    began: Timestamp,
    base: Duration,
    srtt: Duration,
    phase: usize,
    phase_began: Timestamp,
}

/// What is held against others, as the rate at which it is delivered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hold {
    pub(super) least: Rate,
    pub(super) most: Rate,
}

/// Whether it is time for it. Many of our kind with little each would make each other lose much: who finds that so waits, each time
/// twice as long.
#[derive(Debug, Default)]
pub(super) struct Patience {
    pause: Duration,
    until: Timestamp,
}

impl Patience {
    pub(super) fn is_over(&self, now: Timestamp) -> bool {
        now >= self.until
    }

    pub(super) fn on_flood(&mut self, now: Timestamp, in_vain: bool) {
        self.pause = if in_vain { (2 * self.pause).clamp(FLOOD_TIME, MAX_PAUSE) } else { Duration::ZERO };
        self.until = now + self.pause;
    }
}

impl Flood {
    pub(super) fn new(hold: Hold, delivered: Rate, base: Duration, now: Timestamp) -> Self {
        // No more than a few times what is delivered, whatever the receiver's clock says.
        let credible = Rate::from_bits_per_sec(delivered.bits_per_sec().saturating_mul(MOST_RAISE));
        Self {
            bandwidth: Windowed::new(Best::Max, 10),
            hold: Hold { least: hold.least.min(credible), ..hold },
            lost: None,
            round: 0,
            began: now,
            base,
            srtt: base,
            phase: 2,
            phase_began: now,
        }
    }

    pub(super) fn on_ack(&mut self, ack: &Ack<'_>, round_ended: bool) {
        self.base = ack.rtt.base();
        self.srtt = ack.rtt.srtt();
        if let Some(sample) = ack.sample
            && (!sample.app_limited || sample.rate > self.rate())
        {
            self.bandwidth.update(self.round, sample.rate.bits_per_sec().cast_signed());
        }
        self.round += u64::from(round_ended);
        let elapsed = ack.now.saturating_since(self.phase_began);
        let drained = self.phase == 1 && ack.in_flight as f64 <= self.bdp();
        if elapsed > self.base || drained {
            self.phase = (self.phase + 1) % 8;
            self.phase_began = ack.now;
        }
    }

    /// This share was lost over some rounds; `others_hold` is whether somebody was seen of late who does not yield. True if what is held is
    /// held in vain.
    pub(super) fn on_span(&mut self, now: Timestamp, lost: f64, others_hold: bool) -> bool {
        let is_first = self.lost.replace(lost.min(MAX_LOSS)).is_none();
        if is_first && others_hold {
            // The others have not yet had the time to find that they get less.
            return false;
        }
        let is_trial = now.saturating_since(self.began) < gaps::PERIOD;
        lost > if others_hold || is_trial { MAX_LOSS } else { MAX_LOSS_ALONE }
    }

    /// It is tried whether the others have come to yield.
    pub(super) fn is_over(&self, now: Timestamp) -> bool {
        now.saturating_since(self.began) > FLOOD_TIME
    }

    pub(super) fn rate(&self) -> Rate {
        let sent =
            |delivered: Rate| (delivered.bits_per_sec() as f64 / (1.0 - self.lost.unwrap_or(0.0))) as u64;
        let rate = self.bandwidth.get().map_or(0, i64::unsigned_abs);
        Rate::from_bits_per_sec(rate.min(sent(self.hold.most)).max(sent(self.hold.least)))
    }

    /// Those who came while there was a queue already take it for the path, and have more in flight for it.
    pub(super) fn window(&self) -> f64 {
        (2.0 * self.bdp()).max(1.5 * self.rate().bytes_in(self.srtt) as f64)
    }

    pub(super) fn pacing_rate(&self) -> Rate {
        let bits = self.rate().bits_per_sec();
        Rate::from_bits_per_sec(match self.phase {
            0 => bits / 4 * 5,
            1 => bits / 4 * 3,
            _ => bits,
        })
    }

    fn bdp(&self) -> f64 {
        self.rate().bytes_in(self.base) as f64
    }
}

/// More loss than this is too much whoever makes it.
const MAX_LOSS: f64 = 0.45;
/// More loss than this is too much where nobody was seen who does not yield.
const MAX_LOSS_ALONE: f64 = 0.1;
const MOST_RAISE: u64 = 16;
const FLOOD_TIME: Duration = Duration::from_secs(30);
const MAX_PAUSE: Duration = Duration::from_secs(480);

#[cfg(test)]
mod tests {
    use super::*;

    fn mbit(rate: u64) -> Rate {
        Rate::from_bits_per_sec(rate * 1_000_000)
    }

    #[test]
    fn a_receiver_that_lies_about_time_does_not_make_it_leap() {
        let base = Duration::from_millis(50);
        let hold = Hold { least: mbit(20_000), most: mbit(30_000) };
        assert_eq!(Flood::new(hold, mbit(1), base, Timestamp::ZERO).rate(), mbit(16));
        let hold = Hold { least: mbit(2), most: mbit(3) };
        assert_eq!(Flood::new(hold, mbit(1), base, Timestamp::ZERO).rate(), mbit(2));
    }

    #[test]
    fn what_is_held_is_delivered_whatever_is_lost_up_to_a_limit() {
        let hold = Hold { least: mbit(2), most: mbit(3) };
        let mut flood = Flood::new(hold, mbit(1), Duration::from_millis(50), Timestamp::ZERO);
        assert!(!flood.on_span(Timestamp::ZERO, 0.2, true));
        assert_eq!(flood.rate(), Rate::from_bits_per_sec(2_500_000));
        assert!(flood.on_span(Timestamp::ZERO, 0.5, true), "too much, whoever makes it");
    }

    #[test]
    fn beside_others_that_hold_theirs_the_first_loss_does_not_end_it() {
        let hold = Hold { least: mbit(2), most: mbit(3) };
        let begun = || Flood::new(hold, mbit(1), Duration::from_millis(50), Timestamp::ZERO);
        let mut flood = begun();
        assert!(!flood.on_span(Timestamp::ZERO, 0.5, true));
        assert!(flood.on_span(Timestamp::ZERO, 0.5, true));
        assert!(begun().on_span(Timestamp::ZERO, 0.5, false), "beside nobody who does");
    }

    #[test]
    fn where_nobody_else_holds_it_is_in_vain_after_a_trial() {
        let hold = Hold { least: mbit(2), most: mbit(3) };
        let mut flood = Flood::new(hold, mbit(1), Duration::from_millis(50), Timestamp::ZERO);
        assert!(!flood.on_span(Timestamp::ZERO + Duration::from_secs(10), 0.2, false));
        let after = Timestamp::ZERO + gaps::PERIOD;
        assert!(flood.on_span(after, 0.2, false));
        assert!(!flood.on_span(after, 0.2, true));
        assert!(!flood.on_span(after, 0.05, false), "little is lost by it");
    }

    #[test]
    fn each_one_in_vain_doubles_the_pause() {
        let mut patience = Patience::default();
        assert!(patience.is_over(Timestamp::ZERO));
        let mut now = Timestamp::ZERO;
        for pause in [30, 60, 120, 240, 480, 480] {
            patience.on_flood(now, true);
            now += Duration::from_secs(pause - 1);
            assert!(!patience.is_over(now), "after {pause} s");
            now += Duration::from_secs(1);
            assert!(patience.is_over(now), "after {pause} s");
        }
        patience.on_flood(now, false);
        assert!(patience.is_over(now));
        patience.on_flood(now, true);
        assert!(patience.is_over(now + FLOOD_TIME));
    }
}

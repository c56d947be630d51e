//! Beside flows that do not yield to loss.

use std::time::Duration;

use freshwire_units::{Rate, Timestamp};

use super::super::Ack;
use crate::recovery::filter::{Best, Windowed};

/// Holds its own against senders that ignore loss, as BBR's first version does, by doing what they do: the best
/// delivery rate of ten round trips is the rate, probed by a quarter more in one round of eight, and up to two round
/// trips' worth of it may be in flight. More loss than [`MAX_LOSS`] makes it yield.
#[derive(Debug)]
pub(super) struct Flood {
    bandwidth: Windowed,
    most: Option<Rate>,
    calm: f64,
    round: u64,
    began: Timestamp,
    base: Duration,
    srtt: Duration,
    phase: usize,
    phase_began: Timestamp,
}

/// What is held against others.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hold {
    /// At first.
    pub(super) rate: Rate,
    /// At most.
    pub(super) most: Option<Rate>,
    /// With a smaller share of loss they are calm.
    pub(super) calm: f64,
}

impl Flood {
    pub(super) fn new(hold: Hold, base: Duration, now: Timestamp) -> Self {
        let Hold { rate, most, calm } = hold;
        let mut bandwidth = Windowed::new(Best::Max, 10);
        bandwidth.update(0, rate.bits_per_sec().cast_signed());
        Self { bandwidth, most, calm, round: 0, began: now, base, srtt: base, phase: 2, phase_began: now }
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

    /// Whether others are calm if this share is lost.
    pub(super) fn is_calm(&self, share: f64) -> bool {
        share < self.calm
    }

    /// Too much is lost.
    pub(super) fn give_way(&mut self) {
        let reduced = Rate::from_bits_per_sec(self.rate().bits_per_sec() / 8 * 7);
        self.bandwidth.reset();
        self.bandwidth.update(self.round, reduced.bits_per_sec().cast_signed());
    }

    pub(super) fn began(&self) -> Timestamp {
        self.began
    }

    pub(super) fn rate(&self) -> Rate {
        let rate = Rate::from_bits_per_sec(self.bandwidth.get().map_or(0, i64::unsigned_abs));
        self.most.map_or(rate, |most| rate.min(most))
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

/// Share of loss above which even the flood gives way.
pub(super) const MAX_LOSS: f64 = 0.3;

//! A model of BBR version 1 as Linux has it (`net/ipv4/tcp_bbr.c`), as a competitor.

use std::time::Duration;

use freshwire_record::{Rate, Timestamp};

use super::super::congestion::{Ack, Congestion, Loss};
use super::super::filter::{Best, Windowed};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    Startup,
    Drain,
    Bandwidth(usize),
    RoundTrip(Option<Timestamp>),
}

/// Ignores loss; sends at the best delivery rate of ten round trips, with two such windows in flight at most.
#[derive(Debug)]
pub(super) struct Bbr {
    mtu: u64,
    phase: Phase,
    bandwidth: Windowed,
    round: u64,
    round_began: Timestamp,
    phase_began: Timestamp,
    min_rtt: Duration,
    min_rtt_at: Timestamp,
    full: u64,
    full_rounds: u32,
    filled: bool,
    lost_in_phase: bool,
}

impl Bbr {
    pub(super) fn new(mtu: u64) -> Self {
        Self {
            mtu,
            phase: Phase::Startup,
            bandwidth: Windowed::new(Best::Max, 10),
            round: 0,
            round_began: Timestamp::ZERO,
            phase_began: Timestamp::ZERO,
            min_rtt: Duration::from_secs(10),
            min_rtt_at: Timestamp::ZERO,
            full: 0,
            full_rounds: 0,
            filled: false,
            lost_in_phase: false,
        }
    }

    fn bits(&self) -> u64 {
        self.bandwidth.get().map_or(0, i64::unsigned_abs)
    }

    fn bdp(&self, gain: f64) -> u64 {
        if self.bits() == 0 {
            return 10 * self.mtu;
        }
        (self.bits() as f64 / 8.0 * self.min_rtt.as_secs_f64() * gain) as u64
    }

    fn gain(&self) -> f64 {
        match self.phase {
            Phase::Startup => 2.885,
            Phase::Drain => 1.0 / 2.885,
            Phase::Bandwidth(0) => 1.25,
            Phase::Bandwidth(1) => 0.75,
            Phase::Bandwidth(_) | Phase::RoundTrip(_) => 1.0,
        }
    }

    fn on_round(&mut self) {
        if self.filled || self.phase != Phase::Startup {
            return;
        }
        if self.bits() as f64 >= self.full as f64 * 1.25 {
            self.full = self.bits();
            self.full_rounds = 0;
            return;
        }
        self.full_rounds += 1;
        self.filled = self.full_rounds >= 3;
    }

    fn cycle(&mut self, ack: &Ack<'_>) {
        let elapsed = ack.now.saturating_since(self.phase_began);
        let next = match self.phase {
            Phase::Startup if self.filled => Phase::Drain,
            Phase::Drain if ack.in_flight <= self.bdp(1.0) => some_phase(ack.now),
            Phase::Bandwidth(0)
                if elapsed > self.min_rtt
                    && (self.lost_in_phase || ack.in_flight_before >= self.bdp(1.25)) =>
            {
                Phase::Bandwidth(1)
            }
            Phase::Bandwidth(1) if elapsed > self.min_rtt || ack.in_flight <= self.bdp(1.0) => {
                Phase::Bandwidth(2)
            }
            Phase::Bandwidth(index) if index > 1 && elapsed > self.min_rtt => {
                Phase::Bandwidth((index + 1) % 8)
            }
            Phase::RoundTrip(None) if ack.in_flight <= 4 * self.mtu => {
                Phase::RoundTrip(Some(ack.now + Duration::from_millis(200).max(self.min_rtt)))
            }
            Phase::RoundTrip(Some(until)) if ack.now >= until => {
                self.min_rtt_at = ack.now;
                if self.filled { some_phase(ack.now) } else { Phase::Startup }
            }
            phase => phase,
        };
        if next != self.phase {
            self.phase = next;
            self.phase_began = ack.now;
            self.lost_in_phase = false;
        }
    }
}

/// Any but the one that drains, so that flows do not probe together for ever.
fn some_phase(now: Timestamp) -> Phase {
    let mixed = now.as_nanos().wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    Phase::Bandwidth([0, 2, 3, 4, 5, 6, 7][(mixed % 7) as usize])
}

impl Congestion for Bbr {
    fn on_ack(&mut self, ack: &Ack<'_>) {
        if let Some(sample) = ack.sample
            && (!sample.app_limited || sample.rate.bits_per_sec() > self.bits())
        {
            self.bandwidth.update(self.round, sample.rate.bits_per_sec().cast_signed());
        }
        let expired = ack.now.saturating_since(self.min_rtt_at) > Duration::from_secs(10);
        if ack.rtt.latest() <= self.min_rtt || expired {
            self.min_rtt = ack.rtt.latest();
            self.min_rtt_at = ack.now;
        }
        if expired && !matches!(self.phase, Phase::RoundTrip(_)) {
            self.phase = Phase::RoundTrip(None);
        }
        if ack.newest_sent_at >= self.round_began {
            self.round += 1;
            self.round_began = ack.now;
            self.on_round();
        }
        self.cycle(ack);
    }

    fn on_loss(&mut self, _loss: &Loss) {
        self.lost_in_phase = true;
    }

    fn on_spurious(&mut self, _now: Timestamp, _lost_at: Timestamp) {}

    fn on_outage(&mut self, _now: Timestamp) {}

    fn set_mtu(&mut self, mtu: u64) {
        self.mtu = mtu;
    }

    fn cwnd(&self) -> u64 {
        let gain = match self.phase {
            Phase::Startup | Phase::Drain => 2.885,
            Phase::RoundTrip(_) => return 4 * self.mtu,
            Phase::Bandwidth(_) => 2.0,
        };
        self.bdp(gain).max(4 * self.mtu) + 3 * self.mtu
    }

    fn pacing_rate(&self) -> Option<Rate> {
        (self.bits() > 0).then(|| Rate::from_bits_per_sec((self.bits() as f64 * self.gain()) as u64))
    }
}

//! CUBIC (RFC 9438), paced, with HyStart's exit from slow start by delay (RFC 9406, without its second phase).

use std::time::Duration;

use freshwire_record::{Rate, Timestamp};

use super::control::{Ack, Congestion, Loss, Reaction, initial_window, paced};

/// The window as a cubic function of the time since the last loss. Windows are in packets here, as in the RFC.
#[derive(Debug)]
pub(super) struct Cubic {
    mtu: u64,
    curve: Curve,
    srtt: Duration,
    rounds: Rounds,
    reaction: Reaction,
    before: Curve,
}

/// What a reaction changes, and an undone one restores.
#[derive(Clone, Debug)]
struct Curve {
    cwnd: f64,
    ssthresh: f64,
    w_max: f64,
    /// The window at the beginning of the present epoch.
    w_epoch: f64,
    w_est: f64,
    epoch: Option<Timestamp>,
}

/// The least round-trip times of this round and the last, for HyStart.
#[derive(Debug, Default)]
struct Rounds {
    ends: Timestamp,
    last_min: Option<Duration>,
    min: Option<Duration>,
    samples: u32,
}

impl Cubic {
    pub(super) fn new(mtu: u64, initial_rtt: Duration) -> Self {
        let curve = Curve {
            cwnd: initial_window(mtu) as f64 / mtu as f64,
            ssthresh: f64::INFINITY,
            w_max: 0.0,
            w_epoch: 0.0,
            w_est: 0.0,
            epoch: None,
        };
        Self {
            mtu,
            before: curve.clone(),
            curve,
            srtt: initial_rtt,
            rounds: Rounds::default(),
            reaction: Reaction::default(),
        }
    }

    /// One that has left slow start with a window of `window` bytes.
    pub(super) fn continuing(mtu: u64, window: f64, srtt: Duration) -> Self {
        let mut cubic = Self::new(mtu, srtt);
        cubic.curve.cwnd = window / mtu as f64;
        cubic.curve.ssthresh = cubic.curve.cwnd;
        cubic
    }

    fn reduce(&mut self, now: Timestamp, sent_at: Timestamp) {
        if !self.reaction.allows(sent_at) {
            return;
        }
        self.before = self.curve.clone();
        let curve = &mut self.curve;
        // Fast convergence: a flow that had less than before leaves room for a new one.
        curve.w_max = if curve.cwnd < curve.w_max { curve.cwnd * (1.0 + BETA) / 2.0 } else { curve.cwnd };
        curve.ssthresh = (curve.cwnd * BETA).max(MIN_PACKETS);
        curve.cwnd = curve.ssthresh;
        curve.epoch = None;
        self.reaction.begin(now);
    }

    fn avoid_congestion(&mut self, ack: &Ack<'_>) {
        let curve = &mut self.curve;
        let acked = ack.bytes as f64 / self.mtu as f64;
        let epoch = *curve.epoch.get_or_insert_with(|| {
            curve.w_epoch = curve.cwnd;
            curve.w_est = curve.cwnd;
            curve.w_max = curve.w_max.max(curve.cwnd);
            ack.now
        });
        let elapsed = (ack.now.saturating_since(epoch) + self.srtt).as_secs_f64();
        let k = ((curve.w_max - curve.w_epoch) / C).cbrt();
        let target = (C * (elapsed - k).powi(3) + curve.w_max).clamp(curve.cwnd, 1.5 * curve.cwnd);
        let alpha = if curve.w_est < curve.w_max { 3.0 * (1.0 - BETA) / (1.0 + BETA) } else { 1.0 };
        curve.w_est += alpha * acked / curve.cwnd;
        curve.cwnd += (target - curve.cwnd) / curve.cwnd * acked;
        curve.cwnd = curve.cwnd.max(curve.w_est);
    }

    /// Leaves slow start when the round trips of this round are clearly longer than those of the last.
    fn watch_delay(&mut self, ack: &Ack<'_>) {
        let rounds = &mut self.rounds;
        if ack.newest_sent_at >= rounds.ends {
            *rounds =
                Rounds { ends: ack.now, last_min: rounds.min.or(rounds.last_min), min: None, samples: 0 };
        }
        let latest = ack.rtt.latest();
        let min = rounds.min.map_or(latest, |min| min.min(latest));
        rounds.min = Some(min);
        rounds.samples += 1;
        if let Some(last) = rounds.last_min
            && rounds.samples >= 8
            && min >= last + (last / 8).clamp(Duration::from_millis(4), Duration::from_millis(16))
        {
            self.curve.ssthresh = self.curve.cwnd;
        }
    }
}

impl Congestion for Cubic {
    fn on_ack(&mut self, ack: &Ack<'_>) {
        self.srtt = ack.rtt.srtt();
        if ack.marked > 0 {
            self.reduce(ack.now, ack.newest_sent_at);
        }
        let limited = ack.in_flight_before + 2 * self.mtu >= self.cwnd();
        if !limited || !self.reaction.allows(ack.newest_sent_at) {
            return;
        }
        if self.curve.cwnd < self.curve.ssthresh {
            self.curve.cwnd += ack.bytes as f64 / self.mtu as f64;
            self.watch_delay(ack);
        } else {
            self.avoid_congestion(ack);
        }
    }

    fn on_loss(&mut self, loss: &Loss) {
        self.reduce(loss.now, loss.newest_sent_at);
        self.reaction.lost += loss.packets;
    }

    fn on_spurious(&mut self, _now: Timestamp, lost_at: Timestamp) {
        if self.reaction.all_spurious(lost_at) {
            self.curve = self.before.clone();
        }
    }

    fn on_outage(&mut self, now: Timestamp) {
        self.curve.ssthresh = (self.curve.cwnd * BETA).max(MIN_PACKETS);
        self.curve.cwnd = MIN_PACKETS;
        self.curve.epoch = None;
        self.reaction.begin(now);
    }

    fn set_mtu(&mut self, mtu: u64) {
        self.mtu = mtu;
    }

    fn cwnd(&self) -> u64 {
        (self.curve.cwnd * self.mtu as f64) as u64
    }

    fn pacing_rate(&self) -> Option<Rate> {
        Some(if self.curve.cwnd < self.curve.ssthresh {
            paced(self.cwnd(), self.srtt, 2, 1)
        } else {
            paced(self.cwnd(), self.srtt, 5, 4)
        })
    }
}

/// RFC 9438, section 5.1.
const C: f64 = 0.4;
/// RFC 9438, section 4.6.
const BETA: f64 = 0.7;
/// RFC 9002, section 7.2.
const MIN_PACKETS: f64 = 2.0;

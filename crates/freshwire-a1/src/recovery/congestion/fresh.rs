//! Fresh: a window that follows the queue.

use std::time::Duration;

use freshwire_units::{Rate, Timestamp};

use super::cubic::Cubic;
use super::{Ack, Congestion, Loss, initial_window, paced};
use crate::recovery::rtt::Rtt;

/// See the module's documentation.
#[derive(Debug)]
pub(in crate::recovery) struct Fresh {
    mtu: u64,
    /// Bytes that may be in flight while the queue is ours.
    window: f64,
    srtt: Duration,
    base: Duration,
    mode: Mode,
    round: Round,
    /// Growth of the next round without a queue.
    step: f64,
    /// Rounds in a row in which the queue stayed although the window was reduced, and the window before them.
    stuck: u32,
    window_before: f64,
    /// Queue at which the bottleneck was seen to drop packets.
    limit: Option<Duration>,
    reduced_at: Option<Timestamp>,
}

#[derive(Debug)]
enum Mode {
    /// Nothing is known: the window doubles each round trip until a queue shows.
    Start,
    /// The queue is ours and is kept short.
    Delay,
    /// Somebody else keeps a queue: be like them.
    Rival(Box<Cubic>),
}

#[derive(Debug, Default)]
struct Round {
    began: Timestamp,
    queue_min: Option<Duration>,
    queue_max: Duration,
    in_flight: u64,
    acked: u64,
    lost: u64,
    rate: Option<Rate>,
}

impl Fresh {
    pub(in crate::recovery) fn new(mtu: u64, initial_rtt: Duration) -> Self {
        Self {
            mtu,
            window: initial_window(mtu) as f64,
            srtt: initial_rtt,
            base: initial_rtt,
            mode: Mode::Start,
            round: Round::default(),
            step: STEP_MIN,
            stuck: 0,
            window_before: 0.0,
            limit: None,
            reduced_at: None,
        }
    }

    fn packet_time(&self) -> Duration {
        let seconds = self.mtu as f64 * (self.base + self.round.queue_max).as_secs_f64() / self.window;
        Duration::from_secs_f64(seconds)
    }

    fn target(&self) -> Duration {
        let packets = self.packet_time() * 5 / 2;
        let wanted = packets.max(TARGET);
        self.limit.map_or(wanted, |limit| wanted.min(limit / 2).max(packets.min(limit * 3 / 4)))
    }

    fn end_round(&mut self, now: Timestamp, rtt: &Rtt) {
        let round = std::mem::replace(&mut self.round, Round { began: now, ..Round::default() });
        let Some(queue) = round.queue_min else { return };
        self.round.queue_max = round.queue_max;
        let target = self.target();
        let limited = round.in_flight as f64 + 2.0 * self.mtu as f64 >= self.window;
        let _ = rtt;
        match &mut self.mode {
            Mode::Start => {
                if queue > target / 2 {
                    self.mode = Mode::Delay;
                    self.follow(&round, queue, target);
                }
            }
            Mode::Delay => {
                if queue < target / 4 {
                    self.stuck = 0;
                    if limited {
                        self.window *= 1.0 + self.step;
                        self.step = (2.0 * self.step).min(1.0);
                    }
                    return;
                }
                self.step = STEP_MIN;
                if queue <= target {
                    self.stuck = 0;
                    if limited {
                        self.follow(&round, queue, target);
                    }
                } else {
                    if self.stuck == 0 {
                        self.window_before = self.window;
                    }
                    self.stuck += 1;
                    self.follow(&round, queue, target);
                    if self.stuck > STUCK_ROUNDS {
                        self.window = self.window.max(self.window_before);
                        self.mode =
                            Mode::Rival(Box::new(Cubic::continuing(self.mtu, self.window, self.srtt)));
                        self.stuck = 0;
                    }
                }
            }
            Mode::Rival(cubic) => {
                self.window = cubic.cwnd() as f64;
                if round.queue_max < target {
                    self.stuck += 1;
                    if self.stuck > 2 {
                        self.mode = Mode::Delay;
                        self.stuck = 0;
                    }
                } else {
                    self.stuck = 0;
                }
            }
        }
    }

    /// The window that would make the queue the target.
    fn follow(&mut self, round: &Round, queue: Duration, target: Duration) {
        let used = (round.in_flight as f64).min(self.window);
        let ratio = (self.base + target).as_secs_f64() / (self.base + queue).as_secs_f64();
        let wanted = if ratio < 1.0 { used * ratio } else { self.window * ratio.min(1.1) };
        self.window = ((self.window + wanted) / 2.0).max(MIN_PACKETS * self.mtu as f64);
    }
}

impl Congestion for Fresh {
    fn on_ack(&mut self, ack: &Ack<'_>) {
        self.srtt = ack.rtt.srtt();
        self.base = ack.rtt.min();
        let queue = ack.rtt.queue();
        let round = &mut self.round;
        round.queue_min = Some(round.queue_min.map_or(queue, |min| min.min(queue)));
        round.queue_max = round.queue_max.max(queue);
        round.in_flight = round.in_flight.max(ack.in_flight_before);
        round.acked += ack.bytes;
        round.rate = round.rate.max(ack.sample.map(|sample| sample.rate));
        match &mut self.mode {
            Mode::Start => {
                if ack.in_flight_before as f64 + 2.0 * self.mtu as f64 >= self.window {
                    self.window += ack.bytes as f64;
                }
            }
            Mode::Rival(cubic) => cubic.on_ack(ack),
            Mode::Delay => {}
        }
        if ack.newest_sent_at >= self.round.began {
            self.end_round(ack.now, ack.rtt);
        }
    }

    fn on_loss(&mut self, loss: &Loss<'_>) {
        self.round.lost += loss.bytes;
        let queue = loss.rtt.queue();
        if let Mode::Rival(cubic) = &mut self.mode {
            cubic.on_loss(loss);
        } else if queue > self.target() && self.reduced_at.is_none_or(|at| loss.newest_sent_at > at) {
            self.limit = Some(queue);
            self.window *= 0.85;
            self.reduced_at = Some(loss.now);
            if matches!(self.mode, Mode::Start) {
                self.mode = Mode::Delay;
            }
        }
    }

    fn on_spurious(&mut self, now: Timestamp, lost_at: Timestamp) {
        if let Mode::Rival(cubic) = &mut self.mode {
            cubic.on_spurious(now, lost_at);
        }
    }

    fn on_outage(&mut self, _now: Timestamp) {
        self.window = (self.window / 2.0).max(MIN_PACKETS * self.mtu as f64);
        self.step = 1.0;
        if matches!(self.mode, Mode::Rival(_)) {
            self.mode = Mode::Delay;
        }
    }

    fn set_mtu(&mut self, mtu: u64) {
        self.mtu = mtu;
    }

    fn cwnd(&self) -> u64 {
        match &self.mode {
            Mode::Rival(cubic) => cubic.cwnd(),
            _ => self.window as u64,
        }
    }

    fn pacing_rate(&self) -> Option<Rate> {
        Some(match self.mode {
            Mode::Start => paced(self.cwnd(), self.srtt, 2, 1),
            _ => paced(self.cwnd(), self.srtt, 5, 4),
        })
    }
}

const STEP_MIN: f64 = 0.05;
const TARGET: Duration = Duration::from_millis(10);
const MIN_PACKETS: f64 = 2.0;
const STUCK_ROUNDS: u32 = 5;

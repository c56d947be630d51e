//! Fresh: a window that follows the queue.

use std::time::Duration;

use freshwire_units::{Rate, Timestamp};

use super::cubic::Cubic;
use super::{Ack, Congestion, Loss, Reaction, initial_window, paced};

/// See the module's documentation.
#[derive(Debug)]
pub(in crate::recovery) struct Fresh {
    mtu: u64,
    /// Bytes that may be in flight while the queue is ours.
    window: f64,
    path: Path,
    mode: Mode,
    round: Round,
    /// Growth of the next round without a queue.
    step: f64,
    /// Rounds in a row that speak for another mode.
    stuck: u32,
    /// The window before the queue stayed although the window was reduced.
    window_before: f64,
    rate_before: Option<Rate>,
    losses: Losses,
    reaction: Reaction,
    undo: f64,
    /// While draining, the round in which it ends.
    drain_until: Option<Timestamp>,
    drained_at: Timestamp,
}

#[derive(Debug)]
struct Path {
    srtt: Duration,
    base: Duration,
    rate: Option<Rate>,
    /// Queue at which the bottleneck was seen to drop packets.
    limit: Option<Duration>,
    /// The longest queue lately.
    deepest: Duration,
    /// Bytes that one acknowledgement brings at once: they have left the path before their window is free again.
    bunch: f64,
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

/// Loss that comes whatever we do.
#[derive(Debug, Default)]
struct Losses {
    acked: u64,
    lost: u64,
    rounds: u32,
    shares: [f64; 3],
}

impl Losses {
    fn usual(&self) -> f64 {
        self.shares.iter().copied().fold(1.0, f64::min)
    }

    fn on_round(&mut self, round: &Round) {
        self.acked += round.acked;
        self.lost += round.lost;
        self.rounds += 1;
        if self.rounds >= 16 {
            let share = self.lost as f64 / (self.lost + self.acked).max(1) as f64;
            self.shares = [self.shares[1], self.shares[2], share];
            *self = Self { shares: self.shares, ..Self::default() };
        }
    }
}

impl Path {
    fn packet_time(&self, mtu: u64) -> Duration {
        self.rate.map_or(Duration::ZERO, |rate| rate.time_for(mtu))
    }

    fn target(&self, mtu: u64) -> Duration {
        let packets = self.packet_time(mtu) * 22 / 10;
        let wanted = packets.max(TARGET);
        self.limit.map_or(wanted, |limit| wanted.min(limit / 2).max(packets.min(limit * 3 / 4)))
    }

    /// Bytes in flight that make a queue of `queue`.
    fn window(&self, queue: Duration, usual_loss: f64) -> Option<f64> {
        let bytes = self.rate?.bytes_in(self.base + queue) as f64;
        Some(bytes / (1.0 - usual_loss.min(0.5)) + self.bunch)
    }
}

impl Fresh {
    pub(in crate::recovery) fn new(mtu: u64, initial_rtt: Duration) -> Self {
        Self {
            mtu,
            window: initial_window(mtu) as f64,
            path: Path {
                srtt: initial_rtt,
                base: initial_rtt,
                rate: None,
                limit: None,
                deepest: Duration::ZERO,
                bunch: 0.0,
            },
            mode: Mode::Start,
            round: Round::default(),
            step: STEP_MIN,
            stuck: 0,
            window_before: 0.0,
            rate_before: None,
            losses: Losses::default(),
            reaction: Reaction::default(),
            undo: 0.0,
            drain_until: None,
            drained_at: Timestamp::ZERO,
        }
    }

    fn end_round(&mut self, now: Timestamp) {
        let round = std::mem::replace(&mut self.round, Round { began: now, ..Round::default() });
        let Some(queue) = round.queue_min else { return };
        self.losses.on_round(&round);
        if let Some(limit) = &mut self.path.limit {
            *limit = if round.lost == 0 { (*limit).max(round.queue_max) } else { *limit };
        }
        self.path.deepest = (self.path.deepest * 63 / 64).max(round.queue_max);
        let target = self.path.target(self.mtu);
        let limited = round.in_flight as f64 >= (0.85 * self.window).min(self.window - 2.0 * self.mtu as f64);
        match &mut self.mode {
            Mode::Start => {
                if queue > target / 2 {
                    self.mode = Mode::Delay;
                    self.fit(target);
                }
            }
            Mode::Delay => self.keep_short(&round, queue, target, limited),
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

    fn keep_short(&mut self, round: &Round, queue: Duration, target: Duration, limited: bool) {
        if queue < target / 4 {
            self.stuck = 0;
            if limited {
                self.window += (self.window * self.step).max(self.mtu as f64 / 2.0);
                self.step = (2.0 * self.step).min(0.5);
            }
            return;
        }
        self.step = STEP_MIN;
        if queue <= target {
            self.stuck = 0;
            if limited {
                self.follow(round, queue, target);
            }
            return;
        }
        if self.stuck == 0 {
            self.window_before = self.window;
            self.rate_before = round.rate;
        }
        self.stuck += 1;
        self.follow(round, queue, target);
        if self.stuck > STUCK_ROUNDS && self.loses_to_others(round) {
            self.window = self.window.max(self.window_before);
            self.mode = Mode::Rival(Box::new(Cubic::continuing(self.mtu, self.window, self.path.srtt)));
            self.stuck = 0;
        }
    }

    /// Alone at a bottleneck with a queue, a smaller window does not deliver less.
    fn loses_to_others(&self, round: &Round) -> bool {
        let (Some(before), Some(rate)) = (self.rate_before, round.rate) else { return false };
        let window = self.window / self.window_before;
        let rate = rate.bits_per_sec() as f64 / before.bits_per_sec() as f64;
        window < 0.9 && 1.0 - rate > 0.4 * (1.0 - window)
    }

    /// The window that would make the queue the target, half way.
    fn follow(&mut self, round: &Round, queue: Duration, target: Duration) {
        let used = (round.in_flight as f64).min(self.window);
        let ratio = (self.path.base + target).as_secs_f64() / (self.path.base + queue).as_secs_f64();
        let bunch = self.path.bunch.min(self.window / 2.0);
        let wanted =
            if ratio < 1.0 { (used - bunch).max(0.0) * ratio + bunch } else { self.window * ratio.min(1.1) };
        self.window = ((self.window + wanted) / 2.0).max(self.min_window());
    }

    /// The window that makes the queue the target at the rate that is delivered, at once.
    fn fit(&mut self, target: Duration) {
        if let Some(window) = self.path.window(target, self.losses.usual()) {
            self.window = self.window.min(window).max(self.min_window());
        }
    }

    /// Whether the bottleneck's queue is short beside the round trip, so that bursts overflow it.
    fn shallow(&self) -> bool {
        self.path.limit.is_some_and(|limit| limit < self.path.base / 4)
    }

    fn min_window(&self) -> f64 {
        MIN_PACKETS * self.mtu as f64
    }
}

impl Congestion for Fresh {
    fn on_ack(&mut self, ack: &Ack<'_>) {
        self.path.srtt = ack.rtt.srtt();
        self.path.base = ack.rtt.base();
        self.path.rate = ack.rate.or(self.path.rate);
        self.path.bunch = (self.path.bunch * 0.98).max(ack.bytes.saturating_sub(self.mtu) as f64);
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
            self.end_round(ack.now);
            let stale = ack.rtt.base_age(ack.now).is_some_and(|age| age > DRAIN_AFTER);
            self.drain_until = (self.drain_until.is_none()
                && stale
                && matches!(self.mode, Mode::Delay)
                && ack.now.saturating_since(self.drained_at) > DRAIN_AFTER)
                .then_some(ack.now);
            if self.drain_until.is_some() {
                self.drained_at = ack.now;
            }
        }
    }

    fn on_loss(&mut self, loss: &Loss<'_>) {
        self.round.lost += loss.bytes;
        let queue = loss.rtt.queue();
        if let Mode::Rival(cubic) = &mut self.mode {
            cubic.on_loss(loss);
            return;
        }
        self.reaction.lost += loss.packets;
        if !self.reaction.allows(loss.newest_sent_at) {
            return;
        }
        let target = self.path.target(self.mtu);
        let share = self.round.lost as f64 / (self.round.lost + self.round.acked) as f64;
        let deep = queue >= self.path.deepest * 3 / 4
            && queue > self.path.packet_time(self.mtu) * 3 / 2
            && self.round.lost >= 5 * self.mtu;
        let unusual = deep && share > 2.0 * self.losses.usual() + 0.08;
        let extreme = self.round.lost >= 10 * self.mtu && share > 0.35;
        if queue > target * 5 / 4 || unusual || extreme {
            self.undo = self.window;
            self.reaction.begin(loss.now);
            self.reaction.lost = loss.packets;
            self.path.limit = Some(queue.max(self.round.queue_max).max(Duration::from_micros(100)));
            let target = self.path.target(self.mtu);
            self.step = STEP_MIN;
            self.fit(target);
            if matches!(self.mode, Mode::Start) {
                self.mode = Mode::Delay;
            }
        }
    }

    fn on_spurious(&mut self, now: Timestamp, lost_at: Timestamp) {
        if let Mode::Rival(cubic) = &mut self.mode {
            cubic.on_spurious(now, lost_at);
        } else if self.reaction.all_spurious(lost_at) {
            self.window = self.window.max(self.undo);
        }
    }

    fn on_outage(&mut self, _now: Timestamp) {
        self.window = (self.window / 2.0).max(self.min_window());
        self.step = 0.5;
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
            _ if self.drain_until.is_some() => {
                let empty = self.path.window(Duration::ZERO, 0.0).unwrap_or(self.window);
                (empty * 0.75).clamp(self.mtu as f64, self.window) as u64
            }
            _ => self.window as u64,
        }
    }

    fn pacing_rate(&self) -> Option<Rate> {
        Some(match self.mode {
            Mode::Start => paced(self.cwnd(), self.path.srtt, 2, 1),
            _ => paced(self.cwnd(), self.path.srtt, if self.shallow() { 21 } else { 25 }, 20),
        })
    }

    fn max_burst(&self) -> u64 {
        match (self.path.limit, self.path.rate) {
            (Some(limit), Some(rate)) => rate.bytes_in(limit) / 4,
            _ => u64::MAX,
        }
    }
}

const STEP_MIN: f64 = 0.02;
const TARGET: Duration = Duration::from_millis(10);
const MIN_PACKETS: f64 = 3.0;
const STUCK_ROUNDS: u32 = 5;
const DRAIN_AFTER: Duration = Duration::from_secs(5);

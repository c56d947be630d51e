//! Copa (Arun and Balakrishnan, "Copa: Practical Delay-Based Congestion Control for the Internet", NSDI 2018), with CUBIC as its
//! competitive mode.
//!
//! ```text
//!               the queue shows,                        no empty queue
//!               or losses beyond chance                 for five rounds
//!   SlowStart ─────────────────────────►  Default  ─────────────────────►  Drain ◄─────────────┐
//!   (double)                             (Copa) ▲ ◄────────────────────── (two rounds)         │
//!       ▲                                  │    │       the queue is gone    │ it stays        │ every
//!       │ outage                           │    │ the queue is gone,         ▼                 │ five
//!       └── any mode        losses beyond  │    └──────────────────────  Competitive ──────────┘ seconds
//!                           chance         └──────────────────────────►   (CUBIC)
//! ```
//!
//! **Default.** The queue is what the packet of each acknowledgement waited, by the receiver's clock; the least of the last half round
//! trip is the standing queue. The window grows while less than `1 / DELTA` packets, and one pacing burst, of ours wait in it, and
//! shrinks while more do: by `velocity / DELTA` packets a round trip. The velocity doubles from the third round in the same
//! direction on, and is 1 after a change of direction. Loss changes nothing: random loss costs the lost packets and no more.
//!
//! **Drain.** Flows of our kind empty the queue every few rounds. When it was not nearly empty for five rounds, the window is cut below
//! what the path carries without a queue. If the queue goes, it was ours. If it stays, another flow keeps it.
//!
//! **Competitive.** CUBIC shares fairly with CUBIC and NewReno. Copa's own competitive mode varies delta by AIMD instead; here CUBIC
//! is there anyway, and follows RFC 9438. Every five seconds another drain tells whether the others have gone.
//!
//! **Losses beyond chance.** A policer, a very short queue, or many flows lose packets although no queue is seen. A
//! bucket takes one for each run of lost packets, where the window is used, and leaks [`CHANCE`] for each
//! acknowledged one. When it overflows, the window is cut to what is delivered. At the third time within [`HOLD`] the
//! losses are taken for congestion: the mode is competitive for [`HOLD`], the next time for twice that, and so on. If
//! losses go on at half of that window without a queue, they are chance after all.

use std::time::Duration;

use freshwire_record::{Rate, Timestamp};

use super::super::filter::{Best, Windowed};
use super::control::{Ack, Congestion, Loss, QUANTUM, Reaction, initial_window, paced};
use super::cubic::Cubic;

/// The paper's trade-off of delay and rate: 1 / DELTA packets of each flow are to wait in the queue.
const DELTA: f64 = 0.5;
/// The velocity doubles from this round in the same direction on (the paper, velocity).
const SAME_ROUNDS: u32 = 3;
/// The queue is nearly empty below this part of its longest of [`LONGEST_ROUNDS`] (the paper, mode switching).
const NEARLY_EMPTY: f64 = 0.1;
const LONGEST_ROUNDS: usize = 4;
/// After this many rounds without a nearly empty queue other flows may fill it (the paper, mode switching).
const FULL_ROUNDS: u32 = 5;
/// A window changes by no more than this part in a round trip: `make scenes`, queues of ten packets on long paths.
const MAX_STEP: f64 = 0.125;
/// Packets: the minimum window of RFC 9002, section 7.2.
const MIN_PACKETS: f64 = 2.0;
/// A congestion mark asks for less than a loss does: RFC 8511, section 3.
const MARK_FACTOR: f64 = 0.85;
/// Windows a round trip as a fraction. One: a faster pace is a queue of its own in a queue of ten packets (`make scenes`: 5 of 96
/// scenes of random loss below 0.9 instead of 27). In slow start twice the window, as mvfst paces Copa.
const PACING: (u64, u64) = (1, 1);
const START_PACING: (u64, u64) = (2, 1);
/// Packets back to back, as many as are to wait in the queue; more where they leave in [`SHORT_BURST`], the pacer's own, and in a
/// part of the round trip. A longer burst overflows a queue of a quarter of the path's content: `freshwire-lab sim speed`, 1 ms.
const BURST_PACKETS: u64 = 2;
const SHORT_BURST: Duration = Duration::from_micros(250);
const BURST_PART: u32 = 16;
/// Part of the delivered window in a drain: the pacing gain with which BBR drains (draft-cardwell-iccrg-bbr-congestion-control).
const DRAIN_FACTOR: f64 = 0.75;
/// Part of the delivered window right after a drain. Above 1, because acknowledgements arrive in bunches: `make scenes`. Where the
/// window is large, a bunch is a smaller part of it: 16 packets, the most with one acknowledgement, and two bursts.
const DRAINED_FACTOR: f64 = 1.25;
const BUNCH_PACKETS: u64 = 16;
/// Between drains in the competitive mode: half of the ten seconds after which the least delay is forgotten.
const DRAIN_AFTER: Duration = Duration::from_secs(5);
/// Share of packets that may be lost by chance: between the 5 % that are to cost nothing and the 10 % of a crowd.
const CHANCE: f64 = 0.075;
/// Runs of losses beyond chance that fill the bucket: chosen by hand; 7.5 % and 10 % for [`CHANCE`] were compared with it.
const BUCKET: f64 = 8.0;
/// This many overflows within [`HOLD`] are congestion: the first two may be an overshoot of the window.
const OVERFLOWS: u32 = 3;
/// The time for which the least delay is remembered; doubled up to [`MOST_HOLDS`] times that.
const HOLD: Duration = Duration::from_secs(10);
const MOST_HOLDS: u32 = 8;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Copa {
    mtu: u64,
    /// Bytes that may be in flight, but for the competitive mode.
    window: f64,
    mode: Mode,
    velocity: Velocity,
    /// Least queueing delay of half a round trip, in nanoseconds.
    standing: Windowed,
    srtt: Duration,
    /// Round trip without a queue.
    base: Duration,
    rate: Option<Rate>,
    round: Round,
    excess: Excess,
    reaction: Reaction,
    /// Half of the window was in flight when something was acknowledged last.
    is_used: bool,
    /// Nothing was heard since an outage began.
    silent: bool,
}

#[derive(Debug)]
enum Mode {
    SlowStart,
    Default,
    /// Whether a round of it is over, and what goes on if the queue stays.
    Drain(bool, Box<Cubic>),
    Competitive(Box<Cubic>),
}

/// How fast the window changes, in steps of 1 / DELTA packets a round trip.
#[derive(Debug)]
struct Velocity {
    value: f64,
    is_up: bool,
    same_rounds: u32,
    /// When the present round of it began, and with which window.
    began: Timestamp,
    window: f64,
}

impl Velocity {
    fn new(is_up: bool, now: Timestamp, window: f64) -> Self {
        Self { value: 1.0, is_up, same_rounds: 0, began: now, window }
    }

    fn on_round(&mut self, now: Timestamp, window: f64) {
        let is_up = window > self.window;
        if is_up != self.is_up {
            *self = Self::new(is_up, now, window);
            return;
        }
        self.same_rounds += 1;
        if self.same_rounds >= SAME_ROUNDS {
            self.value *= 2.0;
        }
        self.began = now;
        self.window = window;
    }
}

/// From a packet's sending to the first acknowledgement of something sent after its own.
#[derive(Debug, Default)]
struct Round {
    began: Timestamp,
    /// Longest queue of this round and those before.
    longest: [Duration; LONGEST_ROUNDS],
    /// The queue was nearly empty in this round; rounds since it was.
    is_empty: bool,
    full_rounds: u32,
}

/// Losses that are too many for chance.
#[derive(Debug, Default)]
struct Excess {
    level: f64,
    /// Overflows, each within the hold of the one before.
    count: u32,
    overflowed_at: Option<Timestamp>,
    /// The competitive mode is held until then, for so long, since this window was too much.
    until: Timestamp,
    holds: u32,
    window: f64,
    /// When the competitive mode began, or the last drain of it ended.
    checked_at: Timestamp,
}

impl Excess {
    /// One more overflow; whether it is congestion.
    fn on_overflow(&mut self, now: Timestamp) -> bool {
        let is_recent = self.overflowed_at.is_some_and(|at| now.saturating_since(at) < HOLD);
        self.count = if is_recent { self.count + 1 } else { 1 };
        self.overflowed_at = Some(now);
        self.level = 0.0;
        self.count >= OVERFLOWS
    }

    fn hold(&mut self, now: Timestamp, window: f64) {
        let is_again = now.saturating_since(self.until) < HOLD * self.holds;
        self.holds = if is_again { (2 * self.holds).clamp(1, MOST_HOLDS) } else { 1 };
        self.until = now + HOLD * self.holds;
        self.window = window;
        self.checked_at = now;
    }
}

impl Copa {
    pub(super) fn new(mtu: u64, initial_rtt: Duration) -> Self {
        let window = initial_window(mtu) as f64;
        Self {
            mtu,
            window,
            mode: Mode::SlowStart,
            velocity: Velocity::new(true, Timestamp::ZERO, window),
            standing: Windowed::new(Best::Min, nanos(initial_rtt / 2)),
            srtt: initial_rtt,
            base: initial_rtt,
            rate: None,
            round: Round::default(),
            excess: Excess::default(),
            reaction: Reaction::default(),
            is_used: true,
            silent: false,
        }
    }

    fn min_window(&self) -> f64 {
        MIN_PACKETS * self.mtu as f64
    }

    /// Bytes in flight that deliver what is delivered, without a queue.
    fn carried(&self) -> f64 {
        self.rate.map_or(self.window, |rate| rate.bytes_in(self.base) as f64)
    }

    /// Bytes that the pacer lets leave back to back.
    fn burst(&self) -> u64 {
        let quantum = self.pacing_rate().map_or(0, |rate| rate.bytes_in(QUANTUM));
        quantum.min(self.max_burst()).max(self.mtu)
    }

    /// Whether fewer bytes of ours wait in the queue than are to. That is the paper's comparison of `window / RTTstanding` with
    /// `1 / (DELTA * queue)`, and a burst, which is a queue of its own that no window makes shorter.
    fn is_below_target(&self) -> bool {
        let queue = Duration::from_nanos(self.standing.get().unwrap_or(0).unsigned_abs());
        let rate = self.window / (self.base + queue).as_secs_f64();
        rate * queue.as_secs_f64() <= self.mtu as f64 / DELTA + self.burst() as f64
    }

    /// Moves the window towards the target, unless it would grow without being used.
    fn steer(&mut self, ack: &Ack<'_>) {
        let is_up = self.is_below_target();
        if matches!(self.mode, Mode::SlowStart) {
            if is_up {
                self.window += if self.is_used { ack.bytes as f64 } else { 0.0 };
                return;
            }
            self.enter_default(ack.now, false);
        }
        if ack.now.saturating_since(self.velocity.began) >= self.srtt {
            self.velocity.on_round(ack.now, self.window);
        }
        if is_up && !self.is_used {
            self.velocity = Velocity::new(true, self.velocity.began, self.window);
            return;
        }
        if is_up != self.velocity.is_up && self.velocity.value > 1.0 {
            self.velocity = Velocity::new(is_up, ack.now, self.window);
        }
        let step = (self.velocity.value * self.mtu as f64 / DELTA).min(self.window * MAX_STEP);
        let change = step * ack.bytes as f64 / self.window;
        self.window = (self.window + if is_up { change } else { -change }).max(self.min_window());
    }

    fn enter_default(&mut self, now: Timestamp, is_up: bool) {
        self.mode = Mode::Default;
        self.velocity = Velocity::new(is_up, now, self.window);
    }

    fn look_at_queue(&mut self, queue: Duration) {
        self.round.longest[0] = self.round.longest[0].max(queue);
        let longest = self.round.longest.into_iter().max().unwrap_or_default();
        // A queue cannot be distinguished from the bursts that make it.
        let bursts = self.rate.map_or(Duration::ZERO, |rate| rate.time_for(2 * self.burst()));
        self.round.is_empty |= queue <= longest.mul_f64(NEARLY_EMPTY).max(bursts);
    }

    fn end_round(&mut self, now: Timestamp) {
        self.round.began = now;
        self.round.longest.rotate_right(1);
        self.round.longest[0] = Duration::ZERO;
        let is_empty = std::mem::take(&mut self.round.is_empty);
        self.round.full_rounds = if is_empty { 0 } else { self.round.full_rounds + 1 };
        let is_held = now < self.excess.until;
        let mode = std::mem::replace(&mut self.mode, Mode::Default);
        self.mode = match mode {
            Mode::Default if self.round.full_rounds >= FULL_ROUNDS => {
                Mode::Drain(false, Box::new(Cubic::continuing(self.mtu, self.window, self.srtt)))
            }
            Mode::Drain(_, cubic) if is_held => Mode::Competitive(cubic),
            Mode::Drain(..) if is_empty => {
                let packets = 4.0 * self.mtu as f64;
                let enough = (self.carried() * DRAINED_FACTOR).max(self.carried() + packets);
                let bunch = (BUNCH_PACKETS * self.mtu + 2 * self.burst()) as f64;
                self.window = self.window.min(enough).min(self.carried() + bunch);
                self.enter_default(now, true);
                return;
            }
            Mode::Drain(false, cubic) => Mode::Drain(true, cubic),
            Mode::Drain(true, cubic) => {
                self.excess.checked_at = now;
                Mode::Competitive(cubic)
            }
            Mode::Competitive(cubic) => {
                self.window = cubic.cwnd() as f64;
                if is_held {
                    Mode::Competitive(cubic)
                } else if is_empty {
                    self.enter_default(now, true);
                    return;
                } else if now.saturating_since(self.excess.checked_at) > DRAIN_AFTER {
                    Mode::Drain(false, cubic)
                } else {
                    Mode::Competitive(cubic)
                }
            }
            mode => mode,
        };
    }

    /// More was lost than chance explains.
    fn on_overflow(&mut self, loss: &Loss) {
        let is_congestion = self.excess.on_overflow(loss.now);
        self.reaction.begin(loss.now);
        let starts = matches!(self.mode, Mode::SlowStart);
        // The delivery rate is behind while the window doubles.
        let carried = if starts { self.carried().max(self.window / 2.0) } else { self.carried() };
        if let Mode::Competitive(cubic) = &self.mode {
            if is_congestion {
                self.excess.hold(loss.now, cubic.cwnd() as f64);
            }
            return;
        }
        self.window = self.window.min(carried).max(self.min_window());
        if starts || !is_congestion {
            self.enter_default(loss.now, false);
            return;
        }
        self.excess.hold(loss.now, self.window);
        self.mode = Mode::Competitive(Box::new(Cubic::continuing(self.mtu, self.window, self.srtt)));
    }

    /// Losses that a far smaller window does not end are not of its making.
    fn forgive(&mut self, now: Timestamp) {
        self.window = self.excess.window;
        self.excess = Excess::default();
        self.enter_default(now, true);
    }
}

impl Congestion for Copa {
    fn on_ack(&mut self, ack: &Ack<'_>) {
        self.silent = false;
        self.srtt = ack.rtt.srtt();
        self.base = ack.rtt.base();
        self.rate = ack.rate.or(self.rate);
        // Pacing keeps the flight below the window while it grows.
        self.is_used = 2 * (ack.in_flight_before + self.mtu) >= self.cwnd();
        self.excess.level = (self.excess.level - CHANCE * ack.bytes as f64 / self.mtu as f64).max(0.0);
        if let Mode::Competitive(cubic) = &mut self.mode {
            cubic.on_ack(ack);
        } else if ack.marked > 0 && self.reaction.allows(ack.newest_sent_at) {
            self.reaction.begin(ack.now);
            self.window = (self.window * MARK_FACTOR).max(self.min_window());
            self.enter_default(ack.now, false);
        }
        if let Some(queue) = ack.queue {
            self.standing.set_window(nanos(self.srtt / 2));
            self.standing.update(ack.now.as_nanos(), nanos(queue).cast_signed());
            self.look_at_queue(queue);
            if matches!(self.mode, Mode::SlowStart | Mode::Default) {
                self.steer(ack);
            }
        }
        if ack.newest_sent_at >= self.round.began {
            self.end_round(ack.now);
        }
    }

    fn on_loss(&mut self, loss: &Loss) {
        let is_new = self.reaction.allows(loss.newest_sent_at) || matches!(self.mode, Mode::Competitive(_));
        if is_new && self.is_used {
            self.excess.level += (loss.runs as f64).max(loss.packets as f64 / BUCKET);
        }
        if self.excess.level > BUCKET {
            self.on_overflow(loss);
        }
        let Mode::Competitive(cubic) = &mut self.mode else { return };
        let is_small = (cubic.cwnd() as f64) < self.excess.window / 2.0;
        if loss.now < self.excess.until && is_small && self.round.full_rounds == 0 {
            self.forgive(loss.now);
        } else {
            cubic.on_loss(loss);
        }
    }

    fn on_spurious(&mut self, now: Timestamp, lost_at: Timestamp) {
        self.excess.level = (self.excess.level - 1.0).max(0.0);
        if let Mode::Competitive(cubic) = &mut self.mode {
            cubic.on_spurious(now, lost_at);
        }
    }

    fn on_outage(&mut self, _now: Timestamp) {
        if !std::mem::replace(&mut self.silent, true) {
            self.window = (self.window / 2.0).max(self.min_window());
        }
        self.mode = Mode::SlowStart;
        self.round.full_rounds = 0;
        self.excess = Excess::default();
    }

    fn set_mtu(&mut self, mtu: u64) {
        self.mtu = mtu;
        if let Mode::Competitive(cubic) | Mode::Drain(_, cubic) = &mut self.mode {
            cubic.set_mtu(mtu);
        }
    }

    fn cwnd(&self) -> u64 {
        match &self.mode {
            Mode::Competitive(cubic) => cubic.cwnd(),
            Mode::Drain(..) => (self.carried() * DRAIN_FACTOR).min(self.window).max(self.min_window()) as u64,
            // A path that is found to carry larger packets has to get at least some of those into flight.
            Mode::SlowStart | Mode::Default => self.window.max(self.min_window()) as u64,
        }
    }

    fn pacing_rate(&self) -> Option<Rate> {
        let (numerator, denominator) = match &self.mode {
            Mode::SlowStart => START_PACING,
            Mode::Default | Mode::Drain(..) => PACING,
            Mode::Competitive(cubic) => return cubic.pacing_rate(),
        };
        Some(paced(self.cwnd(), self.srtt, numerator, denominator))
    }

    fn max_burst(&self) -> u64 {
        let time = SHORT_BURST.min(self.srtt / BURST_PART);
        let short = self.pacing_rate().map_or(0, |rate| rate.bytes_in(time));
        (BURST_PACKETS * self.mtu).max(short)
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

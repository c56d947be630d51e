//! What is known of the path, round by round.

use std::time::Duration;

use freshwire_units::{Rate, Timestamp};

use super::super::Ack;

/// The path as it looks now.
#[derive(Debug)]
pub(super) struct Path {
    pub(super) srtt: Duration,
    /// Round trip without a queue.
    pub(super) base: Duration,
    /// What it delivers: the best of some rounds, and what the last one did.
    pub(super) rate: Option<Rate>,
    pub(super) round_rate: Option<Rate>,
    /// The queue at which the bottleneck was seen to drop packets.
    pub(super) limit: Option<Duration>,
    /// The longest queue lately, and the longest of each of the last two rounds.
    deepest: Duration,
    longest: [Duration; 2],
    /// Bytes that one acknowledgement brings at once: they have left the path before their window is free again.
    pub(super) bunch: f64,
}

impl Path {
    pub(super) fn new(initial_rtt: Duration) -> Self {
        Self {
            srtt: initial_rtt,
            base: initial_rtt,
            rate: None,
            round_rate: None,
            limit: None,
            deepest: Duration::ZERO,
            longest: [Duration::ZERO; 2],
            bunch: 0.0,
        }
    }

    pub(super) fn on_ack(&mut self, ack: &Ack<'_>, mtu: u64) {
        self.srtt = ack.rtt.srtt();
        self.base = ack.rtt.base();
        self.rate = ack.rate.or(self.rate);
        self.bunch = (self.bunch * 0.98).max(ack.bytes.saturating_sub(mtu) as f64);
    }

    pub(super) fn on_round(&mut self, round: &Round) {
        self.round_rate = round.rate.or(self.round_rate);
        // The middle one of three: a machine that stands still for a moment looks like a long queue in one round.
        let [before, last] = self.longest;
        self.longest = [last, round.queue_max];
        let longest = before.clamp(last.min(round.queue_max), last.max(round.queue_max));
        if round.lost == 0 {
            // The queue was this long and nothing was dropped.
            self.limit = self.limit.map(|limit| limit.max(longest));
        }
        self.deepest = (self.deepest * 63 / 64).max(longest);
    }

    /// The queue to aim at: two packets and a bit, or 10 ms, but no more than half of what the bottleneck holds, and a quarter of a short one.
    pub(super) fn target(&self, mtu: u64) -> Duration {
        let packets = self.packet_time(mtu) * 22 / 10;
        let wanted = packets.max(TARGET);
        let Some(limit) = self.limit else { return wanted };
        let most = if self.has_short_queue() { limit / 4 } else { limit / 2 };
        wanted.min(most).max(packets.min(limit * 3 / 4))
    }

    /// The queue to aim at beside others of our kind, `target` at most. Who has more aims at less, and all see the same queue: so those
    /// who share a bottleneck come to the same rate. On a short path a packet a round does that by itself, and so short a queue would
    /// be taken from the jitter of timers.
    pub(super) fn aim(&self, target: Duration, mtu: u64) -> Duration {
        let Some(rate) = self.rate.filter(|_| self.base >= TARGET) else { return target };
        let part = (WHOLE_TARGET_BITS / rate.bits_per_sec().max(1) as f64).sqrt().max(LEAST_PART_OF_TARGET);
        target.min(TARGET.mul_f64(part).max(self.packet_time(mtu) * 22 / 10))
    }

    /// The bottleneck dropped packets with this queue. One of less than two or three packets is hard to believe.
    pub(super) fn set_limit(&mut self, queue: Duration, mtu: u64) {
        self.limit = Some(queue.max(self.packet_time(mtu) * 5 / 2).max(MIN_LIMIT));
    }

    /// What is lost is lost to a full queue, so that one is no longer than the longest of late.
    pub(super) fn bound_limit(&mut self) {
        if self.has_short_queue() {
            self.limit = self.limit.map(|limit| limit.min(self.deepest).max(MIN_LIMIT));
        }
    }

    /// Bytes in flight that make a queue of `queue` on a path that loses a share of `usual_loss`.
    pub(super) fn window(&self, queue: Duration, usual_loss: f64) -> Option<f64> {
        let bytes = self.rate?.bytes_in(self.base + queue) as f64;
        Some(bytes / (1.0 - usual_loss.min(MAX_COMPENSATED)) + self.bunch)
    }

    /// What the path delivers in `time`; a packet or so before that is known.
    pub(super) fn bytes_in(&self, time: Duration) -> f64 {
        self.rate.map_or(f64::INFINITY, |rate| rate.bytes_in(time) as f64)
    }

    /// Whether a loss at this queue is the bottleneck's doing.
    pub(super) fn is_full(&self, queue: Duration, mtu: u64) -> bool {
        match self.limit {
            Some(limit) => queue >= limit * 4 / 5,
            None => queue > self.target(mtu) * 5 / 4,
        }
    }

    /// Whether the queue is one, and long beside what was seen lately.
    pub(super) fn is_deep(&self, queue: Duration, mtu: u64) -> bool {
        queue >= self.deepest * 3 / 4 && queue > self.packet_time(mtu) * 3 / 2
    }

    /// Whether the queue is one, and not short beside what was seen lately.
    pub(super) fn is_long(&self, queue: Duration, mtu: u64) -> bool {
        queue >= self.deepest / 2 && queue > self.packet_time(mtu) * 3 / 2
    }

    /// Whether the bottleneck's queue is far shorter than a round trip, and than what is aimed at elsewhere. One that is shorter
    /// still is overflowed by each timer that is late, whoever is there.
    pub(super) fn has_short_queue(&self) -> bool {
        self.limit.is_some_and(|limit| limit >= SHORTEST_QUEUE && limit < TARGET.min(self.base / 4))
    }

    /// Whether the queue is at least half of what the bottleneck holds.
    pub(super) fn is_half_full(&self, queue: Duration) -> bool {
        self.limit.is_some_and(|limit| queue >= limit / 2)
    }

    /// So much of the rate.
    pub(super) fn rate_times(&self, numerator: u64, denominator: u64) -> Rate {
        let bits = self.rate.map_or(0, Rate::bits_per_sec);
        Rate::from_bits_per_sec((bits / denominator).saturating_mul(numerator))
    }

    /// A burst that the bottleneck's queue can take.
    pub(super) fn max_burst(&self) -> u64 {
        match (self.limit, self.rate) {
            (Some(limit), Some(rate)) => rate.bytes_in(limit) / 4,
            _ => u64::MAX,
        }
    }

    fn packet_time(&self, mtu: u64) -> Duration {
        self.rate.map_or(Duration::ZERO, |rate| rate.time_for(mtu))
    }
}

/// From a packet's sending to the first acknowledgement of something sent after its own.
#[derive(Debug, Default)]
pub(super) struct Round {
    pub(super) began: Timestamp,
    /// Least and longest queueing delay.
    pub(super) queue_min: Option<Duration>,
    pub(super) queue_max: Duration,
    /// Most bytes in flight, and in the round before.
    pub(super) in_flight: u64,
    in_flight_before: u64,
    pub(super) acked: u64,
    pub(super) lost: u64,
    /// Of these, what a full queue did not cause.
    pub(super) lost_by_chance: u64,
    pub(super) rate: Option<Rate>,
}

impl Round {
    pub(super) fn on_ack(&mut self, ack: &Ack<'_>) {
        if let Some(queue) = ack.queue {
            self.queue_min = Some(self.queue_min.map_or(queue, |min| min.min(queue)));
            self.queue_max = self.queue_max.max(queue);
        }
        self.in_flight = self.in_flight.max(ack.in_flight_before);
        self.acked += ack.bytes;
        self.rate = self.rate.max(ack.sample.map(|sample| sample.rate));
    }

    /// Ends this one, gives it out, and begins the next.
    pub(super) fn finish(&mut self, now: Timestamp) -> Self {
        std::mem::replace(self, Self { began: now, in_flight_before: self.in_flight, ..Self::default() })
    }

    /// Whether a good part of the window was in flight of late.
    pub(super) fn fills(&self, window: f64) -> bool {
        self.in_flight.max(self.in_flight_before) as f64 >= window / 2.0
    }

    pub(super) fn loss_share(&self) -> f64 {
        self.lost as f64 / (self.lost + self.acked).max(1) as f64
    }
}

/// The share of packets that is lost though no queue is full: the least of some spans of rounds.
#[derive(Debug, Default)]
pub(super) struct Losses {
    acked: u64,
    lost: u64,
    rounds: u32,
    before_last: [f64; 2],
    last: f64,
    /// Rounds of this span with a moment without a queue, and spans in a row with too much loss, and of these with a queue that was
    /// never gone.
    empty: u32,
    overloaded: u32,
    always_full: u32,
}

impl Losses {
    pub(super) fn usual(&self) -> f64 {
        let [first, second] = self.before_last;
        first.min(second).min(self.last)
    }

    /// So much is lost for long, with a queue that is always there, or even without one to be seen, that it is not by chance.
    pub(super) fn is_overload(&self) -> bool {
        self.overloaded >= OVERLOADED_SPANS
    }

    /// It is, with a queue.
    pub(super) fn is_overload_with_queue(&self) -> bool {
        self.always_full >= OVERLOADED_SPANS
    }

    /// The share in this span or the last, whichever is larger.
    pub(super) fn recent(&self) -> f64 {
        self.share().max(self.last)
    }

    /// One more round, in which the queue was never empty or was.
    pub(super) fn on_round(&mut self, round: &Round, always_queue: bool) {
        self.empty += u32::from(!always_queue);
        self.acked += round.acked;
        self.lost += round.lost_by_chance;
        self.rounds += 1;
        if self.rounds >= SPAN_ROUNDS {
            let [_, second] = self.before_last;
            let is_full = self.empty <= 1;
            let is_heavy = self.share() > if is_full { HEAVY } else { EXTREME };
            *self = Self {
                before_last: [second, self.last],
                last: self.share(),
                overloaded: if is_heavy { self.overloaded + 1 } else { 0 },
                always_full: if is_heavy && is_full { self.always_full + 1 } else { 0 },
                ..Self::default()
            };
        }
    }

    fn share(&self) -> f64 {
        self.lost as f64 / (self.lost + self.acked).max(1) as f64
    }
}

/// A limit below this is a timer's resolution, not a queue.
const MIN_LIMIT: Duration = Duration::from_micros(100);
/// What a late timer lets go at once, as a rule.
const SHORTEST_QUEUE: Duration = Duration::from_micros(500);
const TARGET: Duration = Duration::from_millis(10);
/// Up to this rate the whole target is aimed at, above it less with the square root of the rate, down to a part that can be told from
/// the jitter of timers.
const WHOLE_TARGET_BITS: f64 = 5e6;
const LEAST_PART_OF_TARGET: f64 = 0.3;
/// More loss than this is not made up for.
const MAX_COMPENSATED: f64 = 0.1;
const SPAN_ROUNDS: u32 = 16;
/// More than most paths lose by themselves.
const HEAVY: f64 = 0.15;
/// More than a path loses by itself that is still of use.
const EXTREME: f64 = 0.3;
const OVERLOADED_SPANS: u32 = 2;

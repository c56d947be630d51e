//! Fresh: a window that follows the queue, for data that is worth little once it is old.
//!
//! ```text
//!            a queue shows            the queue stays though the window shrinks, or losses
//!            or much is lost          come with a full queue that is not ours
//!   Start ─────────────────► Delay ──────────────────────────────────────────────► Rival ──► Flood
//!   (double)                  (keep the queue short) ◄──────── the queue is gone ────┘ ◄──────┘
//! ```
//!
//! **Delay.** Once a round trip the least queueing delay of the round, from the receiver's clock, is compared with a
//! target of about two packets or 10 ms, above 5 Mbit/s and 10 ms of round trip with a shorter one, down to 3 ms at 55 Mbit/s: of flows
//! that share a queue, those with more than others give way to them. Below a quarter of it the window grows by 2 %, 4 %, 8 % and so on, up to a half,
//! of itself a round, as long as the delivery rate follows; up to the target it grows by a packet at most; above, it
//! goes half way to what would make the queue the target.
//! Loss by itself changes nothing: a lost packet leaves the window a round trip later as a delivered one does, so that
//! random loss costs what it takes and no more. Loss with a full queue, or very much loss of a filled window, sets it to what the
//! delivery rate and the target ask for, and the queue at which it happened bounds the target from then on: a
//! bottleneck's queue may be shorter than 10 ms. A window that the application does not fill does not grow, and does
//! not shrink unless there is a queue, so that the next burst leaves at the rate of the last one.
//!
//! Where a queue is full its losses are no chance, so that they are not made up for by a larger window. What is lost with a long queue more
//! often than packets meet one is lost to a full queue; see [`overflow`]. Many flows can keep a queue
//! full for so long that all of them take it for the path. More than 15 % loss for long with a queue that is never gone, unless most of what
//! the bottleneck carries is ours, or more than 30 % without a queue to be seen, with less than a fifth of what it carries, is overload: each
//! loss counts then as CUBIC's does.
//!
//! **Rival.** Alone, a smaller window delivers no less while there is a queue. When the delivery rate falls with the
//! window and the queue stays longer than anybody's target, somebody else holds it; keeping it short would only mean to
//! starve. From the third such round on packets leave in trains, which show what the bottleneck carries for all; see [`trains`]. Unless
//! nearly all of that is ours, a part of it is claimed; see [`claim`]. Losses say the same that come with a full queue while the window
//! does not grow, on a path that otherwise loses next to nothing; nothing is claimed then.
//! The window is from then on CUBIC's, which shares fairly with CUBIC and NewReno, except that losses without a queue are
//! not counted. It ends when the queue is short for some time, or when CUBIC's cut of the window shortens the queue and
//! costs no delivery rate: then there was nobody else. The cut of a window of a few packets says nothing of that. It also ends when
//! most of the bottleneck is ours while there is a queue: the others keep theirs short, as we do in the mode `Delay`, or send seldom.
//!
//! Where the bottleneck's queue is far shorter than a round trip its length says little of others. Who makes it overflow yields
//! some of the window, whether others can be seen or not; see [`yielding`].
//!
//! **Flood.** CUBIC with less than a fifth of the bottleneck may be beside somebody who does not yield to loss. Such senders empty the
//! queue from time to time to see the path, which many that do yield seldom do; see [`gaps`]. Once that was seen, and more is lost than
//! by a few flows that yield or next to nothing is left, a fifth of the bottleneck is held, and up to three tenths, as they hold theirs; see
//! [`flood`]. Where the queue is never empty and a tenth is lost, there are only too many, and CUBIC goes on.
//!
//! The path's least delay is forgotten after ten seconds, so that a queue that is always there would be taken for the
//! path; every five seconds without a sight of the least delay the window is cut below the path's capacity for a round.

mod claim;
mod flood;
mod gaps;
mod growth;
mod overflow;
mod path;
mod rivals;
mod trains;
mod yielding;

use std::time::Duration;

use freshwire_units::{Rate, Timestamp};

use self::claim::Claim;
use self::flood::{Flood, Hold, Patience};
use self::gaps::Gaps;
use self::growth::{FEW_PACKETS, Growth};
use self::overflow::Overflow;
use self::path::{Losses, Path, Round};
use self::rivals::{Rivals, Verdict};
use self::trains::Trains;
use self::yielding::Yielding;
use super::cubic::Cubic;
use super::{Ack, Congestion, Loss, Reaction, initial_window, paced};

/// See the module's documentation.
#[derive(Debug)]
pub(in crate::recovery) struct Fresh {
    mtu: u64,
    /// Bytes that may be in flight in the modes `Start` and `Delay`.
    window: f64,
    mode: Mode,
    path: Path,
    round: Round,
    losses: Losses,
    overflow: Overflow,
    rivals: Rivals,
    yielding: Yielding,
    growth: Growth,
    /// What the bottleneck carries for all, measured where there seem to be others.
    trains: Trains,
    /// So much is lost that each loss counts, whatever the queue looks like.
    overload: bool,
    /// Whether a part may be held against others, and whether these are such.
    patience: Patience,
    gaps: Gaps,
    reaction: Reaction,
    /// The window before the last reaction.
    undo: f64,
    /// Nothing was heard since an outage began.
    silent: bool,
    /// The window is cut for this round, and when it was last.
    draining: bool,
    drained_at: Timestamp,
}

#[derive(Debug)]
enum Mode {
    Start,
    Delay,
    Claim(Claim),
    Rival(Box<Cubic>),
    Flood(Box<Flood>),
}

impl Fresh {
    pub(in crate::recovery) fn new(mtu: u64, initial_rtt: Duration) -> Self {
        Self {
            mtu,
            window: initial_window(mtu) as f64,
            mode: Mode::Start,
            path: Path::new(initial_rtt),
            round: Round::default(),
            losses: Losses::default(),
            overflow: Overflow::default(),
            rivals: Rivals::default(),
            yielding: Yielding::default(),
            growth: Growth::default(),
            trains: Trains::default(),
            overload: false,
            patience: Patience::default(),
            gaps: Gaps::default(),
            reaction: Reaction::default(),
            undo: 0.0,
            silent: false,
            draining: false,
            drained_at: Timestamp::ZERO,
        }
    }

    fn end_round(&mut self, now: Timestamp) {
        let round = self.round.finish(now);
        let Some(queue) = round.queue_min else { return };
        self.path.on_round(&round);
        self.overflow.on_round();
        if self.overflow.part() > Some(MOSTLY) {
            self.path.bound_limit();
        }
        self.rivals.on_round();
        self.yielding.on_round();
        self.look_for_gaps(now, &round, queue);
        let target = self.path.target(self.mtu);
        self.losses.on_round(&round, queue > target / 4 && queue > round.queue_max / 3);
        self.overload &= self.losses.recent() > CALM_LOSS;
        match &mut self.mode {
            Mode::Start => {
                if queue > target / 2 {
                    self.mode = Mode::Delay;
                    self.fit();
                }
            }
            Mode::Delay => self.keep_short(&round, queue, target),
            Mode::Claim(claim) => {
                let is_enough = claim.on_round(&round, self.path.srtt);
                self.window = claim.window();
                if is_enough {
                    self.meet_rival();
                }
            }
            Mode::Rival(cubic) => {
                self.window = cubic.cwnd() as f64;
                self.compete(now, &round, target);
            }
            Mode::Flood(flood) => {
                self.window = flood.window();
                self.compete(now, &round, target);
            }
        }
    }

    fn look_for_gaps(&mut self, now: Timestamp, round: &Round, queue: Duration) {
        let trips = [queue, round.queue_max].map(|queue| self.path.base + queue);
        let few = self.trains.capacity().map(|capacity| capacity.time_for(GAP_PACKETS * self.mtu));
        self.gaps.on_round(now, trips, few);
    }

    /// Much is lost, and much of what the bottleneck carries is not ours, or nearly all where there is no queue to be seen.
    fn is_overload(&self) -> bool {
        let most = if self.losses.is_overload_with_queue() { UNEQUAL } else { LEAST_PART };
        let most = self.trains.capacity().map(|capacity| part(capacity, most));
        self.losses.is_overload() && most.is_some_and(|most| self.path.rate < Some(most))
    }

    fn keep_short(&mut self, round: &Round, queue: Duration, target: Duration) {
        if self.is_overload() {
            self.overload = true;
            self.meet_rival();
            return;
        }
        let packet = self.mtu as f64;
        let limited = round.in_flight as f64 >= (0.85 * self.window).min(self.window - 2.0 * packet);
        let aim = self.path.aim(target, self.mtu);
        if queue > aim {
            self.growth.end();
            self.shrink(round, queue, aim);
        } else if queue >= aim / 4 {
            self.growth.end();
            if limited {
                // Additive, so that flows that share the path come to share it evenly.
                self.window += (self.path.bytes_in(aim - queue) / 2.0).min(packet);
            }
        } else if limited {
            self.rivals.on_growth();
            self.window = self.growth.next(self.window, round.rate, packet);
            if self.growth.is_vain() && self.window < FEW_PACKETS * packet {
                // More was in vain, as far as so few packets tell; what the path was seen to carry is not.
                let carried = self.path.window(Duration::ZERO, self.losses.usual()).unwrap_or(0.0);
                self.window = self.window.max(carried.min(self.window * CATCH_UP));
            }
        }
        if queue > target {
            self.suspect_rivals(round);
        } else {
            self.rivals.on_short_queue(queue < aim / 4);
        }
    }

    /// The queue is longer than anybody of our kind lets it be.
    fn suspect_rivals(&mut self, round: &Round) {
        self.rivals.on_stuck(self.window, round.rate);
        let Some(capacity) = self.trains.capacity() else { return };
        let is_alone = self.path.rate >= Some(part(capacity, ALONE));
        if let Some(before) = self.rivals.take_share(self.window, round.rate)
            && !is_alone
        {
            self.mode = Mode::Claim(Claim::new(self.window.max(before), capacity, self.losses.recent()));
        }
    }

    /// Half way to the window that makes the queue the target.
    fn shrink(&mut self, round: &Round, queue: Duration, target: Duration) {
        if round.in_flight as f64 > TOLD * self.window {
            // It is the queue of a window that has been cut since.
            return;
        }
        let used = (round.in_flight as f64).min(self.window);
        let bunch = self.path.bunch.min(self.window / 2.0);
        let ratio = (self.path.base + target).as_secs_f64() / (self.path.base + queue).as_secs_f64();
        let wanted = (used - bunch).max(0.0) * ratio + bunch;
        let window = (self.window + wanted) / 2.0;
        self.window = window.max(self.min_window());
    }

    /// No more than the window that makes the queue the target at the rate that is delivered.
    fn fit(&mut self) {
        let target = self.path.target(self.mtu);
        if let Some(window) = self.path.window(target, self.losses.usual()) {
            self.window = self.window.min(window).max(self.min_window());
        }
    }

    fn meet_rival(&mut self) {
        self.rivals = Rivals::default();
        self.mode = Mode::Rival(Box::new(Cubic::continuing(self.mtu, self.window, self.path.srtt)));
    }

    fn compete(&mut self, now: Timestamp, round: &Round, target: Duration) {
        let cut = matches!(self.mode, Mode::Rival(_)).then_some(self.window);
        let yields = self.yielding.is_on() && self.path.has_short_queue();
        match self.rivals.judge(now, round, cut, target, self.mtu) {
            None => {}
            // Who has made room in a short queue meets them again when it is full.
            Some(Verdict::Gone) if self.overload || yields => {}
            Some(Verdict::Gone) => self.end_rivalry(),
            Some(Verdict::Span { delivered, .. })
                if round.queue_min > Some(target) && self.has_most(delivered) && !yields =>
            {
                self.end_rivalry();
            }
            Some(Verdict::Span { lost, .. }) => self.answer(now, lost, round.fills(self.window)),
        }
    }

    /// Others who leave us so much yield more than we do.
    fn has_most(&self, delivered: Rate) -> bool {
        let most = self.trains.capacity().map(|capacity| part(capacity, UNEQUAL));
        !self.overload && most.is_some_and(|most| delivered >= most)
    }

    fn end_rivalry(&mut self) {
        self.mode = Mode::Delay;
        self.rivals = Rivals::default();
        self.yielding.end();
    }

    /// So much was lost over some rounds beside others; the window is used up, or is not.
    fn answer(&mut self, now: Timestamp, share: f64, is_used: bool) {
        let Some(capacity) = self.trains.capacity() else { return };
        let Some(delivered) = self.path.rate else { return };
        let least = part(capacity, LEAST_PART);
        let others_hold = self.gaps.is_recent(now);
        let is_pressed = share > PRESSED || delivered < part(capacity, STARVED_PART);
        let may_hold =
            is_used && delivered < least && is_pressed && others_hold && self.patience.is_over(now);
        match &mut self.mode {
            Mode::Rival(_) if may_hold => {
                let hold = Hold { least, most: part(capacity, MOST_PART) };
                self.mode = Mode::Flood(Box::new(Flood::new(hold, delivered, self.path.base, now)));
            }
            Mode::Flood(flood) => {
                let in_vain = flood.on_span(now, share, others_hold);
                if in_vain || flood.is_over(now) {
                    self.patience.on_flood(now, in_vain);
                    self.meet_rival();
                }
            }
            _ => {}
        }
    }

    /// Whether this round's packets leave in trains.
    fn decide_measuring(&mut self) {
        match self.mode {
            Mode::Start | Mode::Claim(_) => self.trains.pause(),
            // What was measured before may have been another path's.
            Mode::Delay if !self.rivals.is_stuck() && !self.losses.is_overload() => {
                self.trains = Trains::default()
            }
            Mode::Delay if self.rivals.is_stuck() => self.trains.measure(),
            // Trains are what a bottleneck without a queue drops first: they would keep up the overload that they measure.
            Mode::Delay | Mode::Rival(_) | Mode::Flood(_) => self.trains.on_round(),
        }
    }

    /// Loss in the modes in which the queue is ours.
    fn react(&mut self, loss: &Loss<'_>) {
        let queue = loss.rtt.queue();
        let share = self.round.loss_share();
        let full = self.is_full(queue);
        let unusual = self.round.lost >= 5 * self.mtu
            && self.path.is_deep(queue, self.mtu)
            && share > 2.0 * self.losses.usual() + 0.08;
        // What an application sends that does not fill the window is not less by a smaller one, only later.
        let extreme = self.round.lost >= 10 * self.mtu && share > 0.35 && self.round.fills(self.window);
        if !(full || unusual || extreme) {
            return;
        }
        self.undo = self.window;
        self.reaction.begin(loss.now);
        self.reaction.lost = loss.packets;
        if unusual || full && self.path.limit.is_none() {
            self.path.set_limit(queue.max(self.round.queue_max), self.mtu);
        }
        self.growth.end();
        if matches!(self.mode, Mode::Start) {
            self.mode = Mode::Delay;
            // The delivery rate is behind while the window doubles.
            self.growth.begin_faster();
        } else if full && self.losses.recent() < QUIET_PATH_LOSS && self.is_rivals_doing(loss.now) {
            self.meet_rival();
            self.reduce(loss);
            return;
        }
        self.fit();
    }

    /// Whether a loss at this queue is the bottleneck's doing.
    fn is_full(&self, queue: Duration) -> bool {
        self.path.is_full(queue, self.mtu)
            || self.overflow.part() > Some(MOSTLY) && self.path.is_long(queue, self.mtu)
    }

    /// Whether it is time to take a queue that is full again for others' doing.
    fn is_rivals_doing(&mut self, now: Timestamp) -> bool {
        if self.path.has_short_queue() { self.yielding.on_overflow(now) } else { self.rivals.on_full_queue() }
    }

    /// Loss beside others.
    fn react_beside_rivals(&mut self, loss: &Loss<'_>) {
        let heavy = self.round.lost > 10 * self.mtu && self.round.loss_share() > 0.11;
        let queue = loss.rtt.queue();
        let has_queue = if self.yielding.is_on() {
            self.path.is_half_full(queue) && self.overflow.part().is_none_or(|part| part > MOSTLY)
        } else {
            // A bottleneck's queue may be shorter than the target, or be taken for the path.
            queue > self.path.target(self.mtu) || self.path.is_deep(queue, self.mtu)
        };
        if !(heavy || self.overload || has_queue) {
            return;
        }
        if self.yielding.has_made_room() && self.has_of(self.trains.capacity(), NEARLY_ALL) {
            self.yielding.on_alone(loss.now);
            self.end_rivalry();
            self.fit();
            return;
        }
        self.reduce(loss);
    }

    /// As CUBIC does; but a window that yields, and had half of the bottleneck, keeps half, and does not come back faster than others.
    fn reduce(&mut self, loss: &Loss<'_>) {
        let has_half = self.has_of(self.trains.capacity().or(self.path.rate), HALF);
        let Mode::Rival(cubic) = &mut self.mode else { return };
        let before = cubic.cwnd();
        cubic.on_loss(loss);
        if self.yielding.is_on() && has_half && cubic.cwnd() < before {
            cubic.settle_for(before as f64 * HALF);
        }
    }

    /// Whether the last round brought such a part of what is carried.
    fn has_of(&self, carried: Option<Rate>, least: f64) -> bool {
        carried.is_some_and(|carried| self.path.round_rate >= Some(part(carried, least)))
    }

    /// Whether the window is cut for the next round, so that the path is seen without a queue.
    fn decide_drain(&mut self, ack: &Ack<'_>) {
        let stale = ack.rtt.base_age(ack.now).is_some_and(|age| age > DRAIN_AFTER)
            && ack.now.saturating_since(self.drained_at) > DRAIN_AFTER;
        self.draining = !self.draining && stale && matches!(self.mode, Mode::Delay);
        if self.draining {
            self.drained_at = ack.now;
        }
    }

    fn on_marks(&mut self, ack: &Ack<'_>) {
        // CUBIC has seen them itself.
        if matches!(self.mode, Mode::Rival(_)) || !self.reaction.allows(ack.newest_sent_at) {
            return;
        }
        self.reaction.begin(ack.now);
        if matches!(self.mode, Mode::Flood(_)) {
            // A bottleneck that marks keeps the others off by itself.
            self.patience.on_flood(ack.now, true);
            self.meet_rival();
            return;
        }
        self.mode = Mode::Delay;
        self.growth.end();
        self.window = (self.window * MARK_FACTOR).max(self.min_window());
    }

    fn min_window(&self) -> f64 {
        MIN_PACKETS * self.mtu as f64
    }
}

impl Congestion for Fresh {
    fn on_ack(&mut self, ack: &Ack<'_>) {
        self.silent = false;
        self.trains.on_ack(ack);
        self.path.on_ack(ack, self.mtu);
        self.round.on_ack(ack);
        if let Some(queue) = ack.queue {
            self.overflow.on_ack(ack.bytes, self.path.is_long(queue, self.mtu));
        }
        let ends = ack.newest_sent_at >= self.round.began;
        match &mut self.mode {
            Mode::Start => {
                // Pacing keeps the flight below the window while it doubles.
                if 2 * ack.in_flight_before + 2 * self.mtu >= self.window as u64 {
                    self.window += ack.bytes as f64;
                }
            }
            Mode::Delay | Mode::Claim(_) => {}
            Mode::Rival(cubic) => cubic.on_ack(ack),
            Mode::Flood(flood) => flood.on_ack(ack, ends),
        }
        if ack.marked > 0 {
            self.on_marks(ack);
        }
        if ends {
            self.end_round(ack.now);
            self.decide_measuring();
            self.decide_drain(ack);
        }
    }

    fn on_loss(&mut self, loss: &Loss<'_>) {
        let queue = loss.rtt.queue();
        self.round.lost += loss.bytes;
        self.overflow.on_loss(self.path.is_long(queue, self.mtu));
        if !self.is_full(queue) {
            self.round.lost_by_chance += loss.bytes;
        }
        match &mut self.mode {
            Mode::Claim(_) | Mode::Flood(_) => {}
            Mode::Rival(_) => self.react_beside_rivals(loss),
            Mode::Start | Mode::Delay => {
                self.reaction.lost += loss.packets;
                if self.reaction.allows(loss.newest_sent_at) {
                    self.react(loss);
                }
            }
        }
    }

    fn on_spurious(&mut self, now: Timestamp, lost_at: Timestamp) {
        match &mut self.mode {
            Mode::Rival(cubic) => cubic.on_spurious(now, lost_at),
            Mode::Claim(_) | Mode::Flood(_) => {}
            Mode::Start | Mode::Delay => {
                if self.reaction.all_spurious(lost_at) {
                    self.window = self.window.max(self.undo);
                }
            }
        }
    }

    fn on_outage(&mut self, _now: Timestamp) {
        if matches!(self.mode, Mode::Claim(_) | Mode::Rival(_) | Mode::Flood(_)) {
            self.end_rivalry();
        }
        if !std::mem::replace(&mut self.silent, true) {
            self.window = (self.window / 2.0).max(self.min_window());
        }
        self.growth.begin_fast();
    }

    fn set_mtu(&mut self, mtu: u64) {
        self.mtu = mtu;
        if let Mode::Rival(cubic) = &mut self.mode {
            cubic.set_mtu(mtu);
        }
    }

    fn cwnd(&self) -> u64 {
        match &self.mode {
            Mode::Claim(claim) => claim.window() as u64,
            Mode::Rival(cubic) => cubic.cwnd(),
            Mode::Flood(flood) => (flood.window() as u64).max(4 * self.mtu),
            Mode::Start | Mode::Delay if self.draining => {
                let capacity = self.path.window(Duration::ZERO, 0.0).unwrap_or(self.window);
                ((DRAIN_FACTOR * capacity).min(self.window) as u64).max(self.mtu)
            }
            Mode::Start | Mode::Delay => self.window as u64,
        }
    }

    fn pacing_rate(&self) -> Option<Rate> {
        Some(match &self.mode {
            Mode::Start => paced(self.cwnd(), self.path.srtt, 2, 1),
            Mode::Delay if self.growth.is_on() => paced(self.cwnd(), self.path.srtt, 5, 4),
            Mode::Delay if self.growth.is_vain() => paced(self.cwnd(), self.path.srtt, 1, 1),
            Mode::Delay => {
                let window = (self.window - self.path.bunch).max(self.window / 2.0);
                paced(window as u64, self.path.srtt, 21, 20).max(self.path.rate_times(11, 10))
            }
            Mode::Claim(_) => paced(self.cwnd(), self.path.srtt, 5, 4),
            Mode::Rival(cubic) => paced(cubic.cwnd(), self.path.srtt, 11, 10),
            Mode::Flood(flood) => flood.pacing_rate(),
        })
    }

    fn train(&self) -> Option<u64> {
        self.trains.is_measuring().then(|| trains::length(self.cwnd(), self.path.max_burst(), self.mtu))
    }

    fn max_burst(&self) -> u64 {
        self.path.max_burst()
    }
}

fn part(whole: Rate, part: f64) -> Rate {
    Rate::from_bits_per_sec((whole.bits_per_sec() as f64 * part) as u64)
}

/// With so many windows in flight it was cut by more than what a queue makes it shrink by in a round.
const TOLD: f64 = 2.0;
const CATCH_UP: f64 = 1.5;
/// The fewest packets that keep acknowledgements, and news of losses, coming.
const MIN_PACKETS: f64 = 3.0;
/// A path that loses more than this by itself leaves CUBIC so little that a full queue says nothing of it.
const QUIET_PATH_LOSS: f64 = 0.01;
/// Of the losses: when so many come from a full queue, each that comes with a long one does.
const MOSTLY: f64 = 0.5;
/// A congestion mark comes before the queue is full, and asks for less than a loss does (as RFC 8511 has it).
const MARK_FACTOR: f64 = 0.85;
/// Of the bottleneck: who has so much has it alone.
const ALONE: f64 = 0.8;
/// Of the bottleneck: who came to so much without a loss has it alone.
const NEARLY_ALL: f64 = 0.9;
const HALF: f64 = 0.5;
/// Of the bottleneck: beside one who is like us nobody has so much for long.
const UNEQUAL: f64 = 0.7;
const DRAIN_AFTER: Duration = Duration::from_secs(5);
/// Of the path's capacity without a queue.
const DRAIN_FACTOR: f64 = 0.75;
/// With less loss the overload is over.
const CALM_LOSS: f64 = 0.05;
/// A queue of fewer is hard to tell from bunches of packets.
const GAP_PACKETS: u64 = 5;
/// Of the bottleneck: with less, there are many, or somebody may not yield; more is not held against them.
const LEAST_PART: f64 = 0.2;
const MOST_PART: f64 = 0.3;
/// With less than this of it others leave next to nothing, whatever is lost.
const STARVED_PART: f64 = 0.12;
/// A few flows that yield lose less than this.
const PRESSED: f64 = 0.03;

#[cfg(test)]
mod tests {
    use super::super::super::Rtt;
    use super::*;

    #[test]
    fn a_mark_ends_what_is_held() {
        let rtt = Rtt::new(Duration::from_millis(50));
        let now = Timestamp::from_nanos(20_000_000_000);
        let mbit = |rate: u64| Rate::from_bits_per_sec(rate * 1_000_000);
        let hold = Hold { least: mbit(2), most: mbit(3) };
        let mut fresh = Fresh::new(1200, Duration::from_millis(50));
        fresh.mode = Mode::Flood(Box::new(Flood::new(hold, mbit(1), Duration::from_millis(50), now)));
        let ack = Ack {
            now,
            bytes: 1200,
            in_flight_before: 1200,
            in_flight: 0,
            newest_sent_at: now,
            marked: 0,
            sample: None,
            rate: None,
            receiver_us: None,
            queue: None,
            rtt: &rtt,
        };
        fresh.on_marks(&ack);
        assert!(matches!(fresh.mode, Mode::Rival(_)));
        assert!(!fresh.patience.is_over(now), "and not soon again");
    }
}

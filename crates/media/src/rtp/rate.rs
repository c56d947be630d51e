//! The rate for a receiver of RTP over UDP, from its receiver reports alone.
//!
//! Players that nobody changed send a report every 2.5 to 7.5 seconds (RFC 3550, 6.2), ffmpeg one per 280 kB. Rules of RMCAT (NADA,
//! RFC 8698; SCReAM, RFC 8298) need feedback several times per round trip and cannot be used. The rule here is put together from
//! published ones that can:
//!
//! | when | what | source |
//! |---|---|---|
//! | start | an initial window per round trip; the round trip is that of the control connection | RFC 5348, 4.2; RFC 6928 |
//! | until congestion shows | twice the rate per report, at most twice what arrived | RFC 5348, 4.3 |
//! | a queue beyond the target, or more than 10 % lost | 0.85 of what arrived | Google congestion control (GCC), draft-ietf-rmcat-gcc-02, 5.5 |
//! | 2 to 10 % lost, no queue | hold, but no more than TCP's share | GCC, 6; RFC 5348, 3.1 |
//! | otherwise | 1.08 times per report near the known capacity, 1.08 times per second beyond it | GCC, 5.5 |
//! | clear, and limited by the stream, for three reports | as at the start, up to the initial rate | RFC 5348, 4.3 (data-limited) |
//! | no report for three intervals | half, once per interval | RFC 5348, 4.4; RFC 8083, 4.1 |
//! | nothing arrives, or ten times TCP's share for three reports | stop | RFC 8083, 4.2 and 4.3 |
//!
//! The equation of RFC 5348 does not set the rate: at 300 kbit/s and a short round trip it settles where a tenth of all packets is
//! lost. It bounds the rate where losses are seen without a queue, as those of a radio link. GCC filters the delay gradient of
//! each group of packets; the queue is read here from round trips and from packets that are overdue, which reports do show.

use std::collections::VecDeque;
use std::time::Duration;

use freshwire_record::{Rate, Timestamp};

use super::sent::Reception;

/// Segments of the initial window (RFC 6928).
const INITIAL_SEGMENTS: f64 = 10.0;
/// Bytes of a full packet on the wire: 1400, UDP and IPv4.
const SEGMENT: f64 = 1428.0;
/// The round trip where none is known: that of a far continent. Chosen, not measured.
const UNKNOWN_ROUND_TRIP: Duration = Duration::from_millis(200);
/// A shorter round trip cannot be distinguished from the clock of a player. Chosen, not measured.
const SHORTEST_ROUND_TRIP: Duration = Duration::from_micros(100);
/// The queue that the sender may cause at the bottleneck, as over TCP (ADR 0042).
const QUEUE_TARGET: Duration = Duration::from_millis(50);
/// A longer queue is hardly a program that was busy. Chosen, not measured.
const SURE_QUEUE: Duration = Duration::from_millis(200);
/// A queue is another flow's if it keeps this share although the rate fell. Chosen, not measured.
const STANDING: f64 = 0.9;
/// The factor by which the target is then above it. Chosen, not measured.
const ADAPT: f64 = 1.5;
/// The largest tolerated queue: the largest threshold of draft-ietf-rmcat-gcc-02, section 5.4.
const MOST_QUEUE: Duration = Duration::from_millis(600);
/// Share of losses up to which the rate rises (draft-ietf-rmcat-gcc-02, section 6).
const LOW_LOSS: f64 = 0.02;
/// Share of losses above which it falls (draft-ietf-rmcat-gcc-02, section 6).
const HIGH_LOSS: f64 = 0.1;
/// The factor that a queue leaves of the arrived rate (draft-ietf-rmcat-gcc-02, section 5.5).
const DECREASE: f64 = 0.85;
/// The factor of an increase, for each report or second (draft-ietf-rmcat-gcc-02, section 5.5).
const INCREASE: f64 = 1.08;
/// The rate rises to at most this factor of the arrived rate, until congestion shows (RFC 5348, section 4.3).
const START_LEAD: f64 = 2.0;
/// The same factor after that (draft-ietf-rmcat-gcc-02, section 5.5).
const LEAD: f64 = 1.5;
/// Weight of a new round trip and of a new capacity in their means. Reports are too rare for RFC 5348's
/// tenth. Chosen, not measured.
const NEWEST: f64 = 0.5;
/// Never less than this, in bytes per second: sound and a picture now and then. Chosen, not measured.
const LEAST: f64 = 4000.0;
/// Never more than this, in bytes per second: 10 Gbit/s.
const MOST: f64 = 1.25e9;
/// The shortest silence that counts. Chosen, not measured.
const SILENCE: Duration = Duration::from_secs(15);
/// The number of usual gaps between reports that make a silence: three intervals (RFC 8083, section 4.1).
const SILENT_GAPS: u64 = 3;
/// Bytes between two reports of ffmpeg (ADR 0042).
const USUAL_GAP_BYTES: u64 = 280_000;
/// Reports of fewer packets say too little about losses. Chosen, not measured.
const FEW_PACKETS: u64 = 8;
/// Reports in a row, clear of congestion and limited by the stream, after which the rate rises as at the
/// start (RFC 5348, section 4.3). Their number is chosen, not measured.
const CLEAR_REPORTS: u32 = 3;
/// Reports in a row until a circuit breaker opens (RFC 8083, section 4.3).
const BREAKER_REPORTS: u32 = 3;
/// The factor above TCP's share at which the circuit breaker counts (RFC 8083, section 4.3).
const BREAKER_FACTOR: f64 = 10.0;
/// The smallest round trip is that of this many reports. Chosen, not measured.
const ROUND_TRIPS: usize = 12;
/// Deviation of the capacity as a share of its root, in kbit/s (as in WebRTC's implementation of GCC).
const DEVIATION: f64 = 0.4;

/// The rate for one receiver. Sans-IO: the caller brings reports and time.
#[derive(Clone, Debug)]
pub struct RateControl {
    /// Bytes per second.
    rate: f64,
    initial: f64,
    round_trip: Option<Duration>,
    round_trips: VecDeque<Duration>,
    /// What arrived per second when congestion showed; `None` until then and once more than that has arrived.
    capacity: Option<f64>,
    was_congested: bool,
    threshold: Duration,
    /// The last report showed a queue.
    had_queue: bool,
    /// The queue of the last report, if the rate fell for it.
    fell_for: Option<Duration>,
    /// Reports in a row without congestion, while the stream and not the rate was the limit.
    clear: u32,
    heard: LastReport,
    breaker: Breaker,
}

/// When reports came.
#[derive(Clone, Copy, Debug)]
struct LastReport {
    at: Timestamp,
    /// Bytes sent by then.
    bytes: u64,
    gap: Duration,
    gap_bytes: u64,
    /// When the rate was halved last for the lack of a report.
    halved_at: Timestamp,
}

#[derive(Clone, Copy, Debug)]
struct Breaker {
    /// Reports in a row with nothing new, although something was sent.
    nothing: u32,
    /// When a report had something new.
    arrived_at: Timestamp,
    /// Reports in a row with far more than TCP's share.
    excess: u32,
}

/// What a report did to the rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It rose or stayed.
    Kept,
    /// It fell: losses among packets that have left already are not another sign of congestion.
    Fell,
    /// The sender has to stop (RFC 8083).
    Cease(Cease),
}

/// Why a sender has to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Cease {
    /// Receiver reports come, but no packet arrives (RFC 8083, 4.2).
    #[error(
        "none of the last packets arrived, by {BREAKER_REPORTS} receiver reports; check the path's firewall"
    )]
    NothingArrives,
    /// The path loses far too much (RFC 8083, 4.3).
    #[error("the path loses too many packets even at the lowest rate; view over TCP")]
    Congestion,
}

impl RateControl {
    /// The rate for a receiver of which nothing is known but the round trip of its control connection.
    pub fn new(now: Timestamp, round_trip: Option<Duration>) -> Self {
        let seconds = round_trip.unwrap_or(UNKNOWN_ROUND_TRIP).max(SHORTEST_ROUND_TRIP).as_secs_f64();
        let initial = (INITIAL_SEGMENTS * SEGMENT / seconds).clamp(LEAST, MOST);
        Self {
            rate: initial,
            initial,
            round_trip,
            round_trips: round_trip.into_iter().collect(),
            capacity: None,
            was_congested: false,
            threshold: QUEUE_TARGET,
            had_queue: false,
            fell_for: None,
            clear: 0,
            heard: LastReport {
                at: now,
                bytes: 0,
                gap: Duration::ZERO,
                gap_bytes: USUAL_GAP_BYTES,
                halved_at: now,
            },
            breaker: Breaker { nothing: 0, arrived_at: now, excess: 0 },
        }
    }

    /// The rate in force: of packets with all their headers down to IP.
    pub fn rate(&self) -> Rate {
        Rate::from_bytes_per_sec(self.rate as u64)
    }

    /// Whether the path has shown a limit.
    pub fn is_limited(&self) -> bool {
        self.was_congested
    }

    /// Smoothed round trip.
    pub fn round_trip(&self) -> Option<Duration> {
        self.round_trip
    }

    /// The smallest round trip of the last reports.
    pub fn min_round_trip(&self) -> Option<Duration> {
        self.round_trips.iter().min().copied()
    }

    /// Takes in a report. `sent`: bytes sent so far. `at_once`: bytes that leave in one burst, which is a queue of their own.
    pub fn on_report(&mut self, now: Timestamp, reception: &Reception, sent: u64, at_once: u64) -> Change {
        let sent_since = sent.saturating_sub(self.heard.bytes);
        let is_new = reception.expected > 0;
        if !is_new && sent_since == 0 {
            // A pause: the report only says that somebody is there.
            self.heard(now, sent);
            return Change::Kept;
        }
        self.heard(now, sent);
        if !is_new {
            self.breaker.nothing += 1;
            let is_long = now.saturating_since(self.breaker.arrived_at) >= SILENCE;
            let is_over = self.breaker.nothing >= BREAKER_REPORTS && is_long;
            return if is_over { Change::Cease(Cease::NothingArrives) } else { Change::Kept };
        }
        (self.breaker.nothing, self.breaker.arrived_at) = (0, now);
        if let Some(sample) = reception.round_trip {
            self.note_round_trip(sample);
        }
        let change = self.judge(reception, at_once);
        self.rate = self.rate.clamp(LEAST, MOST);
        if self.breaker.excess >= BREAKER_REPORTS && self.rate <= LEAST {
            return Change::Cease(Cease::Congestion);
        }
        change
    }

    /// Halves the rate when no report has come for too long. True: it fell.
    pub fn on_silence(&mut self, now: Timestamp, sent: u64) -> bool {
        let LastReport { at, bytes, gap, gap_bytes, halved_at } = self.heard;
        let patience = SILENCE.max(gap * SILENT_GAPS as u32);
        let is_silent = now.saturating_since(at) >= patience
            && sent.saturating_sub(bytes) >= gap_bytes.saturating_mul(SILENT_GAPS);
        let is_due = is_silent && now.saturating_since(halved_at) >= patience / SILENT_GAPS as u32;
        if is_due {
            self.heard.halved_at = now;
            self.was_congested = true;
            self.rate = (self.rate / 2.0).max(LEAST);
        }
        is_due
    }

    fn heard(&mut self, now: Timestamp, sent: u64) {
        let LastReport { at, bytes, gap, gap_bytes, .. } = self.heard;
        let (since, bytes) = (now.saturating_since(at), sent.saturating_sub(bytes));
        self.heard = LastReport {
            at: now,
            bytes: sent,
            gap: gap.max(since).min(SILENCE),
            gap_bytes: gap_bytes.max(bytes).min(4 * USUAL_GAP_BYTES),
            halved_at: now,
        };
    }

    fn note_round_trip(&mut self, sample: Duration) {
        if self.round_trips.len() == ROUND_TRIPS {
            self.round_trips.pop_front();
        }
        self.round_trips.push_back(sample);
        let mean = |old: Duration| old.mul_f64(1.0 - NEWEST) + sample.mul_f64(NEWEST);
        self.round_trip = Some(self.round_trip.map_or(sample, mean));
    }

    /// The queue that a report shows.
    fn queue(&self, reception: &Reception) -> Duration {
        let least = self.min_round_trip().unwrap_or_default();
        let round_trip = reception.round_trip.unwrap_or_default();
        round_trip.max(reception.overdue).saturating_sub(least)
    }

    fn judge(&mut self, reception: &Reception, at_once: u64) -> Change {
        let Reception { expected, lost, stale, received, interval, .. } = *reception;
        let seconds = interval.as_secs_f64().max(0.001);
        let arrived = received as f64 / seconds;
        // Losses among packets that left before the rate fell belong to what it fell for.
        let (fresh, fresh_lost) = (expected - stale, lost.saturating_sub(stale));
        let loss = if fresh < FEW_PACKETS { 0.0 } else { fresh_lost as f64 / fresh as f64 };
        let queue = self.queue(reception);
        let burst = Duration::from_secs_f64(at_once as f64 / self.rate);
        let shows_queue = self.has_queue(queue, burst);
        // Without a loss, one report may only show that a program at either end was busy.
        let is_sure = fresh_lost > 0 || queue > SURE_QUEUE || self.had_queue;
        self.had_queue = shows_queue;
        let has_queue = shows_queue && is_sure;
        let share = self.tcp_share(loss);
        self.breaker.excess = if self.rate > BREAKER_FACTOR * share { self.breaker.excess + 1 } else { 0 };
        if has_queue || loss > HIGH_LOSS {
            let least = if has_queue { 0.0 } else { share };
            let rate = (DECREASE * arrived).max(least.min(self.rate));
            let falls = rate < self.rate;
            let mean = |old: f64| old * (1.0 - NEWEST) + arrived * NEWEST;
            self.capacity = Some(self.capacity.map_or(arrived, mean));
            (self.was_congested, self.clear) = (true, 0);
            self.fell_for = (falls && has_queue).then_some(queue);
            self.rate = rate.min(self.rate);
            return if falls { Change::Fell } else { Change::Kept };
        }
        self.fell_for = None;
        if shows_queue {
            return Change::Kept;
        }
        if loss > LOW_LOSS {
            self.clear = 0;
            let rate = self.rate.min(share.max(DECREASE * arrived));
            let falls = rate < self.rate;
            self.rate = rate;
            return if falls { Change::Fell } else { Change::Kept };
        }
        self.rise(arrived, seconds);
        Change::Kept
    }

    /// Whether the rate has to fall for the queue. A queue that stays although the rate fell is another
    /// flow's.
    fn has_queue(&mut self, queue: Duration, burst: Duration) -> bool {
        if queue <= QUEUE_TARGET {
            self.threshold = QUEUE_TARGET;
        }
        let has_queue = queue > self.threshold + burst;
        match self.fell_for {
            Some(before) if has_queue && queue >= before.mul_f64(STANDING) => {
                self.threshold = queue.mul_f64(ADAPT).min(MOST_QUEUE).max(self.threshold);
                queue > self.threshold + burst
            }
            _ => has_queue,
        }
    }

    fn rise(&mut self, arrived: f64, seconds: f64) {
        if !self.was_congested {
            let doubled = (2.0 * self.rate).min(START_LEAD * arrived).max(self.initial);
            self.rate = self.rate.max(doubled);
            return;
        }
        let upper = self.capacity.map(|capacity| {
            let kbit = capacity / 125.0;
            capacity + 125.0 * 3.0 * (DEVIATION * kbit).sqrt()
        });
        if upper.is_some_and(|upper| arrived > upper) {
            self.capacity = None;
        }
        let is_near = self.capacity.is_some() && upper.is_some_and(|upper| self.rate < upper);
        let factor = if is_near { INCREASE } else { INCREASE.powf(seconds).min(START_LEAD) };
        let most = (LEAD * arrived).max(self.rate);
        self.clear = if self.rate * factor > most { self.clear + 1 } else { 0 };
        // What arrives says nothing of a path that the stream does not fill, and bursts are to leave quickly again.
        let rate = if self.clear > CLEAR_REPORTS {
            (START_LEAD * self.rate).min(self.initial).max(self.rate)
        } else {
            (self.rate * factor).min(most)
        };
        self.was_congested = rate < self.initial || self.clear <= CLEAR_REPORTS;
        self.rate = rate;
    }

    /// The rate of TCP at this loss, in bytes per second (RFC 5348, 3.1). The share of packets lost is used
    /// in place of that of loss events, which is lower: the result is on the safe side (RFC 8083, 4.3).
    fn tcp_share(&self, loss: f64) -> f64 {
        if loss <= 0.0 {
            return f64::INFINITY;
        }
        let round_trip = self.round_trip.unwrap_or(UNKNOWN_ROUND_TRIP).max(SHORTEST_ROUND_TRIP).as_secs_f64();
        let timeout = 4.0 * round_trip;
        let (first, second) = ((2.0 * loss / 3.0).sqrt(), 3.0 * (3.0 * loss / 8.0).sqrt());
        SEGMENT / (round_trip * first + timeout * second * loss * (1.0 + 32.0 * loss * loss))
    }
}

#[cfg(test)]
mod tests;

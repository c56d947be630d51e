//! The sender's knowledge of its path: the delivery rate, the round trip and what is on the way.

use std::cmp::Reverse;
use std::time::Duration;

use freshwire_choice::LinkView;
use freshwire_io::tcp::TcpInfo;
use freshwire_record::{Rate, Timestamp};

use super::foreign::Foreign;
use super::recent::Recent;
use crate::stats::PathRate;

/// The shortest and the longest memory of the delivery rate.
const MEMORY: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(1));

/// How many round trips the memory of the delivery rate spans within [`MEMORY`].
const MEMORY_ROUND_TRIPS: u32 = 4;

/// An estimate of the rate counts for this long after the last delivery, at least, and for that number of round trips.
const STALE: Duration = Duration::from_millis(500);
const STALE_ROUND_TRIPS: u32 = 4;

/// The path always carries this many segments, so that a receiver that acknowledges every other one keeps it busy (Linux,
/// `net/ipv4/tcp_bbr.c`, `bbr_cwnd_min_target`).
const MIN_PIPE_SEGMENTS: u64 = 4;

/// The same without losses: one segment is in flight while the acknowledgement of the other comes back. On a
/// slow path a pipe longer than the wanted queue only makes everything older. The number also holds for small
/// segments, lost or not. Their receiver does not acknowledge every other one at once, and RACK detects a
/// loss by one segment behind it (RFC 8985, section 3.1).
const LOSSLESS_PIPE_SEGMENTS: u64 = 2;

/// A smaller share of repeats is none.
const RARE_LOSS: f64 = 0.005;

/// How long the best of the recent rates is remembered, and over how much busy time a rate has to be measured to be one.
const BEST_RECENT: Duration = Duration::from_secs(30);
const BEST_OVER: Duration = Duration::from_millis(100);

/// A mean over less time is none.
const KNOWN: Duration = Duration::from_micros(1);

/// A smoothed round trip this little above the smallest, or an eighth of the smallest, shows no queue of the
/// path. A receiver with a thousand connections takes its time to read.
const NO_QUEUE: Duration = Duration::from_millis(5);

/// Segments that TCP sends before it knows the path; below it the congestion control sees losses or a limit.
const INITIAL_WINDOW: u32 = 10;

/// How long a limit that the path has shown is held to be there.
const LIMIT_MEMORY: Duration = Duration::from_secs(10);

/// A share of repeats above which the congestion control is held to be limited by losses.
const LOSSY: f64 = 0.01;

/// The memory of what a limited path carries, in times in which it held something back, and how much of such time tells enough.
const HELD_MEMORY: Duration = Duration::from_secs(2);
const HELD_LEAST: Duration = Duration::from_millis(50);

/// A mean round trip this much above the smallest, or a quarter of it, is a queue that makes the path the limit.
const QUEUE: Duration = Duration::from_millis(10);

/// Over how long the mean is taken of what a path without a limit carries.
const CARRIED_OVER: Duration = Duration::from_secs(2);

/// How long the smallest of the recent round trips is remembered.
const RECENT: Duration = Duration::from_secs(4);

/// Estimates the delivery rate from acknowledgement to acknowledgement.
///
/// The kernel's own estimate is one sample of one round trip; under loss it swings by a factor of three. Here
/// bytes and time are summed with exponential forgetting. Time counts only while data stays in flight, so a
/// pause of the application does not look like a slow path. The first round trip after a pause is left out.
/// The sum is in bytes, because segments are small where small records are sent one by one. Selective
/// acknowledgements are known in segments only, and count as their share of the bytes.
#[derive(Debug, Default)]
pub(crate) struct Estimate {
    delivered: u32,
    delivered_bytes: u64,
    /// The surplus of `bytes_acked` over the bytes sent and acknowledged: a SYN, where the peer was called. Known once nothing was
    /// on the way.
    beyond_payload: Option<u64>,
    /// Payload bytes that were sent and have yet to reach the peer, those held to be lost included.
    outstanding: u64,
    /// The last delivery, while something has stayed on the way since.
    last_delivery: Option<Timestamp>,
    looked_at: Timestamp,
    /// When the latest acknowledgement came, if the latest look asked for it.
    acked_at: Option<Timestamp>,
    /// Since when something is on a path that was empty before, if nothing of it was delivered yet.
    train: Option<Timestamp>,
    rate_at: Timestamp,
    /// The smallest smoothed round trip.
    recent_min: Recent<Reverse<Duration>>,
    best: Recent<Rate>,
    /// Bytes delivered while more than a segment was on the way.
    mean: Mean,
    /// The same, and what less brought while more was held back: for the bound on the queue. That bound itself may have limited it, so
    /// it is not the path's rate.
    bounded: Mean,
    info: TcpInfo,
    sent_loss: (u64, u64),
    loss: f64,
    /// The connection has taken nothing more since the last look.
    is_held: bool,
    held: Held,
    limited_until: Timestamp,
    carried: Carried,
    foreign: Foreign,
}

/// Bytes over time with exponential forgetting.
#[derive(Debug, Default)]
struct Mean {
    bytes: f64,
    seconds: f64,
}

impl Mean {
    fn add(&mut self, elapsed: Duration, bytes: u64, memory: Duration) {
        let elapsed = elapsed.as_secs_f64();
        let keep = (-elapsed / memory.as_secs_f64()).exp();
        self.bytes = self.bytes * keep + bytes as f64;
        self.seconds = self.seconds * keep + elapsed;
    }

    /// `None` where less time was seen.
    fn rate(&self, least: Duration) -> Option<Rate> {
        let is_enough = self.seconds > least.as_secs_f64();
        is_enough.then(|| Rate::from_bytes_per_sec((self.bytes / self.seconds) as u64))
    }
}

/// The times in which the connection took nothing more and the path stayed busy.
#[derive(Debug, Default)]
struct Held {
    delivered: Mean,
    /// Bytes are round trips times seconds here, in microseconds: their mean is that of the round trip.
    round_trips: Mean,
}

impl Held {
    fn add(&mut self, elapsed: Duration, bytes: u64, rtt: Duration) {
        self.delivered.add(elapsed, bytes, HELD_MEMORY);
        self.round_trips.add(elapsed, (rtt.as_micros() as f64 * elapsed.as_secs_f64()) as u64, HELD_MEMORY);
    }

    fn round_trip(&self) -> Duration {
        let mean = self.round_trips.rate(Duration::ZERO).map_or(0, Rate::bytes_per_sec);
        Duration::from_micros(mean)
    }
}

/// Bytes delivered in the last [`CARRIED_OVER`], with all pauses.
#[derive(Debug, Default)]
struct Carried {
    /// Since when it is counted, and what had been delivered then.
    since: Option<(Timestamp, u64)>,
    rate: Option<Rate>,
}

impl Carried {
    fn update(&mut self, now: Timestamp, delivered: u64) {
        let (since, before) = *self.since.get_or_insert((now, delivered));
        let elapsed = now.saturating_since(since);
        if elapsed >= CARRIED_OVER {
            let per_second = (delivered - before) as f64 / elapsed.as_secs_f64();
            self.rate = Some(Rate::from_bytes_per_sec(per_second as u64));
            self.since = Some((now, delivered));
        }
    }
}

impl Estimate {
    /// Takes in a fresh look at the connection.
    pub(crate) fn update(&mut self, now: Timestamp, info: TcpInfo) {
        let before = self.outstanding;
        let was_held = std::mem::take(&mut self.is_held);
        let unacknowledged = self.unacknowledged(&info);
        let sacked = unacknowledged * u64::from(info.sacked) / u64::from(info.unacked.max(1));
        self.outstanding = unacknowledged.saturating_sub(sacked);
        let delivered_bytes = self.delivered_bytes.max(info.bytes_acked + sacked);
        self.looked_at = now;
        self.acked_at = (info.delivered > 0).then(|| now - info.since_ack);
        if info.delivered != self.delivered {
            // A lone segment that waits for its repair says nothing of the path's rate. A few small ones say what was offered or, where
            // more was held back, what the bound on the queue lets through.
            let mss = u64::from(self.info.mss);
            let is_full = before > mss;
            let was_busy = self.info.in_flight() > mss && (is_full || was_held);
            let train = self.train.take();
            let bytes = delivered_bytes - self.delivered_bytes;
            if let Some(last) = self.last_delivery.filter(|_| was_busy) {
                let elapsed = now.saturating_since(last);
                self.add(elapsed, bytes, is_full, &info);
                if let Some(rate) = self.mean.rate(BEST_OVER).filter(|_| is_full) {
                    self.best.add(now, rate, BEST_RECENT);
                }
                // The last acknowledgements may come late, and have nothing behind them to show it.
                if was_held && self.outstanding > u64::from(info.mss) {
                    self.held.add(elapsed, bytes, info.rtt);
                }
            } else if let Some(since) = train {
                let acked_at = now - info.since_ack;
                let has_rest = was_held && info.delivered.wrapping_sub(self.delivered) > 1;
                if has_rest || bytes > u64::from(info.mss) {
                    self.add_train(acked_at.saturating_since(since), bytes, &info);
                }
            }
            (self.delivered, self.delivered_bytes) = (info.delivered, delivered_bytes);
            self.last_delivery = Some(now);
            self.recent_min.add(now, Reverse(info.rtt), RECENT);
        }
        if self.outstanding == 0 {
            self.last_delivery = None;
        }
        self.update_loss(&info);
        self.info = info;
        if was_held && self.shows_limit() {
            self.limited_until = now + LIMIT_MEMORY;
        }
        self.carried.update(now, self.delivered_bytes);
    }

    /// Takes in a delivery. It says something of the path's rate if the path was full.
    fn add(&mut self, elapsed: Duration, bytes: u64, is_full: bool, info: &TcpInfo) {
        self.bounded.add(elapsed, bytes, memory(info));
        if is_full {
            self.rate_at = self.looked_at;
            self.mean.add(elapsed, bytes, memory(info));
        }
    }

    /// Takes in the first delivery of data that was written onto an empty path. Where the bound on the path's
    /// queue is two segments, all data is written like that. Without these samples the estimate would become
    /// stale on a busy path. The time beyond the smallest round trip went into serialisation. It says nothing
    /// where it is within the noise of round trips, or where no limit was seen before.
    fn add_train(&mut self, elapsed: Duration, bytes: u64, info: &TcpInfo) {
        let queued = elapsed.saturating_sub(info.min_rtt);
        if self.bounded.rate(KNOWN).is_some() && queued > noise(info) {
            let is_full = self.measured().is_some() && bytes > u64::from(info.mss);
            self.add(queued, bytes, is_full, info);
        }
    }

    /// Notes that something was written right after the last look.
    pub(crate) fn wrote(&mut self) {
        if self.outstanding == 0 && self.info.unsent == 0 {
            self.train.get_or_insert(self.looked_at);
        }
    }

    /// Notes that the connection takes nothing more for now.
    pub(crate) fn hold(&mut self) {
        self.is_held = true;
    }

    /// The rate that the path carries. It is a limit if the path has recently held something back, and had a queue or losses. A queue alone
    /// is none, since a round trip also varies by itself; holding back alone neither, since a congestion window grows. Then only
    /// the times count in which something was held back: in between there was less to deliver than the path carries.
    pub(crate) fn path_rate(&self, now: Timestamp) -> Option<PathRate> {
        let limit = self.held.delivered.rate(HELD_LEAST).filter(|_| now < self.limited_until);
        let limit = limit.map(|rate| PathRate { at_least: false, rate });
        limit.or(self.carried.rate.map(|rate| PathRate { at_least: true, rate }))
    }

    /// Payload bytes that were sent and not cumulatively acknowledged.
    fn unacknowledged(&mut self, info: &TcpInfo) -> u64 {
        let sent = info.bytes_sent.saturating_sub(info.bytes_retrans);
        if info.unacked == 0 {
            self.beyond_payload = info.bytes_acked.checked_sub(sent);
        }
        let most = u64::from(info.unacked) * u64::from(info.mss);
        self.beyond_payload.map_or(most, |beyond| (sent + beyond).saturating_sub(info.bytes_acked).min(most))
    }

    /// Payload bytes that were sent and have yet to reach the peer, those held to be lost included.
    pub(crate) fn outstanding(&self) -> u64 {
        self.outstanding
    }

    fn update_loss(&mut self, info: &TcpInfo) {
        let (sent, repeated) = self.sent_loss;
        let new_sent = info.bytes_sent.saturating_sub(sent);
        // Looking at about a hundred segments at a time keeps one loss from looking like half of everything.
        if new_sent >= u64::from(info.mss) * 100 {
            let share = info.bytes_retrans.saturating_sub(repeated) as f64 / new_sent as f64;
            self.loss = if repeated == 0 && sent == 0 { share } else { 0.7 * self.loss + 0.3 * share };
            self.sent_loss = (info.bytes_sent, info.bytes_retrans);
        }
    }

    /// The delivery rate; `None` before something was delivered, and again when that was long ago. Without the second,
    /// one estimate that is far too low would keep everything from being sent and so from being corrected.
    pub(crate) fn rate(&self, now: Timestamp) -> Option<Rate> {
        let age = now.saturating_since(self.rate_at);
        let is_fresh = age <= STALE.max(self.info.rtt * STALE_ROUND_TRIPS);
        self.measured().filter(|_| is_fresh)
    }

    fn measured(&self) -> Option<Rate> {
        self.mean.rate(KNOWN)
    }

    /// How many more bytes may be handed over if the queue on the path is to stay below `queue`. `None` is no
    /// limit: nothing was measured yet, or the queue belongs to others and holding back would only leave it
    /// to them. `ahead` bytes were handed over and not on the wire at the last look.
    pub(crate) fn room(&self, queue: Duration, ahead: u64) -> Option<u64> {
        let pipe = self.pipe(queue)?;
        let mss = u64::from(self.info.mss);
        let on_the_way = self.outstanding + ahead;
        let segments = u64::from(self.info.unacked.saturating_sub(self.info.sacked)) + ahead.div_ceil(mss);
        let are_small = on_the_way < segments * mss / 2;
        let least = if self.is_lossless() || are_small { LOSSLESS_PIPE_SEGMENTS } else { MIN_PIPE_SEGMENTS };
        let missing = least.saturating_sub(segments) * mss;
        Some(pipe.saturating_sub(on_the_way).max(missing))
    }

    /// How many bytes fill the path and the wanted queue.
    ///
    /// An old rate counts here too. After a pause the congestion control still allows a burst that may
    /// overflow the bottleneck's queue, and TCP repairs the end of a burst last. Half a round trip on top
    /// lets a path that has become faster show it, and keeps it busy while a loss is repaired.
    fn pipe(&self, queue: Duration) -> Option<u64> {
        let rate = self.bounded.rate(KNOWN).or_else(|| self.queued_rate(queue))?;
        let min_rtt = self.info.min_rtt;
        let mss = u64::from(self.info.mss);
        // On a slow path these few segments alone are a long queue, and ours. How slow it is says the best that was seen: a rate that
        // is low because of others would excuse their queue. So would one that the bound has made, of small segments alone.
        let best = self.measured().max(self.best.get());
        let own = best.map_or(Duration::ZERO, |best| best.time_for(MIN_PIPE_SEGMENTS * mss));
        let of_others = queue.saturating_mul(4).max(own.saturating_add(own / 4));
        if self.recent_min.get()?.0 > min_rtt.saturating_add(of_others)
            || self.foreign.is_there(self.looked_at)
        {
            return None;
        }
        Some(rate.bytes_in(self.longest(queue)))
    }

    /// Looks whether the queue is another flow's, for a sink with this bound.
    pub(crate) fn watch(&mut self, queue: Duration) {
        let own = self
            .measured()
            .max(self.best.get())
            .map_or(Duration::ZERO, |best| best.time_for(MIN_PIPE_SEGMENTS * u64::from(self.info.mss)));
        let explained =
            self.longest(queue).max(self.info.min_rtt.saturating_add(own.saturating_add(own / 4)));
        self.foreign.update(self.looked_at, self.info.rtt, explained);
    }

    /// The round trip that a path with the wanted queue has at most.
    fn longest(&self, queue: Duration) -> Duration {
        let min_rtt = self.info.min_rtt;
        (min_rtt + min_rtt / 2).saturating_add(queue)
    }

    /// The rate of delivery where small records have never filled a segment, so that no rate was measured, and the queue is
    /// longer than wanted all the same. A receiver that delays its acknowledgements by more does so for records that are so rare that
    /// two on the way suffice.
    fn queued_rate(&self, queue: Duration) -> Option<Rate> {
        self.carried.rate.filter(|_| !self.info.min_rtt.is_zero() && self.info.rtt > self.longest(queue))
    }

    /// Whether recently nothing, or hardly anything, had to be sent again.
    fn is_lossless(&self) -> bool {
        self.loss < RARE_LOSS && self.info.bytes_retrans <= self.sent_loss.1
    }

    /// Takes in that nothing is on the way any more, where that is all that was asked of the kernel.
    pub(crate) fn all_delivered(&mut self, now: Timestamp) {
        (self.looked_at, self.acked_at) = (now, None);
        self.train = None;
        self.outstanding = 0;
        self.info.unacked = 0;
        self.info.sacked = 0;
        self.info.lost = 0;
        self.info.retrans_out = 0;
        self.info.unsent = 0;
        self.last_delivery = None;
    }

    /// The latest look at the connection.
    pub(crate) fn info(&self) -> &TcpInfo {
        &self.info
    }

    /// Whether the path has shown no limit: it is empty, no queue was seen on it, and the congestion window
    /// is open. It then delivers all that is offered, and the deliveries say nothing of its capacity.
    pub(crate) fn is_unlimited(&self) -> bool {
        let TcpInfo { rtt, min_rtt, cwnd, .. } = self.info;
        let no_queue = !min_rtt.is_zero() && rtt <= min_rtt + (min_rtt / 8).max(NO_QUEUE);
        no_queue && cwnd >= INITIAL_WINDOW && self.outstanding == 0
    }

    /// Whether what holds back is the path. A mean round trip is asked for the queue: a single one says little.
    fn shows_limit(&self) -> bool {
        let TcpInfo { min_rtt, cwnd, .. } = self.info;
        let has_queue = self.held.round_trip() > min_rtt + noise(&self.info);
        !min_rtt.is_zero() && (has_queue || cwnd < INITIAL_WINDOW || self.loss > LOSSY)
    }

    /// The path as the policies see it, with `unsent` bytes committed and not on the wire.
    pub(crate) fn view(&self, now: Timestamp, unsent: u64) -> LinkView {
        LinkView {
            rate: self.rate(now).filter(|_| !self.is_unlimited()),
            rtt: self.info.rtt,
            min_rtt: self.info.min_rtt,
            in_flight: self.outstanding,
            unsent,
            loss: self.loss,
            acked_at: self.acked_at,
            ..LinkView::default()
        }
    }
}

/// The memory of the delivery rate.
fn memory(info: &TcpInfo) -> Duration {
    (info.rtt * MEMORY_ROUND_TRIPS).clamp(MEMORY.0, MEMORY.1)
}

/// By how much a round trip exceeds the smallest one without a queue of the path.
fn noise(info: &TcpInfo) -> Duration {
    (info.min_rtt / 4).max(QUEUE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_millis(milliseconds)
    }

    fn look(delivered: u32, unacked: u32) -> TcpInfo {
        small(1000, delivered, unacked)
    }

    /// Segments of this size, in bytes.
    fn small(bytes: u32, delivered: u32, unacked: u32) -> TcpInfo {
        TcpInfo {
            mss: 1000,
            delivered,
            unacked,
            rtt: Duration::from_millis(20),
            // One more for the SYN.
            bytes_acked: u64::from(delivered) * u64::from(bytes) + 1,
            bytes_sent: u64::from(delivered + unacked) * u64::from(bytes),
            ..TcpInfo::default()
        }
    }

    /// A second at 100 kB/s.
    fn steady() -> Estimate {
        let mut estimate = Estimate::default();
        for i in 0..100 {
            estimate.update(at(u64::from(i) * 10), look(i, 5));
        }
        estimate
    }

    #[test]
    fn small_segments_count_for_what_they_carry() {
        let mut estimate = Estimate::default();
        for i in 0..100 {
            estimate.update(at(u64::from(i) * 10), small(100, i, if i == 0 { 0 } else { 50 }));
        }
        assert_eq!(estimate.outstanding(), 5000);
        let rate = estimate.rate(estimate.rate_at).map(|rate| rate.bytes_per_sec());
        assert!(rate.is_some_and(|rate| (9_900..=10_100).contains(&rate)), "{rate:?}");
        // Repeats are no new bytes, and what was selectively acknowledged is not on the way.
        let info = TcpInfo { bytes_sent: 14_900 + 700, bytes_retrans: 700, sacked: 40, ..small(100, 99, 50) };
        estimate.update(at(1000), info);
        assert_eq!(estimate.outstanding(), 1000);
    }

    #[test]
    fn little_that_is_on_the_way_says_nothing_of_the_rate() {
        let mut estimate = steady();
        for i in 0..100 {
            estimate.update(at(1000 + u64::from(i) * 10), small(100, 1000 + i, if i == 0 { 0 } else { 5 }));
        }
        let rate = estimate.measured().map(|rate| rate.bytes_per_sec());
        assert!(rate.is_some_and(|rate| (99_000..=101_000).contains(&rate)), "{rate:?}");
    }

    #[test]
    fn data_in_flight_counts_in_segments_until_bytes_are_known() {
        let mut estimate = Estimate::default();
        estimate.update(at(0), small(100, 3, 5));
        assert_eq!(estimate.outstanding(), 5000);
        estimate.update(at(10), small(100, 8, 0));
        assert_eq!(estimate.outstanding(), 0);
        estimate.update(at(20), small(100, 8, 5));
        assert_eq!(estimate.outstanding(), 500);
    }

    #[test]
    fn a_steady_path_gives_its_rate() {
        let estimate = steady();
        let rate = estimate.rate(estimate.rate_at).map(|rate| rate.bytes_per_sec());
        assert!(rate.is_some_and(|rate| (99_000..=101_000).contains(&rate)), "{rate:?}");
    }

    #[test]
    fn a_pause_of_the_application_is_not_a_slow_path() {
        let mut estimate = Estimate::default();
        for burst in 0..20u64 {
            for i in 0..10u32 {
                let info = look(burst as u32 * 10 + i, if i == 9 { 0 } else { 5 });
                estimate.update(at(burst * 1000 + u64::from(i) * 10), info);
            }
        }
        let rate = estimate.rate(estimate.rate_at).map(|rate| rate.bytes_per_sec());
        assert!(rate.is_some_and(|rate| (99_000..=101_000).contains(&rate)), "{rate:?}");
    }

    /// Two segments at a time, each pair acknowledged `round_trip` after it was written and seen `late` after that, with looks between.
    fn pairs(estimate: &mut Estimate, from: u64, round_trip: u64, late: u64) -> Option<u64> {
        let already = estimate.info().delivered;
        let step = round_trip + late;
        for pair in 0..100 {
            let info = |unacked, since_ack| TcpInfo {
                min_rtt: Duration::from_millis(4),
                since_ack: Duration::from_millis(since_ack),
                ..look(already + pair * 2, unacked)
            };
            let begin = from + u64::from(pair) * step;
            estimate.update(at(begin), info(0, late));
            estimate.wrote();
            estimate.update(at(begin + 2), info(2, late + 2));
            estimate.update(at(begin + round_trip - 1), info(2, late + round_trip - 1));
        }
        estimate.rate(at(from + 100 * step)).map(Rate::bytes_per_sec)
    }

    #[test]
    fn pairs_of_segments_on_an_empty_path_keep_the_estimate_fresh() {
        for (round_trip, late, expected) in [(24, 0, 100_000), (24, 15, 100_000), (44, 0, 50_000)] {
            let mut estimate = steady();
            let rate = pairs(&mut estimate, 1000, round_trip, late);
            assert!(rate.is_some_and(|rate| rate.abs_diff(expected) < expected / 20), "{rate:?}: {expected}");
        }
    }

    #[test]
    fn pairs_that_no_queue_delays_say_nothing() {
        let mut estimate = Estimate::default();
        assert_eq!(pairs(&mut estimate, 0, 24, 0), None, "no limit was seen before");
        for i in 0..100 {
            estimate.update(at(3000 + u64::from(i) * 10), look(i + 1000, 5));
        }
        assert_eq!(pairs(&mut estimate, 4000, 12, 28), None, "8 ms are noise, whenever somebody looks");
    }

    #[test]
    fn a_slower_path_is_noticed_within_its_memory() {
        let mut estimate = steady();
        for i in 0..10 {
            estimate.update(at(1000 + u64::from(i) * 100), look(100 + i, 5));
        }
        let rate = estimate.rate(estimate.rate_at).map(|rate| rate.bytes_per_sec());
        assert!(rate.is_some_and(|rate| rate < 12_000), "{rate:?}");
    }

    #[test]
    fn an_estimate_grows_stale() {
        let estimate = steady();
        assert!(estimate.rate(at(1400)).is_some());
        assert_eq!(estimate.rate(at(1600)), None);
        assert!(estimate.pipe(Duration::from_millis(100)).is_some());
        assert!(estimate.pipe(Duration::MAX).is_some(), "a queue target without bound");
    }

    #[test]
    fn the_pipe_holds_the_path_and_the_queue_that_is_wanted() {
        let pipe = |rtt: u64| {
            let mut estimate = Estimate::default();
            for i in 0..600 {
                let rtt = Duration::from_millis(rtt);
                let info = TcpInfo { rtt, min_rtt: Duration::from_millis(20), ..look(i, 5) };
                estimate.update(at(u64::from(i) * 10), info);
            }
            estimate.pipe(Duration::from_millis(100))
        };
        // 100 kB/s for 130 ms.
        assert!(pipe(60).is_some_and(|bytes| (12_900..=13_100).contains(&bytes)));
        // The round trip stays far above what our own queue makes: it is somebody else's.
        assert_eq!(pipe(500), None);
    }

    /// 200 kbit/s: four segments take longer than four times the wanted queue.
    #[test]
    fn the_queue_of_few_segments_on_a_slow_path_is_our_own() {
        let mut estimate = Estimate::default();
        for i in 0..200 {
            let (rtt, min_rtt) = (Duration::from_millis(180), Duration::from_millis(10));
            estimate.update(at(u64::from(i) * 40), TcpInfo { rtt, min_rtt, ..look(i, 4) });
        }
        assert!(estimate.pipe(Duration::from_millis(20)).is_some_and(|bytes| bytes.abs_diff(875) <= 2));
        assert_eq!(estimate.room(Duration::from_millis(20), 0), Some(0));
    }

    /// The room beside this number of segments. A segment came each 100 ms, after ten seconds with one each millisecond if that was so.
    fn slow(was_fast: bool, bytes_retrans: u64, rtt: u64, under_way: u32) -> Option<u64> {
        let mut estimate = Estimate::default();
        let mut segment = 0;
        let mut update = |milliseconds: u64, rtt: u64| {
            let (rtt, min_rtt) = (Duration::from_millis(rtt), Duration::from_millis(20));
            let info = look(segment, 2);
            segment += 1;
            let bytes_sent = info.bytes_sent + bytes_retrans;
            estimate.update(at(milliseconds), TcpInfo { rtt, min_rtt, bytes_sent, bytes_retrans, ..info });
        };
        if was_fast {
            (0..10_000).for_each(|milliseconds| update(milliseconds, 20));
        }
        (0..100).for_each(|tenth| update(10_000 + tenth * 100, rtt));
        estimate.info.unacked = under_way;
        estimate.outstanding = u64::from(under_way) * 1000;
        estimate.room(Duration::from_millis(50), 0)
    }

    #[test]
    fn the_minimum_in_flight_is_as_small_as_losses_allow() {
        assert_eq!(slow(false, 0, 240, 0), Some(2000));
        assert_eq!(slow(false, 0, 240, 2), Some(0));
        assert_eq!(slow(false, 3000, 240, 2), Some(2000), "two may be acknowledged at a time");
        assert_eq!(slow(false, 3000, 240, 4), Some(0));
        assert_eq!(slow(false, 0, 700, 0), None, "so long a queue is somebody else's");
    }

    #[test]
    fn a_rate_that_others_have_taken_does_not_excuse_their_queue() {
        assert_eq!(slow(true, 0, 240, 0), None);
    }

    /// 4 kB/s in segments of 100 bytes, two of which the sender may not add to.
    fn slow_and_small(bytes_retrans: u64, unacked: u32, ahead: u64) -> Option<u64> {
        let mut estimate = Estimate::default();
        for i in 0..200 {
            let (rtt, min_rtt) = (Duration::from_millis(140), Duration::from_millis(40));
            let unacked = [0, 2, unacked][usize::from(i > 0) + usize::from(i == 199)];
            let info = small(100, i, unacked);
            let bytes_sent = info.bytes_sent + bytes_retrans;
            estimate.hold();
            estimate
                .update(at(u64::from(i) * 25), TcpInfo { rtt, min_rtt, bytes_sent, bytes_retrans, ..info });
        }
        estimate.room(Duration::from_millis(50), ahead)
    }

    #[test]
    fn small_segments_count_as_they_are_sent() {
        // 4 kB/s for 110 ms.
        let is_about = |room: Option<u64>, bytes: u64| room.is_some_and(|room| room.abs_diff(bytes) <= 2);
        assert!(is_about(slow_and_small(0, 2, 0), 240));
        assert!(is_about(slow_and_small(0, 4, 0), 40));
        assert_eq!(slow_and_small(0, 5, 0), Some(0), "a full segment would be 360 ms of queue");
        assert_eq!(slow_and_small(0, 1, 0), Some(1000), "a whole segment may be on the way behind it");
        assert!(is_about(slow_and_small(0, 1, 100), 240));
        assert_eq!(slow_and_small(2000, 5, 0), Some(0), "also after losses");
    }

    /// 3 kB/s in segments of 150 bytes, two on the way behind another flow's queue, and then one record of 6 kB.
    #[test]
    fn small_records_in_anothers_queue_do_not_make_a_large_one_late() {
        let mut estimate = Estimate::default();
        let update = |estimate: &mut Estimate, ms: u64, acked: u64, on_the_way: u64, unacked: u64| {
            let (rtt, min_rtt) = (Duration::from_millis(160), Duration::from_millis(40));
            let (bytes_acked, bytes_sent) = (acked + 1, acked + on_the_way);
            let info = small(150, ms as u32, unacked as u32);
            estimate.update(at(ms), TcpInfo { rtt, min_rtt, bytes_acked, bytes_sent, ..info });
            estimate.hold();
            let arrival = estimate.view(at(ms), 0).arrival(at(ms), 6000);
            assert!(arrival.is_none_or(|arrival| arrival <= at(ms + 1000)), "{ms}: {arrival:?}");
        };
        for i in 0..100 {
            let unacked = if i == 0 { 0 } else { 2 };
            update(&mut estimate, 10_000 + i * 50, i * 150, unacked * 150, unacked);
        }
        assert!(estimate.room(Duration::from_millis(50), 0).is_some_and(|room| room < 150), "held back");
        for i in 0..=6 {
            update(&mut estimate, 15_100 + i * 10, 15_150 + i * 1000, 6000 - i * 1000, 6 - i);
        }
    }

    /// Records of 100 bytes, fifty a second: the path takes so few that they never fill a segment.
    #[test]
    fn a_queue_that_small_records_make_is_bounded_too() {
        let room = |rtt: u64, unacked: u32| {
            let mut estimate = Estimate::default();
            for i in 0..200 {
                let (rtt, min_rtt) = (Duration::from_millis(rtt), Duration::from_millis(40));
                let info = TcpInfo { rtt, min_rtt, ..small(100, i, if i == 0 { 0 } else { unacked }) };
                estimate.update(at(u64::from(i) * 25), info);
            }
            estimate.room(Duration::from_millis(50), 0)
        };
        assert_eq!(room(200, 8), Some(0));
        assert_eq!(room(100, 4), None, "the acknowledgements may be late");
    }

    #[test]
    fn a_path_is_limited_where_it_holds_back_and_shows_why() {
        let look = |done: u32, rtt: u64, cwnd: u32| TcpInfo {
            rtt: Duration::from_millis(rtt),
            min_rtt: Duration::from_millis(20),
            cwnd,
            ..look(done, 5)
        };
        let after = |is_held: bool, rtt: u64, cwnd: u32| {
            let mut estimate = Estimate::default();
            for i in 0..10 {
                if is_held {
                    estimate.hold();
                }
                estimate.update(at(u64::from(i) * 10), look(i, rtt, cwnd));
            }
            estimate
        };
        let is_limited =
            |estimate: &Estimate, ms| estimate.path_rate(at(ms)).is_some_and(|path| !path.at_least);
        assert!(is_limited(&after(true, 60, 20), 100), "a queue");
        assert!(is_limited(&after(true, 20, 4), 100), "a small window");
        assert!(!is_limited(&after(true, 20, 20), 100), "a window that grows");
        assert!(!is_limited(&after(false, 60, 20), 100), "a round trip that varies");
        let mut before = after(true, 60, 20);
        before.update(at(5_000), look(20, 20, 20));
        assert!(is_limited(&before, 9_000) && !is_limited(&before, 11_000));
        let rate = before.path_rate(at(9_000)).map(|path| path.rate.bytes_per_sec());
        assert!(rate.is_some_and(|rate| (99_000..=101_000).contains(&rate)), "as it was measured: {rate:?}");
    }

    #[test]
    fn the_rate_of_a_limit_is_what_is_delivered_while_it_holds_back() {
        let mut estimate = Estimate::default();
        // Every second a group of pictures begins with ten segments that wait for each other, one in 10 ms; the others come alone.
        for second in 0..5u64 {
            for i in 0..20u32 {
                let is_burst = i < 10;
                let done = second as u32 * 20 + i;
                let since = if is_burst { u64::from(i) * 10 } else { 100 + u64::from(i - 10) * 90 };
                let rtt = Duration::from_millis(if is_burst { 80 } else { 22 });
                let info = TcpInfo { rtt, cwnd: 20, min_rtt: Duration::from_millis(20), ..look(done, 2) };
                estimate.update(at(second * 1000 + since), info);
                if is_burst && i < 9 {
                    estimate.hold();
                }
            }
        }
        let path = estimate.path_rate(at(5_000)).expect("known");
        assert!(!path.at_least && (95_000..=105_000).contains(&path.rate.bytes_per_sec()), "{path:?}");
        assert!(estimate.measured().is_some_and(|rate| rate.bytes_per_sec() < 40_000));
    }

    #[test]
    fn a_path_without_a_limit_carries_at_least_what_it_was_given() {
        let mut estimate = Estimate::default();
        // Ten segments at once, four times a second: at once is far faster.
        for burst in 0..20u64 {
            for i in 0..10u32 {
                let min_rtt = Duration::from_millis(20);
                let info = TcpInfo { cwnd: 20, min_rtt, ..look(burst as u32 * 10 + i, 9 - i) };
                estimate.update(at(burst * 250 + u64::from(i)), info);
            }
        }
        let path = estimate.path_rate(at(5_000)).expect("known");
        assert!(path.at_least && (38_000..=42_000).contains(&path.rate.bytes_per_sec()), "{path:?}");
        assert!(estimate.measured().is_some_and(|rate| rate.bytes_per_sec() > 500_000));
    }

    #[test]
    fn a_path_without_a_queue_predicts_nothing_while_it_is_empty() {
        let mut estimate = Estimate::default();
        let idle = |done: u32, rtt: u64| TcpInfo {
            rtt: Duration::from_millis(rtt),
            min_rtt: Duration::from_millis(100),
            cwnd: 20,
            ..look(done, 0)
        };
        for i in 0..100 {
            estimate.update(at(u64::from(i) * 10), look(i, 5));
        }
        estimate.update(at(1000), idle(100, 105));
        assert_eq!(estimate.view(at(1000), 0).rate, None);
        estimate.update(at(1000), idle(100, 150));
        assert!(estimate.view(at(1000), 0).rate.is_some());
    }
}

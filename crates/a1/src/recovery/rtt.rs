//! Round-trip times, and the queue on each of the two ways.

use std::time::Duration;

use freshwire_record::Timestamp;

use super::filter::{Best, Windowed};

/// Timers closer than this are not worth setting (RFC 9002, section 6.1.2).
pub(super) const GRANULARITY: Duration = Duration::from_millis(1);

/// Estimators of one path.
///
/// The forward queue comes from the receiver's clock in acknowledgements. Its difference to our clock at
/// sending is unknown but constant. So the excess over its own minimum is the time spent waiting. A queue on
/// the way back and a receiver that is slow to acknowledge do not count.
#[derive(Debug)]
pub(crate) struct Rtt {
    initial: Duration,
    smoothed: Option<Smoothed>,
    latest: Duration,
    min: Windowed,
    one_way: OneWay,
}

#[derive(Clone, Copy, Debug)]
struct Smoothed {
    srtt: Duration,
    rttvar: Duration,
}

impl Rtt {
    pub(super) fn new(initial: Duration) -> Self {
        Self {
            initial,
            smoothed: None,
            latest: initial,
            min: Windowed::new(Best::Min, WINDOW_NS),
            one_way: OneWay::new(),
        }
    }

    /// A round trip took `sample`, of which the receiver says that `held` was its own doing.
    //= spec/a1.md A1-RTT-2
    pub(super) fn on_sample(&mut self, now: Timestamp, sample: Duration, held: Duration) {
        // A claim that leaves nothing for the path is not believed.
        let rtt = sample.checked_sub(held).filter(|rtt| !rtt.is_zero()).unwrap_or(sample);
        self.latest = rtt;
        self.min.update(now.as_nanos(), nanos(rtt));
        self.smoothed = Some(match self.smoothed {
            None => Smoothed { srtt: rtt, rttvar: rtt / 2 },
            Some(Smoothed { srtt, rttvar }) => {
                Smoothed { srtt: (7 * srtt + rtt) / 8, rttvar: (3 * rttvar + srtt.abs_diff(rtt)) / 4 }
            }
        });
    }

    /// A packet that left at `sent_at` arrived when the receiver's clock showed `receiver_us`. Returns how
    /// long it waited; `None` if it does not count. On a slow link a small packet takes less time than a full
    /// one, queue or not. The two must not be compared, so small ones count only while there are no others.
    pub(super) fn on_receiver_time(
        &mut self,
        now: Timestamp,
        sent_at: Timestamp,
        receiver_us: u32,
        full_size: bool,
    ) -> Option<Duration> {
        self.one_way.on_sample(now, sent_at, receiver_us, full_size, self.latest)
    }

    /// The least round-trip time of packets of the size that measures the queue.
    pub(super) fn base(&self) -> Duration {
        self.one_way.round_trip.get().map_or(self.min(), duration)
    }

    pub(crate) fn srtt(&self) -> Duration {
        self.smoothed.map_or(self.initial, |smoothed| smoothed.srtt)
    }

    pub(super) fn rttvar(&self) -> Duration {
        self.smoothed.map_or(self.initial / 2, |smoothed| smoothed.rttvar)
    }

    pub(super) fn latest(&self) -> Duration {
        self.latest
    }

    /// The least of the last ten seconds, or the initial one.
    pub(crate) fn min(&self) -> Duration {
        self.min.get().map_or(self.initial, duration)
    }

    /// How long after it was sent a packet is late, once a later one has arrived.
    //= spec/a1.md A1-LOSS-1
    pub(super) fn loss_delay(&self) -> Duration {
        (self.srtt().max(self.latest) * 9 / 8).max(GRANULARITY)
    }

    /// How long the packet waited on its way there that was measured last.
    #[cfg(test)]
    pub(super) fn queue(&self) -> Duration {
        self.one_way.queue
    }

    /// The same, smoothed over a few samples.
    pub(crate) fn standing_queue(&self) -> Duration {
        self.one_way.smoothed
    }
}

#[derive(Debug)]
struct OneWay {
    /// Receiver's clock minus ours, in microseconds: the last value as it came, and with wraps undone.
    last: Option<(u32, i64)>,
    min: Windowed,
    round_trip: Windowed,
    /// When a full-size packet was measured last.
    full_size_at: Option<Timestamp>,
    queue: Duration,
    smoothed: Duration,
}

impl OneWay {
    fn new() -> Self {
        Self {
            last: None,
            min: Windowed::new(Best::Min, WINDOW_NS),
            round_trip: Windowed::new(Best::Min, WINDOW_NS),
            full_size_at: None,
            queue: Duration::ZERO,
            smoothed: Duration::ZERO,
        }
    }

    fn on_sample(
        &mut self,
        now: Timestamp,
        sent_at: Timestamp,
        receiver_us: u32,
        full_size: bool,
        round_trip: Duration,
    ) -> Option<Duration> {
        let recent = self.full_size_at.is_some_and(|at| now.saturating_since(at) < FULL_SIZE_COUNTS);
        if !full_size && recent {
            return None;
        }
        if full_size != self.full_size_at.is_some() {
            self.min.reset();
            self.round_trip.reset();
        }
        self.full_size_at = full_size.then_some(now);
        self.round_trip.update(now.as_nanos(), nanos(round_trip));
        // The clocks' difference modulo 2^32 is all that is needed, so cutting ours off is right.
        let raw = receiver_us.wrapping_sub((sent_at.as_nanos() / 1000) as u32);
        let difference = match self.last {
            None => 0,
            Some((last_raw, last)) => last + i64::from(raw.wrapping_sub(last_raw).cast_signed()),
        };
        self.last = Some((raw, difference));
        self.min.update(now.as_nanos(), difference);
        let waited = difference - self.min.get().unwrap_or(difference);
        self.queue = Duration::from_micros(waited.unsigned_abs());
        self.smoothed = (3 * self.smoothed + self.queue) / 4;
        Some(self.queue)
    }
}

fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

fn duration(nanos: i64) -> Duration {
    Duration::from_nanos(nanos.unsigned_abs())
}

/// Time after a full-size packet in which small ones do not measure the queue. Chosen, not measured.
const FULL_SIZE_COUNTS: Duration = Duration::from_secs(2);
/// Time for which the least delay is remembered, in nanoseconds: that of Copa (`copa.rs`).
const WINDOW_NS: u64 = 10_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn at(millis: u64) -> Timestamp {
        Timestamp::ZERO + ms(millis)
    }

    #[test]
    fn the_first_sample_replaces_the_initial_one() {
        let mut rtt = Rtt::new(ms(100));
        assert_eq!((rtt.srtt(), rtt.min()), (ms(100), ms(100)));
        rtt.on_sample(at(40), ms(40), ms(10));
        assert_eq!((rtt.srtt(), rtt.rttvar(), rtt.min()), (ms(30), ms(15), ms(30)));
        rtt.on_sample(at(80), ms(38), Duration::ZERO);
        assert_eq!(rtt.srtt(), ms(31));
        assert_eq!(rtt.min(), ms(30));
    }

    #[test]
    fn a_delay_that_explains_more_than_everything_is_not_believed() {
        let mut rtt = Rtt::new(ms(100));
        rtt.on_sample(at(40), ms(40), ms(40));
        assert_eq!(rtt.srtt(), ms(40));
    }

    #[test]
    fn the_minimum_is_forgotten_after_ten_seconds() {
        let mut rtt = Rtt::new(ms(100));
        rtt.on_sample(at(0), ms(10), Duration::ZERO);
        for second in 1..=10 {
            rtt.on_sample(at(1000 * second), ms(50), Duration::ZERO);
            assert_eq!(rtt.min(), ms(10));
        }
        rtt.on_sample(at(10_001), ms(50), Duration::ZERO);
        assert_eq!(rtt.min(), ms(50));
    }

    #[test]
    fn the_two_ways_differ_across_a_wrap_of_the_receivers_clock() {
        let mut rtt = Rtt::new(ms(100));
        // The receiver's clock wraps 35 ms after our origin; the way there takes 10 ms, the way back 10 ms.
        let receiver = |arrival: u64| (u32::MAX - 35_000).wrapping_add(arrival as u32 * 1000);
        for (sent, there, back, queue, reverse) in
            [(0, 10, 10, 0, 0), (10, 14, 10, 4, 0), (20, 10, 15, 0, 5), (40, 17, 13, 7, 3)]
        {
            let now = at(sent + there + back);
            rtt.on_sample(now, ms(there + back), Duration::ZERO);
            assert_eq!(rtt.on_receiver_time(now, at(sent), receiver(sent + there), true), Some(ms(queue)));
            let back = rtt.latest() - rtt.min() - rtt.queue();
            assert_eq!((rtt.queue(), back), (ms(queue), ms(reverse)), "sent at {sent}");
        }
    }

    #[test]
    fn a_small_packet_says_nothing_soon_after_a_large_one() {
        let mut rtt = Rtt::new(ms(100));
        for (sent, there, is_full, queue) in [
            (0, 10, false, Some(0)),
            (10, 14, false, Some(4)),
            (20, 60, true, Some(0)),
            (200, 90, true, Some(30)),
            (1000, 10, false, None),
            (3000, 20, false, Some(0)),
        ] {
            let waited =
                rtt.on_receiver_time(at(sent + there), at(sent), (sent + there) as u32 * 1000, is_full);
            assert_eq!(waited, queue.map(ms), "sent at {sent}");
        }
    }
}

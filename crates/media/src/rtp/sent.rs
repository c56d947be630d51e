//! The history of sent packets: turns the numbers of a receiver's report into bytes and times.

use std::collections::VecDeque;
use std::time::Duration;

use freshwire_record::Timestamp;

use super::feedback::ReportBlock;

/// Bursts that are remembered: at 60 a second, a minute and a quarter. Chosen, not measured.
const MAX_BURSTS: usize = 4096;

/// Sender reports that are remembered; receivers name the newest that they have. Chosen, not measured.
const MAX_REPORTS: usize = 16;

/// The longest time for which a burst takes more packets in: `burst_time` of draft-ietf-rmcat-gcc-02.
const BURST: Duration = Duration::from_millis(5);

/// The packets of one track that were sent, as bursts.
#[derive(Clone, Debug)]
pub struct SentLog {
    /// Number of the next packet, counted on beyond 16 bits.
    next: u64,
    bytes: u64,
    bursts: VecDeque<Burst>,
    /// Wall time of each sender report, in its middle 32 bits, and when it left.
    reports: VecDeque<(u32, Timestamp)>,
    last: Option<Last>,
}

/// Packets that left at the same time.
#[derive(Clone, Copy, Debug)]
struct Burst {
    at: Timestamp,
    /// Number of its first packet.
    first: u64,
    /// Bytes of all packets before it.
    bytes: u64,
}

/// What the last report said.
#[derive(Clone, Copy, Debug)]
struct Last {
    at: Timestamp,
    next: u64,
    lost: i32,
    bytes: u64,
}

/// What a report says of the packets since the one before it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reception {
    /// Packets sent up to the highest that arrived.
    pub expected: u64,
    /// Expected packets that were lost.
    pub lost: u64,
    /// Expected packets that were sent at a rate that is not in force any more.
    pub stale: u64,
    /// Bytes that arrived.
    pub received: u64,
    /// For how long they arrived.
    pub interval: Duration,
    /// Round trip of the last sender report; `None` if the report names none that was sent.
    pub round_trip: Option<Duration>,
    /// How long the oldest packet that has not arrived has been on its way.
    pub overdue: Duration,
}

impl SentLog {
    /// Nothing is sent yet; the first packet will have the number `seq`.
    pub fn new(seq: u16) -> Self {
        Self {
            next: u64::from(seq) + (1 << 16),
            bytes: 0,
            bursts: VecDeque::new(),
            reports: VecDeque::new(),
            last: None,
        }
    }

    /// Notes the next packet, of `bytes` bytes on the wire.
    pub fn sent(&mut self, now: Timestamp, bytes: u64) {
        if self.bursts.back().is_none_or(|burst| now >= burst.at + BURST) {
            if self.bursts.len() == MAX_BURSTS {
                self.bursts.pop_front();
            }
            self.bursts.push_back(Burst { at: now, first: self.next, bytes: self.bytes });
        }
        self.next += 1;
        self.bytes += bytes;
    }

    /// Notes a sender report with this wall time (NTP).
    pub fn reported(&mut self, now: Timestamp, ntp: u64) {
        if self.reports.len() == MAX_REPORTS {
            self.reports.pop_front();
        }
        self.reports.push_back(((ntp >> 16) as u32, now));
    }

    /// Number that the next packet will have; see [`received`](Self::received).
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Bytes sent in all.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Reads a report. `changed`: the [number](Self::next) that was the next one when the rate changed last. `None` if the report names
    /// a packet that was not sent or is forgotten, and if it is the first of a track of which nothing has arrived.
    pub fn received(&mut self, now: Timestamp, block: &ReportBlock, changed: u64) -> Option<Reception> {
        let oldest = self.bursts.front()?.first;
        // Receivers count cycles from their own beginning: only 16 bits can be compared.
        let behind = u64::from((self.next as u16).wrapping_sub(1).wrapping_sub(block.highest as u16));
        let next = self.next.checked_sub(behind)?;
        if next <= oldest {
            return None;
        }
        let first = self.bursts.front().map(|burst| (burst.at, burst.first, burst.bytes));
        let (begin, first, before) = match self.last {
            Some(last) => (last.at, last.next, last.bytes),
            None => first?,
        };
        if next < first {
            return None;
        }
        let (bytes, lost_before) = (self.bytes_before(next), self.last.map_or(0, |last| last.lost));
        let expected = next - first;
        let lost = u64::try_from(block.lost.wrapping_sub(lost_before)).unwrap_or(0).min(expected);
        let passed = bytes.saturating_sub(before);
        let arrived = expected - lost;
        let received = (passed as u128 * u128::from(arrived)).checked_div(u128::from(expected)).unwrap_or(0);
        self.last = Some(Last { at: now, next, lost: block.lost, bytes });
        let next_burst = self.bursts.iter().rev().take_while(|burst| burst.first > next).last();
        let oldest_missing =
            if next < self.next { self.burst_of(next).or(next_burst).map(|burst| burst.at) } else { None };
        Some(Reception {
            expected,
            lost,
            stale: changed.min(next).saturating_sub(first),
            received: received as u64,
            interval: now.saturating_since(begin),
            round_trip: self.round_trip(now, block),
            overdue: oldest_missing.map_or(Duration::ZERO, |at| now.saturating_since(at)),
        })
    }

    /// Packets that arrived by the last report that named any.
    pub fn arrived_by(&self) -> Option<u64> {
        self.last.map(|last| last.next)
    }

    fn round_trip(&self, now: Timestamp, block: &ReportBlock) -> Option<Duration> {
        let (_, at) = self.reports.iter().rev().find(|(wall, _)| *wall == block.last_report)?;
        let held = Duration::from_nanos((u64::from(block.delay) * 1_000_000_000) >> 16);
        now.saturating_since(*at).checked_sub(held)
    }

    /// The burst that a packet left with.
    fn burst_of(&self, number: u64) -> Option<&Burst> {
        let behind = self.bursts.partition_point(|burst| burst.first <= number);
        self.bursts.get(behind.checked_sub(1)?)
    }

    /// Bytes of all packets before this one, to the precision of a packet within its burst.
    fn bytes_before(&self, number: u64) -> u64 {
        let behind = self.bursts.partition_point(|burst| burst.first <= number);
        let Some(burst) = behind.checked_sub(1).and_then(|at| self.bursts.get(at)) else { return 0 };
        let (end, end_bytes) =
            self.bursts.get(behind).map_or((self.next, self.bytes), |burst| (burst.first, burst.bytes));
        let packets = (end - burst.first).max(1);
        burst.bytes + (end_bytes - burst.bytes) * (number - burst.first).min(packets) / packets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * 1_000_000)
    }

    fn block(highest: u16, lost: i32) -> ReportBlock {
        ReportBlock { highest: highest.into(), lost, ..ReportBlock::default() }
    }

    /// Ten packets of 1000 bytes, one each 10 ms, across the wrap of the numbers.
    fn log() -> SentLog {
        let mut log = SentLog::new(65_530);
        for number in 0..10 {
            log.sent(at(number * 10), 1000);
        }
        log
    }

    #[test]
    fn a_report_is_bytes_and_times() {
        let mut log = log();
        log.reported(at(0), 0x1234_5678_0000);
        let changed = log.next() - 7;
        let named = ReportBlock {
            last_report: 0x1234_5678,
            delay: 0x1_0000 / 50,
            ..block(65_530_u16.wrapping_add(7), 2)
        };
        let reception = log.received(at(100), &named, changed).unwrap();
        assert_eq!((reception.expected, reception.lost, reception.stale), (8, 2, 3));
        assert_eq!((reception.received, reception.interval), (6000, Duration::from_millis(100)));
        // Packet 8 left at 80 ms.
        assert_eq!(reception.overdue, Duration::from_millis(20));
        let round_trip = reception.round_trip.unwrap();
        assert!(round_trip.abs_diff(Duration::from_millis(80)) < Duration::from_micros(20), "{round_trip:?}");
        // The next report counts from there.
        log.sent(at(110), 1000);
        let next = log.received(at(200), &block(4, 2), changed).unwrap();
        assert_eq!((next.expected, next.lost, next.stale, next.received), (3, 0, 0, 3000));
        assert_eq!((next.interval, next.overdue), (Duration::from_millis(100), Duration::ZERO));
    }

    #[test]
    fn nonsense_is_no_report() {
        assert_eq!(SentLog::new(7).received(at(1), &block(7, 0), 0), None, "nothing was sent");
        let mut log = log();
        assert_eq!(log.received(at(1), &block(65_500, 0), 0), None, "before the first");
        assert_eq!(log.received(at(1), &block(30_000, 0), 0), None, "never sent");
        let reception =
            log.received(at(100), &ReportBlock { last_report: 77, ..block(3, i32::MIN) }, 0).unwrap();
        assert_eq!((reception.lost, reception.round_trip), (0, None));
        let reception = log.received(at(100), &block(3, i32::MAX), 0).unwrap();
        assert_eq!((reception.expected, reception.lost), (0, 0));
        assert_eq!(log.received(at(100), &block(1, 0), 0), None, "it goes back");
    }

    #[test]
    fn a_delay_longer_than_the_time_is_no_round_trip() {
        let mut log = log();
        log.reported(at(50), 5 << 16);
        let long = ReportBlock { last_report: 5, delay: u32::MAX, ..block(3, 0) };
        assert_eq!(log.received(at(100), &long, 0).unwrap().round_trip, None);
    }

    #[test]
    fn any_reports() {
        bolero::check!().with_type::<(u16, Vec<(u16, i32, u32, u32, u8)>)>().for_each(|(seq, reports)| {
            let mut log = SentLog::new(*seq);
            let mut now = 0;
            for &(highest, lost, last_report, delay, packets) in reports {
                for _ in 0..packets {
                    now += 3;
                    log.sent(at(now), 1200);
                }
                let block = ReportBlock { last_report, delay, ..block(highest, lost) };
                let before = log.bytes();
                if let Some(reception) = log.received(at(now), &block, u64::from(highest)) {
                    assert!(reception.lost <= reception.expected && reception.stale <= reception.expected);
                    assert!(reception.received <= before);
                }
            }
        });
    }
}

//! The rule in virtual time, on a bottleneck with a queue, against players that report as ffmpeg and GStreamer do.

use super::*;
use crate::rtp::feedback::ReportBlock;
use crate::rtp::sent::SentLog;

const PACKET: u64 = 1428;

/// When a player reports.
#[derive(Clone, Copy)]
enum Reports {
    /// Every this number of milliseconds.
    Every(u64),
    /// After each 280 kB.
    Bytes,
}

/// A bottleneck in front of a player.
struct World {
    now: u64,
    /// Bits per second, bytes of the queue, and milliseconds each way.
    link: (u64, u64, u64),
    reports: Reports,
    /// Each so manieth packet is lost by the radio; 0 for none.
    radio: u64,
    log: SentLog,
    control: RateControl,
    changed: u64,
    /// When the queue will be empty, in microseconds.
    free_at: u64,
    arrived: Vec<(u64, u64)>,
    sent: u64,
    received: Received,
    ceased: Option<Cease>,
}

#[derive(Default)]
struct Received {
    highest: u16,
    packets: u64,
    lost: i32,
    bytes: u64,
    reported_at: u64,
    reported_bytes: u64,
}

/// What a stretch of time was like.
struct Stretch {
    loss: f64,
    /// Share of the link's rate.
    used: f64,
    /// The longest queue, in milliseconds.
    queue: u64,
}

impl World {
    fn new(link: (u64, u64, u64), reports: Reports) -> Self {
        let round_trip = Duration::from_millis(link.2 * 2 + 2);
        Self {
            now: 0,
            link,
            reports,
            radio: 0,
            log: SentLog::new(0),
            control: RateControl::new(Timestamp::ZERO, Some(round_trip)),
            changed: 0,
            free_at: 0,
            arrived: Vec::new(),
            sent: 0,
            received: Received::default(),
            ceased: None,
        }
    }

    fn at(&self) -> Timestamp {
        Timestamp::from_nanos(self.now * 1000)
    }

    /// Offers `offer` bits per second for some seconds.
    fn run(&mut self, seconds: u64, offer: u64) -> Stretch {
        let end = self.now + seconds * 1_000_000;
        let (sent, lost, bytes) = (self.sent, self.received.lost, self.received.bytes);
        let (mut queue, mut next_sr) = (0, self.now);
        while self.now < end && self.ceased.is_none() {
            if self.now >= next_sr {
                self.log.reported(self.at(), self.now << 16);
                next_sr = self.now + 1_000_000;
            }
            let rate = self.control.rate().bits_per_sec().min(offer).max(1);
            self.send_packet();
            queue = queue.max(self.free_at.saturating_sub(self.now) / 1000);
            self.now += PACKET * 8 * 1_000_000 / rate;
            self.deliver();
            if self.control.on_silence(self.at(), self.log.bytes()) {
                self.changed = self.log.next();
            }
        }
        let passed = seconds as f64;
        Stretch {
            loss: f64::from(self.received.lost - lost) / (self.sent - sent).max(1) as f64,
            used: (self.received.bytes - bytes) as f64 * 8.0 / passed / self.link.0 as f64,
            queue,
        }
    }

    fn send_packet(&mut self) {
        let (rate, room, delay) = self.link;
        let waiting = self.free_at.saturating_sub(self.now) * rate / 8_000_000;
        self.log.sent(self.at(), PACKET);
        self.sent += 1;
        let is_radio_loss = self.radio > 0 && self.sent.is_multiple_of(self.radio);
        if waiting + PACKET > room || is_radio_loss {
            return;
        }
        self.free_at = self.free_at.max(self.now) + PACKET * 8_000_000 / rate;
        self.arrived.push((self.free_at + delay * 1000, self.sent - 1));
    }

    fn deliver(&mut self) {
        let now = self.now;
        let there: Vec<_> = self.arrived.extract_if(.., |(at, _)| *at <= now).collect();
        for (at, number) in there {
            self.received.highest = number as u16;
            self.received.packets += 1;
            self.received.lost = (number + 1 - self.received.packets) as i32;
            self.received.bytes += PACKET;
            let is_due = match self.reports {
                Reports::Every(ms) => at >= self.received.reported_at + ms * 1000,
                Reports::Bytes => self.received.bytes >= self.received.reported_bytes + USUAL_GAP_BYTES,
            };
            if is_due {
                self.report(at);
            }
        }
    }

    /// A report, half a round trip later. The last sender report that can have arrived left with a packet that has.
    fn report(&mut self, at: u64) {
        (self.received.reported_at, self.received.reported_bytes) = (at, self.received.bytes);
        let (highest, lost) = (self.received.highest.into(), self.received.lost);
        let block = ReportBlock { highest, lost, ..ReportBlock::default() };
        let now = Timestamp::from_nanos((at + self.link.2 * 1000) * 1000);
        let Some(mut reception) = self.log.received(now, &block, self.changed) else { return };
        let queue = (self.free_at + self.link.2 * 1000).saturating_sub(at);
        reception.round_trip = Some(Duration::from_micros(self.link.2 * 2000 + queue));
        match self.control.on_report(now, &reception, self.log.bytes(), 2 * PACKET) {
            Change::Kept => {}
            Change::Fell => self.changed = self.log.next(),
            Change::Cease(why) => self.ceased = Some(why),
        }
    }
}

const BOTH: [Reports; 2] = [Reports::Every(5000), Reports::Bytes];

#[test]
fn a_fast_path_has_the_full_rate_from_the_first_packet() {
    for reports in BOTH {
        let mut world = World::new((1_000_000_000, 1 << 20, 0), reports);
        let stretch = world.run(5, 20_000_000);
        assert!(stretch.used > 0.0199, "{}", stretch.used);
        assert_eq!((stretch.loss, world.control.is_limited()), (0.0, false));
    }
}

#[test]
fn a_long_path_has_it_after_few_reports() {
    let mut world = World::new((1_000_000_000, 1 << 20, 50), Reports::Every(5000));
    assert!(world.control.rate().bits_per_sec() > 1_000_000);
    world.run(11, 4_000_000);
    assert!(world.control.rate().bits_per_sec() > 4_000_000, "{:?}", world.control.rate());
}

#[test]
fn a_slow_path_is_found_with_the_first_report() {
    for reports in BOTH {
        // Queues of 400 ms, as of a router, and of 4 s.
        for room in [15_000, 150_000] {
            let mut world = World::new((300_000, room, 5), reports);
            world.run(30, 1_000_000);
            let stretch = world.run(60, 1_000_000);
            assert!(stretch.loss < 0.05, "{} lost with {room}", stretch.loss);
            assert!(stretch.used > 0.8, "{} used with {room}", stretch.used);
            assert!(stretch.queue < 800, "{} ms with {room}", stretch.queue);
        }
    }
}

#[test]
fn a_path_that_recovers_is_used_again() {
    let mut world = World::new((200_000, 15_000, 5), Reports::Every(5000));
    world.run(30, 1_000_000);
    world.link.0 = 2_000_000;
    world.run(60, 1_000_000);
    assert!(world.control.rate().bits_per_sec() >= 1_000_000, "{:?}", world.control.rate());
}

#[test]
fn a_radio_link_keeps_the_share_of_tcp() {
    let mut world = World::new((10_000_000, 100_000, 10), Reports::Every(5000));
    world.radio = 20;
    world.run(60, 2_000_000);
    let rate = world.control.rate().bits_per_sec();
    assert!(rate > 1_000_000, "{rate}: 5 % lost and no queue");
}

#[test]
fn a_queue_of_another_flow_does_not_starve_the_receiver() {
    let mut control = RateControl::new(Timestamp::ZERO, Some(Duration::from_millis(20)));
    let mut rate = 250_000.0_f64;
    control.rate = rate;
    for report in 1..=20 {
        let reception = Reception {
            expected: 500,
            received: (rate * 5.0) as u64,
            interval: Duration::from_secs(5),
            round_trip: Some(Duration::from_millis(220)),
            ..Reception::default()
        };
        let now = Timestamp::from_nanos(report * 5_000_000_000);
        control.on_report(now, &reception, report * 100_000, 2 * PACKET);
        rate = control.rate;
    }
    assert!(rate > 200_000.0, "{rate}");
}

/// Reports of a stream of 1 Mbit/s of which everything arrives, each after five seconds, with these queues in milliseconds.
fn clear_reports(control: &mut RateControl, queues: &[u64]) -> Vec<Change> {
    let report = |(at, queue): (usize, &u64)| {
        let reception = Reception {
            expected: 440,
            received: 625_000,
            interval: Duration::from_secs(5),
            round_trip: Some(Duration::from_millis(1 + queue)),
            ..Reception::default()
        };
        let at = at as u64 + 1;
        control.on_report(Timestamp::from_nanos(at * 5_000_000_000), &reception, at * 625_000, 2 * PACKET)
    };
    queues.iter().enumerate().map(report).collect()
}

#[test]
fn one_report_of_a_busy_player_is_no_congestion() {
    let mut control = RateControl::new(Timestamp::ZERO, Some(Duration::from_millis(1)));
    let before = control.rate();
    assert_eq!(clear_reports(&mut control, &[0, 150, 0, 150, 0]), [Change::Kept; 5]);
    assert_eq!((control.rate(), control.is_limited()), (before, false));
    assert_eq!(clear_reports(&mut control, &[150, 150]), [Change::Kept, Change::Fell]);
}

#[test]
fn after_a_false_alarm_bursts_leave_quickly_again() {
    let mut control = RateControl::new(Timestamp::ZERO, Some(Duration::from_millis(1)));
    let before = control.rate();
    clear_reports(&mut control, &[200, 200]);
    assert!(control.rate() < Rate::from_bits_per_sec(1_000_000));
    clear_reports(&mut control, &[0; 24]);
    assert_eq!((control.rate(), control.is_limited()), (before, false));
}

#[test]
fn silence_halves_the_rate_and_a_report_ends_it() {
    let mut world = World::new((10_000_000, 100_000, 10), Reports::Every(1_000_000));
    let before = world.control.rate().bits_per_sec();
    world.run(14, 2_000_000);
    assert_eq!(world.control.rate().bits_per_sec(), before, "one interval is no silence");
    world.run(120, 2_000_000);
    let low = world.control.rate().bytes_per_sec();
    assert!(low <= 60_000, "{low}");
    world.reports = Reports::Every(5000);
    world.run(60, 2_000_000);
    assert!(world.control.rate().bytes_per_sec() > 2 * low);
}

#[test]
fn few_bytes_are_no_silence() {
    // ffmpeg reports after 280 kB, which takes three quarters of a minute here.
    let mut world = World::new((50_000, 15_000, 5), Reports::Bytes);
    world.control.rate = 6000.0;
    world.run(60, 1_000_000);
    assert!(world.control.rate().bytes_per_sec() > 5000, "{:?}", world.control.rate());
}

#[test]
fn a_path_that_delivers_nothing_opens_the_circuit_breaker() {
    let mut control = RateControl::new(Timestamp::ZERO, None);
    let nothing = Reception { interval: Duration::from_secs(5), ..Reception::default() };
    let mut report =
        |at: u64| control.on_report(Timestamp::from_nanos(at * 1_000_000_000), &nothing, at * 10_000, 0);
    assert_eq!(
        [report(5), report(10), report(15)],
        [Change::Kept, Change::Kept, Change::Cease(Cease::NothingArrives)]
    );
}

#[test]
fn hopeless_loss_opens_the_circuit_breaker_at_the_lowest_rate() {
    let mut control = RateControl::new(Timestamp::ZERO, Some(Duration::from_millis(300)));
    let mut changes = Vec::new();
    for report in 1..=20_u64 {
        let reception = Reception {
            expected: 100,
            lost: 60,
            received: (control.rate * 5.0 * 0.4) as u64,
            interval: Duration::from_secs(5),
            round_trip: Some(Duration::from_millis(300)),
            ..Reception::default()
        };
        let now = Timestamp::from_nanos(report * 5_000_000_000);
        changes.push(control.on_report(now, &reception, report * 10_000, 0));
    }
    assert!(changes.contains(&Change::Cease(Cease::Congestion)), "{changes:?}");
}

#[test]
fn any_reports_leave_a_rate_within_its_bounds() {
    type Report = (u16, u16, u16, u32, u16, Option<u32>);
    bolero::check!().with_type::<(Option<u32>, Vec<Report>)>().for_each(|(first, reports)| {
        let mut now = Timestamp::ZERO;
        let mut control = RateControl::new(now, first.map(|micros| Duration::from_micros(micros.into())));
        let mut sent = 0;
        for &(expected, lost, stale, received, ms, round_trip) in reports {
            let interval = Duration::from_millis(ms.into());
            now += interval;
            sent += u64::from(received);
            let expected = u64::from(expected);
            let reception = Reception {
                expected,
                lost: expected.min(lost.into()),
                stale: expected.min(stale.into()),
                received: received.into(),
                interval,
                round_trip: round_trip.map(|micros| Duration::from_micros(micros.into())),
                overdue: Duration::from_millis(u64::from(stale)),
            };
            control.on_report(now, &reception, sent, 2 * PACKET);
            control.on_silence(now, sent);
            let rate = control.rate;
            assert!((LEAST..=MOST).contains(&rate), "{rate}");
        }
    });
}

//! A bottleneck in virtual time: senders that share a link, each with a simple receiver.

use std::collections::VecDeque;

use freshwire_link::{Config, Direction, Link, Loss, Schedule};
use freshwire_record::Rate;

use super::super::*;

/// IPv4 and UDP.
const HEADERS: u64 = 28;
const MAX_ACK_DELAY: Duration = Duration::from_millis(25);

/// What all flows share.
#[derive(Clone)]
pub(super) struct Scene {
    pub(super) schedule: Schedule,
    pub(super) one_way: Duration,
    pub(super) queue_bytes: u64,
    pub(super) loss: Loss,
    pub(super) reverse_loss: Loss,
    pub(super) pauses: Option<Pauses>,
    pub(super) seed: u64,
}

/// The receivers' machine does nothing for so long, so often.
#[derive(Clone, Copy)]
pub(super) struct Pauses {
    pub(super) every: Duration,
    pub(super) length: Duration,
}

impl Pauses {
    /// When the machine gets to what comes at `at`.
    fn after(self, at: Timestamp) -> Timestamp {
        let since = at.as_nanos() % self.every.as_nanos() as u64;
        at + self.length.saturating_sub(Duration::from_nanos(since))
    }
}

impl Scene {
    pub(super) fn new(rate: &str, one_way_ms: u64) -> Self {
        let schedule = match rate {
            "none" => Schedule::unlimited(),
            rate => Schedule::constant(rate.parse().unwrap()),
        };
        Self {
            schedule,
            one_way: Duration::from_millis(one_way_ms),
            queue_bytes: 15_000,
            loss: Loss::None,
            reverse_loss: Loss::None,
            pauses: None,
            seed: 1,
        }
    }

    pub(super) fn trace(mut self, text: &str) -> Self {
        self.schedule = Schedule::parse(text).unwrap();
        self
    }

    pub(super) fn queue(mut self, bytes: u64) -> Self {
        self.queue_bytes = bytes;
        self
    }

    /// On both ways.
    pub(super) fn loss(mut self, loss: Loss) -> Self {
        self.loss = loss;
        self.reverse_loss = loss;
        self
    }

    pub(super) fn pauses(mut self, every: Duration, length: Duration) -> Self {
        self.pauses = Some(Pauses { every, length });
        self
    }

    pub(super) fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }
}

/// What a sender has to send.
#[derive(Clone, Copy)]
pub(super) enum Source {
    Bulk,
    Bursts { bytes: u64, period: Duration },
}

/// What a flow has done.
pub(super) struct Report {
    /// Bytes of IP packets that arrived at the receiver, and when.
    pub(super) arrivals: Vec<(Timestamp, u64)>,
    /// How long each arrived packet was on its way beyond the delay of the link.
    pub(super) waits: Vec<(Timestamp, Duration)>,
    /// How long each burst took from its beginning to the arrival of as many bytes.
    pub(super) bursts: Vec<Duration>,
    pub(super) sent: u64,
    pub(super) lost: u64,
    pub(super) spurious: u64,
}

impl Report {
    /// Mean rate of what arrived, in bits per second of IP packets.
    pub(super) fn rate(&self, from: f64, to: f64) -> f64 {
        let within = |at: &Timestamp| (from..to).contains(&at.as_secs_f64());
        let bytes: u64 = self.arrivals.iter().filter(|(at, _)| within(at)).map(|(_, bytes)| bytes).sum();
        bytes as f64 * 8.0 / (to - from)
    }

    /// The wait that `share` of the packets arriving in that time stay under.
    pub(super) fn wait(&self, from: f64, to: f64, share: f64) -> Duration {
        let within = |at: &Timestamp| (from..to).contains(&at.as_secs_f64());
        let mut waits =
            self.waits.iter().filter(|(at, _)| within(at)).map(|(_, wait)| *wait).collect::<Vec<_>>();
        waits.sort_unstable();
        let index = ((waits.len() as f64 - 1.0) * share).max(0.0) as usize;
        waits.get(index).copied().unwrap_or_default()
    }
}

pub(super) struct Flow {
    pub(super) recovery: Recovery<u64>,
    source: Source,
    begins: Timestamp,
    ends: Timestamp,
    next_number: u64,
    /// Bytes that wait to be sent, and when the next burst comes.
    backlog: u64,
    next_burst: Timestamp,
    /// Bursts on their way: beginning and bytes that have yet to arrive.
    open_bursts: VecDeque<(Timestamp, u64)>,
    wake: Option<Timestamp>,
    /// When a small packet follows the last data.
    tail_at: Option<Timestamp>,
    /// Data packets that may leave beyond the window after a timeout.
    probes: u32,
    receiver: Receiver,
    pub(super) report: Report,
    pub(super) outcomes: Outcomes<u64>,
}

/// Acknowledges when asked, or after 25 ms; reports a gap at once.
#[derive(Default)]
struct Receiver {
    /// Ranges received, oldest first.
    ranges: Vec<RangeInclusive<u64>>,
    largest: Option<(u64, Timestamp)>,
    unacked: u32,
    ack_at: Option<Timestamp>,
}

#[derive(Clone)]
struct Data {
    flow: usize,
    number: u64,
    bytes: u64,
    ack_now: bool,
    sent_at: Timestamp,
}

#[derive(Clone)]
struct Feedback {
    flow: usize,
    ranges: Vec<RangeInclusive<u64>>,
    missing: Option<RangeInclusive<u64>>,
    largest_at: Timestamp,
    sent_at: Timestamp,
}

impl Flow {
    pub(super) fn new(controller: Controller, begins_s: f64, source: Source) -> Self {
        let begins = Timestamp::from_nanos((begins_s * 1e9) as u64);
        let config = RecoveryConfig { controller, ..RecoveryConfig::default() };
        Self {
            recovery: Recovery::new(&config, begins),
            source,
            begins,
            ends: Timestamp::MAX,
            next_number: 0,
            backlog: if matches!(source, Source::Bulk) { u64::MAX } else { 0 },
            next_burst: begins,
            open_bursts: VecDeque::new(),
            wake: Some(begins),
            tail_at: None,
            probes: 0,
            receiver: Receiver::default(),
            report: Report {
                arrivals: Vec::new(),
                waits: Vec::new(),
                bursts: Vec::new(),
                sent: 0,
                lost: 0,
                spurious: 0,
            },
            outcomes: Outcomes::default(),
        }
    }

    pub(super) fn with(mut self, congestion: Box<dyn Congestion>) -> Self {
        self.recovery.congestion = congestion;
        self
    }

    /// It has nothing to send from then on.
    pub(super) fn end_at(&mut self, seconds: f64) {
        self.ends = Timestamp::from_nanos((seconds * 1e9) as u64);
    }

    fn refill(&mut self, now: Timestamp) {
        while let Source::Bursts { bytes, period } = self.source
            && self.next_burst <= now
        {
            self.backlog += bytes;
            self.open_bursts.push_back((self.next_burst, bytes));
            self.next_burst += period;
        }
    }

    fn packet(&mut self, now: Timestamp, index: usize, bytes: u64, ack_now: bool, mtu_probe: bool) -> Data {
        let number = self.next_number;
        self.next_number += 1;
        if !mtu_probe {
            self.backlog = self.backlog.saturating_sub(bytes);
        }
        self.report.sent += 1;
        self.recovery.on_sent(
            now,
            Sent {
                number,
                bytes: bytes as u32,
                eliciting: true,
                ack_now,
                app_limited: self.backlog == 0,
                mtu_probe,
                content: number,
            },
        );
        Data { flow: index, number, bytes, ack_now, sent_at: now }
    }

    fn send(&mut self, now: Timestamp, index: usize, packets: &mut Vec<Data>) {
        self.wake = None;
        if now < self.begins {
            self.wake = Some(self.begins);
            return;
        }
        self.refill(now);
        if now >= self.ends {
            self.backlog = 0;
            return;
        }
        if matches!(self.source, Source::Bursts { .. }) {
            self.wake = Some(self.next_burst);
        }
        if let Some(size) = self.recovery.mtu_probe(now)
            && self.next_number > 8
        {
            packets.push(self.packet(now, index, u64::from(size), false, true));
        }
        while self.backlog > 0 {
            let mtu = u64::from(self.recovery.mtu());
            match self.recovery.allowance(now) {
                Allowance::Bytes(allowed) => assert!(allowed >= mtu),
                _ if self.probes > 0 => self.probes -= 1,
                Allowance::At(at) => {
                    assert!(at > now);
                    self.wake = Some(self.wake.map_or(at, |wake| wake.min(at)));
                    break;
                }
                Allowance::Blocked => break,
            }
            let bytes = mtu.min(self.backlog);
            let every = self.recovery.packets_per_ack();
            let ack_now = (self.next_number + 1).is_multiple_of(every) || bytes == self.backlog;
            packets.push(self.packet(now, index, bytes, ack_now, false));
            self.tail_at = Some(now + tail(&self.recovery));
        }
        if self.backlog == 0 {
            self.recovery.on_app_limited();
        }
    }

    fn timers(&mut self, now: Timestamp, index: usize, packets: &mut Vec<Data>) {
        let mut sync = false;
        if self.recovery.timeout().is_some_and(|at| at <= now) {
            sync = self.recovery.on_timeout(now, &mut self.outcomes);
            self.settle();
            self.probes = if sync { 2 } else { self.probes };
        }
        if self.tail_at.is_some_and(|at| at <= now) {
            self.tail_at = None;
            sync |= self.recovery.in_flight() > 0;
        }
        if sync {
            packets.push(self.packet(now, index, 64, true, false));
        }
    }

    fn settle(&mut self) {
        let out = &mut self.outcomes;
        out.acked.clear();
        self.report.lost += out.lost.len() as u64;
        if matches!(self.source, Source::Bursts { .. }) {
            self.backlog += out.lost.len() as u64 * u64::from(self.recovery.mtu());
        }
        out.lost.clear();
        self.report.spurious += out.spurious.len() as u64;
        out.spurious.clear();
    }

    fn feedback(&mut self, now: Timestamp, feedback: &Feedback) {
        let largest = *feedback.ranges[0].end();
        let ack = AckInfo {
            largest,
            ranges: &feedback.ranges,
            delay: feedback.sent_at.saturating_since(feedback.largest_at),
            receiver_time_us: (feedback.largest_at.as_nanos() / 1000) as u32,
            ce_count: 0,
        };
        self.recovery.on_ack(now, &ack, &mut self.outcomes).unwrap();
        if let Some(missing) = &feedback.missing {
            self.recovery.on_nack(now, std::slice::from_ref(missing), &mut self.outcomes);
        }
        self.settle();
    }

    fn arrive(&mut self, at: Timestamp, data: &Data, one_way: Duration) -> Option<Feedback> {
        let bytes = data.bytes + HEADERS;
        self.report.arrivals.push((at, bytes));
        self.report.waits.push((at, at.saturating_since(data.sent_at).saturating_sub(one_way)));
        if let Some((began, missing)) = self.open_bursts.front_mut() {
            *missing = missing.saturating_sub(data.bytes);
            if *missing == 0 {
                self.report.bursts.push(at.saturating_since(*began));
                self.open_bursts.pop_front();
            }
        }
        self.receiver.on_packet(at, data)
    }
}

/// After so long a pause nothing more is coming soon: a little more than the gap between packets of a busy path.
fn tail<C>(recovery: &Recovery<C>) -> Duration {
    let packet = recovery.rate().map_or(Duration::ZERO, |rate| rate.time_for(recovery.mtu().into()));
    (recovery.rtt().srtt() / 8).max(packet * 5 / 4)
}

impl Receiver {
    fn on_packet(&mut self, at: Timestamp, data: &Data) -> Option<Feedback> {
        let expected = self.largest.map_or(0, |(largest, _)| largest + 1);
        self.largest = Some((data.number, at));
        match self.ranges.last_mut() {
            Some(last) if *last.end() + 1 == data.number => *last = *last.start()..=data.number,
            _ => self.ranges.push(data.number..=data.number),
        }
        self.unacked += 1;
        let missing = (data.number > expected).then(|| expected..=data.number - 1);
        if missing.is_some() || data.ack_now {
            return self.feedback(at, data.flow, missing);
        }
        self.ack_at.get_or_insert(at + MAX_ACK_DELAY);
        None
    }

    fn feedback(
        &mut self,
        now: Timestamp,
        flow: usize,
        missing: Option<RangeInclusive<u64>>,
    ) -> Option<Feedback> {
        let (_, largest_at) = self.largest?;
        self.unacked = 0;
        self.ack_at = None;
        let ranges = self.ranges.iter().rev().take(32).cloned().collect();
        Some(Feedback { flow, ranges, missing, largest_at, sent_at: now })
    }
}

/// Runs `flows` over `scene` for `seconds`, and what each did.
pub(super) fn run(scene: &Scene, flows: Vec<Flow>, seconds: f64) -> Vec<Report> {
    World::new(scene, flows).run(seconds).into_iter().map(|flow| flow.report).collect()
}

struct World {
    one_way: Duration,
    pauses: Option<Pauses>,
    up: Link<Data>,
    down: Link<Feedback>,
    flows: Vec<Flow>,
}

impl World {
    fn new(scene: &Scene, flows: Vec<Flow>) -> Self {
        let up = Config::builder()
            .schedule(scene.schedule.clone())
            .delay(scene.one_way)
            .queue_bytes(scene.queue_bytes)
            .loss(scene.loss)
            .seed(scene.seed)
            .build()
            .unwrap();
        let down = Config::builder()
            .rate(Rate::from_bits_per_sec(10_000_000_000))
            .delay(scene.one_way)
            .queue_bytes(1 << 20)
            .loss(scene.reverse_loss)
            .seed(scene.seed)
            .build()
            .unwrap();
        Self {
            one_way: scene.one_way,
            pauses: scene.pauses,
            up: Link::new(up, Direction::Up, Timestamp::ZERO),
            down: Link::new(down, Direction::Down, Timestamp::ZERO),
            flows,
        }
    }

    fn run(mut self, seconds: f64) -> Vec<Flow> {
        let end = Timestamp::from_nanos((seconds * 1e9) as u64);
        while let Some(now) = self.next()
            && now < end
        {
            self.step(now);
        }
        self.flows
    }

    fn next(&self) -> Option<Timestamp> {
        let senders = self.flows.iter().flat_map(|flow| [flow.wake, flow.recovery.timeout(), flow.tail_at]);
        let receivers = self.flows.iter().map(|flow| flow.receiver.ack_at).chain([self.up.poll_timeout()]);
        let receivers = receivers.flatten().map(|at| self.received_at(at));
        senders.chain([self.down.poll_timeout()]).flatten().chain(receivers).min()
    }

    fn received_at(&self, at: Timestamp) -> Timestamp {
        self.pauses.map_or(at, |pauses| pauses.after(at))
    }

    /// What the receivers answer.
    fn receive(&mut self, now: Timestamp) -> Vec<Feedback> {
        let mut feedback = Vec::new();
        if self.received_at(now) > now {
            return feedback;
        }
        while let Some(delivery) = self.up.poll_transmit(now) {
            let (flow, at) = (delivery.packet.flow, self.received_at(delivery.at));
            feedback.extend(self.flows[flow].arrive(at, &delivery.packet, self.one_way));
        }
        for (index, flow) in self.flows.iter_mut().enumerate() {
            if flow.receiver.ack_at.is_some_and(|at| at <= now) {
                feedback.extend(flow.receiver.feedback(now, index, None));
            }
        }
        feedback
    }

    fn step(&mut self, now: Timestamp) {
        for feedback in self.receive(now) {
            self.down.handle_packet(now, 60 + HEADERS, feedback);
        }
        while let Some(delivery) = self.down.poll_transmit(now) {
            self.flows[delivery.packet.flow].feedback(now, &delivery.packet);
        }
        let mut packets = Vec::new();
        for (index, flow) in self.flows.iter_mut().enumerate() {
            flow.timers(now, index, &mut packets);
            flow.send(now, index, &mut packets);
        }
        for data in packets {
            self.up.handle_packet(now, data.bytes + HEADERS, data);
        }
    }
}

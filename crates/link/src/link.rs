use std::collections::VecDeque;
use std::time::Duration;

use freshwire_record::{Rate, Timestamp};

use crate::config::Config;
use crate::direction::Direction;
use crate::loss::LossProcess;

/// What becomes of an offered packet, known at once: what happens later does not change it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// It will arrive, unless the schedule ends in an outage.
    Carried,
    /// It will be serialised and then lost on the wire.
    Lost,
    /// It was dropped because the queue was full.
    QueueFull,
    /// It was dropped because the wire held as much as its bound allows.
    WireFull,
}

/// A packet that leaves the link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery<T> {
    /// The instant at which the model delivers it, at or before the `now` of [`Link::poll_transmit`].
    pub at: Timestamp,
    /// Its number among the packets offered to this direction, from 0.
    pub number: u64,
    /// Its length.
    pub bytes: u64,
    /// The packet as it was handed in.
    pub packet: T,
}

/// What one direction has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Packets offered.
    pub offered_packets: u64,
    /// Bytes offered.
    pub offered_bytes: u64,
    /// Packets handed out at the far end.
    pub delivered_packets: u64,
    /// Bytes handed out at the far end.
    pub delivered_bytes: u64,
    /// Packets lost on the wire.
    pub lost_packets: u64,
    /// Bytes lost on the wire.
    pub lost_bytes: u64,
    /// Packets dropped because the queue was full.
    pub queue_full_packets: u64,
    /// Bytes dropped because the queue was full.
    pub queue_full_bytes: u64,
    /// Packets dropped because the wire's bound was reached.
    pub wire_full_packets: u64,
    /// Most bytes that ever waited.
    pub queue_peak_bytes: u64,
    /// Longest that a packet waited for the transmitter, as known when it was queued: a later [change of the
    /// rate](Link::set_rate) is not in it. `Duration::MAX` behind an outage without end.
    pub queue_delay_max: Duration,
}

/// A packet on its way through the transmitter, carried or lost.
#[derive(Clone, Copy, Debug)]
struct QueuedPacket {
    number: u64,
    /// When it enters the transmitter.
    begin: Timestamp,
    bytes: u64,
    /// How much later than by the delay it arrives.
    late_by: Duration,
}

/// One direction of a path.
#[derive(Clone, Debug)]
pub struct Link<T> {
    config: Config,
    loss: LossProcess,
    start: Timestamp,
    last_arrival: Timestamp,
    transmitter_free_at: Timestamp,
    /// The last packet that entered the transmitter, which may have left it.
    transmitting: Option<QueuedPacket>,
    /// Packets that entered the queue and have not left it for the transmitter.
    waiting: VecDeque<QueuedPacket>,
    waiting_bytes: u64,
    in_flight: VecDeque<Delivery<T>>,
    in_flight_bytes: u64,
    counters: Counters,
}

impl<T> Link<T> {
    /// An idle link. Its schedule counts from `start`.
    pub fn new(config: Config, direction: Direction, start: Timestamp) -> Self {
        Self {
            loss: LossProcess::new(config.loss(), config.seed(), direction),
            config,
            start,
            last_arrival: start,
            transmitter_free_at: start,
            transmitting: None,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            in_flight: VecDeque::new(),
            in_flight_bytes: 0,
            counters: Counters::default(),
        }
    }

    /// A packet of `bytes` arrives at the near end. A `now` earlier than that of the packet before counts as that.
    pub fn handle_packet(&mut self, now: Timestamp, bytes: u64, packet: T) -> Verdict {
        let now = now.max(self.last_arrival);
        self.last_arrival = now;
        self.release_queue(now);
        let number = self.counters.offered_packets;
        self.counters.offered_packets += 1;
        self.counters.offered_bytes += bytes;
        let lost = self.loss.next_is_lost();

        let begin = now.max(self.transmitter_free_at);
        if begin > now && self.waiting_bytes.saturating_add(bytes) > self.config.queue_bytes() {
            self.counters.queue_full_packets += 1;
            self.counters.queue_full_bytes += bytes;
            return Verdict::QueueFull;
        }
        if !lost && self.in_flight_bytes.saturating_add(bytes) > self.config.in_flight_bytes() {
            self.counters.wire_full_packets += 1;
            return Verdict::WireFull;
        }
        let (late_share, late_by) = self.config.reordering();
        let late_by = if self.loss.is_late(late_share) { late_by } else { Duration::ZERO };
        let unsent = QueuedPacket { number, begin, bytes, late_by };
        if begin > now {
            self.enqueue(unsent, now);
        } else {
            self.transmitting = Some(unsent);
        }
        let end = self.serialised(begin, bytes);
        self.transmitter_free_at = end;
        if lost {
            self.counters.lost_packets += 1;
            self.counters.lost_bytes += bytes;
            return Verdict::Lost;
        }
        self.in_flight_bytes += bytes;
        let at = end + self.config.delay() + late_by;
        let place = self.in_flight.partition_point(|other| other.at <= at);
        self.in_flight.insert(place, Delivery { at, number, bytes, packet });
        Verdict::Carried
    }

    /// The next packet that has arrived by `now`, in the order of arrival.
    #[must_use]
    pub fn poll_transmit(&mut self, now: Timestamp) -> Option<Delivery<T>> {
        if self.in_flight.front()?.at > now {
            return None;
        }
        let delivery = self.in_flight.pop_front()?;
        self.in_flight_bytes -= delivery.bytes;
        self.counters.delivered_packets += 1;
        self.counters.delivered_bytes += delivery.bytes;
        Some(delivery)
    }

    /// When [`Link::poll_transmit`] will next return something; `None` while nothing is to come.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        self.in_flight.front().map(|delivery| delivery.at).filter(|&at| at < Timestamp::MAX)
    }

    /// The counters so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Bytes that wait for the transmitter at `now`.
    pub fn queued_bytes(&mut self, now: Timestamp) -> u64 {
        self.release_queue(now);
        self.waiting_bytes
    }

    /// Has this rate from `now` on, in place of what is left of the schedule: zero is an outage until the next change, `None` is
    /// unlimited. The rest of the packet in the transmitter and the queue leave at the new rate; what is on the wire is not
    /// affected. A `now` earlier than the last packet's arrival counts as that.
    pub fn set_rate(&mut self, now: Timestamp, rate: Option<Rate>) {
        let now = now.max(self.last_arrival);
        self.last_arrival = now;
        self.release_queue(now);
        let current = self.transmitting.filter(|_| self.transmitter_free_at > now);
        // The packet in the transmitter began at rates that the new schedule must still have.
        let from = current.map_or(now, |unsent| unsent.begin);
        let since_start = |at: Timestamp| at.as_nanos() - self.start.as_nanos();
        let schedule = self.config.schedule().changed(since_start(from), since_start(now), rate);
        self.config.set_schedule(schedule);
        let Some(current) = current else { return };
        let mut arrivals = Vec::with_capacity(1 + self.waiting.len());
        let mut free_at = current.begin;
        let mut waiting = std::mem::take(&mut self.waiting);
        for unsent in std::iter::once(&mut { current }).chain(&mut waiting) {
            unsent.begin = free_at;
            free_at = self.serialised(free_at, unsent.bytes);
            arrivals.push((unsent.number, free_at + self.config.delay() + unsent.late_by));
        }
        self.waiting = waiting;
        self.transmitter_free_at = free_at;
        // Packets that will be lost are not in this list.
        for delivery in &mut self.in_flight {
            if let Ok(at) = arrivals.binary_search_by_key(&delivery.number, |&(number, _)| number) {
                delivery.at = arrivals[at].1;
            }
        }
        self.in_flight.make_contiguous().sort_by_key(|delivery| (delivery.at, delivery.number));
    }

    /// Its configuration. After [`Link::set_rate`] its schedule begins with what the packet in the transmitter had.
    pub fn config(&self) -> &Config {
        &self.config
    }

    fn enqueue(&mut self, unsent: QueuedPacket, now: Timestamp) {
        let begin = unsent.begin;
        self.waiting.push_back(unsent);
        self.waiting_bytes += unsent.bytes;
        self.counters.queue_peak_bytes = self.counters.queue_peak_bytes.max(self.waiting_bytes);
        let delay = if begin == Timestamp::MAX { Duration::MAX } else { begin.saturating_since(now) };
        self.counters.queue_delay_max = self.counters.queue_delay_max.max(delay);
    }

    fn release_queue(&mut self, now: Timestamp) {
        while let Some(&unsent) = self.waiting.front()
            && unsent.begin <= now
        {
            self.waiting_bytes -= unsent.bytes;
            self.transmitting = Some(unsent);
            self.waiting.pop_front();
        }
    }

    fn serialised(&self, begin: Timestamp, bytes: u64) -> Timestamp {
        if begin == Timestamp::MAX {
            return begin;
        }
        let since_start = begin.as_nanos() - self.start.as_nanos();
        match self.config.schedule().finish(since_start, bytes) {
            Some(end) => self.start + Duration::from_nanos(end),
            None => Timestamp::MAX,
        }
    }
}

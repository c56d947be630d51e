//! A TCP connection over a link in virtual time. Its windows, losses and acknowledgements follow Linux as far
//! as they decide when bytes arrive and what the sender learns.

use std::collections::VecDeque;
use std::time::Duration;

use freshwire_io::tcp::TcpInfo;
use freshwire_link::{Config, Direction, Link};
use freshwire_record::Timestamp;

pub(crate) const MSS: u64 = 1448;
/// Headers of IPv4 and TCP with timestamps.
pub(crate) const HEADERS: u64 = 52;
/// Linux, `TCP_DELACK_MIN`.
const DELAYED_ACK: Duration = Duration::from_millis(40);
const FIRST_WINDOW: f64 = 10.0;
/// Linux acknowledges the first segments at once (`TCP_MAX_QUICKACKS`).
const QUICK_ACKS: u32 = 16;
/// CUBIC in its region of Reno (RFC 9438, 4.3): factor of a decrease, segments of an increase.
const DECREASE: f64 = 0.7;
const INCREASE: f64 = 0.53;
const LEAST_RTO: Duration = Duration::from_millis(200);

#[derive(Clone, Copy)]
struct Segment {
    flow: usize,
    number: u64,
    end: u64,
    len: u64,
}

struct Sent {
    segment: Segment,
    at: Timestamp,
    /// Order of transmission.
    order: u64,
    is_sacked: bool,
    is_lost: bool,
    is_repeat: bool,
}

#[derive(Clone, Copy)]
struct Ack {
    flow: usize,
    /// Number of the next segment that is missing.
    next: u64,
    /// The segment that caused it.
    latest: u64,
}

/// One direction of a path that several connections share, and the way back.
pub(crate) struct Wire {
    there: Link<Segment>,
    back: Link<Ack>,
}

impl Wire {
    pub(crate) fn new(there: Config, back: Config) -> Self {
        let start = Timestamp::ZERO;
        Self { there: Link::new(there, Direction::Down, start), back: Link::new(back, Direction::Up, start) }
    }

    pub(crate) fn timeout(&self) -> Option<Timestamp> {
        self.there.poll_timeout().into_iter().chain(self.back.poll_timeout()).min()
    }

    /// Moves all that arrives by now.
    pub(crate) fn run(&mut self, now: Timestamp, flows: &mut [Flow]) {
        loop {
            let mut is_idle = true;
            while let Some(delivery) = self.there.poll_transmit(now) {
                is_idle = false;
                let flow = &mut flows[delivery.packet.flow];
                flow.receive(delivery.at, delivery.packet, &mut self.back);
            }
            while let Some(delivery) = self.back.poll_transmit(now) {
                is_idle = false;
                let flow = &mut flows[delivery.packet.flow];
                flow.acknowledged(delivery.at, delivery.packet);
                flow.transmit(now, self);
            }
            if is_idle {
                return;
            }
        }
    }
}

/// Both ends of a connection.
pub(crate) struct Flow {
    id: usize,
    cwnd: f64,
    ssthresh: f64,
    unsent: VecDeque<u64>,
    unsent_bytes: u64,
    sent: VecDeque<Sent>,
    next_number: u64,
    next_byte: u64,
    order: u64,
    delivered: u32,
    acked_bytes: u64,
    sent_bytes: u64,
    repeated_bytes: u64,
    newest_delivered: u64,
    srtt: f64,
    rttvar: f64,
    min_rtt: Duration,
    last_ack: Timestamp,
    recovery_until: u64,
    timer: Timestamp,
    backoff: u32,
    is_window_limited: bool,
    // The receiver.
    expected: u64,
    received: VecDeque<Option<u64>>,
    held_back: Option<(Timestamp, u64)>,
    quick: u32,
    /// Bytes of the stream that have arrived in order, and when.
    pub(crate) arrived: VecDeque<(Timestamp, u64)>,
}

impl Flow {
    pub(crate) fn new(id: usize) -> Self {
        Self {
            id,
            cwnd: FIRST_WINDOW,
            ssthresh: f64::MAX,
            unsent: VecDeque::new(),
            unsent_bytes: 0,
            sent: VecDeque::new(),
            next_number: 0,
            next_byte: 0,
            order: 0,
            delivered: 0,
            acked_bytes: 0,
            sent_bytes: 0,
            repeated_bytes: 0,
            newest_delivered: 0,
            srtt: 0.0,
            rttvar: 0.0,
            min_rtt: Duration::ZERO,
            last_ack: Timestamp::ZERO,
            recovery_until: 0,
            timer: Timestamp::MAX,
            backoff: 0,
            is_window_limited: false,
            expected: 0,
            received: VecDeque::new(),
            held_back: None,
            quick: QUICK_ACKS,
            arrived: VecDeque::new(),
        }
    }

    pub(crate) fn timeout(&self) -> Timestamp {
        self.held_back.map_or(Timestamp::MAX, |(at, _)| at).min(self.timer)
    }

    pub(crate) fn unsent(&self) -> u64 {
        self.unsent_bytes
    }

    pub(crate) fn handle_timeout(&mut self, now: Timestamp, wire: &mut Wire) {
        if let Some((at, latest)) = self.held_back
            && at <= now
        {
            self.acknowledge(at, latest, &mut wire.back);
        }
        if self.timer <= now {
            // A tail loss probe first, then the timeout (RFC 8985, 7; RFC 6298).
            if self.backoff > 0 {
                (self.ssthresh, self.cwnd) = ((self.cwnd * DECREASE).max(2.0), 1.0);
                self.sent.iter_mut().filter(|sent| !sent.is_sacked).for_each(|sent| sent.is_lost = true);
            } else if let Some(last) = self.sent.iter_mut().rev().find(|sent| !sent.is_sacked) {
                last.is_lost = true;
            }
            self.backoff += 1;
            self.arm(now);
            self.transmit(now, wire);
        }
    }

    pub(crate) fn write(&mut self, now: Timestamp, bytes: u64, wire: &mut Wire) {
        let mut bytes = bytes;
        while bytes > 0 {
            let len = bytes.min(MSS);
            match self.unsent.back_mut() {
                Some(last) if *last + len <= MSS => *last += len,
                _ => self.unsent.push_back(len),
            }
            self.unsent_bytes += len;
            bytes -= len;
        }
        self.transmit(now, wire);
    }

    fn in_flight(&self) -> usize {
        self.sent.iter().filter(|sent| !sent.is_sacked && !sent.is_lost).count()
    }

    fn transmit(&mut self, now: Timestamp, wire: &mut Wire) {
        let mut in_flight = self.in_flight();
        let had_nothing = self.sent.is_empty();
        for at in 0..self.sent.len() {
            if in_flight as f64 >= self.cwnd {
                break;
            }
            if self.sent[at].is_lost && !self.sent[at].is_sacked {
                self.order += 1;
                let sent = &mut self.sent[at];
                (sent.at, sent.order, sent.is_lost, sent.is_repeat) = (now, self.order, false, true);
                let segment = sent.segment;
                self.sent_bytes += segment.len;
                self.repeated_bytes += segment.len;
                wire.there.handle_packet(now, segment.len + HEADERS, segment);
                in_flight += 1;
            }
        }
        while (in_flight as f64) < self.cwnd
            && let Some(len) = self.unsent.pop_front()
        {
            self.unsent_bytes -= len;
            self.next_byte += len;
            self.order += 1;
            let segment = Segment { flow: self.id, number: self.next_number, end: self.next_byte, len };
            self.next_number += 1;
            self.sent_bytes += len;
            let fresh = Sent {
                segment,
                at: now,
                order: self.order,
                is_sacked: false,
                is_lost: false,
                is_repeat: false,
            };
            self.sent.push_back(fresh);
            wire.there.handle_packet(now, len + HEADERS, segment);
            in_flight += 1;
        }
        self.is_window_limited |= !self.unsent.is_empty() || in_flight as f64 >= self.cwnd;
        if had_nothing && !self.sent.is_empty() {
            self.backoff = 0;
            self.arm(now);
        }
    }

    fn arm(&mut self, now: Timestamp) {
        if self.sent.is_empty() {
            self.timer = Timestamp::MAX;
            return;
        }
        let rto = Duration::from_secs_f64(self.srtt + 4.0 * self.rttvar).max(LEAST_RTO);
        let probe = Duration::from_secs_f64(2.0 * self.srtt + 0.04).min(rto);
        let wait = if self.srtt == 0.0 { Duration::from_secs(1) } else { probe };
        let wait = if self.backoff > 0 { rto * (1 << (self.backoff - 1).min(4)) } else { wait };
        self.timer = now + wait.min(Duration::from_secs(1));
    }

    fn receive(&mut self, now: Timestamp, segment: Segment, back: &mut Link<Ack>) {
        let place = segment.number.checked_sub(self.expected);
        let in_order = place == Some(0);
        if let Some(place) = place {
            let place = place as usize;
            while self.received.len() <= place {
                self.received.push_back(None);
            }
            self.received[place] = Some(segment.end);
            while let Some(Some(end)) = self.received.front().copied() {
                self.received.pop_front();
                self.expected += 1;
                self.arrived.push_back((now, end));
            }
        }
        self.quick = self.quick.saturating_sub(1);
        let at_once = !in_order || self.held_back.is_some() || self.quick > 0 || !self.received.is_empty();
        if at_once {
            self.acknowledge(now, segment.number, back);
        } else {
            self.held_back = Some((now + DELAYED_ACK, segment.number));
        }
    }

    fn acknowledge(&mut self, now: Timestamp, latest: u64, back: &mut Link<Ack>) {
        self.held_back = None;
        back.handle_packet(now, HEADERS, Ack { flow: self.id, next: self.expected, latest });
    }

    fn acknowledged(&mut self, now: Timestamp, ack: Ack) {
        self.last_ack = now;
        let mut news = 0;
        let mut sample = None;
        for sent in &mut self.sent {
            let number = sent.segment.number;
            if (number < ack.next || number == ack.latest) && !sent.is_sacked {
                sent.is_sacked = true;
                news += 1;
                self.newest_delivered = self.newest_delivered.max(sent.order);
                if !sent.is_repeat {
                    sample = Some(now.saturating_since(sent.at));
                }
            }
        }
        while self.sent.front().is_some_and(|sent| sent.segment.number < ack.next) {
            self.acked_bytes += self.sent.pop_front().map_or(0, |sent| sent.segment.len);
        }
        if news == 0 {
            return;
        }
        self.delivered += news;
        if let Some(rtt) = sample {
            self.sample(rtt);
        }
        self.detect_losses();
        let is_recovering = self.sent.front().is_some_and(|sent| sent.segment.number < self.recovery_until);
        if !is_recovering && self.is_window_limited {
            let grown = if self.cwnd < self.ssthresh { 1.0 } else { INCREASE / self.cwnd };
            self.cwnd += grown * f64::from(news);
        }
        self.is_window_limited = false;
        self.backoff = 0;
        self.arm(now);
    }

    fn sample(&mut self, rtt: Duration) {
        let seconds = rtt.as_secs_f64();
        self.min_rtt = if self.min_rtt.is_zero() { rtt } else { self.min_rtt.min(rtt) };
        if self.srtt == 0.0 {
            (self.srtt, self.rttvar) = (seconds, seconds / 2.0);
        } else {
            self.rttvar += ((self.srtt - seconds).abs() - self.rttvar) / 4.0;
            self.srtt += (seconds - self.srtt) / 8.0;
        }
    }

    /// Three transmissions behind it have arrived (RFC 6675, with the order of RFC 8985).
    fn detect_losses(&mut self) {
        let newest = self.newest_delivered;
        let mut is_news = false;
        for sent in &mut self.sent {
            if !sent.is_sacked && !sent.is_lost && sent.order + 3 <= newest {
                sent.is_lost = true;
                is_news |= sent.segment.number >= self.recovery_until;
            }
        }
        if is_news {
            self.ssthresh = (self.cwnd * DECREASE).max(2.0);
            self.cwnd = self.ssthresh;
            self.recovery_until = self.next_number;
        }
    }

    pub(crate) fn info(&self, now: Timestamp) -> TcpInfo {
        let count = |is: fn(&Sent) -> bool| self.sent.iter().filter(|sent| is(sent)).count() as u32;
        TcpInfo {
            mss: MSS as u32,
            cwnd: self.cwnd as u32,
            unacked: self.sent.len() as u32,
            sacked: count(|sent| sent.is_sacked),
            lost: count(|sent| sent.is_lost && !sent.is_sacked),
            retrans_out: count(|sent| sent.is_repeat && !sent.is_sacked && !sent.is_lost),
            rtt: Duration::from_secs_f64(self.srtt),
            min_rtt: self.min_rtt,
            since_ack: Duration::from_millis(now.saturating_since(self.last_ack).as_millis() as u64),
            bytes_acked: self.acked_bytes + 1,
            bytes_sent: self.sent_bytes,
            bytes_retrans: self.repeated_bytes,
            unsent: self.unsent_bytes as u32,
            delivered: self.delivered,
            ..TcpInfo::default()
        }
    }
}

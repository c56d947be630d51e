//! Whatever happens, in whatever order: every content comes back exactly once, and what is in flight is the sum of
//! what has not.

use std::collections::BTreeMap;

use bolero::{TypeGenerator, check};

use super::super::*;

#[derive(Clone, Debug, TypeGenerator)]
enum Operation {
    Send { bytes: u16, eliciting: bool, ack_now: bool, app_limited: bool, skips: bool },
    Probe,
    Ack { ranges: Vec<(u8, u8)>, delay_us: u16, receiver_us: u32, ce: u8 },
    Nack { from: u8, length: u8 },
    Echo { ago_ms: u8, held_us: u16 },
    Wait { micros: u32 },
    Timeout,
    PathChange { is_tcp: bool },
    Room { bytes: u16 },
}

struct Model {
    recovery: Recovery<u64>,
    is_tcp: bool,
    now: Timestamp,
    next: u64,
    /// Sizes of what is in flight.
    open: BTreeMap<u64, u32>,
    /// Numbers that were passed over.
    never: Vec<u64>,
    lost: Vec<u64>,
    out: Outcomes<u64>,
}

impl Model {
    fn new(controller: Controller) -> Self {
        let config = RecoveryConfig { controller, ..RecoveryConfig::default() };
        Self {
            recovery: Recovery::new(&config, Timestamp::ZERO),
            is_tcp: false,
            now: Timestamp::ZERO,
            next: 0,
            open: BTreeMap::new(),
            never: Vec::new(),
            lost: Vec::new(),
            out: Outcomes::default(),
        }
    }

    fn send(&mut self, bytes: u32, eliciting: bool, ack_now: bool, app_limited: bool, mtu_probe: bool) {
        let number = self.next;
        self.next += 1;
        if eliciting {
            self.open.insert(number, bytes);
        }
        let packet = Sent { number, bytes, eliciting, ack_now, app_limited, mtu_probe, content: number };
        self.recovery.on_sent(self.now, packet);
    }

    fn apply(&mut self, operation: &Operation) {
        match operation {
            Operation::Send { bytes, eliciting, ack_now, app_limited, skips } => {
                if *skips {
                    self.never.push(self.next);
                    self.next += 1;
                }
                self.send(u32::from(*bytes), *eliciting, *ack_now, *app_limited, false);
            }
            Operation::Probe => {
                if let Some(size) = self.recovery.mtu_probe(self.now) {
                    assert!(size > self.recovery.mtu());
                    self.send(u32::from(size), true, true, false, true);
                }
            }
            Operation::Ack { ranges, delay_us, receiver_us, ce } => {
                self.ack(ranges, *delay_us, *receiver_us, *ce);
            }
            Operation::Nack { from, length } => {
                let from = self.next.saturating_sub(u64::from(*from));
                self.recovery.on_nack(self.now, &[from..=from + u64::from(*length)], &mut self.out);
            }
            Operation::Echo { ago_ms, held_us } => {
                let sent_at = self.now - Duration::from_millis(u64::from(*ago_ms));
                self.recovery.on_sync_echo(self.now, sent_at, Duration::from_micros(u64::from(*held_us)));
            }
            Operation::Wait { micros } => self.now += Duration::from_micros(u64::from(*micros % 400_000)),
            Operation::Timeout => self.timeout(),
            Operation::PathChange { is_tcp } => {
                self.recovery.on_path_change(self.now, *is_tcp, &mut self.out);
                assert!(!is_tcp || self.out.lost.len() == self.open.len());
                self.is_tcp = *is_tcp;
            }
            Operation::Room { bytes } => self.recovery.set_tcp_room(u64::from(*bytes)),
        }
        self.settle();
    }

    /// Ranges count back from the newest number, each beginning below the one before.
    fn ack(&mut self, ranges: &[(u8, u8)], delay_us: u16, receiver_us: u32, ce: u8) {
        let mut end = self.next;
        let mut list = Vec::new();
        for (gap, length) in ranges {
            let Some(last) = end.checked_sub(1 + u64::from(*gap)) else { break };
            let first = last.saturating_sub(u64::from(*length));
            list.push(first..=last);
            end = first;
        }
        let Some(largest) = list.first().map(|range| *range.end()) else { return };
        let ack = AckInfo {
            largest,
            ranges: &list,
            delay: Duration::from_micros(u64::from(delay_us)),
            receiver_time_us: receiver_us,
            ce_count: u64::from(ce),
        };
        let result = self.recovery.on_ack(self.now, &ack, &mut self.out);
        let wrong = |number: &u64| list.iter().any(|range| range.contains(number));
        match result {
            // However long ago all before it was settled.
            Ok(()) => assert!(!self.never.iter().rev().take(64).any(wrong)),
            Err(AckError::NeverSent(number)) => {
                assert!(self.never.contains(&number) && wrong(&number));
                assert!(self.out.acked.is_empty() && self.out.lost.is_empty());
            }
        }
    }

    fn timeout(&mut self) {
        let Some(at) = self.recovery.timeout() else { return };
        self.now = self.now.max(at);
        // Several timers may be due at the same instant, but each call has to do something.
        for _ in 0..TIMERS {
            if self.recovery.on_timeout(self.now, &mut self.out) {
                self.send(64, true, true, false, false);
            }
            if self.recovery.timeout().is_none_or(|next| next > self.now) {
                return;
            }
        }
        panic!("a timer that does nothing");
    }

    fn settle(&mut self) {
        for (number, content) in self.out.acked.drain(..) {
            assert_eq!(number, content);
            assert!(self.open.remove(&number).is_some(), "{number} comes back a second time");
        }
        for (number, content) in self.out.lost.drain(..) {
            assert_eq!(number, content);
            assert!(self.open.remove(&number).is_some(), "{number} comes back a second time");
            self.lost.push(number);
        }
        for number in self.out.spurious.drain(..) {
            let at = self.lost.iter().position(|&lost| lost == number);
            self.lost.remove(at.expect("it was reported as lost, and once"));
        }
        let in_flight: u64 = self.open.values().map(|&bytes| u64::from(bytes)).sum();
        let mtu = u64::from(self.recovery.mtu());
        assert_eq!(self.recovery.in_flight(), in_flight);
        assert!(self.is_tcp || self.recovery.window() >= mtu, "nothing could ever be sent");
        assert!((0.0..=1.0).contains(&self.recovery.loss()));
        let has_timer = !self.is_tcp && in_flight > 0;
        assert_eq!(self.recovery.timeout().is_some(), has_timer, "what is in flight has a timer");
        match self.recovery.allowance(self.now) {
            Allowance::Bytes(bytes) => assert!(bytes >= mtu),
            Allowance::At(at) => assert!(at > self.now),
            Allowance::Blocked => assert!(self.is_tcp || in_flight > 0),
        }
        assert!(self.recovery.burst() >= mtu);
    }
}

fn every_content_comes_back_once(controller: Controller) {
    check!().with_type::<Vec<Operation>>().for_each(|operations| {
        let mut model = Model::new(controller);
        for operation in operations {
            model.apply(operation);
        }
        // Left alone, everything comes back.
        for _ in 0..100 {
            model.timeout();
            let end = model.next.saturating_sub(1);
            model.recovery.on_nack(model.now, &[0..=end], &mut model.out);
            model.settle();
        }
        assert!(model.open.is_empty());
    });
}

#[test]
fn every_content_comes_back_once_with_fresh() {
    every_content_comes_back_once(Controller::Copa);
}

#[test]
fn every_content_comes_back_once_with_cubic() {
    every_content_comes_back_once(Controller::Cubic);
}

#[test]
fn every_content_comes_back_once_with_new_reno() {
    every_content_comes_back_once(Controller::NewReno);
}

/// More than there are timers.
const TIMERS: usize = 4;

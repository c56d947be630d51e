//! NewReno as in RFC 9002, paced: the simplest reference.

use std::time::Duration;

use freshwire_record::{Rate, Timestamp};

use super::control::{Ack, Congestion, Loss, Reaction, initial_window, paced};

/// One packet more each round trip, half as many after a loss.
#[derive(Debug)]
pub(super) struct NewReno {
    mtu: u64,
    cwnd: u64,
    ssthresh: u64,
    /// Bytes acknowledged towards the next packet of growth.
    acked: u64,
    srtt: Duration,
    reaction: Reaction,
    before: (u64, u64),
}

impl NewReno {
    pub(super) fn new(mtu: u64, initial_rtt: Duration) -> Self {
        let cwnd = initial_window(mtu);
        Self {
            mtu,
            cwnd,
            ssthresh: u64::MAX,
            acked: 0,
            srtt: initial_rtt,
            reaction: Reaction::default(),
            before: (cwnd, u64::MAX),
        }
    }

    fn reduce(&mut self, now: Timestamp, sent_at: Timestamp) {
        if self.reaction.allows(sent_at) {
            self.before = (self.cwnd, self.ssthresh);
            self.cwnd = (self.cwnd / 2).max(2 * self.mtu);
            self.ssthresh = self.cwnd;
            self.acked = 0;
            self.reaction.begin(now);
        }
    }
}

impl Congestion for NewReno {
    fn on_ack(&mut self, ack: &Ack<'_>) {
        self.srtt = ack.rtt.srtt();
        if ack.marked > 0 {
            self.reduce(ack.now, ack.newest_sent_at);
        }
        let limited = ack.in_flight_before + 2 * self.mtu >= self.cwnd;
        if !limited || !self.reaction.allows(ack.newest_sent_at) {
            return;
        }
        if self.cwnd < self.ssthresh {
            self.cwnd += ack.bytes;
            return;
        }
        self.acked += ack.bytes;
        if self.acked >= self.cwnd {
            self.acked -= self.cwnd;
            self.cwnd += self.mtu;
        }
    }

    fn on_loss(&mut self, loss: &Loss) {
        self.reduce(loss.now, loss.newest_sent_at);
        self.reaction.lost += loss.packets;
    }

    fn on_spurious(&mut self, _now: Timestamp, lost_at: Timestamp) {
        if self.reaction.all_spurious(lost_at) {
            self.cwnd = self.cwnd.max(self.before.0);
            self.ssthresh = self.before.1;
        }
    }

    fn on_outage(&mut self, now: Timestamp) {
        self.ssthresh = (self.cwnd / 2).max(2 * self.mtu);
        self.cwnd = 2 * self.mtu;
        self.reaction.begin(now);
    }

    fn set_mtu(&mut self, mtu: u64) {
        self.mtu = mtu;
        self.cwnd = self.cwnd.max(2 * mtu);
    }

    fn cwnd(&self) -> u64 {
        self.cwnd
    }

    fn pacing_rate(&self) -> Option<Rate> {
        Some(if self.cwnd < self.ssthresh {
            paced(self.cwnd, self.srtt, 2, 1)
        } else {
            paced(self.cwnd, self.srtt, 5, 4)
        })
    }
}

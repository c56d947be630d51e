//! What became of each packet: round trips, losses, congestion control, pacing.
//!
//! ```text
//!   on_sent ──► flight (what is on its way) ──on_ack, on_nack, on_timeout──► Outcomes: acked, lost, spurious
//!                 │ samples                        │ losses, ECN marks
//!                 ▼                                ▼
//!               rtt, rate ───────────────► congestion control ──► window, pacing rate ──► allowance
//! ```
//!
//! The connection asks [`Recovery::allowance`] before it builds packets, and reports each with [`Recovery::on_sent`].
//! Each packet's content is returned exactly once, as acknowledged or as lost, so that the connection can decide anew
//! what is worth sending. Nothing here reads a clock; [`Recovery::timeout`] says when [`Recovery::on_timeout`] is
//! due.
mod congestion;
mod ecn;
mod filter;
mod first;
mod flight;
mod mtu;
mod pacer;
mod rate;
mod rtt;
mod stamp;
mod types;

use std::ops::RangeInclusive;
use std::time::Duration;

use freshwire_record::{Rate, Timestamp};

use self::congestion::Congestion;
use self::ecn::Ecn;
use self::flight::{Cause, Flight, Lost, Packet, Spurious};
use self::mtu::MtuSearch;
use self::pacer::Pacer;
use self::rate::RateSampler;
use self::rtt::GRANULARITY;
pub(crate) use self::rtt::Rtt;
pub(crate) use self::types::{AckError, AckInfo, Allowance, Controller, Outcomes, RecoveryConfig, Sent};

/// The sender's memory of one path: what is in flight, how long it takes, and how much more may follow.
///
/// `C` is what the connection wants back for each packet.
#[derive(Debug)]
pub(crate) struct Recovery<C> {
    config: RecoveryConfig,
    flight: Flight<C>,
    rtt: Rtt,
    sampler: RateSampler,
    congestion: Box<dyn Congestion>,
    pacer: Pacer,
    mtu: MtuSearch,
    ecn: Ecn,
    pto: PtoState,
    loss: LossShare,
    /// Over TCP: bytes that the TCP connection takes now.
    tcp_room: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct PtoState {
    /// Probe timeouts since the last acknowledgement of something new.
    count: u32,
    /// When the last packet before the first of these left.
    since: Timestamp,
    /// How often the next one is doubled.
    doublings: u32,
    /// The next one is due at once: the peer broke its silence.
    at_once: bool,
    /// How long it took until something was acknowledged that had been given up, if nothing else was since.
    latest_answer: Duration,
    /// When the last outage ended: what left before says nothing of the losses of a path that delivers.
    outage_end: Timestamp,
    last_sent: Timestamp,
    last_wants_ack_now: bool,
}

/// Recent share of packets lost, weighted so that about the last 128 packets count.
#[derive(Debug)]
struct LossShare {
    share: f64,
    /// Mean length of a run of losses, of which about the last 16 count.
    run: f64,
}

impl Default for LossShare {
    fn default() -> Self {
        Self { share: 0.0, run: 1.0 }
    }
}

impl LossShare {
    fn count(&mut self, acked: usize, lost: usize) {
        for (packets, fate) in [(acked, 0.0), (lost, 1.0)] {
            let keep = (1.0 - 1.0 / 128.0_f64).powi(i32::try_from(packets).unwrap_or(i32::MAX));
            self.share = fate + (self.share - fate) * keep;
        }
    }

    fn count_runs(&mut self, packets: usize, runs: usize) {
        if runs > 0 {
            let mean = packets as f64 / runs as f64;
            let keep = (1.0 - 1.0 / 16.0_f64).powi(i32::try_from(runs).unwrap_or(i32::MAX));
            self.run = mean + (self.run - mean) * keep;
        }
    }
}

impl<C> Recovery<C> {
    /// A path of which nothing is known.
    pub(crate) fn new(config: &RecoveryConfig, now: Timestamp) -> Self {
        let mtu = search(config, config.is_tcp, now);
        Self {
            flight: Flight::new(),
            rtt: Rtt::new(config.initial_rtt),
            sampler: RateSampler::new(now),
            congestion: congestion::build(config.controller, u64::from(mtu.current()), config.initial_rtt),
            pacer: Pacer::new(now),
            ecn: Ecn::new(config.ecn && !config.is_tcp),
            mtu,
            pto: PtoState::default(),
            loss: LossShare::default(),
            tcp_room: config.is_tcp.then_some(0),
            config: config.clone(),
        }
    }

    /// A packet leaves. Numbers ascend; those that are passed over were never sent, and acknowledging one of them is
    /// an error. The content of a packet that elicits no acknowledgement is dropped here and never returned.
    pub(crate) fn on_sent(&mut self, now: Timestamp, packet: Sent<C>) {
        self.ecn.on_sent();
        if !packet.eliciting {
            self.flight.pass(packet.number);
            return;
        }
        self.pto.last_sent = now;
        self.pto.last_wants_ack_now = packet.ack_now;
        if packet.mtu_probe {
            self.mtu.on_sent(packet.number);
        } else {
            let size = u64::from(self.packet_size());
            self.pacer.on_sent(now, u64::from(packet.bytes), size, &*self.congestion);
        }
        if let Some(room) = &mut self.tcp_room {
            *room = room.saturating_sub(u64::from(packet.bytes));
        }
        let stamp = self.sampler.on_sent(now, self.flight.bytes() == 0);
        let bytes = packet.bytes;
        self.flight.insert(
            packet.number,
            Packet {
                sent_at: now,
                bytes,
                stamp,
                mtu_probe: packet.mtu_probe,
                ecn: self.ecn.enabled(),
                content: packet.content,
            },
        );
        if packet.app_limited {
            self.on_app_limited();
        }
    }

    /// There was room, and nothing to send: what is in flight says nothing of the path's rate.
    pub(crate) fn on_app_limited(&mut self) {
        if self.flight.bytes() < self.window() {
            self.sampler.on_app_limited(self.flight.bytes());
        }
    }

    /// The peer has these packets. Contents of what was acknowledged, and of what is now known to be lost, are pushed
    /// to `out`. With an error nothing has changed: the peer acknowledges what was never sent.
    pub(crate) fn on_ack(
        &mut self,
        now: Timestamp,
        ack: &AckInfo<'_>,
        out: &mut Outcomes<C>,
    ) -> Result<(), AckError> {
        let in_flight_before = self.flight.bytes();
        let acked = self.flight.ack(ack.ranges, out)?;
        for spurious in &acked.spurious {
            out.spurious.push(spurious.number);
            if self.flight.is_of_path(spurious.number) {
                self.loss.count(1, 0);
                self.congestion.on_spurious(now, spurious.lost_at);
            }
            self.sampler.on_late_delivery(now, u64::from(spurious.bytes));
        }
        let Some(newest) = acked.newest else {
            if let Some(late) = acked.spurious.iter().max_by_key(|late| late.number) {
                self.on_late_answer(now, late);
            }
            return Ok(());
        };
        self.on_answer(now);
        self.pto.at_once = false;
        self.pto.latest_answer = Duration::ZERO;
        self.loss.count(acked.packets, 0);
        let same_path = self.flight.is_of_path(newest.number);
        let mut queue = None;
        if same_path && newest.number == ack.largest {
            let sample = now.saturating_since(newest.sent_at);
            self.rtt.on_sample(now, sample, ack.delay.min(self.config.max_ack_delay));
            let full_size = 2 * newest.bytes >= u32::from(self.mtu.current());
            queue = self.rtt.on_receiver_time(now, newest.sent_at, ack.receiver_time_us, full_size);
        }
        self.mtu.on_acked(now, &acked, newest.sent_at);
        self.congestion.set_mtu(u64::from(self.mtu.current()));
        let receiver_us = (newest.number == ack.largest).then_some(ack.receiver_time_us);
        let sample = self.sampler.on_acked(now, &newest, acked.bytes, receiver_us, self.rtt.min(), same_path);
        self.declare_late(now, out);
        let marked = self.ecn.on_ack(ack.largest, ack.ce_count, acked.ecn_packets);
        if same_path {
            self.congestion.on_ack(&congestion::Ack {
                now,
                bytes: acked.bytes,
                in_flight_before,
                #[cfg(test)]
                in_flight: self.flight.bytes(),
                newest_sent_at: newest.sent_at,
                marked,
                sample,
                rate: self.sampler.measured(),
                queue,
                rtt: &self.rtt,
            });
        }
        Ok(())
    }

    /// The oldest packet that was declared lost and may still be acknowledged.
    pub(crate) fn oldest_lost(&self) -> Option<u64> {
        self.flight.oldest_lost()
    }

    /// The path delivers.
    fn on_answer(&mut self, now: Timestamp) {
        if self.is_outage() {
            self.pto.outage_end = now;
        }
        self.pto.count = 0;
        self.pto.doublings = 0;
    }

    /// Nothing was acknowledged but what had been given up. Should the path be slower than it was thought to be, the next
    /// packets must not be given up as early, and so on for ever. Should it have been away, that is no round trip.
    fn on_late_answer(&mut self, now: Timestamp, late: &Spurious) {
        self.on_answer(now);
        self.pto.latest_answer = self.pto.latest_answer.max(now.saturating_since(late.sent_at));
    }

    /// The peer judges these packets missing. Numbers that were never sent or are settled already do nothing.
    pub(crate) fn on_nack(&mut self, now: Timestamp, ranges: &[RangeInclusive<u64>], out: &mut Outcomes<C>) {
        let mut lost = Lost::default();
        for range in ranges {
            self.flight.lose_range(now, range, out, &mut lost);
        }
        self.on_lost(now, &lost, Cause::Missing);
    }

    /// The peer answers a SYNC that left at `sent_at` and was held for `held`: an explicit round-trip time.
    pub(crate) fn on_sync_echo(&mut self, now: Timestamp, sent_at: Timestamp, held: Duration) {
        self.rtt.on_sample(now, now.saturating_since(sent_at), held);
    }

    /// Nothing of what was sent is acknowledged any more: only a trickle leaves.
    #[must_use]
    pub(crate) fn is_outage(&self) -> bool {
        self.pto.count >= OUTAGE_PTOS
    }

    /// A packet of the peer came, the first for this long. In an outage that is the sign that the path may be
    /// back, if it was silent until then. The next probe is due at once, and the one after it as if all
    /// before had been answered.
    //= spec/a1.md A1-LOSS-3
    pub(crate) fn on_heard(&mut self, silence: Duration) {
        if self.is_outage() && silence >= self.backed_off_pto() / 2 {
            self.pto.doublings = 0;
            self.pto.at_once = true;
        }
    }

    /// When [`Recovery::on_timeout`] is due: a packet counts as lost by time, or a probe has to be sent.
    #[must_use]
    pub(crate) fn timeout(&self) -> Option<Timestamp> {
        // TCP repairs its losses itself.
        if self.tcp_room.is_some() {
            return None;
        }
        let late = self.flight.late_at(self.rtt.loss_delay());
        let in_flight = self.flight.bytes() > 0;
        let probe = in_flight.then(|| self.probe_at());
        [late, probe].into_iter().flatten().min()
    }

    /// Does what is due. With `true` the connection sends a probe: a small packet that elicits an acknowledgement at
    /// once, whatever [`Recovery::allowance`] says. From the second probe in a row on, everything older than a probe
    /// timeout is handed back as lost.
    //= spec/a1.md A1-LOSS-3
    #[must_use]
    pub(crate) fn on_timeout(&mut self, now: Timestamp, out: &mut Outcomes<C>) -> bool {
        if self.flight.late_at(self.rtt.loss_delay()).is_some_and(|at| at <= now) {
            self.declare_late(now, out);
            return false;
        }
        if self.flight.bytes() == 0 || now < self.probe_at() {
            return false;
        }
        self.pto.at_once = false;
        if self.pto.count == 0 {
            self.pto.since = self.pto.last_sent;
        }
        self.pto.count = self.pto.count.saturating_add(1);
        self.pto.doublings = self.pto.doublings.saturating_add(1);
        // Until the probe has left, the next timeout is counted from here.
        self.pto.last_sent = now;
        if self.is_outage() {
            let mut lost = Lost::default();
            self.flight.lose_sent_before(now, now - self.pto(), out, &mut lost);
            self.on_lost(now, &lost, Cause::Outage);
        }
        true
    }

    /// How much may leave now. Acknowledgements alone, probes of [`Recovery::on_timeout`] and MTU probes need no
    /// allowance.
    //= spec/a1.md A1-CC-1
    #[must_use]
    pub(crate) fn allowance(&mut self, now: Timestamp) -> Allowance {
        // Where datagrams may be much larger than what leaves at a time, nothing waits until one is full.
        let size = u64::from(self.packet_size());
        if let Some(room) = self.tcp_room {
            let is_full = room == 0 || self.flight.span() >= self.config.max_packets;
            return if is_full { Allowance::Blocked } else { Allowance::Bytes(room.max(size)) };
        }
        // A probe may be larger than the whole window: data does not wait for its answer then.
        let in_flight = match self.mtu.under_way() {
            probe if probe >= self.window() => self.flight.bytes().saturating_sub(probe),
            _ => self.flight.bytes(),
        };
        let room = self.window().saturating_sub(in_flight);
        if room < size || self.flight.span() >= self.config.max_packets {
            return Allowance::Blocked;
        }
        match self.pacer.allowance(now, size, &*self.congestion) {
            Allowance::Bytes(bytes) => Allowance::Bytes(bytes.min(room)),
            wait => wait,
        }
    }

    /// What the path delivers when there is enough to send, in UDP payload; `None` before the first sample. In the first round of a
    /// connection it is what packets that come one after the other show, as soon as there are some.
    #[must_use]
    pub(crate) fn rate(&self) -> Option<Rate> {
        self.sampler.rate()
    }

    /// Whether [`Recovery::rate`] is more than what the first round of a connection shows.
    #[must_use]
    pub(crate) fn is_rate_settled(&self) -> bool {
        self.sampler.is_settled()
    }

    /// Round trips, and the queue on the way there.
    #[must_use]
    pub(crate) fn rtt(&self) -> &Rtt {
        &self.rtt
    }

    /// UDP payload that is neither acknowledged nor lost, in bytes.
    #[must_use]
    pub(crate) fn in_flight(&self) -> u64 {
        self.flight.bytes()
    }

    /// Recent share of packets lost, 0 to 1.
    #[must_use]
    pub(crate) fn loss(&self) -> f64 {
        self.loss.share
    }

    /// How many packets are lost in a row, as a mean of the recent losses; 1 or more.
    #[must_use]
    pub(crate) fn loss_run(&self) -> f64 {
        self.loss.run
    }

    /// Bytes that may leave back to back: one packet at low rates, up to 64 KiB at high ones.
    #[must_use]
    pub(crate) fn burst(&self) -> u64 {
        if let Some(room) = self.tcp_room {
            return room.max(self.mtu.current().into());
        }
        self.pacer.burst(u64::from(self.mtu.current()), &*self.congestion)
    }

    /// One packet in this number is to be acknowledged at once. A receiver works least if it acknowledges on
    /// request: a few times for each window.
    #[must_use]
    pub(crate) fn packets_per_ack(&self) -> u64 {
        (self.window() / u64::from(self.mtu()).max(1) / 4).clamp(1, 16)
    }

    /// Largest UDP payload of a packet: the largest that is known to pass, unless that alone would take
    /// longer than a burst may. The chosen size of a packet is committed.
    #[must_use]
    pub(crate) fn packet_size(&self) -> u16 {
        let mtu = self.mtu.current();
        let quantum = self.pacer.quantum(&*self.congestion);
        mtu.min(u16::try_from(quantum).unwrap_or(u16::MAX).max(SMALL))
    }

    /// Largest UDP payload known to pass, in bytes.
    #[must_use]
    pub(crate) fn mtu(&self) -> u16 {
        self.mtu.current()
    }

    /// The size of an MTU probe to send now, if one is due: a packet padded to exactly this UDP payload, reported with
    /// `mtu_probe` set. Its loss is no sign of congestion.
    #[must_use]
    pub(crate) fn mtu_probe(&self, now: Timestamp) -> Option<u16> {
        if self.pto.count > 0 { None } else { self.mtu.probe(now) }
    }

    /// Whether packets carry ECT(0).
    #[must_use]
    pub(crate) fn ecn(&self) -> bool {
        self.ecn.enabled()
    }

    /// The connection moved to another address: round trips, rate, window and MTU are learnt anew. Packets in
    /// flight stay so, and tell nothing about the new path. If that is a TCP connection, all that was in flight counts as lost: this
    /// end or the peer has given the former path up.
    //= spec/a1.md A1-PATH-3, A1-TCP-3
    pub(crate) fn on_path_change(&mut self, now: Timestamp, is_tcp: bool, out: &mut Outcomes<C>) {
        let config = &self.config;
        self.mtu = search(config, is_tcp, now);
        self.rtt = Rtt::new(config.initial_rtt);
        self.sampler.on_path_change(now);
        self.congestion =
            congestion::build(config.controller, u64::from(self.mtu.current()), config.initial_rtt);
        self.pacer = Pacer::new(now);
        self.ecn.on_path_change(config.ecn && !is_tcp);
        self.pto =
            PtoState { count: 0, doublings: 0, at_once: false, latest_answer: Duration::ZERO, ..self.pto };
        self.loss = LossShare::default();
        self.flight.begin_path();
        self.tcp_room = is_tcp.then_some(0);
        if is_tcp {
            let mut lost = Lost::default();
            self.flight.lose_sent_before(now, now, out, &mut lost);
            self.on_lost(now, &lost, Cause::Outage);
        }
    }

    /// The TCP connection takes this number of bytes now. Without effect over UDP.
    pub(crate) fn set_tcp_room(&mut self, bytes: u64) {
        if let Some(room) = &mut self.tcp_room {
            *room = bytes;
        }
    }

    /// When the packet left that was the last one before nothing was acknowledged any more; `None` if the path delivers. Two probe
    /// timeouts have passed since.
    #[must_use]
    pub(crate) fn unanswered_since(&self) -> Option<Timestamp> {
        self.is_outage().then_some(self.pto.since)
    }

    /// What may be in flight, in bytes. During an outage only a trickle leaves, so that contents are not spent on a path that
    /// delivers nothing.
    //= spec/a1.md A1-LOSS-4
    #[must_use]
    pub(crate) fn window(&self) -> u64 {
        if let Some(room) = self.tcp_room {
            return self.flight.bytes().saturating_add(room);
        }
        if self.is_outage() { 2 * u64::from(self.mtu.current()) } else { self.congestion.cwnd() }
    }

    /// From now on this number of bytes may be in flight, whatever happens, and leave without pacing.
    #[cfg(test)]
    pub(crate) fn fix_window(&mut self, bytes: u64) {
        self.congestion = Box::new(tests::fixed::Fixed(bytes));
    }

    /// Probe timeout, without back-off.
    //= spec/a1.md A1-RTT-2
    #[must_use]
    pub(crate) fn pto(&self) -> Duration {
        let ack_delay = if self.pto.last_wants_ack_now { Duration::ZERO } else { self.config.max_ack_delay };
        let usual = self.rtt.srtt() + (4 * self.rtt.rttvar()).max(GRANULARITY) + ack_delay;
        usual.max(self.pto.latest_answer.min(MAX_BACKOFF))
    }

    fn probe_at(&self) -> Timestamp {
        if self.pto.at_once { self.pto.last_sent } else { self.pto.last_sent + self.backed_off_pto() }
    }

    fn backed_off_pto(&self) -> Duration {
        let pto = self.pto();
        pto.saturating_mul(1 << self.pto.doublings.min(16)).min(pto.max(MAX_BACKOFF))
    }

    fn declare_late(&mut self, now: Timestamp, out: &mut Outcomes<C>) {
        let mut lost = Lost::default();
        self.flight.lose_late(now, self.rtt.loss_delay(), out, &mut lost);
        self.on_lost(now, &lost, Cause::Missing);
    }

    fn on_lost(&mut self, now: Timestamp, lost: &Lost, cause: Cause) {
        // What an outage has held back may come at its end.
        let remembered = if self.is_outage() { Timestamp::ZERO } else { now - 4 * self.pto() };
        self.flight.forget_lost(remembered);
        self.mtu.on_lost(now, lost);
        self.ecn.on_lost(lost.ecn_packets);
        if cause == Cause::Missing {
            let is_counted = |&&(_, sent_at): &&(u32, Timestamp)| sent_at >= self.pto.outage_end;
            let counted = lost.sizes.iter().filter(is_counted).count();
            self.loss.count(0, counted);
            self.loss.count_runs(counted, lost.runs.min(counted));
        }
        self.sampler.on_lost(lost.bytes + lost.bytes_elsewhere);
        let Some(sent_at) = lost.newest_sent_at else { return };
        match cause {
            Cause::Outage => self.congestion.on_outage(now),
            Cause::Missing => self.congestion.on_loss(&congestion::Loss {
                now,
                packets: lost.packets as u64,
                runs: lost.runs as u64,
                newest_sent_at: sent_at,
            }),
        }
    }
}

/// The search for the largest packets of a path. Over TCP there is nothing to find.
fn search(config: &RecoveryConfig, is_tcp: bool, now: Timestamp) -> MtuSearch {
    let most = config.max_mtu;
    let (base, most) =
        if is_tcp { (TCP_PACKET.min(most), TCP_PACKET.min(most)) } else { (config.base_mtu, most) };
    MtuSearch::new(base, most, now)
}

/// Bytes of a full packet over TCP: with its length it fills the segment of an Ethernet that has timestamps (1448).
const TCP_PACKET: u16 = 1446;
/// Packets of up to this many bytes, an Ethernet's, are not made smaller.
const SMALL: u16 = 1472;
/// A probe goes out at least this often while something is unacknowledged, unless a round trip takes longer
/// (A1-LOSS-3).
const MAX_BACKOFF: Duration = Duration::from_millis(500);
/// This number of unanswered probe timeouts in a row is an outage (A1-LOSS-3).
const OUTAGE_PTOS: u32 = 2;

#[cfg(test)]
mod tests;

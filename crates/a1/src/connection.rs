//! One connection: blocks out and in, with a choice at each transmission and each retransmission.
//!
//! ```text
//!  Source ──list, take──► Outbox ──blocks──► packets ──► datagrams        Inbox ◄──blocks── packets ◄── datagrams
//!                           ▲ choice            │ ▲                         │
//!                           └──── lost, acked ──┘ └── allowance ── Recovery ◄── ACK, NACK, SYNC echo
//! ```

mod clock;
mod groups;
mod multicast;
mod path;
mod quality;
mod receive;
mod skips;
mod sync;
mod transmit;

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use freshwire_choice::{Choice, LinkView, Reason};
use freshwire_record::{Rate, Timestamp};

use crate::acks::Acks;
use crate::config::ConnectionConfig;
use crate::crypto::{Keys, Protection, Random, ReplayWindow, ResetToken};
use crate::inbox::{Inbox, Message, Missing};
use crate::outbox::{Abandoned, Dropped, Outbox, Part};
use crate::pool::Pool;
use crate::recovery::{Outcomes, Recovery, RecoveryConfig};
use crate::remote::Remote;
use crate::source::Source;
use crate::violation::Violation;
use crate::window::first_window;
use crate::wire::{Parameters, Qos, QosError};

pub(crate) use clock::Clock;
use groups::{ControlFrame, Groups, Repair};
use path::Path;
use quality::Quality;
use skips::Skips;
use sync::Syncs;
pub use transmit::Transmit;
pub(crate) use transmit::describe;

/// What the application gets to know of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A message can be taken, or a report of a missing one.
    Readable,
    /// The peer wants another quality of service.
    QosPending,
    /// The quality of service is another one from now on.
    QosChanged,
    /// The peer is reached at another address from now on, or over TCP instead of UDP.
    Migrated(Remote),
    /// The peer has made this end a member of a multicast group: packets that come to the address are for the endpoint.
    Invited {
        /// The number that packets of the group carry.
        group: u32,
        /// Where they come.
        address: SocketAddr,
    },
    /// A member of a group misses packets: [`crate::Group::repair`] is asked to send them again.
    GroupMissing {
        /// The group's number.
        group: u32,
        /// Numbers of packets.
        missing: Vec<RangeInclusive<u64>>,
    },
    /// The connection has ended.
    Closed(Closed),
}

/// How a connection ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Closed {
    /// This end closed it.
    #[error("closed by this end")]
    Local,
    /// The peer closed it, with a code and a text of its own.
    #[error("closed by the peer: {reason} (code {code})")]
    Peer {
        /// The code; 0 is a normal end.
        code: u64,
        /// For people.
        reason: String,
    },
    /// Nothing came for too long.
    #[error("the peer was silent for too long")]
    Silent,
    /// The peer broke the protocol.
    #[error("the peer broke the protocol: {0}")]
    Violation(Violation),
    /// The peer has reported, with proof of its identity, that it no longer knows the connection. Its process was
    /// restarted with the same key, or has forgotten the connection without closing it.
    #[error("the peer has restarted and does not know the connection any more")]
    PeerRestarted,
    /// The keys can protect no more packets.
    #[error("the keys are used up")]
    KeysExhausted,
}

/// What a connection has done so far. Bytes are UDP payload unless said otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectionStats {
    /// Packets sent.
    pub packets_sent: u64,
    /// Bytes sent.
    pub bytes_sent: u64,
    /// Packets that came and opened.
    pub packets_received: u64,
    /// Bytes of them.
    pub bytes_received: u64,
    /// Packets declared lost.
    pub packets_lost: u64,
    /// Packets declared lost that had arrived after all.
    pub spurious_losses: u64,
    /// Bytes of messages sent for the first time.
    pub payload_sent: u64,
    /// Bytes of messages sent again.
    pub payload_resent: u64,
    /// Bytes of parity sent.
    pub parity_sent: u64,
    /// Messages completed by parity.
    pub messages_made_whole: u64,
    /// Packets that did not open, or came twice.
    pub packets_refused: u64,
    /// Complete messages received.
    pub messages_received: u64,
    /// Blocks of multicast groups that the peer missed, asked for and is sent.
    pub repairs_sent: u64,
    /// Packets of multicast groups that came by way of their addresses.
    pub group_packets_received: u64,
    /// Blocks of multicast groups that this end missed and got over this connection.
    pub repairs_received: u64,
}

/// What the handshake leaves to the connection.
pub(crate) struct Setup {
    /// The begin of this end's time.
    pub(crate) epoch: Timestamp,
    pub(crate) remote: Remote,
    /// The peer's number for the connection.
    pub(crate) peer_id: u32,
    pub(crate) keys: Keys,
    pub(crate) local: Parameters,
    pub(crate) peer: Parameters,
    /// What both ends agree to, as this end sees it.
    pub(crate) qos: Qos,
    /// This end began the handshake.
    pub(crate) is_initiator: bool,
    pub(crate) config: ConnectionConfig,
    pub(crate) seed: [u8; 32],
    pub(crate) pool: Pool,
}

/// What a packet carried, to be sent again or forgotten when its fate is known.
#[derive(Clone, Debug, Default)]
pub(crate) struct Contents {
    parts: Vec<Part>,
    uncommon: Option<Box<UncommonFrames>>,
    /// More waited behind it: how fast it is delivered says something of the path.
    busy: bool,
    /// Bytes of it, if it left although the window was full.
    over_window_bytes: u32,
    /// The largest packet of the peer that an ACK in it acknowledged.
    acknowledged: Option<u64>,
    credit: bool,
    qos: bool,
    qos_ack: bool,
}

/// What most packets do not carry.
#[derive(Clone, Debug, Default)]
struct UncommonFrames {
    gone: Vec<Abandoned>,
    dropped: Vec<Dropped>,
    control: Vec<ControlFrame>,
    whole: Vec<u64>,
    repairs: Vec<Repair>,
}

impl Contents {
    fn uncommon(&mut self) -> &mut UncommonFrames {
        self.uncommon.get_or_insert_default()
    }

    /// Whether its loss should show soon. Nobody waits for messages that were never started.
    fn has_news(&self) -> bool {
        let is_news = |uncommon: &UncommonFrames| {
            let UncommonFrames { gone, control, whole, repairs, dropped: _ } = uncommon;
            !(gone.is_empty() && control.is_empty() && whole.is_empty() && repairs.is_empty())
        };
        !self.parts.is_empty() || self.uncommon.as_deref().is_some_and(is_news)
    }
}

enum State {
    Open,
    /// A CLOSE was sent, and is sent again for whatever comes until then.
    Closing {
        until: Timestamp,
        code: u64,
        reason: String,
        to_send: bool,
    },
    Ended,
}

/// A connection after its handshake. Its [`Source`] is the caller's.
pub struct Connection {
    config: ConnectionConfig,
    state: State,
    clock: Clock,
    keys: Keys,
    replay: ReplayWindow,
    next_number: u64,
    skips: Skips,
    recovery: Recovery<Contents>,
    outcomes: Outcomes<Contents>,
    /// Blocks of packets that were declared lost, as long as these may still be acknowledged.
    lost_parts: BTreeMap<u64, Vec<Part>>,
    acks: Acks,
    outbox: Outbox,
    inbox: Inbox,
    quality: Quality,
    syncs: Syncs,
    path: Path,
    groups: Groups,
    /// By what the peer ends the connection when it has forgotten it.
    reset: Option<ResetToken>,
    credit_to_send: bool,
    /// Messages that parity made whole, to be reported to the sender.
    whole_pending: Vec<u64>,
    /// Bytes in flight of packets that left although the window was full.
    over_window_bytes: u64,
    /// Announcements of messages that will not come, in packets that are not settled.
    gone_in_flight: usize,
    /// Packets that may go although the window is full: after a timeout they say soonest whether the path is back.
    probes: u8,
    /// When something was acknowledged behind which more waited, and that had waited on the path: then the path's rate
    /// shows, and not the source's.
    busy_at: Option<Timestamp>,
    idle_timeout: Duration,
    heard_at: Timestamp,
    sent_at: Timestamp,
    /// When the pacer, the bucket or the window lets data go again.
    blocked_until: Option<Timestamp>,
    /// The congestion window was full when data wanted to go last.
    is_window_shut: bool,
    events: VecDeque<Event>,
    stats: ConnectionStats,
}

impl Connection {
    pub(crate) fn new(now: Timestamp, setup: Setup) -> Self {
        let Setup { epoch, remote, peer_id, mut keys, local, peer, qos, is_initiator, config, seed, pool } =
            setup;
        keys.set_checksum(qos.checksum);
        let mut random = Random::from_seed(seed);
        let recovery = RecoveryConfig {
            controller: config.congestion.into(),
            max_ack_delay: peer.ack_delay,
            max_mtu: config.largest_datagram().min(peer.max_datagram),
            ecn: config.ecn,
            is_tcp: remote.is_tcp,
            ..RecoveryConfig::default()
        };
        let credit = first_window(&qos.mirrored());
        Self {
            state: State::Open,
            clock: Clock::new(epoch),
            keys,
            replay: ReplayWindow::new(),
            next_number: 0,
            skips: Skips::new(random.bytes()),
            recovery: Recovery::new(&recovery, now),
            outcomes: Outcomes::default(),
            lost_parts: BTreeMap::new(),
            acks: Acks::new(local.ack_delay),
            outbox: Outbox::new(Box::new(freshwire_choice::fifo()), credit),
            inbox: Inbox::new(&qos, config.in_order, pool),
            quality: Quality::new(now, local.maximum, &peer.maximum, qos, is_initiator),
            syncs: Syncs::new(now),
            path: Path::new(remote, peer_id, random.bytes()),
            groups: Groups::default(),
            reset: peer.reset,
            credit_to_send: false,
            whole_pending: Vec::new(),
            over_window_bytes: 0,
            gone_in_flight: 0,
            probes: 0,
            busy_at: None,
            idle_timeout: local.idle_timeout.min(peer.idle_timeout),
            heard_at: now,
            sent_at: now,
            blocked_until: None,
            is_window_shut: false,
            events: VecDeque::new(),
            stats: ConnectionStats::default(),
            config,
        }
    }

    /// Sets what decides at each transmission. Without it messages go in order and nothing is dropped.
    pub fn set_policy(&mut self, choice: Box<dyn Choice>) {
        self.outbox.set_choice(choice);
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// The next message that came whole, as old as it is at `now`. Taking it opens the window for another one.
    pub fn recv(&mut self, now: Timestamp) -> Option<Message> {
        let (round_trip, peer_us) = (self.recovery.rtt().srtt(), self.clock.peer_micros(now));
        let message = self.inbox.pop(now, round_trip, peer_us);
        self.credit_to_send |= self.inbox.credit_due();
        message.or_else(|| self.groups.pop(now, round_trip, peer_us))
    }

    /// Whether a grown window is to be announced to the peer.
    pub(crate) fn has_credit_to_say(&self) -> bool {
        self.credit_to_send
    }

    /// The next report of messages that will not come, of the connection or of a group.
    pub fn poll_missing(&mut self) -> Option<Missing> {
        self.inbox.pop_missing().or_else(|| self.groups.pop_missing())
    }

    /// The quality of service as it is.
    pub fn qos(&self) -> &Qos {
        self.quality.current()
    }

    /// How packets are protected, which the ends have agreed on.
    pub fn protection(&self) -> Protection {
        self.keys.protection()
    }

    /// The most that [`Connection::set_qos`] takes: of each value the smaller one of the maxima of both ends.
    pub fn maximum(&self) -> &Qos {
        self.quality.common()
    }

    /// Asks the peer for another quality of service. Until it has answered the change is pending.
    ///
    /// # Errors
    ///
    /// If `qos` is out of range or exceeds [`maximum`](Self::maximum), another change is pending, or the connection has ended.
    pub fn set_qos(&mut self, qos: Qos) -> Result<(), QosError> {
        if !matches!(self.state, State::Open) {
            return Err(QosError::Ended);
        }
        self.quality.propose(qos)
    }

    /// Whether a change of the quality of service is under way.
    pub fn is_qos_pending(&self) -> bool {
        self.quality.is_pending()
    }

    /// Protects packets with new keys from now on. It happens by itself after some millions of packets. False: the peer has
    /// not confirmed the present ones yet.
    pub fn update_keys(&mut self) -> bool {
        self.keys.update().is_ok()
    }

    /// How many more messages the receiver takes, as far as their number goes. As opposed to
    /// [`Connection::is_window_full`] it is known also while the path lets nothing go.
    pub fn credit(&self) -> u64 {
        self.outbox.credit()
    }

    /// Whether a message waits for which the receiver has no room.
    pub fn is_window_full(&self) -> bool {
        self.outbox.is_window_full()
    }

    /// Whether data waits for the agreed rate.
    pub fn is_rate_exceeded(&self) -> bool {
        self.quality.is_exceeded()
    }

    /// Whether every started message has been acknowledged or given up.
    pub fn is_settled(&self) -> bool {
        self.outbox.is_settled()
    }

    /// Whether nothing of the source is left to send, now or later. Every message in progress is settled, the
    /// peer knows which messages will not come, and the policy names nothing more. The answer holds right
    /// after [`Connection::poll_transmit`] gave nothing.
    //= spec/a1.md A1-MSG-3
    pub fn is_idle(&self) -> bool {
        let waits = self.is_window_shut || self.blocked_until.or(self.outbox.ask_again_at()).is_some();
        let is_reported = self.gone_in_flight == 0 && !self.outbox.has_gone();
        self.outbox.is_settled() && is_reported && !waits && !self.outbox.is_window_full()
    }

    /// Where the peer is.
    pub fn remote(&self) -> Remote {
        self.path.remote()
    }

    /// Whether a TCP connection carries its packets.
    pub fn is_over_tcp(&self) -> bool {
        self.path.remote().is_tcp
    }

    /// Over TCP: how many bytes the TCP connection takes now, which replaces the congestion window. To be called before
    /// [`Endpoint::poll_transmit`](crate::Endpoint::poll_transmit). Without effect over UDP.
    //= spec/a1.md A1-TCP-4
    pub fn set_tcp_room(&mut self, bytes: u64) {
        self.recovery.set_tcp_room(bytes);
    }

    /// When the packet left, over UDP, that was the last one before nothing was acknowledged any more. Two probe timeouts have passed
    /// since. `None`: the path delivers, or another way to the peer is being tried.
    pub fn unanswered_since(&self) -> Option<Timestamp> {
        let is_open = matches!(self.state, State::Open) && !self.path.is_trying();
        self.recovery.unanswered_since().filter(|_| is_open)
    }

    pub(crate) fn attempt(&mut self, now: Timestamp, remote: Remote) {
        self.path.attempt(now, remote);
    }

    /// What it has done so far.
    pub fn stats(&self) -> ConnectionStats {
        self.stats
    }

    /// Whether messages are delivered in sending order.
    pub fn is_in_order(&self) -> bool {
        self.config.in_order
    }

    /// The state of the path, in payload rather than in datagrams.
    pub fn link(&self, now: Timestamp) -> LinkView {
        let recovery = &self.recovery;
        let is_known = self.busy_at.is_some_and(|at| now.saturating_since(at) < RATE_KEEPS);
        let mtu = u64::from(recovery.mtu()).max(1);
        let payload = mtu.saturating_sub(self.room_taken() as u64);
        let scale = |bytes: u64| match bytes.checked_mul(payload) {
            Some(product) => product / mtu,
            None => u64::try_from(u128::from(bytes) * u128::from(payload) / u128::from(mtu)).unwrap_or(0),
        };
        let in_payload = |rate: Rate| Rate::from_bits_per_sec(scale(rate.bits_per_sec()));
        let (agreed, credit) = self.quality.credit(now).unzip();
        let credit = credit.unwrap_or(0);
        LinkView {
            rate: recovery.rate().filter(|_| is_known).map(in_payload),
            rtt: recovery.rtt().srtt(),
            min_rtt: recovery.rtt().min(),
            in_flight: scale(recovery.in_flight()),
            unsent: 0,
            loss: recovery.loss(),
            acked_at: None,
            agreed: agreed.map(in_payload),
            credit: i64::try_from(scale(credit.unsigned_abs())).unwrap_or(i64::MAX) * credit.signum(),
        }
    }

    /// Ends the connection, and sends the code (0 is a normal end) and the text to the peer. Messages that are not
    /// settled are given up.
    pub fn close(&mut self, now: Timestamp, code: u64, reason: &str) {
        self.end(now, code, reason, Closed::Local);
    }

    /// Whether it has ended and nothing is left to say: it can be forgotten.
    pub fn is_ended(&self) -> bool {
        matches!(self.state, State::Ended)
    }

    /// When [`Connection::handle_timeout`] is to be called.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        match &self.state {
            State::Ended => None,
            State::Closing { until, .. } => Some(*until),
            State::Open => {
                let keep_alive = self.config.keep_alive.map(|after| self.heard_at.max(self.sent_at) + after);
                [
                    Some(self.heard_at + self.idle_timeout),
                    self.recovery.timeout(),
                    self.acks.timeout(),
                    self.outbox.ask_again_at(),
                    self.syncs.timeout(self.recovery.in_flight() > 0),
                    self.blocked_until,
                    self.path.timeout(self.proof_len()),
                    self.groups.timeout(),
                    self.quality.timeout(),
                    keep_alive,
                ]
                .into_iter()
                .flatten()
                .min()
            }
        }
    }

    /// A time that [`Connection::poll_timeout`] named has come; [`Connection::poll_transmit`] follows.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        match &self.state {
            State::Ended => {}
            State::Closing { until, .. } => {
                if *until <= now {
                    self.state = State::Ended;
                }
            }
            State::Open => self.handle_open_timeout(now),
        }
    }

    //= spec/a1.md A1-LOSS-4, A1-END-2
    fn handle_open_timeout(&mut self, now: Timestamp) {
        if self.heard_at + self.idle_timeout <= now {
            self.events.push_back(Event::Closed(Closed::Silent));
            self.finish();
            return;
        }
        if self.recovery.timeout().is_some_and(|at| at <= now) {
            if self.recovery.on_timeout(now, &mut self.outcomes) {
                self.syncs.probe();
                self.probes = PROBES;
            }
            self.settle_outcomes(now);
        }
        if self.config.keep_alive.is_some_and(|after| self.heard_at.max(self.sent_at) + after <= now) {
            self.syncs.probe();
        }
        self.path.on_timeout(now);
        self.quality.on_timeout(now);
    }

    /// Bytes of a packet that are not frames.
    fn room_taken(&self) -> usize {
        crate::wire::DATA_HEADER + self.keys.overhead()
    }

    /// Bytes of a packet with a challenge of an address, or with the answer.
    fn proof_len(&self) -> u64 {
        (self.room_taken() + PROOF) as u64
    }

    /// Nothing of what is sent is acknowledged any more, and the probe that is to show the end of that is on its way or goes
    /// next.
    fn is_outage(&self) -> bool {
        self.recovery.is_outage() && (self.syncs.is_probing() || self.recovery.in_flight() > 0)
    }

    fn settle_outcomes(&mut self, now: Timestamp) {
        let rtt = self.recovery.rtt();
        let shows_queue = rtt.standing_queue() >= QUEUE_SHOWS.max(rtt.min() / 16);
        // An ACK names the newest first, and messages are settled fastest in the order in which they were
        // started.
        for (number, contents) in self.outcomes.acked.drain(..).rev() {
            self.keys.on_acknowledged(number);
            self.over_window_bytes -= u64::from(contents.over_window_bytes);
            self.gone_in_flight -= contents.uncommon.as_ref().map_or(0, |uncommon| uncommon.gone.len());
            if contents.busy && shows_queue {
                self.busy_at = Some(now);
            }
            for part in &contents.parts {
                self.outbox.on_acked(part);
            }
            if let Some(largest) = contents.acknowledged {
                self.acks.forget_below(largest);
            }
        }
        for (number, contents) in self.outcomes.lost.drain(..) {
            self.stats.packets_lost += 1;
            self.over_window_bytes -= u64::from(contents.over_window_bytes);
            for part in &contents.parts {
                self.outbox.on_lost(part);
            }
            if !contents.parts.is_empty() {
                self.lost_parts.insert(number, contents.parts);
            }
            let uncommon = contents.uncommon.map(|uncommon| *uncommon).unwrap_or_default();
            self.gone_in_flight -= uncommon.gone.len();
            for gone in uncommon.gone {
                self.outbox.announce_again(gone);
            }
            for dropped in uncommon.dropped {
                self.outbox.announce_dropped_again(dropped);
            }
            for control in uncommon.control {
                self.groups.requeue(control);
            }
            for repair in uncommon.repairs {
                self.groups.repair_again(repair);
            }
            self.whole_pending.extend(uncommon.whole);
            self.credit_to_send |= contents.credit;
            self.quality.on_lost(contents.qos, contents.qos_ack);
        }
        // A peer that has all of it may close, and then acknowledges no repetition.
        //= spec/a1.md A1-ACK-6
        self.stats.spurious_losses += self.outcomes.spurious.len() as u64;
        for number in self.outcomes.spurious.drain(..) {
            for part in self.lost_parts.remove(&number).iter().flatten() {
                self.outbox.on_acked(part);
            }
        }
        let oldest = self.recovery.oldest_lost().unwrap_or(u64::MAX);
        while let Some(parts) = self.lost_parts.first_entry().filter(|parts| *parts.key() < oldest) {
            parts.remove();
        }
    }

    //= spec/a1.md A1-END-1
    fn end(&mut self, now: Timestamp, code: u64, reason: &str, closed: Closed) {
        if !matches!(self.state, State::Open) {
            return;
        }
        self.events.push_back(Event::Closed(closed));
        self.outbox.end(Reason::ConnectionLost);
        let until = now + self.recovery.pto() * 3;
        self.state = State::Closing { until, code, reason: reason.to_owned(), to_send: true };
    }

    /// The number that the peer has for the connection.
    pub(crate) fn peer_id(&self) -> u32 {
        self.path.peer_id()
    }

    /// Somebody says that the peer does not know the connection any more. False: it is not the peer, and nothing changes.
    pub(crate) fn on_reset(&mut self, token: &ResetToken) -> bool {
        if self.reset.as_ref() != Some(token) {
            return false;
        }
        if matches!(self.state, State::Open) {
            self.events.push_back(Event::Closed(Closed::PeerRestarted));
        }
        self.finish();
        true
    }

    fn finish(&mut self) {
        self.outbox.end(Reason::ConnectionLost);
        self.state = State::Ended;
    }

    /// Hands records that are settled back to their source. Called by [`Connection::poll_transmit`] too.
    pub fn settle(&mut self, now: Timestamp, source: &mut dyn Source) {
        self.outbox.settle(now, source);
    }
}

/// PATH_CHALLENGE and PATH_RESPONSE: type and token.
const PROOF: usize = 1 + 8;

/// Packets that are sent at a probe timeout, as RFC 9002 permits (section 6.2.4).
const PROBES: u8 = 2;

/// A longer wait on the path is a queue, if it is also more than a small part of the round trip. Chosen, not
/// measured.
const QUEUE_SHOWS: Duration = Duration::from_millis(2);

/// Time for which a rate is believed that nothing has confirmed. Without an end, too low a rate would keep
/// anything from being sent that could correct it. Chosen, not measured.
const RATE_KEEPS: Duration = Duration::from_secs(2);

#[cfg(test)]
pub(crate) mod tests;

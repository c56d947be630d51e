//! One direction of a path, with what the model of a link leaves out: packets that overtake each other, come twice or
//! damaged, and routers that mark.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use freshwire_link::{Config, Counters, Direction, Link};
use freshwire_record::Timestamp;

use crate::rng::Rng;

/// How one direction of a path behaves. The default is a link without limits.
#[derive(Clone, Debug, Default)]
pub struct DirectionConfig {
    /// Rate, delay, queue and loss.
    pub link: Config,
    /// Packets that are held up behind the link, so that others overtake them.
    pub reorder: Option<Reorder>,
    /// Packets that come more than once.
    pub duplicate: Option<Duplicate>,
    /// Share of packets that come with one wrong bit.
    pub damage: f64,
    /// Bytes in the queue from which on packets are marked that may be (ECN).
    pub mark_above: Option<u64>,
}

/// Packets that are held up.
#[derive(Clone, Copy, Debug)]
pub struct Reorder {
    /// Share of them.
    pub share: f64,
    /// For how long at most; all times up to it are equally likely.
    pub by: Duration,
}

/// Packets that come more than once.
#[derive(Clone, Copy, Debug)]
pub struct Duplicate {
    /// Share of them.
    pub share: f64,
    /// How often they come besides the first time.
    pub copies: u32,
    /// Within which time after the first.
    pub within: Duration,
}

/// A datagram on its way.
#[derive(Clone, Debug)]
pub(crate) struct Packet {
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
    pub(crate) marked: bool,
    pub(crate) sent: Timestamp,
    pub(crate) bytes: Vec<u8>,
}

/// What a direction has done to datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DirectionStats {
    /// What the link counts.
    pub link: Counters,
    /// Datagrams that were held up.
    pub reordered: u64,
    /// Copies that came besides.
    pub copies: u64,
    /// Datagrams with a wrong bit.
    pub damaged: u64,
    /// Datagrams that were marked.
    pub marked: u64,
    /// The longest that a datagram was on its way.
    pub slowest: Duration,
    /// 95 of 100 datagrams waited for the transmitter no longer than this.
    pub wait_p95: Duration,
}

pub(crate) struct Pipe {
    config: DirectionConfig,
    link: Link<Packet>,
    /// Behind the link, by the time of their arrival.
    arriving: BTreeMap<(Timestamp, u64), Packet>,
    next_place: u64,
    rng: Rng,
    stats: DirectionStats,
    waits: Vec<Duration>,
}

impl Pipe {
    pub(crate) fn new(config: DirectionConfig, direction: Direction, start: Timestamp, rng: Rng) -> Self {
        Self {
            link: Link::new(config.link.clone(), direction, start),
            config,
            arriving: BTreeMap::new(),
            next_place: 0,
            rng,
            stats: DirectionStats::default(),
            waits: Vec::new(),
        }
    }

    pub(crate) fn send(&mut self, now: Timestamp, ecn: bool, mut packet: Packet) {
        let queued = self.link.queued_bytes(now);
        packet.marked = ecn && self.config.mark_above.is_some_and(|limit| queued > limit);
        self.stats.marked += u64::from(packet.marked);
        let bytes = packet.bytes.len() as u64 + HEADERS;
        let _ = self.link.handle_packet(now, bytes, packet);
    }

    pub(crate) fn timeout(&self) -> Option<Timestamp> {
        let arrival = self.arriving.first_key_value().map(|((at, _), _)| *at);
        [arrival, self.link.poll_timeout()].into_iter().flatten().min()
    }

    /// The next datagram that has arrived.
    pub(crate) fn receive(&mut self, now: Timestamp) -> Option<Packet> {
        while let Some(delivery) = self.link.poll_transmit(now) {
            let packet = delivery.packet;
            let serialised = delivery.at - self.config.link.delay();
            self.waits.push(serialised.saturating_since(packet.sent));
            self.spread(delivery.at, packet);
        }
        let entry = self.arriving.first_entry().filter(|entry| entry.key().0 <= now)?;
        let packet = entry.remove();
        self.stats.slowest = self.stats.slowest.max(now.saturating_since(packet.sent));
        Some(packet)
    }

    pub(crate) fn counters(&self) -> Counters {
        self.link.counters()
    }

    pub(crate) fn queued_bytes(&mut self, now: Timestamp) -> u64 {
        self.link.queued_bytes(now)
    }

    pub(crate) fn stats(&self) -> DirectionStats {
        let mut waits = self.waits.clone();
        waits.sort_unstable();
        let wait_p95 = waits.get(waits.len() * 95 / 100).copied().unwrap_or_default();
        DirectionStats { link: self.link.counters(), wait_p95, ..self.stats }
    }

    /// A datagram leaves the link.
    fn spread(&mut self, at: Timestamp, mut packet: Packet) {
        let Self { config, rng, stats, .. } = self;
        if let Some(duplicate) = config.duplicate.filter(|duplicate| rng.chance(duplicate.share)) {
            stats.copies += u64::from(duplicate.copies);
            for _ in 0..duplicate.copies {
                let later = at + self.rng.time(duplicate.within);
                self.arrive(later, packet.clone());
            }
        }
        let Self { config, rng, stats, .. } = self;
        if rng.chance(config.damage) && !packet.bytes.is_empty() {
            stats.damaged += 1;
            let bit = rng.below(packet.bytes.len() as u64 * 8);
            packet.bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
        }
        let mut at = at;
        if let Some(reorder) = config.reorder.filter(|reorder| rng.chance(reorder.share)) {
            stats.reordered += 1;
            at += rng.time(reorder.by);
        }
        self.arrive(at, packet);
    }

    fn arrive(&mut self, at: Timestamp, packet: Packet) {
        self.arriving.insert((at, self.next_place), packet);
        self.next_place += 1;
    }
}

/// Bytes of IP and UDP around each datagram.
const HEADERS: u64 = 28;

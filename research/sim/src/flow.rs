//! One connection after the other between two nodes, and what its applications do.

use std::time::Duration;

use freshwire_a1::{Closed, ConnectionConfig, ConnectionHandle, Message, Protection, Qos};
use freshwire_choice::Choice;
use freshwire_record::Timestamp;

use crate::feed::Feed;
use crate::offer::{Generator, SourceConfig};
use crate::rng::Rng;

/// An end of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The one that begins the connection.
    Near = 0,
    /// The one that accepts it.
    Far = 1,
}

impl Side {
    /// Both, the near one first.
    pub const BOTH: [Self; 2] = [Self::Near, Self::Far];

    /// The other one.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::Near => Self::Far,
            Self::Far => Self::Near,
        }
    }
}

/// What a flow is like.
#[derive(Clone, Debug)]
pub struct FlowConfig {
    /// How the near end's connection behaves.
    pub near: ConnectionConfig,
    /// How the far end's does.
    pub far: ConnectionConfig,
    /// The quality of service, as the near end sees it.
    pub qos: Qos,
    /// What protects it.
    pub protection: Protection,
    /// What chooses at both ends.
    pub policy: PolicyKind,
    /// What the ends offer, with when they begin and end, in the order of [`Side::BOTH`].
    pub offers: [Option<(SourceConfig, Timestamp, Timestamp)>; 2],
}

impl Default for FlowConfig {
    /// A connection of default quality over which nothing is sent by itself.
    fn default() -> Self {
        Self {
            near: ConnectionConfig::default(),
            far: ConnectionConfig::default(),
            qos: Qos::default(),
            protection: Protection::Aead,
            policy: PolicyKind::Fifo,
            offers: [None, None],
        }
    }
}

/// A ready-made policy of [`freshwire_choice`], by its name there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyKind {
    /// Everything, in order.
    #[default]
    Fifo,
    /// In order, without what has expired.
    Expiring,
    /// In order, without what has expired or will be late.
    Deadline,
    /// Lower layers first.
    Layered,
    /// The newest of each key.
    Latest,
    /// Whole pictures on time.
    Frames,
    /// The same for live pictures.
    Live,
}

impl PolicyKind {
    /// A new policy of this kind.
    pub fn make(self) -> Box<dyn Choice> {
        match self {
            Self::Fifo => Box::new(freshwire_choice::fifo()),
            Self::Expiring => Box::new(freshwire_choice::expiring()),
            Self::Deadline => Box::new(freshwire_choice::deadline(Duration::ZERO)),
            Self::Layered => Box::new(freshwire_choice::layered(Duration::ZERO)),
            Self::Latest => Box::new(freshwire_choice::latest()),
            Self::Frames => Box::new(freshwire_choice::frames()),
            Self::Live => Box::new(freshwire_choice::live()),
        }
    }
}

/// A flow, with what became of it.
pub struct Flow {
    pub(crate) config: FlowConfig,
    nodes: [usize; 2],
    ends: [End; 2],
}

#[derive(Default)]
struct End {
    handle: Option<ConnectionHandle>,
    /// Connections that this end has had, and when the last one began.
    connections: u32,
    started: Timestamp,
    connected: Vec<Timestamp>,
    slowest_handshake: Duration,
    feed: Feed,
    generator: Option<Generator>,
    /// The application leaves messages where they are.
    stalled: bool,
    closed: Vec<(Timestamp, Closed)>,
    missing: u64,
}

impl Flow {
    pub(crate) fn new(nodes: [usize; 2], config: FlowConfig, mut rng: Rng) -> Self {
        let mut end = |offer: Option<(SourceConfig, Timestamp, Timestamp)>| End {
            generator: offer
                .map(|(offer, start, end)| Generator::new(offer, start, end, Rng::new(rng.next(), 0))),
            ..End::default()
        };
        let ends = config.offers.map(&mut end);
        Self { config, nodes, ends }
    }

    /// What an end sends.
    pub fn feed(&self, side: Side) -> &Feed {
        &self.ends[side as usize].feed
    }

    /// When connections of this end stood.
    pub fn connected_at(&self, side: Side) -> &[Timestamp] {
        &self.ends[side as usize].connected
    }

    /// Time of the slowest handshake of those that the near end has started.
    pub fn slowest_handshake(&self) -> Duration {
        self.ends[Side::Near as usize].slowest_handshake
    }

    /// How and when connections of this end were closed.
    pub fn closings(&self, side: Side) -> &[(Timestamp, Closed)] {
        &self.ends[side as usize].closed
    }

    /// Reports of missing messages that this end got.
    pub fn missing(&self, side: Side) -> u64 {
        self.ends[side as usize].missing
    }

    pub(crate) fn feed_mut(&mut self, side: Side) -> &mut Feed {
        &mut self.ends[side as usize].feed
    }

    pub(crate) fn node(&self, side: Side) -> usize {
        self.nodes[side as usize]
    }

    pub(crate) fn handle(&self, side: Side) -> Option<ConnectionHandle> {
        self.ends[side as usize].handle
    }

    /// Starts a connection. Records that the former one had taken are queued again.
    pub(crate) fn begin(&mut self, now: Timestamp, side: Side, handle: ConnectionHandle) {
        let end = &mut self.ends[side as usize];
        end.feed.connection_lost(now);
        end.handle = Some(handle);
        end.connections += 1;
        end.started = now;
    }

    pub(crate) fn connected(&mut self, now: Timestamp, side: Side) {
        let end = &mut self.ends[side as usize];
        end.connected.push(now);
        end.slowest_handshake = end.slowest_handshake.max(now.saturating_since(end.started));
    }

    pub(crate) fn closed(&mut self, now: Timestamp, side: Side, closed: Closed) {
        self.ends[side as usize].closed.push((now, closed));
    }

    pub(crate) fn count_missing(&mut self, side: Side) {
        self.ends[side as usize].missing += 1;
    }

    pub(crate) fn connection_lost(&mut self, now: Timestamp, side: Side) {
        let end = &mut self.ends[side as usize];
        end.handle = None;
        end.feed.connection_lost(now);
    }

    pub(crate) fn received(&mut self, now: Timestamp, side: Side, message: &Message) {
        let Self { ends, .. } = self;
        let connection = ends[side as usize].connections;
        ends[side.other() as usize].feed.arrived(now, message, connection);
    }

    pub(crate) fn consume(&mut self, side: Side, consumes: bool) {
        let end = &mut self.ends[side as usize];
        end.stalled = !consumes;
    }

    pub(crate) fn consumes(&self, side: Side) -> bool {
        !self.ends[side as usize].stalled
    }

    pub(crate) fn next_offer(&self) -> Option<Timestamp> {
        self.ends.iter().filter_map(|end| end.generator.as_ref()?.next_at()).min()
    }

    /// Queues what is due; whether there was something.
    pub(crate) fn offer(&mut self, now: Timestamp, side: Side) -> bool {
        let End { generator, feed, .. } = &mut self.ends[side as usize];
        generator.as_mut().is_some_and(|generator| generator.fill(now, feed))
    }

    pub(crate) fn stop_offers(&mut self) {
        for end in &mut self.ends {
            end.generator = None;
        }
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.ends.iter().all(|end| end.feed.is_settled())
    }
}

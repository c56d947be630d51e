//! The answers to `/api/streams` and `/api/values` of the internal address, as JSON: an array of [`StreamReport`], and one of [`TopicReport`].
//! `freshwire top` reads them.

use std::collections::BTreeMap;
use std::time::Duration;

use freshwire::stats::PathRate;
use serde::{Deserialize, Serialize};

use crate::brokers::{BrokerSnapshot, BrokerState};
use crate::hub::{Fit, RenditionSnapshot, SourceSnapshot, SourceState, StreamSnapshot, ViewerSnapshot};
use crate::targets::{TargetSnapshot, TargetState};
use crate::values::{TopicSnapshot, WatcherSnapshot};

/// Counters of a stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StreamReport {
    /// Its name.
    pub name: String,
    /// Where it comes from; none while nobody publishes.
    pub origin: Option<String>,
    /// The server that it is read from while somebody views it, if it has such a source.
    #[serde(default)]
    pub source: Option<SourceReport>,
    /// Units published.
    pub units: u64,
    /// Payload bytes published.
    pub bytes: u64,
    /// Keyframes published.
    pub keys: u64,
    /// Bytes of its arena.
    pub arena_bytes: u64,
    /// Bytes of the arena in use.
    pub arena_used_bytes: u64,
    /// Its renditions.
    #[serde(default)]
    pub renditions: Vec<RenditionReport>,
    /// The rate that would fit its viewers; none while nothing is known of any of their paths.
    pub fit: Option<FitReport>,
    /// Its viewers, each target that it is published to among them.
    pub viewers: Vec<ViewerReport>,
    /// Servers that it is published to.
    #[serde(default)]
    pub targets: Vec<TargetReport>,
}

/// A server that a stream is read from on demand.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SourceReport {
    /// Its address, without a token.
    pub address: String,
    /// `connecting`, `resting` while nobody views, `reading`, or `retrying` after a failure.
    pub state: String,
    /// Why its connection failed, while it is retried.
    pub reason: Option<String>,
}

/// A server that a stream is published to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TargetReport {
    /// Its address, without the key.
    pub address: String,
    /// `waiting` for a source, `connecting`, `announced` to a relay that does not ask for it, `publishing`, or `retrying` after a failure.
    pub state: String,
    /// Why its connection failed, while it is retried.
    pub reason: Option<String>,
    /// For how long it has been in this state, in seconds.
    pub since_s: f64,
    /// The number of the viewer that it is, while it gets the stream.
    pub viewer: Option<u64>,
    /// By how much its newest unit is older than the newest one of the source, in milliseconds.
    pub behind_ms: Option<f64>,
    /// The rate of its path: what an encoder may use, framing and sound included.
    pub carries: Option<RateReport>,
    /// Connections on which it took the stream.
    pub connections: u64,
    /// Connections that failed or broke.
    pub failures: u64,
}

/// One of a stream's renditions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RenditionReport {
    /// Its name; `main` is what is published under the stream's own.
    pub name: String,
    /// Where it comes from; none while nobody publishes it.
    pub origin: Option<String>,
    /// Why viewers do not get it although somebody publishes it.
    pub refused: Option<String>,
    /// Viewers can have it now.
    pub present: bool,
    /// Width and height of its pictures in samples.
    pub size: Option<(u32, u32)>,
    /// The average rate that it needs of a path, in bits a second; none before a whole group was seen.
    pub rate_bps: Option<u64>,
    /// Bytes of a keyframe.
    pub key_bytes: Option<u64>,
    /// Time from one keyframe to the next, in seconds.
    pub key_interval_s: Option<f64>,
}

/// The rates that would fit the viewers of a stream, see [`Fit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FitReport {
    /// The rate of the slowest path.
    pub slowest: RateReport,
    /// The rate of the median path.
    pub median: RateReport,
    /// The rate of the fastest path.
    pub fastest: RateReport,
}

/// The rate of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RateReport {
    /// Bits per second.
    pub bps: u64,
    /// The path has shown no limit in the last ten seconds: this is what it was given, and it may carry more.
    pub at_least: bool,
}

/// Counters of a viewer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ViewerReport {
    /// Its number, unique in the server's life.
    pub id: u64,
    /// By which protocol.
    pub protocol: String,
    /// Its address and port.
    pub peer: String,
    /// The user's name, if one was required.
    pub user: Option<String>,
    /// For how long it has been served, in seconds.
    pub age_s: f64,
    /// How old a unit may be when it arrives, in milliseconds, if it asked for that.
    pub latency_ms: Option<f64>,
    /// Video units offered, by layer.
    pub offered: [u64; 8],
    /// Video units whose sending has started, by layer.
    pub sent: [u64; 8],
    /// Units that could not even be queued.
    pub missed: u64,
    /// The rendition that it gets; none before the first picture.
    #[serde(default)]
    pub rendition: Option<String>,
    /// The one whose next keyframe it waits for, if that is another one.
    #[serde(default)]
    pub wanted: Option<String>,
    /// Why it has the one, or wants the other: `start`, `carries` (the path has shown that it does), `slow`, `late`, `gone`.
    #[serde(default)]
    pub why: String,
    /// How often its rendition has changed.
    #[serde(default)]
    pub rendition_changes: u16,
    /// Units dropped, by reason.
    pub drops: BTreeMap<String, u64>,
    /// The path of its connection.
    pub path: PathReport,
}

/// The path of a viewer's connection.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PathReport {
    /// Bytes handed to TCP, framing included.
    pub bytes: u64,
    /// Acknowledged part of these.
    pub acked_bytes: u64,
    /// Part of `bytes` that was sent by reference, without a copy.
    #[serde(default)]
    pub bytes_by_reference: u64,
    /// Estimated rate in bits per second while something was on the way; none before the first estimate.
    pub rate_bps: Option<u64>,
    /// Its rate; none in the first seconds.
    pub carries: Option<RateReport>,
    /// Smoothed round trip in milliseconds.
    pub rtt_ms: f64,
    /// Packets sent again over UDP because the player requested them.
    #[serde(default)]
    pub repaired_packets: u64,
    /// Requests for packets that were refused because their picture could be of no use any more.
    #[serde(default)]
    pub late_repairs: u64,
    /// Bytes committed and not on the wire after the last write.
    pub horizon_bytes: u64,
    /// The largest such number.
    pub horizon_max_bytes: u64,
    /// Mean age of a unit at its commit point, in milliseconds.
    pub age_at_commit_mean_ms: f64,
    /// Largest age of a unit at its commit point, in milliseconds.
    pub age_at_commit_max_ms: f64,
}

/// A stream of values by key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TopicReport {
    /// Its name.
    pub name: String,
    /// Keys that have a value.
    pub keys: u64,
    /// Values set and keys deleted.
    pub changes: u64,
    /// Publishers over WebSocket.
    pub publishers: u64,
    /// Bytes of the newest values.
    pub bytes: u64,
    /// Bytes of its arena in use.
    pub arena_used_bytes: u64,
    /// Its readers.
    pub watchers: Vec<WatcherReport>,
    /// The broker that its values come from, if they come from one.
    #[serde(default)]
    pub broker: Option<BrokerReport>,
}

/// The broker of a stream of values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BrokerReport {
    /// Its address, without user and password.
    pub address: String,
    /// `connecting`, `subscribed`, or `retrying` after a failure.
    pub state: String,
    /// The protocol, while it is subscribed.
    pub protocol: Option<String>,
    /// Why its connection failed, while it is retried.
    pub reason: Option<String>,
    /// For how long it has been in this state, in seconds.
    pub since_s: f64,
    /// Connections on which it took the subscription.
    pub connections: u64,
    /// Connections that failed or broke.
    pub failures: u64,
    /// Messages received.
    pub received: u64,
    /// Messages that a newer one of their key replaced before readers were offered them.
    pub superseded: u64,
    /// Keys whose newest message waits to be offered to readers.
    pub waiting: u64,
    /// The largest such number.
    pub most_waiting: u64,
    /// Messages that did not become values, by reason, see [`Refusal::name`](crate::brokers::Refusal::name).
    pub refused: BTreeMap<String, u64>,
    /// Values that clients sent to the broker.
    pub published: u64,
}

/// Counters of a reader of values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WatcherReport {
    /// Its number, unique in the stream's life.
    pub id: u64,
    /// By which protocol.
    pub protocol: String,
    /// Its address and port.
    pub peer: String,
    /// For how long it has been served, in seconds.
    pub age_s: f64,
    /// How old a value may be when it arrives, in milliseconds, if it asked for that.
    pub within_ms: Option<f64>,
    /// Values whose sending has started.
    pub sent: u64,
    /// Values dropped for newer ones of their key, or as too old.
    pub dropped: u64,
    /// Keys whose newest value found no room yet.
    pub waiting_keys: u64,
    /// Why it is held back, see [`HoldReason::name`](crate::values::HoldReason::name); none while its values leave at once.
    #[serde(default)]
    pub held_by: Option<String>,
    /// For how long it has been held back for what it has not read, in seconds; none if it is not.
    #[serde(default)]
    pub held_unread_s: Option<f64>,
    /// How often that happened.
    #[serde(default)]
    pub times_held_unread: u64,
    /// Bytes that it has not read, as of the last look, where that is known.
    #[serde(default)]
    pub unread_bytes: Option<u64>,
    /// The path of its connection.
    pub path: PathReport,
}

impl From<&TopicSnapshot> for TopicReport {
    fn from(topic: &TopicSnapshot) -> Self {
        Self {
            name: topic.name.clone(),
            keys: topic.keys as u64,
            changes: topic.changes,
            publishers: topic.publishers as u64,
            bytes: topic.bytes as u64,
            arena_used_bytes: topic.arena_used as u64,
            watchers: topic.watchers.iter().map(WatcherReport::from).collect(),
            broker: None,
        }
    }
}

impl TopicReport {
    /// The report with the broker of the stream.
    pub fn with_broker(mut self, broker: Option<&BrokerSnapshot>) -> Self {
        self.broker = broker.map(BrokerReport::from);
        self
    }
}

impl From<&BrokerSnapshot> for BrokerReport {
    fn from(broker: &BrokerSnapshot) -> Self {
        let (mut protocol, mut reason) = (None, None);
        match &broker.state {
            BrokerState::Subscribed { protocol: spoken } => protocol = Some((*spoken).to_owned()),
            BrokerState::Retrying { reason: why } => reason = Some(why.clone()),
            BrokerState::Connecting => {}
        }
        Self {
            address: broker.address.clone(),
            state: broker.state.name().to_owned(),
            protocol,
            reason,
            since_s: broker.since.as_secs_f64(),
            connections: broker.connections,
            failures: broker.failures,
            received: broker.received,
            superseded: broker.superseded,
            waiting: broker.waiting as u64,
            most_waiting: broker.most_waiting as u64,
            refused: broker
                .refused
                .iter()
                .map(|(reason, count)| (reason.name().to_owned(), *count))
                .collect(),
            published: broker.published,
        }
    }
}

impl From<&WatcherSnapshot> for WatcherReport {
    fn from(watcher: &WatcherSnapshot) -> Self {
        Self {
            id: watcher.id,
            protocol: watcher.protocol.to_owned(),
            peer: watcher.peer.to_string(),
            age_s: watcher.age.as_secs_f64(),
            within_ms: watcher.within.map(millis),
            sent: watcher.sink.committed_by_layer.iter().sum(),
            dropped: watcher.dropped,
            waiting_keys: watcher.waiting_keys as u64,
            held_by: watcher.held_by.map(|held| held.name().to_owned()),
            held_unread_s: watcher.held_unread.map(|held| held.as_secs_f64()),
            times_held_unread: watcher.sink.times_held_unread,
            unread_bytes: watcher.sink.unread,
            path: PathReport::from(&watcher.sink),
        }
    }
}

impl From<&StreamSnapshot> for StreamReport {
    fn from(stream: &StreamSnapshot) -> Self {
        Self {
            name: stream.name.clone(),
            origin: stream.origin.clone(),
            source: stream.source.as_ref().map(SourceReport::from),
            units: stream.units,
            bytes: stream.bytes,
            keys: stream.keys,
            arena_bytes: stream.arena_bytes,
            arena_used_bytes: stream.arena_used,
            renditions: stream.renditions.iter().map(RenditionReport::from).collect(),
            fit: stream.fit().map(FitReport::from),
            viewers: stream.viewers.iter().map(ViewerReport::from).collect(),
            targets: Vec::new(),
        }
    }
}

impl From<&SourceSnapshot> for SourceReport {
    fn from(source: &SourceSnapshot) -> Self {
        let reason = match &source.state {
            SourceState::Retrying { reason } => Some(reason.clone()),
            _ => None,
        };
        Self { address: source.address.clone(), state: source.state.name().to_owned(), reason }
    }
}

impl StreamReport {
    /// The report with the stream's targets.
    pub fn with_targets(mut self, targets: &[TargetSnapshot]) -> Self {
        self.targets = targets.iter().map(|target| TargetReport::new(target, &self.viewers)).collect();
        self
    }
}

impl TargetReport {
    fn new(target: &TargetSnapshot, viewers: &[ViewerReport]) -> Self {
        let viewer = match target.state {
            TargetState::Publishing { viewer } => Some(viewer),
            _ => None,
        };
        let reason = match &target.state {
            TargetState::Retrying { reason } => Some(reason.clone()),
            _ => None,
        };
        let path = viewers.iter().find(|other| Some(other.id) == viewer).map(|viewer| &viewer.path);
        Self {
            address: target.address.clone(),
            state: target.state.name().to_owned(),
            reason,
            since_s: target.since.as_secs_f64(),
            viewer,
            behind_ms: target.behind.map(millis),
            carries: path.and_then(|path| path.carries),
            connections: target.connections,
            failures: target.failures,
        }
    }
}

impl From<&RenditionSnapshot> for RenditionReport {
    fn from(rendition: &RenditionSnapshot) -> Self {
        Self {
            name: rendition.name.clone(),
            origin: rendition.origin.clone(),
            refused: rendition.refused.clone(),
            present: rendition.is_present,
            size: rendition.size,
            rate_bps: rendition.cost.map(|cost| cost.bytes_per_sec.saturating_mul(8)),
            key_bytes: rendition.cost.map(|cost| cost.key_bytes),
            key_interval_s: rendition.cost.map(|cost| cost.key_interval.as_secs_f64()),
        }
    }
}

impl From<Fit> for FitReport {
    fn from(fit: Fit) -> Self {
        let Fit { slowest, median, fastest } = fit;
        Self { slowest: slowest.into(), median: median.into(), fastest: fastest.into() }
    }
}

impl From<PathRate> for RateReport {
    fn from(path: PathRate) -> Self {
        Self { bps: path.rate.bits_per_sec(), at_least: path.at_least }
    }
}

impl From<&ViewerSnapshot> for ViewerReport {
    fn from(viewer: &ViewerSnapshot) -> Self {
        Self {
            id: viewer.id,
            protocol: viewer.protocol.to_owned(),
            peer: viewer.peer.to_string(),
            user: viewer.user.clone(),
            age_s: viewer.age.as_secs_f64(),
            latency_ms: viewer.latency.map(millis),
            offered: viewer.offered,
            sent: viewer.sink.committed_by_layer,
            missed: viewer.missed,
            rendition: viewer.rendition.clone(),
            wanted: viewer.wanted.clone(),
            why: viewer.why.to_owned(),
            rendition_changes: viewer.changes,
            drops: viewer.sink.drops.iter().map(|(reason, count)| (reason.to_string(), *count)).collect(),
            path: PathReport::from(&viewer.sink),
        }
    }
}

impl From<&freshwire::stats::SinkSnapshot> for PathReport {
    fn from(sink: &freshwire::stats::SinkSnapshot) -> Self {
        Self {
            bytes: sink.bytes,
            acked_bytes: sink.acked,
            bytes_by_reference: sink.bytes_by_reference,
            rate_bps: sink.rate.map(freshwire_record::Rate::bits_per_sec),
            carries: sink.path.map(RateReport::from),
            rtt_ms: millis(sink.rtt),
            repaired_packets: sink.repaired,
            late_repairs: sink.late_repairs,
            horizon_bytes: sink.horizon,
            horizon_max_bytes: sink.horizon_max,
            age_at_commit_mean_ms: millis(sink.age_at_commit_mean),
            age_at_commit_max_ms: millis(sink.age_at_commit_max),
        }
    }
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

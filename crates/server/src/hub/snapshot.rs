//! Counts and state of a stream, its renditions and its viewers at one moment.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use freshwire::choice::Cost;
use freshwire::stats::{LAYERS, SinkSnapshot};

/// Counters of a stream.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StreamSnapshot {
    /// Its name.
    pub name: String,
    /// Where it comes from, `None` while nobody publishes.
    pub origin: Option<String>,
    /// The server that it is read from while somebody views it, if it has such a source.
    pub source: Option<SourceSnapshot>,
    /// When the newest unit came.
    pub fed: Option<Instant>,
    /// Units published.
    pub units: u64,
    /// Payload bytes published.
    pub bytes: u64,
    /// Keyframes published.
    pub keys: u64,
    /// Units that found no room in the arena; nobody got them.
    pub lost: u64,
    /// How often an encoder of its ladder failed and was started again.
    pub encoder_failures: u64,
    /// How many of these were ended because they hung.
    pub encoder_hangs: u64,
    /// Bytes of the arena.
    pub arena_bytes: u64,
    /// Bytes of the arena in use, those of finished units that were not collected yet among them.
    pub arena_used: u64,
    /// Its renditions; one, if nobody has published others.
    pub renditions: Vec<RenditionSnapshot>,
    /// Words of the shared memory that somebody wrote who may not, as far as the publishing side has met them and put them
    /// right.
    pub ring_faults: u64,
    /// Viewers that were given up because their rings gave nothing although their paths were free.
    pub given_up: u64,
    /// Its viewers.
    pub viewers: Vec<ViewerSnapshot>,
}

/// A server that a stream is read from on demand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceSnapshot {
    /// Its address, without a token.
    pub address: String,
    /// What the connection does.
    pub state: SourceState,
}

/// What the connection to the source of a stream does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceState {
    /// It is being established.
    Connecting,
    /// Nobody views the stream, so nothing is read.
    Resting,
    /// The stream is read.
    Reading,
    /// It failed, and is tried again after a pause.
    Retrying {
        /// Why it failed.
        reason: String,
    },
}

impl SourceState {
    /// `connecting`, `resting`, `reading` or `retrying`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Resting => "resting",
            Self::Reading => "reading",
            Self::Retrying { .. } => "retrying",
        }
    }
}

/// One of a stream's renditions.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RenditionSnapshot {
    /// Its name; `main` is what is published under the stream's own.
    pub name: String,
    /// Where it comes from, `None` while nobody publishes it.
    pub origin: Option<String>,
    /// Why viewers do not get it although somebody publishes it.
    pub refused: Option<String>,
    /// Viewers can have it now.
    pub is_present: bool,
    /// Width and height of its pictures in samples, once they are known.
    pub size: Option<(u32, u32)>,
    /// The rate that it needs of a path, once a whole group was seen.
    pub cost: Option<Cost>,
}

/// Counters of a viewer.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ViewerSnapshot {
    /// Number of the viewer, unique in this server's life.
    pub id: u64,
    /// By which protocol.
    pub protocol: &'static str,
    /// Its address.
    pub peer: SocketAddr,
    /// The user's name, if one was required.
    pub user: Option<String>,
    /// For how long it has been served.
    pub age: Duration,
    /// [`ViewRequest::latency`](super::ViewRequest::latency).
    pub latency: Option<Duration>,
    /// Counters of the engine: ages at commit, units sent and dropped by layer and by reason, horizon, rate.
    pub sink: SinkSnapshot,
    /// Pictures offered, by layer.
    pub offered: [u64; LAYERS],
    /// Units that could not even be queued, because the viewer's ring was full.
    pub missed: u64,
    /// Pictures that are left out because its decoder shows pictures as they come, and with them what depends on them.
    pub left_out: u64,
    /// The rendition that it gets; `None` before the first picture.
    pub rendition: Option<String>,
    /// The one whose next keyframe it waits for, if that is another one.
    pub wanted: Option<String>,
    /// Why it has the one, or wants the other: see [`Why`](freshwire::choice::Why).
    pub why: &'static str,
    /// How often its rendition has changed.
    pub changes: u16,
}

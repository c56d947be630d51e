//! Streams, those who publish them and those who view them.
//!
//! ```text
//!  Publisher::push ──► arena, once ──► queue: ring ──► engine ──► viewer
//!                          │       ──► queue: ring ──► engine ──► viewer
//!                          └ the newest group, for those who join
//! ```

mod bundle;
mod fit;
mod renditions;
mod stream;
mod taps;
mod viewer;
mod viewer_queue;

use std::collections::{BTreeMap, btree_map};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use freshwire::{DEFAULT_FILL_FIRST, EngineGroup, EnginePool};
use tokio::sync::mpsc;

pub use fit::Fit;
pub use renditions::{MAIN, check_name as check_rendition_name};
pub use stream::{Publisher, RenditionSnapshot, Stream, StreamSnapshot};
pub(crate) use taps::Tapping;
pub use viewer::{LatencyError, RenditionsAsked, ViewRequest, ViewSocket, Viewer, ViewerSnapshot};

/// All streams of a server, and the engines that serve their viewers. Clones are handles to the same hub.
#[derive(Clone)]
pub struct Hub(Arc<Inner>);

struct Inner {
    shared: Arc<Shared>,
    streams: Mutex<Streams>,
    /// Stop when the hub goes; sinks that are still open are aborted.
    engines: EnginePool,
}

type Streams = BTreeMap<String, Entry>;

/// A stream with what decides about its end.
#[derive(Clone)]
struct Entry {
    stream: Arc<Stream>,
    /// It is configured: it stays whether or not anybody is there.
    is_kept: bool,
    /// Since when nobody has had it: no publisher, no viewer, and nobody who is about to be one.
    unused: Option<Instant>,
}

impl Entry {
    /// Whether nobody but the hub has the stream. Whoever gets it gets it from the hub, whose lock the caller holds.
    fn is_unused(&self) -> bool {
        !self.is_kept && Arc::strong_count(&self.stream) == 1
    }
}

/// What streams need of the hub.
struct Shared {
    config: HubConfig,
    engines: EngineGroup,
    viewer_ids: AtomicU64,
}

impl Shared {
    fn next_viewer(&self) -> u64 {
        self.viewer_ids.fetch_add(1, Ordering::Relaxed)
    }
}

/// What the hub allows.
#[derive(Clone, Debug)]
pub struct HubConfig {
    /// Most streams at once. Default 64.
    pub max_streams: usize,
    /// A stream that is published without being configured ends this long after its last publisher and viewer; at once if
    /// another one needs its place. Default 30 s.
    pub unused_timeout: Duration,
    /// Most viewers of one stream, and the number of its rings. Default 1024.
    pub max_viewers: usize,
    /// Bytes of one stream's arena: the bound of its payload memory, whatever viewers do. Default 32 MiB.
    pub arena_bytes: usize,
    /// Most keys of one stream of values. Default 256.
    pub max_keys: usize,
    /// Most bytes of one value. Default 64 KiB.
    pub max_value_bytes: usize,
    /// Most publishers of one stream's values over WebSocket. Default 16.
    pub max_publishers: usize,
    /// How old a picture may be when it arrives. Default `None`: as old as it likes, as long as it makes the screen fresher.
    pub latency: Option<Duration>,
    /// A keyframe and sound may be this much older. Default 600 ms.
    pub key_grace: Duration,
    /// The oldest keyframe that a viewer who joins may begin with; with an older one it waits for the next. Default 500 ms.
    pub join_age: Duration,
    /// A viewer whose path takes nothing for this long is disconnected. Default 30 s.
    pub stall_timeout: Duration,
    /// The kernel name of the congestion control of viewers' connections; `None` keeps the system's.
    pub congestion: Option<String>,
    /// Threads over which viewers are spread, each with its own engine. Default: one per processor, at most [`MAX_ENGINES`].
    pub engines: usize,
    /// Viewers of one stream that its first engine gets before another one gets any. Default [`DEFAULT_FILL_FIRST`].
    pub fill_first: usize,
    /// Writes to many viewers with one system call, where the system has io_uring. Default `true`.
    pub io_uring: bool,
}

impl Default for HubConfig {
    fn default() -> Self {
        Self {
            max_streams: 64,
            unused_timeout: Duration::from_secs(30),
            max_viewers: 1024,
            arena_bytes: 32 << 20,
            max_keys: 256,
            max_value_bytes: 64 << 10,
            max_publishers: 16,
            latency: None,
            key_grace: Duration::from_millis(600),
            join_age: Duration::from_millis(500),
            stall_timeout: Duration::from_secs(30),
            congestion: None,
            engines: default_engines(),
            fill_first: DEFAULT_FILL_FIRST,
            io_uring: true,
        }
    }
}

/// Most engines of a server.
pub const MAX_ENGINES: usize = 64;

fn default_engines() -> usize {
    // Where the number is not known, one engine serves everybody.
    std::thread::available_parallelism().map_or(1, usize::from).min(MAX_ENGINES)
}

/// A viewer or a publisher is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HubError {
    /// Somebody publishes this stream already.
    #[error("stream {0} has a publisher already")]
    Busy(String),
    /// No stream may be added.
    #[error("{0} streams are the limit; raise max_streams")]
    TooManyStreams(usize),
    /// No rendition may be added to the stream.
    #[error("{0} renditions of a stream are the limit")]
    TooManyRenditions(usize),
    /// The name cannot be that of a rendition.
    #[error(
        "{0:?} cannot be a rendition's name; use 1 to 32 letters, digits, -, _ and ., but not all or none"
    )]
    RenditionName(String),
    /// The stream has no rendition of this name.
    #[error("the stream has no rendition {name:?}; it has {}", known.join(", "))]
    NoRendition {
        /// The requested name.
        name: String,
        /// Those that there have been.
        known: Vec<String>,
    },
    /// No viewer may be added.
    #[error("the stream has {0} viewers, which is the limit; raise max_viewers")]
    TooManyViewers(usize),
    /// The connection does not take its settings, or memory is missing.
    #[error("{0}")]
    Io(String),
}

impl Hub {
    /// A hub without streams; starts its engines.
    pub fn new(config: HubConfig) -> io::Result<Self> {
        let pool = EnginePool::spawn(config.engines)?;
        pool.set_io_uring(config.io_uring);
        let engines = pool.group().fill_first(config.fill_first);
        let shared = Shared { config, engines, viewer_ids: AtomicU64::new(1) };
        Ok(Self(Arc::new(Inner { shared: Arc::new(shared), streams: Mutex::default(), engines: pool })))
    }

    /// The engines that serve the viewers.
    pub(crate) fn engines(&self) -> EngineGroup {
        self.0.shared.engines.clone()
    }

    /// What it allows.
    pub(crate) fn config(&self) -> &HubConfig {
        &self.0.shared.config
    }

    /// Whether the engines run that serve the viewers. They end early only by a panic, which is a bug.
    pub fn is_served(&self) -> bool {
        self.0.engines.is_running()
    }

    /// Viewers' sinks, by engine.
    pub fn engine_sinks(&self) -> Vec<usize> {
        self.0.shared.engines.sinks()
    }

    /// The stream of this name, made if it is new. It stays for as long as the hub.
    pub fn stream(&self, name: &str) -> Result<Arc<Stream>, HubError> {
        self.keep(&mut lock(&self.0.streams), name)
    }

    /// The right to feed the stream of this name, as [`Stream::publish`] gives it. A stream that is new ends when it has been
    /// unused for [`HubConfig::unused_timeout`].
    pub fn publish(
        &self,
        name: &str,
        origin: &str,
        key_requests: Option<mpsc::Sender<()>>,
    ) -> Result<Publisher, HubError> {
        self.add(&mut lock(&self.0.streams), name)?.stream.publish(origin, key_requests)
    }

    /// The same for one of its renditions, as [`Stream::publish_rendition`] gives it.
    pub fn publish_rendition(
        &self,
        name: &str,
        rendition: &str,
        origin: &str,
        key_requests: Option<mpsc::Sender<()>>,
    ) -> Result<Publisher, HubError> {
        let mut streams = lock(&self.0.streams);
        self.add(&mut streams, name)?.stream.publish_rendition(rendition, origin, key_requests)
    }

    /// The stream of this name, if it exists.
    pub fn find(&self, name: &str) -> Option<Arc<Stream>> {
        lock(&self.0.streams).get(name).map(|entry| Arc::clone(&entry.stream))
    }

    /// All streams, by name.
    pub fn streams(&self) -> Vec<Arc<Stream>> {
        lock(&self.0.streams).values().map(|entry| Arc::clone(&entry.stream)).collect()
    }

    /// Ends the streams that have been unused for too long, and gives their names. To be called about once a second.
    pub fn end_unused(&self, now: Instant) -> Vec<String> {
        let timeout = self.0.shared.config.unused_timeout;
        let mut ended = Vec::new();
        let mut streams = lock(&self.0.streams);
        streams.retain(|name, entry| {
            if !entry.is_unused() {
                entry.unused = None;
                return true;
            }
            let since = *entry.unused.get_or_insert(now);
            let stays = now.saturating_duration_since(since) < timeout;
            if !stays {
                ended.push(name.clone());
            }
            stays
        });
        ended
    }

    /// Forgets the streams `removed`, whose viewers and publishers keep them until they leave, and gives those of the
    /// names `wanted`, in their order, made where they are new. On an error nothing has changed.
    pub fn exchange<'a>(
        &self,
        removed: &[String],
        wanted: impl IntoIterator<Item = &'a String>,
    ) -> Result<Vec<Arc<Stream>>, HubError> {
        let mut streams = lock(&self.0.streams);
        let mut after = streams.clone();
        after.retain(|name, _| !removed.contains(name));
        let given: Vec<_> =
            wanted.into_iter().map(|name| self.keep(&mut after, name)).collect::<Result<_, _>>()?;
        *streams = after;
        Ok(given)
    }

    fn keep(&self, streams: &mut Streams, name: &str) -> Result<Arc<Stream>, HubError> {
        let entry = self.add(streams, name)?;
        entry.is_kept = true;
        Ok(Arc::clone(&entry.stream))
    }

    fn add<'a>(&self, streams: &'a mut Streams, name: &str) -> Result<&'a mut Entry, HubError> {
        let limit = self.0.shared.config.max_streams;
        if !streams.contains_key(name) && streams.len() >= limit {
            let unused = streams.iter().filter(|(_, entry)| entry.is_unused());
            // One that is not known to be unused for any time has become so since the last look.
            let longest = unused.min_by_key(|(_, entry)| (entry.unused.is_none(), entry.unused));
            let given_up = longest.map(|(name, _)| name.clone()).ok_or(HubError::TooManyStreams(limit))?;
            streams.remove(&given_up);
        }
        match streams.entry(name.to_owned()) {
            btree_map::Entry::Occupied(entry) => Ok(entry.into_mut()),
            btree_map::Entry::Vacant(place) => {
                let stream = Arc::new(Stream::new(name, Arc::clone(&self.0.shared))?);
                Ok(place.insert(Entry { stream, is_kept: false, unused: None }))
            }
        }
    }
}

/// What another thread left half done when it panicked is still sound: every change is of one field.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

//! Streams, those who publish them and those who view them.
//!
//! ```text
//!  Publisher::push ──► arena, once ──► seat: ring ──► engine ──► viewer
//!                          │       ──► seat: ring ──► engine ──► viewer
//!                          └ the newest group, for those who join
//! ```

mod bundle;
mod datagrams;
mod fit;
mod seat;
mod stream;
mod viewer;

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use freshwire::{Engine, EngineThread, Handle};

pub use datagrams::DatagramSink;
pub use fit::Fit;
pub use stream::{Publisher, Stream, StreamSnapshot};
pub use viewer::{LatencyError, ViewRequest, Viewer, ViewerSnapshot};

/// All streams of a server, and the engine that serves their viewers. Clones are handles to the same hub.
#[derive(Clone)]
pub struct Hub(Arc<Inner>);

struct Inner {
    shared: Arc<Shared>,
    streams: Mutex<BTreeMap<String, Arc<Stream>>>,
    /// Stops when the hub goes; sinks that are still open are aborted.
    _engine: EngineThread,
}

/// What streams need of the hub.
struct Shared {
    config: HubConfig,
    engine: Handle,
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
    /// Most viewers of one stream over TCP, and the number of its rings. Default 1024.
    pub max_viewers: usize,
    /// Bytes of one stream's arena: the bound of its payload memory, whatever viewers do. Default 32 MiB.
    pub arena_bytes: usize,
    /// How old a unit may be when it arrives. Default 650 ms.
    pub latency: Duration,
    /// A keyframe and sound may be this much older. Default 600 ms.
    pub key_grace: Duration,
    /// The oldest keyframe that a viewer who joins may begin with; with an older one it waits for the next. Default 500 ms.
    pub join_age: Duration,
    /// A viewer whose path takes nothing for this long is disconnected. Default 30 s.
    pub stall_timeout: Duration,
    /// The kernel name of the congestion control of viewers' connections; `None` keeps the system's.
    pub congestion: Option<String>,
}

impl Default for HubConfig {
    fn default() -> Self {
        Self {
            max_streams: 64,
            max_viewers: 1024,
            arena_bytes: 32 << 20,
            latency: Duration::from_millis(650),
            key_grace: Duration::from_millis(600),
            join_age: Duration::from_millis(500),
            stall_timeout: Duration::from_secs(30),
            congestion: None,
        }
    }
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
    /// No viewer may be added.
    #[error("the stream has {0} viewers, which is the limit; raise max_viewers")]
    TooManyViewers(usize),
    /// The connection does not take its settings, or memory is missing.
    #[error("{0}")]
    Io(String),
}

impl Hub {
    /// A hub without streams; starts its engine.
    pub fn new(config: HubConfig) -> io::Result<Self> {
        let engine = Engine::new()?.spawn()?;
        let shared = Shared { config, engine: engine.handle(), viewer_ids: AtomicU64::new(1) };
        Ok(Self(Arc::new(Inner { shared: Arc::new(shared), streams: Mutex::default(), _engine: engine })))
    }

    /// The stream of this name, made if it is new.
    pub fn stream(&self, name: &str) -> Result<Arc<Stream>, HubError> {
        self.add(&mut lock(&self.0.streams), name)
    }

    /// The stream of this name, if it exists.
    pub fn find(&self, name: &str) -> Option<Arc<Stream>> {
        lock(&self.0.streams).get(name).map(Arc::clone)
    }

    /// All streams, by name.
    pub fn streams(&self) -> Vec<Arc<Stream>> {
        lock(&self.0.streams).values().map(Arc::clone).collect()
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
            wanted.into_iter().map(|name| self.add(&mut after, name)).collect::<Result<_, _>>()?;
        *streams = after;
        Ok(given)
    }

    fn add(&self, streams: &mut BTreeMap<String, Arc<Stream>>, name: &str) -> Result<Arc<Stream>, HubError> {
        if let Some(stream) = streams.get(name) {
            return Ok(Arc::clone(stream));
        }
        let limit = self.0.shared.config.max_streams;
        if streams.len() >= limit {
            return Err(HubError::TooManyStreams(limit));
        }
        let stream = Arc::new(Stream::new(name, Arc::clone(&self.0.shared))?);
        streams.insert(name.to_owned(), Arc::clone(&stream));
        Ok(stream)
    }
}

/// What another thread left half done when it panicked is still sound: every change is of one field.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

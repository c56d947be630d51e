//! Streams, their publishers and their viewers.
//!
//! ```text
//!  Publisher::push ──► arena, once ──► queue: ring ──► engine ──► viewer
//!                          │       ──► queue: ring ──► engine ──► viewer
//!                          └ the newest group, for newcomers
//! ```

mod bundle;
mod display_order;
mod error;
mod fanout;
mod fit;
mod identity;
mod renditions;
mod shared;
mod snapshot;
mod sound;
mod stream;
mod taps;
mod unit_info;
mod view_request;
mod viewer;
mod viewer_queue;

use std::collections::{BTreeMap, btree_map};
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use freshwire::engine::{EngineGroup, EnginePool};
use tokio::sync::{Notify, mpsc};

use shared::{Shared, lock};

pub use crate::config::{HubConfig, MAX_ENGINES};
pub use error::HubError;
pub use fit::Fit;
pub use snapshot::{RenditionSnapshot, SourceSnapshot, SourceState, StreamSnapshot, ViewerSnapshot};
pub(crate) use stream::Wish;
#[cfg(feature = "moq")]
pub(crate) use stream::{Offer, RelayReader};
pub use stream::{Publisher, Stream};
pub(crate) use taps::TapSink;
pub use view_request::{LatencyError, RenditionSelection, ViewRequest, ViewSocket};
pub use viewer::Viewer;
pub(crate) use viewer::WEBRTC;

/// All streams of a server, and the engines that serve their viewers. Clones are handles to the same hub.
#[derive(Clone)]
pub struct Hub(Arc<Inner>);

struct Inner {
    shared: Arc<Shared>,
    streams: Mutex<Streams>,
    /// A stream has come that ends when nobody uses it.
    passing: Notify,
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
    /// Whether nobody but the hub has the stream. The caller holds the hub's lock, so nobody else gets it meanwhile.
    fn is_unused(&self) -> bool {
        !self.is_kept && Arc::strong_count(&self.stream) == 1
    }
}

impl Hub {
    /// A hub without streams; starts its engines.
    ///
    /// # Errors
    ///
    /// If an engine cannot be started.
    pub fn new(config: HubConfig) -> io::Result<Self> {
        let pool = EnginePool::spawn(config.engines)?;
        pool.set_io_uring(config.io_uring);
        pool.set_transfer(config.transfer);
        let group = pool.group();
        let engines = match config.fill_first {
            Some(sinks) => group.fill_first(sinks),
            None => group,
        };
        let shared = Shared::new(config, engines);
        Ok(Self(Arc::new(Inner {
            shared: Arc::new(shared),
            streams: Mutex::default(),
            passing: Notify::new(),
            engines: pool,
        })))
    }

    /// The engines that serve the viewers.
    pub(crate) fn engines(&self) -> EngineGroup {
        self.0.shared.engines.clone()
    }

    /// Its configuration.
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
    ///
    /// # Errors
    ///
    /// [`HubError::TooManyStreams`], or [`HubError::Io`] if its memory cannot be had.
    pub fn stream(&self, name: &str) -> Result<Arc<Stream>, HubError> {
        self.keep(&mut lock(&self.0.streams), name)
    }

    /// The right to feed the stream of this name, as [`Stream::publish`] gives it. A stream that is new ends when it has been
    /// unused for [`HubConfig::unused_timeout`].
    ///
    /// # Errors
    ///
    /// As [`Hub::stream`] and [`Stream::publish`].
    pub fn publish(
        &self,
        name: &str,
        origin: &str,
        key_requests: Option<mpsc::Sender<()>>,
    ) -> Result<Publisher, HubError> {
        let published = self.add(&mut lock(&self.0.streams), name)?.stream.publish(origin, key_requests);
        self.0.passing.notify_one();
        published
    }

    /// The same for one of its renditions, as [`Stream::publish_rendition`] gives it.
    ///
    /// # Errors
    ///
    /// As [`Hub::stream`] and [`Stream::publish_rendition`].
    pub fn publish_rendition(
        &self,
        name: &str,
        rendition: &str,
        origin: &str,
        key_requests: Option<mpsc::Sender<()>>,
    ) -> Result<Publisher, HubError> {
        let mut streams = lock(&self.0.streams);
        let stream = &self.add(&mut streams, name)?.stream;
        self.0.passing.notify_one();
        stream.publish_rendition(rendition, origin, key_requests)
    }

    /// The stream of this name, if it exists.
    pub fn find(&self, name: &str) -> Option<Arc<Stream>> {
        lock(&self.0.streams).get(name).map(|entry| Arc::clone(&entry.stream))
    }

    /// All streams, by name.
    pub fn streams(&self) -> Vec<Arc<Stream>> {
        lock(&self.0.streams).values().map(|entry| Arc::clone(&entry.stream)).collect()
    }

    /// Returns once there is a stream that ends when nobody uses it: before that there is nothing to look after.
    pub(crate) async fn has_passing_stream(&self) {
        while lock(&self.0.streams).values().all(|entry| entry.is_kept) {
            self.0.passing.notified().await;
        }
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

    /// Removes the streams `removed`, which [`Stream::removed`] reports, and gives those of the names `wanted`, in their order, made
    /// where they are new. On an error nothing has changed.
    ///
    /// # Errors
    ///
    /// As [`Hub::stream`].
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
        for name in removed {
            if let Some(entry) = streams.get(name) {
                entry.stream.remove();
            }
        }
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

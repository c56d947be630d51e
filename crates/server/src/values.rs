//! Values by key, for browsers and other programs: a publisher sets a key, and each watcher gets the newest value at its own
//! pace.
//!
//! ```text
//!  Topic::set ──► arena, once ──► ring ──► engine ──► watcher: newest by key
//!                   │         ──► ring ──► engine ──► watcher: every value within 500 ms
//!                   └ the newest value of each key, for newcomers
//! ```
//!
//! A topic has the name of a stream whose source is `publish` or a broker. A value goes out as one line of JSON,
//! `{"key":"door","count":7,"at":1764000000000.123,"value":"open"}`, or, if it is bytes, as such a line without `value`, a
//! line feed and the bytes. `count` says how many values the key has had, so that a watcher sees what it skipped; `at` is
//! the server's clock in milliseconds since 1970. `{"key":"door","count":8,"at":…,"deleted":true}` ends a key.

mod backlog;
mod envelope;
mod error;
mod keys;
mod limits;
mod member;
mod members;
mod places;
mod present;
mod request;
mod topic;
mod watcher;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use freshwire::engine::EngineGroup;

pub use error::ValueError;
pub use limits::{MAX_JSON_DEPTH, MAX_KEY_BYTES};
pub use member::{HoldReason, WatchRequest, WatcherSnapshot};
pub use present::Present;
pub use request::{Change, Content};
pub(crate) use topic::check_key;
pub use topic::{PublisherPermit, Topic, TopicSnapshot};
pub use watcher::Watcher;

use crate::hub::HubConfig;

/// All topics of a server, by name.
pub struct Topics {
    engines: EngineGroup,
    config: HubConfig,
    topics: Mutex<BTreeMap<String, Arc<Topic>>>,
}

impl Topics {
    /// No topics yet. `engines` serve the watchers.
    pub fn new(engines: EngineGroup, config: HubConfig) -> Self {
        Self { engines, config, topics: Mutex::default() }
    }

    /// Keeps topics of exactly these names. [`Topic::removed`] reports the end of the others; the server disconnects their clients.
    pub fn keep(&self, names: impl IntoIterator<Item = String>) {
        let mut topics = self.lock();
        let mut before = std::mem::take(&mut *topics);
        for name in names {
            let topic = before.remove(&name);
            let topic = topic.unwrap_or_else(|| {
                Arc::new(Topic::new(name.clone(), self.engines.clone(), self.config.clone()))
            });
            topics.insert(name, topic);
        }
        before.values().for_each(|topic| topic.remove());
    }

    /// The topic of this name.
    pub fn find(&self, name: &str) -> Option<Arc<Topic>> {
        self.lock().get(name).map(Arc::clone)
    }

    /// All topics, by name.
    pub fn all(&self) -> Vec<Arc<Topic>> {
        self.lock().values().map(Arc::clone).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Topic>>> {
        self.topics.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! The state that all connections of the server share.

use std::sync::{Arc, PoisonError, RwLock};

use tokio::sync::watch;

use crate::access::Access;
use crate::brokers::Brokers;
use crate::config::{Limits, MulticastConfig, Origins};
use crate::counter::Counter;
use crate::hub::Hub;
use crate::multicast::Groups;
use crate::net::Admission;
use crate::targets::Targets;
use crate::tasks::Tasks;
use crate::values::Topics;

/// The state that all connections of the server share. Lives as long as the server.
pub struct Context {
    /// The streams.
    pub hub: Hub,
    /// Values by key.
    pub topics: Topics,
    /// True from the moment on at which the server stops: accept nothing more, end what is open.
    pub shutdown: watch::Receiver<bool>,
    /// Admission of connections, with the limits in force.
    pub admission: Arc<Admission>,
    /// Running tasks, and those that have panicked.
    pub tasks: Tasks,
    /// The counters so far.
    pub counters: Counters,
    pub(crate) groups: Groups,
    /// Servers that streams are published to.
    pub(crate) targets: Targets,
    /// Brokers that values come from.
    pub(crate) brokers: Brokers,
    access: RwLock<Arc<Access>>,
    origins: RwLock<Arc<Origins>>,
    /// Changes with the rules of access and the origins.
    reviews: watch::Sender<()>,
}

impl Context {
    /// The context of a server with this hub and these rules. `shutdown` becomes true when it stops.
    pub fn new(hub: Hub, access: Access, limits: Limits, shutdown: watch::Receiver<bool>) -> Self {
        let topics = Topics::new(hub.engines(), hub.config().clone());
        Self {
            hub,
            topics,
            shutdown,
            admission: Arc::new(Admission::new(limits)),
            tasks: Tasks::new(),
            counters: Counters::default(),
            groups: Groups::default(),
            targets: Targets::default(),
            brokers: Brokers::default(),
            access: RwLock::new(Arc::new(access)),
            origins: RwLock::default(),
            reviews: watch::Sender::new(()),
        }
    }

    /// The rules of access in force. Ask again for each request: a reload replaces them.
    pub fn access(&self) -> Arc<Access> {
        Arc::clone(&self.access.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the rules of access. Connections that they do not grant any more end.
    pub fn set_access(&self, access: Access) {
        *self.access.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(access);
        self.reviews.send_replace(());
    }

    /// Whose pages may play: those of this server, and the others in force. A reload replaces them.
    pub fn origins(&self) -> Arc<Origins> {
        Arc::clone(&self.origins.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the origins that are trusted besides. Connections of pages of other ones end.
    pub fn set_origins(&self, origins: Origins) {
        *self.origins.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(origins);
        self.reviews.send_replace(());
    }

    /// Reports when the rules of access or the origins have changed.
    pub(crate) fn reviews(&self) -> watch::Receiver<()> {
        self.reviews.subscribe()
    }

    /// Allows RTSP over multicast, for as long as the server runs. Counts once.
    pub fn allow_multicast(&self, config: MulticastConfig) {
        self.groups.configure(config);
    }

    /// The limits in force. A reload replaces them.
    pub fn limits(&self) -> Limits {
        self.admission.limits()
    }
}

/// Counters of the server's protocols, for `/metrics`. Connections refused before a request was read are counted in
/// [`Admission`].
#[derive(Debug, Default)]
pub struct Counters {
    /// RTSP requests answered.
    pub rtsp_requests: Counter,
    /// RTMP commands heard.
    pub rtmp_commands: Counter,
    /// HTTP requests answered.
    pub http_requests: Counter,
    /// Requests that are no requests, too large or too slow.
    pub bad_requests: Counter,
    /// Requests that were not granted: wrong password, expired link, missing right. A challenge is none.
    pub denied: Counter,
    /// Bytes received from publishers.
    pub published_bytes: Counter,
}

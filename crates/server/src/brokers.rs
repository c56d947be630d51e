//! The brokers that values come from, as they are now, and the way for values to them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};

use crate::config::BrokerAddress;

/// How long a client waits for the broker's answer to a value: longer than the broker has for it.
const PATIENCE: Duration = Duration::from_secs(12);

/// Values that wait to be sent to a broker. One more is refused.
pub const MAX_WAITING_PUBLICATIONS: usize = 64;

/// What a broker's connection does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BrokerState {
    /// The connection is being established.
    Connecting,
    /// The broker has taken the subscription.
    Subscribed {
        /// The protocol, such as `MQTT 5`.
        protocol: &'static str,
    },
    /// The connection failed, and is tried again after a pause.
    Retrying {
        /// Why it failed.
        reason: String,
    },
}

impl BrokerState {
    /// `connecting`, `subscribed` or `retrying`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Subscribed { .. } => "subscribed",
            Self::Retrying { .. } => "retrying",
        }
    }
}

/// Why a message of a broker does not become a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Refusal {
    /// Its topic cannot be a key: it is longer than [`MAX_KEY_BYTES`](crate::values::MAX_KEY_BYTES), or has control characters.
    Key,
    /// It is larger than `hub.max_value`.
    TooLarge,
    /// Its key would be one more than `hub.max_keys`.
    TooManyKeys,
    /// Its JSON is nested deeper than [`MAX_JSON_DEPTH`](crate::values::MAX_JSON_DEPTH).
    TooDeep,
}

impl Refusal {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Key, Self::TooLarge, Self::TooManyKeys, Self::TooDeep];

    /// What to do about it.
    pub(crate) fn remedy(self) -> &'static str {
        match self {
            Self::Key => "use topics of 1 to 256 bytes without control characters, or a narrower filter",
            Self::TooLarge => "raise hub.max_value, or use a narrower filter",
            Self::TooManyKeys => "raise hub.max_keys, or use a narrower filter",
            Self::TooDeep => "send it flatter, or as a string",
        }
    }

    /// `key`, `too-large`, `too-many-keys` or `too-deep`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::TooLarge => "too-large",
            Self::TooManyKeys => "too-many-keys",
            Self::TooDeep => "too-deep",
        }
    }
}

/// A reading of a broker.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BrokerSnapshot {
    /// Its address, without user and password.
    pub address: String,
    /// What its connection does.
    pub state: BrokerState,
    /// For how long it has been in this state.
    pub since: Duration,
    /// Connections on which it took the subscription.
    pub connections: u64,
    /// Connections that failed or broke.
    pub failures: u64,
    /// Messages received.
    pub received: u64,
    /// Messages that a newer one of their key replaced before the server had offered them to its readers.
    pub superseded: u64,
    /// Keys whose newest message waits to be offered to readers; no more than `hub.max_keys` and as many deletions.
    pub waiting: usize,
    /// The largest such number.
    pub most_waiting: usize,
    /// Messages that did not become values, by reason.
    pub refused: BTreeMap<Refusal, u64>,
    /// Values that clients sent to the broker, and that it took.
    pub published: u64,
}

/// A value for a broker.
pub(crate) struct Publication {
    /// The topic, subject or key.
    pub(crate) key: String,
    /// `None` deletes it.
    pub(crate) payload: Option<Vec<u8>>,
    /// The broker keeps it for newcomers (MQTT).
    pub(crate) retain: bool,
    /// Gets the broker's answer.
    pub(crate) answer: oneshot::Sender<Result<(), PublishError>>,
}

/// Why a value does not get to its broker.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PublishError {
    #[error("{key:?} is not among the values of this stream, which are {filter}")]
    Foreign { key: String, filter: String },
    #[error("the broker is away: {0}")]
    Away(String),
    #[error("{MAX_WAITING_PUBLICATIONS} values wait for the broker, which is the limit: send slower")]
    Busy,
    #[error("the broker refuses it: {0}")]
    Refused(String),
    #[error("the broker has not confirmed it within {0:?}; it may have it all the same")]
    Unconfirmed(Duration),
}

/// The brokers of all streams.
#[derive(Default)]
pub(crate) struct Brokers(Arc<Mutex<ByStream>>);

type ByStream = BTreeMap<String, Arc<BrokerStatus>>;

/// A broker's place among them; dropping it removes the broker.
pub(crate) struct BrokerPlace {
    stream: String,
    pub(crate) status: Arc<BrokerStatus>,
    all: Arc<Mutex<ByStream>>,
}

impl Drop for BrokerPlace {
    fn drop(&mut self) {
        lock(&self.all).remove(&self.stream);
    }
}

/// One broker.
pub(crate) struct BrokerStatus {
    pub(crate) address: BrokerAddress,
    inner: Mutex<Inner>,
    publications: mpsc::Sender<Publication>,
    /// For the task of the broker; a further one gets it when the first has ended.
    pub(crate) outgoing: tokio::sync::Mutex<mpsc::Receiver<Publication>>,
}

struct Inner {
    state: BrokerState,
    since: Instant,
    connections: u64,
    failures: u64,
    counts: Counts,
}

/// Counts of messages so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) received: u64,
    pub(crate) superseded: u64,
    pub(crate) waiting: usize,
    pub(crate) most_waiting: usize,
    pub(crate) refused: BTreeMap<Refusal, u64>,
    pub(crate) published: u64,
}

impl Brokers {
    /// A place for the broker of this stream, which has none.
    pub(crate) fn add(&self, stream: &str, address: &BrokerAddress) -> BrokerPlace {
        let (publications, outgoing) = mpsc::channel(MAX_WAITING_PUBLICATIONS);
        let inner = Inner {
            state: BrokerState::Connecting,
            since: Instant::now(),
            connections: 0,
            failures: 0,
            counts: Counts::default(),
        };
        let status = Arc::new(BrokerStatus {
            address: address.clone(),
            inner: Mutex::new(inner),
            publications,
            outgoing: tokio::sync::Mutex::new(outgoing),
        });
        lock(&self.0).insert(stream.to_owned(), Arc::clone(&status));
        BrokerPlace { stream: stream.to_owned(), status, all: Arc::clone(&self.0) }
    }

    /// The broker of this stream, if its values come from one.
    pub(crate) fn find(&self, stream: &str) -> Option<Arc<BrokerStatus>> {
        lock(&self.0).get(stream).map(Arc::clone)
    }

    /// All of them, by stream.
    pub(crate) fn all(&self) -> Vec<(String, BrokerSnapshot)> {
        lock(&self.0).iter().map(|(stream, status)| (stream.clone(), status.snapshot())).collect()
    }
}

impl BrokerStatus {
    pub(crate) fn set(&self, state: BrokerState) {
        let mut inner = lock(&self.inner);
        match &state {
            BrokerState::Subscribed { .. } => inner.connections += 1,
            BrokerState::Retrying { .. } => inner.failures += 1,
            BrokerState::Connecting => {}
        }
        if inner.state != state {
            (inner.state, inner.since) = (state, Instant::now());
        }
    }

    /// Changes the counts.
    pub(crate) fn count(&self, change: impl FnOnce(&mut Counts)) {
        change(&mut lock(&self.inner).counts);
    }

    pub(crate) fn snapshot(&self) -> BrokerSnapshot {
        let inner = lock(&self.inner);
        let counts = inner.counts.clone();
        BrokerSnapshot {
            address: self.address.to_string(),
            state: inner.state.clone(),
            since: inner.since.elapsed(),
            connections: inner.connections,
            failures: inner.failures,
            received: counts.received,
            superseded: counts.superseded,
            waiting: counts.waiting,
            most_waiting: counts.most_waiting,
            refused: counts.refused,
            published: counts.published,
        }
    }

    /// Sends a value to the broker, which sends it back to all that have subscribed. `None` deletes the key. Returns when the
    /// broker has taken it.
    pub(crate) async fn publish(
        &self,
        key: String,
        payload: Option<Vec<u8>>,
        retain: bool,
    ) -> Result<(), PublishError> {
        let subscription = &self.address.subscription;
        if !subscription.covers(&key) {
            let key = key.chars().take(64).collect();
            return Err(PublishError::Foreign { key, filter: subscription.filter().to_owned() });
        }
        match self.snapshot().state {
            BrokerState::Subscribed { .. } => {}
            BrokerState::Connecting => return Err(PublishError::Away("it is being connected".to_owned())),
            BrokerState::Retrying { reason } => return Err(PublishError::Away(reason)),
        }
        let (answer, answered) = oneshot::channel();
        let publication = Publication { key, payload, retain, answer };
        self.publications.try_send(publication).map_err(|_| PublishError::Busy)?;
        match tokio::time::timeout(PATIENCE, answered).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(PublishError::Away("the connection has ended".to_owned())),
            Err(_) => Err(PublishError::Unconfirmed(PATIENCE)),
        }
    }
}

/// Every change is of one value, so what a panic left is still sound.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

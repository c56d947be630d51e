//! The servers that streams are published to, as they are now.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::config::Destination;

/// What a target's connection does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetState {
    /// Nobody publishes the stream, so there is no connection.
    Waiting,
    /// The connection is being established.
    Connecting,
    /// The target knows the stream, and nobody asks it for it.
    Announced,
    /// The target gets the stream, as the viewer of this number.
    Publishing {
        /// [`ViewerSnapshot::id`](crate::hub::ViewerSnapshot::id).
        viewer: u64,
    },
    /// The connection failed, and is tried again after a pause.
    Retrying {
        /// Why it failed.
        reason: String,
    },
}

impl TargetState {
    /// `waiting`, `connecting`, `announced`, `publishing` or `retrying`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Connecting => "connecting",
            Self::Announced => "announced",
            Self::Publishing { .. } => "publishing",
            Self::Retrying { .. } => "retrying",
        }
    }
}

/// A reading of a target.
#[derive(Clone, Debug)]
pub struct TargetSnapshot {
    /// Its address, without the key; a further one of the same address has a number behind it.
    pub address: String,
    /// What its connection does.
    pub state: TargetState,
    /// For how long it has been in this state.
    pub since: Duration,
    /// By how much its newest unit is older than the newest one of the source; `None` while it gets nothing.
    pub behind: Option<Duration>,
    /// Connections on which it took the stream.
    pub connections: u64,
    /// Connections that failed or broke.
    pub failures: u64,
}

/// The targets of all streams.
#[derive(Debug, Default)]
pub(crate) struct Targets(Mutex<BTreeMap<(String, Destination), Arc<TargetStatus>>>);

/// The state of one.
#[derive(Debug)]
pub(crate) struct TargetStatus(Mutex<Inner>);

#[derive(Debug)]
struct Inner {
    state: TargetState,
    since: Instant,
    behind: Option<Duration>,
    connections: u64,
    failures: u64,
}

impl Targets {
    /// A place for a target of this stream. One that there was is replaced.
    pub(crate) fn add(&self, stream: &str, target: &Destination) -> Arc<TargetStatus> {
        let inner = Inner {
            state: TargetState::Waiting,
            since: Instant::now(),
            behind: None,
            connections: 0,
            failures: 0,
        };
        let status = Arc::new(TargetStatus(Mutex::new(inner)));
        lock(&self.0).insert((stream.to_owned(), target.clone()), Arc::clone(&status));
        status
    }

    pub(crate) fn remove(&self, stream: &str, target: &Destination) {
        lock(&self.0).remove(&(stream.to_owned(), target.clone()));
    }

    /// The targets of this stream.
    pub(crate) fn of(&self, stream: &str) -> Vec<TargetSnapshot> {
        let all = lock(&self.0);
        let of_stream = all.iter().filter(|((name, _), _)| name == stream);
        let mut targets: Vec<_> = of_stream.map(|((_, target), status)| status.snapshot(target)).collect();
        // Addresses have no keys: a number distinguishes several keys at one address.
        for place in (1..targets.len()).rev() {
            let same = targets[..place].iter().filter(|other| other.address == targets[place].address);
            let number = same.count() + 1;
            if number > 1 {
                targets[place].address.push_str(&format!("#{number}"));
            }
        }
        targets
    }
}

impl TargetStatus {
    pub(crate) fn set(&self, state: TargetState) {
        let mut inner = lock(&self.0);
        let was_connected = matches!(inner.state, TargetState::Publishing { .. } | TargetState::Announced);
        match &state {
            TargetState::Publishing { .. } | TargetState::Announced => {
                inner.connections += u64::from(!was_connected);
            }
            TargetState::Retrying { .. } => inner.failures += 1,
            TargetState::Waiting | TargetState::Connecting => {}
        }
        if inner.state != state {
            (inner.state, inner.since) = (state, Instant::now());
        }
        inner.behind = None;
    }

    pub(crate) fn set_behind(&self, behind: Option<Duration>) {
        lock(&self.0).behind = behind;
    }

    fn snapshot(&self, target: &Destination) -> TargetSnapshot {
        let inner = lock(&self.0);
        TargetSnapshot {
            address: target.to_string(),
            state: inner.state.clone(),
            since: inner.since.elapsed(),
            behind: inner.behind,
            connections: inner.connections,
            failures: inner.failures,
        }
    }
}

/// Every change is of one value, so what a panic left is still sound.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

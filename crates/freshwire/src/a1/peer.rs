use std::net::SocketAddr;
use std::sync::Arc;

use freshwire_a1::{Closed, ConnectError, PublicKey};

use super::driver::{Activity, Condvar};
use super::events::LazySignal;
use super::joined::Membership;
use super::status::QosNews;

/// A node's state of a connection, beside the endpoint's.
pub(super) struct Peer {
    /// Where the other node is.
    pub(super) address: SocketAddr,
    pub(super) key: PublicKey,
    /// Something that a thread may wait for has happened.
    pub(super) changed: Arc<Condvar>,
    pub(super) state: State,
    /// Changes of the quality of service that were not reported to the application.
    pub(super) news: QosNews,
    /// How often the connection has sent what it could.
    pub(super) turns: u64,
    /// A thread waits for the next time.
    pub(super) is_awaited: bool,
    /// The other node connects, and the handshake is not complete.
    pub(super) is_incoming: bool,
    /// Something has come whole from it.
    pub(super) is_readable: bool,
    /// The groups that it has invited us to.
    pub(super) memberships: Vec<Membership>,
    /// The application has no handle of it any more.
    pub(super) is_forgotten: bool,
    /// For the application's event loop: something has come, or the connection is another one now.
    pub(super) news_signal: LazySignal,
    /// For the application's event loop: the connection has sent what it could.
    pub(super) turn_signal: LazySignal,
}

/// How far a connection is, as the application sees it.
#[derive(Clone, Debug)]
pub(super) enum State {
    Connecting,
    Open,
    /// It never stood.
    Failed(ConnectError),
    Closed(Closed),
}

impl State {
    pub(super) fn is_over(&self) -> bool {
        matches!(self, Self::Failed(_) | Self::Closed(_))
    }
}

impl Peer {
    /// A peer that this node connects to.
    pub(super) fn new(address: SocketAddr, key: PublicKey) -> Self {
        Self {
            address,
            key,
            changed: Arc::new(Condvar::new()),
            state: State::Connecting,
            news: QosNews::default(),
            turns: 0,
            is_awaited: false,
            is_incoming: false,
            is_readable: false,
            memberships: Vec::new(),
            is_forgotten: false,
            news_signal: LazySignal::default(),
            turn_signal: LazySignal::default(),
        }
    }

    /// Something has happened that the application may wait for.
    pub(super) fn note(&self, activity: &mut Activity) {
        activity.note_at(&self.changed);
        self.news_signal.set();
    }

    /// It has sent what it could, and a thread waits for that.
    pub(super) fn note_turn(&self, activity: &mut Activity) {
        activity.note_at(&self.changed);
        self.turn_signal.set();
    }

    /// It is over.
    pub(super) fn note_end(&self, activity: &mut Activity) {
        self.note(activity);
        self.turn_signal.set();
    }

    /// A peer that connects to this node.
    pub(super) fn incoming(address: SocketAddr, key: PublicKey) -> Self {
        Self { is_incoming: true, ..Self::new(address, key) }
    }
}

//! Bytes that the receiving program has not read: exact where both ends are on this machine, else as far as the advertised window tells.

mod queue;
mod window;

use std::io;
use std::time::Duration;

use freshwire_io::tcp::{LocalPeer, TcpInfo, TcpSocket};
use freshwire_record::Timestamp;

use crate::stats::UnreadBy;
use queue::Queue;
use window::Window;

/// Holds records back from a receiver that has not read what it has.
pub(super) enum Unread {
    Unbounded,
    ByQueue { peer: LocalPeer, queue: Queue },
    ByWindow(Window),
}

/// Bytes that the receiver's kernel does not have, or has not acknowledged.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OnTheWay {
    /// On the wire.
    pub(super) in_flight: u64,
    /// In the sender's kernel.
    pub(super) waiting: u64,
}

impl Unread {
    pub(super) fn new(bound: Option<u32>, socket: &TcpSocket) -> Self {
        let Some(bound) = bound else { return Self::Unbounded };
        // Where the kernel has no socket diagnostics, or refuses them, the peer counts as remote; statistics say so.
        match socket.local_peer() {
            Ok(Some(peer)) => Self::ByQueue { peer, queue: Queue::new(u64::from(bound)) },
            Ok(None) | Err(_) => Self::ByWindow(Window::new(bound)),
        }
    }

    /// Whether a look is needed, however calm the path is.
    pub(super) fn is_due(&self) -> bool {
        match self {
            Self::Unbounded => false,
            Self::ByQueue { queue, .. } => queue.is_due(),
            Self::ByWindow(_) => true,
        }
    }

    /// The unread bytes; `None` while nothing reliable is known.
    pub(super) fn bytes(&self) -> Option<u64> {
        match self {
            Self::Unbounded => None,
            Self::ByQueue { queue, .. } => Some(queue.bytes()),
            Self::ByWindow(window) => window.bytes(),
        }
    }

    /// The source of the bound, if there is one.
    pub(super) fn by(&self) -> Option<UnreadBy> {
        match self {
            Self::Unbounded => None,
            Self::ByQueue { .. } => Some(UnreadBy::Queue),
            Self::ByWindow(_) => Some(UnreadBy::Window),
        }
    }

    /// Whether the receiver has as much as it may.
    pub(super) fn is_over(&self) -> bool {
        match self {
            Self::Unbounded => false,
            Self::ByQueue { queue, .. } => queue.is_over(),
            Self::ByWindow(window) => window.is_over(),
        }
    }

    /// Whether it has, or had recently.
    pub(super) fn is_limited(&self, now: Timestamp) -> bool {
        match self {
            Self::Unbounded => false,
            Self::ByQueue { queue, .. } => queue.is_limited(now),
            Self::ByWindow(window) => window.is_limited(),
        }
    }

    /// Takes in a fresh look at the connection.
    pub(super) fn update(&mut self, now: Timestamp, info: &TcpInfo) -> io::Result<()> {
        match self {
            Self::Unbounded => {}
            Self::ByQueue { peer, queue } => {
                if queue.is_due() {
                    queue.update(now, peer.unread()?.map(|unread| unread + u64::from(info.unsent)));
                }
            }
            Self::ByWindow(window) => window.update(now, info),
        }
        Ok(())
    }

    /// How many bytes of new records may be committed now; `None` where that is not limited. A record may be committed while this is not
    /// zero.
    pub(super) fn room(&self, now: Timestamp, on_the_way: OnTheWay) -> Option<u64> {
        match self {
            Self::Unbounded => None,
            Self::ByQueue { queue, .. } => queue.room(),
            Self::ByWindow(window) => window.room(now, on_the_way.in_flight + on_the_way.waiting),
        }
    }

    pub(super) fn wrote(&mut self, now: Timestamp, bytes: u64, rtt: Duration) {
        match self {
            Self::Unbounded => {}
            Self::ByQueue { queue, .. } => queue.wrote(bytes),
            Self::ByWindow(window) => window.wrote(now, rtt),
        }
    }

    /// When to look again although nothing can be written; `None` if this needs no look.
    pub(super) fn look_at(&self, now: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Unbounded => None,
            Self::ByQueue { queue, .. } => queue.look_at(now),
            Self::ByWindow(window) => window.look_at(now),
        }
    }

    /// The same for a sink that has nothing to send.
    pub(super) fn idle_look_at(&self, now: Timestamp) -> Timestamp {
        let Self::ByQueue { queue, .. } = self else { return Timestamp::MAX };
        queue.look_at(now).unwrap_or(Timestamp::MAX)
    }
}

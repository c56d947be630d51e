//! A link in a process of its own, for a process that has threads, or that must not change its user namespace.
//!
//! ```text
//!  this process                                  the link's process, forked
//!  StandaloneLink ── socket, rate, counters ──►  Namespaces, Emulator
//!       ▲                                           │
//!       └──── sockets of either end ────────────────┘
//! ```
//!
//! A socket belongs to the network namespace in which it was created, wherever it is used. So this process works with sockets at
//! both ends, and stays in its own namespaces. Without root the link's process enters a user namespace, which the kernel permits
//! because it has a single thread after the fork. It ends when the link is closed, or when this process ends in whatever way.

mod child;
mod relay;
mod types;
mod wire;

use std::fmt;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use freshwire_link::{Config, Direction};
use freshwire_units::Rate;

pub use self::types::{End, StandaloneError};
use crate::Snapshot;
use wire::{Answer, Channel, Request};

/// An emulated link in a process of its own; see the module's page.
///
/// Every call takes some microseconds, and waits while another thread's call is under way.
pub struct StandaloneLink {
    state: Mutex<State>,
    address: Option<SocketAddr>,
    has_ipv6: bool,
}

struct State {
    /// `None` once it was closed.
    channel: Option<Channel>,
    /// What was known last.
    snapshot: Snapshot,
    /// Known from the end on.
    faults: Vec<String>,
}

impl StandaloneLink {
    /// Forks the link's process and starts to carry packets. The schedules of `up` (near to far) and `down` (far to near) count from
    /// now.
    ///
    /// `to` is an address of this machine that is reachable at the far end, over TCP and UDP, at the same port. Proxies carry it: one at
    /// the far end, and one at [`StandaloneLink::address`] for programs that cannot use a socket of the near end. A proxy accepts a
    /// connection before the other side has. It buffers little, but its TCP fills the link's queue as any other: a server behind it
    /// notices the rate of the link, and cannot keep the queue short.
    ///
    /// # Errors
    ///
    /// [`StandaloneError::NotPermitted`] if the system gives no namespaces to this user; [`StandaloneError::Failed`] if a step of the
    /// set-up failed, or the port of `to` is 0.
    pub fn start(up: Config, down: Config, to: Option<SocketAddr>) -> Result<Self, StandaloneError> {
        if to.is_some_and(|to| to.port() == 0) {
            return Err(StandaloneError::Failed(
                "port 0 cannot be reached: name the server's port".to_owned(),
            ));
        }
        let channel = child::fork(up, down, to)?;
        let Answer::Started { address, has_ipv6 } = channel.answer()? else {
            return Err(StandaloneError::Ended);
        };
        let state = State { channel: Some(channel), snapshot: Snapshot::default(), faults: Vec::new() };
        Ok(Self { state: Mutex::new(state), address, has_ipv6 })
    }

    /// Makes a socket at an end, with the arguments of `socket(2)`. It is closed when a program is executed.
    ///
    /// # Errors
    ///
    /// [`StandaloneError::Failed`] if the kernel refuses it; [`StandaloneError::Ended`].
    pub fn socket(
        &self,
        end: End,
        domain: i32,
        kind: i32,
        protocol: i32,
    ) -> Result<OwnedFd, StandaloneError> {
        match self.ask(&Request::Socket { end, domain, kind, protocol })? {
            Answer::Socket(socket) => Ok(socket),
            _ => Err(StandaloneError::Ended),
        }
    }

    /// Gives a direction another rate from now on, in place of what is left of its schedule: zero is an outage until the next
    /// change, `None` is unlimited.
    ///
    /// # Errors
    ///
    /// [`StandaloneError::Ended`].
    pub fn set_rate(&self, direction: Direction, rate: Option<Rate>) -> Result<(), StandaloneError> {
        self.ask(&Request::SetRate { direction, rate }).map(drop)
    }

    /// What the link has done so far; of a closed one, at its end.
    ///
    /// # Errors
    ///
    /// [`StandaloneError::Ended`] if the link's process has ended by itself.
    pub fn snapshot(&self) -> Result<Snapshot, StandaloneError> {
        if let Some(snapshot) = self.closed(|state| state.snapshot) {
            return Ok(snapshot);
        }
        match self.ask(&Request::Snapshot)? {
            Answer::Snapshot(snapshot) => {
                self.state().snapshot = snapshot;
                Ok(snapshot)
            }
            _ => Err(StandaloneError::Ended),
        }
    }

    /// Where this process and others of this machine reach the address given at the start, through the link.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Whether both ends have their IPv6 address; a kernel may be without IPv6.
    pub fn has_ipv6(&self) -> bool {
        self.has_ipv6
    }

    /// Whether it was closed.
    pub fn is_closed(&self) -> bool {
        self.state().channel.is_none()
    }

    /// Ends the link and its process. Returns why the machine did not carry what the model says; nothing if it did. The sockets stay
    /// open, without a path between the ends. A second call returns the same.
    pub fn close(&self) -> Vec<String> {
        let mut state = self.state();
        let Some(channel) = state.channel.take() else { return state.faults.clone() };
        let last = channel.send(&Request::Stop).and_then(|()| channel.answer());
        match last {
            Ok(Answer::Stopped(snapshot, faults)) => {
                state.snapshot = snapshot;
                state.faults = faults;
                channel.wait_for_end();
            }
            _ => state.faults = vec!["the link's process ended before it was stopped".to_owned()],
        }
        state.faults.clone()
    }

    fn closed<T>(&self, f: impl FnOnce(&State) -> T) -> Option<T> {
        let state = self.state();
        state.channel.is_none().then(|| f(&state))
    }

    fn ask(&self, request: &Request) -> Result<Answer, StandaloneError> {
        let state = self.state();
        let channel = state.channel.as_ref().ok_or(StandaloneError::Ended)?;
        channel.send(request)?;
        channel.answer()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing under the lock panics half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for StandaloneLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StandaloneLink").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Drop for StandaloneLink {
    fn drop(&mut self) {
        self.close();
    }
}

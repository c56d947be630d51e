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
use freshwire_record::Rate;

pub use self::types::{End, StandaloneError};
use crate::Snapshot;
use wire::{Answer, Channel, Request, UNANSWERED};

/// An emulated link in a process of its own; see the module's page.
///
/// Every call takes some microseconds, and waits while another thread's call is under way. A link's process that does not answer within
/// a minute is ended.
pub struct StandaloneLink {
    state: Mutex<State>,
    address: Option<SocketAddr>,
    has_ipv6: bool,
}

struct State {
    /// `None` once it was closed.
    channel: Option<Channel>,
    /// The last known state.
    snapshot: Snapshot,
    /// Known from the end on.
    faults: Vec<String>,
}

impl State {
    fn ask(&mut self, request: &Request) -> Result<Answer, StandaloneError> {
        let channel = self.channel.as_ref().ok_or(StandaloneError::Ended)?;
        channel.send(request)?;
        if !channel.is_readable() {
            // A late answer would be taken for that of the next request.
            self.channel = None;
            self.faults = vec![UNANSWERED.to_owned()];
            return Err(StandaloneError::Failed(UNANSWERED.to_owned()));
        }
        channel.answer()
    }
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
        match self.state().ask(&Request::Socket { end, domain, kind, protocol })? {
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
        self.state().ask(&Request::SetRate { direction, rate }).map(drop)
    }

    /// What the link has done so far; of a closed one, at its end; of one that did not answer, what was known last.
    ///
    /// # Errors
    ///
    /// [`StandaloneError::Ended`] if the link's process has ended by itself.
    pub fn snapshot(&self) -> Result<Snapshot, StandaloneError> {
        // One lock for all: a close in between would be followed by an older snapshot than its own.
        let mut state = self.state();
        if state.channel.is_none() {
            return Ok(state.snapshot);
        }
        match state.ask(&Request::Snapshot)? {
            Answer::Snapshot(snapshot) => {
                state.snapshot = snapshot;
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
            Err(StandaloneError::Failed(words)) => state.faults = vec![words],
            _ => state.faults = vec!["the link's process ended before it was stopped".to_owned()],
        }
        state.faults.clone()
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

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    #[test]
    fn a_late_answer_is_not_that_of_another_request() {
        let (ours, its) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .expect("a pair");
        let its = Channel::new(its);
        let state = State {
            channel: Some(Channel::without_patience(ours)),
            snapshot: Snapshot::default(),
            faults: Vec::new(),
        };
        let link = StandaloneLink { state: Mutex::new(state), address: None, has_ipv6: false };
        let refused = link.set_rate(Direction::Up, None).expect_err("nobody answers");
        assert_eq!(refused.to_string(), UNANSWERED);
        assert!(its.request().is_ok_and(|request| request.is_some()), "it was asked");
        assert!(its.reply(&Answer::Done).is_err(), "nobody takes it any more");
        assert!(link.is_closed());
        assert!(matches!(link.set_rate(Direction::Down, None), Err(StandaloneError::Ended)));
        assert_eq!(link.snapshot().ok(), Some(Snapshot::default()));
        assert_eq!(link.close(), [UNANSWERED]);
    }
}

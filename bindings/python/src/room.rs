//! Notices when a ring may have room again, for asyncio: a descriptor that becomes readable.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use freshwire::Timestamp;
use freshwire::choice::{AskAgain, Choice, Decision, LinkView, Outcome, Progress, Reason, Record, fifo};
use rustix::event::{EventfdFlags, eventfd};

use crate::common::locks::{lock, take};

/// State that a waiting task and the policy's owner share.
#[derive(Debug, Default)]
pub(crate) struct Room {
    event: OnceLock<OwnedFd>,
    is_awaited: AtomicBool,
}

impl Room {
    /// Arms the descriptor, and returns it.
    pub(crate) fn arm(&self) -> std::io::Result<RawFd> {
        let event = match self.event.get() {
            Some(event) => event,
            None => {
                let new = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
                self.event.get_or_init(|| new)
            }
        };
        // Whether it was readable does not matter: it is armed for what comes.
        let _ = rustix::io::read(event, &mut [0_u8; 8]);
        self.is_awaited.store(true, Ordering::SeqCst);
        Ok(event.as_raw_fd())
    }

    fn signal(&self) {
        if self.is_awaited.load(Ordering::Relaxed)
            && self.is_awaited.swap(false, Ordering::SeqCst)
            && let Some(event) = self.event.get()
        {
            // It fails only where the counter is full, and is readable then.
            let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
        }
    }
}

/// A policy that also notifies waits for room, and returns to its recipe if no sink is made.
pub(crate) struct Watched {
    policy: Box<dyn Choice>,
    room: Arc<Room>,
    left: Left,
}

/// Where a policy is when what had it was dropped.
#[derive(Clone, Default)]
pub(crate) struct Left(Arc<Mutex<Option<Box<dyn Choice>>>>);

impl Left {
    pub(crate) fn take(&self) -> Option<Box<dyn Choice>> {
        take(&self.0)
    }
}

impl Watched {
    pub(crate) fn new(policy: Box<dyn Choice>, room: Arc<Room>, left: Left) -> Self {
        Self { policy, room, left }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let policy = std::mem::replace(&mut self.policy, Box::new(fifo()));
        *lock(&self.left.0) = Some(policy);
    }
}

impl Choice for Watched {
    fn pick(&mut self, now: Timestamp, queue: &[Record], link: &LinkView) -> Decision {
        // Records that were committed before are out of the ring, or in progress.
        self.room.signal();
        self.policy.pick(now, queue, link)
    }

    fn progress(&mut self, now: Timestamp, record: &Record, remaining: u32, link: &LinkView) -> Progress {
        self.policy.progress(now, record, remaining, link)
    }

    fn outcome(&mut self, record: &Record, outcome: Outcome) {
        self.policy.outcome(record, outcome);
        self.room.signal();
    }

    fn stale(&mut self, now: Timestamp, queue: &[Record], newcomer: &Record) -> Option<(usize, Reason)> {
        self.policy.stale(now, queue, newcomer)
    }

    fn overtakes(&self, now: Timestamp, record: &Record, in_progress: &Record) -> bool {
        self.policy.overtakes(now, record, in_progress)
    }

    fn lookahead(&self) -> usize {
        self.policy.lookahead()
    }

    fn is_in_order(&self) -> bool {
        self.policy.is_in_order()
    }

    fn drops_expired(&self) -> bool {
        self.policy.drops_expired()
    }

    fn is_for_state(&self) -> bool {
        self.policy.is_for_state()
    }

    fn attach(&mut self, ask_again: AskAgain) {
        self.policy.attach(ask_again);
    }
}

//! Records whose bytes stay where they are until they are sealed.

mod source;
mod state;

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use freshwire_a1::Qos;
use freshwire_ring::{Fate, Meta};

use self::source::BufferSource;
use self::state::State;
use super::config::SinkConfig;
use super::connection::{Caller, Connection};
use super::group::Group;
use super::supply::Supply;
use crate::sender::SenderError;
use crate::sink::{CloseMode, Ended, Monitor, Sink, SinkShared};

/// What a [`BufferSender`] holds at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferLimits {
    /// Records that were pushed and are not at their end. Default: 1024.
    pub records: usize,
    /// Payload bytes of them. A record that finds nothing else there is taken whatever its size. Default: 16 MiB.
    pub bytes: usize,
}

impl Default for BufferLimits {
    fn default() -> Self {
        Self { records: 1024, bytes: 16 << 20 }
    }
}

/// Why a buffer was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BufferError {
    /// No room within the [`BufferLimits`].
    #[error("the sender holds as many records or bytes as it may: wait, drop or replace a record")]
    Full,
    /// The connection or group is over.
    #[error("the sender takes nothing any more: its connection is over, or is being closed")]
    Closed,
    /// No message can be so large.
    #[error("a message of {bytes} bytes is larger than the {most} that one can have", most = Qos::MAX_MESSAGE)]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
}

/// Feeds a connection or a group with buffers of the application's: a payload is not copied before it is put into the packets that are
/// sealed, and its owner gets it back when its record is at its end (Mapp 1997, "Implementation": buffers with a free function). As a
/// [`Sender`](crate::Sender) does, it lets records be dropped and replaced until their first packet leaves, and tells their fates.
///
/// For what is in memory already: a frame of a camera's or an encoder's pool, a mapped file, a message that was received and goes on.
/// Messages of less than a kilobyte or so cost less in a ring, since a copy is less work than an owner. A
/// buffer is a [`Bytes`]: [`Bytes::from_owner`] makes one of anything that has bytes, and drops that when the last clone is gone. One
/// buffer may be pushed to any number of senders. What drops it may be the node's thread in the middle of its work, so the owner's `drop`
/// must not wait for long, nor use the node.
///
/// The records are in this process's memory, not in a region that a second process may edit.
///
/// ```no_run
/// use bytes::Bytes;
/// use std::time::Duration;
/// use freshwire::a1::{BufferLimits, BufferSender, ConnectConfig, Node, NodeConfig, SinkConfig};
/// use freshwire::{CloseMode, Meta, choice, now};
///
/// # let (address, key) = ("camera.example.org:5000", "".parse()?);
/// # struct Frame; impl AsRef<[u8]> for Frame { fn as_ref(&self) -> &[u8] { &[] } }
/// # fn next_frame() -> Frame { Frame }
/// let node = Node::bind("0.0.0.0:0".parse()?, NodeConfig::new()?)?;
/// let connection = node.connect(address, &key, &ConnectConfig::default())?;
/// let config = SinkConfig::new(choice::deadline(Duration::ZERO));
/// let mut sender = BufferSender::new(&connection, config, BufferLimits::default())?;
/// let frame = Bytes::from_owner(next_frame());
/// let now = now();
/// let meta = Meta { user_seq: 1, generated: now, deadline: now + Duration::from_millis(300), ..Meta::default() };
/// sender.push(frame, &meta)?;
/// sender.close(CloseMode::Drain, Duration::from_secs(1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct BufferSender {
    shared: Arc<Shared>,
    caller: Caller,
    sink: Sink,
}

/// What the application's and the node's threads have in common.
struct Shared {
    state: Mutex<State>,
    /// There is room again.
    room: Condvar,
}

impl BufferSender {
    /// Feeds this connection. It goes on to receive; closing the sender closes it.
    pub fn new(
        connection: &Connection,
        config: SinkConfig,
        limits: BufferLimits,
    ) -> Result<Self, SenderError> {
        let shared = Arc::new(Shared::new(limits));
        let sink = connection.feed(0, config, |stats| shared.supply(stats))?;
        Ok(Self { shared, caller: connection.caller(), sink })
    }

    /// Feeds this group. The limits have to leave room for what it keeps for repairs; see
    /// [`GroupConfig::repair_for`](super::GroupConfig::repair_for).
    pub fn to_group(group: &Group, config: SinkConfig, limits: BufferLimits) -> Result<Self, SenderError> {
        let shared = Arc::new(Shared::new(limits));
        let sink = group.feed(0, config, |stats| shared.supply(stats))?;
        Ok(Self { shared, caller: group.caller(), sink })
    }

    /// Queues a record and returns its index: indices grow, and fates have them. No system call while the node's thread is awake.
    pub fn push(&mut self, payload: impl Into<Bytes>, meta: &Meta) -> Result<u64, BufferError> {
        let mut state = self.shared.lock();
        let index = state.push(payload.into(), meta)?;
        self.call(state);
        Ok(index)
    }

    /// Waits until there is room for a record of `bytes` bytes, at most for `timeout`. False: there is none yet. Where there is none at
    /// first, it waits until a quarter of the limits is free, which saves a wake-up for each record.
    pub fn wait_room(&self, bytes: usize, timeout: Duration) -> Result<bool, BufferError> {
        let mut state = self.shared.lock();
        if !state.is_closed() && !state.has_room(bytes) {
            state.waiters += 1;
            let in_vain = |state: &mut State| !state.is_closed() && !state.has_room(bytes);
            let waited = self.shared.room.wait_timeout_while(state, timeout, in_vain);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            state.waiters -= 1;
        }
        if state.is_closed() { Err(BufferError::Closed) } else { Ok(state.has_room(bytes)) }
    }

    /// Drops the queued records with this number; returns how many there were. Exact: what is counted is never sent.
    pub fn drop_seq(&mut self, user_seq: u64) -> usize {
        // Their owners get them back when nobody waits for the lock any more.
        let dropped = self.shared.lock().drop_seq(user_seq);
        dropped.len()
    }

    /// Puts a record in the place of the newest queued one with the same key, or at the end if there is none. True: there was one; its
    /// owner has it back, and it has no fate of its own.
    pub fn replace(&mut self, payload: impl Into<Bytes>, meta: &Meta) -> Result<bool, BufferError> {
        let payload = payload.into();
        let mut state = self.shared.lock();
        let replaced = state.replace(&payload, meta)?;
        if replaced.is_none() {
            state.push(payload, meta)?;
        }
        self.call(state);
        Ok(replaced.is_some())
    }

    /// What became of the oldest record that is at its end and was not told. Of fates that nobody asks for, the newest are kept, as many
    /// as [`BufferLimits::records`].
    pub fn poll_fate(&mut self) -> Option<Fate> {
        self.shared.lock().poll_fate()
    }

    /// Records that were pushed and neither begun nor dropped.
    pub fn waiting(&self) -> usize {
        self.shared.lock().waiting()
    }

    /// Tells how it is, also after its end.
    pub fn monitor(&self) -> Monitor {
        self.sink.monitor()
    }

    /// Begins to close and waits at most `timeout` for the end; past it the connection is aborted. Returns how it ended. A sender that is
    /// dropped closes as a [`Sink`] does.
    pub fn close(self, mode: CloseMode, timeout: Duration) -> Ended {
        self.sink.close(mode, timeout)
    }

    /// Calls who serves it if that rests.
    fn call(&self, mut state: MutexGuard<'_, State>) {
        let rests = state.call();
        drop(state);
        if rests {
            self.caller.call();
        }
    }
}

impl Shared {
    fn new(limits: BufferLimits) -> Self {
        Self { state: Mutex::new(State::new(limits)), room: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn supply(self: &Arc<Self>, stats: Arc<SinkShared>) -> Box<dyn Supply> {
        Box::new(BufferSource::new(Arc::clone(self), stats))
    }
}

//! Records whose bytes stay where they are until they are sealed.

mod limits;
mod source;
mod state;

use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use freshwire_ring::{Fate, Meta};

pub use self::limits::{BufferError, BufferLimits};
use self::source::BufferSource;
use self::state::{Shared, State};
use super::config::SinkConfig;
use super::connection::{Connection, NodeNotifier};
use super::group::Group;
use crate::error::SenderError;
use crate::sink::ended::{CloseMode, Ended};
use crate::sink::handle::{Monitor, Notifier, Sink};

/// Sink of a connection or a group for the application's own buffers, from [`Connection::add_buffer_sink`] or
/// [`Group::add_buffer_sink`]. A payload is copied only into the packets, where it is encrypted. It is returned to
/// its owner at the end of its record (Mapp 1997, "Implementation": buffers with a free function). As with a
/// [`Sender`](crate::Sender), records can be dropped and replaced until their first packet is sent, and have fates.
///
/// Use it for data that is in memory already: frames of a camera's or an encoder's pool, a mapped file, a forwarded message. Messages below
/// about a kilobyte are cheaper in a ring. A buffer is a [`Bytes`]; [`Bytes::from_owner`] wraps any owner of bytes, and drops it with the
/// last clone. One buffer may be pushed to any number of sinks. The node's thread may drop it, so the owner's `drop` must be short and
/// must not use the node.
///
/// The records are in private memory, not in a region that a second process may edit.
///
/// ```no_run
/// use bytes::Bytes;
/// use std::time::Duration;
/// use freshwire::a1::{BufferLimits, ConnectConfig, Node, NodeConfig, SinkConfig};
/// use freshwire::{Meta, choice, now};
/// use freshwire::sink::CloseMode;
///
/// # let (address, key) = ("camera.example.org:5000", "".parse()?);
/// # struct Frame; impl AsRef<[u8]> for Frame { fn as_ref(&self) -> &[u8] { &[] } }
/// # fn next_frame() -> Frame { Frame }
/// let node = Node::bind("0.0.0.0:0".parse()?, NodeConfig::new()?)?;
/// let connection = node.connect(address, &key, &ConnectConfig::default())?;
/// let config = SinkConfig::new(choice::deadline(Duration::ZERO));
/// let mut sink = connection.add_buffer_sink(config, BufferLimits::default())?;
/// let frame = Bytes::from_owner(next_frame());
/// let now = now();
/// let meta = Meta { generated: now, deadline: now + Duration::from_millis(300), ..Meta::default() };
/// sink.push_owned(frame, &meta)?;
/// sink.close(CloseMode::Drain, Duration::from_secs(1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct BufferSink {
    shared: Arc<Shared>,
    notifier: NodeNotifier,
    sink: Sink,
}

impl Connection {
    /// Makes the connection a sink of the application's own buffers. It can still receive; closing the sink closes
    /// it.
    ///
    /// # Errors
    ///
    /// As [`Sender::add_a1_sink`](crate::Sender::add_a1_sink).
    pub fn add_buffer_sink(
        &self,
        config: SinkConfig,
        limits: BufferLimits,
    ) -> Result<BufferSink, SenderError> {
        if config.departures {
            return Err(SenderError::NoDepartures("a sink of the application's buffers"));
        }
        let shared = Arc::new(Shared::new(limits));
        let sink = self.attach(0, config, |stats| Box::new(BufferSource::new(shared.clone(), stats)))?;
        Ok(BufferSink { shared, notifier: self.notifier(), sink })
    }
}

impl Group {
    /// Makes the group a sink of the application's own buffers. The limits need space for the records kept for
    /// repairs; see [`GroupTransportConfig::repair_for`](super::GroupTransportConfig::repair_for).
    ///
    /// # Errors
    ///
    /// As [`Sender::add_a1_group`](crate::Sender::add_a1_group).
    pub fn add_buffer_sink(
        &self,
        config: SinkConfig,
        limits: BufferLimits,
    ) -> Result<BufferSink, SenderError> {
        let shared = Arc::new(Shared::new(limits));
        let sink = self.attach(0, config, |stats| Box::new(BufferSource::new(shared.clone(), stats)))?;
        Ok(BufferSink { shared, notifier: self.notifier(), sink })
    }
}

impl BufferSink {
    /// Queues a record and returns its index, as [`Fate::index`] reports it. Makes no system call while the node's
    /// thread is awake.
    ///
    /// # Errors
    ///
    /// If the limits are reached, the record exceeds the largest message, or the sink has ended.
    pub fn push_owned(&mut self, payload: impl Into<Bytes>, meta: &Meta) -> Result<u64, BufferError> {
        let mut state = self.shared.lock();
        let index = state.push(payload.into(), meta)?;
        self.call(state);
        Ok(index)
    }

    /// Waits at most `timeout` for space for a record of `bytes` bytes. Returns `false` if there is still
    /// none. If there is none at first, it waits until a quarter of the limits is free, which saves a wake-up
    /// for each record.
    ///
    /// # Errors
    ///
    /// If the sink has ended.
    pub fn wait_room(&self, bytes: usize, timeout: Duration) -> Result<bool, BufferError> {
        let mut state = self.shared.lock();
        if !state.is_closed() && !state.has_room(bytes) {
            state.waiters += 1;
            let must_wait = |state: &mut State| !state.is_closed() && !state.has_room(bytes);
            let waited = self.shared.room.wait_timeout_while(state, timeout, must_wait);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            state.waiters -= 1;
        }
        if state.is_closed() { Err(BufferError::Closed) } else { Ok(state.has_room(bytes)) }
    }

    /// Drops the queued records with this number and returns their count. A counted record is never sent.
    pub fn drop_seq(&mut self, seq: u64) -> usize {
        // Their owners get them back when nobody waits for the lock any more.
        let dropped = self.shared.lock().drop_seq(seq);
        dropped.len()
    }

    /// Replaces the newest queued record with the same key, or queues the record at the end. Returns `true`
    /// if it replaced one; that record's owner has it back, and it has no fate.
    ///
    /// # Errors
    ///
    /// As [`push_owned`](Self::push_owned).
    pub fn replace(&mut self, payload: impl Into<Bytes>, meta: &Meta) -> Result<bool, BufferError> {
        let payload = payload.into();
        let mut state = self.shared.lock();
        let meta = &state.number(meta);
        let replaced = state.replace(&payload, meta)?;
        if replaced.is_none() {
            state.push(payload, meta)?;
        }
        self.call(state);
        Ok(replaced.is_some())
    }

    /// Returns the oldest unreported fate. Among fates that are not polled, the newest [`BufferLimits::records`]
    /// are kept.
    pub fn poll_fate(&mut self) -> Option<Fate> {
        self.shared.lock().poll_fate()
    }

    /// Number of queued records, neither committed nor dropped.
    pub fn waiting(&self) -> usize {
        self.shared.lock().waiting()
    }

    /// Returns a handle to observe the sink, which may outlive it.
    pub fn monitor(&self) -> Monitor {
        self.sink.monitor()
    }

    /// Closes the sink and waits at most `timeout`, after which the connection is aborted. Returns the reason
    /// for the end. A dropped one closes as a [`Sink`] does.
    pub fn close(self, mode: CloseMode, timeout: Duration) -> Ended {
        self.sink.close(mode, timeout)
    }

    /// Calls who serves it if that rests.
    fn call(&self, mut state: MutexGuard<'_, State>) {
        let rests = state.call();
        drop(state);
        if rests {
            self.notifier.notify();
        }
    }
}

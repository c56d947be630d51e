use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// Handle of a sink, from [`Sink::id`](crate::Sink::id). Copies stay valid until the sink's ring serves another sink; from
/// then on each call with the handle fails with [`StaleSink`]. No two sinks of a process have equal handles, so the
/// handle of another [`Sender`](crate::Sender) fails too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SinkId {
    serial: u64,
    ring: u32,
}

impl SinkId {
    /// The handle of the next sink, which `ring` feeds.
    pub(crate) fn next(ring: usize) -> Self {
        static SERIAL: AtomicU64 = AtomicU64::new(1);
        let ring = u32::try_from(ring).unwrap_or(u32::MAX);
        Self { serial: SERIAL.fetch_add(1, Ordering::Relaxed), ring }
    }

    /// Index of the ring that feeds the sink, as an [`Editor`](crate::ring::Editor) in a second process needs it. A ring serves
    /// one sink after the other; the second process learns from the first when the sink ends.
    pub fn ring(self) -> usize {
        self.ring as usize
    }
}

impl fmt::Display for SinkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sink {} (ring {})", self.serial, self.ring)
    }
}

/// Error of a call with a handle whose sink the sender does not serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0} is not a sink of this sender: its ring serves another sink by now; use the id of a current sink"
)]
pub struct StaleSink(pub SinkId);

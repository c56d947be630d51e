//! Every duration of the driver, with its reason.

use std::time::Duration;

/// Default of [`NodeConfig::busy_poll`](crate::a1::NodeConfig::busy_poll): the time in which another process on the same machine,
/// or the next machine on the network, answers. Sleeping and waking up costs several microseconds more than such an answer.
pub const DEFAULT_BUSY_POLL: Duration = Duration::from_micros(50);

/// A datagram that arrives within this time after the thread has gone to sleep was held back by its polling: the sender shares the
/// processor. Another thread needs at most this long to send a datagram once it has the processor.
pub(super) const SHARED_PROCESSOR: Duration = Duration::from_micros(20);

/// Limit of the delay of acknowledgements and other responses when the application received what it waited for: usually its reply
/// leaves sooner and carries them. Far below the peer's limit for acknowledgements (`max_ack_delay`).
pub(super) const RESPONSE_DELAY: Duration = Duration::from_millis(1);

/// After a hand-over the node's thread wakes every [`RESPONSE_DELAY`] for this time, so that the next hand-overs need not wake it.
/// Twenty idle wake-ups cost less than one system call for each message of a dialogue.
pub(super) const FREQUENT_WAKE_UPS: Duration = Duration::from_millis(20);

/// Time for which the node's thread leaves the lock to an application's thread that drives the socket. A
/// thread that waits for the lock would cost the holder two system calls at each release. The node's thread
/// defers at most [`MAX_DEFERRALS`] times in a row, so no timer is more than five milliseconds late.
pub(super) const DEFERRAL: Duration = Duration::from_micros(200);

/// See [`DEFERRAL`].
pub(super) const MAX_DEFERRALS: u32 = 25;

/// Longest time until every ring is looked at, notified or not. A producer in another process that is killed between its push and
/// its notification leaves a record that nobody announces.
//= spec/ring.md R-ROLE-7
pub(in crate::a1) const RING_SCAN: Duration = Duration::from_secs(1);

/// A producer that pushes again within this time after its last message was sent did nothing else in between; see
/// [`BurstDetector`](super::burst::BurstDetector).
pub(super) const BURST_GAP: Duration = Duration::from_micros(4);

//! The measurement of one subject.

use std::time::Duration;

use freshwire_io::now;
use freshwire_record::Timestamp;

/// After this long without a datagram no more come.
pub(super) const SILENCE: Duration = Duration::from_millis(100);

/// The bytes from one sender to one receiver.
pub(super) struct Bulk {
    pub(super) sent: u64,
    pub(super) bytes: u64,
    pub(super) begin: Timestamp,
    pub(super) end: Timestamp,
}

/// Half of a round trip that began then, in nanoseconds.
pub(super) fn half(begin: Timestamp) -> f64 {
    now().saturating_since(begin).as_nanos() as f64 / 2.0
}

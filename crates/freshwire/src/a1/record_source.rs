//! The source of a connection's or group's records.

use freshwire_a1::Source;
use freshwire_choice::Reason;
use freshwire_record::Timestamp;

/// A source with an end, which producers fill on other threads.
pub(super) trait RecordSource: Source + Send {
    /// The packets in which records ended since the last call: where they begin in the buffer of datagrams, and the records' indexes. Empty
    /// unless the sink notes departures.
    fn take_ends(&mut self) -> Vec<(usize, u64)> {
        Vec::new()
    }

    /// Whether a producer has called since the last rest.
    fn notified(&self) -> bool;

    /// Announces that nobody looks any more until a producer calls. False: something became visible since the last look, so another
    /// one is due. A record that the connection did not look at has no room in the path or the window, and whatever makes room leads to a
    /// look.
    fn rest(&mut self) -> bool;

    /// Records that were taken and are not settled.
    fn in_hand(&self) -> usize;

    /// Bad values that were found in what is shared with the producer.
    fn bad_values(&self) -> u64;

    /// Refuses further records and drops what is queued; how many those were.
    fn close(&mut self, reason: Reason, now: Timestamp) -> usize;

    /// Refuses further records and resolves every one that is left; how many those were.
    fn end(&mut self, reason: Reason, now: Timestamp) -> usize;
}

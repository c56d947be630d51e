//! The outcome of a repetition.

use super::look::Rates;

/// Payload of a full segment over Ethernet, with timestamps.
pub(super) const FULL_SEGMENT: f64 = 1448.0;

/// What one repetition has come to; what a way does not have is `None`.
pub(super) struct Figures {
    /// Bytes a second.
    pub(super) throughput: f64,
    pub(super) cpu_per_gb: f64,
    pub(super) fullness: Option<f64>,
    /// For a gigabyte.
    pub(super) system_calls: Option<f64>,
    pub(super) rates: Rates,
    /// Segments a second that come to the sender's TCP.
    pub(super) acks: Option<f64>,
    /// Share of the acknowledgements that the filter dropped, in percent.
    pub(super) filtered: Option<f64>,
    /// Least and median window of the first connection's receiver.
    pub(super) window: Option<[f64; 2]>,
    /// Whole pictures that came, of those that were made.
    pub(super) of_offered: Option<f64>,
    /// Pictures that the server read, of those that were due: fewer on a busy machine, and where it does not read as fast.
    pub(super) of_due: Option<f64>,
}

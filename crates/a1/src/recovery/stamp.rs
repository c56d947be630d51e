//! What a packet keeps for the measurement of the rate.

use freshwire_record::Timestamp;

/// The state of delivery when a packet left, kept with the packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stamp {
    pub(super) delivered: u64,
    pub(super) lost: u64,
    pub(super) delivered_at: Timestamp,
    pub(super) first_sent_at: Timestamp,
    pub(super) sent_at: Timestamp,
    pub(super) app_limited: bool,
    /// An acknowledgement had come since the path was idle.
    pub(super) clocked: bool,
    pub(super) streak: u64,
}

/// The newest packet of an acknowledgement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Newest {
    pub(super) number: u64,
    pub(super) sent_at: Timestamp,
    pub(super) bytes: u32,
    pub(super) stamp: Stamp,
}

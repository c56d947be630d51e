//! What the connection and recovery say to each other.

use std::ops::RangeInclusive;
use std::time::Duration;

use freshwire_record::Timestamp;

/// Which congestion control runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Controller {
    /// Delay-based, random loss does not starve it; see `congestion/copa.rs`.
    #[default]
    Copa,
    /// RFC 9438, a reference.
    Cubic,
    /// RFC 9002's NewReno, a reference.
    NewReno,
}

/// How recovery behaves; the same for the life of a connection.
#[derive(Clone, Debug)]
pub(crate) struct RecoveryConfig {
    pub(crate) controller: Controller,
    /// Assumed until the first sample.
    pub(crate) initial_rtt: Duration,
    /// The longest that the receiver holds an acknowledgement back.
    pub(crate) max_ack_delay: Duration,
    /// UDP payload in bytes that every path carries.
    pub(crate) base_mtu: u16,
    /// UDP payload in bytes up to which the MTU is searched.
    pub(crate) max_mtu: u16,
    /// Whether packets are marked as ECN-capable.
    pub(crate) ecn: bool,
    /// Whether a TCP connection carries the packets at first.
    pub(crate) is_tcp: bool,
    /// Bound of the packets between the oldest in flight and the newest.
    pub(crate) max_packets: usize,
}

impl Default for RecoveryConfig {
    fn default() -> Self {
        Self {
            controller: Controller::Copa,
            initial_rtt: Duration::from_millis(100),
            max_ack_delay: Duration::from_millis(25),
            base_mtu: 1200,
            max_mtu: 1472,
            ecn: true,
            is_tcp: false,
            max_packets: 1 << 17,
        }
    }
}

/// A packet that leaves.
#[derive(Clone, Debug)]
pub(crate) struct Sent<C> {
    /// Its number, larger than all before.
    pub(crate) number: u64,
    /// UDP payload in bytes.
    pub(crate) bytes: u32,
    /// Whether the peer acknowledges it. What does not elicit is neither in flight nor returned.
    pub(crate) eliciting: bool,
    /// Whether it asks for an acknowledgement at once.
    pub(crate) ack_now: bool,
    /// Nothing more waits to be sent after it.
    pub(crate) app_limited: bool,
    /// It is the probe that [`super::Recovery::mtu_probe`] asked for.
    pub(crate) mtu_probe: bool,
    /// Given back once its fate is known.
    pub(crate) content: C,
}

/// An acknowledgement as it came.
#[derive(Clone, Debug)]
pub(crate) struct AckInfo<'a> {
    /// The largest number acknowledged.
    pub(crate) largest: u64,
    /// Newest first, not overlapping.
    pub(crate) ranges: &'a [RangeInclusive<u64>],
    /// How long the receiver held the largest one's acknowledgement back.
    pub(crate) delay: Duration,
    /// The receiver's clock when the largest arrived, in microseconds of an origin of its own; it wraps.
    pub(crate) receiver_time_us: u32,
    /// Packets with a congestion mark since the connection began.
    pub(crate) ce_count: u64,
}

/// What became of packets. Vectors are pushed to, never cleared, by recovery.
#[derive(Debug)]
pub(crate) struct Outcomes<C> {
    /// The peer has them.
    pub(crate) acked: Vec<(u64, C)>,
    /// Taken for lost.
    pub(crate) lost: Vec<(u64, C)>,
    /// Reported as lost before, and the peer has them after all.
    pub(crate) spurious: Vec<u64>,
}

impl<C> Default for Outcomes<C> {
    fn default() -> Self {
        Self { acked: Vec::new(), lost: Vec::new(), spurious: Vec::new() }
    }
}

/// The peer is wrong or hostile; the connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AckError {
    /// An acknowledgement of a packet that never left.
    #[error("packet {0} is acknowledged and was never sent")]
    NeverSent(u64),
}

/// How much may leave now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Allowance {
    /// This many bytes of UDP payload, at least one packet of the present MTU.
    Bytes(u64),
    /// Nothing before this instant: the pacer spreads packets.
    At(Timestamp),
    /// Nothing before something is acknowledged, lost, or timed out: the window is full.
    Blocked,
}

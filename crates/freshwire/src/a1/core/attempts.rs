//! When the other way to a peer is tried.

use std::net::SocketAddr;
use std::time::Duration;

use freshwire_record::Timestamp;

/// A connection of this node's that may go over TCP.
#[derive(Debug)]
pub(super) struct Fallback {
    pub(super) address: SocketAddr,
    /// When the other way is due to be tried.
    pub(super) at: Timestamp,
    /// Before the next attempt over TCP, after one that failed.
    pub(super) pause: Duration,
    /// Before the next attempt over UDP.
    pub(super) udp_pause: Duration,
    /// When UDP is tried again.
    pub(super) udp_at: Timestamp,
}

impl Fallback {
    pub(super) fn new(address: SocketAddr, at: Timestamp) -> Self {
        Self { address, at, pause: FIRST_PAUSE, udp_pause: FIRST_UDP_PAUSE, udp_at: Timestamp::MAX }
    }

    /// The next attempt over TCP after one that failed.
    pub(super) fn failed(&mut self, now: Timestamp) {
        self.at = now + self.pause;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }
}

/// Pauses between attempts to make a TCP connection: from the smallest connection attempt delay of RFC 8305 that it recommends, to
/// its largest (section 8).
pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// Pauses between attempts to go back to UDP, five packets of some 40 bytes each. Chosen, not measured: a change of the network is
/// noticed within seconds, and a path that drops UDP for good costs next to nothing.
const FIRST_UDP_PAUSE: Duration = Duration::from_secs(10);
pub(super) const LONGEST_UDP_PAUSE: Duration = Duration::from_secs(600);

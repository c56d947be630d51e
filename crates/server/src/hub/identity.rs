use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use freshwire::sink::Monitor;

/// A viewer's identity with the monitor of its sink.
pub(super) struct Identity {
    pub(super) id: u64,
    pub(super) protocol: &'static str,
    pub(super) peer: SocketAddr,
    pub(super) user: Option<String>,
    pub(super) since: Instant,
    pub(super) latency: Option<Duration>,
    pub(super) monitor: Monitor,
    /// Its ring gives nothing any more.
    pub(super) is_given_up: AtomicBool,
}

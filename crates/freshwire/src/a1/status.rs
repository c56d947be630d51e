use freshwire_a1::Closed;

/// Status of a [`Connection`](super::Connection).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectionStatus {
    /// A message waits because the receiver's window is full.
    pub window_exceeded: bool,
    /// A message waits for the agreed rate.
    pub rate_exceeded: bool,
    /// A change of the quality of service is pending.
    pub qos_pending: bool,
    /// The quality of service has changed since it was last reported, whichever end requested it.
    pub qos_changed: bool,
    /// The connection goes over TCP: [`NodeConfig::tcp_fallback`](super::NodeConfig::tcp_fallback) permits it, and UDP does not pass.
    pub over_tcp: bool,
    /// Reason for the end; `None` while the connection is open.
    pub closed: Option<Closed>,
}

/// Changes of the quality of service that were not reported to the application.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct QosNews {
    pub(super) pending: bool,
    pub(super) changed: bool,
}

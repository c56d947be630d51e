use std::time::Duration;

use freshwire::websocket::Keepalive;
use freshwire_record::Rate;

/// Limits of one client, and of all of them together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most connections at once, of all protocols. Default 4096.
    pub max_connections: usize,
    /// Most of them from one address (IPv6: one /64); loopback has no such limit. Default 64.
    pub max_connections_per_ip: usize,
    /// New connections from one address in a second, of which those of two seconds may come at once; loopback has no such limit.
    /// Default 50.
    pub max_connection_rate_per_ip: usize,
    /// A TLS handshake takes no longer. Default 10 s.
    pub handshake_timeout: Duration,
    /// A request is complete this long after its first byte, and the first one this long after the connection. Default
    /// 10 s.
    pub request_timeout: Duration,
    /// A client that neither views nor publishes is disconnected after this long without a request. Default 60 s.
    pub idle_timeout: Duration,
    /// A client of a lasting connection is asked whether it is there after this long without a word, over WebSocket by a ping, and events get a
    /// comment. Default 15 s, [`Keepalive::DEFAULT_EVERY`].
    pub keepalive: Duration,
    /// A client that is asked and does not answer for this long is disconnected, and one whose system acknowledges nothing for this long. Default
    /// 30 s, [`Keepalive::DEFAULT_TIMEOUT`].
    pub keepalive_timeout: Duration,
    /// An answer is taken by its client in this time. Default 30 s.
    pub answer_timeout: Duration,
    /// A connection that neither views nor publishes is closed after this long, however much it asks. Default 10 min.
    pub max_connection_age: Duration,
    /// Most bytes of a request's line and headers. Default 16 KiB.
    pub max_header_bytes: usize,
    /// Most bytes of a request's body, such as the SDP of ANNOUNCE. Default 64 KiB.
    pub max_body_bytes: usize,
    /// Highest rate of a publisher, averaged over a few seconds; a faster one is disconnected. Default 200 Mbit/s.
    pub max_publish_rate: Rate,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_connections: 4096,
            max_connections_per_ip: 64,
            max_connection_rate_per_ip: 50,
            handshake_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(60),
            keepalive: Keepalive::DEFAULT_EVERY,
            keepalive_timeout: Keepalive::DEFAULT_TIMEOUT,
            answer_timeout: Duration::from_secs(30),
            max_connection_age: Duration::from_secs(600),
            max_header_bytes: 16 << 10,
            max_body_bytes: 64 << 10,
            max_publish_rate: Rate::from_bits_per_sec(200_000_000),
        }
    }
}

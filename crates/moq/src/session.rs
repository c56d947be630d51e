//! Connections to relays.

use std::time::Duration;

use moq_tokio::{Client, Connection};
use url::Url;

use crate::error::MoqError;

/// How long a connection may take to be established: as for brokers and cameras. Behind a satellite, with a round trip of 800 ms, it
/// takes 4 s, more if packets are lost. QUIC repeats its first packet after 1 s, so a relay that restarts meanwhile is found. Where nobody
/// answers it gives up after 3 s, three of its first probe timeouts, and the next attempt sends a first packet at once.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A relay that is silent for this long is gone. Chosen: viewers are back within 2 s of the restart of a relay that was killed. Behind
/// long round trips QUIC waits for three probe timeouts instead (RFC 9000, 10.1).
const IDLE_TIMEOUT: Duration = Duration::from_millis(1200);

/// Three of these fit into [`IDLE_TIMEOUT`]: two may be lost in a row.
const KEEP_ALIVE: Duration = Duration::from_millis(350);

/// Connects once. `attach` says what is published or read.
pub(crate) async fn connect(
    url: &Url,
    attach: impl FnOnce(Client) -> Client,
) -> Result<Connection, MoqError> {
    let mut connect = moq_tokio::connect::Config::default();
    connect.timeout = CONNECT_TIMEOUT;
    connect.once = Some(true);
    let mut quic = moq_tokio::quic::Config::default();
    quic.idle_timeout = IDLE_TIMEOUT;
    quic.keep_alive = KEEP_ALIVE;
    // Keeps the queue of the bottleneck short, and says what the path carries.
    quic.congestion_control = Some(moq_tokio::quic::CongestionControl::Delay);
    let client = attach(connect.init(quic)?);
    Ok(client.connect(url.clone()).established().await?)
}

/// Waits for the end of a connection, and says how it ended.
pub(crate) async fn ended(connection: &Connection) -> MoqError {
    match connection.closed().await {
        Ok(()) => MoqError::Ended("closed".to_owned()),
        Err(error) => MoqError::of_end(&error),
    }
}

//! RTSP 1.0 (RFC 2326), with and without TLS: programs that nobody changed view and publish streams.
//!
//! ```text
//!             ┌── connection: one task, requests and answers ──┐
//!  Acceptor ──┤  OPTIONS DESCRIBE SETUP ─► view                ├─ PLAY over TCP ─► viewing: the engine writes,
//!             │  PLAY over UDP ─► udp: datagrams of each unit  │                   the task reads and interjects
//!             │  ANNOUNCE SETUP RECORD ─► publish: hub         │  over TCP, or datagrams that `receive` puts in order
//!             └────────────────────────────────────────────────┘
//! ```
//!
//! A session lives as long as its connection. Where the stream goes over the same connection, reading it proves that
//! the viewer is alive, and [`HubConfig::stall_timeout`](crate::hub::HubConfig::stall_timeout) ends those that read
//! nothing. Over UDP, a request or an RTCP packet has to come within [`SESSION_TIMEOUT`].
//!
//! A track that is set up over UDP in the profile `RTP/AVPF` has its lost packets sent again on request (RFC 4588). The
//! description offers it where the address has `retransmission=on`, as not every player knows this profile.

mod begin_error;
pub(crate) mod channel;
mod clocks;
pub(crate) mod common;
mod connection;
pub(crate) mod feed;
pub(crate) mod link;
pub(crate) mod message;
mod preferences;
pub(crate) mod publish;
pub(crate) mod receive;
mod reply;
pub(crate) mod rtp_path;
mod target;
mod transport;
pub(crate) mod udp;
mod view;
mod viewing;

use std::sync::Arc;

use tracing::Instrument as _;

pub use common::SESSION_TIMEOUT;

use crate::context::Context;
use crate::net::Acceptor;

/// Serves the connections of `acceptor` until the server stops.
pub async fn serve(acceptor: Acceptor, context: Arc<Context>) {
    let name = format!("rtsp on {}", acceptor.local_addr());
    context.tasks.keep(name, || accept(&acceptor, &context)).await;
}

async fn accept(acceptor: &Acceptor, context: &Arc<Context>) {
    let mut shutdown = context.shutdown.clone();
    while let Some(conn) = acceptor.next(&mut shutdown).await {
        let span = tracing::info_span!("rtsp", peer = %conn.peer_addr());
        let connection = connection::run(conn, Arc::clone(context)).instrument(span);
        context.tasks.spawn("RTSP connection", connection);
    }
}

#[cfg(test)]
mod work;

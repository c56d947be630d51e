//! RTMP (Adobe's specification 1.0) and enhanced RTMP, with and without TLS: programs that nobody changed publish
//! streams.
//!
//! ```text
//!            ┌── connection: one task ───────────────────────────────────────┐
//!  Acceptor ─┤ handshake ─► connect createStream publish ─► publish: Flv, hub │
//!            └───────────────────────────────────────────────────────────────┘
//! ```
//!
//! A publisher here has the names, rights and limits of one over RTSP. Viewers are not served: a `play` is refused.

mod answer;
mod connection;
mod publish;
mod target;
pub(crate) mod wire;

use std::sync::Arc;

use tracing::Instrument as _;

use crate::context::Context;
use crate::net::Acceptor;

/// Serves the connections of `acceptor` until the server stops.
pub async fn serve(acceptor: Acceptor, context: Arc<Context>) {
    let name = format!("rtmp on {}", acceptor.local_addr());
    context.tasks.keep(name, || accept(&acceptor, &context)).await;
}

async fn accept(acceptor: &Acceptor, context: &Arc<Context>) {
    let mut shutdown = context.shutdown.clone();
    while let Some(conn) = acceptor.next(&mut shutdown).await {
        let span = tracing::info_span!("rtmp", peer = %conn.peer_addr());
        let connection = connection::run(conn, Arc::clone(context)).instrument(span);
        context.tasks.spawn("RTMP connection", connection);
    }
}

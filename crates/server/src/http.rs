//! HTTP: the web page, and streams for players that speak HTTP.
//!
//! ```text
//!  GET /            the list of streams            ─┐
//!  GET /NAME        the player                      │ answered by hyper
//!  GET /_/...       the pages' scripts and styles  ─┘
//!  GET /NAME/ws     fragmented MP4 in WebSocket    ─┐ taken from hyper before the answer: the engine writes the
//!  GET /NAME.ts     MPEG-TS                         │ answer's head and everything behind it, a task goes on
//!  GET /NAME.mp4    fragmented MP4                  │ reading
//!  GET /NAME.fw     Freshwire's own stream         ─┘
//!
//!  GET /NAME/values   a stream's values by key, as WebSocket messages     ─┐ the same
//!  GET /NAME/events   the same as server-sent events                      ─┘
//!  GET /NAME/push     WebSocket of a publisher of values
//!  GET /NAME/watch    a page that shows the values
//!  GET /NAME/KEY      the value of a key       GET /NAME          all values, for clients that do not ask for a page
//!  POST /NAME/KEY     a value: the body        DELETE /NAME/KEY   deletes the key
//!  POST /NAME         changes, one to a line
//!
//!  POST /NAME/whep    an offer of WebRTC to view     POST /NAME/whip    one to publish
//!  DELETE, PATCH /NAME/whep/ID, /NAME/whip/ID         the session's end, and candidates
//! ```
//!
//! A stream's name may contain `/`. `/health`, `/metrics` and `/api/streams` are on an address of their own: see
//! [`internal`].

mod answer;
mod body;
mod connection;
mod guard;
mod heads;
mod health;
pub mod internal;
mod metrics;
pub(crate) mod origin;
mod page;
mod permission;
mod reply;
mod requester;
mod route;
mod shutdown;
mod site;
mod socket;
mod takeover;
mod values;
mod webrtc;

use std::sync::Arc;

pub use site::Site;

use crate::context::Context;
use crate::net::Acceptor;

/// Answers the connections of one listener until the server shuts down.
pub async fn serve(acceptor: Acceptor, context: Arc<Context>, site: Site) {
    let name = format!("http on {}", acceptor.local_addr());
    context.tasks.keep(name, || accept(&acceptor, &context, &site)).await;
}

async fn accept(acceptor: &Acceptor, context: &Arc<Context>, site: &Site) {
    let mut shutdown = context.shutdown.clone();
    while let Some(conn) = acceptor.next(&mut shutdown).await {
        context.tasks.spawn("HTTP connection", connection::run(conn, Arc::clone(context), site.clone()));
    }
}

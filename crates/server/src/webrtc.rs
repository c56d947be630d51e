//! WebRTC: browsers view streams (WHEP) and publish them (WHIP, RFC 9725) over one UDP port.
//!
//! ```text
//!  POST /NAME/whep, /whip ─► offer: answer and Session ──► work: one task a session, its timers and its end
//!                                       ▲  ▲
//!  UDP port ─► udp: by address, by ufrag ┘  └─ SessionPath ◄── engine ◄── ring: what the viewer gets
//! ```
//!
//! The protocol itself is `str0m`'s, which does no input or output. A session's state is behind one lock. The UDP task, the session's task
//! and the engine take it in turn, and none of them calls the hub with the lock of a viewer. A panic under the lock ends that session only.
//!
//! The server is an ICE-lite agent: it answers checks and sends nothing to addresses that have not proved that they know the session's
//! password. So nobody can have it send to a stranger.

mod ask;
mod farewell;
mod offer;
mod outlet;
mod path;
mod plan;
mod port;
mod publish;
mod publishing;
mod registry;
mod rtp_sources;
mod session;
mod sessions;
mod tcp;
mod udp;
mod view;
mod viewing;
mod work;

use std::sync::Arc;

use crate::context::Context;

pub(crate) use ask::{Ask, Opened};
pub(crate) use offer::OfferError;
pub(crate) use publish::{PublishAsk, PublishError, publish};
pub use sessions::WebRtc;
pub(crate) use view::{ViewAsk, view};

/// Serves the port until the server stops.
pub async fn serve(webrtc: Arc<WebRtc>, context: Arc<Context>) {
    tokio::join!(
        context.tasks.keep("webrtc over udp".to_owned(), || udp::receive(&webrtc, &context)),
        context.tasks.keep("webrtc over tcp".to_owned(), || tcp::accept(&webrtc, &context)),
    );
}

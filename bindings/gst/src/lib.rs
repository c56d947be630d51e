//! GStreamer elements: an encoded stream into a live server or to one receiver, as fresh as the path allows.
//!
//! ```text
//!  encoder ! parser ! freshwiresink ─► Feed ─┬─► hub of a server in this process ─► RTSP, HTTP, WebSocket
//!            one track sink per pad          └─► Line: ring ─► policy ─► TCP or A1 ─► freshwiresrc, freshwire recv
//!
//!  Link: TCP, A1, GET /NAME.fw ─► Reader: units with times ─► freshwiresrc ! decoder
//! ```
//!
//! The plugin is `libgstfreshwire.so`. Without the feature `plugin` this crate is empty, so that the workspace builds on machines
//! without GStreamer's headers.
#![forbid(unsafe_code)]
#![allow(unreachable_pub, reason = "the getters and setters that glib derives are public")]
#![allow(clippy::disallowed_methods, reason = "elements live in real time; nothing here has to be replayed")]

#[cfg(feature = "plugin")]
mod endpoint;
#[cfg(feature = "plugin")]
mod feed;
#[cfg(feature = "plugin")]
mod fit;
#[cfg(feature = "plugin")]
mod line;
#[cfg(feature = "plugin")]
mod link;
#[cfg(feature = "plugin")]
mod log;
#[cfg(feature = "plugin")]
mod media;
#[cfg(feature = "plugin")]
mod names;
#[cfg(feature = "plugin")]
mod plugin;
#[cfg(feature = "plugin")]
mod reader;
#[cfg(feature = "plugin")]
mod servers;
#[cfg(feature = "plugin")]
mod sink;
#[cfg(feature = "plugin")]
mod source;
#[cfg(feature = "plugin")]
mod uri;

#[cfg(feature = "plugin")]
pub use plugin::plugin_register_static;

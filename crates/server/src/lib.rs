//! The live server: one source in, many viewers out, each with the freshest stream that its own path carries.
//!
//! ```text
//!  file, standard input, test ──► ingest ──┐                    ┌─► ring ─► RTSP interleaved ──► ffmpeg, GStreamer
//!  camera (RTSP pull)         ──► ingest ──┼─► hub::Publisher ──┼─► ring ─► fMP4 in WebSocket ─► browser
//!  encoder (RTSP publish)     ──► rtsp   ──┤   one arena        ├─► ring ─► MPEG-TS over HTTP ─► anything
//!  encoder (RTMP publish)     ──► rtmp   ──┤                    ├─► ring ─► RTMP ─────────────► platform (forward)
//!  browser, encoder (WHIP)    ──► webrtc ──┘                    └─► ring ─► RTP over WebRTC (WHEP) ─► browser
//! ```
//!
//! [`values`] does the same for values by key, which publishers send over HTTP, or brokers by MQTT or NATS, and browsers read over
//! WebSocket or as server-sent events.
//!
//! A stream's payload is in memory once, in its arena. Each viewer has a ring of descriptors into it, and the engine
//! chooses for each viewer what is still worth sending when that viewer's connection can take it.
#![forbid(unsafe_code)]
#![warn(clippy::missing_errors_doc)]
#![allow(clippy::disallowed_methods, reason = "a server reads the clocks; nothing here has to be replayed")]

pub mod access;
mod broker;
pub mod brokers;
pub mod client;
pub mod config;
pub mod context;
pub mod counter;
mod failures;
mod forward;
pub mod http;
pub mod hub;
pub mod ingest;
mod lease;
pub mod log;
mod multicast;
pub mod net;
pub mod peer;
pub mod priority;
pub mod report;
pub mod rtmp;
pub mod rtsp;
pub mod server;
mod statistics;
pub mod targets;
pub mod tasks;
mod throttle;
pub mod tls;
pub mod values;
pub mod webrtc;

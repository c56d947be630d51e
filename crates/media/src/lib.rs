//! The contents of records, and their framing in a byte stream. Bytes in, bytes out: no input or output, no clock.
//!
//! ```text
//!  MPEG-TS, IVF, Annex B ─► demux ─────────┐
//!  RTP, as sdp says ─► depacketize ────────┴─► video, adts ─► timeline ─► unit::Unit ──┐
//!  an H.264 encoder ─► h264::AccessUnits ───────────────────────────────────────────────┼─► records
//!  the test source ─► layered::Source ──────────────────────────────────────────────────┤
//!  standard input ─► framing::length_prefixed ──────────────────────────────────────────┘
//!
//!             ┌─► framing::Framing: raw, length-prefixed, chunked ─► readers of ours, layered::Reader
//!  records ───┼─► framing::Framer: ts, fmp4 (websocket), interleaved (RTSP) ─► players, browsers
//!             └─► rtp::Datagrams, described by sdp ─► players
//! ```
//!
//! A *unit* is a picture or a frame of sound; the record of a unit has its bytes. [`unit::Catalog`] tells framers the
//! rest of it by the record's number. The modules [`video`] and [`h264`] say which units can be dropped and what
//! depends on them. [`timeline`] says when they are due. A [`framing::Framer`] writes the remaining ones for one
//! receiver.
//!
//! Readers share one law: push bytes, take items until `None`, push again. A reader holds at most one incomplete item
//! besides what was pushed and not yet taken. After an error it yields nothing more, because a byte stream that broke
//! its framing has no place to begin again.
#![forbid(unsafe_code)]
#![warn(clippy::missing_errors_doc)]

mod aac;
pub mod adts;
mod annex_b;
mod av1;
mod buffer;
mod coding;
pub mod demux;
pub mod depacketize;
pub mod framing;
pub mod h264;
mod h265;
pub mod ivf;
pub mod layered;
mod mpeg_ts;
pub mod rtmp;
pub mod rtp;
pub mod sdp;
#[cfg(test)]
mod testing;
pub mod timeline;
pub mod unit;
pub mod video;
mod vp9;

//! What is inside records, and how records lie in a byte stream. Bytes in, bytes out: no input or output, no clock.
//!
//! ```text
//!  encoder bytes ──► annexb::AccessUnits ──┐
//!  test source   ──► layered::Source     ──┼──► records ──► framing::Framing ──► byte stream
//!  live sources  ──► video::Parser       ──┤
//!  standard input ─► length_prefixed     ──┘                                        │
//!                     layered::Reader, chunked::Reader, length_prefixed::Reader ◄───┘
//! ```
//!
//! Readers share one law: push bytes, take items until `None`, push again. A reader holds at most one incomplete item
//! besides what was pushed and not yet taken. After an error it yields nothing more, because a byte stream that broke
//! its framing has no place to begin again.
#![forbid(unsafe_code)]

pub mod adts;
pub mod annexb;
mod av1;
mod buffer;
pub mod demux;
pub mod depacketize;
pub mod framing;
mod h265;
pub mod ivf;
pub mod layered;
pub mod rtp;
pub mod sdp;
pub mod timeline;
pub mod unit;
pub mod video;
mod vp9;

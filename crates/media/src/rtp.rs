//! Units as RTP packets on their way out (RFC 3550), one stream of packets for each track and viewer. Arriving packets are read by
//! [`depacketize`](crate::depacketize).
//!
//! ```text
//!            0            12                 12 + h
//!  packet    ┌────────────┬───────────────────┬──────────────────────────┐
//!            │ RTP header │ payload header, h │ a range of the unit      │
//!            └────────────┴───────────────────┴──────────────────────────┘
//!            Stream: what this viewer was sent     Packets: the plan
//! ```
//!
//! [`Packets`] is the plan: how a unit is cut, from its head alone. [`Stream`] numbers what is really sent, so a unit that
//! is dropped before leaves no gap. [`Datagrams`] puts both together where the bytes are at hand.
//!
//! | codec | format | payload header |
//! |---|---|---|
//! | H.264 | RFC 6184, mode 1: single NAL units and FU-A | 0 or 2 |
//! | H.265 | RFC 7798: single NAL units and FU | 0 or 3 |
//! | VP9 | RFC 9628, neither flexible mode nor layers | 1 |
//! | AAC | RFC 3640, AAC-hbr: one frame in one packet, fragments of a frame that is larger | 4 |
//! | Opus | RFC 7587 | 0 |
//!
//! AV1 is refused: its format leaves out temporal delimiters and counts OBU by OBU, and a unit's head does not say where
//! OBUs begin.

mod datagrams;
mod feedback;
mod goodbye;
mod obu;
mod packets;
mod rate;
mod retransmit;
mod sent;
mod stream;

pub use datagrams::{DEFAULT_MAX_DATAGRAM_BYTES, Datagrams};
pub use feedback::{Feedback, ReportBlock, read_feedback};
pub use goodbye::{MAX_REASON_BYTES, goodbye};
pub use packets::{Packet, Packets, PayloadHeader, PlanError};
pub use rate::{Cease, Change, RateControl};
pub use retransmit::{
    MAX_RETRANSMISSION_BYTES, PictureInfo, RETRANSMISSION_TIME, Refusal, RetransmissionCounts, Retransmitter,
    RoundTrip, retransmission_payload_type,
};
pub use sent::{Reception, SentLog};
pub use stream::{DEFAULT_REPORT_INTERVAL, Identity, Reports, Stream, WallClock};

use crate::unit::{AudioCodec, Kind, Tracks};

/// Bytes of an RTP header without contributing sources and extension, as all are here.
pub const HEADER_BYTES: usize = 12;
/// Ticks per second of every video track.
pub const VIDEO_RATE: u32 = 90_000;
/// Ticks per second of every Opus track, whatever its sample rate.
pub const OPUS_RATE: u32 = 48_000;

/// The payload type of a track: dynamic ones, the same in [`sdp`](crate::sdp) and in the packets.
pub const fn payload_type(kind: Kind) -> u8 {
    match kind {
        Kind::Video => 96,
        Kind::Audio => 97,
    }
}

/// Ticks per second of a track's RTP clock; `None` if the stream has no such track.
pub fn clock_rate(tracks: &Tracks, kind: Kind) -> Option<u32> {
    match kind {
        Kind::Video => tracks.video.as_ref().map(|_| VIDEO_RATE),
        Kind::Audio => tracks.audio.as_ref().map(|track| match track.codec {
            AudioCodec::Opus => OPUS_RATE,
            AudioCodec::Aac { .. } => track.rate,
        }),
    }
}

#[cfg(test)]
pub(crate) mod tests;

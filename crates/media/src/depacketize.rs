//! RTP packets on their way in (RFC 3550), put together to whole frames.
//!
//! ```text
//!  packets ──► Packet::parse ──► Depacketizer ──► Frame: ticks, bytes
//!                                  │ an open access unit, bounded; one that lost a packet is dropped whole
//! ```
//!
//! | codec | format | taken |
//! |---|---|---|
//! | H.264 | RFC 6184, modes 0 and 1 | single NAL units, STAP-A, FU-A |
//! | H.265 | RFC 7798 without order numbers | single NAL units, aggregation packets, FU |
//! | AV1 | RTP payload format for AV1 1.0 | all; temporal delimiters are left out |
//! | VP9 | RFC 9628 | all; the layers of a picture come as one frame |
//! | AAC | RFC 3640, AAC-hbr and AAC-lbr | several frames in a packet, and fragments of one |
//! | Opus | RFC 7587 | all |
//!
//! Deviations of senders that decoders accept are accepted too. There are start codes before a NAL unit or between
//! several in a packet or fragment, and fragments without an end. There are aggregates with zeroes behind them,
//! packets without content, and NAL units of unspecified types.
//!
//! A picture ends with a marker, or where its timestamp does. Some senders set the marker on each slice. So the first pictures
//! of a track wait for the packet after their marker, until markers have proved to be the end.

mod aac;
mod av1;
pub(crate) mod nal;
mod open;
mod packet;
mod reorder;
pub mod rtcp;
mod vp9;

use std::collections::VecDeque;

pub(crate) use self::nal::Begin;
use self::open::Open;
use crate::sdp::{Media, MediaCodec};
use crate::timeline::Unwrap;

pub use open::MAX_FRAME_BYTES;
pub use packet::{Packet, PacketError};
pub use reorder::Reorder;

/// A whole frame.
///
/// H.264 and H.265: an Annex B access unit with start codes of four bytes. AV1: a temporal unit of OBUs with size fields.
/// VP9, AAC, Opus: the coded frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Its RTP timestamp, continued beyond 32 bits.
    pub ticks: i64,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Packets were lost since the frame before; frames that refer to it may be damaged.
    pub gap: bool,
    /// It was whole with an earlier packet than the one that was pushed last, which only showed that it is.
    pub is_overdue: bool,
}

/// Puts the packets of one track together. After each [`push`](Self::push), take frames until there are none.
#[derive(Debug)]
pub struct Depacketizer {
    format: Format,
    payload_type: u8,
    clock: Unwrap,
    source: Option<Source>,
    markers: Markers,
    open: Open,
    gap: bool,
    /// Timestamp of the picture that was finished last.
    newest: Option<i64>,
    frames: VecDeque<Frame>,
    damage: Damage,
}

/// A track whose packets cannot be put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// H.264 with `packetization-mode=2`.
    #[error("H.264 in interleaved packetization mode is not supported; use packetization-mode=1")]
    Interleaved,
    /// H.265 with decoding order numbers.
    #[error("H.265 with decoding order numbers is not supported; leave out sprop-max-don-diff")]
    OrderNumbers,
}

/// Losses on the way, and unusable data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    /// Packets that are missing.
    pub lost: u64,
    /// Packets that came too late or twice.
    pub late: u64,
    /// Packets that break their payload format.
    pub malformed: u64,
    /// Frames that were dropped because of these.
    pub frames: u64,
}

#[derive(Debug)]
enum Format {
    H264,
    H265,
    Av1(av1::Obus),
    Vp9,
    Aac(aac::Format),
    Opus,
}

#[derive(Clone, Copy, Debug)]
struct Source {
    ssrc: u32,
    next_seq: u16,
    /// The number after a packet that was far too late: if it comes, the sender has started to count anew.
    restart: Option<u16>,
}

/// Whether a marker is the end of a picture, of H.264 and H.265.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Markers {
    /// Number of markers that were the end of a picture.
    Unproved(u8),
    Proved,
    /// They stand on slices.
    OnSlices,
}

impl Depacketizer {
    /// For a track whose codec is known.
    ///
    /// # Errors
    ///
    /// If the codec has no RTP payload format here, or its parameters are invalid.
    pub fn new(media: &Media, codec: &MediaCodec) -> Result<Self, FormatError> {
        let format = match codec {
            MediaCodec::H264 { packetization_mode: 2, .. } => return Err(FormatError::Interleaved),
            MediaCodec::H264 { .. } => Format::H264,
            MediaCodec::H265 { has_order_numbers: true, .. } => return Err(FormatError::OrderNumbers),
            MediaCodec::H265 { .. } => Format::H265,
            MediaCodec::Av1 => Format::Av1(av1::Obus::default()),
            MediaCodec::Vp9 => Format::Vp9,
            MediaCodec::Aac { config, size_bits, index_bits, index_delta_bits } => {
                let bits =
                    aac::HeaderBits { size: *size_bits, index: *index_bits, index_delta: *index_delta_bits };
                Format::Aac(aac::Format::new(bits, config, media.clock_rate))
            }
            MediaCodec::Opus => Format::Opus,
        };
        Ok(Self {
            format,
            payload_type: media.payload_type,
            clock: Unwrap::new(32),
            source: None,
            markers: Markers::Unproved(0),
            open: Open::default(),
            gap: false,
            newest: None,
            frames: VecDeque::new(),
            damage: Damage::default(),
        })
    }

    /// Takes a packet. Packets of other payload types are ignored.
    pub fn push(&mut self, packet: &Packet<'_>) {
        let is_ours = packet.payload_type == self.payload_type;
        // What else the same source sends, such as comfort noise, is counted with the rest.
        if !is_ours && self.source.is_none_or(|source| source.ssrc != packet.ssrc) {
            return;
        }
        if !self.follow(packet) || !is_ours {
            return;
        }
        let ticks = self.clock.extend(u64::from(packet.timestamp));
        if packet.payload.is_empty() {
            // It keeps ways open, or carries nothing but padding.
            if packet.marker && self.open.ticks == Some(ticks) {
                self.mark();
            }
            return;
        }
        match &mut self.format {
            Format::Opus => self.emit(ticks, packet.payload.to_vec(), false),
            Format::Aac(format) => {
                let mut frames = Vec::new();
                if format.push(ticks, packet, &mut frames).is_err() {
                    self.malformed();
                    self.damage.frames += 1;
                }
                for (ticks, bytes) in frames {
                    self.emit(ticks, bytes, false);
                }
            }
            Format::H264 | Format::H265 | Format::Av1(_) | Format::Vp9 => self.picture(ticks, packet),
        }
    }

    /// The next whole frame.
    pub fn poll_frame(&mut self) -> Option<Frame> {
        self.frames.pop_front()
    }

    /// Losses so far.
    pub fn damage(&self) -> Damage {
        self.damage
    }

    /// The source of the packets, once one has come: whom to ask for a key picture.
    pub fn ssrc(&self) -> Option<u32> {
        self.source.map(|source| source.ssrc)
    }

    /// The continued timestamp for the timestamp of a sender report.
    pub fn place(&self, timestamp: u32) -> i64 {
        self.clock.clone().extend(u64::from(timestamp))
    }

    /// False if the packet is to be ignored, because it came too late.
    fn follow(&mut self, packet: &Packet<'_>) -> bool {
        let next_seq = packet.seq.wrapping_add(1);
        let Some(source) = self.source.filter(|source| source.ssrc == packet.ssrc) else {
            // A new source counts its own packets, or goes on with the count of the one before.
            let goes_on = self.source.is_none_or(|before| before.next_seq == packet.seq);
            self.source = Some(Source { ssrc: packet.ssrc, next_seq, restart: None });
            if !goes_on {
                self.lose();
            }
            return true;
        };
        let ahead = packet.seq.wrapping_sub(source.next_seq);
        if ahead >= 1 << 15 {
            let restarts = source.restart == Some(packet.seq);
            let is_far = ahead.wrapping_neg() > MOST_LATE;
            self.source = Some(Source { restart: is_far.then_some(next_seq), ..source });
            if restarts {
                self.source = Some(Source { ssrc: packet.ssrc, next_seq, restart: None });
                self.lose();
                return true;
            }
            self.damage.late += 1;
            return false;
        }
        self.source = Some(Source { next_seq, restart: None, ..source });
        if ahead > 0 {
            self.damage.lost += u64::from(ahead);
            self.lose();
        }
        true
    }

    fn lose(&mut self) {
        if self.open.marked && matches!(self.markers, Markers::Unproved(_)) {
            self.finish(true);
        }
        self.gap = true;
        self.open.broken |= self.open.ticks.is_some();
        self.open.in_fragment = false;
        match &mut self.format {
            Format::Aac(format) => format.lose(),
            Format::Av1(obus) => obus.lose(),
            _ => {}
        }
    }

    fn malformed(&mut self) {
        self.damage.malformed += 1;
        self.gap = true;
    }

    fn picture(&mut self, ticks: i64, packet: &Packet<'_>) {
        let is_new = self.open.ticks.is_some_and(|open| open != ticks);
        if is_new {
            if self.open.marked {
                self.markers = self.markers.one_more();
            }
            // The marker was lost, or the sender sets none, or nobody knew that it was the end.
            self.finish(true);
        }
        let begin = match &self.format {
            Format::H264 => nal::h264_begin(packet.payload),
            Format::H265 => nal::h265_begin(packet.payload),
            _ => None,
        };
        match begin {
            Some(Begin::Picture) if self.open.marked => self.finish(true),
            Some(Begin::Slice) if self.open.marked && !is_new => self.markers = Markers::OnSlices,
            // A marker was believed, and the rest of its picture comes.
            Some(Begin::Slice) if !self.open.has_picture && self.newest == Some(ticks) => {
                self.markers = Markers::OnSlices;
                self.open.broken = true;
            }
            _ => {}
        }
        self.open.marked = false;
        self.open.ticks = Some(ticks);
        let result = match &mut self.format {
            Format::H264 => nal::h264(packet.payload, &mut self.open),
            Format::H265 => nal::h265(packet.payload, &mut self.open),
            Format::Av1(obus) => obus.push(packet.payload, &mut self.open),
            _ => vp9::push(packet.payload, &mut self.open),
        };
        if result.is_err() {
            self.malformed();
            self.open.broken = true;
        } else if self.open.bytes.len() > MAX_FRAME_BYTES {
            self.open.bytes = Vec::new();
            self.open.broken = true;
        }
        if packet.marker {
            self.mark();
        }
    }

    /// The packet has a marker.
    fn mark(&mut self) {
        let has_slices = matches!(self.format, Format::H264 | Format::H265);
        if has_slices && self.open.has_picture && self.markers != Markers::Proved {
            self.open.marked = true;
        } else {
            self.finish(false);
        }
    }

    fn finish(&mut self, is_overdue: bool) {
        if self.open.broken {
            self.damage.frames += 1;
            self.gap = true;
            self.newest = self.open.ticks;
            self.open = Open::default();
        } else if self.open.has_picture {
            let open = std::mem::take(&mut self.open);
            self.newest = open.ticks;
            self.emit(open.ticks.unwrap_or_default(), open.bytes, is_overdue);
        } else {
            // Some cameras end the parameter sets with a marker or give them a time of their own: they belong to the
            // picture after them.
            self.open.ticks = None;
            self.open.marked = false;
            self.open.in_fragment = false;
        }
    }

    fn emit(&mut self, ticks: i64, bytes: Vec<u8>, is_overdue: bool) {
        self.frames.push_back(Frame { ticks, bytes, gap: std::mem::take(&mut self.gap), is_overdue });
    }
}

impl Markers {
    /// After one that was the end of a picture.
    fn one_more(self) -> Self {
        match self {
            Self::Unproved(count) if count + 1 < PROOFS => Self::Unproved(count + 1),
            Self::Unproved(_) | Self::Proved => Self::Proved,
            Self::OnSlices => Self::OnSlices,
        }
    }
}

/// Pictures that end with their marker until markers are believed. Chosen, not measured.
const PROOFS: u8 = 3;
/// Packets that come later than this were not overtaken: the sender counts anew (RFC 3550, A.1).
const MOST_LATE: u16 = 100;

#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::Arc;

use super::obu::Obu;
use crate::unit::{AudioCodec, Kind, UnitHead, VideoCodec};

/// One packet of the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The marker bit: the last packet of a picture or of an AAC frame.
    pub marker: bool,
    /// RTP timestamp, the same in all packets of a unit.
    pub timestamp: u32,
    /// What goes between the RTP header and the unit's bytes.
    pub header: PayloadHeader,
    /// The bytes of the unit that it carries. Start codes, and the headers of fragmented NAL units, are left out.
    pub payload: Range<u32>,
    /// The unit ends with it.
    pub last: bool,
}

/// Up to four bytes before a packet's payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PayloadHeader {
    bytes: [u8; 4],
    len: u8,
}

impl PayloadHeader {
    fn new<const N: usize>(from: [u8; N]) -> Self {
        const { assert!(N <= 4) };
        let mut bytes = [0; 4];
        bytes[..N].copy_from_slice(&from);
        Self { bytes, len: N as u8 }
    }

    /// The bytes to write.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// A unit that cannot go over RTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The head names a track that its stream does not have.
    #[error("the unit belongs to a track that its stream does not have")]
    NoTrack,
    /// No bytes, NAL units or OBUs outside of them or out of order, or none that RTP can carry.
    #[error(
        "the unit is empty, or its NAL units or OBUs are not as its head says; the source has to list them in order"
    )]
    Malformed,
    /// An AAC frame or Opus packet above what the format, or a packet of the wanted size, can hold.
    #[error(
        "an audio frame of {len} bytes does not go into RTP packets of this size; lower the audio bit rate"
    )]
    TooLarge {
        /// The frame's bytes.
        len: u32,
    },
    /// The bytes given are not those of the head.
    #[error("the unit's bytes are {given}, its head says {head}")]
    Length {
        /// Bytes given.
        given: usize,
        /// Bytes by the head.
        head: u32,
    },
}

/// How one unit is cut into packets: the plan, which needs none of the unit's bytes.
#[derive(Clone, Debug)]
pub struct Packets {
    head: Arc<UnitHead>,
    timestamp: u32,
    format: Format,
    /// Index of the NAL unit that `position` is in.
    nal: usize,
    /// The next byte of the unit.
    position: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Nal(NalFormat),
    Av1,
    Vp9,
    Aac,
    Opus,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NalFormat {
    H264,
    H265,
}

impl NalFormat {
    /// Types above are packets of several NAL units or of parts of one, and `H264` has no type 0.
    fn can_go(self, header: [u8; 2]) -> bool {
        match self {
            Self::H264 => (1..24).contains(&(header[0] & 0x1f)),
            Self::H265 => (header[0] >> 1 & 0x3f) < 48,
        }
    }

    fn header_bytes(self) -> u32 {
        match self {
            Self::H264 => 1,
            Self::H265 => 2,
        }
    }

    /// Indicator and FU header of a fragment.
    fn fragment(self, header: [u8; 2], first: bool, last: bool) -> PayloadHeader {
        let ends = u8::from(first) << 7 | u8::from(last) << 6;
        match self {
            Self::H264 => PayloadHeader::new([header[0] & 0xe0 | FU_A, ends | header[0] & 0x1f]),
            Self::H265 => {
                let indicator = header[0] & 0x81 | FU << 1;
                PayloadHeader::new([indicator, header[1], ends | header[0] >> 1 & 0x3f])
            }
        }
    }
}

impl Packets {
    /// The plan for a unit. Its timestamp is its `pts` in the track's clock plus `timestamp_offset`.
    ///
    /// # Errors
    ///
    /// If the unit has no RTP payload format, or does not follow its own.
    pub fn new(head: Arc<UnitHead>, timestamp_offset: u32) -> Result<Self, PlanError> {
        let format = Format::of(&head)?;
        let rate = super::clock_rate(&head.tracks, head.kind).ok_or(PlanError::NoTrack)?;
        // The low 32 bits of the clock are what RTP carries.
        let timestamp = (head.pts.ticks(rate) as u32).wrapping_add(timestamp_offset);
        let mut plan = Self { head, timestamp, format, nal: 0, position: 0 };
        plan.check()?;
        if let Format::Nal(format) = format {
            plan.nal = plan.next_nal(format, 0).ok_or(PlanError::Malformed)?;
            plan.position = plan.head.nals[plan.nal].start;
        }
        if format == Format::Av1 {
            plan.position = plan.obu().ok_or(PlanError::Malformed)?.payload.start;
        }
        Ok(plan)
    }

    /// The unit's head.
    pub fn head(&self) -> &UnitHead {
        &self.head
    }

    /// The next packet, with at most `max` bytes after its RTP header. `None` after the last one, or if `max` is too
    /// small for one byte of the unit or for an Opus packet, which cannot be cut. The plan is then as before.
    pub fn next_packet(&mut self, max: usize) -> Option<Packet> {
        let max = u32::try_from(max).unwrap_or(u32::MAX);
        // An OBU may have no payload, so the place does not tell of the last one.
        let is_over = match self.format {
            Format::Av1 => self.nal >= self.head.nals.len(),
            _ => self.position >= self.head.len,
        };
        if is_over {
            return None;
        }
        match self.format {
            Format::Nal(format) => self.nal_packet(format, max),
            Format::Av1 => self.av1_packet(max),
            Format::Vp9 => self.vp9_packet(max),
            Format::Aac => self.aac_packet(max),
            Format::Opus => {
                (self.head.len <= max).then(|| self.take(PayloadHeader::default(), self.head.len))
            }
        }
    }

    fn check(&self) -> Result<(), PlanError> {
        let head = &self.head;
        if head.len == 0 || head.nals.len() != head.nal_headers.len() {
            return Err(PlanError::Malformed);
        }
        if self.format == Format::Aac && head.len > MAX_AAC_FRAME {
            return Err(PlanError::TooLarge { len: head.len });
        }
        let mut end = 0;
        for (nal, &header) in head.nals.iter().zip(&head.nal_headers) {
            let is_in_place = nal.start >= end && nal.end <= head.len;
            let is_whole = match self.format {
                Format::Nal(format) => nal.end.saturating_sub(nal.start) >= format.header_bytes(),
                Format::Av1 => Obu::new(nal, header).is_some(),
                Format::Vp9 | Format::Aac | Format::Opus => true,
            };
            if !is_in_place || !is_whole {
                return Err(PlanError::Malformed);
            }
            end = nal.end;
        }
        Ok(())
    }

    fn next_nal(&self, format: NalFormat, from: usize) -> Option<usize> {
        let rest = self.head.nal_headers.get(from..)?;
        rest.iter().position(|&header| format.can_go(header)).map(|at| from + at)
    }

    fn nal_packet(&mut self, format: NalFormat, max: u32) -> Option<Packet> {
        let range = self.head.nals.get(self.nal)?.clone();
        let header = *self.head.nal_headers.get(self.nal)?;
        let first = self.position == range.start;
        let (payload, header) = if first && range.end - range.start <= max {
            (range.clone(), PayloadHeader::default())
        } else {
            let begin = if first { range.start + format.header_bytes() } else { self.position };
            let room = max.checked_sub(format.header_bytes() + 1).filter(|&room| room > 0)?;
            let end = range.end.min(begin.saturating_add(room));
            (begin..end, format.fragment(header, first, end == range.end))
        };
        self.position = payload.end;
        if payload.end == range.end {
            let next = self.next_nal(format, self.nal + 1);
            self.nal = next.unwrap_or(self.head.nals.len());
            self.position = self.head.nals.get(self.nal).map_or(self.head.len, |nal| nal.start);
        }
        let last = self.position == self.head.len;
        Some(Packet { marker: last, timestamp: self.timestamp, header, payload, last })
    }

    /// The OBU that the next packet belongs to.
    fn obu(&self) -> Option<Obu> {
        Obu::new(self.head.nals.get(self.nal)?, *self.head.nal_headers.get(self.nal)?)
    }

    /// One element in each packet: an OBU or a part of one (RTP payload format for AV1, 4.4).
    fn av1_packet(&mut self, max: u32) -> Option<Packet> {
        let obu = self.obu()?;
        let first = self.position == obu.payload.start;
        let header = if first { obu.header() } else { &[] };
        let room = max.checked_sub(1 + header.len() as u32)?;
        let end = obu.payload.end.min(self.position.saturating_add(room));
        if end == self.position && end < obu.payload.end {
            return None;
        }
        let is_whole = end == obu.payload.end;
        let mut aggregation = AV1_ONE_ELEMENT;
        aggregation |= if first { 0 } else { AV1_CONTINUES };
        aggregation |= if is_whole { 0 } else { AV1_CONTINUED };
        aggregation |= if first && self.nal == 0 && self.head.key { AV1_NEW_SEQUENCE } else { 0 };
        let header = match *header {
            [byte, extension] => PayloadHeader::new([aggregation, byte, extension]),
            [byte] => PayloadHeader::new([aggregation, byte]),
            _ => PayloadHeader::new([aggregation]),
        };
        let payload = self.position..end;
        self.position = end;
        if is_whole {
            self.nal += 1;
            self.position = self.obu().map_or(self.head.len, |obu| obu.payload.start);
        }
        let last = self.nal >= self.head.nals.len();
        Some(Packet { marker: last, timestamp: self.timestamp, header, payload, last })
    }

    fn vp9_packet(&mut self, max: u32) -> Option<Packet> {
        let room = max.checked_sub(1).filter(|&room| room > 0)?;
        let end = self.head.len.min(self.position.saturating_add(room));
        let mut descriptor = if self.head.key { 0 } else { VP9_PREDICTED };
        if self.position == 0 {
            descriptor |= VP9_BEGIN;
        }
        if end == self.head.len {
            descriptor |= VP9_END;
        }
        Some(self.take(PayloadHeader::new([descriptor]), end))
    }

    fn aac_packet(&mut self, max: u32) -> Option<Packet> {
        let room = max.checked_sub(4).filter(|&room| room > 0)?;
        let end = self.head.len.min(self.position.saturating_add(room));
        // 16 bits of AU headers: 13 of the whole frame's size, 3 of index 0.
        let [high, low] = ((self.head.len as u16) << 3).to_be_bytes();
        Some(self.take(PayloadHeader::new([0, 16, high, low]), end))
    }

    fn take(&mut self, header: PayloadHeader, end: u32) -> Packet {
        let last = end == self.head.len;
        let payload = self.position..end;
        self.position = end;
        // In Opus the marker bit is for the beginning of a talk spurt.
        let marker = last && self.format != Format::Opus;
        Packet { marker, timestamp: self.timestamp, header, payload, last }
    }
}

impl Format {
    fn of(head: &UnitHead) -> Result<Self, PlanError> {
        let tracks = &head.tracks;
        match (head.kind, &tracks.video, &tracks.audio) {
            (Kind::Video, Some(video), _) => match video.codec {
                VideoCodec::H264 { .. } => Ok(Self::Nal(NalFormat::H264)),
                VideoCodec::H265 { .. } => Ok(Self::Nal(NalFormat::H265)),
                VideoCodec::Vp9 { .. } => Ok(Self::Vp9),
                VideoCodec::Av1 { .. } => Ok(Self::Av1),
            },
            (Kind::Audio, _, Some(audio)) => match audio.codec {
                AudioCodec::Aac { .. } => Ok(Self::Aac),
                AudioCodec::Opus => Ok(Self::Opus),
            },
            (Kind::Video, None, _) | (Kind::Audio, _, None) => Err(PlanError::NoTrack),
        }
    }
}

/// RTP payload format for AV1, 4.4: Z, Y, W = 1 and N.
const AV1_CONTINUES: u8 = 0x80;
const AV1_CONTINUED: u8 = 0x40;
const AV1_ONE_ELEMENT: u8 = 0x10;
const AV1_NEW_SEQUENCE: u8 = 0x08;
/// RFC 6184, 5.8.
const FU_A: u8 = 28;
/// RFC 7798, 4.4.3.
const FU: u8 = 49;
/// RFC 9628, 4.2.
const VP9_PREDICTED: u8 = 0x40;
const VP9_BEGIN: u8 = 0x08;
const VP9_END: u8 = 0x04;
/// RFC 3640, 3.3.6: the size has 13 bits.
const MAX_AAC_FRAME: u32 = (1 << 13) - 1;

//! PES packets (ISO 13818-1, 2.4.3.6): the header, and what codecs want between it and the unit.

use super::error::TsError;
use super::packet::TIME_MASK;
use super::tables::Stream;
use crate::aac;
use crate::unit::{AudioCodec, AudioTrack, VideoCodec, VideoTrack};

/// How a track is carried.
#[derive(Clone, Debug)]
pub(super) struct CarriedStream {
    pub(super) stream: Stream,
    stream_id: u8,
    lead: Lead,
}

/// What goes in front of each unit.
#[derive(Clone, Copy, Debug)]
enum Lead {
    /// An access unit delimiter.
    Delimiter(&'static [u8]),
    Adts(aac::Config),
    /// The control header of Opus (Opus in MPEG-TS, draft 0.1.3, section 4): prefix, no trims, size.
    OpusControl,
}

impl CarriedStream {
    pub(super) fn video(track: &VideoTrack) -> Result<Self, TsError> {
        let (stream_type, delimiter): (u8, &[u8]) = match track.codec {
            VideoCodec::H264 { .. } => (0x1b, &[0, 0, 0, 1, 0x09, 0xf0]),
            VideoCodec::H265 { .. } => (0x24, &[0, 0, 0, 1, 0x46, 0x01, 0x50]),
            VideoCodec::Av1 { .. } => return Err(TsError::Codec { name: "AV1" }),
            VideoCodec::Vp9 { .. } => return Err(TsError::Codec { name: "VP9" }),
        };
        let stream = Stream { pid: VIDEO_PID, stream_type, descriptors: Vec::new() };
        Ok(Self { stream, stream_id: 0xe0, lead: Lead::Delimiter(delimiter) })
    }

    pub(super) fn audio(track: &AudioTrack) -> Result<Self, TsError> {
        let (stream_type, stream_id, descriptors, lead) = match &track.codec {
            AudioCodec::Aac { config } => {
                let config = aac::Config::parse(config).filter(aac::Config::fits_adts).ok_or(TsError::Aac)?;
                (0x0f, 0xc0, Vec::new(), Lead::Adts(config))
            }
            AudioCodec::Opus => {
                let channels = Some(track.channels).filter(|channels| (1..=8).contains(channels));
                let channels = channels.ok_or(TsError::OpusChannels { channels: track.channels })?;
                let mut descriptors = vec![0x05, 4];
                descriptors.extend_from_slice(b"Opus");
                descriptors.extend_from_slice(&[0x7f, 2, 0x80, channels]);
                (0x06, 0xbd, descriptors, Lead::OpusControl)
            }
        };
        Ok(Self { stream: Stream { pid: AUDIO_PID, stream_type, descriptors }, stream_id, lead })
    }

    /// Adds all bytes that go before a unit of `len` bytes with these times, in ticks of 90 kHz. `None`, and nothing
    /// added, if the unit is too long for its codec's header.
    pub(super) fn write_header(&self, pts: u64, dts: u64, len: u32, out: &mut Vec<u8>) -> Option<()> {
        let mut lead = Vec::new();
        match self.lead {
            Lead::Delimiter(bytes) => lead.extend_from_slice(bytes),
            Lead::Adts(config) => lead.extend_from_slice(&config.adts(len)?),
            Lead::OpusControl => {
                lead.extend_from_slice(&[0x7f, 0xe0]);
                lead.resize(2 + len as usize / 255, 255);
                lead.push((len % 255) as u8);
            }
        }
        let (pts, dts) = (pts & TIME_MASK, dts & TIME_MASK);
        let both = pts != dts;
        let times = if both { 10 } else { 5 };
        let following = 3 + times + lead.len() + len as usize;
        // Only video may leave its length open; it is given where it fits, so that a reader need not wait for the next.
        let packet_len = match u16::try_from(following) {
            Ok(len) => len,
            Err(_) if self.stream_id == 0xe0 => 0,
            Err(_) => return None,
        };
        out.extend_from_slice(&[0, 0, 1, self.stream_id]);
        out.extend_from_slice(&packet_len.to_be_bytes());
        out.extend_from_slice(&[0x84, if both { 0xc0 } else { 0x80 }, times as u8]);
        write_time(if both { 3 } else { 2 }, pts, out);
        if both {
            write_time(1, dts, out);
        }
        out.extend_from_slice(&lead);
        Some(())
    }
}

fn write_time(mark: u8, time: u64, out: &mut Vec<u8>) {
    let low = |shift: u32| ((time >> shift) as u16) << 1 | 1;
    out.push(mark << 4 | (time >> 29) as u8 & 0x0e | 1);
    out.extend_from_slice(&low(15).to_be_bytes());
    out.extend_from_slice(&low(0).to_be_bytes());
}

pub(super) const VIDEO_PID: u16 = 0x100;
pub(super) const AUDIO_PID: u16 = 0x101;

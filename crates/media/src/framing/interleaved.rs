//! RTP in the byte stream of an RTSP connection (RFC 2326, 10.12).
//!
//! ```text
//!  0     1         2                4
//!  ┌─────┬─────────┬────────────────┬──────────────────────────┐
//!  │ '$' │ channel │ length, 16 bit │ an RTP or RTCP packet    │
//!  └─────┴─────────┴────────────────┴──────────────────────────┘
//! ```
//!
//! Sequence numbers, timestamps and reports count only committed units: a unit that was dropped before leaves no gap. RTSP
//! messages may come between any two packets, so every piece ends at a boundary. Packets of sound may come between those of a
//! picture; pictures are not mixed, as a receiver has one place for a picture that is not complete.
//!
//! Where the pictures that follow cannot be sent, decoders would hold back the last ones that were. Repetitions of a
//! few bytes take the place of those that were dropped, enough for a decoder to show what it has; see
//! [`UnitHead::repeat`](crate::unit::UnitHead::repeat).

use std::sync::Arc;
use std::time::Duration;

use super::viewer::OpenUnits;
use super::{Framer, Piece};
use crate::rtp::{HEADER_BYTES, Identity, Packets, Reports, Stream, WallClock};
use crate::unit::{Catalog, Kind, UnitHead};
use crate::video::repeater::Repeater;

/// Bytes before each packet.
pub const FRAME_HEADER_BYTES: usize = 4;
/// Largest RTP packet that may be configured. The length before a packet has room for 65,535 bytes; the rest is left to relays,
/// which add header extensions or encryption.
pub const MAX_PACKET_BYTES: usize = 65_000;
/// Default of the largest RTP packet. All clients that were tried take it (`docs/lab-notebook/2026-11-29-packet-sizes.md`), and the
/// room that [`next`](Framer::next) is given keeps packets small on slow paths.
pub const DEFAULT_MAX_PACKET_BYTES: usize = MAX_PACKET_BYTES;
/// Pictures are not cut into smaller packets, headers included, however little a caller wants. Chosen, not
/// measured.
pub const MIN_PACKET_BYTES: usize = 256;

/// Where one track's packets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrackChannel {
    /// The channel of its RTP packets, below 255; its reports go on the next one.
    pub channel: u8,
    /// What its packets are known by.
    pub identity: Identity,
}

/// One viewer's conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The video track's channel; `None` leaves out the track.
    pub video: Option<TrackChannel>,
    /// The audio track's channel; `None` leaves out the track.
    pub audio: Option<TrackChannel>,
    /// Wall time for the sender reports.
    pub clock: WallClock,
    /// Canonical name for the sender reports; see [`Reports::new`].
    pub cname: String,
    /// Largest packet, RTP header included: [`DEFAULT_MAX_PACKET_BYTES`]. Brought between [`MIN_PACKET_BYTES`] and 65535.
    pub max_packet_bytes: usize,
    /// Media time between two sender reports of a track: [`DEFAULT_REPORT_INTERVAL`](crate::rtp::DEFAULT_REPORT_INTERVAL).
    pub report_interval: Duration,
}

/// The framing of one viewer. Records are looked up in the stream's catalog. A record makes one piece without bytes
/// if it is gone, has another length than its unit, belongs to an excluded track, or cannot go over RTP. So is a
/// picture other than a key after repetitions.
///
/// A piece has one RTP packet; the first of a unit may have the track's sender report before it. The `max` of
/// [`next`](Framer::next) is met for pictures down to [`MIN_PACKET_BYTES`]; an audio frame is one packet whatever `max` is.
#[derive(Debug)]
pub struct Interleaved {
    catalog: Arc<Catalog>,
    video: Option<Channel>,
    audio: Option<Channel>,
    reports: Reports,
    max_packet: usize,
    open_units: OpenUnits<Packets>,
    repeater: Repeater,
}

#[derive(Debug)]
struct Channel {
    number: u8,
    stream: Stream,
}

impl Interleaved {
    /// The framing of a viewer that has not been sent anything.
    pub fn new(catalog: Arc<Catalog>, config: &Config) -> Self {
        let channel = |track: Option<TrackChannel>, kind| {
            track.map(|track| Channel {
                number: track.channel,
                stream: Stream::new(kind, track.identity).report_interval(config.report_interval),
            })
        };
        Self {
            catalog,
            video: channel(config.video, Kind::Video),
            audio: channel(config.audio, Kind::Audio),
            reports: Reports::new(config.clock, &config.cname),
            max_packet: config.max_packet_bytes.clamp(MIN_PACKET_BYTES, usize::from(u16::MAX)),
            open_units: OpenUnits::default(),
            repeater: Repeater::default(),
        }
    }

    /// The sequence number of a track's next packet, for `RTP-Info`; `None` if the track is left out.
    pub fn next_seq(&self, kind: Kind) -> Option<u16> {
        let channel = match kind {
            Kind::Video => &self.video,
            Kind::Audio => &self.audio,
        };
        channel.as_ref().map(|channel| channel.stream.next_seq())
    }

    fn plan(&self, seq: u64, len: u32) -> Option<Packets> {
        let head = self.catalog.find(seq).filter(|head| head.len == len)?;
        let channel = match head.kind {
            Kind::Video => &self.video,
            Kind::Audio => &self.audio,
        };
        channel.as_ref()?.stream.packets(head).ok()
    }
}

impl Framer for Interleaved {
    fn begin(&mut self, seq: u64, len: u32) {
        let packets = self.plan(seq, len).filter(|packets| self.repeater.allows(packets.head()));
        match packets.as_ref().map(Packets::head) {
            Some(head) if head.kind == Kind::Video => self.repeater.sent(head),
            Some(_) => {}
            None => self.missed(seq),
        }
        self.open_units.begin(packets);
    }

    fn missed(&mut self, seq: u64) {
        if let Some(head) = self.catalog.find(seq).filter(|head| head.kind == Kind::Video) {
            self.repeater.missed(head);
        }
    }

    fn replace(&mut self, out: &mut Vec<u8>) -> usize {
        let Some(channel) = &mut self.video else { return 0 };
        let repetitions = self.repeater.repetitions();
        for (head, nals) in &repetitions {
            channel.write_whole(head, nals, out);
        }
        repetitions.len()
    }

    fn next(&mut self, max: usize, prefix: &mut Vec<u8>) -> Option<Piece> {
        let Self { video, audio, reports, max_packet, open_units, .. } = self;
        open_units.next(|packets| {
            let channel = match packets.head().kind {
                Kind::Video => video.as_mut()?,
                Kind::Audio => audio.as_mut()?,
            };
            channel.next(packets, reports, max, *max_packet, prefix)
        })
    }

    fn can_be_overtaken(&self) -> bool {
        self.open_units.alone().is_some_and(|packets| packets.head().kind == Kind::Video)
    }

    fn can_overtake(&self, seq: u64) -> bool {
        self.can_be_overtaken() && self.catalog.find(seq).is_some_and(|head| head.kind == Kind::Audio)
    }
}

impl Channel {
    /// The next packet, with a report before it if one is due.
    fn next(
        &mut self,
        packets: &mut Packets,
        reports: &Reports,
        max: usize,
        max_packet: usize,
        prefix: &mut Vec<u8>,
    ) -> Option<Piece> {
        let report = self.stream.report_is_due(packets.head());
        let report_bytes = if report { FRAME_HEADER_BYTES + reports.report_bytes() } else { 0 };
        let packet_bytes = match packets.head().kind {
            Kind::Video => {
                let wanted = max.saturating_sub(FRAME_HEADER_BYTES + report_bytes);
                wanted.clamp(MIN_PACKET_BYTES, max_packet)
            }
            Kind::Audio => max_packet,
        };
        let packet = packets.next_packet(packet_bytes - HEADER_BYTES)?;
        if report {
            write_frame_header(self.number.wrapping_add(1), reports.report_bytes(), prefix);
            self.stream.write_report(reports, packets.head(), prefix);
        }
        let payload_bytes = (packet.payload.end - packet.payload.start) as usize;
        let packet_bytes = HEADER_BYTES + packet.header.as_bytes().len() + payload_bytes;
        write_frame_header(self.number, packet_bytes, prefix);
        self.stream.write_header(&packet, prefix);
        Some(Piece { payload: packet.payload, last: packet.last, boundary: true })
    }

    /// Adds a picture of these NAL units, a packet for each, in the place of the unit with this head.
    fn write_whole(&mut self, head: &UnitHead, nals: &[Vec<u8>], out: &mut Vec<u8>) {
        for (nal, left) in nals.iter().zip((0..nals.len()).rev()) {
            write_frame_header(self.number, HEADER_BYTES + nal.len(), out);
            self.stream.write_nal(head, nal, left == 0, out);
        }
    }
}

/// `bytes` is below 65536: packets are bounded by `max_packet`, reports by their name's length.
fn write_frame_header(channel: u8, bytes: usize, out: &mut Vec<u8>) {
    let [high, low] = (bytes as u16).to_be_bytes();
    out.extend_from_slice(&[b'$', channel, high, low]);
}

#[cfg(test)]
mod tests;

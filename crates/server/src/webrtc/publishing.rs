//! A publisher's side of a session: from packets to the hub.

use std::time::{Duration, Instant};

use freshwire_media::sdp::Media;
use freshwire_media::unit::Kind;
use freshwire_record::Rate;
use str0m::media::Mid;
use str0m::rtp::RtpPacket;

use crate::hub::Publisher;
use crate::net::Meter;
use crate::rtsp::common::PACKET_COST;
use crate::rtsp::feed::Feed;

/// A source that sends nothing for this long is gone, and another one may publish, as over RTSP.
pub(super) const SILENCE: Duration = Duration::from_secs(15);

/// A publisher's side of the session.
pub(super) struct Publishing {
    publisher: Publisher,
    feed: Feed,
    tracks: Vec<TrackIn>,
    meter: Meter,
    most: Rate,
    since: Instant,
    lost: u64,
    /// Packets of pictures are missing, and nobody has asked for a keyframe since.
    misses: bool,
    asked: Option<Instant>,
}

struct TrackIn {
    mid: Mid,
    media: Media,
    /// The sender report that is known.
    reported: Option<(u32, u64)>,
}

impl Publishing {
    pub(super) fn new(publisher: Publisher, feed: Feed, lines: Vec<(Mid, Media)>, most: Rate) -> Self {
        let track = |(mid, media)| TrackIn { mid, media, reported: None };
        Self {
            publisher,
            feed,
            tracks: lines.into_iter().map(track).collect(),
            meter: Meter::new(),
            most,
            since: Instant::now(),
            lost: 0,
            misses: false,
            asked: None,
        }
    }

    /// The track of which a keyframe has to be asked for now, if any has. `if_missed`: only if pictures have come with gaps.
    pub(super) fn asks_for_key(&mut self, if_missed: bool) -> Option<Mid> {
        let is_early = self.asked.is_some_and(|asked| asked.elapsed() < BETWEEN_ASKS);
        if is_early || (if_missed && !self.misses) {
            return None;
        }
        let mid = self.tracks.iter().find(|track| track.media.kind == Kind::Video)?.mid;
        (self.misses, self.asked) = (false, Some(Instant::now()));
        Some(mid)
    }

    /// Takes a packet. The error says why the session has to end.
    pub(super) fn take(&mut self, packet: &RtpPacket) -> Result<(), String> {
        let Self { publisher, feed, tracks, meter, most, .. } = self;
        if !meter.allows(packet.payload.len() + PACKET_COST, *most) {
            return Err(format!("publishes more than {} bit/s", most.bits_per_sec()));
        }
        self.since = Instant::now();
        let of = |track: &&mut TrackIn| packet.header.ext_vals.mid.is_none_or(|mid| mid == track.mid);
        let clock = packet.time.frequency().get();
        let found = tracks
            .iter_mut()
            .enumerate()
            .find(|(_, track)| u64::from(track.media.clock_rate) == u64::from(clock) && of(track));
        let Some((index, track)) = found else { return Ok(()) };
        if let Some(info) = packet.last_sender_info {
            let (timestamp, ntp) = (info.rtp_time.numer() as u32, ntp(info.ntp_time));
            if track.reported.replace((timestamp, ntp)) != Some((timestamp, ntp)) {
                feed.rtcp(index, &sender_report(*packet.header.ssrc, ntp, timestamp));
            }
        }
        let bytes = bytes_of(packet, track.media.payload_type);
        // Only what is shorter than a header is no packet.
        let _ = feed.rtp(index, &bytes, publisher);
        let lost = feed.lost_of_video();
        self.misses |= lost > self.lost;
        self.lost = lost;
        Ok(())
    }

    /// Whether it has sent nothing for too long.
    pub(super) fn is_silent(&self) -> bool {
        self.since.elapsed() > SILENCE
    }
}

/// The packet as it was on the way, without extensions.
fn bytes_of(packet: &RtpPacket, payload_type: u8) -> Vec<u8> {
    let header = &packet.header;
    let marker = if header.marker { 0x80 } else { 0 };
    let mut bytes = Vec::with_capacity(12 + packet.payload.len());
    bytes.extend([0x80, marker | payload_type]);
    bytes.extend(header.sequence_number.to_be_bytes());
    bytes.extend(header.timestamp.to_be_bytes());
    bytes.extend(header.ssrc.to_be_bytes());
    bytes.extend_from_slice(&packet.payload);
    bytes
}

/// A sender report (RFC 3550, 6.4.1) without counts.
fn sender_report(ssrc: u32, ntp: u64, timestamp: u32) -> [u8; 28] {
    let mut bytes = [0; 28];
    let (header, rest) = bytes.split_at_mut(8);
    header.copy_from_slice(&[[0x80, 200, 0, 6], ssrc.to_be_bytes()].concat());
    let (clock, rest) = rest.split_at_mut(8);
    clock.copy_from_slice(&ntp.to_be_bytes());
    let (at, _) = rest.split_at_mut(4);
    at.copy_from_slice(&timestamp.to_be_bytes());
    bytes
}

fn ntp(time: std::time::SystemTime) -> u64 {
    let since = time.duration_since(std::time::SystemTime::UNIX_EPOCH).unwrap_or_default();
    let seconds = since.as_secs().wrapping_add(SECONDS_1900_TO_1970);
    let fraction = (u64::from(since.subsec_nanos()) << 32) / 1_000_000_000;
    (seconds << 32) | fraction
}

const SECONDS_1900_TO_1970: u64 = 2_208_988_800;
/// A source needs this long to answer.
const BETWEEN_ASKS: Duration = Duration::from_millis(500);

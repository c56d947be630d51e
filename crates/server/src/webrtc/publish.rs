//! WHIP: a publisher.

use std::sync::Arc;
use std::time::{Duration, Instant};

use freshwire_media::sdp::Media;
use freshwire_record::Rate;
use str0m::media::{KeyframeRequestKind, Mid};
use str0m::rtp::RtpPacket;
use tokio::sync::mpsc;

use super::offer::{Negotiated, OfferError, answer_publisher};
use super::session::{Inner, Role};
use super::work::{self, Work};
use super::{Ask, Begun};
use crate::access::Grant;
use crate::config::{Origin, SourceError, check_published_name};
use crate::context::Context;
use crate::hub::{HubError, Publisher};
use crate::lease::Lease;
use crate::net::{Meter, Permit};
use crate::rtsp::common::PACKET_COST;
use crate::rtsp::feed::{Feed, SelectionError, TrackSelection};

/// A source that sends nothing for this long is gone, and another one may publish, as over RTSP.
pub(super) const SILENCE: Duration = Duration::from_secs(15);

/// Why a publisher is refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PublishError {
    #[error(transparent)]
    Name(#[from] SourceError),
    #[error(transparent)]
    Offer(#[from] OfferError),
    #[error(transparent)]
    Tracks(#[from] SelectionError),
    #[error(transparent)]
    Hub(#[from] HubError),
}

/// What a publisher asked for.
pub(crate) struct PublishAsk<'a> {
    pub(crate) ask: Ask,
    pub(crate) name: &'a str,
    pub(crate) rendition: Option<&'a str>,
    pub(crate) grant: Grant,
    /// The site of the page that asked, if it had to be trusted.
    pub(crate) site: Option<Origin>,
    pub(crate) permit: Permit,
}

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

/// Begins a publisher's session. It has the stream's name from now on.
///
/// # Errors
///
/// If the name cannot be had, or the offer cannot be answered.
pub(crate) fn publish(context: &Arc<Context>, asked: PublishAsk<'_>) -> Result<Begun, PublishError> {
    let PublishAsk { ask, name, rendition, grant, site, permit } = asked;
    check_published_name(name)?;
    let Some(port) = context.webrtc.port.get() else { return Err(OfferError::NoAddress.into()) };
    let Negotiated { agreed, answer, video, audio } = answer_publisher(port, &ask.offer, ask.local)?;
    let lines = [video, audio].into_iter().flatten();
    let tracks: Vec<TrackIn> = lines
        .filter_map(|line| Some(TrackIn { mid: line.mid, media: line.media()?, reported: None }))
        .collect();
    let media: Vec<Media> = tracks.iter().map(|track| track.media.clone()).collect();
    let feed = Feed::new(TrackSelection::new(&media)?);
    let origin = format!("whip from {}", ask.peer);
    // One request that waits says as much as many.
    let (asks, keys) = mpsc::channel(1);
    let publisher = match rendition {
        None => context.hub.publish(name, &origin, Some(asks)),
        Some(rendition) => context.hub.publish_rendition(name, rendition, &origin, Some(asks)),
    }?;
    let lease = Lease::new(grant, site, publisher.stream().removed(), context);
    let publishing = Publishing {
        publisher,
        feed,
        tracks,
        meter: Meter::new(),
        most: context.limits().max_publish_rate,
        since: Instant::now(),
        lost: 0,
        misses: false,
        asked: None,
    };
    let part = work::Part::Publish { name: name.to_owned(), peer: ask.peer, keys };
    let work = Work { role: part, lease, permit };
    let id = work::begin(context, agreed, Role::Publisher(publishing), work)?;
    Ok(Begun { id, answer })
}

impl Publishing {
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
            .find(|(_, track)| u64::from(track.media.clock_rate) == u64::from(clock) && of(&track));
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

impl Inner {
    /// Asks the publisher for a keyframe. `if_missed`: only if pictures have come with gaps.
    pub(super) fn ask_for_key(&mut self, if_missed: bool) {
        let Role::Publisher(publishing) = &mut self.role else { return };
        let Publishing { tracks, misses, asked, .. } = publishing;
        let is_wanted = !if_missed || *misses;
        if !is_wanted || asked.is_some_and(|asked| asked.elapsed() < BETWEEN_ASKS) {
            return;
        }
        let Some(track) = tracks.iter().find(|track| track.media.clock_rate == 90_000) else { return };
        let mut api = self.rtc.direct_api();
        if let Some(stream) = api.stream_rx_by_mid(track.mid, None) {
            stream.request_keyframe(KeyframeRequestKind::Pli);
            (*misses, *asked) = (false, Some(Instant::now()));
            self.turn();
        }
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
    seconds << 32 | (u64::from(since.subsec_nanos()) << 32) / 1_000_000_000
}

const SECONDS_1900_TO_1970: u64 = 2_208_988_800;
/// A source needs this long to answer.
const BETWEEN_ASKS: Duration = Duration::from_millis(500);

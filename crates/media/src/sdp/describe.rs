use std::net::IpAddr;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sdp_types::{
    Bandwidth, BandwidthType, Connection, Fmtp, FmtpParam, MediaType, Origin, RtpMap, Time, TransportProto,
};

use crate::av1::sequence::Sequence;
use crate::rtp::{OPUS_RATE, VIDEO_RATE, payload_type, retransmission_payload_type};
use crate::unit::{AudioCodec, AudioTrack, Kind, Tracks, VideoCodec, VideoTrack};

/// What a description says besides the tracks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// The stream's name for people. Control characters become spaces.
    pub name: String,
    /// A number that this stream keeps.
    pub id: u64,
    /// Goes up when the tracks change.
    pub version: u64,
    /// The server's address as the viewer sees it.
    pub address: IpAddr,
    /// The source makes key pictures when viewers ask for them: they may send picture loss indications (RFC 4585).
    pub key_on_request: bool,
    /// Lost packets are sent again on request for this long (RFC 4588), and tracks are offered in the profile `RTP/AVPF` (RFC 4585)
    /// for it. Not every player knows this profile.
    pub retransmission: Option<Duration>,
}

/// Tracks that cannot be described for RTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DescribeError {
    /// No track at all.
    #[error("the stream has no track to describe yet; wait for the source")]
    Empty,
    /// Parameter sets or configuration that are too short.
    #[error("the decoder's configuration is incomplete; wait for the source's next key picture")]
    Config,
    /// Opus with more than two channels (RFC 7587 has no mapping for them).
    #[error("Opus with {0} channels does not go over RTP; use one or two")]
    OpusChannels(u8),
}

/// The `a=control` of a track, relative to the stream's URL: what SETUP requests name.
pub const fn control(kind: Kind) -> &'static str {
    match kind {
        Kind::Video => "trackID=0",
        Kind::Audio => "trackID=1",
    }
}

/// The description of a live stream, for the answer to DESCRIBE. Ports are 0: SETUP agrees on the transport.
///
/// # Errors
///
/// If a track has no RTP payload format, or its parameters do not fit into a description.
pub fn describe(tracks: &Tracks, session: &Session) -> Result<String, DescribeError> {
    let origin = Origin::with_ip_addr(session.id, session.version, session.address);
    let name: String = session.name.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let name = if name.is_empty() { " ".to_owned() } else { name };
    let mut description = sdp_types::Session::new(origin, name);
    let anywhere: IpAddr = match session.address {
        IpAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
    };
    description.set_connection(Connection::from_ip_addr(anywhere));
    description.add_time(Time::new(0, 0));
    description.add_attribute_with_value("type", "broadcast");
    description.add_attribute_with_value("control", "*");
    description.add_attribute_with_value("range", "npt=now-");
    if let Some(track) = &tracks.video {
        let mut media = media(Kind::Video, video(track)?, session.retransmission);
        if session.key_on_request {
            media.add_attribute_with_value("rtcp-fb", format!("{} nack pli", payload_type(Kind::Video)));
        }
        description.add_media(media);
    }
    if let Some(track) = &tracks.audio {
        description.add_media(media(Kind::Audio, audio(track)?, session.retransmission));
    }
    if description.medias.is_empty() {
        return Err(DescribeError::Empty);
    }
    Ok(description.to_string())
}

/// Bits per second for the receiver's reports (RFC 3556). GStreamer takes 2.4 kbit/s by itself, and delays requests by a quarter of a second
/// for it.
const RECEIVER_REPORT_RATE: u64 = 10_000;

/// A codec's name and clock, and its parameters.
type Format = (RtpMap, Vec<FmtpParam>);

fn media(kind: Kind, (map, params): Format, retransmission: Option<Duration>) -> sdp_types::Media {
    let name = match kind {
        Kind::Video => MediaType::Video,
        Kind::Audio => MediaType::Audio,
    };
    let mut media = sdp_types::Media::new(name, 0, TransportProto::RtpAvp, map.payload_type);
    let mut fmtp = Fmtp::new(map.payload_type);
    // With the same clock and channels: ffmpeg believes the last map.
    let repeated = RtpMap {
        payload_type: retransmission_payload_type(kind),
        encoding_name: "rtx".to_owned(),
        ..map.clone()
    };
    media.add_attribute(map);
    if !params.is_empty() {
        fmtp.add_format_specific_params(params);
        media.add_attribute(fmtp);
    }
    media.add_attribute_with_value("control", control(kind));
    if let Some(kept) = retransmission {
        offer_retransmission(&mut media, payload_type(kind), repeated, kept);
    }
    media
}

/// Offers to send packets of this payload type again. The original's map stays the first one, as some players read no other.
fn offer_retransmission(media: &mut sdp_types::Media, original: u8, repeated: RtpMap, kept: Duration) {
    media.proto = TransportProto::RtpAvpf.to_string();
    media.fmt = format!("{original} {}", repeated.payload_type);
    media.add_bandwidth(Bandwidth::new(BandwidthType::Rr, RECEIVER_REPORT_RATE));
    media.add_attribute_with_value("rtcp-fb", format!("{original} nack"));
    let mut fmtp = Fmtp::new(repeated.payload_type);
    media.add_attribute(repeated);
    fmtp.add_format_specific_params(vec![param("apt", original), param("rtx-time", kept.as_millis())]);
    media.add_attribute(fmtp);
}

fn video(track: &VideoTrack) -> Result<Format, DescribeError> {
    let map = |name| RtpMap::new(payload_type(Kind::Video), name, VIDEO_RATE);
    match &track.codec {
        VideoCodec::H264 { sps, pps } => {
            let [_, profile, constraints, level] = *sps.first_chunk().ok_or(DescribeError::Config)?;
            if pps.is_empty() {
                return Err(DescribeError::Config);
            }
            let sets = format!("{},{}", STANDARD.encode(sps), STANDARD.encode(pps));
            let params = vec![
                param("packetization-mode", "1"),
                param("profile-level-id", hex(&[profile, constraints, level])),
                param("sprop-parameter-sets", sets),
            ];
            Ok((map("H264"), params))
        }
        VideoCodec::H265 { vps, sps, pps } => {
            let sets = [("sprop-vps", vps), ("sprop-sps", sps), ("sprop-pps", pps)];
            if sets.iter().any(|(_, set)| set.is_empty()) {
                return Err(DescribeError::Config);
            }
            let params = sets.iter().map(|(name, set)| param(name, STANDARD.encode(set))).collect();
            Ok((map("H265"), params))
        }
        VideoCodec::Vp9 { profile, .. } => Ok((map("VP9"), vec![param("profile-id", profile)])),
        VideoCodec::Av1 { sequence_header } => {
            let Sequence { profile, level, tier, .. } =
                Sequence::of_obu(sequence_header).ok_or(DescribeError::Config)?;
            let params =
                vec![param("profile", profile), param("level-idx", level), param("tier", u8::from(tier))];
            Ok((map("AV1"), params))
        }
    }
}

fn audio(track: &AudioTrack) -> Result<Format, DescribeError> {
    let map =
        |name, rate, channels| RtpMap::with_encoding_params(payload_type(Kind::Audio), name, rate, channels);
    match &track.codec {
        AudioCodec::Aac { config } => {
            if config.len() < 2 {
                return Err(DescribeError::Config);
            }
            let params = vec![
                param("streamtype", "5"),
                param("profile-level-id", "1"),
                param("mode", "AAC-hbr"),
                param("sizelength", "13"),
                param("indexlength", "3"),
                param("indexdeltalength", "3"),
                param("config", hex(config)),
            ];
            Ok((map("MPEG4-GENERIC", track.rate, track.channels), params))
        }
        // The map says 2 channels whatever is coded (RFC 7587, 7).
        AudioCodec::Opus if track.channels <= 2 => {
            let stereo = u8::from(track.channels == 2);
            Ok((map("opus", OPUS_RATE, 2), vec![param("sprop-stereo", stereo), param("stereo", stereo)]))
        }
        AudioCodec::Opus => Err(DescribeError::OpusChannels(track.channels)),
    }
}

fn param(name: &str, value: impl ToString) -> FmtpParam {
    FmtpParam::with_value(name, value)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02X}")).collect()
}

//! From an offer to an answer.

use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use freshwire_media::sdp::{Media, MediaCodec};
use freshwire_media::unit::{AudioCodec, Kind, Tracks, VideoCodec};
use str0m::bwe::Bitrate;
use str0m::change::SdpOffer;
use str0m::format::{Codec, CodecConfig};
use str0m::media::{Mid, Pt};
use str0m::net::TcpType;
use str0m::rtp::Extension;
use str0m::{Candidate, Rtc, RtcConfig};

use super::port::Port;
use super::session::Agreed;
use super::sessions::WebRtc;
use super::viewing::FIRST_RATE;

/// Why an offer has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OfferError {
    /// It is no offer that can be understood.
    #[error("the offer cannot be used: {0}")]
    Malformed(String),
    /// The client cannot receive the stream, or sends nothing that can be taken.
    #[error("{0}")]
    Codec(String),
    /// Too many offers came before.
    #[error("too many offers wait for an answer; try again later")]
    Busy,
    /// The server has no address that the client could reach.
    #[error("the server has no address for WebRTC: configure webrtc.addresses")]
    NoAddress,
}

/// An offer with its answer.
pub(super) struct Negotiated {
    pub(super) agreed: Agreed,
    pub(super) answer: String,
    pub(super) video: Option<Line>,
    pub(super) audio: Option<Line>,
}

/// One medium that was agreed on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    pub(super) mid: Mid,
    pub(super) pt: Pt,
    pub(super) codec: Codec,
    /// The client reports when which packet arrives, or the rate that it can receive.
    pub(super) has_feedback: bool,
}

/// Media of an offer, as in an announcement by RTSP.
const MOST_MEDIA: usize = freshwire_media::sdp::MAX_MEDIA;
/// Formats of an offer, in all its media: Chromium 156 offers 42 to view, and 62 with four media. The protocol compares them with each other.
const MOST_FORMATS: usize = 256;
/// Lines of an offer: Chromium's has 211 to view, and 325 with four media. The protocol takes up to 70 µs for each.
const MOST_LINES: usize = 1024;

/// How long an offer waits for others to be read. The page gives it up then, and the session would be nobody's.
const TURN: Duration = Duration::from_secs(5);

/// Lost packets are sent again up to this age. A picture that is older helps nobody who wants to see what happens now.
const REPEATED_FOR: Duration = Duration::from_millis(500);
/// Packets that are kept to be sent again: those of that time at 20 Mbit/s.
const REPEATED_PACKETS: usize = 1024;
/// The share of what is sent that repetitions may have.
const REPEATED_SHARE: f32 = 0.3;

/// H.264 as it is agreed on: profiles of which the first are the offered ones that a stream of this profile can go by. A decoder of a
/// profile in a later place decodes those of the earlier ones.
const CONSTRAINED_BASELINE: u32 = 0x42_e01f;
const BASELINE: u32 = 0x42_001f;
const MAIN: u32 = 0x4d_001f;
const CONSTRAINED_HIGH: u32 = 0x64_0c1f;
const HIGH: u32 = 0x64_001f;
/// High 4:4:4 predictive: Chromium without a decoder in hardware offers it instead of the high profile.
const HIGH_444: u32 = 0xf4_001f;

/// Negotiates on a thread that may take long, few offers at a time: a stranger's offers keep nobody but other offers waiting.
pub(super) async fn negotiate(
    webrtc: &Arc<WebRtc>,
    answer: impl FnOnce(&Port) -> Result<Negotiated, OfferError> + Send + 'static,
) -> Result<Negotiated, OfferError> {
    let given_up = || OfferError::Malformed("the server could not read it".to_owned());
    let turn = tokio::time::timeout(TURN, webrtc.negotiations.acquire()).await;
    let _turn = turn.map_err(|_| OfferError::Busy)?.map_err(|_| given_up())?;
    let webrtc = Arc::clone(webrtc);
    tokio::task::spawn_blocking(move || answer(&webrtc.port)).await.unwrap_or_else(|_| Err(given_up()))
}

/// Answers a viewer's offer for a stream of these tracks.
pub(super) fn answer_viewer(
    port: &Port,
    offer: &str,
    tracks: &Tracks,
    local: Option<IpAddr>,
) -> Result<Negotiated, OfferError> {
    let mut codecs = CodecConfig::empty();
    if let Some(video) = &tracks.video {
        add_video(&mut codecs, &video.codec)?;
    }
    if let Some(audio) = &tracks.audio
        && audio.codec == AudioCodec::Opus
    {
        codecs.enable_opus(true, false);
    }
    let bandwidth = Bitrate::from(FIRST_RATE.bits_per_sec());
    let config = config(port, codecs)
        .enable_bwe(Some(bandwidth))
        .set_stats_interval(Some(Duration::from_secs(1)))
        .set_send_buffer_video(REPEATED_PACKETS);
    let mut negotiated = answer(port, offer, config, local, "sendonly")?;
    let Negotiated { agreed, video, audio, .. } = &mut negotiated;
    for line in [*video, *audio].into_iter().flatten() {
        let mut api = agreed.rtc.direct_api();
        if let Some(stream) = api.stream_tx_by_mid(line.mid, None) {
            stream.set_unpaced(true);
            stream.set_rtx_cache(REPEATED_PACKETS, REPEATED_FOR, Some(REPEATED_SHARE));
        }
    }
    if video.is_none() && tracks.video.is_some() {
        let name = tracks.video.as_ref().map_or_else(String::new, |video| codec_name(&video.codec));
        return Err(OfferError::Codec(format!("the stream is {name}, which the offer does not receive")));
    }
    if video.is_none() && audio.is_none() {
        return Err(OfferError::Codec("the stream has nothing that the offer receives".to_owned()));
    }
    Ok(negotiated)
}

/// Answers a publisher's offer: one encoding of pictures, one of sound.
pub(super) fn answer_publisher(
    port: &Port,
    offer: &str,
    local: Option<IpAddr>,
) -> Result<Negotiated, OfferError> {
    let offer = without_simulcast(offer);
    let mut codecs = CodecConfig::empty();
    codecs.enable_opus(true, false);
    // H.264 goes out by every protocol.
    let offered = |name: &str| offer.lines().any(|line| is_map_of(line, name));
    if offered("H264") {
        add_h264(&mut codecs, &[CONSTRAINED_BASELINE, BASELINE, MAIN, HIGH, CONSTRAINED_HIGH]);
    } else if offered("VP9") {
        codecs.enable_vp9(true);
    } else if offered("AV1") {
        codecs.enable_av1(true);
    } else if offered("H265") {
        codecs.enable_h265(true);
    }
    let negotiated = answer(port, &offer, config(port, codecs), local, "recvonly")?;
    if negotiated.video.is_none() && negotiated.audio.is_none() {
        let why =
            "the offer has no H.264, VP9, AV1, H.265 or Opus to send; choose one of them in the encoder";
        return Err(OfferError::Codec(why.to_owned()));
    }
    Ok(negotiated)
}

impl Line {
    /// The same for what puts packets together.
    pub(super) fn media(&self) -> Option<Media> {
        let (kind, codec, clock_rate, channels) = match self.codec {
            Codec::H264 => {
                (Kind::Video, MediaCodec::H264 { packetization_mode: 1, sets: Vec::new() }, 90_000, 1)
            }
            Codec::H265 => {
                let codec = MediaCodec::H265 { sets: Vec::new(), has_order_numbers: false };
                (Kind::Video, codec, 90_000, 1)
            }
            Codec::Vp9 => (Kind::Video, MediaCodec::Vp9, 90_000, 1),
            Codec::Av1 => (Kind::Video, MediaCodec::Av1, 90_000, 1),
            Codec::Opus => (Kind::Audio, MediaCodec::Opus, 48_000, 2),
            _ => return None,
        };
        let payload_type = *self.pt;
        Some(Media { kind, codec: Ok(codec), payload_type, clock_rate, channels, control: None })
    }
}

fn codec_name(codec: &VideoCodec) -> String {
    match codec {
        VideoCodec::H264 { sps, .. } => match sps.get(1) {
            Some(66) => "H.264 of the baseline profile".to_owned(),
            Some(77) => "H.264 of the main profile".to_owned(),
            Some(100) => "H.264 of the high profile".to_owned(),
            other => format!("H.264 of profile {}", other.copied().unwrap_or_default()),
        },
        VideoCodec::H265 { .. } => "H.265".to_owned(),
        VideoCodec::Vp9 { profile, .. } => format!("VP9 of profile {profile}"),
        VideoCodec::Av1 { .. } => "AV1".to_owned(),
        other => format!("{other:?}"),
    }
}

fn add_video(codecs: &mut CodecConfig, codec: &VideoCodec) -> Result<(), OfferError> {
    match codec {
        VideoCodec::H264 { sps, .. } => match sps.get(1) {
            Some(66) => {
                add_h264(codecs, &[CONSTRAINED_BASELINE, BASELINE, MAIN, CONSTRAINED_HIGH, HIGH, HIGH_444]);
            }
            Some(77) => add_h264(codecs, &[MAIN, HIGH, CONSTRAINED_HIGH, HIGH_444]),
            Some(100) => add_h264(codecs, &[HIGH, CONSTRAINED_HIGH, HIGH_444]),
            _ => {
                let name = codec_name(codec);
                return Err(OfferError::Codec(format!("the stream is {name}, which WebRTC does not carry")));
            }
        },
        VideoCodec::H265 { .. } => codecs.enable_h265(true),
        VideoCodec::Vp9 { profile: 0, .. } => codecs.enable_vp9(true),
        other => {
            let name = codec_name(other);
            return Err(OfferError::Codec(format!("the stream is {name}, which cannot go over RTP here")));
        }
    }
    Ok(())
}

fn add_h264(codecs: &mut CodecConfig, profiles: &[u32]) {
    for (&profile, at) in profiles.iter().zip((96..).step_by(2)) {
        codecs.add_h264(Pt::new_with_value(at), Some(Pt::new_with_value(at + 1)), true, profile);
    }
}

fn config(port: &Port, codecs: CodecConfig) -> RtcConfig {
    let mut config = RtcConfig::new()
        .set_crypto_provider(Arc::clone(&port.crypto))
        .set_dtls_cert(port.certificate.clone())
        .set_ice_lite(true)
        .set_rtp_mode(true);
    *config.codec_config() = codecs;
    config.set_extension(5, Extension::AbsoluteCaptureTime)
}

fn answer(
    port: &Port,
    offer: &str,
    config: RtcConfig,
    local: Option<IpAddr>,
    direction: &str,
) -> Result<Negotiated, OfferError> {
    let malformed = |error: &dyn std::fmt::Display| OfferError::Malformed(error.to_string());
    check_size(offer)?;
    let candidates = port.candidates(local);
    if candidates.is_empty() {
        return Err(OfferError::NoAddress);
    }
    let offered_ufrag = offer.lines().find_map(|line| line.strip_prefix("a=ice-ufrag:"));
    let offered_ufrag = offered_ufrag.unwrap_or_default().trim().to_owned();
    // The offer is a stranger's text.
    let answered = catch_unwind(AssertUnwindSafe(|| {
        let offer = SdpOffer::from_sdp_string(offer).map_err(|error| malformed(&error))?;
        let mut rtc = config.build(Instant::now());
        for &address in &candidates {
            let datagrams = Candidate::host(address, "udp").map_err(|error| malformed(&error))?;
            rtc.add_local_candidate(datagrams);
            let connection = Candidate::builder().tcp().host(address).tcptype(TcpType::Passive).build();
            rtc.add_local_candidate(connection.map_err(|error| malformed(&error))?);
        }
        let answer = rtc.sdp_api().accept_offer(offer).map_err(|error| malformed(&error))?;
        Ok((rtc, with_formats(&answer.to_sdp_string())))
    }));
    let (rtc, answer) = answered.unwrap_or_else(|_| Err(malformed(&"it contradicts itself")))?;
    let line = |kind: &str| agreed_line(&rtc, &answer, kind, direction);
    let (video, audio) = (line("video"), line("audio"));
    let agreed = Agreed { rtc, candidates, offered_ufrag };
    Ok(Negotiated { agreed, answer, video, audio })
}

/// Refuses an offer that would take the protocol long.
fn check_size(offer: &str) -> Result<(), OfferError> {
    let count = |start: &str| offer.lines().filter(|line| line.starts_with(start)).count();
    for (what, start, most) in
        [("media", "m=", MOST_MEDIA), ("formats", "a=rtpmap:", MOST_FORMATS), ("lines", "", MOST_LINES)]
    {
        if count(start) > most {
            return Err(OfferError::Malformed(format!("it has more than {most} {what}")));
        }
    }
    Ok(())
}

/// The answer with a format in each line of media, as the grammar wants it: one that is refused has none of its own.
fn with_formats(answer: &str) -> String {
    let line = |line: &str| {
        let is_bare = line.starts_with("m=") && line.split_ascii_whitespace().count() == 3;
        if is_bare { format!("{} 0\r\n", line.trim_end()) } else { format!("{line}\r\n") }
    };
    answer.lines().map(line).collect()
}

/// The first medium of this kind in an answer that goes in this direction, with the payload type of the codec that is preferred.
fn agreed_line(rtc: &Rtc, answer: &str, kind: &str, direction: &str) -> Option<Line> {
    let media = answer.split("\r\nm=").skip(1);
    media.filter(|media| media.starts_with(kind)).find_map(|media| {
        let mut words = media.lines().next()?.split_ascii_whitespace().skip(1);
        let port = words.next()?;
        let goes = |direction: &str| media.lines().any(|line| line.strip_prefix("a=") == Some(direction));
        if port == "0" || !(goes(direction) || goes("sendrecv")) {
            return None;
        }
        let types: Vec<u8> = words.skip(1).filter_map(|word| word.parse().ok()).collect();
        let mid = media.lines().find_map(|line| line.strip_prefix("a=mid:"))?;
        let params = rtc.codec_config().params();
        let chosen = params.iter().find(|params| {
            let codec = params.spec().codec;
            types.contains(&*params.pt()) && if kind == "video" { codec.is_video() } else { codec.is_audio() }
        })?;
        let has_feedback = ["transport-cc", "goog-remb"]
            .iter()
            .any(|name| media.contains(&format!("a=rtcp-fb:{} {name}", chosen.pt())));
        Some(Line { mid: Mid::from(mid), pt: chosen.pt(), codec: chosen.spec().codec, has_feedback })
    })
}

/// The offer without what would have the client send several encodings of the same pictures.
fn without_simulcast(offer: &str) -> String {
    let is_kept = |line: &&str| !line.starts_with("a=simulcast:") && !line.starts_with("a=rid:");
    offer.lines().filter(is_kept).flat_map(|line| [line, "\r\n"]).collect()
}

/// Whether the line says that a payload type is this codec.
fn is_map_of(line: &str, codec: &str) -> bool {
    let map = line.strip_prefix("a=rtpmap:").and_then(|map| map.split_once(' '));
    map.and_then(|(_, map)| map.split('/').next()).is_some_and(|name| name.eq_ignore_ascii_case(codec))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offer_has_few_lines_of_each_kind() {
        for (kind, most) in [
            ("m=video 9 UDP/TLS/RTP/SAVPF 96", MOST_MEDIA),
            ("a=rtpmap:96 H264/90000", MOST_FORMATS),
            ("a=fmtp:96 packetization-mode=1", MOST_LINES),
            ("a=ssrc:1 cname:x", MOST_LINES),
            ("a=candidate:1 1 udp 1 192.0.2.1 9 typ host", MOST_LINES),
            ("", MOST_LINES),
        ] {
            for count in [0, 1, most - 1, most, most + 1, 2 * most, 100 * most] {
                let checked = check_size(&format!("{kind}\r\n").repeat(count));
                assert_eq!(checked.is_ok(), count <= most, "{count} lines {kind:?}");
                assert!(
                    checked.err().is_none_or(|why| why.to_string().contains(&format!("more than {most}")))
                );
            }
        }
    }
}

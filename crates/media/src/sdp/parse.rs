use std::collections::BTreeMap;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use sdp_types::{Fmtp, RtpMap};

use crate::unit::Kind;

/// Longest text that [`parse`] reads. Chosen, not measured.
pub const MAX_TEXT_BYTES: usize = 64 << 10;
/// Most media that [`parse`] takes. Chosen, not measured.
pub const MAX_MEDIA: usize = 16;

/// One video or audio track of a description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Media {
    /// Pictures or sound.
    pub kind: Kind,
    /// How it is coded, or why it cannot be taken. Other tracks of the description may still be of use.
    pub codec: Result<MediaCodec, CodecError>,
    /// Payload type of its packets.
    pub payload_type: u8,
    /// Ticks per second of its timestamps; 0 if the codec is not known.
    pub clock_rate: u32,
    /// Channels of sound; 1 unless the description says more. Opus always says 2.
    pub channels: u8,
    /// Its `a=control`: what SETUP names, relative to the session's, or absolute.
    pub control: Option<String>,
}

/// How a track is coded, with what its description says of the decoder's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MediaCodec {
    /// H.264 (RFC 6184).
    H264 {
        /// 0, 1 or 2.
        packetization_mode: u8,
        /// Parameter sets as NAL units, in the description's order. Without them they come with the pictures.
        sets: Vec<Vec<u8>>,
    },
    /// H.265 (RFC 7798).
    H265 {
        /// Parameter sets as NAL units: video, sequence, picture.
        sets: Vec<Vec<u8>>,
        /// Packets carry decoding order numbers (`sprop-max-don-diff` above 0).
        has_order_numbers: bool,
    },
    /// AV1.
    Av1,
    /// VP9 (RFC 9628).
    Vp9,
    /// AAC (RFC 3640).
    Aac {
        /// AudioSpecificConfig.
        config: Vec<u8>,
        /// Bits of a frame's size in the AU headers.
        size_bits: u8,
        /// Bits of the first frame's index in the AU headers.
        index_bits: u8,
        /// Bits of other frames' index in the AU headers.
        index_delta_bits: u8,
    },
    /// Opus (RFC 7587).
    Opus,
}

/// A track that cannot be taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// Another codec.
    #[error("codec {0:?} is not supported; send H.264, H.265, AV1, VP9, AAC or Opus")]
    Unsupported(String),
    /// A payload type that nothing explains.
    #[error("no a=rtpmap for payload type {0}; name its codec")]
    NoMap(u8),
    /// Parameters that the codec's payload format needs are missing or wrong.
    #[error("a=fmtp of {codec} has no valid {param}")]
    Param {
        /// The codec.
        codec: &'static str,
        /// The parameter.
        param: &'static str,
    },
}

/// A text that is no session description, or one beyond the limits.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SdpError {
    /// More than [`MAX_TEXT_BYTES`].
    #[error("a session description of {0} bytes; at most {MAX_TEXT_BYTES} are read")]
    TooLong(usize),
    /// More than [`MAX_MEDIA`].
    #[error("a session description with {0} media; at most {MAX_MEDIA} are accepted")]
    TooManyMedia(usize),
    /// Not the grammar of RFC 8866.
    #[error("not a session description: {0}")]
    Grammar(String),
    /// A media line without a payload type.
    #[error("media {0}: no valid RTP payload type in its m= line")]
    NoPayloadType(usize),
    /// Neither video nor audio.
    #[error("the session description has neither video nor audio")]
    Empty,
}

/// A session description, as far as it concerns who receives the stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Description {
    /// The video and audio tracks, in its order.
    pub media: Vec<Media>,
    /// The session's `a=control`: what PLAY names, if it is an address.
    pub control: Option<String>,
    /// The `a=control` of each medium that is neither video nor audio, which nobody carries.
    pub others: Vec<Option<String>>,
}

/// Reads a session description. Media that are neither video nor audio are left out.
///
/// # Errors
///
/// If the text is too long, is not UTF-8, or a line of media or attributes is invalid.
pub fn parse(text: &[u8]) -> Result<Vec<Media>, SdpError> {
    parse_whole(text).map(|description| description.media)
}

/// Reads a session description. Only the lines that are of use are read, those of media and attributes: cameras and
/// encoders get the others wrong in many ways, and nothing depends on them.
///
/// # Errors
///
/// If the text is too long, is not UTF-8, or a line of media or attributes is invalid.
pub fn parse_whole(text: &[u8]) -> Result<Description, SdpError> {
    if text.len() > MAX_TEXT_BYTES {
        return Err(SdpError::TooLong(text.len()));
    }
    let useful = useful_lines(text);
    let session =
        sdp_types::Session::parse(useful.as_bytes()).map_err(|error| SdpError::Grammar(error.to_string()))?;
    if session.medias.len() > MAX_MEDIA {
        return Err(SdpError::TooManyMedia(session.medias.len()));
    }
    let value = |attribute: &sdp_types::Attribute| attribute.value.clone();
    let control = session.attributes.iter().find(|attribute| attribute.attribute == "control");
    let mut found = Description { control: control.and_then(value), ..Description::default() };
    let mut nothing = SdpError::Empty;
    for (index, media) in session.medias.iter().enumerate() {
        let kind = match media.media.as_str() {
            "video" => Some(Kind::Video),
            "audio" => Some(Kind::Audio),
            _ => None,
        };
        match kind.and_then(|kind| read_media(kind, media)) {
            Some(media) => found.media.push(media),
            None => {
                if kind.is_some() {
                    nothing = SdpError::NoPayloadType(index);
                }
                let control = media.get_first_attribute_value("control").flatten();
                found.others.push(control.map(str::to_owned));
            }
        }
    }
    if found.media.is_empty() { Err(nothing) } else { Ok(found) }
}

/// A description of nothing but the media and the attributes, in the grammar's form. What precedes the first is left out.
fn useful_lines(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let mut useful = "v=0\r\n".to_owned();
    for line in text.split(['\r', '\n', '\0']).map(str::trim) {
        if let Some(media) = line.strip_prefix("m=") {
            let mut words = media.split_ascii_whitespace();
            let name = words.next().unwrap_or_default();
            // The port and the protocol, on which SETUP agrees.
            let formats: Vec<_> = words.skip(2).collect();
            let formats = if formats.is_empty() { "-".to_owned() } else { formats.join(" ") };
            let name = if name.is_empty() { "-" } else { name };
            useful.extend(["m=", &name.to_ascii_lowercase(), " 0 RTP/AVP ", &formats, "\r\n"]);
        } else if line.starts_with("a=") && line.len() > 2 {
            useful.extend([line, "\r\n"]);
        }
    }
    useful
}

/// If there are several payload types, the first supported one counts, or else the first.
fn read_media(kind: Kind, media: &sdp_types::Media) -> Option<Media> {
    let control = media.get_first_attribute_value("control").flatten().map(str::to_owned);
    let mut formats = Formats::of(media);
    let mut first = None;
    for word in media.fmt.split_ascii_whitespace() {
        let Some(payload_type) = word.parse().ok().filter(|&payload_type| payload_type < 128) else {
            continue;
        };
        // A type that is named again has been judged.
        let Some(Format { map, params }) = formats.take(payload_type) else { continue };
        let channels = map.as_ref().and_then(|map| map.encoding_params.as_deref()?.trim().parse().ok());
        let candidate = Media {
            kind,
            codec: codec(kind, payload_type, map.as_ref(), &params),
            payload_type,
            clock_rate: map.map_or(0, |map| map.clock_rate),
            channels: channels.unwrap_or(1),
            control: control.clone(),
        };
        if candidate.codec.is_ok() {
            return Some(candidate);
        }
        first.get_or_insert(candidate);
    }
    first
}

/// What a media's attributes say of its payload types, gathered in one pass: a description of many types and as many
/// attributes costs no more than its length.
struct Formats {
    by_type: BTreeMap<u8, Format>,
    judged: u128,
}

#[derive(Default)]
struct Format {
    map: Option<RtpMap>,
    params: Params,
}

impl Formats {
    fn of(media: &sdp_types::Media) -> Self {
        let mut by_type: BTreeMap<u8, Format> = BTreeMap::new();
        let maps = media.get_attribute_values("rtpmap").flatten();
        for map in maps.filter_map(|value| value.trim().parse::<RtpMap>().ok()) {
            if map.clock_rate > 0 {
                by_type.entry(map.payload_type).or_default().map.get_or_insert(map);
            }
        }
        let values = media.get_attribute_values("fmtp").flatten();
        for fmtp in values.filter_map(|value| value.trim().parse::<Fmtp>().ok()) {
            by_type.entry(fmtp.fmt).or_default().params.add(fmtp.format_specific_params);
        }
        Self { by_type, judged: 0 }
    }

    /// The format of a payload type below 128; `None` the second time.
    fn take(&mut self, payload_type: u8) -> Option<Format> {
        let bit = 1 << payload_type;
        if self.judged & bit != 0 {
            return None;
        }
        self.judged |= bit;
        Some(self.by_type.remove(&payload_type).unwrap_or_default())
    }
}

fn codec(
    kind: Kind,
    payload_type: u8,
    map: Option<&RtpMap>,
    params: &Params,
) -> Result<MediaCodec, CodecError> {
    let Some(map) = map else {
        let name = STATIC_TYPES.iter().find(|(known, _)| *known == payload_type);
        return Err(name.map_or(CodecError::NoMap(payload_type), |(_, name)| {
            CodecError::Unsupported((*name).to_owned())
        }));
    };
    match (kind, map.encoding_name.trim().to_ascii_uppercase().as_str()) {
        (Kind::Video, "H264") => h264(params),
        (Kind::Video, "H265") => h265(params),
        (Kind::Video, "AV1") => Ok(MediaCodec::Av1),
        (Kind::Video, "VP9") => Ok(MediaCodec::Vp9),
        (Kind::Audio, "MPEG4-GENERIC") => aac(params),
        (Kind::Audio, "OPUS") => Ok(MediaCodec::Opus),
        _ => Err(CodecError::Unsupported(map.encoding_name.clone())),
    }
}

fn h264(params: &Params) -> Result<MediaCodec, CodecError> {
    let invalid = |param| CodecError::Param { codec: "H264", param };
    let packetization_mode = match params.get("packetization-mode").unwrap_or("0") {
        "0" => 0,
        "1" => 1,
        "2" => 2,
        _ => return Err(invalid("packetization-mode")),
    };
    Ok(MediaCodec::H264 { packetization_mode, sets: params.nals("sprop-parameter-sets") })
}

fn h265(params: &Params) -> Result<MediaCodec, CodecError> {
    let sets = ["sprop-vps", "sprop-sps", "sprop-pps"].iter().flat_map(|param| params.nals(param)).collect();
    let has_order_numbers = params.get("sprop-max-don-diff").is_some_and(|difference| difference != "0");
    Ok(MediaCodec::H265 { sets, has_order_numbers })
}

fn aac(params: &Params) -> Result<MediaCodec, CodecError> {
    let invalid = |param| CodecError::Param { codec: "MPEG4-GENERIC", param };
    let mode = params.get("mode").unwrap_or_default();
    if !mode.eq_ignore_ascii_case("AAC-hbr") && !mode.eq_ignore_ascii_case("AAC-lbr") {
        return Err(invalid("mode"));
    }
    let config = params.get("config").and_then(from_hex).filter(|config| config.len() >= 2);
    let bits = |name, most| match params.get(name) {
        None => Ok(0),
        Some(value) => value.parse().ok().filter(|&bits: &u8| bits <= most).ok_or(invalid(name)),
    };
    Ok(MediaCodec::Aac {
        config: config.ok_or(invalid("config"))?,
        size_bits: bits("sizelength", 16).and_then(|bits| match bits {
            0 => Err(invalid("sizelength")),
            _ => Ok(bits),
        })?,
        index_bits: bits("indexlength", 8)?,
        index_delta_bits: bits("indexdeltalength", 8)?,
    })
}

/// The parameters of one payload type.
#[derive(Default)]
struct Params(Vec<(String, String)>);

impl Params {
    fn add(&mut self, params: Vec<sdp_types::FmtpParam>) {
        let pair = |param: sdp_types::FmtpParam| {
            (param.param.trim().to_ascii_lowercase(), param.val.unwrap_or_default().trim().to_owned())
        };
        self.0.extend(params.into_iter().map(pair));
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Base 64 with commas between; empty if there is no such parameter. Anything else is passed over: the
    /// parameter sets mostly come with the pictures as well.
    fn nals(&self, name: &str) -> Vec<Vec<u8>> {
        let words = self.get(name).unwrap_or_default().split(',');
        words.filter_map(|word| BASE64.decode(word.trim()).ok().filter(|nal| !nal.is_empty())).collect()
    }
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> =
        text.chars().map(|c| c.to_digit(16).map(|digit| digit as u8)).collect::<Option<_>>()?;
    let (pairs, []) = digits.as_chunks::<2>() else { return None };
    Some(pairs.iter().map(|[high, low]| high << 4 | low).collect())
}

/// Cameras leave out the padding or the last bits' zeroes.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);
/// Payload types that need no map (RFC 3551, 6), as cameras use them.
const STATIC_TYPES: [(u8, &str); 6] =
    [(0, "PCMU"), (8, "PCMA"), (9, "G722"), (14, "MPA"), (26, "JPEG"), (33, "MP2T")];

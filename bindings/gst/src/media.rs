//! Caps, and what they say of a stream.

use freshwire_media::unit::{AudioCodec, AudioTrack, Kind, VideoCodec, VideoTrack};
use freshwire_media::video::Format;
use gst::prelude::*;

/// The caps of pictures. GStreamer 1.22's av1enc does not name its stream format.
const VIDEO: &str = "video/x-h264, stream-format=(string)byte-stream, alignment=(string)au; \
    video/x-h265, stream-format=(string)byte-stream, alignment=(string)au; \
    video/x-av1, alignment=(string)tu; \
    video/x-vp9";

/// The caps of sound.
const AUDIO: &str = "audio/x-opus, channel-mapping-family=(int)0; \
    audio/mpeg, mpegversion=(int)4, stream-format=(string)raw";

/// The clock of Opus.
const OPUS_RATE: u32 = 48_000;

/// A stream as its caps describe it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Media {
    /// Pictures.
    Video(Format),
    /// Sound.
    Audio(AudioTrack),
}

impl Media {
    /// Which track it is.
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Video(_) => Kind::Video,
            Self::Audio(_) => Kind::Audio,
        }
    }
}

/// What a pad of this kind takes.
///
/// # Panics
///
/// If GStreamer cannot read the constants above.
pub(crate) fn template_caps(kind: Kind) -> gst::Caps {
    let text = match kind {
        Kind::Video => VIDEO,
        Kind::Audio => AUDIO,
    };
    text.parse().expect("constant caps are valid")
}

/// The stream that has these caps, or why it cannot be carried.
pub(crate) fn of_caps(caps: &gst::CapsRef) -> Result<Media, String> {
    let Some(structure) = caps.structure(0) else { return Err("empty caps".to_owned()) };
    let number = |name: &str| structure.get::<i32>(name).ok().and_then(|value| u32::try_from(value).ok());
    let channels = || number("channels").and_then(|channels| u8::try_from(channels).ok());
    Ok(match structure.name().as_str() {
        "video/x-h264" => Media::Video(Format::H264),
        "video/x-h265" => Media::Video(Format::H265),
        "video/x-av1" if structure.get::<&str>("stream-format") == Ok("annexb") => {
            return Err(
                "AV1 in Annex B form; put av1parse and stream-format=obu-stream before freshwiresink"
                    .to_owned(),
            );
        }
        "video/x-av1" => Media::Video(Format::Av1),
        "video/x-vp9" if structure.get::<&str>("alignment") == Ok("frame") => {
            return Err("VP9 frame by frame; put vp9parse before freshwiresink".to_owned());
        }
        "video/x-vp9" => Media::Video(Format::Vp9),
        "audio/x-opus" => {
            let channels = channels().unwrap_or(2);
            Media::Audio(AudioTrack { codec: AudioCodec::Opus, rate: OPUS_RATE, channels })
        }
        "audio/mpeg" => {
            let config = structure.get::<gst::Buffer>("codec_data").ok();
            let config = config.and_then(|buffer| Some(buffer.map_readable().ok()?.to_vec()));
            let (Some(config), Some(rate), Some(channels)) = (config, number("rate"), channels()) else {
                return Err("AAC without codec_data; put aacparse before freshwiresink".to_owned());
            };
            Media::Audio(AudioTrack { codec: AudioCodec::Aac { config }, rate, channels })
        }
        other => return Err(format!("{other} cannot be carried")),
    })
}

/// The caps of pictures of this track.
pub(crate) fn video_caps(track: &VideoTrack) -> gst::Caps {
    let builder = match &track.codec {
        VideoCodec::H264 { .. } => byte_stream("video/x-h264"),
        VideoCodec::H265 { .. } => byte_stream("video/x-h265"),
        VideoCodec::Vp9 { profile, bit_depth } => gst::Caps::builder("video/x-vp9")
            .field("alignment", "super-frame")
            .field("profile", profile.to_string())
            .field("bit-depth-luma", u32::from(*bit_depth)),
        // AV1; the enumeration may grow.
        _ => gst::Caps::builder("video/x-av1").field("stream-format", "obu-stream").field("alignment", "tu"),
    };
    let size = |value: u32| i32::try_from(value).unwrap_or(i32::MAX);
    builder.field("width", size(track.width)).field("height", size(track.height)).build()
}

fn byte_stream(name: &str) -> gst::caps::Builder<gst::caps::NoFeature> {
    gst::Caps::builder(name).field("stream-format", "byte-stream").field("alignment", "au")
}

/// The caps of sound of this track.
pub(crate) fn audio_caps(track: &AudioTrack) -> gst::Caps {
    let builder = match &track.codec {
        AudioCodec::Aac { config } => gst::Caps::builder("audio/mpeg")
            .field("mpegversion", 4)
            .field("stream-format", "raw")
            .field("framed", true)
            .field("codec_data", gst::Buffer::from_slice(config.clone())),
        // Opus; the enumeration may grow.
        _ => gst::Caps::builder("audio/x-opus").field("channel-mapping-family", 0),
    };
    let rate = i32::try_from(track.rate).unwrap_or(i32::MAX);
    builder.field("rate", rate).field("channels", i32::from(track.channels)).build()
}

/// Posts an element message that says where the element can be reached: each address in a field with the name of its scheme.
/// GStreamer 1.22 prints no lists of strings.
pub(crate) fn post_listening(
    element: &impl IsA<gst::Element>,
    name: &str,
    urls: &[String],
    key: Option<&str>,
) {
    let mut message = gst::Structure::new_empty(name);
    for url in urls {
        let scheme = url.split_once("://").map_or("url", |(scheme, _)| scheme);
        message.set(scheme, url);
    }
    if let Some(key) = key {
        message.set("public-key", key);
    }
    let message = gst::message::Element::builder(message).src(element.upcast_ref::<gst::Element>()).build();
    // A reader of the pipeline's messages can inform people; nobody has to.
    let _ = element.post_message(message);
}

use std::fmt;

use freshwire_media::unit::VideoCodec;

/// An encoder of ffmpeg by its name there, and the device that it works on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoder {
    pub(crate) known: &'static EncoderProfile,
    pub(crate) device: Option<String>,
}

/// The properties of an encoder.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct EncoderProfile {
    pub(crate) name: &'static str,
    pub(crate) codec: Codec,
    pub(crate) place: Place,
    /// Options for encoding without delay: no picture waits for later ones.
    pub(crate) options: &'static [&'static str],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Codec {
    H264,
    H265,
}

/// Where it encodes, which decides how it gets its pictures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Processor,
    /// VA-API, of Intel and AMD. Pictures are uploaded by a filter.
    Vaapi,
    /// Quick Sync, of Intel.
    QuickSync,
    Nvidia,
    /// An encoder of the kernel's video subsystem, as of a Raspberry Pi 4. ffmpeg finds the device.
    Video4Linux,
}

const X264: &[&str] = &["-preset", "veryfast", "-tune", "zerolatency", "-sc_threshold", "0"];
const X265: &[&str] = &[
    "-preset",
    "veryfast",
    "-tune",
    "zerolatency",
    "-x265-params",
    "log-level=error:bframes=0:repeat-headers=1:scenecut=0",
];
const OPENH264: &[&str] = &["-rc_mode", "bitrate"];
const QUICK_SYNC: &[&str] = &["-preset", "veryfast", "-async_depth", "1", "-forced_idr", "1"];
const NVENC: &[&str] =
    &["-preset", "p2", "-tune", "ull", "-rc", "cbr", "-zerolatency", "1", "-delay", "0", "-forced-idr", "1"];

const fn known(
    name: &'static str,
    codec: Codec,
    place: Place,
    options: &'static [&'static str],
) -> EncoderProfile {
    EncoderProfile { name, codec, place, options }
}

/// The first of each codec is the default.
pub(crate) static KNOWN: [EncoderProfile; 11] = [
    known("libx264", Codec::H264, Place::Processor, X264),
    known("libx265", Codec::H265, Place::Processor, X265),
    known("libopenh264", Codec::H264, Place::Processor, OPENH264),
    known("h264_vaapi", Codec::H264, Place::Vaapi, &[]),
    known("hevc_vaapi", Codec::H265, Place::Vaapi, &[]),
    known("h264_qsv", Codec::H264, Place::QuickSync, QUICK_SYNC),
    known("hevc_qsv", Codec::H265, Place::QuickSync, QUICK_SYNC),
    known("h264_nvenc", Codec::H264, Place::Nvidia, NVENC),
    known("hevc_nvenc", Codec::H265, Place::Nvidia, NVENC),
    known("h264_v4l2m2m", Codec::H264, Place::Video4Linux, &[]),
    known("hevc_v4l2m2m", Codec::H265, Place::Video4Linux, &[]),
];

/// The name or the device of an encoder cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct EncoderError(String);

impl Encoder {
    /// The encoder of this name. `device` is the path of a render node for VA-API and Quick Sync, and the number of a graphics
    /// processor for NVENC; by default the first.
    ///
    /// # Errors
    ///
    /// If the name is unknown, or the encoder has no such device.
    pub fn new(name: &str, device: Option<&str>) -> Result<Self, EncoderError> {
        let Some(known) = KNOWN.iter().find(|known| known.name == name) else {
            let shown: String = name.chars().take(64).collect();
            let names = KNOWN.each_ref().map(|known| known.name).join(", ");
            return Err(EncoderError(format!("{shown:?} is no encoder for a ladder; write one of {names}")));
        };
        let wrong = |why: &str| Err(EncoderError(format!("the device of {name} {why}")));
        match (known.place, device) {
            (_, None) => {}
            (Place::Vaapi | Place::QuickSync, Some(path)) if path.starts_with('/') && is_plain(path) => {}
            (Place::Vaapi | Place::QuickSync, Some(_)) => {
                return wrong("is a path, such as /dev/dri/renderD128");
            }
            (Place::Nvidia, Some(number)) if number.parse::<u8>().is_ok() => {}
            (Place::Nvidia, Some(_)) => return wrong("is the number of a graphics processor, such as 0"),
            (Place::Processor | Place::Video4Linux, Some(_)) => {
                return wrong("cannot be chosen; leave it out");
            }
        }
        Ok(Self { known, device: device.map(str::to_owned) })
    }

    /// Its name in ffmpeg.
    pub fn name(&self) -> &'static str {
        self.known.name
    }
}

impl Codec {
    pub(crate) fn of(codec: &VideoCodec) -> Option<Self> {
        match codec {
            VideoCodec::H264 { .. } => Some(Self::H264),
            VideoCodec::H265 { .. } => Some(Self::H265),
            _ => None,
        }
    }
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::H264 => "H.264",
            Self::H265 => "H.265",
        })
    }
}

/// Whether ffmpeg reads the path as one: its lists of devices have commas and colons of their own.
fn is_plain(path: &str) -> bool {
    !path.contains([',', ':', '@', '=']) && !path.chars().any(char::is_control)
}

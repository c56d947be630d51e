//! What precedes pictures and sound in their messages: the tags of FLV (version 10.1, annex E) and of Enhanced RTMP v2.

use super::super::fmp4;
use crate::rtmp::amf0::Value;
use crate::unit::{AudioCodec, AudioTrack, Kind, Tracks, UnitHead, VideoCodec, VideoTrack};

/// Ticks a second.
pub(super) const TICKS: u32 = 1000;

/// A key frame, and one that is none.
const KEY: u8 = 1 << 4;
const INTER: u8 = 2 << 4;
/// The codec has a name of four characters, and the low bits are the packet's type (Enhanced RTMP).
const EXTENDED_VIDEO: u8 = 0x80;
const EXTENDED_AUDIO: u8 = 9 << 4;
/// AVC, in the low bits.
const AVC: u8 = 7;
/// AAC; the other fields are fixed for it: 44 kHz, 16 bits, stereo.
const AAC: u8 = 0xaf;

/// The packet describes the codec.
const SEQUENCE: u8 = 0;
/// The packet has a picture or sound, and a composition offset where the codec has one.
const FRAMES: u8 = 1;

/// The tag of a unit. `None` if its track is not there.
pub(super) fn of_unit(head: &UnitHead) -> Option<Vec<u8>> {
    match head.kind {
        Kind::Video => {
            let frame = if head.key { KEY } else { INTER };
            let mut tag = video(&head.tracks.video.as_ref()?.codec, frame, FRAMES)?;
            if let VideoCodec::H264 { .. } | VideoCodec::H265 { .. } = head.tracks.video.as_ref()?.codec {
                // Each is rounded by itself, as the time of the message is.
                let offset = head.pts.ticks(TICKS).saturating_sub(head.dts.ticks(TICKS)).clamp(0, 0x7f_ffff);
                tag.extend_from_slice(&(offset as u32).to_be_bytes()[1..]);
            }
            Some(tag)
        }
        Kind::Audio => audio(&head.tracks.audio.as_ref()?.codec, FRAMES),
    }
}

/// The body of the message that describes the pictures. `None` if they cannot be described.
pub(super) fn video_sequence(track: &VideoTrack) -> Option<Vec<u8>> {
    let mut body = video(&track.codec, KEY, SEQUENCE)?;
    if let VideoCodec::H264 { .. } = track.codec {
        body.extend_from_slice(&[0; 3]);
    }
    body.extend(fmp4::video_configuration(track)?);
    Some(body)
}

/// The body of the message that describes the sound. `None` if it cannot be described.
pub(super) fn audio_sequence(track: &AudioTrack) -> Option<Vec<u8>> {
    let mut body = audio(&track.codec, SEQUENCE)?;
    match &track.codec {
        AudioCodec::Aac { config } => body.extend_from_slice(config),
        AudioCodec::Opus => body.extend(opus_head(track.channels)?),
    }
    Some(body)
}

fn video(codec: &VideoCodec, frame: u8, packet: u8) -> Option<Vec<u8>> {
    let name = match codec {
        VideoCodec::H264 { .. } => return Some(vec![frame | AVC, packet]),
        VideoCodec::H265 { .. } => b"hvc1",
        VideoCodec::Av1 { .. } => b"av01",
        VideoCodec::Vp9 { .. } => b"vp09",
    };
    let mut tag = vec![EXTENDED_VIDEO | frame | packet];
    tag.extend_from_slice(name);
    Some(tag)
}

fn audio(codec: &AudioCodec, packet: u8) -> Option<Vec<u8>> {
    Some(match codec {
        AudioCodec::Aac { .. } => vec![AAC, packet],
        AudioCodec::Opus => [&[EXTENDED_AUDIO | packet], &b"Opus"[..]].concat(),
    })
}

/// The identification header of Opus (RFC 7845, 5.1). `None` for channels that need a mapping.
fn opus_head(channels: u8) -> Option<Vec<u8>> {
    let mut head = b"OpusHead\x01".to_vec();
    head.push(channels);
    // No samples to skip: a reader joins in the middle.
    head.extend_from_slice(&0_u16.to_le_bytes());
    head.extend_from_slice(&48_000_u32.to_le_bytes());
    // Gain, and the mapping family of one or two channels.
    head.extend_from_slice(&[0, 0, 0]);
    (1..=2).contains(&channels).then_some(head)
}

/// The body of `@setDataFrame onMetaData` in AMF0, with what readers ask for before they decode.
pub(super) fn metadata(tracks: &Tracks) -> Vec<u8> {
    const ECMA_ARRAY: u8 = 8;
    let four = |name: &[u8; 4]| f64::from(u32::from_be_bytes(*name));
    let mut entries = Vec::new();
    if let Some(video) = &tracks.video {
        let codec = match video.codec {
            VideoCodec::H264 { .. } => f64::from(AVC),
            VideoCodec::H265 { .. } => four(b"hvc1"),
            VideoCodec::Av1 { .. } => four(b"av01"),
            VideoCodec::Vp9 { .. } => four(b"vp09"),
        };
        entries.extend([
            ("width", f64::from(video.width)),
            ("height", f64::from(video.height)),
            ("videocodecid", codec),
        ]);
    }
    if let Some(audio) = &tracks.audio {
        let codec = match audio.codec {
            AudioCodec::Aac { .. } => f64::from(AAC >> 4),
            AudioCodec::Opus => four(b"Opus"),
        };
        entries.extend([
            ("audiocodecid", codec),
            ("audiosamplerate", f64::from(audio.rate)),
            ("audiochannels", f64::from(audio.channels)),
        ]);
    }
    let entries: Vec<_> =
        entries.into_iter().map(|(name, value)| (name.to_owned(), Value::Number(value))).collect();
    let count = entries.len() as u32;
    let mut body = Vec::new();
    for text in ["@setDataFrame", "onMetaData"] {
        Value::from(text).write(&mut body);
    }
    // An array with names, which some readers insist on, is an object with a count behind its type.
    let mut object = Vec::new();
    Value::Object(entries).write(&mut object);
    body.push(ECMA_ARRAY);
    body.extend_from_slice(&count.to_be_bytes());
    body.extend_from_slice(&object[1..]);
    body
}

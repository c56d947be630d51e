//! The bodies of FLV tags: Adobe's (Video File Format Specification 10.1, annex E.4), and those of enhanced RTMP.

use crate::video::Format;

/// What a tag of pictures holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum VideoTag<'a> {
    /// The sequence header: a decoder's configuration, as MP4 has it.
    Header { format: Format, bytes: &'a [u8] },
    /// A picture that is shown this much after it is decoded.
    Picture { format: Format, shift_ns: i64, bytes: &'a [u8] },
    /// Nothing that is needed: an end, metadata, a command.
    Other,
    /// Pictures that cannot be carried, in words for a person.
    Unsupported(String),
    /// It ends too early.
    Short,
}

/// How a tag's sound is coded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SoundFormat {
    Aac,
    Opus,
}

/// What a tag of sound holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SoundTag<'a> {
    /// The sequence header: an AudioSpecificConfig, or an identification header of Opus (RFC 7845).
    Header { format: SoundFormat, bytes: &'a [u8] },
    /// A frame, this much later than the tag says.
    Frame { format: SoundFormat, shift_ns: i64, bytes: &'a [u8] },
    /// Nothing that is needed.
    Other,
    /// Sound that cannot be carried, in words for a person.
    Unsupported(String),
    /// It ends too early.
    Short,
}

/// Reads the body of a tag of pictures.
pub(super) fn video(body: &[u8]) -> VideoTag<'_> {
    // Programs send empty tags to keep the time going.
    let Some((&first, rest)) = body.split_first() else { return VideoTag::Other };
    if first & ENHANCED != 0 {
        return enhanced_video(first, rest).unwrap_or(VideoTag::Short);
    }
    let format = match first & 15 {
        7 => Format::H264,
        // Not in the specification: what encoders sent before enhanced RTMP.
        12 => Format::H265,
        other => return VideoTag::Unsupported(format!("pictures of FLV's codec {other}")),
    };
    if first >> 4 == COMMAND_FRAME {
        return VideoTag::Other;
    }
    let Some((&kind, rest)) = rest.split_first() else { return VideoTag::Short };
    let Some((shift, bytes)) = rest.split_first_chunk() else { return VideoTag::Short };
    match kind {
        0 => VideoTag::Header { format, bytes },
        1 => VideoTag::Picture { format, shift_ns: milliseconds(*shift), bytes },
        _ => VideoTag::Other,
    }
}

/// `None` if it ends too early.
fn enhanced_video(first: u8, rest: &[u8]) -> Option<VideoTag<'_>> {
    let (kind, extra_ns, rest) = modified(first & 15, rest)?;
    if kind == video_packet::MULTITRACK {
        return Some(VideoTag::Unsupported("pictures of several tracks in one stream".to_owned()));
    }
    if kind != video_packet::METADATA && first >> 4 & 7 == COMMAND_FRAME {
        return Some(VideoTag::Other);
    }
    let (code, bytes) = rest.split_first_chunk()?;
    let Some(format) = video_format(*code) else {
        return Some(VideoTag::Unsupported(format!("pictures of the codec {}", shown(*code))));
    };
    let is_nal_coded = matches!(format, Format::H264 | Format::H265);
    Some(match kind {
        video_packet::SEQUENCE_START => VideoTag::Header { format, bytes },
        video_packet::CODED_FRAMES if is_nal_coded => {
            let (shift, bytes) = bytes.split_first_chunk()?;
            VideoTag::Picture { format, shift_ns: milliseconds(*shift) + extra_ns, bytes }
        }
        video_packet::CODED_FRAMES | video_packet::CODED_FRAMES_X => {
            VideoTag::Picture { format, shift_ns: extra_ns, bytes }
        }
        _ => VideoTag::Other,
    })
}

/// Reads the body of a tag of sound.
pub(super) fn sound(body: &[u8]) -> SoundTag<'_> {
    let Some((&first, rest)) = body.split_first() else { return SoundTag::Other };
    match first >> 4 {
        10 => match rest.split_first() {
            Some((0, bytes)) => SoundTag::Header { format: SoundFormat::Aac, bytes },
            Some((1, bytes)) => SoundTag::Frame { format: SoundFormat::Aac, shift_ns: 0, bytes },
            Some(_) => SoundTag::Other,
            None => SoundTag::Short,
        },
        9 => enhanced_sound(first & 15, rest).unwrap_or(SoundTag::Short),
        other => {
            let name = match other {
                2 | 14 => "MP3",
                7 | 8 => "G.711",
                11 => "Speex",
                _ => return SoundTag::Unsupported(format!("sound of FLV's codec {other}")),
            };
            SoundTag::Unsupported(format!("sound in {name}"))
        }
    }
}

/// `None` if it ends too early.
fn enhanced_sound(kind: u8, rest: &[u8]) -> Option<SoundTag<'_>> {
    let (kind, shift_ns, rest) = modified(kind, rest)?;
    if kind == sound_packet::MULTITRACK {
        return Some(SoundTag::Unsupported("sound of several tracks in one stream".to_owned()));
    }
    let (code, bytes) = rest.split_first_chunk()?;
    let format = match code {
        b"mp4a" => SoundFormat::Aac,
        b"Opus" => SoundFormat::Opus,
        code => return Some(SoundTag::Unsupported(format!("sound of the codec {}", shown(*code)))),
    };
    Some(match kind {
        sound_packet::SEQUENCE_START => SoundTag::Header { format, bytes },
        sound_packet::CODED_FRAMES => SoundTag::Frame { format, shift_ns, bytes },
        _ => SoundTag::Other,
    })
}

/// What modifies a packet comes before it: its own kind, what it is shifted by in nanoseconds, and the rest.
fn modified(mut kind: u8, mut rest: &[u8]) -> Option<(u8, i64, &[u8])> {
    let mut shift_ns = 0;
    // The kind of the modifier is the same for pictures and sound.
    while kind == MODIFIER {
        let (&short, mut after) = rest.split_first()?;
        let mut len = usize::from(short) + 1;
        if short == u8::MAX {
            let (long, behind) = after.split_first_chunk()?;
            (len, after) = (usize::from(u16::from_be_bytes(*long)) + 1, behind);
        }
        let (data, after) = after.split_at_checked(len)?;
        let (&kinds, after) = after.split_first()?;
        if kinds >> 4 == TIMESTAMP_OFFSET
            && let Some(&[high, middle, low]) = data.first_chunk()
        {
            shift_ns = i64::from(u32::from_be_bytes([0, high, middle, low]));
        }
        (kind, rest) = (kinds & 15, after);
    }
    Some((kind, shift_ns, rest))
}

/// The format of a four-letter code.
pub(super) fn video_format(code: [u8; 4]) -> Option<Format> {
    match &code {
        b"avc1" => Some(Format::H264),
        b"hvc1" => Some(Format::H265),
        b"av01" => Some(Format::Av1),
        b"vp09" => Some(Format::Vp9),
        _ => None,
    }
}

/// A four-letter code for a person.
fn shown(code: [u8; 4]) -> String {
    format!("{:?}", String::from_utf8_lossy(&code))
}

/// A signed number of 24 bits, in milliseconds.
fn milliseconds([high, middle, low]: [u8; 3]) -> i64 {
    i64::from(i32::from_be_bytes([high, middle, low, 0]) >> 8) * 1_000_000
}

/// The bit of the first byte by which a tag of pictures is of enhanced RTMP.
const ENHANCED: u8 = 0x80;
/// A picture that is none.
const COMMAND_FRAME: u8 = 5;
const MODIFIER: u8 = 7;
const TIMESTAMP_OFFSET: u8 = 0;

mod video_packet {
    pub(super) const SEQUENCE_START: u8 = 0;
    pub(super) const CODED_FRAMES: u8 = 1;
    pub(super) const CODED_FRAMES_X: u8 = 3;
    pub(super) const METADATA: u8 = 4;
    pub(super) const MULTITRACK: u8 = 6;
}

mod sound_packet {
    pub(super) const SEQUENCE_START: u8 = 0;
    pub(super) const CODED_FRAMES: u8 = 1;
    pub(super) const MULTITRACK: u8 = 5;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_of_both_generations() {
        let h264 = |shift_ns| VideoTag::Picture { format: Format::H264, shift_ns, bytes: b"x" };
        assert_eq!(video(&[0x17, 1, 0, 0, 80, b'x']), h264(80_000_000));
        assert_eq!(video(&[0x27, 1, 0xff, 0xff, 0xff, b'x']), h264(-1_000_000));
        assert_eq!(video(b"\x91avc1\0\0\x50x"), h264(80_000_000));
        assert_eq!(video(b"\x93avc1x"), h264(0));
        let header = |format| VideoTag::Header { format, bytes: b"c" };
        assert_eq!(video(&[0x1c, 0, 0, 0, 0, b'c']), header(Format::H265));
        assert_eq!(video(b"\x90av01c"), header(Format::Av1));
        let vp9 = VideoTag::Picture { format: Format::Vp9, shift_ns: 0, bytes: b"\0\0\0" };
        assert_eq!(video(b"\x91vp09\0\0\0"), vp9, "without a time of its own");
        for other in [&b""[..], b"\x57", b"\x17\x02\0\0\0", b"\xd0avc1", b"\x94avc1"] {
            assert_eq!(video(other), VideoTag::Other, "{other:?}");
        }
        let opus = SoundTag::Frame { format: SoundFormat::Opus, shift_ns: 0, bytes: b"x" };
        assert_eq!(sound(b"\x91Opusx"), opus);
        assert_eq!(sound(b"\xaf\x00\x11"), SoundTag::Header { format: SoundFormat::Aac, bytes: b"\x11" });
    }

    #[test]
    fn a_modifier_moves_a_packet_by_nanoseconds() {
        let moved = VideoTag::Picture { format: Format::Av1, shift_ns: 256, bytes: b"x" };
        assert_eq!(video(b"\x97\x02\0\x01\0\x03av01x"), moved);
        let passed_over = VideoTag::Picture { format: Format::Av1, shift_ns: 0, bytes: b"x" };
        assert_eq!(video(b"\x97\x00\0\x13av01x"), passed_over);
    }

    #[test]
    fn codecs_that_cannot_be_carried_are_named() {
        let video = |body: &'static [u8]| match video(body) {
            VideoTag::Unsupported(name) => name,
            other => panic!("{other:?}"),
        };
        assert_eq!(video(b"\x22"), "pictures of FLV's codec 2");
        assert_eq!(video(b"\x90vvc1"), "pictures of the codec \"vvc1\"");
        assert_eq!(video(b"\x96"), "pictures of several tracks in one stream");
        assert_eq!(sound(&[0x2f]), SoundTag::Unsupported("sound in MP3".to_owned()));
    }
}
